"""SignalFftAutoScale, SignalRfft and SignalIrfft: samples scaled up to 16 bits, their spectrum, and the way back."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tflm.errors import OperatorError
from tflm.kernels.arithmetic.numpy_calls import scalar
from tflm.kernels.host_memory import kept
from tflm.kernels.reference.signal.common import Program, Values, options_by_place, require_rank, require_room
from tflm.kernels.reference.signal.kiss_fft import (
    FLOAT32,
    INT16,
    INT32,
    InverseRealTransform,
    RealTransform,
    Samples,
    factors,
    real_transform_bytes,
)
from tflm.kernels.registration import KernelContext, Node, Registration, Run
from tflm.kernels.requests import NodeView, PersistentBuffer, Request, ScratchBuffer, tensors
from tflm.kernels.support.checks import element_count, require_type
from tflm.memory.tensor import TFLITE_TYPE, TfLiteTensor
from tflm.schema.enums import TensorType
from tflm.schema.flexbuffer import FlexbufferMap
from tflm.targets import INT, POINTER, Since, Struct
from tflm.targets import INT32 as INT32_FIELD

WORK_AREA_IN_SCRATCH = "f99fcf84e"
"""From here on the frame of an RFFT is a scratch buffer; it was a persistent one."""

RFFT_PARAMS = Struct(
    "TfLiteAudioFrontendRfftParams<int16_t>",
    fft_length=INT32_FIELD,
    input_size=INT32_FIELD,
    input_length=INT32_FIELD,
    output_length=INT32_FIELD,
    fft_type=TFLITE_TYPE,
    work_area=POINTER,
    scratch_buffer_index=Since(WORK_AREA_IN_SCRATCH, INT),
    state=POINTER,
)

IRFFT_PARAMS = Struct(
    "TfLiteAudioFrontendIrfftParams",
    fft_length=INT32_FIELD,
    input_size=INT32_FIELD,
    input_length=INT32_FIELD,
    output_length=INT32_FIELD,
    fft_type=TFLITE_TYPE,
    state=POINTER,
)
IRFFT_FLOAT_STATE = Struct("IrfftFloatState", fft_length=INT32_FIELD, cfg=POINTER)

SAMPLES = {TensorType.INT16: INT16, TensorType.INT32: INT32, TensorType.FLOAT32: FLOAT32}


@dataclass
class FftOpData:
    """What an operator that transforms keeps: its type, and how many real values a transform takes."""

    type: TensorType
    length: int

    @property
    def samples(self) -> Samples:
        """The arithmetic of the type."""
        return SAMPLES[self.type]


# --- SignalFftAutoScale ------------------------------------------------------------------------------------------


def _prepare_auto_scale(context: KernelContext, node: Node) -> None:
    node.expect(inputs=1, outputs=2)
    input = context.input_tensor(node, 0)
    output = context.output_tensor(node, 0)
    scale_bit = context.output_tensor(node, 1)
    for tensor, rank, type in (
        (input, 1, TensorType.INT16),
        (output, 1, TensorType.INT16),
        (scale_bit, 0, TensorType.INT32),
    ):
        require_rank(tensor, rank)
        require_type(tensor, type)
    require_room(input, element_count(output), element_count(input))


def _bind_auto_scale(context: KernelContext, node: Node) -> Run:
    y = context.get_eval_output(node, 0).elements
    x = context.get_eval_input(node, 0).elements[: y.size]
    scale_bit = context.get_eval_output(node, 1).elements.reshape(1)
    scales = [scalar(1 << bits, np.int16) for bits in range(15)]
    masks = tuple(kept(np.empty(y.size, np.bool_)) for _ in range(2))
    multiply = np.multiply
    if not y.size:
        return lambda: scale_bit.fill(0)

    def run() -> None:
        low, high = x.item(x.argmin()), x.item(x.argmax())
        largest = max(-low, high) if low > -(2**15) else _largest_behind_lowest(x, *masks)
        bits = 15 - largest.bit_length() if largest > 0 else 0
        scale_bit[0] = bits
        multiply(x, scales[bits], y)

    return run


def _largest_behind_lowest(x: Values, rises: Values, mask: Values) -> int:
    """What TFLM finds to be the largest absolute value where there is a sample of -32768.

    The absolute value of that one wraps, to be less than anything behind it. As long as negative samples rise after
    it, the last one counts, with its sign; what follows is found as usual.
    """
    np.equal(x[::-1], -(2**15), out=mask)
    behind = x[x.size - int(mask.argmax()) :]
    if not behind.size:
        return -(2**15)
    rises = rises[: behind.size]
    np.greater(behind[1:], behind[:-1], out=rises[1:])
    rises[0] = True
    np.less(behind, 0, out=mask[: behind.size])
    np.logical_and(rises, mask[: behind.size], out=rises)
    if rises.all():
        return int(behind[-1])
    usual = behind[rises.argmin() :]
    return max(-int(usual.min()), int(usual.max()))


# --- SignalRfft --------------------------------------------------------------------------------------------------


def _fft_op_data(custom_options: memoryview) -> FftOpData:
    """The options of an operator that transforms.

    Raises:
        OperatorError: TFLM has no transform of that type or length.
    """
    length = options_by_place(custom_options, "T", "fft_length")["fft_length"]
    type = FlexbufferMap(custom_options).as_int32("T")  # goes by its name
    if type not in SAMPLES:
        supported = ", ".join(f"{kind.value} for {kind.name}" for kind in SAMPLES)
        raise OperatorError(f"T is {type}; supported here: {supported}")
    if length % 2:
        raise OperatorError(f"fft_length is {length}, must be even")
    factors(length // 2)
    return FftOpData(TensorType(type), length)


def _init_rfft(context: KernelContext, node: Node) -> None:
    node.op_data = _fft_op_data(node.custom_options)


def _init_requests_of_rfft(node: NodeView) -> Iterator[Request]:
    op = _fft_op_data(node.custom_options)
    if not node.release.holds(WORK_AREA_IN_SCRATCH):
        yield PersistentBuffer("work area", op.length * op.samples.dtype.itemsize)
    yield PersistentBuffer("state", real_transform_bytes(op.samples, op.length, node.target))


def _prepare_rfft(context: KernelContext, node: Node) -> None:
    op: FftOpData = node.op_data
    input, output = _transform_tensors(context, node)
    if input.dims[-1] > op.length:
        reason = f"has shape {list(input.dims)}, rows longer than fft_length {op.length}"
        raise OperatorError(reason, tensor=input.name)
    require_room(output, op.length + 2, output.dims[-1])
    rows, row_length = element_count(input) // max(input.dims[-1], 1), output.dims[-1] // 2
    require_room(output, 2 * row_length * rows, element_count(output))


def _requests_of_rfft(node: NodeView) -> Iterator[Request]:
    op = _fft_op_data(node.custom_options)
    yield from tensors()(node)
    if node.release.holds(WORK_AREA_IN_SCRATCH):
        yield ScratchBuffer("frame", op.length * op.samples.dtype.itemsize)


def _transform_tensors(context: KernelContext, node: Node) -> tuple[TfLiteTensor, TfLiteTensor]:
    node.expect(inputs=1, outputs=1)
    input = context.input_tensor(node, 0)
    output = context.output_tensor(node, 0)
    if not input.dims:
        raise OperatorError("is a scalar, must have at least one dimension", tensor=input.name)
    require_rank(output, len(input.dims))
    require_type(input, node.op_data.type)
    require_type(output, node.op_data.type)
    return input, output


def _bind_rfft(context: KernelContext, node: Node) -> Run:
    op: FftOpData = node.op_data
    x = context.get_eval_input(node, 0).elements
    output = context.get_eval_output(node, 0)
    y = output.elements.reshape(-1)
    program = Program()
    if not x.size:
        program.clear(y)
        return program.run
    frames = x.reshape(-1, x.shape[-1])
    if op.length > frames.shape[1]:
        padded = kept(np.zeros((len(frames), op.length), op.samples.passed_on))
        target = padded[:, : frames.shape[1]]
        program.copy(*((target[0], frames[0]) if len(frames) == 1 else (target, frames)))
        frames = padded
    transform = RealTransform(program, op.samples, frames.reshape(-1), op.length)
    transform.write(y, output.dims[-1] // 2)
    return program.run


# --- SignalIrfft -------------------------------------------------------------------------------------------------


def _init_irfft(context: KernelContext, node: Node) -> None:
    node.op_data = _fft_op_data(node.custom_options)


def _init_requests_of_irfft(node: NodeView) -> Iterator[Request]:
    op = _fft_op_data(node.custom_options)
    state = IRFFT_FLOAT_STATE.size(node.target) if op.type == TensorType.FLOAT32 else 0
    yield PersistentBuffer("state", state + real_transform_bytes(op.samples, op.length, node.target))


def _prepare_irfft(context: KernelContext, node: Node) -> None:
    op: FftOpData = node.op_data
    input, output = _transform_tensors(context, node)
    rows = element_count(input) // max(input.dims[-1], 1)
    if rows > 1 and input.dims[-1] % 2:
        raise OperatorError(f"has shape {list(input.dims)}, must have rows of pairs", tensor=input.name)
    require_room(input, op.length + 2, input.dims[-1])
    require_room(output, op.length, output.dims[-1])
    require_room(output, rows * output.dims[-1], element_count(output))


def _bind_irfft(context: KernelContext, node: Node) -> Run:
    op: FftOpData = node.op_data
    x = context.get_eval_input(node, 0).elements
    y = context.get_eval_output(node, 0).elements
    program = Program()
    if not x.size:
        program.clear(y)
        return program.run
    row_length = x.shape[-1] // 2
    rows = x.size // x.shape[-1]
    pairs = x.reshape(-1)[: 2 * row_length * rows]
    values = InverseRealTransform(program, op.samples, pairs, row_length, op.length).output.reshape(rows, -1)
    if op.type == TensorType.FLOAT32:
        program.call(np.divide, values, scalar(op.length, np.float32), values)
    y = y.reshape(-1, y.shape[-1])
    program.copy(y[:rows, : op.length], values)
    program.clear(y[:rows, op.length :], y[rows:])
    return program.run


FFT_AUTO_SCALE = Registration(
    "SignalFftAutoScale",
    _bind_auto_scale,
    _prepare_auto_scale,
    requests=tensors(1, 2),
    types=(TensorType.INT16,),
    since="70aed11c9",
)
RFFT = Registration(
    "SignalRfft",
    _bind_rfft,
    _prepare_rfft,
    _init_rfft,
    op_data=RFFT_PARAMS,
    requests=_requests_of_rfft,
    init_requests=_init_requests_of_rfft,
    types=tuple(SAMPLES),
    since="f22888af6",
)
IRFFT = Registration(
    "SignalIrfft",
    _bind_irfft,
    _prepare_irfft,
    _init_irfft,
    op_data=IRFFT_PARAMS,
    requests=tensors(),
    init_requests=_init_requests_of_irfft,
    types=tuple(SAMPLES),
    since="55037d2d5",
)
