"""`tflm plan`: a smaller memory plan, written into the model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

import tflm
from tflm.cli.command_line import (
    AsJson,
    ModelPath,
    TargetName,
    console,
    load_model,
    print_json,
    target_from,
    with_thousands,
)
from tflm.memory import ARENA_ALIGNMENT, PLANNERS, BufferRequirements, MemoryPlanner, OptimalPlanner, SearchProgress
from tflm.memory.minimalloc_csv import NamedBuffer, write_csv
from tflm.memory.plan_search import DEFAULT_TIME_LIMIT
from tflm.targets import Target, align_up


def figures(path: Path, found: tflm.ModelPlan, before: tflm.ArenaMeasurement, after: tflm.ArenaMeasurement) -> Any:
    """A plan for other programs; sizes in bytes."""
    return {
        "model": str(path),
        "target": found.target.name,
        "greedy_head_bytes": found.greedy_head_bytes,
        "head_bytes": found.head_bytes,
        "lower_bound_bytes": found.lower_bound_bytes,
        "proved_optimal": found.proved_optimal,
        "minimum_arena_bytes_before": before.minimum_arena_bytes,
        "minimum_arena_bytes": after.minimum_arena_bytes,
        "offsets": list(found.offsets),
        "overwritten": [{"output": output, "input": input} for output, input in found.overwritten.items()],
        "order": None if found.order is None else list(found.order.order),
    }


def buffers_as_csv(measured: tflm.ArenaMeasurement) -> str:
    """The buffers in the head with their places, as a file of MiniMalloc's."""
    named = [
        NamedBuffer(
            f"{i} {buffer.name}",
            BufferRequirements(align_up(buffer.bytes, ARENA_ALIGNMENT), buffer.first_use, buffer.last_use),
        )
        for i, buffer in enumerate(measured.buffers)
    ]
    return write_csv(named, [buffer.offset for buffer in measured.buffers])


def plan(
    model: ModelPath,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Where the model with the plan goes.")
    ] = None,
    target: TargetName = "cortex-m",
    planner: Annotated[str, typer.Option(metavar="NAME", help=f"Who plans: {', '.join(PLANNERS)}.")] = "optimal",
    time_limit: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            min=0,
            help=f"How long the optimal planner may search: {DEFAULT_TIME_LIMIT:.0f} s, if nothing else is said.",
        ),
    ] = None,
    steps: Annotated[
        int | None,
        typer.Option(metavar="COUNT", min=0, help="Search for so many steps: the same plan on every machine."),
    ] = None,
    in_place: Annotated[
        bool, typer.Option("--in-place", help="Let outputs overwrite inputs that are not needed any more.")
    ] = False,
    reorder: Annotated[bool, typer.Option("--reorder", help="Try another order of the operators, too.")] = False,
    csv: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the planned buffers as MiniMalloc's CSV.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Find a smaller plan of the arena's head, and write it into the model, where TFLM obeys it.

    \b
    Examples:
      tflm plan model.tflite -o planned.tflite
      tflm plan model.tflite -o planned.tflite --in-place --reorder --time-limit 60
    """
    machine = target_from(target)
    if planner not in PLANNERS:
        raise typer.BadParameter(f"no planner is called {planner!r}; there are {', '.join(PLANNERS)}")
    if planner != "optimal" and (time_limit, steps) != (None, None):
        raise typer.BadParameter("--time-limit and --steps are for the optimal planner")
    if time_limit is None and steps is None:
        time_limit = DEFAULT_TIME_LIMIT
    loaded = load_model(model)
    with _search_shown() as progress:
        chosen: str | MemoryPlanner = planner
        if planner == "optimal":
            chosen = OptimalPlanner(time_limit=time_limit, step_limit=steps, progress=progress)
        found = tflm.plan(loaded, None, chosen, target=machine, in_place=in_place, reorder=reorder)
    before, after = measure(loaded, machine), measure(found.model, machine)
    if as_json:
        print_json(figures(model, found, before, after))
    else:
        _show(model, found, before, after)
    if csv is not None:
        csv.write_text(buffers_as_csv(after), encoding="utf-8")
    if output is not None:
        found.write(output)


def measure(model: tflm.Model, target: Target) -> tflm.ArenaMeasurement:
    """What a model needs on a target that obeys its plan."""
    return tflm.measure_arena(model, tflm.AllOpsResolver(), target=target)


@contextmanager
def _search_shown() -> Iterator[Callable[[SearchProgress], None]]:
    """Show on a terminal how far a search is."""
    errors = Console(stderr=True)
    if not errors.is_interactive:
        yield lambda _: None
        return
    with errors.status("planning") as status:
        yield lambda at: status.update(
            f"searching: {at.head_bytes:,} bytes, at least {at.lower_bound_bytes:,}, {at.seconds:.0f} s"
        )


def _show(path: Path, found: tflm.ModelPlan, before: tflm.ArenaMeasurement, after: tflm.ArenaMeasurement) -> None:
    out = console()
    out.print(f"{path.name} on {found.target.name}", style="bold", markup=False)
    out.print(f"head as TFLM plans it      {with_thousands(found.greedy_head_bytes)}")
    out.print(f"head with this plan        {with_thousands(found.head_bytes)}")
    out.print(f"most that is alive at once {with_thousands(found.lower_bound_bytes)}")
    out.print(f"smallest arena             {with_thousands(after.minimum_arena_bytes)}")
    out.print(f"  it was                   {with_thousands(before.minimum_arena_bytes)}")
    if found.overwritten:
        out.print(f"outputs over their inputs  {len(found.overwritten)}")
    if found.order is not None:
        out.print(f"operators reordered        {' '.join(map(str, found.order.order))}")
    if found.proved_optimal:
        out.print("no plan of these buffers is smaller")
    else:
        out.print("a smaller plan may exist: the search was not over; --time-limit gives it more time")
