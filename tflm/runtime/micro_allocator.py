"""Lays a model out in the arena: the same structures as TFLM, in the same order, of the target's sizes.

In the tail, from the end of the arena downwards: the allocator, the planner and this object; then for each model its
builtin-data allocator, subgraph allocations, eval tensors, nodes, parsed options, what operators ask for when they
initialise and prepare, scratch handles, variables, and the tensors of inputs and outputs. In the head, while operators
prepare, the scratch requests; afterwards the planned tensors and scratch buffers.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple, Union

import numpy as np
import numpy.typing as npt

from tflm.errors import ArenaError, ArgumentError, InterpreterError, ModelError, PlanIgnored
from tflm.kernels.registration import NODE_AND_REGISTRATION, Node, Registration
from tflm.kernels.requests import Reads
from tflm.libraries import Kernels, library_for
from tflm.memory import ARENA_ALIGNMENT, MODEL_PLANNERS, PLANNERS, OffsetsPlanner, PlacingPlanner, TfLiteMemoryPlanner
from tflm.memory.arena import Arena
from tflm.memory.lifetimes import (
    ALLOCATION_INFO,
    SCRATCH_BUFFER_REQUEST,
    AllocationInfo,
    AllocationInfoBuilder,
    ScratchBufferRequest,
    Step,
    SubgraphInfoBuilder,
)
from tflm.memory.planner import ONLINE_PLANNED_BUFFER, MemoryPlanner
from tflm.memory.simple_memory_allocator import (
    NON_PERSISTENT_ARENA_BUFFER_ALLOCATOR,
    PERSISTENT_ARENA_BUFFER_ALLOCATOR,
    RECORDING_SINGLE_ARENA_BUFFER_ALLOCATOR,
    SINGLE_ARENA_BUFFER_ALLOCATOR,
    Allocation,
    RecordingSimpleMemoryAllocator,
    SimpleMemoryAllocator,
    require_size,
)
from tflm.memory.tensor import (
    TFLITE_AFFINE_QUANTIZATION,
    TFLITE_EVAL_TENSOR,
    TFLITE_TENSOR,
    TfLiteEvalTensor,
    TfLiteTensor,
    affine_quantization,
    int_array_bytes,
)
from tflm.runtime.turn import Turn
from tflm.runtime.value_tags import Place, lost_values
from tflm.schema.element_types import ELEMENT_TYPES
from tflm.schema.enums import TensorType
from tflm.schema.model import Model
from tflm.schema.offline_plan import offline_offsets
from tflm.schema.tables import Tensor
from tflm.targets import (
    BOOL,
    HOST,
    INT32,
    POINTER,
    SIZE_T,
    Since,
    Struct,
    Target,
    Until,
    When,
    align_up,
    require_target,
)

Planner = Union[str, Sequence[int], MemoryPlanner]
"""A planner by its name, a plan as a list of offsets, or a planner of the caller's own."""

PLANNER_WORKING_SPACE = "the planner's working space"
ROOM_FOR_THE_PLAN = "room for the plan"

SUBGRAPHS = "d7ac83e6d"
"""From here on a model may have several subgraphs."""

PLANNER_IN_TAIL = "a1f4b8804"
"""From here on the planner is kept in the tail; it was on the stack."""

UNREAD_OUTPUTS = "1db0632b7"
"""From here on a model is planned in which nothing reads an output of an operator."""

PLANNED_TOGETHER = "8c41f9606"
"""From here on one plan is made for all subgraphs; it was one for each."""

ONE_HANDLE_TABLE = "6f99907d3"
"""From here on there is one table of scratch handles; it was one for each subgraph, with all handles."""

VARIABLES_IN_PLAN = "58aa9833f"
"""From here on variables are allocated after the tables of planning, where no offline plan has a place for them."""

TYPES_SINCE = {
    TensorType.RESOURCE: "26944780f",
    TensorType.INT4: "df704e135",
    TensorType.BFLOAT16: "98de88594",
    TensorType.UINT16: "ce26927e2",
}
"""Types of tensors that TFLM did not always have a size for."""

MAXIMUM_SCRATCH_BUFFERS_PER_OPERATOR = 12
UNASSIGNED_NODE = -1

