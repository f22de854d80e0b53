"""Buffers to plan, and plans, as the CSV files of MiniMalloc: one buffer a line.

    id,lower,upper,size,offset
    b1,0,3,4,8

The buffer is alive from step `lower` to the step before `upper`. The column `offset` may be missing, and holds -1 where
a buffer has no place. The columns may be in any order.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence

from tflm.errors import PlanFileError
from tflm.memory.buffer import ONLINE_PLANNED_BUFFER, Buffer

REQUIRED = ("id", "lower", "upper", "size")
OPTIONAL = ("offset",)
LARGEST_NUMBER = 1 << 48


def read_csv(text: str) -> list[Buffer]:
    """The buffers that a file describes; the id of each is its name.

    Raises:
        PlanFileError: the text is not such a file; says the line and the reason.
    """
    rows = _rows(text)
    _, header = next(rows, (1, []))
    columns = [name.strip() for name in header]
    _check_header(columns)
    buffers: list[Buffer] = []
    seen: dict[str, int] = {}
    for line, row in rows:
        if len(row) != len(columns):
            raise PlanFileError(f"there are {len(row)} values for {len(columns)} columns", line=line)
        buffer = _parse(dict(zip(columns, row)), line)
        if buffer.name in seen:
            raise PlanFileError(f"id {buffer.name!r} is that of the buffer on line {seen[buffer.name]}, too", line=line)
        seen[buffer.name] = line
        buffers.append(buffer)
    return buffers


def write_csv(buffers: Sequence[Buffer]) -> str:
    """The file that describes buffers, by their names. Where none has an offset, it has no such column."""
    placed = any(buffer.is_placed for buffer in buffers)
    lines = [[*REQUIRED, *OPTIONAL] if placed else [*REQUIRED]]
    for buffer in buffers:
        numbers = [buffer.first_use, buffer.last_use + 1, buffer.size, *([buffer.offset] if placed else [])]
        lines.append([_quoted(buffer.name), *map(str, numbers)])
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


def _parse(row: dict[str, str], line: int) -> Buffer:
    def integer(column: str) -> int:
        try:
            value = int(row[column])
        except ValueError:
            raise PlanFileError(f"{column} is {row[column]!r}; it is to be a whole number", line=line) from None
        if abs(value) > LARGEST_NUMBER:
            raise PlanFileError(f"{column} is {value}; it is to be {LARGEST_NUMBER} at most", line=line)
        return value

    lower, upper, size = integer("lower"), integer("upper"), integer("size")
    offset = integer("offset") if "offset" in row else ONLINE_PLANNED_BUFFER
    if upper <= lower:
        raise PlanFileError(f"upper is {upper} and lower {lower}; upper is to be larger", line=line)
    if size < 0:
        raise PlanFileError(f"size is {size}; it is to be 0 or more", line=line)
    if offset < ONLINE_PLANNED_BUFFER:
        raise PlanFileError(f"offset is {offset}; it is to be 0 or more, or -1 for none", line=line)
    return Buffer(size, lower, upper - 1, offset, row["id"])
