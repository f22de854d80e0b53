"""A mutable copy of a model's graph, which all rewrites work on, and facts about its operators from registrations."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from tflm.kernels import OPAQUE, REGISTRATIONS, Registration
from tflm.schema.enums import ELEMENT_TYPES, TENSOR_TYPES, BuiltinOperator, TensorType
from tflm.schema.layout import Table
from tflm.schema.model import Model
from tflm.schema.options import BuiltinOptions
from tflm.schema.tables import (
    Buffer,
    Metadata,
    Operator,
    OperatorCode,
    QuantizationParameters,
    SubGraph,
    Tensor,
    builtin_code,
    called_subgraphs,
    code_name,
    drop_plan,
)
from tflm.schema.tables import Model as Root
from tflm.schema.version_rules import signature_of
from tflm.schema.writer import write_model
from tflm.versioning import needed_version

AnyTable = TypeVar("AnyTable", bound=Any)


class Graph:
    """A subgraph of a model, copied: changes leave the model alone.

    Drops the model's memory plan, which would not match the changed tensors.

    Args:
        model: the model to start from.
        subgraph: the index of the subgraph.

    Attributes:
        tensors, operators: those of the subgraph; operators in the order in which they run.
        moved: after `build`, the new index of each remaining tensor.
    """

    def __init__(self, model: Model, subgraph: int = 0):
        self._index = subgraph
        self._root: Root = copied(model.root)
        drop_plan(self._root)
        self._root.metadata = self._root.metadata or []
        assert self._root.subgraphs is not None
        self._main: SubGraph = self._root.subgraphs[subgraph]
        self.tensors: list[Tensor] = self._main.tensors or []
        self.operators: list[Operator] = self._main.operators or []
        self.moved = {i: i for i in range(len(self.tensors))}
        self._constants: dict[tuple[Any, ...], int] = {}

    @property
    def inputs(self) -> tuple[int, ...]:
        """Tensors that the caller fills."""
        return self._main.inputs or ()

    @property
    def outputs(self) -> tuple[int, ...]:
        """Tensors that the caller reads."""
        return self._main.outputs or ()

    def set_ends(self, inputs: Sequence[int], outputs: Sequence[int]) -> None:
        """Change inputs and outputs; removes signatures."""
        self._main.inputs, self._main.outputs = tuple(inputs), tuple(outputs)
        self._root.signature_defs = None

    def shape(self, tensor: int) -> tuple[int, ...]:
        """Dimensions of a tensor."""
        return self.tensors[tensor].shape or ()

    def size(self, tensor: int) -> int:
        """Elements of a tensor."""
        return math.prod(self.shape(tensor))

    def tensor_bytes(self, tensor: int) -> int:
        """Bytes of a tensor in the arena."""
        return self.size(tensor) * self.element_bytes(tensor)

    def element_bytes(self, tensor: int) -> int:
        """Bytes of one element of a tensor in the arena."""
        return ELEMENT_TYPES[self.tensors[tensor].type].dtype.itemsize

    def code(self, operator: Operator) -> BuiltinOperator:
        """The operator's code: its type and version."""
        return builtin_code(self._code(operator))

    def registration(self, operator: Operator) -> Registration:
        """The operator's registration."""
        return REGISTRATIONS.get(code_name(self._code(operator)), OPAQUE)

    def has_state(self, operator: Operator) -> bool:
        """Whether the operator has side effects beyond its outputs."""
        return has_state(self._code(operator), operator, self._main)

    def _code(self, operator: Operator) -> OperatorCode:
        return (self._root.operator_codes or [])[operator.opcode_index]

    def is_constant(self, tensor: int) -> bool:
        """Whether a tensor's elements are in the model."""
        return bool((self._root.buffers or [])[self.tensors[tensor].buffer].data)

    def constant(self, tensor: int) -> npt.NDArray[Any]:
        """The elements of a constant tensor in its shape; extra bytes of its buffer are ignored."""
        table = self.tensors[tensor]
        data = (self._root.buffers or [])[table.buffer].data or b""
        return np.frombuffer(data, ELEMENT_TYPES[table.type].dtype, self.size(tensor)).reshape(table.shape or ())

    def readers(self) -> dict[int, list[int]]:
        """For each tensor that operators read, the indices of these operators, in order."""
        found: dict[int, list[int]] = {}
        for i, operator in enumerate(self.operators):
            for tensor in dict.fromkeys(operator.inputs or ()):
                if tensor >= 0:
                    found.setdefault(tensor, []).append(i)
        return found

    def producers(self) -> dict[int, int]:
        """For each tensor that an operator computes, the index of this operator."""
        return {tensor: i for i, operator in enumerate(self.operators) for tensor in operator.outputs or ()}

    def add_tensor(self, like: int, name: str | None, shape: Sequence[int]) -> int:
        """Add a tensor with the type and the quantization of another; returns its index."""
        model = self.tensors[like]
        table = Tensor(shape=tuple(shape), type=model.type, name=name, quantization=model.quantization)
        self.tensors.append(table)
        return len(self.tensors) - 1

    def add_resource(self) -> int:
        """Add a tensor for the handle of a resource variable; returns its index."""
        self.tensors.append(Tensor(shape=(), type=TensorType.RESOURCE, name="handle"))
        return len(self.tensors) - 1

    def add_constant(
        self, name: str | None, values: npt.NDArray[Any], quantization: QuantizationParameters | None = None
    ) -> int:
        """Add a constant, or reuse an equal one added before; returns its index."""
        key = (values.shape, values.dtype.str, values.tobytes(), id(quantization))
        if key not in self._constants:
            self.tensors.append(
                Tensor(
                    shape=values.shape,
                    type=TENSOR_TYPES[values.dtype],
                    buffer=self.add_buffer(values.tobytes()),
                    name=name,
                    quantization=quantization,
                )
            )
            self._constants[key] = len(self.tensors) - 1
        return self._constants[key]

    def make_operator(
        self,
        code: BuiltinOperator,
        version: int,
        inputs: Sequence[int],
        outputs: Sequence[int],
        options: BuiltinOptions | None = None,
    ) -> Operator:
        """Create an operator; the caller adds it to a list of operators."""
        table = OperatorCode(
            deprecated_builtin_code=min(code, BuiltinOperator.PLACEHOLDER_FOR_GREATER_OP_CODES).value,
            version=version,
            builtin_code=code,
        )
        return Operator(
            opcode_index=self._code_index(table), inputs=tuple(inputs), outputs=tuple(outputs), builtin_options=options
        )

    def new_operator(
        self,
        code: BuiltinOperator,
        inputs: Sequence[int],
        outputs: Sequence[int],
        options: BuiltinOptions | None,
        subgraph: SubGraph | None = None,
    ) -> Operator:
        """Create an operator in the version that its tensors need; the caller adds it to a list of operators.

        Args:
            subgraph: the subgraph whose tensors these are; None for the graph's own.
        """
        table = Operator(inputs=tuple(inputs), outputs=tuple(outputs), builtin_options=options)
        subgraph = self._main if subgraph is None else subgraph
        version = needed_version(signature_of(code, table, subgraph))
        return self.make_operator(code, version, inputs, outputs, options)

    def add_subgraph(self, subgraph: SubGraph) -> int:
        """Add a subgraph; returns its index."""
        subgraphs = self._root.subgraphs
        assert subgraphs is not None
        subgraphs.append(subgraph)
        return len(subgraphs) - 1

    def clear_subgraph(self, index: int) -> None:
        """Remove all operators and tensors of another subgraph, which nothing runs any more."""
        (self._root.subgraphs or [])[index] = SubGraph(tensors=[], inputs=(), outputs=(), operators=[])

    def add_buffer(self, data: bytes) -> int:
        """Add the data of a constant; returns the index of its buffer."""
        buffers = self._root.buffers
        assert buffers is not None
        buffers.append(Buffer(data=data))
        return len(buffers) - 1

    def replace_input(self, tensor: int, replacement: int) -> None:
        """Let the caller fill another tensor, also in signatures."""
        self._main.inputs = tuple(replacement if index == tensor else index for index in self.inputs)
        for signature in self._root.signature_defs or ():
            for entry in signature.inputs or () if signature.subgraph_index == self._index else ():
                if entry.tensor_index == tensor:
                    entry.tensor_index = replacement

    def make_custom_operator(self, name: str, inputs: Sequence[int], outputs: Sequence[int]) -> Operator:
        """Create a custom operator without options; the caller adds it to a list of operators."""
        code = BuiltinOperator.CUSTOM
        table = OperatorCode(deprecated_builtin_code=code.value, custom_code=name, builtin_code=code)
        return Operator(opcode_index=self._code_index(table), inputs=tuple(inputs), outputs=tuple(outputs))

    def _code_index(self, table: OperatorCode) -> int:
        """The index of an operator code, which is added if it is new."""
        codes = self._root.operator_codes
        assert codes is not None
        if table not in codes:
            codes.append(table)
        return codes.index(table)

    def like(self, operator: Operator, inputs: Iterable[int], outputs: Iterable[int], **changes: Any) -> Operator:
        """A copy of an operator with other tensors and changed fields in its options."""
        made = copied(operator)
        made.inputs, made.outputs = tuple(inputs), tuple(outputs)
        if changes:
            assert operator.builtin_options is not None
            made.builtin_options = dataclasses.replace(operator.builtin_options, **changes)
        return made

    def add_metadata(self, name: str, content: bytes) -> None:
        """Add an entry of metadata."""
        entries = self._root.metadata
        assert entries is not None
        entries.append(Metadata(name=name, buffer=self.add_buffer(content)))

    def forget_names(self, metadata: Collection[str]) -> None:
        """Remove data for people and tools: names, minima and maxima, and some metadata."""
        self._root.description = None
        self._root.metadata = [entry for entry in self._root.metadata or () if entry.name not in metadata]
        for subgraph in self._root.subgraphs or ():
            ends = {*(subgraph.inputs or ()), *(subgraph.outputs or ())}
            subgraph.name = None
            for index, tensor in enumerate(subgraph.tensors or ()):
                tensor.name = tensor.name if index in ends else None
                if tensor.quantization is not None:
                    tensor.quantization.min = tensor.quantization.max = None

    def build(self) -> bytes:
        """The bytes of the model, without unused tensors, constants and operator codes."""
        self._drop_unused_tensors()
        return self.written()

    def written(self) -> bytes:
        """The bytes of the model, with all tensors."""
        self._finish()
        return write_model(self._root)

    def _finish(self) -> None:
        self._main.operators = self.operators
        self._main.tensors = self.tensors
        self._drop_unused_buffers()
        self._drop_unused_codes()
        self._constants = {}

    def model(self, checks: str = "all", *, drop_unused: bool = False) -> Model:
        """The model, which is not verified again; the graph must not be changed afterwards.

        Args:
            checks: as for `Model`.
            drop_unused: whether to leave out tensors that nothing uses.
        """
        if drop_unused:
            self._drop_unused_tensors()
        self._finish()
        return Model.of_tables(self._root, checks)

    def checked(self) -> Model:
        """The model without unused tensors, after full verification.

        Raises:
            ModelError: a rewrite broke a rule of the format.
        """
        return Model(self.build())

    def _drop_unused_tensors(self) -> None:
        used = {*self.inputs, *self.outputs}
        for operator in self.operators:
            used.update((*(operator.inputs or ()), *(operator.outputs or ()), *(operator.intermediates or ())))
        maps = [
            tensor
            for signature in self._root.signature_defs or ()
            if signature.subgraph_index == self._index
            for tensor in (*(signature.inputs or ()), *(signature.outputs or ()))
        ]
        used.update(tensor.tensor_index for tensor in maps)
        kept = [i for i in range(len(self.tensors)) if i in used]
        if len(kept) == len(self.tensors):
            return
        place = {index: i for i, index in enumerate(kept)} | {-1: -1}
        self.moved = place
        self.tensors = [self.tensors[i] for i in kept]
        self._main.inputs = tuple(place[t] for t in self.inputs)
        self._main.outputs = tuple(place[t] for t in self.outputs)
        for operator in self.operators:
            for side in ("inputs", "outputs", "intermediates"):
                indices = getattr(operator, side)
                if indices is not None:
                    setattr(operator, side, tuple(place[t] for t in indices))
        for tensor_map in maps:
            tensor_map.tensor_index = place[tensor_map.tensor_index]

    def _drop_unused_buffers(self) -> None:
        buffers = self._root.buffers
        assert buffers is not None
        tensors = [tensor for subgraph in self._root.subgraphs or () for tensor in subgraph.tensors or ()]
        users: list[Any] = [*tensors, *(self._root.metadata or ())]
        self._root.metadata_buffer = (
            None
            if self._root.metadata_buffer is None
            else tuple(i for i in self._root.metadata_buffer if 0 <= i < len(buffers))  # no verifier looks at them
        )
        kept = sorted({0, *(user.buffer for user in users), *(self._root.metadata_buffer or ())})
        place = {index: i for i, index in enumerate(kept)}
        self._root.buffers = [buffers[i] for i in kept]
        for user in {id(user): user for user in users}.values():
            user.buffer = place[user.buffer]
        if self._root.metadata_buffer is not None:
            self._root.metadata_buffer = tuple(place[i] for i in self._root.metadata_buffer)

    def _drop_unused_codes(self) -> None:
        operators = [op for subgraph in self._root.subgraphs or () for op in subgraph.operators or ()]
        codes = self._root.operator_codes or []
        kept = sorted({operator.opcode_index for operator in operators})
        place = {index: i for i, index in enumerate(kept)}
        self._root.operator_codes = [codes[i] for i in kept]
        for operator in operators:
            operator.opcode_index = place[operator.opcode_index]


