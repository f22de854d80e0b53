"""Where CMSIS-NN, as TFLM builds it in, answers otherwise than TFLM's kernels, refuses what they take, or breaks.

For three of these there are registrations that answer as that build does, so that a person sees it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from types import MappingProxyType

import numpy as np

from tflm.kernels.layers.geometry import paddings
from tflm.kernels.reference import fully_connected, svdf, transpose_conv
from tflm.kernels.reference import unidirectional_sequence_lstm as lstm
from tflm.kernels.registration import KernelContext, Node, Registration, Run
from tflm.kernels.requests import NodeView
from tflm.libraries.cmsis_nn_scratch import REVERSED_FROM_CHANNELS, has_mve
from tflm.libraries.kernel_library import Concern, Effect
from tflm.libraries.versions import Version
from tflm.schema.enums import ActivationFunctionType, TensorType
from tflm.schema.options import FullyConnectedOptions, TransposeConvOptions

NEW_LSTM = "0ec823ed2"
"""The commit of TFLM from which its glue calls the kernel that forgets."""

INT8_MOVEMENT = "392b78f2f"
"""The commit from which it calls kernels for TRANSPOSE and PAD of int8."""

# --- An LSTM that forgets ----------------------------------------------------------------------------------------


def forgetful_lstm(registration: Registration) -> Registration:
    """Of integers, every invoke begins with a state of zero; the variables are neither read nor written."""

    def bind(context: KernelContext, node: Node) -> Run:
        assert registration.bind is not None
        run = registration.bind(context, node)
        if context.get_eval_input(node, lstm.INPUT).type == TensorType.FLOAT32 or not context.release.holds(NEW_LSTM):
            return run
        variables = [context.get_eval_input(node, place).elements for place in (lstm.HIDDEN_STATE, lstm.CELL_STATE)]
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


def _is_integer_lstm(node: NodeView) -> bool:
    return node.input(lstm.INPUT).type != TensorType.FLOAT32


def _has_variable_weights(node: NodeView) -> bool:
    places = *lstm.INPUT_WEIGHTS, *lstm.RECURRENT_WEIGHTS, *lstm.BIASES
    return not all(node.input(place).is_constant for place in places)


# --- SVDF with a state of int8 -----------------------------------------------------------------------------------


def svdf_of_int8_state(registration: Registration) -> Registration:
    """The zero point of the state is left out, and a new column saturates at 16 bits before it is stored in 8."""

    def prepare(context: KernelContext, node: Node) -> None:
        assert registration.prepare is not None
        registration.prepare(context, node)
        if isinstance(node.op_data, svdf.OpData) and node.op_data.column == np.int8:
            node.op_data = replace(node.op_data, state_zero_point=0, column=np.dtype(np.int16))

    def bind(context: KernelContext, node: Node) -> Run:
        assert registration.bind is not None
        return registration.bind(context, node)

    return replace(registration, prepare=prepare, bind=bind)


def _has_int8_state(node: NodeView) -> bool:
    is_integer = node.input(svdf.INPUT).type == TensorType.INT8
    return is_integer and node.input(svdf.WEIGHTS_TIME).type == TensorType.INT8


def _has_variable_features_on_mve(node: NodeView) -> bool:
    is_integer = node.input(svdf.INPUT).type == TensorType.INT8
    return is_integer and "mve" in node.target.extensions and not node.input(svdf.WEIGHTS_FEATURE).is_constant


# --- TRANSPOSE_CONV without its activation -----------------------------------------------------------------------


def transpose_conv_without_activation(registration: Registration) -> Registration:
    """Of integers, the fused activation is left out."""

    def prepare(context: KernelContext, node: Node) -> None:
        options = node.options(TransposeConvOptions)
        if options is not None and _is_integer_transpose_conv_input(context, node):
            node.builtin_options = replace(options, fused_activation_function=ActivationFunctionType.NONE)
        assert registration.prepare is not None
        registration.prepare(context, node)

    return replace(registration, prepare=prepare)


def _is_integer_transpose_conv_input(context: KernelContext, node: Node) -> bool:
    place = transpose_conv.OPERANDS.input
    return node.has_input(place) and context.get_eval_input(node, place).type != TensorType.FLOAT32


def _is_integer_transpose_conv_with_activation(node: NodeView) -> bool:
    is_integer = node.input(transpose_conv.OPERANDS.input).type != TensorType.FLOAT32
    return is_integer and node.options(TransposeConvOptions).fused_activation_function != ActivationFunctionType.NONE


def _is_int16_transpose_conv_without_bias(node: NodeView) -> bool:
    operands = transpose_conv.OPERANDS
    return node.input(operands.input).type == TensorType.INT16 and not node.has_input(operands.bias)


# --- Others ------------------------------------------------------------------------------------------------------


def _is_int16_fully_connected(node: NodeView) -> bool:
    return node.input(fully_connected.INPUT).type == TensorType.INT16


def _has_int32_bias(node: NodeView) -> bool:
    if not _is_int16_fully_connected(node) or not node.has_input(fully_connected.BIAS):
        return False
    return node.input(fully_connected.BIAS).type == TensorType.INT32


def _takes_32_bits_without_bias(node: NodeView) -> bool:
    has_bias = node.has_input(fully_connected.BIAS)
    asks = node.options(FullyConnectedOptions).quantized_bias_type == TensorType.INT32
    return _is_int16_fully_connected(node) and not has_bias and asks


def _is_int16_by_row(node: NodeView) -> bool:
    weights = node.input(fully_connected.WEIGHTS)
    return _is_int16_fully_connected(node) and fully_connected.has_scale_for_each_row(weights)


def _has_rank_above_4(node: NodeView) -> bool:
    return any(len(node.input(place).dims) > 4 for place in range(node.input_count) if node.has_input(place))


def _is_int8_of_rank_above_4(node: NodeView) -> bool:
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
        _is_integer_lstm,
        "It forgets: every invoke begins with a hidden state and a cell state of zero, and the state variables are "
        "neither read nor written. The first invoke is right, later ones are not.",
        "Give it the whole sequence in one invoke, or build it with TFLM's reference kernel.",
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
        "With a state of int8, the zero point of the state is left out, and what does not fit into 8 bits wraps around "
        "instead of saturating.",
        "Convert the model with a state of int16, or build it with TFLM's reference kernel.",
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
        "Its fused activation is left out: what should be clipped is not.",
        "Put the activation behind it as an operator of its own.",
        shown=True,
    ),
    Concern(
        "TRANSPOSE_CONV",
        Effect.REFUSED,
        _is_int16_transpose_conv_without_bias,
        "Of int16 it can't be prepared without a bias.",
        "Give it a bias, of zeros if there is none.",
    ),
    Concern(
        "FULLY_CONNECTED",
        Effect.DIFFERS,
        _has_int32_bias,
        "Of int16, its bias of int32 is read as if it had 64 bits: results are wrong.",
        "Convert the model with biases of int64.",
    ),
    Concern(
        "FULLY_CONNECTED",
        Effect.DIFFERS,
        _takes_32_bits_without_bias,
        "It accumulates in 64 bits, not in the 32 that its options ask for: sums that overflow differ.",
        "Nothing, unless sums overflow.",
    ),
    Concern(
        "FULLY_CONNECTED",
        Effect.REFUSED,
        _is_int16_by_row,
        "Of int16, its weights can't have a scale for each row.",
        "Quantize the weights with one scale, or build it with TFLM's reference kernel.",
        since="47b545074",
    ),
    Concern(
        "BATCH_MATMUL",
        Effect.REFUSED,
        _has_rank_above_4,
        "It takes 2 to 4 dimensions.",
        "Reshape what it multiplies, or build it with TFLM's reference kernel.",
    ),
    Concern(
        "TRANSPOSE",
        Effect.REFUSED,
        _is_int8_of_rank_above_4,
        "Of int8 it takes 4 dimensions at the most.",
        "Reshape what it transposes, or build it with TFLM's reference kernel.",
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
            "Of int8 it looks at the last 4 dimensions only.",
            "Reshape what it pads to 4 dimensions, or build it with TFLM's reference kernel.",
            since=INT8_MOVEMENT,
        )
        for operator in ("PAD", "PADV2")
    ),
)


def _misaligned_rows(node: NodeView) -> bool:
    """Of int8, and not run as a CONV_2D of the reversed filter; the padding is that of a CONV_2D back to x."""
    operands = transpose_conv.OPERANDS
    x, f, y = node.input(operands.input), node.input(operands.weights), node.output(0)
    options = node.options(TransposeConvOptions)
    strides = options.stride_h, options.stride_w
    is_reversed = max(strides) <= 2 and x.dims[3] > REVERSED_FROM_CHANNELS
    padding = paddings(options.padding, y.dims[1:3], f.dims[1:3], strides, (1, 1))
    return x.type == TensorType.INT8 and not is_reversed and padding[0] % strides[0] != 0


def defects(version: Version) -> Iterator[Concern]:
    """What defects of a version of the library mean for a model."""
    if version.since("v7.0.0") and version.before("99f736a6"):
        yield Concern(
            "TRANSPOSE_CONV",
            Effect.DIFFERS,
            _misaligned_rows,
            "Of int8, with a padding above that is no multiple of the stride, rows are added up at the wrong places "
            "(CMSIS-NN v7.0.0 to 4ab83cc3; fixed in 4a8f5b5d of 2026-07-14, which no TFLM is built with yet).",
            "Use a filter or stride whose padding is a multiple of the stride, or build with a later CMSIS-NN, or with "
            "TFLM's reference kernel.",
        )
    if version.before("v4.1.0"):
        yield Concern(
            "SVDF",
            Effect.BREAKS,
            _stores_three_filters_as_four,
            "With Helium and a state of int8, a column of three filters is stored as one of four, which overwrites the "
            "state of the next filter or what lies behind it (CMSIS-NN before v4.1.0; fixed in v4.1.0).",
            "Build with CMSIS-NN v4.1.0 or later, or with TFLM's reference kernel.",
        )


def _stores_three_filters_as_four(node: NodeView) -> bool:
    filters, columns = node.input(svdf.WEIGHTS_TIME).dims[:2]
    return _has_int8_state(node) and has_mve(node.target) and filters >= 3 and columns > 1
