"""Metrics of outputs and labels: accuracy and similar from scikit-learn, errors and noise from numpy.

Scores are integers as the device returns them: their order is that of the real values, and ties are the device's.

The results file has one record for each sample, in the order of the samples, from which an interrupted run resumes. A
line of JSON identifies the model and the form of its outputs. Records of a fixed size follow: whether the sample could
be run, its outputs, its label, and a checksum. After a crash, the file is valid up to some record.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tflm.errors import DataError
from tflm.evaluation.runner import Outcome
from tflm.memory.tensor import TfLiteTensor

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
    present = np.unique(labels)
    if len(present) < 2 or (scores.shape[1] > 1 and len(present) != scores.shape[1]):
        return None
    try:
        from sklearn.metrics import roc_auc_score  # slow to import
    except ImportError:
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


FORMAT = "tflm evaluation 1"
NO_LABEL = np.iinfo(np.int64).min
CHECKSUM = "checksum"


class ResultsFile:
    """Results of a model over a data set, on disk.

    Args:
        path: the file; results of the same model are continued, otherwise it is created.
        model: the model's bytes.
        outputs: the model's outputs.

    Raises:
        DataError: the file has other contents.
        OSError: it can't be read or written.
    """

    def __init__(self, path: Path, model: bytes, outputs: Sequence[TfLiteTensor]):
        self.path = path
        self.dtype = record_type(outputs)
        self._outputs = len(outputs)
        head = {"format": FORMAT, "model": hashlib.sha256(model).hexdigest(), "record": str(self.dtype.descr)}
        self._head = json.dumps(head).encode() + b"\n"
        self.count = self._whole_records()
        self._file = open(path, "r+b" if self.count is not None else "wb")  # noqa: SIM115  # closed by close()
        if self.count is None:
            self.count = 0
            self._file.write(self._head)
        else:
            self._file.seek(self._end)
            self._file.truncate()

    @property
    def _end(self) -> int:
        return len(self._head) + (self.count or 0) * self.dtype.itemsize

    def _whole_records(self) -> int | None:
        """The number of valid records from an earlier run before the first invalid one; None if the file does not
        exist."""
        if not self.path.exists() or not self.path.stat().st_size:
            return None
        with open(self.path, "rb") as file:
            if file.read(len(self._head)) != self._head:
                raise DataError(f"{self.path}: not a results file of this model; use another file, or remove it")
        size = (self.path.stat().st_size - len(self._head)) // self.dtype.itemsize
        if not size:
            return 0
        records = np.memmap(self.path, self.dtype, "r", len(self._head), (size,))
        good = (is_good(record) for record in records)
        return next((place for place, whole in enumerate(good) if not whole), size)

    def append(self, outcomes: Sequence[Outcome]) -> None:
        """Write the results of the next samples.

        Raises:
            DataError: the disk is full or can't be written; earlier records stay valid.
        """
        records = np.zeros(len(outcomes), self.dtype)
        records["ran"] = [outcome.outputs is not None for outcome in outcomes]
        records["label"] = [NO_LABEL if outcome.label is None else outcome.label for outcome in outcomes]
        for i in range(self._outputs):
            values = [outcome.outputs[i] for outcome in outcomes if outcome.outputs is not None]
            if values:
                records[f"output{i}"][records["ran"]] = values
        records[CHECKSUM] = [checksum(record) for record in records]
        try:
            self._file.write(records.tobytes())
            self._file.flush()
        except OSError as error:
            with contextlib.suppress(OSError):
                self._file.close()  # closing would otherwise write its buffer again
            raise DataError(
                f"{self.path}: {error.strerror}; {self.count} samples are kept; free space and run the same command "
                "to resume"
            ) from error
        self.count = (self.count or 0) + len(outcomes)

    def records(self) -> npt.NDArray[Any]:
        """All records, mapped from the file."""
        if not self.count:
            return np.zeros(0, self.dtype)
        return np.memmap(self.path, self.dtype, "r", len(self._head), (self.count,))

    def close(self) -> None:
        """Write everything to the disk."""
        if not self._file.closed:
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()


def record_type(outputs: Sequence[TfLiteTensor]) -> np.dtype[Any]:
    """The fields of a record: `ran`, `label`, the outputs, and a checksum of them."""
    fields: list[Any] = [("ran", "?"), ("label", "<i8")]
    fields += [(f"output{i}", tensor.data.dtype, tensor.data.shape) for i, tensor in enumerate(outputs)]
    return np.dtype([*fields, (CHECKSUM, "<u4")])


def checksum(record: Any) -> int:
    """The CRC-32 of a record without its checksum."""
    return zlib.crc32(record.tobytes()[: -np.dtype(np.uint32).itemsize])


def is_good(record: Any) -> bool:
    """Whether the checksum of a record is right."""
    return bool(record[CHECKSUM] == checksum(record))
