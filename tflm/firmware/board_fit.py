"""Check whether a model fits a board: its arena in the RAM banks, in one piece or two, and its firmware in the flash.

Everything that is known counts: the arena, the file, code, static RAM and stack of TFLM, and what the board's SDK takes
and leaves. Sizes that were not measured are ranges: a model fits if it does so with the largest, and does not fit if it
does not with the smallest.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from tflm.boards import Bank, Board
from tflm.boards.sdks import NOTHING, Span
from tflm.errors import FirmwareError, OperatorError, UnresolvedOperator
from tflm.firmware.flash import flash, operators_of
from tflm.libraries import KernelLibrary, Kernels
from tflm.releases import Release, Releases
from tflm.report import json_property
from tflm.runtime.micro_allocator import Planner
from tflm.runtime.micro_measurement import SeparateArenas, measure_arena, measure_separate_arenas
from tflm.runtime.micro_measurement_report import ArenaMeasurement
from tflm.runtime.micro_op_resolver import AllOpsResolver
from tflm.schema.model import Model

if TYPE_CHECKING:
    from tflm.firmware.flash import FlashRange


class Answer(Enum):
    """Whether a model fits a board."""

    YES = "yes"
    NO = "no"
    UNKNOWN = "not known"


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
        static_bytes: its initialized and zeroed data; at most, if they were not measured for the part and the kernels.
        stack_bytes: an upper bound of the stack, without interrupts.
        reserve_bytes: RAM reserved for the application.
        unsure_bytes: how much less static data and stack may be, if they were not measured.
    """

    static_bytes: int
    stack_bytes: int
    reserve_bytes: int = 0
    unsure_bytes: int = 0

    @property
    def bytes(self) -> int:
        """An upper bound of the sum."""
        return self.static_bytes + self.stack_bytes + self.reserve_bytes


class Split(NamedTuple):
    """Separate banks of head and tail."""

    head: Bank
    tail: Bank


class Room(NamedTuple):
    """The memories for the pieces of a firmware, in the best or the worst case.

    Attributes:
        banks: the memories, the fastest first.
        other_bytes: bytes of everything but the arena.
        other_banks: the memories that these bytes can be in.
    """

    banks: tuple[Bank, ...]
    other_bytes: int
    other_banks: tuple[Bank, ...]

    def place(self, pieces: Sequence[int], separate: int = 0) -> list[Bank] | None:
        """The memories of pieces and of everything else; None if they do not fit."""
        return banks_for([*pieces, self.other_bytes], self.banks, separate, self.other_banks)

    def bank(self, named: Bank) -> Bank:
        """Return this room's memory with the name of another memory; that memory itself if there is none."""
        return next((bank for bank in self.banks if bank.name == named.name), named)

    def bank_for_others(self, split: Split, tail_bytes: int) -> Bank | None:
        """The memory for everything but the arena, if the head's is not needed for it."""
        for bank in self.other_banks:
            taken = tail_bytes if bank == self.bank(split.tail) else 0
            if bank != self.bank(split.head) and bank.bytes - taken >= self.other_bytes:
                return bank
        return None


