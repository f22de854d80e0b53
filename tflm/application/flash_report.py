"""Reports of the flash and static RAM that TFLM takes, of what a board has left, and of a linked firmware."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from tflm.application.errors import OptionError
from tflm.application.machine import Machine
from tflm.boards.sdks import NOTHING, Span
from tflm.errors import TflmError
from tflm.firmware.board_fit import BoardFit
from tflm.firmware.device_check import DeviceFinding, operator_findings
from tflm.firmware.flash import Flash, OperatorFlash, flash
from tflm.firmware.linked import ARENA, MODEL, REST, TFLM, Linked, read_linked
from tflm.firmware.verdict import Verdict, verdict_of
from tflm.libraries import Effect
from tflm.report import NAME, NUMBER, TEXT, Figure, Report, Table, document_of, with_thousands
from tflm.schema.model import Model


def flash_report(name: str, found: Flash) -> Report:
    """Report the sizes, each operator's share, possible savings, and the source of the figures."""
    low, high = found.flash_range_bytes
    program = f"{with_thousands(low)} to {with_thousands(high)}" if found.flash_bytes is None else with_thousands(high)
    facts = [("model", with_thousands(found.model_bytes)), ("TFLM and kernels", program)]
    if found.runtime_bytes is not None:
        facts.append((" without operators", with_thousands(found.runtime_bytes)))
    if found.data_bytes is not None and found.bss_bytes is not None:
        facts.append(("static RAM", f"{with_thousands(found.data_bytes + found.bss_bytes)}, without the arena"))
    if found.stack_bytes is not None:
        facts.append(("stack", f"at most {with_thousands(found.stack_bytes)}, without interrupts"))
    notes = [found.note]
    if found.flash_bytes is not None and found.typed_flash_bytes is not None:
        notes.append(
            f"typed registrations ({', '.join(found.typed_registrations)}) would reduce it to "
            f"{with_thousands(found.typed_flash_bytes)}: tflm export --typed writes them; they work only where the "
            "source that adds them is compiled with -DCMSIS_NN"
        )
    tables = [_operator_table(found.operators)] if found.operators else []
    title = f"{name} on {found.cpu}, {found.kernels} kernels, build {found.build!r}"
    return Report(title, facts, tables, notes)


def _operator_table(operators: tuple[OperatorFlash, ...]) -> Table:
    return Table.of(
        "",
        operators,
        Figure("operator", NAME, "operator"),
        Figure("own bytes", NUMBER, "own_bytes"),
        Figure("shared bytes", NUMBER, "shared_bytes"),
        Figure("shared with", TEXT, lambda operator: _others(operator, len(operators))),
    )


def _others(operator: OperatorFlash, count: int) -> str:
    everyone = len(operator.shared_with) == count - 1 > 1
    return "all others" if everyone else ", ".join(name.removeprefix("Add") for name in operator.shared_with)


def firmware_flash_bytes(model: Model, machine: Machine) -> int | None:
    """Flash of TFLM, the operators and the model; None if unknown for the target and kernels."""
    try:
        found = flash(model, target=machine.target, kernels=machine.kernels)
    except TflmError:
        return None
    return None if found.flash_bytes is None else found.flash_bytes + found.model_bytes


class LinkedPart(NamedTuple):
    """A part of the firmware: what was predicted and what the linker gave it, as in `LINKED_FIGURES`."""

    part: str
    predicted_flash_bytes: Span | None
    flash_bytes: int | None
    predicted_ram_bytes: Span | None
    ram_bytes: int | None


LINKED_FIGURES = (
    Figure("", NAME, "part").as_key(str, "a part of the firmware"),
    Figure("flash predicted", NUMBER, "predicted_flash_bytes").as_key(
        Span | None, "its predicted flash; null for none"
    ),
    Figure("linked", NUMBER, "flash_bytes").as_key(int | None, "flash that the linker gave it; null for none"),
    Figure("RAM predicted", NUMBER, "predicted_ram_bytes").as_key(
        Span | None, "its predicted static RAM; null for none"
    ),
    Figure("linked ", NUMBER, "ram_bytes").as_key(int | None, "static RAM that the linker gave it; null for none"),
)


