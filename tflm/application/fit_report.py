"""Report and JSON document of `tflm fit`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from tflm.application.compiled_fit import compile_command, compiled_figures, sizes_text
from tflm.application.fit import Fit
from tflm.application.fit_search import AS_IT_IS, FitStep
from tflm.application.memories import board_uses, memories_table
from tflm.application.several_memories import costs_figures, rivals_table
from tflm.boards.board_report import heap_notes, parts_table, verdict_figures
from tflm.report import NUMBER, TEXT, Report, Table, short_size, with_thousands


def fit_report(found: Fit, name: str) -> Report:
    """Report what every step saved and costs."""
    columns = {"tried": TEXT, "kernels": TEXT, "smallest arena": NUMBER, "saved": NUMBER, "costs": TEXT, "fits": TEXT}
    rows = [
        [step.name, step.kernels, _size(step), step.saved_bytes, _costs(step), _fits(step, found)]
        for step in found.steps
    ]
    facts = [
        ("board", f"{found.board.name}: {found.board.description}"),
        ("RAM", ", ".join(f"{bank.name} {short_size(bank.bytes)}" for bank in found.board.ram)),
        ("reserved", f"{with_thousands(found.reserve_bytes)} for the application"),
    ]
    if found.board.share is not None:
        facts.append(("SDK", found.board.share.description))
    facts.append(("chosen", _chosen(found)))
    notes = ["interrupted: the best result so far"] if found.interrupted else []
    if found.cut_short:
        notes.append(f"the time limit cut short: {', '.join(found.cut_short)}; --time-limit allows more")
    notes += [f"what would help: {advice}" for advice in found.advice]
    if found.compiled is not None:
        sizes = sizes_text(found.compiled)
        notes.append(f"as C without an interpreter it takes {sizes}: {compile_command('MODEL', found.compiled)}")
    if found.boards:
        notes.append(f"the smallest boards that would do: {', '.join(board.name for board in found.boards)}")
    tables = [Table("", columns, rows), memories_table(board_uses(found.model, found.found, found.plan))]
    if found.plan is not None:
        tables.append(rivals_table(found.plan))
    notes += heap_notes(found.found)
    tables.append(parts_table(found.verdict))
    return Report(f"{name} on {found.board.name}", facts, tables, notes, found.verdict.line)


def _chosen(found: Fit) -> str:
    """Describe the chosen version: its arena, in which memory; or how many kinds of changes did not help."""
    arena = f"an arena of {with_thousands(found.minimum_arena_bytes)}"
    version = f"{found.chosen.name} with {found.kernels.name} kernels"
    if not found.found.fits_ram:
        changes = len({step.name for step in found.steps} - {AS_IT_IS})
        tried = "1 kind of change was tried" if changes == 1 else f"{changes} kinds of changes were tried"
        return f"the smallest version, {version}, {arena}; {tried}"
    pieces = found.found.placements
    if len(pieces) > 1:
        arena = " and ".join(f"an arena of {with_thousands(p.bytes)} for the {p.part}" for p in pieces)
    if found.plan is not None:
        arena = " and ".join(with_thousands(p.bytes) for p in pieces)
    slow = ""
    if found.in_external_ram:
        external = " and ".join(p.bank.name for p in pieces if p.bank is not None and p.bank.is_external)
        which = "The tail's memory" if found.found.head_on_chip else external if found.plan else "This memory"
        slow = f". {which} is outside the chip, and slow"
    return f"{version}, {arena}, {found.chosen.memories}{slow}"


def fit_figures(path: Path, found: Fit) -> Any:
    """Return the JSON document; sizes in bytes."""
    return {
        "model": str(path),
        "board": found.board.name,
        "target": found.board.target.name,
        "kernels": found.kernels.name,
        "release": found.kernels.release.name,
        "fits": found.fits,
        "sdk": found.board.sdk or None,
        "verdict": verdict_figures(found.verdict),
        "chosen": found.chosen.name,
        "minimum_arena_bytes": found.minimum_arena_bytes,
        "missing_bytes": found.missing_bytes,
        "reserve_bytes": found.reserve_bytes,
        "in_external_ram": found.in_external_ram,
        "interrupted": found.interrupted,
        "cut_short": list(found.cut_short),
        "placements": [
            {"part": p.part, "bytes": p.bytes, "memory": None if p.bank is None else p.bank.name}
            for p in found.found.placements
        ],
        "memories": [asdict(use) for use in board_uses(found.model, found.found, found.plan)],
        "plan": None if found.plan is None else costs_figures(found.plan),
        "steps": [asdict(step) for step in found.steps],
        "boards": [board.name for board in found.boards],
        "advice": list(found.advice),
        "compiled": compiled_figures(found.compiled),
    }


def _size(step: FitStep) -> str:
    return "cannot run" if step.minimum_arena_bytes is None else f"{step.minimum_arena_bytes:,}"


def _costs(step: FitStep) -> str:
    costs = [f"{step.extra_macs:+.1%} work"] if step.extra_macs > 0.0005 else []
    costs += [f"{step.extra_file_bytes:+,} B of file"] if step.extra_file_bytes else []
    costs += [f"needs {', '.join(step.needed_operators)}"] if step.needed_operators else []
    return step.reason or ", ".join(costs)


def _fits(step: FitStep, found: Fit) -> str:
    if not step.fits:
        return "no"
    return f"yes: {step.memories}" if step is not found.chosen else f"yes, chosen: {step.memories}"
