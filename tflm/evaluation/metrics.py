"""Metrics of outputs and labels: accuracy and similar from scikit-learn, errors and noise from numpy.

Scores are integers as the device returns them: their order is that of the real values, and ties are the device's.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tflm.errors import DataError

Array = npt.NDArray[Any]
MAX_CLASSES = 4096
"""Largest number of classes: their confusion matrix takes 128 MiB."""

BLOCK = 1 << 16
"""Samples per block, since results may be larger than the memory."""


@dataclass(frozen=True)
class Classification:
    """How well samples are classified.

    Attributes:
        count: samples with a label that were run.
        accuracy, top_k_accuracy: shares, 0 to 1; `k` is the k.
        confusion: (classes, classes), how often a sample of a class (row) was classified as another (column).
        recall: of each class; nan for a class without samples.
        auc: area under the receiver operating characteristic, the mean over classes against the rest; None without
            scikit-learn, or if some class has no sample.
    """

    count: int
    accuracy: float
    k: int
    top_k_accuracy: float
    confusion: npt.NDArray[np.int64]
    recall: npt.NDArray[np.float64]
    auc: float | None


@dataclass(frozen=True)
class Difference:
    """Differences between outputs and those of a reference.

    Attributes:
        count: samples that ran on both.
        changed_answers: share of samples with another predicted class; None for a single score.
        mean_absolute_error, root_mean_square_error, largest_error: of the real values.
        signal_to_noise_db: power of the reference's values over that of the differences, in decibels.
        worst: the samples that differ most, the worst first, with their mean squared difference.
    """

    count: int
    changed_answers: float | None
    mean_absolute_error: float
    root_mean_square_error: float
    largest_error: float
    signal_to_noise_db: float
    worst: tuple[tuple[int, float], ...]


def classification(records: Array, k: int = 5) -> Classification | None:
    """Accuracy and related figures of the first output; None without labels.

    A single score is the probability of class 1, which it predicts above the middle of its range.

    Raises:
        DataError: the model has no class for a label, or too many classes.
    """
    predicted, labels, ranks, scores = _predictions(records)
    if not len(labels):
        return None
    classes = max(scores.shape[1], 2)
    if labels.min() < 0 or labels.max() >= classes:
        raise DataError(f"labels range from {labels.min()} to {labels.max()}; the model has {classes} classes")
    if classes > MAX_CLASSES:
        raise DataError(
            f"the model has {classes:,} outputs; with labels, at most {MAX_CLASSES:,} are classes. Leave them out"
        )
    confusion = np.zeros((classes, classes), np.int64)
    np.add.at(confusion, (labels, predicted), 1)
    with np.errstate(invalid="ignore", divide="ignore"):
        recall = np.diagonal(confusion) / confusion.sum(axis=1, dtype=np.int64)
    k = min(k, classes)
    return Classification(
        len(labels),
        float(np.mean(predicted == labels)),
        k,
        float(np.mean(ranks < k)),
        confusion,
        recall,
        _area(labels, scores),
    )


def _predictions(records: Array) -> tuple[Array, Array, Array, Array]:
    """For every sample with a label: the predicted class, the label, the rank of the label's score, and the scores."""
    predicted: list[Array] = []
    labels: list[Array] = []
    ranks: list[Array] = []
    scores: list[Array] = []
    for block in blocks(records):
        chosen = block[block["ran"] & (block["label"] != np.iinfo(np.int64).min)]
        own = chosen["label"].astype(np.intp)
        values = rows(chosen["output0"])
        if values.shape[1] == 1:
            taken = (values[:, 0] > _middle(values.dtype)).astype(np.intp)
            rank = (taken != own).astype(np.intp)
        else:
            taken = values.argmax(axis=1).astype(np.intp)
            inside = np.clip(own, 0, values.shape[1] - 1)
            scored = values[np.arange(len(values), dtype=np.intp), inside]
            rank = np.sum(values > scored[:, None], axis=1, dtype=np.intp)
        for column, part in zip((predicted, labels, ranks, scores), (taken, own, rank, values.copy())):
            column.append(part)
    none = np.zeros(0, np.intp)
    if not predicted:
        return none, none, none, none
    return np.concatenate(predicted), np.concatenate(labels), np.concatenate(ranks), np.concatenate(scores)


def _middle(dtype: np.dtype[Any]) -> float:
    return 0.5 if dtype.kind == "f" else float(np.iinfo(dtype).min) / 2 + float(np.iinfo(dtype).max) / 2


def _area(labels: Array, scores: Array) -> float | None:
    try:
        from sklearn.metrics import roc_auc_score
    except ImportError:
        return None
    present = np.unique(labels)
    if len(present) < 2 or (scores.shape[1] > 1 and len(present) != scores.shape[1]):
        return None
    if scores.shape[1] <= 2:
        return float(roc_auc_score(labels, scores[:, -1].astype(np.float64)))
    areas = [roc_auc_score(labels == c, scores[:, c].astype(np.float64)) for c in range(scores.shape[1])]
    return float(np.mean(areas))


def difference(records: Array, reference: Array, real: Any, reference_real: Any, worst: int = 10) -> Difference | None:
    """Differences of the first outputs from those of a reference; None if no sample ran on both.

    Args:
        real, reference_real: functions from an output's integers to real values.
    """
    count, changed, absolute, squared, signal, largest = 0, 0, 0.0, 0.0, 0.0, 0.0
    size, several = 1, False
    found: list[tuple[int, float]] = []
    for start, (block, other) in enumerate(zip(blocks(records), blocks(reference))):
        both = np.flatnonzero(block["ran"] & other["ran"])
        if not len(both):
            continue
        ours = rows(real(block["output0"][both])).astype(np.float64)
        theirs = rows(reference_real(other["output0"][both])).astype(np.float64)
        if ours.shape != theirs.shape:
            raise DataError(f"the model returns {ours.shape[1]} values, the reference {theirs.shape[1]}")
        size, several = ours.shape[1], ours.shape[1] > 1
        error = np.square(ours - theirs).mean(axis=1)
        count += len(both)
        changed += int(np.sum(ours.argmax(axis=1) != theirs.argmax(axis=1), dtype=np.int64))
        absolute += float(np.abs(ours - theirs).sum(dtype=np.float64))
        squared += float(np.square(ours - theirs).sum(dtype=np.float64))
        signal += float(np.square(theirs).sum(dtype=np.float64))
        largest = max(largest, float(np.abs(ours - theirs).max()))
        top = np.argsort(-error, kind="stable")[:worst]
        found = sorted([*found, *((int(both[i]) + start * BLOCK, float(error[i])) for i in top)], key=_worst)[:worst]
    if not count:
        return None
    noise = 10 * np.log10(signal / squared) if squared and signal else np.inf
    return Difference(
        count,
        changed / count if several else None,
        absolute / (count * size),
        float(np.sqrt(squared / (count * size))),
        largest,
        float(noise),
        tuple(found),
    )


def _worst(sample: tuple[int, float]) -> tuple[float, int]:
    return (-sample[1], sample[0])


def rows(outputs: Array) -> Array:
    """The outputs as one row per sample."""
    return outputs.reshape(len(outputs), math.prod(outputs.shape[1:]))


def blocks(records: Array) -> Iterator[Array]:
    """The records in blocks."""
    for start in range(0, len(records), BLOCK):
        yield records[start : start + BLOCK]
