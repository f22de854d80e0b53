"""Lays a model out in the arena: the same structures as TFLM, in the same order, of the target's sizes.

In the tail, from the end of the arena downwards: the allocator, the planner and this object; then for each model its
builtin-data allocator, subgraph allocations, eval tensors, nodes, parsed options, what operators ask for when they
initialise and prepare, scratch handles, variables, and the tensors of inputs and outputs. In the head, while operators
prepare, the scratch requests; afterwards the planned tensors and scratch buffers.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple, Union

import numpy as np
import numpy.typing as npt

from tflm.errors import ArenaError, InterpreterError
from tflm.kernels.registration import NODE_AND_REGISTRATION, Node, Registration
from tflm.memory import ARENA_ALIGNMENT, PLANNERS, OffsetsPlanner
from tflm.memory.arena import Arena
from tflm.memory.lifetimes import (
    ALLOCATION_INFO,
    SCRATCH_BUFFER_REQUEST,
    AllocationInfo,
    AllocationInfoBuilder,
    ScratchBufferRequest,
    Step,
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
from tflm.schema.element_types import ELEMENT_TYPES
from tflm.schema.enums import TensorType
from tflm.schema.model import Model
from tflm.schema.offline_plan import offline_offsets
from tflm.schema.tables import Tensor
from tflm.targets import BOOL, HOST, POINTER, SIZE_T, Struct, Target, When, align_up

Planner = Union[str, Sequence[int], MemoryPlanner]
"""A planner by its name, a plan as a list of offsets, or a planner of the caller's own."""

PLANNER_WORKING_SPACE = "the planner's working space"

MAXIMUM_SCRATCH_BUFFERS_PER_OPERATOR = 12
UNASSIGNED_NODE = -1

