"""CUMSUM along an axis, which may change between invokes.

A tensor is (outer, along, inner): the dimensions before the axis, the axis, and the dimensions after it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tflm.compiler.language import DONE, REFUSED, Float32s, Int8s, Int32s, Step, inlined, kernel
from tflm.compiler.processor import Profile
from tflm.delegates.compiled.casts import as_float32, as_int32, as_int64
from tflm.delegates.compiled.fixed_point import Multiplier, Stage, clamped, requantization, scaled, wrapped
from tflm.kernels.node import KernelContext, Node
from tflm.kernels.reference.reduce import AXIS, INPUT, TERM_SHIFT, CumsumQuantization
from tflm.schema.options import CumsumOptions


@inlined
def size_of(dims: Int32s, first: int, end: int) -> int:
    """Return the number of elements in a range of dimensions."""
    size: int = as_int32(1)
    for i in range(first, end):
        size = as_int32(size * dims[i])
    return size


@kernel
def add_up_float32(
    x: Float32s, y: Float32s, axis: Int32s, dims: Int32s, rank: int, is_exclusive: int, is_reversed: int
) -> int:
    """Compute sums of floats up to each element, including it or not."""
    dimension = axis[0] + rank if axis[0] < 0 else axis[0]
    if dimension < 0 or dimension >= rank:
        return REFUSED
    outer, along, inner = size_of(dims, 0, dimension), dims[dimension], size_of(dims, dimension + 1, rank)
    for i in range(outer):
        for k in range(inner):
            total = as_float32(0)
            for j in range(along):
                place = (i * along + (along - 1 - j if is_reversed else j)) * inner + k
                before = total
                total += x[place]
                y[place] = before if is_exclusive else total
    return DONE


@kernel
def add_up_int8(
    x: Int8s,
    y: Int8s,
    axis: Int32s,
    dims: Int32s,
    rank: int,
    is_exclusive: int,
    is_reversed: int,
    input_zero_point: int,
    multiplier: Multiplier,
    stage: Stage,
) -> int:
    """Compute the same for int8, and requantize.

    Sums wrap to 32 bits.
    """
    dimension = axis[0] + rank if axis[0] < 0 else axis[0]
    if dimension < 0 or dimension >= rank:
        return REFUSED
    outer, along, inner = size_of(dims, 0, dimension), dims[dimension], size_of(dims, dimension + 1, rank)
    for i in range(outer):
        for k in range(inner):
            total = as_int32(-input_zero_point)
            for j in range(along):
                place = (i * along + (along - 1 - j if is_reversed else j)) * inner + k
                before = total
                total = as_int32(as_int64(total) + x[place] - input_zero_point)
                terms = wrapped(as_int64(before if is_exclusive else total) << TERM_SHIFT)
                y[place] = clamped(
                    wrapped(scaled(terms, multiplier) + stage.zero_point), stage.activation_min, stage.activation_max
                )
    return DONE


def _bind(context: KernelContext, node: Node, profile: Profile) -> list[Step] | None:
    input, axis = (node.eval_input(i) for i in (INPUT, AXIS))
    options = node.options(CumsumOptions)
    arrays: dict[str, Any] = {
        "x": input.elements,
        "y": node.eval_output(0).elements,
        "axis": axis.elements.reshape(-1),
        "dims": np.array(input.dims, np.int32),
        "rank": len(input.dims),
        "is_exclusive": bool(options.exclusive),
        "is_reversed": bool(options.reverse),
    }
    op: CumsumQuantization | None = node.op_data
    if op is None:
        return [add_up_float32.step(**arrays)]
    return [add_up_int8.step(**arrays, input_zero_point=op.input_zero_point, **requantization(op.output))]


BINDINGS = {"CUMSUM": _bind}
