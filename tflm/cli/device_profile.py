"""`tflm profile` for a device: instructions and time of each operator on a Cortex-M, estimated."""

from __future__ import annotations

import collections
from typing import Any

from tflm.firmware.instructions import ENOUGH, SILICON, Estimate
from tflm.report import Column, Report, Table


def estimate_figures(found: Estimate) -> dict[str, Any]:
    """What `--json` prints of an estimate, beside the model."""
    return {
        "target": found.target,
        "kernels": found.kernels,
        "optimization": found.optimization,
        "instructions": found.instructions,
        "cycles": found.cycles,
        "milliseconds": found.milliseconds,
        "within": found.within,
        "covered": found.covered,
        "note": found.note,
        "operators": [operator._asdict() for operator in found.operators],
    }


def estimate_report(name: str, found: Estimate) -> Report:
    """Time where it can be said, totals, each operator, and what the figures assume and leave out."""
    facts = [
        ("time", _time(found)),
        ("instructions", f"{found.instructions:,}"),
        ("table cycles", f"{found.cycles:,}"),
        ("covered", f"{found.covered:.0%} of the multiply-accumulates"),
    ]
    title = f"{name} on {found.target}, {found.kernels} kernels, {found.optimization}"
    return Report(title, facts, [_operator_table(found)], [*_left_out(found), found.note])


def _time(found: Estimate) -> str:
    if found.milliseconds is None:
        return _no_time(found)
    within = "provisional" if found.within is None else f"within {found.within:.0%}"
    return f"about {float(f'{found.milliseconds:.2g}'):,g} ms, {within}"


def _no_time(found: Estimate) -> str:
    if found.target not in SILICON or found.kernels != "cmsis-nn":
        return "not said: no such part was measured with these kernels"
    if found.covered < ENOUGH:
        return "not said: too little of the model is covered"
    return "not said: give the clock, --mhz"


def _left_out(found: Estimate) -> list[str]:
    reasons = collections.Counter(f"{op.operator}: {op.reason}" for op in found.operators if op.instructions is None)
    lines = [f"not in the figures: {count} {what}" for what, count in reasons.items()]
    if any(op.instructions is None and not op.multiply_accumulates for op in found.operators):
        lines.append("an operator without weights counts with the elements of its outputs in what is covered")
    return lines


def _operator_table(found: Estimate) -> Table:
    columns = {
        "#": Column.NUMBER,
        "operator": Column.NAME,
        "instructions": Column.NUMBER,
        "table cycles": Column.NUMBER,
        "share": Column.NUMBER,
        "MACs": Column.NUMBER,
    }
    rows = (
        (
            op.operator_index,
            op.operator,
            "" if op.instructions is None else op.instructions,
            "" if op.cycles is None else op.cycles,
            "" if op.cycles is None or not found.cycles else f"{op.cycles / found.cycles:.1%}",
            op.multiply_accumulates or "",
        )
        for op in found.operators
    )
    return Table("", columns, rows)
