"""Layers with weights: sums of products, exact for integers and in TFLM's order for floats, and their outputs.

An operator reads as `y[...] = layer.outputs(layer.product(layer.inputs(x), layer.weights))`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tflm.errors import OperatorError
from tflm.kernels.arithmetic.fixed_point import QuantizedMultiplier, WideQuantizedMultiplier, quantize_multiplier
from tflm.kernels.arithmetic.requantization import AccumulatorRequantization, OutputStage, einsum
from tflm.kernels.host_memory import track_host_array
from tflm.kernels.node import Node
from tflm.kernels.requests import PersistentBuffer
from tflm.memory.tensor import TfLiteEvalTensor, TfLiteTensor
from tflm.schema.enums import TensorType


def exact_type(largest_sum: int) -> np.dtype[Any]:
    """The dtype for products whose sums have at most this absolute value: the fastest one that is exact."""
    return np.dtype(np.float32 if largest_sum < 1 << 24 else np.float64 if largest_sum < 1 << 53 else np.int64)


def largest_distance(dtype: np.dtype[Any], zero_point: int) -> int:
    """The largest absolute difference of an integer of a type from a zero point."""
    limits = np.iinfo(dtype)
    return max(int(limits.max) - zero_point, zero_point - int(limits.min))


def factors(x: npt.NDArray[Any], zero_point: int, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """Subtract the zero point; returns a factor of an exact product."""
    values: npt.NDArray[Any] = np.subtract(x, zero_point, dtype=dtype)
    return values


def float_product(x: npt.NDArray[np.float32], w: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """x @ w, adding one rounded product at a time, in order.

    BLAS adds in another order; its results differ by more than 1e-5 if large terms cancel.
    """
    rows, columns = x.shape[-2], w.shape[-1]
    batches = np.broadcast_shapes(x.shape[:-2], w.shape[:-2])
    if not x.shape[-1]:  # according to Valgrind, einsum may leave such a result unset
        return np.zeros((*batches, rows, columns), np.float32)
    if math.prod(batches) > max(rows, columns):
        return _product_of_small_matrices(x, w, batches)
    if rows > columns:
        return float_product(w.swapaxes(-1, -2), x.swapaxes(-1, -2)).swapaxes(-1, -2)
    if columns == 1:
        w = np.concatenate([w, w], axis=-1)
    return ordered_product(x, np.ascontiguousarray(w, None))[..., :columns]


def _product_of_small_matrices(
    x: npt.NDArray[np.float32], w: npt.NDArray[np.float32], batches: tuple[int, ...]
) -> npt.NDArray[np.float32]:
    """`float_product` with an inner loop along the batches, of which there are many."""
    count = math.prod(batches)
    x, w = (
        np.ascontiguousarray(
            np.broadcast_to(a, (*batches, *a.shape[-2:])).reshape(count, *a.shape[-2:]).transpose(1, 2, 0), None
        )
        for a in (x, w)
    )
    product: npt.NDArray[np.float32]
    if einsum_fuses():
        product = _sum_in_order(x[:, d, np.newaxis] * w[d] for d in range(len(w)))
    else:
        product = einsum("pdb,dnb->pnb", x, w)
    return product.transpose(2, 0, 1).reshape(*batches, *product.shape[:2])


def ordered_product(x: npt.NDArray[np.float32], w: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """`float_product` for a contiguous w of two columns or more: einsum runs its inner loop along them."""
    if w.shape[-2] and einsum_fuses():
        return _sum_in_order(x[..., d, np.newaxis] * w[..., np.newaxis, d, :] for d in range(w.shape[-2]))
    product: npt.NDArray[np.float32] = einsum("...pd,...dn->...pn", x, w)
    return product


@functools.cache
def einsum_fuses() -> bool:
    """Whether einsum adds products without rounding them first, as numpy's does on arm64."""
    factor = np.float32(1 + 2**-12)
    x = np.array([[-1, factor]], np.float32)
    w = np.full((2, 9), factor, np.float32)
    w[0] *= factor  # whole vectors and single elements: the other product less itself, rounded
    return bool(einsum("pd,dn->pn", x, w).any())


