"""Whether a model fits a board: its arena in the banks of RAM, in one piece or in two, and its file in the flash.

Beside the arena, static RAM and stack of TFLM take RAM, where they were measured for the part and the kernels.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from tflm.boards import Bank, Board
from tflm.errors import FirmwareError, OperatorError, UnresolvedOperator
from tflm.firmware.flash import flash
from tflm.libraries import KernelLibrary, Kernels, library_for
from tflm.releases import Releases
from tflm.runtime.micro_allocator import Planner
from tflm.runtime.micro_measurement import ArenaMeasurement, SeparateArenas, measure_arena, measure_separate_arenas
from tflm.runtime.micro_op_resolver import AllOpsResolver
from tflm.schema.model import Model
from tflm.schema.tables import Operator
from tflm.targets import Target


@dataclass(frozen=True)
class Placement:
    """A piece of the arena in a bank.

    Attributes:
        part: "arena", or "head" and "tail" where each has a memory of its own.
        bytes: the smallest size of the piece.
        bank: the fastest bank that it fits; None where there is none.
    """

    part: str
    bytes: int
    bank: Bank | None


@dataclass(frozen=True)
class FirmwareRam:
    """What TFLM takes of RAM beside the arena, in its release build.

    Attributes:
        static_bytes: its initialized and zeroed data.
        stack_bytes: a bound of the stack, without interrupts; 0 where there is none.
    """

    static_bytes: int
    stack_bytes: int

    @property
    def bytes(self) -> int:
        """Both together."""
        return self.static_bytes + self.stack_bytes


@dataclass(frozen=True)
class BoardFit:
    """What a model takes of a board.

    Attributes:
        board: the board.
        measured: the model's arena on its part, with the kernel library.
        separate: the arenas where head and tail have a memory of their own; None on a board with one bank.
        model_bytes: of the model's file, which counts against the flash.
        firmware_ram: static RAM and stack; None where they were not measured for the part and the kernels.
    """

    board: Board
    measured: ArenaMeasurement
    separate: SeparateArenas | None
    model_bytes: int
    firmware_ram: FirmwareRam | None = None

    @property
    def ram_share(self) -> float:
        """The arena's share of all RAM of the board."""
        return self.measured.minimum_arena_bytes / sum(bank.bytes for bank in self.board.ram)

    @property
    def flash_share(self) -> float:
        """The model's share of the flash; 0 where that is not known."""
        return self.model_bytes / self.board.flash_bytes if self.board.flash_bytes else 0.0

    @property
    def placements(self) -> tuple[Placement, ...]:
        """Where the arena goes: in one piece to the fastest bank that holds it; else head and tail apart.

        The head has the faster bank, for operators work in it. Static RAM and stack have room beside the arena, or in
        another bank. What does not fit has no bank.
        """
        return self._placed[0]

    @property
    def firmware_bank(self) -> Bank | None:
        """The bank of static RAM and stack, where they are known and everything fits."""
        return self._placed[1]

    @property
    def missing_bytes(self) -> int:
        """Bytes that the largest bank lacks for the arena, with static RAM and stack where no other has room."""
        largest = max(self.board.ram, key=lambda bank: bank.bytes)
        beside = 0 if self.firmware_ram is None else self.firmware_ram.bytes
        others = any(bank.bytes >= beside for bank in self.board.ram if bank is not largest)
        return self.measured.minimum_arena_bytes + (0 if others else beside) - largest.bytes

    @property
    def _placed(self) -> tuple[tuple[Placement, ...], Bank | None]:
        needed = self.measured.minimum_arena_bytes
        beside = [] if self.firmware_ram is None else [self.firmware_ram.bytes]
        banks = _banks_for([needed, *beside], self.board.ram)
        if banks is not None:
            return (Placement("arena", needed, banks[0]),), (banks[1] if beside else None)
        if self.separate is not None:
            pieces = self.separate.head_arena_bytes, self.separate.tail_arena_bytes
            banks = _banks_for([*pieces, *beside], self.board.ram, apart=2)
            if banks is not None:
                parts = tuple(Placement(*each) for each in zip(("head", "tail"), pieces, banks))
                return parts, (banks[2] if beside else None)
        return (Placement("arena", needed, None),), None

    @property
    def memory_share(self) -> float:
        """The arena's share of the memories that it is in; of the largest one where it does not fit."""
        banks = [placement.bank for placement in self.placements if placement.bank is not None]
        largest = max(bank.bytes for bank in self.board.ram)
        taken = sum(placement.bytes for placement in self.placements)
        return taken / (sum(bank.bytes for bank in banks) or largest)

    @property
    def fits_ram(self) -> bool:
        """Whether every piece of the arena has a bank, and static RAM and stack have, where they are known."""
        return all(placement.bank is not None for placement in self.placements)

    @property
    def fits_flash(self) -> bool:
        """Whether the model's file is not larger than the flash, where that is known."""
        return self.board.flash_bytes is None or self.model_bytes <= self.board.flash_bytes

    @property
    def fits(self) -> bool:
        """Whether arena and file both fit."""
        return self.fits_ram and self.fits_flash


