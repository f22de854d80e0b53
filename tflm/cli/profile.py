"""`tflm profile`: where the time of an invoke goes."""

from __future__ import annotations

import statistics
import time
from dataclasses import asdict, dataclass
from typing import Annotated

import numpy as np
import typer

import tflm
from tflm.cli.command_line import AsJson, ModelPath, console, load_model, print_json, progress, table
from tflm.cli.multiply_accumulates import multiply_accumulates
from tflm.cli.run import inputs_of, random_inputs, ready_interpreter, set_inputs
from tflm.schema.verifier import called_subgraphs


@dataclass
class OperatorTime:
    """Time of an operator in one invoke: its place in the first subgraph (None where all of a name count together)."""

    index: int | None
    operator: str
    microseconds: float
    share: float
    multiply_accumulates: int


def timings(model: tflm.Model, runs: int, seed: int) -> tuple[float, list[OperatorTime]]:
    """Microseconds of an invoke without the profiler, and those of each operator, both medians; the slowest first.

    Where an operator runs other subgraphs, each run may take other operators: then all of a name count together, and
    what runs inside an operator counts for that operator too.
    """
    profiler = tflm.MicroProfiler()
    plain, profiled = ready_interpreter(model), ready_interpreter(model, profiler=profiler)
    values = random_inputs(inputs_of(plain), np.random.default_rng(seed))
    for interpreter in (plain, profiled):
        set_inputs(inputs_of(interpreter), values)
        interpreter.invoke()
    by_run: list[dict[str, int]] = []
    whole = []
    branches = any(called_subgraphs(op) for subgraph in model.subgraphs for op in subgraph.operators or ())
    with progress("timing", runs) as advance:
        for _ in range(runs):
            start = time.perf_counter_ns()
            plain.invoke()
            whole.append(time.perf_counter_ns() - start)
            profiler.clear_events()
            profiled.invoke()
            if branches:
                by_run.append(profiler.ns_per_tag())
            else:
                by_run.append({f"{i}": event.duration_ns for i, event in enumerate(profiler.events)})
            advance()
    operators = _medians(model, by_run, branches)
    return statistics.median(whole) / 1e3, sorted(operators, key=lambda operator: -operator.microseconds)


def _medians(model: tflm.Model, by_run: list[dict[str, int]], branches: bool) -> list[OperatorTime]:
    keys = dict.fromkeys(key for run in by_run for key in run)
    medians = {key: statistics.median(run.get(key, 0) for run in by_run) / 1e3 for key in keys}
    total = sum(medians.values()) or 1.0
    main = model.subgraphs[0]
    operators = main.operators or []
    if branches:
        return [OperatorTime(None, key, us, us / total, 0) for key, us in medians.items()]
    return [
        OperatorTime(i, model.operator_name(op), us, us / total, multiply_accumulates(model, main, op))
        for i, (op, us) in enumerate(zip(operators, medians.values()))
    ]


def profile(
    model: ModelPath,
    runs: Annotated[int, typer.Option(metavar="COUNT", min=1, help="How often to invoke; figures are medians.")] = 100,
    seed: Annotated[int, typer.Option(metavar="SEED", min=0, help="For the random inputs.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Time each operator of a model on this machine, the slowest first.

    \b
    Example:
      tflm profile person_detect.tflite --runs 50
    """
    whole, operators = timings(load_model(model), runs, seed)
    if as_json:
        print_json(
            {
                "model": str(model),
                "runs": runs,
                "invoke_microseconds": whole,
                "operators": [asdict(operator) for operator in operators],
            }
        )
        return
    columns = {"#": "right", "operator": "left", "us": "right", "share": "right", "MACs": "right", "MACs/us": "right"}
    rows = (
        (
            "" if op.index is None else str(op.index),
            op.operator,
            f"{op.microseconds:,.1f}",
            f"{op.share:.1%}",
            op.multiply_accumulates or "",
            f"{op.multiply_accumulates / op.microseconds:,.0f}" if op.multiply_accumulates and op.microseconds else "",
        )
        for op in operators
    )
    out = console()
    out.print(f"{whole:,.1f} us an invoke (median of {runs})")
    out.print(table(None, columns, rows))
