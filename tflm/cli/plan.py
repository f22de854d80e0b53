"""`tflm plan`: write a smaller memory plan into the model."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

import tflm
from tflm.application.errors import OptionError
from tflm.application.machine import MachineOptions
from tflm.application.memories import head_limit, memories_from
from tflm.application.models import load_model, title_of
from tflm.application.output_files import Written, is_same_file
from tflm.application.rewriting_report import placed, plan_figures, plan_progress
from tflm.atomic_write import write_atomically
from tflm.cli.output import print_json, show, status_line, wrote
from tflm.cli.parameters import NAMED, AsJson, HeadRam, ModelPath, Output, Overlap, TailRam
from tflm.memory import ARENA_ALIGNMENT, PLANNERS, MemoryPlanner, OptimalPlanner
from tflm.memory.plan_search import DEFAULT_TIME_LIMIT
from tflm.planning.minimalloc_csv import write_csv
from tflm.planning.plan_report import shown
from tflm.targets import align_up


def buffers_as_csv(measured: tflm.ArenaMeasurement) -> str:
    """Return the buffers of the head with their offsets, in MiniMalloc's CSV format."""
    buffers = enumerate(measured.buffers)
    return write_csv([replace(b, name=f"{i} {b.name}", size=align_up(b.size, ARENA_ALIGNMENT)) for i, b in buffers])


def plan(
    model: ModelPath,
    output: Output = None,
    on: MachineOptions = NAMED,
    planner: Annotated[str, typer.Option(metavar="NAME", help=f"Planner: {', '.join(PLANNERS)}.")] = "optimal",
    time_limit: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            min=0,
            help=f"Time limit for all searches together. Default: {DEFAULT_TIME_LIMIT:.0f}.",
        ),
    ] = None,
    steps: Annotated[
        int | None,
        typer.Option(
            metavar="COUNT", min=0, help="Limit the search by steps instead of time: same plan on every machine."
        ),
    ] = None,
    in_place: Annotated[
        bool, typer.Option("--in-place", help="Let outputs overwrite inputs that are no longer needed.")
    ] = False,
    reorder: Annotated[bool, typer.Option("--reorder", help="Also try other orders of the operators.")] = False,
    overlap: Overlap = None,
    head_ram: HeadRam = None,
    tail_ram: TailRam = None,
    csv: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the planned buffers as MiniMalloc CSV."), Written.FILE
    ] = None,
    always: Annotated[bool, typer.Option("--always", help="Write the plan even if it is not smaller.")] = False,
    as_json: AsJson = False,
) -> None:
    """Find a smaller memory plan and write it into the model.

    TFLM uses the plan in a model for the arena's head. If the plan found is not smaller, FILE gets the model unchanged.

    With a board, or with --head-ram and --tail-ram, shows the use of each memory and whether it fits.

    \b
    Examples:
      tflm plan model.tflite -o planned.tflite
      tflm plan model.tflite -o planned.tflite --in-place --reorder --time-limit 60
    """
    machine = on.machine()
    memories = memories_from(head_ram, tail_ram, machine.board)
    if planner not in PLANNERS:
        raise OptionError(f"unknown planner {planner!r}; use one of {', '.join(PLANNERS)}")
    if planner != "optimal" and (time_limit, steps) != (None, None):
        raise OptionError("--time-limit and --steps need --planner optimal")
    if time_limit is None and steps is None:
        time_limit = DEFAULT_TIME_LIMIT
    loaded = load_model(model)
    with status_line("planning") as tell:
        chosen: str | MemoryPlanner = planner
        if planner == "optimal":
            chosen = OptimalPlanner(
                time_limit=time_limit, step_limit=steps, progress=lambda at: tell(plan_progress(at))
            )
        found = tflm.plan(
            loaded,
            None,
            chosen,
            target=machine.target,
            kernels=machine.kernels,
            in_place=in_place,
            reorder=reorder,
            overlap=overlap,
            head_ram=head_limit(loaded, machine, memories),
            tail_ram=None if memories is None else memories.tail.bytes,
        )
    where = placed(model, loaded, found, machine, memories)
    written = output is not None and (found.gains or always)
    if output is not None:
        if written:
            found.write(output)
        elif not is_same_file(model, output):
            write_atomically(output, loaded.data)
    if csv is not None:
        write_atomically(csv, buffers_as_csv(found.after).encode())
    if as_json:
        print_json(plan_figures(model, found, written, where))
        return
    report = shown(found, title_of(model))
    if not found.gains:
        kept = "" if output is None or always else f"; {output} is the unchanged model (--always writes the plan)"
        report.notes.append(f"the plan is not smaller{kept}")
    where.add_to(report)
    show(report)
    wrote(*(path for path in (output, csv) if path is not None))
