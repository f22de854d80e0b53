"""`tflm export`: write a firmware project that runs a model, or only its C++ sources for TFLM."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated

import tflm
from tflm.application.compile_options import compile_options
from tflm.application.compiled_fit import CompiledFit, compiled_verdict
from tflm.application.errors import OptionError, RequestError
from tflm.application.export import Firmware, sources
from tflm.application.hand_over import not_fitting
from tflm.application.machine import Machine, MachineOptions
from tflm.application.models import load_model
from tflm.application.output_files import Written
from tflm.application.projects import machine_of_project, origin_of_project, project_files, project_kinds, usual_kind
from tflm.application.projects.compiled import compiled_name, compiled_project_files, compiled_sources
from tflm.application.several_memories import memories_of, spread_of
from tflm.atomic_write import write_files
from tflm.boards import Board
from tflm.c.cmsis_nn import LIBRARY
from tflm.c.compile import compiled_with
from tflm.c.planner import CompileOptions
from tflm.cli.parameters import NAMED, CompiledMemories, CompiledRam, ModelPath, argument, flag, option
from tflm.cli.plain_text import print_error, print_plain
from tflm.errors import ArgumentError
from tflm.firmware.board_report import verdict
from tflm.libraries import KernelLibrary
from tflm.memory.several_memories import Memory

NO_PROJECT = "none"


def export(
    model: ModelPath,
    directory: Annotated[Path, argument("DIR", "Folder for the files; created if missing."), Written.FOLDER],
    on: MachineOptions = NAMED,
    project: Annotated[
        str | None,
        option(
            "NAME",
            f"Write a project that builds: {', '.join(project_kinds())}; none for only the sources. Default: the "
            "board's usual one, or none without a board.",
            autocompletion=lambda: [*project_kinds(), NO_PROJECT],
        ),
    ] = None,
    typed: Annotated[
        bool, flag("--typed", "Register int8-only operators: saves flash with CMSIS-NN, needs -DCMSIS_NN.")
    ] = False,
    dump: Annotated[bool, flag("--dump", "Print every tensor for tflm compare; needs a larger arena.")] = False,
    serve: Annotated[bool, flag("--serve", "Answer the requests of tflm device instead of running once.")] = False,
    compiled: Annotated[
        bool, flag("--compiled", "Run the model as C without TFLM, as tflm compile writes it.")
    ] = False,
    ram: CompiledRam = None,
    memories: CompiledMemories = None,
) -> None:
    """Write a firmware project that runs a model.

    The sources are the model as an array, its operators, the arena's size and memory, and a main function; with
    --compiled, the model as C and a main function; --ram, --memories and --kernels cmsis-nn are then those of
    tflm compile. Without it, --memories puts the buffers into several memories of the board, as tflm plan does. A
    project adds the build system's files and a README with the commands to run. With a board, also reports on standard
    error whether the model fits.

    \b
    Examples:
      tflm export model.tflite firmware/ --board nrf52dk
      tflm export model.tflite firmware/ --board nano33ble --project platformio
      tflm export model.tflite firmware/ --target cortex-m
      tflm export model.tflite firmware/ --board esp32-s3-eye --memories SRAM,PSRAM
      tflm export model.tflite firmware/ --board nrf52dk --compiled
      tflm export model.tflite firmware/ --board nrf52dk --compiled --kernels cmsis-nn
    """
    loaded, origin = load_model(model), origin_of_project(sys.argv, on)
    if compiled:
        _require_compiled(on, typed, dump)
        machine = on._replace(kernels=None).machine()
        named = on.target is not None or machine.board is not None
        part = machine.target if on.kernels == LIBRARY and named else None
        options = compile_options(ram, memories, on.kernels, part)
        _export_compiled(Firmware(loaded, model.stem, machine, origin), directory, project, options, serve)
        return
    if ram is not None:
        raise OptionError("--ram is for --compiled")
    machine = on.machine()
    kind = project or usual_kind(machine) or NO_PROJECT
    planned = None
    if memories is not None:
        if machine.board is None or kind == NO_PROJECT or dump:
            raise OptionError("--memories needs a project for a --board, and no --dump; or use tflm plan --memories")
        given = memories_of(memories, loaded, machine)
        planned = partial(_planned, loaded, machine, given)
    firmware = Firmware(loaded, model.stem, machine, origin)
    if kind == NO_PROJECT:
        files = sources(firmware, typed, dump, serve=serve)
    else:
        files = project_files(firmware, kind, typed, dump, planned=planned, serve=serve)
        machine = machine_of_project(machine, kind)
    for path in write_files(directory, files):
        print_plain(str(path))
    if machine.board is not None:
        fit = machine.fit(loaded)
        if planned is not None:
            fit = replace(fit, spread=spread_of(planned(machine.kernels), machine.board))
        print_error(f"fits {machine.board.name}: {verdict(fit)}")
        if not fit.fits:
            print_error(not_fitting(model, loaded, machine, fit))


def _planned(
    model: tflm.Model, machine: Machine, memories: Sequence[Memory], kernels: KernelLibrary
) -> tflm.planning.MemoriesPlan:
    return tflm.plan(model, target=machine.target, kernels=kernels, memories=memories)


def _require_compiled(on: MachineOptions, typed: bool, dump: bool) -> None:
    """Reject options that are TFLM's."""
    given = {"--tflm": on.release, "--typed": typed, "--dump": dump}
    named = [option for option, value in given.items() if value]
    if named:
        raise OptionError(f"--compiled writes firmware without TFLM; leave out {' and '.join(named)}")


def _require_memories(memories: Iterable[str], board: Board) -> None:
    """Reject memories that a board lacks."""
    known = [bank.name for bank in board.ram]
    for name in memories:
        if name not in known:
            raise OptionError(f"{board.name} has no memory {name!r}; it has {', '.join(known)}")


def _export_compiled(
    firmware: Firmware, directory: Path, project: str | None, options: CompileOptions, serve: bool
) -> None:
    """Write the model as C, with a project; report whether it fits the board."""
    machine = firmware.machine
    kind = project or usual_kind(machine) or NO_PROJECT
    if machine.board is not None:
        _require_memories(options.memories, machine.board)
    try:
        compiled = compiled_with(options, firmware.model, compiled_name(firmware.stem))
        found = None if machine.board is None else CompiledFit(machine.board, compiled, machine.reserve or 0)
        if kind == NO_PROJECT:
            files = compiled_sources(firmware, compiled, serve)
        else:
            files = compiled_project_files(firmware, kind, found, compiled, serve)
    except ArgumentError as error:
        raise OptionError(str(error)) from None
    except tflm.CompileError as error:
        raise RequestError(str(error)) from None
    for written in write_files(directory, files):
        print_plain(str(written))
    if found is not None:
        print_error(compiled_verdict(found))
