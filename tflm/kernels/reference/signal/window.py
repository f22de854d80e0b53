"""SignalWindow: frames of samples multiplied by a window."""

from __future__ import annotations

import numpy as np

from tflm.errors import OperatorError
from tflm.kernels.arithmetic.numpy_calls import scalar
from tflm.kernels.host_memory import kept
from tflm.kernels.reference.signal.common import Program, options_by_place, require_rank, require_room
from tflm.kernels.registration import KernelContext, Node, Registration, Run
from tflm.kernels.requests import tensors
from tflm.kernels.support.checks import element_count, require_type
from tflm.schema.enums import TensorType
from tflm.targets import INT32, Struct

WINDOW_PARAMS = Struct("TFLMSignalWindowParams", shift=INT32, input_size=INT32)


def _prepare(context: KernelContext, node: Node) -> None:
    node.expect(inputs=2, outputs=1)
    input = context.input_tensor(node, 0)
    weights = context.input_tensor(node, 1)
    output = context.output_tensor(node, 0)
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
    input, weights = context.get_eval_input(node, 0), context.get_eval_input(node, 1)
    x, window = input.elements.reshape(-1), weights.elements
    output = context.get_eval_output(node, 0).elements.reshape(-1)
    y, rest = output[: x.size], output[x.size :]
    if not x.size:
        return lambda: rest.fill(0)
    factors, products = (kept(np.empty(x.size, np.int32)) for _ in range(2))
    frames = factors.reshape(-1, window.size)
    frames[...] = window
    is_constant = weights.is_constant
    count = node.op_data & 31  # undefined in C beyond 31; x86 takes the count modulo 32
    shift, low, high = (scalar(value, np.int32) for value in (count, -(2**15), 2**15 - 1))
    # By most windows no sample is made larger than it was.
    extremes = np.multiply.outer(np.array([low, high], np.int64), window.astype(np.int64)) >> count
    saturates = not is_constant or bool((extremes < low).any() or (extremes > high).any())
    program = Program()
    if not is_constant:
        program.copy(frames, window)
    program.copy(products, x)
    program.call(np.multiply, products, factors, products)
    program.call(np.right_shift, products, shift, products)
    if saturates:
        program.larger(products, low, products)
        program.smaller(products, high, products)
    program.copy(y, products)
    program.clear(rest)
    return program.run


WINDOW = Registration(
    "SignalWindow",
    _bind,
    _prepare,
    op_data=WINDOW_PARAMS,
    requests=tensors(2),
    types=(TensorType.INT16,),
    since="c306ff608",
)
