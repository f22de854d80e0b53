"""Values for a model's inputs: how many samples an array holds, and their shape, type and quantization."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tflm.errors import DataError
from tflm.memory.tensor import TfLiteTensor

Array = npt.NDArray[Any]


def count_samples(shape: Sequence[int], wanted: Sequence[int]) -> int | None:
    """Number of samples in an array of this shape, for an input of the wanted shape; None if it fits neither way.

    An array with the input's shape is one sample. One with another dimension before it holds a sample at each index of
    that. Dimensions of 1 do not count, so that an input's own batch of 1 may become the number of samples.
    """
    if sizes(shape) == sizes(wanted):
        return 1
    return shape[0] if shape and sizes(shape[1:]) == sizes(wanted) else None


def require_samples(shape: Sequence[int], tensor: TfLiteTensor, name: str) -> int:
    """Number of samples in an array of this shape.

    Raises:
        DataError: it fits neither one sample nor several; the message names it and says what the input expects.
    """
    wanted = list(tensor.data.shape)
    count = count_samples(shape, wanted)
    if count is None:
        several = [*(["N"] if wanted[:1] == [1] else ["N", *wanted[:1]]), *wanted[1:]]
        takes = f"takes shape {wanted}, or [{', '.join(map(str, several))}] for N samples, not {list(shape)}"
        raise DataError(f"{name}: input {tensor.name!r} {takes}")
    return count


def sizes(shape: Sequence[int]) -> tuple[int, ...]:
    """The dimensions other than 1."""
    return tuple(size for size in shape if size != 1)


class Units(NamedTuple):
    """Quantization of a model's input: an integer represents (integer - zero_point) * scale."""

    dtype: np.dtype[Any]
    scale: float
    zero_point: int


class ReferenceInput(TfLiteTensor):
    """A float input of a reference, which is given the integers of another model's input."""

    def __init__(self, tensor: TfLiteTensor, units: Units):
        self.__dict__.update(tensor.__dict__)
        self.units = units

    def real(self, integers: Array) -> Array:
        """The real values that integers represent."""
        return ((integers.astype(np.float64) - self.units.zero_point) * self.units.scale).astype(self.data.dtype)


def units_of(inputs: Sequence[TfLiteTensor]) -> tuple[Units, ...]:
    """Quantization of the model's inputs."""
    return tuple(Units(each.data.dtype, each.scale or 1.0, each.zero_point) for each in inputs)


class ClipInput(TfLiteTensor):
    """An input of a model that keeps state: an array may hold what it takes in several invokes, one after the other."""

    def __init__(self, tensor: TfLiteTensor):
        self.__dict__.update(tensor.__dict__)


def fitted_clip(arrays: Sequence[Array], tensors: Sequence[TfLiteTensor], name: str) -> list[list[Array]]:
    """The inputs of each invoke for a sample of one array for each input.

    An array of one invoke is given in all of them.

    Raises:
        DataError: as for `fitted`, or the arrays are for different numbers of invokes.
    """
    inputs = [
        [fitted(part, tensor, name) for part in _invokes(np.asarray(values, None), tensor)]
        for values, tensor in zip(arrays, tensors)
    ]
    counts = {len(parts) for parts in inputs if len(parts) > 1}
    if len(counts) > 1:
        raise DataError(f"{name}: its arrays are for different numbers of invokes: {sorted(counts)}")
    return [[parts[step % len(parts)] for parts in inputs] for step in range(max(counts, default=1))]


def _invokes(values: Array, tensor: TfLiteTensor) -> list[Array]:
    """The parts of an array that invokes take; zeros come before it if it does not fill the first."""
    wanted = tensor.data.shape
    shape = (1,) * (len(wanted) - values.ndim) + values.shape
    longer = [axis for axis, (have, want) in enumerate(zip(shape, wanted)) if have != want]
    if not isinstance(tensor, ClipInput) or len(shape) != len(wanted) or len(longer) != 1:
        return [values]
    (axis,) = longer
    count = -(-shape[axis] // wanted[axis])
    before = [(0, 0)] * len(shape)
    before[axis] = count * wanted[axis] - shape[axis], 0
    zero = tensor.zero_point if values.dtype == tensor.data.dtype and tensor.scale else 0
    return np.split(np.pad(values.reshape(shape), before, constant_values=zero), count, axis)


def fitted(values: Array, tensor: TfLiteTensor, name: str) -> Array:
    """Values in the shape and type of the input; real values are quantized.

    Raises:
        DataError: they don't fit; the message names the sample and says what the input expects.
    """
    wanted = tensor.data
    if sizes(values.shape) != sizes(wanted.shape):
        takes = f"takes shape {list(wanted.shape)}"
        raise DataError(f"{name}: has shape {list(values.shape)}; input {tensor.name!r} {takes}")
    values = values.reshape(wanted.shape)
    if values.dtype == wanted.dtype:
        return values
    if values.dtype.kind == "f":
        return tensor.quantized(values)
    if isinstance(tensor, ReferenceInput) and wanted.dtype.kind == "f" and tensor.units.dtype.kind in "iu":
        return tensor.real(_cast(values, tensor.units.dtype, tensor, name))
    if wanted.dtype.kind in "fc":
        raise DataError(f"{name}: has {values.dtype} numbers; input {tensor.name!r} takes {wanted.dtype}: give floats")
    return _cast(values, wanted.dtype, tensor, name)


def _cast(values: Array, dtype: np.dtype[Any], tensor: TfLiteTensor, name: str) -> Array:
    """Integers in another type, if it can hold them."""
    limits = np.iinfo(np.uint8 if dtype.kind == "b" else dtype)
    if values.size and (values.min() < limits.min or values.max() > limits.max):
        raise DataError(
            f"{name}: has {values.dtype} numbers from {values.min()} to {values.max()}; input {tensor.name!r} takes "
            f"{dtype}. Real values are given as floats, which are quantized"
        )
    return values.astype(dtype)
