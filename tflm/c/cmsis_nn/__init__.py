"""CMSIS-NN's functions in place of generated kernels.

An operator is bound to them where they return TFLM's integers, on every processor that the program is planned for.
Sizes of scratch buffers and overlaps are those of `tflm.libraries.cmsis_nn_scratch` and `cmsis_nn_overlap`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Union

from tflm.c.cmsis_nn import convolutions, element_wise, pools, products, recurrent
from tflm.c.cmsis_nn.processors import LIBRARY, Processors
from tflm.c.library_calls import LibraryCall
from tflm.kernels.node import Node
from tflm.schema.enums import TensorType

Bind = Callable[[Node, Processors], Union[Sequence[LibraryCall], None]]
"""The calls that compute an operator; None where the library has no kernel with TFLM's results."""

OPERATORS: Mapping[str, Bind] = {
    "ADD": element_wise.bind_add,
    "AVERAGE_POOL_2D": pools.bind,
    "CONV_2D": convolutions.bind_conv_2d,
    "DEPTHWISE_CONV_2D": convolutions.bind_depthwise_conv_2d,
    "FULLY_CONNECTED": products.bind,
    "MAX_POOL_2D": pools.bind,
    "MUL": element_wise.bind_mul,
    "SOFTMAX": element_wise.bind_softmax,
    "SVDF": recurrent.bind_svdf,
    "UNIDIRECTIONAL_SEQUENCE_LSTM": recurrent.bind_lstm,
}
"""By operator."""


def bind(node: Node, processors: Processors) -> Sequence[LibraryCall] | None:
    """The calls that compute an operator; None where it is left to generated kernels."""
    own = OPERATORS.get(node.operator)
    if own is None or node.eval_input(0).type not in (TensorType.INT8, TensorType.INT16):
        return None
    if not node.eval_output(0).elements.size:
        return None
    return own(node, processors)


__all__ = ["LIBRARY", "Processors", "bind"]
