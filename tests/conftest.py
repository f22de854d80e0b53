"""Settings that all tests share."""

from __future__ import annotations

import gc
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from oracle import INSTALLED, Oracle

# The same examples in every run: a change is judged by what it changed, and `make long` looks for what nobody has seen.
settings.register_profile("default", deadline=None, max_examples=100, derandomize=True)
settings.register_profile("long", deadline=None, max_examples=2000)
settings.load_profile(os.environ.get("TFLM_HYPOTHESIS", "default"))

CORPUS = Path(os.environ.get("TFLM_CORPUS", Path(__file__).parents[2] / "shared"))


def pytest_collection_finish() -> None:
    """What stands for thousands of tests stays to the end: looking through it for garbage again and again takes longer
    than many of them."""
    gc.freeze()


@pytest.fixture(scope="session")
def corpus() -> Path:
    """The folder with real models and TFLM's recorded answers for them."""
    if not (CORPUS / "models").is_dir():
        pytest.skip(f"no models in {CORPUS}; set TFLM_CORPUS to a folder with models/ and golden/")
    return CORPUS


@pytest.fixture(scope="module")
def oracle() -> Iterator[Oracle]:
    """TFLM itself, in a process of its own."""
    if not INSTALLED:
        pytest.skip("tflite-micro is not installed (pip install -e '.[oracle]')")
    oracle = Oracle()
    yield oracle
    oracle.close()


BROWSERS = ("chromium", "chromium-browser", "google-chrome")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Chromium, without a screen; the tests are skipped where there is none."""
    playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright, of the extra `test`")
    path = next(filter(None, map(shutil.which, BROWSERS)), None)
    if path is None:
        pytest.skip(f"no browser: none of {', '.join(BROWSERS)} is in $PATH")
    with playwright.sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield chromium
        chromium.close()
