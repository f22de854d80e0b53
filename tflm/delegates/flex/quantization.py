"""Quantization to integers, dequantization, and rounding of floats as if they were quantized."""

from __future__ import annotations

from typing import Any

import numpy as np

from tflm.delegates.flex.registry import Array, operator, require

FLOAT32 = np.dtype(np.float32)


def _nudged(low: Array, high: Array, bits: int, narrow: bool) -> tuple[Array, Array, Array]:
    """The ends and the step of a range, moved so that zero is one of its steps; in float32."""
    first, last = np.float32(1 if narrow else 0), np.float32(2**bits - 1)
    scale = (high - low) / (last - first)
    zero = np.clip(np.floor(first - low / scale + np.float32(0.5)), first, last)
    zero = np.where(first - low / scale < first, first, np.where(first - low / scale > last, last, zero))
    return (first - zero) * scale, (last - zero) * scale, scale


def _fake_quantized(x: Array, low: Any, high: Any, bits: int, narrow: bool) -> Array:
    low, high = np.asarray(low, np.float32), np.asarray(high, np.float32)
    start, end, scale = _nudged(low, high, bits, narrow)
    with np.errstate(all="ignore"):
        steps = np.floor((np.clip(x, start, end) - start) * (np.float32(1) / scale) + np.float32(0.5))
        return np.where((low == 0) & (high == 0), np.float32(0), steps * scale + start).astype(x.dtype)


@operator("FakeQuantWithMinMaxArgs")
def _fake_quant_args(
    x: Array, *, min: float = -6, max: float = 6, num_bits: int = 8, narrow_range: bool = False
) -> Array:
    return _fake_quantized(x, min, max, num_bits, narrow_range)


@operator("FakeQuantWithMinMaxVars", "FakeQuantWithMinMaxVarsPerChannel")
def _fake_quant_vars(x: Array, low: Array, high: Array, *, num_bits: int = 8, narrow_range: bool = False) -> Array:
    return _fake_quantized(x, low, high, num_bits, narrow_range)


def _inside(x: Array, low: Any, high: Any, bits: int, narrow: bool) -> Array:
    low, high = np.asarray(low, np.float32), np.asarray(high, np.float32)
    start, end, _ = _nudged(low, high, bits, narrow)
    return ((x >= start) & (x <= end)) | ((low == 0) & (high == 0))


@operator("FakeQuantWithMinMaxArgsGradient")
def _fake_quant_args_gradient(
    gradient: Array, x: Array, *, min: float = -6, max: float = 6, num_bits: int = 8, narrow_range: bool = False
) -> Array:
    return np.where(_inside(x, min, max, num_bits, narrow_range), gradient, 0)


@operator("FakeQuantWithMinMaxVarsGradient", "FakeQuantWithMinMaxVarsPerChannelGradient")
def _fake_quant_vars_gradient(
    gradient: Array, x: Array, low: Array, high: Array, *, num_bits: int = 8, narrow_range: bool = False
) -> tuple[Array, Array, Array]:
    inside = _inside(x, low, high, num_bits, narrow_range)
    start, end, _ = _nudged(low, high, num_bits, narrow_range)
    axes = tuple(range(x.ndim - low.ndim))
    below, above = (x < start) & ~inside, (x > end) & ~inside
    return (
        np.where(inside, gradient, 0),
        np.where(below, gradient, 0).sum(axes, dtype=gradient.dtype),
        np.where(above, gradient, 0).sum(axes, dtype=gradient.dtype),
    )


@operator("QuantizeV2")
def _quantize(
    x: Array,
    low: Array,
    high: Array,
    *,
    T: np.dtype[Any],  # noqa: N803  # TensorFlow's name
    mode: bytes = b"MIN_COMBINED",
    round_mode: bytes = b"HALF_AWAY_FROM_ZERO",
    narrow_range: bool = False,
    ensure_minimum_range: float = 0.01,
) -> tuple[Array, Array, Array]:
    info = np.iinfo(T)
    start, end = min(0.0, low.item()), max(0.0, high.item())
    end = max(end, start + max(1.0, abs(start), abs(end)) * ensure_minimum_range)
    if mode == b"SCALED":
        lowest = info.min + bool(narrow_range and info.min)
        scale = min(lowest / start if lowest * start > 0 else np.inf, info.max / end if end > 0 else np.inf)
        start, end = lowest / scale if info.min else 0.0, info.max / scale
        steps = x.astype(np.float64) * scale
        rounded = np.rint(steps) if round_mode == b"HALF_TO_EVEN" else np.trunc(steps + np.copysign(0.5, steps))
        quantized = np.clip(rounded, lowest, info.max)
    else:
        require(mode in (b"MIN_COMBINED", b"MIN_FIRST"), f"has mode {mode.decode()}")
        scale = (info.max - info.min) / (end - start)
        steps = (np.clip(x.astype(np.float64), start, end) - start) * scale
        if mode == b"MIN_FIRST":
            steps = np.rint(x.astype(np.float64) * scale) - np.rint(start * scale)
        quantized = (
            np.clip(np.trunc(steps + 0.5) if mode == b"MIN_COMBINED" else steps, 0, info.max - info.min) + info.min
        )
    return quantized.astype(T), np.asarray(start, np.float32), np.asarray(end, np.float32)


@operator("Dequantize")
def _dequantize(
    x: Array,
    low: Array,
    high: Array,
    *,
    mode: bytes = b"MIN_COMBINED",
    narrow_range: bool = False,
    dtype: np.dtype[Any] = FLOAT32,
) -> Array:
    info = np.iinfo(x.dtype)
    if mode == b"SCALED":
        lowest = info.min + bool(narrow_range and info.min)
        scale = max(low.item() / lowest if lowest else 0.0, high.item() / info.max)
        return (x * scale).astype(dtype)
    scale = (high.item() - low.item()) / (info.max - info.min)
    return ((x.astype(np.float64) - info.min) * scale + low.item()).astype(dtype)


@operator("QuantizeAndDequantizeV2", "QuantizeAndDequantizeV3", "QuantizeAndDequantizeV4")
def _quantize_and_dequantize(
    x: Array,
    low: Array,
    high: Array,
    bits: Any = None,
    *,
    signed_input: bool = True,
    num_bits: int = 8,
    range_given: bool = True,
    round_mode: bytes = b"HALF_TO_EVEN",
    narrow_range: bool = False,
    axis: int = -1,
) -> Array:
    require(axis == -1, "takes one range for all elements")
    count = num_bits if bits is None else int(np.asarray(bits, None))
    start, end = (low.item(), high.item()) if range_given else (float(x.min()), float(x.max()))
    lowest = -(2 ** (count - 1)) + narrow_range if signed_input else 0
    highest = 2 ** (count - 1) - 1 if signed_input else 2**count - 1
    scale = min(lowest / start if lowest * start > 0 else np.inf, highest / end if end * highest > 0 else np.inf)
    if not np.isfinite(scale):
        return x
    steps = np.clip(x.astype(np.float64), lowest / scale, highest / scale) * scale
    rounded = np.rint(steps) if round_mode == b"HALF_TO_EVEN" else np.floor(steps + 0.5)
    return (rounded / scale).astype(x.dtype)
