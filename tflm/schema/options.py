"""Options of the builtin operators, and the two unions that hold them."""

from typing import Annotated, Union

from tflm.schema.enums import (
    ActivationFunctionType,
    CombinerType,
    CustomOptionsFormat,
    FullyConnectedOptionsWeightsFormat,
    LSHProjectionType,
    LSTMKernelType,
    MirrorPadMode,
    Padding,
    ReduceWindowFunction,
    RngAlgorithm,
    StablehloComparisonDirection,
    StablehloComparisonType,
    StablehloPrecisionConfig,
    TensorType,
)
from tflm.schema.layout import (
    Bool,
    BoolVector,
    ByteVector,
    Float32,
    FloatVector,
    Int32,
    Int64,
    IntVector,
    LongVector,
    ScalarVector,
    String,
    Table,
    UInt32,
)

PrecisionConfigVector = Annotated[
    tuple[StablehloPrecisionConfig, ...] | None, ScalarVector("I", StablehloPrecisionConfig)
]


class StablehloGatherOptions(Table):
    offset_dims: LongVector = None
    collapsed_slice_dims: LongVector = None
    start_index_map: LongVector = None
    index_vector_dim: Int64 = 0
    slice_sizes: LongVector = None
    indices_are_sorted: Bool = False


class StablehloTransposeOptions(Table):
    permutation: LongVector = None


class StablehloDotGeneralOptions(Table):
    lhs_batching_dimensions: LongVector = None
    rhs_batching_dimensions: LongVector = None
    lhs_contracting_dimensions: LongVector = None
    rhs_contracting_dimensions: LongVector = None
    precision_config: PrecisionConfigVector = None


class StablehloReduceWindowOptions(Table):
    window_dimensions: LongVector = None
    window_strides: LongVector = None
    base_dilations: LongVector = None
    window_dilations: LongVector = None
    padding: LongVector = None
    body_subgraph_index: Int32 = 0


class StablehloWhileOptions(Table):
    cond_subgraph_index: Int32 = 0
    body_subgraph_index: Int32 = 0


class StablehloSortOptions(Table):
    dimension: Int64 = 0
    is_stable: Bool = False
    comparator_subgraph_index: Int32 = 0


class StablehloConcatenateOptions(Table):
    dimension: Int64 = 0


class StablehloBroadcastInDimOptions(Table):
    broadcast_dimensions: LongVector = None


class StablehloCompareOptions(Table):
    comparison_direction: StablehloComparisonDirection = StablehloComparisonDirection.STABLEHLO_COMPARISON_DIRECTION_EQ
    compare_type: StablehloComparisonType = StablehloComparisonType.STABLEHLO_COMPARISON_TYPE_NOTYPE


class StablehloDynamicSliceOptions(Table):
    slice_sizes: LongVector = None


class StablehloPadOptions(Table):
    edge_padding_low: LongVector = None
    edge_padding_high: LongVector = None
    interior_padding: LongVector = None


class StablehloIotaOptions(Table):
    iota_dimension: Int64 = 0


class StablehloCustomCallOptions(Table):
    call_target_name: String = None
    has_side_effect: Bool = False
    backend_config: String = None
    api_version: Int32 = 0
    called_computations: IntVector = None
    custom_attributes: ByteVector = None


class StablehloReduceOptions(Table):
    dimensions: LongVector = None
    body_subgraph_index: Int32 = 0


class StablehloSliceOptions(Table):
    start_indices: LongVector = None
    limit_indices: LongVector = None
    strides: LongVector = None


class StablehloConvolutionOptions(Table):
    window_strides: LongVector = None
    padding: LongVector = None
    lhs_dilation: LongVector = None
    rhs_dilation: LongVector = None
    window_reversal: BoolVector = None
    input_batch_dimension: Int64 = 0
    input_feature_dimension: Int64 = 0
    input_spatial_dimensions: LongVector = None
    kernel_input_feature_dimension: Int64 = 0
    kernel_output_feature_dimension: Int64 = 0
    kernel_spatial_dimensions: LongVector = None
    output_batch_dimension: Int64 = 0
    output_feature_dimension: Int64 = 0
    output_spatial_dimensions: LongVector = None
    feature_group_count: Int64 = 0
    batch_group_count: Int64 = 0
    precision_config: PrecisionConfigVector = None


