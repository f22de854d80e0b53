"""`tflm evaluate` and `tflm calibrate-report`: run a model on a whole data set."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import tflm
from tflm.application.errors import RequestError
from tflm.application.evaluation_report import (
    CALIBRATION_FIGURES,
    EVALUATION_FIGURES,
    calibration_report,
    evaluation_report,
)
from tflm.application.models import load_model
from tflm.application.output_files import Written
from tflm.cli.output import answer, progress_of
from tflm.cli.parameters import AsJson, ModelPath, flag, option
from tflm.device import connect
from tflm.evaluation.pictures import write_confusion, write_ranges, write_worst
from tflm.evaluation.samples import data_set
from tflm.report import document_of

Inputs = Annotated[
    Path,
    option(
        "DATA",
        "One sample or several: a .npy, .npz, .csv, image or WAV file, or a folder with one subfolder per class.",
        "--inputs",
    ),
]
Limit = Annotated[int | None, option(None, "Use only the first N samples.", "--limit", min=1)]


def evaluate(
    model: ModelPath,
    inputs: Inputs,
    labels: Annotated[
        Path | None, option("FILE", "The class of each sample: a .npy file, or text with one number per line.")
    ] = None,
    reference: Annotated[Path | None, option("MODEL", "A model to compare with, such as the float version.")] = None,
    top: Annotated[int, option(None, "k of the top-k accuracy.", min=1)] = 5,
    workers: Annotated[
        int | None, option(None, "Samples run in parallel; one per processor by default.", min=1)
    ] = None,
    results: Annotated[
        Path | None, option("FILE", "Save the results, so that an interrupted run can resume."), Written.UPDATED
    ] = None,
    leave_out: Annotated[bool, flag("--leave-out", "Skip and list samples that cannot be read or run.")] = False,
    limit: Limit = None,
    port: Annotated[str | None, option("PORT", "Run the model on a device; the port is as for tflm device.")] = None,
    confusion: Annotated[Path | None, option("PNG", "Draw the confusion matrix."), Written.FILE] = None,
    worst: Annotated[
        Path | None, option("FOLDER", "Write the worst samples to a folder, images as images."), Written.FOLDER
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Evaluate a model on a data set, with a device's integers.

    Shows accuracy and confusion if the samples have labels, and differences from a reference model if one is given.

    \b
    Examples:
    tflm evaluate model.tflite --inputs digits.npz
    tflm evaluate model.tflite --inputs photos/ --reference float.tflite --results results.bin
    tflm evaluate model.tflite --inputs digits.npz --port /dev/ttyACM0 --results results.bin
    """
    loaded = load_model(model)
    other = None if reference is None else load_model(reference)
    connected = None if port is None else connect(port, loaded)
    with progress_of("samples") as report, connected or nullcontext():
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
            device=connected,
        )
    if confusion is not None:
        if found.classification is None:
            raise RequestError("--confusion needs labels: use --labels, or a data set with labels")
        write_confusion(confusion, found)
    if worst is not None:
        write_worst(worst, found, data_set(inputs, labels, loaded), loaded)
    figures = {"model": model, **document_of(found, EVALUATION_FIGURES)}
    answer(as_json, figures, evaluation_report(found), files=[confusion, worst, results])


def calibrate_report(
    model: ModelPath,
    inputs: Inputs,
    limit: Limit = None,
    picture: Annotated[Path | None, option("PNG", "Draw the ranges."), Written.FILE] = None,
    as_json: AsJson = False,
) -> None:
    """Compare each tensor's value range with its quantization.

    The values are those that a data set produces.

    \b
    Examples:
    tflm calibrate-report model.tflite --inputs digits.npz
    """
    found = tflm.calibrate_report(load_model(model), inputs, limit=limit)
    if picture is not None:
        write_ranges(picture, found)
    figures = {"model": model, **document_of(found, CALIBRATION_FIGURES)}
    answer(as_json, figures, calibration_report(found), files=[picture])
