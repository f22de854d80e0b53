"""Requantize 32-bit sums to outputs of 8 or 16 bits with one long multiplication and one shift.

TFLM rounds twice: after the multiplication by a significand in Q0.31, and after the right shift. `steps` searches for
constants with which a single rounding produces the same 8-bit outputs; if there are none, kernels round twice. Each
channel has four constants in a table: bias, significand, addend of the high half, shift or correction.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tflm.compiler.intrinsics import HIGH_MULTIPLY
from tflm.compiler.language import by_value, inlined
from tflm.delegates.compiled.casts import as_int32, as_int64
from tflm.delegates.compiled.fixed_point import LARGEST
from tflm.delegates.compiled.single_rounding import FRACTION, Channel, Constants
from tflm.kernels.arithmetic.fixed_point import QuantizedMultiplier, WideQuantizedMultiplier, reduced_significand
from tflm.kernels.arithmetic.requantization import OutputStage

CONSTANTS = 4
"""Number of integers for each channel in the table."""

MAX_LAYERS = 1 << 10
"""Number of layers whose constants are kept. A model's plans, its versions and its C code have the same layers."""

NO_BIAS = np.zeros(1, np.int64)
"""The bias of sums that have one multiplier, and no bias."""


@inlined
def once(total: int, significand: int, addend: int, shift: int) -> Any:
    """Multiply, and round once, with the addend."""
    return as_int32((as_int64(total) * significand + (as_int64(addend) << 32)) >> 32) >> shift


@inlined
def up(total: int, significand: int, addend: int, shift: int) -> Any:
    """Round twice, both times halves up."""
    return as_int32((as_int64(total) * significand + ((as_int64(addend) << 32) | (1 << 30))) >> 32) >> shift


@inlined
def away(total: int, significand: int, addend: int, shift: int) -> Any:
    """Round twice, the second time halves away from zero."""
    product = as_int64(total) * significand + (1 << 30)
    below_zero = (product >> 63) & (1 << 31)
    return as_int32((product + (as_int64(addend) << 32) - below_zero) >> 32) >> shift


@inlined
def power(total: int, significand: int, addend: int, shift: int) -> Any:
    """Round twice for a significand of 1/2, where the first rounding only halves."""
    half = (total + 1) >> 1
    return (half + (half >> 31) + addend) >> shift


@inlined
def left(total: int, significand: int, addend: int, shift: int) -> Any:
    """Shift left, multiply, and round once. The shift is the multiplier's plus one bit."""
    return as_int32((as_int64(as_int32(total << shift)) * significand + ((as_int64(addend) << 32) | (1 << 31))) >> 32)


@inlined
def near(total: int, significand: int, addend: int, shift: int) -> Any:
    """Round twice, the second time halves away from zero, with one more fraction bit, for right shifts of any size.

    Adding the sign subtracts half a unit from negative numbers that are shifted right by at least one bit, and nothing
    otherwise.
    """
    high = as_int32((as_int64(total << 1) * significand + (1 << 31)) >> 32)
    return ((high << 1) + (high >> 31) + addend) >> shift


@inlined
def stepwise(total: int, significand: int, addend: int, shift: int) -> Any:
    """Compute the reference's steps, for any multiplier. A negative shift is a left shift."""
    shifted = as_int32(total << max(-shift, 0))
    high = as_int32((as_int64(shifted) * significand + (1 << 30)) >> 31)
    if shift > 0:
        high = (high + (high >> 31) + (1 << (shift - 1))) >> shift
    return as_int32(as_int64(high) + addend)


@inlined
def wide(total: int, significand: int, addend: int, shift: int) -> Any:
    """Multiply a 64-bit sum by 15 bits, and round once."""
    return as_int32((total * significand + ((as_int64(1) << shift) >> 1)) >> shift) + addend


@inlined
def stepped(total: int, significand: int, addend: int) -> Any:
    """Return the high half of a product, plus an addend."""
    if HIGH_MULTIPLY:
        return as_int32((as_int64(total) * significand) >> 32) + addend
    upper, lower = total >> 16, total & 0xFFFF
    of_upper, of_lower = significand >> 16, significand & 0xFFFF
    middle = upper * of_lower + ((as_int32(as_int64(lower) * of_lower) >> 16) & 0xFFFF)
    return upper * of_upper + (middle >> 16) + ((lower * of_upper + (middle & 0xFFFF)) >> 16) + addend


