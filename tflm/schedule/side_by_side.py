"""DEPTHWISE_CONV_2D of parts of the channels as one of all channels, with taps of zeros: no part is copied."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from tflm.graph import Graph, alike
from tflm.schedule.normal_form import slice_of
from tflm.schema.enums import BuiltinOperator, Padding, TensorType
from tflm.schema.tables import Operator, QuantizationParameters


class _Part(NamedTuple):
    """A convolution of some channels of `source`, from a row and a channel on."""

    source: int
    row: int
    channel: int
    convolution: Operator


def merge_side_by_side(graph: Graph) -> None:
    """Merge convolutions of parts of the channels, if this multiplies less than the parts have elements to copy."""
    replaced: dict[int, list[Operator]] = {}
    for index, operator in enumerate(graph.operators):
        parts = _parts(graph, operator)
        if parts is not None and (merged := _merged(graph, parts, (operator.outputs or ())[0])) is not None:
            replaced[index] = merged
            images = [(part.convolution.inputs or ())[0] for part in parts]
            gone = [*(operator.inputs or ()), *(image for image in images if len(graph.readers()[image]) == 1)]
            replaced |= {graph.producers()[tensor]: [] for tensor in gone}
    graph.operators = [
        each for index, operator in enumerate(graph.operators) for each in replaced.get(index, [operator])
    ]


def _parts(graph: Graph, join: Operator) -> list[_Part] | None:
    """The convolutions that a CONCATENATION of channels joins, each of a SLICE; None if other things are joined."""
    options: Any = join.builtin_options
    producers, readers, parts = graph.producers(), graph.readers(), list[_Part]()
    if graph.code(join) is not BuiltinOperator.CONCATENATION or options is None or options.axis not in (-1, 3):
        return None
    for tensor in join.inputs or ():
        convolution = graph.operators[producers[tensor]] if tensor in producers else None
        if convolution is None or graph.code(convolution) is not BuiltinOperator.DEPTHWISE_CONV_2D:
            return None
        image = (convolution.inputs or ())[0]
        cut = graph.operators[producers[image]] if image in producers else None
        if cut is None or graph.code(cut) is not BuiltinOperator.SLICE or len(readers[tensor]) > 1:
            return None
        source, begins, _ = cut.inputs or ()
        if tensor in graph.outputs or not graph.is_constant(begins) or len(graph.shape(source)) != 4:
            return None
        batch, row, column, channel = graph.constant(begins).tolist()
        if batch or column or graph.shape(image)[2] != graph.shape(source)[2]:
            return None
        parts.append(_Part(source, row, channel, convolution))
    return parts if len(parts) > 1 and len({part.source for part in parts}) == 1 else None


def _merged(graph: Graph, parts: Sequence[_Part], output: int) -> list[Operator] | None:
    """One convolution in place of these; None if they differ in more than taps and rows, or it takes more work."""
    source, (first, *_) = parts[0].source, parts
    options: Any = first.convolution.builtin_options
    weights, biases, channel, copied = [], [], 0, 0
    for part in parts:
        image, filter, *bias = part.convolution.inputs or ()
        made = (part.convolution.outputs or ())[0]
        is_like = part.convolution.builtin_options == options and alike(
            *(graph.tensors[t].quantization for t in (made, output))
        )
        is_plain = graph.is_constant(filter) and graph.tensors[filter].type is TensorType.INT8
        if not (is_like and is_plain and part.channel == channel and len(bias) == 1 and graph.is_constant(bias[0])):
            return None
        weights.append(filter)
        biases.append(bias[0])
        channel += graph.shape(filter)[3]
        copied += graph.size(image)
    shapes = [graph.shape(filter) for filter in weights]
    _, rows, columns, _ = graph.shape(output)
    is_simple = options.depth_multiplier == options.dilation_h_factor == options.dilation_w_factor == 1
    if not is_simple or options.padding != Padding.VALID or len({shape[2] for shape in shapes}) > 1:
        return None
    begin = min(part.row for part in parts)
    taps = max(part.row + shape[1] for part, shape in zip(parts, shapes)) - begin
    more = sum((taps - shape[1]) * shape[2] * shape[3] for shape in shapes) * rows * columns
    held = (rows - 1) * options.stride_h + taps
    quantization = _joined(graph, weights, 3)
    if more > copied or channel != graph.shape(source)[3] or begin + held > graph.shape(source)[1] or not quantization:
        return None
    padded = [
        np.pad(graph.constant(filter), ((0, 0), (part.row - begin, begin + taps - part.row - shape[1]), (0, 0), (0, 0)))
        for part, filter, shape in zip(parts, weights, shapes)
    ]
    joined_bias = graph.add_constant("", np.concatenate([graph.constant(t) for t in biases]), _joined(graph, biases, 0))
    joined_filter = graph.add_constant("", np.concatenate(padded, 3), quantization)
    image, operators = source, list[Operator]()
    if held != graph.shape(source)[1]:
        image = graph.add_tensor(source, None, (1, held, *graph.shape(source)[2:]))
        operators.append(slice_of(graph, source, image, [0, begin, 0, 0]))
    return [*operators, graph.like(first.convolution, [image, joined_filter, joined_bias], [output])]


def _joined(graph: Graph, constants: Sequence[int], axis: int) -> QuantizationParameters | None:
    """The quantization of constants that are joined along their channels; None without scales, or with zero points."""
    scales: list[float] = []
    for tensor in constants:
        own, count = graph.tensors[tensor].quantization, graph.shape(tensor)[axis]
        if own is None or not own.scale or any(own.zero_point or ()) or len(own.scale) not in (1, count):
            return None
        scales += list(own.scale) * (count // len(own.scale))
    own = graph.tensors[constants[0]].quantization
    assert own is not None
    zeros = (0,) * len(scales)
    return dataclasses.replace(own, scale=tuple(scales), zero_point=zeros, min=None, max=None, quantized_dimension=axis)
