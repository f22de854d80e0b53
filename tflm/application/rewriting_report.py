"""Reports, JSON documents and progress of planning and rewriting."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tflm.application.hand_over import not_fitting
from tflm.application.machine import Machine
from tflm.application.memories import MemoryUse, TwoMemories, fit_of, memories_table, uses_of
from tflm.firmware.board_fit import BoardFit
from tflm.firmware.board_report import verdict
from tflm.memory import SearchProgress
from tflm.planning.improved_model import ImprovedModel
from tflm.report import Figure, Report, document_of, json_key, with_thousands
from tflm.rewriting import TiledModel
from tflm.rewriting.tiled_model import TiledStage, shown
from tflm.runtime.micro_measurement_report import CHANGE_FIGURES
from tflm.schedule.band_search import Progress
from tflm.schema.model import Model


@dataclass(frozen=True)
class Placed:
    """A smaller model in the memories that the options name.

    Attributes:
        fit: its fit on the board; None without a board.
        uses: the use of each memory; empty without a board or memories.
        fits: whether everything fits; None without a board or memories.
        advice: the command to continue with if it does not fit; empty if it fits.
    """

    fit: BoardFit | None
    uses: Sequence[MemoryUse]
    fits: bool | None
    advice: str

    def add_to(self, report: Report) -> None:
        """Add the memory use to a report, and whether everything fits."""
        if self.fits is None:
            return
        report.tables.append(memories_table(self.uses))
        if self.fit is not None:
            report.facts.append((f"fits {self.fit.board.name}", verdict(self.fit)))
        elif not self.fits:
            report.notes.append("it does not fit these memories")
        report.notes.extend([self.advice] if self.advice else [])


PLACED_FIGURES = (
    json_key("board", str | None, "the board; null without `--board`", "fit.board.name"),
    json_key("fits", bool | None, "whether it fits the board, or the memories of head and tail; null without either"),
    json_key("memories", list[MemoryUse], "the use of each memory", "uses"),
    json_key(
        "advice",
        str | None,
        "if it does not fit the board: kernels that need much less, and the command to continue with",
    ),
)


def placed(path: Path, model: Model, found: ImprovedModel, machine: Machine, memories: TwoMemories | None) -> Placed:
    """Place a smaller model in memories, with advice if it does not fit.

    Args:
        path, model: the original model.
        found: the smaller model.
    """
    fit = fit_of(found, machine, memories)
    fits = None if found.separate is None else found.separate.fits
    if fit is not None:
        fits = fit.fits
    advice = not_fitting(path, model, machine, fit) if fit is not None and not fit.fits else ""
    return Placed(fit, uses_of(found, memories, fit), fits, advice)


def plan_progress(at: SearchProgress) -> str:
    """How far a search is, for people."""
    return f"{at.stage}: {at.head_bytes:,} bytes, at least {at.lower_bound_bytes:,}, {at.seconds:.0f} s"


VERIFIED_INPUTS = 5
"""Default number of random inputs on which the rewritten model's results are compared."""


TILE_FIGURES = (
    json_key("target", str, "the machine that counted", "after.target.name"),
    json_key("release", str, "the TFLM of the firmware", "after.kernels.release.name"),
    json_key("gains", bool, "whether anything was found that is smaller"),
    *CHANGE_FIGURES,
    json_key("extra_macs", float, "multiply-accumulates more than before, as a share of those before"),
    json_key("rewrites", dict[str, int], "how often a small rewrite was made"),
    json_key("stages", list[TiledStage], "the stages that run in bands"),
    json_key("needed_operators", list[str], "operators that the resolver needs and that the model had no need of"),
    json_key("verified_inputs", int, "random inputs whose answers were compared", "proved.inputs"),
)
"""The figures of a tiled model; sizes in bytes."""


def smaller_figures(path: Path, found: ImprovedModel, figures: Iterable[Figure], where: Placed) -> dict[str, Any]:
    """Return the JSON document of a smaller model."""
    return {"model": path, **document_of(where, PLACED_FIGURES), **document_of(found, figures)}


def tile_report(found: TiledModel, name: str, enough: int | None) -> Report:
    """Report a rewritten model, and whether it fits the target size, if one was given."""
    report = shown(found, name)
    if enough is None:
        return report
    left = enough - found.minimum_arena_bytes
    if found.gains or left < 0:
        fits = "it fits" if left >= 0 else f"it does not fit: {with_thousands(-left)} are missing"
        report.notes.append(f"{fits} {'into' if left >= 0 else 'in'} {with_thousands(enough)}")
        return report
    already = f"it already fits into {with_thousands(enough)}, {with_thousands(left)} are left: nothing was changed"
    return replace(report, notes=[already])


def tile_progress(at: Progress) -> str:
    """Describe the progress of a search for people."""
    if at.checking:
        return f"checking the rewritten model, {at.checking}, {at.seconds:.0f} s"
    return f"{at.tried} rewrites tried, {at.seconds:.0f} s: the smallest arena so far has {at.arena:,} bytes"