@dataclass(frozen=True)
class BoardFit:
    """How a model fits a board.

    Attributes:
        board: the board.
        measured: the model's arena on its part, with the kernel library.
        separate: the arenas with head and tail in separate memories; None on a board with one bank.
        model_bytes: size of the model file, which counts against the flash.
        firmware_ram: static RAM and stack of TFLM, and the reserve.
        split: the required banks of head and tail; None to place them wherever they fit.
        spread: where a plan of several memories puts the arena, first, and other buffers; None without such a plan.
        code: flash of TFLM and its kernels.
        unmeasured: operators whose code was not measured; it is estimated.
    """

    board: Board
    measured: ArenaMeasurement
    separate: SeparateArenas | None
    model_bytes: int
    firmware_ram: FirmwareRam = FirmwareRam(0, 0)
    split: Split | None = None
    code: Span = NOTHING
    unmeasured: tuple[str, ...] = ()
    spread: tuple[Placement, ...] | None = None

    @property
    def answer(self) -> Answer:
        """Whether arena, firmware and SDK certainly fit, certainly do not fit, or may fit."""
        if self.fits:
            return Answer.YES
        return Answer.UNKNOWN if self.may_fit_ram and self.may_fit_flash else Answer.NO

    @property
    def fits(self) -> bool:
        """Whether arena, firmware and SDK fit RAM and flash in any case."""
        return self.fits_ram and self.fits_flash

    @property
    def fits_ram(self) -> bool:
        """Whether the arena, static RAM and stack, and what the SDK takes, fit the RAM in any case."""
        return self._placed[2]

    @property
    def may_fit_ram(self) -> bool:
        """Whether they fit the RAM in some case."""
        return self._placed_in(self._best)[2]

    @property
    def fits_flash(self) -> bool:
        """Whether model, code and SDK fit the flash in any case; true if the flash is unknown."""
        return self.missing_flash.high <= 0

    @property
    def may_fit_flash(self) -> bool:
        """Whether they fit the flash in some case."""
        return self.missing_flash.low <= 0

    @property
    def flash_taken(self) -> Span:
        """Flash of the model, of TFLM and its kernels, and of the SDK."""
        return self.program_code.plus(Span(self.model_bytes, self.model_bytes))

    @property
    def program_code(self) -> Span:
        """Code of TFLM, its kernels and the SDK."""
        share = self.board.share
        return self.code if share is None else self.code.plus(share.code)

    @property
    def flash_available(self) -> Span | None:
        """Flash that the SDK leaves to program and model; None if the flash is unknown."""
        program, share = self.board.program, self.board.share
        if program is None or share is None or share.constants_bytes is None:
            return program
        limit = share.constants_bytes + self.program_code.low  # a larger model cannot be linked
        return Span(min(program.low, limit), min(program.high, limit))

    @property
    def missing_flash(self) -> Span:
        """Bytes that the flash lacks; negative for bytes that are left, 0 if the flash is unknown."""
        available, taken = self.flash_available, self.flash_taken
        return NOTHING if available is None else Span(taken.low - available.high, taken.high - available.low)

    @property
    def separate_stack_bytes(self) -> int:
        """Bytes of the stack that are in a memory that the SDK has for it alone."""
        share = self.board.share
        return 0 if share is None else min(share.stack_bytes, self.firmware_ram.stack_bytes)

    @property
    def reserve_bytes(self) -> int:
        """RAM reserved for the application."""
        return self.firmware_ram.reserve_bytes

    @property
    def other_ram(self) -> Span:
        """RAM besides the arena: static RAM, stack, reserve, the SDK's RAM, and code that is copied to the RAM."""
        ram, share = self.firmware_ram, self.board.share
        if share is None:
            return Span(ram.bytes - ram.unsure_bytes, ram.bytes)
        high = ram.bytes - self.separate_stack_bytes
        taken = Span(max(high - ram.unsure_bytes, 0), high).plus(share.ram)
        return taken.plus(self.program_code) if share.code_in_ram else taken

    @property
    def ram_share(self) -> float:
        """The arena's share of the board's RAM."""
        return self.measured.minimum_arena_bytes / sum(bank.bytes for bank in self.board.ram)

    @property
    def flash_share(self) -> float | None:
        """The model's share of the flash; None if the flash is unknown."""
        return self.model_bytes / self.board.flash_bytes if self.board.flash_bytes else None

    @property
    def placements(self) -> tuple[Placement, ...]:
        """The arena's placement: in one piece in the fastest bank that holds it, otherwise head and tail separately.

        The head gets the faster bank, because operators work in it. Static RAM and stack are placed in the arena's bank
        or in another one. A piece that does not fit has no bank. Banks are as large as the SDK leaves them.
        """
        return self._placed[0]

    @property
    def firmware_bank(self) -> Bank | None:
        """The bank of static RAM and stack, if there are any and everything fits."""
        return self._placed[1]

    @property
    def on_heap(self) -> tuple[Placement, ...]:
        """The pieces that are too large for a static array, but not for the heap."""
        return tuple(each for each in self.placements if self._is_on_heap(each))

    def _is_on_heap(self, placement: Placement) -> bool:
        if placement.bank is None:
            return False
        others = self.other_ram.high if placement.bank == self.firmware_bank else 0
        bank = next((bank for bank in self.board.ram if bank.name == placement.bank.name), placement.bank)
        return placement.bytes + others > self.board.static_bytes(bank)

    @property
    def missing_bytes(self) -> int:
        """Bytes that the largest bank lacks for the arena, including everything else if that fits no other bank.

        For separate banks of head and tail, the sum of what both lack.
        """
        if self.split is not None:
            return sum(size for _, size in self.missing)
        return self._missing_in(self.board.memories)

    @property
    def missing(self) -> list[tuple[Bank, int]]:
        """The banks that are too small, each with the bytes that it lacks; empty if everything fits."""
        if self.fits_ram:
            return []
        if self.split is None or self.separate is None:
            return [(max(self.board.memories, key=lambda bank: bank.bytes), self.missing_bytes)]
        over_head = self.separate.head_arena_bytes - self.head_room
        over_tail = self.separate.tail_arena_bytes - self.split.tail.bytes
        return [(bank, size) for bank, size in zip(self.split, (over_head, over_tail)) if size > 0]

    @property
    def head_room(self) -> int:
        """Bytes of its bank that the head may use: all, or what static RAM and stack leave if they fit no other
        bank."""
        assert self.split is not None
        return self._head_room(self._worst, self.split)

    @property
    def missing_on_chip_bytes(self) -> int:
        """`missing_bytes` without RAM outside the chip."""
        return self._missing_in([bank for bank in self.board.memories if not bank.is_external])

    def _missing_in(self, banks: Sequence[Bank]) -> int:
        largest = max(banks, key=lambda bank: bank.bytes)
        others = self.other_ram.high
        fit_elsewhere = any(bank.bytes >= others for bank in self.board.sdk_banks if bank != largest and bank in banks)
        return self.measured.minimum_arena_bytes + (0 if fit_elsewhere else others) - largest.bytes

    @property
    def on_chip(self) -> bool:
        """Whether every placed piece of the arena is in the chip's own RAM."""
        return not any(placement.bank.is_external for placement in self.placements if placement.bank is not None)

    @property
    def head_on_chip(self) -> bool:
        """Whether the arena, or the head if separate, is in the chip's own RAM."""
        bank = self.placements[0].bank
        return self.on_chip if self.spread is not None else bank is not None and not bank.is_external

    @property
    def memory_share(self) -> float:
        """The arena's share of its banks, or of the largest bank if it does not fit."""
        banks = [placement.bank for placement in self.placements if placement.bank is not None]
        largest = max(bank.bytes for bank in self.board.memories)
        taken = sum(placement.bytes for placement in self.placements)
        return taken / (sum(bank.bytes for bank in banks) or largest)

    @property
    def _worst(self) -> Room:
        return Room(self.board.memories, self.other_ram.high, self.board.sdk_banks)

    @property
    def _best(self) -> Room:
        banks = self.board.memories_at_best
        names = {bank.name for bank in self.board.sdk_banks}
        return Room(banks, self.other_ram.low, tuple(bank for bank in banks if bank.name in names))

    @cached_property
    def _placed(self) -> tuple[tuple[Placement, ...], Bank | None, bool]:
        return self._placed_in(self._worst)

    def _placed_in(self, room: Room) -> tuple[tuple[Placement, ...], Bank | None, bool]:
        """The pieces of the arena, the bank of everything else, and whether everything fits."""
        if self.spread is not None:
            return self._placed_spread(room, self.spread)
        if self.split is not None:
            return self._placed_separately(room, self.split)
        has_others = self.other_ram.high > 0
        needed = self.measured.minimum_arena_bytes
        banks = room.place([needed])
        if banks is not None:
            return (Placement("arena", needed, banks[0]),), (banks[1] if has_others else None), True
        if self.separate is not None:
            pieces = self.separate.head_arena_bytes, self.separate.tail_arena_bytes
            banks = room.place(pieces, separate=2)
            if banks is not None:
                parts = tuple(Placement(*each) for each in zip(("head", "tail"), pieces, banks))
                return parts, (banks[2] if has_others else None), True
        return (Placement("arena", needed, None),), None, False

    def _placed_spread(
        self, room: Room, spread: tuple[Placement, ...]
    ) -> tuple[tuple[Placement, ...], Bank | None, bool]:
        """Leave the pieces in their banks, and place static RAM and stack in a bank that has enough space left."""
        left = {bank.name: bank.bytes for bank in room.banks}
        for piece in spread:
            if piece.bank is not None:
                left[piece.bank.name] -= piece.bytes
        bank_of_others = next((bank for bank in room.other_banks if left[bank.name] >= room.other_bytes), None)
        fits = min(left.values()) >= 0 and (bank_of_others is not None or room.other_bytes <= 0)
        return spread, bank_of_others if self.other_ram.high > 0 else None, fits

    def _placed_separately(self, room: Room, split: Split) -> tuple[tuple[Placement, ...], Bank | None, bool]:
        """Place head and tail in these banks, static RAM and stack in another one, or else with the head."""
        assert self.separate is not None
        head, tail = self.separate.head_arena_bytes, self.separate.tail_arena_bytes
        placements = (
            Placement("head", head, split.head if head <= self._head_room(room, split) else None),
            Placement("tail", tail, split.tail if tail <= room.bank(split.tail).bytes else None),
        )
        fits = all(placement.bank is not None for placement in placements)
        bank_of_others = (room.bank_for_others(split, tail) or split.head) if fits and self.other_ram.high > 0 else None
        return placements, bank_of_others, fits

    def _head_room(self, room: Room, split: Split) -> int:
        assert self.separate is not None
        elsewhere = room.bank_for_others(split, self.separate.tail_arena_bytes)
        return room.bank(split.head).bytes - (0 if elsewhere else room.other_bytes)


