"""TFLite's builtin operators between Flex operators, in types that TFLM's kernels lack.

A converter that leaves some operators to TensorFlow also leaves complex numbers and unsigned quantized tensors between
its own operators, as well as operators that TFLM lacks. They are the same functions under other names.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Sequence

import numpy as np

from tflm.delegates.flex.registry import OPERATORS, Array, bound
from tflm.errors import OperatorError
from tflm.kernels.node import Node
from tflm.kernels.registration import Registration
from tflm.memory.tensor import affine_quantization
from tflm.schema.enums import ELEMENT_TYPES, ActivationFunctionType, TensorType
from tflm.schema.tables import Tensor

SAME_NAME = """
    Abs Add AddN ArgMax ArgMin Atan2 BitwiseXor BroadcastArgs BroadcastTo Ceil ComplexAbs Cos Cumsum Div Elu Equal Exp
    ExpandDims Fill Floor FloorDiv FloorMod GatherNd Greater GreaterEqual Imag Less LessEqual Log LogSoftmax LogicalAnd
    LogicalNot LogicalOr MatrixDiag MatrixSetDiag Maximum Mean Minimum Mul Neg NotEqual OneHot Pack Pad Pow Range Rank
    Real Relu Relu6 Reshape ReverseSequence ReverseV2 RightShift Round Rsqrt ScatterNd SegmentSum Select SelectV2 Shape
    Sign Sin Slice SparseToDense Split Sqrt Square SquaredDifference Squeeze StridedSlice Sub Sum Tanh Tile Transpose
    Unpack UnsortedSegmentMax UnsortedSegmentMin UnsortedSegmentProd UnsortedSegmentSum Where ZerosLike
"""
"""TensorFlow's names of operators that TFLite calls the same, in capitals and with underscores."""

TENSORFLOW_NAMES = {
    **{re.sub(r"(?<=[a-z\d])(?=[A-Z])", "_", name).upper(): name for name in SAME_NAME.split()},
    "BATCH_MATMUL": "BatchMatMulV2",
    "CONCATENATION": "Concat",
    "GATHER": "GatherV2",
    "LOCAL_RESPONSE_NORMALIZATION": "LRN",
    "LOGISTIC": "Sigmoid",
    "PADV2": "PadV2",
    "REDUCE_ALL": "All",
    "REDUCE_ANY": "Any",
    "REDUCE_MAX": "Max",
    "REDUCE_MIN": "Min",
    "REDUCE_PROD": "Prod",
    "RFFT2D": "RFFT2D",
    "SPLIT_V": "SplitV",
    "TOPK_V2": "TopKV2",
}
"""TensorFlow's name of each builtin operator that one of its functions computes."""

RENAMED_OPTIONS = {"num_splits": "num_split", "radius": "depth_radius"}
"""TensorFlow's names of attributes that TFLite's options call otherwise."""

LEADING_AXIS, TRAILING_AXIS = "CONCATENATION", "GATHER"
"""Operators whose options hold the axis that is the first or the last input of TensorFlow's operator."""

ACTIVATIONS: dict[ActivationFunctionType, Callable[[Array], Array]] = {
    ActivationFunctionType.RELU: lambda x: np.maximum(x, 0),
    ActivationFunctionType.RELU_N1_TO_1: lambda x: np.clip(x, -1, 1),
    ActivationFunctionType.RELU6: lambda x: np.clip(x, 0, 6),
    ActivationFunctionType.TANH: np.tanh,
}

FOREIGN = frozenset({TensorType.UINT8, TensorType.COMPLEX64, TensorType.COMPLEX128, TensorType.FLOAT64})
"""Types that TFLM converts neither from nor to."""


def is_left_over(node: Node, registration: Registration, tensors: Sequence[Tensor]) -> bool:
    """Whether TFLM has no kernel for a builtin operator with these types, but a function here computes it.

    Args:
        tensors: the tables of the subgraph's tensors.
    """
    if node.operator not in TENSORFLOW_NAMES and node.operator not in CONVERSIONS:
        return False
    used = [tensors[tensor] for tensor in (*node.inputs, *node.outputs) if tensor >= 0]
    is_missing = registration.bind is None and registration.invoke is None
    if node.operator in CONVERSIONS:
        return is_missing or any(table.type in FOREIGN for table in used)
    if any(affine_quantization(table) is not None for table in used):
        return False
    return is_missing or (bool(registration.types) and used[0].type not in registration.types)


def _by_channel(table: Tensor) -> tuple[Array, Array]:
    """Scales and zero points, shaped to broadcast along the quantized dimension."""
    parameters = affine_quantization(table)
    if parameters is None:
        raise OperatorError("has no scale and zero point", tensor=table.name or "")
    shape = [1] * len(table.shape or ())
    if len(parameters.scale) > 1:
        shape[parameters.quantized_dimension] = -1
    scale, zero_point = np.asarray(parameters.scale, np.float32), np.asarray(parameters.zero_point, np.int32)
    return scale.reshape(shape), zero_point.reshape(shape)


def _quantized(inputs: Sequence[Tensor], output: Tensor) -> Callable[[Array], Array]:
    dtype = ELEMENT_TYPES[output.type].dtype
    (scale, zero_point), limits = _by_channel(output), np.iinfo(dtype)

    def quantize(x: Array) -> Array:
        steps = x / scale
        rounded = np.trunc(steps + np.copysign(np.float32(0.5), steps)) + zero_point
        return np.clip(rounded, limits.min, limits.max).astype(dtype)

    return quantize


def _dequantized(inputs: Sequence[Tensor], output: Tensor) -> Callable[[Array], Array]:
    scale, zero_point = _by_channel(inputs[0])
    return lambda x: scale * (x.astype(np.int32) - zero_point)


def _cast(inputs: Sequence[Tensor], output: Tensor) -> Callable[[Array], Array]:
    dtype = ELEMENT_TYPES[output.type].dtype
    return lambda x: OPERATORS["Cast"](x, DstT=dtype)


CONVERSIONS: dict[str, Callable[[Sequence[Tensor], Tensor], Callable[[Array], Array]]] = {
    "CAST": _cast,
    "DEQUANTIZE": _dequantized,
    "QUANTIZE": _quantized,
}
"""Operators that depend on the types and the quantization of their tensors."""


def bound_builtin(node: Node, tensors: Sequence[Tensor]) -> Callable[..., tuple[Array, ...]]:
    """The function that computes a builtin operator; it takes the inputs and returns the outputs."""
    if node.operator in CONVERSIONS:
        convert = CONVERSIONS[node.operator]([tensors[i] for i in node.inputs], tensors[node.outputs[0]])
        return lambda x: (convert(x),)
    options = vars(node.builtin_options) if node.builtin_options else {}
    # A type among the options repeats that of the output, to which results are cast anyway.
    attributes = {
        RENAMED_OPTIONS.get(key, key): value
        for key, value in options.items()
        if value is not None and not isinstance(value, enum.IntEnum)
    }
    function = bound(TENSORFLOW_NAMES[node.operator], attributes)
    axis = (np.asarray(options.get("axis", 0), np.int32),)
    before, after = axis if node.operator == LEADING_AXIS else (), axis if node.operator == TRAILING_AXIS else ()
    activation = ACTIVATIONS.get(options.get("fused_activation_function", ActivationFunctionType.NONE), np.asarray)
    return lambda *inputs: tuple(map(activation, function(*before, *inputs, *after)))
