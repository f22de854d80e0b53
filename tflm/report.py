"""Reports that commands print and notebooks show, made of facts and tables; formatting of sizes."""

from __future__ import annotations

import dataclasses
import html
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from operator import attrgetter
from typing import Annotated, Any, NamedTuple

ELLIPSIS = "\N{HORIZONTAL ELLIPSIS}"
AnyFloat = Annotated[float, "NaN and infinities, too"]
"""A number that `--json` prints as a string where JSON lacks it."""

UNITS = {"MiB": 1 << 20, "KiB": 1 << 10}


class Column(Enum):
    """The kind of a column, which determines its alignment and how it can be narrowed."""

    NUMBER = "number"
    """Aligned to the right, never broken or shortened."""
    TEXT = "text"
    """Never shortened; broken at blanks."""
    NAME = "name"
    """Shortened in the middle: names differ at their ends."""


NUMBER, TEXT, NAME = Column


def with_thousands(size: int) -> str:
    """Format bytes: 73,728 B (72.0 KiB)."""
    return f"{size:,} B" if size < UNITS["KiB"] else f"{size:,} B ({short_size(size)})"


def short_size(size: int) -> str:
    """Format bytes in the largest unit that they fill: 72.0 KiB."""
    for unit, factor in UNITS.items():
        if size >= factor:
            return f"{size / factor:.1f} {unit}"
    return f"{size:,} B"


