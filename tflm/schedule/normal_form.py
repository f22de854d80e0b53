"""Express operators that move elements as RESHAPE and SLICE where possible, to have fewer kinds of them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from tflm.graph import Graph
from tflm.kernels.layers.geometry import transposed
from tflm.kernels.reference.strided_slice import SLICE_RANK
from tflm.schema.enums import BuiltinOperator, TensorType
from tflm.schema.options import DepthwiseConv2DOptions, ReshapeOptions, SliceOptions
from tflm.schema.tables import Operator

SPLITS = {BuiltinOperator.SPLIT: (1, 0), BuiltinOperator.SPLIT_V: (0, 2)}
"""The positions of the split tensor and of the axis among the inputs."""
RESHAPES = (BuiltinOperator.EXPAND_DIMS, BuiltinOperator.SQUEEZE, BuiltinOperator.RESHAPE)


def normalize(graph: Graph) -> None:
    """Replace EXPAND_DIMS and SQUEEZE by RESHAPE, and STRIDED_SLICE with steps of 1 by SLICE and RESHAPE."""
    operators: list[Operator] = []
    for operator in graph.operators:
        code = graph.code(operator)
        inputs, outputs = operator.inputs or (), operator.outputs or ()
        if graph.has_state(operator):
            operators.append(operator)
        elif code in RESHAPES and graph.size(inputs[0]) == graph.size(outputs[0]):
            operators.append(reshape_to(graph, inputs[0], outputs[0]))
        elif code is BuiltinOperator.STRIDED_SLICE and (ranges := _ranges(graph, operator)) is not None:
            shape = [len(positions) for positions in ranges]
            is_shrunk = tuple(shape) != graph.shape(outputs[0])
            part = graph.add_tensor(outputs[0], None, shape) if is_shrunk else outputs[0]
            operators.append(slice_of(graph, inputs[0], part, [positions.start for positions in ranges]))
            if is_shrunk:
                operators.append(reshape_to(graph, part, outputs[0]))
        else:
            operators.append(operator)
    graph.operators = operators


def separate_parts(graph: Graph, ends: Collection[int]) -> None:
    """Replace SPLIT and SPLIT_V by a SLICE of each part at its first reader, and a SLICE of a part by a single SLICE.

    Args:
        graph: the graph.
        ends: tensors that are needed even if no operator reads them.
    """
    operators: list[Operator] = []
    parts: dict[int, tuple[int, list[int]]] = {}  # pending slices: the tensor that each is cut from, and the offsets
    left: set[int] = set()

    def write(tensor: int) -> None:
        left.remove(tensor)
        operators.append(slice_of(graph, parts[tensor][0], tensor, parts[tensor][1]))

    for operator in graph.operators:
        code, inputs, outputs = graph.code(operator), operator.inputs or (), operator.outputs or ()
        if code is BuiltinOperator.SLICE and inputs[0] in parts and all(map(graph.is_constant, inputs[1:])):
            source, begins = parts[inputs[0]]
            own = graph.constant(inputs[1]).tolist()
            operators.append(slice_of(graph, source, outputs[0], [a + b for a, b in zip(begins, own)]))
            continue
        for tensor in dict.fromkeys(inputs):
            if tensor in left:
                write(tensor)
        place, axis = SPLITS.get(code, (0, 0))
        source, begin = inputs[place] if inputs else -1, 0
        if code not in SPLITS or not graph.is_constant(inputs[axis]) or not _can_be_sliced(graph, source):
            operators.append(operator)
            continue
        rank = len(graph.shape(source))
        along = int(graph.constant(inputs[axis]).reshape(-1)[0]) % rank
        for output in outputs:
            parts[output] = source, [begin if each == along else 0 for each in range(rank)]
            begin += graph.shape(output)[along]
        left.update(outputs)
    for tensor in left.intersection(ends):
        write(tensor)
    graph.operators = operators


def _can_be_sliced(graph: Graph, tensor: int) -> bool:
    return len(graph.shape(tensor)) <= SLICE_RANK and not graph.tensors[tensor].is_variable


def see_rows_as_columns(graph: Graph) -> None:
    """Transpose DEPTHWISE_CONV_2D of one column and one output row, because kernels handle columns faster."""
    operators: list[Operator] = []
    for operator in graph.operators:
        options: Any = operator.builtin_options
        if isinstance(options, DepthwiseConv2DOptions) and _is_one_column(graph, operator):
            source, filter, *bias = operator.inputs or ()
            batches, rows, columns, channels = graph.shape(source)
            image = graph.add_tensor(source, None, (batches, columns, rows, channels))
            operators.append(reshape_to(graph, source, image))
            taps = (1, 1, graph.shape(filter)[1], graph.shape(filter)[3])
            filter = graph.add_constant("", graph.constant(filter).reshape(taps), graph.tensors[filter].quantization)
            operator = graph.like(
                operator,
                [image, filter, *bias],
                operator.outputs or (),
                stride_w=options.stride_h,
                stride_h=options.stride_w,
                dilation_w_factor=options.dilation_h_factor,
                padding=transposed(options.padding),
                dilation_h_factor=options.dilation_w_factor,
            )
        operators.append(operator)
    graph.operators = operators


def _is_one_column(graph: Graph, convolution: Operator) -> bool:
    """Whether a convolution has one column, computes one row, and has constant taps of whole bytes."""
    (source, filter, *_), (output,) = convolution.inputs or (), convolution.outputs or ()
    shapes = graph.shape(source), graph.shape(filter), graph.shape(output)
    is_narrow = all(len(shape) == 4 and shape[2] == 1 for shape in shapes) and shapes[2][1] == 1 < shapes[1][1]
    return is_narrow and graph.is_constant(filter) and graph.tensors[filter].type is not TensorType.INT4


def reshape_to(graph: Graph, source: int, target: int) -> Operator:
    """Return a RESHAPE to the target's shape."""
    shape = graph.shape(target)
    inputs = [source, graph.add_constant("", np.array(shape, np.int32))]
    return graph.new_operator(BuiltinOperator.RESHAPE, inputs, [target], ReshapeOptions(new_shape=shape))


def slice_of(graph: Graph, source: int, target: int, begins: Sequence[int]) -> Operator:
    """Return a SLICE of the target's shape from these positions."""
    numbers = (np.array(values, np.int32) for values in (begins, graph.shape(target)))
    inputs = [source, *(graph.add_constant("", each) for each in numbers)]
    return graph.new_operator(BuiltinOperator.SLICE, inputs, [target], SliceOptions())


def _ranges(graph: Graph, operator: Operator) -> list[range] | None:
    """Return the positions that a STRIDED_SLICE reads in each dimension; None if they are unknown or not
    consecutive."""
    inputs, options = operator.inputs or (), operator.builtin_options
    shape = graph.shape(inputs[0])
    if not all(map(graph.is_constant, inputs[1:])) or any(graph.size(t) != len(shape) for t in inputs[1:]):
        return None
    flags: Any = options
    if flags is None or flags.ellipsis_mask or flags.new_axis_mask or flags.offset:
        return None
    ranges = []
    for axis, (begin, end, step) in enumerate(zip(*(graph.constant(t).tolist() for t in inputs[1:]))):
        if step != 1:
            return None
        if flags.shrink_axis_mask >> axis & 1:
            position = range(shape[axis])[begin]
            ranges.append(range(position, position + 1))
        else:
            first = None if flags.begin_mask >> axis & 1 else begin
            last = None if flags.end_mask >> axis & 1 else end
            ranges.append(range(shape[axis])[first:last])
    return ranges if all(ranges) else None
