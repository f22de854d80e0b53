"""The verdict on a model and a board: yes, no, or not known, with everything that takes RAM and flash."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from tflm.boards.sdks import NOTHING, Span
from tflm.boards.table import Bank
from tflm.firmware.board_fit import Answer, BoardFit
from tflm.firmware.device_check import DeviceFinding
from tflm.report import json_property

BUDGET = "arena"
"""The name of an arena's budget, among memories."""

BEGINNINGS = {Answer.YES: "fits", Answer.NO: "does not fit", Answer.UNKNOWN: "not known whether it fits"}


ORDER = (Answer.YES, Answer.UNKNOWN, Answer.NO)
"""Answers in increasing precedence."""


@dataclass(frozen=True)
class MemoryUse:
    """The use of a memory; sizes in bytes.

    Attributes:
        memory: a memory that is used; "flash" for the flash, "arena" for a budget.
        taken_bytes: bytes that the firmware takes.
        available_bytes: bytes that the SDK leaves of it; None if the memory's size is unknown.
    """

    memory: str
    taken_bytes: Span
    available_bytes: Span | None

    @property
    def missing(self) -> Span:
        """Bytes that are missing; negative for bytes that are left."""
        room = self.taken_bytes if self.available_bytes is None else self.available_bytes
        return Span(self.taken_bytes.low - room.high, self.taken_bytes.high - room.low)


@dataclass(frozen=True)
class FirmwarePart:
    """A part of the firmware.

    Attributes:
        part: a part of the firmware.
        ram_bytes, flash_bytes: the RAM and the flash that it takes.
    """

    part: str
    ram_bytes: Span
    flash_bytes: Span


@dataclass(frozen=True)
class Verdict:
    """Whether a model fits a board.

    Attributes:
        answer: whether it fits in any case, in no case or in some.
        memories: use of each memory, the flash last.
        parts: the parts of the firmware that use them.
        unknown: what would have to be known for an answer, or was estimated; empty if everything was measured.
        stops: why the model cannot run on the device, whatever its size.
    """

    answer: Answer
    memories: tuple[MemoryUse, ...]
    parts: tuple[FirmwarePart, ...]
    unknown: tuple[str, ...] = ()
    stops: tuple[str, ...] = ()

    @property
    def is_yes(self) -> bool:
        """Whether it fits for certain."""
        return self.answer is Answer.YES

    @property
    def figures(self) -> str:
        """The figures, such as "58,944 of 61,440 B RAM, 361,204 of 524,288 B flash with code"."""
        figures = ", ".join(map(_figures, self.memories))
        if self.stops:
            return f"it cannot run there: {self.stops[0]} ({figures})"
        if self.answer is Answer.UNKNOWN:
            return f"{figures}; {' and '.join(self.unknown)}"
        return figures

    @json_property
    def line(self) -> str:
        """The verdict in a line, as --short prints it; it begins with "fits:", "does not fit:" or "not known whether it
        fits:"."""
        return f"{BEGINNINGS[self.answer]}: {self.figures}"

    @property
    def text(self) -> str:
        """The verdict in a cell of a table, which begins with the answer."""
        return f"{self.answer.value}: {self.figures}"


def verdict_of(fit: BoardFit, findings: Sequence[DeviceFinding] = ()) -> Verdict:
    """Return the verdict on a fit. All commands, pages and documents use this one.

    Args:
        findings: what behaves differently on the device; a model that cannot run there does not fit.
    """
    stops = tuple(f"{finding.operator or 'the model'}: {finding.happens}" for finding in findings if finding.stops)
    answer = Answer.NO if stops else fit.answer
    return Verdict(answer, tuple(_uses(fit)), tuple(_parts(fit)), tuple(_unknown(fit)), stops)


def within_budget(found: Verdict | None, needed_bytes: int, budget_bytes: int) -> Verdict:
    """The verdict on an arena within a budget, and on a board if there is one."""
    use = MemoryUse(BUDGET, _exactly(needed_bytes), _exactly(budget_bytes))
    answer = Answer.YES if needed_bytes <= budget_bytes else Answer.NO
    if found is None:
        return Verdict(answer, (use,), ())
    return replace(found, answer=max(answer, found.answer, key=ORDER.index), memories=(use, *found.memories))