@dataclass(frozen=True)
class BoardRefusal:
    """A board whose usual firmware cannot run the model, regardless of memory.

    Attributes:
        board: the board.
        reason: the part of the model that it rejects.
    """

    board: Board
    reason: str


def banks_for(
    pieces: Sequence[int], banks: Sequence[Bank], separate: int = 0, for_last: Sequence[Bank] | None = None
) -> list[Bank] | None:
    """Place pieces in banks, the first piece in the fastest possible one; None if they do not all fit.

    Args:
        pieces: their sizes; the first `separate` pieces need different banks, all others may share one.
        for_last: the banks that the last piece can be in; all by default.
    """

    def place(rest: Sequence[int], placed: list[Bank]) -> list[Bank] | None:
        if not rest:
            return placed
        for bank in banks if for_last is None or len(rest) > 1 else for_last:
            taken = sum(size for size, other in zip(pieces, placed) if other == bank)
            is_taken = len(placed) < separate and bank in placed
            if not is_taken and taken + rest[0] <= bank.bytes and (found := place(rest[1:], [*placed, bank])):
                return found
        return None

    return place(pieces, [])


def _flash_range(operators: Iterable[str], board: Board, library: KernelLibrary) -> FlashRange:
    from tflm.firmware.flash import flash_range  # reads the tables of flash

    return flash_range(operators, board.target, library)


