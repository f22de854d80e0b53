"""What all commands share: their group, how they fail, how they print, and how they read models."""

from __future__ import annotations

import functools
import inspect
import json
import math
import os
import re
import sys
import textwrap
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer
from rich.console import Console
from rich.text import Text
from typer.core import TyperGroup

import tflm
from tflm import boards, libraries
from tflm.boards import Board
from tflm.bounded_reading import MOST_MODEL_BYTES, MOST_TEXT_BYTES, read_at_most, read_stream, read_text
from tflm.libraries import KernelLibrary, library_for
from tflm.report import Report, Table, printable, with_thousands
from tflm.schema.model import CHECKS

PIPE_WIDTH = 160
"""Columns of a table that goes to a file or another program, unless $COLUMNS says otherwise."""

PATIENCE_SECONDS = 1.0
"""From then on a bar shows how far a command is."""


USAGE_ERROR: Any = typer.BadParameter.__mro__[1]
"""Click's, of which newer versions of typer have a copy of their own."""


class CommandError(Exception):
    """What a command was asked to do can't be done: the text says why. Ends the program with status 1."""


class CheckFailed(CommandError):
    """A check that was asked for did not hold, such as a budget. Ends the program with status 1."""


class Commands(TyperGroup):
    """A group of commands whose failures are one readable line, and a traceback only with `--debug`."""

    def main(self, *arguments: Any, **settings: Any) -> Any:
        """Run the program. A traceback is printed here, for what it quotes may hold control characters.

        Raises:
            SystemExit: at the end of a program.
        """
        try:
            return super().main(*arguments, **settings)
        except Exception:
            for line in traceback.format_exc().splitlines():
                print_error(line)
            sys.exit(1)

    def make_context(self, *arguments: Any, **settings: Any) -> Any:
        """The context of a call, once its options are read.

        Raises:
            UsageError: they can't be read.
        """
        with _escaped_usage_errors():
            return super().make_context(*arguments, **settings)

    def invoke(self, ctx: Any) -> Any:
        """Run the command.

        Raises:
            typer.Exit: with status 1, after the reason was printed.
        """
        warnings.showwarning = _show_warning
        try:
            with _escaped_usage_errors():
                return super().invoke(ctx)
        except (tflm.TflmError, CommandError, OSError) as error:
            if ctx.params.get("debug"):
                raise
            if isinstance(error, BrokenPipeError):  # whoever read the output has seen enough
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            else:
                print_error(f"tflm: {described(error)}")
            raise typer.Exit(1) from None

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """List the commands with their whole summaries, broken where the terminal is narrow."""
        commands = ((name, self.get_command(ctx, name)) for name in sorted(self.list_commands(ctx)))
        rows = [(name, _summary(command.help or "")) for name, command in commands if command is not None]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


def _summary(text: str) -> str:
    return " ".join(text.partition("\n\n")[0].split())


@contextmanager
def _escaped_usage_errors() -> Iterator[None]:
    """Escape what errors in the call quote of it, before their message is printed with the usage."""
    try:
        yield
    except USAGE_ERROR as error:
        error.message = printable(error.message)
        raise


def _show_warning(message: Warning | str, *place: Any, **settings: Any) -> None:
    print_error(f"tflm: {' '.join(str(message).split())}")


# Everything that commands print goes through the functions below, which escape control characters: names come from
# files and arguments. A test holds that no other module of this folder prints.


def print_plain(text: str) -> None:
    """Print a line on standard output as it is, however long: for other programs, such as the names of files."""
    print(printable(text))


def print_error(text: str) -> None:
    """Print a line on standard error."""
    print(printable(text), file=sys.stderr)


def wrote(*paths: Path) -> None:
    """Name the files that a command wrote, with their sizes."""
    for path in paths:
        size = f": {with_thousands(path.stat().st_size)}" if path.is_file() else ""
        print_plain(f"wrote {path}{size}")


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


@contextmanager
def status_line(what: str) -> Iterator[Callable[[str], None]]:
    """A line on standard error that says what is going on, for as long as the block runs; only on a terminal.

    The function that is given puts another text in its place.
    """
    errors = Console(stderr=True)
    if not errors.is_interactive:
        yield lambda _: None
        return
    with errors.status(what) as status:
        yield lambda text: status.update(Text(printable(text)))


def print_json(figures: Any) -> None:
    """Figures for other programs. Numbers that JSON lacks are the strings "NaN", "Infinity" and "-Infinity"."""
    text = json.dumps(_with_finite_numbers(figures), indent=2, allow_nan=False)
    print(text.replace("\x7f", "\\u007f"))  # the only control character that JSON leaves as it is


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


