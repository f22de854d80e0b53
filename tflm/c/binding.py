"""Bind the operators of a model to kernel calls on arrays. Each buffer of the model is a separate array."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Union

import numpy as np
import numpy.typing as npt

from tflm.c.control_flow import ControlFlow, If, Repeat, RunOnce, SubgraphCall, While, calls_in
from tflm.c.kernels.encoded import EncodedArray
from tflm.c.library_calls import LibraryCall
from tflm.compiler.language import Kernel, Step
from tflm.compiler.processor import Profile
from tflm.delegates.compiled.bands import WorkArray
from tflm.delegates.compiled.bindings import bind_steps
from tflm.delegates.compiled.movement import copy_steps
from tflm.delegates.hardware import OPERATORS as NPU_OPERATORS
from tflm.errors import CompileError, OperatorError
from tflm.graph import Graph, copied
from tflm.kernels import REGISTRATIONS
from tflm.kernels.node import KernelContext, Node
from tflm.kernels.reference.control_flow import copies_between
from tflm.kernels.reference.decode import TFLM_DECODE, Encoded, Scheme
from tflm.kernels.registration import Registration
from tflm.memory.arena import Arena
from tflm.memory.tensor import TfLiteEvalTensor
from tflm.runtime.execution_plan import PlannedNode
from tflm.runtime.micro_allocator import MicroAllocator
from tflm.runtime.micro_graph import MicroGraph
from tflm.runtime.micro_interpreter import Layout, lay_out
from tflm.runtime.micro_op_resolver import AllOpsResolver
from tflm.schedule.line_buffers import Feed
from tflm.schedule.states import States, with_states
from tflm.schema.enums import ELEMENT_TYPES
from tflm.schema.model import Model
from tflm.schema.options import IfOptions, WhileOptions
from tflm.targets import CORTEX_M


class Encoding(NamedTuple):
    """The encoding of a constant."""

    scheme: Scheme
    encoded: Encoded


def has_decoders(model: Model) -> bool:
    """Whether the first subgraph has TFLM_DECODE operators."""
    return any(model.operator_name(operator) == TFLM_DECODE.name for operator in model.subgraphs[0].operators or ())


def with_constants(model: Model, nodes: Mapping[int, Node]) -> tuple[Model, dict[int, Encoding]]:
    """Return the model with constants in place of the results of its TFLM_DECODE operators, and their encodings.

    A result that is an output of the model is not replaced.

    Args:
        model: the model.
        nodes: the nodes of the first subgraph by their index, prepared.
    """
    graph = Graph(model)
    constants: dict[int, int] = {}
    encodings: dict[int, Encoding] = {}
    operators = []
    for index, operator in enumerate(graph.operators):
        outputs = operator.outputs or ()
        if graph.registration(operator).name != TFLM_DECODE.name or set(outputs) & set(graph.outputs):
            operators.append(operator)
            continue
        for tensor, encoding in zip(outputs, nodes[index].op_data):
            scheme, encoded = encoding
            values = np.ascontiguousarray(scheme.decode(encoded), None).view(ELEMENT_TYPES[encoded.type].dtype)
            table = graph.tensors[tensor]
            constants[tensor] = graph.add_constant(table.name, values.reshape(encoded.dims), table.quantization)
            encodings[constants[tensor]] = Encoding(scheme, encoded)
    graph.operators = [
        graph.like(one, (constants.get(tensor, tensor) for tensor in one.inputs or ()), one.outputs or ())
        for one in operators
    ]
    made = graph.model(model.checks, drop_unused=True)
    return made, {graph.moved[tensor]: encoding for tensor, encoding in encodings.items()}


def with_shapes(model: Model, tensors: list[list[TfLiteEvalTensor]]) -> Model:
    """Return the model with the tensor shapes that operators have after they are prepared.

    Args:
        model: the model.
        tensors: the prepared tensors of each subgraph.
    """
    pairs = [zip(subgraph.tensors or (), found) for subgraph, found in zip(model.subgraphs, tensors)]
    if all((table.shape or ()) == tensor.dims for pair in pairs for table, tensor in pair):
        return model
    root = copied(model.root)
    for subgraph, found in zip(root.subgraphs or (), tensors):
        for table, tensor in zip(subgraph.tensors or (), found):
            table.shape = tensor.dims
    return Model.of_tables(root, model.checks)


Array = npt.NDArray[Any]

BindSteps = Callable[[KernelContext, Node, Registration], Union[Sequence[Union[Step, Repeat[Step], LibraryCall]], None]]
"""Binds a node; returns None if no kernel supports it."""


def no_steps(context: KernelContext, node: Node, registration: Registration) -> None:
    """Return None: this binds no kernels."""


Action = Union[Step, LibraryCall, ControlFlow[Step, npt.NDArray[np.uint8]]]


@dataclass(frozen=True)
class BoundOperator:
    """An operator and the statements that run it.

    Attributes:
        subgraph, index: its position in the model.
        node: the prepared node.
        actions: the statements, in order.
        lean: the same operator with slower kernels that use less scratch memory; None if there are none.
    """

    subgraph: int
    index: int
    node: Node
    actions: Sequence[Action]
    lean: BoundOperator | None = None

    def steps(self) -> Iterator[Step]:
        """Return the kernel calls of the operator."""
        return calls_in(self.actions, Step)

    def library_calls(self) -> Iterator[LibraryCall]:
        """Return the operator's calls of library functions."""
        return calls_in(self.actions, LibraryCall)


