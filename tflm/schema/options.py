"""Options of the builtin operators: two unions, each followed by its members in the order of their tags."""

from typing import Annotated

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
    TableUnion,
    UInt32,
)

PrecisionConfigVector = Annotated[
    tuple[StablehloPrecisionConfig, ...] | None, ScalarVector("I", StablehloPrecisionConfig)
]

# fmt: off

class BuiltinOptions(TableUnion):
    """Options of a builtin operator."""

class Conv2DOptions(BuiltinOptions):
    padding: Padding = Padding.SAME
    stride_w: Int32 = 0
    stride_h: Int32 = 0
    fused_activation_function: ActivationFunctionType = ActivationFunctionType.NONE
    dilation_w_factor: Int32 = 1
    dilation_h_factor: Int32 = 1
    quantized_bias_type: TensorType = TensorType.FLOAT32

class DepthwiseConv2DOptions(BuiltinOptions):
    padding: Padding = Padding.SAME
    stride_w: Int32 = 0
    stride_h: Int32 = 0
    depth_multiplier: Int32 = 0
    fused_activation_function: ActivationFunctionType = ActivationFunctionType.NONE
    dilation_w_factor: Int32 = 1
    dilation_h_factor: Int32 = 1

class ConcatEmbeddingsOptions(BuiltinOptions):
    num_channels: Int32 = 0
    num_columns_per_channel: IntVector = None
    embedding_dim_per_channel: IntVector = None

class LSHProjectionOptions(BuiltinOptions):
    type: LSHProjectionType = LSHProjectionType.UNKNOWN

class Pool2DOptions(BuiltinOptions):
    padding: Padding = Padding.SAME
    stride_w: Int32 = 0
    stride_h: Int32 = 0
    filter_width: Int32 = 0
    filter_height: Int32 = 0
    fused_activation_function: ActivationFunctionType = ActivationFunctionType.NONE

class SVDFOptions(BuiltinOptions):
    rank: Int32 = 0
    fused_activation_function: ActivationFunctionType = ActivationFunctionType.NONE
    asymmetric_quantize_inputs: Bool = False

class RNNOptions(BuiltinOptions):
    fused_activation_function: ActivationFunctionType = ActivationFunctionType.NONE
    asymmetric_quantize_inputs: Bool = False

class FullyConnectedOptions(BuiltinOptions):
    fused_activation_function: ActivationFunctionType = ActivationFunctionType.NONE
    weights_format: FullyConnectedOptionsWeightsFormat = FullyConnectedOptionsWeightsFormat.DEFAULT
    keep_num_dims: Bool = False
    asymmetric_quantize_inputs: Bool = False
    quantized_bias_type: TensorType = TensorType.FLOAT32

class SoftmaxOptions(BuiltinOptions):
    beta: Float32 = 0.0

class ConcatenationOptions(BuiltinOptions):
    axis: Int32 = 0
    fused_activation_function: ActivationFunctionType = ActivationFunctionType.NONE

class AddOptions(BuiltinOptions):
    fused_activation_function: ActivationFunctionType = ActivationFunctionType.NONE
    pot_scale_int16: Bool = True

class L2NormOptions(BuiltinOptions):
    fused_activation_function: ActivationFunctionType = ActivationFunctionType.NONE

class LocalResponseNormalizationOptions(BuiltinOptions):
    radius: Int32 = 0
    bias: Float32 = 0.0
    alpha: Float32 = 0.0
    beta: Float32 = 0.0

class LSTMOptions(BuiltinOptions):
    fused_activation_function: ActivationFunctionType = ActivationFunctionType.NONE
    cell_clip: Float32 = 0.0
    proj_clip: Float32 = 0.0
    kernel_type: LSTMKernelType = LSTMKernelType.FULL
    asymmetric_quantize_inputs: Bool = False

class ResizeBilinearOptions(BuiltinOptions):
    new_height: Int32 = 0
    new_width: Int32 = 0
    align_corners: Bool = False
    half_pixel_centers: Bool = False

class CallOptions(BuiltinOptions):
    subgraph: UInt32 = 0

class ReshapeOptions(BuiltinOptions):
    new_shape: IntVector = None

class SkipGramOptions(BuiltinOptions):
    ngram_size: Int32 = 0
    max_skip_size: Int32 = 0
    include_all_ngrams: Bool = False

class SpaceToDepthOptions(BuiltinOptions):
    block_size: Int32 = 0

class EmbeddingLookupSparseOptions(BuiltinOptions):
    combiner: CombinerType = CombinerType.SUM

class MulOptions(BuiltinOptions):
    fused_activation_function: ActivationFunctionType = ActivationFunctionType.NONE

