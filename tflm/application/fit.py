"""Make a model fit a board with changes that keep its results, cheapest first."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

from tflm.application.machine import Machine
from tflm.application.projects import project_files, usual_kind, write_files
from tflm.atomic_write import write_atomically
from tflm.boards import Board, boards, by_name
from tflm.boards.board_fit import BoardFit, BoardRefusal, Split, board_fit, fits_of
from tflm.errors import ArgumentError, OperatorError, UnresolvedOperator
from tflm.late_imports import FIT_REPORT, late_import
from tflm.libraries import KernelLibrary, Kernels, library_for
from tflm.planning import plan
from tflm.releases import Releases
from tflm.report import shortened
from tflm.rewriting import TiledModel, fold, tile
from tflm.runtime.operator_facts import multiply_accumulates
from tflm.schema.enums import TensorType
from tflm.schema.model import Model, require_model
from tflm.schema.patch import with_data_inside

DEFAULT_RESERVE = 4 << 10
"""Default bytes of RAM that the application needs besides TFLM: those of a small bare-metal program."""

DEFAULT_EXTRA_MACS = 0.25
"""Default share of multiply-accumulates that row bands may add."""

BUILDS = {
    "cmsis-nn": ("cmsis-nn:size", "reference"),
    "cmsis-nn:size": ("cmsis-nn", "reference"),
    "esp-nn": ("esp-nn:ansi", "reference"),
    "esp-nn:ansi": ("reference",),
}
"""Alternative kernel libraries, by the usual one. The Arduino library has only its own kernels."""

MOST_SPLITS = 3
"""Most pairs of memories for head and tail to try with a kernel library."""

SUGGESTED_BOARDS = 3
LONGEST_NAME = 48


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
    """A step and what it made.

    Attributes:
        portable: whether other kernels give the same answers: not where tensors overlap.
    """

    step: FitStep
    data: bytes
    library: KernelLibrary
    found: BoardFit
    portable: bool


class Attempt(NamedTuple):
    """Something to try: its name, what makes the model, whether the result is portable, and banks of head and tail."""

    name: str
    make: Callable[[], bytes]
    portable: bool = True
    split: Split | None = None


@dataclass(frozen=True)
class Fit:
    """What came of making a model fit a board; sizes in bytes.

    Attributes:
        board: the board.
        kernels: the kernel library that the firmware must be built with.
        data: the model that was chosen: the first that fits, otherwise the one with the smallest arena.
        chosen: how it was made.
        found: what it takes of the board.
        original: what the model as it was takes of the board.
        steps: everything that was tried, in order.
        reserve_bytes: RAM that was left to the application.
        in_external_ram: whether the arena, or a part of it, is in RAM outside the chip.
        interrupted: whether the search was interrupted: then this is the best result until then.
        boards: if it does not fit: the smallest boards that would do.
        advice: if it does not fit: changes to the model that would help, with figures.
    """

    board: Board
    kernels: KernelLibrary
    data: bytes
    chosen: FitStep
    found: BoardFit
    original: BoardFit | None
    steps: tuple[FitStep, ...]
    reserve_bytes: int
    in_external_ram: bool
    interrupted: bool
    boards: tuple[Board, ...]
    advice: tuple[str, ...]

    def __repr__(self) -> str:
        fits = "fits" if self.fits else f"{self.missing_bytes} bytes missing"
        return f"Fit({self.board.name}, {fits}, {self.minimum_arena_bytes} bytes by {self.chosen.name})"

    @property
    def fits(self) -> bool:
        """Whether arena, static RAM, stack and reserve fit the RAM, and the file fits the flash."""
        return self.found.fits

    @property
    def model(self) -> Model:
        """The model that was chosen."""
        return Model(self.data)

    @property
    def minimum_arena_bytes(self) -> int:
        """The smallest arena that the chosen model works in."""
        return self.found.measured.minimum_arena_bytes

    @property
    def missing_bytes(self) -> int:
        """Bytes of RAM that are missing; 0 if it fits."""
        return 0 if self.found.fits_ram else max(self.found.missing_bytes, 0)

    def write(self, folder: str | os.PathLike[str], name: str = "model", origin: str = "tflm.fit") -> list[Path]:
        """Write the model, a report and, if it fits, a firmware project for the board; returns the files.

        Args:
            folder: where they go; it is made if it is not there. The project is in its folder `firmware`.
            name: of the model and its identifiers.
            origin: what the first line of sources says they were made by.

        Raises:
            OSError: a file can't be written.
            RequestError: no project can be made: a type has no name in C++, or an operator is not TFLM's.
        """
        directory = Path(folder)
        machine = Machine(self.board.target, self.kernels, self.board, self.kernels.release)
        kind = usual_kind(machine) if self.fits else None
        files = {} if kind is None else project_files(self.model, name, machine, origin, kind, found=self.found)
        directory.mkdir(parents=True, exist_ok=True)
        model = directory / f"{name}.tflite"
        write_atomically(model, self.data)
        written = write_files(directory, {"report.md": late_import(FIT_REPORT)(self, name).markdown()})
        return [model, *written, *write_files(directory / "firmware", files)]


def fit(
    model: Model,
    *,
    board: str | Board,
    reserve: int = DEFAULT_RESERVE,
    kernels: Kernels | None = None,
    release: Releases | None = None,
    max_extra_macs: float = DEFAULT_EXTRA_MACS,
    time_limit: float | None = None,
    progress: Callable[[str], None] | None = None,
) -> Fit:
    """Make a model fit a board: try what leaves its answers unchanged, the cheapest first, until it fits.

    In order: the model as it is; a memory plan; folded operators; another operator order; in-place outputs and overlap,
    where the kernels allow it; row bands; head and tail in different memories; then the same with other kernels that
    firmware for the board can have. RAM outside the chip (PSRAM, SDRAM) is used only if nothing fits the chip's own:
    for the tail, and only then for the head.

    Args:
        model: the model.
        board: a board, or its name; see `tflm.boards.by_name`.
        reserve: bytes of RAM that the application needs beside TFLM's arena, static data and stack.
        kernels: the kernel library that the firmware has; then no other is tried. The board's usual one by default.
        release: the TFLM that the firmware has, as for `MicroInterpreter`.
        max_extra_macs: multiply-accumulates that row bands may add, as a share.
        time_limit: seconds for each search; None for limits that do not depend on the machine.
        progress: is told what is being tried.

    Raises:
        ArgumentError: there is no such board, or the library is not for its part.
        TflmError: the model can't be laid out on any board.
    """
    if reserve < 0:
        raise ArgumentError(f"reserve is {reserve}; it must be 0 or more bytes")
    where = by_name(board) if isinstance(board, str) else board
    model = with_data_inside(require_model(model))
    search = _Search(model, where, reserve, max_extra_macs, time_limit, progress or (lambda text: None))
    return search.result(search.libraries(kernels, release))


class _Search:
    """Tries one version of a model after the other, and keeps them."""

    def __init__(
        self,
        model: Model,
        board: Board,
        reserve: int,
        max_extra_macs: float,
        time_limit: float | None,
        progress: Callable[[str], None],
    ):
        self._model, self._board, self._reserve = model, board, reserve
        self._max_extra_macs, self._time_limit, self._progress = max_extra_macs, time_limit, progress
        self._candidates: list[Candidate] = []
        self._steps: list[FitStep] = []

    def libraries(self, kernels: Kernels | None, release: Releases | None) -> list[KernelLibrary]:
        """The kernel libraries to try, the usual one first."""
        usual = library_for(self._board.kernels if kernels is None else kernels, self._board.target, release)
        others = BUILDS.get(usual.name, ()) if kernels is None else ()
        return [usual, *(library_for(name, self._board.target, release) for name in others)]

    def result(self, libraries: Sequence[KernelLibrary]) -> Fit:
        """Try everything until the model fits on the chip, and choose."""
        interrupted = False
        try:
            for library in libraries:
                if self._try_all(library):
                    break
        except KeyboardInterrupt:
            if not self._candidates:
                raise
            interrupted = True
        if not self._candidates:
            raise OperatorError(f"cannot run on {self._board.name}: {self._steps[0].reason}")
        chosen = self._chosen()
        does_not_fit = not chosen.found.fits and not interrupted
        return Fit(
            board=self._board,
            kernels=chosen.library,
            data=chosen.data,
            chosen=chosen.step,
            found=chosen.found,
            original=self._original(),
            steps=tuple(self._steps),
            reserve_bytes=self._reserve,
            in_external_ram=chosen.found.fits_ram and not chosen.found.on_chip,
            interrupted=interrupted,
            boards=tuple(self._boards_that_would_do()) if does_not_fit else (),
            advice=tuple(advice(self._candidates[0].found, chosen.found)) if does_not_fit else (),
        )

    def _try_all(self, library: KernelLibrary) -> bool:
        """Try everything with a library; whether the model fits on the chip."""
        return any(self._try(library, *attempt) for attempt in self._attempts(library))

    def _attempts(self, library: KernelLibrary) -> Iterator[Attempt]:
        """What to try with a library, in order; a generator, so that it can look at what came before."""
        model = self._model
        planned = partial(plan, target=self._board.target, kernels=library)
        yield Attempt("as it is", lambda: bytes(model.data))
        if self._steps[-1].reason:
            return  # the library rejects an operator, whatever the plan
        yield Attempt("memory plan", lambda: planned(model).data)
        folded = Model(fold(model))
        if bytes(folded.data) != bytes(model.data):
            yield Attempt("folded operators", lambda: planned(folded).data)
        yield Attempt("operator order", lambda: planned(folded, reorder=True).data)
        overlap = library.name if library.overlaps is not None else None
        portable = overlap is None
        if overlap is not None:
            yield Attempt("in-place operators", lambda: planned(folded, reorder=True, in_place=True).data, portable)
            yield Attempt("overlapping tensors", lambda: planned(folded, overlap=overlap).data, portable)
        room = self._room()
        yield Attempt("row bands", lambda: self._tiled(library, overlap, room), portable)
        if self._steps[-1].name == "row bands" and (self._steps[-1].minimum_arena_bytes or 0) <= room:
            narrower = self._room()  # more operators take more static RAM and stack
            yield Attempt("narrower row bands", lambda: self._tiled(library, overlap, narrower), portable)
        for split in self._splits():
            name = f"head for {split.head.name}, tail for {split.tail.name}"
            make = partial(self._tiled_head, library, overlap, split)
            yield Attempt(name, make, portable, split)

    def _tiled(self, library: KernelLibrary, overlap: str | None, ram: int) -> bytes:
        return self._bands(library, overlap)(ram=ram).data

    def _tiled_head(self, library: KernelLibrary, overlap: str | None, split: Split) -> bytes:
        room = replace(self._candidates[-1].found, split=split).head_room
        return self._bands(library, overlap)(head_ram=max(room, 0), tail_ram=split.tail.bytes).data

    def _bands(self, library: KernelLibrary, overlap: str | None) -> Callable[..., TiledModel]:
        return partial(
            tile,
            self._model,
            target=self._board.target,
            kernels=library,
            max_extra_macs=self._max_extra_macs,
            time_limit=self._time_limit,
            overlap=overlap,
            progress=lambda state: self._progress(f"row bands, {library.name}: {state.checking or 'searching'}"),
        )

    def _splits(self) -> Iterator[Split]:
        """Banks for head and tail: the head in the chip's own RAM, the largest first; the tail there if it has room."""
        last = self._candidates[-1].found.separate
        if last is None:
            return
        by_size = sorted(self._board.on_chip_ram, key=lambda bank: -bank.bytes)
        pairs = [
            Split(head, tail)
            for head in by_size
            for tail in self._board.ram
            if tail is not head and tail.bytes >= last.tail_arena_bytes
        ]
        yield from sorted(pairs, key=lambda split: split.tail.is_external)[:MOST_SPLITS]

    def _room(self) -> int:
        """Bytes that an arena in one piece may have, in the chip's own RAM, beside what the last model takes there."""
        last = self._candidates[-1].found
        return max(last.measured.minimum_arena_bytes - last.missing_on_chip_bytes, 0)

    def _try(
        self,
        library: KernelLibrary,
        name: str,
        make: Callable[[], bytes],
        portable: bool,
        split: Split | None,
    ) -> bool:
        self._progress(f"{name}, {library.name}")
        smallest = min((c.found.measured.minimum_arena_bytes for c in self._candidates), default=None)
        try:
            data = make()
            found = board_fit(Model(data), self._board, kernels=library, reserve=self._reserve, split=split)
        except (OperatorError, UnresolvedOperator) as error:
            self._steps.append(FitStep(name, library.name, None, reason=str(error)))
            return False
        arena = found.measured.minimum_arena_bytes
        step = FitStep(
            name=name,
            kernels=library.name,
            minimum_arena_bytes=arena,
            saved_bytes=0 if smallest is None else max(smallest - arena, 0),
            extra_macs=_extra_work(self._model, Model(data)),
            extra_file_bytes=len(data) - len(self._model.data),
            needed_operators=tuple(sorted(_operators(Model(data)) - _operators(self._model))),
            memories=", ".join(f"{p.part} in {p.bank.name}" for p in found.placements if p.bank is not None),
            fits=found.fits,
        )
        self._steps.append(step)
        self._candidates.append(Candidate(step, data, library, found, portable))
        return found.fits and found.head_on_chip

    def _chosen(self) -> Candidate:
        """The first that fits the chip, then with its head, then at all; else the one with the smallest arena."""
        fitting = [c for c in self._candidates if c.found.fits]
        if fitting:
            return max(fitting, key=lambda c: (c.found.on_chip, c.found.head_on_chip))
        in_one_piece = [c for c in self._candidates if c.found.split is None]
        return min(in_one_piece, key=lambda c: c.found.measured.minimum_arena_bytes)

    def _original(self) -> BoardFit | None:
        first = self._candidates[0]
        return first.found if first.step.name == "as it is" and first.step.kernels == self._steps[0].kernels else None

    def _boards_that_would_do(self) -> Iterator[Board]:
        """The boards with the least RAM of their own that a version of the model fits, with their usual kernels."""
        self._progress("other boards")
        portable = [c for c in self._candidates if c.portable]
        smallest = min(portable, key=lambda c: c.found.measured.minimum_arena_bytes)
        by_ram = sorted(boards().values(), key=lambda board: sum(bank.bytes for bank in board.on_chip_ram))
        fitting = (
            found.board
            for found in fits_of(Model(smallest.data), by_ram, reserve=self._reserve)
            if not isinstance(found, BoardRefusal) and found.fits and found.on_chip
        )
        yield from itertools.islice(fitting, SUGGESTED_BOARDS)


