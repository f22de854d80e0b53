"""Resource variables as planned state: a tensor with a value at the start of an invoke, and one that replaces it at the
end.

READ_VARIABLE and ASSIGN_VARIABLE need no code. The state stays in RAM, usually inside of the output of the
CONCATENATION that reads it. Its next value is moved there once nothing reads the memory any more: a line buffer that
lasts between invokes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tflm.graph import Graph, alike
from tflm.kernels.overlap import OperatorFacts, element_wise
from tflm.schedule.bands import WINDOWED, windows_of
from tflm.schedule.normal_form import normalize, see_rows_as_columns, separate_parts, slice_of
from tflm.schema.enums import ELEMENT_TYPES, BuiltinOperator, Padding, TensorType
from tflm.schema.model import Model
from tflm.schema.options import CallOnceOptions, IfOptions
from tflm.schema.tables import Operator, QuantizationParameters, called_subgraphs, variable_of


class _Part(NamedTuple):
    """A convolution of some channels of `source`, from a row and a channel."""

    source: int
    row: int
    channel: int
    convolution: Operator


def merge_side_by_side(graph: Graph, ends: Collection[int]) -> None:
    """Merge convolutions of parts of the channels if this adds at most as many multiplications as it saves copies of
    elements.

    Args:
        graph: the graph.
        ends: tensors that are needed even if no operator reads them.
    """
    replaced: dict[int, list[Operator]] = {}
    for index, operator in enumerate(graph.operators):
        parts = _parts(graph, operator, ends)
        if parts is not None and (merged := _merged(graph, parts, (operator.outputs or ())[0])) is not None:
            replaced[index] = merged
            images = [(part.convolution.inputs or ())[0] for part in parts]
            unread = (image for image in images if len(graph.readers()[image]) == 1 and image not in ends)
            gone = [*(operator.inputs or ()), *unread]
            replaced |= {graph.producers()[tensor]: [] for tensor in gone}
    graph.operators = [
        each for index, operator in enumerate(graph.operators) for each in replaced.get(index, [operator])
    ]


def _parts(graph: Graph, join: Operator, ends: Collection[int]) -> list[_Part] | None:
    """Return the convolutions that a CONCATENATION of channels joins, each of a SLICE; None if it joins anything
    else."""
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
        if tensor in ends or not graph.is_constant(begins) or len(graph.shape(source)) != 4:
            return None
        batch, row, column, channel = graph.constant(begins).tolist()
        if batch or column or graph.shape(image)[2] != graph.shape(source)[2]:
            return None
        parts.append(_Part(source, row, channel, convolution))
    return parts if len(parts) > 1 and len({part.source for part in parts}) == 1 else None


def _merged(graph: Graph, parts: Sequence[_Part], output: int) -> list[Operator] | None:
    """Return one convolution in place of these; None if they differ in more than taps and rows, or if it is slower."""
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
    """Return the quantization of constants that are joined along their channels; None without scales, or with zero
    points."""
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


States = Mapping[int, int]
"""Tensors of the first subgraph that last between invokes, each with the tensor that provides its next value."""

Bits = npt.NDArray[np.bool_]


def followed(states: States, state: int) -> list[int]:
    """Yield the tensors whose values a state takes in the next invokes, in order, until they repeat."""
    found: list[int] = []
    while (state := states[state]) in states and state not in found:
        found.append(state)
    return found


Name = tuple[str, str]
"""Container and shared name of a variable."""


class StatefulModel(NamedTuple):
    """A model in which variables were replaced by state.

    Attributes:
        model: the model.
        states: the states.
        initial: the elements of each state before the first invoke, flat.
    """

    model: Model
    states: States
    initial: Mapping[int, npt.NDArray[Any]]


class _Setup(NamedTuple):
    """Operators that assign constants in the first invoke, and the subgraph that contains them."""

    operators: tuple[int, ...]
    subgraph: int
    values: dict[Name, npt.NDArray[np.uint8]]


@dataclass
class _Uses:
    """The operators of the first subgraph that read and assign a variable."""

    reads: list[int] = field(default_factory=list)
    assigns: list[int] = field(default_factory=list)


def with_states(model: Model) -> StatefulModel:
    """Replace resource variables that are read, then assigned, once each in every invoke."""
    graph = Graph(model)
    handles = _handles(graph)
    if not handles:
        return StatefulModel(model, {}, {})
    uses: dict[Name, _Uses] = {name: _Uses() for name in handles.values()}
    for index, operator in enumerate(graph.operators):
        code, inputs = graph.code(operator), operator.inputs or ()
        if code is BuiltinOperator.READ_VARIABLE and inputs[0] in handles:
            uses[handles[inputs[0]]].reads.append(index)
        elif code is BuiltinOperator.ASSIGN_VARIABLE and inputs[0] in handles:
            uses[handles[inputs[0]]].assigns.append(index)
    setups = list(_setups(model, graph, handles, uses))
    for setup in setups:  # the flag that a setup sets
        for index in setup.operators:
            for flag in [name for name, use in uses.items() if use.reads == [index] and not use.assigns]:
                del uses[flag]
                setup.values.pop(flag)
    elsewhere = _names_elsewhere(model, {0, *(setup.subgraph for setup in setups)})
    good = {name for name, use in uses.items() if name not in elsewhere and _is_state(graph, use)}
    chains = {_read(graph, uses[name]): _assigned(graph, uses[name]) for name in good}
    good = {name for name in good if _read(graph, uses[name]) not in followed(chains, _read(graph, uses[name]))}
    whole = [setup for setup in setups if setup.values.keys() <= good and _is_first(graph, setup, uses)]
    good -= {name for setup in setups if setup not in whole for name in setup.values}
    return _replaced(model, graph, handles, {name: uses[name] for name in uses if name in good}, whole)


def _handles(graph: Graph) -> dict[int, Name]:
    """Return the variables that a graph's tensors are handles of."""
    return {
        (operator.outputs or ())[0]: variable
        for operator in graph.operators
        if (variable := variable_of(operator)) is not None
    }


