"""Programs: calls of kernels with addresses in planned RAM or in tables of constants."""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, Union

import numpy as np
import numpy.typing as npt

from tflm.c.binding import (
    Action,
    Array,
    BoundModel,
    BoundOperator,
    StateAndScratch,
    offset_in_buffer,
    root_of,
    step_arrays,
    work_arrays,
)
from tflm.c.control_flow import ControlFlow, calls_in, translated
from tflm.c.library_calls import LibraryCall
from tflm.c.row_binding import RowBinder
from tflm.compiler.language import FLOAT, Kernel, Step
from tflm.delegates.compiled.movement import move, move_elements, move_rows
from tflm.schedule.calls import Call, MovedRows, Plan, RamBuffer
from tflm.schedule.line_buffers import FEEDER
from tflm.schedule.rows import Rows


@dataclass(eq=False)
class Table:
    """A table of constants in flash.

    Attributes:
        name: a C identifier.
        values: a one-dimensional array.
    """

    name: str
    values: Array


FED = RamBuffer("rows", 0, memory=-1)
"""Stands for the input rows that the caller passes."""

FEED_COUNTER = "number of the next feed"
FEED_COUNTER_BYTES = 4
"""The planner's name for the counter, and its size."""

NOTHING = RamBuffer("nothing", 0)
"""The buffer of arrays without elements."""


class Pointer(NamedTuple):
    """An address: an offset in bytes from the start of a buffer or table."""

    base: RamBuffer | Table
    offset: int

    def advanced(self, bytes: int) -> Pointer:
        """Return the address that is some bytes further."""
        return Pointer(self.base, self.offset + bytes)


Operand = Union[Pointer, int, float]


class KernelCall(NamedTuple):
    """A call of a kernel, with an operand for each parameter."""

    kernel: Kernel
    operands: dict[str, Operand]


Statement = Union[KernelCall, LibraryCall, ControlFlow[KernelCall, Pointer]]


@dataclass
class OperatorCode:
    """The statements that run an operator, or compute some rows of its output.

    Attributes:
        operator: the operator.
        statements: the statements, in order.
        rows: rows of the output; None for all.
    """

    operator: BoundOperator
    statements: list[Statement]
    rows: Rows | None = None


class InitialValue(NamedTuple):
    """The contents of a buffer before the first invoke.

    Attributes:
        title: its name in comments.
        buffer: the buffer's place.
        values: its bytes.
    """

    title: str
    buffer: RamBuffer
    values: npt.NDArray[np.uint8]


class FedRows(NamedTuple):
    """Rows copied from the caller.

    Attributes:
        target: the address that they are copied to.
        size: number of bytes.
    """

    target: Pointer
    size: int


Code = Union[OperatorCode, MovedRows, FedRows]


@dataclass
class Program:
    """A model as statements.

    Attributes:
        bound: the bound model.
        plan: the plan of its RAM.
        subgraphs: the code of each subgraph, in order.
        initial: initial values of the memory that lasts between invokes.
        tables: all constants in flash.
        inputs, outputs: addresses of the model's inputs and outputs.
        structure_bytes: size of constant structures, which the emitter defines.
        feed_counter: address of the number of the next feed; None if no rows are fed.
        checks: preprocessor lines that reject processors that the program cannot run on.
        origins: for each operator of the main subgraph, its index in the model as the caller knows it.
    """

    bound: BoundModel
    plan: Plan
    subgraphs: list[list[Code]] = field(default_factory=list)
    initial: list[InitialValue] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
    inputs: list[Pointer] = field(default_factory=list)
    outputs: list[Pointer] = field(default_factory=list)
    structure_bytes: int = 0
    feed_counter: Pointer | None = None
    checks: str = ""
    origins: Sequence[int] = ()

    def number_of(self, operator: BoundOperator) -> int:
        """Return an operator's index in its subgraph of the model as the caller knows it."""
        return operator.index if operator.subgraph else self.origins[operator.index]

    @property
    def is_split(self) -> bool:
        """Whether the RAM is split into several memories, which functions receive as an array."""
        return len(self.plan.memories) > 1

    def calls(self) -> Iterator[KernelCall]:
        """All kernel calls."""
        for code in itertools.chain(*self.subgraphs):
            if isinstance(code, OperatorCode):
                yield from calls_in(code.statements, KernelCall)

    def library_calls(self) -> list[LibraryCall]:
        """All calls of library functions, with planned addresses."""
        codes = (code for code in itertools.chain(*self.subgraphs) if isinstance(code, OperatorCode))
        return [call for code in codes for call in code.statements if isinstance(call, LibraryCall)]

    @property
    def constant_bytes(self) -> int:
        """Size of all tables and structures in bytes."""
        return sum(table.values.nbytes for table in self.tables) + self.structure_bytes


