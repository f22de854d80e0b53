"""JSON documents and reports of evaluations and calibrations."""

from __future__ import annotations

from tflm.evaluation import CalibrationReport, Evaluation, TensorRange
from tflm.evaluation.signal import SignalLoss
from tflm.report import AnyFloat, Figure, Report, json_key


def _of(attribute: str, *figures: Figure) -> tuple[Figure, ...]:
    """Return the figures of an attribute of an evaluation; without it, its document lacks them."""
    return tuple(each._replace(value=f"{attribute}.{each.value}", kind=attribute) for each in figures)


DIFFERENCE_FIGURES = _of(
    "difference",
    json_key(
        "changed_answers",
        float | None,
        "share of answers that are other than the reference's; null for a single number",
    ),
    json_key("mean_absolute_error", AnyFloat, "of the real values, compared with the reference"),
    json_key("root_mean_square_error", AnyFloat, "likewise"),
    json_key("largest_error", AnyFloat, "likewise"),
    json_key("signal_to_noise_db", AnyFloat, "power of the reference over that of the differences, in decibels"),
)
"""The figures of a comparison with a reference."""

WORST_FIGURES = (
    json_key("sample", int, "number of a sample that differs most", lambda pair: pair[0]),
    json_key("squared_error", AnyFloat, "its mean squared difference", lambda pair: pair[1]),
)

EVALUATION_FIGURES = (
    json_key("samples", int, "samples in the results", "count"),
    json_key("left_out", list[str], "names and reasons of samples that could not be run"),
    json_key("samples_per_second", float, "samples per second of this run; 0 if the results file had them all"),
    json_key("workers", int, "how many ran at once"),
    json_key("classes", list[str], "names of the classes, by label", "class_names")._replace(kind="classification"),
    *_of(
        "classification",
        json_key("accuracy", float, "share of samples that are classified correctly"),
        json_key("top_k", int, "the k of the next", "k"),
        json_key("top_k_accuracy", float, "share of samples whose class is among the k best"),
        json_key("confusion", list[list[int]], "for each class, how often its samples were taken for each class"),
        json_key("recall", list[AnyFloat], 'of each class; "NaN" if it has no sample'),
        json_key(
            "auc", float | None, "area under the ROC curve; null without scikit-learn, or if a class has no sample"
        ),
    ),
    *DIFFERENCE_FIGURES,
    *_of("difference", json_key("worst", [WORST_FIGURES], "the samples that differ most")),
    json_key("signal", list[SignalLoss], "signal loss, operator by operator")._replace(kind="difference"),
)
"""The figures of an evaluation; shares are from 0 to 1."""

CALIBRATION_FIGURES = (
    json_key("samples", int, "samples that were run", "count"),
    json_key("tensors", list[TensorRange], "the ranges of the tensors"),
)
"""The figures of a calibration."""


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