def reordered(model: Model, order: Iterable[int]) -> Model:
    """The model with the operators of its first subgraph in another order, without a memory plan.

    Args:
        model: the model.
        order: the present index of the operator for each place.
    """
    graph = Graph(model)
    graph.operators = [graph.operators[index] for index in order]
    return graph.model(model.checks)


def alike(one: QuantizationParameters | None, other: QuantizationParameters | None) -> bool:
    """Whether equal integers of two tensors represent equal numbers; false without scales."""
    ours, theirs = (
        ((), ()) if each is None else (tuple(each.scale or ()), tuple(each.zero_point or ())) for each in (one, other)
    )
    return ours == theirs


def copied(table: AnyTable) -> AnyTable:
    """A deep copy of a table; the bytes of constants are shared."""
    made = object.__new__(type(table))
    values = vars(made)
    for name, value in vars(table).items():
        if isinstance(value, list):
            values[name] = [copied(item) for item in value]
        else:
            values[name] = copied(value) if isinstance(value, Table) else value
    return made


def multiply_accumulates(model: Model, subgraph: SubGraph, operator: Operator) -> int:
    """Multiply-accumulates of one run of an operator; 0 without weights."""
    registration = REGISTRATIONS.get(model.operator_name(operator))
    if registration is None or registration.multiply_accumulates is None or not operator.outputs:
        return 0
    tensors = subgraph.tensors or []
    inputs = [tensors[i].shape or () if i >= 0 else () for i in operator.inputs or ()]
    try:
        return registration.multiply_accumulates(inputs, tensors[operator.outputs[0]].shape or ())
    except IndexError:  # an input is missing; the operator will be rejected when it runs
        return 0