def program_of(bound: BoundModel, extra: StateAndScratch, plan: Plan, origins: Sequence[int] | None = None) -> Program:
    """Return the program of a bound model.

    Args:
        bound: the model.
        extra: its state and scratch memory.
        plan: the plan of its RAM.
        origins: index that the caller knows each operator of the main subgraph by; None if the model is the caller's.
    """
    program = Program(bound, plan, origins=range(len(bound.operators[0])) if origins is None else origins)
    places = _Places(bound, extra, plan)
    by_index = {operator.index: operator for operator in bound.operators[0]}
    program.subgraphs.append([places.code(by_index, item) for item in plan.calls])
    called = reached_subgraphs(bound)
    for index, operators in enumerate(bound.operators[1:], 1):
        program.subgraphs.append([OperatorCode(one, places.statements(one)) for one in operators if index in called])
    main = bound.model.subgraphs[0]
    program.inputs, program.outputs = (
        [places.end(i, f"{side}_{number}") for number, i in enumerate(indices or ())]
        for side, indices in (("input", main.inputs), ("output", main.outputs))
    )
    program.feed_counter = places.feed_counter()
    program.initial, program.tables = places.initial_values(), places.tables
    return program


def reached_subgraphs(bound: BoundModel) -> list[int]:
    """Return the subgraphs that can be reached from the first one. Each follows those that it runs; the first is the
    last."""
    done: dict[int, None] = {}

    def visit(index: int) -> None:
        for operator in bound.operators[index]:
            for called in operator.node.called_subgraphs:
                if called not in done:
                    visit(called)
        done[index] = None

    visit(0)
    return list(done)