@inlined
def corrected(total: int, significand: int, addend: int, below: int) -> Any:
    """Return the same for a sum with fraction bits, to which a correction is added if it is negative."""
    return stepped((total << FRACTION) + ((total >> 31) & below), significand, addend)


STEPPED: dict[int, Callable[..., Any]] = {
    4: lambda total, significand, addend, below: stepped(total, significand, addend) >> 4,
    2: lambda total, significand, addend, below: stepped(total, significand, addend) >> 2,
    0: lambda total, significand, addend, below: stepped(total, significand, addend),
    6: lambda total, significand, addend, below: stepped(total, significand, addend) >> 6,
    8: lambda total, significand, addend, below: stepped(total, significand, addend) >> 8,
}
"""Roundings by right shift, in the order in which they are tried. There are few, because each leads to separate
kernels."""

CORRECTED: dict[int, Callable[..., Any]] = {
    12: lambda total, significand, addend, below: corrected(total, significand, addend, below) >> 12,
    10: lambda total, significand, addend, below: corrected(total, significand, addend, below) >> 10,
    14: lambda total, significand, addend, below: corrected(total, significand, addend, below) >> 14,
    8: lambda total, significand, addend, below: corrected(total, significand, addend, below) >> 8,
    16: lambda total, significand, addend, below: corrected(total, significand, addend, below) >> 16,
}
"""The same for sums with fraction bits."""

SHIFTS = [[f"stepped_{shift}" for shift in STEPPED], [f"corrected_{shift}" for shift in CORRECTED]]
"""Groups of rounding names whose code differs only in the shift."""

ROUNDINGS: dict[str, Callable[..., Any]] = {
    **dict(zip(itertools.chain(*SHIFTS), (*STEPPED.values(), *CORRECTED.values()))),
    "once": once,
    "power": power,
    "up": up,
    "away": away,
    "left": left,
    "near": near,
    "stepwise": stepwise,
    "wide": wide,
}
"""Rounding functions by name. They take a sum and three constants of its channel."""

Rounding = Annotated[Callable[..., Any], ROUNDINGS]

SUMS: dict[str, Callable[..., Any]] = {"int32": lambda value: value, "int64": lambda value: as_int64(value)}
"""Conversions of the value that a sum begins with, by the type of the sum."""

Sum = Annotated[Callable[..., Any], SUMS]


@by_value
class Limits(NamedTuple):
    """The limits of an output, inclusive."""

    activation_min: int
    activation_max: int


@inlined
def saturated_int8(value: int, limits: Limits) -> int:
    """Convert a value that is 128 too large to int8, with saturation."""
    return min(max(value, 0), 255) - 128


@inlined
def saturated_int16(value: int, limits: Limits) -> int:
    """Convert a value that is 2^15 too large to int16, with saturation."""
    return min(max(value, 0), 65535) - 32768


@inlined
def clipped(value: int, limits: Limits) -> int:
    """Convert a value to int8, with saturation."""
    return min(max(value + 128, 0), 255) - 128


@inlined
def limited(value: int, limits: Limits) -> int:
    """Clamp a value to a range."""
    return min(max(value, limits.activation_min), limits.activation_max)


CLAMPS: dict[str, Callable[..., Any]] = {
    "clipped": clipped,
    "int8": saturated_int8,
    "int16": saturated_int16,
    "limits": limited,
}
"""Clamps by name. For ranges that start at 0, Arm has saturating instructions."""

Clamp = Annotated[Callable[..., Any], CLAMPS]


@dataclass(frozen=True)
class Requantizer:
    """The functions and constants with which a kernel requantizes sums.

    Attributes:
        rounding, clamp: names of functions.
        table: int32, `CONSTANTS` for each channel.
        activation_min, activation_max: limits of the output.
    """

    rounding: str
    clamp: str
    table: npt.NDArray[np.int32]
    activation_min: int
    activation_max: int

    @property
    def sums(self) -> str:
        """Type of the sums that are requantized."""
        return "int64" if self.rounding == "wide" else "int32"


class Rounded(NamedTuple):
    """The rounding of all channels.

    Attributes:
        rounding: the name of a function.
        addend, shift: one for each channel.
    """

    rounding: str
    addend: npt.NDArray[np.int64]
    shift: npt.NDArray[np.int64]


def _rounded_right(
    rounding: str, shift: npt.NDArray[np.int64], zero_point: int, highest: npt.NDArray[np.int64]
) -> Rounded | None:
    """Return the constants that round with an addend before a right shift; None if values can exceed 32 bits.

    Args:
        highest: upper bounds of the absolute values that are shifted.
    """
    if shift.min(initial=1) < 1 or shift.max(initial=1) > 31:
        return None
    addend = np.left_shift(np.int64(1), shift - 1) + np.left_shift(np.int64(zero_point), shift)
    return Rounded(rounding, addend, shift) if (abs(addend) + highest <= LARGEST).all() else None


