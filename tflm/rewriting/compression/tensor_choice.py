"""Chooses the tensors to compress: most flash saved in a given arena, or the smallest arena for a given flash.

A decoded tensor is alive from its TFLM_DECODE to the operator that reads it, so tensors of different operators do not
add up in the head: an operator's tensors only have to fit next to the tensors that are alive there anyway. The tail is
common to all: each TFLM_DECODE and each tensor adds structures to it. So for each size of the head, this is a knapsack
with the bytes of the tail as weights.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tflm.memory import ARENA_ALIGNMENT
from tflm.targets import align_up

TAIL_UNIT = 4
"""Structures in the tail are multiples of this many bytes."""

MAX_OPTIONS = 2000
"""Combinations of tensors that are kept for operators with common tensors; those that save most are."""


class Candidate(NamedTuple):
    """A constant that can be compressed; sizes in bytes.

    Attributes:
        tensor: its index.
        readers: indices of the operators that read it.
        saved_bytes: decrease of the file, without that for TFLM_DECODE operators.
        decoded_bytes: size when it is decoded.
        tail_bytes: increase of the tail, without that for TFLM_DECODE operators.
    """

    tensor: int
    readers: tuple[int, ...]
    saved_bytes: int
    decoded_bytes: int
    tail_bytes: int


class Costs(NamedTuple):
    """The bytes that each TFLM_DECODE operator adds.

    Attributes:
        operator_file_bytes: to the file.
        operator_tail_bytes: to the tail.
        live_bytes: bytes alive in the head while each operator runs, without decoded tensors.
        decompression_memory: bytes outside the arena, which each TFLM_DECODE fills from the start.
    """

    operator_file_bytes: int
    operator_tail_bytes: int
    live_bytes: Sequence[int]
    decompression_memory: int


class Option(NamedTuple):
    """Tensors that are compressed together; sizes in bytes.

    Attributes:
        tensors: their indices.
        saved_bytes: decrease of the file.
        tail_bytes: increase of the tail.
        head_bytes: the smallest head that also holds the tensors that are alive anyway.
    """

    tensors: tuple[int, ...]
    saved_bytes: int
    tail_bytes: int
    head_bytes: int


class Choice(NamedTuple):
    """Tensors to compress, and the bytes by which the arena then grows, with the best imaginable plan."""

    tensors: tuple[int, ...]
    growth_bytes: int


def groups_of(candidates: Iterable[Candidate]) -> list[list[Candidate]]:
    """Partition candidates: those in different groups are read by different operators."""
    group_of: dict[int, list[Candidate]] = {}
    for candidate in candidates:
        joined = [candidate]
        for group in {id(g): g for r in candidate.readers if (g := group_of.get(r)) is not None}.values():
            joined += group
        for reader in {reader for member in joined for reader in member.readers}:
            group_of[reader] = joined
    return list({id(group): group for group in group_of.values()}.values())


def options_of(group: Sequence[Candidate], costs: Costs) -> list[Option]:
    """Every useful combination of a group's tensors; the first is empty.

    A combination is left out if another one saves as much, and needs no more of the tail or of the head.
    """
    best: list[tuple[Candidate, ...]] = [()]
    for candidate in sorted(group, key=lambda each: -each.saved_bytes):
        grown = best + [(*chosen, candidate) for chosen in best]
        best = sorted(grown, key=lambda chosen: -sum(each.saved_bytes for each in chosen))[:MAX_OPTIONS]
    options = [_option(chosen, costs) for chosen in best if chosen]
    useful = [option for option in options if option.saved_bytes > 0]
    return [Option((), 0, 0, 0), *(one for one in useful if not any(_is_better(other, one) for other in useful))]


def _option(chosen: Sequence[Candidate], costs: Costs) -> Option:
    loads = {reader: 0 for candidate in chosen for reader in candidate.readers}
    separate = dict(loads)
    for candidate in sorted(chosen):  # as TFLM_DECODE allocates them
        size = align_up(candidate.decoded_bytes, ARENA_ALIGNMENT)
        for reader in candidate.readers:
            is_separate = separate[reader] + candidate.decoded_bytes <= costs.decompression_memory
            (separate if is_separate else loads)[reader] += size
    return Option(
        tuple(candidate.tensor for candidate in chosen),
        sum(candidate.saved_bytes for candidate in chosen) - costs.operator_file_bytes * len(loads),
        sum(candidate.tail_bytes for candidate in chosen) + costs.operator_tail_bytes * len(loads),
        max(costs.live_bytes[reader] + load for reader, load in loads.items()),
    )


def _is_better(one: Option, other: Option) -> bool:
    """Whether an option is at least as good as another one in everything, and better in something."""
    ours = -one.saved_bytes, one.tail_bytes, one.head_bytes
    theirs = -other.saved_bytes, other.tail_bytes, other.head_bytes
    return ours != theirs and all(mine <= its for mine, its in zip(ours, theirs))


def largest_saving(groups: Sequence[Sequence[Option]]) -> tuple[int, ...]:
    """The tensors that save most flash, if RAM does not matter."""
    return tuple(tensor for options in groups for tensor in max(options, key=lambda each: each.saved_bytes).tensors)


def largest_saving_in(groups: Sequence[Sequence[Option]], head_bytes: int, growth_bytes: int) -> Choice:
    """The tensors that save most flash in an arena of a given size.

    Args:
        groups: the options of each group.
        head_bytes: the head of the model as it is.
        growth_bytes: bytes by which head and tail may grow together.
    """
    best, choice = 0, Choice((), 0)
    for head in _heads(groups, head_bytes):
        units = (growth_bytes - (head - head_bytes)) // TAIL_UNIT
        if units < 0:
            break
        saved, picks = _knapsack(groups, head, units)
        if saved[-1] > best:
            best = int(saved[-1])
            choice = _picked(groups, picks, int(np.argmax(saved)), head - head_bytes)
    return choice


def smallest_arena_for(groups: Sequence[Sequence[Option]], head_bytes: int, wanted_bytes: int) -> Choice | None:
    """The tensors that save at least `wanted_bytes` with the smallest growth of the arena; None if that is impossible.

    Args:
        groups: the options of each group.
        head_bytes: the head of the model as it is.
        wanted_bytes: flash to save.
    """
    limit = sum(-(-max(option.tail_bytes for option in options) // TAIL_UNIT) for options in groups)
    choices = []
    for head in _heads(groups, head_bytes):
        saved, picks = _knapsack(groups, head, limit)
        enough = np.flatnonzero(saved >= wanted_bytes)
        if len(enough):
            choices.append(_picked(groups, picks, int(enough[0]), head - head_bytes))
    return min(choices, key=lambda choice: choice.growth_bytes, default=None)


def _heads(groups: Sequence[Sequence[Option]], head_bytes: int) -> list[int]:
    """The sizes of the head at which more options become possible, the smallest first."""
    return sorted({max(option.head_bytes, head_bytes) for options in groups for option in options})


def _knapsack(
    groups: Sequence[Sequence[Option]], head_bytes: int, units: int
) -> tuple[npt.NDArray[np.int64], list[npt.NDArray[np.int64]]]:
    """Maximum bytes saved for each size of the tail up to `units`, and the option of each group for each size."""
    saved = np.zeros(units + 1, np.int64)
    picks = []
    for options in groups:
        grown, pick = saved.copy(), np.zeros(units + 1, np.int64)
        for index, option in enumerate(options):
            need = -(-option.tail_bytes // TAIL_UNIT)
            if option.head_bytes > head_bytes or need > units:
                continue
            total = np.full(units + 1, -1, np.int64)
            total[need:] = saved[: units + 1 - need] + option.saved_bytes
            is_better = total > grown
            grown[is_better], pick[is_better] = total[is_better], index
        saved = grown
        picks.append(pick)
    return saved, picks


def _picked(
    groups: Sequence[Sequence[Option]], picks: Sequence[npt.NDArray[np.int64]], units: int, head_growth: int
) -> Choice:
    tensors: tuple[int, ...] = ()
    growth = head_growth + units * TAIL_UNIT
    for options, pick in zip(reversed(groups), reversed(picks)):
        option = options[int(pick[units])]
        tensors += option.tensors
        units -= -(-option.tail_bytes // TAIL_UNIT)
    return Choice(tensors, growth)
