"""Firmware projects: the sources of `tflm export` plus the files of a build system."""

from __future__ import annotations

from string import Template

import tflm
from tflm.application.export import ArenaMemory, names_of, sources
from tflm.application.machine import Machine
from tflm.application.projects.build import Build, is_esp
from tflm.application.projects.kind import Kind
from tflm.application.projects.kinds import kind_named
from tflm.application.projects.platformio import platformio_style
from tflm.application.projects.templates import rendered
from tflm.boards.board_fit import BoardFit, Placement, board_fit
from tflm.report import with_thousands


def project_files(
    model: tflm.Model,
    stem: str,
    machine: Machine,
    origin: str,
    kind: str,
    typed: bool = False,
    dump: bool = False,
    found: BoardFit | None = None,
) -> dict[str, str]:
    """The files of a project by path.

    Args:
        model, stem, machine, origin, typed, dump: as for `sources`.
        kind: a name from `project_kinds`.
        found: the fit of the model on the board, if known.

    Raises:
        TflmError: the model can't be laid out in an arena.
        RequestError: the kind is unknown or does not support the board or the kernels, or a tensor's type has no C++
            type.
    """
    how = kind_named(kind)
    how.require(machine)
    if found is None and machine.board is not None:
        found = board_fit(model, machine.board, kernels=machine.kernels)
    build = Build(model, machine, names_of(stem, origin), found, dump)
    style = how.style._replace(arenas=tuple(_arena_memory(build, each, how) for each in build.placements))
    if kind == "platformio":
        style = platformio_style(build, style)
    written = sources(model, stem, machine, origin, typed, dump, style)
    folder = Template(how.folder).substitute(build.names)
    values = {**build.names, **_common(build, style.arenas), **how.values(build)}
    main = Template(how.main).substitute(build.names)
    renamed = {main if main and name.startswith("main.") else name: text for name, text in written.items()}
    return {
        **{f"{folder}{name}": text for name, text in renamed.items()},
        **rendered(how.name, values),
        **(rendered("esp-idf", values, "README.md") if how.name == "platformio" and is_esp(build) else {}),
    }


def _common(build: Build, arenas: tuple[ArenaMemory, ...]) -> dict[str, str]:
    """Values for the templates of all kinds."""
    board = build.machine.board
    return {
        "title": build.name,
        "place": build.machine.place if board is None else board.description,
        "board": build.machine.place,
        "part": build.machine.target.description,
        "kernels": build.machine.kernels.name,
        "arena": _arena_text(build),
        "placement": _placement_text(build, arenas),
    }


def _arena_text(build: Build) -> str:
    if build.placements:
        return ", ".join(
            f"its {each.part} of {with_thousands(each.bytes)} in {each.bank.name}"
            for each in build.placements
            if each.bank is not None
        )
    missing = "" if build.found is None or build.found.fits_ram else ", which this board does not have room for"
    return f"an arena in static memory{missing}"


def _placement_text(build: Build, arenas: tuple[ArenaMemory, ...]) -> str:
    placed = [arena for arena in arenas if arena.where]
    if not placed:
        return ""
    lines = "\n".join(
        f"- {arena.where}: `{build.names['guard']}_{arena.macro}_MEMORY`, which is `{arena.attribute}`"
        for arena in placed
    )
    return (
        "\n\n## Where the arena is\n\n`arena_size.h` places the arena by macros. The linker script must know their "
        f"sections; define a macro yourself if your sections have other names.\n\n{lines}"
    )


def _arena_memory(build: Build, placement: Placement, kind: Kind) -> ArenaMemory:
    bank = placement.bank
    if bank is None or bank == build.usual_bank:
        return ArenaMemory(placement.part, placement.bytes)
    attribute, include = kind.memory(bank)
    return ArenaMemory(placement.part, placement.bytes, f"The {placement.part} is in {bank.name}", attribute, include)