BufferKey = tuple[Union[int, str], int]
"""Identifies a buffer: subgraph and index of a tensor; "scratch" or "kept" and an offset in the arena; or "owned" and
the id of an array that belongs to an operator."""


def root_of(array: Array) -> Array:
    """Return the array that owns the memory of a view."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


def offset_in_buffer(array: Array) -> int:
    """Return the offset of an array's first element in its buffer, in bytes."""
    return array.ctypes.data - root_of(array).ctypes.data


class SymbolicArena(Arena):
    """An unlimited arena without storage: each buffer placed in it becomes a separate array.

    Attributes:
        buffers: the arrays, by offset.
    """

    SIZE = 1 << 62

    def __init__(self) -> None:
        super().__init__(bytearray())
        self.buffers: dict[int, npt.NDArray[np.uint8]] = {}

    @property
    def size(self) -> int:
        """A size larger than any model needs."""
        return self.SIZE

    def _at(self, offset: int, size: int) -> npt.NDArray[np.uint8]:
        if offset not in self.buffers or self.buffers[offset].nbytes < size:
            self.buffers[offset] = np.zeros(size, np.uint8)
        return self.buffers[offset][:size]


@dataclass
class BoundModel:
    """A model whose operators are bound.

    Attributes:
        model: the model, with the shapes that its operators compute.
        graph, layout: their state after `reset`.
        arena: the arrays of tensors, scratch buffers and operator state.
        operators: the bound operators of each subgraph.
        states: variables that take the values of other tensors at the end of an invoke.
        feed: the input whose rows the caller passes a few at a time.
    """

    model: Model
    graph: MicroGraph
    layout: Layout
    arena: SymbolicArena
    operators: list[list[BoundOperator]] = field(default_factory=list)
    states: States = field(default_factory=dict)
    feed: Feed | None = None

    @functools.cached_property
    def _keys(self) -> dict[int, BufferKey]:
        """Return the key of each array in the arena, by the id of the array."""
        scratch = {buffer.offset for buffer in self.layout.planned if buffer.tensor is None}
        keys: dict[int, BufferKey] = {
            id(array): ("scratch" if offset in scratch else "kept", offset)
            for offset, array in self.arena.buffers.items()
        }
        for subgraph in range(len(self.model.subgraphs)):
            for i, tensor in enumerate(self.tensors(subgraph)):
                if tensor.offset is not None and tensor.byte_length:
                    keys[id(root_of(tensor.elements))] = subgraph, i
        return keys

    def key(self, array: Array) -> BufferKey:
        """Return the key of the buffer that an array lies in."""
        buffer = id(root_of(array))
        return self._keys.get(buffer, ("owned", buffer))

    def shown(self) -> list[npt.NDArray[Any]]:
        """Return the elements of inputs and outputs."""
        main = self.model.subgraphs[0]
        return [self.tensors()[i].elements for i in (*(main.inputs or ()), *(main.outputs or ()))]

    def tensors(self, subgraph: int = 0) -> list[TfLiteEvalTensor]:
        """Return the tensors of a subgraph."""
        return self.graph.allocations[subgraph].tensors


