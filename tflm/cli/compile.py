"""`tflm compile`: models as C without an interpreter."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tflm.application.errors import OptionError, RequestError
from tflm.application.models import bytes_from, load_model, share_from
from tflm.c.compile import compile_models, identifier_of, write_files
from tflm.c.compile_report import compile_figures, compile_report
from tflm.cli.output import answer, wrote
from tflm.cli.parameters import AsJson
from tflm.errors import ArgumentError, CompileError


def compile(
    models: Annotated[
        list[Path], typer.Argument(metavar="MODEL... DIR", help=".tflite files, then the folder for the C files.")
    ],
    name: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Prefix of functions and files; the model's file name by default."),
    ] = None,
    ram: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="RAM that is available, such as 24K; the least extra work that fits."),
    ] = None,
    macs: Annotated[str, typer.Option(metavar="SHARE", help="Extra work that is allowed, such as 10% or 0.1.")] = "10%",
    memories: Annotated[
        str | None,
        typer.Option(metavar="NAME:SIZE,...", help="Several memories, the fastest first, as DTCM:64K,SRAM:256K."),
    ] = None,
    self_test: Annotated[
        int, typer.Option(metavar="COUNT", min=0, help="Add a test with this many recorded invokes, and a Makefile.")
    ] = 0,
    as_json: AsJson = False,
) -> None:
    """Write models as portable C99 without an interpreter.

    Writes NAME.h and NAME.c for each model; several models share one file of kernels. All constants are const, and
    the caller supplies one block of RAM. The results are those of TFLM's reference kernels, bit for bit.

    \b
    Examples:
      tflm compile model.tflite firmware/ --name detector
      tflm compile model.tflite firmware/ --ram 20K --macs 30% --self-test 3
      tflm compile wake.tflite command.tflite firmware/
    """
    *paths, folder = models
    if not paths or folder.suffix == ".tflite":
        raise OptionError("give one or more models, then the folder for the C files")
    if ram is not None and memories is not None:
        raise OptionError("--ram is for one memory; give it, or --memories")
    if name is not None and len(paths) > 1:
        raise OptionError("--name is for one model; several ones are named as their files")
    names = [name] if name is not None else [identifier_of(path.stem) for path in paths]
    if len(set(names)) < len(names):
        raise OptionError(f"two models would have the name {max(names, key=names.count)}; rename a file")
    loaded = {title: load_model(path) for title, path in zip(names, paths)}
    try:
        made = compile_models(
            loaded,
            ram=None if ram is None else bytes_from(ram),
            max_extra_macs=share_from(macs),
            memories=None if memories is None else memories_from(memories),
            self_test=self_test,
        )
    except ArgumentError as error:
        raise OptionError(str(error)) from None
    except CompileError as error:
        raise RequestError(str(error)) from None
    written = write_files(folder, made.files)
    answer(as_json, compile_figures(paths, made), *(compile_report(model) for model in made.models))
    if not as_json:
        wrote(*written)


def memories_from(text: str) -> dict[str, int]:
    """Parse names and sizes of memories, such as DTCM:64K,SRAM:256K.

    Raises:
        OptionError: the text is something else.
    """
    memories = {}
    for part in text.split(","):
        name, separator, size = part.strip().partition(":")
        if not name or not separator:
            raise OptionError(f"invalid memories {text!r} (expected e.g. DTCM:64K,SRAM:256K)")
        memories[name] = bytes_from(size)
    return memories
