"""CAST: converts numbers between types."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import numpy as np

from tflm.compiler.language import DONE, Elements, Float32s, Step, UInt8s, kernel
from tflm.compiler.processor import Profile
from tflm.delegates.compiled.casts import as_int32, as_int64
from tflm.delegates.compiled.movement import copy_steps
from tflm.kernels.node import KernelContext, Node


@kernel
def convert(x: Elements, y: Elements, count: int) -> int:
    """Convert to integers truncated to the bits of y, or to the nearest floats."""
    for i in range(count):
        y[i] = x[i]
    return DONE


@kernel
def is_not_zero(x: Elements, y: UInt8s, count: int) -> int:
    """Set y to 1 for any number but 0."""
    for i in range(count):
        y[i] = 1 if x[i] != 0 else 0
    return DONE


TRUNCATIONS: dict[str, Callable[..., Any]] = {"int32": as_int32, "int64": as_int64}
Truncation = Annotated[Callable[..., Any], TRUNCATIONS]


@kernel
def truncate(truncation: Truncation, x: Float32s, y: Elements, limits: Float32s, highest: Elements, count: int) -> int:
    """Truncate floats towards zero; NaN becomes 0.

    Numbers below the first limit become the limit, those from the second limit on become `highest`. Both are 0 or
    powers of 2, which float32 represents: there is no other float between the second limit and the integer below it.
    """
    lowest, above = limits[0], limits[1]
    for i in range(count):
        value = x[i]
        if value >= above:
            y[i] = highest[0]
        elif value > lowest:
            y[i] = truncation(value)
        else:
            y[i] = truncation(lowest) if value <= lowest else 0
    return DONE


IN_32_BITS = ("int8", "uint8", "int16", "uint16", "int32")
"""Types whose numbers a processor truncates to in one instruction."""


def _bind(context: KernelContext, node: Node, profile: Profile) -> list[Step] | None:
    x, y = (tensor.elements.reshape(-1) for tensor in (node.eval_input(0), node.eval_output(0)))
    have_floats = "f" in (x.dtype.kind, y.dtype.kind)
    if x.dtype == y.dtype or (y.dtype != np.bool_ and not have_floats and x.itemsize == y.itemsize):
        return copy_steps([(y, x.view(y.dtype))])
    if y.dtype == np.bool_:
        return [is_not_zero.step(x=x, y=y, count=y.size)]
    if x.dtype == np.float32:
        info, truncation = np.iinfo(y.dtype), "int32" if y.dtype in IN_32_BITS else "int64"
        limits = np.array([info.min, info.max + 1], np.float32)
        highest = np.array([info.max], y.dtype)
        return [truncate.step(truncation=truncation, x=x, y=y, limits=limits, highest=highest, count=y.size)]
    return [convert.step(x=x, y=y, count=y.size)]


BINDINGS = {"CAST": _bind}