class PadOptions(BuiltinOptions): ...

class GatherOptions(BuiltinOptions):
    axis: Int32 = 0
    batch_dims: Int32 = 0

class BatchToSpaceNDOptions(BuiltinOptions): ...
class SpaceToBatchNDOptions(BuiltinOptions): ...
class TransposeOptions(BuiltinOptions): ...

class ReducerOptions(BuiltinOptions):
    keep_dims: Bool = False

class SubOptions(BuiltinOptions):
    fused_activation_function: ActivationFunctionType = ActivationFunctionType.NONE
    pot_scale_int16: Bool = True

class DivOptions(BuiltinOptions):
    fused_activation_function: ActivationFunctionType = ActivationFunctionType.NONE

class SqueezeOptions(BuiltinOptions):
    squeeze_dims: IntVector = None

class SequenceRNNOptions(BuiltinOptions):
    time_major: Bool = False
    fused_activation_function: ActivationFunctionType = ActivationFunctionType.NONE
    asymmetric_quantize_inputs: Bool = False

class StridedSliceOptions(BuiltinOptions):
    begin_mask: Int32 = 0
    end_mask: Int32 = 0
    ellipsis_mask: Int32 = 0
    new_axis_mask: Int32 = 0
    shrink_axis_mask: Int32 = 0
    offset: Bool = False

class ExpOptions(BuiltinOptions): ...
class TopKV2Options(BuiltinOptions): ...

class SplitOptions(BuiltinOptions):
    num_splits: Int32 = 0

class LogSoftmaxOptions(BuiltinOptions): ...

class CastOptions(BuiltinOptions):
    in_data_type: TensorType = TensorType.FLOAT32
    out_data_type: TensorType = TensorType.FLOAT32

class DequantizeOptions(BuiltinOptions): ...
class MaximumMinimumOptions(BuiltinOptions): ...

class ArgMaxOptions(BuiltinOptions):
    output_type: TensorType = TensorType.FLOAT32

class LessOptions(BuiltinOptions): ...
class NegOptions(BuiltinOptions): ...
class PadV2Options(BuiltinOptions): ...
class GreaterOptions(BuiltinOptions): ...
class GreaterEqualOptions(BuiltinOptions): ...
class LessEqualOptions(BuiltinOptions): ...
class SelectOptions(BuiltinOptions): ...
class SliceOptions(BuiltinOptions): ...

class TransposeConvOptions(BuiltinOptions):
    padding: Padding = Padding.SAME
    stride_w: Int32 = 0
    stride_h: Int32 = 0
    fused_activation_function: ActivationFunctionType = ActivationFunctionType.NONE
    quantized_bias_type: TensorType = TensorType.FLOAT32

class SparseToDenseOptions(BuiltinOptions):
    validate_indices: Bool = False

class TileOptions(BuiltinOptions): ...
class ExpandDimsOptions(BuiltinOptions): ...
class EqualOptions(BuiltinOptions): ...
class NotEqualOptions(BuiltinOptions): ...

class ShapeOptions(BuiltinOptions):
    out_type: TensorType = TensorType.FLOAT32

class PowOptions(BuiltinOptions): ...

class ArgMinOptions(BuiltinOptions):
    output_type: TensorType = TensorType.FLOAT32

class FakeQuantOptions(BuiltinOptions):
    min: Float32 = 0.0
    max: Float32 = 0.0
    num_bits: Int32 = 0
    narrow_range: Bool = False

class PackOptions(BuiltinOptions):
    values_count: Int32 = 0
    axis: Int32 = 0

class LogicalOrOptions(BuiltinOptions): ...

class OneHotOptions(BuiltinOptions):
    axis: Int32 = 0

class LogicalAndOptions(BuiltinOptions): ...
class LogicalNotOptions(BuiltinOptions): ...

class UnpackOptions(BuiltinOptions):
    num: Int32 = 0
    axis: Int32 = 0

class FloorDivOptions(BuiltinOptions): ...
class SquareOptions(BuiltinOptions): ...
class ZerosLikeOptions(BuiltinOptions): ...
class FillOptions(BuiltinOptions): ...

class BidirectionalSequenceLSTMOptions(BuiltinOptions):
    fused_activation_function: ActivationFunctionType = ActivationFunctionType.NONE
    cell_clip: Float32 = 0.0
    proj_clip: Float32 = 0.0
    merge_outputs: Bool = False
    time_major: Bool = True
    asymmetric_quantize_inputs: Bool = False