def show(report: Report) -> None:
    """Print a report: its title, facts, tables and notes."""
    if report.title:
        print_line(report.title, "bold")
    width = max((len(label) for label, _ in report.facts), default=0)
    for label, value in report.facts:
        print_line(f"{label.ljust(width)}  {value}", indent=width + 2)
    for i, table in enumerate(report.tables):
        if i or report.facts:
            print_line()
        show_table(table)
    if report.notes and (report.tables or report.facts):
        print_line()
    for note in report.notes:
        print_line(note)


def show_table(table: Table) -> None:
    """Print a table: its title, headings and rows."""
    out = console()
    if table.title:
        out.print(Text(table.title, "bold"), soft_wrap=True)  # a table's texts are escaped already
    for i, line in enumerate(table.lines(out.width)):
        out.print(Text(line, "" if i else "dim"), soft_wrap=True)


def print_line(text: str = "", style: str = "", indent: int = 0) -> None:
    """Print a line, broken at blanks where it is too long; what follows the first is indented."""
    out = console()
    wrapper = textwrap.TextWrapper(out.width, subsequent_indent=" " * indent, break_long_words=False)
    lines = wrapper.wrap(printable(" ".join(text.splitlines())))
    for line in lines or [""]:
        out.print(Text(line, style), soft_wrap=True)


STANDARD_INPUT = Path("-")

MOST_LINE = 4096
"""Characters of a line of a log that are looked at."""


def title_of(path: Path) -> str:
    """What a model is called on the screen."""
    return "standard input" if path == STANDARD_INPUT else path.name


def with_checks(command: Callable[..., None]) -> Callable[..., None]:
    """A command with the option that all have which load models: how strictly these are checked."""

    @functools.wraps(command)
    def checking(*arguments: Any, checks: str, **options: Any) -> None:
        if checks not in CHECKS:
            raise typer.BadParameter(f"{checks!r} are no checks; there are {' and '.join(CHECKS)}")
        checks_of_models.set(checks)
        command(*arguments, **options)

    signature = inspect.signature(command, eval_str=True)
    added = inspect.Parameter("checks", inspect.Parameter.KEYWORD_ONLY, default="all", annotation=Checks)
    checking.__signature__ = signature.replace(  # type: ignore[attr-defined]  # typer reads it
        parameters=[*signature.parameters.values(), added]
    )
    checking.__annotations__ = {**command.__annotations__, "checks": Checks}
    return checking


checks_of_models: ContextVar[str] = ContextVar("checks_of_models", default="all")
"""How strictly models are checked that a command loads."""


def require_local(path: Path) -> None:
    """Check that a model is named by a path.

    Raises:
        CommandError: it is a URL.
    """
    scheme, colon, _ = str(path).partition(":/")
    if colon and re.fullmatch(r"[A-Za-z][A-Za-z0-9+.-]+", scheme) and not path.exists():
        address = str(path).replace(":/", "://", 1) if "://" not in str(path) else str(path)
        raise CommandError(
            f"{address}: is a URL; models are read from files. Download it first: curl -LO {address}; "
            f"or pipe it into a command that takes - for the model: curl -sL {address} | tflm inspect -"
        )


def bytes_of_model(path: Path) -> bytes:
    """What is in a model's file, a pipe, or for "-" in standard input, whether it is a model or not.

    Raises:
        CommandError: it is a URL.
        DataError: it has more bytes than a model may have.
        OSError: it can't be read.
    """
    require_local(path)
    if path == STANDARD_INPUT:
        return read_stream(sys.stdin.buffer, MOST_MODEL_BYTES, "standard input")
    return read_at_most(path, MOST_MODEL_BYTES)


def lines_of_log(path: Path) -> list[str]:
    """The lines of a device's log, or for "-" of standard input, as far as what TFLM prints may reach in each.

    Raises:
        DataError: it has more than `MOST_TEXT_BYTES`.
        OSError: it can't be read.
    """
    if path == STANDARD_INPUT:
        text = read_stream(sys.stdin.buffer, MOST_TEXT_BYTES, "standard input").decode("utf-8", "replace")
    else:
        text = read_text(path, errors="replace")
    return [line[:MOST_LINE] for line in text.splitlines()]


def load_model(path: Path) -> tflm.Model:
    """The model in a file, a pipe, or for "-" in standard input.

    Raises:
        CommandError: it is no model; the message names the file, and says what is wrong where.
        OSError: it can't be read.
    """
    try:
        if path == STANDARD_INPUT:
            return tflm.Model(bytes_of_model(path), checks_of_models.get())
        require_local(path)
        return tflm.Model.from_file(path, checks_of_models.get())
    except tflm.ModelError as error:
        raise CommandError(f"{path}: {described(error)}") from error


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


