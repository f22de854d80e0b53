"""Draw the confusion matrix, the worst samples, and tensor ranges, with matplotlib."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tflm.atomic_write import write_atomically, write_files
from tflm.errors import DataError
from tflm.evaluation.calibration import CalibrationReport
from tflm.evaluation.evaluation import Evaluation
from tflm.evaluation.input_files import npy_of
from tflm.evaluation.metrics import blocks, rows
from tflm.evaluation.runner import Runner
from tflm.evaluation.samples import DataSet
from tflm.report import printable
from tflm.schema.model import Model

WORST = 16
SMALLEST_SIDE = 128
"""Minimum size of a picture of a sample in pixels; smaller ones are enlarged."""


def _matplotlib() -> Any:
    try:
        import matplotlib.figure
        import matplotlib.image
    except ImportError:
        raise DataError("pictures need matplotlib, the extra `plot` of this package") from None
    return matplotlib


@contextmanager
def _drawing(path: Path, width: float, height: float) -> Iterator[Any]:
    """Axes of a picture, sized in inches, which is written when the block ends. A $ in text is drawn literally.

    Raises:
        DataError: matplotlib is not installed.
        OSError: the file can't be written.
    """
    matplotlib = _matplotlib()
    with matplotlib.rc_context({"text.parse_math": False}):
        figure = matplotlib.figure.Figure(figsize=(width, height), layout="constrained")
        yield figure.subplots()
        picture = io.BytesIO()
        figure.savefig(picture, format=path.suffix[1:] or None, dpi=120)
        write_atomically(path, picture.getbuffer())


def write_confusion(path: Path, found: Evaluation) -> None:
    """Draw the confusion matrix: colours show the share of a class's samples, numbers their count.

    Raises:
        DataError: no sample has a label, or matplotlib is not installed.
        OSError: the file can't be written.
    """
    if found.classification is None:
        raise DataError("a confusion matrix needs labels")
    counts = found.classification.confusion
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True, dtype=np.int64), 1)
    names = [printable(name) for name in found.class_names]
    side = max(4.0, 0.5 * len(names) + 2)
    with _drawing(path, side, side) as axes:
        axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
        axes.set_xticks(range(len(names)), names, rotation=90 if max(map(len, names)) > 3 else 0)
        axes.set_yticks(range(len(names)), names)
        axes.set_xlabel("taken for")
        axes.set_ylabel("is")
        axes.set_title(f"{found.classification.accuracy:.2%} of {found.classification.count:,} right")
        for (row, column), number in np.ndenumerate(counts) if len(names) <= 30 else ():
            if number:
                color = "white" if shares[row, column] > 0.5 else "black"
                axes.text(column, row, f"{number:,}", ha="center", va="center", color=color, fontsize=8)


def write_ranges(path: Path, found: CalibrationReport) -> None:
    """Draw for each tensor which part of its quantized range its values use.

    Raises:
        DataError: matplotlib is not installed.
        OSError: the file can't be written.
    """
    with _drawing(path, 9, max(2.5, 0.28 * len(found.tensors) + 1.2)) as axes:
        for place, tensor in enumerate(found.tensors):
            room = tensor.room_to - tensor.room_from
            begin, end = ((value - tensor.room_from) / room for value in (tensor.lowest, tensor.highest))
            color = "#d95f02" if tensor.saturated > 0.01 else "#1b9e77"
            axes.barh(place, 1, color="#e6e6e6", height=0.7)
            axes.barh(place, end - begin, left=begin, color=color, height=0.7)
        axes.set_yticks(range(len(found.tensors)), [printable(t.operator) for t in found.tensors], fontsize=7)
        axes.invert_yaxis()
        axes.set_xlim(0, 1)
        axes.set_xticks([0, 1], ["least integer", "greatest integer"])
        title = f"Range seen over {found.count:,} samples (orange: more than 1 % of the values at an end)"
        axes.set_title(title, fontsize=9)


def write_worst(folder: Path, found: Evaluation, data: DataSet, model: Model) -> None:
    """Write the worst samples, images as images and others as arrays.

    These are misclassified samples, ordered by how much lower the right class scores, then those that differ most from
    the reference.

    Raises:
        DataError: writing a picture needs matplotlib, which is not installed.
        OSError: a file can't be written.
    """
    pictures: dict[str, bytes] = {}
    wanted = dict.fromkeys(worst_samples(found))
    tensors = Runner(model).inputs
    samples = (sample for _, part in data.parts(0) for sample in part.samples(tensors))
    for place, sample in enumerate(islice(samples, max(wanted, default=-1) + 1)):
        if place not in wanted or isinstance(sample, DataError):
            continue
        values = sample.steps[-1][0]
        label = "" if sample.label is None else f"_is_{found.name_of(int(sample.label))}"
        name = f"{place:06d}{label}{_answer(found, place)}"
        picture = _as_picture(values)
        if picture is None:
            pictures[f"{name}.npy"] = npy_of(values)
        else:
            larger = -(-SMALLEST_SIDE // min(picture.shape[:2]))
            picture = picture.repeat(larger, axis=0).repeat(larger, axis=1)
            file = io.BytesIO()
            _matplotlib().image.imsave(file, picture, format="png", cmap="gray")
            pictures[f"{name}.png"] = file.getvalue()
    write_files(folder, pictures)


def worst_samples(found: Evaluation) -> list[int]:
    """Indices of the worst samples, at most `WORST`, worst first."""
    wrong: list[tuple[float, int]] = []
    start = 0
    for block in blocks(found.records):
        wrong = sorted([*wrong, *_misses(block, start)])[:WORST]
        start += len(block)
    far = found.difference.worst if found.difference is not None else ()
    return list(dict.fromkeys(sample for _, sample in (*wrong, *((0, sample) for sample, _ in far))))[:WORST]


def _misses(block: npt.NDArray[Any], start: int) -> Iterator[tuple[float, int]]:
    """Misclassified samples of a block: how much lower the right class scores, and their indices."""
    scores = rows(block["output0"]).astype(np.float64)
    if scores.shape[1] <= 1:
        return
    judged = np.flatnonzero(block["ran"] & (block["label"] >= 0) & (block["label"] < scores.shape[1]))
    behind = scores[judged, block["label"][judged]] - scores[judged].max(axis=1)
    for place in np.flatnonzero(behind < 0):
        yield float(behind[place]), int(judged[place]) + start


def _answer(found: Evaluation, place: int) -> str:
    scores = found.records[place]["output0"].reshape(-1)
    return f"_taken_for_{found.name_of(int(scores.argmax()))}" if len(scores) > 1 else ""


def _as_picture(values: npt.NDArray[Any]) -> npt.NDArray[Any] | None:
    """A tensor as a picture, (height, width) or (height, width, channels); None if it does not look like one."""
    shape = tuple(size for size in values.shape[1:] if size != 1) if values.shape[:1] == (1,) else values.shape
    if len(shape) == 1 and int(shape[0] ** 0.5) ** 2 == shape[0] and shape[0] >= 16:
        side = int(shape[0] ** 0.5)
        shape = (side, side)
    if len(shape) not in (2, 3) or (len(shape) == 3 and shape[2] not in (3, 4)):
        return None
    real = values.reshape(shape).astype(np.float32)
    low, high = float(real.min()), float(real.max())
    return (real - low) / (high - low or 1)
