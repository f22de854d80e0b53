"""`tflm quantize`: a float model with integers that the firmware's kernels accept."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import tflm
from tflm.application.errors import CheckFailed
from tflm.application.machine import MachineOptions
from tflm.application.models import load_model, title_of
from tflm.application.quantization_report import firmware_flash, quantization_figures, quantization_report
from tflm.cli.output import answer, progress_of
from tflm.cli.parameters import NAMED, AsJson, ModelPath, Output, option

Inputs = Annotated[
    Path,
    option(
        "DATA",
        "Typical inputs: a .npy, .npz, .csv, image or WAV file, or a folder with one subfolder per class.",
        "--inputs",
    ),
]


def quantize(
    model: ModelPath,
    inputs: Inputs,
    output: Output = None,
    labels: Annotated[
        Path | None, option("FILE", "The class of each sample, to compare the accuracy of both models.")
    ] = None,
    to: Annotated[str, option("TYPE", "Type of activations: int8 or int16.")] = "int8",
    weights: Annotated[str, option("TYPE", "Type of weights: int8 or int4.")] = "int8",
    io: Annotated[str, option("KIND", "Type of inputs and outputs: int or float.")] = "int",
    limit: Annotated[int | None, option(None, "Use only the first N samples.", min=1)] = None,
    on: MachineOptions = NAMED,
    as_json: AsJson = False,
) -> None:
    """Make a float model an integer model that TFLM accepts.

    Scales are chosen from the values that typical inputs produce. The model is repaired before and after, and checked
    for the kernel library; operators that the library rejects get other types. Needs litert-quantizer. The exit status
    is 1, and nothing is written, if the library rejects the result.

    \b
    Examples:
      tflm quantize float.tflite --inputs digits.npz -o int8.tflite --board nano33ble
      tflm quantize float.tflite --inputs photos/ -o int16.tflite --to int16 --kernels cmsis-nn
    """
    machine = on.machine()
    loaded = load_model(model)
    with progress_of("samples") as report:
        found = tflm.quantize(
            loaded,
            inputs,
            labels,
            to=to,
            weights=weights,
            io=io,
            target=machine.target,
            kernels=machine.kernels,
            limit=limit,
            report=report,
        )
    written = output if found.accepted else None
    if written is not None:
        found.write(written)
    flash = firmware_flash(loaded, found, machine)
    figures = quantization_figures(model, found, machine, flash, written is not None)
    answer(as_json, figures, quantization_report(title_of(model), found, machine, flash), files=[written])
    if not found.accepted:
        kept = "" if output is None else f"; {output} is not written"
        raise CheckFailed(f"{model}: {machine.kernels.name} kernels reject the quantized model{kept}")
