"""The version that an operator needs: for each operator conditions in order, of which the first that holds decides.

What the conditions say is the rule of TFLite's versioning tool (`op_version.cc`). Where that tool looks for an output
that the operator does not have (16-bit weights of convolutions), the operator's own output is meant here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from tflm.schema.enums import (
    BuiltinOperator,
    FullyConnectedOptionsWeightsFormat,
    LSTMKernelType,
    TensorType,
)
from tflm.schema.versioning.signature import Signature, scales_of

Condition = Callable[[Signature], bool]

BFLOAT16 = TensorType.BFLOAT16
BOOL = TensorType.BOOL
COMPLEX64 = TensorType.COMPLEX64
FLOAT16 = TensorType.FLOAT16
FLOAT32 = TensorType.FLOAT32
FLOAT64 = TensorType.FLOAT64
INT2 = TensorType.INT2
INT4 = TensorType.INT4
INT8 = TensorType.INT8
INT16 = TensorType.INT16
INT32 = TensorType.INT32
INT64 = TensorType.INT64
STRING = TensorType.STRING
UINT4 = TensorType.UINT4
UINT8 = TensorType.UINT8
UINT16 = TensorType.UINT16
UINT32 = TensorType.UINT32
FLOAT8 = (TensorType.FLOAT8_E4M3FN, TensorType.FLOAT8_E5M2)


class Rule(NamedTuple):
    """A version, what it brought, and when an operator needs it."""

    version: int
    brought: str
    holds: Condition


def input_is(*types: TensorType, index: int = 0) -> Condition:
    """An input has one of these types."""
    return lambda signature: signature.type(index) in types


def output_is(*types: TensorType) -> Condition:
    """The first output has one of these types."""
    return lambda signature: signature.output_type(0) in types


def option(name: str) -> Condition:
    """An option is set: true, not 0, not the first of its values."""
    return lambda signature: bool(signature.option(name))


def option_is(name: str, value: object) -> Condition:
    """An option has this value."""
    return lambda signature: signature.option(name) == value


def rank_above(rank: int) -> Condition:
    """The first input has more dimensions than this."""
    return lambda signature: len(signature.shape(0)) > rank


def every(*conditions: Condition) -> Condition:
    """All conditions hold."""
    return lambda signature: all(holds(signature) for holds in conditions)


def either(*conditions: Condition) -> Condition:
    """At least one condition holds."""
    return lambda signature: any(holds(signature) for holds in conditions)


def no(condition: Condition) -> Condition:
    """The condition does not hold."""
    return lambda signature: not condition(signature)


def signed(activations: TensorType, weights: TensorType, index: int = 1) -> Condition:
    """Input and output have one type, and the weights, input `index`, another."""
    return every(input_is(activations), input_is(weights, index=index), output_is(activations))


def _any_quantized(*indices: int) -> Condition:
    def holds(signature: Signature) -> bool:
        inputs = (signature.input(index) for index in indices)
        return any(tensor is not None and tensor.quantization is not None for tensor in inputs)

    return holds


def _scale_for_each_slice(index: int, dimension: int) -> Condition:
    return lambda signature: signature.has_scale_for_each_slice(index, dimension)


def _several_scales_of_slices(signature: Signature, output: bool) -> bool:
    tensor = (signature.outputs or (None,))[0] if output else signature.input(0)
    scales = scales_of(tensor)
    if tensor is None or tensor.quantization is None or len(scales) < 2:
        return False
    shape, dimension = tensor.shape or (), tensor.quantization.quantized_dimension
    return 0 <= dimension < len(shape) and shape[dimension] == len(scales)


def _grouped(signature: Signature) -> bool:
    image, weights = signature.shape(0), signature.shape(1)
    return len(image) > 3 and len(weights) > 3 and image[3] != weights[3]


def _dilated(signature: Signature) -> bool:
    return any(signature.option(name) != 1 for name in ("dilation_w_factor", "dilation_h_factor"))


def _broadcasts_beyond_four_dimensions(signature: Signature) -> bool:
    ranks = [len(signature.shape(index)) for index in range(len(signature.inputs))]
    return len(ranks) > 1 and signature.shape(0) != signature.shape(1) and max(ranks) > 4


def _rescales_by_one_or_more(signature: Signature) -> bool:
    tensors = (signature.input(0), signature.input(1), *signature.outputs[:1])
    scales = [np.float32(scales_of(tensor)[0]) for tensor in tensors if scales_of(tensor)]
    if len(scales) < 3 or 0 in scales:
        return False
    with np.errstate(all="ignore"):
        return bool(scales[0] * scales[1] / scales[2] >= 1)


def _sparse_weights(signature: Signature) -> bool:
    weights = signature.input(1)
    return weights is not None and weights.sparsity is not None


def _has_bias_input(signature: Signature) -> bool:
    return len(signature.inputs) == 4 and signature.input(3) is not None


_HYBRID = signed(FLOAT32, INT8)
_FULL_LSTM = option_is("kernel_type", LSTMKernelType.FULL)


INT8_IS_2 = Rule(2, "INT8", input_is(INT8))
INT16_IS_3 = Rule(3, "INT16", input_is(INT16))
INT16_TO_INT16_IS_3 = Rule(3, "INT16", every(input_is(INT16), output_is(INT16)))


def _by_input(*rules: tuple[int, tuple[TensorType, ...]], index: int = 0) -> tuple[Rule, ...]:
    """Rules that look at the type of one input only."""
    return tuple(
        Rule(version, " and ".join(type.name for type in types), input_is(*types, index=index))
        for version, types in rules
    )


def _either_side(*rules: tuple[int, tuple[TensorType, ...]]) -> tuple[Rule, ...]:
    """Rules that look at the types of the first input and of the output."""
    return tuple(
        Rule(version, " and ".join(type.name for type in types), either(input_is(*types), output_is(*types)))
        for version, types in rules
    )


def _hybrid_recurrent() -> tuple[Rule, ...]:
    hybrid = every(input_is(INT8, index=1), output_is(FLOAT32))
    return (
        Rule(3, "asymmetric quantization of hybrid inputs", every(hybrid, option("asymmetric_quantize_inputs"))),
        Rule(2, "INT8 weights with FLOAT32 activations", hybrid),
    )


RULES: dict[str, tuple[Rule, ...]] = {
    "CONV_2D": (
        Rule(8, "quantized_bias_type", every(signed(INT16, INT8), option("quantized_bias_type"))),
        Rule(6, "groups of channels", _grouped),
        Rule(4, "INT16 weights", signed(INT16, INT16)),
        Rule(3, "INT8", signed(INT8, INT8)),
        Rule(7, "INT4 weights", signed(INT8, INT4)),
        Rule(5, "hybrid weights with a scale for each channel", every(_HYBRID, _scale_for_each_slice(1, 0))),
        Rule(2, "INT8 weights with FLOAT32 activations", _HYBRID),
    ),
    "DEPTHWISE_CONV_2D": (
        Rule(5, "INT16 weights", signed(INT16, INT16)),
        Rule(6, "hybrid weights with a scale for each channel", every(_HYBRID, _scale_for_each_slice(1, 3))),
        Rule(4, "INT8 weights with FLOAT32 activations", _HYBRID),
        Rule(3, "INT8", signed(INT8, INT8)),
        Rule(7, "INT4 weights", signed(INT8, INT4)),
        Rule(2, "dilation", _dilated),
    ),
    "EMBEDDING_LOOKUP": (
        Rule(
            4,
            "INT4 tables and a scale for each row",
            either(
                input_is(INT4, index=1),
                every(lambda signature: len(scales_of(signature.input(1))) > 1, _scale_for_each_slice(1, 0)),
            ),
        ),
        Rule(5, "INT2 tables", input_is(INT2, index=1)),
    ),
    "FAKE_QUANT": (Rule(2, "narrow_range", option("narrow_range")),),
    "FULLY_CONNECTED": (
        Rule(14, "INT2 weights", input_is(INT2, index=1)),
        Rule(13, "INT4 weights with INT16 activations", signed(INT16, INT4)),
        Rule(12, "hybrid weights with a scale for each channel", every(_HYBRID, _scale_for_each_slice(1, 0))),
        Rule(11, "quantized_bias_type", every(signed(INT16, INT8), option("quantized_bias_type"))),
        Rule(8, "sparse weights", _sparse_weights),
        Rule(7, "INT16 weights", signed(INT16, INT16)),
        Rule(6, "no bias input", lambda signature: len(signature.inputs) == 2),
        Rule(5, "keep_num_dims", option("keep_num_dims")),
        Rule(4, "INT8", signed(INT8, INT8)),
        Rule(10, "INT4 weights", signed(INT8, INT4)),
        Rule(9, "asymmetric quantization of hybrid inputs", every(_HYBRID, option("asymmetric_quantize_inputs"))),
        Rule(3, "INT8 weights with FLOAT32 activations", _HYBRID),
        Rule(
            2,
            "shuffled weights",
            option_is("weights_format", FullyConnectedOptionsWeightsFormat.SHUFFLED4x16INT8),
        ),
    ),
    "GATHER": (
        *_by_input((8, FLOAT8), (7, (INT4,))),
        Rule(6, "INT16 indices", input_is(INT16, index=1)),
        Rule(5, "batch_dims", option("batch_dims")),
        *_by_input((4, (INT16,)), (3, (BOOL,)), (2, (INT8,))),
    ),
    "SVDF": (
        Rule(3, "INT8", input_is(INT8)),
        Rule(4, "asymmetric quantization of hybrid inputs", every(_HYBRID, option("asymmetric_quantize_inputs"))),
        Rule(2, "INT8 weights with FLOAT32 activations", _HYBRID),
    ),
    "SIGN": _by_input((2, (INT32,))),
    "SIN": _by_input((2, (FLOAT16,))),
    "COS": _by_input((2, (FLOAT16,))),
    "MUL": (
        *_by_input((8, (FLOAT16,))),
        Rule(
            7,
            "INT16 without a scale, and UINT32",
            either(every(input_is(INT16), no(_any_quantized(0, 1))), input_is(UINT32)),
        ),
        *_by_input((6, (COMPLEX64,)), (5, (INT64,)), (4, (INT16,))),
        Rule(3, "scales whose product is the output's or more", _rescales_by_one_or_more),
        INT8_IS_2,
    ),
    "MAX_POOL_2D": (INT16_TO_INT16_IS_3, INT8_IS_2),
    "AVERAGE_POOL_2D": (INT16_TO_INT16_IS_3, INT8_IS_2),
    "TRANSPOSE": (
        *_by_input((9, (FLOAT16,))),
        Rule(8, "more than 6 dimensions, and BFLOAT16", either(rank_above(6), input_is(BFLOAT16))),
        *_by_input((7, (INT4,))),
        Rule(6, "6 dimensions", rank_above(5)),
        *_by_input((5, (INT16,))),
        Rule(4, "5 dimensions", rank_above(4)),
        *_by_input((3, (BOOL,)), (2, (INT8,))),
    ),
    "TRANSPOSE_CONV": (
        Rule(5, "quantized_bias_type", every(signed(INT16, INT8), option("quantized_bias_type"))),
        Rule(4, "a fused activation", option("fused_activation_function")),
        Rule(3, "a bias", _has_bias_input),
        Rule(2, "INT8", input_is(INT8, index=1)),
    ),
    "LSTM": (
        Rule(5, "INT16 activations", every(_FULL_LSTM, signed(INT16, INT8, index=2))),
        Rule(
            4,
            "asymmetric quantization of hybrid inputs",
            every(_FULL_LSTM, signed(FLOAT32, INT8, index=2), option("asymmetric_quantize_inputs")),
        ),
        Rule(3, "INT8 weights with FLOAT32 activations", every(_FULL_LSTM, signed(FLOAT32, INT8, index=2))),
        Rule(2, "the basic kernel", option_is("kernel_type", LSTMKernelType.BASIC)),
    ),
    "SPLIT": _by_input((5, FLOAT8), (4, (INT16,)), (3, (INT32,)), (2, (INT8,)), index=1),
    "SPARSE_TO_DENSE": _by_input((3, (INT8, UINT8)), (2, (INT64,)), index=2),
    "SLICE": (
        *_by_input((8, (FLOAT16,)), (7, (INT4,)), (6, (UINT32,))),
        Rule(5, "more than 4 dimensions", rank_above(4)),
        *_by_input((4, (INT16,)), (3, (STRING,)), (2, (INT8,))),
    ),
    "UNPACK": (
        *_by_input((6, FLOAT8), (2, (INT8, UINT8)), (3, (BOOL,))),
        Rule(4, "INT16", every(input_is(INT16), output_is(INT16))),
        *_by_input((5, (FLOAT16, BFLOAT16))),
    ),
    "DEQUANTIZE": (
        *_by_input((9, FLOAT8), (8, (UINT4,)), (7, (INT2,)), (6, (INT4,)), (3, (INT16, FLOAT16))),
        Rule(
            5,
            "INT8 with a scale for each slice",
            every(input_is(INT8), lambda signature: _several_scales_of_slices(signature, output=False)),
        ),
        INT8_IS_2,
    ),
    "QUANTIZE": (
        Rule(5, "UINT4", either(input_is(UINT4), output_is(UINT4))),
        Rule(4, "INT4", either(input_is(INT4), output_is(INT4))),
        Rule(3, "a scale for each slice", lambda signature: _several_scales_of_slices(signature, output=True)),
        Rule(2, "INT16", output_is(INT16)),
    ),
    "FLOOR_DIV": _by_input((3, (INT16, INT8)), (2, (FLOAT32,))),
    "FLOOR_MOD": _by_input((2, (INT16, INT8))),
    "L2_NORMALIZATION": (Rule(2, "INT8", output_is(INT8)),),
    "ABS": (
        *_by_input((5, (INT32,))),
        Rule(3, "INT16", every(input_is(INT16), _any_quantized(0))),
        Rule(4, "INT16 without a scale", input_is(INT16)),
        *_by_input((2, (INT8, UINT8))),
    ),
    "RELU": _by_input((3, (INT16,)), (2, (INT8, UINT8))),
    "STRIDED_SLICE": (
        Rule(8, "offset", option("offset")),
        *_by_input((7, (UINT32,))),
        Rule(6, "ellipsis_mask and new_axis_mask", either(option("ellipsis_mask"), option("new_axis_mask"))),
        *_by_input((5, (STRING,))),
        Rule(4, "more than 4 dimensions", rank_above(4)),
        *_by_input((3, (BOOL,)), (2, (INT8,))),
    ),
    "REVERSE_V2": _by_input((4, FLOAT8), (3, (INT8,)), (2, (BOOL,))),
    "RESIZE_BILINEAR": (
        *_by_input((4, (INT16,))),
        Rule(3, "half_pixel_centers", option("half_pixel_centers")),
        INT8_IS_2,
    ),
    "RESIZE_NEAREST_NEIGHBOR": (
        *_by_input((4, (INT16,))),
        Rule(3, "half_pixel_centers and align_corners", either(option("half_pixel_centers"), option("align_corners"))),
        INT8_IS_2,
    ),
    **{
        name: (
            Rule(4, "INT16", every(input_is(INT16), output_is(INT16))),
            Rule(3, "broadcasting of more than 4 dimensions", _broadcasts_beyond_four_dimensions),
            INT8_IS_2,
        )
        for name in ("MAXIMUM", "MINIMUM")
    },
    "PACK": (*_by_input((5, FLOAT8), (2, (INT8,))), INT16_TO_INT16_IS_3, *_by_input((4, (UINT32,)))),
    "TILE": _by_input((3, (INT8,)), (2, (STRING,))),
    "SQUEEZE": _by_input((2, (STRING,))),
    **{
        name: (
            *_by_input((4, (INT16,))),
            Rule(3, "other numbers of dimensions than 4", lambda signature: len(signature.shape(0)) != 4),
            INT8_IS_2,
        )
        for name in ("SPACE_TO_BATCH_ND", "BATCH_TO_SPACE_ND")
    },
    "ADD": (
        *_by_input((6, (FLOAT16,))),
        Rule(5, "INT16 without a scale", every(input_is(INT16), no(_any_quantized(0)))),
        *_by_input((4, (INT64,))),
        Rule(
            3,
            "INT16 with any scale",
            every(input_is(INT16), output_is(INT16), no(option("pot_scale_int16"))),
        ),
        INT8_IS_2,
    ),
    "SUB": (
        Rule(
            5,
            "INT16 with any scale",
            every(input_is(INT16), output_is(INT16), no(option("pot_scale_int16"))),
        ),
        *_by_input((4, (INT64,))),
        Rule(3, "broadcasting of more than 4 dimensions", _broadcasts_beyond_four_dimensions),
        INT8_IS_2,
    ),
    "GATHER_ND": (
        *_by_input((6, FLOAT8), (5, (BOOL,))),
        Rule(4, "INT16 indices", input_is(INT16, index=1)),
        *_by_input((3, (INT16,)), (2, (STRING,))),
    ),
    "DIV": (Rule(2, "broadcasting of more than 4 dimensions", _broadcasts_beyond_four_dimensions),),
    "TANH": (INT16_TO_INT16_IS_3, INT8_IS_2),
    "LOGISTIC": (INT16_TO_INT16_IS_3, INT8_IS_2),
    "FILL": _by_input((5, FLOAT8), (4, (FLOAT16,)), (3, (INT8, INT16)), (2, (BOOL, STRING)), index=1),
    "EQUAL": _by_input((5, (INT16,)), (3, (STRING,)), (2, (INT8,))),
    "NOT_EQUAL": _by_input((4, (INT16,)), (3, (STRING,)), (2, (INT8,))),
    "LEAKY_RELU": _by_input((2, (INT16,))),
    "RANGE": _by_input((2, (INT64,))),
    "BATCH_MATMUL": (
        *_by_input((3, (INT16,)), (2, (INT8,))),
        Rule(4, "asymmetric quantization of hybrid inputs", every(_HYBRID, option("asymmetric_quantize_inputs"))),
    ),
    **{
        name: (
            *_by_input((6, FLOAT8), (5, (BOOL,))),
            Rule(4, "more than 4 dimensions", rank_above(4)),
            *_by_input((3, (INT16,)), (2, (INT8,))),
        )
        for name in ("PAD", "PADV2")
    },
    "CONCATENATION": _by_input((7, FLOAT8), (6, (FLOAT16,)), (5, (INT4,)), (4, (UINT32,)), (3, (INT16,)), (2, (INT8,))),
    "SOFTMAX": _by_input((4, (FLOAT16,)), (3, (INT16,)), (2, (INT8,))),
    **dict.fromkeys(("MEAN", "MIRROR_PAD", "REDUCE_MAX", "REDUCE_MIN", "RELU6", "RSQRT"), (INT16_IS_3, INT8_IS_2)),
    **{
        name: _hybrid_recurrent()
        for name in (
            "RNN",
            "UNIDIRECTIONAL_SEQUENCE_RNN",
            "BIDIRECTIONAL_SEQUENCE_RNN",
            "BIDIRECTIONAL_SEQUENCE_LSTM",
        )
    },
    "UNIDIRECTIONAL_SEQUENCE_LSTM": (
        Rule(5, "INT16 activations", signed(INT16, INT8, index=2)),
        Rule(4, "diagonal_recurrent_tensors", option("diagonal_recurrent_tensors")),
        Rule(
            3,
            "asymmetric quantization of hybrid inputs",
            every(signed(FLOAT32, INT8, index=2), option("asymmetric_quantize_inputs")),
        ),
        Rule(2, "INT8 weights with FLOAT32 activations", signed(FLOAT32, INT8, index=2)),
    ),
    "ARG_MAX": _by_input((3, (BOOL,)), (2, (INT8,))),
    "ARG_MIN": _by_input((3, (BOOL,)), (2, (INT8,))),
    "SELECT": (
        *_by_input((4, (UINT32,))),
        Rule(3, "5 dimensions", lambda signature: any(len(signature.shape(index)) == 5 for index in range(3))),
        INT8_IS_2,
    ),
    "LESS": (INT16_IS_3, INT8_IS_2),
    "GREATER_EQUAL": (INT16_IS_3, INT8_IS_2),
    "SELECT_V2": _by_input((2, (UINT32,))),
    "SPLIT_V": _by_input((3, FLOAT8), (2, (INT8,))),
    **dict.fromkeys(
        ("SPACE_TO_DEPTH", "SUM", "LOG_SOFTMAX", "GREATER", "LESS_EQUAL", "SQUARED_DIFFERENCE", "DEPTH_TO_SPACE"),
        (INT8_IS_2,),
    ),
    "TOPK_V2": (
        Rule(
            3,
            "INT16",
            either(
                input_is(INT16),
                input_is(INT16, index=1),
                lambda signature: signature.output_type(1) == INT16,
            ),
        ),
        INT8_IS_2,
    ),
    **{name: _by_input((2, (INT8, INT16))) for name in ("EXP", "LOG", "REDUCE_PROD", "SQRT")},
    "DYNAMIC_UPDATE_SLICE": (
        *_by_input((6, (BFLOAT16,)), (5, (INT4,)), (4, (INT16,)), (3, (FLOAT16,))),
        Rule(2, "INT64 indices", input_is(INT64, index=2)),
    ),
    "BROADCAST_TO": _by_input((4, FLOAT8), (3, (INT8, INT16))),
    "CAST": (
        *_either_side((9, FLOAT8), (8, (INT2, UINT4)), (7, (BFLOAT16,))),
        Rule(6, "INT4 to FLOAT32", every(input_is(INT4), output_is(FLOAT32))),
        *_either_side((5, (FLOAT64, FLOAT16)), (4, (UINT16,)), (3, (INT8,)), (2, (UINT32,))),
    ),
    "WHERE": (Rule(2, "other conditions than BOOL", no(input_is(BOOL))),),
    "GELU": _by_input((3, (FLOAT16,)), (2, (INT8, UINT8))),
}
"""The rules of each operator that has any, in the order in which they are tried."""

LOWEST_VERSIONS = {"BROADCAST_TO": 2}
"""Versions of operators where no rule holds, other than 1: the first version of BROADCAST_TO was taken back."""


def needed_version(signature: Signature) -> int:
    """The version that a builtin operator needs."""
    name = signature.operator.name
    versions = (rule.version for rule in RULES.get(name, ()) if rule.holds(signature))
    return next(versions, LOWEST_VERSIONS.get(name, 1))


def brought_by(operator: BuiltinOperator, version: int) -> str | None:
    """What a version of an operator brought, in a few words; None where no rule is about it."""
    return next((rule.brought for rule in RULES.get(operator.name, ()) if rule.version == version), None)
