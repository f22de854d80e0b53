"""SignalEnergy: the squared magnitude of each bin of a spectrum."""

from __future__ import annotations

import numpy as np

from tflm.errors import OperatorError
from tflm.kernels.host_memory import kept
from tflm.kernels.reference.signal.common import Program, options_by_place, require_rank, require_room
from tflm.kernels.registration import KernelContext, Node, Registration, Run
from tflm.kernels.requests import tensors
from tflm.kernels.support.checks import element_count, require_type
from tflm.schema.enums import TensorType
from tflm.targets import INT32, Struct

ENERGY_PARAMS = Struct("TFLMSignalEnergyParams", end_index=INT32, start_index=INT32)


def _prepare(context: KernelContext, node: Node) -> None:
    node.expect(inputs=1, outputs=1)
    input = context.input_tensor(node, 0)
    output = context.output_tensor(node, 0)
    require_rank(input, 1)
    require_rank(output, 1)
    require_type(input, TensorType.INT16)
    require_type(output, TensorType.UINT32)
    end, start = options_by_place(node.custom_options, "end_index", "start_index").values()
    if start >= end:
        start = end = 0
    if start < 0:
        raise OperatorError(f"start_index is {start}, must not be negative")
    require_room(input, 2 * end, element_count(input))
    require_room(output, end, element_count(output))
    node.op_data = start, end


def _bind(context: KernelContext, node: Node) -> Run:
    start, end = node.op_data
    x = context.get_eval_input(node, 0).elements[2 * start : 2 * end]
    output = context.get_eval_output(node, 0).elements
    y = output[start:end]
    squares = kept(np.empty(x.size, np.uint32))  # a sum of two, 2^31 at the most, has no room in an int32
    real, imaginary = squares[0::2], squares[1::2]
    program = Program()
    program.copy(squares, x)
    program.call(np.multiply, squares, squares, squares)
    program.call(np.add, real, imaginary, y)
    program.clear(output[:start], output[end:])
    return program.run


ENERGY = Registration(
    "SignalEnergy",
    _bind,
    _prepare,
    op_data=ENERGY_PARAMS,
    requests=tensors(),
    types=(TensorType.INT16,),
    since="8ee06dcba",
)
