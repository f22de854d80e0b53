"""Lays a model out in the arena: the same structures as TFLM, in the same order, of the target's sizes.

In the tail, from the end of the arena downwards: the allocator, the planner and this object; then for each model its
builtin-data allocator, subgraph allocations, eval tensors, nodes, parsed options, what operators ask for when they
initialise and prepare, scratch handles, variables, and the tensors of inputs and outputs. In the head, while operators
prepare, the scratch requests; afterwards the planned tensors and scratch buffers.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tflm.errors import ArenaError, InterpreterError
from tflm.kernels.registration import NODE_AND_REGISTRATION, Node, Registration
from tflm.memory import ARENA_ALIGNMENT, PLANNERS
from tflm.memory.arena import Arena
from tflm.memory.lifetimes import ALLOCATION_INFO, SCRATCH_BUFFER_REQUEST, AllocationInfo, AllocationInfoBuilder
from tflm.memory.lifetimes import ScratchBufferRequest as Request
from tflm.memory.offline_plan import offline_offsets
from tflm.memory.planner import ONLINE_PLANNED_BUFFER, MemoryPlanner
from tflm.memory.simple_memory_allocator import RecordingSimpleMemoryAllocator, SimpleMemoryAllocator
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
from tflm.schema.model import Model
from tflm.schema.tables import Tensor
from tflm.targets import BOOL, HOST, POINTER, SIZE_T, Struct, Target, When, align_up

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
        first_use, last_use: the steps of the invocation between which it is alive, both included.
    """

    name: str
    kind: str
    offset: int
    bytes: int
    first_use: int
    last_use: int


