"""Whether a model fits a board: its arena in the banks of RAM, in one piece or in two, and its file in the flash."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from tflm.boards import Bank, Board
from tflm.errors import OperatorError, UnresolvedOperator
from tflm.libraries import Kernels, library_for
from tflm.runtime.micro_allocator import Planner
from tflm.runtime.micro_measurement import ArenaMeasurement, SeparateArenas, measure_arena, measure_separate_arenas
from tflm.runtime.micro_op_resolver import AllOpsResolver
from tflm.schema.model import Model


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
class BoardFit:
    """What a model takes of a board.

    Attributes:
        board: the board.
        measured: the model's arena on its part, with the kernel library.
        separate: the arenas where head and tail have a memory of their own; None on a board with one bank.
        model_bytes: of the model's file, which counts against the flash.
    """

    board: Board
    measured: ArenaMeasurement
    separate: SeparateArenas | None
    model_bytes: int

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

        The head has the faster bank, for operators work in it. What does not fit has no bank.
        """
        needed = self.measured.minimum_arena_bytes
        whole = Placement("arena", needed, _fastest(self.board.ram, needed))
        if whole.bank is not None or self.separate is None:
            return (whole,)
        head = _fastest(self.board.ram, self.separate.head_arena_bytes)
        others = tuple(bank for bank in self.board.ram if bank is not head)
        tail = _fastest(others, self.separate.tail_arena_bytes)
        if head is None or tail is None:
            return (whole,)
        return (
            Placement("head", self.separate.head_arena_bytes, head),
            Placement("tail", self.separate.tail_arena_bytes, tail),
        )

    @property
    def fits_ram(self) -> bool:
        """Whether every piece of the arena has a bank."""
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


def _fastest(banks: tuple[Bank, ...], needed: int) -> Bank | None:
    return next((bank for bank in banks if bank.bytes >= needed), None)


def board_fit(model: Model, board: Board, *, kernels: Kernels | None = None, planner: Planner = "greedy") -> BoardFit:
    """What a model takes of a board.

    Args:
        kernels: the kernel library; the one that is usual on the board, if it is not given.
        planner: as for `MicroInterpreter`.

    Raises:
        ArgumentError: the kernel library is not for the board's part.
        TflmError: the model can't be laid out in an arena of any size.
    """
    library = library_for(board.kernels if kernels is None else kernels, board.target)
    built = model, AllOpsResolver()
    measured = measure_arena(*built, target=board.target, kernels=library, planner=planner)
    separate = None
    if len(board.ram) > 1:
        separate = measure_separate_arenas(*built, target=board.target, kernels=library, planner=planner)
    return BoardFit(board, measured, separate, len(model.data))


def fits_of(
    model: Model, boards: Iterable[Board], *, kernels: Kernels | None = None, planner: Planner = "greedy"
) -> Iterator[BoardFit | BoardRefusal]:
    """What a model takes of each board, or why it can't be run there.

    It is laid out once for each part and kernel library. Arguments are as for `board_fit`.

    Raises:
        ArgumentError: the kernel library is not for the part of one of them.
    """
    known: dict[tuple[str, str, bool], BoardFit | BoardRefusal] = {}
    for board in boards:
        library = library_for(board.kernels if kernels is None else kernels, board.target)
        built = board.target.name, library.name, len(board.ram) > 1
        if built not in known:
            try:
                known[built] = board_fit(model, board, kernels=library, planner=planner)
            except (OperatorError, UnresolvedOperator) as error:
                known[built] = BoardRefusal(board, str(error))
        yield replace(known[built], board=board)