def has_state(code: OperatorCode, operator: Operator, subgraph: SubGraph) -> bool:
    """Whether an operator accesses state other than its own tensors, or a variable among these.

    This is assumed of unknown custom operators, but not of unknown builtin ones.
    """
    tensors = subgraph.tensors or []
    if any(t >= 0 and tensors[t].is_variable for t in (*(operator.inputs or ()), *(operator.outputs or ()))):
        return True
    registration = REGISTRATIONS.get(code_name(code))
    shares_state = registration.shares_state if registration else builtin_code(code) is BuiltinOperator.CUSTOM
    return shares_state or bool(called_subgraphs(operator))


def operator_origins(model: Model, rewritten: Model, moved: Mapping[int, int]) -> tuple[int, ...]:
    """Return an index in the first subgraph of a model for each operator of the rewritten model's.

    An operator stands for the one that computed its output. If that one was merged into it, it stands for the nearest
    of its own kind before that. An operator that a rewrite added has the index of the next operator.

    Args:
        model: the original model.
        rewritten: its rewritten form.
        moved: index in the rewritten model of each tensor that is left.
    """
    before, after = model.subgraphs[0].operators or [], rewritten.subgraphs[0].operators or []
    tensors = {new: old for old, new in moved.items()}
    makers = {tensor: i for i, operator in enumerate(before) for tensor in operator.outputs or ()}
    made = {tensors.get(tensor) for operator in after for tensor in operator.outputs or ()}
    without_outputs = (i for i, operator in enumerate(before) if not operator.outputs)

    def merged(output: int | None) -> Iterator[int]:
        """Yield the operators that computed an output and, nearest first, its removed inputs."""
        pending = [output]
        for tensor in pending:
            if tensor in makers:
                yield makers[tensor]
                inputs = before[makers[tensor]].inputs or ()
                pending += [each for each in inputs if each not in made and each not in pending]

    found: list[int | None] = []
    for operator in after:
        if not operator.outputs:
            found.append(next(without_outputs, None))
            continue
        replaced = list(merged(tensors.get(operator.outputs[0])))
        kind = rewritten.operator_name(operator)
        alike = (i for i in replaced if model.operator_name(before[i]) == kind)
        found.append(next(alike, replaced[0] if replaced else None))
    origins, following = list[int](), len(before) - 1
    for origin in reversed(found):
        following = following if origin is None else origin
        origins.append(following)
    return tuple(reversed(origins))
