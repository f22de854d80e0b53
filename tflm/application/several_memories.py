"""Plans of several memories for stock TFLM: the options of commands, reports and JSON documents."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from tflm.application.compile_options import pairs_from
from tflm.application.errors import OptionError, option_errors
from tflm.application.export import buffers_in
from tflm.application.machine import MACHINE_FIGURES, Machine
from tflm.application.memories import memory_of
from tflm.application.models import bytes_from
from tflm.boards import Bank, Board
from tflm.firmware.board_fit import BoardFit, Placement
from tflm.memory.arena import ARENA_ALIGNMENT
from tflm.memory.several_memories import REGION_BYTES, Memory, require_memories
from tflm.planning import MemoriesPlan
from tflm.report import NAME, NUMBER, TEXT, Figure, Report, Table, document_of, short_size, with_thousands
from tflm.runtime.micro_measurement import covered_bytes, measure_arena
from tflm.runtime.micro_measurement_report import drawn_figures
from tflm.runtime.micro_op_resolver import AllOpsResolver
from tflm.schema.model import Model

SLOW_COST = 6.0
"""Default cost of a byte in memories outside of the chip, and in all but the first given memory."""


@dataclass(frozen=True)
class PlacedBuffer:
    """A tensor or scratch buffer in a plan of several memories.

    Attributes:
        name: the tensor's name, or that of the operator whose scratch buffer it is.
        bytes: its size, a multiple of 16.
        first_use, last_use: the steps between which it is alive; step 0 fills the inputs, each operator is one more.
        memory: the name of its memory.
        offset: bytes from the start of that memory.
        traffic_bytes: bytes of it that an invoke reads and writes.
    """

    name: str
    bytes: int
    first_use: int
    last_use: int
    memory: str
    offset: int
    traffic_bytes: int


def rooms_of(found: BoardFit) -> list[Bank]:
    """A board's memories without what TFLM's static RAM, stack, reserve and SDK take of one of them."""
    board = found.board
    taken = max(board.sdk_banks, key=lambda bank: bank.bytes)
    rooms = [bank.bytes - (found.other_ram.high if bank == taken else 0) for bank in board.memories]
    return [replace(bank, bytes=room) for bank, room in zip(board.memories, rooms) if room > 0]


def memories_of_board(found: BoardFit) -> list[Memory]:
    """The memories of a board for a plan, with the usual costs."""
    return [
        Memory(bank.name, bank.bytes, SLOW_COST if bank.is_external else 1.0, bank.rate) for bank in rooms_of(found)
    ]


def memories_of(
    text: str, model: Model, machine: Machine, costs: str | None = None, rates: str | None = None
) -> list[Memory]:
    """The memories that `--memories`, `--cost` and `--rate` describe.

    On a board, a memory without a size has what SDK and firmware leave of it.

    Raises:
        OptionError: a name is unknown or named twice, a size, cost or rate is invalid, or a memory has no size.
    """
    board = machine.board
    rooms = []
    if board is not None and any(not size for _, size in pairs_from(text, "memories", "SRAM:200K,PSRAM:4M")):
        rooms = rooms_of(machine.fit(model))
    memories: list[Memory] = []
    for name, size in pairs_from(text, "memories", "SRAM:200K,PSRAM:4M"):
        bank = None if board is None else _bank(name, board)
        name = name if bank is None else bank.name
        if not size and bank is None:
            raise OptionError(f"memory {name!r} has no size: use {name}:200K, or name the board with --board")
        bytes = bytes_from(size) if size else next((room.bytes for room in rooms if room.name == name), 0)
        if bank is not None and bytes > bank.bytes:
            raise OptionError(f"{name} of {machine.place} has {short_size(bank.bytes)}, not {size}")
        is_slow = bool(memories) if bank is None else bank.is_external
        memories.append(Memory(name, bytes, SLOW_COST if is_slow else 1.0, None if bank is None else bank.rate))
    for place, cost in _of_memories(memories, "cost", costs, "SRAM:1,PSRAM:6"):
        memories[place] = memories[place]._replace(cost=cost)
    for place, rate in _of_memories(memories, "rate", rates, "SRAM:400,PSRAM:40"):
        memories[place] = memories[place]._replace(rate=rate * 1e6)
    with option_errors():
        return require_memories(memories)


def _bank(name: str, board: Board) -> Bank:
    found = memory_of(name, board)
    return next(bank for bank in board.ram if bank.name == found.name)


def _of_memories(memories: Sequence[Memory], what: str, text: str | None, example: str) -> Iterator[tuple[int, float]]:
    """The numbers that an option has for memories, each with the place of the memory."""
    for name, number in [] if text is None else pairs_from(text, f"{what}s", example):
        places = [i for i, memory in enumerate(memories) if memory.name.lower() == name.lower()]
        if not places:
            known = ", ".join(memory.name for memory in memories)
            raise OptionError(f"--{what} names the unknown memory {name!r}; --memories has {known}")
        try:
            yield places[0], float(number)
        except ValueError:
            raise OptionError(
                f"invalid {what} {number!r} of {name} (expected a number above 0, e.g. {name}:6)"
            ) from None


def spread_of(plan: MemoriesPlan, board: Board) -> tuple[Placement, ...]:
    """The arena and the other buffers of a plan in the board's memories, without those that stay empty."""
    banks = {bank.name: bank for bank in board.ram}
    home = plan.memories[plan.home]
    pieces = [Placement("arena", home.used_bytes, banks[home.name])]
    pieces += [
        Placement(buffers_in(each.name), each.used_bytes, banks[each.name]) for each in plan.others if each.used_bytes
    ]
    return tuple(pieces)