MICRO_ALLOCATOR = Struct(
    "MicroAllocator",
    vtable=POINTER,
    non_persistent_buffer_allocator=POINTER,
    persistent_buffer_allocator=Since("45022bbbe", POINTER),
    builtin_data_allocator=Since("d7ac83e6d", POINTER),
    memory_planner=Since("a1f4b8804", POINTER),
    error_reporter=Until("95761fcfd", POINTER),
    model_is_allocating=BOOL,
    scratch_buffer_request_count=SIZE_T,
    scratch_buffer_head=Since("a6f1b9ebc", POINTER),
    max_head_buffer_usage=SIZE_T,
)
RECORDED_ALLOCATION = Struct("RecordedAllocation", requested_bytes=SIZE_T, used_bytes=SIZE_T, count=SIZE_T)
RECORDING_MICRO_ALLOCATOR = MICRO_ALLOCATOR.extend(
    "RecordingMicroAllocator",
    recording_memory_allocator=POINTER,
    eval_tensor_data=RECORDED_ALLOCATION,
    persistent_tensor_data=RECORDED_ALLOCATION,
    persistent_tensor_quantization_data=RECORDED_ALLOCATION,
    persistent_buffer_data=RECORDED_ALLOCATION,
    tensor_variable_buffer_data=RECORDED_ALLOCATION,
    node_and_registration_array_data=RECORDED_ALLOCATION,
    compression_data=When("compression", RECORDED_ALLOCATION),
    op_data=RECORDED_ALLOCATION,
)
MICRO_BUILTIN_DATA_ALLOCATOR = Struct("MicroBuiltinDataAllocator", vtable=POINTER, persistent_allocator=POINTER)
SUBGRAPH_ALLOCATIONS = Struct(
    "SubgraphAllocations",
    node_and_registrations=POINTER,
    tensors=POINTER,
    compressed=When("compression", POINTER),
)
SCRATCH_BUFFER_HANDLE = Struct("ScratchBufferHandle", data=POINTER)
SUBGRAPH_OFFSET = Struct("size_t", offset=SIZE_T)
TENSOR_POINTER = Struct("TfLiteTensor*", pointer=POINTER)

_RELEASED = "quantization", "data", "dims"

READ_FIELDS: dict[Struct, tuple[tuple[str, ...], ...]] = {
    TFLITE_TENSOR: (_RELEASED, (*_RELEASED, "bytes", "type"), _RELEASED, _RELEASED),
    TFLITE_AFFINE_QUANTIZATION: (("zero_point",), ("zero_point",), ("quantized_dimension",), ("quantized_dimension",)),
}
"""The fields that TFLM still reads for each of `Reads`. Giving a tensor back reads and clears the first ones."""


@dataclass
class SubgraphAllocations:
    """What the arena holds of a subgraph.

    Attributes:
        tensors: one for each tensor of the model.
        nodes: the device's execution plan.
        unplaced: the tensors, by index, that have no data: they lie inside of what hardware of the device computes.
    """

    tensors: list[TfLiteEvalTensor]
    nodes: Sequence[tuple[Node, Registration]]
    unplaced: frozenset[int] = frozenset()


class _TensorPart(NamedTuple):
    """A piece of a TfLiteTensor in full.

    Attributes:
        size, alignment: in bytes.
        read: how many of its first bytes a kernel still reads, for each of `Reads` in order.
    """

    size: int
    alignment: int
    read: tuple[int, ...]


class _Temp(NamedTuple):
    """A temp allocation of the node that prepares: its offset, how many of its first bytes are read, and of what."""

    offset: int
    read: tuple[int, ...]
    tensor: Tensor | None

    def end_of_reads(self, reads: Reads) -> int:
        """Where in the arena what is still read of it ends; 0 where nothing is."""
        read = self.read[reads]
        return self.offset + read if read else 0


class PlannedBuffer(NamedTuple):
    """A tensor or scratch buffer at its place in the head.

    Attributes:
        name: of the tensor, or of the operator whose scratch it is.
        kind: "tensor" or "scratch".
        offset, bytes: its place in the arena, and its size without alignment.
        first_use, last_use: the steps of the invocation between which it is alive, both included. Step 0 fills the
            inputs, each operator is one more.
        type, dims: of a tensor; None and () for scratch.
        tensor: its index, counted through the tensors of all subgraphs as offline plans count; None for scratch.
    """

    name: str
    kind: str
    offset: int
    bytes: int
    first_use: int
    last_use: int
    type: TensorType | None = None
    dims: tuple[int, ...] = ()
    tensor: int | None = None


class RecordedAllocationType(str, Enum):
    """What memory of the tail is used for, named as TFLM prints it."""

    EVAL_TENSOR_DATA = "TfLiteEvalTensor data"
    PERSISTENT_TENSOR_DATA = "Persistent TfLiteTensor data"
    PERSISTENT_TENSOR_QUANTIZATION_DATA = "Persistent TfLiteTensor quantization data"
    PERSISTENT_BUFFER_DATA = "Persistent buffer data"
    VARIABLE_BUFFER_DATA = "TfLiteTensor variable buffer data"
    NODE_AND_REGISTRATION_ARRAY = "NodeAndRegistration struct"
    OP_DATA = "Operator runtime data"


@dataclass(frozen=True)
class RecordedAllocation:
    """Bytes asked for, bytes used with what alignment added, and number of allocations."""

    requested_bytes: int = 0
    used_bytes: int = 0
    count: int = 0