class RecordedAllocationType(Enum):
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
        arena: a writable buffer; only it is used.
        planner: "greedy", "linear", or an object with the methods of `tflm.memory.MemoryPlanner`. TFLM keeps a
            planner that it makes itself in the arena; one that the caller gives takes no room there.
        target: the machine whose structure sizes are reserved.

    Raises:
        ArenaError: the buffer can't be an arena.
        ArenaExhausted: it is too small for the allocator itself.
        ValueError: there is no planner of that name.
    """

    STRUCT = MICRO_ALLOCATOR
    MEMORY_ALLOCATOR: type[SimpleMemoryAllocator] = SimpleMemoryAllocator

    def __init__(self, arena: Any, planner: str | MemoryPlanner = "greedy", target: Target = HOST):
        self.target = target
        self.arena = arena if isinstance(arena, Arena) else Arena(arena)
        self._memory = self.MEMORY_ALLOCATOR(self.arena)
        self._allocate_struct(self._memory.STRUCT)
        self.planner = self._make_planner(planner)
        self._allocate_struct(self.STRUCT)
        self._model_is_allocating = False
        self._requests: list[Request] = []
        self._temps: list[int] = []
        self._largest_head = 0

    def _make_planner(self, planner: str | MemoryPlanner) -> MemoryPlanner:
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
        self._memory.allocate_resizable_buffer(*self._request_table_size(), "scratch buffer requests")
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
            self._memory.deallocate_temp(offset)
        self._temps = []
        self._memory.reset_temp_allocations()
        for request in self._requests:
            if request.node_index == UNASSIGNED_NODE:
                request.node_index = node_index
        self._memory.resize_buffer(0, *self._request_table_size(), "scratch buffer requests")

    def finish_model_allocation(
        self, model: Model, allocations: list[SubgraphAllocations]
    ) -> tuple[list[PlannedBuffer], list[int]]:
        """Place every tensor and scratch buffer; sets the data of the eval tensors.

        Returns:
            the buffers in the head, and the offsets of the scratch buffers in the order of their requests.
        """
        if not self._model_is_allocating:
            raise InterpreterError("no model is being allocated; start one first")
        if self._requests:
            self._allocate_struct(SCRATCH_BUFFER_HANDLE, len(self._requests))
        temps = self._allocate_planning_tables(allocations)
        infos = self._lifetimes(model, allocations)
        self._plan(infos, temps)
        self._largest_head = max(self._largest_head, self.planner.maximum_memory_size())
        self._memory.reserve_non_persistent_overlay_memory(self._largest_head, ARENA_ALIGNMENT)
        planned = self._commit(infos, allocations)
        self._model_is_allocating = False
        scratch_offsets = [buffer.offset for buffer in planned if buffer.kind == "scratch"]
        return planned, scratch_offsets

    def _allocate_planning_tables(self, allocations: list[SubgraphAllocations]) -> list[int]:
        tensor_count = sum(len(subgraph.tensors) for subgraph in allocations)
        return [
            self._allocate_temp_struct(SUBGRAPH_OFFSET, len(allocations), "offsets of subgraphs"),
            self._allocate_temp_struct(ALLOCATION_INFO, tensor_count + len(self._requests), "allocation infos"),
        ]

    def _lifetimes(self, model: Model, allocations: list[SubgraphAllocations]) -> list[AllocationInfo]:
        tensors = [subgraph.tensors for subgraph in allocations]
        offsets = offline_offsets(model, sum(map(len, tensors)))
        self._allocate_variables(model, tensors, offsets)
        return AllocationInfoBuilder(model, tensors, self._requests, offsets).build()

    def _allocate_variables(
        self, model: Model, tensors: list[list[TfLiteEvalTensor]], offsets: tuple[int, ...] | None
    ) -> None:
        tables = [table for subgraph in model.subgraphs for table in subgraph.tensors or ()]
        eval_tensors = [tensor for subgraph in tensors for tensor in subgraph]
        with self._recorded(RecordedAllocationType.VARIABLE_BUFFER_DATA):
            for i, (table, tensor) in enumerate(zip(tables, eval_tensors)):
                if table.is_variable and (offsets is None or offsets[i] == ONLINE_PLANNED_BUFFER):
                    offset = self._memory.allocate_persistent_buffer(
                        tensor.byte_length, ARENA_ALIGNMENT, f"variable tensor {tensor.name!r}"
                    )
                    self._place_tensor(tensor, offset)

    def _plan(self, infos: list[AllocationInfo], temps: list[int]) -> None:
        """Tell the planner of every buffer, while it has all the memory that is left for its tables."""
        remaining = self._memory.available_memory(ARENA_ALIGNMENT)
        working_space = self._memory.allocate_temp(remaining, ARENA_ALIGNMENT, "the planner's working space")
        self.planner.init(remaining)
        for info in infos:
            if info.needs_allocating:
                size = align_up(info.bytes, ARENA_ALIGNMENT)
                self.planner.add_buffer(size, info.first_created, info.last_used, info.offline_offset)
        for offset in (*temps, working_space):
            self._memory.deallocate_temp(offset)
        self._memory.reset_temp_allocations()
        self._memory.deallocate_resizable_buffer(0)

    def _commit(self, infos: list[AllocationInfo], allocations: list[SubgraphAllocations]) -> list[PlannedBuffer]:
        planned: list[PlannedBuffer] = []
        for info in infos:
            if not info.needs_allocating:
                continue
            offset = self.planner.offset_for_buffer(len(planned))
            owner = info.owner
            if isinstance(owner, TfLiteEvalTensor):
                name, kind = owner.name, "tensor"
            else:
                name, kind = allocations[owner.subgraph_index].nodes[owner.node_index][0].operator, "scratch"
            planned.append(PlannedBuffer(name, kind, offset, info.bytes, info.first_created, info.last_used))
        self._check_plan(planned)
        for info, buffer in zip((info for info in infos if info.needs_allocating), planned):
            if isinstance(info.owner, TfLiteEvalTensor):
                self._place_tensor(info.owner, buffer.offset)
        for subgraph in allocations:
            for tensor in subgraph.tensors:
                if tensor.data is None and tensor.byte_length == 0:
                    self._place_tensor(tensor, 0)
        return planned

    def _check_plan(self, planned: list[PlannedBuffer]) -> None:
        """A plan from elsewhere may lead out of its own head; then views would lead into other memory."""
        head = self.planner.maximum_memory_size()
        for buffer in planned:
            if buffer.offset < 0 or buffer.offset + buffer.bytes > head:
                raise ArenaError(
                    f"the plan puts {buffer.kind} {buffer.name!r} ({buffer.bytes} bytes) at offset {buffer.offset}, "
                    f"outside its {head} bytes"
                )

    def _place_tensor(self, tensor: TfLiteEvalTensor, offset: int) -> None:
        tensor.offset = offset
        tensor.data = self.arena.view(offset, ELEMENT_TYPES[tensor.type].dtype, tensor.dims)

    # What operators and the interpreter ask for.

    def allocate_persistent_buffer(self, size: int, what: str = "a persistent buffer") -> npt.NDArray[np.uint8]:
        """Bytes of the tail, aligned to 16."""
        with self._recorded(RecordedAllocationType.PERSISTENT_BUFFER_DATA):
            offset = self._memory.allocate_persistent_buffer(size, ARENA_ALIGNMENT, what)
        return self.arena.view(offset, np.uint8, (size,))

    def allocate_builtin_data(self, struct: Struct) -> None:
        """Reserve the structure that an operator's options are parsed into."""
        self._allocate_struct(struct)

    def request_scratch_buffer_in_arena(self, size: int, subgraph_index: int) -> int:
        """Note that the node being prepared needs scratch memory; gives the number of the request."""
        unassigned = sum(request.node_index == UNASSIGNED_NODE for request in self._requests)
        if unassigned >= MAXIMUM_SCRATCH_BUFFERS_PER_OPERATOR:
            raise ArenaError(f"an operator may ask for {MAXIMUM_SCRATCH_BUFFERS_PER_OPERATOR} scratch buffers")
        self._requests.append(Request(size, subgraph_index, UNASSIGNED_NODE))
        return len(self._requests) - 1

    def allocate_temp_buffer(self, size: int, alignment: int, what: str = "a temporary buffer") -> int:
        """Bytes above the head until the node has prepared; gives their offset."""
        offset = self._memory.allocate_temp(size, alignment, what)
        self._temps.append(offset)
        return offset

    def allocate_temp_tensor(self, tensor: Tensor, eval_tensor: TfLiteEvalTensor) -> TfLiteTensor:
        """A tensor in full, in temp memory, until the node has prepared."""
        what = f"tensor {eval_tensor.name!r} while an operator prepares"
        for struct_size, alignment in self._tensor_parts(tensor):
            self.allocate_temp_buffer(struct_size, alignment, what)
        return TfLiteTensor(tensor, eval_tensor)

    def allocate_persistent_tensor(self, tensor: Tensor, eval_tensor: TfLiteEvalTensor) -> TfLiteTensor:
        """A tensor in full, in the tail."""
        what = f"input or output tensor {eval_tensor.name!r}"
        parts = self._tensor_parts(tensor)
        with self._recorded(RecordedAllocationType.PERSISTENT_TENSOR_DATA):
            self._memory.allocate_persistent_buffer(*parts[0], what)
        with self._recorded(RecordedAllocationType.PERSISTENT_TENSOR_QUANTIZATION_DATA):
            for struct_size, alignment in parts[1:]:
                self._memory.allocate_persistent_buffer(struct_size, alignment, what)
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
        return self._memory.non_persistent_used_bytes()

    @property
    def tail_bytes(self) -> int:
        """Bytes of the tail."""
        return self._memory.persistent_used_bytes()

    def used_bytes(self) -> int:
        """Bytes of head and tail."""
        return self._memory.used_bytes()

    @contextmanager
    def all_or_nothing(self) -> Iterator[None]:
        """On any exception, go back to the state at the start, so that the arena can be used again."""
        checkpoint, largest_head = self._memory.checkpoint(), self._largest_head
        try:
            yield
        except BaseException:
            self._memory.restore(checkpoint)
            self._largest_head = largest_head
            self._model_is_allocating, self._requests, self._temps = False, [], []
            raise

    def _allocate_struct(self, struct: Struct, count: int = 1) -> None:
        what = struct.name if count == 1 else f"{count} x {struct.name}"
        size = count * struct.size(self.target)
        self._memory.allocate_persistent_buffer(size, struct.alignment(self.target), what)

    def _allocate_temp_struct(self, struct: Struct, count: int, what: str) -> int:
        return self._memory.allocate_temp(count * struct.size(self.target), struct.alignment(self.target), what)

    def _request_table_size(self) -> tuple[int, int]:
        """Size and alignment of the scratch requests so far, and of as many as one more operator may add."""
        count = len(self._requests) + MAXIMUM_SCRATCH_BUFFERS_PER_OPERATOR
        return count * SCRATCH_BUFFER_REQUEST.size(self.target), SCRATCH_BUFFER_REQUEST.alignment(self.target)

    @contextmanager
    def _recorded(self, kind: RecordedAllocationType) -> Iterator[_Recorded]:
        yield _Recorded()


