"""CIRCULAR_BUFFER: keeps the last few inputs, and ends most invokes early.

The buffer is the output, a variable tensor. As in TFLM, only the first batch is written. In a streaming model, the
operators after this one run only once every `cycles_max` invokes.
"""

from __future__ import annotations

import numpy as np

from tflm.errors import OperatorError
from tflm.kernels.node import InvokeAborted, KernelContext, Node
from tflm.kernels.registration import Registration, Run
from tflm.kernels.requests import tensors
from tflm.kernels.support.checks import require_same_type, require_type
from tflm.schema.enums import TensorType
from tflm.schema.flexbuffer import FlexbufferMap
from tflm.schema.tables import Operator
from tflm.targets import INT, Struct

OP_DATA_CIRCULAR_BUFFER = Struct("OpDataCircularBuffer", cycles_until_run=INT, cycles_max=INT)

NAME = "CIRCULAR_BUFFER"
EVERY_INVOKE_SLOTS = (5, 13, 25)
"""Without options, buffers with this many slots never end an invoke; neither does the fifth buffer with FIFTH_DIMS."""
FIFTH_DIMS = (2, 96)


def _cycles_in(custom_options: bytes | memoryview) -> int:
    return FlexbufferMap(custom_options).element_as_int32(0) if len(custom_options) else 0


def _prepare_circular_buffer(context: KernelContext, node: Node) -> None:
    input, output = node.input(0), node.output(0)
    require_same_type(input, output)
    require_type(input, TensorType.INT8)
    fits = len(input.dims) >= 4 and len(output.dims) >= 4
    if not fits or input.dims[1] != 1 or any(input.dims[i] != output.dims[i] for i in (0, 2, 3)):
        reason = f"has shape {list(output.dims)}; for an input of {list(input.dims)}, which must be [n, 1, w, depth], "
        raise OperatorError(reason + "it must be [n, slots, w, depth]", tensor=output.name)
    cycles = _cycles_in(node.custom_options)
    state = node.op_data = node.op_data.view(np.int32)
    state[:] = cycles if cycles > 0 else _cycles_without_options(context, node)


def _cycles_without_options(context: KernelContext, node: Node) -> int:
    """1 or 2, from the shapes of the buffers up to this one, as TFLM tells the layers of two old models apart."""
    count, cycles = 0, 2
    tensors, operators = context.subgraph.tensors or [], context.subgraph.operators or []
    for operator in operators[: node.index + 1]:
        if not _is_without_cycles(context, operator):
            continue
        count += 1
        dims = tensors[(operator.outputs or ())[0]].shape or ()
        cycles = 1 if dims[1] in EVERY_INVOKE_SLOTS or (count == 5 and dims[2:4] == FIFTH_DIMS) else 2
        if cycles == 1:
            count = 0
    return cycles


def _is_without_cycles(context: KernelContext, operator: Operator) -> bool:
    code = context.model.operator_code(operator)
    return code.custom_code == NAME and _cycles_in(operator.custom_options or b"") <= 0


def _bind_circular_buffer(context: KernelContext, node: Node) -> Run:
    input, output = node.eval_input(0), node.eval_output(0)
    depth = output.dims[2] * output.dims[3]
    slots = output.elements.reshape(-1)[: output.dims[1] * depth]
    older, kept, newest = slots[:-depth], slots[depth:], slots[-depth:]
    source = input.elements.reshape(-1)[:depth]
    state = node.op_data

    def run() -> None:
        older[:] = kept
        newest[:] = source
        state[0] -= 1
        if state[0]:
            raise InvokeAborted
        state[0] = state[1]

    return run


def _reset_circular_buffer(context: KernelContext, node: Node) -> None:
    node.op_data[0] = node.op_data[1]


CIRCULAR_BUFFER = Registration(
    NAME,
    _bind_circular_buffer,
    _prepare_circular_buffer,
    reset=_reset_circular_buffer,
    ends_invoke=True,
    op_data=OP_DATA_CIRCULAR_BUFFER,
    requests=tensors(),
    types=(TensorType.INT8,),
)
