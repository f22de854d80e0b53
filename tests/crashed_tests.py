"""A hook of pytest-xdist: a test that crashed its process, or that hung, is not run again by another process."""

from __future__ import annotations

import itertools
from typing import Any

import pytest


@pytest.hookimpl(optionalhook=True)
def pytest_handlecrashitem(crashitem: str, sched: Any) -> None:
    """Count the test as run: xdist's schedule by module hands the module out again, begun with this test."""
    assigned = itertools.chain.from_iterable(units.values() for units in sched.assigned_work.values())
    for tests in itertools.chain(sched.workqueue.values(), assigned):
        if crashitem in tests:
            tests[crashitem] = True
