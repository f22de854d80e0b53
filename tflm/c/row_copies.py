"""Copy a few output rows at a time, for operators that only copy elements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tflm.c.binding import BoundModel, BoundOperator
from tflm.delegates.compiled.movement import fixed_copies
from tflm.kernels.support.elementwise import Copy
from tflm.memory.tensor import TfLiteEvalTensor
from tflm.schedule.rows import Rows

ROWS = 1
"""Dimension of a tensor that counts its rows."""

BY_ROWS = frozenset({"CONCATENATION", "PAD", "PADV2", "SLICE", "STRIDED_SLICE", "TRANSPOSE"})
"""Operators whose output rows can be copied separately."""

Array = npt.NDArray[Any]


def copies_of_rows(bound: BoundModel, operator: BoundOperator, rows: Rows) -> list[Copy] | None:
    """Return the copies that produce some rows of an operator's output; None if its copies are not by rows."""
    y = bound.tensors(operator.subgraph)[operator.node.outputs[0]].elements
    found = []
    for target, source in fixed_copies(operator.node) or ():
        if target.ndim != y.ndim:
            count, *rest = target.shape
            if not count or count % y.shape[ROWS] or count * target.strides[0] != y.nbytes:
                return None
            # The first dimension counts rows, or parts of rows.
            shape = 1, y.shape[ROWS], count // y.shape[ROWS], *rest
            target, source = target.reshape(shape), np.broadcast_to(source, target.shape).reshape(shape)
        begin = (target.ctypes.data - y.ctypes.data) // y.strides[ROWS] % y.shape[ROWS] if target.size else 0
        part = slice(max(rows.first - begin, 0), max(rows.end - begin, 0))
        of_rows = target[:, part], np.broadcast_to(source, target.shape)[:, part]
        found += [of_rows] if of_rows[0].size else []
    return found


def rows_read(bound: BoundModel, operator: BoundOperator) -> list[Rows] | None:
    """Return the input rows that each output row is copied from; None if the inputs' ranges differ."""
    tensors, node = bound.tensors(operator.subgraph), operator.node
    if node.operator not in BY_ROWS:
        return None
    images = [tensors[i] for i in node.inputs if i >= 0 and not tensors[i].is_constant]
    y = tensors[node.outputs[0]]
    if any(len(each.dims) != 4 or each.dims[0] != 1 or 0 in each.dims for each in (*images, y)):
        return None
    found: list[Rows] = []
    for row in range(y.dims[ROWS]):
        copies = copies_of_rows(bound, operator, Rows(row, row + 1))
        if copies is None:
            return None
        read = [[rows for _, source in copies for rows in [_rows_of(source, image)] if rows] for image in images]
        hulls = {Rows(min(rows)[0], max(each.end for each in rows)) for rows in read if rows}
        if len(hulls) > 1 or (hulls and not all(read)):
            return None
        # A row of padding counts as read from the row before it.
        found += hulls or found[-1:] or [Rows(0, 1)]
    first = [rows.first for rows in found]
    return (
        found if first == sorted(first) and [rows.end for rows in found] == sorted(rows.end for rows in found) else None
    )


def _rows_of(source: Array, image: TfLiteEvalTensor) -> Rows | None:
    """Return the rows of an image that a view covers; None if the view belongs to something else."""
    x = image.elements
    if not np.may_share_memory(source, x):
        return None
    low, high = np.lib.array_utils.byte_bounds(source)
    row = x.nbytes // x.shape[ROWS]
    return Rows((low - x.ctypes.data) // row, -(-(high - x.ctypes.data) // row))


def moved_copies(copies: Sequence[Copy], moves: Sequence[tuple[Array, Array, int]]) -> list[Copy]:
    """Return the same copies in other memory.

    Args:
        copies: copies between views of tensors.
        moves: for each tensor, an array with some of its rows, and the index of the first of these.
    """

    def moved(view: Array) -> Array:
        for whole, part, first in moves:
            if np.may_share_memory(view, whole):
                offset = view.ctypes.data - whole.ctypes.data - first * (whole.nbytes // whole.shape[ROWS])
                return np.ndarray(view.shape, view.dtype, part, offset, view.strides)
        return view

    return [(moved(target), moved(source)) for target, source in copies]
