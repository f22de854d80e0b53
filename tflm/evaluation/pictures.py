"""Pictures of an evaluation: the confusion matrix, the worst samples, ranges beside quantization; by matplotlib."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tflm.errors import DataError
from tflm.evaluation.calibration import CalibrationReport
from tflm.evaluation.evaluation import Evaluation
from tflm.evaluation.metrics import blocks, rows
from tflm.evaluation.runner import Runner
from tflm.evaluation.samples import DataSet
from tflm.report import printable
from tflm.schema.model import Model

WORST = 16
SMALLEST_SIDE = 128
"""Pixels that a picture of a sample has at least, or it could not be looked at."""


def _pyplot() -> Any:
    try:
        import matplotlib

        matplotlib.use("Agg")
        from matplotlib import pyplot
    except ImportError:
        raise DataError("pictures need matplotlib, the extra `plot` of this package") from None
    return pyplot


@contextmanager
def _plain_text(pyplot: Any) -> Iterator[None]:
    """Names of folders and operators are drawn as they are, with their dollar signs."""
    with pyplot.rc_context({"text.parse_math": False}):
        yield


def write_confusion(path: Path, found: Evaluation) -> None:
    """Draw how often each class was taken for each other: the share of its samples as a colour, the number on it.

    Raises:
        DataError: nothing has a label; or matplotlib is not there.
        OSError: the file can't be written.
    """
    if found.classification is None:
        raise DataError("there is no confusion matrix without labels")
    pyplot = _pyplot()
    with _plain_text(pyplot):
        _draw_confusion(pyplot, path, found)


def _draw_confusion(pyplot: Any, path: Path, found: Evaluation) -> None:
    assert found.classification is not None
    counts = found.classification.confusion
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True, dtype=np.int64), 1)
    names = [printable(found.name_of(label)) for label in range(len(counts))]
    side = max(4.0, 0.5 * len(names) + 2)
    figure, axes = pyplot.subplots(figsize=(side, side), layout="constrained")
    axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    axes.set_xticks(range(len(names)), names, rotation=90 if max(map(len, names)) > 3 else 0)
    axes.set_yticks(range(len(names)), names)
    axes.set_xlabel("taken for")
    axes.set_ylabel("is")
    axes.set_title(f"{found.classification.accuracy:.2%} of {found.classification.count:,} right")
    if len(names) <= 30:
        for (row, column), number in np.ndenumerate(counts):
            if number:
                color = "white" if shares[row, column] > 0.5 else "black"
                axes.text(column, row, f"{number:,}", ha="center", va="center", color=color, fontsize=8)
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def write_ranges(path: Path, found: CalibrationReport) -> None:
    """Draw for each tensor the part of its quantization's range that its values go through.

    Raises:
        DataError: matplotlib is not there.
        OSError: the file can't be written.
    """
    pyplot = _pyplot()
    with _plain_text(pyplot):
        _draw_ranges(pyplot, path, found)


def _draw_ranges(pyplot: Any, path: Path, found: CalibrationReport) -> None:
    figure, axes = pyplot.subplots(figsize=(9, max(2.5, 0.28 * len(found.tensors) + 1.2)), layout="constrained")
    for place, tensor in enumerate(found.tensors):
        room = tensor.room_to - tensor.room_from
        begin, end = ((value - tensor.room_from) / room for value in (tensor.lowest, tensor.highest))
        axes.barh(place, 1, color="#e6e6e6", height=0.7)
        axes.barh(place, end - begin, left=begin, color="#d95f02" if tensor.saturated > 0.01 else "#1b9e77", height=0.7)
    axes.set_yticks(range(len(found.tensors)), [printable(tensor.operator) for tensor in found.tensors], fontsize=7)
    axes.invert_yaxis()
    axes.set_xlim(0, 1)
    axes.set_xticks([0, 1], ["least integer", "greatest integer"])
    title = f"Range seen over {found.count:,} samples (orange: more than 1 % of the values at an end)"
    axes.set_title(title, fontsize=9)
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def write_worst(folder: Path, found: Evaluation, data: DataSet, model: Model) -> None:
    """Write the samples that the model is most wrong about: an image each where they are pictures, else an array.

    These are the ones that are taken for another class, those first whose own class scores least beside it; then the
    ones that differ most from the reference.

    Raises:
        DataError: a picture is to be written, and matplotlib is not there.
        OSError: a file can't be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
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
            np.save(folder / f"{name}.npy", values)
        else:
            larger = -(-SMALLEST_SIDE // min(picture.shape[:2]))
            picture = picture.repeat(larger, axis=0).repeat(larger, axis=1)
            _pyplot().imsave(folder / f"{name}.png", picture, cmap="gray")


def worst_samples(found: Evaluation) -> list[int]:
    """Numbers of the samples that the model is most wrong about, the worst first, at most `WORST`."""
    wrong: list[tuple[float, int]] = []
    start = 0
    for block in blocks(found.records):
        wrong = sorted([*wrong, *_misses(block, start)])[:WORST]
        start += len(block)
    far = found.difference.worst if found.difference is not None else ()
    return list(dict.fromkeys(sample for _, sample in (*wrong, *((0, sample) for sample, _ in far))))[:WORST]


def _misses(block: npt.NDArray[Any], start: int) -> Iterator[tuple[float, int]]:
    """Samples of a block that are taken for another class: how much less the right one scores, and their numbers."""
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
    """(height, width) or (height, width, channels) of a tensor that looks like a picture."""
    shape = tuple(size for size in values.shape[1:] if size != 1) if values.shape[:1] == (1,) else values.shape
    if len(shape) == 1 and int(shape[0] ** 0.5) ** 2 == shape[0] and shape[0] >= 16:
        side = int(shape[0] ** 0.5)
        shape = (side, side)
    if len(shape) not in (2, 3) or (len(shape) == 3 and shape[2] not in (3, 4)):
        return None
    real = values.reshape(shape).astype(np.float32)
    low, high = float(real.min()), float(real.max())
    return (real - low) / (high - low or 1)
