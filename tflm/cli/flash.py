"""`tflm flash`: the flash and static RAM that TFLM takes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import tflm
from tflm.application.errors import CheckFailed, NotKnown, OptionError
from tflm.application.flash_report import flash_report, linked_report
from tflm.application.machine import MachineOptions
from tflm.application.models import load_model, title_of
from tflm.cli.output import answer
from tflm.cli.parameters import NAMED, AsJson, ModelPath, option
from tflm.firmware.board_fit import Answer
from tflm.firmware.flash import DEFAULT_BUILD


def flash(
    model: ModelPath,
    on: MachineOptions = NAMED,
    build: Annotated[
        str,
        option(
            "NAME",
            "How TFLM is built: release, and 'release with error strings', 'release, kernels -Os' or "
            "'default, asserts on'.",
        ),
    ] = DEFAULT_BUILD,
    flash_data: Annotated[
        Path | None, option("FILE", "Measurements of your own build, instead of the package's.")
    ] = None,
    linked: Annotated[
        Path | None,
        option(
            "FILE",
            "A linker's map or an ELF file of the firmware: compare it with the prediction for --board.",
            "--map",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show the flash, static RAM and stack of a firmware.

    Counts the model, TFLM and each operator. The target is cortex-m4 without --target and --board. With --map, the
    exit status is 1 if the firmware does not fit the board, and 3 if that is not known.

    \b
    Example:
      tflm flash model.tflite --target cortex-m4 --kernels cmsis-nn --build release
      tflm flash model.tflite --board pico --map build/model.elf.map
    """
    if linked is not None:
        if flash_data is not None or build != DEFAULT_BUILD:
            raise OptionError("--map compares with a release build; leave out --build and --flash-data")
        report, verdict, figures = linked_report(title_of(model), load_model(model), on.machine(), linked)
        answer(as_json, {"model": model} | figures, report)
        if not verdict.is_yes:
            failed = NotKnown if verdict.answer is Answer.UNKNOWN else CheckFailed
            raise failed(f"{model}: {verdict.line}")
        return
    machine = on.machine("cortex-m4")
    found = tflm.flash(load_model(model), target=machine.target, kernels=machine.kernels, build=build, data=flash_data)
    figures = {"model": model, "release": machine.kernels.release.name, **vars(found)}
    answer(as_json, figures, flash_report(title_of(model), found))