class BidirectionalSequenceRNNOptions(BuiltinOptions):
    time_major: Bool = False
    fused_activation_function: ActivationFunctionType = ActivationFunctionType.NONE
    merge_outputs: Bool = False
    asymmetric_quantize_inputs: Bool = False

class UnidirectionalSequenceLSTMOptions(BuiltinOptions):
    fused_activation_function: ActivationFunctionType = ActivationFunctionType.NONE
    cell_clip: Float32 = 0.0
    proj_clip: Float32 = 0.0
    time_major: Bool = False
    asymmetric_quantize_inputs: Bool = False
    diagonal_recurrent_tensors: Bool = False

class FloorModOptions(BuiltinOptions): ...
class RangeOptions(BuiltinOptions): ...

class ResizeNearestNeighborOptions(BuiltinOptions):
    align_corners: Bool = False
    half_pixel_centers: Bool = False

class LeakyReluOptions(BuiltinOptions):
    alpha: Float32 = 0.0

class SquaredDifferenceOptions(BuiltinOptions): ...

class MirrorPadOptions(BuiltinOptions):
    mode: MirrorPadMode = MirrorPadMode.REFLECT

class AbsOptions(BuiltinOptions): ...

class SplitVOptions(BuiltinOptions):
    num_splits: Int32 = 0

class UniqueOptions(BuiltinOptions):
    idx_out_type: TensorType = TensorType.INT32

class ReverseV2Options(BuiltinOptions): ...
class AddNOptions(BuiltinOptions): ...
class GatherNdOptions(BuiltinOptions): ...
class CosOptions(BuiltinOptions): ...
class WhereOptions(BuiltinOptions): ...
class RankOptions(BuiltinOptions): ...

class ReverseSequenceOptions(BuiltinOptions):
    seq_dim: Int32 = 0
    batch_dim: Int32 = 0

class MatrixDiagOptions(BuiltinOptions): ...
class QuantizeOptions(BuiltinOptions): ...
class MatrixSetDiagOptions(BuiltinOptions): ...
class HardSwishOptions(BuiltinOptions): ...

class IfOptions(BuiltinOptions):
    then_subgraph_index: Int32 = 0
    else_subgraph_index: Int32 = 0

class WhileOptions(BuiltinOptions):
    cond_subgraph_index: Int32 = 0
    body_subgraph_index: Int32 = 0

class DepthToSpaceOptions(BuiltinOptions):
    block_size: Int32 = 0

class NonMaxSuppressionV4Options(BuiltinOptions): ...
class NonMaxSuppressionV5Options(BuiltinOptions): ...
class ScatterNdOptions(BuiltinOptions): ...
class SelectV2Options(BuiltinOptions): ...
class DensifyOptions(BuiltinOptions): ...
class SegmentSumOptions(BuiltinOptions): ...

class BatchMatMulOptions(BuiltinOptions):
    adj_x: Bool = False
    adj_y: Bool = False
    asymmetric_quantize_inputs: Bool = False

class CumsumOptions(BuiltinOptions):
    exclusive: Bool = False
    reverse: Bool = False

class CallOnceOptions(BuiltinOptions):
    init_subgraph_index: Int32 = 0

class BroadcastToOptions(BuiltinOptions): ...
class Rfft2dOptions(BuiltinOptions): ...

class Conv3DOptions(BuiltinOptions):
    padding: Padding = Padding.SAME
    stride_d: Int32 = 0
    stride_w: Int32 = 0
    stride_h: Int32 = 0
    fused_activation_function: ActivationFunctionType = ActivationFunctionType.NONE
    dilation_d_factor: Int32 = 1
    dilation_w_factor: Int32 = 1
    dilation_h_factor: Int32 = 1

class HashtableOptions(BuiltinOptions):
    table_id: Int32 = 0
    key_dtype: TensorType = TensorType.FLOAT32
    value_dtype: TensorType = TensorType.FLOAT32

class HashtableFindOptions(BuiltinOptions): ...
class HashtableImportOptions(BuiltinOptions): ...
class HashtableSizeOptions(BuiltinOptions): ...

class VarHandleOptions(BuiltinOptions):
    container: String = None
    shared_name: String = None

class ReadVariableOptions(BuiltinOptions): ...
class AssignVariableOptions(BuiltinOptions): ...

class RandomOptions(BuiltinOptions):
    seed: Int64 = 0
    seed2: Int64 = 0

class BucketizeOptions(BuiltinOptions):
    boundaries: FloatVector = None

class GeluOptions(BuiltinOptions):
    approximate: Bool = False

