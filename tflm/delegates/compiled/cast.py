"""CAST: converts numbers between types."""

from __future__ import annotations

import numpy as np

from tflm.compiler.language import DONE, Elements, Float32s, Step, UInt8s, kernel
from tflm.compiler.processor import Profile
from tflm.delegates.compiled.casts import as_float64, as_int64
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


@kernel
def truncate(x: Float32s, y: Elements, lowest: float, highest: float, count: int) -> int:
    """Truncate floats towards zero, with saturation; NaN becomes 0."""
    for i in range(count):
        value = as_float64(x[i])
        value = lowest if value < lowest else value
        value = highest if value > highest else value
        y[i] = as_int64(value if value == value else 0.0)
    return DONE


def _bind(context: KernelContext, node: Node, profile: Profile) -> list[Step] | None:
    x, y = (tensor.elements.reshape(-1) for tensor in (node.eval_input(0), node.eval_output(0)))
    have_floats = "f" in (x.dtype.kind, y.dtype.kind)
    if x.dtype == y.dtype or (y.dtype != np.bool_ and not have_floats and x.itemsize == y.itemsize):
        return copy_steps([(y, x.view(y.dtype))])
    if y.dtype == np.bool_:
        return [is_not_zero.step(x=x, y=y, count=y.size)]
    if x.dtype == np.float32:
        limits = np.iinfo(y.dtype)
        return [truncate.step(x=x, y=y, lowest=float(limits.min), highest=float(limits.max), count=y.size)]
    return [convert.step(x=x, y=y, count=y.size)]


BINDINGS = {"CAST": _bind}