def require_planner(value: Planner) -> Planner:
    """The value, which must be a planner's name, offsets, or an object that plans.

    Raises:
        ArgumentError: it is something else; or there is no planner of that name.
    """
    if isinstance(value, str):
        if value not in {**PLANNERS, **MODEL_PLANNERS}:
            raise ArgumentError(f"unknown planner {value!r}; known are {', '.join((*PLANNERS, *MODEL_PLANNERS))}")
    elif isinstance(value, type) or not (isinstance(value, Sequence) or callable(getattr(value, "add_buffer", None))):
        raise ArgumentError(
            f"a planner is a name, a list of offsets or an object with a planner's methods, not {value!r}"
        )
    return value


class MicroAllocator:
    """Allocates models in one arena, one after the other: their tails stack up, their heads share memory.

    Args:
        arena: a writable buffer; only it is used, unless there is a `persistent_arena`.
        planner: "greedy", "linear" or another name of `tflm.memory.PLANNERS`; "tflite" for LiteRT's places (see
            `tflm.memory.TfLiteMemoryPlanner`); a list of offsets (see `tflm.memory.OffsetsPlanner`), or an object with
            the methods of `tflm.memory.MemoryPlanner`. TFLM keeps a planner that it makes itself in the arena; one that
            the caller gives takes no room there.
        target: the machine whose structure sizes are reserved.
        kernels: the kernel library that the firmware is built with, or its name; see `tflm.libraries`.
        persistent_arena: another buffer, for the tail; `arena` then has only head and temp.

    Attributes:
        target, kernels: as given, the kernels as a library.
        release: the TFLM that the library is built into.
        planner: what plans the head.
        planner_bytes: what the planner's own tables take while it plans, for each plan that was made.
        turn: taken while an interpreter over this allocator allocates, runs or resets; their heads share memory.

    Raises:
        ArenaError: the buffer can't be an arena.
        ArenaExhausted: it is too small for the allocator itself.
        ArgumentError: there is no planner of that name; or the target is none.
    """

    MEMORY_ALLOCATOR: type[SimpleMemoryAllocator] = SimpleMemoryAllocator
    RECORDING = False

    def __init__(
        self,
        arena: Any,
        planner: Planner = "greedy",
        target: Target = HOST,
        *,
        kernels: Kernels = "reference",
        persistent_arena: Any = None,
    ):
        self.target = require_target(target)
        self.kernels = library_for(kernels, target)
        self.release = self.kernels.release
        self._structures: dict[Struct, tuple[int, int]] = {}
        self._parts: dict[Struct, _TensorPart] = {}
        self._non_persistent = self._persistent = self.MEMORY_ALLOCATOR(_as_arena(arena))
        recording = self.RECORDING or self.release.recording
        if persistent_arena is not None:
            self._persistent = self.MEMORY_ALLOCATOR(_as_arena(persistent_arena))
            self._allocate_struct(PERSISTENT_ARENA_BUFFER_ALLOCATOR)
            self._allocate_struct(NON_PERSISTENT_ARENA_BUFFER_ALLOCATOR)
        else:
            self._allocate_struct(
                RECORDING_SINGLE_ARENA_BUFFER_ALLOCATOR if recording else SINGLE_ARENA_BUFFER_ALLOCATOR
            )
        self.planner = self._make_planner(planner)
        self._allocate_struct(RECORDING_MICRO_ALLOCATOR if recording else MICRO_ALLOCATOR)
        self.turn = Turn()
        self._model_is_allocating = False
        self._requests: list[ScratchBufferRequest] = []
        self._assigned_requests = 0
        self._temps: list[_Temp] = []
        self._largest_head = 0
        self.planner_bytes: list[int] = []

    def __repr__(self) -> str:
        used = f"{self.used_bytes()} of {self.arena_bytes} bytes used"
        return f"{type(self).__name__}({used}, target {self.target.name})"

    def _make_planner(self, planner: Planner) -> MemoryPlanner:
        require_planner(planner)
        if isinstance(planner, Sequence) and not isinstance(planner, str):
            return OffsetsPlanner(planner)
        if not isinstance(planner, str):
            return planner
        made = {**PLANNERS, **MODEL_PLANNERS}[planner]()
        if self.release.holds(PLANNER_IN_TAIL):
            self._allocate_struct(made.STRUCT)
        return made

    # The four steps of a model's allocation: start, prepare each node, finish, persistent tensors.

    def start_model_allocation(
        self, model: Model, nodes: Sequence[Sequence[tuple[Node, Registration]]]
    ) -> list[SubgraphAllocations]:
        """Reserve what each subgraph needs before its nodes initialise: eval tensors, nodes.

        Args:
            nodes: the device's execution plan of each subgraph.
        """
        if self._model_is_allocating:
            raise InterpreterError("another model is being allocated in this arena; finish it first")
        self._require_types(model)
        self._model_is_allocating = True
        self._requests, self._assigned_requests = [], 0
        has_subgraphs = self.release.holds(SUBGRAPHS)
        if has_subgraphs:
            self._allocate_struct(MICRO_BUILTIN_DATA_ALLOCATOR)
        self._non_persistent.allocate_resizable_buffer(*self._request_table_size(), "scratch buffer requests")
        if has_subgraphs:
            self._allocate_struct(SUBGRAPH_ALLOCATIONS, len(model.subgraphs))
        with self._recorded(RecordedAllocationType.EVAL_TENSOR_DATA) as recorded:
            allocations = [
                SubgraphAllocations([TfLiteEvalTensor(model, tensor) for tensor in subgraph.tensors or ()], plan)
                for subgraph, plan in zip(model.subgraphs, nodes)
            ]
            for subgraph in allocations:
                self._allocate_struct(TFLITE_EVAL_TENSOR, len(subgraph.tensors))
            recorded.count = sum(len(subgraph.tensors) for subgraph in allocations)
        with self._recorded(RecordedAllocationType.NODE_AND_REGISTRATION_ARRAY) as recorded:
            for plan in nodes:
                self._allocate_struct(NODE_AND_REGISTRATION, len(plan))
            recorded.count = sum(map(len, nodes))
        return allocations

    def require_subgraphs(self, model: Model) -> None:
        """Refuse more than one subgraph where the release does not know any others.

        Raises:
            ModelError: so it is.
        """
        if len(model.subgraphs) > 1 and not self.release.holds(SUBGRAPHS):
            raise ModelError(f"{self.release.name} says: Only 1 subgraph is currently supported.", table="Model")

    def _require_types(self, model: Model) -> None:
        """Refuse tensors of types that the release has no size for."""
        unknown = {type for type, commit in TYPES_SINCE.items() if not self.release.holds(commit)}
        for subgraph in model.subgraphs if unknown else ():
            for tensor in subgraph.tensors or ():
                if tensor.type in unknown:
                    reason = f"{self.release.name} does not know {tensor.type.name} (tensor {tensor.name!r})"
                    raise ModelError(reason, table="Tensor", field="type")

    def finish_prepare_node_allocations(self, position: int) -> None:
        """Give back the temp allocations of a node, at its position in the plan, and keep its scratch requests."""
        for temp in self._temps:
            self._non_persistent.deallocate_temp(temp.offset)
        self._temps = []
        self._non_persistent.reset_temp_allocations()
        for request in self._requests[self._assigned_requests :]:
            request.node_index = position
        self._assigned_requests = len(self._requests)
        self._non_persistent.resize_buffer(0, *self._request_table_size(), "scratch buffer requests")

    def finish_model_allocation(
        self, model: Model, allocations: list[SubgraphAllocations]
    ) -> tuple[list[PlannedBuffer], list[Step]]:
        """Place every tensor and scratch buffer; sets the data of the eval tensors.

        Returns:
            the buffers in the head, scratch buffers last and in the order of their requests; and what happens at
            each step that their lifetimes are counted in.
        """
        if not self._model_is_allocating:
            raise InterpreterError("no model is being allocated; start one first")
        if self.release.holds(PLANNED_TOGETHER):
            finished = self._finish_together(model, allocations)
        else:
            finished = self._finish_one_by_one(model, allocations)
        self._model_is_allocating = False
        return finished

    def _finish_together(
        self, model: Model, allocations: list[SubgraphAllocations]
    ) -> tuple[list[PlannedBuffer], list[Step]]:
        offsets = self._offline_offsets(model)
        variables_first = not self.release.holds(VARIABLES_IN_PLAN)
        handles_by_subgraph = not self.release.holds(ONE_HANDLE_TABLE)
        for i in range(len(allocations)):
            if i == 0 or handles_by_subgraph:
                self._allocate_scratch_handles()
            if variables_first:
                self._allocate_variables(model, allocations, i, None)
        temps = self._allocate_planning_tables(allocations)
        if not variables_first:
            for i in range(len(allocations)):
                self._allocate_variables(model, allocations, i, offsets)
        tensors = [subgraph.tensors for subgraph in allocations]
        nodes = [[node for node, _ in subgraph.nodes] for subgraph in allocations]
        unplaced = [subgraph.unplaced for subgraph in allocations]
        builder = AllocationInfoBuilder(model, nodes, tensors, unplaced, self._requests, offsets)
        infos = [info for info in builder.build() if info.needs_allocating]
        if isinstance(self.planner, TfLiteMemoryPlanner):
            self.planner.set_model(model, tensors, infos)
        self._plan(infos, temps)
        planned = self._commit(infos, allocations)
        if model.checks == "all" and type(self.planner) not in PLANNERS.values():
            self._check_values(model, infos, planned)
        return planned, builder.steps

    def _finish_one_by_one(
        self, model: Model, allocations: list[SubgraphAllocations]
    ) -> tuple[list[PlannedBuffer], list[Step]]:
        """As TFLM did when each subgraph had a plan of its own over the same memory, with all scratch buffers in it."""
        planned: list[PlannedBuffer] = []
        scratch: list[PlannedBuffer] = []
        steps: list[Step] = []
        offsets = self._offline_offsets(model)
        for i, subgraph in enumerate(allocations):
            self._allocate_scratch_handles()
            temps = self._allocate_planning_tables([subgraph])
            builder = SubgraphInfoBuilder(model, i, subgraph.nodes, subgraph.tensors, self._requests, offsets)
            infos = builder.build(unread_outputs_fail=not self.release.holds(UNREAD_OUTPUTS))
            self._plan(infos, temps)
            buffers = self._commit(infos, allocations)
            planned += [_later(buffer, len(steps)) for buffer in buffers if buffer.tensor is not None]
            scratch = [_later(buffer, len(steps)) for buffer in buffers if buffer.tensor is None]
            steps += builder.steps
            self._allocate_variables(model, allocations, i, None)
        return planned + scratch, steps

    def _allocate_scratch_handles(self) -> None:
        if self._requests:
            self._allocate_struct(SCRATCH_BUFFER_HANDLE, len(self._requests))

    def _allocate_planning_tables(self, allocations: list[SubgraphAllocations]) -> list[int]:
        tensor_count = sum(len(subgraph.tensors) for subgraph in allocations)
        temps = []
        if self.release.holds(PLANNED_TOGETHER):
            temps.append(self._allocate_temp_struct(SUBGRAPH_OFFSET, len(allocations), "offsets of subgraphs"))
        infos = tensor_count + len(self._requests)
        return [*temps, self._allocate_temp_struct(ALLOCATION_INFO, infos, "allocation infos")]

    def _offline_offsets(self, model: Model) -> tuple[int, ...] | None:
        """The plan that the model has, unless every tensor is to have memory of its own."""
        offsets = offline_offsets(model.root)
        if offsets is None or not self.planner.preserves_all_tensors:
            return offsets
        if any(offset != ONLINE_PLANNED_BUFFER for offset in offsets):
            reason = "the model's own memory plan is ignored: every tensor gets memory of its own"
            warnings.warn(reason, PlanIgnored, stacklevel=2)
        return None

    def _allocate_variables(
        self, model: Model, allocations: list[SubgraphAllocations], subgraph: int, offsets: tuple[int, ...] | None
    ) -> None:
        start = sum(len(allocation.tensors) for allocation in allocations[:subgraph])
        tables, tensors = model.subgraphs[subgraph].tensors or (), allocations[subgraph].tensors
        with self._recorded(RecordedAllocationType.VARIABLE_BUFFER_DATA):
            for i, (table, tensor) in enumerate(zip(tables, tensors), start):
                if table.is_variable and (offsets is None or offsets[i] == ONLINE_PLANNED_BUFFER):
                    offset = self._persistent.allocate_persistent_buffer(
                        tensor.byte_length, ARENA_ALIGNMENT, f"variable tensor {tensor.name!r}"
                    )
                    _place_tensor(tensor, self._persistent.arena, offset)

    def _plan(self, infos: list[AllocationInfo], temps: list[int]) -> None:
        """Tell the planner of every buffer, while it has all the memory that is left for its tables; set the head."""
        remaining = self._non_persistent.get_available_memory(ARENA_ALIGNMENT)
        working_space = self._non_persistent.allocate_temp(remaining, ARENA_ALIGNMENT, PLANNER_WORKING_SPACE)
        self.planner.init(remaining)
        per_buffer = self.planner.WORKING_BYTES_PER_BUFFER if isinstance(self.planner, PlacingPlanner) else 0
        self.planner_bytes.append(per_buffer * len(infos))
        for info in infos:
            size = align_up(info.bytes, ARENA_ALIGNMENT)
            self.planner.add_buffer(size, info.first_created, info.last_used, info.offline_offset)
        for offset in (*temps, working_space):
            self._non_persistent.deallocate_temp(offset)
        self._non_persistent.reset_temp_allocations()
        size = self.planner.get_maximum_memory_size()
        if not self.release.holds(PLANNED_TOGETHER):  # the plan had to fit above what the head held before
            room = self._non_persistent.allocate_temp(size, ARENA_ALIGNMENT, ROOM_FOR_THE_PLAN)
            self._non_persistent.deallocate_temp(room)
            self._non_persistent.reset_temp_allocations()
        self._non_persistent.deallocate_resizable_buffer(0)
        self._largest_head = max(self._largest_head, size)
        self._non_persistent.reserve_non_persistent_overlay_memory(self._largest_head, ARENA_ALIGNMENT)

    def _commit(self, infos: list[AllocationInfo], allocations: list[SubgraphAllocations]) -> list[PlannedBuffer]:
        planned: list[PlannedBuffer] = []
        tensors = [tensor for subgraph in allocations for tensor in subgraph.tensors]
        index_of = {id(tensor): i for i, tensor in enumerate(tensors)}
        for i, info in enumerate(infos):
            # TFLM's -1 is for what nothing writes, such as memory of an NPU; both are -1 for what is never used.
            first_use = min(max(info.first_created, 0), info.last_used)
            place = self.planner.get_offset_for_buffer(i), info.bytes, first_use, info.last_used
            owner = info.owner
            if isinstance(owner, TfLiteEvalTensor):
                planned.append(PlannedBuffer(owner.name, "tensor", *place, owner.type, owner.dims, index_of[id(owner)]))
            else:
                node, _ = allocations[owner.subgraph_index].nodes[owner.node_index]
                planned.append(PlannedBuffer(node.operator, "scratch", *place))
        self._check_plan(planned)
        for info, buffer in zip(infos, planned):
            if isinstance(info.owner, TfLiteEvalTensor):
                _place_tensor(info.owner, self._non_persistent.arena, buffer.offset)
        for tensor in tensors:
            if tensor.data is None and tensor.byte_length == 0:
                _place_tensor(tensor, self._non_persistent.arena, 0)
        return planned

    def _check_plan(self, planned: list[PlannedBuffer]) -> None:
        """A plan from elsewhere may lead out of its own head; then views would lead into other memory."""
        head = self.planner.get_maximum_memory_size()
        for buffer in planned:
            if buffer.offset < 0 or buffer.offset + buffer.bytes > head:
                raise ArenaError(
                    f"the plan puts {buffer.kind} {buffer.name!r} ({buffer.bytes} bytes) at offset {buffer.offset}, "
                    f"outside its {head} bytes"
                )

    def _check_values(self, model: Model, infos: list[AllocationInfo], planned: list[PlannedBuffer]) -> None:
        """A plan from elsewhere may put a value over another one that is still needed."""
        starts = np.cumsum([0, *(len(subgraph.tensors or ()) for subgraph in model.subgraphs)], dtype=np.int64)
        places: dict[tuple[int, int], Place] = {}
        scratch: dict[tuple[int, int], list[Place]] = {}
        for info, buffer in zip(infos, planned):
            place = Place(buffer.offset, buffer.bytes)
            if isinstance(info.owner, ScratchBufferRequest):
                scratch.setdefault((info.owner.subgraph_index, info.owner.node_index), []).append(place)
            elif buffer.tensor is not None:
                subgraph = int(starts.searchsorted(buffer.tensor, side="right")) - 1
                places[subgraph, buffer.tensor - int(starts[subgraph])] = place
        for lost in lost_values(model.root, places, scratch):
            raise ArenaError(f"the plan loses a value: {lost}")

    # What operators and the interpreter ask for.

    def allocate_persistent_buffer(
        self, size: int, what: str = "a persistent buffer", reads: Reads | None = None
    ) -> npt.NDArray[np.uint8]:
        """Bytes of the tail, aligned to 16.

        Args:
            size: in bytes.
            what: names them in errors.
            reads: what the node that prepares still reads of its temp tensors, so that the buffer may lie over the
                rest; None for everything.
        """
        shared = self._persistent is self._non_persistent
        floor = None if reads is None or not shared else self._end_of_reads(reads)
        with self._recorded(RecordedAllocationType.PERSISTENT_BUFFER_DATA):
            offset = self._persistent.allocate_persistent_buffer(size, ARENA_ALIGNMENT, what, floor)
        return self._persistent.arena.view(offset, np.uint8, (size,))

    def _end_of_reads(self, reads: Reads) -> int:
        """Where in the arena what is still read of head and temp memory ends."""
        return max((temp.end_of_reads(reads) for temp in self._temps), default=self._non_persistent.head)

    def head_view(self, offset: int, size: int) -> npt.NDArray[np.uint8]:
        """Bytes of the head, from `offset` on."""
        return self._non_persistent.arena.view(offset, np.uint8, (size,))

    def allocate_builtin_data(self, struct: Struct) -> None:
        """Reserve the structure that an operator's options are parsed into."""
        self._allocate_struct(struct)

    def request_scratch_buffer_in_arena(self, size: int, subgraph_index: int) -> int:
        """Note that the node being prepared needs scratch memory; gives the number of the request."""
        require_size("a scratch buffer", size)
        if len(self._requests) - self._assigned_requests >= MAXIMUM_SCRATCH_BUFFERS_PER_OPERATOR:
            raise ArenaError(f"an operator may ask for {MAXIMUM_SCRATCH_BUFFERS_PER_OPERATOR} scratch buffers")
        self._requests.append(ScratchBufferRequest(size, subgraph_index, UNASSIGNED_NODE))
        return len(self._requests) - 1

    def allocate_temp_buffer(self, size: int, alignment: int, what: str = "a temporary buffer") -> int:
        """Bytes above the head until the node has prepared; gives their offset."""
        return self._allocate_temp(_TensorPart(size, alignment, (size,) * len(Reads)), what, None)

    def allocate_temp_tensor(self, tensor: Tensor, what: str) -> None:
        """Room for a tensor in full, in temp memory, until the node has prepared or the tensor is released."""
        for part in self._tensor_parts(tensor):
            self._allocate_temp(part, what, tensor)

    def _allocate_temp(self, part: _TensorPart, what: str, tensor: Tensor | None) -> int:
        offset = self._non_persistent.allocate_temp(part.size, part.alignment, what)
        self._temps.append(_Temp(offset, part.read, tensor))
        return offset

    def release_temp_tensor(self, tensor: Tensor) -> None:
        """Give back a tensor's room in temp memory: nothing more can be had there, but nothing there is read again."""
        for temp in [temp for temp in self._temps if temp.tensor is tensor]:
            self._non_persistent.deallocate_temp(temp.offset)
            self._temps.remove(temp)

    def allocate_persistent_tensor(self, tensor: Tensor, eval_tensor: TfLiteEvalTensor) -> TfLiteTensor:
        """A tensor in full, in the tail."""
        what = f"input or output tensor {eval_tensor.name!r}"
        parts = self._tensor_parts(tensor)
        with self._recorded(RecordedAllocationType.PERSISTENT_TENSOR_DATA):
            self._persistent.allocate_persistent_buffer(parts[0].size, parts[0].alignment, what)
        with self._recorded(RecordedAllocationType.PERSISTENT_TENSOR_QUANTIZATION_DATA):
            for part in parts[1:]:
                self._persistent.allocate_persistent_buffer(part.size, part.alignment, what)
        return TfLiteTensor(tensor, eval_tensor)

    def allocate_tensor_pointers(self, count: int) -> None:
        """Reserve the array of pointers to the tensors of a model's inputs or outputs."""
        self.allocate_persistent_buffer(count * TENSOR_POINTER.size(self.target), "pointers to input or output tensors")

    def _tensor_parts(self, tensor: Tensor) -> list[_TensorPart]:
        """Each piece of a TfLiteTensor: itself, its quantization, its zero points."""
        quantization = affine_quantization(tensor)
        parts = [self._tensor_part(TFLITE_TENSOR)]
        if quantization is not None:
            size = int_array_bytes(len(quantization.zero_point))
            zero_points = _TensorPart(size, INT32.alignment(self.target), (0, 0, 0, size))
            parts += self._tensor_part(TFLITE_AFFINE_QUANTIZATION), zero_points
        return parts

    def _tensor_part(self, struct: Struct) -> _TensorPart:
        if struct not in self._parts:
            ends = [self.kernels.end_of(struct, fields, self.target) for fields in READ_FIELDS[struct]]
            self._parts[struct] = _TensorPart(*self._size_and_alignment(struct), tuple(ends))
        return self._parts[struct]

    # Figures.

    @property
    def head_bytes(self) -> int:
        """Bytes of the head, and of temp memory while a model is being allocated."""
        return self._non_persistent.get_non_persistent_used_bytes()

    @property
    def arena_bytes(self) -> int:
        """Bytes of the arena, or of both where there are two."""
        arenas = {id(memory.arena): memory.arena.size for memory in (self._non_persistent, self._persistent)}
        return sum(arenas.values())

    @property
    def tail_bytes(self) -> int:
        """Bytes of the tail."""
        return self._persistent.get_persistent_used_bytes()

    def used_bytes(self) -> int:
        """Bytes of head and tail."""
        return self.head_bytes + self.tail_bytes

    @contextmanager
    def all_or_nothing(self) -> Iterator[None]:
        """On any exception, go back to the state at the start, so that the arena can be used again."""
        checkpoints = [(memory, memory.checkpoint()) for memory in (self._persistent, self._non_persistent)]
        largest_head = self._largest_head
        try:
            yield
        except BaseException:
            for memory, checkpoint in checkpoints:
                memory.restore(checkpoint)
            self._largest_head = largest_head
            self._model_is_allocating, self._requests, self._temps = False, [], []
            self._assigned_requests = 0
            raise

    def _allocate_struct(self, struct: Struct, count: int = 1) -> None:
        what = struct.name if count == 1 else f"{count} x {struct.name}"
        size, alignment = self._size_and_alignment(struct)
        self._persistent.allocate_persistent_buffer(count * size, alignment, what)

    def _size_and_alignment(self, struct: Struct) -> tuple[int, int]:
        """Those that a structure has on the target in sources of the kernel library's age."""
        if struct not in self._structures:
            self._structures[struct] = self.kernels.layout(struct, self.target)
        return self._structures[struct]

    def _allocate_temp_struct(self, struct: Struct, count: int, what: str) -> int:
        size, alignment = self._size_and_alignment(struct)
        return self._non_persistent.allocate_temp(count * size, alignment, what)

    def _request_table_size(self) -> tuple[int, int]:
        """Size and alignment of the scratch requests so far, and of as many as one more operator may add."""
        count = len(self._requests) + MAXIMUM_SCRATCH_BUFFERS_PER_OPERATOR
        size, alignment = self._size_and_alignment(SCRATCH_BUFFER_REQUEST)
        return count * size, alignment

    @contextmanager
    def _recorded(self, kind: RecordedAllocationType) -> Iterator[_Recorded]:
        yield _Recorded(kind)


