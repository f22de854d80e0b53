"""`tflm fit`: make a model fit a board."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

from tflm.application.arena import board_with_ram
from tflm.application.errors import CheckFailed, NotKnown, OptionError, option_errors
from tflm.application.fit import DEFAULT_EXTRA_MACS, DEFAULT_TIME_LIMIT, fit_figures, fit_report
from tflm.application.fit import fit as fitted
from tflm.application.hand_over import compiled_instead
from tflm.application.machine import DEFAULT_RESERVE, MachineOptions
from tflm.application.models import load_model, share_from, title_of
from tflm.application.output_files import Written
from tflm.application.projects import origin_of_project
from tflm.cli.output import answer, status_line
from tflm.cli.parameters import NAMED, AsJson, ModelPath, Short, option
from tflm.firmware.board_fit import Answer


def fit(
    model: ModelPath,
    on: MachineOptions = NAMED,
    ram: Annotated[str | None, option("SIZE", "RAM of a --target without a board, such as 64K.")] = None,
    output: Annotated[
        Path | None, option("DIR", "Write the model, a report and a project there.", "--output", "-o"), Written.FOLDER
    ] = None,
    macs: Annotated[str, option("SHARE", "Work that row bands may add, such as 25% or 0.25.")] = str(
        DEFAULT_EXTRA_MACS
    ),
    hop: Annotated[
        int | None, option("FRAMES", "Also try the streaming form, with this many new frames per invoke.", min=1)
    ] = None,
    time_limit: Annotated[float, option("SECONDS", "Time limit of all steps together.", min=0)] = DEFAULT_TIME_LIMIT,
    is_short: Short = False,
    as_json: AsJson = False,
) -> None:
    """Make a model fit a board, with the same results.

    Tries a memory plan, folding, another operator order, in-place and overlapping tensors, row bands, and other kernel
    builds for the board, cheapest first, until the model fits. Ctrl-C ends the search with the best result so far. The
    exit status is 1 if nothing fits, and 3 if it is not known whether the chosen version does.

    \b
    Examples:
      tflm fit model.tflite --board nrf52dk
      tflm fit model.tflite --board esp32-s3-eye --reserve 200K -o firmware/
      tflm fit model.tflite --target cortex-m33 --kernels cmsis-nn --ram 64K
      tflm fit wake_word.tflite --board nrf52dk --hop 1
    """
    machine = on.machine()
    if (machine.board is None) == (ram is None):
        raise OptionError("name a board or chip with --board (tflm boards lists them), or a --target with --ram")
    where = machine.board if machine.board is not None else board_with_ram(machine, ram or "")
    loaded = load_model(model)
    with option_errors(), status_line("making it fit") as tell:
        found = fitted(
            loaded,
            board=where,
            reserve=DEFAULT_RESERVE if machine.reserve is None else machine.reserve,
            kernels=on.kernels,
            release=on.release,
            max_extra_macs=share_from(macs),
            hop=hop,
            time_limit=time_limit,
            progress=tell,
        )
    report = fit_report(found, title_of(model))
    written = [] if output is None else found.write(output, model.stem, origin_of_project(sys.argv, on))
    answer(as_json, fit_figures(model, found), report, files=written, is_short=is_short)
    if not found.verdict.is_yes:
        instead = compiled_instead(model, found.compiled)
        failed = NotKnown if found.verdict.answer is Answer.UNKNOWN else CheckFailed
        raise failed(f"{model}: {found.verdict.line}" + (f"; {instead}" if instead else ""))
