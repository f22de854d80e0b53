"""`tflm export`: write a firmware project that runs a model, or only its C++ sources for TFLM."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from tflm.application.export import sources
from tflm.application.hand_over import not_fitting
from tflm.application.machine import MachineOptions
from tflm.application.models import load_model
from tflm.application.projects import origin_of_project, project_files, project_kinds, usual_kind, write_files
from tflm.boards.board_fit import board_fit
from tflm.boards.board_report import verdict
from tflm.cli.output import print_error, print_plain
from tflm.cli.parameters import NAMED, ModelPath

NO_PROJECT = "none"


def export(
    model: ModelPath,
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Folder for the files; created if missing.")],
    on: MachineOptions = NAMED,
    project: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help=f"Write a project that builds: {', '.join(project_kinds())}; none for only the sources. Default: the "
            "board's usual one, or none without a board.",
            autocompletion=lambda: [*project_kinds(), NO_PROJECT],
        ),
    ] = None,
    typed: Annotated[
        bool,
        typer.Option(
            "--typed",
            help="Register int8-only operators: saves flash with CMSIS-NN, needs -DCMSIS_NN.",
        ),
    ] = False,
    dump: Annotated[
        bool,
        typer.Option("--dump", help="Print every tensor for tflm compare; needs a larger arena."),
    ] = False,
) -> None:
    """Write a firmware project that runs a model.

    The sources are the model as an array, its operators, the arena's size and memory, and a main function. A project
    adds the build system's files and a README with the commands to run. With a board, also reports on standard error
    whether the model fits.

    \b
    Examples:
      tflm export model.tflite firmware/ --board nrf52dk
      tflm export model.tflite firmware/ --board nano33ble --project platformio
      tflm export model.tflite firmware/ --target cortex-m
    """
    loaded, machine = load_model(model), on.machine()
    kind = project or usual_kind(machine) or NO_PROJECT
    if kind == NO_PROJECT:
        files = sources(loaded, model.stem, machine, shlex.join(["tflm", *sys.argv[1:]]), typed, dump)
    else:
        files = project_files(loaded, model.stem, machine, origin_of_project(sys.argv), kind, typed, dump)
    for path in write_files(directory, files):
        print_plain(str(path))
    if machine.board is not None:
        fit = board_fit(loaded, machine.board, kernels=machine.kernels)
        print_error(f"fits {machine.board.name}: {verdict(fit)}")
        if not fit.fits:
            print_error(not_fitting(model, loaded, machine, fit))
