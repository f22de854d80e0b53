"""SignalStacker: each frame stacked with the frames before and after it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from tflm.errors import OperatorError
from tflm.kernels.node import KernelContext, Node
from tflm.kernels.reference.signal.circular_buffer import CircularBuffer
from tflm.kernels.reference.signal.common import options_by_place, require_rank, require_room, write
from tflm.kernels.registration import Registration, Run
from tflm.kernels.requests import Request, tensors
from tflm.kernels.support.checks import element_count, require_type
from tflm.schema.enums import TensorType
from tflm.targets import BOOL, INT32, POINTER, SIZE_T, Struct

STACKER_PARAMS = Struct(
    "TFLMSignalStackerParams",
    num_channels=INT32,
    stacker_left_context=INT32,
    stacker_right_context=INT32,
    stacker_step=INT32,
    buffer_size=SIZE_T,
    step_size=SIZE_T,
    stacker_has_first_frame=BOOL,
    state=POINTER,
    circular_buffer=POINTER,
)


@dataclass
class Stacker:
    """Sizes in samples, and the frames so far.

    Attributes:
        channels, size, step: size of a frame, of a stack, and distance between stacks.
        padding: number of repetitions of the very first frame, which has no predecessors.
        repeats: number of repetitions of the next frame.
    """

    channels: int
    padding: int
    size: int
    step: int
    buffer: CircularBuffer
    repeats: npt.NDArray[np.int64] = field(default_factory=lambda: np.ones(1, np.int64))


def _init(context: KernelContext, node: Node) -> None:
    channels, left, right, step = _options(node.custom_options)
    frames = left + right + 1
    if channels < 1:
        raise OperatorError(f"num_channels is {channels}, must be positive")
    if right < 0 or frames < 1:
        raise OperatorError(
            f"stacks {left} frames before and {right} after each frame; these numbers must not be negative"
        )
    if not 0 <= step <= frames:
        raise OperatorError(f"stacker_step is {step}, must be within a stack of {frames} frames")
    size = channels * frames
    context.allocate_requested(node)
    node.op_data = Stacker(
        channels, max(left, 0), size, channels * step, CircularBuffer(node.persistent["frames"], size)
    )


def _init_requests(node: Node) -> Iterator[Request]:
    channels, left, right, _ = _options(node.custom_options)
    yield CircularBuffer.request(node, "frames", channels * (left + right + 1))


def _options(custom_options: memoryview) -> Iterable[int]:
    """Channels, number of frames before and after the current one, and frames per step."""
    names = ("num_channels", "stacker_left_context", "stacker_right_context", "stacker_step")
    return options_by_place(custom_options, *names).values()


def _prepare(context: KernelContext, node: Node) -> None:
    op: Stacker = node.op_data
    node.expect(inputs=1, outputs=2)
    input = node.input(0)
    output = node.output(0)
    valid = node.output(1)
    for tensor, rank, type in (
        (input, 1, TensorType.INT16),
        (output, 1, TensorType.INT16),
        (valid, 0, TensorType.BOOL),
    ):
        require_rank(tensor, rank)
        require_type(tensor, type)
    require_room(input, op.channels, element_count(input))
    require_room(output, op.size, element_count(output))


def _reset(context: KernelContext, node: Node) -> None:
    op: Stacker = node.op_data
    op.buffer.reset()
    op.repeats[0] = 1 + op.padding


def _bind(context: KernelContext, node: Node) -> Run:
    op: Stacker = node.op_data
    buffer = op.buffer
    x = node.eval_input(0).elements[: op.channels]
    y = node.eval_output(0).elements
    valid = node.eval_output(1).elements.reshape(1)

    def run() -> None:
        for _ in range(op.repeats[0]):
            buffer.write(x)
        op.repeats[0] = 1
        is_full = buffer.available >= op.size
        if is_full:
            write(y, buffer.get(op.size))
            buffer.discard(op.step)
        else:
            y.fill(0)  # TFLM leaves these elements unchanged
        valid[0] = is_full

    return run


STACKER = Registration(
    "SignalStacker",
    _bind,
    _prepare,
    _init,
    reset=_reset,
    op_data=STACKER_PARAMS,
    requests=tensors(1, 2),
    init_requests=_init_requests,
    types=(TensorType.INT16,),
    since="296b81858",
)
