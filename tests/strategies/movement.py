"""Models of operators that move elements: padded, sliced, joined, parted, in another shape or order."""

from __future__ import annotations

from functools import partial

import numpy as np
from hypothesis import assume
from hypothesis import strategies as st
from models import FLOAT32, INT8, INT16, INT32, INT64, LARGE_SHAPE, Case, Draw, large, quantization, shapes, values

from tflm.schema import (
    BuiltinOperator,
    ConcatenationOptions,
    ModelBuilder,
    SplitOptions,
    SplitVOptions,
    StridedSliceOptions,
    TensorType,
    quantized,
)


@st.composite
def reshape(draw: Draw) -> Case:
    """RESHAPE of any type, with or without the shape as an input, one dimension left open at times."""
    type = draw(st.sampled_from([FLOAT32, INT8, INT16, INT32]))
    shape = draw(shapes())
    target = list(draw(st.permutations([*shape, 1])))
    if draw(st.booleans()):
        target[draw(st.integers(0, len(target) - 1))] = -1
    builder = ModelBuilder()
    main = builder.subgraph()
    x = main.input("x", shape, type)
    inputs = [x]
    if draw(st.booleans()):
        inputs.append(main.constant("shape", np.array(target, np.int32)))
    y = main.tensor("y", target, type)
    main.operator(BuiltinOperator.RESHAPE, inputs, [y])
    # The wheel reads shapes of outputs from the model, where a dimension of -1 stays: give a tensor behind it.
    flat = main.tensor("flat", (int(np.prod(shape)),), type)
    main.operator(BuiltinOperator.RESHAPE, [y], [flat])
    main.output(flat)
    return builder.build(), [[values(draw, type, shape)]]


PAD_TYPES = (FLOAT32, INT8, INT16, INT32)


@st.composite
def pad(draw: Draw, operator: BuiltinOperator) -> Case:
    """PAD and PADV2; the value of PADV2 may be an input."""
    type = draw(st.sampled_from(PAD_TYPES))
    shape = draw(shapes(1, 5, 4))
    paddings = np.array(
        draw(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=len(shape), max_size=len(shape)))
    )
    parameters = quantization(draw, type)
    builder = ModelBuilder()
    main = builder.subgraph()
    tensors = [main.input("x", shape, type, parameters), main.constant("paddings", paddings.astype(np.int32))]
    inputs = [values(draw, type, shape)]
    if operator == BuiltinOperator.PADV2:
        value = values(draw, type, (1,))
        if draw(st.booleans()):
            tensors.append(main.constant("value", value, parameters))
        else:
            tensors.append(main.input("value", (1,), type, parameters))
            inputs.append(value)
    y = main.tensor("y", tuple(np.array(shape) + paddings.sum(axis=1)), type, parameters)
    main.operator(operator, tensors, [y])
    main.output(y)
    return builder.build(), [inputs]


@st.composite
def strided_slice(draw: Draw) -> Case:
    """STRIDED_SLICE forwards and backwards, with masks, from and to anywhere."""
    type = draw(st.sampled_from([FLOAT32, INT8, INT16, INT32, TensorType.BOOL]))
    shape = draw(shapes(1, 4, 6))
    begin, end, strides, selected, shrink = [], [], [], [], 0
    begin_mask, end_mask = draw(st.integers(0, 15)), draw(st.integers(0, 15))
    for axis, size in enumerate(shape):
        index = st.integers(-size - 1, size + 1)
        begin.append(draw(index))
        end.append(draw(index))
        strides.append(draw(st.sampled_from([1, 1, 2, 3, -1, -2])))
        if draw(st.integers(0, 4)) == 0:
            shrink |= 1 << axis
            begin[-1], strides[-1] = draw(st.integers(-size, size - 1)), 1
            begin_mask &= ~(1 << axis)
            selected.append(begin[-1])
        else:
            first = None if begin_mask >> axis & 1 else begin[-1]
            last = None if end_mask >> axis & 1 else end[-1]
            selected.append(slice(first, last, strides[-1]))
    result = np.empty(shape)[tuple(selected)].shape
    assume(0 not in result)  # which an arena can't hold
    builder = ModelBuilder()
    main = builder.subgraph()
    tensors = [main.input("x", shape, type)]
    for name, numbers in (("begin", begin), ("end", end), ("strides", strides)):
        tensors.append(main.constant(name, np.array(numbers, np.int32)))
    y = main.tensor("y", result, type)
    options = StridedSliceOptions(begin_mask=begin_mask, end_mask=end_mask, shrink_axis_mask=shrink)
    main.operator(BuiltinOperator.STRIDED_SLICE, tensors, [y], options)
    main.output(y)
    return builder.build(), [[values(draw, type, shape)]]


