"""Models of operators that take parts of tensors, put them together, or put one into another."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from hypothesis import assume
from hypothesis import strategies as st

from tflm.kernels import REGISTRATIONS
from tflm.schema import ELEMENT_TYPES, quantized
from tflm.testing.drawing import (
    FLOAT32,
    INT8,
    INT16,
    INT32,
    INT64,
    Draw,
    OperatorCase,
    quantization,
    scales,
    shapes,
)
from tflm.testing.operators.declared import WITHOUT_ACTIVATION, DrawnOperator, strategy

BELOW, ABOVE = -(2**31), 2**31 - 1


@strategy("STRIDED_SLICE", invokes=2)
def strided_slice(draw: Draw, model: DrawnOperator) -> OperatorCase:
    """Forwards and backwards, with masks, from and to anywhere."""
    shape = tuple(draw(st.lists(st.integers(3, 8) | st.integers(1, 8), min_size=draw(st.integers(0, 3)), max_size=4)))
    begin, end, strides, selected, shrink = [], [], [], [], 0
    begin_mask, end_mask = draw(st.integers(0, 15)), draw(st.integers(0, 15))
    for axis, size in enumerate(shape):
        anywhere = st.integers(-size - 1, size + 1) | st.sampled_from([BELOW, ABOVE])
        low, high = st.sampled_from([0, 0, 1, -size, -size - 1]), st.sampled_from([size, size, size + 1, size - 1, -1])
        # No further: TFLM counts on in 32 bits.
        stride = draw(st.sampled_from([*[1, 1, 1, 1, 2, 3, -1, -1, -1, -2] * 3, ABOVE - 8, BELOW]))
        wide = draw(st.integers(0, 3)) > 0
        begin.append(draw((low if stride > 0 else high) if wide else anywhere))
        end.append(draw((high if stride > 0 else low) if wide else anywhere))
        strides.append(stride)
        if draw(st.integers(0, 4)) == 0:
            shrink |= 1 << axis
            begin[-1], strides[-1] = draw(st.integers(-size, size - 1)), draw(st.integers(1, 3))
            selected.append(0 if begin_mask >> axis & 1 else begin[-1])
        else:
            first = None if begin_mask >> axis & 1 else begin[-1]
            last = None if end_mask >> axis & 1 else end[-1]
            if len(shape) > 1 and not range(size)[first:last:stride]:  # an arena can't hold it
                begin[-1], end[-1] = (0, size) if stride > 0 else (size - 1, -size - 1)
                first = last = None
            selected.append(slice(first, last, stride))
    result = np.empty(shape, np.int8)[tuple(selected)].shape
    assume(0 not in result or result == (0,))  # an arena can't hold it
    model.operand(shape)
    for numbers in (begin, end, strides):
        model.constant(np.array(numbers + [9] * draw(st.integers(0 if shape else 1, 1)), np.int32))
    masks = {"begin_mask": begin_mask, "end_mask": end_mask, "shrink_axis_mask": shrink}
    return model.result(shapes=[result], offset=False, **masks)


@strategy("SLICE", invokes=2)
def slices(draw: Draw, model: DrawnOperator) -> OperatorCase:
    """Within the input, by constants and by inputs."""
    shape = draw(shapes(1, 5, 6))
    begin = [draw(st.integers(0, size - 1) | st.just(0)) for size in shape]
    result = [size - first - draw(st.integers(0, size - first - 1)) for size, first in zip(shape, begin)]
    said = [draw(st.sampled_from([n, n if first + n < size else -1])) for n, first, size in zip(result, begin, shape)]
    model.operand(shape)
    numbers = draw(st.sampled_from([INT32, INT64]))
    model.numbers(begin, numbers)
    model.numbers(said, numbers)
    return model.result()


@strategy("CONCATENATION")
def concatenation(draw: Draw, model: DrawnOperator) -> OperatorCase:
    """One to ten tensors, some of them constants."""
    shape = draw(shapes(1, 6, 3))
    axis = draw(st.integers(0, len(shape) - 1))
    parameters = quantization(draw, model.type) if model.type in (INT8, INT16) else None
    for i, size in enumerate(draw(st.lists(st.integers(1, 4), min_size=1, max_size=10))):
        add = model.weights if i and draw(st.integers(0, 3)) == 0 else model.operand
        add((*shape[:axis], size, *shape[axis + 1 :]), parameters)
    return model.result(parameters, axis=axis - draw(st.sampled_from([0, len(shape)])), **WITHOUT_ACTIVATION)


@strategy("SPLIT", "SPLIT_V")
def split(draw: Draw, model: DrawnOperator) -> OperatorCase:
    """Into equal parts, or into any with SPLIT_V."""
    shape = draw(shapes(1, 6, 3))
    axis = draw(st.integers(0, len(shape) - 1))
    sizes = draw(st.lists(st.integers(1, 4), min_size=1, max_size=5))
    position = np.array([axis - draw(st.sampled_from([0, len(shape)]))], np.int32)
    if model.name == "SPLIT":
        sizes = sizes[:1] * len(sizes)
        model.constant(position)
    model.operand((*shape[:axis], sum(sizes), *shape[axis + 1 :]))
    if model.name == "SPLIT_V":
        model.numbers(sizes)
        model.constant(position)
    return model.result(num_splits=len(sizes))


@strategy("PACK", invokes=2)
def pack(draw: Draw, model: DrawnOperator) -> OperatorCase:
    """Scalars and more; operands beyond the count are left alone."""
    shape = draw(shapes(0, 5, 4))
    axis, count = draw(st.integers(0, len(shape))), draw(st.integers(1, 12))
    for i in range(count + draw(st.integers(0, 1))):
        (model.weights if i and draw(st.integers(0, 3)) == 0 else model.operand)(shape)
    back = draw(st.sampled_from([0, len(shape) + 1]))
    return model.result(shapes=[(*shape[:axis], count, *shape[axis:])], values_count=count, axis=axis - back)


@strategy("UNPACK", invokes=2)
def unpack(draw: Draw, model: DrawnOperator) -> OperatorCase:
    """Draw an UNPACK to scalars and larger tensors."""
    shape = draw(shapes(0, 5, 4))
    axis, count = draw(st.integers(0, len(shape))), draw(st.integers(1, 12))
    model.operand((*shape[:axis], count, *shape[axis:]))
    return model.result(num=count, axis=axis - draw(st.sampled_from([0, len(shape) + 1])))


COPIED = (FLOAT32, INT8, INT16, INT32)


LOOKUPS = [*((type, type) for type in REGISTRATIONS["EMBEDDING_LOOKUP"].types), (INT8, FLOAT32)]


def _indices(draw: Draw, model: DrawnOperator, sizes: int | Sequence[int], shape: tuple[int, ...]) -> None:
    """Indices from 0 to below `sizes`, which broadcast with `shape`: a constant, or others in each invoke."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    arrays = [rng.integers(0, np.asarray(sizes, np.int64), shape).astype(np.int32) for _ in model.invocations]
    if draw(st.booleans()):
        model.constant(arrays[0])
    else:
        model.input(INT32, arrays)


