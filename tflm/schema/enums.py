"""The enumerations of the TFLite schema, version 3."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from tflm.schema.layout import ByteEnum, Int32Enum, UInt32Enum


class TensorType(ByteEnum):
    """Element types of a tensor."""

    FLOAT32 = 0
    FLOAT16 = 1
    INT32 = 2
    UINT8 = 3
    INT64 = 4
    STRING = 5
    BOOL = 6
    INT16 = 7
    COMPLEX64 = 8
    INT8 = 9
    FLOAT64 = 10
    COMPLEX128 = 11
    UINT64 = 12
    RESOURCE = 13
    VARIANT = 14
    UINT32 = 15
    UINT16 = 16
    INT4 = 17
    BFLOAT16 = 18
    INT2 = 19
    UINT4 = 20
    FLOAT8_E4M3FN = 21
    FLOAT8_E5M2 = 22


class DimensionType(ByteEnum):
    """How a dimension of a sparse tensor is stored."""

    DENSE = 0
    SPARSE_CSR = 1


class BuiltinOperator(Int32Enum):
    """Operators of the TFLite schema; CUSTOM ones are told apart by name."""

    ADD = 0
    AVERAGE_POOL_2D = 1
    CONCATENATION = 2
    CONV_2D = 3
    DEPTHWISE_CONV_2D = 4
    DEPTH_TO_SPACE = 5
    DEQUANTIZE = 6
    EMBEDDING_LOOKUP = 7
    FLOOR = 8
    FULLY_CONNECTED = 9
    HASHTABLE_LOOKUP = 10
    L2_NORMALIZATION = 11
    L2_POOL_2D = 12
    LOCAL_RESPONSE_NORMALIZATION = 13
    LOGISTIC = 14
    LSH_PROJECTION = 15
    LSTM = 16
    MAX_POOL_2D = 17
    MUL = 18
    RELU = 19
    RELU_N1_TO_1 = 20
    RELU6 = 21
    RESHAPE = 22
    RESIZE_BILINEAR = 23
    RNN = 24
    SOFTMAX = 25
    SPACE_TO_DEPTH = 26
    SVDF = 27
    TANH = 28
    CONCAT_EMBEDDINGS = 29
    SKIP_GRAM = 30
    CALL = 31
    CUSTOM = 32
    EMBEDDING_LOOKUP_SPARSE = 33
    PAD = 34
    UNIDIRECTIONAL_SEQUENCE_RNN = 35
    GATHER = 36
    BATCH_TO_SPACE_ND = 37
    SPACE_TO_BATCH_ND = 38
    TRANSPOSE = 39
    MEAN = 40
    SUB = 41
    DIV = 42
    SQUEEZE = 43
    UNIDIRECTIONAL_SEQUENCE_LSTM = 44
    STRIDED_SLICE = 45
    BIDIRECTIONAL_SEQUENCE_RNN = 46
    EXP = 47
    TOPK_V2 = 48
    SPLIT = 49
    LOG_SOFTMAX = 50
    DELEGATE = 51
    BIDIRECTIONAL_SEQUENCE_LSTM = 52
    CAST = 53
    PRELU = 54
    MAXIMUM = 55
    ARG_MAX = 56
    MINIMUM = 57
    LESS = 58
    NEG = 59
    PADV2 = 60
    GREATER = 61
    GREATER_EQUAL = 62
    LESS_EQUAL = 63
    SELECT = 64
    SLICE = 65
    SIN = 66
    TRANSPOSE_CONV = 67
    SPARSE_TO_DENSE = 68
    TILE = 69
    EXPAND_DIMS = 70
    EQUAL = 71
    NOT_EQUAL = 72
    LOG = 73
    SUM = 74
    SQRT = 75
    RSQRT = 76
    SHAPE = 77
    POW = 78
    ARG_MIN = 79
    FAKE_QUANT = 80
    REDUCE_PROD = 81
    REDUCE_MAX = 82
    PACK = 83
    LOGICAL_OR = 84
    ONE_HOT = 85
    LOGICAL_AND = 86
    LOGICAL_NOT = 87
    UNPACK = 88
    REDUCE_MIN = 89
    FLOOR_DIV = 90
    REDUCE_ANY = 91
    SQUARE = 92
    ZEROS_LIKE = 93
    FILL = 94
    FLOOR_MOD = 95
    RANGE = 96
    RESIZE_NEAREST_NEIGHBOR = 97
    LEAKY_RELU = 98
    SQUARED_DIFFERENCE = 99
    MIRROR_PAD = 100
    ABS = 101
    SPLIT_V = 102
    UNIQUE = 103
    CEIL = 104
    REVERSE_V2 = 105
    ADD_N = 106
    GATHER_ND = 107
    COS = 108
    WHERE = 109
    RANK = 110
    ELU = 111
    REVERSE_SEQUENCE = 112
    MATRIX_DIAG = 113
    QUANTIZE = 114
    MATRIX_SET_DIAG = 115
    ROUND = 116
    HARD_SWISH = 117
    IF = 118
    WHILE = 119
    NON_MAX_SUPPRESSION_V4 = 120
    NON_MAX_SUPPRESSION_V5 = 121
    SCATTER_ND = 122
    SELECT_V2 = 123
    DENSIFY = 124
    SEGMENT_SUM = 125
    BATCH_MATMUL = 126
    PLACEHOLDER_FOR_GREATER_OP_CODES = 127
    CUMSUM = 128
    CALL_ONCE = 129
    BROADCAST_TO = 130
    RFFT2D = 131
    CONV_3D = 132
    IMAG = 133
    REAL = 134
    COMPLEX_ABS = 135
    HASHTABLE = 136
    HASHTABLE_FIND = 137
    HASHTABLE_IMPORT = 138
    HASHTABLE_SIZE = 139
    REDUCE_ALL = 140
    CONV_3D_TRANSPOSE = 141
    VAR_HANDLE = 142
    READ_VARIABLE = 143
    ASSIGN_VARIABLE = 144
    BROADCAST_ARGS = 145
    RANDOM_STANDARD_NORMAL = 146
    BUCKETIZE = 147
    RANDOM_UNIFORM = 148
    MULTINOMIAL = 149
    GELU = 150
    DYNAMIC_UPDATE_SLICE = 151
    RELU_0_TO_1 = 152
    UNSORTED_SEGMENT_PROD = 153
    UNSORTED_SEGMENT_MAX = 154
    UNSORTED_SEGMENT_SUM = 155
    ATAN2 = 156
    UNSORTED_SEGMENT_MIN = 157
    SIGN = 158
    BITCAST = 159
    BITWISE_XOR = 160
    RIGHT_SHIFT = 161
    STABLEHLO_LOGISTIC = 162
    STABLEHLO_ADD = 163
    STABLEHLO_DIVIDE = 164
    STABLEHLO_MULTIPLY = 165
    STABLEHLO_MAXIMUM = 166
    STABLEHLO_RESHAPE = 167
    STABLEHLO_CLAMP = 168
    STABLEHLO_CONCATENATE = 169
    STABLEHLO_BROADCAST_IN_DIM = 170
    STABLEHLO_CONVOLUTION = 171
    STABLEHLO_SLICE = 172
    STABLEHLO_CUSTOM_CALL = 173
    STABLEHLO_REDUCE = 174
    STABLEHLO_ABS = 175
    STABLEHLO_AND = 176
    STABLEHLO_COSINE = 177
    STABLEHLO_EXPONENTIAL = 178
    STABLEHLO_FLOOR = 179
    STABLEHLO_LOG = 180
    STABLEHLO_MINIMUM = 181
    STABLEHLO_NEGATE = 182
    STABLEHLO_OR = 183
    STABLEHLO_POWER = 184
    STABLEHLO_REMAINDER = 185
    STABLEHLO_RSQRT = 186
    STABLEHLO_SELECT = 187
    STABLEHLO_SUBTRACT = 188
    STABLEHLO_TANH = 189
    STABLEHLO_SCATTER = 190
    STABLEHLO_COMPARE = 191
    STABLEHLO_CONVERT = 192
    STABLEHLO_DYNAMIC_SLICE = 193
    STABLEHLO_DYNAMIC_UPDATE_SLICE = 194
    STABLEHLO_PAD = 195
    STABLEHLO_IOTA = 196
    STABLEHLO_DOT_GENERAL = 197
    STABLEHLO_REDUCE_WINDOW = 198
    STABLEHLO_SORT = 199
    STABLEHLO_WHILE = 200
    STABLEHLO_GATHER = 201
    STABLEHLO_TRANSPOSE = 202
    DILATE = 203
    STABLEHLO_RNG_BIT_GENERATOR = 204
    REDUCE_WINDOW = 205
    STABLEHLO_COMPOSITE = 206
    STABLEHLO_SHIFT_LEFT = 207
    STABLEHLO_CBRT = 208
    STABLEHLO_CASE = 209


class StablehloPrecisionConfig(UInt32Enum):
    """Precision asked of a StableHLO product."""

    DEFAULT = 0
    HIGH = 1
    HIGHEST = 2


class StablehloComparisonDirection(UInt32Enum):
    """Relation tested by a StableHLO comparison."""

    STABLEHLO_COMPARISON_DIRECTION_EQ = 0
    STABLEHLO_COMPARISON_DIRECTION_NE = 1
    STABLEHLO_COMPARISON_DIRECTION_GE = 2
    STABLEHLO_COMPARISON_DIRECTION_GT = 3
    STABLEHLO_COMPARISON_DIRECTION_LE = 4
    STABLEHLO_COMPARISON_DIRECTION_LT = 5


class StablehloComparisonType(UInt32Enum):
    """Order used by a StableHLO comparison."""

    STABLEHLO_COMPARISON_TYPE_NOTYPE = 0
    STABLEHLO_COMPARISON_TYPE_FLOAT = 1
    STABLEHLO_COMPARISON_TYPE_FLOAT_TOTAL_ORDER = 2
    STABLEHLO_COMPARISON_TYPE_SIGNED = 3
    STABLEHLO_COMPARISON_TYPE_UNSIGNED = 4


class RngAlgorithm(ByteEnum):
    """Random number generators."""

    DEFAULT = 0
    PHILOX = 1
    THREEFRY = 2


class Padding(ByteEnum):
    """How a sliding window treats the border."""

    SAME = 0
    VALID = 1


class ActivationFunctionType(ByteEnum):
    """Activation function fused into an operator."""

    NONE = 0
    RELU = 1
    RELU_N1_TO_1 = 2
    RELU6 = 3
    TANH = 4
    SIGN_BIT = 5


class LSHProjectionType(ByteEnum):
    """Kinds of locality-sensitive projection."""

    UNKNOWN = 0
    SPARSE = 1
    DENSE = 2


class FullyConnectedOptionsWeightsFormat(ByteEnum):
    """Order of the weights in memory."""

    DEFAULT = 0
    SHUFFLED4x16INT8 = 1


class LSTMKernelType(ByteEnum):
    """Kinds of LSTM cell."""

    FULL = 0
    BASIC = 1


class CombinerType(ByteEnum):
    """How embeddings are combined."""

    SUM = 0
    MEAN = 1
    SQRTN = 2


class MirrorPadMode(ByteEnum):
    """Whether mirror padding repeats the border value."""

    REFLECT = 0
    SYMMETRIC = 1


class ReduceWindowFunction(Int32Enum):
    """Functions of the deprecated REDUCE_WINDOW."""

    UNSUPPORTED = 0
    ADD = 1
    MUL = 2
    MINIMUM = 3
    MAXIMUM = 4
    ALL = 5
    ANY = 6


class CustomOptionsFormat(ByteEnum):
    """Encodings of custom options."""

    FLEXBUFFERS = 0


class ElementType(NamedTuple):
    """One element: `bits` in a file (0 if variable), `dtype` of a numpy view of it.

    Types of less than a byte are packed in a file, low bits first, and viewed as the packed bytes. Types that numpy
    lacks are viewed as unsigned integers of their size.
    """

    bits: int
    dtype: np.dtype[Any]

    def packed_bytes(self, shape: tuple[int, ...]) -> int:
        """Bytes that a constant of `shape` takes in a file."""
        return (math.prod(shape) * self.bits + 7) // 8


def _element(bits: int, dtype: str) -> ElementType:
    return ElementType(bits, np.dtype(dtype))


ELEMENT_TYPES: dict[TensorType, ElementType] = {
    TensorType.FLOAT32: _element(32, "<f4"),
    TensorType.FLOAT16: _element(16, "<f2"),
    TensorType.INT32: _element(32, "<i4"),
    TensorType.UINT8: _element(8, "u1"),
    TensorType.INT64: _element(64, "<i8"),
    TensorType.STRING: _element(0, "u1"),
    TensorType.BOOL: _element(8, "?"),
    TensorType.INT16: _element(16, "<i2"),
    TensorType.COMPLEX64: _element(64, "<c8"),
    TensorType.INT8: _element(8, "i1"),
    TensorType.FLOAT64: _element(64, "<f8"),
    TensorType.COMPLEX128: _element(128, "<c16"),
    TensorType.UINT64: _element(64, "<u8"),
    TensorType.RESOURCE: _element(32, "<i4"),
    TensorType.VARIANT: _element(0, "u1"),
    TensorType.UINT32: _element(32, "<u4"),
    TensorType.UINT16: _element(16, "<u2"),
    TensorType.INT4: _element(4, "i1"),
    TensorType.BFLOAT16: _element(16, "<u2"),
    TensorType.INT2: _element(2, "u1"),
    TensorType.UINT4: _element(4, "u1"),
    TensorType.FLOAT8_E4M3FN: _element(8, "u1"),
    TensorType.FLOAT8_E5M2: _element(8, "u1"),
}

TENSOR_TYPES: dict[np.dtype[Any], TensorType] = {
    ELEMENT_TYPES[kind].dtype: kind
    for kind in (
        TensorType.FLOAT32,
        TensorType.FLOAT16,
        TensorType.FLOAT64,
        TensorType.INT8,
        TensorType.INT16,
        TensorType.INT32,
        TensorType.INT64,
        TensorType.UINT8,
        TensorType.UINT16,
        TensorType.UINT32,
        TensorType.UINT64,
        TensorType.BOOL,
        TensorType.COMPLEX64,
        TensorType.COMPLEX128,
    )
}
"""The tensor type that holds elements of a numpy dtype."""
