"""Operators on frames of samples: framer, delay, stacker, overlap-add, window."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from tflm.errors import OperatorError
from tflm.kernels.host_memory import track_host_array
from tflm.kernels.node import KernelContext, Node
from tflm.kernels.reference.signal.common import (
    Values,
    options_by_place,
    require_rank,
    require_room,
    rows_of,
    tensors_of,
    write,
)
from tflm.kernels.registration import Registration, Run
from tflm.kernels.requests import PersistentBuffer, Request, tensors
from tflm.kernels.support.checks import element_count, require_type, shape_error
from tflm.memory.tensor import TFLITE_TYPE
from tflm.schema.enums import TensorType
from tflm.schema.flexbuffer import FlexbufferMap
from tflm.targets import BOOL, INT32, POINTER, SIZE_T, Struct

CIRCULAR_BUFFER = Struct(
    "CircularBuffer",
    capacity=SIZE_T,
    read=SIZE_T,
    write=SIZE_T,
    empty=INT32,
    buffer_size=INT32,
    buffer=POINTER,
)


def row_requests(node: Node, capacity: int) -> Iterator[PersistentBuffer]:
    """A circular buffer for each row of the first input, with pointers to the structure and its memory."""
    rows, _ = rows_of(node.input(0))
    yield PersistentBuffer("pointers to buffers", rows * POINTER.size(node.target))
    yield PersistentBuffer("pointers to their memory", rows * POINTER.size(node.target))
    for row in range(rows):
        yield CircularBuffer.request(node, f"row {row}", capacity)


class CircularBuffer:
    """A queue of 16-bit samples in the arena's tail.

    Args:
        data: the persistent buffer that holds it.
        capacity: the largest number of samples.

    Attributes:
        samples: the memory of the samples.
        state: the place of the oldest sample, and the number of samples.
    """

    def __init__(self, data: npt.NDArray[np.uint8], capacity: int):
        header = len(data) - 4 * capacity
        self.samples: Values = data[header : header + 2 * capacity].view(np.int16)
        self.state = track_host_array(np.zeros(2, np.int32))
        self._capacity = capacity
        self.reset()

    @property
    def available(self) -> int:
        """The number of samples."""
        return int(self.state[1])

    @staticmethod
    def request(node: Node, name: str, capacity: int) -> PersistentBuffer:
        """The request for a queue. TFLM reserves twice the memory of the samples."""
        return PersistentBuffer(name, CIRCULAR_BUFFER.size(node.target) + 4 * capacity)

    def reset(self, zeros: int = 0) -> None:
        """Empty the queue, then write `count` zeros."""
        self.samples.fill(0)
        self.state[:] = 0, zeros

    def write(self, values: Values) -> None:
        """Append samples; there must be room for them."""
        self.samples[self._places(self.available, len(values))] = values
        self.state[1] += len(values)

    def get(self, count: int) -> Values:
        """The oldest samples; there must be as many."""
        return self.samples[self._places(0, count)]

    def _places(self, after: int, count: int) -> Values:
        """Indices of `count` samples, starting `after` samples after the oldest."""
        return (int(self.state[0]) + after + np.arange(count, dtype=np.intp)) % self._capacity

    def discard(self, count: int) -> None:
        """Drop the oldest samples, not more than the capacity. As in TFLM, a full buffer less none is empty."""
        oldest, available = self.state.tolist()
        self.state[:] = (oldest + count) % self._capacity, (available - count) % self._capacity


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


def _prepare_frame(context: KernelContext, node: Node) -> None:
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
        raise shape_error(input, f", rows that are no multiple of frame_step {op.step}")
    require_room(output, element_count(input) // op.step * op.size, element_count(output))
    context.allocate_requested(node)
    op.buffers = [CircularBuffer(node.persistent[f"row {row}"], op.capacity) for row in range(rows)]


def _requests_frame(node: Node) -> Iterator[Request]:
    yield from tensors(1, 2)(node)
    yield from row_requests(node, Framer.of(node.custom_options).capacity)


def _reset_frame(context: KernelContext, node: Node) -> None:
    op: Framer = node.op_data
    for buffer in op.buffers:
        buffer.reset(zeros=op.size - op.step if op.prefill else 0)


def _bind_frame(context: KernelContext, node: Node) -> Run:
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
    _bind_frame,
    _prepare_frame,
    reset=_reset_frame,
    op_data=FRAMER_PARAMS,
    requests=_requests_frame,
    types=(TensorType.INT16,),
    since="29d8dbfd4",
)


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


def _prepare_delay(context: KernelContext, node: Node) -> None:
    node.expect(inputs=1, outputs=1)
    length = _length_of_delay(node.custom_options)
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


def _requests_delay(node: Node) -> Iterator[Request]:
    yield from tensors()(node)
    yield from row_requests(node, node.input(0).dims[-1] + _length_of_delay(node.custom_options))


def _length_of_delay(custom_options: memoryview) -> int:
    return options_by_place(custom_options, "delay_length")["delay_length"]


def _reset_delay(context: KernelContext, node: Node) -> None:
    for buffer in node.op_data.buffers:
        buffer.reset(zeros=node.op_data.length)


def _bind_delay(context: KernelContext, node: Node) -> Run:
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
    _bind_delay,
    _prepare_delay,
    reset=_reset_delay,
    op_data=DELAY_PARAMS,
    requests=_requests_delay,
    types=(TensorType.INT16,),
    since="7781c4979",
)


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
    repeats: npt.NDArray[np.int32] = field(default_factory=lambda: np.ones(1, np.int32))


def _init_stack(context: KernelContext, node: Node) -> None:
    channels, left, right, step = _options_stack(node.custom_options)
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


def _init_requests_stack(node: Node) -> Iterator[Request]:
    channels, left, right, _ = _options_stack(node.custom_options)
    yield CircularBuffer.request(node, "frames", channels * (left + right + 1))


def _options_stack(custom_options: memoryview) -> Iterable[int]:
    """Channels, number of frames before and after the current one, and frames per step."""
    names = ("num_channels", "stacker_left_context", "stacker_right_context", "stacker_step")
    return options_by_place(custom_options, *names).values()


def _prepare_stack(context: KernelContext, node: Node) -> None:
    op: Stacker = node.op_data
    samples = (1, TensorType.INT16)
    input, output, _ = tensors_of(node, [samples], [samples, (0, TensorType.BOOL)])
    require_room(input, op.channels, element_count(input))
    require_room(output, op.size, element_count(output))


def _reset_stack(context: KernelContext, node: Node) -> None:
    op: Stacker = node.op_data
    op.buffer.reset()
    op.repeats[0] = 1 + op.padding


def _bind_stack(context: KernelContext, node: Node) -> Run:
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
    _bind_stack,
    _prepare_stack,
    _init_stack,
    reset=_reset_stack,
    op_data=STACKER_PARAMS,
    requests=tensors(1, 2),
    init_requests=_init_requests_stack,
    types=(TensorType.INT16,),
    since="296b81858",
)


OVERLAP_ADD_PARAMS = Struct(
    "TFLMSignalOverlapAddParams<int16_t>",
    frame_size=INT32,
    frame_step=INT32,
    outer_dims=INT32,
    n_frames=INT32,
    type=TFLITE_TYPE,
    state_buffers=POINTER,
)

DTYPES: dict[TensorType, np.dtype[Any]] = {
    TensorType.INT16: np.dtype(np.int16),
    TensorType.FLOAT32: np.dtype(np.float32),
}


@dataclass
class OverlapAdd:
    """The options, and for each row the sums that earlier frames contribute to later output."""

    type: TensorType
    step: int
    sums: list[Values] = field(default_factory=list)


def _init_overlap(context: KernelContext, node: Node) -> None:
    step = options_by_place(node.custom_options, "T", "frame_step")["frame_step"]
    type = FlexbufferMap(node.custom_options).as_int32("T")  # goes by its name
    if type not in DTYPES:
        supported = ", ".join(f"{kind.value} for {kind.name}" for kind in DTYPES)
        raise OperatorError(f"T is {type}; supported here: {supported}")
    node.op_data = OverlapAdd(TensorType(type), step)


def _prepare_overlap(context: KernelContext, node: Node) -> None:
    op: OverlapAdd = node.op_data
    input, output = node.expect_tensors(1)
    require_type(input, op.type)
    require_type(output, op.type)
    require_rank(output, len(input.dims) - 1)
    if len(input.dims) < 2 or 0 in input.dims[-2:]:
        raise shape_error(input, ", must be [..., frames, samples of a frame] with some of both")
    frames, size = input.dims[-2:]
    if not 0 <= op.step <= size:
        raise OperatorError(f"frame_step is {op.step}, must be within the frames of {size} samples")
    rows = element_count(input) // (frames * size)
    require_room(output, rows * frames * op.step, element_count(output))
    context.allocate_requested(node)
    op.sums = [node.persistent[f"row {row}"].view(DTYPES[op.type]) for row in range(rows)]


def _requests_overlap(node: Node) -> Iterator[Request]:
    yield from tensors()(node)
    input = node.input(0)
    frames, size = input.dims[-2:]
    rows = element_count(input) // (frames * size)
    yield PersistentBuffer("pointers to rows", rows * POINTER.size(node.target))
    for row in range(rows):
        yield PersistentBuffer(f"row {row}", size * DTYPES[input.type].itemsize)


def _reset_overlap(context: KernelContext, node: Node) -> None:
    for sums in node.op_data.sums:
        sums.fill(0)


def _bind_overlap(context: KernelContext, node: Node) -> Run:
    op: OverlapAdd = node.op_data
    step = op.step
    input = node.eval_input(0).elements
    output = node.eval_output(0).elements.reshape(-1)
    frames, size = input.shape[-2:]
    x = input.reshape(len(op.sums), frames, size)
    used = len(op.sums) * frames * step
    y, rest = output[:used].reshape(len(op.sums), frames, step), output[used:]

    def run() -> None:
        for sums, row, samples in zip(op.sums, x, y):
            for frame, finished in zip(row, samples):
                total = _saturating_sum(sums, frame)
                finished[...] = total[:step]
                sums[: size - step] = total[step:]  # the others are always 0
        rest.fill(0)

    return run


def _saturating_sum(a: Values, b: Values) -> Values:
    """Sums of int16, which saturate, or of floats."""
    return (a.astype(np.int32) + b).clip(-(2**15), 2**15 - 1) if a.dtype == np.int16 else a + b


OVERLAP_ADD = Registration(
    "SignalOverlapAdd",
    _bind_overlap,
    _prepare_overlap,
    _init_overlap,
    reset=_reset_overlap,
    op_data=OVERLAP_ADD_PARAMS,
    requests=_requests_overlap,
    types=tuple(DTYPES),
    since="597ccf786",
)


WINDOW_PARAMS = Struct("TFLMSignalWindowParams", shift=INT32, input_size=INT32)


def _prepare_window(context: KernelContext, node: Node) -> None:
    input, weights, output = node.expect_tensors(2)
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


def _bind_window(context: KernelContext, node: Node) -> Run:
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
    _bind_window,
    _prepare_window,
    op_data=WINDOW_PARAMS,
    requests=tensors(2),
    types=(TensorType.INT16,),
    since="c306ff608",
)
