"""Operators that run band by band: the input rows that a band of output rows needs, the operator for it, stages.

A stage is consecutive operators that run once for each band of rows of the last operator's output.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from tflm.errors import OperatorError
from tflm.graph import Graph
from tflm.kernels.layers.geometry import Axis, ExplicitPadding, axes, effective_size, output_size
from tflm.kernels.overlap import element_wise
from tflm.schedule.rows import Border, Rows, Window, band_of_border, band_of_windows
from tflm.schema.enums import BuiltinOperator, TensorType
from tflm.schema.options import ConcatenationOptions, SliceOptions
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
REDUCTIONS = BuiltinOperator.MEAN, BuiltinOperator.SUM, BuiltinOperator.REDUCE_MAX, BuiltinOperator.REDUCE_MIN
TYPES = (TensorType.FLOAT32, TensorType.INT8, TensorType.INT16, TensorType.INT32)
"""Element types that both SLICE and CONCATENATION of TFLM support."""


def axis_of(shape: tuple[int, ...]) -> int:
    """Return the dimension along which a tensor is divided into bands."""
    return BATCHES if shape[:1] != (1,) else ROWS


def band_rule(graph: Graph, operator: Operator, axis: int) -> BandRule | None:
    """Return the rule for running an operator in bands along a dimension; None if it has none."""
    outputs = operator.outputs or ()
    if len(outputs) != 1 or not all(is_image(graph, t, axis) for t in (*_varying(graph, operator), outputs[0])):
        return None
    code = graph.code(operator)
    if code in RULES:
        return RULES[code](graph, operator, axis)
    return _same_rows(graph, operator, axis) if graph.registration(operator).overlap is element_wise else None


def is_image(graph: Graph, tensor: int, axis: int) -> bool:
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

    def explicit_step(wanted: Rows) -> BandStep:
        first, end = (row * rows.stride - rows.before for row in (wanted.first, wanted.end - 1))
        seen = Rows(max(first, 0), min(end + extent, rows.size))
        return BandStep({0: seen}, wanted, {"padding": ExplicitPadding(seen.first - first, columns.before)}, {})

    return explicit_step if isinstance(options.padding, ExplicitPadding) else step


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
        if isinstance(options.padding, ExplicitPadding):
            return both
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


def _reduction(graph: Graph, operator: Operator, axis: int) -> BandRule | None:
    """Rule of reductions along other dimensions."""
    image, axes = operator.inputs or ()
    if graph.is_constant(image) or not graph.is_constant(axes) or axis in graph.constant(axes).reshape(-1) % 4:
        return None
    return _rows_of((0,))


RULES: dict[BuiltinOperator, Callable[[Graph, Operator, int], BandRule | None]] = {
    **dict.fromkeys(WINDOWED, _sliding_window),
    **dict.fromkeys(PADS, _padded_rows),
    BuiltinOperator.CONCATENATION: _concatenation,
    **dict.fromkeys(REDUCTIONS, _reduction),
}
"""Functions that return the rule of an operator, for operators that are not element-wise."""


MAXIMUM_CONCATENATED = 10
"""Maximum number of inputs of TFLM's CONCATENATION."""

SLICE_VERSIONS = {TensorType.INT8: 2, TensorType.INT16: 4}
CONCATENATION_VERSIONS = {TensorType.INT8: 2, TensorType.INT16: 3}


class Operand(NamedTuple):
    """Rows that an operator of a stage reads: `rows` of `tensor`, its input number `place`."""

    place: int
    tensor: int
    rows: Rows


class BandOperator(NamedTuple):
    """An operator in a band: its index in the graph, its changes for the band, and the rows that it reads."""

    operator: int
    step: BandStep
    operands: tuple[Operand, ...]


class Stage:
    """Operators `first` to `end` - 1 of a graph; only the last one's output is read by other operators.

    Args:
        graph: the graph, which is not changed.
        rules: the band rule of each operator.

    Attributes:
        inputs: non-constant tensors that the stage reads from earlier operators.
        output: the last operator's output.
        rows: rows of the output, along `axis`.
    """

    def __init__(self, graph: Graph, first: int, end: int, rules: Sequence[BandRule]):
        self.graph, self.first, self.end = graph, first, end
        self._rules = rules
        operators = graph.operators[first:end]
        (self.output,) = operators[-1].outputs or ()
        made = {tensor for operator in operators for tensor in operator.outputs or ()}
        read = dict.fromkeys(t for op in operators for t in op.inputs or () if t >= 0 and t not in made)
        self.inputs = tuple(tensor for tensor in read if not graph.is_constant(tensor))
        self.axis = axis_of(graph.shape(self.output))
        self.rows = graph.shape(self.output)[self.axis]

    def program(self, wanted: Rows) -> list[BandOperator]:
        """Return the operators that compute some rows of the output, in order."""
        needed = {self.output: wanted}
        program = []
        for index in reversed(range(self.first, self.end)):
            operator = self.graph.operators[index]
            (output,) = operator.outputs or ()
            step = self._rules[index - self.first](needed[output])
            inputs = operator.inputs or ()
            operands = tuple(Operand(place, inputs[place], rows) for place, rows in step.needed.items())
            for operand in operands:
                before = needed.get(operand.tensor, operand.rows)
                needed[operand.tensor] = before.hull(operand.rows)
            program.append(BandOperator(index, step, operands))
        return program[::-1]


