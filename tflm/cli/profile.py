"""`tflm profile`: where the time of an invoke goes."""

from __future__ import annotations

import statistics
import time
from dataclasses import asdict, dataclass
from typing import Annotated

import numpy as np
import typer

import tflm
from tflm.cli.command_line import (
    AsJson,
    ModelPath,
    NodeData,
    load_model,
    print_json,
    print_line,
    progress,
    show,
    show_table,
    title_of,
)
from tflm.cli.device_profile import estimate_figures, estimate_report
from tflm.cli.node_data import work_figures, write_node_data
from tflm.cli.run import DelegateName, delegates_from, random_inputs, set_inputs
from tflm.evaluation.runner import inputs_of
from tflm.firmware.instructions import clocked_boards
from tflm.report import Column, Table
from tflm.runtime.execution_plan import PlannedNode
from tflm.runtime.growing_arena import ready_interpreter
from tflm.runtime.operator_facts import multiply_accumulates

Place = tuple[int, int]

FAR_APART = 0.25
"""Share of an invoke by which the sum over operators must differ to be worth a line."""


@dataclass
class OperatorTime:
    """Time of an operator in one invoke.

    Attributes:
        subgraph_index, index: its place in the model.
        operator: its name; where a delegate runs several together, its name and theirs, with the place of the first.
        runs: how often it ran in an invoke, on average; 0 for one that CALL_ONCE ran in the first invoke alone.
        microseconds: of all its runs in an invoke; what runs inside it counts, too. Of the first invoke, if runs is 0.
        share: of the time that the operators of the first subgraph take.
        multiply_accumulates: of all its runs in an invoke, of one run if that is 0.
    """

    subgraph_index: int
    index: int
    operator: str
    runs: float
    microseconds: float
    share: float
    multiply_accumulates: int


def timings(model: tflm.Model, runs: int, seed: int, delegate: str | None = None) -> tuple[float, list[OperatorTime]]:
    """Microseconds of an invoke without the profiler, and those of each operator, both medians; the slowest first."""
    profiler = tflm.MicroProfiler()
    plain = ready_interpreter(model, delegates=delegates_from(delegate))
    profiled = ready_interpreter(model, profiler=profiler, delegates=delegates_from(delegate))
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


def _by_place(profiler: tflm.MicroProfiler) -> dict[Place, list[int]]:
    """Nanoseconds of each run of each operator."""
    found: dict[Place, list[int]] = {}
    for event in profiler.events:
        if event.place is not None:
            found.setdefault(event.place, []).append(event.duration_ns)
    return found


def _operator_times(
    model: tflm.Model,
    interpreter: tflm.MicroInterpreter,
    first: dict[Place, list[int]],
    by_run: list[dict[Place, list[int]]],
) -> list[OperatorTime]:
    plans = [interpreter.execution_plan(i) for i in range(len(model.subgraphs))]
    nodes = {(i, node.operators[0]): node for i, plan in enumerate(plans) for node in plan}
    places = dict.fromkeys(place for run in (*by_run, first) for place in run)
    medians = {place: statistics.median(sum(run.get(place, ())) for run in by_run) / 1e3 for place in places}
    total = sum(us for (subgraph, _), us in medians.items() if subgraph == 0) or 1.0
    return [_operator_time(model, place, nodes[place], first, by_run, medians[place], total) for place in places]


def _operator_time(
    model: tflm.Model,
    place: Place,
    node: PlannedNode,
    first: dict[Place, list[int]],
    by_run: list[dict[Place, list[int]]],
    microseconds: float,
    total: float,
) -> OperatorTime:
    subgraph = model.subgraphs[place[0]]
    operators = [(subgraph.operators or [])[i] for i in node.operators]
    runs = statistics.mean(len(run.get(place, ())) for run in by_run)
    share = microseconds / total
    if not runs:
        microseconds = sum(first[place]) / 1e3
    count = sum(multiply_accumulates(model, subgraph, operator) for operator in operators)
    return OperatorTime(*place, node.tag, runs, microseconds, share, round(count * (runs or 1)))


