"""Operators that can run band by band: the input rows that a band of output rows needs, and the operator for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from tflm.errors import OperatorError
from tflm.graph import Graph
from tflm.kernels.layers.geometry import Axis, axes, effective_size, output_size
from tflm.kernels.overlap import element_wise
from tflm.schedule.rows import Border, Rows, Window, band_of_border, band_of_windows
from tflm.schema.enums import BuiltinOperator, TensorType
from tflm.schema.tables import Operator


class BandStep(NamedTuple):
    """One operator of a band.

    Attributes:
        needed: rows of each input that is read in bands, by input index.
        made: rows of the output, including garbage at the edges.
        options: fields of the options that differ from the original operator's.
        constants: constant inputs that differ from the original operator's, by input index.
    """

    needed: dict[int, Rows]
    made: Rows
    options: dict[str, Any]
    constants: dict[int, Any]


BandRule = Callable[[Rows], BandStep]
"""Returns how an operator computes some rows of its output in a band."""


ROWS = 1
"""The dimension that is divided into bands, in a tensor of one batch."""

BATCHES = 0
"""The same in a tensor of several batches, which are independent."""

WINDOWED = (
    BuiltinOperator.CONV_2D,
    BuiltinOperator.DEPTHWISE_CONV_2D,
    BuiltinOperator.AVERAGE_POOL_2D,
    BuiltinOperator.MAX_POOL_2D,
)
PADS = BuiltinOperator.PAD, BuiltinOperator.PADV2
TYPES = (TensorType.FLOAT32, TensorType.INT8, TensorType.INT16, TensorType.INT32)
"""Element types that both SLICE and CONCATENATION of TFLM support."""


def axis_of(shape: tuple[int, ...]) -> int:
    """Return the dimension along which a tensor is divided into bands."""
    return BATCHES if shape[:1] != (1,) else ROWS


def band_rule(graph: Graph, operator: Operator, axis: int) -> BandRule | None:
    """Return the rule for running an operator in bands along a dimension; None if it has none."""
    outputs = operator.outputs or ()
    if len(outputs) != 1 or not all(_is_image(graph, t, axis) for t in (*_varying(graph, operator), outputs[0])):
        return None
    code = graph.code(operator)
    if code in RULES:
        return RULES[code](graph, operator, axis)
    return _same_rows(graph, operator, axis) if graph.registration(operator).overlap is element_wise else None


def _is_image(graph: Graph, tensor: int, axis: int) -> bool:
    """Whether a tensor consists of images whose rows are contiguous along the dimension."""
    table, shape = graph.tensors[tensor], graph.shape(tensor)
    is_plain = table.type in TYPES and not table.is_variable
    return is_plain and len(shape) == 4 and min(shape) > 0 and axis_of(shape) == axis


def _varying(graph: Graph, operator: Operator) -> list[int]:
    return [tensor for tensor in operator.inputs or () if tensor >= 0 and not graph.is_constant(tensor)]


def _sliding_window(graph: Graph, operator: Operator, axis: int) -> BandRule | None:
    inputs = operator.inputs or ()
    options: Any = operator.builtin_options
    if _varying(graph, operator) != [inputs[0]] or options is None:
        return None
    if axis == BATCHES:
        return _rows_of((0,))
    both = windows_of(graph, operator, options)
    if both is None:
        return None
    rows, columns = both
    extent = effective_size(rows.taps, rows.dilation)
    window = Window(rows.size, extent, rows.stride, rows.before, columns.leaves_image)

    def step(wanted: Rows) -> BandStep:
        band = band_of_windows(window, wanted)
        return BandStep({0: band.needed}, band.made, {"padding": band.padding}, {})

    return step


def windows_of(graph: Graph, operator: Operator, options: Any) -> tuple[Axis, Axis] | None:
    """Windows along rows and columns; None if their number does not match the output."""
    image, output = graph.shape((operator.inputs or ())[0]), graph.shape((operator.outputs or ())[0])
    if hasattr(options, "filter_height"):
        taps, dilations = (options.filter_height, options.filter_width), (1, 1)
    else:
        weights = graph.shape((operator.inputs or ())[1])
        if len(weights) != 4:
            return None
        taps, dilations = weights[1:3], (options.dilation_h_factor, options.dilation_w_factor)
    strides = options.stride_h, options.stride_w
    try:
        both = axes(options.padding, image[1:3], taps, output[1:3], strides, dilations)
        expected = [output_size(options.padding, a.size, a.taps, a.stride, a.dilation) for a in both]
    except OperatorError:
        return None
    return both if expected == list(output[1:3]) and min(expected) > 0 else None


def _same_rows(graph: Graph, operator: Operator, axis: int) -> BandRule | None:
    """Rule of element-wise operators. An input that broadcasts along the rows must be a constant with one row."""
    inputs, outputs = operator.inputs or (), operator.outputs or ()
    rows = graph.shape(outputs[0])[axis]
    places = []
    for place, tensor in enumerate(inputs):
        if tensor < 0:
            continue
        shape = graph.shape(tensor)
        if graph.is_constant(tensor):
            if len(shape) >= 4 - axis and shape[axis - 4] != 1:
                return None
        elif shape[axis] != rows:
            return None
        else:
            places.append(place)
    return _rows_of(places) if places else None


def _rows_of(places: Sequence[int]) -> BandRule:
    """Rule for operators whose rows depend on the same rows of these inputs, and on all rows of the others."""
    return lambda wanted: BandStep(dict.fromkeys(places, wanted), wanted, {}, {})


def _concatenation(graph: Graph, operator: Operator, axis: int) -> BandRule | None:
    """Rule of CONCATENATION along another dimension."""
    along = getattr(operator.builtin_options, "axis", axis) % 4
    if along == axis or any(graph.is_constant(tensor) for tensor in operator.inputs or ()):
        return None
    return _rows_of(range(len(operator.inputs or ())))


def _padded_rows(graph: Graph, operator: Operator, axis: int) -> BandRule | None:
    """Rule of PAD: only bands at the image's borders have rows of padding."""
    inputs = operator.inputs or ()
    if graph.is_constant(inputs[0]) or not all(graph.is_constant(tensor) for tensor in inputs[1:]):
        return None
    paddings = graph.constant(inputs[1])
    if paddings.shape != (4, 2) or (paddings < 0).any():
        return None
    before, after = paddings[axis].tolist()
    border = Border(graph.shape(inputs[0])[axis], before, after)

    def step(wanted: Rows) -> BandStep:
        band = band_of_border(border, wanted)
        own = np.array(paddings, None)
        own[axis] = band.before, band.after
        return BandStep({0: band.needed}, band.made, {}, {1: own})

    return step


RULES: dict[BuiltinOperator, Callable[[Graph, Operator, int], BandRule | None]] = {
    **dict.fromkeys(WINDOWED, _sliding_window),
    **dict.fromkeys(PADS, _padded_rows),
    BuiltinOperator.CONCATENATION: _concatenation,
}
"""Functions that return the rule of an operator, for operators that are not element-wise."""
