"""Check whether a model fits a board: its arena in the RAM banks, in one piece or two, and its file in the flash.

TFLM's static RAM and stack are counted as well if they were measured for the part and the kernels.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from tflm.boards import Bank, Board
from tflm.errors import FirmwareError, OperatorError, UnresolvedOperator
from tflm.firmware.flash import flash
from tflm.firmware.resolver_methods import operators_of, resolver_method
from tflm.libraries import KernelLibrary, Kernels, library_for
from tflm.releases import Releases
from tflm.runtime.micro_allocator import Planner
from tflm.runtime.micro_measurement import SeparateArenas, measure_arena, measure_separate_arenas
from tflm.runtime.micro_measurement_report import ArenaMeasurement
from tflm.runtime.micro_op_resolver import AllOpsResolver
from tflm.schema.model import Model
from tflm.schema.tables import Operator
from tflm.targets import Target


@dataclass(frozen=True)
class Placement:
    """A piece of the arena in a bank.

    Attributes:
        part: "arena", or "head" and "tail" if they are in separate memories.
        bytes: the smallest size of the piece.
        bank: the fastest bank that it fits; None if it fits none.
    """

    part: str
    bytes: int
    bank: Bank | None


@dataclass(frozen=True)
class FirmwareRam:
    """RAM that TFLM's release build takes besides the arena.

    Attributes:
        static_bytes: its initialized and zeroed data.
        stack_bytes: an upper bound of the stack, without interrupts; 0 if unknown.
        reserve_bytes: RAM reserved for the application.
    """

    static_bytes: int
    stack_bytes: int
    reserve_bytes: int = 0

    @property
    def bytes(self) -> int:
        """The sum."""
        return self.static_bytes + self.stack_bytes + self.reserve_bytes


class Split(NamedTuple):
    """Separate banks of head and tail."""

    head: Bank
    tail: Bank


@dataclass(frozen=True)
class BoardFit:
    """How a model fits a board.

    Attributes:
        board: the board.
        measured: the model's arena on its part, with the kernel library.
        separate: the arenas with head and tail in separate memories; None on a board with one bank.
        model_bytes: size of the model file, which counts against the flash.
        firmware_ram: static RAM and stack; None if they were not measured for the part and the kernels.
        split: the required banks of head and tail; None to place them wherever they fit.
    """

    board: Board
    measured: ArenaMeasurement
    separate: SeparateArenas | None
    model_bytes: int
    firmware_ram: FirmwareRam | None = None
    split: Split | None = None

    @property
    def ram_share(self) -> float:
        """The arena's share of the board's RAM."""
        return self.measured.minimum_arena_bytes / sum(bank.bytes for bank in self.board.ram)

    @property
    def flash_share(self) -> float:
        """The model's share of the flash; 0 if the flash is unknown."""
        return self.model_bytes / self.board.flash_bytes if self.board.flash_bytes else 0.0

    @property
    def placements(self) -> tuple[Placement, ...]:
        """The arena's placement: in one piece in the fastest bank that holds it, otherwise head and tail separately.

        The head gets the faster bank, because operators work in it. Static RAM and stack are placed in the arena's bank
        or in another one. A piece that does not fit has no bank.
        """
        return self._placed[0]

    @property
    def firmware_bank(self) -> Bank | None:
        """The bank of static RAM and stack, if they are known and everything fits."""
        return self._placed[1]

    @property
    def missing_bytes(self) -> int:
        """Bytes that the largest bank lacks for the arena, including static RAM and stack if they fit no other bank.

        For separate banks of head and tail, the sum of what both lack.
        """
        if self.split is not None:
            return sum(size for _, size in self.missing)
        return self._missing_in(self.board.ram)

    @property
    def missing(self) -> list[tuple[Bank, int]]:
        """The banks that are too small, each with the bytes that it lacks; empty if everything fits."""
        if self.fits_ram:
            return []
        if self.split is None or self.separate is None:
            return [(max(self.board.ram, key=lambda bank: bank.bytes), self.missing_bytes)]
        over_head = self.separate.head_arena_bytes - self.head_room
        over_tail = self.separate.tail_arena_bytes - self.split.tail.bytes
        return [(bank, size) for bank, size in zip(self.split, (over_head, over_tail)) if size > 0]

    @property
    def head_room(self) -> int:
        """Bytes of its bank that the head may use: all, or what static RAM and stack leave if they fit no other
        bank.
        """
        assert self.split is not None
        beside = self._firmware_bytes
        return self.split.head.bytes - (0 if self._bank_beside_head else beside)

    @property
    def _firmware_bytes(self) -> int:
        return 0 if self.firmware_ram is None else self.firmware_ram.bytes

    @property
    def _bank_beside_head(self) -> Bank | None:
        """The bank for static RAM and stack that is not the head's."""
        assert self.split is not None
        assert self.separate is not None
        for bank in self.board.ram:
            taken = self.separate.tail_arena_bytes if bank == self.split.tail else 0
            if bank != self.split.head and bank.bytes - taken >= self._firmware_bytes:
                return bank
        return None

    @property
    def missing_on_chip_bytes(self) -> int:
        """`missing_bytes` without RAM outside the chip."""
        return self._missing_in(self.board.on_chip_ram)

    def _missing_in(self, banks: Sequence[Bank]) -> int:
        largest = max(banks, key=lambda bank: bank.bytes)
        beside = self._firmware_bytes
        others = any(bank.bytes >= beside for bank in banks if bank is not largest)
        return self.measured.minimum_arena_bytes + (0 if others else beside) - largest.bytes

    @property
    def on_chip(self) -> bool:
        """Whether every placed piece of the arena is in the chip's own RAM."""
        return not any(placement.bank.is_external for placement in self.placements if placement.bank is not None)

    @property
    def head_on_chip(self) -> bool:
        """Whether the arena, or the head if separate, is in the chip's own RAM."""
        bank = self.placements[0].bank
        return bank is not None and not bank.is_external

    @property
    def _placed(self) -> tuple[tuple[Placement, ...], Bank | None]:
        if self.split is not None:
            return self._placed_in(self.split)
        needed = self.measured.minimum_arena_bytes
        beside = [] if self.firmware_ram is None else [self.firmware_ram.bytes]
        banks = banks_for([needed, *beside], self.board.ram)
        if banks is not None:
            return (Placement("arena", needed, banks[0]),), (banks[1] if beside else None)
        if self.separate is not None:
            pieces = self.separate.head_arena_bytes, self.separate.tail_arena_bytes
            banks = banks_for([*pieces, *beside], self.board.ram, apart=2)
            if banks is not None:
                parts = tuple(Placement(*each) for each in zip(("head", "tail"), pieces, banks))
                return parts, (banks[2] if beside else None)
        return (Placement("arena", needed, None),), None

    def _placed_in(self, split: Split) -> tuple[tuple[Placement, ...], Bank | None]:
        """Place head and tail in these banks, static RAM and stack in another one, or else with the head."""
        assert self.separate is not None
        head, tail = self.separate.head_arena_bytes, self.separate.tail_arena_bytes
        placements = (
            Placement("head", head, split.head if head <= self.head_room else None),
            Placement("tail", tail, split.tail if tail <= split.tail.bytes else None),
        )
        fits = all(placement.bank is not None for placement in placements)
        beside = (self._bank_beside_head or split.head) if fits and self.firmware_ram is not None else None
        return placements, beside

    @property
    def memory_share(self) -> float:
        """The arena's share of its banks, or of the largest bank if it does not fit."""
        banks = [placement.bank for placement in self.placements if placement.bank is not None]
        largest = max(bank.bytes for bank in self.board.ram)
        taken = sum(placement.bytes for placement in self.placements)
        return taken / (sum(bank.bytes for bank in banks) or largest)

    @property
    def fits_ram(self) -> bool:
        """Whether the arena, and static RAM and stack if they are known, fit the RAM."""
        return all(placement.bank is not None for placement in self.placements)

    @property
    def fits_flash(self) -> bool:
        """Whether the model's file fits the flash; true if the flash is unknown."""
        return self.board.flash_bytes is None or self.model_bytes <= self.board.flash_bytes

    @property
    def fits(self) -> bool:
        """Whether arena and file both fit."""
        return self.fits_ram and self.fits_flash