def _sum_in_order(products: Iterator[npt.NDArray[np.float32]]) -> npt.NDArray[np.float32]:
    """The sum of one product or more."""
    sums = next(products) + np.float32(0)  # as sums begin with 0, which -0 does not change
    for product in products:
        sums += product
    return sums


Array = npt.NDArray[Any]


class LayerArrays(NamedTuple):
    """Views of a layer's tensors in the operator's own shapes.

    Attributes:
        x, weights, y: input, weights and output.
        bias: one for each channel of the output; None if omitted.
        constant: whether neither weights nor bias ever change.
    """

    x: Array
    weights: Array
    bias: Array | None
    y: Array
    constant: bool


class FloatLayer:
    """A layer with float32 weights.

    Args:
        weights: (channels, depth), a view.
        bias: one for each channel, a view, or None.
        minimum, maximum: of the output.
        constant: whether the weights never change.
    """

    dtype: np.dtype[Any] = np.dtype(np.float32)

    def __init__(self, weights: Array, bias: Array | None, minimum: Any, maximum: Any, *, constant: bool):
        # Channels are contiguous, so that `float_product` need not copy the weights.
        self.weights = track_host_array(np.asfortranarray(weights, None)) if constant else weights
        self._bias, self._minimum, self._maximum = bias, minimum, maximum

    def inputs(self, x: Array) -> Array:
        """The operand that the weights multiply: the input itself."""
        return x

    def product(self, x: Array, weights: Array) -> Array:
        """sums[g, p, n]: the sum over d of x[g, p, d] * weights[g, n, d], in order, with each product rounded."""
        return float_product(x, weights.swapaxes(-1, -2))

    def outputs(self, sums: Array) -> Array:
        """The output from sums (..., channels): add the bias and clamp."""
        biased = sums if self._bias is None else sums + self._bias
        clamped: Array = np.clip(biased, self._minimum, self._maximum)
        return clamped


class IntegerLayer:
    """A layer with integer weights.

    The accumulator of a channel is bias + sum over d of (x[d] - x_zero_point) * (w[d] - weights_zero_point). BLAS
    computes the sum in float32 or float64 if that holds every partial sum exactly.

    Args:
        weights: (channels, depth), a view.
        bias: one for each channel, a view, or None.
        multiplier: scales the accumulators, which have 64 bits for a wide one and 32 otherwise.
        output: adds the zero point and clamps.
        x_dtype: dtype of the input.
        constant: whether neither weights nor bias ever change.

    Attributes:
        dtype: dtype of factors and sums.
    """

    def __init__(
        self,
        weights: Array,
        bias: Array | None,
        multiplier: QuantizedMultiplier,
        output: OutputStage,
        *,
        x_dtype: np.dtype[Any],
        x_zero_point: int,
        weights_zero_point: int = 0,
        constant: bool,
    ):
        self._weights, self._bias = weights, bias
        self._x_zero_point, self._weights_zero_point = x_zero_point, weights_zero_point
        largest_sum = largest_distance(x_dtype, x_zero_point) * self._largest_sum_of_weights(constant)
        self.dtype = exact_type(largest_sum)
        self._requantize = AccumulatorRequantization(multiplier, output, largest_sum + self._largest_bias(constant))
        self._constant = constant
        if constant:
            self._weights = track_host_array(self._less_zero_point())

    def __call__(self, x: Array) -> Array:
        """The output of an input (positions, depth)."""
        return self.outputs(self.product(self.inputs(x), self.weights))

    @property
    def weights(self) -> Array:
        """The weights less their zero point, (channels, depth)."""
        return self._weights if self._constant else self._less_zero_point()

    def inputs(self, x: Array) -> Array:
        """The operand that the weights multiply: the input less its zero point."""
        return factors(x, self._x_zero_point, self.dtype)

    def product(self, x: Array, weights: Array) -> Array:
        """sums[g, p, n]: the sum over d of x[g, p, d] * weights[g, n, d]."""
        sums: Array = np.matmul(x, weights.swapaxes(-1, -2))
        return sums

    def outputs(self, sums: Array) -> Array:
        """The output from sums (..., channels): add the bias, scale, add the zero point, clamp."""
        accumulators = sums.astype(self._requantize.dtype)
        if self._bias is not None:
            accumulators += self._bias
        return self._requantize(accumulators)

    def _less_zero_point(self) -> Array:
        # Contiguous channels: BLAS multiplies a single position by them twice as fast.
        return np.subtract(self._weights, self._weights_zero_point, dtype=self.dtype, order="F")

    def _largest_sum_of_weights(self, constant: bool) -> int:
        """Upper bound on the sum of a channel's absolute weights."""
        if not constant:
            return largest_distance(self._weights.dtype, self._weights_zero_point) * int(self._weights.shape[1])
        absolute = abs(self._weights.astype(np.int64) - self._weights_zero_point)
        return int(absolute.sum(axis=1, dtype=np.int64).max(initial=0))

    def _largest_bias(self, constant: bool) -> int:
        if self._bias is None or not self._bias.size:
            return 0
        return max(int(self._bias.max()), -int(self._bias.min())) if constant else largest_distance(self._bias.dtype, 0)


