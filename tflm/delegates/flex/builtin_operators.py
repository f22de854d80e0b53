"""TFLite's builtin operators that stand between Flex operators, in types that TFLM's kernels do not have.

A converter that leaves some operators to TensorFlow leaves complex numbers and unsigned quantized tensors between its
own ones, too, as well as operators that TFLM lacks. They are the same functions under other names.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tflm.delegates.flex.registry import OPERATORS, Array
from tflm.errors import OperatorError
from tflm.kernels.registration import Node, Registration
from tflm.memory.tensor import affine_quantization
from tflm.schema.element_types import ELEMENT_TYPES
from tflm.schema.enums import ActivationFunctionType, TensorType
from tflm.schema.tables import Tensor

Attributes = Callable[[Any], dict[str, Any]]
"""From the options of a builtin operator to the attributes of TensorFlow's."""


def _none(options: Any) -> dict[str, Any]:
    return {}


def _reducer(options: Any) -> dict[str, Any]:
    return {"keep_dims": options.keep_dims}


def _of(**names: str) -> Attributes:
    """Attributes that are fields of the options under other names."""
    return lambda options: {} if options is None else {ours: getattr(options, theirs) for ours, theirs in names.items()}


MASKS = ("begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask", "shrink_axis_mask")

SAME_FUNCTION: dict[str, tuple[str, Attributes]] = {
    **{
        builtin: (name, _none)
        for builtin, name in {
            "ABS": "Abs",
            "ADD": "Add",
            "ADD_N": "AddN",
            "ATAN2": "Atan2",
            "BITWISE_XOR": "BitwiseXor",
            "BROADCAST_ARGS": "BroadcastArgs",
            "BROADCAST_TO": "BroadcastTo",
            "CEIL": "Ceil",
            "COMPLEX_ABS": "ComplexAbs",
            "COS": "Cos",
            "DIV": "Div",
            "ELU": "Elu",
            "EQUAL": "Equal",
            "EXP": "Exp",
            "EXPAND_DIMS": "ExpandDims",
            "FILL": "Fill",
            "FLOOR": "Floor",
            "FLOOR_DIV": "FloorDiv",
            "FLOOR_MOD": "FloorMod",
            "GATHER_ND": "GatherNd",
            "GREATER": "Greater",
            "GREATER_EQUAL": "GreaterEqual",
            "IMAG": "Imag",
            "LESS": "Less",
            "LESS_EQUAL": "LessEqual",
            "LOG": "Log",
            "LOGICAL_AND": "LogicalAnd",
            "LOGICAL_NOT": "LogicalNot",
            "LOGICAL_OR": "LogicalOr",
            "LOGISTIC": "Sigmoid",
            "LOG_SOFTMAX": "LogSoftmax",
            "MATRIX_DIAG": "MatrixDiag",
            "MATRIX_SET_DIAG": "MatrixSetDiag",
            "MAXIMUM": "Maximum",
            "MINIMUM": "Minimum",
            "MUL": "Mul",
            "NEG": "Neg",
            "NOT_EQUAL": "NotEqual",
            "PAD": "Pad",
            "PADV2": "PadV2",
            "POW": "Pow",
            "RANGE": "Range",
            "RANK": "Rank",
            "REAL": "Real",
            "RELU": "Relu",
            "RELU6": "Relu6",
            "RESHAPE": "Reshape",
            "REVERSE_V2": "ReverseV2",
            "RFFT2D": "RFFT2D",
            "RIGHT_SHIFT": "RightShift",
            "ROUND": "Round",
            "RSQRT": "Rsqrt",
            "SCATTER_ND": "ScatterNd",
            "SEGMENT_SUM": "SegmentSum",
            "SELECT": "Select",
            "SELECT_V2": "SelectV2",
            "SHAPE": "Shape",
            "SIGN": "Sign",
            "SIN": "Sin",
            "SLICE": "Slice",
            "SPARSE_TO_DENSE": "SparseToDense",
            "SQRT": "Sqrt",
            "SQUARE": "Square",
            "SQUARED_DIFFERENCE": "SquaredDifference",
            "SUB": "Sub",
            "TANH": "Tanh",
            "TILE": "Tile",
            "TOPK_V2": "TopKV2",
            "TRANSPOSE": "Transpose",
            "UNSORTED_SEGMENT_MAX": "UnsortedSegmentMax",
            "UNSORTED_SEGMENT_MIN": "UnsortedSegmentMin",
            "UNSORTED_SEGMENT_PROD": "UnsortedSegmentProd",
            "UNSORTED_SEGMENT_SUM": "UnsortedSegmentSum",
            "WHERE": "Where",
            "ZEROS_LIKE": "ZerosLike",
        }.items()
    },
    "ARG_MAX": ("ArgMax", _none),
    "ARG_MIN": ("ArgMin", _none),
    "BATCH_MATMUL": ("BatchMatMulV2", _of(adj_x="adj_x", adj_y="adj_y")),
    "CONCATENATION": ("Concat", _none),
    "CUMSUM": ("Cumsum", _of(exclusive="exclusive", reverse="reverse")),
    "GATHER": ("GatherV2", _of(batch_dims="batch_dims")),
    "LOCAL_RESPONSE_NORMALIZATION": (
        "LRN",
        _of(depth_radius="radius", bias="bias", alpha="alpha", beta="beta"),
    ),
    "MEAN": ("Mean", _reducer),
    "ONE_HOT": ("OneHot", _of(axis="axis")),
    "PACK": ("Pack", _of(axis="axis")),
    "REDUCE_ALL": ("All", _reducer),
    "REDUCE_ANY": ("Any", _reducer),
    "REDUCE_MAX": ("Max", _reducer),
    "REDUCE_MIN": ("Min", _reducer),
    "REDUCE_PROD": ("Prod", _reducer),
    "REVERSE_SEQUENCE": ("ReverseSequence", _of(seq_dim="seq_dim", batch_dim="batch_dim")),
    "SPLIT": ("Split", _of(num_split="num_splits")),
    "SPLIT_V": ("SplitV", _none),
    "SQUEEZE": ("Squeeze", lambda options: {"squeeze_dims": list(options.squeeze_dims or ())}),
    "STRIDED_SLICE": ("StridedSlice", _of(**{mask: mask for mask in MASKS})),
    "SUM": ("Sum", _reducer),
    "UNPACK": ("Unpack", _of(axis="axis")),
}

