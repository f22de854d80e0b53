"""Settings that all tests share."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import sys
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import outcomes
import pytest
import pytest_costs
from crashed_tests import pytest_handlecrashitem as pytest_handlecrashitem
from hypothesis import Phase, settings
from oracle import INSTALLED, Oracle
from pytest_costs import pytest_addoption as pytest_addoption
from pytest_costs import pytest_collection as pytest_collection
from pytest_costs import pytest_sessionfinish as pytest_sessionfinish

# The same few examples in every run: a change is judged by what it changed, and `make long` draws 2000 new ones.
settings.register_profile("default", deadline=None, max_examples=8, derandomize=True)
settings.register_profile("long", deadline=None, max_examples=2000)
settings.register_profile("graphs", deadline=None, max_examples=5000)
settings.load_profile(os.environ.get("TFLM_HYPOTHESIS", "default"))

# Tests of the engine are to run its kernels, not those of numpy until they are compiled.
os.environ.setdefault("TFLM_COMPILED", "wait")

CORPUS = Path(os.environ.get("TFLM_CORPUS", Path(__file__).parents[2] / "shared"))


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marks, and register the hooks that save time."""
    with contextlib.suppress(ImportError):  # without the extra `fast`
        from tflm.compiler import compiler_process  # here, as coverage has begun by now

        # Minutes pass between tests that compile. A new process would import numba and compile shared functions again.
        compiler_process.STILL_TICKS = sys.maxsize
    pytest_costs.register(config)
    config.addinivalue_line("markers", outcomes.MARK)
    config.addinivalue_line("markers", "slow: a test of a module that takes long; `make test-fast` leaves it out")
    config.addinivalue_line("markers", "long: many or large cases of what shorter tests show; `make long` runs it")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """A test with the mark `runs` fails where too few of its models run."""
    outcomes.clear()
    yield
    mark = item.get_closest_marker("runs")
    if mark is not None:
        outcomes.check(*mark.args)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, Any, Any]:
    """Let the summary show skips for the same reason in one line, regardless of the number of skipped tests."""
    report = yield
    if report.skipped and isinstance(report.longrepr, tuple):
        report.longrepr = (str(Path(__file__).parent), None, report.longrepr[2])
    return report


FIRST = ("test_web", "test_c_source")
"""Modules with fixtures or single tests that take long. A process without tests takes over the last ones of another:
what comes first is set up in one process only, and nothing long is left to the end."""


SLOW = {
    *("test_allocator_check", "test_bounds", "test_broken_models", "test_c_kernels", "test_c_source", "test_compiled"),
    *("test_compiled_projects", "test_evaluation", "test_fit", "test_folding", "test_gate", "test_joined_graphs"),
    *("test_json_schema",),
    *("test_kernel_boundaries", "test_kernel_check", "test_kernels", "test_machine_code", "test_memories"),
    *("test_object_loader", "test_overlaps", "test_planner_check", "test_planners", "test_planning", "test_platforms"),
    *("test_rewriting", "test_specifications", "test_strategies", "test_warming", "test_web", "test_working_memory"),
}
"""Modules that take most of the suite's time."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the modules that take long, and mark them; what asks for a corpus is skipped at once without one."""
    items.sort(key=lambda item: item.path.stem not in FIRST)
    for item in items:
        if item.path.stem in SLOW and "corpus" not in getattr(item, "fixturenames", ()):
            item.add_marker("slow")


@pytest.fixture(scope="session")
def corpus() -> Path:
    """The folder with real models and TFLM's recorded answers for them."""
    if not (CORPUS / "models").is_dir():
        pytest.skip(f"no models in {CORPUS}; set TFLM_CORPUS to a folder with models/ and golden/")
    return CORPUS


@pytest.fixture(scope="session")
def oracle() -> Iterator[Oracle]:
    """TFLM itself, in a process of its own."""
    if not INSTALLED:
        pytest.skip("tflite-micro is not installed (pip install -e '.[oracle]')")
    oracle = Oracle()
    yield oracle
    oracle.close()


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Messages that the package logs during a test: pytest's own plugin would take time in every test."""
    messages: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: messages.append(record.getMessage())  # type: ignore[method-assign]
    monkeypatch.setattr(logging.getLogger("tflm"), "handlers", [handler])
    return messages


@pytest.fixture
def unshrunk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Examples that fail are not made smaller, for tests that ask whether there is one."""
    monkeypatch.setattr("tflm.testing.counterexample.PHASES", [Phase.generate])


BROWSERS = ("chromium", "chromium-browser", "google-chrome")
NO_BROWSER = "the tests of pages need Chromium: apt install chromium, or .venv/bin/playwright install chromium"


@pytest.fixture(scope="session")
def chromium() -> str:
    """Return the path of Chromium: the machine's, or playwright's own. Skip the test if there is none."""
    playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright, of the extra `test`")
    path = next(filter(None, map(shutil.which, BROWSERS)), None)
    if path is None:
        with playwright.sync_playwright() as driver:
            path = driver.chromium.executable_path
    if not os.path.exists(path):
        pytest.skip(NO_BROWSER)
    return path


@pytest.fixture(scope="module")
def browser(chromium: str) -> Iterator[Any]:
    """Chromium, without a screen."""
    from playwright import sync_api

    with sync_api.sync_playwright() as driver:
        running = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield running
        running.close()