def placed_buffers(plan: MemoriesPlan) -> list[PlacedBuffer]:
    """Return the place of each buffer, in TFLM's order."""
    return [
        PlacedBuffer(name, b.size, b.first_use, b.last_use, plan.memories[spot.memory].name, spot.offset, moved)
        for name, b, spot, moved in zip(plan.names, plan.buffers, plan.spots, plan.traffic)
    ]


def memories_report(plan: MemoriesPlan, title: str, machine: Machine) -> Report:
    """Report where each buffer goes, the traffic of each memory, and what simpler plans cost."""
    gap = plan.cost / plan.lower_bound - 1 if plan.lower_bound else 0.0
    proof = "proved to be the cheapest" if plan.proved_optimal else f"at most {gap:.1%} above the cheapest"
    facts = [
        ("arena", f"{with_thousands(plan.arena_bytes)} in {plan.memories[plan.home].name}, with the tail"),
        ("cost", f"{plan.cost:,.0f}, {proof}"),
    ]
    if plan.order is not None:
        facts.append(("operators reordered", " ".join(map(str, plan.order.order))))
    notes = ["interrupted: the best plan until then"] if plan.interrupted else []
    buffers = Table.of("Buffers, in TFLM's order", placed_buffers(plan), *BUFFER_FIGURES)
    tables = [shares_table(plan), rivals_table(plan), buffers]
    return Report(f"{title} on {machine.place} with {machine.kernels.name} kernels", facts, tables, notes)


BUFFER_FIGURES = (
    Figure("buffer", NAME, "name"),
    Figure("bytes", NUMBER, "bytes"),
    Figure("steps", TEXT, lambda buffer: f"{buffer.first_use}-{buffer.last_use}"),
    Figure("memory", TEXT, "memory"),
    Figure("offset", NUMBER, "offset"),
    Figure("traffic", NUMBER, "traffic_bytes"),
)


def shares_table(plan: MemoriesPlan) -> Table:
    """A table of the memories, with the bytes that an invoke reads and writes in each."""
    return Table.of(
        "Memories; traffic counts every operator's tensors once",
        plan.memories,
        Figure("memory", TEXT, "name"),
        Figure("cost", NUMBER, "cost", "g"),
        Figure("bytes", NUMBER, "used_bytes"),
        Figure("left", NUMBER, lambda each: each.bytes - each.used_bytes),
        Figure("traffic per invoke", NUMBER, "traffic_bytes"),
    )


