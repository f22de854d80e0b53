"""Hypothesis strategies for models of a single operator, with extreme quantization among the ordinary.

Each module has `OPERATORS`, the strategies by operator, and `LARGE`, models whose tensors are too large for anything to
be made anew in each invoke.
"""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import strategies as st
from models import Case

from strategies import (
    activations,
    basic_classifier,
    batch_matmul,
    cast,
    control_flow,
    convolution,
    custom,
    elementwise,
    fully_connected,
    movement,
    pooling,
    quantize,
    recurrent,
    reduce,
    signal,
    slicing,
    unary,
)

FAMILIES = (
    activations,
    basic_classifier,
    batch_matmul,
    cast,
    control_flow,
    convolution,
    custom,
    elementwise,
    fully_connected,
    movement,
    pooling,
    quantize,
    recurrent,
    reduce,
    signal,
    slicing,
    unary,
)

OPERATORS: dict[str, st.SearchStrategy[Case]] = {name: s for family in FAMILIES for name, s in family.OPERATORS.items()}
"""A strategy for each operator."""

LARGE: dict[str, Callable[[], Case]] = {name: case for family in FAMILIES for name, case in family.LARGE.items()}
"""Large models, by a name that begins with the operator's."""