def firmware_ram(
    model: Model, board: Board, library: KernelLibrary, reserve: int, more_operators: Iterable[str] = ()
) -> FirmwareRam:
    """Return TFLM's static RAM and stack with a model's operators and some more; at most, if they were not measured."""
    found = _flash_range([*operators_of(model), *more_operators], board, library)
    unsure = found.static.high - found.static.low + found.stack.high - found.stack.low
    return FirmwareRam(found.static.high, found.stack.high, reserve, unsure)


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
        planner: as for `MicroInterpreter`.
        release: the TFLM of the firmware; by default the one that projects for the board's SDK pin.
        reserve: bytes of RAM reserved for the application.
        split: the required banks of head and tail.

    Raises:
        ArgumentError: the kernel library is not for the board's part.
        TflmError: the model cannot be allocated in an arena of any size.
    """
    library = board.library(kernels, release)
    built = model, AllOpsResolver()
    measured = measure_arena(*built, target=board.target, kernels=library, planner=planner)
    separate = None
    if len(board.ram) > 1 or split is not None:
        separate = measure_separate_arenas(*built, target=board.target, kernels=library, planner=planner)
    ram = firmware_ram(model, board, library, reserve)
    found = _flash_range(operators_of(model), board, library)
    return BoardFit(board, measured, separate, len(model.data), ram, split, found.code, found.unmeasured)


def combined(fits: Sequence[BoardFit], models: Sequence[Model], arena_bytes: int) -> BoardFit:
    """The fit of a firmware with several models that share an arena, from the fit of each on the same board."""
    first = fits[0]
    if len(fits) == 1:
        return first
    library = first.measured.kernels
    operators = dict.fromkeys(name for model in models for name in operators_of(model))
    found = _flash_range(operators, first.board, library)
    ram = firmware_ram(models[0], first.board, library, first.reserve_bytes, operators)
    return replace(
        first,
        measured=replace(first.measured, minimum_arena_bytes=arena_bytes),
        separate=None,
        model_bytes=sum(fit.model_bytes for fit in fits),
        firmware_ram=ram,
        code=found.code,
        unmeasured=found.unmeasured,
    )


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
    known: dict[tuple[str, str, Release, bool], BoardFit | BoardRefusal] = {}
    for board in boards:
        library = board.library(kernels, release)
        built = board.target.name, library.name, library.release, len(board.ram) > 1
        if built not in known:
            try:
                known[built] = board_fit(model, board, kernels=library, planner=planner, reserve=reserve)
            except (OperatorError, UnresolvedOperator) as error:
                known[built] = BoardRefusal(board, str(error))
        yield replace(known[built], board=board)


@dataclass(frozen=True)
class BoardBudget:
    """Flash and RAM that a model and a release build of TFLM take on a board, without the board's SDK.

    Attributes:
        board: name of the board.
        model_bytes: size of the model file.
        program_range_bytes: lowest and highest size of TFLM and its kernels; equal if measured, None if unknown for
            these kernels.
        flash_available_bytes: the board's flash; None if unknown.
        arena_bytes: the smallest arena.
        static_ram_bytes: TFLM's static RAM besides the arena; None if not measured.
        stack_bytes: upper bound of the stack, without interrupts; None if unknown.
        ram_available_bytes: the board's RAM, all banks.
        note: the source of the figures, or why there are none.
    """

    board: str
    model_bytes: int
    program_range_bytes: tuple[int, int] | None
    flash_available_bytes: int | None
    arena_bytes: int
    static_ram_bytes: int | None
    stack_bytes: int | None
    ram_available_bytes: int
    note: str

    @json_property
    def flash_left_bytes(self) -> int | None:
        """Lowest flash left for the application; negative if it does not fit, None if unknown."""
        if self.program_range_bytes is None or self.flash_available_bytes is None:
            return None
        return self.flash_available_bytes - self.model_bytes - self.program_range_bytes[1]

    @json_property
    def ram_left_bytes(self) -> int | None:
        """RAM left for the application after arena, static RAM and, if known, the stack."""
        if self.static_ram_bytes is None:
            return None
        return self.ram_available_bytes - self.arena_bytes - self.static_ram_bytes - (self.stack_bytes or 0)


def board_budget(model: Model, fit: BoardFit) -> BoardBudget:
    """The budget of a model on a board, from its measured arena."""
    board = fit.board
    ram = sum(bank.bytes for bank in board.ram)
    arena = fit.measured.minimum_arena_bytes
    try:
        found = flash(model, target=board.target, kernels=fit.measured.kernels)
    except FirmwareError as error:
        note = f"unknown: {error}"
        return BoardBudget(board.name, fit.model_bytes, None, board.flash_bytes, arena, None, None, ram, note)
    measured = found.data_bytes is not None and found.bss_bytes is not None
    return BoardBudget(
        board=board.name,
        model_bytes=found.model_bytes,
        program_range_bytes=found.flash_range_bytes,
        flash_available_bytes=board.flash_bytes,
        arena_bytes=arena,
        static_ram_bytes=(found.data_bytes or 0) + (found.bss_bytes or 0) if measured else None,
        stack_bytes=found.stack_bytes,
        ram_available_bytes=ram,
        note=found.note,
    )
