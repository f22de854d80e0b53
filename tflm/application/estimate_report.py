"""Report estimated instructions and time of each operator on a Cortex-M, for `tflm profile`."""

from __future__ import annotations

import collections

from tflm.firmware.instructions import ENOUGH, Estimate, OperatorEstimate
from tflm.report import NAME, NUMBER, Figure, Report, Table


def estimate_report(name: str, found: Estimate) -> Report:
    """Report the time if it is known, totals, each operator, assumptions, and what is not covered."""
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
        return "unknown: no operator has a formula"
    if found.covered < ENOUGH:
        return f"{figure} for the covered part; at most {1 + within:.2g} times that"
    return f"{figure}, within {within:.0%}"


def _rounded(value: float) -> str:
    return f"{float(f'{value:.2g}'):,g}" if value < 100 else f"{round(float(f'{value:.2g}')):,}"


def _share(covered: float) -> str:
    """Format a share; 100% only if everything is covered."""
    return "100%" if covered == 1 else f"{min(covered, 0.999):.1%}"


def _no_time(found: Estimate) -> str:
    if found.covered < ENOUGH:
        return "unknown: too little of the model is covered"
    return "unknown: specify the clock with --mhz"


def _left_out(found: Estimate) -> list[str]:
    reasons = collections.Counter(f"{op.operator}: {op.reason}" for op in found.operators if op.instructions is None)
    lines = [f"not covered: {count} {what}" for what, count in reasons.items()]
    guessed = sum(op.guessed_instructions for op in found.operators)
    if guessed:
        lines.append(f"operators that are not covered may take {_rounded(guessed)} instructions (rough estimate)")
    return lines


def _operator_table(found: Estimate) -> Table:
    def share(operator: OperatorEstimate) -> float | None:
        return operator.cycles / found.cycles if operator.cycles is not None and found.cycles else None

    return Table.of(
        "",
        found.operators,
        Figure("#", NUMBER, "operator_index"),
        Figure("operator", NAME, "operator"),
        Figure("instructions", NUMBER, "instructions"),
        Figure("table cycles", NUMBER, "cycles"),
        Figure("share", NUMBER, share, ".1%"),
        Figure("MACs", NUMBER, lambda op: op.multiply_accumulates or None),
    )
