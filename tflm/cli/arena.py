"""`tflm arena`: how large an arena must be, and what is in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

import tflm
from tflm.cli.arena_page import arena_page
from tflm.cli.command_line import (
    AsJson,
    CheckFailed,
    TargetName,
    bytes_from,
    console,
    load_model,
    print_json,
    progress,
    table,
    target_from,
    with_thousands,
)
from tflm.memory import ARENA_ALIGNMENT, PLANNERS
from tflm.micro_interpreter import lay_out
from tflm.targets import Target, align_up

LARGEST_BUFFERS = 10
SHARED_ARENA_BYTES = 1 << 26


@dataclass
class SharedArena:
    """Bytes of one arena that several models share: their heads overlap, their tails add up."""

    arena_used_bytes: int
    head_bytes: int
    tail_bytes: int


def share(models: Sequence[tflm.Model], target: Target, planner: str) -> SharedArena:
    """Lay models out in one arena, one after the other.

    Raises:
        TflmError: a model can't be laid out.
    """
    allocator = tflm.MicroAllocator(np.zeros(SHARED_ARENA_BYTES, np.uint8), planner, target)
    with np.errstate(all="ignore"):
        for model in models:
            lay_out(model, tflm.AllOpsResolver(), allocator)
    return SharedArena(allocator.used_bytes(), allocator.head_bytes, allocator.tail_bytes)


def figures(path: Path, measured: tflm.ArenaMeasurement) -> dict[str, Any]:
    """A measurement for other programs; sizes in bytes."""
    return {
        "model": str(path),
        "target": measured.target.name,
        "arena_used_bytes": measured.arena_used_bytes,
        "head_bytes": measured.head_bytes,
        "tail_bytes": measured.tail_bytes,
        "minimum_arena_bytes": measured.minimum_arena_bytes,
        "temp_bytes": measured.temp_bytes,
        "records": {
            kind.value: {
                "requested_bytes": record.requested_bytes,
                "used_bytes": record.used_bytes,
                "count": record.count,
            }
            for kind, record in measured.records.items()
        },
        "peak": {
            "operator": measured.peak.operator,
            "subgraph_index": measured.peak.subgraph_index,
            "operator_index": measured.peak.operator_index,
            "step": measured.peak.step,
            "bytes": measured.peak.bytes,
            "buffers": [buffer.name for buffer in measured.peak.buffers],
        },
        "buffers": [buffer_figures(buffer) for buffer in measured.buffers],
        "steps": measured.steps,
    }


def buffer_figures(buffer: tflm.PlannedBuffer) -> dict[str, Any]:
    """A buffer for other programs: offset and size in bytes, first and last use in steps."""
    return {
        **buffer._asdict(),
        "type": None if buffer.type is None else buffer.type.name,
        "dims": list(buffer.dims),
    }


def arena(
    models: Annotated[list[Path], typer.Argument(metavar="MODEL", help="One .tflite file, or several to share.")],
    target: TargetName = "cortex-m",
    planner: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help=f"How the head is planned: {', '.join(PLANNERS)}.",
            autocompletion=lambda: list(PLANNERS),
        ),
    ] = "greedy",
    budget: Annotated[
        str | None, typer.Option(metavar="SIZE", help="Exit with status 1 where more is needed: 64K, 65536.")
    ] = None,
    all_targets: Annotated[bool, typer.Option("--all-targets", help="The figures of every target.")] = False,
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw the plan as a page that needs nothing else.")
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw the plan as a picture: .png, .svg, .pdf.")
    ] = None,
    beside: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="A second plan to draw beside the first.", autocompletion=lambda: list(PLANNERS)
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show how large an arena a model needs on a machine, to the byte, and what takes the room.

    \b
    Examples:
      tflm arena model.tflite --target cortex-m --budget 64K
      tflm arena model.tflite --planner optimal --beside greedy --html arena.html
      tflm arena wake_word.tflite commands.tflite --json
    """
    machine = target_from(target)
    for name in (planner, beside):
        if name is not None and name not in PLANNERS:
            raise typer.BadParameter(f"no planner is called {name!r}; there are {', '.join(PLANNERS)}")
    if beside is not None and html is None and plot is None:
        raise typer.BadParameter("--beside needs --html or --plot to draw to")
    if len(models) > 1 and (html is not None or plot is not None):
        raise typer.BadParameter("--html and --plot draw the plan of one model")
    limit = None if budget is None else bytes_from(budget)
    loaded = [load_model(path) for path in models]
    machines = list(tflm.targets.TARGETS.values()) if all_targets else [machine]
    measured = []
    with progress("laying out", len(loaded) * len(machines)) as advance:
        for path, model in zip(models, loaded):
            for each in machines:
                measured.append((path, measure(model, each, planner)))
                advance()
        shared = share(loaded, machine, planner) if len(loaded) > 1 and not all_targets else None
    needed = max(m.minimum_arena_bytes for _, m in measured)
    if shared is not None:
        needed = max(needed, align_up(shared.arena_used_bytes, ARENA_ALIGNMENT))
    if as_json:
        print_json(
            {
                "target": None if all_targets else machine.name,
                "planner": planner,
                "models": [figures(path, m) for path, m in measured],
                "shared": None if shared is None else asdict(shared),
                "budget_bytes": limit,
                "needed_bytes": needed,
                "fits": limit is None or needed <= limit,
            }
        )
    elif all_targets:
        console().print(_target_table(measured))
    else:
        for path, measurement in measured:
            _show(path, measurement)
        if shared is not None:
            _show_shared(shared, needed)
    if html is not None or plot is not None:
        _draw(models[0], loaded[0], machine, [name for name in (planner, beside) if name is not None], html, plot)
    if limit is not None and needed > limit:
        raise CheckFailed(f"needs {needed:,} bytes, {needed - limit:,} more than the budget of {limit:,}")


