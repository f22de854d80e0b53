"""The flash and static RAM that TFLM takes, and what a board has left, as reports."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import tflm
from tflm.application.machine import Machine
from tflm.firmware.board_budget import BoardBudget
from tflm.firmware.flash import Flash, OperatorFlash
from tflm.report import NAME, NUMBER, TEXT, Report, Table, with_thousands


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


def budget_figures(budget: BoardBudget) -> dict[str, Any]:
    """Return a board's budget for `tflm arena --json`."""
    left = {"flash_left_bytes": budget.flash_left_bytes, "ram_left_bytes": budget.ram_left_bytes}
    return {**asdict(budget), **left}


def budget_report(budget: BoardBudget) -> Report:
    """Report how much of a board the model, TFLM, arena, static RAM and stack leave, if they were measured."""
    facts = []
    if budget.program_range_bytes is not None:
        low, high = (budget.model_bytes + size for size in budget.program_range_bytes)
        taken = f"{low:,}" if low == high else f"{low:,} to {high:,}"
        available, left = budget.flash_available_bytes, budget.flash_left_bytes
        facts.append(("flash", _left("model, TFLM and kernels", taken, available, left)))
    uncounted = "the application, its buffers and interrupts are not counted"
    if budget.ram_left_bytes is not None:
        what = "arena and static RAM" if budget.stack_bytes is None else "arena, static RAM and stack"
        taken = f"{budget.ram_available_bytes - budget.ram_left_bytes:,}"
        facts.append(("RAM", _left(what, taken, budget.ram_available_bytes, budget.ram_left_bytes)))
        if budget.stack_bytes is None:
            uncounted = "the application, its buffers, interrupts and the stack are not counted"
        else:
            facts.append(("stack", f"at most {with_thousands(budget.stack_bytes)}"))
    notes = [uncounted, budget.note] if facts else [budget.note]
    return Report(f"with TFLM and its kernels, release, on {budget.board}", facts, notes=notes)


def _left(what: str, taken: str, available: int | None, left: int | None) -> str:
    if available is None or left is None:
        return f"{what}: {taken} bytes"
    return f"{what}: {taken} of {available:,} bytes; left: {f'{left:,}' if left >= 0 else f'no, {-left:,} missing'}"


def _operator_table(operators: tuple[OperatorFlash, ...]) -> Table:
    columns = {"operator": NAME, "own bytes": NUMBER, "shared bytes": NUMBER, "shared with": TEXT}
    rows = ((op.operator, op.own_bytes, op.shared_bytes, _others(op, len(operators))) for op in operators)
    return Table("", columns, rows)


def _others(operator: OperatorFlash, count: int) -> str:
    everyone = len(operator.shared_with) == count - 1 > 1
    return "all others" if everyone else ", ".join(name.removeprefix("Add") for name in operator.shared_with)


def firmware_flash_bytes(model: tflm.Model, machine: Machine) -> int | None:
    """Flash of TFLM, the operators and the model; None if unknown for the target and kernels."""
    try:
        found = tflm.flash(model, target=machine.target, kernels=machine.kernels)
    except tflm.TflmError:
        return None
    return None if found.flash_bytes is None else found.flash_bytes + found.model_bytes
