"""`tflm arena`: how large an arena must be, and what is in it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import typer

import tflm
from tflm import libraries
from tflm.arena_page import arena_page
from tflm.boards import Bank, Board, boards
from tflm.boards.board_fit import KernelsRefusal, arena_with, board_fit, fits_of
from tflm.boards.board_report import (
    board_figures,
    concerns_line,
    fit_figures,
    fit_report,
    fits_table,
    libraries_table,
    verdict,
)
from tflm.boards.device_check import operator_findings
from tflm.cli.badge import badge
from tflm.cli.command_line import (
    AsJson,
    BoardName,
    CheckFailed,
    KernelsName,
    Machine,
    NodeData,
    ReleaseName,
    Shapes,
    TargetName,
    bytes_from,
    kernels_from,
    load_model,
    machine_from,
    print_json,
    print_line,
    progress,
    show,
    show_table,
    title_of,
    with_shapes,
    wrote,
)
from tflm.cli.flash import budget_figures, budget_report
from tflm.cli.node_data import arena_figures, write_node_data
from tflm.firmware.board_budget import board_budget
from tflm.libraries import REFERENCE, library_for
from tflm.memory import ARENA_ALIGNMENT, MODEL_PLANNERS, PLANNERS
from tflm.report import Column, Report, Table, short_size, with_thousands
from tflm.runtime.micro_graph import MicroGraph
from tflm.runtime.micro_interpreter import lay_out
from tflm.runtime.micro_measurement_report import drawn_figures, measurement_figures, shown
from tflm.targets import align_up

SHARED_ARENA_BYTES = 1 << 26

PLANNER_NAMES = (*PLANNERS, *MODEL_PLANNERS)

NAME_THE_PART = (
    "these are figures of TFLM's reference kernels; most firmware has a library for its part: "
    "--target cortex-m4, esp32s3 and so on, or --board, shows what that takes"
)


@dataclass
class SharedArena:
    """Bytes of one arena that several models share: their heads overlap, their tails add up."""

    arena_used_bytes: int
    head_bytes: int
    tail_bytes: int


def share(models: Sequence[tflm.Model], machine: Machine, planner: str) -> SharedArena:
    """Lay models out in one arena, one after the other.

    Raises:
        TflmError: a model can't be laid out.
    """
    allocator = tflm.MicroAllocator(
        np.zeros(SHARED_ARENA_BYTES, np.uint8), planner, machine.target, kernels=machine.kernels
    )
    with np.errstate(all="ignore"):
        for model in models:
            lay_out(MicroGraph(model, tflm.AllOpsResolver(), (), machine.kernels), allocator)
    return SharedArena(allocator.used_bytes(), allocator.head_bytes, allocator.tail_bytes)


def figures(path: Path, measured: tflm.ArenaMeasurement) -> dict[str, Any]:
    """A measurement for other programs; sizes in bytes."""
    return {"model": str(path), **measurement_figures(measured)}


def arena(
    models: Annotated[list[Path], typer.Argument(metavar="MODEL", help="One .tflite file, or several to share.")],
    target: TargetName = None,
    kernels: KernelsName = None,
    release: ReleaseName = None,
    board: BoardName = None,
    all_boards: Annotated[bool, typer.Option("--boards", help="Which boards the model fits.")] = False,
    ram: Annotated[
        str | None, typer.Option(metavar="SIZE", help="Memory of a part that is no board of the table, such as 64K.")
    ] = None,
    planner: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help=f"How the head is planned: {', '.join(PLANNER_NAMES)}.",
            autocompletion=lambda: list(PLANNER_NAMES),
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
    badge_file: Annotated[
        Path | None,
        typer.Option(
            "--badge", metavar="FILE", help="Write what is needed as a badge, an .svg: red where it is too much."
        ),
    ] = None,
    beside: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="A second plan to draw beside the first.", autocompletion=lambda: list(PLANNER_NAMES)
        ),
    ] = None,
    node_data: NodeData = None,
    shape: Shapes = None,
    as_json: AsJson = False,
) -> None:
    """Show the arena that a model needs, to the byte.

    What takes the room is shown, too: the buffers that are alive at the peak, and the records of the tail.

    \b
    Examples:
      tflm arena model.tflite --board nano33ble
      tflm arena model.tflite --target cortex-m4 --kernels cmsis-nn --budget 64K
      tflm arena model.tflite --planner optimal --beside greedy --html arena.html
      tflm arena wake_word.tflite commands.tflite --json
      tflm arena model.tflite --shape input=1,96,96,1
    """
    machine = machine_from(target, None if all_boards else kernels, board, release=release)
    for name in (planner, beside):
        if name is not None and name not in PLANNER_NAMES:
            raise typer.BadParameter(f"no planner is called {name!r}; there are {', '.join(PLANNER_NAMES)}")
    if beside is not None and html is None and plot is None:
        raise typer.BadParameter("--beside needs --html or --plot to draw to")
    if len(models) > 1 and any(each is not None for each in (html, plot, node_data)):
        raise typer.BadParameter("--html, --plot and --node-data are for one model")
    if sum((all_boards, all_targets, board is not None, ram is not None)) > 1:
        raise typer.BadParameter("give one of --board, --boards, --ram and --all-targets")
    if all_boards and any(each is not None for each in (html, plot, badge_file, node_data, budget)):
        raise typer.BadParameter("--boards is a table of many: give one --board")
    if all_targets and kernels is not None:
        raise typer.BadParameter("--all-targets has the figures of the reference kernels; give one --target")
    limit = None if budget is None else bytes_from(budget)
    place = _with_ram(machine, ram) if ram is not None else machine.board
    loaded = [with_shapes(load_model(path), shape) for path in models]
    if all_boards:
        _show_boards(models, loaded, machine, kernels, planner, as_json)
        return
    found = _found(models, loaded, machine, planner, all_targets, place, limit)
    _draw(models[0], loaded[0], machine, [planner] if beside is None else [planner, beside], html, plot)
    written = [path for path in (html, plot) if path is not None]
    if node_data is not None:
        written += write_node_data(node_data, loaded[0], arena_figures(found.measured[0][1]))
    if badge_file is not None:
        label = f"tensor arena on {machine.target.name if machine.board is None else machine.board.name}"
        badge_file.write_text(badge(label, short_size(found.needed_bytes), found.is_fitting), encoding="utf-8")
        written.append(badge_file)
    if as_json:
        print_json(_as_json(found, loaded, machine, planner, all_targets))
    elif all_targets:
        show_table(_target_table(found.measured))
    else:
        _show(found, loaded, machine, planner)
    if not as_json:
        wrote(*written)
    _require_fit(found)


class Found(NamedTuple):
    """What there is to say of the models; sizes in bytes.

    Attributes:
        measured: each model on each machine.
        shared: of an arena that several share.
        needed_bytes: the largest of what is needed.
        fits: of each model, where a memory was named.
        limit: the budget.
    """

    measured: list[tuple[Path, tflm.ArenaMeasurement]]
    shared: SharedArena | None
    needed_bytes: int
    fits: list[tflm.BoardFit]
    limit: int | None

    @property
    def is_fitting(self) -> bool:
        """Whether all is within budget and memory."""
        return (self.limit is None or self.needed_bytes <= self.limit) and all(fit.fits for fit in self.fits)


def _found(
    models: list[Path],
    loaded: list[tflm.Model],
    machine: Machine,
    planner: str,
    all_targets: bool,
    place: Board | None,
    limit: int | None,
) -> Found:
    """The figures of each model on the machine, or on every target; and whether they fit a place."""
    machines = [Machine(each, REFERENCE, None) for each in tflm.targets.TARGETS.values()] if all_targets else [machine]
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
    fits = [] if place is None else [board_fit(m, place, kernels=machine.kernels, planner=planner) for m in loaded]
    return Found(measured, shared, needed, fits, limit)


def _draw(
    path: Path, model: tflm.Model, machine: Machine, planners: list[str], html: Path | None, plot: Path | None
) -> None:
    if html is None and plot is None:
        return
    plans = {name: drawn(path, model, machine, name) for name in planners}
    if html is not None:
        html.write_text(arena_page(title_of(path), plans), encoding="utf-8")
    if plot is not None:
        from tflm.cli.arena_plot import arena_plot  # matplotlib takes a while to load

        arena_plot(plot, title_of(path), plans)


def _as_json(
    found: Found, loaded: list[tflm.Model], machine: Machine, planner: str, all_targets: bool
) -> dict[str, Any]:
    by_model = [_other_kernels(model, machine, planner) for model in loaded]
    return {
        "target": None if all_targets else machine.target.name,
        "kernels": None if all_targets else machine.kernels.name,
        "release": machine.kernels.release.name,
        "planner": planner,
        "models": [figures(path, m) for path, m in found.measured],
        **{
            key: [each for of_model in by_model for each in of_model[key]]
            for key in ("other_kernels", "refusing_kernels")
        },
        "shared": None if found.shared is None else asdict(found.shared),
        "boards": [fit_figures(fit) for fit in found.fits],
        "budgets": [budget_figures(board_budget(each, fit)) for each, fit in zip(loaded, found.fits)],
        "budget_bytes": found.limit,
        "needed_bytes": found.needed_bytes,
        "fits": found.is_fitting,
    }


def _show(found: Found, loaded: list[tflm.Model], machine: Machine, planner: str) -> None:
    for i, (path, measurement) in enumerate(found.measured):
        if i:
            print_line()
        show(full_report(path, loaded[i], measurement, machine, planner))
        for fit in found.fits[i : i + 1]:
            print_line()
            show(fit_report(fit))
            print_line()
            show(budget_report(board_budget(loaded[i], fit)))
    if found.shared is not None:
        print_line()
        show(_shared_report(found.shared, found.needed_bytes))


def _require_fit(found: Found) -> None:
    if found.limit is not None and found.needed_bytes > found.limit:
        over = found.needed_bytes - found.limit
        raise CheckFailed(f"needs {found.needed_bytes:,} bytes, {over:,} more than the budget of {found.limit:,}")
    for fit in found.fits:
        if not fit.fits:
            raise CheckFailed(f"does not fit {fit.board.name}: {verdict(fit).removeprefix('no: ')}")


def _with_ram(machine: Machine, ram: str) -> Board:
    """A board of which no more is known than a part and the size of its memory."""
    banks = (Bank("RAM", bytes_from(ram)),)
    return Board(f"a part with {ram}", machine.target.description, machine.target, machine.kernels.name, "", banks)


def _show_boards(
    paths: list[Path], models: list[tflm.Model], machine: Machine, kernels: str | None, planner: str, as_json: bool
) -> None:
    """What each model takes of every board of the table; of those that the kernels are for, where some are named."""
    family = "" if kernels is None else kernels_from(kernels).family
    known = [board for board in boards().values() if family in ("", board.target.family)]
    fits = [list(fits_of(model, known, kernels=kernels, planner=planner, release=machine.release)) for model in models]
    if as_json:
        by_model = [{"model": str(p), "boards": [board_figures(fit) for fit in each]} for p, each in zip(paths, fits)]
        print_json({"planner": planner, "models": by_model})
        return
    for path, of_model in zip(paths, fits):
        table = fits_table(of_model)
        show(Report(f"{title_of(path)} on boards, with the kernels that are usual there", [], [table]))


def others(model: tflm.Model, machine: Machine, planner: str) -> Iterator[tflm.ArenaMeasurement | KernelsRefusal]:
    """What a model needs with the other kernel libraries that are for the part, or why one of them can't run it.

    There are none for a mere data model.
    """
    for name in libraries.MODULES if machine.target.family else ():
        is_for_it = libraries.by_name(name).family in ("", machine.target.family)
        if name != machine.kernels.name.partition("@")[0] and is_for_it:
            built = library_for(name, machine.target, machine.release)
            yield arena_with(model, machine.target, built, planner=planner)


def _other_kernels(model: tflm.Model, machine: Machine, planner: str) -> dict[str, list[dict[str, Any]]]:
    """The other kernel libraries for programs: those that can run a model, and those that can't."""
    found = list(others(model, machine, planner))
    return {
        "other_kernels": [_kernels_figures(each) for each in found if not isinstance(each, KernelsRefusal)],
        "refusing_kernels": [
            {"kernels": each.kernels.name, "reason": each.reason} for each in found if isinstance(each, KernelsRefusal)
        ],
    }


