"""What an allocator keeps besides tensors: C structures, records of the tail, and which models are in a memory."""

from __future__ import annotations

import warnings
import weakref
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import NamedTuple

import numpy as np

from tflm.errors import ArenaShared
from tflm.memory.arena import Arena
from tflm.memory.tensor import TFLITE_AFFINE_QUANTIZATION, TFLITE_TENSOR
from tflm.targets import BOOL, POINTER, SIZE_T, Since, Struct, Until, When

SUBGRAPHS = "d7ac83e6d"
"""The commit that added support for several subgraphs."""

PLANNER_IN_TAIL = "a1f4b8804"
"""The commit that moved the planner from the stack to the tail."""

UNREAD_OUTPUTS = "1db0632b7"
"""The commit from which a model can be planned if an operator's output is never read."""

PLANNED_TOGETHER = "8c41f9606"
"""The commit that replaced the plans of each subgraph with one plan for all."""

ONE_HANDLE_TABLE = "6f99907d3"
"""The commit that introduced a single table of scratch handles; before, each subgraph had a table of all handles."""

VARIABLES_IN_PLAN = "58aa9833f"
"""The commit from which variables without an offline offset are allocated after the planner's tables."""

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
"""The fields that TFLM still reads for each of `Reads`. Releasing a tensor reads and clears the first ones."""


REASON = (
    "the arena overlaps that of another interpreter that is still there: each overwrites the tensors of the other. "
    "To share an arena, pass one allocator, tflm.MicroAllocator(arena), to all interpreters; otherwise delete the first"
)


class _User(NamedTuple):
    interpreter: weakref.ref[object]
    tail: Arena
    head: Arena


_users: dict[int, _User] = {}
"""Memory in use, by the identity of the interpreter. Each operation on it is atomic, so that no thread or forked
process can hang."""


def register(interpreter: object, tail: Arena, head: Arena) -> None:
    """Remember that an interpreter has placed a model, and warn if one with another allocator has in the same bytes.

    Two heads in the same memory are fine if the tails are elsewhere: nothing in a head outlives an invoke.

    Args:
        interpreter: its memory is free again when it is garbage-collected.
        tail, head: memory of its allocator; the same arena unless they are separate.
    """
    key = id(interpreter)
    if key in _users:
        return
    others = list(_users.values())
    _users[key] = _User(weakref.ref(interpreter, partial(_forget, key)), tail, head)
    shared = any(user.tail is tail for user in others)  # the allocator, which was warned of with its first interpreter
    if not shared and any(_overlap(user, tail, head) for user in others):
        warnings.warn(REASON, ArenaShared, stacklevel=4)  # of the caller of allocate_tensors


def _forget(key: int, _: object) -> None:
    _users.pop(key, None)


def _overlap(user: _User, tail: Arena, head: Arena) -> bool:
    pairs = ((tail, user.tail), (tail, user.head), (head, user.tail))
    return any(np.may_share_memory(ours.bytes, theirs.bytes) for ours, theirs in pairs)


class RecordedAllocationType(str, Enum):
    """Categories of memory in the tail, named as TFLM prints them."""

    EVAL_TENSOR_DATA = "TfLiteEvalTensor data"
    PERSISTENT_TENSOR_DATA = "Persistent TfLiteTensor data"
    PERSISTENT_TENSOR_QUANTIZATION_DATA = "Persistent TfLiteTensor quantization data"
    PERSISTENT_BUFFER_DATA = "Persistent buffer data"
    VARIABLE_BUFFER_DATA = "TfLiteTensor variable buffer data"
    NODE_AND_REGISTRATION_ARRAY = "NodeAndRegistration struct"
    OP_DATA = "Operator runtime data"


@dataclass(frozen=True)
class RecordedAllocation:
    """The allocations of a category of the tail.

    Attributes:
        requested_bytes: bytes requested.
        used_bytes: bytes used, including alignment.
        count: how many allocations.
    """

    requested_bytes: int = 0
    used_bytes: int = 0
    count: int = 0


@dataclass
class Recorded:
    """Allocations of one category.

    Attributes:
        kind: the category.
        begin, end: the log's entries from `begin` to `end` - 1.
        used_bytes: bytes of the tail used, including alignment.
        count: the number to report if it differs from the number of entries; set by the code that allocates.
    """

    kind: RecordedAllocationType
    begin: int = 0
    end: int = 0
    used_bytes: int = 0
    count: int | None = None