def advice(original: BoardFit, smallest: BoardFit) -> Iterator[str]:
    """What would make a model smaller that only its author can change, with figures."""
    if not smallest.fits_flash:
        over = smallest.model_bytes - (smallest.board.flash_bytes or 0)
        yield f"the file needs {over:,} B less, or more flash"
    if smallest.fits_ram:
        return
    measured, peak = original.measured, original.measured.peak
    if peak is None or not peak.buffers:
        return
    float_bytes = sum(buffer.bytes for buffer in peak.buffers if buffer.type is TensorType.FLOAT32)
    if float_bytes:
        int8 = measured.minimum_arena_bytes - float_bytes * 3 // 4
        yield f"as int8 the model would need about {int8:,} B, and a quarter of the flash for its weights"
    largest = max(peak.buffers, key=lambda buffer: buffer.bytes)
    yield (
        f"memory peaks at operator {peak.operator_index} {peak.operator} with {peak.bytes:,} B: halving the "
        f"channels of {shortened(largest.name, LONGEST_NAME)!r} saves {largest.bytes // 2:,} B there"
    )


def _extra_work(before: Model, after: Model) -> float:
    return _macs(after) / max(_macs(before), 1) - 1 if _macs(before) else 0.0


def _macs(model: Model) -> int:
    main = model.subgraphs[0]
    return sum(multiply_accumulates(model, main, operator) for operator in main.operators or ())


def _operators(model: Model) -> set[str]:
    return {model.operator_name(operator) for subgraph in model.subgraphs for operator in subgraph.operators or ()}
