"""JSON documents and reports of evaluations and calibrations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tflm.evaluation import CalibrationReport, Evaluation
from tflm.report import Report


def evaluation_figures(path: Path, found: Evaluation) -> dict[str, Any]:
    """Return the JSON document of an evaluation; shares are from 0 to 1."""
    told: dict[str, Any] = {
        "model": path,
        "samples": found.count,
        "left_out": found.left_out,
        "samples_per_second": found.samples_per_second,
        "workers": found.workers,
    }
    if found.classification is not None:
        classes = found.classification
        told |= {
            "classes": [found.name_of(label) for label in range(len(classes.confusion))],
            "accuracy": classes.accuracy,
            "top_k": classes.k,
            "top_k_accuracy": classes.top_k_accuracy,
            "confusion": classes.confusion.tolist(),
            "recall": classes.recall.tolist(),
            "auc": classes.auc,
        }
    if found.difference is not None:
        worst = [{"sample": sample, "squared_error": error} for sample, error in found.difference.worst]
        told |= {**difference_figures(found), "worst": worst, "signal": found.signal}
    return told


def difference_figures(found: Evaluation) -> dict[str, Any]:
    """Return the differences from the reference for JSON; there must be a reference."""
    names = "changed_answers", "mean_absolute_error", "root_mean_square_error", "largest_error", "signal_to_noise_db"
    return {name: getattr(found.difference, name) for name in names}


def evaluation_report(found: Evaluation) -> Report:
    """Report the tables of an evaluation, and the samples that were left out."""
    notes = [f"left out: {reason}" for reason in found.left_out]
    if found.samples_per_second:
        notes.append(f"{found.samples_per_second:,.0f} samples a second with {found.workers} workers")
    return Report("", [], found.tables(), notes)


def calibration_report(found: CalibrationReport) -> Report:
    """Report the range of each tensor, and describe the worst ones."""
    notes = [
        f"{tensor.operator} {tensor.tensor}: {tensor.saturated:.1%} of its values are saturated, "
        f"{tensor.wasted_bits:.1f} bits are never used"
        for tensor in found.worst(3)
        if tensor.wasted_bits >= 1 or tensor.saturated >= 0.01
    ]
    return Report("", [], [found.table()], notes)
