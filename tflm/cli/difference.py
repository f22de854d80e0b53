"""How far tensors are from their counterparts: those of another model, of a recording, of a device."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tflm.report import Column, Table

Real = npt.NDArray[np.float64]


@dataclass
class Difference:
    """How far one tensor is from its counterpart, over all steps, in real values.

    Attributes:
        tensor: its name in the first model.
        operator: what makes it, in the first model; empty for recorded answers.
        largest_error: the largest absolute difference; infinite where only one of two values is NaN.
        relative_error: the same over the largest finite magnitude of the counterpart; None where that is zero and this
            not.
        snr_db: power of the counterpart over power of the difference, in decibels; None where they are equal.
    """

    tensor: str
    operator: str
    largest_error: float
    relative_error: float | None
    snr_db: float | None


def difference(tensor: str, operator: str, ours: Real, theirs: Real) -> Difference:
    """How far `ours` is from `theirs`; both of one shape, the steps along the first axis."""
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
    """The first tensor whose error is more than `tolerance` times the largest magnitude of its counterpart."""
    for candidate in differences:
        if candidate.relative_error is None or candidate.relative_error > tolerance:
            return candidate
    return None


def difference_table(title: str, differences: list[Difference]) -> Table:
    """A row for each tensor."""
    columns = {
        "operator": Column.TEXT,
        "tensor": Column.NAME,
        "largest error": Column.NUMBER,
        "relative": Column.NUMBER,
        "SNR dB": Column.NUMBER,
    }
    rows = (
        (
            d.operator,
            d.tensor,
            f"{d.largest_error:.6g}",
            "" if d.relative_error is None else f"{d.relative_error:.2%}",
            "equal" if d.snr_db is None else f"{d.snr_db:.1f}",
        )
        for d in differences
    )
    return Table(title, columns, rows)
