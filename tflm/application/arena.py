"""Measure arenas: on machines and boards, and compared with other kernel libraries."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tflm.application.errors import CheckFailed, NotKnown, OptionError
from tflm.application.machine import Machine, kernels_from, libraries_for
from tflm.application.models import bytes_from, title_of
from tflm.application.progress import Progress, silent
from tflm.firmware.device_check import concerns_line, operator_findings
from tflm.libraries import REFERENCE
from tflm.memory import ARENA_ALIGNMENT
from tflm.releases import Releases
from tflm.report import NAME, TEXT, Figure, Report, Table, document_of, json_key, with_thousands
from tflm.runtime.micro_allocator import MicroAllocator
from tflm.runtime.micro_graph import MicroGraph
from tflm.runtime.micro_interpreter import lay_out
from tflm.runtime.micro_measurement import arena_with, measure_arena
from tflm.runtime.micro_measurement_report import (
    ARENA_SIZES,
    MEASUREMENT_FIGURES,
    ArenaMeasurement,
    KernelsRefusal,
    drawn_figures,
    libraries_table,
    shown,
)
from tflm.runtime.micro_op_resolver import AllOpsResolver
from tflm.schema.model import Model
from tflm.targets import TARGETS, align_up

if TYPE_CHECKING:  # boards are loaded for those who name one
    from tflm.boards import Board
    from tflm.firmware.board_fit import BoardBudget, BoardFit, BoardRefusal
    from tflm.firmware.verdict import Verdict

SHARED_ARENA_BYTES = 1 << 26

NAME_THE_PART = (
    "these figures are for TFLM's reference kernels; most firmware uses optimized kernels: "
    "select them with --board, or with --target (such as cortex-m4 or esp32s3) and --kernels"
)


@dataclass
class SharedArena:
    """An arena that several models share: their heads overlap, their tails add up.

    Attributes:
        arena_used_bytes: bytes in use.
        head_bytes: bytes of the head.
        tail_bytes: bytes of the tail.
    """

    arena_used_bytes: int
    head_bytes: int
    tail_bytes: int


def share(models: Sequence[Model], machine: Machine, planner: str) -> SharedArena:
    """Allocate models in one arena, one after the other.

    Raises:
        TflmError: a model cannot be allocated.
    """
    allocator = MicroAllocator(np.zeros(SHARED_ARENA_BYTES, np.uint8), planner, machine.target, kernels=machine.kernels)
    with np.errstate(all="ignore"):
        for model in models:
            lay_out(MicroGraph(model, AllOpsResolver(), (), machine.kernels), allocator)
    return SharedArena(allocator.used_bytes(), allocator.head_bytes, allocator.tail_bytes)


class ArenaLimits(NamedTuple):
    """Limits that an arena should fit; None for those that were not given.

    Attributes:
        place: a board.
        ram: the size of the place's memory, as typed, if it is not a board of the table.
        budget: bytes.
    """

    place: Board | None = None
    ram: str | None = None
    budget: int | None = None


@dataclass(frozen=True)
class ArenaNeeds:
    """The arena that models need; sizes in bytes.

    Attributes:
        models: by path.
        machine: the machine they are measured for.
        planner: the planner of the head.
        measured: each model on the machine or, with `on_all_targets`, on every target.
        shared: an arena for all models; None for a single one.
        fits: the fit of each model, if a memory was named.
        limits: the limits.
        on_all_targets: whether all targets were measured instead of the machine.
    """

    models: Sequence[tuple[Path, Model]]
    machine: Machine
    planner: str
    measured: list[tuple[Path, ArenaMeasurement]]
    shared: SharedArena | None
    fits: list[BoardFit]
    limits: ArenaLimits
    on_all_targets: bool

    @property
    def needed_bytes(self) -> int:
        """The smallest arena that works for all models."""
        shared = 0 if self.shared is None else align_up(self.shared.arena_used_bytes, ARENA_ALIGNMENT)
        return max(shared, *(measured.minimum_arena_bytes for _, measured in self.measured))

    @cached_property
    def verdict(self) -> Verdict | None:
        """The verdict on budget and memory, for all models in one firmware; None if neither was named."""
        if not self.fits and self.limits.budget is None:
            return None
        from tflm.firmware.board_fit import combined
        from tflm.firmware.verdict import verdict_of, within_budget

        found = None
        if self.fits:
            findings = [
                each
                for _, model in self.models
                for each in operator_findings(
                    model, target=self.machine.target, kernels=self.machine.kernels, board=self.machine.board
                )
            ]
            found = verdict_of(combined(self.fits, [model for _, model in self.models], self.needed_bytes), findings)
        return found if self.limits.budget is None else within_budget(found, self.needed_bytes, self.limits.budget)

    @property
    def is_fitting(self) -> bool:
        """Whether everything is within budget and memory for certain."""
        return self.verdict is None or self.verdict.is_yes

    def require_fit(self) -> None:
        """Check that everything is within budget and memory.

        Raises:
            CheckFailed: it is not; the message has the missing bytes and the next command.
            NotKnown: it may be.
        """
        (path, model), found = self.models[0], self.verdict
        if found is None or found.is_yes:
            return
        from tflm.application.hand_over import continue_within, not_fitting  # rarely needed
        from tflm.firmware.board_fit import Answer

        budget, ram = self.limits.budget, self.limits.ram
        if budget is not None and self.needed_bytes > budget:
            over, next_step = self.needed_bytes - budget, continue_within(path, self.machine, str(budget))
            raise CheckFailed(
                f"needs {self.needed_bytes:,} bytes, {over:,} more than the budget of {budget:,}; {next_step}"
            )
        place, next_step = self.fits[0].board.name, not_fitting(path, model, self.machine, self.fits[0], ram)
        if found.answer is Answer.UNKNOWN:
            raise NotKnown(f"may or may not fit {place}: {found.figures}; {next_step}")
        raise CheckFailed(f"does not fit {place}: {found.figures}; {next_step}")


def arena_needs(
    models: Sequence[tuple[Path, Model]],
    machine: Machine,
    planner: str,
    limits: ArenaLimits,
    on_all_targets: bool = False,
    progress: Progress = silent,
) -> ArenaNeeds:
    """Measure each model on the machine or on every target, and all of them in one arena.

    Args:
        limits: what they should fit.
    """
    every_target = [Machine(target, REFERENCE, None) for target in TARGETS.values()]
    machines = every_target if on_all_targets else [machine]
    measured = []
    with progress("laying out", len(models) * len(machines)) as advance:
        for path, model in models:
            for each in machines:
                measured.append((path, measure(model, each, planner)))
                advance()
        loaded = [model for _, model in models]
        shared = share(loaded, machine, planner) if len(loaded) > 1 and not on_all_targets else None
    on_place = machine._replace(board=limits.place)
    fits = [] if limits.place is None else [on_place.fit(model, planner=planner) for model in loaded]
    return ArenaNeeds(models, machine, planner, measured, shared, fits, limits, on_all_targets)


def needs_figures(needs: ArenaNeeds) -> dict[str, Any]:
    """Return the JSON document; sizes in bytes."""
    from tflm.firmware.board_report import FIT_FIGURES  # loads the boards

    machine = needs.machine
    by_model = [_other_kernels(model, machine, needs.planner) for _, model in needs.models]
    return {
        "target": None if needs.on_all_targets else machine.target.name,
        "kernels": None if needs.on_all_targets else machine.kernels.name,
        "release": machine.kernels.release.name,
        "planner": needs.planner,
        "models": [{"model": path, **document_of(found, MEASUREMENT_FIGURES)} for path, found in needs.measured],
        "other_kernels": [each for of_model, _ in by_model for each in of_model],
        "refusing_kernels": [each for _, of_model in by_model for each in of_model],
        "shared": needs.shared,
        "boards": [document_of(fit, FIT_FIGURES) for fit in needs.fits],
        "budgets": [_budget(model, fit) for (_, model), fit in zip(needs.models, needs.fits)],
        "verdict": needs.verdict,
        "budget_bytes": needs.limits.budget,
        "needed_bytes": needs.needed_bytes,
        "fits": needs.is_fitting,
    }


def needs_reports(needs: ArenaNeeds) -> Iterator[Report]:
    """Yield a report for each model and for its board, then one for the shared arena."""
    fits: Sequence[BoardFit | None] = needs.fits or [None] * len(needs.models)
    lines = iter([needs.verdict.line] if needs.verdict is not None else [])
    for (path, model), (_, measured), fit in zip(needs.models, needs.measured, fits):
        report = full_report(path, model, measured, needs.machine, needs.planner)
        yield replace(report, verdict=next(lines, ""))
        if fit is not None:
            from tflm.firmware.board_report import fit_report  # loads the boards

            report = fit_report(fit)
            report.notes.extend(_next_step(path, model, needs, fit))
            yield report
    if needs.shared is not None:
        yield _shared_report(needs.shared, needs.needed_bytes)


def _budget(model: Model, fit: BoardFit) -> BoardBudget:
    from tflm.firmware.board_fit import board_budget  # reads the tables of flash

    return board_budget(model, fit)


def _next_step(path: Path, model: Model, needs: ArenaNeeds, fit: BoardFit) -> list[str]:
    from tflm.application.hand_over import not_fitting, other_build  # for boards alone

    other = other_build(model, fit) if fit.fits else not_fitting(path, model, needs.machine, fit, needs.limits.ram)
    return [other] if other else []


def fits_of_boards(
    model: Model, kernels: str | None, planner: str, release: Releases | None = None, reserve: int = 0
) -> list[BoardFit | BoardRefusal]:
    """Check how a model fits each board with its usual kernels, or all boards that `kernels` are for."""
    from tflm.boards import boards
    from tflm.firmware.board_fit import fits_of

    family = "" if kernels is None else kernels_from(kernels).family
    known = [board for board in boards().values() if family in ("", board.target.family)]
    return list(fits_of(model, known, kernels=kernels, planner=planner, release=release, reserve=reserve))


def board_with_ram(machine: Machine, ram: str) -> Board:
    """Return a board with just a part and a RAM size.

    Raises:
        OptionError: the size is 0, or no size.
    """
    from tflm.boards import Bank, Board

    size = bytes_from(ram)
    if not size:
        raise OptionError(f"--ram is {ram}; a part has at least one byte of RAM")
    banks = (Bank("RAM", size),)
    return Board(f"a part with {ram}", machine.target.description, machine.target, machine.kernels.name, "", banks)


def others(model: Model, machine: Machine, planner: str) -> list[ArenaMeasurement | KernelsRefusal]:
    """Measure a model with the other kernel libraries for the part; none for a mere data model."""
    usual = machine.kernels.name.partition("@")[0]
    names = [name for name in libraries_for(machine.target) if name != usual] if machine.target.family else []
    built = (machine.library(name) for name in names)
    return [arena_with(model, machine.target, each, planner=planner) for each in built]


OTHER_KERNELS = (
    json_key("kernels", str, "another library for the part, model after model; none for a data model", "kernels.name"),
    json_key("release", str, "the TFLM that it is built into", "kernels.release.name"),
    *ARENA_SIZES,
)

REFUSING_KERNELS = (
    json_key(
        "kernels",
        str,
        "another kernel library for the part that can't run the model, model after model",
        "kernels.name",
    ),
    json_key("reason", str, "the operators that it lacks or rejects"),
)


def _other_kernels(model: Model, machine: Machine, planner: str) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return figures of the other kernel libraries: those that can run a model, and those that cannot."""
    found = others(model, machine, planner)
    refusing = [document_of(each, REFUSING_KERNELS) for each in found if isinstance(each, KernelsRefusal)]
    return [document_of(each, OTHER_KERNELS) for each in found if isinstance(each, ArenaMeasurement)], refusing