def _kernels_figures(measured: tflm.ArenaMeasurement) -> dict[str, Any]:
    return {
        "kernels": measured.kernels.name,
        "release": measured.kernels.release.name,
        "arena_used_bytes": measured.arena_used_bytes,
        "head_bytes": measured.head_bytes,
        "tail_bytes": measured.tail_bytes,
        "minimum_arena_bytes": measured.minimum_arena_bytes,
    }


def full_report(
    path: Path, model: tflm.Model, measured: tflm.ArenaMeasurement, machine: Machine, planner: str
) -> Report:
    """The measurement, beside what other kernel libraries would take, and what goes another way on the device."""
    report = shown(measured, title_of(path))
    if machine.target.family:
        report.tables.append(libraries_table(measured, list(others(model, machine, planner))))
    elif machine.target.pointer_size == 4:
        report.notes.append(NAME_THE_PART)
    findings = operator_findings(model, target=machine.target, kernels=machine.kernels, board=machine.board)
    line = concerns_line(findings)
    report.notes.extend([line] if line else [])
    return report


def drawn(path: Path, model: tflm.Model, machine: Machine, planner: str) -> dict[str, Any]:
    """A measurement for a picture, with what other kernels take."""
    others_figures = _other_kernels(model, machine, planner)["other_kernels"]
    return {"model": str(path), **drawn_figures(measure(model, machine, planner)), "other_kernels": others_figures}


def measure(model: tflm.Model, machine: Machine, planner: str) -> tflm.ArenaMeasurement:
    """What a model needs on a machine, with every operator at hand."""
    resolver = tflm.AllOpsResolver()
    return tflm.measure_arena(model, resolver, target=machine.target, kernels=machine.kernels, planner=planner)


def _target_table(measured: list[tuple[Path, tflm.ArenaMeasurement]]) -> Table:
    columns = {
        "model": Column.NAME,
        "target": Column.TEXT,
        "smallest arena": Column.NUMBER,
        "used": Column.NUMBER,
        "head": Column.NUMBER,
        "tail": Column.NUMBER,
    }
    rows = (
        (title_of(path), m.target.name, m.minimum_arena_bytes, m.arena_used_bytes, m.head_bytes, m.tail_bytes)
        for path, m in measured
    )
    return Table("", columns, rows)


def _shared_report(shared: SharedArena, needed: int) -> Report:
    facts = [
        ("needed", with_thousands(needed)),
        ("in use once allocated", with_thousands(shared.arena_used_bytes)),
        ("  head (the largest one)", with_thousands(shared.head_bytes)),
        ("  tail (of all together)", with_thousands(shared.tail_bytes)),
    ]
    return Report("all in one arena", facts)