class StageWriter:
    """Writes stages in bands as a new list of operators.

    Args:
        graph: the graph that new tensors are added to.

    Attributes:
        operators: the operators written so far, in order.
        origins: for each of them, the index of its original in the graph; None for operators that bands add.
    """

    def __init__(self, graph: Graph):
        self._graph = graph
        self.operators: list[Operator] = []
        self.origins: list[int | None] = []

    def copy(self, first: int, end: int) -> None:
        """Write operators unchanged."""
        self.operators += self._graph.operators[first:end]
        self.origins += range(first, end)

    def _add(self, operator: Operator, origin: int | None = None) -> None:
        self.operators.append(operator)
        self.origins.append(origin)

    def write(self, stage: Stage, bands: Sequence[Rows]) -> None:
        """Write a stage; the bands run in the order in which they are given."""
        parts = {band: self._write_band(stage, stage.program(band), band) for band in bands}
        self._concatenate(stage, [parts[band] for band in sorted(parts)], sorted(parts))

    def _write_band(self, stage: Stage, program: Sequence[BandOperator], band: Rows) -> int:
        graph = self._graph
        made = {t: (t, Rows(0, graph.shape(t)[stage.axis])) for t in stage.inputs}
        sliced: dict[tuple[int, Rows], int] = {}

        def rows_of(tensor: int, rows: Rows) -> int:
            whole, has = made[tensor]
            if has == rows:
                return whole
            if (tensor, rows) not in sliced:
                sliced[tensor, rows] = self._slice(stage, tensor, rows, whole, rows.first - has.first)
            return sliced[tensor, rows]

        for index, step, operands in program:
            operator = graph.operators[index]
            inputs = list(operator.inputs or ())
            for operand in operands:
                inputs[operand.place] = rows_of(operand.tensor, operand.rows)
            for place, values in step.constants.items():
                inputs[place] = graph.add_constant("", values)
            (output,) = operator.outputs or ()
            part = self._add_rows(stage, output, step.made)
            self._add(graph.like(operator, inputs, [part], **step.options), index)
            made[output] = part, step.made
        return rows_of(stage.output, band)

    def _add_rows(self, stage: Stage, tensor: int, rows: Rows) -> int:
        shape = list(self._graph.shape(tensor))
        shape[stage.axis] = rows.size
        return self._graph.add_tensor(tensor, f"{tensor}[{rows.first}:{rows.end}]", shape)

    def _slice(self, stage: Stage, tensor: int, rows: Rows, whole: int, first: int) -> int:
        graph = self._graph
        part = self._add_rows(stage, tensor, rows)
        begin = np.zeros(4, np.int32)
        begin[stage.axis] = first
        inputs = [whole, graph.add_constant("", begin), graph.add_constant("", np.array(graph.shape(part), np.int32))]
        version = SLICE_VERSIONS.get(graph.tensors[tensor].type, 1)
        self._add(graph.make_operator(BuiltinOperator.SLICE, version, inputs, [part], SliceOptions()))
        return part

    def _concatenate(self, stage: Stage, parts: list[int], bands: list[Rows]) -> None:
        """Concatenate parts, in several levels if there are more than CONCATENATION supports."""
        while len(parts) > MAXIMUM_CONCATENATED:
            groups = range(0, len(parts), MAXIMUM_CONCATENATED)
            larger = [Rows(bands[i].first, bands[i : i + MAXIMUM_CONCATENATED][-1].end) for i in groups]
            outputs = [
                self._join(stage, parts[i : i + MAXIMUM_CONCATENATED], self._add_rows(stage, stage.output, rows))
                for i, rows in zip(groups, larger)
            ]
            parts, bands = outputs, larger
        self._join(stage, parts, stage.output)

    def _join(self, stage: Stage, parts: Sequence[int], output: int) -> int:
        if len(parts) == 1:
            return parts[0]
        version = CONCATENATION_VERSIONS.get(self._graph.tensors[output].type, 1)
        options = ConcatenationOptions(axis=stage.axis)
        code = BuiltinOperator.CONCATENATION
        self._add(self._graph.make_operator(code, version, parts, [output], options))
        return output


def slices_in(stage: Stage, program: Sequence[BandOperator], band: Rows) -> int:
    """Number of SLICEs in a band."""
    made = {t: Rows(0, stage.graph.shape(t)[stage.axis]) for t in stage.inputs}
    sliced: set[tuple[int, Rows]] = set()
    for index, step, operands in program:
        sliced.update((operand.tensor, operand.rows) for operand in operands if made[operand.tensor] != operand.rows)
        (output,) = stage.graph.operators[index].outputs or ()
        made[output] = step.made
    return len(sliced) + int(made[stage.output] != band)
