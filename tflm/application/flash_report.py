"""Reports of the flash and static RAM that TFLM takes, and of what a board has left."""

from __future__ import annotations

from tflm.application.machine import Machine
from tflm.errors import TflmError
from tflm.firmware.flash import Flash, OperatorFlash, flash
from tflm.report import NAME, NUMBER, TEXT, Figure, Report, Table, with_thousands
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
