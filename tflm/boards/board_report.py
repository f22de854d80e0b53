"""Whether a model fits a board, and what goes another way on a device, as commands show it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tflm.boards import Bank
from tflm.boards.board_fit import BoardFit, BoardRefusal, KernelsRefusal, Placement
from tflm.boards.device_check import DeviceFinding
from tflm.report import Column, Report, Table
from tflm.runtime.micro_measurement import ArenaMeasurement


def fit_report(fit: BoardFit) -> Report:
    """A board's verdict, then what the arena takes of each memory, in one piece or in two."""
    board = fit.board
    facts = [(_label(placement), _placed(fit, placement)) for placement in fit.placements]
    if fit.firmware_ram is not None:
        where = "" if fit.firmware_bank is None else f" in {fit.firmware_bank.name}"
        static, stack = fit.firmware_ram.static_bytes, fit.firmware_ram.stack_bytes
        facts.append(("RAM beside it", f"static RAM and stack{where}: {static:,} and at most {stack:,} bytes"))
    if board.flash_bytes is not None:
        facts.append(("flash", _share("the model's file", fit.model_bytes, board.flash_bytes)))
    facts.append(("fits", verdict(fit)))
    tables = [_bank_table(fit)] if fit.separate is not None else []
    uncounted = "buffers, the program" if fit.firmware_ram is not None else "static RAM, stack, buffers, the program"
    notes = [f"what else the firmware keeps in RAM and flash is not counted: {uncounted}"]
    return Report(f"on {board.name}: {board.description}", facts, tables, notes)


def verdict(fit: BoardFit) -> str:
    """Whether the model fits the board, and what is left or missing."""
    if fit.fits:
        left = [f"{_left_of(p.bank, fit):,} bytes left of {p.bank.name}" for p in fit.placements if p.bank]
        if fit.board.flash_bytes is not None:
            left.append(f"{fit.board.flash_bytes - fit.model_bytes:,} of the flash")
        return f"yes: {', '.join(left)}"
    missing = []
    if not fit.fits_ram:
        largest = max(fit.board.ram, key=lambda bank: bank.bytes)
        beside = "" if fit.firmware_ram is None else ", with static RAM and stack"
        missing.append(f"{fit.missing_bytes:,} bytes are missing in {largest.name}{beside}")
    if fit.board.flash_bytes is not None and not fit.fits_flash:
        missing.append(f"{fit.model_bytes - fit.board.flash_bytes:,} bytes are missing in the flash")
    return f"no: {', '.join(missing)}"


def _left_of(bank: Bank, fit: BoardFit) -> int:
    """What of a bank neither the arena takes nor static RAM and stack, where these are known."""
    taken = sum(placement.bytes for placement in fit.placements if placement.bank is bank)
    beside = fit.firmware_ram is not None and fit.firmware_bank is bank
    return bank.bytes - taken - (fit.firmware_ram.bytes if fit.firmware_ram is not None and beside else 0)


def _label(placement: Placement) -> str:
    return "RAM" if placement.part == "arena" else f"RAM for the {placement.part}"


def _placed(fit: BoardFit, placement: Placement) -> str:
    bank = placement.bank or max(fit.board.ram, key=lambda bank: bank.bytes)
    return _share(f"{placement.part} in {bank.name}", placement.bytes, bank.bytes)


def _share(what: str, taken: int, available: int) -> str:
    return f"{what}: {taken:,} of {available:,} bytes, {taken / available:.1%}"


def _bank_table(fit: BoardFit) -> Table:
    """Each memory, with what is left of it beside the whole arena, the head alone, the tail alone."""
    assert fit.separate is not None
    pieces = {
        "arena": fit.measured.minimum_arena_bytes,
        "head": fit.separate.head_arena_bytes,
        "tail": fit.separate.tail_arena_bytes,
    }
    columns = {"memory, fastest first": Column.TEXT, "bytes": Column.NUMBER}
    columns |= {f"left beside {piece} of {size:,}": Column.TEXT for piece, size in pieces.items()}
    rows = ((bank.name, bank.bytes, *(_left(bank.bytes - size) for size in pieces.values())) for bank in fit.board.ram)
    return Table("Memories, for the arena in one piece or for head and tail apart", columns, rows)


def _left(size: int) -> str:
    return f"{size:,}" if size >= 0 else f"no, {-size:,} missing"