def measure(model: tflm.Model, target: Target, planner: str) -> tflm.ArenaMeasurement:
    """What a model needs on a target, with every operator at hand."""
    return tflm.measure_arena(model, tflm.AllOpsResolver(), target=target, planner=planner)


def _show(path: Path, measured: tflm.ArenaMeasurement) -> None:
    out = console()
    out.print(f"{path.name} on {measured.target.name}", style="bold", markup=False)
    out.print(f"smallest arena that works  {with_thousands(measured.minimum_arena_bytes)}")
    out.print(f"in use once allocated      {with_thousands(measured.arena_used_bytes)}")
    out.print(f"  head (tensors, scratch)  {with_thousands(measured.head_bytes)}")
    out.print(f"  tail (the runtime's)     {with_thousands(measured.tail_bytes)}")
    peak = measured.peak
    where = f"operator {peak.operator_index} {peak.operator}" if peak.operator else "inputs are filled"
    out.print(f"most is alive at           step {peak.step}, {where}: {with_thousands(peak.bytes)}")
    out.print()
    out.print(_buffer_table("Alive there", peak.buffers[:LARGEST_BUFFERS], measured.steps))
    rest = [buffer for buffer in measured.buffers if buffer not in peak.buffers]
    rest.sort(key=lambda buffer: -buffer.bytes)
    if rest and len(peak.buffers) < LARGEST_BUFFERS:
        out.print()
        out.print(_buffer_table("Largest others", rest[: LARGEST_BUFFERS - len(peak.buffers)], measured.steps))
    out.print()
    rows = ((kind.value, r.count, r.used_bytes) for kind, r in measured.records.items() if r.count)
    out.print(table("Tail, as recorded", {"what": "left", "count": "right", "bytes": "right"}, rows))
    out.print()


def _buffer_table(title: str, buffers: Sequence[tflm.PlannedBuffer], steps: list[str]) -> object:
    columns = {
        "bytes": "right",
        "offset": "right",
        "buffer": "left",
        "type": "left",
        "shape": "left",
        "alive in steps": "left",
    }
    rows = (
        (
            b.bytes,
            b.offset,
            b.name if b.kind == "tensor" else f"scratch of {b.name}",
            "" if b.type is None else b.type.name,
            " ".join(map(str, b.dims)),
            f"{_step(b.first_use, steps)} to {_step(b.last_use, steps)}",
        )
        for b in buffers
    )
    return table(title, columns, rows)


def _step(step: int, steps: list[str]) -> str:
    return f"{step} {steps[step]}" if steps[step] else ("inputs" if step == 0 else f"{step}")


def _target_table(measured: list[tuple[Path, tflm.ArenaMeasurement]]) -> object:
    columns = {
        "model": "left",
        "target": "left",
        "smallest arena": "right",
        "used": "right",
        "head": "right",
        "tail": "right",
    }
    rows = (
        (path.name, m.target.name, m.minimum_arena_bytes, m.arena_used_bytes, m.head_bytes, m.tail_bytes)
        for path, m in measured
    )
    return table(None, columns, rows)


def _show_shared(shared: SharedArena, needed: int) -> None:
    out = console()
    out.print("all in one arena", style="bold")
    out.print(f"needed                     {with_thousands(needed)}")
    out.print(f"in use once allocated      {with_thousands(shared.arena_used_bytes)}")
    out.print(f"  head (the largest one)   {with_thousands(shared.head_bytes)}")
    out.print(f"  tail (of all together)   {with_thousands(shared.tail_bytes)}")


def _draw(
    path: Path, model: tflm.Model, target: Target, planners: list[str], html: Path | None, plot: Path | None
) -> None:
    plans = {name: figures(path, measure(model, target, name)) for name in planners}
    if html is not None:
        html.write_text(arena_page(path.name, plans), encoding="utf-8")
    if plot is not None:
        from tflm.cli.arena_plot import arena_plot  # matplotlib takes a while to load

        arena_plot(plot, path.name, plans)
