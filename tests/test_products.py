"""Products of layers: float sums in their order, integer sums to outputs exactly, whichever way they are worked out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tflm.kernels.arithmetic.fixed_point import QuantizedMultiplier, WideQuantizedMultiplier
from tflm.kernels.arithmetic.requantization import OutputStage
from tflm.kernels.layers.float_product import FloatWeights
from tflm.kernels.layers.integer_product import IntegerWeights, SumRequantizer
from tflm.kernels.layers.product import blocks

SMALL = st.integers(1, 5)


@given(st.integers(1, 3), SMALL | st.integers(1, 40), SMALL | st.integers(1, 40), st.integers(1, 60), st.booleans())
def test_float_sums_are_taken_in_the_order_of_the_depth(
    groups: int, positions: int, rows: int, depth: int, cancel: bool
) -> None:
    rng = np.random.default_rng([groups, positions, rows, depth])
    x = rng.standard_normal((groups, positions, depth)).astype(np.float32)
    if cancel:
        x[..., 1::2] = -x[..., : depth // 2 * 2 : 2]
    weights = rng.standard_normal((groups, rows, depth)).astype(np.float32)
    expected = np.zeros((groups, positions, rows), np.float32)
    for d in range(depth):
        expected += x[:, :, np.newaxis, d] * weights[:, np.newaxis, :, d]
    layer = FloatWeights(weights, positions=positions, constant=True)
    sums = np.empty((groups, positions, rows), np.float32)
    if layer.depth_major:
        x = np.ascontiguousarray(x.transpose(0, 2, 1)).transpose(0, 2, 1)
        sums = np.empty((groups, rows, positions), np.float32).transpose(0, 2, 1)
    layer.product(x, sums)
    np.testing.assert_array_equal(sums, expected)


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
    layer = IntegerWeights(
        np.full((1, channels, depth), 127, np.int8),
        bias,
        x_dtype=np.dtype(np.int8),
        x_zero_point=draw(st.integers(-128, 127)),
        accumulator_bits=64 if wide else 32,
        constant=True,
    )
    zero_point = 0 if wide else draw(st.integers(-128, 127))
    minimum = draw(st.sampled_from([-32768, -128, zero_point, zero_point + 7]))
    output = OutputStage(zero_point, minimum, draw(st.sampled_from([127, 32767])))
    kind = WideQuantizedMultiplier if wide else QuantizedMultiplier
    finish = SumRequantizer(layer, kind(significands, shifts), output)
    steps = 2.0 ** (31 - np.array(shifts)) / np.maximum(significands, 1)
    sums = _sums_near_halves(draw(st.integers(0, 2**32)), positions, layer, steps, largest)
    y = np.empty((1, positions, channels), np.int16)
    finish.bind(sums, y, (1, 1, channels))()
    function = scaled_wide if wide else scaled
    for (position, channel), total in np.ndenumerate(sums[0].astype(np.int64) + layer.offsets):
        result = function(int(total), significands[channel], shifts[channel]) - (2**31 if wide else 0)
        expected = min(max(result + zero_point, output.minimum), output.maximum)
        assert y[0, position, channel] == expected


@pytest.mark.parametrize("wide", [False, True])
@given(data=st.data())
def test_a_small_layer_gives_what_integers_of_any_size_would(wide: bool, data: st.DataObject) -> None:
    """Biases of any size, so that accumulators wrap."""
    draw = data.draw
    significand, shift = draw(SIGNIFICANDS), draw(st.integers(-31, 4))
    bias = np.array([draw(st.integers(-(2**31), 2**31 - 1) | st.integers(-1000, 1000))])
    layer = IntegerWeights(
        np.array([[[-128, draw(st.sampled_from([1, 127])), *[-1] * draw(st.integers(0, 99))]]], np.int16),
        bias,
        x_dtype=np.dtype(draw(st.sampled_from([np.int8, np.int16]))),
        x_zero_point=draw(st.integers(-128, 127)),
        accumulator_bits=64 if wide else 32,
        constant=True,
    )
    zero_point = draw(st.integers(-128, 127))
    output = OutputStage(zero_point, draw(st.sampled_from([-128, zero_point])), 127)
    multiplier = (WideQuantizedMultiplier if wide else QuantizedMultiplier)(significand, shift)
    largest = layer.limit - abs(int(layer.offsets[0]))
    steps = 2.0 ** (31 - np.array([shift])) / max(significand, 1)
    sums = _sums_near_halves(draw(st.integers(0, 2**32)), 50, layer, steps, largest)
    near_wraps = np.array([-(2**31) - 1, -(2**31), 2**31 - 1, 2**31]) - layer.offsets
    sums[0, :4, 0] = np.clip(near_wraps, -largest, largest)
    y = np.empty((1, 50, 1), np.int8)
    SumRequantizer(layer, multiplier, output).bind(sums, y, (1, 1, 1))()
    for total, result in zip(sums[0, :, 0].astype(np.int64) + layer.offsets, y[0, :, 0]):
        if wide:
            expected = scaled_wide(int(total), significand, shift) - 2**31
        else:
            expected = scaled(int(total), significand, shift)
        assert result == min(max((expected + zero_point + 2**31) % 2**32 - 2**31, output.minimum), output.maximum)


def _sums_near_halves(
    seed: int, positions: int, layer: IntegerWeights, steps: np.ndarray[Any, Any], largest: int
) -> np.ndarray[Any, Any]:
    """Sums within the bounds of a layer; half of them such that the accumulator is near a half step of the output."""
    rng = np.random.default_rng(seed)
    sums = rng.integers(-largest, largest, (1, positions, len(steps)), endpoint=True)
    halves = (np.arange(-(positions // 4), positions // 4) + 0.5)[:, np.newaxis]
    near = np.rint(halves * steps) + rng.integers(-1, 2, halves.shape) - layer.offsets
    sums[0, : len(near)] = np.where(abs(near) <= largest, near, sums[0, : len(near)])
    return sums.astype(layer.dtype)


@given(st.lists(st.integers(1, 9), min_size=1, max_size=4), st.integers(0, 200))
def test_blocks_cover_everything_once_and_are_no_larger_than_asked(shape: list[int], limit: int) -> None:
    counts = np.zeros(shape, np.int64)
    cuts = blocks(tuple(shape), limit)
    for block in cuts:
        counts[block] += 1
        assert counts[block].size <= max(limit, 1)
    assert (counts == 1).all()
    sizes = [counts[block].size for block in cuts]
    assert sizes[0] == max(sizes)
    assert limit < 4 or counts.size == 1 or min(sizes) > 1
