"""Operators that copy elements, a few output rows at a time, in programs of C."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import tflm
from tflm.c.binding import bind_model
from tflm.c.row_copies import BY_ROWS, copies_of_rows, rows_read
from tflm.schedule.rows import Rows
from tflm.schema import (
    BuiltinOperator,
    ConcatenationOptions,
    PadOptions,
    SliceOptions,
    StridedSliceOptions,
    TensorType,
    TransposeOptions,
)

ROWS = st.integers(1, 4)


@st.composite
def copying(draw: Any) -> tflm.Model:
    """PAD, CONCATENATION of two images or of one twice, TRANSPOSE, SLICE, or STRIDED_SLICE in either direction."""
    builder = tflm.ModelBuilder()
    main = builder.subgraph()
    code = draw(st.sampled_from([BuiltinOperator[name] for name in sorted(BY_ROWS - {"PADV2"})]))
    options: Any
    shape = np.array([1, draw(ROWS), draw(ROWS), draw(ROWS)])
    x = main.input("x", tuple(shape.tolist()), TensorType.INT8, tflm.quantized(0.5))
    if code == BuiltinOperator.PAD:
        around = np.array([(0, 0), *(draw(st.tuples(*[st.integers(0, 3)] * 2)) for _ in range(3))], np.int32)
        inputs, options, shape = [x, main.constant("around", around)], PadOptions(), shape + around.sum(axis=1)
    elif code == BuiltinOperator.TRANSPOSE:
        order = np.array(draw(st.permutations(range(4))), np.int32)
        inputs, options, shape = [x, main.constant("order", order)], TransposeOptions(), shape[order]
    elif code == BuiltinOperator.SLICE:
        begin = np.array([draw(st.integers(0, int(size) - 1)) for size in shape], np.int32)
        shape = np.array([draw(st.integers(1, int(size))) for size in shape - begin], np.int32)
        inputs, options = [x, main.constant("begin", begin), main.constant("size", shape)], SliceOptions()
    elif code == BuiltinOperator.STRIDED_SLICE:
        strides = np.array([1, *(draw(st.sampled_from([1, 2, -1])) for _ in range(3))], np.int32)
        ends = [main.constant(name, np.zeros(4, np.int32)) for name in ("begin", "end")]
        inputs, options = [x, *ends, main.constant("strides", strides)], StridedSliceOptions(begin_mask=15, end_mask=15)
        shape = -(-shape // abs(strides))
    else:
        axis = draw(st.integers(1, 3))
        other = (
            x if draw(st.booleans()) else main.input("z", tuple(shape.tolist()), TensorType.INT8, tflm.quantized(0.5))
        )
        shape[axis] *= 2
        inputs, options = [x, other], ConcatenationOptions(axis=axis)
    y = main.tensor("y", tuple(shape.tolist()), TensorType.INT8, tflm.quantized(0.5))
    main.operator(code, inputs, [y], options)
    main.output(y)
    return tflm.Model(builder.build())


@settings(max_examples=25)
@given(copying())
def test_rows_are_copied_alone_from_the_rows_that_they_are_said_to_read(model: tflm.Model) -> None:
    bound = bind_model(model)
    (operator,) = bound.operators[0]
    tensors, node = bound.tensors(), operator.node
    y = tensors[node.outputs[0]].elements
    images = [tensors[i].elements for i in dict.fromkeys(node.inputs) if not tensors[i].is_constant]
    read = rows_read(bound, operator)
    for row in range(y.shape[1]):
        copies = copies_of_rows(bound, operator, Rows(row, row + 1))
        if copies is None:
            assert read is None
            continue
        y[...] = 0
        for target, _ in copies:
            target[...] = 1
        assert not np.delete(y, row, axis=1).any(), "another row is written"
        assert y[:, row].all(), "not all of the row is written"
        for image in images if read is not None else ():
            image[...] = 1
            image[:, read[row].first : read[row].end] = 0
            assert not any(source.any() for _, source in copies if np.may_share_memory(source, image))
            image[...] = 0
    if read is not None:
        assert [rows.first for rows in read] == sorted(rows.first for rows in read)
        assert len(read) == y.shape[1]


def test_padding_below_is_read_with_the_last_row() -> None:
    """So rows are read in order, and none is kept longer than needed."""
    builder = tflm.ModelBuilder()
    main = builder.subgraph()
    x = main.input("x", (1, 3, 2, 1), TensorType.INT8, tflm.quantized(0.5))
    around = main.constant("around", np.array([(0, 0), (1, 2), (1, 0), (0, 0)], np.int32))
    y = main.tensor("y", (1, 6, 3, 1), TensorType.INT8, tflm.quantized(0.5))
    main.operator(BuiltinOperator.PAD, [x, around], [y], PadOptions())
    main.output(y)
    bound = bind_model(tflm.Model(builder.build()))
    read = rows_read(bound, bound.operators[0][0])
    assert read == [Rows(*each) for each in ((0, 1), (0, 1), (1, 2), (2, 3), (2, 3), (2, 3))]