class _Recorded:
    """Lets the code that allocates say what a count means, where that is not the number of allocations."""

    count: int | None = None


class RecordingMicroAllocator(MicroAllocator):
    """The same allocator, which keeps account of what the tail is used for.

    Its own objects are larger than the plain allocator's, and so are its totals.
    """

    STRUCT = RECORDING_MICRO_ALLOCATOR
    MEMORY_ALLOCATOR = RecordingSimpleMemoryAllocator
    _memory: RecordingSimpleMemoryAllocator

    def __init__(self, arena: Any, planner: str | MemoryPlanner = "greedy", target: Target = HOST):
        self.records = dict.fromkeys(RecordedAllocationType, RecordedAllocation())
        super().__init__(arena, planner, target)

    @property
    def memory_allocator(self) -> RecordingSimpleMemoryAllocator:
        """The allocator below, which has the log of all allocations."""
        return self._memory

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
        memory = self._memory
        logged, used = len(memory.log), memory.persistent_used_bytes()
        recorded = _Recorded()
        yield recorded
        sizes = [allocation.size for allocation in memory.log[logged:] if allocation.section == "tail"]
        total = self.records[kind]
        self.records[kind] = RecordedAllocation(
            total.requested_bytes + sum(sizes),
            total.used_bytes + memory.persistent_used_bytes() - used,
            total.count + (len(sizes) if recorded.count is None else recorded.count),
        )
