"""Call CMSIS-NN's functions in place of generated kernels.

An operator is bound to them if they return TFLM's integers on every processor that the program may run on.
`tflm.libraries.cmsis_nn_scratch` has the sizes of scratch buffers and the allowed overlaps.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Union

from tflm.c.cmsis_nn import convolutions, element_wise, products, recurrent
from tflm.c.cmsis_nn.processors import LIBRARY, Processors
from tflm.c.cmsis_nn.recurrent import HELPERS
from tflm.c.library_calls import LibraryCall
from tflm.kernels.node import Node
from tflm.schema.enums import TensorType

Bind = Callable[[Node, Processors], Union[Sequence[LibraryCall], None]]
"""Binds an operator to library calls; returns None if the library has no kernel with TFLM's results."""

OPERATORS: Mapping[str, Bind] = {
    "ADD": element_wise.bind_add,
    "AVERAGE_POOL_2D": convolutions.bind_pool,
    "CONV_2D": convolutions.bind_conv_2d,
    "DEPTHWISE_CONV_2D": convolutions.bind_depthwise_conv_2d,
    "FULLY_CONNECTED": products.bind,
    "MAX_POOL_2D": convolutions.bind_pool,
    "MUL": element_wise.bind_mul,
    "SOFTMAX": element_wise.bind_softmax,
    "SVDF": recurrent.bind_svdf,
    "UNIDIRECTIONAL_SEQUENCE_LSTM": recurrent.bind_lstm,
}
"""The binding function of each operator."""

SUFFIXES = {
    "arm_avgpool": ("s8", "s16"),
    "arm_convolve_1x1": ("s8_fast",),
    "arm_convolve_wrapper": ("s4", "s8", "s16"),
    "arm_depthwise_conv": ("s16",),
    "arm_depthwise_conv_wrapper": ("s4", "s8"),
    "arm_elementwise_add": ("s8", "s16"),
    "arm_elementwise_mul": ("s8", "s16"),
    "arm_fully_connected": ("s4", "s16"),
    "arm_fully_connected_wrapper": ("s8",),
    "arm_max_pool": ("s8", "s16"),
    "arm_softmax": ("s8", "s8_s16", "s16"),
    "arm_svdf_state": ("s16_s8",),
}

FUNCTIONS = tuple(f"{name}_{suffix}" for name, suffixes in SUFFIXES.items() for suffix in suffixes)
"""Library functions that operators call. The functions in HELPERS call further ones."""


def bind(node: Node, processors: Processors) -> Sequence[LibraryCall] | None:
    """Return the library calls that compute an operator; None if a generated kernel should."""
    own = OPERATORS.get(node.operator)
    if own is None or node.eval_input(0).type not in (TensorType.INT8, TensorType.INT16):
        return None
    if not node.eval_output(0).elements.size:
        return None
    return own(node, processors)


__all__ = ["FUNCTIONS", "HELPERS", "LIBRARY", "Processors", "bind"]
