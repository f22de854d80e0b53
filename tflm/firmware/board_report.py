"""Whether a model fits a board, and what behaves differently on a device, as reports."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tflm.boards.sdks import Span
from tflm.firmware.board_fit import BoardFit, BoardRefusal, Placement
from tflm.firmware.device_check import DeviceFinding
from tflm.firmware.verdict import Verdict, verdict_of
from tflm.releases import TODAY
from tflm.report import NUMBER, TEXT, Figure, Report, Table


def fit_report(fit: BoardFit) -> Report:
    """Report the uses of RAM and flash of a board, with the arena in one piece or two, and the SDK's share."""
    board, share = fit.board, fit.board.share
    facts = [(_label(placement), _placed(fit, placement)) for placement in fit.placements]
    if fit.firmware_bank is not None:
        facts.append(("other RAM", f"static RAM and stack in {fit.firmware_bank.name}"))
    if fit.measured.kernels.release != TODAY:
        facts.append(("TFLM", fit.measured.kernels.release.name))
    if share is not None:
        facts.append(("SDK", share.description))
    tables = [parts_table(verdict_of(fit)), *([_bank_table(fit)] if fit.separate is not None else [])]
    notes = [*heap_notes(fit), "not counted: the application's own code, buffers and interrupts"]
    return Report(f"on {board.name}: {board.description}", facts, tables, notes)


def heap_notes(fit: BoardFit) -> list[str]:
    """Give advice on pieces of the arena that are too large for a static array, but not for the heap."""
    return [f"the {each.part} is too large for a static array: allocate it on the heap" for each in fit.on_heap]


def verdict(fit: BoardFit) -> str:
    """The verdict, which begins with yes, no or not known."""
    return verdict_of(fit).text


def parts_table(found: Verdict) -> Table:
    """List what takes RAM and flash, with the sums."""
    rows: list[tuple[str, str, str]] = [
        (each.part, _span(each.ram_bytes), _span(each.flash_bytes)) for each in found.parts
    ]
    ram = " + ".join(f"{use.taken_bytes} of {use.available_bytes}" for use in found.memories[:-1])
    flash = found.memories[-1]
    available = "" if flash.available_bytes is None else f" of {flash.available_bytes}"
    rows.append(("in all", ram, f"{flash.taken_bytes}{available}"))
    return Table("Uses of the memory, in bytes", {"": TEXT, "RAM": NUMBER, "flash": NUMBER}, rows)


def _span(size: Span) -> str:
    return str(size) if size.high or size.low else ""


def _label(placement: Placement) -> str:
    return "RAM" if placement.part == "arena" else f"RAM for the {placement.part}"


def _placed(fit: BoardFit, placement: Placement) -> str:
    bank = placement.bank or max(fit.board.memories, key=lambda bank: bank.bytes)
    return _share(f"{placement.part} in {bank.name}", placement.bytes, bank.bytes)


def _share(what: str, taken: int, available: int) -> str:
    return f"{what}: {taken:,} of {available:,} bytes, {taken / available:.1%}"


def _bank_table(fit: BoardFit) -> Table:
    """List each memory, with what is left of it next to the whole arena, the head or the tail."""
    assert fit.separate is not None
    pieces = {
        "arena": fit.measured.minimum_arena_bytes,
        "head": fit.separate.head_arena_bytes,
        "tail": fit.separate.tail_arena_bytes,
    }
    columns = {"memory, fastest first": TEXT, "bytes": NUMBER}
    columns |= {f"left with {piece} of {size:,}": TEXT for piece, size in pieces.items()}
    rows = (
        (bank.name, bank.bytes, *(_left(bank.bytes - size) for size in pieces.values())) for bank in fit.board.memories
    )
    return Table("Memories, for one arena or separate head and tail", columns, rows)


def _left(size: int) -> str:
    return f"{size:,}" if size >= 0 else f"no, {-size:,} missing"


