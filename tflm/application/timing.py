"""Times of operators: measured here, and estimated for a device."""

from __future__ import annotations

import collections
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tflm.application.progress import Progress, silent
from tflm.application.running import delegates_from, random_inputs, set_inputs
from tflm.delegates import Delegate, default_delegates
from tflm.evaluation.runner import inputs_of
from tflm.firmware.instructions import ENOUGH, Estimate, OperatorEstimate
from tflm.graph import multiply_accumulates
from tflm.report import NAME, NUMBER, Figure, Report, Table
from tflm.runtime.growing_arena import ready_interpreter
from tflm.runtime.micro_interpreter import MicroInterpreter
from tflm.runtime.micro_profiler import MicroProfiler
from tflm.schema.model import Model

Place = tuple[int, int]

FAR_APART = 0.25
"""Share of an invoke by which the sum over operators must differ to be reported."""


@dataclass
class OperatorTime:
    """Time of an operator in one invoke.

    Attributes:
        subgraph_index: the index of its subgraph.
        index: its index in the subgraph; that of the first operator if a delegate runs several together.
        operator: its name, or the delegate's with the names of the operators that it runs together.
        runs: runs per invoke, on average; 0 for operators that CALL_ONCE ran only in the first invoke.
        microseconds: median time of its runs per invoke, including subgraphs; of the first invoke if `runs` is 0.
        share: its share of the time of the first subgraph's operators, from 0 to 1.
        multiply_accumulates: those per invoke, or of one run if `runs` is 0; 0 for operators without weights.
    """

    subgraph_index: int
    index: int
    operator: str
    runs: float
    microseconds: float
    share: float
    multiply_accumulates: int


def timings(
    model: Model, runs: int, seed: int, delegate: str | None, progress: Progress = silent
) -> tuple[float, list[OperatorTime]]:
    """Return median microseconds of an invoke without the profiler, and timings of the operators, the slowest first.

    The default delegates wait for the compiler first.
    """
    profiler = MicroProfiler()
    plain, profiled = (
        ready_interpreter(model, delegates=_waiting_delegates(model, delegate), profiler=observer)
        for observer in (None, profiler)
    )
    values = random_inputs(inputs_of(plain), np.random.default_rng(seed))
    for interpreter in (plain, profiled):
        set_inputs(inputs_of(interpreter), values)
        interpreter.invoke()
    first = _by_place(profiler)
    by_run = []
    whole = []
    with progress("timing", runs) as advance:
        for _ in range(runs):
            start = time.perf_counter_ns()
            plain.invoke()
            whole.append(time.perf_counter_ns() - start)
            profiler.clear_events()
            profiled.invoke()
            by_run.append(_by_place(profiler))
            advance()
    operators = _operator_times(model, profiled, first, by_run)
    return statistics.median(whole) / 1e3, sorted(operators, key=lambda operator: -operator.microseconds)


def _waiting_delegates(model: Model, name: str | None) -> list[Delegate]:
    delegates = delegates_from(name)
    return default_delegates(model, waits=True) if delegates is None else delegates


def _by_place(profiler: MicroProfiler) -> dict[Place, list[int]]:
    """Return nanoseconds of each run of each operator."""
    found: dict[Place, list[int]] = {}
    for event in profiler.events:
        if event.place is not None:
            found.setdefault(event.place, []).append(event.duration_ns)
    return found


def _operator_times(
    model: Model, interpreter: MicroInterpreter, first: dict[Place, list[int]], by_run: list[dict[Place, list[int]]]
) -> Iterator[OperatorTime]:
    plans = [interpreter.execution_plan(i) for i in range(len(model.subgraphs))]
    nodes = {(i, node.operators[0]): node for i, plan in enumerate(plans) for node in plan}
    places = dict.fromkeys(place for run in (*by_run, first) for place in run)
    medians = {place: statistics.median(sum(run.get(place, ())) for run in by_run) / 1e3 for place in places}
    total = sum(us for (subgraph, _), us in medians.items() if subgraph == 0) or 1.0
    for place, median in medians.items():
        subgraph, node = model.subgraphs[place[0]], nodes[place]
        runs = statistics.mean(len(run.get(place, ())) for run in by_run)
        microseconds = median if runs else sum(first[place]) / 1e3
        operators = ((subgraph.operators or [])[i] for i in node.operators)
        count = sum(multiply_accumulates(model, subgraph, operator) for operator in operators)
        yield OperatorTime(*place, node.tag, runs, microseconds, median / total, round(count * (runs or 1)))


def sum_over_operators(operators: list[OperatorTime]) -> float:
    """Return microseconds of the first subgraph's operators, which include those that they run."""
    return sum(op.microseconds for op in operators if op.subgraph_index == 0 and op.runs)


def disagreement_line(whole: float, operators: float) -> str:
    """Explain a large difference between an invoke and the sum of its operators; empty if there is none."""
    if abs(operators - whole) <= FAR_APART * whole:
        return ""
    causes = "timing takes about 1 us per operator" if operators > whole else "the machine may have been busy"
    return f"the operators add up to {operators:,.1f} us, {operators / whole:.2f} of it: {causes}; try more --runs"


def timing_report(whole: float, runs: int, operators: list[OperatorTime]) -> Report:
    """Report the time of an invoke and of each operator.

    Args:
        whole: median microseconds of an invoke over `runs`.
    """
    disagreement = disagreement_line(whole, sum_over_operators(operators))
    title = f"{whole:,.1f} us an invoke (median of {runs})"
    return Report(title, [], [_operator_table(operators)], [disagreement] if disagreement else [])


def _operator_table(operators: list[OperatorTime]) -> Table:
    def speed(op: OperatorTime) -> float | None:
        return op.multiply_accumulates / op.microseconds if op.multiply_accumulates and op.microseconds else None

    return Table.of(
        "",
        operators,
        Figure("#", NUMBER, lambda op: f"{op.subgraph_index}:{op.index}".removeprefix("0:")),
        Figure("operator", NAME, "operator"),
        Figure("runs", NUMBER, lambda op: f"{op.runs:.3g}" if op.runs else "once"),
        Figure("us", NUMBER, "microseconds", ",.1f"),
        Figure("share", NUMBER, lambda op: op.share if op.runs else None, ".1%"),
        Figure("MACs", NUMBER, lambda op: op.multiply_accumulates or None),
        Figure("MACs/us", NUMBER, speed, ",.0f"),
    )


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
    return Report(title, facts, [_estimate_table(found)], [*_left_out(found), found.note])


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


def _estimate_table(found: Estimate) -> Table:
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