def _setups(model: Model, graph: Graph, handles: Mapping[int, Name], uses: Mapping[Name, _Uses]) -> Iterator[_Setup]:
    """Yield each CALL_ONCE of a subgraph that only assigns constants, or IF of one that also sets the condition's
    flag."""
    callers = [
        called for subgraph in model.subgraphs for op in subgraph.operators or () for called in called_subgraphs(op)
    ]
    for index, operator in enumerate(graph.operators):
        options = operator.builtin_options
        if isinstance(options, CallOnceOptions):
            subgraph, read = options.init_subgraph_index, None
        elif isinstance(options, IfOptions) and not operator.outputs and len(operator.inputs or ()) == 1:
            subgraph, read = options.else_subgraph_index, graph.producers().get((operator.inputs or ())[0])
            name = None if read is None else handles.get((graph.operators[read].inputs or (-1,))[0])
            is_alone = graph.readers()[(operator.inputs or ())[0]] == [index]
            if name is None or not is_alone or model.subgraphs[options.then_subgraph_index].operators:
                continue
        else:
            continue
        values = _assigned_constants(Graph(model, subgraph))
        if values is None or callers.count(subgraph) > 1:
            continue
        if read is None:
            yield _Setup((index,), subgraph, values)
        elif name in values and values[name].any() and (uses[name].reads, uses[name].assigns) == ([read], []):
            yield _Setup((index, read), subgraph, values)


def _assigned_constants(graph: Graph) -> dict[Name, npt.NDArray[np.uint8]] | None:
    """Return the constants that a graph assigns to variables; None if it does anything else."""
    handles, values = _handles(graph), dict[Name, npt.NDArray[np.uint8]]()
    for operator in graph.operators:
        inputs = operator.inputs or ()
        if graph.code(operator) is BuiltinOperator.VAR_HANDLE:
            continue
        if graph.code(operator) is not BuiltinOperator.ASSIGN_VARIABLE or not graph.is_constant(inputs[1]):
            return None
        values[handles[inputs[0]]] = graph.constant(inputs[1]).reshape(-1).view(np.uint8)
    return values


