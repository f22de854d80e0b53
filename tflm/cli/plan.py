"""`tflm plan`: a smaller memory plan, written into the model."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Annotated, Any

import typer

import tflm
from tflm.atomic_write import write_atomically
from tflm.cli.command_line import (
    AsJson,
    BoardName,
    KernelsName,
    ModelPath,
    ReleaseName,
    TargetName,
    load_model,
    machine_from,
    print_json,
    show,
    status_line,
    title_of,
    wrote,
)
from tflm.memory import ARENA_ALIGNMENT, PLANNERS, BufferRequirements, MemoryPlanner, OptimalPlanner, SearchProgress
from tflm.memory.plan_search import DEFAULT_TIME_LIMIT
from tflm.planning.minimalloc_csv import NamedBuffer, write_csv
from tflm.planning.plan_report import shown
from tflm.targets import align_up

Overlap = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Let outputs reach into inputs as these kernels' loops allow it: reference. Wrong with other kernels.",
    ),
]


def figures(path: Path, found: tflm.ModelPlan, written: bool) -> Any:
    """A plan for other programs; sizes in bytes."""
    return {
        "model": str(path),
        "target": found.target.name,
        "kernels": found.after.kernels.name,
        "release": found.after.kernels.release.name,
        "greedy_head_bytes": found.greedy_head_bytes,
        "head_bytes": found.head_bytes,
        "head_bytes_before": found.before.head_bytes,
        "lower_bound_bytes": found.lower_bound_bytes,
        "proved_optimal": found.proved_optimal,
        "minimum_arena_bytes_before": found.minimum_arena_bytes_before,
        "minimum_arena_bytes": found.minimum_arena_bytes,
        "gains": found.gains,
        "written": written,
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
    target: TargetName = None,
    kernels: KernelsName = None,
    release: ReleaseName = None,
    board: BoardName = None,
    planner: Annotated[str, typer.Option(metavar="NAME", help=f"Who plans: {', '.join(PLANNERS)}.")] = "optimal",
    time_limit: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            min=0,
            help=f"How long all searches together may take: {DEFAULT_TIME_LIMIT:.0f} s, if nothing else is said.",
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
    overlap: Overlap = None,
    csv: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the planned buffers as MiniMalloc's CSV.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Let FILE be the model itself, which is replaced.")] = False,
    always: Annotated[bool, typer.Option("--always", help="Write the plan even where it gains nothing.")] = False,
    as_json: AsJson = False,
) -> None:
    """Find a smaller memory plan, and write it into the model.

    TFLM obeys the plan that a model has for the arena's head.

    A plan that gains nothing is not written: FILE then has the model as it was.

    \b
    Examples:
      tflm plan model.tflite -o planned.tflite
      tflm plan model.tflite -o planned.tflite --in-place --reorder --time-limit 60
    """
    machine = machine_from(target, kernels, board, release=release)
    if planner not in PLANNERS:
        raise typer.BadParameter(f"no planner is called {planner!r}; there are {', '.join(PLANNERS)}")
    if planner != "optimal" and (time_limit, steps) != (None, None):
        raise typer.BadParameter("--time-limit and --steps are for the optimal planner")
    require_output(model, output, force)
    if time_limit is None and steps is None:
        time_limit = DEFAULT_TIME_LIMIT
    loaded = load_model(model)
    with status_line("planning") as tell:
        chosen: str | MemoryPlanner = planner
        if planner == "optimal":
            chosen = OptimalPlanner(time_limit=time_limit, step_limit=steps, progress=lambda at: tell(how_far(at)))
        found = tflm.plan(
            loaded,
            None,
            chosen,
            target=machine.target,
            kernels=machine.kernels,
            in_place=in_place,
            reorder=reorder,
            overlap=overlap,
        )
    written = output is not None and (found.gains or always)
    if output is not None:
        if written:
            found.write(output)
        elif not same_file(model, output):
            write_atomically(output, loaded.data)
    if csv is not None:
        csv.write_text(buffers_as_csv(found.after), encoding="utf-8")
    if as_json:
        print_json(figures(model, found, written))
        return
    report = shown(found, title_of(model))
    if not found.gains:
        kept = "" if output is None or always else f"; {output} has the model as it was (--always writes the plan)"
        report.notes.append(f"nothing is gained{kept}")
    show(report)
    wrote(*(path for path in (output, csv) if path is not None))


def require_output(model: Path, output: Path | None, force: bool) -> None:
    """Check, before a search begins, that its result can be written.

    Raises:
        typer.BadParameter: the file is the model itself, which only `--force` replaces.
        OSError: the folder is not there or can't be written to; or the file is a folder.
    """
    if output is None:
        return
    if not force and same_file(model, output):
        raise typer.BadParameter(f"{output} is the model itself; --force replaces it")
    if output.is_dir():
        raise IsADirectoryError(errno.EISDIR, "is a directory; name a file", str(output))
    folder = output.resolve().parent
    if not folder.is_dir():
        raise FileNotFoundError(errno.ENOENT, f"No such folder: {folder}; make it first", str(output))
    if not (output.exists() or os.access(folder, os.W_OK)):
        raise PermissionError(errno.EACCES, f"the folder {folder} can't be written to", str(output))


def same_file(model: Path, output: Path) -> bool:
    """Whether a model would be written to where it stands."""
    return model.exists() and output.exists() and model.samefile(output)


def how_far(at: SearchProgress) -> str:
    """How far a search is, for people."""
    return f"{at.stage}: {at.head_bytes:,} bytes, at least {at.lower_bound_bytes:,}, {at.seconds:.0f} s"
