"""Make a model fit a board with changes that keep its results, cheapest first."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from tflm.application.compiled_fit import (
    COMPILED_FIGURES,
    CompiledFit,
    compile_command,
    compiled_fit_or_none,
    sizes_text,
)
from tflm.application.export import Firmware
from tflm.application.fit_search import AS_IT_IS, Candidate, FitSearch, FitStep
from tflm.application.machine import BUILDS, DEFAULT_RESERVE, Machine
from tflm.application.memories import board_uses, memories_table
from tflm.application.output_files import obsolete_files
from tflm.application.projects import project_files, usual_kind
from tflm.application.projects.compiled import compiled_project_files
from tflm.application.several_memories import costs_of, rivals_table
from tflm.atomic_write import write_files
from tflm.boards import Board, boards, by_name
from tflm.errors import ArgumentError, OperatorError
from tflm.firmware.board_fit import BoardFit, BoardRefusal, fits_of
from tflm.firmware.board_report import heap_notes, parts_table
from tflm.firmware.device_check import operator_findings
from tflm.firmware.verdict import Verdict, verdict_of
from tflm.libraries import KernelLibrary, Kernels
from tflm.memory.several_memories import Memory
from tflm.planning import MemoriesPlan
from tflm.planning import plan as tflm_plan
from tflm.quantization.quantized_model import estimated_int8_arena
from tflm.quantization.repairs import is_float
from tflm.releases import Releases
from tflm.report import (
    NUMBER,
    TEXT,
    Figure,
    Report,
    Table,
    document_of,
    json_key,
    short_size,
    shortened,
    with_thousands,
)
from tflm.schema.model import Model, require_model
from tflm.schema.patch import with_data_inside

SUGGESTED_BOARDS = 3
LONGEST_NAME = 48


def boards_that_would_do(smallest: BoardFit, model: Model) -> Iterator[Board]:
    """Return the boards with the least built-in RAM that a model fits, with their usual kernels and the same reserve.

    Args:
        smallest: the model's fit on another board.
        model: the model.
    """
    head = sum(buffer.bytes for buffer in smallest.measured.peak.buffers if buffer.kind != "scratch")
    large_enough = [board for board in boards().values() if max(bank.bytes for bank in board.on_chip_ram) > head]
    by_ram = sorted(large_enough, key=lambda board: sum(bank.bytes for bank in board.on_chip_ram))
    fitting = (
        found.board
        for found in fits_of(model, by_ram, reserve=smallest.reserve_bytes)
        if not isinstance(found, BoardRefusal) and found.fits and found.on_chip
    )
    yield from itertools.islice(fitting, SUGGESTED_BOARDS)


def advice(model: Model, original: BoardFit, smallest: BoardFit) -> Iterator[str]:
    """Changes that would make a model smaller, but that only its author can make, with figures."""
    if not smallest.fits_flash:
        yield f"the file needs {smallest.missing_flash.high:,} B less, or more flash"
    if is_float(model):
        yield _int8_advice(model, original)
    if smallest.fits_ram:
        return
    peak = original.measured.peak
    if peak is None or not peak.buffers:
        return
    largest = max(peak.buffers, key=lambda buffer: buffer.bytes)
    yield (
        f"memory peaks at operator {peak.operator_index} {peak.operator} with {peak.bytes:,} B: halving the "
        f"channels of {shortened(largest.name, LONGEST_NAME)!r} saves {largest.bytes // 2:,} B there"
    )


def _int8_advice(model: Model, original: BoardFit) -> str:
    measured = original.measured
    arena = estimated_int8_arena(model, target=measured.target, kernels=measured.kernels)
    needs = "less" if arena is None else f"about {arena:,} B"
    return (
        f"as int8 the model would need {needs}, and a quarter of the flash for its weights: "
        "tflm quantize MODEL --inputs DATA -o int8.tflite"
    )


FIRMWARE = "firmware"
"""Subfolder for the project."""

DEFAULT_EXTRA_MACS = 0.25
"""Default share of multiply-accumulates that row bands may add."""

DEFAULT_TIME_LIMIT = 45.0
"""Default time limit of all steps together, in seconds."""


@dataclass(frozen=True)
class Fit:
    """The result of making a model fit a board; sizes in bytes.

    Attributes:
        board: the board.
        kernels: the kernel library that the firmware must be built with.
        data: the model that was chosen: the first that fits, otherwise the one with the smallest arena.
        chosen: how it was made.
        found: what it takes of the board.
        original: what the model as it was takes of the board.
        steps: everything that was tried, in order.
        reserve_bytes: RAM that was left to the application.
        in_external_ram: whether the arena, or a part of it, is in RAM outside the chip.
        interrupted: whether the search was interrupted: then this is the best result until then.
        cut_short: if it does not fit, or not the chip's own RAM: steps that the time limit ended, or left untried.
        boards: if it does not fit: the smallest boards that would do.
        advice: if it does not fit: changes to the model that would help, with figures.
        compiled: if it does not fit, or only with extra work or RAM outside the chip: what the model takes as C without
            an interpreter; None otherwise, and if it cannot be compiled.
        source: the model as it was.
        plan: the places of buffers, if several memories of the board were chosen; None otherwise.
    """

    board: Board
    kernels: KernelLibrary
    data: bytes
    chosen: FitStep
    found: BoardFit
    original: BoardFit | None
    steps: tuple[FitStep, ...]
    reserve_bytes: int
    in_external_ram: bool
    interrupted: bool
    cut_short: tuple[str, ...]
    boards: tuple[Board, ...]
    advice: tuple[str, ...]
    compiled: CompiledFit | None = None
    source: bytes = field(default=b"", repr=False)
    plan: MemoriesPlan | None = None

    def __repr__(self) -> str:
        fits = "fits" if self.fits else f"{self.missing_bytes} bytes missing"
        return f"Fit({self.board.name}, {fits}, {self.minimum_arena_bytes} bytes by {self.chosen.name})"

    @property
    def fits(self) -> bool:
        """Whether arena, firmware, SDK and reserve fit RAM and flash for certain."""
        return self.found.fits

    @cached_property
    def verdict(self) -> Verdict:
        """The verdict on the chosen model."""
        model, kernels = self.model, self.kernels
        findings = operator_findings(model, target=self.board.target, kernels=kernels, board=self.board)
        return verdict_of(self.found, findings)

    @property
    def model(self) -> Model:
        """The model that was chosen."""
        return Model(self.data)

    @property
    def minimum_arena_bytes(self) -> int:
        """The smallest arena that the chosen model works in."""
        return self.found.measured.minimum_arena_bytes

    @property
    def missing_bytes(self) -> int:
        """Bytes of RAM that are missing; 0 if it fits."""
        return 0 if self.found.fits_ram else max(self.found.missing_bytes, 0)

    def files(self, name: str = "model", origin: str = "tflm.fit") -> dict[str, str | bytes]:
        """Return the model, a report and a firmware project for the board, by path.

        The project runs the model with TFLM if it fits so, else as C if it fits so; otherwise there is none.

        Args:
            name: of the model and its identifiers.
            origin: what the first line of sources says they were made by.

        Raises:
            RequestError: no project can be made: a type has no name in C++, or an operator is not TFLM's.
        """
        return {
            f"{name}.tflite": self.data,
            "report.md": fit_report(self, name).markdown(),
            **{f"{FIRMWARE}/{path}": text for path, text in self._project(name, origin).items()},
        }

    def _project(self, name: str, origin: str) -> dict[str, str]:
        """The files of a project; none if the model fits neither with TFLM nor as C."""
        machine = Machine(self.board.target, self.kernels, self.board, self.board.chosen_release(self.kernels))
        kind = usual_kind(machine)
        if kind is None:
            return {}
        if self.fits:
            planned = None if self.plan is None else partial(self._planned, self.plan)
            return project_files(Firmware(self.model, name, machine, origin), kind, found=self.found, planned=planned)
        if self.compiled is not None and self.compiled.fits:
            return compiled_project_files(Firmware(Model(self.source), name, machine, origin), kind)
        return {}

    def _planned(self, plan: MemoriesPlan, kernels: KernelLibrary) -> MemoriesPlan:
        """The plan; for the kernels of another TFLM that a project pins, one of the same memories."""
        if kernels == self.kernels:
            return plan
        memories = [Memory(each.name, each.bytes, each.cost) for each in plan.memories]
        return tflm_plan(self.model, target=self.board.target, kernels=kernels, memories=memories)

    def write(self, folder: str | os.PathLike[str], name: str = "model", origin: str = "tflm.fit") -> list[Path]:
        """Write `files` into a folder, which is made if it is not there; returns their paths.

        The command also removes the files of an earlier project there that this one lacks.

        Raises:
            OSError: a file can't be written.
            RequestError: as for `files`.
        """
        files = self.files(name, origin)
        written = {Path(folder, path) for path in files}
        return write_files(folder, files, obsolete_files(Path(folder, FIRMWARE), written))


def fit(
    model: Model,
    *,
    board: str | Board,
    reserve: int = DEFAULT_RESERVE,
    kernels: Kernels | None = None,
    release: Releases | None = None,
    max_extra_macs: float = DEFAULT_EXTRA_MACS,
    hop: int | None = None,
    time_limit: float | None = DEFAULT_TIME_LIMIT,
    progress: Callable[[str], None] | None = None,
    improved: Callable[[Fit], None] | None = None,
) -> Fit:
    """Make a model fit a board: try what leaves its answers unchanged, the cheapest first, until it fits.

    In order: the model as it is; its streaming form, if a hop is given; a memory plan; folded operators; another
    operator order; in-place outputs and overlap, where the kernels allow it; row bands; head and tail in different
    memories; then the same with other kernels that firmware for the board can have. RAM outside the chip (PSRAM, SDRAM)
    is used only if nothing fits the chip's own:
    for the tail, then for the buffers with the least traffic, and only then for all.

    Args:
        model: the model.
        board: a board, or its name; see `tflm.boards.by_name`.
        reserve: bytes of RAM that the application needs besides TFLM's arena, static data and stack.
        kernels: the kernel library that the firmware has; then no other is tried. The board's usual one by default.
        release: the TFLM that the firmware has, as for `board_fit`.
        max_extra_macs: multiply-accumulates that row bands may add, as a share.
        hop: new frames of an invoke: also try the streaming form of the model, see `tflm.stream`, and choose it if it
            fits as well as the model as it is.
        time_limit: seconds for everything together, most of them for the first kernel library. A step that is under
            way is completed, including the check of its answers. None for no limit: then the result is the same on
            every machine.
        progress: is told what is being tried.
        improved: is given the best result so far, each time there is a better one.

    Raises:
        ArgumentError: there is no such board, or the library is not for its part.
        TflmError: the model can't be laid out on any board.
    """
    if reserve < 0:
        raise ArgumentError(f"reserve is {reserve}; it must be 0 or more bytes")
    where = by_name(board) if isinstance(board, str) else board
    tell = progress or (lambda text: None)

    def on_improvement() -> None:
        if improved is not None:
            improved(_best_of(search, tell, interrupted=True))

    model = with_data_inside(require_model(model))
    search = FitSearch(model, where, reserve, max_extra_macs, tell, hop, on_improvement)
    try:
        search.run(_libraries(where, kernels, release), time_limit)
        return _best_of(search, tell)
    except KeyboardInterrupt:
        if not search.candidates:
            raise
        return _best_of(search, tell, interrupted=True)


def _libraries(board: Board, kernels: Kernels | None, release: Releases | None) -> list[KernelLibrary]:
    """The kernel libraries to try, the usual one first."""
    usual = board.library(kernels, release)
    others = BUILDS.get(usual.name.partition("@")[0], ()) if kernels is None else ()
    return [usual, *(board.library(name, release) for name in others)]


def _best_of(search: FitSearch, progress: Callable[[str], None], interrupted: bool = False) -> Fit:
    """Return the best result of a search, with boards and advice if nothing fits and it was not interrupted."""
    board, candidates = search.board, search.candidates
    if not candidates:
        raise OperatorError(f"cannot run on {board.name}: {search.steps[0].reason}")
    chosen, first = search.chosen(), candidates[0]
    suggested: tuple[Board, ...] = ()
    if not chosen.found.fits and not interrupted:
        progress("other boards")
        portable = [c for c in candidates if c.portable]
        smallest = min(portable, key=lambda c: c.found.measured.minimum_arena_bytes)
        suggested = tuple(boards_that_would_do(smallest.found, Model(smallest.data)))
    compiled = None
    if not interrupted and not _fits_easily(chosen):
        progress("as C without an interpreter")
        compiled = compiled_fit_or_none(search.model, board, reserve=search.reserve)
    return Fit(
        board=board,
        kernels=chosen.library,
        data=chosen.data,
        chosen=chosen.step,
        found=chosen.found,
        original=first.found if first.step is search.steps[0] else None,
        steps=tuple(search.steps),
        reserve_bytes=search.reserve,
        in_external_ram=chosen.found.fits_ram and not chosen.found.on_chip,
        interrupted=interrupted,
        cut_short=() if chosen.found.fits and chosen.found.on_chip else tuple(search.cut_short),
        boards=suggested,
        advice=() if chosen.found.fits or interrupted else tuple(advice(search.model, first.found, chosen.found)),
        compiled=compiled,
        source=bytes(search.model.data),
        plan=chosen.plan,
    )


def _fits_easily(chosen: Candidate) -> bool:
    """Whether a model fits the chip's own RAM without extra work."""
    return chosen.found.fits and chosen.found.on_chip and chosen.step.extra_macs <= 0


