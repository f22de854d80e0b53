"""Layers with weights: sums of products, exact for integers and in TFLM's order for floats, and their outputs.

An operator reads as `y[...] = layer.outputs(layer.product(layer.inputs(x), layer.weights))`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tflm.kernels.arithmetic.fixed_point import QuantizedMultiplier
from tflm.kernels.arithmetic.requantization import AccumulatorRequantization, OutputStage
from tflm.kernels.host_memory import track_host_array
from tflm.kernels.layers.matrix_product import exact_type, factors, float_product, largest_distance

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
