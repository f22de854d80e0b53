"""SignalFftAutoScale, SignalRfft and SignalIrfft: samples scaled to 16 bits, their spectrum, and the inverse."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tflm.errors import OperatorError
from tflm.kernels.node import KernelContext, Node
from tflm.kernels.reference.signal.common import Values, options_by_place, require_rank, require_room, write
from tflm.kernels.reference.signal.kiss_fft import (
    FLOAT32,
    INT16,
    INT32,
    KissFftrConfig,
    Scalar,
    kf_factor,
    kiss_fftr_bytes,
)
from tflm.kernels.registration import Registration, Run
from tflm.kernels.requests import PersistentBuffer, Request, ScratchBuffer, tensors
from tflm.kernels.support.checks import element_count, require_type
from tflm.memory.tensor import TFLITE_TYPE, TfLiteTensor
from tflm.schema.enums import TensorType
from tflm.schema.flexbuffer import FlexbufferMap
from tflm.targets import INT, POINTER, Since, Struct
from tflm.targets import INT32 as INT32_FIELD

WORK_AREA_IN_SCRATCH = "f99fcf84e"
"""The commit that changed the frame of an RFFT from a persistent to a scratch buffer."""

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

SCALARS = {TensorType.INT16: INT16, TensorType.INT32: INT32, TensorType.FLOAT32: FLOAT32}


@dataclass
class FftOpData:
    """The type of an operator's samples, and the number of real values in a transform."""

    type: TensorType
    length: int

    @property
    def scalar(self) -> Scalar:
        """The arithmetic of the type."""
        return SCALARS[self.type]

    def config(self, *, inverse: bool) -> KissFftrConfig:
        """kissfft's configuration of the transforms."""
        return KissFftrConfig(self.scalar, self.length // 2, inverse=inverse)


# --- SignalFftAutoScale ------------------------------------------------------------------------------------------


def _prepare_auto_scale(context: KernelContext, node: Node) -> None:
    node.expect(inputs=1, outputs=2)
    input = node.input(0)
    output = node.output(0)
    scale_bit = node.output(1)
    for tensor, rank, type in (
        (input, 1, TensorType.INT16),
        (output, 1, TensorType.INT16),
        (scale_bit, 0, TensorType.INT32),
    ):
        require_rank(tensor, rank)
        require_type(tensor, type)
    require_room(input, element_count(output), element_count(input))


def _bind_auto_scale(context: KernelContext, node: Node) -> Run:
    y, scale_bit = node.eval_output(0).elements, node.eval_output(1).elements.reshape(1)
    x = node.eval_input(0).elements[: y.size]

    def run() -> None:
        largest = max_abs_16(x)
        scale_bit[0] = 15 - largest.bit_length() if largest > 0 else 0
        y[...] = x << np.int16(scale_bit[0])

    return run


def max_abs_16(x: Values) -> int:
    """MaxAbs16: the largest magnitude, in an int16; that of -32768 wraps, and is less than anything after it."""
    if not (x == -(2**15)).any():
        return int(abs(x).max(initial=0))
    largest = 0
    for sample in x.tolist():
        if sample > largest:
            largest = sample
        elif -sample > largest:
            largest = -sample if sample > -(2**15) else sample
    return largest


# --- SignalRfft --------------------------------------------------------------------------------------------------


def _fft_op_data(custom_options: memoryview) -> FftOpData:
    """The options of SignalRfft or SignalIrfft.

    Raises:
        OperatorError: TFLM has no transform of that type or length.
    """
    length = options_by_place(custom_options, "T", "fft_length")["fft_length"]
    type = FlexbufferMap(custom_options).as_int32("T")  # goes by its name
    if type not in SCALARS:
        supported = ", ".join(f"{kind.value} for {kind.name}" for kind in SCALARS)
        raise OperatorError(f"T is {type}; supported here: {supported}")
    if length % 2:
        raise OperatorError(f"fft_length is {length}, must be even")
    kf_factor(length // 2)
    return FftOpData(TensorType(type), length)


def _init_rfft(context: KernelContext, node: Node) -> None:
    node.op_data = _fft_op_data(node.custom_options)


def _init_requests_of_rfft(node: Node) -> Iterator[Request]:
    op = _fft_op_data(node.custom_options)
    if not node.release.holds(WORK_AREA_IN_SCRATCH):
        yield PersistentBuffer("work area", op.length * np.dtype(op.scalar.dtype).itemsize)
    yield PersistentBuffer("state", kiss_fftr_bytes(op.scalar, op.length, node.target))


def _prepare_rfft(context: KernelContext, node: Node) -> None:
    op: FftOpData = node.op_data
    input, output = _transform_tensors(node)
    if input.dims[-1] > op.length:
        reason = f"has shape {list(input.dims)}, rows longer than fft_length {op.length}"
        raise OperatorError(reason, tensor=input.name)
    require_room(output, op.length + 2, output.dims[-1])
    rows, row_length = element_count(input) // max(input.dims[-1], 1), output.dims[-1] // 2
    require_room(output, 2 * row_length * rows, element_count(output))


def _requests_of_rfft(node: Node) -> Iterator[Request]:
    op = _fft_op_data(node.custom_options)
    yield from tensors()(node)
    if node.release.holds(WORK_AREA_IN_SCRATCH):
        yield ScratchBuffer("frame", op.length * np.dtype(op.scalar.dtype).itemsize)


def _transform_tensors(node: Node) -> tuple[TfLiteTensor, TfLiteTensor]:
    node.expect(inputs=1, outputs=1)
    input = node.input(0)
    output = node.output(0)
    if not input.dims:
        raise OperatorError("is a scalar, must have at least one dimension", tensor=input.name)
    require_rank(output, len(input.dims))
    require_type(input, node.op_data.type)
    require_type(output, node.op_data.type)
    return input, output


def _bind_rfft(context: KernelContext, node: Node) -> Run:
    op: FftOpData = node.op_data
    x, output = node.eval_input(0).elements, node.eval_output(0)
    rows, given, row_length = x.size // max(x.shape[-1], 1), x.shape[-1], output.dims[-1] // 2
    config = op.config(inverse=False)
    y = output.elements.reshape(-1)

    def run() -> None:
        frames = np.zeros((rows, op.length), op.scalar.dtype)
        frames[:, :given] = x.reshape(rows, given)
        spectra = np.zeros((rows, row_length, 2), op.scalar.dtype)
        spectra[:, : op.length // 2 + 1] = config.kiss_fftr(frames)
        write(y, spectra.reshape(-1))

    return run if x.size else lambda: y.fill(0)


# --- SignalIrfft -------------------------------------------------------------------------------------------------


def _init_irfft(context: KernelContext, node: Node) -> None:
    node.op_data = _fft_op_data(node.custom_options)


def _init_requests_of_irfft(node: Node) -> Iterator[Request]:
    op = _fft_op_data(node.custom_options)
    state = IRFFT_FLOAT_STATE.size(node.target) if op.type == TensorType.FLOAT32 else 0
    yield PersistentBuffer("state", state + kiss_fftr_bytes(op.scalar, op.length, node.target))


def _prepare_irfft(context: KernelContext, node: Node) -> None:
    op: FftOpData = node.op_data
    input, output = _transform_tensors(node)
    rows = element_count(input) // max(input.dims[-1], 1)
    if rows > 1 and input.dims[-1] % 2:
        raise OperatorError(f"has shape {list(input.dims)}, must have rows of pairs", tensor=input.name)
    require_room(input, op.length + 2, input.dims[-1])
    require_room(output, op.length, output.dims[-1])
    require_room(output, rows * output.dims[-1], element_count(output))


def _bind_irfft(context: KernelContext, node: Node) -> Run:
    op: FftOpData = node.op_data
    x, y = node.eval_input(0).elements, node.eval_output(0).elements
    rows = x.size // max(x.shape[-1], 1)
    config = op.config(inverse=True)

    def run() -> None:
        spectra = x.reshape(-1)[: rows * (x.shape[-1] // 2) * 2].reshape(rows, -1, 2)
        values = config.kiss_fftri(spectra)
        if op.type == TensorType.FLOAT32:
            values /= np.float32(op.length)
        signals = np.zeros((rows, y.shape[-1]), y.dtype)
        signals[:, : op.length] = values
        write(y.reshape(-1), signals.reshape(-1))

    return run if x.size else lambda: y.fill(0)


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
    types=tuple(SCALARS),
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
    types=tuple(SCALARS),
    since="55037d2d5",
)