def full_report(path: Path, model: Model, measured: ArenaMeasurement, machine: Machine, planner: str) -> Report:
    """Report a measurement, the other kernel libraries, and whether something behaves differently on the device."""
    report = shown(measured, title_of(path))
    if machine.target.family:
        report.tables.append(libraries_table(measured, others(model, machine, planner)))
    elif machine.target.pointer_size == 4:
        report.notes.append(NAME_THE_PART)
    findings = operator_findings(model, target=machine.target, kernels=machine.kernels, board=machine.board)
    line = concerns_line(findings)
    report.notes.extend([line] if line else [])
    return report


def drawn(path: Path, model: Model, machine: Machine, planner: str) -> dict[str, Any]:
    """Return the figures of a picture, with those of other kernels."""
    able, _ = _other_kernels(model, machine, planner)
    return {"model": str(path), **drawn_figures(measure(model, machine, planner)), "other_kernels": able}


def measure(model: Model, machine: Machine, planner: str) -> ArenaMeasurement:
    """Measure a model on a machine with all operators available."""
    resolver = AllOpsResolver()
    return measure_arena(model, resolver, target=machine.target, kernels=machine.kernels, planner=planner)


def target_table(measured: Sequence[tuple[Path, ArenaMeasurement]]) -> Table:
    """The sizes on every target."""
    names, targets = Figure("model", NAME, title_of), Figure("target", TEXT, "target.name")
    return Table.of_pairs("", measured, [names], [targets, *ARENA_SIZES])


def _shared_report(shared: SharedArena, needed: int) -> Report:
    facts = [
        ("needed", with_thousands(needed)),
        ("in use once allocated", with_thousands(shared.arena_used_bytes)),
        ("  head (the largest one)", with_thousands(shared.head_bytes)),
        ("  tail (the sum of all)", with_thousands(shared.tail_bytes)),
    ]
    return Report("all in one arena", facts)
