"""SignalWindow: frames of samples multiplied by a window."""

from __future__ import annotations

import numpy as np

from tflm.errors import OperatorError
from tflm.kernels.node import KernelContext, Node
from tflm.kernels.reference.signal.common import options_by_place, require_rank, require_room, write
from tflm.kernels.registration import Registration, Run
from tflm.kernels.requests import tensors
from tflm.kernels.support.checks import element_count, require_type
from tflm.schema.enums import TensorType
from tflm.targets import INT32, Struct

WINDOW_PARAMS = Struct("TFLMSignalWindowParams", shift=INT32, input_size=INT32)


def _prepare(context: KernelContext, node: Node) -> None:
    node.expect(inputs=2, outputs=1)
    input = node.input(0)
    weights = node.input(1)
    output = node.output(0)
    for tensor in (input, weights, output):
        require_type(tensor, TensorType.INT16)
    if not input.dims:
        raise OperatorError("is a scalar, must have at least one dimension", tensor=input.name)
    require_rank(weights, 1)
    require_rank(output, len(input.dims))
    size, length = element_count(input), element_count(weights)
    if size and (not length or size % length):
        reason = f"has {size} elements, no whole number of windows of {length}"
        raise OperatorError(reason, tensor=input.name)
    require_room(output, size, element_count(output))
    node.op_data = options_by_place(node.custom_options, "shift")["shift"]


def _bind(context: KernelContext, node: Node) -> Run:
    x, window = node.eval_input(0).elements.reshape(-1), node.eval_input(1).elements
    y = node.eval_output(0).elements.reshape(-1)
    frames = x.size // max(window.size, 1)
    shift = node.op_data & 31  # undefined in C beyond 31; x86 takes the count modulo 32

    def run() -> None:
        products = x.reshape(frames, window.size).astype(np.int32) * window >> shift
        write(y, products.clip(-(2**15), 2**15 - 1).reshape(-1))

    return run


WINDOW = Registration(
    "SignalWindow",
    _bind,
    _prepare,
    op_data=WINDOW_PARAMS,
    requests=tensors(2),
    types=(TensorType.INT16,),
    since="c306ff608",
)