def bind_plain(context: KernelContext, node: Node, registration: Registration) -> Sequence[Step] | None:
    """Return the calls of an operator with plain kernels of the compiled engine."""
    return bind_steps(context, node, registration, Profile.PLAIN)


def bind_model(
    model: Model, bind: BindSteps = bind_plain, feed: Feed | None = None, bind_lean: BindSteps = no_steps
) -> BoundModel:
    """Prepare a model and bind all of its operators. In the bound model, constants replace TFLM_DECODE.

    Args:
        model: the model.
        bind: the function that binds an operator.
        feed: the input whose rows the caller passes a few at a time.
        bind_lean: binds an operator of the first subgraph that uses scratch memory to slower kernels that use less.

    Raises:
        CompileError: an operator has no C kernels; the message names all such operators.
        TflmError: the model cannot be run.
    """
    _require_kernels(model)
    bound = _prepared(model)
    if has_decoders(model):
        bound = _without_decoders(bound)
    elif (stateful := with_states(bound.model)).states:
        bound = replace(_prepared(stateful.model), states=stateful.states)
        for state, values in stateful.initial.items():
            bound.tensors()[state].elements.reshape(-1)[:] = values
    bound.operators, bound.feed = [[] for _ in model.subgraphs], feed
    missing: list[str] = []

    def bind_one(planned: PlannedNode) -> None:
        actions = _actions(bound.layout.context, planned, bind)
        if actions is None:
            missing.append(f"{planned.node.operator} ({_types(planned.node)})")
        else:
            place = bound.graph.subgraph_index, planned.node.index
            steps = bind_lean(bound.layout.context, planned.node, planned.registration) if not place[0] else None
            lean = None if steps is None else BoundOperator(*place, planned.node, steps)
            bound.operators[place[0]].append(BoundOperator(*place, planned.node, actions, lean))

    bound.graph.for_each_node(bind_one)
    if missing:
        names = ", ".join(dict.fromkeys(missing))
        raise CompileError(f"no C kernels for {names}; {INTERPRETER}")
    return bound


FLEX = "Flex"
"""Prefix of the names of TensorFlow's own operators (Flex)."""

INTERPRETER = "run this model with TFLM's interpreter (tflm export)"


def _require_kernels(model: Model) -> None:
    """Reject operators whose code only the user or an NPU driver has.

    Raises:
        CompileError: there are such operators; the message names all of one kind.
    """
    operators = [operator for subgraph in model.subgraphs for operator in subgraph.operators or ()]
    names = dict.fromkeys(map(model.operator_name, operators))
    unknown = [name for name in names if name not in REGISTRATIONS]
    flex = [name for name in unknown if name.startswith(FLEX)]
    if flex:
        raise CompileError(
            f"no C kernels for {', '.join(flex)}, which TFLM lacks, too: TensorFlow's own operators "
            "do not run on microcontrollers; convert the model without SELECT_TF_OPS"
        )
    if unknown:
        raise CompileError(f"no C kernels for {', '.join(unknown)}, custom operators that TFLM lacks; {INTERPRETER}")
    for name in names:
        if name in NPU_OPERATORS:
            raise CompileError(f"no C kernels for {name}, which its driver runs on an NPU; {INTERPRETER}")


def _without_decoders(bound: BoundModel) -> BoundModel:
    """Replace TFLM_DECODE by constants. Their arrays record how the values are stored."""
    nodes: dict[int, Node] = {}

    def collect(planned: PlannedNode) -> None:
        if not bound.graph.subgraph_index:
            nodes[planned.node.index] = planned.node

    bound.graph.for_each_node(collect)
    model, encodings = with_constants(bound.model, nodes)
    prepared = _prepared(model)
    for index, (scheme, encoded) in encodings.items():
        tensor = prepared.tensors()[index]
        tensor.data = EncodedArray.of(tensor.elements, scheme, encoded)
    return prepared