MICRO_ALLOCATOR = Struct(
    "MicroAllocator",
    vtable=POINTER,
    non_persistent_buffer_allocator=POINTER,
    persistent_buffer_allocator=POINTER,
    builtin_data_allocator=POINTER,
    memory_planner=POINTER,
    model_is_allocating=BOOL,
    scratch_buffer_request_count=SIZE_T,
    scratch_buffer_head=POINTER,
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


@dataclass
class SubgraphAllocations:
    """What the arena holds of a subgraph: a tensor for each of its tensors, a node for each of its operators."""

    tensors: list[TfLiteEvalTensor]
    nodes: list[tuple[Node, Registration]] = field(default_factory=list)


class PlannedBuffer(NamedTuple):
    """A tensor or scratch buffer at its place in the head.

    Attributes:
        name: of the tensor, or of the operator whose scratch it is.
        kind: "tensor" or "scratch".
        offset, bytes: its place in the arena, and its size without alignment.
        first_use, last_use: the steps of the invocation between which it is alive, both included. Step 0 fills the
            inputs, each operator is one more.
        type, dims: of a tensor; None and () for scratch.
    """

    name: str
    kind: str
    offset: int
    bytes: int
    first_use: int
    last_use: int
    type: TensorType | None = None
    dims: tuple[int, ...] = ()


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


class MicroAllocator:
    """Allocates models in one arena, one after the other: their tails stack up, their heads share memory.

    Args:
        arena: a writable buffer; only it is used, unless there is a `persistent_arena`.
        planner: "greedy", "linear", a list of offsets (see `tflm.memory.OffsetsPlanner`), or an object with the
            methods of `tflm.memory.MemoryPlanner`. TFLM keeps a planner that it makes itself in the arena; one that
            the caller gives takes no room there.
        target: the machine whose structure sizes are reserved.
        persistent_arena: another buffer, for the tail; `arena` then has only head and temp.

    Attributes:
        target: as given.
        planner: what plans the head.
        turn: held while an interpreter over this allocator allocates, runs or resets; their heads share memory.

    Raises:
        ArenaError: the buffer can't be an arena.
        ArenaExhausted: it is too small for the allocator itself.
        ValueError: there is no planner of that name.
    """

    MEMORY_ALLOCATOR: type[SimpleMemoryAllocator] = SimpleMemoryAllocator
    RECORDING = False

    def __init__(
        self,
        arena: Any,
        planner: Planner = "greedy",
        target: Target = HOST,
        *,
        persistent_arena: Any = None,
    ):
        if not isinstance(target, Target):
            raise TypeError(f"{target!r} is not a target; tflm.targets.by_name gives one by its name")
        self.target = target
        self._non_persistent = self._persistent = self.MEMORY_ALLOCATOR(_as_arena(arena))
        recording = self.RECORDING or target.recording
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
        self.turn = threading.Lock()
        self._model_is_allocating = False
        self._requests: list[ScratchBufferRequest] = []
        self._temps: list[int] = []
        self._largest_head = 0

    def _make_planner(self, planner: Planner) -> MemoryPlanner:
        if isinstance(planner, Sequence) and not isinstance(planner, str):
            return OffsetsPlanner(planner)
        if not isinstance(planner, str):
            return planner
        if planner not in PLANNERS:
            raise ValueError(f"unknown planner {planner!r}; known are {', '.join(PLANNERS)}")
        made = PLANNERS[planner]()
        self._allocate_struct(made.STRUCT)
        return made

    # The four steps of a model's allocation: start, prepare each node, finish, persistent tensors.

    def start_model_allocation(self, model: Model) -> list[SubgraphAllocations]:
        """Reserve what each subgraph needs before its operators are known; gives its eval tensors."""
        if self._model_is_allocating:
            raise InterpreterError("another model is being allocated in this arena; finish it first")
        self._model_is_allocating = True
        self._requests = []
        self._allocate_struct(MICRO_BUILTIN_DATA_ALLOCATOR)
        self._non_persistent.allocate_resizable_buffer(*self._request_table_size(), "scratch buffer requests")
        self._allocate_struct(SUBGRAPH_ALLOCATIONS, len(model.subgraphs))
        with self._recorded(RecordedAllocationType.EVAL_TENSOR_DATA) as recorded:
            allocations = [
                SubgraphAllocations([TfLiteEvalTensor(model, tensor) for tensor in subgraph.tensors or ()])
                for subgraph in model.subgraphs
            ]
            for subgraph in allocations:
                self._allocate_struct(TFLITE_EVAL_TENSOR, len(subgraph.tensors))
            recorded.count = sum(len(subgraph.tensors) for subgraph in allocations)
        with self._recorded(RecordedAllocationType.NODE_AND_REGISTRATION_ARRAY) as recorded:
            node_counts = [len(subgraph.operators or ()) for subgraph in model.subgraphs]
            for count in node_counts:
                self._allocate_struct(NODE_AND_REGISTRATION, count)
            recorded.count = sum(node_counts)
        return allocations

    def finish_prepare_node_allocations(self, node_index: int) -> None:
        """Give back the temp allocations of a node, and keep its scratch requests."""
        for offset in self._temps:
            self._non_persistent.deallocate_temp(offset)
        self._temps = []
        self._non_persistent.reset_temp_allocations()
        for request in self._requests:
            if request.node_index == UNASSIGNED_NODE:
                request.node_index = node_index
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
        if self._requests:
            self._allocate_struct(SCRATCH_BUFFER_HANDLE, len(self._requests))
        temps = self._allocate_planning_tables(allocations)
        builder = self._lifetimes(model, allocations)
        infos = [info for info in builder.build() if info.needs_allocating]
        self._plan(infos, temps)
        self._largest_head = max(self._largest_head, self.planner.get_maximum_memory_size())
        self._non_persistent.reserve_non_persistent_overlay_memory(self._largest_head, ARENA_ALIGNMENT)
        planned = self._commit(infos, allocations)
        self._model_is_allocating = False
        return planned, builder.steps

    def _allocate_planning_tables(self, allocations: list[SubgraphAllocations]) -> list[int]:
        tensor_count = sum(len(subgraph.tensors) for subgraph in allocations)
        return [
            self._allocate_temp_struct(SUBGRAPH_OFFSET, len(allocations), "offsets of subgraphs"),
            self._allocate_temp_struct(ALLOCATION_INFO, tensor_count + len(self._requests), "allocation infos"),
        ]

    def _lifetimes(self, model: Model, allocations: list[SubgraphAllocations]) -> AllocationInfoBuilder:
        tensors = [subgraph.tensors for subgraph in allocations]
        offsets = offline_offsets(model.root)
        self._allocate_variables(model, tensors, offsets)
        return AllocationInfoBuilder(model, tensors, self._requests, offsets)

    def _allocate_variables(
        self, model: Model, tensors: list[list[TfLiteEvalTensor]], offsets: tuple[int, ...] | None
    ) -> None:
        tables = [table for subgraph in model.subgraphs for table in subgraph.tensors or ()]
        eval_tensors = [tensor for subgraph in tensors for tensor in subgraph]
        with self._recorded(RecordedAllocationType.VARIABLE_BUFFER_DATA):
            for i, (table, tensor) in enumerate(zip(tables, eval_tensors)):
                if table.is_variable and (offsets is None or offsets[i] == ONLINE_PLANNED_BUFFER):
                    offset = self._persistent.allocate_persistent_buffer(
                        tensor.byte_length, ARENA_ALIGNMENT, f"variable tensor {tensor.name!r}"
                    )
                    _place_tensor(tensor, self._persistent.arena, offset)

    def _plan(self, infos: list[AllocationInfo], temps: list[int]) -> None:
        """Tell the planner of every buffer, while it has all the memory that is left for its tables."""
        remaining = self._non_persistent.get_available_memory(ARENA_ALIGNMENT)
        working_space = self._non_persistent.allocate_temp(remaining, ARENA_ALIGNMENT, PLANNER_WORKING_SPACE)
        self.planner.init(remaining)
        for info in infos:
            size = align_up(info.bytes, ARENA_ALIGNMENT)
            self.planner.add_buffer(size, info.first_created, info.last_used, info.offline_offset)
        for offset in (*temps, working_space):
            self._non_persistent.deallocate_temp(offset)
        self._non_persistent.reset_temp_allocations()
        self._non_persistent.deallocate_resizable_buffer(0)

    def _commit(self, infos: list[AllocationInfo], allocations: list[SubgraphAllocations]) -> list[PlannedBuffer]:
        planned: list[PlannedBuffer] = []
        for i, info in enumerate(infos):
            place = self.planner.get_offset_for_buffer(i), info.bytes, info.first_created, info.last_used
            owner = info.owner
            if isinstance(owner, TfLiteEvalTensor):
                planned.append(PlannedBuffer(owner.name, "tensor", *place, owner.type, owner.dims))
            else:
                node, _ = allocations[owner.subgraph_index].nodes[owner.node_index]
                planned.append(PlannedBuffer(node.operator, "scratch", *place))
        self._check_plan(planned)
        for info, buffer in zip(infos, planned):
            if isinstance(info.owner, TfLiteEvalTensor):
                _place_tensor(info.owner, self._non_persistent.arena, buffer.offset)
        for subgraph in allocations:
            for tensor in subgraph.tensors:
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

    # What operators and the interpreter ask for.

    def allocate_persistent_buffer(self, size: int, what: str = "a persistent buffer") -> npt.NDArray[np.uint8]:
        """Bytes of the tail, aligned to 16."""
        with self._recorded(RecordedAllocationType.PERSISTENT_BUFFER_DATA):
            offset = self._persistent.allocate_persistent_buffer(size, ARENA_ALIGNMENT, what)
        return self._persistent.arena.view(offset, np.uint8, (size,))

    def head_view(self, offset: int, size: int) -> npt.NDArray[np.uint8]:
        """Bytes of the head, from `offset` on."""
        return self._non_persistent.arena.view(offset, np.uint8, (size,))

    def allocate_builtin_data(self, struct: Struct) -> None:
        """Reserve the structure that an operator's options are parsed into."""
        self._allocate_struct(struct)

    def request_scratch_buffer_in_arena(self, size: int, subgraph_index: int) -> int:
        """Note that the node being prepared needs scratch memory; gives the number of the request."""
        unassigned = sum(request.node_index == UNASSIGNED_NODE for request in self._requests)
        if unassigned >= MAXIMUM_SCRATCH_BUFFERS_PER_OPERATOR:
            raise ArenaError(f"an operator may ask for {MAXIMUM_SCRATCH_BUFFERS_PER_OPERATOR} scratch buffers")
        self._requests.append(ScratchBufferRequest(size, subgraph_index, UNASSIGNED_NODE))
        return len(self._requests) - 1

    def allocate_temp_buffer(self, size: int, alignment: int, what: str = "a temporary buffer") -> int:
        """Bytes above the head until the node has prepared; gives their offset."""
        offset = self._non_persistent.allocate_temp(size, alignment, what)
        self._temps.append(offset)
        return offset

    def allocate_temp_tensor(self, tensor: Tensor, eval_tensor: TfLiteEvalTensor, what: str) -> TfLiteTensor:
        """A tensor in full, in temp memory, until the node has prepared."""
        for struct_size, alignment in self._tensor_parts(tensor):
            self.allocate_temp_buffer(struct_size, alignment, what)
        return TfLiteTensor(tensor, eval_tensor)

    def allocate_persistent_tensor(self, tensor: Tensor, eval_tensor: TfLiteEvalTensor) -> TfLiteTensor:
        """A tensor in full, in the tail."""
        what = f"input or output tensor {eval_tensor.name!r}"
        parts = self._tensor_parts(tensor)
        with self._recorded(RecordedAllocationType.PERSISTENT_TENSOR_DATA):
            self._persistent.allocate_persistent_buffer(*parts[0], what)
        with self._recorded(RecordedAllocationType.PERSISTENT_TENSOR_QUANTIZATION_DATA):
            for struct_size, alignment in parts[1:]:
                self._persistent.allocate_persistent_buffer(struct_size, alignment, what)
        return TfLiteTensor(tensor, eval_tensor)

    def allocate_tensor_pointers(self, count: int) -> None:
        """Reserve the array of pointers to the tensors of a model's inputs or outputs."""
        self.allocate_persistent_buffer(count * TENSOR_POINTER.size(self.target), "pointers to input or output tensors")

    def _tensor_parts(self, tensor: Tensor) -> list[tuple[int, int]]:
        """(size, alignment) of each piece of a TfLiteTensor: itself, its quantization, its zero points."""
        structs = [TFLITE_TENSOR]
        quantization = affine_quantization(tensor)
        if quantization is not None:
            structs.append(TFLITE_AFFINE_QUANTIZATION)
        parts = [(struct.size(self.target), struct.alignment(self.target)) for struct in structs]
        if quantization is not None:
            parts.append((int_array_bytes(len(quantization.zero_point)), 4))
        return parts

    # Figures.

    @property
    def head_bytes(self) -> int:
        """Bytes of the head, and of temp memory while a model is being allocated."""
        return self._non_persistent.get_non_persistent_used_bytes()

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
            raise

    def _allocate_struct(self, struct: Struct, count: int = 1) -> None:
        what = struct.name if count == 1 else f"{count} x {struct.name}"
        size = count * struct.size(self.target)
        self._persistent.allocate_persistent_buffer(size, struct.alignment(self.target), what)

    def _allocate_temp_struct(self, struct: Struct, count: int, what: str) -> int:
        return self._non_persistent.allocate_temp(count * struct.size(self.target), struct.alignment(self.target), what)

    def _request_table_size(self) -> tuple[int, int]:
        """Size and alignment of the scratch requests so far, and of as many as one more operator may add."""
        count = len(self._requests) + MAXIMUM_SCRATCH_BUFFERS_PER_OPERATOR
        return count * SCRATCH_BUFFER_REQUEST.size(self.target), SCRATCH_BUFFER_REQUEST.alignment(self.target)

    @contextmanager
    def _recorded(self, kind: RecordedAllocationType) -> Iterator[_Recorded]:
        yield _Recorded()


def _as_arena(buffer: Any) -> Arena:
    return buffer if isinstance(buffer, Arena) else Arena(buffer)


def _place_tensor(tensor: TfLiteEvalTensor, arena: Arena, offset: int) -> None:
    tensor.offset = offset
    tensor.data = arena.view(offset, ELEMENT_TYPES[tensor.type].dtype, tensor.dims)


class _Recorded:
    """Lets the code that allocates say what a count means, where that is not the number of allocations."""

    count: int | None = None


class LoggingMicroAllocator(MicroAllocator):
    """The plain allocator with a log of what it does, which costs nothing in the arena."""

    MEMORY_ALLOCATOR = RecordingSimpleMemoryAllocator
    _persistent: RecordingSimpleMemoryAllocator

    @property
    def log(self) -> list[Allocation]:
        """Every allocation, in order."""
        return self._persistent.log


class RecordingMicroAllocator(LoggingMicroAllocator):
    """The same, which also keeps account of what the tail is used for.

    Its own objects are larger than the plain allocator's, and so are its totals.
    """

    RECORDING = True

    def __init__(self, arena: Any, planner: Planner = "greedy", target: Target = HOST):
        self.records = dict.fromkeys(RecordedAllocationType, RecordedAllocation())
        super().__init__(arena, planner, target)

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
        logged, used = len(memory.log), memory.get_persistent_used_bytes()
        recorded = _Recorded()
        yield recorded
        sizes = [allocation.size for allocation in memory.log[logged:] if allocation.section == "tail"]
        total = self.records[kind]
        self.records[kind] = RecordedAllocation(
            total.requested_bytes + sum(sizes),
            total.used_bytes + memory.get_persistent_used_bytes() - used,
            total.count + (len(sizes) if recorded.count is None else recorded.count),
        )
