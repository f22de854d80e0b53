"""Folds PAD into the convolution after it, which then pads its input itself.

A VALID convolution of a padded image equals a SAME convolution of the image itself if SAME pads as many rows and
columns before the image as PAD did. If it does not, extra taps of zeros in the kernel change the padding of SAME until
it does. Padding is zero in both cases, so results stay the same. Generated code pads explicitly instead.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tflm.graph import Graph, alike
from tflm.kernels.layers.geometry import Axis, ExplicitPadding, output_size, padding_before
from tflm.schedule.bands import windows_of
from tflm.schema.enums import BuiltinOperator, Padding, TensorType
from tflm.schema.tables import Operator

CONVOLUTIONS = frozenset({BuiltinOperator.CONV_2D, BuiltinOperator.DEPTHWISE_CONV_2D})

WEIGHTS = (TensorType.INT8, TensorType.FLOAT32)

MAX_ZEROS = 3
"""Maximum number of taps of zeros added on one side of a kernel."""


def padded_axis(size: int, border: tuple[int, int], taps: int, stride: int, dilation: int) -> Axis:
    """The windows of a convolution along one dimension of an image with padding before and after it."""
    before, after = border
    windows = output_size(Padding.VALID, before + size + after, taps, stride, dilation)
    return Axis(size, taps, windows, stride, dilation, before)


def zeros_for_same(axis: Axis) -> tuple[int, int] | None:
    """The fewest taps of zeros before and after the kernel with which SAME has the same windows; None if none do."""
    if axis.windows != output_size(Padding.SAME, axis.size, axis.taps, axis.stride, axis.dilation):
        return None
    choices = sorted(itertools.product(range(MAX_ZEROS + 1), repeat=2), key=lambda zeros: (sum(zeros), zeros))
    for first, last in choices:
        taps, before = first + axis.taps + last, axis.before + first * axis.dilation
        if padding_before(axis.windows, axis.size, taps, axis.stride, axis.dilation) == before:
            return first, last
    return None


def fold_pads(graph: Graph) -> int:
    """Let each convolution pad its input itself if TFLite's options can express it; returns the number of these.

    Unused PADs stay in the graph.
    """
    return _fold(graph, _with_same_padding)


def fold_pads_explicitly(graph: Graph) -> int:
    """Let each convolution pad its input itself, which `ExplicitPadding` expresses; returns the number of these.

    Unused PADs stay in the graph.
    """
    return _fold(graph, _with_explicit_padding)


def _fold(graph: Graph, folded: Callable[[Graph, Operator, Operator], Operator | None]) -> int:
    count = 0
    producers = graph.producers()
    for place, operator in enumerate(graph.operators):
        if graph.code(operator) not in CONVOLUTIONS:
            continue
        pad = graph.operators[producers[_first(operator)]] if _first(operator) in producers else None
        made = folded(graph, operator, pad) if pad is not None else None
        if made is not None:
            graph.operators[place] = made
            count += 1
    return count


def _first(operator: Operator) -> int:
    return (operator.inputs or (-1,))[0]


def _with_same_padding(graph: Graph, operator: Operator, pad: Operator) -> Operator | None:
    """The convolution of the image that `pad` pads, with SAME padding; None if there is none."""
    options: Any = operator.builtin_options
    inputs = list(operator.inputs or ())
    borders = _borders(graph, pad)
    if borders is None or options is None or options.padding != Padding.VALID or not graph.is_constant(inputs[1]):
        return None
    weights = graph.tensors[inputs[1]]
    if weights.type not in WEIGHTS or len(weights.shape or ()) != 4:
        return None
    image, kernel = graph.shape(_first(pad)), graph.constant(inputs[1])
    geometry = ((options.stride_h, options.dilation_h_factor), (options.stride_w, options.dilation_w_factor))
    zeros = [
        zeros_for_same(padded_axis(size, border, taps, *steps))
        for size, border, taps, steps in zip(image[1:3], borders, kernel.shape[1:3], geometry)
    ]
    if None in zeros:
        return None
    if any(map(any, zeros)):  # type: ignore[arg-type]  # no element is None
        larger = np.pad(kernel, ((0, 0), *zeros, (0, 0)))  # type: ignore[arg-type]
        inputs[1] = graph.add_constant(weights.name or "", larger, weights.quantization)
    inputs[0] = _first(pad)
    return graph.like(operator, inputs, operator.outputs or (), padding=Padding.SAME)


def _with_explicit_padding(graph: Graph, operator: Operator, pad: Operator) -> Operator | None:
    """The convolution of the image that `pad` pads, with explicit padding; None if a window would read only zeros."""
    borders, options = _borders(graph, pad), operator.builtin_options
    both = None if borders is None or options is None else windows_of(graph, operator, options)
    if borders is None or both is None:
        return None
    image = graph.shape(_first(pad))
    rows, columns = (
        axis._replace(size=size, before=axis.before + before)
        for axis, size, (before, _) in zip(both, image[1:3], borders)
    )
    if not rows.always_reads or not columns.always_reads:
        return None
    inputs = _first(pad), *(operator.inputs or ())[1:]
    padding = ExplicitPadding(rows.before, columns.before)
    return graph.like(operator, inputs, operator.outputs or (), padding=padding)


def _borders(graph: Graph, pad: Operator) -> Sequence[tuple[int, int]] | None:
    """Padding of rows and columns by a PAD of nothing else; None for other operators."""
    borders = padded_with_zeros(graph, pad)
    return None if borders is None or any(borders[0] + borders[3]) else borders[1:3]


def padded_with_zeros(graph: Graph, operator: Operator) -> Sequence[tuple[int, int]] | None:
    """Padding of a PAD before and after each of four dimensions; None for other operators or nonzero padding.

    Also None if it pads a variable, whose value may have changed when the convolution runs.
    """
    code, inputs, outputs = graph.code(operator), operator.inputs or (), operator.outputs or ()
    if code not in (BuiltinOperator.PAD, BuiltinOperator.PADV2) or not all(map(graph.is_constant, inputs[1:])):
        return None
    if graph.has_state(operator):
        return None
    before, after = graph.tensors[inputs[0]], graph.tensors[outputs[0]]
    if before.type != after.type or not alike(before.quantization, after.quantization):
        return None
    if code is BuiltinOperator.PADV2 and not _is_zero(graph, inputs[2], outputs[0]):
        return None
    paddings: npt.NDArray[Any] = graph.constant(inputs[1])
    if paddings.shape != (4, 2) or (paddings < 0).any():
        return None
    return [(int(first), int(last)) for first, last in paddings.tolist()]


def _is_zero(graph: Graph, value: int, tensor: int) -> bool:
    """Whether this element represents zero in the tensor's quantization."""
    quantization = graph.tensors[tensor].quantization
    zero_points = quantization.zero_point if quantization is not None else None
    return bool(graph.constant(value).reshape(-1)[0] == (zero_points[0] if zero_points else 0))