def _prepared(model: Model) -> BoundModel:
    """Lay out the model in an arena whose buffers do not overlap, and reset its variables."""
    arena = SymbolicArena()
    graph = MicroGraph(model, AllOpsResolver())
    with np.errstate(all="ignore"):
        layout = lay_out(graph, MicroAllocator(arena, "linear", CORTEX_M))
    layout.reset()
    return BoundModel(with_shapes(model, [each.tensors for each in graph.allocations]), graph, layout, arena)


def _actions(context: KernelContext, planned: PlannedNode, bind: BindSteps) -> Sequence[Action] | None:
    node = planned.node
    control_flow = CONTROL_FLOW.get(node.operator)
    if control_flow is not None:
        return control_flow(context, node)
    return bind(context, node, planned.registration)


def _bind_if(context: KernelContext, node: Node) -> Sequence[Action]:
    options: IfOptions = node.op_data
    inputs, outputs = _inputs(node)[1:], _outputs(node)
    then, otherwise = (
        _subgraph_call(context, inputs, index, outputs)
        for index in (options.then_subgraph_index, options.else_subgraph_index)
    )
    return [If(_bytes(node.eval_input(0)), then, otherwise)]


def _bind_while(context: KernelContext, node: Node) -> Sequence[Action]:
    options: WhileOptions = node.op_data
    inputs, outputs, condition = _inputs(node), _outputs(node), options.cond_subgraph_index
    condition_inputs = context.subgraph_inputs(condition)
    body = _subgraph_call(context, outputs, options.body_subgraph_index, outputs)
    return [
        While(
            [*_copies(inputs, condition_inputs), *_copies(inputs, outputs)],
            condition,
            _bytes(context.subgraph_outputs(condition)[0]),
            SubgraphCall(body.before, body.subgraph, [*body.after, *_copies(outputs, condition_inputs)]),
        )
    ]


def _bind_call_once(context: KernelContext, node: Node) -> Sequence[Action]:
    return [RunOnce(node.op_data.pending, node.op_data.subgraph_index)]


CONTROL_FLOW: dict[str, Callable[[KernelContext, Node], Sequence[Action]]] = {
    "CALL_ONCE": _bind_call_once,
    "IF": _bind_if,
    "WHILE": _bind_while,
}


def _subgraph_call(
    context: KernelContext, inputs: list[TfLiteEvalTensor], index: int, outputs: list[TfLiteEvalTensor]
) -> SubgraphCall[Step]:
    return SubgraphCall(
        _copies(inputs, context.subgraph_inputs(index)), index, _copies(context.subgraph_outputs(index), outputs)
    )


def _copies(sources: Sequence[TfLiteEvalTensor], targets: Sequence[TfLiteEvalTensor]) -> Sequence[Step]:
    steps = copy_steps(copies_between(sources, targets))
    if steps is None:
        raise OperatorError("copies between overlapping tensors")
    return steps


def _inputs(node: Node) -> list[TfLiteEvalTensor]:
    return [node.eval_input(i) for i in range(len(node.inputs))]


def _outputs(node: Node) -> list[TfLiteEvalTensor]:
    return [node.eval_output(i) for i in range(len(node.outputs))]


def _bytes(tensor: TfLiteEvalTensor) -> npt.NDArray[np.uint8]:
    return tensor.elements.reshape(-1).view(np.uint8)


def _types(node: Node) -> str:
    """Format the element types of a node's inputs and outputs for messages."""
    inputs = (node.eval_input(i) for i, tensor in enumerate(node.inputs) if tensor >= 0)
    sides = [inputs, _outputs(node)]
    return " to ".join("/".join(tensor.type.name.lower() for tensor in side) or "nothing" for side in sides)


Written = Callable[[Kernel], Iterable[str]]
"""Returns the parameters through which a kernel writes."""


@dataclass(frozen=True)
class Persistent:
    """Memory that lasts between invokes.

    Attributes:
        name: a unique name for the planner.
        title: its name in comments.
        initial: its contents before the first invoke.
        is_tensor: whether it is a tensor of the model, which the planner knows.
    """

    name: str
    title: str
    initial: npt.NDArray[np.uint8]
    is_tensor: bool