def with_shapes(model: tflm.Model, texts: list[str] | None) -> tflm.Model:
    """The model for inputs of other shapes, each given as input=1,96,96,1; the model itself where there are none.

    Raises:
        typer.BadParameter: this is no shape; or no input is called so.
        OperatorError: an operator does not allow it.
    """
    shapes: dict[str | int, list[int]] = {}
    for text in texts or ():
        match = re.fullmatch(r"(.+)=\[?([0-9]+(?:,[0-9]+)*)\]?", text.replace(" ", ""))
        if match is None:
            raise typer.BadParameter(f"{text!r} is no shape of an input; write it as input=1,96,96,1")
        shapes[match[1]] = [int(dimension) for dimension in match[2].split(",")]
    try:
        return tflm.Model(tflm.resize(model, shapes), model.checks) if shapes else model
    except tflm.ArgumentError as error:
        raise typer.BadParameter(str(error)) from error


def target_from(name: str) -> tflm.targets.Target:
    """The target of that name.

    Raises:
        typer.BadParameter: there is none; the message lists them.
    """
    known = tflm.targets.TARGETS | tflm.targets.PARTS
    if name not in known:
        raise typer.BadParameter(f"no target is called {name!r}; there are {', '.join(known)}")
    return known[name]


def kernels_from(name: str) -> KernelLibrary:
    """The kernel library of that name.

    Raises:
        typer.BadParameter: there is none; the message lists them.
    """
    try:
        return libraries.by_name(name)
    except tflm.ArgumentError as error:
        raise typer.BadParameter(str(error)) from None


class Machine(NamedTuple):
    """What a model is laid out for: a target, a kernel library, and where they were named, a board and a TFLM."""

    target: tflm.targets.Target
    kernels: KernelLibrary
    board: Board | None
    release: str | None = None


def machine_from(
    target: str | None, kernels: str | None, board: str | None, default: str = "cortex-m", *, release: str | None = None
) -> Machine:
    """What `--target`, `--kernels`, `--board` and `--tflm` ask for. A board has a part, and kernels usual on it.

    Args:
        default: the target, where neither it nor a board is named.
        release: the TFLM; None for that of the kernels.

    Raises:
        typer.BadParameter: there is none of that name; the library is not for the part; or the part is named twice.
    """
    if board is not None and target is not None:
        raise typer.BadParameter("give --board, which has its part, or --target")
    try:
        named = None if board is None else boards.by_name(board)
        machine = target_from(target or default) if named is None else named.target
        usual = "reference" if named is None else named.kernels
        return Machine(machine, library_for(kernels or usual, machine, release), named, release)
    except tflm.ArgumentError as error:
        raise typer.BadParameter(str(error)) from None


ModelPath = Annotated[
    Path, typer.Argument(metavar="MODEL", help="A .tflite file; - for standard input.", show_default=False)
]
TargetName = Annotated[
    str | None,
    typer.Option(
        "--target",
        "-t",
        metavar="NAME",
        help=f"The machine: {', '.join(tflm.targets.TARGETS)}; or a part, such as cortex-m4, cortex-m55, "
        "esp32s3. Without it and --board, cortex-m; host, to run a model.",
        autocompletion=lambda: list(tflm.targets.TARGETS | tflm.targets.PARTS),
    ),
]
KernelsName = Annotated[
    str | None,
    typer.Option(
        "--kernels",
        "-k",
        metavar="NAME",
        help=f"The kernel library of the firmware: {', '.join(libraries.MODULES)}. Of a board, the usual "
        "one; otherwise reference.",
        autocompletion=lambda: list(libraries.MODULES),
    ),
]
ReleaseName = Annotated[
    str | None,
    typer.Option(
        "--tflm",
        metavar="NAME",
        help="The TFLM of the firmware: a commit, a day such as 2023-06-15, or what contains it, such as "
        "'esp-tflite-micro 1.3.3'; tflm releases lists them.",
    ),
]
BoardName = Annotated[
    str | None,
    typer.Option(
        "--board",
        "-b",
        metavar="NAME",
        help="A board, for its part, kernels and memories; docs/boards.md lists them.",
        autocompletion=lambda: list(boards.boards()),
    ),
]
Checks = Annotated[
    str,
    typer.Option(
        "--checks",
        metavar="NAME",
        help="all, or tflm: obey what TFLM obeys, too, such as a plan that loses values.",
        autocompletion=lambda: list(CHECKS),
    ),
]
Shapes = Annotated[
    list[str] | None,
    typer.Option("--shape", metavar="INPUT=SHAPE", help="Another shape of an input, such as input=1,96,96,1."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print figures for other programs.")]
NodeData = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Write figures of operators for Google's Model Explorer, a file for each kind."),
]
