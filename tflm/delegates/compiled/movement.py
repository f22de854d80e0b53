"""Elements that move: copies of bytes, in one piece, row by row, or element by element."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tflm.delegates.compiled.bindings import FAMILIES
from tflm.delegates.compiled.intrinsics import move_bytes
from tflm.delegates.compiled.language import (
    DONE,
    Int16s,
    Int32s,
    Int64s,
    Kernel,
    Step,
    UInt8s,
    kernel,
)
from tflm.kernels import REGISTRATIONS
from tflm.kernels.registration import KernelContext, Node
from tflm.kernels.support.views import Copies, Copy

RANK = 6
"""Dimensions that a copy may have, when those that lie in memory like one are taken together."""


@kernel
def move(target: int, source: int, count: int) -> int:
    """Bytes in one piece, which may overlap."""
    move_bytes(target, source, count)
    return DONE


@kernel
def move_rows(target: int, source: int, rows: int, target_step: int, source_step: int, count: int) -> int:
    """Rows of bytes that lie so many bytes apart."""
    for row in range(rows):
        move_bytes(target + row * target_step, source + row * source_step, count)
    return DONE


@kernel
def move_elements_8(target: UInt8s, source: UInt8s, steps: Int64s) -> int:
    """Elements of six dimensions.

    Args:
        steps: for each dimension its size, and how many elements lie from one to the next in target and source.
    """
    for a in range(steps[0]):
        for b in range(steps[3]):
            for c in range(steps[6]):
                for d in range(steps[9]):
                    for e in range(steps[12]):
                        to = a * steps[1] + b * steps[4] + c * steps[7] + d * steps[10] + e * steps[13]
                        come = a * steps[2] + b * steps[5] + c * steps[8] + d * steps[11] + e * steps[14]
                        to_step, from_step = steps[16], steps[17]
                        for f in range(steps[15]):
                            target[to + f * to_step] = source[come + f * from_step]
    return DONE


move_elements_16 = move_elements_8.variant("move_elements_16", target=Int16s, source=Int16s)
move_elements_32 = move_elements_8.variant("move_elements_32", target=Int32s, source=Int32s)
move_elements_64 = move_elements_8.variant("move_elements_64", target=Int64s, source=Int64s)


@kernel
def fill_8(target: UInt8s, value: UInt8s, count: int) -> int:
    """One element for all."""
    for i in range(count):
        target[i] = value[0]
    return DONE


fill_16 = fill_8.variant("fill_16", target=Int16s, value=Int16s)
fill_32 = fill_8.variant("fill_32", target=Int32s, value=Int32s)
fill_64 = fill_8.variant("fill_64", target=Int64s, value=Int64s)


ELEMENTS: dict[int, tuple[Kernel, Kernel, npt.DTypeLike]] = {
    1: (move_elements_8, fill_8, np.uint8),
    2: (move_elements_16, fill_16, np.int16),
    4: (move_elements_32, fill_32, np.int32),
    8: (move_elements_64, fill_64, np.int64),
}
"""By bytes of an element: what moves single ones, what fills with one, and how kernels take them."""

SHORTEST_ROW = 16
"""Bytes of a row that is worth a call."""


def copy_steps(copies: Sequence[Copy]) -> list[Step] | None:
    """What makes these copies, in turn; None where elements change their type or lie in each other's way."""
    steps: list[Step] = []
    for target, source in copies:
        if target.dtype != source.dtype:
            return None
        if target.size and not _is_same_memory(target, source):
            made = _copy_step(target, np.broadcast_to(source, target.shape))
            if made is None:
                return None
            steps.append(made)
    return steps


def _is_same_memory(target: npt.NDArray[Any], source: npt.NDArray[Any]) -> bool:
    return (target.ctypes.data, target.shape, target.strides) == (source.ctypes.data, source.shape, source.strides)


class Dimension(NamedTuple):
    """A size, and how many bytes lie from one element to the next in target and source."""

    size: int
    target_step: int
    source_step: int


def _copy_step(target: npt.NDArray[Any], source: npt.NDArray[Any]) -> Step | None:
    item = target.itemsize
    *outer, last = dimensions = _dimensions(target, source)
    count, is_piece = last.size * item, last[1:] == (item, item)
    if is_piece and not outer:
        return move.step(target=target, source=source, count=count)
    if np.may_share_memory(target, source) or len(dimensions) > RANK or item not in ELEMENTS:
        return None
    if is_piece and len(outer) == 1 and count >= SHORTEST_ROW:
        rows, target_step, source_step = outer[0]
        return move_rows.step(
            target=target, source=source, rows=rows, target_step=target_step, source_step=source_step, count=count
        )
    elements, fill, dtype = ELEMENTS[item]
    target, source = target.view(dtype), source.view(dtype)
    if last[1:] == (item, 0) and not outer:
        return fill.step(target=target, value=source, count=last.size)
    sizes = np.array([(1, 0, 0)] * (RANK - len(dimensions)) + dimensions, np.int64)
    sizes[:, 1:] //= item
    return elements.step(target=target, source=source, steps=sizes.reshape(-1))


def _dimensions(target: npt.NDArray[Any], source: npt.NDArray[Any]) -> list[Dimension]:
    """The dimensions of a copy; those that lie in memory like one are one, and those of one element are left out."""
    found: list[Dimension] = []
    for dimension in map(Dimension, target.shape, target.strides, source.strides):
        if dimension.size == 1:
            continue
        size, *steps = dimension
        if found and all(before == size * step for before, step in zip(found[-1][1:], steps)):
            dimension = Dimension(found.pop().size * size, *steps)
        found.append(dimension)
    return found or [Dimension(1, target.itemsize, source.itemsize)]


def _bind_copies(context: KernelContext, node: Node) -> list[Step] | None:
    """Operators whose numpy kernels are copies and nothing else."""
    bind = REGISTRATIONS[node.operator].bind
    copies = None if bind is None else bind(context, node)
    return copy_steps(copies.pairs) if isinstance(copies, Copies) else None


BINDINGS = dict.fromkeys(FAMILIES["movement"], _bind_copies)
