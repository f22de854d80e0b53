"""Reductions of all rows of an image, a few rows at a time: each call combines rows with totals of the rows before.

Totals are combined in the order of the elements, so that sums of floats are the same as those of the whole image.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt

from tflm.compiler.intrinsics import elements_from
from tflm.compiler.language import DONE, Elements, Int32s, Step, kernel
from tflm.compiler.processor import Profile
from tflm.delegates.compiled import reduction
from tflm.delegates.compiled.bands import WorkArray, work_array
from tflm.delegates.compiled.movement import fill
from tflm.delegates.compiled.pooling import pool_steps, rounded_mean, windows_of
from tflm.kernels.layers.geometry import Axis
from tflm.kernels.node import Node
from tflm.kernels.reference.reduce import AXIS

COMBINATIONS: dict[str, Callable[..., Any]] = {**reduction.COMBINATIONS, "integers": reduction.wrapped_sum}
Combination = Annotated[Callable[..., Any], COMBINATIONS]

COMBINATION_OF = {**reduction.COMBINATION_OF, "AVERAGE_POOL_2D": "sum", "MAX_POOL_2D": "greater"}
"""The combination of elements, by operator."""

ROWS = 1
"""Dimension of an image that counts its rows."""


@kernel
def accumulate(combination: Combination, x: Elements, totals: Elements, along: int, outputs: int, inner: int) -> int:
    """Combine each total with the elements along the first and the last dimension of x: (along, outputs, inner)."""
    for _i in range(along):
        for k in range(outputs):
            total = totals[k]
            for j in range(inner):
                total = combination(total, x[j])
            totals[k] = total
            x = elements_from(x, inner)
    return DONE


@kernel
def divide_totals(totals: Int32s, y: Elements, outputs: int, count: int, lowest: int, highest: int) -> int:
    """Divide totals by a count, rounded, with halves away from zero, and clamp the results."""
    for k in range(outputs):
        y[k] = min(max(rounded_mean(totals[k], count), lowest), highest)
    return DONE


def _shape(node: Node) -> tuple[int, int, int] | None:
    """Return the input as (along, outputs, inner) if the operator combines all of its rows; None for others."""
    if COMBINATION_OF.get(node.operator, "all") == "all":
        return None
    dims = node.eval_input(0).dims
    if len(dims) != 4 or dims[0] != 1 or 0 in dims:
        return None
    if node.operator.endswith("_POOL_2D"):
        is_whole = all(axis.windows == 1 and axis.taps - axis.before >= axis.size for axis in windows_of(node))
        axes = {1, 2} if is_whole else set[int]()
    else:
        axis = node.eval_input(AXIS)
        axes = {*(axis.elements.reshape(-1) % 4).tolist()} if axis.is_constant else set()
    kept = [d for d in range(ROWS, 4) if d not in axes and dims[d] > 1]
    if ROWS not in axes:
        return None
    first, end = (kept[0], kept[-1] + 1) if kept else (4, 4)
    return math.prod(dims[:first]), math.prod(dims[first:end]), math.prod(dims[end:])


def totals_of(node: Node) -> WorkArray | None:
    """Return memory for the totals of an operator that can combine rows in several calls; None for other operators."""
    shape = _shape(node)
    if shape is None:
        return None
    dtype = node.eval_input(0).elements.dtype
    is_wide = COMBINATION_OF[node.operator] == "sum" and dtype != np.float32
    return work_array(shape[1], np.int32 if is_wide else dtype)


def bind(node: Node, rows: int, *, is_first: bool, is_last: bool) -> list[Step]:
    """Return the steps that combine some rows, which `node` has as its input.

    Args:
        node: the node, with the whole output.
        rows: number of rows of the whole image.
        is_first: whether these are the first rows, so that the totals have no values.
        is_last: whether these are the last rows, after which the output is computed.
    """
    shape, totals, kind = _shape(node), totals_of(node), COMBINATION_OF[node.operator]
    assert shape is not None
    assert totals is not None
    x, y = node.eval_input(0).elements, node.eval_output(0).elements
    along, outputs, inner = shape
    steps: list[Step] = []
    if is_first:
        start = np.array([reduction.start_of(kind, totals.dtype)], totals.dtype)
        steps.append(fill.step(target=totals, source=start, rows=1, target_step=0, source_step=0, count=outputs))
    combination = "integers" if totals.dtype == np.int32 else kind
    steps.append(
        accumulate.step(combination=combination, x=x, totals=totals, along=along, outputs=outputs, inner=inner)
    )
    return [*steps, *(_finish(node, totals, y, rows * x[0, 0].size // outputs) if is_last else ())]


def _finish(node: Node, totals: WorkArray, y: npt.NDArray[Any], count: int) -> list[Step]:
    """Return the steps that compute the output from totals of `count` elements each."""
    strided = reduction.strided_by(totals.shape, np.array([], np.int32), totals.size)
    assert strided is not None
    if not node.operator.endswith("_POOL_2D"):
        return [reduction.reduce_step(node, totals, y.reshape(-1), strided, count)]
    if totals.dtype == np.int32:
        limits = {"lowest": int(node.op_data.minimum), "highest": int(node.op_data.maximum)}
        return [divide_totals.step(totals=totals, y=y, outputs=totals.size, count=count, **limits)]
    one = Axis(1, 1, 1)
    if node.operator == "MAX_POOL_2D":
        return pool_steps(node, Profile.PLAIN, totals.reshape(y.shape), y, one, one) or []
    ends = np.array([0, count], np.float32)
    mean = reduction.combine.step(combination="sum", result="sum", x=totals, y=y.reshape(-1), ends=ends, **strided)
    return [mean, *(pool_steps(node, Profile.PLAIN, y, y, one, one) or ())]