def _names_elsewhere(model: Model, known: set[int]) -> set[Name]:
    """Return the variables of other subgraphs."""
    others = (Graph(model, index) for index in range(len(model.subgraphs)) if index not in known)
    return {name for graph in others for name in _handles(graph).values()}


def _is_state(graph: Graph, uses: _Uses) -> bool:
    """Whether a variable is read and then assigned, once each, as tensors of the same size."""
    if len(uses.reads) != 1 or len(uses.assigns) != 1 or uses.reads[0] > uses.assigns[0]:
        return False
    read, source = _read(graph, uses), _assigned(graph, uses)
    ends = {*graph.inputs, *graph.outputs}
    is_made = source not in graph.inputs and not graph.is_constant(source) and not graph.tensors[source].is_variable
    return is_made and read not in ends and read != source and graph.tensor_bytes(read) == graph.tensor_bytes(source)


def _read(graph: Graph, uses: _Uses) -> int:
    """Return the tensor that a variable is read to."""
    return (graph.operators[uses.reads[0]].outputs or ())[0]


def _assigned(graph: Graph, uses: _Uses) -> int:
    """Return the tensor that is assigned to a variable."""
    return (graph.operators[uses.assigns[0]].inputs or ())[1]


def _is_first(graph: Graph, setup: _Setup, uses: Mapping[Name, _Uses]) -> bool:
    """Whether a setup runs before its variables are read, and fills them."""
    return all(
        uses[name].reads[0] > max(setup.operators) and len(values) == graph.tensor_bytes(_read(graph, uses[name]))
        for name, values in setup.values.items()
    )


def _replaced(
    model: Model, graph: Graph, handles: Mapping[int, Name], uses: Mapping[Name, _Uses], setups: list[_Setup]
) -> StatefulModel:
    given = {name: values for setup in setups for name, values in setup.values.items()}
    gone = {index for setup in setups for index in setup.operators}
    states, initial = {}, {}
    for name, use in uses.items():
        state, source = _read(graph, use), _assigned(graph, use)
        states[state] = source
        bytes = given.get(name, np.full(graph.tensor_bytes(state), _default(graph, source), np.uint8))
        initial[state] = bytes.view(ELEMENT_TYPES[graph.tensors[state].type].dtype)
        graph.tensors[state].is_variable = True
        gone |= {use.reads[0], use.assigns[0]}
    left = [operator for index, operator in enumerate(graph.operators) if index not in gone]
    read = {tensor for operator in left for tensor in operator.inputs or ()}
    graph.operators = [operator for operator in left if not _is_unread_handle(graph, operator, read)]
    normalize(graph)
    ends = {*graph.outputs, *states.values()}
    separate_parts(graph, ends)
    merge_side_by_side(graph, ends)
    see_rows_as_columns(graph)
    for setup in setups:
        graph.clear_subgraph(setup.subgraph)
    return StatefulModel(graph.model(model.checks), states, initial)


def _is_unread_handle(graph: Graph, operator: Operator, read: set[int]) -> bool:
    return graph.code(operator) is BuiltinOperator.VAR_HANDLE and not read & set(operator.outputs or ())


def _default(graph: Graph, source: int) -> int:
    """Return the byte that TFLM fills a variable with: the lowest byte of the assigned tensor's zero point."""
    quantization = graph.tensors[source].quantization
    zero_points = quantization.zero_point if quantization is not None else None
    return (zero_points[0] if zero_points else 0) & 0xFF


def warm_up(model: Model, states: States) -> int | None:
    """Return the number of invokes after a reset until the outputs no longer depend on the initial states; None if
    unknown.

    An output is assumed to depend on all inputs, except for operators on windows of an image and element-wise ones.
    """
    if not states:
        return None
    graph = Graph(model)
    old = {state: np.ones(graph.tensor_bytes(state), np.bool_) for state in states}
    for invokes in range(1, 2 + sum(map(len, old.values()))):
        is_old = dict(old)
        for operator in graph.operators:
            is_old |= _aged(model, graph, operator, is_old)
        following = {state: is_old[source] for state, source in states.items()}
        if not any(is_old[output].any() for output in graph.outputs if output in is_old):
            return invokes
        if all((following[state] == old[state]).all() for state in states):
            return None
        old = following
    return None


