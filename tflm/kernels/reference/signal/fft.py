"""SignalFftAutoScale, SignalRfft and SignalIrfft: samples scaled to 16 bits, their spectrum, and the inverse."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from tflm.errors import OperatorError
from tflm.kernels.host_memory import track_host_array
from tflm.kernels.node import KernelContext, Node
from tflm.kernels.reference.signal.common import Values, options_by_place, require_rank, require_room, tensors_of, write
from tflm.kernels.registration import Registration, Run
from tflm.kernels.requests import PersistentBuffer, Request, ScratchBuffer, tensors
from tflm.kernels.support.checks import element_count, require_type, shape_error
from tflm.memory.tensor import TFLITE_TYPE, TfLiteTensor
from tflm.schema.enums import TensorType
from tflm.schema.flexbuffer import FlexbufferMap
from tflm.targets import INT, POINTER, Array, Since, Struct, Target
from tflm.targets import INT32 as INT32_FIELD

KISS_FFT_STATE = Struct("kiss_fft_state", nfft=INT, inverse=INT, factors=Array(INT, 64))
KISS_FFTR_STATE = Struct("kiss_fftr_state", substate=POINTER, tmpbuf=POINTER, super_twiddles=POINTER)


@dataclass(frozen=True)
class Scalar:
    """kiss_fft_scalar, and the macros over it.

    Attributes:
        dtype: int16, int32 or float32.
        fraction_bits: FRACBITS, of fixed-point numbers between -1 and 1; 0 for floats, which are never scaled. Integer
            sums wrap.
    """

    dtype: npt.DTypeLike
    fraction_bits: int

    @property
    def samp_max(self) -> int:
        """The largest sample, which represents 1."""
        return (1 << self.fraction_bits) - 1 if self.fraction_bits else 1

    def kf_cexp(self, phases: Iterable[float]) -> Values:
        """exp(i * phase), shape [phases, 2]."""
        roots = np.array([(math.cos(phase), math.sin(phase)) for phase in phases], np.float64).reshape(-1, 2)
        return (np.floor(0.5 + self.samp_max * roots) if self.fraction_bits else roots).astype(self.dtype)

    def smul(self, a: Values, b: Values | int) -> Values:
        """Exact products of fixed-point numbers."""
        return a.astype(np.int64) * b if self.fraction_bits else a * b

    def sround(self, products: Values) -> Values:
        """Products as samples, rounded to nearest, ties up."""
        if not self.fraction_bits:
            return products
        return (products + (1 << self.fraction_bits - 1) >> self.fraction_bits).astype(self.dtype)

    def s_mul(self, a: Values, b: Values | int) -> Values:
        """S_MUL: products of samples."""
        return self.sround(self.smul(a, b))

    def c_mul(self, a: Values, b: Values) -> Values:
        """C_MUL: complex products."""
        by_real, by_imaginary = self.smul(a, b[..., :1]), self.smul(a, b[..., 1:])
        return self.sround(by_real + times_i(by_imaginary))

    def c_fixdiv(self, x: Values, divisor: int) -> Values:
        """C_FIXDIV: x / divisor in fixed point; floats are not divided."""
        return self.s_mul(x, self.samp_max // divisor) if self.fraction_bits else x

    def half_of(self, x: Values) -> Values:
        """HALF_OF, rounded down in fixed point."""
        return x >> 1 if self.fraction_bits else x * np.float32(0.5)


INT16, INT32, FLOAT32 = Scalar(np.int16, 15), Scalar(np.int32, 31), Scalar(np.float32, 0)


class KissFftrConfig:
    """kiss_fftr_cfg: transforms of 2n real values, which are transformed as n complex ones.

    Attributes:
        twiddles: the n-th roots of unity, shape [n, 2].
        super_twiddles: factors that separate, or join, the spectra of even and odd values, in bins 1 to n / 2.
    """

    def __init__(self, scalar: Scalar, n: int, *, inverse: bool):
        self.scalar, self.n, self.inverse = scalar, n, inverse
        self.factors = kf_factor(n)
        sign = 1 if inverse else -1
        self.twiddles = track_host_array(scalar.kf_cexp(sign * 2 * math.pi * i / n for i in range(n)))
        self.super_twiddles = track_host_array(
            scalar.kf_cexp(sign * math.pi * (k / n + 0.5) for k in range(1, n // 2 + 1))
        )

    def kiss_fftr(self, x: Values) -> Values:
        """The spectra of rows of real values, shape [rows, 2n]; returns [rows, n + 1, 2]."""
        scalar, n = self.scalar, self.n
        spectrum = self._kiss_fft(x.reshape(-1, n, 2))
        k = np.arange(1, n // 2 + 1, dtype=np.intp)
        dc = scalar.c_fixdiv(spectrum[:, 0], 2)
        fpk = scalar.c_fixdiv(spectrum[:, k], 2)
        fpnk = scalar.c_fixdiv(conjugate(spectrum[:, n - k]), 2)
        f1k, tw = fpk + fpnk, scalar.c_mul(fpk - fpnk, self.super_twiddles)
        if scalar is INT16:  # C adds these as int
            f1k, tw = f1k.astype(np.int32), tw.astype(np.int32)
        frequencies = np.zeros((len(spectrum), n + 1, 2), scalar.dtype)
        frequencies[:, 0, 0], frequencies[:, n, 0] = dc[:, 0] + dc[:, 1], dc[:, 0] - dc[:, 1]
        frequencies[:, k] = scalar.half_of(f1k + tw)
        frequencies[:, n - k] = scalar.half_of(conjugate(f1k) - conjugate(tw))
        return frequencies

    def kiss_fftri(self, frequencies: Values) -> Values:
        """The rows of real values that have these spectra, of shape [rows, n + 1, 2]; returns [rows, 2n].

        Floats are 2n times too large.
        """
        scalar, n = self.scalar, self.n
        k = np.arange(1, n // 2 + 1, dtype=np.intp)
        first, last = frequencies[:, 0, 0], frequencies[:, n, 0]
        fk = scalar.c_fixdiv(frequencies[:, k], 2)
        fnkc = scalar.c_fixdiv(conjugate(frequencies[:, n - k]), 2)
        fek, fok = fk + fnkc, scalar.c_mul(fk - fnkc, self.super_twiddles)
        folded = np.empty((len(frequencies), n, 2), scalar.dtype)
        folded[:, 0] = scalar.c_fixdiv(pairs(first + last, first - last), 2)
        folded[:, k] = fek + fok
        folded[:, n - k] = conjugate(fek - fok)
        return self._kiss_fft(folded).reshape(-1, 2 * n)

    def _kiss_fft(self, x: Values) -> Values:
        """Complex transforms of rows of values, shape [rows, n, 2]."""
        return self._kf_work(x.swapaxes(0, 1), self.factors).swapaxes(0, 1)

    def _kf_work(self, x: Values, factors: list[int]) -> Values:
        """Complex transforms along the first dimension of x, of shape [values, transforms, 2].

        Args:
            factors: of the number of values.
        """
        if not factors:
            return x
        p, (n, transforms, _) = factors[0], x.shape
        m = n // p
        slots = self._kf_work(x.reshape(m, p * transforms, 2), factors[1:]).reshape(m, p, transforms, 2)
        slots = self.scalar.c_fixdiv(slots, p)
        turned = self.scalar.c_mul(slots[:, 1:], self._twiddles_by_slot(p, m))
        return np.concatenate(self._butterflies[p](self, slots[:, 0], *turned.swapaxes(0, 1)))

    def _twiddles_by_slot(self, p: int, m: int) -> Values:
        """Factors of the values of all slots but the first, shape [m, p - 1, 1, 2]."""
        steps = np.multiply.outer(np.arange(m, dtype=np.intp), np.arange(1, p, dtype=np.intp))
        return self.twiddles[steps * (self.n // (p * m)), np.newaxis]

    def _kf_bfly2(self, x0: Values, x1: Values) -> list[Values]:
        return [x0 + x1, x0 - x1]

    def _kf_bfly3(self, x0: Values, x1: Values, x2: Values) -> list[Values]:
        total = x1 + x2
        middle = x0 - self.scalar.half_of(total)
        upright = times_i(self.scalar.s_mul(x1 - x2, self.twiddles[self.n // 3, 1]))
        return [x0 + total, middle + upright, middle - upright]

    def _kf_bfly4(self, x0: Values, x1: Values, x2: Values, x3: Values) -> list[Values]:
        turned = times_i(x1 - x3 if self.inverse else x3 - x1)
        even, odd = x0 + x2, x1 + x3
        return [even + odd, x0 - x2 + turned, even - odd, x0 - x2 - turned]

    def _kf_bfly5(self, x0: Values, x1: Values, x2: Values, x3: Values, x4: Values) -> list[Values]:
        s_mul, (ya, yb) = self.scalar.s_mul, self.twiddles[[self.n // 5, 2 * self.n // 5]]
        s7, s8, s9, s10 = x1 + x4, x2 + x3, x2 - x3, x1 - x4
        s5 = x0 + s_mul(s7, ya[0]) + s_mul(s8, yb[0])
        s6 = times_i(s_mul(s10, ya[1]) + s_mul(s9, yb[1]))
        s11 = x0 + s_mul(s7, yb[0]) + s_mul(s8, ya[0])
        s12 = times_i(s_mul(s10, yb[1]) - s_mul(s9, ya[1]))
        return [x0 + (s7 + s8), s5 + s6, s11 + s12, s11 - s12, s5 - s6]

    _butterflies: ClassVar[dict[int, Callable[..., list[Values]]]] = {
        2: _kf_bfly2,
        3: _kf_bfly3,
        4: _kf_bfly4,
        5: _kf_bfly5,
    }


def conjugate(x: Values) -> Values:
    """Complex conjugates; the least integer is its own negative."""
    return pairs(x[..., 0], -x[..., 1])


def times_i(x: Values) -> Values:
    """x multiplied by i."""
    return pairs(-x[..., 1], x[..., 0])


def pairs(real: Values, imaginary: Values) -> Values:
    """Complex values by their parts."""
    x = np.empty((*real.shape, 2), real.dtype)
    x[..., 0], x[..., 1] = real, imaginary
    return x


def kiss_fftr_bytes(scalar: Scalar, length: int, target: Target) -> int:
    """Bytes that kiss_fftr_alloc takes for transforms of `length` real values, an even number."""
    n, pair = length // 2, 2 * np.dtype(scalar.dtype).itemsize
    return KISS_FFTR_STATE.size(target) + KISS_FFT_STATE.size(target) + pair * (n + n * 3 // 2)


def kf_factor(n: int) -> list[int]:
    """The factors of n: fours, then a two, threes, fives; the last one belongs to the first stage.

    Raises:
        OperatorError: there are other factors, or none; TFLM has no memory for these lengths.
    """
    found, rest = [], n
    for factor in (4, 2, 3, 5):
        while rest and rest % factor == 0:
            found.append(factor)
            rest //= factor
    if not found or rest > 1:
        reason = f"transforms {2 * n} values at a time; half of that must be a product of 2, 3 and 5"
        raise OperatorError(reason)
    return found


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
    samples = (1, TensorType.INT16)
    input, output, _ = tensors_of(node, [samples], [samples, (0, TensorType.INT32)])
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
        raise shape_error(input, f", rows longer than fft_length {op.length}")
    require_room(output, op.length + 2, output.dims[-1])
    rows, row_length = element_count(input) // max(input.dims[-1], 1), output.dims[-1] // 2
    require_room(output, 2 * row_length * rows, element_count(output))


def _requests_of_rfft(node: Node) -> Iterator[Request]:
    op = _fft_op_data(node.custom_options)
    yield from tensors()(node)
    if node.release.holds(WORK_AREA_IN_SCRATCH):
        yield ScratchBuffer("frame", op.length * np.dtype(op.scalar.dtype).itemsize)


def _transform_tensors(node: Node) -> tuple[TfLiteTensor, TfLiteTensor]:
    input, output = node.expect_tensors(1)
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
        raise shape_error(input, ", must have rows of pairs")
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
