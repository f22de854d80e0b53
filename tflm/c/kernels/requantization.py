"""From sums of 32 bits to outputs of 8 or 16 bits by one long multiplication and one shift.

TFLM rounds twice: after the multiplication by a significand in Q0.31, and after the shift to the right. `steps` finds
constants for which one rounding gives the same outputs of 8 bits; where there are none, both are computed. Each channel
has four constants in a table: bias, significand, addend of the high half, shift or correction.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tflm.c.kernels.steps import FRACTION, Channel, Constants
from tflm.compiler.intrinsics import HIGH_MULTIPLY
from tflm.compiler.language import inlined
from tflm.delegates.compiled.casts import as_int32, as_int64
from tflm.delegates.compiled.fixed_point import LARGEST
from tflm.delegates.compiled.scaling import largest_result
from tflm.kernels.arithmetic.fixed_point import QuantizedMultiplier, WideQuantizedMultiplier, reduced_significand
from tflm.kernels.arithmetic.requantization import OutputStage

NARROW_INTEGERS = True

CONSTANTS = 4
"""Integers of a channel in the table."""


@inlined
def once(total: int, significand: int, addend: int, shift: int) -> Any:
    """Multiplied, and rounded by the addend alone."""
    return as_int32((as_int64(total) * significand + (as_int64(addend) << 32)) >> 32) >> shift


@inlined
def up(total: int, significand: int, addend: int, shift: int) -> Any:
    """Rounded twice, halves up."""
    return as_int32((as_int64(total) * significand + ((as_int64(addend) << 32) | (1 << 30))) >> 32) >> shift


@inlined
def away(total: int, significand: int, addend: int, shift: int) -> Any:
    """Rounded twice, the second time halves away from zero."""
    product = as_int64(total) * significand + (1 << 30)
    below_zero = (product >> 63) & (1 << 31)
    return as_int32((product + (as_int64(addend) << 32) - below_zero) >> 32) >> shift


@inlined
def power(total: int, significand: int, addend: int, shift: int) -> Any:
    """Rounded twice, for a significand of 1/2: the first rounding is that of a half."""
    half = (total + 1) >> 1
    return (half + (half >> 31) + addend) >> shift


@inlined
def left(total: int, significand: int, addend: int, shift: int) -> Any:
    """Shifted to the left, multiplied, and rounded once; the shift is one bit more than that of the multiplier."""
    return as_int32((as_int64(as_int32(total << shift)) * significand + ((as_int64(addend) << 32) | (1 << 31))) >> 32)


@inlined
def near(total: int, significand: int, addend: int, shift: int) -> Any:
    """Rounded twice, the second time halves away from zero, with a bit to spare: for shifts of any size to the right.

    The sign takes half a unit from numbers that the shift halves at least, and nothing from others.
    """
    high = as_int32((as_int64(total << 1) * significand + (1 << 31)) >> 32)
    return ((high << 1) + (high >> 31) + addend) >> shift


@inlined
def stepwise(total: int, significand: int, addend: int, shift: int) -> Any:
    """In the steps of the reference, for any multiplier; a negative shift goes to the left."""
    shifted = as_int32(total << max(-shift, 0))
    high = as_int32((as_int64(shifted) * significand + (1 << 30)) >> 31)
    if shift > 0:
        high = (high + (high >> 31) + (1 << (shift - 1))) >> shift
    return high + addend


@inlined
def stepped(total: int, significand: int, addend: int) -> Any:
    """The high half of a product, and an addend."""
    if HIGH_MULTIPLY:
        return as_int32((as_int64(total) * significand) >> 32) + addend
    upper, lower = total >> 16, total & 0xFFFF
    of_upper, of_lower = significand >> 16, significand & 0xFFFF
    middle = upper * of_lower + ((as_int32(as_int64(lower) * of_lower) >> 16) & 0xFFFF)
    return upper * of_upper + (middle >> 16) + ((lower * of_upper + (middle & 0xFFFF)) >> 16) + addend


@inlined
def corrected(total: int, significand: int, addend: int, below: int) -> Any:
    """The same of a sum with a fraction, which is larger for negative ones."""
    return stepped((total << FRACTION) + ((total >> 31) & below), significand, addend)


STEPPED: dict[int, Callable[..., Any]] = {
    4: lambda total, significand, addend, below: stepped(total, significand, addend) >> 4,
    2: lambda total, significand, addend, below: stepped(total, significand, addend) >> 2,
    0: lambda total, significand, addend, below: stepped(total, significand, addend),
    6: lambda total, significand, addend, below: stepped(total, significand, addend) >> 6,
    8: lambda total, significand, addend, below: stepped(total, significand, addend) >> 8,
}
"""By the shift to the right, the first that is tried first. Few of them: each makes kernels of its own."""

CORRECTED: dict[int, Callable[..., Any]] = {
    12: lambda total, significand, addend, below: corrected(total, significand, addend, below) >> 12,
    10: lambda total, significand, addend, below: corrected(total, significand, addend, below) >> 10,
    14: lambda total, significand, addend, below: corrected(total, significand, addend, below) >> 14,
    8: lambda total, significand, addend, below: corrected(total, significand, addend, below) >> 8,
    16: lambda total, significand, addend, below: corrected(total, significand, addend, below) >> 16,
}
"""The same for sums with a fraction."""

SHIFTS = [[f"stepped_{shift}" for shift in STEPPED], [f"corrected_{shift}" for shift in CORRECTED]]
"""Names of roundings that take as much time and code as the others of a list."""

ROUNDINGS: dict[str, Callable[..., Any]] = {
    **dict(zip(itertools.chain(*SHIFTS), (*STEPPED.values(), *CORRECTED.values()))),
    "once": once,
    "power": power,
    "up": up,
    "away": away,
    "left": left,
    "near": near,
    "stepwise": stepwise,
}
"""By name: functions of a sum and three constants of its channel."""

Rounding = Annotated[Callable[..., Any], ROUNDINGS]


@inlined
def saturated_int8(value: int, least: int, most: int) -> int:
    """A value that is 128 too large, as an int8."""
    return min(max(value, 0), 255) - 128


@inlined
def saturated_int16(value: int, least: int, most: int) -> int:
    """A value that is 2^15 too large, as an int16."""
    return min(max(value, 0), 65535) - 32768


@inlined
def clipped(value: int, least: int, most: int) -> int:
    """A value as an int8."""
    return min(max(value + 128, 0), 255) - 128


@inlined
def limited(value: int, least: int, most: int) -> int:
    """The nearest value in a range."""
    return min(max(value, least), most)


CLAMPS: dict[str, Callable[..., Any]] = {
    "clipped": clipped,
    "int8": saturated_int8,
    "int16": saturated_int16,
    "limits": limited,
}
"""By name. Whole types have instructions of their own on Arm if they begin at 0."""

Clamp = Annotated[Callable[..., Any], CLAMPS]


@dataclass(frozen=True)
class Requantizer:
    """How a kernel turns sums into outputs.

    Attributes:
        rounding, clamp: names of functions.
        table: int32, `CONSTANTS` for each channel.
        least, most: of the output.
    """

    rounding: str
    clamp: str
    table: npt.NDArray[np.int32]
    least: int
    most: int


class Rounded(NamedTuple):
    """How the sums of all channels are rounded.

    Attributes:
        rounding: the name of a function.
        addend, shift: of each channel.
    """

    rounding: str
    addend: npt.NDArray[np.int64]
    shift: npt.NDArray[np.int64]


def _rounded_right(
    rounding: str, shift: npt.NDArray[np.int64], zero_point: int, highest: npt.NDArray[np.int64]
) -> Rounded | None:
    """Rounding by an addend before a shift to the right; None where 32 bits do not hold it.

    Args:
        highest: bounds on the absolute values that are shifted.
    """
    if shift.min(initial=1) < 1 or shift.max(initial=1) > 31:
        return None
    addend = np.left_shift(np.int64(1), shift - 1) + np.left_shift(np.int64(zero_point), shift)
    return Rounded(rounding, addend, shift) if (abs(addend) + highest <= LARGEST).all() else None


def _rounded_left(exponent: npt.NDArray[np.int64], zero_point: int, limits: npt.NDArray[np.int64]) -> Rounded | None:
    """Rounding of multipliers of 1/2 and more; None where 32 bits do not hold the sums."""
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
    """The shortest rounding whose numbers 32 bits hold.

    Args:
        rounding: by the high half alone.
    """
    # The high half of a product is at most half of what is multiplied.
    by_high_half = _rounded_right(rounding, -exponent - 1, zero_point, limits // 2 + 2)
    if rounding == "once":
        return by_high_half
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
) -> Requantizer | None:
    """The shortest requantizer to int8; None where there are no constants for all channels."""
    stage = output.zero_point, output.minimum, output.maximum
    products = limits - abs(bias)
    columns = np.stack([significand, exponent, bias - products, bias + products], axis=1)
    channels = [Channel(row[0], row[1], *stage, row[2], row[3]) for row in columns.tolist()]
    for name, shifts, fitted in (
        ("stepped", STEPPED, Channel.fitted),
        ("corrected", CORRECTED, Channel.fitted_away),
    ):
        for shift in shifts:
            constants = _all_of(channels, shift, fitted)
            if constants is not None:
                table = np.array(constants, np.int64).reshape(-1, CONSTANTS)
                table[:, 0] += bias
                is_whole = (output.minimum, output.maximum) == (-128, 127)
                clamp = "clipped" if is_whole else "limits"
                return Requantizer(
                    f"{name}_{shift}", clamp, table.astype(np.int32).reshape(-1), output.minimum, output.maximum
                )
    return None


def _all_of(
    channels: Sequence[Channel], shift: int, fitted: Callable[[Channel, int], Constants | None]
) -> list[Constants] | None:
    """The constants of all channels, if all have some."""
    found = []
    for channel in channels:
        constants = fitted(channel, shift)
        if constants is None:
            return None
        found.append(constants)
    return found


def requantizer(
    multiplier: QuantizedMultiplier,
    output: OutputStage,
    bias: npt.NDArray[np.int64],
    limits: npt.NDArray[np.int64],
    y_dtype: np.dtype[Any],
) -> Requantizer | None:
    """The requantizer of a layer; None where 32 bits do not hold what it works with.

    Args:
        bias: added to the sums of each channel.
        limits: bounds on the absolute values of the sums of each channel, with the bias.
    """
    if bias.size and max(abs(bias).max(), limits.max()) >= 1 << 31:
        return None
    significand, exponent = (
        np.broadcast_to(value, bias.shape).astype(np.int64) for value in (multiplier.significand, multiplier.shift)
    )
    stepping = None
    # Bounds that were cut off at the largest number say nothing of the range.
    is_bounded = bool((limits < LARGEST).all())
    if is_bounded and not isinstance(multiplier, WideQuantizedMultiplier) and y_dtype == np.int8:
        stepping = _stepping(significand, exponent, output, bias, limits)
    return stepping or exact_requantizer(multiplier, output, bias, limits, y_dtype)


def exact_requantizer(
    multiplier: QuantizedMultiplier,
    output: OutputStage,
    bias: npt.NDArray[np.int64],
    limits: npt.NDArray[np.int64],
    y_dtype: np.dtype[Any],
) -> Requantizer | None:
    """The requantizer that rounds as TFLM does; arguments as those of `requantizer`."""
    count = len(bias)
    significand, exponent = (
        np.broadcast_to(value, bias.shape).astype(np.int64) for value in (multiplier.significand, multiplier.shift)
    )
    info = np.iinfo(y_dtype)
    wide = isinstance(multiplier, WideQuantizedMultiplier)
    if wide:
        # A significand of 15 bits, 16 bits further up.
        significand = reduced_significand(significand) << 16
    rounding = "once" if wide else "up" if output.minimum >= output.zero_point else "away"
    # Whole types are clamped fastest.
    is_whole = (output.minimum, output.maximum) == (info.min, info.max)
    offsets = {str(y_dtype): int(info.min)} if is_whole else {}
    for clamp, offset in {**offsets, "limits": 0}.items():
        found = _rounded(rounding, exponent, significand, output.zero_point - offset, limits)
        if found is not None:
            table = np.stack([bias, significand, found.addend, found.shift], axis=1).astype(np.int32)
            return Requantizer(found.rounding, clamp, table.reshape(-1), output.minimum, output.maximum)
    largest = abs(output.zero_point) + (0 if wide else largest_result(multiplier, limits))
    if wide or exponent.max(initial=0) > 31 or largest > LARGEST:
        return None
    table = np.stack([bias, significand, np.full(count, output.zero_point, np.int64), -exponent], axis=1).astype(
        np.int32
    )
    return Requantizer("stepwise", "limits", table.reshape(-1), output.minimum, output.maximum)
