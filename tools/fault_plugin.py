"""The pytest plugin for `tools/faults.py`.

It reports each test and its duration to the recorder. If `SELECTION` is in the environment, it is a file with the tests
to run, in order. Other cases of the same test functions run last, as far as there is time.
"""

from __future__ import annotations

import os
import resource
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from fault_recorder import recorder

SELECTION = "TFLM_FAULTS_SELECTION"
OTHER_CASES, OTHER_SECONDS = 400, 15.0
"""Cases of a test function that run though they were not selected, and the time after which no more begin."""

DATA_BYTES = 6 << 30
"""Memory limit of the tests' own process, because a fault may request any amount."""


others: set[str] = set()
"""The names of the cases that run last."""

others_end: list[float] = []
"""When the time for them ends, once the first of them has begun."""


class Unlimited(subprocess.Popen[Any]):
    """A process without the limit: sanitizers of C programs reserve all addresses."""

    def __init__(self, *arguments: Any, **keywords: Any):
        limit, most = resource.getrlimit(resource.RLIMIT_DATA)
        resource.setrlimit(resource.RLIMIT_DATA, (most, most))
        try:
            super().__init__(*arguments, **keywords)
        finally:
            resource.setrlimit(resource.RLIMIT_DATA, (limit, most))


def pytest_configure() -> None:
    """Limit the memory, and import the compiler's modules, so that the recorder sees them."""
    resource.setrlimit(resource.RLIMIT_DATA, (DATA_BYTES, resource.getrlimit(resource.RLIMIT_DATA)[1]))
    subprocess.Popen = Unlimited  # type: ignore[misc]
    if recorder is not None:
        import tflm.compiler.llvm_ir  # noqa: F401


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep what is selected, and other cases of the same test functions."""
    if SELECTION in os.environ:
        cases: dict[str, list[pytest.Item]] = {}
        for item in items:
            cases.setdefault(item.nodeid.split("[")[0], []).append(item)
        tests = Path(os.environ[SELECTION]).read_text(encoding="utf-8").splitlines()
        places = {test: place for place, test in enumerate(tests)}
        functions = dict.fromkeys(test.split("[")[0] for test in tests)
        more = [item for name in functions for item in cases.get(name, ())[:OTHER_CASES] if item.nodeid not in places]
        found = (item for item in items if item.nodeid in places)
        items[:] = [*sorted(found, key=lambda item: places[item.nodeid]), *more]
        others.update(item.nodeid for item in more)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> bool | None:
    """Leave out a case for which there is no time left."""
    if item.nodeid not in others:
        return None
    if not others_end:
        others_end.append(time.monotonic() + OTHER_SECONDS)
    return True if time.monotonic() > others_end[0] else None


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """Another test begins. The suite's own reports for xdist leave out earlier hooks."""
    if recorder is not None:
        recorder.begin()


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """A test is set up, called or torn down; with xdist, the report comes again where no test runs."""
    if recorder is not None and not hasattr(report, "node"):
        recorder.write(f"+{report.duration} {report.outcome}", report.nodeid)