def _as_arena(buffer: Any) -> Arena:
    return buffer if isinstance(buffer, Arena) else Arena(buffer)


def _later(buffer: PlannedBuffer, steps: int) -> PlannedBuffer:
    """A buffer with its lifetime so many steps later."""
    return buffer._replace(first_use=buffer.first_use + steps, last_use=buffer.last_use + steps)


def _place_tensor(tensor: TfLiteEvalTensor, arena: Arena, offset: int) -> None:
    tensor.offset = offset
    tensor.data = arena.view(offset, ELEMENT_TYPES[tensor.type].dtype, tensor.dims)


@dataclass
class _Recorded:
    """Allocations for one purpose.

    Attributes:
        kind: what for.
        begin, end: those of the log that they are, from `begin` to before `end`.
        count: how many they count as, where that is not their number; set by the code that allocates.
    """

    kind: RecordedAllocationType
    begin: int = 0
    end: int = 0
    count: int | None = None


class LoggingMicroAllocator(MicroAllocator):
    """The plain allocator with a log of what it does, and what for, which costs nothing in the arena."""

    MEMORY_ALLOCATOR = RecordingSimpleMemoryAllocator
    _persistent: RecordingSimpleMemoryAllocator
    _non_persistent: RecordingSimpleMemoryAllocator

    def __init__(self, *args: Any, **options: Any):
        self._purposes: list[_Recorded] = []
        super().__init__(*args, **options)

    @property
    def log(self) -> list[Allocation]:
        """Every allocation, in order; with a persistent arena, those in it."""
        return self._persistent.log

    @property
    def head_log(self) -> list[Allocation]:
        """Every allocation in the arena of the head, in order; the same, where tail and head share one."""
        return self._non_persistent.log

    @contextmanager
    def all_or_nothing(self) -> Iterator[None]:
        purposes = len(self._purposes)
        try:
            with super().all_or_nothing():
                yield
        except BaseException:
            del self._purposes[purposes:]
            raise

    @contextmanager
    def _recorded(self, kind: RecordedAllocationType) -> Iterator[_Recorded]:
        recorded = _Recorded(kind, len(self.log))
        yield recorded
        recorded.end = len(self.log)
        self._purposes.append(recorded)


