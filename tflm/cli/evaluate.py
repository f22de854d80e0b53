"""`tflm evaluate` and `tflm calibrate-report`: a model over a whole data set."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console

import tflm
from tflm.cli.command_line import (
    AsJson,
    CommandError,
    ModelPath,
    load_model,
    print_json,
    print_line,
    show_table,
    wrote,
)
from tflm.evaluation.pictures import write_confusion, write_ranges, write_worst
from tflm.evaluation.samples import data_set

Inputs = Annotated[
    Path,
    typer.Option(
        "--inputs", metavar="DATA", help="A .npy, .npz or .csv file, or a folder with a folder for each class."
    ),
]
Limit = Annotated[int | None, typer.Option("--limit", min=1, help="Only the first samples, so many.")]


def evaluate(
    model: ModelPath,
    inputs: Inputs,
    labels: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The class of each sample: a .npy file, or a number a line.")
    ] = None,
    reference: Annotated[
        Path | None, typer.Option(metavar="MODEL", help="A model to compare with, such as the one in float.")
    ] = None,
    top: Annotated[int, typer.Option(min=1, help="How many of the best answers count for the top-k accuracy.")] = 5,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Samples at once; as many as there are processors unless told.")
    ] = None,
    results: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Keep the results; an interrupted run goes on with them.")
    ] = None,
    leave_out: Annotated[
        bool, typer.Option("--leave-out", help="Go on without samples that can't be read or run; name them.")
    ] = False,
    limit: Limit = None,
    confusion: Annotated[Path | None, typer.Option(metavar="PNG", help="Draw the confusion matrix.")] = None,
    worst: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Write the worst samples there, as images where they are.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Run a data set through a model with a device's integers.

    Shows accuracy and confusion where samples have labels, and the differences from a reference where one is given.

    \b
    Examples:
    tflm evaluate model.tflite --inputs digits.npz
    tflm evaluate model.tflite --inputs photos/ --reference float.tflite --results results.bin
    """
    loaded = load_model(model)
    other = None if reference is None else load_model(reference)
    with _progress() as report:
        found = tflm.evaluate(
            loaded,
            inputs,
            labels,
            reference=other,
            top_k=top,
            workers=workers,
            results=results,
            on_bad="leave-out" if leave_out else "stop",
            limit=limit,
            report=report,
        )
    if confusion is not None:
        if found.classification is None:
            raise CommandError("--confusion needs labels: give --labels, or data that has them")
        write_confusion(confusion, found)
    if worst is not None:
        write_worst(worst, found, data_set(inputs, labels), loaded)
    if as_json:
        print_json(figures(model, found))
        return
    for table in found.tables():
        show_table(table)
        print_line()
    for reason in found.left_out:
        print_line(f"left out: {reason}")
    if found.samples_per_second:
        print_line(f"{found.samples_per_second:,.0f} samples a second with {found.workers} workers")
    wrote(*(path for path in (confusion, worst, results) if path is not None))


def figures(path: Path, found: tflm.Evaluation) -> dict[str, Any]:
    """An evaluation for other programs; shares from 0 to 1."""
    told: dict[str, Any] = {
        "model": str(path),
        "samples": found.count,
        "left_out": list(found.left_out),
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
        far = found.difference
        told |= {
            "changed_answers": far.changed_answers,
            "mean_absolute_error": far.mean_absolute_error,
            "root_mean_square_error": far.root_mean_square_error,
            "largest_error": far.largest_error,
            "signal_to_noise_db": far.signal_to_noise_db,
            "worst": [{"sample": sample, "squared_error": error} for sample, error in far.worst],
            "signal": [loss._asdict() for loss in found.signal],
        }
    return told


def calibrate_report(
    model: ModelPath,
    inputs: Inputs,
    limit: Limit = None,
    picture: Annotated[Path | None, typer.Option(metavar="PNG", help="Draw the ranges.")] = None,
    as_json: AsJson = False,
) -> None:
    """Show each tensor's range beside its quantization.

    The range is that of the values over a data set.

    \b
    Examples:
    tflm calibrate-report model.tflite --inputs digits.npz
    """
    found = tflm.calibrate_report(load_model(model), inputs, limit=limit)
    if picture is not None:
        write_ranges(picture, found)
    if as_json:
        tensors = [tensor._asdict() for tensor in found.tensors]
        print_json({"model": str(model), "samples": found.count, "tensors": tensors})
        return
    show_table(found.table())
    for tensor in found.worst(3):
        if tensor.wasted_bits >= 1 or tensor.saturated >= 0.01:
            print_line(
                f"{tensor.operator} {tensor.tensor}: {tensor.saturated:.1%} of its values stand at an end of its "
                f"range, {tensor.wasted_bits:.1f} bits are never used"
            )
    if picture is not None:
        wrote(picture)


@contextmanager
def _progress() -> Iterator[Callable[[int, int | None], None]]:
    """Samples done, their rate and the time that is left, on standard error, where that is a terminal."""
    errors = Console(stderr=True)
    if not errors.is_interactive:
        yield lambda done, total: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("samples"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[rate]}"))
    with Progress(*columns, TimeRemainingColumn(), console=errors, transient=True) as bar:
        task = bar.add_task("samples", total=None, rate="")
        began, first = time.perf_counter(), [-1]

        def report(done: int, total: int | None) -> None:
            if first[0] < 0 or done < first[0]:
                first[0] = done
            rate = (done - first[0]) / max(time.perf_counter() - began, 1e-9)
            bar.update(task, completed=done, total=total, rate=f"{np.round(rate):,.0f}/s")

        yield report
