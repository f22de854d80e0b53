"""SignalStacker: a frame together with those before and behind it."""

from __future__ import annotations

from dataclasses import dataclass

from tflm.errors import OperatorError
from tflm.kernels.checks import element_count, require_type
from tflm.kernels.registration import KernelContext, Node, Registration, Run
from tflm.kernels.signal.circular_buffer import CircularBuffer
from tflm.kernels.signal.common import options_by_place, require_rank, require_room
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
        channels, size, step: of a frame, of a stack of frames, and from one stack to the next.
        padding: how often the first frame is repeated, for there is none before it.
    """

    channels: int
    padding: int
    size: int
    step: int
    buffer: CircularBuffer
    has_first: bool = False


def _init(context: KernelContext, node: Node) -> None:
    names = ("num_channels", "stacker_left_context", "stacker_right_context", "stacker_step")
    channels, left, right, step = options_by_place(node, *names).values()
    frames = left + right + 1
    if channels < 1:
        raise OperatorError(f"num_channels is {channels}, must be positive")
    if right < 0 or frames < 1:
        raise OperatorError(f"stacks {left} frames before and {right} behind one, these must not be negative")
    if not 0 <= step <= frames:
        raise OperatorError(f"stacker_step is {step}, must be within a stack of {frames} frames")
    size = channels * frames
    node.op_data = Stacker(channels, max(left, 0), size, channels * step, CircularBuffer(context, size))


def _prepare(context: KernelContext, node: Node) -> None:
    op: Stacker = node.op_data
    node.expect(inputs=1, outputs=2)
    input = context.allocate_temp_input_tensor(node, 0)
    output = context.allocate_temp_output_tensor(node, 0)
    valid = context.allocate_temp_output_tensor(node, 1)
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
    op.has_first = False


def _bind(context: KernelContext, node: Node) -> Run:
    op: Stacker = node.op_data
    buffer = op.buffer
    x = context.get_eval_input(node, 0).elements[: op.channels]
    output = context.get_eval_output(node, 0).elements
    y, rest = output[: op.size], output[op.size :]
    valid = context.get_eval_output(node, 1).elements.reshape(1)

    def run() -> None:
        for _ in range(1 if op.has_first else 1 + op.padding):
            buffer.write(x)
        op.has_first = True
        is_full = buffer.available >= op.size
        if is_full:
            buffer.get(y)
            buffer.discard(op.step)
        else:
            y.fill(0)  # TFLM leaves there whatever was
        rest.fill(0)
        valid[0] = is_full

    return run


STACKER = Registration(
    "SignalStacker", _bind, _prepare, _init, reset=_reset, op_data=STACKER_PARAMS, types=(TensorType.INT16,)
)
