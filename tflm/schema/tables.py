"""The tables of a model file, from the root down to a tensor's quantization."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tflm.errors import ModelError
from tflm.schema.enums import BuiltinOperator, CustomOptionsFormat, DimensionType, TensorType
from tflm.schema.layout import (
    AlignedByteVector,
    Bool,
    BoolVector,
    ByteVector,
    FloatVector,
    Int8,
    Int32,
    IntVector,
    LongVector,
    String,
    Table,
    TableUnion,
    UInt32,
    UInt64,
    UShortVector,
    WordAlignedByteVector,
)
from tflm.schema.options import (
    BuiltinOptions,
    BuiltinOptions2,
    CallOnceOptions,
    IfOptions,
    VarHandleOptions,
    WhileOptions,
)


class QuantizationDetails(TableUnion):
    """Quantization of another kind than one scale and zero point per channel."""


class CustomQuantization(QuantizationDetails):
    custom: AlignedByteVector = None


class BlockwiseQuantization(QuantizationDetails):
    scales: Int32 = 0
    zero_points: Int32 = 0
    block_size: Int32 = 0


class MultiAxisQuantization(QuantizationDetails):
    scales: Int32 = 0
    zero_points: Int32 = 0
    block_size: Int32 = 0
    quantized_dimensions: IntVector = None


class QuantizationParameters(Table):
    min: FloatVector = None
    max: FloatVector = None
    scale: FloatVector = None
    zero_point: LongVector = None
    details: QuantizationDetails | None = None
    quantized_dimension: Int32 = 0


class SparseIndexVector(TableUnion):
    """Indices of a sparse dimension, in the smallest type that holds them."""


class Int32Vector(SparseIndexVector):
    values: IntVector = None


class Uint16Vector(SparseIndexVector):
    values: UShortVector = None


class Uint8Vector(SparseIndexVector):
    values: WordAlignedByteVector = None


class DimensionMetadata(Table):
    format: DimensionType = DimensionType.DENSE
    dense_size: Int32 = 0
    array_segments: SparseIndexVector | None = None
    array_indices: SparseIndexVector | None = None


class SparsityParameters(Table):
    traversal_order: IntVector = None
    block_map: IntVector = None
    dim_metadata: list[DimensionMetadata] | None = None


class VariantSubType(Table):
    shape: IntVector = None
    type: TensorType = TensorType.FLOAT32
    has_rank: Bool = False


class Tensor(Table):
    shape: IntVector = None
    type: TensorType = TensorType.FLOAT32
    buffer: UInt32 = 0
    name: String = None
    quantization: QuantizationParameters | None = None
    is_variable: Bool = False
    sparsity: SparsityParameters | None = None
    shape_signature: IntVector = None
    has_rank: Bool = False
    variant_tensors: list[VariantSubType] | None = None
    external_buffer: UInt32 = 0


class OperatorCode(Table):
    deprecated_builtin_code: Int8 = 0
    custom_code: String = None
    version: Int32 = 1
    builtin_code: BuiltinOperator = BuiltinOperator.ADD


class Operator(Table):
    opcode_index: UInt32 = 0
    inputs: IntVector = None
    outputs: IntVector = None
    builtin_options: BuiltinOptions | None = None
    custom_options: ByteVector = None
    custom_options_format: CustomOptionsFormat = CustomOptionsFormat.FLEXBUFFERS
    mutating_variable_inputs: BoolVector = None
    intermediates: IntVector = None
    large_custom_options_offset: UInt64 = 0
    large_custom_options_size: UInt64 = 0
    builtin_options_2: BuiltinOptions2 | None = None
    debug_metadata_index: Int32 = -1


class SubGraph(Table):
    tensors: list[Tensor] | None = None
    inputs: IntVector = None
    outputs: IntVector = None
    operators: list[Operator] | None = None
    name: String = None
    debug_metadata_index: Int32 = -1


class Buffer(Table):
    data: AlignedByteVector = None
    offset: UInt64 = 0
    size: UInt64 = 0


class ExternalBufferGroup(Table):
    name: String = None


class ExternalBuffer(Table):
    id: UInt32 = 0
    group: UInt32 = 0
    offset: UInt64 = 0
    length: UInt64 = 0
    packing: String = None


class Metadata(Table):
    name: String = None
    buffer: UInt32 = 0


class TensorMap(Table):
    name: String = None
    tensor_index: UInt32 = 0


class SignatureDef(Table):
    inputs: list[TensorMap] | None = None
    outputs: list[TensorMap] | None = None
    signature_key: String = None
    deprecated_tag: String = None
    subgraph_index: UInt32 = 0


class Model(Table):
    version: UInt32 = 0
    operator_codes: list[OperatorCode] | None = None
    subgraphs: list[SubGraph] | None = None
    description: String = None
    buffers: list[Buffer] | None = None
    metadata_buffer: IntVector = None
    metadata: list[Metadata] | None = None
    signature_defs: list[SignatureDef] | None = None
    external_buffer_groups: list[ExternalBufferGroup] | None = None
    external_buffers: list[ExternalBuffer] | None = None


METADATA_NAME = "OfflineMemoryAllocation"

VERSION = 1

HEADER_WORDS = 3
"""Words before the offsets: version, subgraph of the plan (0: all in one list), and number of offsets."""

ONLINE = -1
"""The offset of a tensor that is left to the online planner."""


def offline_offsets(model: Model) -> tuple[int, ...] | None:
    """The planned offset of every tensor, subgraph after subgraph, -1 for the online planner; None without a plan.

    Raises:
        ModelError: the plan is truncated, is for another number of tensors, or has a negative offset.
    """
    data = None
    for entry in model.metadata or ():
        if entry.name == METADATA_NAME and model.buffers:
            data = memoryview(model.buffers[entry.buffer].data or b"")
    if data is None:
        return None
    if len(data) < 4 * HEADER_WORDS:
        raise broken_plan(f"{len(data)} bytes are too few for its header of {HEADER_WORDS} words")
    words = np.frombuffer(data[: len(data) // 4 * 4], "<i4")
    count = int(words[HEADER_WORDS - 1])
    tensor_count = sum(len(subgraph.tensors or ()) for subgraph in model.subgraphs or ())
    if count != tensor_count:
        raise broken_plan(f"it has offsets for {count} tensors, the model has {tensor_count}")
    if len(words) < HEADER_WORDS + count:
        raise broken_plan(f"{len(data)} bytes are too few for {count} offsets")
    offsets = tuple(words[HEADER_WORDS : HEADER_WORDS + count].tolist())
    if count and min(offsets) < ONLINE:
        raise broken_plan(f"offset {min(offsets)} is negative; only -1 is, for a tensor that is planned online")
    return offsets


def encode_offsets(offsets: Sequence[int]) -> bytes:
    """The metadata that holds these offsets (bytes; -1 for a tensor that is left to the online planner)."""
    return np.asarray([VERSION, 0, len(offsets), *offsets], "<i4").tobytes()


def drop_plan(model: Model) -> None:
    """Remove the plan from a model's tables, so that the device places every tensor."""
    model.metadata = [entry for entry in model.metadata or () if entry.name != METADATA_NAME] or None