@dataclass(frozen=True)
class BoardRefusal:
    """A board whose usual firmware cannot run the model, regardless of memory.

    Attributes:
        board: the board.
        reason: what it rejects.
    """

    board: Board
    reason: str


@dataclass(frozen=True)
class KernelsRefusal:
    """A kernel library that cannot run the model on a part, regardless of the arena.

    Attributes:
        kernels: the library.
        reason: the operators that it lacks, or what it rejects.
    """

    kernels: KernelLibrary
    reason: str


def banks_for(pieces: Sequence[int], banks: Sequence[Bank], apart: int = 0) -> list[Bank] | None:
    """Place pieces in banks, the first piece in the fastest possible one; None if they do not all fit.

    Args:
        pieces: their sizes; the first `apart` pieces need different banks, all others may share one.
    """

    def place(rest: Sequence[int], placed: list[Bank]) -> list[Bank] | None:
        if not rest:
            return placed
        for bank in banks:
            taken = sum(size for size, other in zip(pieces, placed) if other is bank)
            is_apart = len(placed) < apart and bank in placed
            if not is_apart and taken + rest[0] <= bank.bytes and (found := place(rest[1:], [*placed, bank])):
                return found
        return None

    return place(pieces, [])


def firmware_ram(
    model: Model, board: Board, library: KernelLibrary, more_operators: Iterable[str] = ()
) -> FirmwareRam | None:
    """Return TFLM's static RAM and stack with a model's operators and some more; None if they were not measured.

    A library's usual build stands for its other builds, such as the one for size.
    """
    usual_build = library.name.partition(":")[0]
    names = dict.fromkeys([*operators_of(model), *more_operators])
    try:
        found = flash(
            operators=map(resolver_method, names),
            target=board.target,
            kernels=usual_build if ":" in library.name else library,
        )
    except FirmwareError:
        return None
    if found.data_bytes is None or found.bss_bytes is None:
        return None
    return FirmwareRam(found.data_bytes + found.bss_bytes, found.stack_bytes or 0)


