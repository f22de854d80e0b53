"""Copies of contiguous bytes, of rows, or of elements; operators that only copy, or make shapes.

The constants of TFLM_DECODE are decoded once. Each invoke only copies them, because other tensors share their memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from numpy.lib.array_utils import byte_bounds

from tflm.compiler.intrinsics import copy_bytes, move_bytes
from tflm.compiler.language import DONE, REFUSED, Address, Elements, Int32s, Step, emitted, inlined, kernel
from tflm.compiler.processor import Profile
from tflm.delegates.compiled.bindings import FAMILIES
from tflm.delegates.compiled.casts import as_int32
from tflm.delegates.compiled.tiles import Writer
from tflm.errors import OperatorError
from tflm.kernels import REGISTRATIONS
from tflm.kernels.node import KernelContext, Node
from tflm.kernels.support.elementwise import Copy, Copying

RANK = 6
"""Maximum number of dimensions of a copy, after contiguous ones are merged."""


@kernel
def move(target: Address, source: Address, count: int) -> int:
    """Copy contiguous bytes; source and target may overlap."""
    move_bytes(target, source, count)
    return DONE


@kernel
def move_rows(target: Address, source: Address, rows: int, target_step: int, source_step: int, count: int) -> int:
    """Copy rows of `count` bytes, which do not overlap; the steps from one row to the next are in bytes."""
    for row in range(rows):
        copy_bytes(target + row * target_step, source + row * source_step, count)
    return DONE


@emitted
def move_vectors(
    builder: Any, target: int, source: int, rows: int, target_step: int, source_step: int, *, row_bytes: int
) -> None:
    """Copy rows of one vector."""
    w = Writer(builder)
    with w.loop(rows) as row:
        vector = w.load(w.add(source, w.times(row, source_step)), w.vector(w.i8, row_bytes))
        w.store(vector, w.add(target, w.times(row, target_step)))


@kernel
def move_elements(target: Elements, source: Elements, steps: Int32s) -> int:
    """Copy elements of six dimensions.

    Args:
        steps: for each dimension its size and the steps of target and source, in elements.
    """
    for a in range(steps[0]):
        for b in range(steps[3]):
            for c in range(steps[6]):
                for d in range(steps[9]):
                    for e in range(steps[12]):
                        dst = a * steps[1] + b * steps[4] + c * steps[7] + d * steps[10] + e * steps[13]
                        src = a * steps[2] + b * steps[5] + c * steps[8] + d * steps[11] + e * steps[14]
                        dst_step, src_step = steps[16], steps[17]
                        for f in range(steps[15]):
                            target[dst + f * dst_step] = source[src + f * src_step]
    return DONE


@kernel
def fill(target: Elements, source: Elements, rows: int, target_step: int, source_step: int, count: int) -> int:
    """Set each row of `count` elements to one value; the steps from one row or value to the next are in elements."""
    for row in range(rows):
        value = source[row * source_step]
        for i in range(count):
            target[row * target_step + i] = value
    return DONE


ELEMENTS: dict[int, npt.DTypeLike] = {1: np.uint8, 2: np.int16, 4: np.int32, 8: np.int64}
"""Types for copies, by the size of an element. A float32 is copied as such, because C must know its type."""

SHORTEST_ROW = 16
"""Minimum size of a row in bytes for which memmove pays."""

SHORTEST_FILL = 4
"""Minimum number of elements of a row for which setting each row to one value pays."""

VECTOR_BYTES = (16, 32, 64)
"""Sizes in bytes of rows that are copied as one vector, without memmove."""

SHORTEST_LOOP = 16
"""The innermost loop runs over the last dimension if that has this size; otherwise, over the longest dimension."""


def copy_steps(copies: Sequence[Copy]) -> list[Step] | None:
    """Return the steps of copies in order.

    None if elements change their type, target and source overlap, or an earlier copy may have changed a source.
    """
    steps: list[Step] = []
    written: list[tuple[int, int]] = []
    for target, source in copies:
        if target.dtype != source.dtype:
            return None
        if target.size and not _is_same_memory(target, source):
            first, end = byte_bounds(source)
            made = _copy_step(target, np.broadcast_to(source, target.shape), may_overlap=len(copies) == 1)
            if made is None or any(first < stop and end > start for start, stop in written):
                return None
            written.append(byte_bounds(target))
            steps.append(made)
    return steps


def in_vectors(step: Step) -> Step:
    """Return the step that copies rows of one vector without memmove, if a step copies such rows."""
    *others, count = step.arguments
    if step.kernel is not move_rows or count not in VECTOR_BYTES:
        return step
    return replace(step, kernel=move_vectors.of(row_bytes=count), arguments=tuple(others))


def _is_same_memory(target: npt.NDArray[Any], source: npt.NDArray[Any]) -> bool:
    return (target.ctypes.data, target.shape, target.strides) == (source.ctypes.data, source.shape, source.strides)


class Dimension(NamedTuple):
    """Size of a dimension, and the steps from one element to the next in target and source, in bytes."""

    size: int
    target_step: int
    source_step: int


def _copy_step(target: npt.NDArray[Any], source: npt.NDArray[Any], *, may_overlap: bool) -> Step | None:
    """Return the step of a copy; None if it has none, as in `copy_steps`.

    Args:
        may_overlap: whether target and source may overlap if both are contiguous.
    """
    item = target.itemsize
    *outer, last = dimensions = _dimensions(target, source)
    count, is_piece = last.size * item, last[1:] == (item, item)
    if is_piece and not outer and (may_overlap or count < SHORTEST_ROW):
        return move.step(target=target, source=source, count=count)
    if np.may_share_memory(target, source) or len(dimensions) > RANK or item not in ELEMENTS:
        return None
    row = outer[0] if outer else Dimension(1, 0, 0)
    if is_piece and len(outer) < 2 and count >= SHORTEST_ROW:
        return move_rows.step(
            target=target,
            source=source,
            rows=row.size,
            target_step=row.target_step,
            source_step=row.source_step,
            count=count,
        )
    if target.dtype != np.float32:
        target, source = target.view(ELEMENTS[item]), source.view(ELEMENTS[item])
    if last[1:] == (item, 0) and (not outer or (len(outer) == 1 and last.size >= SHORTEST_FILL)):
        return fill.step(
            target=target,
            source=source,
            rows=row.size,
            target_step=row.target_step // item,
            source_step=row.source_step // item,
            count=last.size,
        )
    if last.size < SHORTEST_LOOP:
        dimensions = sorted(dimensions, key=lambda dimension: dimension.size)
    sizes = np.array([(1, 0, 0)] * (RANK - len(dimensions)) + dimensions, np.int32)
    sizes[:, 1:] //= item
    return move_elements.step(target=target, source=source, steps=sizes.reshape(-1))


def _dimensions(target: npt.NDArray[Any], source: npt.NDArray[Any]) -> list[Dimension]:
    """Return the dimensions of a copy, with contiguous ones merged, and those of one element omitted."""
    found: list[Dimension] = []
    for dimension in map(Dimension, target.shape, target.strides, source.strides):
        if dimension.size == 1:
            continue
        size, *steps = dimension
        if found and all(before == size * step for before, step in zip(found[-1][1:], steps)):
            dimension = Dimension(found.pop().size * size, *steps)
        found.append(dimension)
    return found or [Dimension(1, target.itemsize, source.itemsize)]


def fixed_copies(node: Node) -> Sequence[Copy] | None:
    """Return the copies of an operator that only copies; None if they can change between invokes."""
    copying = REGISTRATIONS[node.operator].bind
    assert isinstance(copying, Copying)
    return copying.fixed_copies(node)


def _bind_copies(context: KernelContext, node: Node, profile: Profile) -> list[Step] | None:
    copies = fixed_copies(node)
    return None if copies is None else copy_steps(copies)


def _bind_decode(context: KernelContext, node: Node, profile: Profile) -> list[Step] | None:
    copies = []
    for i, (scheme, encoded) in enumerate(node.op_data):
        try:
            elements = scheme.decode(encoded)
        except OperatorError:
            return None  # numpy rejects it when it runs
        copies.append((node.eval_output(i).elements.reshape(-1).view(elements.dtype), elements))
    return copy_steps(copies)


@inlined
def size_at(shape: Any, rank: int, place: int) -> Any:
    """Return the size of a dimension, of which TFLM reads 32 bits; 1 for missing leading dimensions."""
    return as_int32(shape[place]) if 0 <= place < rank else as_int32(1)


@kernel
def broadcast_shapes(shape1: Elements, shape2: Elements, y: Elements, rank1: int, rank2: int, rank: int) -> int:
    """Set y to the shape that both shapes broadcast to."""
    different = 0
    for i in range(rank):
        size1, size2 = size_at(shape1, rank1, i + rank1 - rank), size_at(shape2, rank2, i + rank2 - rank)
        different += size1 != size2 and size1 != 1 and size2 != 1
    if different:
        return REFUSED
    for i in range(rank):
        size1, size2 = size_at(shape1, rank1, i + rank1 - rank), size_at(shape2, rank2, i + rank2 - rank)
        y[i] = size2 if size1 == 1 else size1
    return DONE


def _bind_broadcast_args(context: KernelContext, node: Node, profile: Profile) -> list[Step] | None:
    shape1, shape2 = (node.eval_input(i).elements for i in range(2))
    y = node.eval_output(0).elements
    ranks = {"rank1": shape1.size, "rank2": shape2.size, "rank": y.size}
    return [broadcast_shapes.step(shape1=shape1, shape2=shape2, y=y, **ranks)]


BINDINGS = {
    **dict.fromkeys(FAMILIES["movement"], _bind_copies),
    "BROADCAST_ARGS": _bind_broadcast_args,
    "TFLM_DECODE": _bind_decode,
}