def fits_table(fits: Sequence[BoardFit | BoardRefusal]) -> Table:
    """Which boards a model fits."""
    columns = {
        "board": Column.TEXT,
        "part": Column.TEXT,
        "kernels": Column.TEXT,
        "arena": Column.NUMBER,
        "memory": Column.TEXT,
        "of it": Column.NUMBER,
        "of flash": Column.NUMBER,
        "fits": Column.TEXT,
    }
    return Table("", columns, map(_fit_row, fits))


def _fit_row(fit: BoardFit | BoardRefusal) -> tuple[Any, ...]:
    board = fit.board
    if isinstance(fit, BoardRefusal):
        return board.name, board.target.name, board.kernels, "", "", "", "", f"no: {fit.reason}"
    measured = fit.measured
    banks = [placement.bank for placement in fit.placements if placement.bank is not None]
    memory = " and ".join(bank.name for bank in banks) or max(board.ram, key=lambda bank: bank.bytes).name
    taken = measured.kernels.name, measured.minimum_arena_bytes, memory
    return board.name, board.target.name, *taken, f"{fit.memory_share:.1%}", f"{fit.flash_share:.1%}", verdict(fit)


def libraries_table(measured: ArenaMeasurement, others: Sequence[ArenaMeasurement | KernelsRefusal]) -> Table:
    """What each kernel library takes that is made for the part, or why it can't run the model."""
    columns = {
        "kernels": Column.TEXT,
        "smallest arena": Column.NUMBER,
        "used": Column.NUMBER,
        "head": Column.NUMBER,
        "tail": Column.NUMBER,
    }
    if any(isinstance(other, KernelsRefusal) for other in others):
        columns["can't run it"] = Column.TEXT
    rows = (_library_row(each)[: len(columns)] for each in (measured, *others))
    return Table(f"On {measured.target.name}, by kernel library", columns, rows)


def _library_row(found: ArenaMeasurement | KernelsRefusal) -> tuple[Any, ...]:
    if isinstance(found, KernelsRefusal):
        return found.kernels.name, "", "", "", "", found.reason
    return (
        found.kernels.name,
        found.minimum_arena_bytes,
        found.arena_used_bytes,
        found.head_bytes,
        found.tail_bytes,
        "",
    )


def concerns_line(findings: Sequence[DeviceFinding]) -> str:
    """In one line, what goes another way on the device; empty where nothing does."""
    if not findings:
        return ""
    operators = {(finding.subgraph_index, finding.operator_index) for finding in findings}
    names = ", ".join(dict.fromkeys(finding.operator or "the model" for finding in findings))
    stop = "some keep it from running" if any(f.stops for f in findings) else "answers differ"
    what = "1 operator goes" if len(operators) == 1 else f"{len(operators)} operators go"
    return f"{what} another way on the device ({names}; {stop}): tflm check says how"


def findings_report(name: str, measured_for: str, findings: Sequence[DeviceFinding]) -> Report:
    """What to know before a model is flashed."""
    columns = {
        "operator": Column.TEXT,
        "what": Column.TEXT,
        "what will happen": Column.TEXT,
        "what to do": Column.TEXT,
    }
    rows = ((_place(f), f.effect.value, f.happens, f.advice) for f in findings)
    tables = [Table("", columns, rows)] if findings else []
    notes = [] if findings else ["every operator is there, and answers as here"]
    if any(finding.shown for finding in findings):
        notes.append("MicroInterpreter(..., target=..., kernels=...) answers as the device does where answers differ")
    return Report(f"{name} on {measured_for}", [], tables, notes)


def _place(finding: DeviceFinding) -> str:
    if finding.operator_index is None:
        return "the model"
    inside = f"{finding.subgraph_index}:" if finding.subgraph_index else ""
    return f"{inside}{finding.operator_index} {finding.operator}"


def board_figures(fit: BoardFit | BoardRefusal) -> dict[str, Any]:
    """A fit, or why there is none, for other programs; sizes in bytes."""
    if isinstance(fit, BoardRefusal):
        return {"name": fit.board.name, "target": fit.board.target.name, "fits": False, "reason": fit.reason}
    return fit_figures(fit)


def fit_figures(fit: BoardFit) -> dict[str, Any]:
    """A fit for other programs; sizes in bytes."""
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
    }
