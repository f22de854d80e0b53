"""Buffers to plan, and plans, as the CSV files of MiniMalloc: one buffer a line.

    id,lower,upper,size,offset
    b1,0,3,4,8

The buffer is alive from step `lower` to the step before `upper`. The column `offset` may be missing, and holds -1 where
a buffer has no place. The columns may be in any order.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from tflm.errors import PlanFileError
from tflm.memory.planner import ONLINE_PLANNED_BUFFER, BufferRequirements

REQUIRED = ("id", "lower", "upper", "size")
OPTIONAL = ("offset",)
LARGEST_NUMBER = 1 << 48


class NamedBuffer(NamedTuple):
    """A line of a file. The offset of the buffer is its `offline_offset`."""

    id: str
    buffer: BufferRequirements


def read_csv(text: str) -> list[NamedBuffer]:
    """The buffers that a file describes.

    Raises:
        PlanFileError: the text is not such a file; says the line and the reason.
    """
    rows = _rows(text)
    _, header = next(rows, (1, []))
    columns = [name.strip() for name in header]
    _check_header(columns)
    buffers: list[NamedBuffer] = []
    seen: dict[str, int] = {}
    for line, row in rows:
        if len(row) != len(columns):
            raise PlanFileError(f"there are {len(row)} values for {len(columns)} columns", line=line)
        named = _parse(dict(zip(columns, row)), line)
        if named.id in seen:
            raise PlanFileError(f"id {named.id!r} is that of the buffer on line {seen[named.id]}, too", line=line)
        seen[named.id] = line
        buffers.append(named)
    return buffers


def write_csv(buffers: Iterable[NamedBuffer], offsets: Sequence[int] | None = None) -> str:
    """The file that describes buffers.

    Args:
        buffers: what to write.
        offsets: where each is, instead of its offline offset. Without any offset at all, the file has no such column.
    """
    named = list(buffers)
    if offsets is None:
        offsets = [entry.buffer.offline_offset for entry in named]
    placed = any(offset != ONLINE_PLANNED_BUFFER for offset in offsets)
    lines = [[*REQUIRED, *OPTIONAL] if placed else [*REQUIRED]]
    for (name, buffer), offset in zip(named, offsets):
        numbers = [buffer.first_time_used, buffer.last_time_used + 1, buffer.size, *([offset] if placed else [])]
        lines.append([_quoted(name), *map(str, numbers)])
    return "".join(",".join(line) + "\n" for line in lines)


def _quoted(name: str) -> str:
    """A name as it stands, in quotes where it must be; Python's writer leaves out a carriage return's."""
    return '"' + name.replace('"', '""') + '"' if any(c in ',"\r\n' for c in name) else name


def _rows(text: str) -> Iterator[tuple[int, list[str]]]:
    """The rows that are not empty, each with the number of the line that it ends on."""
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        for row in reader:
            if row:
                yield reader.line_num, row
    except csv.Error as error:
        raise PlanFileError(f"this is no CSV: {error}", line=reader.line_num) from None


def _check_header(columns: Sequence[str]) -> None:
    wanted = f"the columns are {', '.join(REQUIRED)} and, if there is a plan, {', '.join(OPTIONAL)}"
    missing = [name for name in REQUIRED if name not in columns]
    if missing:
        raise PlanFileError(f"column {missing[0]!r} is missing; {wanted}", line=1)
    for name in columns:
        if name not in REQUIRED + OPTIONAL:
            raise PlanFileError(f"column {name!r} is not known; {wanted}", line=1)
        if columns.count(name) > 1:
            raise PlanFileError(f"column {name!r} is there twice", line=1)


def _parse(row: dict[str, str], line: int) -> NamedBuffer:
    def integer(column: str) -> int:
        try:
            value = int(row[column])
        except ValueError:
            raise PlanFileError(f"{column} is {row[column]!r}; it is to be a whole number", line=line) from None
        if abs(value) > LARGEST_NUMBER:
            raise PlanFileError(f"{column} is {value}; it is to be {LARGEST_NUMBER} at the most", line=line)
        return value

    lower, upper, size = integer("lower"), integer("upper"), integer("size")
    offset = integer("offset") if "offset" in row else ONLINE_PLANNED_BUFFER
    if upper <= lower:
        raise PlanFileError(f"upper is {upper} and lower {lower}; upper is to be larger", line=line)
    if size < 0:
        raise PlanFileError(f"size is {size}; it is to be 0 or more", line=line)
    if offset < ONLINE_PLANNED_BUFFER:
        raise PlanFileError(f"offset is {offset}; it is to be 0 or more, or -1 for none", line=line)
    return NamedBuffer(row["id"], BufferRequirements(size, lower, upper - 1, offset))