def printable(text: str) -> str:
    r"""Escape all characters that are not printable, as in `repr`: ESC becomes \x1b.

    Names come from untrusted files. Control characters can move a terminal's cursor or worse, and characters that
    change the direction of writing can disguise text.
    """
    return text if text.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def shortened(name: str, width: int) -> str:
    """Shorten a name to a number of characters, with an ellipsis in its middle."""
    if len(name) <= width:
        return name
    kept = width - len(ELLIPSIS)
    return name[: kept // 2] + ELLIPSIS + name[len(name) - (kept - kept // 2) :]


class json_property(property):  # noqa: N801  # used as a decorator
    """A property of a record that is also a key of it in `--json`; its docstring describes the key."""


def json_keys(record: Any) -> list[str]:
    """Return the keys of a dataclass or named tuple in `--json`: its fields, and properties marked as such."""
    kind = record if isinstance(record, type) else type(record)
    fields = kind._fields if hasattr(kind, "_fields") else [each.name for each in dataclasses.fields(kind)]
    return [*fields, *(name for name, member in vars(kind).items() if isinstance(member, json_property))]


class Figure(NamedTuple):
    """A figure of each record of a list, which is a column of its table.

    Attributes:
        label: the heading.
        column: the kind of the column.
        value: the attribute of a record, which is also its key in `--json`, one of an attribute (board.name), or a
            function of a record; nothing is shown for None.
        form: how a value is formatted, such as ".1%".
        kind: the class of the records that have the figure; None for all.
    """

    label: str
    column: Column
    value: str | Callable[[Any], Any]
    form: str = ""
    kind: type | None = None

    def cell(self, record: Any) -> Any:
        """The cell of a record."""
        if self.kind is not None and not isinstance(record, self.kind):
            return ""
        value = self.value(record) if callable(self.value) else attrgetter(self.value)(record)
        return "" if value is None else format(value, self.form) if self.form else value


class Table:
    """A table of text.

    Args:
        title: above it; may be empty.
        columns: the kind of each column, by its heading.
        rows: their cells; whole numbers get separators of thousands.
    """

    def __init__(self, title: str, columns: Mapping[str, Column], rows: Iterable[Iterable[Any]]):
        self.title = printable(title)
        self.columns = {printable(heading): column for heading, column in columns.items()}
        self.rows = [[_cell(cell) for cell in row] for row in rows]

    @classmethod
    def of(cls, title: str, records: Iterable[Any], *figures: Figure | None) -> Table:
        """A table with a row for each record and a column for each figure; None means no column."""
        shown = [figure for figure in figures if figure is not None]
        columns = {figure.label: figure.column for figure in shown}
        return cls(title, columns, ([figure.cell(record) for figure in shown] for record in records))

    @classmethod
    def of_pairs(cls, title: str, pairs: Iterable[tuple[Any, Any]], *figures: Sequence[Figure]) -> Table:
        """A table with a row for each pair of records; the figures of the first ones are to the left."""
        columns = {figure.label: figure.column for each in figures for figure in each}
        rows = ([figure.cell(one) for one, each in zip(pair, figures) for figure in each] for pair in pairs)
        return cls(title, columns, rows)

    @classmethod
    def of_changes(cls, rows: Iterable[tuple[str, Any, Any]]) -> Table:
        """A table of figures before and after a change: label, and both values."""
        return cls("", {"": TEXT, "before": NUMBER, "after": NUMBER}, rows)

    def html(self) -> str:
        """The table as HTML, nothing shortened."""
        sides = ["right" if column is Column.NUMBER else "left" for column in self.columns.values()]
        head = "".join(f'<th style="text-align:{side}">{html.escape(h)}</th>' for h, side in zip(self.columns, sides))
        body = "".join(
            "<tr>"
            + "".join(f'<td style="text-align:{side}">{html.escape(cell)}</td>' for cell, side in zip(row, sides))
            + "</tr>"
            for row in self.rows
        )
        caption = f'<caption style="text-align:left"><b>{html.escape(self.title)}</b></caption>' if self.title else ""
        return f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"

    def markdown(self) -> str:
        """The table as GitHub's Markdown, nothing shortened."""
        sides = ["---:" if column is Column.NUMBER else "---" for column in self.columns.values()]
        lines = [list(self.columns), sides, *self.rows]
        return "\n".join(f"| {' | '.join(map(_markdown, line))} |" for line in lines) + "\n"


def _cell(cell: Any) -> str:
    text = f"{cell:,}" if isinstance(cell, int) and not isinstance(cell, bool) else str(cell)
    return printable(" ".join(text.split()))  # a name from a file may have line breaks


def _html(text: str) -> str:
    return html.escape(printable(text))


def _markdown(text: str) -> str:
    """Escape text for one line of Markdown, and for the HTML inside it."""
    line = html.escape(printable(" ".join(text.split())), quote=False)
    return re.sub(r"([\\`*_\[\]|~$]|:(?=//)|(?<=www)\.)", r"\\\1", line)


def _markdown_paragraph(text: str) -> str:
    """Escape text for a paragraph of Markdown, which could begin like a heading or a list."""
    return re.sub(r"^([0-9]*)([#+.)=-])", r"\1\\\2", _markdown(text))


@dataclass(frozen=True)
class Report:
    """Facts, tables and notes about one thing.

    Attributes:
        title: the subject.
        facts: labels with values, in order; a label that starts with a space belongs to the previous one.
        tables: tables, shown after the facts.
        notes: sentences, shown at the end.
        verdict: the answer to what was asked, shown before everything else; empty if nothing was.
    """

    title: str
    facts: list[tuple[str, str]] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    verdict: str = ""

    def html(self) -> str:
        """The report as HTML, for a notebook."""
        facts = "".join(
            f'<tr><td style="text-align:left">{"&emsp;" * label.startswith(" ")}{_html(label.strip())}</td>'
            f'<td style="text-align:left">{_html(value)}</td></tr>'
            for label, value in self.facts
        )
        parts = [f"<p><b>{_html(self.verdict)}</b></p>"] if self.verdict else []
        parts += [f"<b>{_html(self.title)}</b>", f"<table><tbody>{facts}</tbody></table>" if facts else ""]
        parts += [table.html() for table in self.tables]
        parts += [f"<p>{_html(note)}</p>" for note in self.notes]
        return f"<div>{''.join(parts)}</div>"

    def markdown(self) -> str:
        """The report as a section of GitHub's Markdown."""
        facts = "\n".join(f"- {_markdown(label.strip())}: {_markdown(value)}" for label, value in self.facts)
        tables = [table.markdown() for table in self.tables]
        parts = [f"### {_markdown(self.title)}", _markdown(self.verdict), facts, *tables]
        parts += map(_markdown_paragraph, self.notes)
        return "\n\n".join(part.rstrip() for part in parts if part) + "\n"