def broken_plan(reason: str, *, unsound: bool = False) -> ModelError:
    """A finding on the plan."""
    reason = f"the offline plan is broken: {reason}"
    return ModelError(reason, table="Metadata", field="buffer", place=METADATA_NAME, unsound=unsound)


CALLED_SUBGRAPHS: dict[type, tuple[str, ...]] = {
    IfOptions: ("then_subgraph_index", "else_subgraph_index"),
    CallOnceOptions: ("init_subgraph_index",),
    WhileOptions: ("cond_subgraph_index", "body_subgraph_index"),
}
"""The fields that name subgraphs in the options of control flow operators, in the order they are planned."""


def builtin_code(code: OperatorCode) -> BuiltinOperator:
    """The operator of an operator code.

    Old writers set only `deprecated_builtin_code`, a byte; new ones set both, with a placeholder in the byte for codes
    above 127. The larger of the two is always right.
    """
    deprecated = max(code.deprecated_builtin_code, 0)
    return BuiltinOperator(deprecated) if deprecated > code.builtin_code else code.builtin_code


def code_name(code: OperatorCode) -> str:
    """`FULLY_CONNECTED` and the like for a builtin operator, the name it was given for a custom one."""
    builtin = builtin_code(code)
    return (code.custom_code or "") if builtin is BuiltinOperator.CUSTOM else builtin.name


def variable_of(operator: Operator) -> tuple[str, str] | None:
    """Container and name of the variable that a VAR_HANDLE is for; None for other operators."""
    options = operator.builtin_options
    return (options.container or "", options.shared_name or "") if isinstance(options, VarHandleOptions) else None


def called_subgraphs(operator: Operator) -> list[int]:
    """Indices of the subgraphs that an operator runs, in the order in which they are planned."""
    fields = CALLED_SUBGRAPHS.get(type(operator.builtin_options), ())
    return [getattr(operator.builtin_options, field) for field in fields]