def fit_report(found: Fit, name: str) -> Report:
    """Report what every step saved and costs."""
    steps = Table.of(
        "",
        found.steps,
        Figure("tried", TEXT, "name"),
        Figure("kernels", TEXT, "kernels"),
        Figure("smallest arena", NUMBER, _size),
        Figure("saved", NUMBER, lambda step: step.saved_bytes),
        Figure("costs", TEXT, _costs),
        Figure("fits", TEXT, lambda step: _fits(step, found)),
    )
    facts = [
        ("board", f"{found.board.name}: {found.board.description}"),
        ("RAM", ", ".join(f"{bank.name} {short_size(bank.bytes)}" for bank in found.board.ram)),
        ("reserved", f"{with_thousands(found.reserve_bytes)} for the application"),
    ]
    if found.board.share is not None:
        facts.append(("SDK", found.board.share.description))
    facts.append(("chosen", _chosen(found)))
    notes = ["interrupted: the best result so far"] if found.interrupted else []
    if found.cut_short:
        notes.append(f"the time limit cut short: {', '.join(found.cut_short)}; --time-limit allows more")
    notes += [f"what would help: {advice}" for advice in found.advice]
    if found.compiled is not None:
        sizes = sizes_text(found.compiled)
        notes.append(f"as C without an interpreter it takes {sizes}: {compile_command('MODEL', found.compiled)}")
    if found.boards:
        notes.append(f"the smallest boards that would do: {', '.join(board.name for board in found.boards)}")
    tables = [steps, memories_table(board_uses(found.model, found.found, found.plan))]
    if found.plan is not None:
        tables.append(rivals_table(found.plan))
    notes += heap_notes(found.found)
    tables.append(parts_table(found.verdict))
    return Report(f"{name} on {found.board.name}", facts, tables, notes, found.verdict.line)