class StablehloScatterOptions(Table):
    indices_are_sorted: Bool = False
    update_window_dims: LongVector = None
    inserted_window_dims: LongVector = None
    scatter_dims_to_operand_dims: LongVector = None
    index_vector_dim: Int64 = 0
    unique_indices: Bool = False
    update_computation_subgraph_index: Int32 = 0


class StablehloCaseOptions(Table):
    branch_subgraph_indices: IntVector = None


class StablehloRngBitGeneratorOptions(Table):
    algorithm: RngAlgorithm = RngAlgorithm.DEFAULT


class Conv2DOptions(Table):
    padding: Padding = Padding.SAME
    stride_w: Int32 = 0
    stride_h: Int32 = 0
    fused_activation_function: ActivationFunctionType = ActivationFunctionType.NONE
    dilation_w_factor: Int32 = 1
    dilation_h_factor: Int32 = 1
    quantized_bias_type: TensorType = TensorType.FLOAT32


class Conv3DOptions(Table):
    padding: Padding = Padding.SAME
    stride_d: Int32 = 0
    stride_w: Int32 = 0
    stride_h: Int32 = 0
    fused_activation_function: ActivationFunctionType = ActivationFunctionType.NONE
    dilation_d_factor: Int32 = 1
    dilation_w_factor: Int32 = 1
    dilation_h_factor: Int32 = 1


class Pool2DOptions(Table):
    padding: Padding = Padding.SAME
    stride_w: Int32 = 0
    stride_h: Int32 = 0
    filter_width: Int32 = 0
    filter_height: Int32 = 0
    fused_activation_function: ActivationFunctionType = ActivationFunctionType.NONE


class DepthwiseConv2DOptions(Table):
    padding: Padding = Padding.SAME
    stride_w: Int32 = 0
    stride_h: Int32 = 0
    depth_multiplier: Int32 = 0
    fused_activation_function: ActivationFunctionType = ActivationFunctionType.NONE
    dilation_w_factor: Int32 = 1
    dilation_h_factor: Int32 = 1


class ConcatEmbeddingsOptions(Table):
    num_channels: Int32 = 0
    num_columns_per_channel: IntVector = None
    embedding_dim_per_channel: IntVector = None


class LSHProjectionOptions(Table):
    type: LSHProjectionType = LSHProjectionType.UNKNOWN


class SVDFOptions(Table):
    rank: Int32 = 0
    fused_activation_function: ActivationFunctionType = ActivationFunctionType.NONE
    asymmetric_quantize_inputs: Bool = False


class RNNOptions(Table):
    fused_activation_function: ActivationFunctionType = ActivationFunctionType.NONE
    asymmetric_quantize_inputs: Bool = False


class SequenceRNNOptions(Table):
    time_major: Bool = False
    fused_activation_function: ActivationFunctionType = ActivationFunctionType.NONE
    asymmetric_quantize_inputs: Bool = False


class BidirectionalSequenceRNNOptions(Table):
    time_major: Bool = False
    fused_activation_function: ActivationFunctionType = ActivationFunctionType.NONE
    merge_outputs: Bool = False
    asymmetric_quantize_inputs: Bool = False


class FullyConnectedOptions(Table):
    fused_activation_function: ActivationFunctionType = ActivationFunctionType.NONE
    weights_format: FullyConnectedOptionsWeightsFormat = FullyConnectedOptionsWeightsFormat.DEFAULT
    keep_num_dims: Bool = False
    asymmetric_quantize_inputs: Bool = False
    quantized_bias_type: TensorType = TensorType.FLOAT32


class SoftmaxOptions(Table):
    beta: Float32 = 0.0


class ConcatenationOptions(Table):
    axis: Int32 = 0
    fused_activation_function: ActivationFunctionType = ActivationFunctionType.NONE


class AddOptions(Table):
    fused_activation_function: ActivationFunctionType = ActivationFunctionType.NONE
    pot_scale_int16: Bool = True


class MulOptions(Table):
    fused_activation_function: ActivationFunctionType = ActivationFunctionType.NONE


class L2NormOptions(Table):
    fused_activation_function: ActivationFunctionType = ActivationFunctionType.NONE


class LocalResponseNormalizationOptions(Table):
    radius: Int32 = 0
    bias: Float32 = 0.0
    alpha: Float32 = 0.0
    beta: Float32 = 0.0


