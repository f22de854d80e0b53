"""Lays a model out in the arena: the same structures as TFLM, in the same order, with the target's sizes.

In the tail, from the end of the arena downwards: the allocator, the planner and this object; then for each model its
builtin-data allocator, subgraph allocations, eval tensors, nodes, parsed options, operators' requests of the init and
prepare phases, scratch handles, variables, and the tensors of inputs and outputs. In the head, while operators prepare,
the scratch requests; afterwards the planned tensors and scratch buffers.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Union

import numpy as np
import numpy.typing as npt

from tflm.errors import ArenaError, ArenaExhausted, ArgumentError, InterpreterError, ModelError, PlanIgnored
from tflm.kernels.node import Node
from tflm.kernels.plan_checker import lost_values
from tflm.kernels.registration import NODE_AND_REGISTRATION, Registration
from tflm.kernels.requests import Reads
from tflm.libraries import Kernels, library_for
from tflm.libraries.kernel_library import overlaps_with
from tflm.memory import ARENA_ALIGNMENT, MODEL_PLANNERS, PLANNERS, OffsetsPlanner, PlacingPlanner
from tflm.memory.arena import Arena, SpreadArena
from tflm.memory.buffer import ONLINE_PLANNED_BUFFER, Buffer, Place
from tflm.memory.byte_labels import TensorKey
from tflm.memory.lifetimes import (
    ALLOCATION_INFO,
    SCRATCH_BUFFER_REQUEST,
    InvocationStep,
    LifetimeBuilder,
    ScratchBufferRequest,
    SubgraphLifetimeBuilder,
)
from tflm.memory.planner import MemoryPlanner, ask_planner, preserves_all_tensors, tell_planner
from tflm.memory.several_memories import REGION_BYTES, SeveralMemoriesPlanner
from tflm.memory.simple_memory_allocator import (
    NON_PERSISTENT_ARENA_BUFFER_ALLOCATOR,
    PERSISTENT_ARENA_BUFFER_ALLOCATOR,
    RECORDING_SINGLE_ARENA_BUFFER_ALLOCATOR,
    SINGLE_ARENA_BUFFER_ALLOCATOR,
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
from tflm.runtime.allocator_structures import (
    MICRO_ALLOCATOR,
    MICRO_BUILTIN_DATA_ALLOCATOR,
    ONE_HANDLE_TABLE,
    PLANNED_TOGETHER,
    PLANNER_IN_TAIL,
    READ_FIELDS,
    RECORDING_MICRO_ALLOCATOR,
    SCRATCH_BUFFER_HANDLE,
    SUBGRAPH_ALLOCATIONS,
    SUBGRAPH_OFFSET,
    SUBGRAPHS,
    TENSOR_POINTER,
    UNREAD_OUTPUTS,
    VARIABLES_IN_PLAN,
    Recorded,
    RecordedAllocationType,
    register,
)
from tflm.runtime.reentrancy_guard import ReentrancyGuard
from tflm.schema.enums import ELEMENT_TYPES, TensorType
from tflm.schema.model import Model
from tflm.schema.tables import Tensor, offline_offsets
from tflm.targets import HOST, INT32, Struct, Target, align_up, require_target

Planner = Union[str, Sequence[int], MemoryPlanner]
"""The name of a planner, a plan as a list of offsets, or a planner object."""

PLANNER_WORKING_SPACE = "the planner's working space"
ROOM_FOR_THE_PLAN = "room for the plan"

TYPES_SINCE = {
    TensorType.RESOURCE: "26944780f",
    TensorType.INT4: "df704e135",
    TensorType.BFLOAT16: "98de88594",
    TensorType.UINT16: "ce26927e2",
}
"""Types of tensors whose size older releases of TFLM do not know."""

MAXIMUM_SCRATCH_BUFFERS_PER_OPERATOR = 12
UNASSIGNED_NODE = -1


@dataclass
class SubgraphAllocations:
    """A subgraph's part of the arena.

    Attributes:
        tensors: one for each tensor of the model.
        nodes: the device's execution plan.
        unplaced: indices of tensors without data, which are internal to hardware of the device.
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
    """A temp allocation of the current node: its offset, the number of leading bytes still read, and its owner."""

    offset: int
    read: tuple[int, ...]
    tensor: Tensor | None

    def end_of_reads(self, reads: Reads) -> int:
        """Arena offset of the end of the bytes still read; 0 if none are."""
        read = self.read[reads]
        return self.offset + read if read else 0