def fits_table(fits: Sequence[BoardFit | BoardRefusal]) -> Table:
    """List the boards that a model fits."""
    return Table.of(
        "",
        fits,
        Figure("board", TEXT, "board.name"),
        Figure("part", TEXT, "board.target.name"),
        Figure("kernels", TEXT, _kernels),
        Figure("arena", NUMBER, "measured.minimum_arena_bytes", kind=BoardFit),
        Figure("memory", TEXT, _memory, kind=BoardFit),
        Figure("of it", NUMBER, "memory_share", ".1%", BoardFit),
        Figure("of flash", NUMBER, "flash_share", ".1%", BoardFit),
        Figure("fits", TEXT, lambda fit: verdict(fit) if isinstance(fit, BoardFit) else f"no: {fit.reason}"),
    )


def _kernels(fit: BoardFit | BoardRefusal) -> str:
    return fit.board.kernels if isinstance(fit, BoardRefusal) else fit.measured.kernels.name


def _memory(fit: BoardFit) -> str:
    """The memories of the arena, or the largest one if it fits none."""
    banks = [placement.bank for placement in fit.placements if placement.bank is not None]
    return " and ".join(bank.name for bank in banks) or max(fit.board.ram, key=lambda bank: bank.bytes).name


def findings_report(name: str, measured_for: str, findings: Sequence[DeviceFinding]) -> Report:
    """Report what behaves differently on a device."""
    shown = (
        Figure("operator", TEXT, _place),
        Figure("what", TEXT, "effect.text"),
        Figure("what will happen", TEXT, "happens"),
        Figure("what to do", TEXT, "advice"),
    )
    tables = [Table.of("", findings, *shown)] if findings else []
    notes = [] if findings else ["all operators are available, and their results are the same as here"]
    if any(finding.shown for finding in findings):
        notes.append("where results differ, MicroInterpreter(..., target=..., kernels=...) returns the device's")
    return Report(f"{name} on {measured_for}", [], tables, notes)


def _place(finding: DeviceFinding) -> str:
    if finding.operator_index is None:
        return "the model"
    inside = f"{finding.subgraph_index}:" if finding.subgraph_index else ""
    return f"{inside}{finding.operator_index} {finding.operator}"


def board_figures(fit: BoardFit | BoardRefusal) -> dict[str, Any]:
    """Return the JSON document of a fit or a refusal; sizes in bytes."""
    if isinstance(fit, BoardRefusal):
        return {"name": fit.board.name, "target": fit.board.target.name, "fits": False, "reason": fit.reason}
    return fit_figures(fit)


def fit_figures(fit: BoardFit) -> dict[str, Any]:
    """Return the JSON document of a fit; sizes in bytes."""
    separate = fit.separate
    return {
        "name": fit.board.name,
        "target": fit.board.target.name,
        "kernels": fit.measured.kernels.name,
        "minimum_arena_bytes": fit.measured.minimum_arena_bytes,
        "head_arena_bytes": None if separate is None else separate.head_arena_bytes,
        "tail_arena_bytes": None if separate is None else separate.tail_arena_bytes,
        "ram": [{"name": bank.name, "bytes": bank.bytes} for bank in fit.board.ram],
        "ram_share": fit.ram_share,
        "placements": [
            {"part": p.part, "bytes": p.bytes, "bank": None if p.bank is None else p.bank.name} for p in fit.placements
        ],
        "firmware_ram_bytes": None if fit.firmware_ram is None else fit.firmware_ram.bytes,
        "firmware_bank": None if fit.firmware_bank is None else fit.firmware_bank.name,
        "model_bytes": fit.model_bytes,
        "flash_bytes": fit.board.flash_bytes,
        "flash_share": None if fit.board.flash_bytes is None else fit.flash_share,
        "fits": fit.fits,
        "sdk": fit.board.sdk or None,
        "verdict": verdict_of(fit),
    }
