"""The library for Arduino, Chirale_TensorFLowLite 2.0.0: an older TFLM with an older CMSIS-NN.

It is TFLM of January 2023, built without `TF_LITE_STATIC_MEMORY`, which makes tensors and nodes larger. This module
declares its different results.
"""

from __future__ import annotations

from dataclasses import replace

from tflm.kernels.reference import fully_connected
from tflm.kernels.reference import unidirectional_sequence_lstm as lstm
from tflm.libraries import cmsis_nn
from tflm.libraries.kernel_library import Concern, Effect
from tflm.releases import by_name
from tflm.schema.enums import TensorType

# --- What comes out differently ----------------------------------------------------------------------------------


CONCERNS = (
    Concern(
        "FULLY_CONNECTED",
        Effect.DIFFERS,
        lambda node: fully_connected.has_scale_for_each_row(node.input(fully_connected.WEIGHTS)),
        "It uses the first row's scale for all rows of the weights: results are wrong.",
        "Convert the model with one scale for the weights of each fully connected layer.",
    ),
    Concern(
        "UNIDIRECTIONAL_SEQUENCE_LSTM",
        Effect.BREAKS,
        lambda node: node.input(lstm.INPUT).type == TensorType.INT16,
        "Invoke() fails: int16 activations are not supported.",
        "Convert the model with activations of int8 or float32.",
    ),
    Concern(
        "UNIDIRECTIONAL_SEQUENCE_LSTM",
        Effect.REFUSED,
        lstm.lacks_intermediates,
        "With int8, it needs its five intermediate tensors.",
        "Convert the model with a converter that writes them.",
    ),
)

ARDUINO = replace(
    cmsis_nn.library("8aa412fd"),
    name="arduino",
    version="Chirale_TensorFLowLite 2.0.0: CMSIS-NN 8aa412fd of October 2022",
    concerns=CONCERNS,
    release=by_name("chirale 2.0.0"),
)