@strategy("GATHER", invokes=2)
def gather(draw: Draw, model: DrawnOperator) -> OperatorCase:
    """Along any dimension, with dimensions of batches before it."""
    shape = draw(shapes(1, 5, 4))
    axis = draw(st.integers(0, len(shape) - 1))
    batch_dims = draw(st.integers(0, axis))
    indices = (*shape[:batch_dims], *draw(shapes(0, 2, 4)))
    (model.operand if draw(st.integers(0, 3)) else model.weights)(shape)
    _indices(draw, model, shape[axis], indices)
    counted_back = draw(st.sampled_from([0, len(indices)])) if batch_dims < len(indices) else 0
    return model.result(axis=axis - draw(st.sampled_from([0, len(shape)])), batch_dims=batch_dims - counted_back)


@strategy("GATHER_ND", invokes=2)
def gather_nd(draw: Draw, model: DrawnOperator) -> OperatorCase:
    """Indices of one number and more."""
    shape = draw(shapes(1, 6, 4))
    length = draw(st.integers(1, min(len(shape), 5)))
    positions = draw(shapes(0, 2, 4))
    model.operand(shape)
    _indices(draw, model, shape[:length], (*positions, length))
    return model.result(shapes=[(*positions, *shape[length:])])


@strategy("EMBEDDING_LOOKUP", kinds=LOOKUPS, invokes=2)
def embedding_lookup(draw: Draw, model: DrawnOperator) -> OperatorCase:
    """Floats, integers, and integers that become floats."""
    shape, count = draw(shapes(2, 4, 5)), draw(st.integers(1, 6))
    _indices(draw, model, shape[0], (count,))
    parameters = quantized(draw(scales())) if model.type == INT8 else None
    (model.weights if draw(st.integers(0, 3)) else model.operand)(shape, parameters)
    return model.result(None if model.types[1] == FLOAT32 else parameters, shapes=[(count, *shape[1:])])


@strategy("DYNAMIC_UPDATE_SLICE", invokes=2)
def dynamic_update_slice(draw: Draw, model: DrawnOperator) -> OperatorCase:
    """Draw an update at any index, often out of range; sometimes the slice is the whole tensor."""
    shape = draw(shapes(1, 6, 4))
    model.operand(shape)
    model.operand([draw(st.integers(1, size)) for size in shape])
    numbers = draw(st.sampled_from([INT32, INT64]))
    limits = np.iinfo(ELEMENT_TYPES[numbers].dtype)
    anywhere = st.integers(-5, 5) | st.integers(0, 3) | st.sampled_from([int(limits.min), int(limits.max)])
    model.numbers([draw(anywhere) for _ in shape], numbers)
    return model.result()
