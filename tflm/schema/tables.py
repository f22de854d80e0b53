"""The tables of a model file, from the root down to a tensor's quantization."""

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
from tflm.schema.options import BuiltinOptions, BuiltinOptions2


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