def rivals_table(plan: MemoriesPlan) -> Table:
    """Return a table with the costs of this plan and of simpler ones, their traffic, and its time if known."""
    rates = [each.rate for each in plan.memories]
    columns = {"plan": TEXT, "cost": NUMBER, **dict.fromkeys((f"bytes in {m.name}" for m in plan.memories), NUMBER)}
    columns |= {f"ms in {each.name}": NUMBER for each in plan.memories if each.rate is not None}
    rows: list[Sequence[Any]] = []
    for name, moved in {"this plan": _traffic(plan), **plan.rival_traffic}.items():
        cost = plan.cost if name == "this plan" else plan.rivals[name]
        if moved is None or cost is None:
            rows.append((name, "does not fit", *[""] * (len(columns) - 2)))
            continue
        times = [f"{1e3 * bytes / rate:,.2f}" for bytes, rate in zip(moved, rates) if rate is not None]
        rows.append((name, f"{cost:,.0f}", *moved, *times))
    timed = "; ms: at least, at the rate of the memory" if any(rates) else ""
    return Table(f"Cost: bytes read and written an invoke, times the cost of a byte{timed}", columns, rows)


def _traffic(plan: MemoriesPlan) -> tuple[int, ...]:
    return tuple(each.traffic_bytes for each in plan.memories)


def drawn_memories(plan: MemoriesPlan, machine: Machine) -> dict[str, dict[str, Any]]:
    """For a picture of each memory, the arena's first: the figures of `drawn_figures`."""
    on: dict[str, Any] = {"target": machine.target, "kernels": machine.kernels}
    whole = measure_arena(plan.model, AllOpsResolver(), planner=plan.planner(), **on)
    drawn = {}
    for i, share in enumerate([plan.memories[plan.home], *plan.others]):
        begin = i * REGION_BYTES
        there = [b for b in whole.buffers if begin <= b.offset < begin + REGION_BYTES]
        alive = [[b for b in there if b.first_use <= step <= b.last_use] for step in range(len(whole.steps))]
        sums = [covered_bytes(each, ARENA_ALIGNMENT) for each in alive]
        step = sums.index(max(sums))
        tail = whole.tail_bytes if share.has_tail else 0
        drawn[f"{share.name}, cost {share.cost:g}"] = drawn_figures(
            replace(
                whole,
                buffers=[replace(b, offset=b.offset - begin) for b in there],
                peak=replace(whole.peak, operator=whole.steps[step], step=step, bytes=sums[step], buffers=alive[step]),
                head_bytes=share.buffer_bytes,
                tail_bytes=tail,
                temp_bytes=whole.temp_bytes if share.has_tail else 0,
                arena_used_bytes=share.buffer_bytes + tail,
                minimum_arena_bytes=share.used_bytes,
            )
        )
    return drawn


def memories_figures(path: Path, plan: MemoriesPlan, machine: Machine, written: Sequence[Path]) -> Any:
    """Return the JSON document."""
    return {
        "model": str(path),
        **document_of(machine, MACHINE_FIGURES),
        "memories": [asdict(share) for share in plan.memories],
        "buffers": placed_buffers(plan),
        "arena_bytes": plan.arena_bytes,
        **costs_of(plan)._asdict(),
        "interrupted": plan.interrupted,
        "order": None if plan.order is None else list(plan.order.order),
        "written": [str(each) for each in written],
    }


class SimplerPlan(NamedTuple):
    """A plan that another one is compared with.

    Attributes:
        plan: all or the head in one memory, or the largest buffers in the cheapest.
        cost: its cost; None if it does not fit.
        traffic_bytes: bytes that it reads and writes in each memory, in their order; None if it does not fit.
    """

    plan: str
    cost: float | None
    traffic_bytes: tuple[int, ...] | None


class PlanCosts(NamedTuple):
    """The costs of a plan of several memories.

    Attributes:
        cost: bytes that an invoke reads and writes in each memory, times the cost of a byte.
        lower_bound: no plan costs less, for this order of operators and these tensors that share bytes.
        proved_optimal: whether the cost is the lower bound.
        rivals: simpler plans.
    """

    cost: float
    lower_bound: float
    proved_optimal: bool
    rivals: list[SimplerPlan]


def costs_of(plan: MemoriesPlan) -> PlanCosts:
    """Return the costs of a plan and of simpler ones."""
    rivals = [SimplerPlan(name, cost, plan.rival_traffic[name]) for name, cost in plan.rivals.items()]
    return PlanCosts(plan.cost, plan.lower_bound, plan.proved_optimal, rivals)