class LSTMOptions(Table):
    fused_activation_function: ActivationFunctionType = ActivationFunctionType.NONE
    cell_clip: Float32 = 0.0
    proj_clip: Float32 = 0.0
    kernel_type: LSTMKernelType = LSTMKernelType.FULL
    asymmetric_quantize_inputs: Bool = False


class UnidirectionalSequenceLSTMOptions(Table):
    fused_activation_function: ActivationFunctionType = ActivationFunctionType.NONE
    cell_clip: Float32 = 0.0
    proj_clip: Float32 = 0.0
    time_major: Bool = False
    asymmetric_quantize_inputs: Bool = False
    diagonal_recurrent_tensors: Bool = False


class BidirectionalSequenceLSTMOptions(Table):
    fused_activation_function: ActivationFunctionType = ActivationFunctionType.NONE
    cell_clip: Float32 = 0.0
    proj_clip: Float32 = 0.0
    merge_outputs: Bool = False
    time_major: Bool = True
    asymmetric_quantize_inputs: Bool = False


class ResizeBilinearOptions(Table):
    new_height: Int32 = 0
    new_width: Int32 = 0
    align_corners: Bool = False
    half_pixel_centers: Bool = False


class ResizeNearestNeighborOptions(Table):
    align_corners: Bool = False
    half_pixel_centers: Bool = False


class CallOptions(Table):
    subgraph: UInt32 = 0


class ReshapeOptions(Table):
    new_shape: IntVector = None


class SkipGramOptions(Table):
    ngram_size: Int32 = 0
    max_skip_size: Int32 = 0
    include_all_ngrams: Bool = False


class SpaceToDepthOptions(Table):
    block_size: Int32 = 0


class DepthToSpaceOptions(Table):
    block_size: Int32 = 0


class SubOptions(Table):
    fused_activation_function: ActivationFunctionType = ActivationFunctionType.NONE
    pot_scale_int16: Bool = True


class DivOptions(Table):
    fused_activation_function: ActivationFunctionType = ActivationFunctionType.NONE


class EmbeddingLookupSparseOptions(Table):
    combiner: CombinerType = CombinerType.SUM


class GatherOptions(Table):
    axis: Int32 = 0
    batch_dims: Int32 = 0


class ReducerOptions(Table):
    keep_dims: Bool = False


class SqueezeOptions(Table):
    squeeze_dims: IntVector = None


class SplitOptions(Table):
    num_splits: Int32 = 0


class SplitVOptions(Table):
    num_splits: Int32 = 0


class StridedSliceOptions(Table):
    begin_mask: Int32 = 0
    end_mask: Int32 = 0
    ellipsis_mask: Int32 = 0
    new_axis_mask: Int32 = 0
    shrink_axis_mask: Int32 = 0
    offset: Bool = False


class CastOptions(Table):
    in_data_type: TensorType = TensorType.FLOAT32
    out_data_type: TensorType = TensorType.FLOAT32


class ArgMaxOptions(Table):
    output_type: TensorType = TensorType.FLOAT32


class ArgMinOptions(Table):
    output_type: TensorType = TensorType.FLOAT32


class TransposeConvOptions(Table):
    padding: Padding = Padding.SAME
    stride_w: Int32 = 0
    stride_h: Int32 = 0
    fused_activation_function: ActivationFunctionType = ActivationFunctionType.NONE
    quantized_bias_type: TensorType = TensorType.FLOAT32


class SparseToDenseOptions(Table):
    validate_indices: Bool = False


class ShapeOptions(Table):
    out_type: TensorType = TensorType.FLOAT32


class FakeQuantOptions(Table):
    min: Float32 = 0.0
    max: Float32 = 0.0
    num_bits: Int32 = 0
    narrow_range: Bool = False


class PackOptions(Table):
    values_count: Int32 = 0
    axis: Int32 = 0


class OneHotOptions(Table):
    axis: Int32 = 0


class UnpackOptions(Table):
    num: Int32 = 0
    axis: Int32 = 0


class LeakyReluOptions(Table):
    alpha: Float32 = 0.0


class MirrorPadOptions(Table):
    mode: MirrorPadMode = MirrorPadMode.REFLECT


class UniqueOptions(Table):
    idx_out_type: TensorType = TensorType.INT32


class ReverseSequenceOptions(Table):
    seq_dim: Int32 = 0
    batch_dim: Int32 = 0


class IfOptions(Table):
    then_subgraph_index: Int32 = 0
    else_subgraph_index: Int32 = 0


class CallOnceOptions(Table):
    init_subgraph_index: Int32 = 0