class DynamicUpdateSliceOptions(BuiltinOptions): ...
class UnsortedSegmentProdOptions(BuiltinOptions): ...
class UnsortedSegmentMaxOptions(BuiltinOptions): ...
class UnsortedSegmentMinOptions(BuiltinOptions): ...
class UnsortedSegmentSumOptions(BuiltinOptions): ...
class ATan2Options(BuiltinOptions): ...
class SignOptions(BuiltinOptions): ...
class BitcastOptions(BuiltinOptions): ...
class BitwiseXorOptions(BuiltinOptions): ...
class RightShiftOptions(BuiltinOptions): ...

class BuiltinOptions2(TableUnion):
    """Options of builtin operators that do not fit in `BuiltinOptions`."""

class StablehloConcatenateOptions(BuiltinOptions2):
    dimension: Int64 = 0

class StablehloBroadcastInDimOptions(BuiltinOptions2):
    broadcast_dimensions: LongVector = None

class StablehloSliceOptions(BuiltinOptions2):
    start_indices: LongVector = None
    limit_indices: LongVector = None
    strides: LongVector = None

class StablehloConvolutionOptions(BuiltinOptions2):
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

class StablehloCustomCallOptions(BuiltinOptions2):
    call_target_name: String = None
    has_side_effect: Bool = False
    backend_config: String = None
    api_version: Int32 = 0
    called_computations: IntVector = None
    custom_attributes: ByteVector = None

class StablehloReduceOptions(BuiltinOptions2):
    dimensions: LongVector = None
    body_subgraph_index: Int32 = 0

class StablehloScatterOptions(BuiltinOptions2):
    indices_are_sorted: Bool = False
    update_window_dims: LongVector = None
    inserted_window_dims: LongVector = None
    scatter_dims_to_operand_dims: LongVector = None
    index_vector_dim: Int64 = 0
    unique_indices: Bool = False
    update_computation_subgraph_index: Int32 = 0

class StablehloCompareOptions(BuiltinOptions2):
    comparison_direction: StablehloComparisonDirection = StablehloComparisonDirection.STABLEHLO_COMPARISON_DIRECTION_EQ
    compare_type: StablehloComparisonType = StablehloComparisonType.STABLEHLO_COMPARISON_TYPE_NOTYPE

class StablehloDynamicSliceOptions(BuiltinOptions2):
    slice_sizes: LongVector = None

class StablehloPadOptions(BuiltinOptions2):
    edge_padding_low: LongVector = None
    edge_padding_high: LongVector = None
    interior_padding: LongVector = None

class StablehloIotaOptions(BuiltinOptions2):
    iota_dimension: Int64 = 0

class StablehloDotGeneralOptions(BuiltinOptions2):
    lhs_batching_dimensions: LongVector = None
    rhs_batching_dimensions: LongVector = None
    lhs_contracting_dimensions: LongVector = None
    rhs_contracting_dimensions: LongVector = None
    precision_config: PrecisionConfigVector = None

class StablehloReduceWindowOptions(BuiltinOptions2):
    window_dimensions: LongVector = None
    window_strides: LongVector = None
    base_dilations: LongVector = None
    window_dilations: LongVector = None
    padding: LongVector = None
    body_subgraph_index: Int32 = 0

class StablehloSortOptions(BuiltinOptions2):
    dimension: Int64 = 0
    is_stable: Bool = False
    comparator_subgraph_index: Int32 = 0

class StablehloWhileOptions(BuiltinOptions2):
    cond_subgraph_index: Int32 = 0
    body_subgraph_index: Int32 = 0

class StablehloGatherOptions(BuiltinOptions2):
    offset_dims: LongVector = None
    collapsed_slice_dims: LongVector = None
    start_index_map: LongVector = None
    index_vector_dim: Int64 = 0
    slice_sizes: LongVector = None
    indices_are_sorted: Bool = False

class StablehloTransposeOptions(BuiltinOptions2):
    permutation: LongVector = None

class DilateOptions(BuiltinOptions2): ...

class StablehloRngBitGeneratorOptions(BuiltinOptions2):
    algorithm: RngAlgorithm = RngAlgorithm.DEFAULT

class ReduceWindowOptions(BuiltinOptions2):
    reduce_function: ReduceWindowFunction = ReduceWindowFunction.UNSUPPORTED

class StableHLOCompositeOptions(BuiltinOptions2):
    name: String = None
    decomposition_subgraph_index: Int32 = 0
    composite_attributes: ByteVector = None
    composite_attributes_format: CustomOptionsFormat = CustomOptionsFormat.FLEXBUFFERS
    version: Int32 = 0

class StablehloShiftLeftOptions(BuiltinOptions2): ...

class StablehloCaseOptions(BuiltinOptions2):
    branch_subgraph_indices: IntVector = None
