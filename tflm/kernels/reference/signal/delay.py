"""SignalDelay: delays samples."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tflm.errors import OperatorError
from tflm.kernels.node import KernelContext, Node
from tflm.kernels.reference.signal.circular_buffer import CircularBuffer, row_requests
from tflm.kernels.reference.signal.common import options_by_place, require_room, rows_of
from tflm.kernels.registration import Registration, Run
from tflm.kernels.requests import Request, tensors
from tflm.kernels.support.checks import element_count, require_type
from tflm.schema.enums import TensorType
from tflm.targets import INT32, POINTER, Struct

DELAY_PARAMS = Struct(
    "TFLMSignalFrontendDelayParams",
    frame_size=INT32,
    delay_length=INT32,
    outer_dims=INT32,
    state_buffers=POINTER,
    circular_buffers=POINTER,
)


@dataclass
class Delay:
    """The delay in samples, and the pending samples of each row."""

    length: int
    buffers: list[CircularBuffer]


def _prepare(context: KernelContext, node: Node) -> None:
    node.expect(inputs=1, outputs=1)
    length = _length(node.custom_options)
    if length < 0:
        raise OperatorError(f"delay_length is {length}, must not be negative")
    input = node.input(0)
    output = node.output(0)
    require_type(input, TensorType.INT16)
    require_type(output, TensorType.INT16)
    rows, frame_size = rows_of(input)
    require_room(output, element_count(input), element_count(output))
    context.allocate_requested(node)
    buffers = [CircularBuffer(node.persistent[f"row {row}"], frame_size + length) for row in range(rows)]
    node.op_data = Delay(length, buffers)
    _reset(context, node)


def _requests(node: Node) -> Iterator[Request]:
    yield from tensors()(node)
    yield from row_requests(node, node.input(0).dims[-1] + _length(node.custom_options))


def _length(custom_options: memoryview) -> int:
    return options_by_place(custom_options, "delay_length")["delay_length"]


def _reset(context: KernelContext, node: Node) -> None:
    for buffer in node.op_data.buffers:
        buffer.reset(zeros=node.op_data.length)


def _bind(context: KernelContext, node: Node) -> Run:
    input = node.eval_input(0).elements
    output = node.eval_output(0).elements.reshape(-1)
    x = input.reshape(-1, input.shape[-1])
    y, rest = output[: x.size].reshape(x.shape), output[x.size :]
    frame_size = x.shape[1]
    buffers = node.op_data.buffers

    def run() -> None:
        for buffer, samples, delayed in zip(buffers, x, y):
            buffer.write(samples)
            delayed[...] = buffer.get(frame_size)
            buffer.discard(frame_size)
        rest.fill(0)

    return run


DELAY = Registration(
    "SignalDelay",
    _bind,
    _prepare,
    reset=_reset,
    op_data=DELAY_PARAMS,
    requests=_requests,
    types=(TensorType.INT16,),
    since="7781c4979",
)
