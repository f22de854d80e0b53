"""The group of all commands: prints errors."""

from __future__ import annotations

import errno
import os
import re
import sys
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO

import typer
from typer.core import TyperGroup

import tflm
from tflm.application.errors import NotKnown, described
from tflm.cli.plain_text import as_text, print_error

NO_ANSWER = 2
"""Exit status if a device does not answer."""

NOT_KNOWN = 3
"""Exit status if a model may fit: neither yes (0) nor no (1)."""

USAGE_ERROR: Any = typer.BadParameter.__mro__[1]
"""Click's module; newer versions of typer contain a copy of it."""

BUG = 70
"""Exit status after an error that the package did not raise on purpose: EX_SOFTWARE of sysexits.h."""

BUG_REPORT = "this is a bug in tflm; please report it with the lines above, and the files if you can"

CLOSED_PIPE = 141
"""Exit status if the reader of the output stops early: in shells, that of programs that SIGPIPE ends."""

OPTIONS = {
    "on_bad='leave-out'": "--leave-out",
    "causal=True": "--causal",
    "kernels='": "--kernels",
    "overlap='": "--overlap",
    "release='": "--tflm",
    "stream=1": "--stream 1",
}
"""Options by the arguments of functions that errors name. A value in quotes follows the option without them."""


def with_options(text: str) -> str:
    """The text of an error with options of the command in place of arguments of functions."""
    for argument, option in OPTIONS.items():
        if argument.endswith("='"):
            text = re.sub(rf"(?<!\w){argument}([^']*)'", rf"{option} \1", text)
        else:
            text = text.replace(argument, option)
    return text


class Commands(TyperGroup):
    """A group of commands that prints errors in one line, with a traceback only if `--debug` is given."""

    def main(self, *arguments: Any, **settings: Any) -> Any:
        """Run the program, and print any traceback with control characters escaped.

        Raises:
            SystemExit: when the program ends.
        """
        sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115  # both may be closed
        sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115
        with _ended_by_its_reader():
            try:
                return super().main(*arguments, **settings)
            except Exception as error:
                if _is_closed_pipe(error):
                    raise
                for line in traceback.format_exc().splitlines():
                    print_error(line)
                if isinstance(error, (tflm.TflmError, OSError, MemoryError)):  # with --debug
                    sys.exit(1)
                print_error(f"tflm: {BUG_REPORT}")
                sys.exit(BUG)

    def make_context(self, *arguments: Any, **settings: Any) -> Any:
        """Read the options of a call and return its context.

        Raises:
            UsageError: an option is invalid.
        """
        with _printed_errors():
            return super().make_context(*arguments, **settings)

    def parse_args(self, ctx: Any, args: list[str]) -> Any:
        """Read the options of the program. Without arguments it shows its help, with any version of typer.

        Raises:
            UsageError: an option is invalid.
        """
        return super().parse_args(ctx, args or ["--help"])

    def invoke(self, ctx: Any) -> Any:
        """Run the command.

        Raises:
            typer.Exit: an error was printed; the status is 1.
        """
        warnings.showwarning = _show_warning
        with _printed_errors(ctx.params.get("debug", False)):
            return super().invoke(ctx)


@contextmanager
def _printed_errors(debug: bool = False) -> Iterator[None]:
    """Print an error of the block in one line; with `debug` it is raised.

    Raises:
        typer.Exit: an error was printed; the status is 1, or 2 if a device does not answer, or 3 if a check is
                inconclusive.
        UsageError: an option is invalid.
    """
    with _ended_by_its_reader():  # needed here as well: Click exits with status 1
        try:
            with _escaped_usage_errors(), _flushed_output():
                yield
        except (tflm.TflmError, OSError, MemoryError) as error:
            if debug or _is_closed_pipe(error):
                raise
            print_error(f"tflm: {with_options(described(error))}")
            raise typer.Exit(_status(error)) from None


def _status(error: Exception) -> int:
    """The exit status after an error."""
    if isinstance(error, tflm.DeviceError):
        return 1 if isinstance(error, tflm.WrongModel) else NO_ANSWER
    return NOT_KNOWN if isinstance(error, NotKnown) else 1


@contextmanager
def _flushed_output() -> Iterator[None]:
    """Flush standard output at the end of the block, where an error can still be shown.

    Raises:
        OSError: it cannot be written; what remains is discarded.
    """
    try:
        yield
    finally:
        try:
            sys.stdout.flush()
        except OSError:
            _discard(sys.stdout)
            raise


@contextmanager
def _ended_by_its_reader() -> Iterator[None]:
    """End the program without a word if the block finds that its output is no longer read.

    Raises:
        SystemExit: the output is no longer read.
    """
    try:
        yield
    except OSError as error:
        if not _is_closed_pipe(error):
            raise
        _discard(sys.stdout)
        _discard(sys.stderr)
        sys.exit(CLOSED_PIPE)


def _is_closed_pipe(error: Exception) -> bool:
    """Whether writing to a pipe failed because its reader has ended: EPIPE; EINVAL on Windows."""
    if os.name == "nt" and isinstance(error, OSError) and error.errno == errno.EINVAL:
        return error.filename is None
    return isinstance(error, BrokenPipeError)


def _discard(stream: TextIO) -> None:
    """Discard the buffered and all further output of a stream; otherwise Python fails when it flushes the stream at
    exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


@contextmanager
def _escaped_usage_errors() -> Iterator[None]:
    """Escape control characters that usage errors quote from the arguments."""
    try:
        yield
    except USAGE_ERROR as error:
        error.message = as_text(with_options(error.message))
        raise


def _show_warning(message: Warning | str, *place: Any, **settings: Any) -> None:
    print_error(f"tflm: {with_options(' '.join(str(message).split()))}")
