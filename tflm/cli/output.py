"""Everything that commands print. Control characters are escaped here: names come from files and arguments.

A test ensures that no other module in this folder prints.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import os
import re
import shutil
import sys
import textwrap
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import Any

from tflm.application.errors import OptionError
from tflm.cli.plain_text import as_text, print_plain
from tflm.report import NAME, NUMBER, TEXT, Column, Report, Table, json_keys, printable, shortened, with_thousands

PIPE_WIDTH = 160
"""Width of tables that go to a file or another program, unless $COLUMNS is set."""

GAP = 2
"""Spaces between the columns of a table."""

NARROWEST_NAME = 9

SHAPE = re.compile(r"\[?[0-9?]+([ ,x]+[0-9?]+){1,5}\]?")
"""A shape as reports write it, of up to six dimensions, which is not wrapped."""

PATIENCE_SECONDS = 1.0
"""A progress bar appears after this time."""

BOLD, DIM, PLAIN = "\x1b[1m", "\x1b[2m", "\x1b[0m"
"""Escape sequences of terminals that change the style of what follows."""


def wrote(*paths: Path) -> None:
    """Print the names and sizes of the files that a command wrote."""
    for path in paths:
        size = f": {with_thousands(path.stat().st_size)}" if path.is_file() else ""
        print_plain(f"wrote {path}{size}")


def is_piped() -> bool:
    """Return whether standard output goes to a file or another program, and $COLUMNS is not set."""
    return not sys.stdout.isatty() and "COLUMNS" not in os.environ


def line_width() -> int:
    """Return the characters in a line of the terminal, or for a pipe those of a wide one."""
    return PIPE_WIDTH if is_piped() else shutil.get_terminal_size().columns


def styled(line: str, style: str) -> str:
    """Return a line in a style where output has styles: on a terminal or with $FORCE_COLOR, and without $NO_COLOR."""
    is_shown = (
        sys.stdout.isatty() and os.environ.get("TERM") != "dumb" and (os.name != "nt" or "WT_SESSION" in os.environ)
    )
    if not (line and style) or os.environ.get("NO_COLOR") or not (is_shown or os.environ.get("FORCE_COLOR")):
        return line
    return f"{style}{line}{PLAIN}"


@contextmanager
def progress(what: str, total: int) -> Iterator[Callable[[], None]]:
    """Show a progress bar on standard error while the block runs: after one second, and only on a terminal.

    Args:
        what: what is being done.
        total: how many times the block will call the function that it receives.
    """
    steps = itertools.count(1)
    with progress_of(what) as report:
        yield lambda: report(next(steps), total)


@contextmanager
def progress_of(what: str) -> Iterator[Callable[[int, int | None], None]]:
    """Show a progress bar as `progress` does; the block's function takes the work done and, if known, the total."""
    if not sys.stderr.isatty():
        yield lambda done, total: None
        return
    from rich.console import Console  # takes a while to load
    from rich.progress import Progress

    bar = Progress(console=Console(stderr=True), transient=True)
    task = bar.add_task(what, total=None)
    timer = threading.Timer(PATIENCE_SECONDS, bar.start)
    timer.daemon = True
    timer.start()
    try:
        yield lambda done, total: bar.update(task, completed=done, total=total)
    finally:
        timer.cancel()
        timer.join()
        bar.stop()


@contextmanager
def status_line(what: str) -> Iterator[Callable[[str], None]]:
    """Show a status line on standard error while the block runs, only on a terminal.

    The block receives a function that replaces the text.
    """
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console  # takes a while to load
    from rich.text import Text

    with Console(stderr=True).status(what) as status:
        yield lambda text: status.update(Text(printable(text)))


def print_json(figures: Any) -> None:
    """Print figures as JSON, with the strings "NaN", "Infinity" and "-Infinity" for numbers that JSON lacks."""
    text = json.dumps(plain(figures), indent=2, allow_nan=False)
    print(text.replace("##[", "\\u0023#["))  # a command to GitHub's runner, wherever it stands


def plain(figures: Any) -> Any:
    """Convert figures to JSON types: records to objects, members of enums to values, arrays to lists."""
    if dataclasses.is_dataclass(figures) or hasattr(figures, "_fields"):
        return {key: plain(getattr(figures, key)) for key in json_keys(figures)}
    if isinstance(figures, Enum):
        return figures.value
    if isinstance(figures, dict):
        return {key: plain(value) for key, value in figures.items()}
    if isinstance(figures, (list, tuple)):
        return [plain(value) for value in figures]
    if isinstance(figures, complex):
        return plain([figures.real, figures.imag])
    if hasattr(figures, "tolist"):
        return plain(figures.tolist())
    if isinstance(figures, float) and not math.isfinite(figures):
        return "NaN" if math.isnan(figures) else "Infinity" if figures > 0 else "-Infinity"
    return str(figures) if isinstance(figures, Path) else figures


