"""Firmware projects: the sources of `tflm export` plus the files of a build system."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from string import Template

from tflm.application.export import ArenaMemory, Firmware, SourceStyle, sources
from tflm.application.machine import Machine
from tflm.application.projects.bare import tflm_values
from tflm.application.projects.build import NOT_BUILT, Build, project_names
from tflm.application.projects.kind import Kind
from tflm.application.projects.kinds import KINDS, kind_named
from tflm.application.projects.templates import console, rendered, wire
from tflm.application.several_memories import spread_of
from tflm.firmware.board_fit import BoardFit, Placement
from tflm.libraries import KernelLibrary
from tflm.planning import MemoriesPlan
from tflm.release import DISTRIBUTION
from tflm.report import with_thousands
from tflm.schema.model import Model

ARDUINO_FIRST = "#include <Chirale_TensorFlowLite.h>\n"

ESP_ALLOCATION = "heap_caps_aligned_alloc(16, $size, MALLOC_CAP_INTERNAL | MALLOC_CAP_8BIT)"
"""How ESP-IDF allocates an arena."""

CALLBACK = 'extern "C" void RegisterDebugLogCallback(void (*print)(const char* text));  // of TFLM\n'

REGISTER = "RegisterDebugLogCallback(Print);"


def project_files(
    firmware: Firmware,
    kind: str,
    typed: bool = False,
    dump: bool = False,
    found: BoardFit | None = None,
    planned: Callable[[KernelLibrary], MemoriesPlan] | None = None,
    serve: bool = False,
) -> dict[str, str]:
    """The files of a project by path.

    The arena is for the TFLM that the project pins, which may differ from the machine's if that was not chosen.

    Args:
        firmware, typed, dump, serve: as for `sources`.
        kind: a name from `project_kinds`.
        found: the fit of the model on the board, if known.
        planned: plans the model in several memories of the board, for a kernel library.

    Raises:
        TflmError: the model can't be laid out in an arena.
        RequestError: the kind is unknown or does not support the board or the kernels, or a tensor's type has no C++
            type.
    """
    how, machine = kind_named(kind), machine_of_project(firmware.machine, kind)
    model = firmware.model
    if machine.board is not None and (found is None or found.measured.kernels != machine.kernels):
        found = _fit(model, machine, found)
    plan = None
    if planned is not None and machine.board is not None and found is not None:
        plan = planned(machine.kernels)
        model, found = plan.model, replace(found, spread=spread_of(plan, machine.board))
    build = Build(model, machine, project_names(firmware.stem, firmware.origin), found, dump)
    arenas = tuple(_arena_memory(build, each, how) for each in build.placements)
    folder = Template(how.folder).substitute(build.names)
    values = {**build.names, **_common(build, arenas), **tflm_values(build), **how.values(build)}
    style = _style(build, how, values if serve else None)._replace(arenas=arenas, plan=plan)
    written = sources(firmware._replace(model=model, machine=machine), typed, dump, style, serve)
    main = Template(how.main).substitute(build.names)
    renamed = {main if main and name.startswith("main.") else name: text for name, text in written.items()}
    templates = (how.name, *how.templates, *how.source)
    return {
        **{f"{folder}{name}": text for name, text in renamed.items()},
        **rendered(templates, values, folder),
        **(rendered(("esp-idf",), values, folder, "README.md") if _is_idf_of_platformio(how, machine) else {}),
    }


def machine_of_project(machine: Machine, kind: str) -> Machine:
    """The machine with the TFLM and kernels that a project pins.

    Raises:
        RequestError: the kind is unknown, or does not support the board, the kernels or the chosen TFLM.
    """
    how = kind_named(kind)
    how.require(machine)
    return (KINDS["esp-idf"] if _is_idf(how, machine) else how).pinned(machine)


def _is_idf_of_platformio(how: Kind, machine: Machine) -> bool:
    return how.name == "platformio" and machine.target.family == "espressif"


def _is_idf(how: Kind, machine: Machine) -> bool:
    """Whether ESP-IDF builds the project."""
    return how.name == "esp-idf" or _is_idf_of_platformio(how, machine)


def _fit(model: Model, machine: Machine, found: BoardFit | None) -> BoardFit:
    """The fit with the TFLM that the project pins, for the reserve and memories of another fit."""
    if found is None:
        return machine.fit(model)
    return machine._replace(reserve=found.reserve_bytes).fit(model, split=found.split)


def _style(build: Build, how: Kind, served: Mapping[str, str] | None) -> SourceStyle:
    """How the sources differ; on PlatformIO they are those of the framework. `served` has values for the wire."""
    entry, suffix, first, log = how.entry, how.suffix, "", ""
    if _is_idf(how, build.machine):
        entry, suffix = KINDS["esp-idf"].entry, ".cc"
        entry = entry._replace(signature=f'extern "C" {entry.signature}')
    elif build.kernels == "arduino":
        first = ARDUINO_FIRST
    elif how.source or how.name == "platformio":
        first, log = CALLBACK, REGISTER
    wired = "" if served is None else wire(entry.console, served)
    return SourceStyle(suffix, first, entry.ending(log), console(entry.console), wire=wired)


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
        "placement": _placement_text(build, arenas) + _versions_text(build),
        "package": DISTRIBUTION,
        "not_built": NOT_BUILT,
    }


def _arena_text(build: Build) -> str:
    if build.placements:
        return ", ".join(
            f"its {each.part.replace('_', ' ')} of {with_thousands(each.bytes)} in {each.bank.name}"
            for each in build.placements
            if each.bank is not None
        )
    missing = "" if build.found is None or build.found.fits_ram else ", which this board does not have room for"
    return f"an arena in static memory{missing}"


def _placement_text(build: Build, arenas: tuple[ArenaMemory, ...]) -> str:
    text = "".join(f" {arena.where}." for arena in arenas if arena.allocation)
    text = f"\n\n## The heap\n\n{text.strip()}" if text else ""
    placed = [arena for arena in arenas if arena.attribute]
    if not placed:
        return text
    lines = "\n".join(
        f"- {arena.where}: `{build.names['guard']}_{arena.macro}_MEMORY`, which is `{arena.attribute}`"
        for arena in placed
    )
    return (
        f"{text}\n\n## Where the arena is\n\n`arena_size.h` places the arena by macros. The linker script must know "
        f"their sections; define a macro yourself if your sections have other names.\n\n{lines}"
    )


def _versions_text(build: Build) -> str:
    """Return the section on the versions for which the arena is exact, and how to change them."""
    kernels = build.machine.kernels
    return (
        f"\n\n## Versions\n\nThe arena is exact for {kernels.release.name} with {kernels.name} kernels,\n"
        "which these files pin; with another version it may be too small. To change the version, look up the arena "
        "with\n"
        "`tflm arena MODEL --tflm VERSION`, then write the project again with the same `--tflm`."
    )


def _arena_memory(build: Build, placement: Placement, kind: Kind) -> ArenaMemory:
    bank = placement.bank
    if bank is None:
        return ArenaMemory(placement.part, placement.bytes)
    verb = "are" if placement.part.endswith("_buffers") else "is"
    where = f"The {placement.part.replace('_', ' ')} {verb} in {bank.name}"
    if (
        build.found is not None
        and placement in build.found.on_heap
        and not bank.is_external
        and _is_idf(kind, build.machine)
    ):
        return ArenaMemory(
            placement.part,
            placement.bytes,
            f"{where}, on the heap: it is too large for an array",
            include='"esp_heap_caps.h"',
            allocation=ESP_ALLOCATION,
        )
    if bank == build.usual_bank:
        return ArenaMemory(placement.part, placement.bytes)
    kind = KINDS["esp-idf"] if _is_idf(kind, build.machine) else kind
    return ArenaMemory(placement.part, placement.bytes, where, *kind.memory(bank))
