"""Cases in which CMSIS-NN, as TFLM uses it, returns other results than TFLM's kernels, rejects operators, or corrupts
memory.

Three of these have registrations that reproduce the build's results.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from types import MappingProxyType

import numpy as np

from tflm.kernels.arithmetic.requantization import OutputStage
from tflm.kernels.layers.geometry import paddings
from tflm.kernels.node import KernelContext, Node
from tflm.kernels.reference import fully_connected, svdf
from tflm.kernels.reference import unidirectional_sequence_lstm as lstm
from tflm.kernels.reference.convolution import TRANSPOSE_INPUTS
from tflm.kernels.registration import Registration, Run
from tflm.libraries.cmsis_nn_scratch import REVERSED_FROM_CHANNELS, has_mve
from tflm.libraries.kernel_library import Concern, Effect, Version
from tflm.schema.enums import ActivationFunctionType, TensorType
from tflm.schema.options import FullyConnectedOptions, TransposeConvOptions

NEW_LSTM = "0ec823ed2"
"""The commit of TFLM from which its glue code calls the LSTM that loses its state."""

INT8_MOVEMENT = "392b78f2f"
"""The commit from which it calls kernels for TRANSPOSE and PAD of int8."""

# --- An LSTM that loses its state --------------------------------------------------------------------------------


def forgetful_lstm(registration: Registration) -> Registration:
    """With integers, every invoke starts with a state of zero; the variables are neither read nor written."""

    def bind(context: KernelContext, node: Node) -> Run:
        assert registration.bind is not None
        run = registration.bind(context, node)
        if node.eval_input(lstm.INPUT).type == TensorType.FLOAT32 or not node.release.holds(NEW_LSTM):
            return run
        variables = [node.eval_input(place).elements for place in (lstm.HIDDEN_STATE, lstm.CELL_STATE)]
        kept = [variable.copy() for variable in variables]
        zeros = node.op_data.hidden_zero_point, 0

        def forget_and_run() -> None:
            for variable, value, zero in zip(variables, kept, zeros):
                np.copyto(value, variable)
                variable.fill(zero)
            run()
            for variable, value in zip(variables, kept):
                np.copyto(variable, value)

        return forget_and_run

    return replace(registration, bind=bind)


def _has_variable_weights(node: Node) -> bool:
    places = *lstm.INPUT_WEIGHTS, *lstm.RECURRENT_WEIGHTS, *lstm.BIASES
    return not all(node.input(place).is_constant for place in places)


# --- SVDF with a state of int8 -----------------------------------------------------------------------------------


def svdf_of_int8_state(registration: Registration) -> Registration:
    """The zero point of the state is ignored, and new values saturate at 16 bits before they are stored in 8."""

    def prepare(context: KernelContext, node: Node) -> None:
        assert registration.prepare is not None
        registration.prepare(context, node)
        if _has_int8_state(node):
            op: svdf.OpDataSvdf = node.op_data
            to_state = replace(op.to_state, stage=OutputStage.whole(0, np.int16))
            node.op_data = replace(op, to_state=to_state, state_zero_point=0)

    return replace(registration, prepare=prepare)


def _has_int8_state(node: Node) -> bool:
    is_integer = node.input(svdf.INPUT).type == TensorType.INT8
    return is_integer and node.input(svdf.WEIGHTS_TIME).type == TensorType.INT8


def _has_variable_features_on_mve(node: Node) -> bool:
    is_integer = node.input(svdf.INPUT).type == TensorType.INT8
    return is_integer and "mve" in node.target.extensions and not node.input(svdf.WEIGHTS_FEATURE).is_constant


# --- TRANSPOSE_CONV without its activation -----------------------------------------------------------------------


def transpose_conv_without_activation(registration: Registration) -> Registration:
    """With integers, the fused activation is ignored."""

    def prepare(context: KernelContext, node: Node) -> None:
        options = node.options(TransposeConvOptions)
        if options is not None and _is_integer_transpose_conv_input(node):
            node.builtin_options = replace(options, fused_activation_function=ActivationFunctionType.NONE)
        assert registration.prepare is not None
        registration.prepare(context, node)

    return replace(registration, prepare=prepare)


def _is_integer_transpose_conv_input(node: Node) -> bool:
    place = TRANSPOSE_INPUTS.input
    return node.has_input(place) and node.eval_input(place).type != TensorType.FLOAT32


def _is_integer_transpose_conv_with_activation(node: Node) -> bool:
    is_integer = node.input(TRANSPOSE_INPUTS.input).type != TensorType.FLOAT32
    return is_integer and node.options(TransposeConvOptions).fused_activation_function != ActivationFunctionType.NONE


def _is_int16_transpose_conv_without_bias(node: Node) -> bool:
    operands = TRANSPOSE_INPUTS
    return node.input(operands.input).type == TensorType.INT16 and not node.has_input(operands.bias)


# --- Others ------------------------------------------------------------------------------------------------------


def _is_int16_fully_connected(node: Node) -> bool:
    return node.input(fully_connected.INPUT).type == TensorType.INT16


def _has_int32_bias(node: Node) -> bool:
    if not _is_int16_fully_connected(node) or not node.has_input(fully_connected.BIAS):
        return False
    return node.input(fully_connected.BIAS).type == TensorType.INT32


def _takes_32_bits_without_bias(node: Node) -> bool:
    has_bias = node.has_input(fully_connected.BIAS)
    asks = node.options(FullyConnectedOptions).quantized_bias_type == TensorType.INT32
    return _is_int16_fully_connected(node) and not has_bias and asks


def _is_int16_by_row(node: Node) -> bool:
    weights = node.input(fully_connected.WEIGHTS)
    return _is_int16_fully_connected(node) and fully_connected.has_scale_for_each_row(weights)


def _has_rank_above_4(node: Node) -> bool:
    return any(len(node.input(place).dims) > 4 for place in range(node.input_count) if node.has_input(place))


def _is_int8_of_rank_above_4(node: Node) -> bool:
    return node.input(0).type == TensorType.INT8 and len(node.input(0).dims) > 4


BEHAVIOUR = MappingProxyType(
    {
        "UNIDIRECTIONAL_SEQUENCE_LSTM": forgetful_lstm,
        "SVDF": svdf_of_int8_state,
        "TRANSPOSE_CONV": transpose_conv_without_activation,
    }
)

CONCERNS = (
    Concern(
        "UNIDIRECTIONAL_SEQUENCE_LSTM",
        Effect.DIFFERS,
        lambda node: node.input(lstm.INPUT).type != TensorType.FLOAT32,
        "Its state is lost: every invoke starts with a hidden state and a cell state of zero, and the state variables "
        "are neither read nor written. Only the first invoke is right.",
        "Pass the whole sequence in one invoke, or build with TFLM's reference kernel.",
        shown=True,
        since=NEW_LSTM,
    ),
    Concern(
        "UNIDIRECTIONAL_SEQUENCE_LSTM",
        Effect.REFUSED,
        _has_variable_weights,
        "Its weights and biases must be constants of the model.",
        "Make them constants, or build it with TFLM's reference kernel.",
    ),
    Concern(
        "SVDF",
        Effect.DIFFERS,
        _has_int8_state,
        "With an int8 state, the zero point of the state is ignored, and values that do not fit 8 bits wrap around "
        "instead of saturating.",
        "Convert the model with an int16 state, or build with TFLM's reference kernel.",
        shown=True,
    ),
    Concern(
        "SVDF",
        Effect.REFUSED,
        _has_variable_features_on_mve,
        "The weights over the input must be a constant of the model.",
        "Make them a constant, or build for size, or with TFLM's reference kernel.",
    ),
    Concern(
        "TRANSPOSE_CONV",
        Effect.DIFFERS,
        _is_integer_transpose_conv_with_activation,
        "Its fused activation is ignored, so outputs are not clipped.",
        "Use a separate activation operator.",
        shown=True,
    ),
    Concern(
        "TRANSPOSE_CONV",
        Effect.REFUSED,
        _is_int16_transpose_conv_without_bias,
        "An int16 operator without a bias fails to prepare.",
        "Add a bias of zeros.",
    ),
    Concern(
        "FULLY_CONNECTED",
        Effect.DIFFERS,
        _has_int32_bias,
        "With int16 activations, its int32 bias is read as int64: results are wrong.",
        "Convert the model with biases of int64.",
    ),
    Concern(
        "FULLY_CONNECTED",
        Effect.DIFFERS,
        _takes_32_bits_without_bias,
        "It accumulates in 64 bits instead of the 32 in its options: sums that overflow differ.",
        "Nothing, unless sums overflow.",
    ),
    Concern(
        "FULLY_CONNECTED",
        Effect.REFUSED,
        _is_int16_by_row,
        "With int16 activations, per-row scales of the weights are not supported.",
        "Quantize the weights with one scale, or build it with TFLM's reference kernel.",
        since="47b545074",
    ),
    Concern(
        "BATCH_MATMUL",
        Effect.REFUSED,
        _has_rank_above_4,
        "It supports only 2 to 4 dimensions.",
        "Reshape its inputs, or build it with TFLM's reference kernel.",
    ),
    Concern(
        "TRANSPOSE",
        Effect.REFUSED,
        _is_int8_of_rank_above_4,
        "With int8, it supports at most 4 dimensions.",
        "Reshape its input, or build it with TFLM's reference kernel.",
        since=INT8_MOVEMENT,
    ),
    *(
        Concern(
            operator,
            Effect.BREAKS,
            _has_rank_above_4,
            "With more than 4 dimensions it never returns.",
            "Reshape its inputs to 4 dimensions, or build it with TFLM's reference kernel.",
            since="740cef388",
        )
        for operator in ("MAXIMUM", "MINIMUM")
    ),
    *(
        Concern(
            operator,
            Effect.DIFFERS,
            _is_int8_of_rank_above_4,
            "With int8, it uses only the last 4 dimensions.",
            "Reshape its input to 4 dimensions, or build it with TFLM's reference kernel.",
            since=INT8_MOVEMENT,
        )
        for operator in ("PAD", "PADV2")
    ),
)


def _misaligned_rows(node: Node) -> bool:
    """For int8, unless run as a CONV_2D with the reversed filter; the padding is that of a CONV_2D from y to x."""
    operands = TRANSPOSE_INPUTS
    x, f, y = node.input(operands.input), node.input(operands.weights), node.output(0)
    options = node.options(TransposeConvOptions)
    strides = options.stride_h, options.stride_w
    is_reversed = max(strides) <= 2 and x.dims[3] > REVERSED_FROM_CHANNELS
    padding = paddings(options.padding, y.dims[1:3], f.dims[1:3], strides, (1, 1))
    return x.type == TensorType.INT8 and not is_reversed and padding[0] % strides[0] != 0


def defects(version: Version) -> Iterator[Concern]:
    """The concerns about a model that follow from defects of a library version."""
    if version.since("v7.0.0") and version.before("99f736a6"):
        yield Concern(
            "TRANSPOSE_CONV",
            Effect.DIFFERS,
            _misaligned_rows,
            "With int8 and a top padding that is not a multiple of the stride, rows are added up at the wrong places "
            "(CMSIS-NN v7.0.0 to 4ab83cc3; fixed in 4a8f5b5d of 2026-07-14, which no TFLM is built with yet).",
            "Use a filter or stride whose padding is a multiple of the stride, or build with a later CMSIS-NN, or with "
            "TFLM's reference kernel.",
        )
    if version.before("v4.1.0"):
        yield Concern(
            "SVDF",
            Effect.BREAKS,
            _stores_three_filters_as_four,
            "With Helium and a state of int8, a column of three filters is stored as one of four, which overwrites "
            "the state of the next filter or the memory after it (CMSIS-NN before v4.1.0; fixed in v4.1.0).",
            "Build with CMSIS-NN v4.1.0 or later, or with TFLM's reference kernel.",
        )


def _stores_three_filters_as_four(node: Node) -> bool:
    filters, columns = node.input(svdf.WEIGHTS_TIME).dims[:2]
    return _has_int8_state(node) and has_mve(node.target) and filters >= 3 and columns > 1
