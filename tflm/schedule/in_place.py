"""Operators that run row by row, forwards or backwards, so that their output may lie on their input."""

from __future__ import annotations

from tflm.kernels.overlap import FAR
from tflm.schedule.kernels import CallNeeds
from tflm.schedule.row_operators import RowOperator
from tflm.schedule.rows import Rows


def row_blocks(rows: int, size: int, *, backwards: bool) -> list[Rows]:
    """Rows in blocks of at most `size`, in the order in which they are computed."""
    blocks = [Rows(first, min(first + size, rows)) for first in range(0, rows, size)]
    return blocks[::-1] if backwards else blocks


def runs_by_rows(operator: RowOperator, needs: CallNeeds) -> bool:
    """Whether an operator can run row by row in the scratch that it needs as a whole."""
    single = [operator.needs(Rows(row, row + 1)).scratch for row in {0, operator.rows // 2, operator.rows - 1}]
    return len(operator.inputs) == 1 and all(
        len(scratch) == len(needs.scratch) and all(part <= whole for part, whole in zip(scratch, needs.scratch))
        for scratch in single
    )


def distances(operator: RowOperator, size: int, *, backwards: bool) -> range:
    """How many bytes behind the output the input may begin, if no block is written over rows that are yet to be read.

    Args:
        operator: which reads one input row by row.
        size: rows of a block.
        backwards: whether the last rows are computed first.
    """
    (place,) = operator.inputs
    facts = operator.facts.inputs[place]
    assert facts is not None
    read_row, written_row = facts.bytes // facts.dims[1], operator.row_bytes
    blocks = row_blocks(operator.rows, size, backwards=backwards)
    if backwards:
        above = max(operator.needed(rows).end * read_row - rows.first * written_row for rows in blocks)
        return range(-FAR, 1 - above)
    below = max(rows.end * written_row - operator.needed(rows).first * read_row for rows in blocks)
    return range(below, FAR)


def both_ways(operator: RowOperator) -> tuple[range, range]:
    """The distances for single rows, forwards and backwards."""
    return distances(operator, 1, backwards=False), distances(operator, 1, backwards=True)


def blocks_at(operator: RowOperator, distance: int) -> list[Rows]:
    """The fewest blocks in which an operator can run where its input begins so many bytes behind its output."""
    for size in sorted({-(-operator.rows // count) for count in range(1, operator.rows + 1)}, reverse=True):
        for backwards in (False, True):
            if distance in distances(operator, size, backwards=backwards):
                return row_blocks(operator.rows, size, backwards=backwards)
    raise ValueError(f"operator {operator.index} does not run in place with its input {distance} bytes behind")
