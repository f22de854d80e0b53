"""Models of operators that take parts of tensors, or put them together."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from hypothesis import assume
from hypothesis import strategies as st

from tflm.schema import (
    ELEMENT_TYPES,
    BuiltinOperator,
    ConcatenationOptions,
    PackOptions,
    SplitOptions,
    SplitVOptions,
    StridedSliceOptions,
    TensorType,
    UnpackOptions,
    quantized,
)
from tflm.testing.drawing import (
    FLOAT32,
    INT8,
    INT16,
    INT32,
    INT64,
    LARGE_SHAPE,
    Draw,
    OperatorCase,
    quantization,
    shapes,
)
from tflm.testing.operators.single_operator import SingleOperator, any_values

BOOL = TensorType.BOOL
SPLIT_TYPES = [FLOAT32, INT8, INT16, INT32]


@st.composite
def strided_slice(draw: Draw) -> OperatorCase:
    """STRIDED_SLICE forwards and backwards, with masks, from and to anywhere."""
    type = draw(st.sampled_from([FLOAT32, INT8, INT16, INT32, BOOL]))
    shape = tuple(draw(st.lists(st.integers(3, 8) | st.integers(1, 8), max_size=4)))
    begin, end, strides, selected, shrink = [], [], [], [], 0
    begin_mask, end_mask = draw(st.integers(0, 15)), draw(st.integers(0, 15))
    for axis, size in enumerate(shape):
        anywhere = st.integers(-size - 1, size + 1) | st.sampled_from([-(2**31), 2**31 - 1])
        low, high = st.sampled_from([0, 0, 1, -size, -size - 1]), st.sampled_from([size, size, size + 1, size - 1, -1])
        stride = draw(
            st.sampled_from([*[1, 1, 1, 1, 2, 3, -1, -1, -1, -2] * 3, 2**31 - 9, -(2**31)])
        )  # no further: TFLM counts on in 32 bits
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
            selected.append(slice(first, last, strides[-1]))
    result = np.empty(shape, np.int8)[tuple(selected)].shape
    assume(0 not in result or result == (0,))  # which an arena can't hold
    model = SingleOperator(invokes=2)
    model.drawn(draw, type, shape)
    for numbers in (begin, end, strides):
        model.constant(np.array(numbers + [9] * draw(st.integers(0 if shape else 1, 1)), np.int32))
    options = StridedSliceOptions(begin_mask=begin_mask, end_mask=end_mask, shrink_axis_mask=shrink)
    return model.case(BuiltinOperator.STRIDED_SLICE, [(result, type, None)], options)


@st.composite
def slices(draw: Draw) -> OperatorCase:
    """SLICE within the input, by constants and by inputs."""
    type = draw(st.sampled_from([FLOAT32, INT8, INT16, INT32, BOOL]))
    shape = draw(shapes(1, 5, 6))
    begin = [draw(st.integers(0, size - 1) | st.just(0)) for size in shape]
    result = [size - first - draw(st.integers(0, size - first - 1)) for size, first in zip(shape, begin)]
    said = [draw(st.sampled_from([n, n if first + n < size else -1])) for n, first, size in zip(result, begin, shape)]
    model = SingleOperator(invokes=2)
    model.drawn(draw, type, shape)
    numbers = draw(st.sampled_from([INT32, INT64]))
    model.either(draw, begin, numbers)
    model.either(draw, said, numbers)
    return model.case(BuiltinOperator.SLICE, [(result, type, None)])


@st.composite
def concatenation(draw: Draw) -> OperatorCase:
    """CONCATENATION of one to ten tensors, some of them constants."""
    type = draw(st.sampled_from([FLOAT32, INT8, INT16, INT32, INT64, BOOL]))
    shape = draw(shapes(1, 6, 3))
    axis = draw(st.integers(0, len(shape) - 1))
    parameters = quantization(draw, type) if type in (INT8, INT16) else None
    model = SingleOperator()
    sizes = draw(st.lists(st.integers(1, 4), min_size=1, max_size=10))
    for i, size in enumerate(sizes):
        part = (*shape[:axis], size, *shape[axis + 1 :])
        if i and draw(st.integers(0, 3)) == 0:
            model.constant(any_values(draw, type, part), parameters)
        else:
            model.drawn(draw, type, part, parameters)
    result = (*shape[:axis], sum(sizes), *shape[axis + 1 :])
    options = ConcatenationOptions(axis=axis - draw(st.sampled_from([0, len(shape)])))
    return model.case(BuiltinOperator.CONCATENATION, [(result, type, parameters)], options)


@st.composite
def split(draw: Draw, operator: BuiltinOperator) -> OperatorCase:
    """SPLIT into equal parts, SPLIT_V into any."""
    type = draw(st.sampled_from(SPLIT_TYPES))
    shape = draw(shapes(1, 6, 3))
    axis = draw(st.integers(0, len(shape) - 1))
    sizes = draw(st.lists(st.integers(1, 4), min_size=1, max_size=5))
    position = np.array([axis - draw(st.sampled_from([0, len(shape)]))], np.int32)
    if operator == BuiltinOperator.SPLIT:
        sizes = sizes[:1] * len(sizes)
    whole = (*shape[:axis], sum(sizes), *shape[axis + 1 :])
    model = SingleOperator()
    if operator == BuiltinOperator.SPLIT:
        model.constant(position)
        model.drawn(draw, type, whole)
    else:
        model.drawn(draw, type, whole)
        model.either(draw, sizes, INT32)
        model.constant(position)
    outputs = [((*shape[:axis], size, *shape[axis + 1 :]), type, None) for size in sizes]
    kind = SplitOptions if operator == BuiltinOperator.SPLIT else SplitVOptions
    return model.case(operator, outputs, kind(num_splits=len(sizes)))


@st.composite
def pack(draw: Draw) -> OperatorCase:
    """PACK of scalars and more; operands beyond the count are left alone."""
    type = draw(st.sampled_from([*SPLIT_TYPES, INT64]))
    shape = draw(shapes(0, 5, 4))
    axis = draw(st.integers(0, len(shape)))
    count = draw(st.integers(1, 12))
    model = SingleOperator(invokes=2)
    for i in range(count + draw(st.integers(0, 1))):
        if i and draw(st.integers(0, 3)) == 0:
            model.constant(any_values(draw, type, shape))
        else:
            model.drawn(draw, type, shape)
    options = PackOptions(values_count=count, axis=axis - draw(st.sampled_from([0, len(shape) + 1])))
    return model.case(BuiltinOperator.PACK, [((*shape[:axis], count, *shape[axis:]), type, None)], options)


@st.composite
def unpack(draw: Draw) -> OperatorCase:
    """UNPACK to scalars and more."""
    type = draw(st.sampled_from(SPLIT_TYPES))
    shape = draw(shapes(0, 5, 4))
    axis = draw(st.integers(0, len(shape)))
    count = draw(st.integers(1, 12))
    model = SingleOperator(invokes=2)
    model.drawn(draw, type, (*shape[:axis], count, *shape[axis:]))
    options = UnpackOptions(num=count, axis=axis - draw(st.sampled_from([0, len(shape) + 1])))
    return model.case(BuiltinOperator.UNPACK, [(shape, type, None)] * count, options)


OPERATORS = {
    "STRIDED_SLICE": strided_slice(),
    "SLICE": slices(),
    "CONCATENATION": concatenation(),
    "SPLIT": split(BuiltinOperator.SPLIT),
    "SPLIT_V": split(BuiltinOperator.SPLIT_V),
    "PACK": pack(),
    "UNPACK": unpack(),
}


def _large(name: str, type: TensorType) -> OperatorCase:
    parameters = quantized(0.5) if type in (INT8, INT16) else None
    numbers, options, result, inputs = LARGE_OPERATORS[name]
    model = SingleOperator()
    axis = [np.array(n, np.int32) for n in numbers]
    if name == "SPLIT":
        model.constant(axis.pop())
    for _ in range(inputs):
        model.input(type, [np.ones(LARGE_SHAPE, ELEMENT_TYPES[type].dtype)], parameters)
    for array in axis:
        model.constant(array)
    return model.case(BuiltinOperator[name], [(shape, type, parameters) for shape in result], options)


LARGE_OPERATORS: dict[str, tuple[list[list[int]], Any, list[tuple[int, ...]], int]] = {
    "STRIDED_SLICE": (
        [[0, 63, 0, 1], [1, -99, 64, 32], [1, -1, 2, 1]],
        StridedSliceOptions(),
        [(1, 64, 32, 31)],
        1,
    ),
    "SLICE": ([[0, 1, 2, 3], [1, 60, -1, 20]], None, [(1, 60, 62, 20)], 1),
    "CONCATENATION": ([], ConcatenationOptions(axis=3), [(1, 64, 64, 64)], 2),
    "SPLIT": ([[3]], None, [(1, 64, 64, 16)] * 2, 1),
    "SPLIT_V": ([[24, 8], [3]], None, [(1, 64, 64, 24), (1, 64, 64, 8)], 1),
    "PACK": ([], PackOptions(values_count=2, axis=-1), [(1, 64, 64, 32, 2)], 2),
    "UNPACK": ([], UnpackOptions(num=32, axis=3), [(1, 64, 64)] * 32, 1),
}
"""Constants, options, shapes of outputs, and how many large inputs come before the constants (SPLIT has them after)."""

LARGE = {f"{name}-{type.name}": partial(_large, name, type) for name in LARGE_OPERATORS for type in SPLIT_TYPES}