class StateAndScratch:
    """State and scratch memory of a bound model.

    Args:
        bound: the model.
        written: returns the pointers through which a kernel writes.

    Attributes:
        persistent: memory that lasts between invokes, by key.
        scratch: the scratch buffers of each operator, by subgraph and index, in the order of its steps.
        lean_scratch: the same for operators of the first subgraph that have lean kernels.
        alignment: alignment of the RAM in bytes: the size of the largest element.
    """

    def __init__(self, bound: BoundModel, written: Written):
        self._bound = bound
        self._variables = set(self._states())
        self.scratch: dict[tuple[int, int], list[Array]] = {}
        self.lean_scratch: dict[tuple[int, int], list[Array]] = {}
        self.persistent: dict[BufferKey, Persistent] = {}
        self.alignment = 1
        for array in bound.shown():
            self._align(array)
        for state in bound.states:
            self._add_persistent(bound.tensors()[state].elements, "state", "READ_VARIABLE")
        for operators in bound.operators:
            for operator in operators:
                place = operator.subgraph, operator.index
                for action in operator.actions:
                    if isinstance(action, RunOnce):
                        self._add_persistent(action.pending, "pending", "CALL_ONCE")
                self.scratch[place] = self._add_steps(operator, written)
                if operator.lean is not None:
                    self.lean_scratch[place] = self._add_steps(operator.lean, written)

    def _states(self) -> Iterator[BufferKey]:
        """Yield variables, and outputs that operators leave unchanged in some invokes."""
        for i, subgraph in enumerate(self._bound.model.subgraphs):
            yield from ((i, j) for j, table in enumerate(subgraph.tensors or ()) if table.is_variable)
            for planned in self._bound.graph.plans[i].device:
                if planned.registration.ends_invoke:
                    yield from ((i, output) for output in planned.node.outputs)

    def _add_steps(self, operator: BoundOperator, written: Written) -> list[Array]:
        """Add the persistent memory of an operator, and return its scratch buffers."""
        name, scratch = operator.node.operator, list[Array]()
        for step in operator.steps():
            arrays = step_arrays(step)
            for parameter in arrays:
                self._add_array(scratch, name, parameter, arrays[parameter])
            changed = written(step.kernel)
            for parameter, array in arrays.items():
                if parameter in changed and array.nbytes and self._is_state(array):
                    self._add_persistent(array, parameter, name)
        for call in operator.library_calls():
            for parameter, _, array in call.addresses():
                self._add_array(scratch, name, parameter, array)
        return scratch

    def _add_array(self, scratch: list[Array], operator: str, name: str, array: Array) -> None:
        self._align(array)
        if not array.nbytes:
            return
        key, buffer = self._bound.key(array), root_of(array)
        if isinstance(array, WorkArray) or key[0] == "scratch":
            if not any(buffer is one for one in scratch):
                scratch.append(buffer)
        elif key in self._variables:
            self._add_persistent(array, name, operator)

    def _align(self, array: Array) -> None:
        self.alignment = max(self.alignment, array.itemsize)

    def _is_state(self, array: Array) -> bool:
        return not isinstance(array, WorkArray) and self._bound.key(array)[0] in ("owned", "kept")

    def _add_persistent(self, array: Array, name: str, operator: str) -> None:
        key = self._bound.key(array)
        if key in self.persistent:
            return
        subgraph, tensor = key
        if isinstance(subgraph, int):
            title = self._bound.tensors(subgraph)[tensor].name
        else:
            title = f"{name.partition('.')[0]} of {operator}"
        initial = np.ascontiguousarray(root_of(array), None).reshape(-1).view(np.uint8).copy()
        self.persistent[key] = Persistent(f"{title} {len(self.persistent)}", title, initial, isinstance(subgraph, int))


def work_arrays(steps: Iterable[Step]) -> list[Array]:
    """Return the scratch memory of steps, in order."""
    arrays = (array for step in steps for array in step_arrays(step).values() if isinstance(array, WorkArray))
    return list({id(root): root for root in map(root_of, arrays)}.values())


def step_arrays(step: Step) -> dict[str, Array]:
    """Return the arrays that a step passes, by parameter."""
    return dict(zip((name for name in step.kernel.parameters if name in step.addresses), step.owners))