def linked_report(name: str, model: Model, machine: Machine, path: Path) -> tuple[Report, Verdict, dict[str, Any]]:
    """Compare a map or an ELF file with the prediction; also returns the verdict, and all as figures.

    Raises:
        OptionError: no board was chosen.
        FirmwareError: the file is neither a map nor an ELF file.
        OSError: it can't be read.
    """
    if machine.board is None:
        raise OptionError("--map compares a firmware with a board; name it with --board")
    predicted, linked = machine.fit(model), read_linked(path)
    findings = operator_findings(model, target=machine.target, kernels=machine.kernels, board=machine.board)
    found = verdict_of(linked_fit(predicted, linked), [*findings, *_arena_findings(predicted, linked)])
    ram = predicted.firmware_ram
    share = machine.board.share
    sdk_code, sdk_ram = (share.code, share.ram) if share is not None else (NOTHING, NOTHING)
    arena = predicted.measured.minimum_arena_bytes
    static = Span(max(ram.static_bytes - ram.unsure_bytes, 0), ram.static_bytes)
    rows = [
        LinkedPart(MODEL, _exactly(predicted.model_bytes), linked.flash[MODEL], None, None),
        LinkedPart(TFLM, predicted.code, linked.flash[TFLM], static, linked.ram[TFLM]),
        LinkedPart(ARENA, None, None, _exactly(arena), linked.ram[ARENA]),
        LinkedPart(REST, sdk_code, linked.flash[REST], sdk_ram, linked.ram[REST]),
        LinkedPart(
            "in all",
            predicted.flash_taken,
            linked.flash_bytes,
            _sum(static, _exactly(arena), sdk_ram),
            linked.ram_bytes,
        ),
    ]
    table = Table.of("Linked sizes, in bytes", rows, *LINKED_FIGURES)
    notes = ["RAM is static data, without stack and heap; the verdict counts the stack that was predicted"]
    if not linked.ram[ARENA]:
        notes.append("no array of the arena was found: it has another name, or is on the heap")
    elif linked.ram[ARENA] < arena:
        notes.append(
            f"the arena of the firmware lacks {arena - linked.ram[ARENA]:,} bytes: AllocateTensors() will fail"
        )
    title = f"{name} on {machine.board.name}, as linked in {path.name}"
    parts = [document_of(row, LINKED_FIGURES) for row in rows[:-1]]
    figures = {"board": machine.board.name, "verdict": found, "parts": parts}
    return Report(title, [], [table], notes, verdict=found.line), found, figures


def _arena_findings(predicted: BoardFit, linked: Linked) -> list[DeviceFinding]:
    """Report that the firmware's arena is too small, unless it may be in several memories."""
    missing = predicted.measured.minimum_arena_bytes - linked.ram[ARENA]
    if not linked.ram[ARENA] or missing <= 0 or predicted.separate is not None:
        return []
    happens = f"AllocateTensors() fails: the arena of the firmware lacks {missing:,} bytes"
    return [DeviceFinding("", None, None, Effect.REFUSED, happens, "Make the arena larger.")]


def linked_fit(predicted: BoardFit, linked: Linked) -> BoardFit:
    """A fit in which code and static RAM are those of the linker instead of TFLM's and the SDK's."""
    ram, share = predicted.firmware_ram, predicted.board.share
    code, static = linked.flash_bytes - linked.flash[MODEL], linked.ram_bytes - linked.ram[ARENA]
    sdk_code, sdk_ram = (share.code, share.ram) if share is not None else (NOTHING, NOTHING)
    # The SDK's share is added again as a range below; subtract it here, so that each sum equals the linker's figure.
    return replace(
        predicted,
        model_bytes=linked.flash[MODEL] or predicted.model_bytes,
        code=Span(code - sdk_code.low, code - sdk_code.high),
        firmware_ram=replace(ram, static_bytes=static - sdk_ram.high, unsure_bytes=sdk_ram.low - sdk_ram.high),
    )


def _exactly(size: int) -> Span:
    return Span(size, size)


def _sum(*spans: Span) -> Span:
    total = NOTHING
    for span in spans:
        total = total.plus(span)
    return total
