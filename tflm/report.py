"""Reports that commands print and notebooks show, made of facts and tables; formatting of sizes."""

from __future__ import annotations

import dataclasses
import html
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
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


def in_one_line(text: str) -> str:
    """Escape text for a C++ line comment.

    A line break would end the comment; a backslash or its trigraph at the end would continue it on the next line.
    """
    return "".join(c if c.isprintable() and c not in "\\?" else "_" for c in text)


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
    """A figure of a record: a column in a table of records, a key of a JSON document, or both.

    Attributes:
        label: the heading; None for a key alone.
        column: the kind of the column.
        value: an attribute of a record, one of an attribute (board.name; None if that is None), or a function of a
            record; a table shows nothing for None.
        form: how a table formats a value, such as ".1%".
        kind: the class of the records that have the figure, or an attribute that is not None in them; None for all.
        key: its name in the JSON document; empty for a column alone.
        hint: the type of its value there: figures for a record that they describe, a list of them for several. An
            empty text is null if the type allows null.
        meaning: its description there.
    """

    label: str | None
    column: Column
    value: str | Callable[[Any], Any]
    form: str = ""
    kind: type | str | None = None
    key: str = ""
    hint: Any = None
    meaning: str = ""

    def applies_to(self, record: Any) -> bool:
        """Whether a record has the figure."""
        if isinstance(self.kind, str):
            return getattr(record, self.kind) is not None
        return self.kind is None or isinstance(record, self.kind)

    def value_of(self, record: Any) -> Any:
        """The value of a record."""
        if callable(self.value):
            return self.value(record)
        for name in self.value.split("."):
            record = None if record is None else getattr(record, name)
        return record

    def cell(self, record: Any) -> Any:
        """The cell of a record."""
        value = self.value_of(record) if self.applies_to(record) else None
        return "" if value is None else format(value, self.form) if self.form else value

    def as_key(self, hint: Any, meaning: str, key: str = "") -> Figure:
        """The figure as a key of JSON documents, too, which is named like its attribute by default."""
        return self._replace(key=key or str(self.value), hint=hint, meaning=meaning)


def json_key(key: str, hint: Any, meaning: str, value: str | Callable[[Any], Any] = "") -> Figure:
    """A figure that is only a key of JSON documents; without `value`, the attribute of that name."""
    return Figure(None, TEXT, value or key, key=key, hint=hint, meaning=meaning)


def machine_keys(prefix: str = "") -> tuple[Figure, ...]:
    """The keys of a record that has a target and kernels, or leads to one by a prefix such as "after."."""
    return (
        json_key("target", str, "the machine", f"{prefix}target.name"),
        json_key("kernels", str, "the kernel library", f"{prefix}kernels.name"),
        json_key("release", str, "the TFLM that it is built into", f"{prefix}kernels.release.name"),
    )


def document_of(record: Any, figures: Iterable[Figure]) -> dict[str, Any]:
    """Return the JSON document of a record, made of those of its figures that are keys."""
    return {
        each.key: _document(each.value_of(record), each.hint)
        for each in figures
        if each.key and each.applies_to(record)
    }


def _document(value: Any, form: Any) -> Any:
    if form == str | None and not value:
        return None
    if isinstance(form, list):
        return [_document(each, form[0]) for each in value]
    return document_of(value, form) if isinstance(form, tuple) else value


def sizes_of(record: Any, figures: Iterable[Figure]) -> list[tuple[str, str]]:
    """Return the figures of a record that have a label as facts of a report; all are bytes."""
    return [(each.label, with_thousands(each.value_of(record))) for each in figures if each.label is not None]


class Change(NamedTuple):
    """A figure before and after a change: a row of a table, and two keys of a JSON document.

    Attributes:
        label: the first cell of the row.
        key: the name in the document; with the suffix _before for the value before.
        meaning: its description.
        before, after: the values, as in a figure.
    """

    label: str
    key: str
    meaning: str
    before: str | Callable[[Any], Any]
    after: str | Callable[[Any], Any]

    @property
    def keys(self) -> tuple[Figure, Figure]:
        """Both values as keys."""
        before = json_key(f"{self.key}_before", int, f"{self.meaning} before", self.before)
        return before, json_key(self.key, int, f"{self.meaning} now", self.after)

    def row(self, record: Any) -> tuple[str, Any, Any]:
        """The row of a record, for `Table.of_changes`."""
        before, after = self.keys
        return self.label, before.value_of(record), after.value_of(record)


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
        return cls.of_pairs(title, ((record,) for record in records), [each for each in figures if each is not None])

    @classmethod
    def of_pairs(cls, title: str, pairs: Iterable[tuple[Any, ...]], *figures: Sequence[Figure]) -> Table:
        """A table with a row for each pair of records; the figures of the first ones are to the left."""
        shown = [(i, each.label, each) for i, of_one in enumerate(figures) for each in of_one if each.label is not None]
        columns = {label: figure.column for _, label, figure in shown}
        return cls(title, columns, ([figure.cell(pair[i]) for i, _, figure in shown] for pair in pairs))

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
