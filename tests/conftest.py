"""Settings that all tests share."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("default", deadline=None, max_examples=100)
settings.register_profile("long", deadline=None, max_examples=2000)
settings.load_profile(os.environ.get("TFLM_HYPOTHESIS", "default"))

CORPUS = Path(os.environ.get("TFLM_CORPUS", Path(__file__).parents[2] / "shared"))


@pytest.fixture(scope="session")
def corpus() -> Path:
    """The folder with real models and TFLM's recorded answers for them."""
    if not (CORPUS / "models").is_dir():
        pytest.skip(f"no models in {CORPUS}; set TFLM_CORPUS to a folder with models/ and golden/")
    return CORPUS