class WhileOptions(Table):
    cond_subgraph_index: Int32 = 0
    body_subgraph_index: Int32 = 0


class BatchMatMulOptions(Table):
    adj_x: Bool = False
    adj_y: Bool = False
    asymmetric_quantize_inputs: Bool = False


class CumsumOptions(Table):
    exclusive: Bool = False
    reverse: Bool = False


class HashtableOptions(Table):
    table_id: Int32 = 0
    key_dtype: TensorType = TensorType.FLOAT32
    value_dtype: TensorType = TensorType.FLOAT32


class VarHandleOptions(Table):
    container: String = None
    shared_name: String = None


class RandomOptions(Table):
    seed: Int64 = 0
    seed2: Int64 = 0


class BucketizeOptions(Table):
    boundaries: FloatVector = None


class GeluOptions(Table):
    approximate: Bool = False


class ReduceWindowOptions(Table):
    reduce_function: ReduceWindowFunction = ReduceWindowFunction.UNSUPPORTED


class StableHLOCompositeOptions(Table):
    name: String = None
    decomposition_subgraph_index: Int32 = 0
    composite_attributes: ByteVector = None
    composite_attributes_format: CustomOptionsFormat = CustomOptionsFormat.FLEXBUFFERS
    version: Int32 = 0


# Options without fields: their presence is all they say.
# fmt: off
class PadOptions(Table): ...
class PadV2Options(Table): ...
class SpaceToBatchNDOptions(Table): ...
class BatchToSpaceNDOptions(Table): ...
class TopKV2Options(Table): ...
class TransposeOptions(Table): ...
class ExpOptions(Table): ...
class CosOptions(Table): ...
class LogSoftmaxOptions(Table): ...
class DequantizeOptions(Table): ...
class MaximumMinimumOptions(Table): ...
class TileOptions(Table): ...
class GreaterOptions(Table): ...
class GreaterEqualOptions(Table): ...
class LessOptions(Table): ...
class LessEqualOptions(Table): ...
class NegOptions(Table): ...
class SelectOptions(Table): ...
class SliceOptions(Table): ...
class ExpandDimsOptions(Table): ...
class EqualOptions(Table): ...
class NotEqualOptions(Table): ...
class RankOptions(Table): ...
class PowOptions(Table): ...
class LogicalOrOptions(Table): ...
class AbsOptions(Table): ...
class HardSwishOptions(Table): ...
class LogicalAndOptions(Table): ...
class LogicalNotOptions(Table): ...
class FloorDivOptions(Table): ...
class SquareOptions(Table): ...
class ZerosLikeOptions(Table): ...
class FillOptions(Table): ...
class FloorModOptions(Table): ...
class RangeOptions(Table): ...
class SquaredDifferenceOptions(Table): ...
class ReverseV2Options(Table): ...
class AddNOptions(Table): ...
class GatherNdOptions(Table): ...
class WhereOptions(Table): ...
class MatrixDiagOptions(Table): ...
class QuantizeOptions(Table): ...
class MatrixSetDiagOptions(Table): ...
class NonMaxSuppressionV4Options(Table): ...
class NonMaxSuppressionV5Options(Table): ...
class ScatterNdOptions(Table): ...
class SelectV2Options(Table): ...
class DensifyOptions(Table): ...
class SegmentSumOptions(Table): ...
class BroadcastToOptions(Table): ...
class Rfft2dOptions(Table): ...
class HashtableFindOptions(Table): ...
class HashtableImportOptions(Table): ...
class HashtableSizeOptions(Table): ...
class ReadVariableOptions(Table): ...
class AssignVariableOptions(Table): ...
class DynamicUpdateSliceOptions(Table): ...
class UnsortedSegmentProdOptions(Table): ...
class UnsortedSegmentMaxOptions(Table): ...
class UnsortedSegmentSumOptions(Table): ...
class ATan2Options(Table): ...
class UnsortedSegmentMinOptions(Table): ...
class SignOptions(Table): ...
class BitcastOptions(Table): ...
class BitwiseXorOptions(Table): ...
class RightShiftOptions(Table): ...
class DilateOptions(Table): ...
class StablehloShiftLeftOptions(Table): ...
# fmt: on