def require_planner(value: Planner) -> Planner:
    """Return the value if it is a planner's name, a list of offsets, or a planner.

    Raises:
        ArgumentError: it is something else, or the name is unknown.
    """
    if isinstance(value, str):
        known = (*PLANNERS, *MODEL_PLANNERS)
        if value not in known:
            raise ArgumentError(f"unknown planner {value!r}; use one of {', '.join(known)}")
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
            the methods of `tflm.memory.MemoryPlanner`. As in TFLM, such an object is outside the arena.
        target: the target, which determines the sizes of structures.
        kernels: the firmware's kernel library, or its name; see `tflm.libraries`.
        persistent_arena: another buffer, for the tail; `arena` then has only head and temp.
        memories: further writable buffers, for a planner of several memories such as `MemoriesPlan.planner()`.

    Attributes:
        target, kernels: the arguments, the kernels as a library.
        release: the library's TFLM release.
        planner: the planner of the head.
        planner_bytes: size of the planner's own tables, for each plan that was made.
        turn: held while an interpreter of this allocator allocates, runs or resets, because their heads share memory.

    Raises:
        ArenaError: the buffer can't be an arena.
        ArenaExhausted: it is too small for the allocator itself.
        ArgumentError: unknown planner or target.
    """

    MEMORY_ALLOCATOR: type[SimpleMemoryAllocator] = SimpleMemoryAllocator
    RECORDING = False

    def __init__(
        self,
        arena: Any,
        planner: Planner = "greedy",
        target: Target | str = HOST,
        *,
        kernels: Kernels = "reference",
        persistent_arena: Any = None,
        memories: Sequence[Any] = (),
    ):
        self.target = require_target(target)
        self.kernels = library_for(kernels, self.target)
        self.release = self.kernels.release
        self._structures: dict[Struct, tuple[int, int]] = {}
        self._parts: dict[Struct, _TensorPart] = {}
        self._require_memories(planner, memories)
        spread = SpreadArena(arena, memories, REGION_BYTES) if memories else _as_arena(arena)
        self._others = spread.others if isinstance(spread, SpreadArena) else []
        self._non_persistent = self._persistent = self.MEMORY_ALLOCATOR(spread)
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
        self.turn = ReentrancyGuard()
        self._unfinished: tuple[Callable[[], bool], Callable[[], None]] | None = None
        self._model_is_allocating = False
        self._requests: list[ScratchBufferRequest] = []
        self._assigned_requests = 0
        self._temps: list[_Temp] = []
        self._largest_head = 0
        self.planner_bytes: list[int] = []

    def __repr__(self) -> str:
        used = f"{self.used_bytes()} of {self.arena_bytes} bytes used"
        return f"{type(self).__name__}({used}, target {self.target.name})"

    def _require_memories(self, planner: Planner, memories: Sequence[Any]) -> None:
        """Reject further memories that are not those of the planner."""
        wanted = planner.memories[1:] if isinstance(planner, SeveralMemoriesPlanner) else ()
        if len(memories) != len(wanted):
            names = ", ".join(memory.name for memory in wanted) or "none"
            raise ArgumentError(
                f"the planner uses {len(wanted)} memories besides the arena ({names}), "
                f"but memories= has {len(memories)}"
            )

    def register_memory(self, interpreter: object) -> None:
        """Remember that an interpreter uses the memory; warns `ArenaShared` if another allocator overlaps it."""
        register(interpreter, self._persistent.arena, self._non_persistent.arena)

    def _make_planner(self, planner: Planner) -> MemoryPlanner:
        require_planner(planner)
        if isinstance(planner, Sequence) and not isinstance(planner, str):
            return OffsetsPlanner(planner)
        if not isinstance(planner, str):
            return planner
        made = (PLANNERS if planner in PLANNERS else MODEL_PLANNERS)[planner]()
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
        """Reject several subgraphs if the release supports only one.

        Raises:
            ModelError: the model has several.
        """
        if len(model.subgraphs) > 1 and not self.release.holds(SUBGRAPHS):
            raise ModelError(f"{self.release.name} says: Only 1 subgraph is currently supported.", table="Model")

    def _require_types(self, model: Model) -> None:
        """Reject tensors of types that the release has no size for."""
        unknown = {type for type, commit in TYPES_SINCE.items() if not self.release.holds(commit)}
        for subgraph in model.subgraphs if unknown else ():
            for tensor in subgraph.tensors or ():
                if tensor.type in unknown:
                    reason = f"{self.release.name} does not support {tensor.type.name} (tensor {tensor.name!r})"
                    raise ModelError(reason, table="Tensor", field="type")

    def finish_prepare_node_allocations(self, position: int) -> None:
        """Release a node's temp allocations, and keep its scratch requests with its position in the plan."""
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
    ) -> tuple[list[Buffer], list[InvocationStep]]:
        """Place every tensor and scratch buffer; sets the data of the eval tensors.

        Returns:
            The buffers in the head, with scratch buffers last in the order of their requests; and each step's node.
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
    ) -> tuple[list[Buffer], list[InvocationStep]]:
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
        builder = LifetimeBuilder(model, nodes, tensors, unplaced, self._requests, offsets)
        buffers = builder.build()
        set_model = getattr(self.planner, "set_model", None)  # of `MODEL_PLANNERS`
        if set_model is not None:
            set_model(model, buffers, self._requests)
        self._plan(buffers, temps)
        planned = self._commit(buffers, allocations)
        if model.checks == "all" and not PLANNERS.has_class(type(self.planner)):
            self._check_values(model, planned)
        return planned, builder.steps

    def _finish_one_by_one(
        self, model: Model, allocations: list[SubgraphAllocations]
    ) -> tuple[list[Buffer], list[InvocationStep]]:
        """Plan as older releases of TFLM: a plan for each subgraph over the same memory, each with all scratch
        buffers."""
        planned: list[Buffer] = []
        scratch: list[Buffer] = []
        steps: list[InvocationStep] = []
        offsets = self._offline_offsets(model)
        for i, subgraph in enumerate(allocations):
            self._allocate_scratch_handles()
            temps = self._allocate_planning_tables([subgraph])
            builder = SubgraphLifetimeBuilder(model, i, subgraph.nodes, subgraph.tensors, self._requests, offsets)
            buffers = builder.build(unread_outputs_fail=not self.release.holds(UNREAD_OUTPUTS))
            self._plan(buffers, temps)
            later = [_later(buffer, len(steps)) for buffer in self._commit(buffers, allocations)]
            planned += [buffer for buffer in later if buffer.tensor is not None]
            scratch = [buffer for buffer in later if buffer.tensor is None]
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
        """The model's offline plan, unless all tensors are preserved."""
        offsets = offline_offsets(model.root)
        if offsets is None or not preserves_all_tensors(self.planner):
            return offsets
        if any(offset != ONLINE_PLANNED_BUFFER for offset in offsets):
            reason = "the model's own memory plan is ignored, because every tensor gets separate memory"
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

    def _plan(self, buffers: list[Buffer], temps: list[int]) -> None:
        """Run the planner on all buffers, with the free memory for its tables, and set the head."""
        remaining = self._non_persistent.get_available_memory(ARENA_ALIGNMENT)
        working_space = self._non_persistent.allocate_temp(remaining, ARENA_ALIGNMENT, PLANNER_WORKING_SPACE)
        tell_planner(self.planner, "init", remaining)
        per_buffer = self.planner.WORKING_BYTES_PER_BUFFER if isinstance(self.planner, PlacingPlanner) else 0
        self.planner_bytes.append(per_buffer * len(buffers))
        for size, first_use, last_use, offset in buffers:
            bytes_taken = align_up(size, ARENA_ALIGNMENT)
            tell_planner(self.planner, "add_buffer", bytes_taken, first_use, last_use, offset)
        for offset in (*temps, working_space):
            self._non_persistent.deallocate_temp(offset)
        self._non_persistent.reset_temp_allocations()
        size = ask_planner(self.planner, "get_maximum_memory_size")
        if not self.release.holds(PLANNED_TOGETHER):  # the plan had to fit above the previous head
            room = self._non_persistent.allocate_temp(size, ARENA_ALIGNMENT, ROOM_FOR_THE_PLAN)
            self._non_persistent.deallocate_temp(room)
            self._non_persistent.reset_temp_allocations()
        self._non_persistent.deallocate_resizable_buffer(0)
        self._largest_head = max(self._largest_head, size)
        self._non_persistent.reserve_non_persistent_overlay_memory(self._largest_head, ARENA_ALIGNMENT)

    def _commit(self, buffers: list[Buffer], allocations: list[SubgraphAllocations]) -> list[Buffer]:
        """Assign offsets to buffers and eval tensors."""
        arena = self._non_persistent.arena
        tensors = [tensor for subgraph in allocations for tensor in subgraph.tensors]
        nodes = (allocations[r.subgraph_index].nodes[r.node_index][0] for r in self._requests)
        planned = []
        for i, buffer in enumerate(buffers):
            # TFLM's first use is -1 for buffers without a writer, such as an NPU's memory; both are -1 for unused
            # buffers.
            first_use = min(max(buffer.first_use, 0), buffer.last_use)
            name = next(nodes).operator if buffer.tensor is None else buffer.name
            offset = ask_planner(self.planner, "get_offset_for_buffer", i)
            planned.append(replace(buffer, first_use=first_use, offset=offset, name=name))
        self._check_plan(planned)
        for buffer in planned:
            if buffer.tensor is not None:
                _place_tensor(tensors[buffer.tensor], arena, buffer.offset)
        for tensor in tensors:
            if tensor.data is None and tensor.byte_length == 0:
                _place_tensor(tensor, arena, 0)
        return planned

    def _check_plan(self, planned: list[Buffer]) -> None:
        """Reject an external plan whose buffers reach beyond its head."""
        head = ask_planner(self.planner, "get_maximum_memory_size")
        if isinstance(self.planner, SeveralMemoriesPlanner):
            self._check_memories(self.planner)
        ends = [head, *(other.size for other in self._others)]
        for buffer in planned:
            memory, offset = divmod(buffer.offset, REGION_BYTES)
            if not 0 <= memory < len(ends) or offset + buffer.bytes > ends[memory]:
                raise ArenaError(
                    f"the plan puts {buffer.kind} {buffer.name!r} ({buffer.bytes} bytes) at offset {buffer.offset}, "
                    f"outside its {head} bytes"
                )

    def _check_memories(self, planner: SeveralMemoriesPlanner) -> None:
        """Reject further memories that are smaller than what the plan puts there."""
        for memory, used, given in zip(planner.memories[1:], planner.used_bytes()[1:], self._others):
            if given.size < used:
                raise ArenaExhausted(f"the buffers in {memory.name}", requested=used, available=given.size)

    def _check_values(self, model: Model, planned: list[Buffer]) -> None:
        """Reject an external plan that overwrites values which are still needed."""
        keys = [(i, j) for i, subgraph in enumerate(model.subgraphs) for j in range(len(subgraph.tensors or ()))]
        places = {keys[buffer.tensor]: buffer.place for buffer in planned if buffer.tensor is not None}
        scratch: dict[TensorKey, list[Place]] = {}
        for request, buffer in zip(self._requests, (buffer for buffer in planned if buffer.tensor is None)):
            scratch.setdefault((request.subgraph_index, request.node_index), []).append(buffer.place)
        overlaps = overlaps_with(self.kernels, self.target)
        for lost in lost_values(model.root, places, scratch, overlaps=overlaps):
            raise ArenaError(f"the plan loses a value: {lost}")

    # Requests of operators and of the interpreter.

    def allocate_persistent_buffer(
        self, size: int, what: str = "a persistent buffer", reads: Reads | None = None
    ) -> npt.NDArray[np.uint8]:
        """Bytes of the tail, aligned to 16.

        Args:
            size: in bytes.
            what: names them in errors.
            reads: the parts of its temp tensors that the current node still reads; the buffer may overlap the rest.
                None for all parts.
        """
        shared = self._persistent is self._non_persistent
        floor = None if reads is None or not shared else self._end_of_reads(reads)
        with self._recorded(RecordedAllocationType.PERSISTENT_BUFFER_DATA):
            offset = self._persistent.allocate_persistent_buffer(size, ARENA_ALIGNMENT, what, floor)
        return self._persistent.arena.view(offset, np.uint8, (size,))

    def _end_of_reads(self, reads: Reads) -> int:
        """Arena offset of the end of head and temp memory that is still read."""
        return max((temp.end_of_reads(reads) for temp in self._temps), default=self._non_persistent.head)

    def head_view(self, offset: int, size: int) -> npt.NDArray[np.uint8]:
        """Bytes of the head, from `offset` on."""
        return self._non_persistent.arena.view(offset, np.uint8, (size,))

    def allocate_builtin_data(self, struct: Struct) -> None:
        """Reserve the structure that an operator's options are parsed into."""
        self._allocate_struct(struct)

    def request_scratch_buffer_in_arena(self, size: int, subgraph_index: int) -> int:
        """Note that the node being prepared needs scratch memory; returns the number of the request."""
        require_size("a scratch buffer", size)
        if len(self._requests) - self._assigned_requests >= MAXIMUM_SCRATCH_BUFFERS_PER_OPERATOR:
            raise ArenaError(f"an operator may ask for {MAXIMUM_SCRATCH_BUFFERS_PER_OPERATOR} scratch buffers")
        self._requests.append(ScratchBufferRequest(size, subgraph_index, UNASSIGNED_NODE))
        return len(self._requests) - 1

    def allocate_temp_buffer(self, size: int, alignment: int, what: str = "a temporary buffer") -> int:
        """Allocate bytes above the head until the end of the node's prepare phase; returns their offset."""
        return self._allocate_temp(_TensorPart(size, alignment, (size,) * len(Reads)), what, None)

    def allocate_temp_tensor(self, tensor: Tensor, what: str) -> None:
        """Allocate a full tensor in temp memory until the end of the node's prepare phase or its release."""
        for part in self._tensor_parts(tensor):
            self._allocate_temp(part, what, tensor)

    def _allocate_temp(self, part: _TensorPart, what: str, tensor: Tensor | None) -> int:
        offset = self._non_persistent.allocate_temp(part.size, part.alignment, what)
        self._temps.append(_Temp(offset, part.read, tensor))
        return offset

    def release_temp_tensor(self, tensor: Tensor) -> None:
        """Release a tensor in temp memory: its bytes are not reused, but never read again."""
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
        """Bytes of the arena, or of both arenas."""
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
    def all_or_nothing(self, is_done: Callable[[], bool]) -> Iterator[None]:
        """On any exception, restore the initial state, so that the arena can be used again.

        Args:
            is_done: whether what was allocated is in use, and stays even if an exception follows.
        """
        self._undo_unfinished()  # what an interrupt kept the previous call from
        self._unfinished = is_done, self._checkpoint()
        try:
            yield
        finally:
            self._undo_unfinished()

    def _undo_unfinished(self) -> None:
        """Undo an allocation that was begun and is not done."""
        if self._unfinished is not None:
            is_done, restore = self._unfinished
            if not is_done():
                restore()
            self._unfinished = None

    def _checkpoint(self) -> Callable[[], None]:
        """Returns a function that restores the present state."""
        checkpoints = [(memory, memory.checkpoint()) for memory in (self._persistent, self._non_persistent)]
        largest_head = self._largest_head

        def restore() -> None:
            for memory, checkpoint in checkpoints:
                memory.restore(checkpoint)
            self._largest_head = largest_head
            self._model_is_allocating, self._requests, self._temps = False, [], []
            self._assigned_requests = 0

        return restore

    def _allocate_struct(self, struct: Struct, count: int = 1) -> None:
        what = struct.name if count == 1 else f"{count} x {struct.name}"
        size, alignment = self._size_and_alignment(struct)
        self._persistent.allocate_persistent_buffer(count * size, alignment, what)

    def _size_and_alignment(self, struct: Struct) -> tuple[int, int]:
        """Size and alignment of a structure on the target, in the kernel library's release."""
        if struct not in self._structures:
            self._structures[struct] = self.kernels.layout(struct, self.target)
        return self._structures[struct]

    def _allocate_temp_struct(self, struct: Struct, count: int, what: str) -> int:
        size, alignment = self._size_and_alignment(struct)
        return self._non_persistent.allocate_temp(count * size, alignment, what)

    def _request_table_size(self) -> tuple[int, int]:
        """Size and alignment of the table of scratch requests, with room for those of another operator."""
        count = len(self._requests) + MAXIMUM_SCRATCH_BUFFERS_PER_OPERATOR
        size, alignment = self._size_and_alignment(SCRATCH_BUFFER_REQUEST)
        return count * size, alignment

    @contextmanager
    def _recorded(self, kind: RecordedAllocationType) -> Iterator[Recorded]:
        yield Recorded(kind)


def _as_arena(buffer: Any) -> Arena:
    return buffer if isinstance(buffer, Arena) else Arena(buffer)


def _later(buffer: Buffer, steps: int) -> Buffer:
    """A buffer with its lifetime shifted by `steps`."""
    return replace(buffer, first_use=buffer.first_use + steps, last_use=buffer.last_use + steps)


def _place_tensor(tensor: TfLiteEvalTensor, arena: Arena, offset: int) -> None:
    tensor.offset = offset
    tensor.data = arena.view(offset, ELEMENT_TYPES[tensor.type].dtype, tensor.dims)
    tensor.is_constant = False  # of a variable that has data in the model, TFLM reads that only until this