def board_fit(
    model: Model,
    board: Board,
    *,
    kernels: Kernels | None = None,
    planner: Planner = "greedy",
    release: Releases | None = None,
    reserve: int = 0,
    split: Split | None = None,
) -> BoardFit:
    """Check how a model fits a board.

    Args:
        kernels: the kernel library; by default the board's usual one.
        planner, release: as for `MicroInterpreter`.
        reserve: bytes of RAM reserved for the application.
        split: the required banks of head and tail.

    Raises:
        ArgumentError: the kernel library is not for the board's part.
        TflmError: the model cannot be allocated in an arena of any size.
    """
    library = library_for(board.kernels if kernels is None else kernels, board.target, release)
    built = model, AllOpsResolver()
    measured = measure_arena(*built, target=board.target, kernels=library, planner=planner)
    separate = None
    if len(board.ram) > 1 or split is not None:
        separate = measure_separate_arenas(*built, target=board.target, kernels=library, planner=planner)
    beside = firmware_ram(model, board, library)
    if reserve:
        beside = replace(beside or FirmwareRam(0, 0), reserve_bytes=reserve)
    return BoardFit(board, measured, separate, len(model.data), beside, split)


def fits_of(
    model: Model,
    boards: Iterable[Board],
    *,
    kernels: Kernels | None = None,
    planner: Planner = "greedy",
    release: Releases | None = None,
    reserve: int = 0,
) -> Iterator[BoardFit | BoardRefusal]:
    """Check how a model fits each board, or why it cannot run on it.

    The model is measured once for each part and kernel library. The arguments are those of `board_fit`.

    Raises:
        ArgumentError: the kernel library is not for the part of one of the boards.
    """
    known: dict[tuple[str, str, bool], BoardFit | BoardRefusal] = {}
    for board in boards:
        library = library_for(board.kernels if kernels is None else kernels, board.target, release)
        built = board.target.name, library.name, len(board.ram) > 1
        if built not in known:
            try:
                known[built] = board_fit(model, board, kernels=library, planner=planner, reserve=reserve)
            except (OperatorError, UnresolvedOperator) as error:
                known[built] = BoardRefusal(board, str(error))
        yield replace(known[built], board=board)


def arena_with(
    model: Model, target: Target, library: KernelLibrary, *, planner: Planner = "greedy"
) -> ArenaMeasurement | KernelsRefusal:
    """Measure a model with a kernel library, or return why the library cannot run it.

    Raises:
        TflmError: no library can run the model.
    """
    lacking = library.lacking(map(model.operator_name, _operators(model)))
    if lacking:
        return KernelsRefusal(library, f"lacks {', '.join(lacking)}")
    try:
        return measure_arena(model, AllOpsResolver(), target=target, kernels=library, planner=planner)
    except OperatorError as error:
        return KernelsRefusal(library, str(error))


def _operators(model: Model) -> Iterator[Operator]:
    for subgraph in model.subgraphs:
        yield from subgraph.operators or ()