def profile(
    model: ModelPath,
    runs: Annotated[int, typer.Option(metavar="COUNT", min=1, help="How often to invoke; figures are medians.")] = 100,
    seed: Annotated[int, typer.Option(metavar="SEED", min=0, help="For the random inputs.")] = 0,
    delegate: DelegateName = None,
    target: Annotated[
        str | None,
        typer.Option("--target", "-t", metavar="NAME", help="Estimate for a part instead, such as cortex-m4."),
    ] = None,
    board: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Estimate for a board with a Cortex-M instead, such as nano33ble.",
            autocompletion=clocked_boards,
        ),
    ] = None,
    kernels: Annotated[str | None, typer.Option(metavar="NAME", help="Of the device: cmsis-nn or reference.")] = None,
    optimization: Annotated[
        str | None, typer.Option(metavar="NAME", help="What the device's kernels are compiled with: O2 or Os.")
    ] = None,
    mhz: Annotated[float | None, typer.Option(min=1, metavar="MHZ", help="The device's clock.")] = None,
    node_data: NodeData = None,
    as_json: AsJson = False,
) -> None:
    """Time each operator, or estimate a device's time.

    Times are those of this machine; the slowest operator is first.

    An operator of subgraph 2 is called 2:0. What CALL_ONCE runs is shown as of the first invoke.

    With --target or --board nothing runs: instructions follow from shapes, as they were counted on Cortex-M.

    \b
    Examples:
      tflm profile person_detect.tflite --runs 50
      tflm profile person_detect.tflite --board nano33ble
      tflm profile person_detect.tflite --target cortex-m4 --kernels cmsis-nn --optimization Os --mhz 64
    """
    if target is not None or board is not None:
        loaded = load_model(model)
        found = tflm.estimate(loaded, target=target, board=board, kernels=kernels, optimization=optimization, mhz=mhz)
        if node_data is not None:
            cycles = {(0, op.operator_index): op.cycles for op in found.operators if op.cycles is not None}
            write_node_data(node_data, loaded, {"cycles": cycles, "multiply-accumulates": work_figures(loaded)})
        if as_json:
            print_json({"model": str(model), **estimate_figures(found)})
        else:
            show(estimate_report(title_of(model), found))
        return
    if not (kernels is None and optimization is None and mhz is None):
        raise typer.BadParameter("--kernels, --optimization and --mhz are of a device: give --target or --board")
    loaded = load_model(model)
    whole, operators = timings(loaded, runs, seed, delegate)
    if node_data is not None:
        times = {(op.subgraph_index, op.index): op.microseconds for op in operators}
        write_node_data(node_data, loaded, {"microseconds": times, "multiply-accumulates": work_figures(loaded)})
    if as_json:
        print_json(
            {
                "model": str(model),
                "runs": runs,
                "invoke_microseconds": whole,
                "operators_microseconds": _sum_over_operators(operators),
                "operators": [asdict(operator) for operator in operators],
            }
        )
        return
    print_line(f"{whole:,.1f} us an invoke (median of {runs})")
    disagreement = disagreement_line(whole, _sum_over_operators(operators))
    if disagreement:
        print_line(disagreement)
    print_line()
    show_table(_operator_table(operators))


def _sum_over_operators(operators: list[OperatorTime]) -> float:
    """Microseconds of the first subgraph's operators, in which those that they run are contained."""
    return sum(op.microseconds for op in operators if op.subgraph_index == 0 and op.runs)


def disagreement_line(whole: float, operators: float) -> str:
    """What to know where an invoke and the sum over its operators are far apart; empty where they are not."""
    if abs(operators - whole) <= FAR_APART * whole:
        return ""
    causes = (
        "timing them one by one takes time of its own, about 1 us each"
        if operators > whole
        else "the machine may have been busy"
    )
    return f"the operators add up to {operators:,.1f} us, {operators / whole:.2f} of it: {causes}; try more --runs"


def _operator_table(operators: list[OperatorTime]) -> Table:
    columns = {
        "#": Column.NUMBER,
        "operator": Column.NAME,
        "runs": Column.NUMBER,
        "us": Column.NUMBER,
        "share": Column.NUMBER,
        "MACs": Column.NUMBER,
        "MACs/us": Column.NUMBER,
    }
    rows = (
        (
            f"{op.subgraph_index}:{op.index}" if op.subgraph_index else str(op.index),
            op.operator,
            f"{op.runs:.3g}" if op.runs else "once",
            f"{op.microseconds:,.1f}",
            f"{op.share:.1%}" if op.runs else "",
            op.multiply_accumulates or "",
            f"{op.multiply_accumulates / op.microseconds:,.0f}" if op.multiply_accumulates and op.microseconds else "",
        )
        for op in operators
    )
    return Table("", columns, rows)
