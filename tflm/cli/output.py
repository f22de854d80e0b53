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
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import rich.table
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from tflm.application.errors import OptionError
from tflm.cli.plain_text import as_text, print_plain
from tflm.report import NAME, NUMBER, TEXT, Column, Report, Table, printable, shortened, with_thousands

PIPE_WIDTH = 160
"""Width of tables that go to a file or another program, unless $COLUMNS is set."""

GAP = 2
"""Spaces between the columns of a table."""

NARROWEST_NAME = 9

SHAPE = re.compile(r"\[?[0-9?]+([ ,x]+[0-9?]+){1,5}\]?")
"""A shape as reports write it, of up to six dimensions, which is not wrapped."""

PATIENCE_SECONDS = 1.0
"""A progress bar appears after this time."""


def wrote(*paths: Path) -> None:
    """Print the names and sizes of the files that a command wrote."""
    for path in paths:
        size = f": {with_thousands(path.stat().st_size)}" if path.is_file() else ""
        print_plain(f"wrote {path}{size}")


def is_piped() -> bool:
    """Return whether standard output goes to a file or another program, and $COLUMNS is not set."""
    return not sys.stdout.isatty() and "COLUMNS" not in os.environ


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Leave the error to the program; rich would exit with status 1."""
        raise BrokenPipeError


def console() -> Console:
    """Return a console as wide as the terminal; for a pipe, a wide one. $NO_COLOR turns all styles off."""
    settings: dict[str, Any] = {"color_system": None} if os.environ.get("NO_COLOR") else {}
    return _Console(width=PIPE_WIDTH if is_piped() else None, highlight=False, **settings)


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
    errors = Console(stderr=True)
    if not errors.is_interactive:
        yield lambda done, total: None
        return
    from rich.progress import Progress  # takes a while to load

    bar = Progress(console=errors, transient=True)
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
    errors = Console(stderr=True)
    if not errors.is_interactive:
        yield lambda _: None
        return
    with errors.status(what) as status:
        yield lambda text: status.update(Text(printable(text)))


def print_json(figures: Any) -> None:
    """Print figures as JSON, with the strings "NaN", "Infinity" and "-Infinity" for numbers that JSON lacks."""
    text = json.dumps(_plain(figures), indent=2, allow_nan=False)
    text = text.replace("\x7f", "\\u007f")  # the only control character that JSON does not escape
    print(text.replace("##[", "\\u0023#["))  # a command to GitHub's runner, wherever it stands


def _plain(figures: Any) -> Any:
    """Convert figures to JSON types: dataclasses and named tuples to objects, complex numbers and arrays to lists."""
    if dataclasses.is_dataclass(figures):
        return {each.name: _plain(getattr(figures, each.name)) for each in dataclasses.fields(figures)}
    if hasattr(figures, "_asdict"):
        return _plain(figures._asdict())
    if isinstance(figures, dict):
        return {key: _plain(value) for key, value in figures.items()}
    if isinstance(figures, (list, tuple)):
        return [_plain(value) for value in figures]
    if isinstance(figures, complex):
        return _plain([figures.real, figures.imag])
    if isinstance(figures, float) and not math.isfinite(figures):
        return "NaN" if math.isnan(figures) else "Infinity" if figures > 0 else "-Infinity"
    return str(figures) if isinstance(figures, Path) else figures


def answer(as_json: bool, figures: Any, *reports: Report) -> None:
    """Print figures as JSON, or reports with a blank line between them."""
    if as_json:
        print_json(figures)
        return
    for i, report in enumerate(reports):
        if i:
            print_line()
        show(report)


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
        console().print(Text(as_text(report.verdict), "bold"), soft_wrap=True)
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
        out.print(Text(as_text(table.title), "bold"), soft_wrap=True)
    for line in table_lines(table, out.width):
        print_plain(line)


def table_lines(table: Table, width: int) -> list[str]:
    """Return the lines of a table, at most `width` wide unless its numbers need more, without trailing spaces."""
    grid = rich.table.Table(box=None, padding=(0, GAP, 0, 0), pad_edge=False, header_style="dim")
    widths = _widths(table, width)
    for (heading, kind), room in zip(table.columns.items(), widths):
        grid.add_column(Text(heading), width=room, justify="right" if kind is NUMBER else "left")
    for row in table.rows:
        cells = zip(row, table.columns.values(), widths)
        grid.add_row(*(Text(shortened(cell, room) if kind is NAME else cell) for cell, kind, room in cells))
    out = Console(width=max(width, sum(widths) + GAP * len(widths)))
    with out.capture() as captured:
        out.print(grid)
    return [line.rstrip() for line in captured.get().splitlines()]


def _widths(table: Table, available: int) -> list[int]:
    """Return the column widths: the widest columns shrink, down to their longest unbreakable text, until all fit."""
    columns = [
        (heading, kind, [row[i] for row in table.rows]) for i, (heading, kind) in enumerate(table.columns.items())
    ]
    widths = [max(map(cell_len, (heading, *cells))) for heading, _, cells in columns]
    minimums = [_least_width(heading, kind, cells) for heading, kind, cells in columns]
    for _ in range(sum(widths) + GAP * (len(widths) - 1) - available):
        reducible = [i for i, width in enumerate(widths) if width > minimums[i]]
        if not reducible:
            break
        widths[max(reducible, key=lambda i: widths[i])] -= 1
    return widths


def _least_width(heading: str, kind: Column, cells: list[str]) -> int:
    words = cells
    if kind is NAME:
        words = [NARROWEST_NAME * " "]
    elif kind is TEXT:
        words = [word for cell in cells for word in ([cell] if SHAPE.fullmatch(cell) else cell.split())]
    return max(map(cell_len, [*heading.split(), *words]), default=0)


def print_line(text: str = "", style: str = "", indent: int = 0) -> None:
    """Print a line, wrapped at spaces; continuation lines are indented."""
    out = console()
    wrapper = textwrap.TextWrapper(out.width, subsequent_indent=" " * indent, break_long_words=False)
    lines = wrapper.wrap(printable(" ".join(text.splitlines())))
    for line in lines or [""]:
        out.print(Text(as_text(line), style), soft_wrap=True)