@st.composite
def concatenation(draw: Draw) -> Case:
    """CONCATENATION of one to ten tensors, some of them constants."""
    type = draw(st.sampled_from([FLOAT32, INT8, INT16, INT32, INT64, TensorType.BOOL]))
    shape = draw(shapes(1, 5, 4))
    axis = draw(st.integers(0, len(shape) - 1))
    parameters = quantization(draw, type) if type in (INT8, INT16) else None
    builder = ModelBuilder()
    main = builder.subgraph()
    tensors, inputs, total = [], [], 0
    for i in range(draw(st.integers(1, 10))):
        size = draw(st.integers(1, 4))
        part = (*shape[:axis], size, *shape[axis + 1 :])
        elements = values(draw, type, part)
        if i and draw(st.integers(0, 3)) == 0:
            tensors.append(main.constant(f"c{i}", elements, parameters))
        else:
            tensors.append(main.input(f"x{i}", part, type, parameters))
            inputs.append(elements)
        total += size
    y = main.tensor("y", (*shape[:axis], total, *shape[axis + 1 :]), type, parameters)
    options = ConcatenationOptions(axis=axis - draw(st.sampled_from([0, len(shape)])))
    main.operator(BuiltinOperator.CONCATENATION, tensors, [y], options)
    main.output(y)
    return builder.build(), [inputs]


@st.composite
def split(draw: Draw, operator: BuiltinOperator) -> Case:
    """SPLIT into equal parts, SPLIT_V into any."""
    type = draw(st.sampled_from(PAD_TYPES))
    shape = draw(shapes(1, 5, 4))
    axis = draw(st.integers(0, len(shape) - 1))
    sizes = draw(st.lists(st.integers(1, 4), min_size=1, max_size=5))
    if operator == BuiltinOperator.SPLIT:
        sizes = sizes[:1] * len(sizes)
    whole = (*shape[:axis], sum(sizes), *shape[axis + 1 :])
    builder = ModelBuilder()
    main = builder.subgraph()
    x = main.input("x", whole, type)
    position = main.constant("axis", np.array([axis - draw(st.sampled_from([0, len(shape)]))], np.int32))
    outputs = [main.tensor(f"y{i}", (*shape[:axis], size, *shape[axis + 1 :]), type) for i, size in enumerate(sizes)]
    if operator == BuiltinOperator.SPLIT:
        main.operator(operator, [position, x], outputs, SplitOptions(num_splits=len(sizes)))
    else:
        lengths = main.constant("sizes", np.array(sizes, np.int32))
        main.operator(operator, [x, lengths, position], outputs, SplitVOptions(num_splits=len(sizes)))
    main.output(*outputs)
    return builder.build(), [[values(draw, type, whole)]]


@st.composite
def transpose(draw: Draw) -> Case:
    """TRANSPOSE of up to five dimensions."""
    type = draw(st.sampled_from([FLOAT32, INT8, INT16]))
    shape = draw(shapes(1, 5, 5))
    order = draw(st.permutations(range(len(shape))))
    builder = ModelBuilder()
    main = builder.subgraph()
    x = main.input("x", shape, type)
    y = main.tensor("y", [shape[axis] for axis in order], type)
    main.operator(BuiltinOperator.TRANSPOSE, [x, main.constant("order", np.array(order, np.int32))], [y])
    main.output(y)
    return builder.build(), [[values(draw, type, shape)]]


OPERATORS = {
    "RESHAPE": reshape(),
    "PAD": pad(BuiltinOperator.PAD),
    "PADV2": pad(BuiltinOperator.PADV2),
    "STRIDED_SLICE": strided_slice(),
    "CONCATENATION": concatenation(),
    "SPLIT": split(BuiltinOperator.SPLIT),
    "SPLIT_V": split(BuiltinOperator.SPLIT_V),
    "TRANSPOSE": transpose(),
}


def _large(operator: BuiltinOperator, constants: list[list[int]], shape: tuple[int, ...], outputs: int = 1) -> Case:
    """An operator on a large tensor of int8, with constants of int32 behind it."""
    builder = ModelBuilder()
    main = builder.subgraph()
    x = main.input("x", LARGE_SHAPE, INT8, quantized(0.5))
    tensors = [x, *(main.constant(f"c{i}", np.array(c, np.int32)) for i, c in enumerate(constants))]
    ys = [main.tensor(f"y{i}", shape, INT8, quantized(0.5)) for i in range(outputs)]
    main.operator(operator, tensors[::-1] if operator == BuiltinOperator.SPLIT else tensors, ys)
    main.output(*ys)
    return builder.build(), [[np.ones(LARGE_SHAPE, np.int8)]]


LARGE = {
    "RESHAPE": partial(large, BuiltinOperator.RESHAPE, (INT8, INT8)),
    "PAD": partial(_large, BuiltinOperator.PAD, [[0, 0, 1, 1, 2, 2, 3, 3]], (1, 66, 68, 38)),
    "STRIDED_SLICE": partial(
        _large, BuiltinOperator.STRIDED_SLICE, [[0, 63, 0, 1], [1, -99, 64, 32], [1, -1, 2, 1]], (1, 64, 32, 31)
    ),
    "CONCATENATION": partial(_large, BuiltinOperator.CONCATENATION, [], LARGE_SHAPE),
    "SPLIT": partial(_large, BuiltinOperator.SPLIT, [[3]], (1, 64, 64, 16), 2),
    "SPLIT_V": partial(_large, BuiltinOperator.SPLIT_V, [[16, 16], [3]], (1, 64, 64, 16), 2),
    "TRANSPOSE": partial(_large, BuiltinOperator.TRANSPOSE, [[0, 3, 2, 1]], (1, 32, 64, 64)),
}
