"""Try changes that keep a model's results, one after the other, until the model fits a board."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

from tflm.application.several_memories import memories_of_board, spread_of
from tflm.boards import Board
from tflm.errors import ArenaError, ArgumentError, OperatorError, UnresolvedOperator
from tflm.firmware.board_fit import Answer, BoardFit, Split, board_fit, firmware_ram
from tflm.graph import multiply_accumulates
from tflm.libraries import KernelLibrary
from tflm.libraries.kernel_library import values_lost_with
from tflm.memory import OptimalPlanner
from tflm.planning import MemoriesPlan, plan
from tflm.rewriting import TiledModel, fold, tile
from tflm.rewriting.streaming import stream
from tflm.rewriting.tiled_model import MOVERS, PLAN_STEPS
from tflm.schema.model import Model

MAX_SPLITS = 3
"""Maximum number of pairs of memories for head and tail to try with a kernel library."""

SHARE_OF_LIBRARY = SHARE_OF_STEP = 0.8
"""The share of the remaining time that a kernel library may take, and the share of that for a single step."""

AS_IT_IS = "as it is"
STREAMING = "streaming form"
SEVERAL = "buffers in several memories"


@dataclass(frozen=True)
class FitStep:
    """A version of the model that was tried; sizes in bytes.

    Attributes:
        name: what was done to the model.
        kernels: the kernel library that it was measured with.
        minimum_arena_bytes: the smallest arena; None if the model can't run so.
        saved_bytes: how much smaller the arena is than the smallest before.
        extra_macs: additional multiply-accumulates, as a share of the model's.
        extra_file_bytes: how much larger the file is than the original.
        needed_operators: operators that the resolver needs in addition.
        memories: where the arena goes, such as "arena in SRAM"; empty if it does not fit.
        fits: whether the model fits the board so.
        reason: why it can't run so; empty if it can.
    """

    name: str
    kernels: str
    minimum_arena_bytes: int | None
    saved_bytes: int = 0
    extra_macs: float = 0.0
    extra_file_bytes: int = 0
    needed_operators: tuple[str, ...] = ()
    memories: str = ""
    fits: bool = False
    reason: str = ""


@dataclass(frozen=True)
class Candidate:
    """A step and the model that it produced.

    Attributes:
        portable: whether other kernels compute the same results, which is not so if tensors overlap.
        plan: the places of buffers in several memories; None for an arena in one piece, or head and tail.
    """

    step: FitStep
    data: bytes
    library: KernelLibrary
    found: BoardFit
    portable: bool
    plan: MemoriesPlan | None = None


class Attempt(NamedTuple):
    """Something to try.

    Attributes:
        name: of the step.
        make: makes the model, or a plan of several memories for it, within a time limit in seconds; None for no limit.
        portable: see `Candidate`.
        split: the banks of head and tail; None for an arena in one piece.
    """

    name: str
    make: Callable[[float | None], bytes | MemoriesPlan]
    portable: bool = True
    split: Split | None = None


class SearchTime:
    """A time limit for all kernel libraries together, most of it for the first.

    Args:
        seconds: the limit; None for none.
    """

    def __init__(self, seconds: float | None):
        self._end = self._library_end = None if seconds is None else time.monotonic() + seconds

    def begin_library(self, is_last: bool) -> None:
        """Begin with the next library; the last one has all the time that is left."""
        if self._end is not None:
            now = time.monotonic()
            self._library_end = now + (1.0 if is_last else SHARE_OF_LIBRARY) * max(self._end - now, 0.0)

    def of_step(self) -> float | None:
        """Seconds that the next step may take; 0 if nothing is left for the library, None without a limit."""
        if self._library_end is None:
            return None
        return SHARE_OF_STEP * max(self._library_end - time.monotonic(), 0.0)


class FitSearch:
    """Tries one version of a model after the other, and keeps them.

    Args:
        model, board, reserve, max_extra_macs, progress: as for `fit`.
        hop: new frames of an invoke, to try the streaming form; None not to try it.
        improved: is called after each step with a better result than all before.

    Attributes:
        model, board, reserve: as given.
        steps: everything that was tried, in order.
        candidates: what came of the steps that can run.
        cut_short: steps that the time limit ended or kept from being tried.
    """

    def __init__(
        self,
        model: Model,
        board: Board,
        reserve: int,
        max_extra_macs: float,
        progress: Callable[[str], None],
        hop: int | None,
        improved: Callable[[], None],
    ):
        self.model, self.board, self.reserve = model, board, reserve
        self._max_extra_macs, self._progress, self._hop, self._improved = max_extra_macs, progress, hop, improved
        self.candidates: list[Candidate] = []
        self.steps: list[FitStep] = []
        self.cut_short: list[str] = []

    def run(self, libraries: Sequence[KernelLibrary], time_limit: float | None) -> None:
        """Try everything with each library, until the model fits on the chip.

        Args:
            libraries: the libraries, the usual one first.
            time_limit: as for `fit`.
        """
        self._time = SearchTime(time_limit)
        for library in libraries:
            self._time.begin_library(library is libraries[-1])
            for attempt in self._attempts(library):
                is_done = self._try(library, attempt)
                if is_done and (attempt.name != AS_IT_IS or self._hop is None):
                    return
            if self._fits_as_it_is():
                return

    def chosen(self) -> Candidate:
        """The first candidate that fits the chip's RAM, else the first whose head does, else the first that fits;
        otherwise the smallest of those that may fit.

        The streaming form is preferred to others that fit as well.
        """
        fitting = [c for c in self.candidates if c.found.fits]
        if fitting:
            return max(
                fitting,
                key=lambda c: (c.found.on_chip, c.found.head_on_chip, c.step.name == STREAMING, c.plan is not None),
            )
        in_one_piece = [c for c in self.candidates if c.found.split is None and c.plan is None]
        return min(in_one_piece, key=lambda c: (c.found.answer is Answer.NO, c.found.measured.minimum_arena_bytes))

    def _attempts(self, library: KernelLibrary) -> Iterator[Attempt]:
        """Yield the attempts for a library, in order. As a generator, it can depend on earlier results."""
        model = self.model
        lost = next(values_lost_with(library, self.board.target, model), None)
        if lost is None:
            yield Attempt(AS_IT_IS, lambda _: bytes(model.data))
        else:
            reason = f"its memory plan is for other kernels: {lost}"
            self.steps.append(FitStep(AS_IT_IS, library.name, None, reason=reason))
        can_run = lost is not None or not self.steps[-1].reason
        if self._hop is not None:
            yield Attempt(STREAMING, partial(self._streamed, library, self._hop))
            if self._fits_as_it_is():
                return
        if can_run:
            yield Attempt("memory plan", partial(self._planned, library, model))
        if not can_run or self.steps[-1].reason or self._is_known_not_to_help(library):
            return
        folded = Model(fold(model))
        if bytes(folded.data) != bytes(model.data):
            yield Attempt("folded operators", partial(self._planned, library, folded))
        yield Attempt("operator order", partial(self._planned, library, folded, reorder=True))
        overlap = library.name if library.overlaps is not None else None
        portable = overlap is None
        if overlap is not None:
            in_place = partial(self._planned, library, folded, reorder=True, in_place=True)
            yield Attempt("in-place operators", in_place, portable)
            yield Attempt("overlapping tensors", partial(self._planned, library, folded, overlap=overlap), portable)
        yield Attempt("row bands", partial(self._tiled, library, overlap, self._room(library)), portable)
        for split in self._splits():
            name = f"head for {split.head.name}, tail for {split.tail.name}"
            yield Attempt(name, partial(self._tiled_head, library, overlap, split), portable, split)
        if len(self.board.ram) > 1:
            yield Attempt(SEVERAL, partial(self._in_memories, library, overlap), portable)

    def _fits_as_it_is(self) -> bool:
        return any(c.step.name == AS_IT_IS and c.found.fits and c.found.head_on_chip for c in self.candidates)

    def _streamed(self, library: KernelLibrary, hop: int, seconds: float | None) -> bytes:
        return self._planned(library, stream(self.model, hop=hop).model, seconds)

    def _is_known_not_to_help(self, library: KernelLibrary) -> bool:
        """Whether another build of the same library was tried, and the last model takes the same memory with both."""
        last = self.candidates[-1]
        return any(
            _family(other.library) == _family(library)
            and other.library is not library
            and other.step.name == last.step.name
            and _memory_taken(other.found) == _memory_taken(last.found)
            for other in self.candidates
        )

    def _planned(
        self,
        library: KernelLibrary,
        model: Model,
        seconds: float | None,
        *,
        reorder: bool = False,
        in_place: bool = False,
        overlap: str | None = None,
    ) -> bytes:
        return plan(
            model,
            None,
            OptimalPlanner(time_limit=seconds, step_limit=PLAN_STEPS),
            target=self.board.target,
            kernels=library,
            reorder=reorder,
            in_place=in_place,
            overlap=overlap,
        ).data

    def _in_memories(self, library: KernelLibrary, overlap: str | None, seconds: float | None) -> MemoriesPlan:
        """The cheapest plan of the model as it is and of the smallest that was made of it."""
        smallest = min(
            (c for c in self.candidates if c.library is library), key=lambda c: c.found.measured.minimum_arena_bytes
        )
        search = OptimalPlanner(time_limit=None if seconds is None else seconds / 2, step_limit=PLAN_STEPS)
        found: list[MemoriesPlan] = []
        for data in {bytes(self.model.data), smallest.data}:
            with contextlib.suppress(ArenaError):
                found.append(
                    plan(
                        Model(data),
                        None,
                        search,
                        target=self.board.target,
                        kernels=library,
                        memories=memories_of_board(smallest.found),
                        reorder=True,
                        overlap=overlap,
                    )
                )
        if not found:
            raise OperatorError("its buffers fit no memories of the board")
        return min(found, key=lambda each: (each.cost, len(each.data)))

    def _tiled(self, library: KernelLibrary, overlap: str | None, ram: int, seconds: float | None) -> bytes:
        return self._bands(library, overlap, seconds)(ram=ram).data

    def _tiled_head(self, library: KernelLibrary, overlap: str | None, split: Split, seconds: float | None) -> bytes:
        room = replace(self.candidates[-1].found, split=split).head_room
        return self._bands(library, overlap, seconds)(head_ram=max(room, 0), tail_ram=split.tail.bytes).data

    def _bands(self, library: KernelLibrary, overlap: str | None, seconds: float | None) -> Callable[..., TiledModel]:
        return partial(
            tile,
            self.model,
            target=self.board.target,
            kernels=library,
            max_extra_macs=self._max_extra_macs,
            time_limit=seconds,
            overlap=overlap,
            progress=lambda state: self._progress(f"row bands, {library.name}: {state.checking or 'searching'}"),
        )

    def _splits(self) -> Iterator[Split]:
        """Banks for head and tail: the head in the chip's own RAM, the largest first; the tail there if it has room."""
        last = self.candidates[-1].found.separate
        if last is None:
            return
        by_size = sorted(self.board.on_chip_ram, key=lambda bank: -bank.bytes)
        pairs = [
            Split(head, tail)
            for head in by_size
            for tail in self.board.ram
            if tail is not head and tail.bytes >= last.tail_arena_bytes
        ]
        yield from sorted(pairs, key=lambda split: split.tail.is_external)[:MAX_SPLITS]

    def _room(self, library: KernelLibrary) -> int:
        """Bytes that an arena in one piece may have in the chip's own RAM, with the operators that row bands need."""
        last = self.candidates[-1].found
        last = replace(last, firmware_ram=firmware_ram(self.model, self.board, library, self.reserve, MOVERS))
        return max(last.measured.minimum_arena_bytes - last.missing_on_chip_bytes, 0)

    def _try(self, library: KernelLibrary, attempt: Attempt) -> bool:
        """Try one change; returns whether the model then fits the chip."""
        seconds = self._time.of_step()
        if seconds == 0 and any(candidate.library is library for candidate in self.candidates):
            self.cut_short.append(f"{attempt.name} ({library.name})")
            return False
        self._progress(f"{attempt.name}, {library.name}")
        begin = time.monotonic()
        try:
            made = attempt.make(seconds)
            several = made if isinstance(made, MemoriesPlan) else None
            data = made.data if isinstance(made, MemoriesPlan) else made
            found = board_fit(Model(data), self.board, kernels=library, reserve=self.reserve, split=attempt.split)
            if several is not None:
                found = replace(found, spread=spread_of(several, self.board))
        except (ArgumentError, OperatorError, UnresolvedOperator) as error:
            self.steps.append(FitStep(attempt.name, library.name, None, reason=str(error)))
            return False
        if seconds is not None and time.monotonic() - begin > seconds:
            self.cut_short.append(f"{attempt.name} ({library.name})")
        candidate = Candidate(self._step(attempt.name, data, found), data, library, found, attempt.portable, several)
        self.steps.append(candidate.step)
        self.candidates.append(candidate)
        is_done = found.fits and found.head_on_chip
        if not is_done and self.chosen() is candidate:
            self._improved()
        return is_done

    def _step(self, name: str, data: bytes, found: BoardFit) -> FitStep:
        arena, model = found.measured.minimum_arena_bytes, Model(data)
        smallest = min((c.found.measured.minimum_arena_bytes for c in self.candidates), default=arena)
        return FitStep(
            name=name,
            kernels=found.measured.kernels.name,
            minimum_arena_bytes=arena,
            saved_bytes=max(smallest - arena, 0),
            extra_macs=_extra_work(self.model, model),
            extra_file_bytes=len(data) - len(self.model.data),
            needed_operators=tuple(sorted(_operators(model) - _operators(self.model))),
            memories=", ".join(
                f"{p.part.replace('_', ' ')} in {p.bank.name}" for p in found.placements if p.bank is not None
            ),
            fits=found.fits,
        )


def _family(library: KernelLibrary) -> tuple[object, ...]:
    """The name that all builds of a library share."""
    return library.name.partition(":")[0], library.release, library.view_alignment


def _memory_taken(found: BoardFit) -> tuple[object, ...]:
    return found.measured.buffers, found.measured.tail_bytes, found.firmware_ram


def _extra_work(before: Model, after: Model) -> float:
    return _macs(after) / max(_macs(before), 1) - 1 if _macs(before) else 0.0


def _macs(model: Model) -> int:
    main = model.subgraphs[0]
    return sum(multiply_accumulates(model, main, operator) for operator in main.operators or ())


def _operators(model: Model) -> set[str]:
    return {model.operator_name(operator) for subgraph in model.subgraphs for operator in subgraph.operators or ()}