LEADING_AXIS = frozenset({"CONCATENATION"})
TRAILING_AXIS = frozenset({"GATHER"})
"""Operators whose options hold what is an input of TensorFlow's, the first or the last."""

ACTIVATIONS: dict[ActivationFunctionType, Callable[[Array], Array]] = {
    ActivationFunctionType.RELU: lambda x: np.maximum(x, 0),
    ActivationFunctionType.RELU_N1_TO_1: lambda x: np.clip(x, -1, 1),
    ActivationFunctionType.RELU6: lambda x: np.clip(x, 0, 6),
    ActivationFunctionType.TANH: np.tanh,
}


FOREIGN = frozenset({TensorType.UINT8, TensorType.COMPLEX64, TensorType.COMPLEX128, TensorType.FLOAT64})
"""Types that TFLM does not convert from, nor to."""


def is_left_over(node: Node, registration: Registration, tensors: Sequence[Tensor]) -> bool:
    """Whether TFLM has no kernel for a builtin operator with these types, and there is a function here.

    Args:
        tensors: the tables of the subgraph's tensors.
    """
    if node.operator not in SAME_FUNCTION and node.operator not in CONVERSIONS:
        return False
    used = [tensors[tensor] for tensor in (*node.inputs, *node.outputs) if tensor >= 0]
    is_missing = registration.bind is None and registration.invoke is None
    if node.operator in CONVERSIONS:
        return is_missing or any(table.type in FOREIGN for table in used)
    if any(affine_quantization(table) is not None for table in used):
        return False
    return is_missing or (bool(registration.types) and used[0].type not in registration.types)


def _by_channel(table: Tensor) -> tuple[Array, Array]:
    """Scales and zero points, in the shape of the dimension that they count along."""
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
"""Operators that depend on the tensors themselves: their types and quantization."""


def bound_builtin(node: Node, tensors: Sequence[Tensor]) -> Callable[..., tuple[Array, ...]]:
    """What computes a builtin operator: a function of arrays, which gives a tuple of them."""
    if node.operator in CONVERSIONS:
        convert = CONVERSIONS[node.operator]([tensors[i] for i in node.inputs], tensors[node.outputs[0]])
        return lambda x: (convert(x),)
    name, attributes = SAME_FUNCTION[node.operator]
    function, options = OPERATORS[name], node.builtin_options
    given = attributes(options)
    axis = (np.asarray(getattr(options, "axis", 0), np.int32),)
    before, after = axis if node.operator in LEADING_AXIS else (), axis if node.operator in TRAILING_AXIS else ()
    activation = ACTIVATIONS.get(getattr(options, "fused_activation_function", None) or ActivationFunctionType.NONE)

    def call(*inputs: Array) -> tuple[Array, ...]:
        outputs = function(*before, *inputs, *after, **given)
        results = tuple(outputs) if isinstance(outputs, (tuple, list)) else (np.asarray(outputs, None),)
        return results if activation is None else tuple(map(activation, results))

    return call