def answer(
    as_json: bool, figures: Any, *reports: Report, files: Iterable[Path | None] = (), is_short: bool = False
) -> None:
    """Print figures as JSON, or reports with a blank line between them and the files that were written.

    Args:
        files: None for a file that was not requested.
        is_short: print only the verdicts of the reports; see `short`.
    """
    if is_short:
        short(as_json, *(report.verdict for report in reports))
        return
    if as_json:
        print_json(figures)
        return
    for i, report in enumerate(reports):
        if i:
            print_line()
        show(report)
    wrote(*(path for path in files if path is not None))


def short(as_json: bool, *verdicts: str) -> None:
    """Print verdicts alone, one a line.

    Raises:
        OptionError: there are none, or the options ask for JSON.
    """
    if as_json or not all(verdicts):
        raise OptionError("--short needs a board, --ram or --budget, and no --json")
    for verdict in verdicts:
        print_plain(verdict)


def show(report: Report) -> None:
    """Print a report: its title, facts, tables and notes."""
    if report.verdict:  # never wrapped, because scripts read it
        print(styled(as_text(report.verdict), BOLD))
    if report.title:
        print_line(report.title, BOLD)
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
    if table.title:
        print(styled(as_text(table.title), BOLD))
    headings, rows = _lines(table, line_width())
    for line in headings:
        print(styled(as_text(line), DIM))
    for line in rows:
        print_plain(line)


def table_lines(table: Table, width: int) -> list[str]:
    """Return the lines of a table, at most `width` wide unless its numbers need more, without trailing spaces."""
    headings, rows = _lines(table, width)
    return headings + rows


def _lines(table: Table, width: int) -> tuple[list[str], list[str]]:
    """Return the lines of the headings, which end together, and those of the rows."""
    widths, kinds = _widths(table, width), table.columns.values()

    def line(parts: Iterable[str]) -> str:
        return (" " * GAP).join(map(_aligned, parts, kinds, widths)).rstrip()

    headings = [_wrapped(heading, room)[::-1] for heading, room in zip(table.columns, widths)]
    found: list[str] = []
    for row in table.rows:
        cells = [shortened(cell, room) if kind is NAME else cell for cell, kind, room in zip(row, kinds, widths)]
        found += map(line, itertools.zip_longest(*map(_wrapped, cells, widths), fillvalue=""))
    return [line(parts) for parts in itertools.zip_longest(*headings, fillvalue="")][::-1], found


def _aligned(text: str, kind: Column, width: int) -> str:
    blanks = " " * (width - text_width(text))
    return blanks + text if kind is NUMBER else text + blanks


def _wrapped(text: str, width: int) -> list[str]:
    """Break a text at blanks into lines of at most `width`, unless a word is longer."""
    first, *words = text.split(" ")
    lines = [first]
    for word in words:
        if text_width(f"{lines[-1]} {word}") > width:
            lines.append(word)
        else:
            lines[-1] += f" {word}"
    return lines


def text_width(text: str) -> int:
    """Return the places that a text takes in a line: two for a wide character, none for a combining one."""
    if text.isascii():
        return len(text)
    from unicodedata import combining, east_asian_width  # takes a while to load

    return sum(2 if east_asian_width(c) in "WF" else not combining(c) for c in text)


def _widths(table: Table, available: int) -> list[int]:
    """Return the column widths: the widest columns shrink, down to their longest unbreakable text, until all fit."""
    columns = [
        (heading, kind, [row[i] for row in table.rows]) for i, (heading, kind) in enumerate(table.columns.items())
    ]
    widths = [max(map(text_width, (heading, *cells))) for heading, _, cells in columns]
    minimums = [_minimum_width(heading, kind, cells) for heading, kind, cells in columns]
    for _ in range(sum(widths) + GAP * (len(widths) - 1) - available):
        reducible = [i for i, width in enumerate(widths) if width > minimums[i]]
        if not reducible:
            break
        widths[max(reducible, key=lambda i: widths[i])] -= 1
    return widths


def _minimum_width(heading: str, kind: Column, cells: list[str]) -> int:
    words = cells
    if kind is NAME:
        words = [NARROWEST_NAME * " "]
    elif kind is TEXT:
        words = [word for cell in cells for word in ([cell] if SHAPE.fullmatch(cell) else cell.split())]
    return max(map(text_width, [*heading.split(), *words]), default=0)


def print_line(text: str = "", style: str = "", indent: int = 0) -> None:
    """Print a line, wrapped at spaces; continuation lines are indented."""
    wrapper = textwrap.TextWrapper(line_width(), subsequent_indent=" " * indent, break_long_words=False)
    for line in wrapper.wrap(printable(" ".join(text.splitlines()))) or [""]:
        print(styled(as_text(line), style))
