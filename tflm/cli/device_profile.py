"""`tflm profile` for a device: instructions and time of each operator on a Cortex-M, estimated."""

from __future__ import annotations

import collections
from typing import Any

from tflm.firmware.instructions import ENOUGH, Estimate
from tflm.report import Column, Report, Table


def estimate_figures(found: Estimate) -> dict[str, Any]:
    """What `--json` prints of an estimate, beside the model."""
    return {
        "target": found.target,
        "kernels": found.kernels,
        "optimization": found.optimization,
        "instructions": found.instructions,
        "cycles": found.cycles,
        "instructions_within": found.instructions_within,
        "device_cycles": found.device_cycles,
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
        ("instructions", _bounded(f"{found.instructions:,}", found.instructions_within, found)),
        ("cycles", _bounded(f"about {_rounded(found.device_cycles)}", found.within, found)),
        ("table cycles", f"{found.cycles:,}"),
        ("covered", f"{_share(found.covered)} of the instructions"),
    ]
    title = f"{name} on {found.target}, {found.kernels} kernels, {found.optimization}"
    return Report(title, facts, [_operator_table(found)], [*_left_out(found), found.note])


def _time(found: Estimate) -> str:
    if found.milliseconds is None:
        return _no_time(found)
    return f"about {_rounded(found.milliseconds)} ms, within {found.within:.0%}"


def _bounded(figure: str, within: float, found: Estimate) -> str:
    if not found.instructions:
        return "not known: there are formulas for none of the operators"
    if found.covered < ENOUGH:
        return f"{figure} in what is covered; {1 + within:.2g} times that at most"
    return f"{figure}, within {within:.0%}"


def _rounded(value: float) -> str:
    return f"{float(f'{value:.2g}'):,g}" if value < 100 else f"{round(float(f'{value:.2g}')):,}"


def _share(covered: float) -> str:
    """A share that is 100% only where nothing is left out."""
    return "100%" if covered == 1 else f"{min(covered, 0.999):.1%}"


def _no_time(found: Estimate) -> str:
    if found.covered < ENOUGH:
        return "not said: too little of the model is covered"
    return "not said: give the clock, --mhz"


def _left_out(found: Estimate) -> list[str]:
    reasons = collections.Counter(f"{op.operator}: {op.reason}" for op in found.operators if op.instructions is None)
    lines = [f"not in the figures: {count} {what}" for what, count in reasons.items()]
    guessed = sum(op.guessed_instructions for op in found.operators)
    if guessed:
        lines.append(f"what is not in the figures may take {_rounded(guessed)} instructions: a guess")
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
