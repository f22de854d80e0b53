"""Layers with integer weights: exact sums of products, and their way back to 8 or 16 bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tflm.kernels.arithmetic.fixed_point import (
    FloatScaling,
    Multiplier,
    Raw,
    spread,
    wrap_int32,
)
from tflm.kernels.arithmetic.numpy_calls import clip
from tflm.kernels.arithmetic.requantization import OutputStage
from tflm.kernels.host_memory import kept
from tflm.kernels.registration import Run

WEIGHTS_OF_A_SMALL_LAYER = 1 << 11
OUTPUTS_OF_A_SMALL_LAYER = 1 << 7
WRAPS_OF_A_SMALL_LAYER = 8
LEVELS_OF_A_BYTE = 256


class IntegerWeights:
    """Weights of a layer, multiplied exactly in floats; see `tflm.kernels.layers.product.Weights`.

    The accumulator of a channel, bias + sum over d of (w[d] - w_zero) * (x[d] - x_zero), is a sum of products with the
    raw x, and an offset of the channel: what the zero point of x contributes, and the bias.

    Products are in float32 where that is exact: in float64 alone, dense layers take 2.4 times as long (ad01_int8),
    a small ResNet 2.1 times (pretrainedResnet_quant).

    Args:
        weights: (groups, rows, depth...), a view.
        bias: one for each of all rows, a view of any shape, or None.
        x_dtype: of what they are multiplied with.
        x_zero_point, weights_zero_point: taken off each value.
        accumulator_bits: 32 or 64, the width at which the reference's accumulator wraps.
        constant: whether neither they nor the bias ever change.

    Attributes:
        factors: the weights, floats of shape (groups, depth, rows).
        offsets: int64, one for each channel.
        limit: a bound on the absolute value of any sum plus that of its offset.
        may_wrap: whether accumulators may leave `accumulator_bits`.
    """

    depth_major = False

    def __init__(
        self,
        weights: npt.NDArray[Any],
        bias: npt.NDArray[Any] | None,
        *,
        x_dtype: np.dtype[Any],
        x_zero_point: int,
        weights_zero_point: int = 0,
        accumulator_bits: int = 32,
        constant: bool,
    ):
        self._weights, self._bias = weights, bias
        self._x_zero_point, self._weights_zero_point = x_zero_point, weights_zero_point
        self.constant = constant
        groups, rows, *depth = weights.shape
        largest_weights = self._largest_sum_of_weights()
        largest_sum = _largest(x_dtype) * largest_weights
        self.limit = largest_sum + abs(x_zero_point) * largest_weights + self._largest_bias()
        self.may_wrap = accumulator_bits == 32 and self.limit >= 2**31
        # Every partial sum is an integer of at most `largest_sum`: exact in float32 below 2^24, in float64 below 2^53.
        # For a few weights, float32 is not worth the conversion of its sums.
        is_narrow = largest_sum < 2**24 and weights.size > WEIGHTS_OF_A_SMALL_LAYER
        self.dtype = np.dtype(np.float32 if is_narrow else np.float64)
        self.factors = kept(np.empty((groups, weights[0, 0].size, rows), self.dtype))
        self._laid_out = self.factors.reshape(groups, *depth, rows)
        self._ones = kept(np.ones((1, self.factors.shape[1]), self.dtype))
        self._sums_of_weights = kept(np.empty((groups, 1, rows), self.dtype))
        self.offsets = kept(np.empty(groups * rows, np.int64))
        self._bias_as_int64 = kept(np.zeros_like(self.offsets))
        self.lay_out()

    def lay_out(self) -> None:
        """Read the weights and the bias anew."""
        np.copyto(self._laid_out, np.moveaxis(self._weights, 1, -1))
        if self._weights_zero_point:
            np.subtract(self.factors, self.dtype.type(self._weights_zero_point), out=self.factors)
        np.matmul(self._ones, self.factors, out=self._sums_of_weights)
        np.copyto(self.offsets, self._sums_of_weights.reshape(-1), casting="unsafe")
        np.multiply(self.offsets, -self._x_zero_point, out=self.offsets)
        if self._bias is not None:
            np.copyto(self._bias_as_int64.reshape(self._bias.shape), self._bias)
            np.add(self.offsets, self._bias_as_int64, out=self.offsets)

    def product(self, x: npt.NDArray[Any], sums: npt.NDArray[Any]) -> None:
        """Set sums[g, p, n] to the sum over d of x[g, p, d] * w[g, n, d]."""
        np.matmul(x, self.factors, out=sums)

    def _largest_sum_of_weights(self) -> int:
        """A bound on the sum of the absolute values of the weights of a channel."""
        if self.constant:
            groups, rows = self._weights.shape[:2]
            weights = abs(self._weights.astype(np.int64) - self._weights_zero_point)
            return int(weights.reshape(groups, rows, -1).sum(axis=2, dtype=np.int64).max(initial=0))
        largest = _largest(self._weights.dtype) + abs(self._weights_zero_point)
        return largest * int(self._weights[0, 0].size)

    def _largest_bias(self) -> int:
        if self._bias is None or not self._bias.size:
            return 0
        return max(int(self._bias.max()), -int(self._bias.min())) if self.constant else _largest(self._bias.dtype)


def _largest(dtype: np.dtype[Any]) -> int:
    return -int(np.iinfo(dtype).min)


class SumRequantizer:
    """Takes sums of products to the integers of an output; see `tflm.kernels.layers.product.Finish`.

    Offset, scale, zero point, clamp: `_IntegerStage` is the plain way, in int64. The two others give the same, faster.

    Args:
        weights: what the sums were multiplied by.
        multiplier: scales the accumulators; one for all, or one for each channel.
        output: what becomes of the results.
    """

    def __init__(self, weights: IntegerWeights, multiplier: Multiplier, output: OutputStage):
        self._weights, self._multiplier, self._output = weights, multiplier, output
        self._scaling = multiplier.in_float64(weights.limit)
        if self._scaling is not None and not _fits_in_int32(self._scaling, output):
            self._scaling = None
        self._stages: dict[tuple[tuple[int, ...], tuple[int, ...]], _FloatStage | _IntegerStage | _StepStage] = {}

    def bind(self, sums: npt.NDArray[Any], y: npt.NDArray[Any], channels: tuple[int, ...]) -> Run:
        """What sets y from sums of the same shape."""
        key = sums.shape, channels
        if key not in self._stages:
            if self._is_small(sums, y):
                self._stages[key] = _StepStage(*key, self._weights, self._multiplier, self._output)
            elif self._scaling is not None:
                self._stages[key] = _FloatStage(*key, self._weights, self._scaling, self._output)
            else:
                self._stages[key] = _IntegerStage(*key, self._weights, self._multiplier, self._output)
        return self._stages[key].bind(sums, y)

    def _is_small(self, sums: npt.NDArray[Any], y: npt.NDArray[Any]) -> bool:
        if y.itemsize > 1 or y.size > OUTPUTS_OF_A_SMALL_LAYER or sums.dtype != np.float64:
            return False
        limit = self._weights.limit
        if self._weights.may_wrap:
            if limit >> 32 >= WRAPS_OF_A_SMALL_LAYER:
                return False
            limit = 2**31 - 1
        largest = self._multiplier.largest_result(limit)
        return largest is not None and largest + abs(self._output.zero_point) < 2**31

    def refresh(self) -> None:
        """Read the offsets anew."""
        for stage in self._stages.values():
            stage.refresh()


def _fits_in_int32(scaling: FloatScaling, output: OutputStage) -> bool:
    """Whether half a unit and the zero point, shifted left, leave room for a result of 23 bits."""
    return (abs(output.zero_point) + 1) << int(scaling.right.max()) < 1 << 30


class _FloatStage:
    """Sums to outputs of one shape, scaled in float64, where that holds every step exactly, as in all but deep layers.

    In int64, person_detect takes 1.9 times as long and vww_96_int8 2.4 times. Of that, both roundings in one where RELU
    clamps what is negative save person_detect 1.4 times.
    """

    def __init__(
        self,
        shape: tuple[int, ...],
        channels: tuple[int, ...],
        weights: IntegerWeights,
        scaling: FloatScaling,
        output: OutputStage,
    ):
        self._shape, self._channels = shape, channels
        self._offsets, self._scaling, self._output = weights.offsets, scaling, output
        # What is clamped to the zero point and above, as RELU does it, needs no care for negative results.
        self._in_one_step = output.minimum >= output.zero_point
        self._factor, self._half = scaling.factor, np.array(0.5, np.float64)
        if self._in_one_step:
            self._factor, self._half = scaling.in_one_step()
        self._factors = spread(self._factor, shape, channels).reshape(-1)
        self._addends_by_channel = kept(np.empty(weights.offsets.shape, np.float64))
        self._addends = kept(np.empty(shape, np.float64))
        self._scaled = kept(np.empty(self._factors.shape, np.float64))
        self._results, self._signs = (kept(np.empty(self._factors.shape, np.int32)) for _ in range(2))
        self.refresh()

    def refresh(self) -> None:
        by_channel = self._addends_by_channel
        np.copyto(by_channel, self._offsets)
        np.multiply(by_channel, self._factor, out=by_channel)
        np.add(by_channel, self._half, out=by_channel)
        np.copyto(self._addends, by_channel.reshape(self._channels))

    def bind(self, sums: npt.NDArray[Any], y: npt.NDArray[Any]) -> Run:
        sums, addends = sums.reshape(-1), self._addends.reshape(-1)
        factors, scaled, results, in_one_step = self._factors, self._scaled, self._results, self._in_one_step
        add_zero_point = self._bind_add_zero_point() if in_one_step else self._bind_second_rounding()
        clamp_and_store = _clamp_and_store(results.reshape(y.shape), y, self._output)
        add, floor, multiply = np.add, np.floor, np.multiply

        def run() -> None:
            scaled[...] = sums
            multiply(scaled, factors, scaled)
            add(scaled, addends, scaled)
            if not in_one_step:
                floor(scaled, scaled)
            results[...] = scaled  # cuts off, which is floor where it is not negative
            add_zero_point()
            clamp_and_store()

        return run

    def _bind_add_zero_point(self) -> Run:
        results, zero_point, add = self._results, np.array(self._output.zero_point, np.int32), np.add

        def add_zero_point() -> None:
            add(results, zero_point, results)

        return add_zero_point

    def _bind_second_rounding(self) -> Run:
        """What divides the results by 2^right, halves away from zero, and adds the zero point."""
        right, zero_point = self._scaling.right, self._output.zero_point
        if not right.any():
            return self._bind_add_zero_point()
        half = np.where(right > 0, np.left_shift(1, right) >> 1, 0)
        shift, addends, rounds = (
            spread(np.asarray(values, np.int32), self._shape, self._channels).reshape(-1)
            for values in (right, half + np.left_shift(zero_point, right), -(right > 0).astype(np.int64))
        )
        results, signs, always_rounds = self._results, self._signs, bool((right > 0).all())
        add, right_shift, bits_before_the_last = np.add, np.right_shift, np.array(31, np.int32)

        def divide() -> None:
            # The sign of a negative value, -1, is taken off: with that, half is rounded away from zero.
            right_shift(results, bits_before_the_last, signs)
            if not always_rounds:
                np.bitwise_and(signs, rounds, signs)
            add(results, signs, results)
            add(results, addends, results)
            right_shift(results, shift, results)

        return divide


class _IntegerStage:
    """Sums to outputs of one shape, scaled in int64."""

    def __init__(
        self,
        shape: tuple[int, ...],
        channels: tuple[int, ...],
        weights: IntegerWeights,
        multiplier: Multiplier,
        output: OutputStage,
    ):
        self._channels, self._weights, self._output = channels, weights, output
        self._scale = multiplier.spread(shape, channels).scale
        self._addends = kept(np.empty(shape, np.int64))
        self._accumulators, self._scratch = (kept(np.empty(shape, np.int64)) for _ in range(2))
        self._results = kept(np.empty(shape, np.int32))
        self.refresh()

    def refresh(self) -> None:
        np.copyto(self._addends, self._weights.offsets.reshape(self._channels))

    def bind(self, sums: npt.NDArray[Any], y: npt.NDArray[Any]) -> Run:
        accumulators, addends, scratch, results = self._accumulators, self._addends, self._scratch, self._results
        scale, may_wrap, zero_point = self._scale, self._weights.may_wrap, np.array(self._output.zero_point, np.int64)
        clamp_and_store = _clamp_and_store(results, y, self._output)

        def run() -> None:
            accumulators[...] = sums
            np.add(accumulators, addends, accumulators)
            if may_wrap:
                wrap_int32(accumulators)
            scale(accumulators, scratch)
            np.add(accumulators, zero_point, accumulators)
            results[...] = accumulators
            clamp_and_store()

        return run


class _StepStage:
    """Sums to a few outputs of 8 bits with one multiplier, for which calls cost more than the work: a table, searched.

    An output is the number, modulo 2^8, of steps at or below its accumulator. Without it hello_world_int8 takes 1.9
    times as long, keyword_scrambled 1.6 times; without the steps of sums that wrap, that takes 1.35 times as long.
    """

    def __init__(
        self,
        shape: tuple[int, ...],
        channels: tuple[int, ...],
        weights: IntegerWeights,
        multiplier: Multiplier,
        output: OutputStage,
    ):
        self._channels, self._offsets = channels, weights.offsets
        self._addends, self._accumulators = (kept(np.empty(shape, np.float64)) for _ in range(2))
        if weights.may_wrap:
            self._steps = _steps_that_wrap(weights.limit, multiplier, output)
        else:
            self._steps = _steps_from(output.minimum, _steps(-weights.limit, weights.limit, multiplier, output))
        self.refresh()

    def refresh(self) -> None:
        np.copyto(self._addends, self._offsets.reshape(self._channels))

    def bind(self, sums: npt.NDArray[Any], y: npt.NDArray[Any]) -> Run:
        addends, accumulators, count_steps = self._addends, self._accumulators, self._steps.searchsorted
        add = np.add

        def run() -> None:
            add(sums, addends, accumulators)
            y[...] = count_steps(accumulators, "right")

        return run


def _steps(least: int, most: int, multiplier: Multiplier, output: OutputStage) -> npt.NDArray[np.float64]:
    """For each output above the minimum, the least accumulator that gives it; by bisection.

    Args:
        least, most: the accumulators in question, for which the multiplier does not wrap.
    """
    outputs = np.arange(output.minimum + 1, output.maximum + 1, dtype=np.int64)
    below: Raw = kept(np.full(outputs.shape, least - 1, np.int64))
    from_here: Raw = kept(np.full(outputs.shape, most + 1, np.int64))
    scratch = kept(np.empty_like(below))
    for _ in range((most - least + 1).bit_length()):
        middle = (below + from_here) >> 1
        reached = multiplier.scale(middle.copy(), scratch) + output.zero_point >= outputs
        below, from_here = np.where(reached, below, middle), np.where(reached, middle, from_here)
    return from_here.astype(np.float64)


def _steps_from(first: int, steps: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Steps that count from the output `first` on: so many lie below all accumulators."""
    return np.concatenate([kept(np.full(first % LEVELS_OF_A_BYTE, -np.inf, np.float64)), steps])


def _steps_that_wrap(limit: int, multiplier: Multiplier, output: OutputStage) -> npt.NDArray[np.float64]:
    """Steps for sums that leave 32 bits: those of one period again and again.

    Where the accumulator wraps, the output goes back to that of the least accumulator: up, modulo 2^8.
    """
    steps = _steps(-(2**31), 2**31 - 1, multiplier, output)
    least, most = steps.searchsorted([-(2.0**31), 2.0**31 - 1], "right").tolist()
    back = kept(np.full((least - most) % LEVELS_OF_A_BYTE, -(2.0**31), np.float64))
    periods = (limit + 2**31) >> 32
    one_more = [
        np.concatenate([back, steps[least:most]]) + period * 2.0**32 for period in range(1 - periods, periods + 1)
    ]
    first = steps[least:most] - periods * 2.0**32
    return _steps_from(output.minimum + least, np.concatenate([first, *one_more]))


def _clamp_and_store(results: npt.NDArray[np.int32], y: npt.NDArray[Any], output: OutputStage) -> Run:
    minimum, maximum = np.array(output.minimum, np.int32), np.array(output.maximum, np.int32)

    def run() -> None:
        clip(results, minimum, maximum, results)
        y[...] = results

    return run