class RecordingMicroAllocator(LoggingMicroAllocator):
    """The same, which also keeps account of what the tail is used for.

    Its own objects are larger than the plain allocator's, and so are its totals.
    """

    RECORDING = True

    def __init__(
        self, arena: Any, planner: Planner = "greedy", target: Target = HOST, *, kernels: Kernels = "reference"
    ):
        self.records = dict.fromkeys(RecordedAllocationType, RecordedAllocation())
        super().__init__(arena, planner, target, kernels=kernels)

    def repeat(self, other: LoggingMicroAllocator) -> None:
        """Take from the tail what another allocator has given there; the records are then as if it had been this one.

        Args:
            other: one with the same planner and arena, over an arena of the same size.

        Raises:
            ArenaExhausted: the larger objects of this one leave too little.
        """
        position = len(self.log)  # both begin with their own objects, which are as many
        for purpose in other._purposes:
            self._allocate_again(other.log[position : purpose.begin])
            with self._recorded(purpose.kind) as recorded:
                self._allocate_again(other.log[purpose.begin : purpose.end])
                recorded.count = purpose.count
            position = purpose.end
        self._allocate_again(other.log[position:])

    def _allocate_again(self, allocations: Sequence[Allocation]) -> None:
        for allocation in (a for a in allocations if a.section == "tail"):
            self._persistent.allocate_persistent_buffer(allocation.size, allocation.alignment, allocation.what)

    @contextmanager
    def all_or_nothing(self) -> Iterator[None]:
        records = dict(self.records)
        try:
            with super().all_or_nothing():
                yield
        except BaseException:
            self.records = records
            raise

    @contextmanager
    def _recorded(self, kind: RecordedAllocationType) -> Iterator[_Recorded]:
        memory = self._persistent
        used = memory.get_persistent_used_bytes()
        with super()._recorded(kind) as recorded:
            yield recorded
        sizes = [a.size for a in memory.log[recorded.begin : recorded.end] if a.section == "tail"]
        total = self.records[kind]
        self.records[kind] = RecordedAllocation(
            total.requested_bytes + sum(sizes),
            total.used_bytes + memory.get_persistent_used_bytes() - used,
            total.count + (len(sizes) if recorded.count is None else recorded.count),
        )
