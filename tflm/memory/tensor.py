"""A tensor's type, shape, quantization and bytes: `TfLiteEvalTensor` while running, `TfLiteTensor` in full."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tflm.errors import ModelError, TensorError
from tflm.releases import STATIC_MEMORY
from tflm.schema.enums import ELEMENT_TYPES, TensorType
from tflm.schema.model import Model
from tflm.schema.tables import Tensor
from tflm.targets import BOOL, FLOAT, INT, INT32, POINTER, SIZE_T, Either, EnumType, Struct

TFLITE_TYPE = EnumType(largest=18)
TFLITE_ALLOCATION_TYPE = EnumType(largest=6)
TFLITE_QUANTIZATION = Struct("TfLiteQuantization", type=INT, params=POINTER)
TFLITE_QUANTIZATION_PARAMS = Struct("TfLiteQuantizationParams", scale=FLOAT, zero_point=INT32)
TFLITE_AFFINE_QUANTIZATION = Struct(
    "TfLiteAffineQuantization", scale=POINTER, zero_point=POINTER, quantized_dimension=INT32
)
TFLITE_EVAL_TENSOR = Struct("TfLiteEvalTensor", data=POINTER, dims=POINTER, type=TFLITE_TYPE)
TFLITE_TENSOR = Either(
    STATIC_MEMORY,
    Struct(
        "TfLiteTensor",
        quantization=TFLITE_QUANTIZATION,
        params=TFLITE_QUANTIZATION_PARAMS,
        data=POINTER,
        dims=POINTER,
        bytes=SIZE_T,
        type=TFLITE_TYPE,
        allocation_type=TFLITE_ALLOCATION_TYPE,
        is_variable=BOOL,
    ),
    Struct(
        "TfLiteTensor",
        type=TFLITE_TYPE,
        data=POINTER,
        dims=POINTER,
        params=TFLITE_QUANTIZATION_PARAMS,
        allocation_type=TFLITE_ALLOCATION_TYPE,
        bytes=SIZE_T,
        allocation=POINTER,
        name=POINTER,
        delegate=POINTER,
        buffer_handle=INT,
        data_is_stale=BOOL,
        is_variable=BOOL,
        quantization=TFLITE_QUANTIZATION,
        sparsity=POINTER,
        dims_signature=POINTER,
    ),
)

UNSIZED_TYPES = {
    TensorType.STRING,
    TensorType.VARIANT,
    TensorType.INT2,
    TensorType.UINT4,
    TensorType.FLOAT8_E4M3FN,
    TensorType.FLOAT8_E5M2,
}
"""Types whose size TFLM does not know: it cannot run models with such tensors."""


def int_array_bytes(count: int) -> int:
    """Bytes of a TfLiteIntArray: its length, then `count` elements."""
    return 4 + 4 * count


class AffineQuantization(NamedTuple):
    """Per-channel quantization, real = scale[c] * (integer - zero_point[c]).

    Attributes:
        scale, zero_point: one for each slice along `quantized_dimension`, or a single one for all.
        quantized_dimension: the dimension that the slices count along.
    """

    scale: tuple[float, ...]
    zero_point: tuple[int, ...]
    quantized_dimension: int


class TfLiteEvalTensor:
    """A tensor while the model runs.

    Attributes:
        name: its name in the model, for messages.
        type: element type.
        dims: shape; () for a scalar.
        data: its elements as an array of `dims`: a view of the model for a constant, a view of the arena once that
            is planned, None before. 4-bit constants are the packed bytes, in one dimension.
        offset: offset in the arena, in bytes; None for a constant and before planning.
        is_constant: whether its data is in the model. A variable's is until it is placed in the arena.
    """

    __slots__ = ("data", "dims", "is_constant", "name", "offset", "type")

    def __init__(self, model: Model, tensor: Tensor):
        self.name = tensor.name or ""
        self.type = tensor.type
        self.dims = tensor.shape or ()
        self.offset: int | None = None
        self.data: npt.NDArray[Any] | None = None
        constant = model.constant(tensor)
        self.is_constant = constant is not None
        if constant is not None:
            self.data = _constant_array(constant, self.type, self.dims)

    def __repr__(self) -> str:
        place = "" if self.offset is None else f" at {self.offset}"
        return f"TfLiteEvalTensor({self.name!r}, {self.type.name}, {list(self.dims)}{place})"

    @property
    def elements(self) -> npt.NDArray[Any]:
        """`data`, which exists while an operator binds or runs."""
        assert self.data is not None, f"tensor {self.name!r} was not planned"
        return self.data

    @property
    def byte_length(self) -> int:
        """Size in the arena, in bytes; 4-bit elements take one each."""
        if self.type in UNSIZED_TYPES:
            reason = f"{self.type.name} has no fixed size and can't be run (tensor {self.name!r})"
            raise ModelError(reason, table="Tensor", field="type")
        return math.prod(self.dims) * ELEMENT_TYPES[self.type].dtype.itemsize


def _constant_array(constant: memoryview, type: TensorType, dims: tuple[int, ...]) -> npt.NDArray[Any]:
    element = ELEMENT_TYPES[type]
    size = element.packed_bytes(dims) if element.bits else len(constant)
    flat = np.frombuffer(constant[:size], element.dtype)
    return flat.reshape(dims) if element.bits >= 8 else flat


class TensorData(np.ndarray[Any, np.dtype[Any]]):
    """The elements of an input or output: a numpy view of the arena that accepts only values that the tensor can hold.

    Writing an array of another dtype or shape, or a number that does not fit, raises `TensorError`; so no value is
    ever rounded, wrapped or broadcast by accident. A single number fills whatever it is assigned to.
    """

    def __setitem__(self, key: Any, value: Any) -> None:
        try:
            values = np.asarray(value, None)
        except ValueError as error:
            raise TensorError(f"can't write this to a tensor: {error}") from None
        if values.dtype != self.dtype and not _fits(values, isinstance(value, np.ndarray), self.dtype):
            raise TensorError(
                f"can't write {_described(value, values)} to a tensor of {self.dtype}; "
                f"quantize it first, or convert it with .astype(np.{self.dtype})"
            )
        shape = np.shape(self[key])
        if values.ndim and values.size != math.prod(shape):
            raise TensorError(f"can't write shape {values.shape} to shape {shape}")
        if not self.flags.writeable:
            raise TensorError("can't write to a constant of the model, which a device has in flash")
        try:
            super().__setitem__(key, values)
        except ValueError as error:
            raise TensorError(f"can't write shape {values.shape} to shape {shape}: {error}") from None


def _fits(values: npt.NDArray[Any], is_array: bool, dtype: np.dtype[Any]) -> bool:
    """Whether plain numbers (or an array of one number) can be stored in `dtype` without conversion."""
    if is_array and values.ndim:
        return False
    if dtype.kind in "iu" and values.dtype.kind in "iu":
        limits = np.iinfo(dtype)
        return values.size == 0 or (int(values.min()) >= limits.min and int(values.max()) <= limits.max)
    if dtype.kind in "fc" and values.dtype.kind in ("iuf" if dtype.kind == "f" else "iufc"):
        finite = values[np.isfinite(values)]
        return finite.size == 0 or float(abs(finite).max()) <= float(np.finfo(dtype).max)
    return False


def _described(value: object, values: npt.NDArray[Any]) -> str:
    return f"{values.dtype}" if values.ndim else f"{value!r}"


class TfLiteTensor:
    """A tensor in full, as kernels see it while they prepare and callers see inputs and outputs.

    Attributes:
        name, type, dims: as in the model; dims is the shape that holds at run time.
        bytes: size in the arena.
        scale, zero_point: quantization of the whole tensor, or of its first channel; 0.0 and 0 without one.
        quantization: the quantization by channel, None without one.
        is_variable: whether it keeps its value from one invoke to the next.
        is_constant: whether its data is in the model.
    """

    def __init__(self, tensor: Tensor, eval_tensor: TfLiteEvalTensor):
        self.name = eval_tensor.name
        self.type = eval_tensor.type
        self.dims = eval_tensor.dims
        self.bytes = eval_tensor.byte_length
        self.is_variable = tensor.is_variable
        self.is_constant = eval_tensor.is_constant
        self.quantization = affine_quantization(tensor)
        self.scale = self.quantization.scale[0] if self.quantization else 0.0
        self.zero_point = self.quantization.zero_point[0] if self.quantization else 0
        self._data = eval_tensor.data

    @property
    def data(self) -> npt.NDArray[Any]:
        """The elements, of shape `dims` and the tensor's own type: a `TensorData` view, not a copy.

        Raises:
            TensorError: the arena is not planned yet.
        """
        if self._data is None:
            raise TensorError(f"tensor {self.name!r} has no data before the arena is planned")
        return self._data.view(TensorData)

    @data.setter
    def data(self, values: npt.ArrayLike) -> None:
        self.data[...] = values

    def dequantized(self) -> npt.NDArray[np.float32]:
        """The real values, a float32 copy of shape `dims`: scale * (integer - zero_point), by channel where needed.

        The values of a tensor without quantization are returned unchanged.

        Raises:
            TensorError: the tensor holds complex numbers; or it has scales that do not go with its shape.
        """
        if self.data.dtype.kind == "c":
            raise TensorError(f"{self.name!r} holds {self.data.dtype}, which are not real values; use its data")
        with np.errstate(all="ignore"):
            values = np.array(self.data, np.float64)
            if self.quantization is not None:
                scale, zero_point = map(self._by_channel, (self.quantization.scale, self.quantization.zero_point))
                values = (values - zero_point) * scale
            return values.astype(np.float32)

    def quantized(self, values: npt.ArrayLike) -> npt.NDArray[Any]:
        """Quantize real values: an array of the tensor's dtype, rounded half away from zero, saturated.

        Without quantization, the values are only converted.

        Raises:
            TensorError: a value is not a real number, or not one that an unquantized tensor can hold; or the scale is
                not positive.
        """
        given = np.asarray(values, None)
        if given.dtype.kind not in "biuf":
            raise TensorError(f"only real numbers can be quantized for {self.name!r}, not {given.dtype}")
        with np.errstate(all="ignore"):
            real = given.astype(np.float64)
        dtype = self.data.dtype
        if self.quantization is None or dtype.kind not in "iu":
            return self._unquantized(real)
        if np.isnan(real).any():
            raise TensorError(f"nan can't be quantized for {self.name!r}: no integer represents it")
        scale, zero_point = map(self._by_channel, (self.quantization.scale, self.quantization.zero_point))
        if not np.all(scale > 0):
            raise TensorError(f"{self.name!r} has a scale that is not positive, so values can't be quantized")
        limits = np.iinfo(dtype)
        with np.errstate(all="ignore"):
            scaled = real / scale
            rounded = np.trunc(scaled + np.copysign(0.5, scaled)) + zero_point
            inside = np.clip(rounded, limits.min, limits.max).astype(dtype)
        # As a float, the largest 64-bit integer rounds up to one that does not fit.
        saturated: npt.NDArray[Any] = np.where(rounded >= limits.max, dtype.type(limits.max), inside)
        return saturated

    def _unquantized(self, real: npt.NDArray[np.float64]) -> npt.NDArray[Any]:
        dtype = self.data.dtype
        with np.errstate(all="ignore"):
            held = real.astype(dtype)
        if dtype.kind in "iu" and not np.array_equal(held, real):
            raise TensorError(f"{self.name!r} holds {dtype} without a scale; values must be whole numbers in its range")
        return held

    def _by_channel(self, values: tuple[float, ...] | tuple[int, ...]) -> npt.NDArray[np.float64]:
        assert self.quantization is not None
        if len(values) == 1:
            return np.float64(values[0])  # type: ignore[return-value]  # a scalar broadcasts like an array
        dimension = 0 if self.dims == (len(values),) else self.quantization.quantized_dimension
        if not 0 <= dimension < len(self.dims) or self.dims[dimension] != len(values):
            raise TensorError(
                f"{self.name!r} has {len(values)} scales along dimension {dimension}, which its shape "
                f"{list(self.dims)} does not have"
            )
        shape = [1] * len(self.dims)
        shape[dimension] = len(values)
        return np.asarray(values, np.float64).reshape(shape)

    def __repr__(self) -> str:
        quantization = f", scale={self.scale:g}, zero_point={self.zero_point}" if self.quantization else ""
        return f"TfLiteTensor({self.name!r}, {self.type.name}, {list(self.dims)}{quantization})"


def affine_quantization(tensor: Tensor) -> AffineQuantization | None:
    """The quantization of a tensor of the model; None unless it has both scales and zero points.

    A list of zero points that is not as long as the scales counts as its first element for all of them.
    """
    parameters = tensor.quantization
    if parameters is None or not parameters.scale or not parameters.zero_point:
        return None
    zero_points = parameters.zero_point
    if len(zero_points) != len(parameters.scale):
        zero_points = zero_points[:1] * len(parameters.scale)
    return AffineQuantization(parameters.scale, zero_points, parameters.quantized_dimension)
