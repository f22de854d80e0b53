"""SignalFramer: overlapping frames of the input samples."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from tflm.errors import OperatorError
from tflm.kernels.node import KernelContext, Node
from tflm.kernels.reference.signal.circular_buffer import CircularBuffer, row_requests
from tflm.kernels.reference.signal.common import options_by_place, require_rank, require_room, rows_of
from tflm.kernels.registration import Registration, Run
from tflm.kernels.requests import Request, tensors
from tflm.kernels.support.checks import element_count, require_type
from tflm.schema.enums import TensorType
from tflm.schema.flexbuffer import FlexbufferMap
from tflm.targets import BOOL, INT32, POINTER, Struct

FRAMER_PARAMS = Struct(
    "TFLMSignalFramerParams",
    frame_size=INT32,
    frame_step=INT32,
    outer_dims=INT32,
    n_frames=INT32,
    prefill=BOOL,
    state_buffers=POINTER,
    circular_buffers=POINTER,
)


@dataclass
class Framer:
    """Sizes in samples, and for each row the samples that later frames need; with `prefill` zeros at first."""

    size: int
    step: int
    prefill: bool
    buffers: list[CircularBuffer] = field(default_factory=list)

    @classmethod
    def of(cls, custom_options: memoryview) -> Framer:
        """The options of a node, checked."""
        size, step, _ = options_by_place(custom_options, "frame_size", "frame_step", "prefill").values()
        prefill = FlexbufferMap(custom_options).element_as_bool(2)
        if size < 1 or step < 1:
            raise OperatorError(f"frame_size is {size} and frame_step {step}, both must be positive")
        if prefill and size < step:
            raise OperatorError(f"frame_step is {step}, must not exceed frame_size {size} with prefill")
        return cls(size, step, prefill)

    @property
    def capacity(self) -> int:
        """Samples that are kept of each row: a frame, rounded up to whole steps."""
        return -(-self.size // self.step) * self.step


def _prepare(context: KernelContext, node: Node) -> None:
    node.expect(inputs=1, outputs=2)
    node.op_data = op = Framer.of(node.custom_options)
    input = node.input(0)
    output = node.output(0)
    valid = node.output(1)
    rows, length = rows_of(input)
    require_rank(output, len(input.dims) + 1)
    require_rank(valid, 0)
    require_type(input, TensorType.INT16)
    require_type(output, TensorType.INT16)
    require_type(valid, TensorType.BOOL)
    if length % op.step:
        reason = f"has shape {list(input.dims)}, rows that are no multiple of frame_step {op.step}"
        raise OperatorError(reason, tensor=input.name)
    require_room(output, element_count(input) // op.step * op.size, element_count(output))
    context.allocate_requested(node)
    op.buffers = [CircularBuffer(node.persistent[f"row {row}"], op.capacity) for row in range(rows)]
    _reset(context, node)


def _requests(node: Node) -> Iterator[Request]:
    yield from tensors(1, 2)(node)
    yield from row_requests(node, Framer.of(node.custom_options).capacity)


def _reset(context: KernelContext, node: Node) -> None:
    op: Framer = node.op_data
    for buffer in op.buffers:
        buffer.reset(zeros=op.size - op.step if op.prefill else 0)


def _bind(context: KernelContext, node: Node) -> Run:
    op: Framer = node.op_data
    buffers, size, step = op.buffers, op.size, op.step
    input = node.eval_input(0).elements
    rows, frames = len(buffers), input.shape[-1] // step
    x = input.reshape(rows, frames, step)
    output = node.eval_output(0).elements.reshape(-1)
    used = rows * frames * size
    y, rest = output[:used].reshape(rows, frames, size), output[used:]
    valid = node.eval_output(1).elements.reshape(1)

    def run() -> None:
        all_valid = True
        for buffer, steps, framed in zip(buffers, x, y):
            for samples, frame in zip(steps, framed):
                buffer.write(samples)
                if buffer.available >= size:
                    frame[...] = buffer.get(size)
                    buffer.discard(step)
                else:
                    frame.fill(0)  # TFLM leaves these elements unchanged
                    all_valid = False
        rest.fill(0)
        valid[0] = all_valid

    return run


FRAMER = Registration(
    "SignalFramer",
    _bind,
    _prepare,
    reset=_reset,
    op_data=FRAMER_PARAMS,
    requests=_requests,
    types=(TensorType.INT16,),
    since="29d8dbfd4",
)