BuiltinOptions = Union[
    Conv2DOptions,
    DepthwiseConv2DOptions,
    ConcatEmbeddingsOptions,
    LSHProjectionOptions,
    Pool2DOptions,
    SVDFOptions,
    RNNOptions,
    FullyConnectedOptions,
    SoftmaxOptions,
    ConcatenationOptions,
    AddOptions,
    L2NormOptions,
    LocalResponseNormalizationOptions,
    LSTMOptions,
    ResizeBilinearOptions,
    CallOptions,
    ReshapeOptions,
    SkipGramOptions,
    SpaceToDepthOptions,
    EmbeddingLookupSparseOptions,
    MulOptions,
    PadOptions,
    GatherOptions,
    BatchToSpaceNDOptions,
    SpaceToBatchNDOptions,
    TransposeOptions,
    ReducerOptions,
    SubOptions,
    DivOptions,
    SqueezeOptions,
    SequenceRNNOptions,
    StridedSliceOptions,
    ExpOptions,
    TopKV2Options,
    SplitOptions,
    LogSoftmaxOptions,
    CastOptions,
    DequantizeOptions,
    MaximumMinimumOptions,
    ArgMaxOptions,
    LessOptions,
    NegOptions,
    PadV2Options,
    GreaterOptions,
    GreaterEqualOptions,
    LessEqualOptions,
    SelectOptions,
    SliceOptions,
    TransposeConvOptions,
    SparseToDenseOptions,
    TileOptions,
    ExpandDimsOptions,
    EqualOptions,
    NotEqualOptions,
    ShapeOptions,
    PowOptions,
    ArgMinOptions,
    FakeQuantOptions,
    PackOptions,
    LogicalOrOptions,
    OneHotOptions,
    LogicalAndOptions,
    LogicalNotOptions,
    UnpackOptions,
    FloorDivOptions,
    SquareOptions,
    ZerosLikeOptions,
    FillOptions,
    BidirectionalSequenceLSTMOptions,
    BidirectionalSequenceRNNOptions,
    UnidirectionalSequenceLSTMOptions,
    FloorModOptions,
    RangeOptions,
    ResizeNearestNeighborOptions,
    LeakyReluOptions,
    SquaredDifferenceOptions,
    MirrorPadOptions,
    AbsOptions,
    SplitVOptions,
    UniqueOptions,
    ReverseV2Options,
    AddNOptions,
    GatherNdOptions,
    CosOptions,
    WhereOptions,
    RankOptions,
    ReverseSequenceOptions,
    MatrixDiagOptions,
    QuantizeOptions,
    MatrixSetDiagOptions,
    HardSwishOptions,
    IfOptions,
    WhileOptions,
    DepthToSpaceOptions,
    NonMaxSuppressionV4Options,
    NonMaxSuppressionV5Options,
    ScatterNdOptions,
    SelectV2Options,
    DensifyOptions,
    SegmentSumOptions,
    BatchMatMulOptions,
    CumsumOptions,
    CallOnceOptions,
    BroadcastToOptions,
    Rfft2dOptions,
    Conv3DOptions,
    HashtableOptions,
    HashtableFindOptions,
    HashtableImportOptions,
    HashtableSizeOptions,
    VarHandleOptions,
    ReadVariableOptions,
    AssignVariableOptions,
    RandomOptions,
    BucketizeOptions,
    GeluOptions,
    DynamicUpdateSliceOptions,
    UnsortedSegmentProdOptions,
    UnsortedSegmentMaxOptions,
    UnsortedSegmentMinOptions,
    UnsortedSegmentSumOptions,
    ATan2Options,
    SignOptions,
    BitcastOptions,
    BitwiseXorOptions,
    RightShiftOptions,
]

BuiltinOptions2 = Union[
    StablehloConcatenateOptions,
    StablehloBroadcastInDimOptions,
    StablehloSliceOptions,
    StablehloConvolutionOptions,
    StablehloCustomCallOptions,
    StablehloReduceOptions,
    StablehloScatterOptions,
    StablehloCompareOptions,
    StablehloDynamicSliceOptions,
    StablehloPadOptions,
    StablehloIotaOptions,
    StablehloDotGeneralOptions,
    StablehloReduceWindowOptions,
    StablehloSortOptions,
    StablehloWhileOptions,
    StablehloGatherOptions,
    StablehloTransposeOptions,
    DilateOptions,
    StablehloRngBitGeneratorOptions,
    ReduceWindowOptions,
    StableHLOCompositeOptions,
    StablehloShiftLeftOptions,
    StablehloCaseOptions,
]
