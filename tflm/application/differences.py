"""Errors of tensors compared with those of another model, a recording or a device."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tflm.report import NAME, NUMBER, TEXT, AnyFloat, Figure, Table

Real = npt.NDArray[np.float64]


@dataclass
class Difference:
    """The error of a tensor over all steps, in real values.

    Attributes:
        tensor: its name in the first model.
        operator: index and name of the operator that writes it in the first model; empty for an output.
        largest_error: the largest absolute difference of real values; infinite if only one of two values is NaN.
        relative_error: `largest_error` divided by the counterpart's largest finite magnitude; None if only that is 0.
        snr_db: signal-to-noise ratio in decibels; None if both are equal.
    """

    tensor: str
    operator: str
    largest_error: AnyFloat
    relative_error: AnyFloat | None
    snr_db: AnyFloat | None


def difference(tensor: str, operator: str, ours: Real, theirs: Real) -> Difference:
    """Compare `ours` with `theirs`; both have the same shape, with the steps along the first axis."""
    with np.errstate(invalid="ignore", over="ignore"):
        error = np.where((ours == theirs) | (np.isnan(ours) & np.isnan(theirs)), 0.0, ours - theirs)
        error[np.isnan(error)] = np.inf
        finite = theirs[np.isfinite(theirs)]
        largest, scale = float(abs(error).max(initial=0)), float(abs(finite).max(initial=0))
        noise, signal = float((error**2).sum(dtype=np.float64)), float((finite**2).sum(dtype=np.float64))
    relative = largest / scale if scale else (0.0 if largest == 0 else None)
    snr = None if noise == 0 else (10 * (math.log10(signal) - math.log10(noise)) if signal else -math.inf)
    return Difference(tensor, operator, largest, relative, snr)


def first_beyond(differences: list[Difference], tolerance: float) -> Difference | None:
    """Return the first tensor whose error exceeds `tolerance` times its counterpart's largest magnitude, or None."""
    for candidate in differences:
        if candidate.relative_error is None or candidate.relative_error > tolerance:
            return candidate
    return None


def difference_table(title: str, differences: list[Difference]) -> Table:
    """Return a table with a row for each tensor."""
    return Table.of(
        title,
        differences,
        Figure("operator", TEXT, "operator"),
        Figure("tensor", NAME, "tensor"),
        Figure("largest error", NUMBER, "largest_error", ".6g"),
        Figure("relative", NUMBER, "relative_error", ".2%"),
        Figure("SNR dB", NUMBER, lambda each: "equal" if each.snr_db is None else f"{each.snr_db:.1f}"),
    )
