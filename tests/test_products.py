"""Products of layers: float sums in their order, integer sums to outputs exactly, whichever way they are worked out."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tflm.kernels.arithmetic.fixed_point import QuantizedMultiplier, WideQuantizedMultiplier
from tflm.kernels.arithmetic.requantization import OutputStage
from tflm.kernels.layers import convolution
from tflm.kernels.layers import product as products
from tflm.kernels.layers.product import FloatLayer, IntegerLayer

SMALL = st.integers(1, 5)


@pytest.mark.parametrize("as_on_arm64", [False, True])
@given(
    groups=st.integers(1, 3) | st.integers(41, 50),
    positions=SMALL | st.integers(1, 40),
    rows=SMALL | st.integers(1, 40),
    depth=st.integers(0, 60),
    cancel=st.booleans(),
)
def test_float_sums_are_taken_in_the_order_of_the_depth(
    as_on_arm64: bool, groups: int, positions: int, rows: int, depth: int, cancel: bool
) -> None:
    """Where numpy's einsum does not round products before it adds them, too."""
    rng = np.random.default_rng([groups, positions, rows, depth])
    x = rng.standard_normal((groups, positions, depth)).astype(np.float32)
    if cancel:
        x[..., 1::2] = -x[..., : depth // 2 * 2 : 2]
    weights = rng.standard_normal((groups, rows, depth)).astype(np.float32)
    expected = np.zeros((groups, positions, rows), np.float32)
    for d in range(depth):
        expected += x[:, :, np.newaxis, d] * weights[:, np.newaxis, :, d]
    layer = FloatLayer(weights[0], None, -np.inf, np.inf, constant=True)
    # The i387 of 32-bit x86 keeps products in 80 bits: there a sum may differ in its last place.
    rtol = 0 if sys.maxsize > 1 << 32 else 1e-6
    with pytest.MonkeyPatch.context() as patch:
        if as_on_arm64:
            patch.setattr(products, "einsum_fuses", lambda: True)
        np.testing.assert_allclose(layer.product(x, weights), expected, rtol=rtol, atol=rtol)


INT8, INT16 = np.dtype(np.int8), np.dtype(np.int16)


@pytest.mark.parametrize("constant", [False, True])
@given(data=st.data())
def test_integer_sums_are_exact(constant: bool, data: st.DataObject) -> None:
    """Sums in float32, float64 and int64 are exact, for the largest products and for random ones."""
    draw = data.draw
    x_dtype = draw(st.sampled_from([INT8, INT16]))
    depth = 2 ** draw(st.integers(0, 14))
    x_zero_point = draw(st.integers(-128, 127) | st.sampled_from([-(2**31), 2**31 - 1]))
    weights_zero_point = draw(st.integers(-128, 127) | st.sampled_from([-(2**31), 2**31 - 1]))
    rng = np.random.default_rng(depth)
    limits = np.iinfo(x_dtype)
    x = np.array([np.full(depth, limits.min), np.full(depth, limits.max), rng.integers(-128, 128, depth)], x_dtype)
    weights = np.array([np.full(depth, -128), np.full(depth, 127), rng.integers(-128, 128, depth)], np.int8)
    layer = IntegerLayer(
        weights,
        None,
        QuantizedMultiplier(1 << 30, 0),
        OutputStage(0, -128, 127),
        x_dtype=x_dtype,
        x_zero_point=x_zero_point,
        weights_zero_point=weights_zero_point,
        constant=constant,
    )
    sums = layer.product(layer.inputs(x)[np.newaxis], layer.weights[np.newaxis])[0]
    for p, n in np.ndindex(3, 3):
        exact = sum((a - x_zero_point) * (w - weights_zero_point) for a, w in zip(x[p].tolist(), weights[n].tolist()))
        if layer.dtype == np.int64:  # it wraps
            exact = (exact + 2**63) % 2**64 - 2**63
        assert int(sums[p, n]) == exact


def scaled(accumulator: int, significand: int, shift: int) -> int:
    """An accumulator of 32 bits times significand * 2^(shift - 31), rounded twice."""
    shifted = (accumulator << max(shift, 0)) + 2**31 & 0xFFFFFFFF
    high = ((shifted - 2**31) * significand + 2**30) >> 31
    if shift >= 0:
        return high
    magnitude = (abs(high) + (1 << -shift - 1)) >> -shift
    return magnitude if high >= 0 else -magnitude


def scaled_wide(accumulator: int, significand: int, shift: int) -> int:
    """An accumulator of 64 bits times significand * 2^(shift - 31), of which 15 bits count, rounded once."""
    reduced = (significand + 2**15) >> 16 if significand < 0x7FFF0000 else 0x7FFF
    return ((accumulator * reduced + (1 << 14 - shift)) >> (15 - shift)) + 2**31 & 0xFFFFFFFF


SIGNIFICANDS = st.integers(2**30, 2**31 - 1) | st.sampled_from([0, 2**30, 2**30 + 1, 3 * 2**29, 2**31 - 1])


@pytest.mark.parametrize("wide", [False, True])
@given(data=st.data())
def test_sums_become_outputs_as_integers_of_any_size_would(wide: bool, data: st.DataObject) -> None:
    """In floats where they are exact, in integers where not; next to where rounding decides."""
    draw = data.draw
    channels, positions = draw(SMALL), 50
    shift = draw(st.integers(-31, 8))
    shifts = draw(st.lists(st.just(shift) | st.integers(-31, 8), min_size=channels, max_size=channels))
    significands = draw(st.lists(SIGNIFICANDS, min_size=channels, max_size=channels))
    depth = 2 ** draw(st.integers(0, 12))
    largest = 128 * 127 * depth
    bias = np.array(draw(st.lists(st.integers(-largest, largest), min_size=channels, max_size=channels)))
    zero_point = 0 if wide else draw(st.integers(-128, 127))
    minimum = draw(st.sampled_from([-32768, -128, zero_point, zero_point + 7]))
    output = OutputStage(zero_point, minimum, draw(st.sampled_from([127, 32767])))
    multiplier = (WideQuantizedMultiplier if wide else QuantizedMultiplier)(np.array(significands), np.array(shifts))
    weights = np.full((channels, depth), 127, np.int8)
    x_zero_point = draw(st.sampled_from([0, -128, 127]))
    layer = IntegerLayer(weights, bias, multiplier, output, x_dtype=INT8, x_zero_point=x_zero_point, constant=True)
    steps = 2.0 ** (31 - np.array(shifts)) / np.maximum(significands, 1)
    sums = _sums_near_halves(draw(st.integers(0, 2**32)), positions, bias, steps, largest)
    y = layer.outputs(sums.astype(layer.dtype))
    function = scaled_wide if wide else scaled
    for (position, channel), total in np.ndenumerate(sums + bias):
        result = function(int(total), significands[channel], shifts[channel]) - (2**31 if wide else 0)
        expected = min(max(result + zero_point, output.minimum), output.maximum)
        assert y[position, channel] == expected


@pytest.mark.parametrize("wide", [False, True])
@given(data=st.data())
def test_accumulators_that_leave_32_bits_wrap(wide: bool, data: st.DataObject) -> None:
    """32-bit accumulators wrap; for all of them, the sum with the zero point does."""
    draw = data.draw
    significand, shift = draw(SIGNIFICANDS), draw(st.integers(-31, 4))
    bias = np.array([draw(st.integers(-(2**31), 2**31 - 1) | st.integers(-1000, 1000))])
    x_dtype = draw(st.sampled_from([INT8, INT16]))
    zero_point = draw(st.integers(-128, 127))
    output = OutputStage(zero_point, draw(st.sampled_from([-128, zero_point])), 127)
    multiplier = (WideQuantizedMultiplier if wide else QuantizedMultiplier)(significand, shift)
    weights = np.array([[-128, draw(st.sampled_from([1, 127])), *[-1] * draw(st.integers(0, 99))]], np.int8)
    layer = IntegerLayer(weights, bias, multiplier, output, x_dtype=x_dtype, x_zero_point=0, constant=True)
    largest = -int(np.iinfo(x_dtype).min) * int(abs(weights.astype(np.int64)).sum())
    steps = 2.0 ** (31 - np.array([shift])) / max(significand, 1)
    sums = _sums_near_halves(draw(st.integers(0, 2**32)), 50, bias, steps, largest)
    near_wraps = np.array([-(2**31) - 1, -(2**31), 2**31 - 1, 2**31]) - bias
    sums[:4, 0] = np.clip(near_wraps, -largest, largest)
    y = layer.outputs(sums.astype(layer.dtype))
    for total, result in zip((sums + bias)[:, 0], y[:, 0]):
        if wide:
            expected = scaled_wide(int(total), significand, shift) - 2**31
        else:
            expected = scaled(int(total), significand, shift)
        assert result == min(max((expected + zero_point + 2**31) % 2**32 - 2**31, output.minimum), output.maximum)


def _sums_near_halves(
    seed: int, positions: int, bias: np.ndarray[Any, Any], steps: np.ndarray[Any, Any], largest: int
) -> np.ndarray[Any, Any]:
    """Sums up to a bound; half of them such that the accumulator is near a half step of the output."""
    rng = np.random.default_rng(seed)
    sums = rng.integers(-largest, largest, (positions, len(steps)), endpoint=True)
    halves = (np.arange(-(positions // 4), positions // 4) + 0.5)[:, np.newaxis]
    near = np.rint(halves * steps) + rng.integers(-1, 2, halves.shape) - bias
    sums[: len(near)] = np.where(abs(near) <= largest, near, sums[: len(near)])
    return sums


@given(st.tuples(*[st.integers(1, 4)] * 6), st.integers(1, 3))
def test_windows_in_parts_give_what_all_at_once_give(shape: tuple[int, ...], groups: int) -> None:
    rng = np.random.default_rng(shape)
    seen = rng.integers(-9, 10, (*shape[:5], groups * shape[5])).astype(np.float32)
    channels = 2 * groups
    weights = rng.integers(-9, 10, (channels, int(np.prod(shape[3:])))).astype(np.float32)
    layer = FloatLayer(weights, None, -np.inf, np.inf, constant=True)
    by_group = weights.reshape(groups, 2, *shape[3:])
    of_groups = seen.reshape(*shape[:5], groups, shape[5])
    expected = np.einsum("brcijgd,gnijd->brcgn", of_groups, by_group).reshape(*shape[:3], channels)
    with pytest.MonkeyPatch.context() as patch:
        for limit in (1, 20, 1 << 18):
            patch.setattr(convolution, "LARGEST_PRODUCT", limit)
            np.testing.assert_array_equal(convolution.convolve(seen, layer, weights, groups), expected)
