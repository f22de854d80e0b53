"""Whether a model fits a board, and what behaves differently on a device, as reports."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from tflm.boards.sdks import Span
from tflm.boards.table import MEMORY_FIGURES
from tflm.firmware.board_fit import BoardFit, BoardRefusal, Placement
from tflm.firmware.device_check import DeviceFinding
from tflm.firmware.verdict import Verdict, verdict_of
from tflm.releases import TODAY
from tflm.report import NUMBER, TEXT, Figure, Report, Table, json_key


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


PLACEMENT_FIGURES = (
    json_key("part", Literal["arena", "head", "tail"], "the whole, or its two pieces if only these fit"),
    json_key("bytes", int, "its size"),
    json_key("bank", str | None, "the memory that it goes to; null if it fits none", "bank.name"),
)

IDENTITY = (
    Figure("board", TEXT, "board.name").as_key(str, "the board", "name"),
    Figure("part", TEXT, "board.target.name").as_key(str, "its part", "target"),
    Figure("kernels", TEXT, lambda fit: _kernels(fit)),
)
FITS = json_key(
    "fits",
    bool,
    "whether it fits for certain: arena, code, static RAM, stack, file and SDK",
    lambda fit: isinstance(fit, BoardFit) and fit.fits,
)
OF_A_FIT = (
    json_key("kernels", str, "the kernel library", "measured.kernels.name"),
    Figure("arena", NUMBER, "measured.minimum_arena_bytes").as_key(
        int, "the smallest arena that works, in one piece", "minimum_arena_bytes"
    ),
    json_key(
        "head_arena_bytes", int | None, "that of the head alone; null with one memory", "separate.head_arena_bytes"
    ),
    json_key("tail_arena_bytes", int | None, "that of the tail; likewise", "separate.tail_arena_bytes"),
    json_key("ram", [MEMORY_FIGURES], "the memories of the board, the fastest first", "board.ram"),
    Figure("memory", TEXT, lambda fit: _memory(fit)),
    Figure("of it", NUMBER, "memory_share", ".1%"),
    json_key("ram_share", float, "the arena's share of all RAM; more than 1 if it does not fit"),
    json_key("placements", [PLACEMENT_FIGURES], "the placement of the arena"),
    json_key("firmware_ram_bytes", int, "static RAM and stack of TFLM, or a bound of them", "firmware_ram.bytes"),
    json_key("firmware_bank", str | None, "their memory; null if unknown or something fits none", "firmware_bank.name"),
    json_key("model_bytes", int, "the model's file"),
    json_key("flash_bytes", int | None, "the flash; null with `--ram`", "board.flash_bytes"),
    Figure("of flash", NUMBER, "flash_share", ".1%").as_key(float | None, "the file's share of it; likewise"),
    json_key("sdk", str | None, "the SDK; null with `--ram`", "board.sdk"),
    json_key("verdict", Verdict, "the verdict", lambda fit: verdict_of(fit)),
)
FIT_FIGURES = (*IDENTITY, FITS, *OF_A_FIT)
"""The figures of a fit; sizes in bytes."""

BOARD_FIGURES = (
    *IDENTITY,
    FITS,
    json_key("reason", str, "why the board's firmware can't run the model")._replace(kind=BoardRefusal),
    *(figure._replace(kind=BoardFit) for figure in OF_A_FIT),
)
"""The figures of a fit or a refusal."""


def fits_table(fits: Sequence[BoardFit | BoardRefusal]) -> Table:
    """List the boards that a model fits."""
    text = Figure("fits", TEXT, lambda fit: verdict(fit) if isinstance(fit, BoardFit) else f"no: {fit.reason}")
    return Table.of("", fits, *BOARD_FIGURES, text)


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
