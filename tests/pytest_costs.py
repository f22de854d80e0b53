"""Hooks that save a millisecond in each of thousands of tests, and seconds in the first run of a clone."""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import importlib
import os
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from _pytest.runner import runtestprotocol

TIMER_SECONDS = 10
"""Time after which the timer for hangs is restarted. To restart it in each test would take longer than many tests."""


class HangTimer:
    """Ends the process of a test that hangs, after printing the traceback.

    Args:
        seconds: the limit of time for a test.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._stderr = os.dup(2)  # pytest captures descriptor 2 during tests
        self._started = -float("inf")

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self) -> Generator[None, Any, Any]:
        """Start the timer, unless that was a moment ago."""
        now = time.monotonic()
        if now - self._started > TIMER_SECONDS:
            self._started = now
            faulthandler.dump_traceback_later(self._seconds + TIMER_SECONDS, file=self._stderr, exit=True)
        return (yield)

    def pytest_unconfigure(self) -> None:
        """Stop the timer."""
        faulthandler.cancel_dump_traceback_later()
        os.close(self._stderr)


class BriefReports:
    """Reports only what a test did, in a process of pytest-xdist: one message to the main process instead of five."""

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> bool:
        """Run a test, and leave out reports of setups and teardowns that passed."""
        for report in runtestprotocol(item, log=False, nextitem=nextitem):
            if report.when == "call" or not report.passed:
                item.ihook.pytest_runtest_logreport(report=report)
        return True


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the limit of time for a test."""
    what = "a test that takes longer hangs: its traceback is printed, and its process ends (default 180; 0: no limit)"
    parser.addoption("--hang-seconds", type=float, default=180, help=what)


def register(config: pytest.Config) -> None:
    """Register the timer and, in a process of pytest-xdist, the reports."""
    if seconds := config.getoption("--hang-seconds"):
        config.pluginmanager.register(HangTimer(seconds))
    if hasattr(config, "workerinput") and not config.getoption("durations"):
        config.pluginmanager.register(BriefReports())


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, Any, Any]:
    """Collect tests without garbage collection, which would scan thousands of long-lived objects again and again.

    The second process imports the modules in reverse order, so that each process rewrites the assertions of half of
    them in a new clone, and finds the other half in files.
    """
    gc.disable()
    try:
        if os.environ.get("PYTEST_XDIST_WORKER") == "gw1" and session.config.args == session.config.getini("testpaths"):
            for path in sorted(Path(__file__).parent.glob("test_*.py"), reverse=True):
                with contextlib.suppress(Exception, pytest.skip.Exception):  # collecting the module reports these
                    importlib.import_module(path.stem)
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(50_000, 20, 20)
        gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish() -> None:
    """Collect garbage once, for the warnings of what is not closed. pytest does so five times, of what is left."""
    gc.collect()
    gc.freeze()