def _aged(model: Model, graph: Graph, operator: Operator, is_old: Mapping[int, Bits]) -> dict[int, Bits]:
    """Return which bytes of an operator's outputs depend on initial states."""
    inputs, outputs, registration = operator.inputs or (), operator.outputs or (), graph.registration(operator)
    for aged in (_aged_parts, _aged_windows, _aged_elements):
        along = aged(graph, operator, is_old)
        if along is not None:
            return {outputs[0]: along}
    facts = OperatorFacts.of(model.root, model.subgraphs[0], operator)
    moves = registration.moves(facts) if registration.moves is not None else None
    depends = graph.has_state(operator) or any(tensor in is_old and is_old[tensor].any() for tensor in inputs)
    made = {output: np.full(graph.tensor_bytes(output), depends and moves is None, bool) for output in outputs}
    for move in moves or ():
        if (source := is_old.get(inputs[move.input])) is not None:
            moved = source[move.source : move.source + move.size]
            made[outputs[move.output]][move.target : move.target + move.size] = moved
    return made


def _aged_parts(graph: Graph, operator: Operator, is_old: Mapping[int, Bits]) -> Bits | None:
    """Return the same for CONCATENATION and SLICE, along any dimension; None for other operators."""
    inputs, (output, *_), code = operator.inputs or (), operator.outputs or (-1,), graph.code(operator)
    options: Any = operator.builtin_options
    if code is BuiltinOperator.CONCATENATION:
        axis = options.axis % len(graph.shape(output))
        return np.concatenate([_bytes_of(graph, tensor, is_old) for tensor in inputs], axis).reshape(-1)
    if code is BuiltinOperator.SLICE and graph.is_constant(inputs[1]):
        begins = graph.constant(inputs[1]).tolist()
        part = tuple(slice(begin, begin + size) for begin, size in zip(begins, graph.shape(output)))
        return _bytes_of(graph, inputs[0], is_old)[part].reshape(-1)
    return None


def _bytes_of(graph: Graph, tensor: int, is_old: Mapping[int, Bits]) -> Bits:
    """Return which bytes of a tensor depend on initial states, in its shape with the bytes of an element as the last
    dimension."""
    unknown = np.zeros(graph.tensor_bytes(tensor), np.bool_)
    return np.reshape(is_old.get(tensor, unknown), (*graph.shape(tensor), graph.element_bytes(tensor)))


def _aged_windows(graph: Graph, operator: Operator, is_old: Mapping[int, Bits]) -> Bits | None:
    """Return the same for convolutions and pools, whose elements depend on their window; None for other operators."""
    if graph.code(operator) not in WINDOWED:
        return None
    (image, *others), (output, *_) = operator.inputs or (), operator.outputs or ()
    both = windows_of(graph, operator, operator.builtin_options)
    if both is None or not is_old.keys().isdisjoint(others):
        return None
    old = _bytes_of(graph, image, is_old).any((3, 4))
    for dimension, axis in enumerate(both, 1):
        starts = (window * axis.stride - axis.before for window in range(axis.windows))
        windows = ([start + tap * axis.dilation for tap in range(axis.taps)] for start in starts)
        read = ([place for place in window if 0 <= place < axis.size] for window in windows)
        old = np.stack([old.take(places, dimension).any(dimension) for places in read], dimension)
    return np.repeat(old.reshape(-1), graph.shape(output)[3] * graph.element_bytes(output))


def _aged_elements(graph: Graph, operator: Operator, is_old: Mapping[int, Bits]) -> Bits | None:
    """Return the same for element-wise operators; None for other ones."""
    outputs = operator.outputs or ()
    if graph.registration(operator).overlap is not element_wise or len(outputs) != 1:
        return None
    old = np.zeros(graph.shape(outputs[0]), np.bool_)
    for tensor in operator.inputs or ():
        if tensor >= 0:
            old = old | _bytes_of(graph, tensor, is_old).any(-1)
    return np.repeat(old.reshape(-1), graph.element_bytes(outputs[0]))
