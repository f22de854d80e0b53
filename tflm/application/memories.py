"""Report which parts of a model are in which memory, and the traffic of an inference."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from tflm.application.errors import OptionError
from tflm.application.machine import Machine
from tflm.application.models import bytes_from
from tflm.boards import Bank, Board
from tflm.firmware.board_fit import BoardFit, Split
from tflm.planning import MemoriesPlan
from tflm.planning.improved_model import ImprovedModel
from tflm.report import NUMBER, TEXT, Figure, Table
from tflm.runtime.micro_measurement_report import ArenaMeasurement
from tflm.runtime.traffic import traffic
from tflm.schema.model import Model


class Memory(NamedTuple):
    """A memory for the head or the tail.

    Attributes:
        name: the name of a board's memory, or the text of the option.
        bytes: its size; None if unknown.
    """

    name: str
    bytes: int | None


class TwoMemories(NamedTuple):
    """The memories of head and tail."""

    head: Memory
    tail: Memory


@dataclass(frozen=True)
class MemoryUse:
    """Use of a memory by a part of the model; sizes in bytes.

    Attributes:
        part: arena, or head and tail if they are in separate memories; such as psram_buffers in a plan of several
            memories; model for the file.
        memory: the name of the memory; None if the part fits none.
        needed_bytes: size of the part: the smallest arena, or the file.
        memory_bytes: size of the memory; None if unknown, or the part fits none.
        read_bytes: bytes that one inference reads there, counting each operator's tensors once.
        written_bytes: bytes that one inference writes there.
    """

    part: str
    memory: str | None
    needed_bytes: int
    memory_bytes: int | None
    read_bytes: int
    written_bytes: int


def memories_from(head: str | None, tail: str | None, board: Board | None) -> TwoMemories | None:
    """The memories that `--head-ram` and `--tail-ram` name; None if neither is given.

    A size such as 128K means a memory of that size. On a board, other texts are names of its memories, and an omitted
    option means the fastest of the others. Without a board, one of them must be a size.

    Raises:
        OptionError: the board has no such memory; both options name the same one; or no size is known.
    """
    if head is None and tail is None:
        return None
    if board is None and not any(text is not None and text[:1].isdigit() for text in (head, tail)):
        raise OptionError("the memories have no size: use one such as --head-ram 128K, or name the board with --board")
    given = [None if text is None else _memory(text, board) for text in (head, tail)]
    named = [memory for memory in given if memory is not None]
    other = next(
        (Memory(*bank) for bank in _banks(board) if Memory(*bank) not in named), Memory("another memory", None)
    )
    found = TwoMemories(*(memory or other for memory in given))
    if board is not None and found.head == found.tail and found.head in {Memory(*bank) for bank in _banks(board)}:
        raise OptionError(f"head and tail are both in {found.head.name}: omit --head-ram and --tail-ram for that")
    return found


def _memory(text: str, board: Board | None) -> Memory:
    if text[:1].isdigit():
        return Memory(text, bytes_from(text))
    if board is None:
        return Memory(text, None)
    return memory_of(text, board)


def memory_of(text: str, board: Board) -> Memory:
    """A memory of a board by its name.

    Raises:
        OptionError: the board has none of this name.
    """
    wanted = _key(text)
    for name, size in _banks(board):
        if _key(name) == wanted:
            return Memory(name, size)
    names = ", ".join(name for name, _ in _banks(board))
    raise OptionError(f"unknown memory {text!r}; {board.name} has {names}; or use a size such as 128K")


def _banks(board: Board | None) -> list[tuple[str, int]]:
    return [] if board is None else [(bank.name, bank.bytes) for bank in board.ram]


def _key(name: str) -> str:
    return "".join(filter(str.isalnum, name.lower()))


def split_of(memories: TwoMemories | None, board: Board | None) -> Split | None:
    """The memories as banks of a board; None without a board, or without memories."""
    if memories is None or board is None:
        return None
    banks = {Memory(bank.name, bank.bytes): bank for bank in board.ram}
    head, tail = (banks.get(memory) or Bank(memory.name, memory.bytes or 0) for memory in memories)
    return Split(head, tail)


def head_limit(model: Model, machine: Machine, memories: TwoMemories | None) -> int | None:
    """Bytes of its memory that the head may use: on a board, minus static RAM and stack that fit no other memory."""
    split = split_of(memories, machine.board)
    if machine.board is None or split is None:
        return None if memories is None else memories.head.bytes
    return machine.fit(model, split=split).head_room


def fit_of(found: ImprovedModel, machine: Machine, memories: TwoMemories | None) -> BoardFit | None:
    """The fit of a smaller model on the machine's board; None without a board."""
    if machine.board is None:
        return None
    split = split_of(memories, machine.board)
    return machine.fit(found.model, split=split)


def uses_of(found: ImprovedModel, memories: TwoMemories | None, fit: BoardFit | None) -> list[MemoryUse]:
    """The memory use of a smaller model, on a board or in the named memories; empty without either."""
    if fit is not None:
        return board_uses(found.model, fit)
    if found.separate is None or memories is None:
        return []
    sizes = found.separate.after.head_arena_bytes, found.separate.after.tail_arena_bytes
    pieces = [(part, size, *memory) for part, size, memory in zip(("head", "tail"), sizes, memories)]
    return _uses(found.model, found.after, [*pieces, ("model", len(found.data), "flash", None)])


def board_uses(model: Model, fit: BoardFit, plan: MemoriesPlan | None = None) -> list[MemoryUse]:
    """The memory use on a board; with the plan of several memories that the fit has, if any."""
    pieces = [
        (p.part, p.bytes, *((None, None) if p.bank is None else (p.bank.name, p.bank.bytes))) for p in fit.placements
    ]
    uses = _uses(model, fit.measured, [*pieces, ("model", fit.model_bytes, "flash", fit.board.flash_bytes)])
    for share in () if plan is None else plan.memories:
        read, written = share.traffic_bytes - share.written_bytes, share.written_bytes
        there = share.name
        uses = [replace(u, read_bytes=read, written_bytes=written) if u.memory == there else u for u in uses]
    return uses


def _uses(
    model: Model, measured: ArenaMeasurement, pieces: Sequence[tuple[str, int, str | None, int | None]]
) -> list[MemoryUse]:
    moved = traffic(model, measured)
    head = moved.head_read_bytes, moved.head_written_bytes
    tail = moved.tail_read_bytes, moved.tail_written_bytes
    both = head[0] + tail[0], head[1] + tail[1]
    of_part = {"head": head, "tail": tail, "arena": both, "model": (moved.flash_read_bytes, 0)}
    return [
        MemoryUse(part, name, size, available, *of_part.get(part, (0, 0))) for part, size, name, available in pieces
    ]


def memories_table(uses: Sequence[MemoryUse]) -> Table:
    """Return a table of memory use, free memory and the traffic of an inference."""
    return Table.of(
        "Memory use; traffic counts every operator's tensors once",
        uses,
        Figure("part", TEXT, "part"),
        Figure("memory", TEXT, lambda use: use.memory or "does not fit"),
        Figure("bytes", NUMBER, "needed_bytes"),
        Figure("left", TEXT, _left),
        Figure("read per invoke", NUMBER, "read_bytes"),
        Figure("written per invoke", NUMBER, "written_bytes"),
    )


def _left(use: MemoryUse) -> str:
    if use.memory_bytes is None:
        return ""
    left = use.memory_bytes - use.needed_bytes
    return f"{left:,}" if left >= 0 else f"no, {-left:,} missing"
