"""Placement constraints between pairs of bodies whose bytes are needed at the same time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tflm.memory.buffer import Integers
from tflm.planning.views import Body


class Bars(NamedTuple):
    """Forbidden differences between the offsets of bodies.

    Attributes:
        size: bytes of each body.
        start: the bars of body b are those from `start[b]` to `start[b + 1]` - 1.
        other: the body that each difference is relative to.
        low, high: the lowest and highest forbidden difference.
    """

    size: Integers
    start: Integers
    other: Integers
    low: Integers
    high: Integers


class BodyMember(NamedTuple):
    """A tensor in a body: the body, the offset in it, and the size in bytes."""

    body: int
    offset: int
    bytes: int


class Trailing(NamedTuple):
    """An output that may overwrite input that its operator has already read.

    Attributes:
        step: the operator's step.
        input, output: the tensors.
        distance: minimum bytes from the start of the output to the start of the input.
    """

    step: int
    input: BodyMember
    output: BodyMember
    distance: int


Pairs = tuple[Integers, Integers, Integers, Integers]


def barred_pairs(bodies: Sequence[Body], others: Sequence[Body], own: int, trailing: Sequence[Trailing] = ()) -> Pairs:
    """Pairs of bodies that constrain each other: (body, other, lowest and highest forbidden difference of offsets).

    Args:
        own: index of the first of the bodies among the others.
    """
    ours, of_ours = _table(bodies)
    theirs, of_theirs = _table(others)
    together = (ours[:, 2:3] <= theirs[:, 3]) & (theirs[:, 2] <= ours[:, 3:4]) & (of_ours[:, None] + own != of_theirs)
    mine, their = np.nonzero(together)
    low, high = theirs[their, 0] - ours[mine, 1] + 1, theirs[their, 1] - ours[mine, 0] - 1
    for step, input, output, distance in trailing:
        most = input.offset - output.offset - distance
        written = _pieces_of(output, of_ours[mine], ours[mine]) & (ours[mine, 2] == step)
        read = _pieces_of(input, of_theirs[their], theirs[their]) & (theirs[their, 3] == step)
        low[written & read] = np.maximum(low[written & read], most + 1)
        written = _pieces_of(output, of_theirs[their], theirs[their]) & (theirs[their, 2] == step)
        read = _pieces_of(input, of_ours[mine], ours[mine]) & (ours[mine, 3] == step)
        high[written & read] = np.minimum(high[written & read], -most - 1)
    barred = low <= high
    return of_ours[mine][barred], of_theirs[their][barred], low[barred], high[barred]


def _pieces_of(part: BodyMember, body: Integers, pieces: Integers) -> npt.NDArray[np.bool_]:
    """Marks the pieces that consist only of this tensor's bytes."""
    begins, ends = pieces[:, 0] >= part.offset, pieces[:, 1] <= part.offset + part.bytes
    inside: npt.NDArray[np.bool_] = (body == part.body) & begins & ends
    return inside


def bars_of(sizes: Sequence[int], pairs: Sequence[Pairs]) -> Bars:
    """The bars of bodies of these sizes, sorted by body."""
    body, other, low, high = (np.concatenate(columns) for columns in zip(*pairs))
    order = np.lexsort((high, low, other, body))
    start = np.searchsorted(body[order], np.arange(len(sizes) + 1, dtype=np.int64))
    return Bars(np.array(sizes, np.int64), start.astype(np.int64), other[order], low[order], high[order])


def _table(bodies: Sequence[Body]) -> tuple[Integers, Integers]:
    """The pieces of all bodies as rows, and the body of each."""
    pieces = np.array([piece for body in bodies for piece in body.pieces], np.int64).reshape(-1, 4)
    return pieces, np.repeat(np.arange(len(bodies), dtype=np.int64), [len(body.pieces) for body in bodies])
