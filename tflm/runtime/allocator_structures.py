"""The structures that TFLM's allocator keeps in the arena, and the commits that changed its layout."""

from __future__ import annotations

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