def _rounded_left(exponent: npt.NDArray[np.int64], zero_point: int, limits: npt.NDArray[np.int64]) -> Rounded | None:
    """Return the rounding for multipliers of at least 1/2; None if sums can exceed 32 bits."""
    shift = exponent + 1
    if shift.min(initial=1) < 1 or shift.max(initial=1) > 30:
        return None
    fits = (np.left_shift(limits, shift) + abs(zero_point) <= LARGEST).all()
    return Rounded("left", np.full(len(shift), zero_point, np.int64), shift) if fits else None


def _rounded(
    rounding: str,
    exponent: npt.NDArray[np.int64],
    significand: npt.NDArray[np.int64],
    zero_point: int,
    limits: npt.NDArray[np.int64],
) -> Rounded | None:
    """Return the fastest rounding whose values fit in 32 bits.

    Args:
        rounding: the name of a rounding that uses only the high half of the product.
    """
    # The high half of a product is at most half of the sum.
    by_high_half = _rounded_right(rounding, -exponent - 1, zero_point, limits // 2 + 2)
    if rounding == "once":
        return by_high_half or _rounded_left(exponent, zero_point, limits)
    power = None
    if (significand == 1 << 30).all():
        power = _rounded_right("power", -exponent, zero_point, limits // 2 + 2)
    near = _rounded_right("near", 1 - exponent, zero_point, 2 * limits + 2)
    return power or by_high_half or near or _rounded_left(exponent, zero_point, limits)


def _stepping(
    significand: npt.NDArray[np.int64],
    exponent: npt.NDArray[np.int64],
    output: OutputStage,
    bias: npt.NDArray[np.int64],
    limits: npt.NDArray[np.int64],
    middle: npt.NDArray[np.int64],
) -> Requantizer | None:
    """Return the fastest requantizer to int8; None if not all channels have constants."""
    reach = limits - abs(middle)
    columns = np.stack([significand, exponent, middle - reach, middle + reach], axis=1)
    found = _single_rounding(columns.tobytes(), output.zero_point, output.minimum, output.maximum)
    if found is None:
        return None
    rounding, constants = found
    table = np.array(constants, np.int64).reshape(-1, CONSTANTS)
    table[:, 0] += bias
    is_whole = (output.minimum, output.maximum) == (-128, 127)
    clamp = "clipped" if is_whole else "limits"
    return Requantizer(rounding, clamp, table.astype(np.int32).reshape(-1), output.minimum, output.maximum)


@functools.lru_cache(MAX_LAYERS)
def _single_rounding(
    columns: bytes, zero_point: int, minimum: int, maximum: int
) -> tuple[str, tuple[Constants, ...]] | None:
    """Return the name of the fastest rounding for which all channels have constants, and these; None if there is none.

    Args:
        columns: significand, exponent, and lowest and highest sum of each channel, as int64.
    """
    rows = np.frombuffer(columns, np.int64).reshape(-1, 4).tolist()
    channels = [Channel(row[0], row[1], zero_point, minimum, maximum, row[2], row[3]) for row in rows]
    for name, shifts, fitted in (("stepped", STEPPED, Channel.fitted), ("corrected", CORRECTED, Channel.fitted_away)):
        for shift in shifts:
            constants = _all_of(channels, shift, fitted)
            if constants is not None:
                return f"{name}_{shift}", constants
    return None


def _all_of(
    channels: Sequence[Channel], shift: int, fitted: Callable[[Channel, int], Constants | None]
) -> tuple[Constants, ...] | None:
    """Return the constants of all channels, if all of them have some."""
    found = []
    for channel in channels:
        constants = fitted(channel, shift)
        if constants is None:
            return None
        found.append(constants)
    return tuple(found)


def requantizer(
    multiplier: QuantizedMultiplier,
    output: OutputStage,
    bias: npt.NDArray[np.int64],
    limits: npt.NDArray[np.int64],
    y_dtype: np.dtype[Any],
    middle: npt.NDArray[np.int64] | None = None,
) -> Requantizer | None:
    """Return the requantizer of a layer; None if its values can exceed 32 bits.

    Args:
        bias: addend of each channel's sums.
        limits: upper bounds of the absolute values of each channel's sums, including the bias.
        middle: of the lowest and the highest sum of each channel, including the bias; by default the bias.
    """
    if bias.size and max(abs(bias).max(), limits.max()) >= 1 << 31:
        return None
    significand, exponent = (
        np.broadcast_to(value, bias.shape).astype(np.int64) for value in (multiplier.significand, multiplier.shift)
    )
    stepping = None
    # Saturated bounds say nothing about the actual range.
    is_bounded = bool((limits < LARGEST).all())
    if is_bounded and not isinstance(multiplier, WideQuantizedMultiplier) and y_dtype == np.int8:
        stepping = _stepping(significand, exponent, output, bias, limits, bias if middle is None else middle)
    return stepping or exact_requantizer(multiplier, output, bias, limits, y_dtype)


def exact_requantizer(
    multiplier: QuantizedMultiplier,
    output: OutputStage,
    bias: npt.NDArray[np.int64],
    limits: npt.NDArray[np.int64],
    y_dtype: np.dtype[Any],
) -> Requantizer | None:
    """Return the requantizer that rounds as TFLM does; arguments as in `requantizer`."""
    significand, exponent = (
        np.broadcast_to(value, bias.shape).astype(np.int64) for value in (multiplier.significand, multiplier.shift)
    )
    info = np.iinfo(y_dtype)
    wide = isinstance(multiplier, WideQuantizedMultiplier)
    if wide:
        # A significand of 15 bits, shifted left by 16.
        significand = reduced_significand(significand) << 16
    rounding = "once" if wide else "up" if output.minimum >= output.zero_point else "away"
    # Clamping to a whole type is the fastest.
    is_whole = (output.minimum, output.maximum) == (info.min, info.max)
    offsets = {str(y_dtype): int(info.min)} if is_whole else {}
    for clamp, offset in {**offsets, "limits": 0}.items():
        found = _rounded(rounding, exponent, significand, output.zero_point - offset, limits)
        if found is not None:
            table = np.stack([bias, significand, found.addend, found.shift], axis=1).astype(np.int32)
            return Requantizer(found.rounding, clamp, table.reshape(-1), output.minimum, output.maximum)
    return None if wide else stepwise_requantizer(multiplier, output, bias)


def stepwise_requantizer(
    multiplier: QuantizedMultiplier, output: OutputStage, bias: npt.NDArray[np.int64]
) -> Requantizer:
    """Return the requantizer of the reference's steps, for any sums and multipliers."""
    significand, exponent, zero_point = (
        np.broadcast_to(value, bias.shape).astype(np.int64)
        for value in (multiplier.significand, multiplier.shift, output.zero_point)
    )
    # Left shifts by 32 or more are undefined in C; like x86, use the count modulo 32.
    shift = np.where(exponent < 0, -exponent, -(exponent & 31))
    table = np.stack([bias, significand, zero_point, shift], axis=1).astype(np.int32)
    return Requantizer("stepwise", "limits", table.reshape(-1), output.minimum, output.maximum)


def single_requantizer(
    multiplier: QuantizedMultiplier, output: OutputStage, limit: int, y_dtype: np.dtype[Any]
) -> Requantizer:
    """Return the requantizer of all integers up to a limit, with one multiplier."""
    found = exact_requantizer(multiplier, output, NO_BIAS, np.array([limit], np.int64), y_dtype)
    return found or stepwise_requantizer(multiplier, output, NO_BIAS)


LARGEST_WIDE_SUM = (1 << 47) - 1
"""Largest sum that 64 bits hold after a multiplication by 15 bits, with the addend of the rounding."""


def wide_requantizer(
    multiplier: QuantizedMultiplier, output: OutputStage, bias: npt.NDArray[np.int64], limits: npt.NDArray[np.int64]
) -> Requantizer | None:
    """Return the requantizer of sums of up to 48 bits, or None; arguments as for `requantizer`."""
    significand, shift = (np.broadcast_to(each, bias.shape) for each in (multiplier.significand, 15 - multiplier.shift))
    is_narrow = abs(bias).max(initial=0) <= LARGEST and limits.max(initial=0) <= LARGEST_WIDE_SUM
    if not isinstance(multiplier, WideQuantizedMultiplier) or not is_narrow or shift.min() < 1 or shift.max() > 62:
        return None
    addend = np.full(bias.shape, output.zero_point, np.int64)
    table = np.stack([bias, reduced_significand(significand.astype(np.int64)), addend, shift], axis=1).astype(np.int32)
    return Requantizer("wide", "limits", table.reshape(-1), output.minimum, output.maximum)
