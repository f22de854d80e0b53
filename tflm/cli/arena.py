"""`tflm arena`: how large an arena must be, and what is in it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import tflm
from tflm.application.arena import (
    ArenaLimits,
    arena_needs,
    board_with_ram,
    drawn,
    fits_of_boards,
    needs_figures,
    needs_reports,
    target_table,
)
from tflm.application.errors import OptionError
from tflm.application.machine import MachineOptions
from tflm.application.models import bytes_from, load_model, title_of, with_shapes
from tflm.application.output_files import Written
from tflm.application.settings import smallest_budget
from tflm.atomic_write import write_atomically
from tflm.cli.output import answer, print_json, progress, short, show_table, wrote
from tflm.cli.parameters import NAMED, AsJson, NodeData, PlanMemories, Shapes, Short, argument, flag, option
from tflm.memory import MODEL_PLANNERS, PLANNERS
from tflm.report import Report, document_of, short_size

PLANNER_NAMES = (*PLANNERS, *MODEL_PLANNERS)


def arena(
    models: Annotated[list[Path], argument("MODEL", "One or more .tflite files; several share an arena.")],
    on: MachineOptions = NAMED,
    all_boards: Annotated[bool, flag("--boards", "List the boards that the model fits.")] = False,
    ram: Annotated[str | None, option("SIZE", "RAM of a part that is not a known board, such as 64K.")] = None,
    planner: Annotated[
        str,
        option("NAME", f"Planner of the head: {', '.join(PLANNER_NAMES)}.", autocompletion=lambda: list(PLANNER_NAMES)),
    ] = "greedy",
    budget: Annotated[str | None, option("SIZE", "Exit with status 1 if more is needed, such as 64K or 65536.")] = None,
    all_targets: Annotated[bool, flag("--all-targets", "Show the figures for every target.")] = False,
    html: Annotated[Path | None, option("FILE", "Draw the plan as a self-contained HTML page."), Written.FILE] = None,
    plot: Annotated[Path | None, option("FILE", "Draw the plan as an image: .png, .svg or .pdf."), Written.FILE] = None,
    badge_file: Annotated[
        Path | None,
        option("FILE", "Write the arena size as an .svg badge; red if it does not fit.", "--badge"),
        Written.FILE,
    ] = None,
    second_planner: Annotated[
        str | None,
        option(
            "NAME", "Draw the plan of a second planner next to the first.", autocompletion=lambda: list(PLANNER_NAMES)
        ),
    ] = None,
    memories: PlanMemories = None,
    node_data: NodeData = None,
    shape: Shapes = None,
    is_short: Short = False,
    as_json: AsJson = False,
) -> None:
    """Show the arena that a model needs, to the byte.

    Also lists the buffers that are alive at the peak and the structures in the tail.

    \b
    Examples:
      tflm arena model.tflite --board nano33ble
      tflm arena model.tflite --target cortex-m4 --kernels cmsis-nn --budget 64K
      tflm arena model.tflite --planner optimal --second-planner greedy --html arena.html
      tflm arena model.tflite --memories SRAM:100K,PSRAM:4M --html arena.html
      tflm arena wake_word.tflite commands.tflite --json
      tflm arena model.tflite --shape input=1,96,96,1
    """
    machine = (on._replace(kernels=None) if all_boards else on).machine()
    for name in (planner, second_planner):
        if name is not None and name not in PLANNER_NAMES:
            raise OptionError(f"unknown planner {name!r}; use one of {', '.join(PLANNER_NAMES)}")
    if second_planner is not None and html is None and plot is None:
        raise OptionError("--second-planner needs --html or --plot")
    if memories is not None and (second_planner is not None or planner != "greedy" or (html is None and plot is None)):
        raise OptionError(
            "--memories needs --html or --plot, and no --planner or --second-planner; see also tflm plan --memories"
        )
    if len(models) > 1 and any(each is not None for each in (html, plot, node_data)):
        raise OptionError("--html, --plot and --node-data take one model")
    if sum((all_boards, all_targets, on.board is not None, ram is not None)) > 1:
        raise OptionError("use only one of --board, --boards, --ram and --all-targets")
    if all_boards and (is_short or any(each is not None for each in (html, plot, badge_file, node_data, budget))):
        raise OptionError("--html, --plot, --badge, --node-data, --budget and --short need one --board, not --boards")
    if all_targets and on.kernels is not None:
        raise OptionError("--all-targets covers only the reference kernels; use --target with --kernels")
    loaded = [(path, with_shapes(load_model(path), shape)) for path in models]
    if all_boards:
        _show_boards(loaded, on, machine.reserve or 0, planner, as_json)
        return
    limits = ArenaLimits(
        board_with_ram(machine, ram) if ram is not None else machine.board,
        ram,
        bytes_from(budget) if budget is not None else smallest_budget(models),
    )
    needs = arena_needs(loaded, machine, planner, limits, all_targets, progress)
    if memories is None:
        names = [planner] if second_planner is None else [planner, second_planner]
        written = _draw(loaded[0], lambda: {name: drawn(*loaded[0], machine, name) for name in names}, html, plot)
    else:
        from tflm.application.several_memories import drawn_memories, memories_of  # loads the generator of C

        given = memories_of(memories, loaded[0][1], machine)
        found = tflm.plan(loaded[0][1], target=machine.target, kernels=machine.kernels, memories=given)
        written = _draw(loaded[0], lambda: drawn_memories(found, machine), html, plot)
    if node_data is not None:
        from tflm.application.node_data import arena_figures, write_node_data

        written += write_node_data(node_data, loaded[0][1], arena_figures(needs.measured[0][1]))
    if badge_file is not None:
        from tflm.application.badge import badge

        text = badge(f"tensor arena on {machine.place}", short_size(needs.needed_bytes), needs.is_fitting)
        write_atomically(badge_file, text.encode())
        written.append(badge_file)
    if is_short:
        short(as_json, needs.verdict.line if needs.verdict is not None else "")
    elif as_json:
        print_json(needs_figures(needs))
    elif all_targets:
        show_table(target_table(needs.measured))
    else:
        answer(False, None, *needs_reports(needs))
    if not (as_json or is_short):
        wrote(*written)
    needs.require_fit()


def _show_boards(
    models: list[tuple[Path, tflm.Model]], on: MachineOptions, reserve: int, planner: str, as_json: bool
) -> None:
    """Show how each model fits every known board, or every board that the given kernels are for."""
    from tflm.firmware.board_report import BOARD_FIGURES, fits_table  # loads the boards

    found = [(path, fits_of_boards(model, on.kernels, planner, on.release, reserve)) for path, model in models]
    documents = [{"model": path, "boards": [document_of(fit, BOARD_FIGURES) for fit in fits]} for path, fits in found]
    title = "{} on boards, with their usual kernels"
    reports = [Report(title.format(title_of(path)), [], [fits_table(fits)]) for path, fits in found]
    answer(as_json, {"planner": planner, "models": documents}, *reports)


def _draw(
    model: tuple[Path, tflm.Model],
    plans_of: Callable[[], dict[str, dict[str, Any]]],
    html: Path | None,
    plot: Path | None,
) -> list[Path]:
    """Draw the plans and return the files written."""
    if html is None and plot is None:
        return []
    title, plans = title_of(model[0]), plans_of()
    if html is not None:
        from tflm.arena_page import arena_page

        write_atomically(html, arena_page(title, plans).encode())
    if plot is not None:
        from tflm.application.arena_plot import arena_plot

        arena_plot(plot, title, plans)
    return [path for path in (html, plot) if path is not None]
