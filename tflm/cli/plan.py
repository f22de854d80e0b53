"""`tflm plan`: write a smaller memory plan into the model."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import tflm
from tflm.application.errors import OptionError
from tflm.application.export import identifier
from tflm.application.machine import MachineOptions
from tflm.application.memories import head_limit, memories_from
from tflm.application.models import load_model, title_of
from tflm.application.output_files import Written, is_same_file
from tflm.application.rewriting_report import placed, plan_progress, smaller_figures
from tflm.application.several_memories import memories_figures, memories_of, memories_report
from tflm.atomic_write import write_atomically
from tflm.cli.output import answer, status_line
from tflm.cli.parameters import NAMED, AsJson, HeadRam, ModelPath, Overlap, PlanMemories, TailRam, flag, option
from tflm.memory import ARENA_ALIGNMENT, PLANNERS, MemoryPlanner, OptimalPlanner
from tflm.memory.plan_search import DEFAULT_TIME_LIMIT
from tflm.planning.minimalloc_csv import write_csv
from tflm.planning.plan_report import PLAN_FIGURES, shown
from tflm.targets import align_up


def buffers_as_csv(measured: tflm.ArenaMeasurement) -> str:
    """Return the buffers of the head with their offsets, in MiniMalloc's CSV format."""
    buffers = enumerate(measured.buffers)
    return write_csv([replace(b, name=f"{i} {b.name}", size=align_up(b.size, ARENA_ALIGNMENT)) for i, b in buffers])


def plan(
    model: ModelPath,
    output: Annotated[
        Path | None,
        option("FILE", "File for the new model; with --memories, folder for memory_plan.h.", "--output", "-o"),
        Written.MODEL,
    ] = None,
    on: MachineOptions = NAMED,
    planner: Annotated[str, option("NAME", f"Planner: {', '.join(PLANNERS)}.")] = "optimal",
    time_limit: Annotated[
        float | None,
        option("SECONDS", f"Time limit for all searches together. Default: {DEFAULT_TIME_LIMIT:.0f}.", min=0),
    ] = None,
    steps: Annotated[
        int | None, option("COUNT", "Limit the search by steps instead of time: same plan on every machine.", min=0)
    ] = None,
    in_place: Annotated[bool, flag("--in-place", "Let outputs overwrite inputs that are no longer needed.")] = False,
    reorder: Annotated[bool, flag("--reorder", "Also try other orders of the operators.")] = False,
    overlap: Overlap = None,
    memories: PlanMemories = None,
    cost: Annotated[
        str | None,
        option(
            "NAME:COST,...",
            "Cost of a byte that is read or written in each memory, as SRAM:1,PSRAM:6. Default: 1 for the first "
            "or the chip's own memories, 6 for others.",
        ),
    ] = None,
    rate: Annotated[
        str | None,
        option(
            "NAME:MB/S,...",
            "Megabytes that a memory reads or writes in a second, as PSRAM:40, for the time of the traffic.",
        ),
    ] = None,
    head_ram: HeadRam = None,
    tail_ram: TailRam = None,
    csv: Annotated[Path | None, option("FILE", "Write the planned buffers as MiniMalloc CSV."), Written.FILE] = None,
    always: Annotated[bool, flag("--always", "Write the plan even if it is not smaller.")] = False,
    as_json: AsJson = False,
) -> None:
    """Find a smaller memory plan and write it into the model.

    TFLM uses the plan in a model for the arena's head. If the plan found is not smaller, FILE gets the model unchanged.

    With --memories, places the buffers in several memories, for stock TFLM with the planner in memory_plan.h.

    With a board, or with --head-ram and --tail-ram, shows the use of each memory and whether it fits.

    \b
    Examples:
      tflm plan model.tflite -o planned.tflite
      tflm plan model.tflite -o planned.tflite --in-place --reorder --time-limit 60
      tflm plan model.tflite -o firmware --memories SRAM:200K,PSRAM:4M --cost SRAM:1,PSRAM:6
    """
    machine = on.machine()
    separate = memories_from(head_ram, tail_ram, machine.board)
    if planner not in PLANNERS:
        raise OptionError(f"unknown planner {planner!r}; use one of {', '.join(PLANNERS)}")
    if planner != "optimal" and (time_limit, steps) != (None, None):
        raise OptionError("--time-limit and --steps need --planner optimal")
    if time_limit is None and steps is None:
        time_limit = DEFAULT_TIME_LIMIT
    loaded = load_model(model)
    if memories is None and (cost, rate) != (None, None):
        raise OptionError("--cost and --rate are for --memories, as --memories SRAM:200K,PSRAM:4M")
    if memories is not None and (separate is not None or csv is not None or always or planner != "optimal"):
        raise OptionError(
            "--memories places head and tail itself: omit --head-ram, --tail-ram, --csv, --always, --planner"
        )
    with status_line("planning") as tell:
        chosen: str | MemoryPlanner = planner
        if planner == "optimal":
            chosen = OptimalPlanner(
                time_limit=time_limit, step_limit=steps, progress=lambda at: tell(plan_progress(at))
            )
        options: dict[str, Any] = {"target": machine.target, "kernels": machine.kernels}
        options |= {"in_place": in_place, "reorder": reorder, "overlap": overlap}
        if memories is not None:
            given = memories_of(memories, loaded, machine, cost, rate)
            in_memories = tflm.plan(loaded, None, chosen, memories=given, **options)
        else:
            head = head_limit(loaded, machine, separate)
            tail = None if separate is None else separate.tail.bytes
            found = tflm.plan(loaded, None, chosen, head_ram=head, tail_ram=tail, **options)
    if memories is not None:
        files = [] if output is None else in_memories.write(output, identifier(model.stem))
        report = memories_report(in_memories, title_of(model), machine)
        answer(as_json, memories_figures(model, in_memories, machine, files), report, files=files)
        return
    where = placed(model, loaded, found, machine, separate)
    written = output is not None and (found.gains or always)
    if output is not None:
        if written:
            found.write(output)
        elif not is_same_file(model, output):
            write_atomically(output, loaded.data)
    if csv is not None:
        write_atomically(csv, buffers_as_csv(found.after).encode())
    report = shown(found, title_of(model))
    if not found.gains:
        kept = "" if output is None or always else f"; {output} is the unchanged model (--always writes the plan)"
        report.notes.append(f"the plan is not smaller{kept}")
    where.add_to(report)
    figures = {**smaller_figures(model, found, PLAN_FIGURES, where), "written": written}
    answer(as_json, figures, report, files=[output, csv])
