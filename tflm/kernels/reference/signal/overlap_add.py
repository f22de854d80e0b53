"""SignalOverlapAdd: overlapping frames added up to samples again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tflm.errors import OperatorError
from tflm.kernels.node import KernelContext, Node
from tflm.kernels.reference.signal.common import Values, options_by_place, require_rank, require_room
from tflm.kernels.registration import Registration, Run
from tflm.kernels.requests import PersistentBuffer, Request, tensors
from tflm.kernels.support.checks import element_count, require_type
from tflm.memory.tensor import TFLITE_TYPE
from tflm.schema.enums import TensorType
from tflm.schema.flexbuffer import FlexbufferMap
from tflm.targets import INT32, POINTER, Struct

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


def _init(context: KernelContext, node: Node) -> None:
    step = options_by_place(node.custom_options, "T", "frame_step")["frame_step"]
    type = FlexbufferMap(node.custom_options).as_int32("T")  # goes by its name
    if type not in DTYPES:
        supported = ", ".join(f"{kind.value} for {kind.name}" for kind in DTYPES)
        raise OperatorError(f"T is {type}; supported here: {supported}")
    node.op_data = OverlapAdd(TensorType(type), step)


def _prepare(context: KernelContext, node: Node) -> None:
    op: OverlapAdd = node.op_data
    node.expect(inputs=1, outputs=1)
    input = node.input(0)
    output = node.output(0)
    require_type(input, op.type)
    require_type(output, op.type)
    require_rank(output, len(input.dims) - 1)
    if len(input.dims) < 2 or 0 in input.dims[-2:]:
        reason = f"has shape {list(input.dims)}, must be [..., frames, samples of a frame] with some of both"
        raise OperatorError(reason, tensor=input.name)
    frames, size = input.dims[-2:]
    if not 0 <= op.step <= size:
        raise OperatorError(f"frame_step is {op.step}, must be within the frames of {size} samples")
    rows = element_count(input) // (frames * size)
    require_room(output, rows * frames * op.step, element_count(output))
    context.allocate_requested(node)
    op.sums = [node.persistent[f"row {row}"].view(DTYPES[op.type]) for row in range(rows)]
    _reset(context, node)


def _requests(node: Node) -> Iterator[Request]:
    yield from tensors()(node)
    input = node.input(0)
    frames, size = input.dims[-2:]
    rows = element_count(input) // (frames * size)
    yield PersistentBuffer("pointers to rows", rows * POINTER.size(node.target))
    for row in range(rows):
        yield PersistentBuffer(f"row {row}", size * DTYPES[input.type].itemsize)


def _reset(context: KernelContext, node: Node) -> None:
    for sums in node.op_data.sums:
        sums.fill(0)


def _bind(context: KernelContext, node: Node) -> Run:
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
                sums[: size - step] = total[step:]
                sums[size - step :] = 0
        rest.fill(0)

    return run


def _saturating_sum(a: Values, b: Values) -> Values:
    """Sums of int16, which saturate, or of floats."""
    return (a.astype(np.int32) + b).clip(-(2**15), 2**15 - 1) if a.dtype == np.int16 else a + b


OVERLAP_ADD = Registration(
    "SignalOverlapAdd",
    _bind,
    _prepare,
    _init,
    reset=_reset,
    op_data=OVERLAP_ADD_PARAMS,
    requests=_requests,
    types=tuple(DTYPES),
    since="597ccf786",
)