def _chosen(found: Fit) -> str:
    """Describe the chosen version: its arena, in which memory; or how many kinds of changes did not help."""
    arena = f"an arena of {with_thousands(found.minimum_arena_bytes)}"
    version = f"{found.chosen.name} with {found.kernels.name} kernels"
    if not found.found.fits_ram:
        changes = len({step.name for step in found.steps} - {AS_IT_IS})
        tried = "1 kind of change was tried" if changes == 1 else f"{changes} kinds of changes were tried"
        return f"the smallest version, {version}, {arena}; {tried}"
    pieces = found.found.placements
    if len(pieces) > 1:
        arena = " and ".join(f"an arena of {with_thousands(p.bytes)} for the {p.part}" for p in pieces)
    if found.plan is not None:
        arena = " and ".join(with_thousands(p.bytes) for p in pieces)
    slow = ""
    if found.in_external_ram:
        external = [p.bank.name for p in pieces if p.bank is not None and p.bank.is_external]
        names = f"{' and '.join(external)} {'is' if len(external) == 1 else 'are'}"
        which = "The tail's memory is" if found.found.head_on_chip else names if found.plan else "This memory is"
        slow = f". {which} outside the chip, and slow"
    return f"{version}, {arena}, {found.chosen.memories}{slow}"


FOUND_FIGURES = (
    json_key("board", str, "the board", "board.name"),
    json_key("target", str, "its part", "board.target.name"),
    json_key("kernels", str, "the kernel library that the firmware must be built with", "kernels.name"),
    json_key("release", str, "the TFLM that it is built into", "kernels.release.name"),
    json_key("fits", bool, "whether the model fits the board"),
    json_key("sdk", str | None, "the SDK; null with `--ram`", "board.sdk"),
    json_key("verdict", Verdict, "the verdict"),
    json_key("chosen", str, "the name of the step that was chosen", "chosen.name"),
    json_key("minimum_arena_bytes", int, "the smallest arena that the chosen model works in"),
    json_key("missing_bytes", int, "bytes of RAM that are missing; 0 if it fits"),
    json_key("reserve_bytes", int, "RAM that was left to the application"),
    json_key("in_external_ram", bool, "whether the arena, or a part of it, is in RAM outside the chip"),
    json_key("interrupted", bool, "whether the search was interrupted: then this is the best result until then"),
    json_key(
        "cut_short", list[str], "steps that the time limit ended or left untried, if the chip's own RAM does not do"
    ),
    json_key(
        "placements",
        [
            (
                json_key(
                    "part", str, "arena, or head and tail, or such as psram_buffers in a plan of several memories"
                ),
                json_key("bytes", int, "its size"),
                json_key("memory", str | None, "the memory that it fits; null if there is none", "bank.name"),
            )
        ],
        "the pieces of the arena",
        "found.placements",
    ),
    json_key("steps", list[FitStep], "the steps that were tried"),
    json_key(
        "boards",
        list[str],
        "the smallest boards that would do; empty if it fits",
        lambda found: [board.name for board in found.boards],
    ),
    json_key("advice", list[str], "changes to the model that would help; empty if it fits"),
)
"""The figures of a fit; sizes in bytes."""


def fit_figures(path: Path, found: Fit) -> dict[str, Any]:
    """Return the JSON document."""
    return {
        "model": path,
        **document_of(found, FOUND_FIGURES),
        "memories": board_uses(found.model, found.found, found.plan),
        "plan": None if found.plan is None else costs_of(found.plan),
        "compiled": None if found.compiled is None else document_of(found.compiled, COMPILED_FIGURES),
    }


def _size(step: FitStep) -> str:
    return "cannot run" if step.minimum_arena_bytes is None else f"{step.minimum_arena_bytes:,}"


def _costs(step: FitStep) -> str:
    costs = [f"{step.extra_macs:+.1%} work"] if abs(step.extra_macs) > 0.0005 else []
    costs += [f"{step.extra_file_bytes:+,} B of file"] if step.extra_file_bytes else []
    costs += [f"needs {', '.join(step.needed_operators)}"] if step.needed_operators else []
    return step.reason or ", ".join(costs)


def _fits(step: FitStep, found: Fit) -> str:
    if not step.fits:
        return "no"
    return f"yes: {step.memories}" if step is not found.chosen else f"yes, chosen: {step.memories}"