@dataclass(frozen=True)
class BoardRefusal:
    """A board whose usual firmware can't run the model, whatever its memory.

    Attributes:
        board: the board.
        reason: what it refuses.
    """

    board: Board
    reason: str


@dataclass(frozen=True)
class KernelsRefusal:
    """A kernel library that can't run the model on a part, whatever the arena.

    Attributes:
        kernels: the library.
        reason: the operators that it lacks, or what it refuses.
    """

    kernels: KernelLibrary
    reason: str


def _banks_for(pieces: Sequence[int], banks: Sequence[Bank], apart: int = 0) -> list[Bank] | None:
    """A bank for each piece, the fastest first for the first piece; None where they do not all fit.

    Args:
        pieces: their sizes; together they may share a bank, but for the first `apart` of them.
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


def firmware_ram(model: Model, board: Board, library: KernelLibrary) -> FirmwareRam | None:
    """Static RAM and stack of TFLM with the operators of a model; None where they were not measured."""
    try:
        found = flash(model, target=board.target, kernels=library)
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
) -> BoardFit:
    """What a model takes of a board.

    Args:
        kernels: the kernel library; the one that is usual on the board, if it is not given.
        planner, release: as for `MicroInterpreter`.

    Raises:
        ArgumentError: the kernel library is not for the board's part.
        TflmError: the model can't be laid out in an arena of any size.
    """
    library = library_for(board.kernels if kernels is None else kernels, board.target, release)
    built = model, AllOpsResolver()
    measured = measure_arena(*built, target=board.target, kernels=library, planner=planner)
    separate = None
    if len(board.ram) > 1:
        separate = measure_separate_arenas(*built, target=board.target, kernels=library, planner=planner)
    return BoardFit(board, measured, separate, len(model.data), firmware_ram(model, board, library))


def fits_of(
    model: Model,
    boards: Iterable[Board],
    *,
    kernels: Kernels | None = None,
    planner: Planner = "greedy",
    release: Releases | None = None,
) -> Iterator[BoardFit | BoardRefusal]:
    """What a model takes of each board, or why it can't be run there.

    It is laid out once for each part and kernel library. Arguments are as for `board_fit`.

    Raises:
        ArgumentError: the kernel library is not for the part of one of them.
    """
    known: dict[tuple[str, str, bool], BoardFit | BoardRefusal] = {}
    for board in boards:
        library = library_for(board.kernels if kernels is None else kernels, board.target, release)
        built = board.target.name, library.name, len(board.ram) > 1
        if built not in known:
            try:
                known[built] = board_fit(model, board, kernels=library, planner=planner)
            except (OperatorError, UnresolvedOperator) as error:
                known[built] = BoardRefusal(board, str(error))
        yield replace(known[built], board=board)


def arena_with(
    model: Model, target: Target, library: KernelLibrary, *, planner: Planner = "greedy"
) -> ArenaMeasurement | KernelsRefusal:
    """What a model needs with a kernel library, or why the library can't run it.

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