TypesByInput = dict[TensorType, tuple[TensorType, ...]]
"""Allowed types of a tensor, by the type of the input."""

WEIGHT_TYPES: TypesByInput = {
    TensorType.FLOAT32: (TensorType.FLOAT32,),
    TensorType.INT8: (TensorType.INT8, TensorType.INT4),
    TensorType.INT16: (TensorType.INT8,),
}

MULTIPLIER, SHIFT = "per_channel_output_multiplier", "per_channel_output_shift"


class ChannelMultipliers:
    """Arrays in the arena: a significand (Q0.31) and a power of two for each channel."""

    def __init__(self, node: Node, channels: int):
        self.significands, self.shifts = (node.array(name, channels, np.int32) for name in (MULTIPLIER, SHIFT))

    @staticmethod
    def requests(channels: int) -> tuple[PersistentBuffer, PersistentBuffer]:
        """The requests for these arrays."""
        return PersistentBuffer(MULTIPLIER, 4 * channels), PersistentBuffer(SHIFT, 4 * channels)

    def fill(self, input: TfLiteTensor, scales: Sequence[float], output: TfLiteTensor) -> None:
        """Compute the multipliers from the scales of input, weights and output."""
        for i, scale in enumerate(scales):
            self.significands[i], self.shifts[i] = quantize_multiplier(input.scale * scale / output.scale)

    def multiplier(self, channels: int, accumulator_bits: int) -> QuantizedMultiplier:
        """The multiplier of the accumulators, for the first channels."""
        kind = WideQuantizedMultiplier if accumulator_bits == 64 else QuantizedMultiplier
        return kind(self.significands[:channels], self.shifts[:channels])


def accumulator_bits(node: Node, input: int, bias: int, without_bias: TensorType) -> int:
    """Bits of an accumulator: 64 for 16-bit activations, unless the bias (or the options, without one) says 32; else
    32."""
    if node.input(input).type != TensorType.INT16:
        return 32
    bias_type = node.input(bias).type if node.has_input(bias) else without_bias
    return 32 if bias_type == TensorType.INT32 else 64


def require_scale_for_each_channel(weights: TfLiteTensor, channels: int) -> None:
    """Reject weights that lack one scale for each of `channels`, along a dimension of that size."""
    assert weights.quantization is not None
    scales, dimension = weights.quantization.scale, weights.quantization.quantized_dimension
    if not 0 <= dimension < len(weights.dims) or not len(scales) == weights.dims[dimension] == channels:
        reason = (
            f"has {len(scales)} scales along dimension {dimension} of shape {list(weights.dims)}; "
            f"{channels} channels need one each"
        )
        raise OperatorError(reason, tensor=weights.name)


def unpacked_elements(weights: TfLiteEvalTensor) -> npt.NDArray[Any]:
    """The elements of weights in their shape; 4-bit weights are unpacked into a new array."""
    data = weights.elements
    if weights.type == TensorType.INT4 and weights.is_constant:
        data = unpack_int4(data, math.prod(weights.dims))
    return data.reshape(weights.dims)


def unpack_int4(packed: npt.NDArray[np.int8], count: int) -> npt.NDArray[np.int8]:
    """Unpack the first `count` signed 4-bit elements, two to a byte with the low half first, to int8."""
    low = np.left_shift(packed, 4) >> 4
    return np.stack([low, packed >> 4], axis=-1).reshape(-1)[:count]