class _Places:
    """Maps the arrays of a bound model to places on the device."""

    def __init__(self, bound: BoundModel, extra: StateAndScratch, plan: Plan):
        self._bound, self._extra = bound, extra
        self.tables: list[Table] = []
        self._by_content: dict[tuple[str, bytes], Table] = {}
        self._names: set[str] = set()
        self._constants: dict[Any, Pointer] = {}
        self._buffers = plan.buffers
        self._tensors = self._whole_tensors()
        self._persistent = self._persistent_buffers()
        self._rows = RowBinder(bound)
        self._work = self._called_work_arrays()

    def _whole_tensors(self) -> dict[Any, Pointer]:
        """Return the places of tensors that are complete in RAM."""
        found = {}
        for buffer in self._buffers:
            for (subgraph, i), offset in buffer.tensors:
                if offset + self._bound.tensors(subgraph)[i].byte_length <= buffer.size:
                    found[subgraph, i] = Pointer(buffer, offset)
        return found

    def _persistent_buffers(self) -> dict[Any, Pointer]:
        """Return the place of each buffer that lasts between invokes."""
        by_name = {buffer.name: Pointer(buffer, 0) for buffer in self._buffers}
        return {
            key: self._tensors[key] if persistent.is_tensor else by_name[persistent.name]
            for key, persistent in self._extra.persistent.items()
        }

    def initial_values(self) -> list[InitialValue]:
        """Return the initial values of memory that lasts between invokes, in the order of the buffers."""
        found: dict[RamBuffer | Table, list[InitialValue]] = {}
        for key, one in self._extra.persistent.items():
            base, offset = self._persistent[key]
            assert isinstance(base, RamBuffer)
            place = base._replace(size=one.initial.nbytes, offset=base.offset + offset)
            found.setdefault(base, []).append(InitialValue(one.title, place, one.initial))
        values = [value for buffer in self._buffers for value in found.get(buffer, [])]
        counter = self.feed_counter()
        if counter is not None and isinstance(counter.base, RamBuffer):
            values.append(InitialValue(FEED_COUNTER, counter.base, np.zeros(FEED_COUNTER_BYTES, np.uint8)))
        return values

    def end(self, tensor: int, name: str) -> Pointer:
        """Return the address of an input or output of the model."""
        if self._bound.feed is not None and tensor == self._bound.feed.tensor:
            return Pointer(FED, 0)
        return self.pointer(self._bound.tensors()[tensor].elements, name, None)

    def feed_counter(self) -> Pointer | None:
        """Return the address of the number of the next feed; None if no rows are fed."""
        return next((Pointer(buffer, 0) for buffer in self._buffers if buffer.name == FEED_COUNTER), None)

    def _called_work_arrays(self) -> dict[int, Pointer]:
        """Return the places of work arrays of operators in called subgraphs, by the id of the array."""
        buffers: dict[tuple[int, int] | None, list[RamBuffer]] = {}
        for buffer in self._buffers:
            buffers.setdefault(buffer.scratch_of, []).append(buffer)
        return {
            id(root): Pointer(buffer, 0)
            for operator, roots in self._extra.scratch.items()
            if operator[0]
            for root, buffer in zip(roots, buffers.get(operator, []))
        }

    def code(self, operators: Mapping[int, BoundOperator], call: Call | MovedRows) -> Code:
        """Return the code for a call of the plan."""
        if isinstance(call, MovedRows):
            return call
        if self._bound.feed is not None and call.operator == FEEDER:
            (region,) = call.outputs
            assert region is not None
            return FedRows(Pointer(self._buffers[region.buffer], region.offset), region.bytes)
        operator = operators[call.operator]
        if call.rows is None:
            scratch = self._extra.scratch
            if call.lean:
                assert operator.lean is not None
                operator, scratch = operator.lean, self._extra.lean_scratch
            self._work |= self._scratch(scratch.get((0, operator.index), []), call)
            return OperatorCode(operator, self.statements(operator))
        rows = self._rows.bind(operator, call)
        regions = [(rows.inputs[i], call.inputs[i]) for i in rows.inputs]
        regions += [(rows.outputs[i], call.outputs[i]) for i in rows.outputs]
        self._work |= self._scratch(work_arrays(rows.steps), call)
        self._work |= {
            id(root_of(tensor.elements)): Pointer(self._buffers[region.buffer], region.offset)
            for tensor, region in regions
            if region is not None
        }
        return OperatorCode(operator, list(self._call(operator, rows.steps)), call.rows)

    def _scratch(self, roots: Iterable[Array], call: Call) -> dict[int, Pointer]:
        """Return the places of a call's work arrays, by the id of the array."""
        return {id(root): Pointer(self._buffers[x.buffer], 0) for root, x in zip(roots, call.scratch)}

    def statements(self, operator: BoundOperator) -> list[Statement]:
        """Return the statements of an operator."""
        return [statement for action in operator.actions for statement in self._statement(operator, action)]

    def _statement(self, operator: BoundOperator, action: Action) -> list[Statement]:
        if isinstance(action, Step):
            return list(self._call(operator, [action]))
        if isinstance(action, LibraryCall):
            return [action.placed(lambda address: self.pointer(address.place, address.name, operator))]
        calls, place = partial(self._call, operator), partial(self.pointer, operator=operator)
        return [translated(action, calls, place)]

    def _call(self, operator: BoundOperator, steps: Iterable[Step]) -> list[KernelCall]:
        calls = []
        for step in steps:
            arrays = step_arrays(step)
            operands: dict[str, Operand] = {}
            for (name, kind), argument in zip(step.kernel.parameters.items(), step.arguments):
                if name in arrays:
                    operands[name] = self.pointer(arrays[name], name, operator)
                elif kind == FLOAT:
                    (operands[name],) = struct.unpack("<d", argument.to_bytes(8, "little", signed=True))
                else:
                    operands[name] = argument
            if not _moves_nothing(step, operands):
                calls.append(KernelCall(step.kernel, operands))
        return calls

    def pointer(self, array: Array, name: str, operator: BoundOperator | None) -> Pointer:
        """Return the address of an array.

        Args:
            array: the array.
            name: the base of its table's name.
            operator: the operator that the array belongs to; None for inputs and outputs.
        """
        if not array.nbytes:
            return Pointer(NOTHING, 0)
        key = self._bound.key(array)
        place = self._work.get(id(root_of(array))) or self._tensors.get(key) or self._persistent.get(key)
        if place is None:
            return self._in_table(array, name, operator)
        return place.advanced(offset_in_buffer(array))

    def _in_table(self, array: Array, name: str, operator: BoundOperator | None) -> Pointer:
        """Return the address of a constant. All constants stay on the host until the program is complete."""
        key = id(root_of(array)), offset_in_buffer(array), array.shape, array.strides, array.dtype
        if key not in self._constants:
            self._constants[key] = self._new_constant(array, name, operator)
        return self._constants[key]

    def _new_constant(self, array: Array, name: str, operator: BoundOperator | None) -> Pointer:
        values, offset = _span(array)
        content = values.dtype.name, values.tobytes()
        table = self._by_content.get(content)
        if table is None:
            owner = "" if operator is None else f"{operator.node.operator.lower()}_{operator.index}_"
            prefix = "" if operator is None or not operator.subgraph else f"subgraph_{operator.subgraph}_"
            table = self._by_content[content] = Table(self._unused(prefix + owner + name.replace(".", "_")), values)
            self.tables.append(table)
        return Pointer(table, offset)

    def _unused(self, name: str) -> str:
        """Return the name, with a number if another table has it."""
        name = "".join(character if character.isalnum() else "_" for character in name)
        unused, number = name, 2
        while unused in self._names:
            unused, number = f"{name}_{number}", number + 1
        self._names.add(unused)
        return unused


def _moves_nothing(step: Step, operands: Mapping[str, Operand]) -> bool:
    """Whether a copy has no effect because its tensors share memory."""
    if step.kernel.function not in (move.function, move_rows.function, move_elements.function):
        return False
    if operands["target"] != operands["source"]:
        return False
    if step.kernel.function is move_rows.function:
        return operands["target_step"] == operands["source_step"]
    if step.kernel.function is move_elements.function:
        steps = step_arrays(step)["steps"].reshape(-1, 3)
        return bool((steps[:, 1] == steps[:, 2])[steps[:, 0] > 1].all())
    return True


def _span(array: Array) -> tuple[Array, int]:
    """Return the elements from the first to the last of a view, and the offset in bytes of the view's first element in
    them."""
    if array.flags.c_contiguous:
        return array.reshape(-1), 0
    low, high = np.lib.array_utils.byte_bounds(array)
    begin = array.ctypes.data - low
    start = offset_in_buffer(array) - begin
    memory = root_of(array).reshape(-1).view(np.uint8)[start : start + high - low]
    return memory.view(array.dtype), begin
