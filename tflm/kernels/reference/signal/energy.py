"""SignalEnergy: the squared magnitude of each bin of a spectrum."""

from __future__ import annotations

import numpy as np

from tflm.errors import OperatorError
from tflm.kernels.node import KernelContext, Node
from tflm.kernels.reference.signal.common import options_by_place, require_rank, require_room
from tflm.kernels.registration import Registration, Run
from tflm.kernels.requests import tensors
from tflm.kernels.support.checks import element_count, require_type
from tflm.schema.enums import TensorType
from tflm.targets import INT32, Struct

ENERGY_PARAMS = Struct("TFLMSignalEnergyParams", end_index=INT32, start_index=INT32)


def _prepare(context: KernelContext, node: Node) -> None:
    node.expect(inputs=1, outputs=1)
    input = node.input(0)
    output = node.output(0)
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
    x, y = node.eval_input(0).elements, node.eval_output(0).elements

    def run() -> None:
        # A sum of two squares, 2^31 at most, does not fit an int32.
        real, imaginary = x[2 * start : 2 * end].astype(np.uint32).reshape(-1, 2).T
        y[start:end] = real * real + imaginary * imaginary
        y[:start] = y[end:] = 0

    return run


ENERGY = Registration(
    "SignalEnergy",
    _bind,
    _prepare,
    op_data=ENERGY_PARAMS,
    requests=tensors(),
    types=(TensorType.INT16,),
    since="8ee06dcba",
)
