"""What all commands share: their group, how they fail, how they print, and how they read models."""

from __future__ import annotations

import json
import math
import os
import re
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text
from typer.core import TyperGroup

import tflm

PIPE_WIDTH = 160
"""Columns of a table that goes to a file or another program, unless $COLUMNS says otherwise."""

PATIENCE_SECONDS = 1.0
"""From then on a bar shows how far a command is."""


class CommandError(Exception):
    """What a command was asked to do can't be done: the text says why. Ends the program with status 1."""


class CheckFailed(CommandError):
    """A check that was asked for did not hold, such as a budget. Ends the program with status 1."""


class Commands(TyperGroup):
    """A group of commands whose failures are one readable line, and a traceback only with `--debug`."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command.

        Raises:
            typer.Exit: with status 1, after the reason was printed.
        """
        try:
            return super().invoke(ctx)
        except (tflm.TflmError, CommandError, OSError) as error:
            if ctx.params.get("debug"):
                raise
            if isinstance(error, BrokenPipeError):  # whoever read the output has seen enough
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            else:
                print(f"tflm: {described(error)}", file=sys.stderr)
            raise typer.Exit(1) from None


def described(error: Exception) -> str:
    """An error in one line."""
    if isinstance(error, OSError) and error.strerror:
        place = f"{error.filename}: " if error.filename else ""
        return f"{place}{error.strerror}"
    return " ".join(str(error).split())


def console() -> Console:
    """Where tables go: as wide as the terminal, or wide enough for a pipe; without colours there."""
    piped = not sys.stdout.isatty() and "COLUMNS" not in os.environ
    return Console(width=PIPE_WIDTH if piped else None, highlight=False)


@contextmanager
def progress(what: str, total: int) -> Iterator[Callable[[], None]]:
    """A bar on standard error, for as long as the block runs, from the second second on; only on a terminal.

    Args:
        what: is being done.
        total: how many times the function that is given will be called.
    """
    errors = Console(stderr=True)
    if not errors.is_interactive:
        yield lambda: None
        return
    from rich.progress import Progress  # takes a while to load

    bar = Progress(console=errors, transient=True)
    task = bar.add_task(what, total=total)
    timer = threading.Timer(PATIENCE_SECONDS, bar.start)
    timer.daemon = True
    timer.start()
    try:
        yield lambda: bar.advance(task)
    finally:
        timer.cancel()
        timer.join()
        bar.stop()


def print_json(figures: Any) -> None:
    """Figures for other programs. Numbers that JSON lacks are the strings "NaN", "Infinity" and "-Infinity"."""
    print(json.dumps(_with_finite_numbers(figures), indent=2, allow_nan=False))


def _with_finite_numbers(figures: Any) -> Any:
    if isinstance(figures, dict):
        return {key: _with_finite_numbers(value) for key, value in figures.items()}
    if isinstance(figures, (list, tuple)):
        return [_with_finite_numbers(value) for value in figures]
    if isinstance(figures, complex):
        return _with_finite_numbers([figures.real, figures.imag])
    if isinstance(figures, float) and not math.isfinite(figures):
        return "NaN" if math.isnan(figures) else "Infinity" if figures > 0 else "-Infinity"
    return figures


def table(title: str | None, columns: dict[str, str], rows: Iterable[Iterable[Any]]) -> Table:
    """A table of text.

    Args:
        title: above it, if any.
        columns: headings, and for each "left" or "right".
        rows: their cells; numbers get separators of thousands.
    """
    result = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False, header_style="dim")
    for heading, side in columns.items():
        result.add_column(heading, justify="right" if side == "right" else "left", overflow="fold")
    for row in rows:
        result.add_row(*(Text(f"{cell:,}" if isinstance(cell, int) else str(cell)) for cell in row))
    return result


def load_model(path: Path) -> tflm.Model:
    """The model in a file.

    Raises:
        CommandError: it is no model; the message names the file, and says what is wrong where.
        OSError: it can't be read.
    """
    try:
        return tflm.Model.from_file(path)
    except tflm.ModelError as error:
        raise CommandError(f"{path}: {described(error)}") from error


def with_thousands(size: int) -> str:
    """Bytes as people read them: 73,728 B (72.0 KiB)."""
    for unit, factor in (("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size >= factor:
            return f"{size:,} B ({size / factor:.1f} {unit})"
    return f"{size:,} B"


UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20}


def bytes_from(text: str) -> int:
    """A number of bytes such as 65536, 64K, 64KiB or 1.5M; units are powers of 1024.

    Raises:
        typer.BadParameter: it is none.
    """
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)\s*([kKmM]?)(?:i?[bB])?", text.strip())
    if match is None:
        raise typer.BadParameter(f"{text!r} is no size; write it as 65536, 64K or 1.5M")
    return int(float(match[1]) * UNITS[match[2].upper()])


def target_from(name: str) -> tflm.targets.Target:
    """The target of that name.

    Raises:
        typer.BadParameter: there is none; the message lists them.
    """
    if name not in tflm.targets.TARGETS:
        raise typer.BadParameter(f"no target is called {name!r}; there are {', '.join(tflm.targets.TARGETS)}")
    return tflm.targets.TARGETS[name]


ModelPath = Annotated[Path, typer.Argument(metavar="MODEL", help="A .tflite file.", show_default=False)]
TargetName = Annotated[
    str,
    typer.Option(
        "--target",
        "-t",
        metavar="NAME",
        help=f"The machine: {', '.join(tflm.targets.TARGETS)}.",
        autocompletion=lambda: list(tflm.targets.TARGETS),
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print figures for other programs.")]
