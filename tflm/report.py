"""What commands print and notebooks show: facts and tables, as text of a width or as HTML; and sizes for people."""

from __future__ import annotations

import html
import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

GAP = "  "
ELLIPSIS = "\N{HORIZONTAL ELLIPSIS}"
NARROWEST_NAME = 9
UNITS = {"MiB": 1 << 20, "KiB": 1 << 10}


class Column(Enum):
    """What a column holds, which says how it may be made narrower and on which side it is aligned."""

    NUMBER = "number"
    """Aligned to the right, never broken or shortened."""
    TEXT = "text"
    """Never shortened; broken at blanks."""
    NAME = "name"
    """Shortened in the middle: names differ at their ends."""


def with_thousands(size: int) -> str:
    """Bytes as people read them: 73,728 B (72.0 KiB)."""
    return f"{size:,} B" if size < UNITS["KiB"] else f"{size:,} B ({short_size(size)})"


def short_size(size: int) -> str:
    """Bytes in the largest unit that they fill: 72.0 KiB."""
    for unit, factor in UNITS.items():
        if size >= factor:
            return f"{size / factor:.1f} {unit}"
    return f"{size:,} B"


def printable(text: str) -> str:
    r"""Text in which every character that is not shown as itself is escaped, as in `repr`: ESC is \x1b.

    Names come from files of others. In a terminal, control characters move the cursor or worse, and those that change
    the direction of writing make a text look like another.
    """
    return text if text.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def shortened(name: str, width: int) -> str:
    """A name in so many characters: an ellipsis takes the place of its middle."""
    if len(name) <= width:
        return name
    kept = width - len(ELLIPSIS)
    return name[: kept // 2] + ELLIPSIS + name[len(name) - (kept - kept // 2) :]


class Table:
    """A table of text.

    Args:
        title: above it; may be empty.
        columns: what each holds, by its heading.
        rows: their cells; whole numbers get separators of thousands.
    """

    def __init__(self, title: str, columns: Mapping[str, Column], rows: Iterable[Iterable[Any]]):
        self.title = printable(title)
        self.columns = {printable(heading): column for heading, column in columns.items()}
        self.rows = [[_cell(cell) for cell in row] for row in rows]

    def lines(self, width: int) -> Iterator[str]:
        """The headings, then the rows, none of them wider than `width` unless numbers alone are; no blanks at ends."""
        widths = self._widths(width)
        yield from self._row(list(self.columns), [Column.TEXT] * len(self.columns), widths)
        for row in self.rows:
            yield from self._row(row, list(self.columns.values()), widths)

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
        return "\n".join(f"| {' | '.join(map(_markdown_cell, line))} |" for line in lines) + "\n"

    def _widths(self, width: int) -> list[int]:
        cells = [[row[i] for row in self.rows] for i in range(len(self.columns))]
        widths = [max(map(len, (heading, *column))) for heading, column in zip(self.columns, cells)]
        narrowest = [_narrowest(heading, kind, c) for (heading, kind), c in zip(self.columns.items(), cells)]
        excess = sum(widths) + len(GAP) * (len(widths) - 1) - width
        while excess > 0:
            room = [a - b for a, b in zip(widths, narrowest)]
            if max(room) <= 0:
                break
            widest = max((i for i in range(len(widths)) if room[i] > 0), key=lambda i: widths[i])
            widths[widest] -= 1
            excess -= 1
        return widths

    def _row(self, cells: Sequence[str], kinds: Sequence[Column], widths: Sequence[int]) -> Iterator[str]:
        folded = [_folded(cell, kind, width) for cell, kind, width in zip(cells, kinds, widths)]
        for i in range(max(map(len, folded))):
            parts = (lines[i] if i < len(lines) else "" for lines in folded)
            sides = zip(parts, self.columns.values(), widths)
            yield GAP.join(p.rjust(w) if kind is Column.NUMBER else p.ljust(w) for p, kind, w in sides).rstrip()


def _cell(cell: Any) -> str:
    text = f"{cell:,}" if isinstance(cell, int) and not isinstance(cell, bool) else str(cell)
    return printable(" ".join(text.split()))  # a name from a file may have line breaks


def _html(text: str) -> str:
    return html.escape(printable(text))


def _markdown_cell(text: str) -> str:
    """Text that Markdown and the HTML inside it leave as it is."""
    return re.sub(r"([\\`*_\[\]|~])", r"\\\1", html.escape(text, quote=False))


def _narrowest(heading: str, kind: Column, cells: Sequence[str]) -> int:
    words = [*heading.split(), *(word for cell in cells for word in cell.split())]
    if kind is Column.NAME:
        return max(map(len, [*heading.split(), NARROWEST_NAME * " "]))
    return max(map(len, [*heading.split(), *cells] if kind is Column.NUMBER else words), default=0)


def _folded(cell: str, kind: Column, width: int) -> list[str]:
    if kind is Column.NAME:
        return [shortened(cell, width)]
    return textwrap.wrap(cell, max(width, 1), break_long_words=False, break_on_hyphens=False) or [""]


@dataclass(frozen=True)
class Report:
    """What there is to say of a thing.

    Attributes:
        title: what it is of.
        facts: labels with their values, in order; a label that begins with a blank belongs to the one before it.
        tables: below them.
        notes: sentences at the end.
    """

    title: str
    facts: list[tuple[str, str]] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def html(self) -> str:
        """The report as HTML, for a notebook."""
        facts = "".join(
            f'<tr><td style="text-align:left">{"&emsp;" * label.startswith(" ")}{_html(label.strip())}</td>'
            f'<td style="text-align:left">{_html(value)}</td></tr>'
            for label, value in self.facts
        )
        parts = [f"<b>{_html(self.title)}</b>", f"<table><tbody>{facts}</tbody></table>" if facts else ""]
        parts += [table.html() for table in self.tables]
        parts += [f"<p>{_html(note)}</p>" for note in self.notes]
        return f"<div>{''.join(parts)}</div>"
