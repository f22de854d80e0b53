"""Hypothesis strategies for models of a single operator, with extreme quantization among the ordinary.

Each module has `OPERATORS`, the strategies by operator, and `LARGE`, models whose tensors are too large for anything to
be made anew in each invoke.
"""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import strategies as st

from tflm.testing.drawing import OperatorCase
from tflm.testing.operators import (
    activations,
    basic_classifier,
    batch_matmul,
    cast,
    control_flow,
    convolution,
    custom,
    elementwise,
    fully_connected,
    gathering,
    movement,
    pooling,
    quantize,
    recurrent,
    reduce,
    resizing,
    signal,
    slicing,
    unary,
    variables,
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
    gathering,
    movement,
    pooling,
    quantize,
    recurrent,
    reduce,
    signal,
    resizing,
    slicing,
    unary,
    variables,
)

OPERATORS: dict[str, st.SearchStrategy[OperatorCase]] = {
    name: s for family in FAMILIES for name, s in family.OPERATORS.items()
}
"""A strategy for each operator."""

LARGE: dict[str, Callable[[], OperatorCase]] = {
    name: case for family in FAMILIES for name, case in family.LARGE.items()
}
"""Large models, by a name that begins with the operator's."""
