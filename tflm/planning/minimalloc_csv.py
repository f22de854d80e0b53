"""Planning problems and plans as MiniMalloc's CSV files, with one buffer per line.

    id,lower,upper,size,offset
    b1,0,3,4,8

The buffer is alive from step `lower` to the step before `upper`. The column `offset` is optional; -1 means that a
buffer has no offset. The columns may be in any order.
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
        PlanFileError: the text is not in this format; names the line and the reason.
    """
    rows = _rows(text)
    _, header = next(rows, (1, []))
    columns = [name.strip() for name in header]
    _check_header(columns)
    buffers: list[Buffer] = []
    seen: dict[str, int] = {}
    for line, row in rows:
        if len(row) != len(columns):
            raise PlanFileError(f"expected {len(columns)} values, found {len(row)}", line=line)
        buffer = _parse(dict(zip(columns, row)), line)
        if buffer.name in seen:
            raise PlanFileError(f"duplicate id {buffer.name!r}, first used on line {seen[buffer.name]}", line=line)
        seen[buffer.name] = line
        buffers.append(buffer)
    return buffers


def write_csv(buffers: Sequence[Buffer]) -> str:
    """Format buffers as a file, by their names; without a column `offset` if no buffer has one."""
    placed = any(buffer.is_placed for buffer in buffers)
    lines = [[*REQUIRED, *OPTIONAL] if placed else [*REQUIRED]]
    for buffer in buffers:
        numbers = [buffer.first_use, buffer.last_use + 1, buffer.size, *([buffer.offset] if placed else [])]
        lines.append([_quoted(buffer.name), *map(str, numbers)])
    return "".join(",".join(line) + "\n" for line in lines)


def _quoted(name: str) -> str:
    """A name, quoted if necessary; Python's CSV writer does not quote a carriage return."""
    return '"' + name.replace('"', '""') + '"' if any(c in ',"\r\n' for c in name) else name


def _rows(text: str) -> Iterator[tuple[int, list[str]]]:
    """The non-empty rows, each with the number of its last line."""
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        for row in reader:
            if row:
                yield reader.line_num, row
    except csv.Error as error:
        raise PlanFileError(f"invalid CSV: {error}", line=reader.line_num) from None


def _check_header(columns: Sequence[str]) -> None:
    wanted = f"the columns are {', '.join(REQUIRED)} and, if there is a plan, {', '.join(OPTIONAL)}"
    missing = [name for name in REQUIRED if name not in columns]
    if missing:
        raise PlanFileError(f"column {missing[0]!r} is missing; {wanted}", line=1)
    for name in columns:
        if name not in REQUIRED + OPTIONAL:
            raise PlanFileError(f"unknown column {name!r}; {wanted}", line=1)
        if columns.count(name) > 1:
            raise PlanFileError(f"duplicate column {name!r}", line=1)


def _parse(row: dict[str, str], line: int) -> Buffer:
    def integer(column: str) -> int:
        try:
            value = int(row[column])
        except ValueError:
            raise PlanFileError(f"{column} is {row[column]!r}, must be a whole number", line=line) from None
        if abs(value) > LARGEST_NUMBER:
            raise PlanFileError(f"{column} is {value}, must be at most {LARGEST_NUMBER}", line=line)
        return value

    lower, upper, size = integer("lower"), integer("upper"), integer("size")
    offset = integer("offset") if "offset" in row else ONLINE_PLANNED_BUFFER
    if upper <= lower:
        raise PlanFileError(f"upper is {upper}, must be greater than lower, {lower}", line=line)
    if size < 0:
        raise PlanFileError(f"size is {size}, must be 0 or more", line=line)
    if offset < ONLINE_PLANNED_BUFFER:
        raise PlanFileError(f"offset is {offset}, must be 0 or more, or -1 for none", line=line)
    return Buffer(size, lower, upper - 1, offset, row["id"])
