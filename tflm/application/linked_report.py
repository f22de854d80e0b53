"""A linker's figures next to the prediction, by part, and the verdict that follows from them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from tflm.application.errors import OptionError
from tflm.application.machine import Machine
from tflm.boards.sdks import NOTHING, Span
from tflm.firmware.board_fit import BoardFit, FirmwareRam
from tflm.firmware.device_check import DeviceFinding, operator_findings
from tflm.firmware.linked import ARENA, MODEL, REST, TFLM, Linked, read_linked
from tflm.firmware.verdict import Verdict, verdict_of
from tflm.libraries import Effect
from tflm.report import NAME, NUMBER, Report, Table
from tflm.schema.model import Model


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
    ram = predicted.firmware_ram or FirmwareRam(0, 0)
    share = machine.board.share
    sdk_code, sdk_ram = (share.code, share.ram) if share is not None else (NOTHING, NOTHING)
    arena = predicted.measured.minimum_arena_bytes
    static = Span(max(ram.static_bytes - ram.unsure_bytes, 0), ram.static_bytes)
    rows = [
        (MODEL, _exactly(predicted.model_bytes), linked.flash[MODEL], None, None),
        (TFLM, predicted.code, linked.flash[TFLM], static, linked.ram[TFLM]),
        (ARENA, None, None, _exactly(arena), linked.ram[ARENA]),
        (REST, sdk_code, linked.flash[REST], sdk_ram, linked.ram[REST]),
        ("in all", predicted.flash_taken, linked.flash_bytes, _sum(static, _exactly(arena), sdk_ram), linked.ram_bytes),
    ]
    columns = {"": NAME, "flash predicted": NUMBER, "linked": NUMBER, "RAM predicted": NUMBER, "linked ": NUMBER}
    table = Table(
        "Linked sizes, in bytes",
        columns,
        [
            tuple("" if cell is None else f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in row)
            for row in rows
        ],
    )
    notes = ["RAM is static data, without stack and heap; the verdict counts the stack that was predicted"]
    if not linked.ram[ARENA]:
        notes.append("no array of the arena was found: it has another name, or is on the heap")
    elif linked.ram[ARENA] < arena:
        notes.append(
            f"the arena of the firmware lacks {arena - linked.ram[ARENA]:,} bytes: AllocateTensors() will fail"
        )
    title = f"{name} on {machine.board.name}, as linked in {path.name}"
    keys = ("part", "predicted_flash_bytes", "flash_bytes", "predicted_ram_bytes", "ram_bytes")
    parts = [{key: cell._asdict() if isinstance(cell, Span) else cell for key, cell in zip(keys, row)} for row in rows]
    figures = {"board": machine.board.name, "verdict": found, "parts": parts[:-1]}
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
    ram, share = predicted.firmware_ram or FirmwareRam(0, 0), predicted.board.share
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
