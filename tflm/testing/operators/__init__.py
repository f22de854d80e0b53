"""Hypothesis strategies for models of a single operator, with extreme quantization among the ordinary.

Each module has `OPERATORS`, the strategies by operator, and `LARGE`, models whose tensors are so large that an array
which is allocated in each invoke shows. Modules in this folder are found automatically.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pkgutil import iter_modules

from hypothesis import strategies as st

from tflm.testing.drawing import OperatorCase

FAMILIES = [import_module(f"{__name__}.{module.name}") for module in iter_modules(__path__)]

OPERATORS: dict[str, st.SearchStrategy[OperatorCase]] = {
    name: strategy for family in FAMILIES for name, strategy in getattr(family, "OPERATORS", {}).items()
}
"""A strategy for each operator."""

LARGE: dict[str, Callable[[], OperatorCase]] = {
    name: case for family in FAMILIES for name, case in getattr(family, "LARGE", {}).items()
}
"""Large models, by a name that begins with the operator's."""
