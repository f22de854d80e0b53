"""`tflm compile`: models as C without an interpreter."""

from __future__ import annotations

import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated

from tflm.application.compile_options import compile_options
from tflm.application.errors import OptionError, RequestError
from tflm.application.export import Firmware
from tflm.application.machine import MachineOptions
from tflm.application.models import load_model
from tflm.application.output_files import Written
from tflm.application.projects.compiled import compiled_sources
from tflm.atomic_write import write_files
from tflm.c.compile import all_compiled_with, identifier_of
from tflm.c.compile_report import compile_figures, compile_report
from tflm.c.kernel_choice import CHOICES, GENERATED
from tflm.cli.output import answer
from tflm.cli.parameters import AsJson, CompiledMemories, CompiledRam, argument, flag, option
from tflm.errors import ArgumentError, CompileError, StreamError
from tflm.schedule.plan import OPTIMIZATIONS
from tflm.targets import PARTS, by_name


def compile(
    models: Annotated[
        list[Path], argument("MODEL... DIR", ".tflite files, then the folder for the C files."), Written.FOLDER
    ],
    name: Annotated[
        str | None, option("NAME", "Prefix of functions and files; the model's file name by default.")
    ] = None,
    ram: CompiledRam = None,
    memories: CompiledMemories = None,
    optimize: Annotated[
        str | None,
        option(
            "speed|ram",
            "speed: the fastest program; ram: the smallest. By default, fast kernels may take a tenth more RAM.",
            autocompletion=lambda: list(OPTIMIZATIONS),
        ),
    ] = None,
    self_test: Annotated[
        int, option("COUNT", "Add a test with this many recorded invokes, and a Makefile.", min=0)
    ] = 0,
    serve: Annotated[bool, flag("--serve", "Add a main that answers the requests of tflm device.")] = False,
    kernels: Annotated[
        str,
        option(
            "NAME",
            f"{' or '.join(CHOICES)}. The library's functions are called if their results equal TFLM's.",
            "--kernels",
            "-k",
            autocompletion=lambda: list(CHOICES),
        ),
    ] = GENERATED,
    target: Annotated[
        str | None,
        option(
            "NAME",
            "Part that cmsis-nn's memory is planned for, such as cortex-m4; every Cortex-M by default.",
            "--target",
            "-t",
            autocompletion=lambda: [name for name, part in PARTS.items() if part.family == "cortex-m"],
        ),
    ] = None,
    max_constants: Annotated[str, option("SIZE", "Maximum size of a model's constants as C, in bytes.")] = "16M",
    stream: Annotated[
        int | None, option("FRAMES", "Take this many new frames of a window in each invoke; see tflm stream.", min=1)
    ] = None,
    stream_input: Annotated[
        int | None,
        option("INDEX", "Input that contains the window for --stream. Default: the one that saves most work.", min=0),
    ] = None,
    feed_rows: Annotated[
        int | None,
        option("ROWS", "Take the input image this many rows at a time, in NAME_feed, and store no whole image."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write models as portable C99 without an interpreter.

    Writes NAME.h and NAME.c for each model; several models share one file of kernels. All constants are const, and
    the caller supplies one block of RAM. The results are those of TFLM's reference kernels, bit for bit.

    \b
    Examples:
      tflm compile model.tflite firmware/ --name detector
      tflm compile model.tflite firmware/ --ram 20K --self-test 3
      tflm compile model.tflite firmware/ --optimize speed
      tflm compile wake.tflite command.tflite firmware/
      tflm compile model.tflite firmware/ --kernels cmsis-nn --target cortex-m4
      tflm compile wake_word.tflite firmware/ --stream 1
      tflm compile camera.tflite firmware/ --feed-rows 1
    """
    *paths, folder = models
    if not paths or folder.suffix == ".tflite":
        raise OptionError("give one or more models, then the folder for the C files")
    if name is not None and len(paths) > 1:
        raise OptionError("--name is for one model; several ones are named as their files")
    names = [name] if name is not None else [identifier_of(path.stem) for path in paths]
    if len(set(names)) < len(names):
        raise OptionError(f"two models would have the name {max(names, key=names.count)}; rename a file")
    loaded = {title: load_model(path) for title, path in zip(names, paths)}
    try:
        part = None if target is None else by_name(target)
        options = compile_options(ram, memories, kernels, part, self_test, max_constants, optimize)
        options = replace(options, stream=stream, stream_input=stream_input, feed_rows=feed_rows)
        made = all_compiled_with(options, loaded)
    except (CompileError, StreamError) as error:
        raise RequestError(str(error)) from None
    except ArgumentError as error:
        raise OptionError(str(error)) from None
    files = made.files
    if serve:
        if len(paths) > 1:
            raise OptionError("--serve is for one model; a device answers for one")
        if stream is not None:
            raise OptionError("--serve is for a model of a file; write it with tflm stream, then compile it")
        if feed_rows is not None:
            raise OptionError("--serve fills whole inputs; compile the model without --feed-rows")
        (one,), machine = made.models, MachineOptions().machine()
        origin = shlex.join(["tflm", *sys.argv[1:]])
        files |= compiled_sources(Firmware(loaded[names[0]], names[0], machine, origin), one, serve=True)
    written = write_files(folder, files)
    answer(as_json, compile_figures(paths, made), *map(compile_report, made.models), files=written)