def _uses(fit: BoardFit) -> Iterator[MemoryUse]:
    best = {bank.name: bank.bytes for bank in fit.board.memories_at_best}
    for bank, taken in _taken(fit):
        name = bank.name if len(fit.board.ram) > 1 else "RAM"
        yield MemoryUse(name, taken, Span(bank.bytes, max(best.get(bank.name, 0), bank.bytes)))
    yield MemoryUse("flash", fit.flash_taken, fit.flash_available)


def _taken(fit: BoardFit) -> Iterator[tuple[Bank, Span]]:
    """Return the use of each memory that is used."""
    if not fit.fits_ram:
        for bank, missing in fit.missing:
            taken = bank.bytes + missing
            yield bank, Span(taken - _unsure(fit, bank, taken), taken)
        return
    used: dict[Bank, Span] = {}
    pieces = [(each.bank, Span(each.bytes, each.bytes)) for each in fit.placements]
    for place, size in [*pieces, (fit.firmware_bank, fit.other_ram)]:
        if place is not None:
            used[place] = used.get(place, NOTHING).plus(size)
    yield from used.items()


def _unsure(fit: BoardFit, bank: Bank, taken: int) -> int:
    """Return by how much the use of a full memory may be lower, if everything but the arena is in it."""
    has_others = taken > fit.measured.minimum_arena_bytes
    return fit.other_ram.high - fit.other_ram.low if has_others else 0


def _parts(fit: BoardFit) -> Iterator[FirmwarePart]:
    share, ram = fit.board.share, fit.firmware_ram
    yield FirmwarePart("arena", _exactly(sum(each.bytes for each in fit.placements)), NOTHING)
    yield FirmwarePart("model", NOTHING, _exactly(fit.model_bytes))
    unsure = min(ram.unsure_bytes, ram.static_bytes)
    yield FirmwarePart("TFLM and kernels", Span(ram.static_bytes - unsure, ram.static_bytes), fit.code)
    yield FirmwarePart("stack", Span(max(ram.stack_bytes - (ram.unsure_bytes - unsure), 0), ram.stack_bytes), NOTHING)
    if share is not None:
        yield FirmwarePart(share.sdk, share.ram, share.code)
        if fit.separate_stack_bytes:
            yield FirmwarePart(
                f"stack in memory of its own ({share.sdk})", _exactly(-fit.separate_stack_bytes), NOTHING
            )
        if share.code_in_ram:
            yield FirmwarePart("code and constants, copied to RAM", fit.program_code, NOTHING)
    if ram.reserve_bytes:
        yield FirmwarePart("reserved", _exactly(ram.reserve_bytes), NOTHING)


def _exactly(size: int) -> Span:
    return Span(size, size)


def _unknown(fit: BoardFit) -> Iterator[str]:
    share = fit.board.share
    if (not fit.fits_ram and fit.may_fit_ram) or (not fit.fits_flash and fit.may_fit_flash):
        if share is not None:
            yield f"what {share.sdk} takes on {fit.board.name} is known only as a range"
        if fit.code.low != fit.code.high:
            yield f"TFLM was not measured on {fit.board.target.name} with {fit.measured.kernels.name} kernels"
    if fit.unmeasured:
        yield f"the code of {', '.join(fit.unmeasured)} was not measured"


def _figures(use: MemoryUse) -> str:
    if use.memory == BUDGET:
        over = use.missing.high
        return (
            f"{-over:,} bytes left of {use.available_bytes}"
            if over <= 0
            else f"{over:,} bytes more than the budget of {use.available_bytes}"
        )
    what = "B flash with code" if use.memory == "flash" else f"B {use.memory}"
    if use.available_bytes is None:
        return f"{use.taken_bytes} {what}"
    missing = use.missing
    if missing.low > 0:
        lacks = f" ({missing} missing)"
    else:
        lacks = f" (up to {missing.high:,} missing)" if missing.high > 0 else ""
    return f"{use.taken_bytes} of {use.available_bytes} {what}{lacks}"
