"""The order in which a compiled model runs, and the memory that each call reads and writes, before it has a place.

A store is memory that is placed in one piece: a tensor, tensors that lie in each other, a window of a tensor's rows, or
scratch. A schedule is a list of calls and moves on spans of stores, from which follows when each byte of a store is
needed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from tflm.memory.byte_labels import TensorKey
from tflm.planning.bars import BodyMember, Trailing
from tflm.planning.views import Body, Piece, merged
from tflm.schedule.rows import Rows


class Store(NamedTuple):
    """Memory to be placed.

    Attributes:
        name: for people.
        size: in bytes.
        tensors: those in it, with where each begins; of a window of rows, the tensor at 0.
    """

    name: str
    size: int
    tensors: tuple[tuple[TensorKey, int], ...] = ()


class Span(NamedTuple):
    """Rows of a tensor in a store; a whole tensor is all its rows.

    Attributes:
        store: by index.
        offset, bytes: where in the store.
        first_row, rows: which rows, and how many.
    """

    store: int
    offset: int
    bytes: int
    first_row: int
    rows: int


class Run(NamedTuple):
    """A call of an operator's kernel; see `tflm.schedule.calls.Call`.

    Attributes:
        steps: of the invocation that it takes, more than one if it runs subgraphs.
        overlaps: for each input, how many bytes it may begin behind the output where the two share bytes, in ranges.
    """

    operator: int
    rows: Rows | None
    inputs: tuple[Span | None, ...]
    outputs: tuple[Span | None, ...]
    scratch: tuple[Span, ...]
    overlaps: tuple[tuple[range, ...], ...]
    steps: int = 1


class Shift(NamedTuple):
    """Bytes that move inside a store."""

    store: int
    source: int
    target: int
    size: int

    @property
    def steps(self) -> int:
        """Steps of the invocation that it takes."""
        return 1


@dataclass
class Schedule:
    """Calls and moves in the order in which they run.

    Attributes:
        stores: all memory.
        items: the calls and moves.
        given: spans that hold values before the first step: inputs, and what stays from invoke to invoke.
        kept: spans whose values are needed after the last step: outputs, and what stays.
        alive: further uses of stores as a whole: (store, first step, last step).
    """

    stores: list[Store] = field(default_factory=list)
    items: list[Run | Shift] = field(default_factory=list)
    given: list[Span] = field(default_factory=list)
    kept: list[Span] = field(default_factory=list)
    alive: list[tuple[int, int, int]] = field(default_factory=list)

    def add(self, store: Store) -> int:
        """Add a store; returns its index."""
        self.stores.append(store)
        return len(self.stores) - 1

    def starts(self) -> list[int]:
        """The first step of each item, then the step after the last one. Step 0 is before all of them."""
        starts = [1]
        for item in self.items:
            starts.append(starts[-1] + item.steps)
        return starts

    def bodies(self) -> list[Body]:
        """Each store with the steps at which its bytes are needed."""
        uses: list[list[_Use]] = [[] for _ in self.stores]
        for use in self._uses():
            uses[use.store].append(use)
        pieces = [_pieces(of_store) for of_store in uses]
        for store, first, last in self.alive:
            pieces[store].append(Piece(0, self.stores[store].size, first, last))
        return [Body({}, store.size, tuple(merged(of_store))) for store, of_store in zip(self.stores, pieces)]

    def accessed_bytes(self) -> list[int]:
        """For each store, the bytes that are read and written in an invoke."""
        accessed = [0] * len(self.stores)
        for use in self._uses():
            accessed[use.store] += use.bytes
        return accessed

    def _uses(self) -> Iterator[_Use]:
        """All reads and writes, step by step, what is read at a step before what is written."""
        yield from (_Use(*span[:3], 0, is_write=True) for span in self.given)
        starts = self.starts()
        for item, step in zip(self.items, starts):
            if isinstance(item, Shift):
                yield _Use(item.store, item.source, item.size, step, is_write=False)
                yield _Use(item.store, item.target, item.size, step, is_write=True)
                continue
            yield from (_Use(*span[:3], step, is_write=False) for span in item.inputs if span is not None)
            made = [span for span in (*item.outputs, *item.scratch) if span is not None]
            yield from (_Use(*span[:3], step, is_write=True) for span in made)
            if item.steps > 1:
                used = [span for span in (*item.inputs, *made) if span is not None]
                yield from (_Use(*span[:3], step + item.steps - 1, is_write=False) for span in used)
        yield from (_Use(*span[:3], starts[-1], is_write=False) for span in self.kept)

    def trailing(self) -> list[Trailing]:
        """The outputs of calls that may reach into inputs."""
        return [
            Trailing(step, _member(input), _member(output), allowed)
            for item, step in zip(self.items, self.starts())
            if isinstance(item, Run)
            for input, output, allowed in _overlapping(item)
        ]


class _Use(NamedTuple):
    store: int
    offset: int
    bytes: int
    step: int
    is_write: bool


def _member(span: Span) -> BodyMember:
    return BodyMember(span.store, span.offset, span.bytes)


def _overlapping(run: Run) -> Iterator[tuple[Span, Span, tuple[range, ...]]]:
    """The inputs that the output of a call may reach into, each with the output and the distances."""
    outputs = [span for span in run.outputs if span is not None]
    stores = [span.store for span in (*run.inputs, *outputs) if span is not None]
    if len(run.outputs) != 1 or len(outputs) != 1 or run.steps != 1:
        return
    for input, ranges in zip(run.inputs, run.overlaps):
        allowed = tuple(distances for distances in ranges if distances.start < distances.stop)
        if input is not None and allowed and stores.count(input.store) == 1:
            yield input, outputs[0], allowed


def _pieces(uses: Sequence[_Use]) -> list[Piece]:
    """When the bytes of a store are needed: each value from when it is written until it is read for the last time."""
    borders = sorted({border for use in uses for border in (use.offset, use.offset + use.bytes)})
    place = {border: i for i, border in enumerate(borders)}
    life: list[tuple[int, int] | None] = [None] * len(borders)
    pieces: list[Piece] = []
    for use in uses:
        for i in range(place[use.offset], place[use.offset + use.bytes]):
            before = life[i]
            if not use.is_write:
                life[i] = (0 if before is None else before[0], use.step)
                continue
            if before is not None:
                pieces.append(Piece(borders[i], borders[i + 1], *before))
            life[i] = use.step, use.step
    pieces += [Piece(borders[i], borders[i + 1], *of) for i, of in enumerate(life) if of is not None]
    return pieces
