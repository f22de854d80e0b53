"""What the page asks of the package: one model at a time, on files of its own; answers are HTML, figures and bytes."""

from __future__ import annotations

import io
import shlex
import warnings
import zipfile
from collections.abc import Callable
from html import escape
from pathlib import Path
from typing import Any

import typer

import tflm
from tflm import libraries
from tflm.arena_page import arena_page
from tflm.boards import boards
from tflm.boards.board_fit import BoardFit, board_fit, fits_of
from tflm.boards.board_report import findings_report, fit_report, fits_table
from tflm.boards.device_check import check_device
from tflm.cli.arena import drawn, full_report, measure
from tflm.cli.command_line import CommandError, Machine, bytes_from, described, kernels_from, load_model, machine_from
from tflm.cli.compare import Probe, compare_models, comparison_report, real_inputs, require_same_shapes
from tflm.cli.export import sources
from tflm.cli.flash import budget_report
from tflm.cli.plan import how_far as plan_progress
from tflm.cli.tile import VERIFIED_INPUTS, share_from, tile_report
from tflm.cli.tile import how_far as tile_progress
from tflm.firmware.board_budget import board_budget
from tflm.libraries import library_for
from tflm.memory import OptimalPlanner
from tflm.memory.plan_search import DEFAULT_TIME_LIMIT
from tflm.planning.plan_report import shown as plan_report
from tflm.report import Column, Report, Table
from tflm.runtime.model_report import model_report
from tflm.runtime.model_report import shown as operators_report

PLANNER = "greedy"
"""What TFLM plans with, unless it is told another."""

Answer = dict[str, Any]
Told = Callable[[str], None]


def machines() -> list[Answer]:
    """All that a model can be laid out for, with their kernel libraries, the usual one first."""
    groups = {
        "Boards": [(b.name, f"{b.name}: {b.description}", b.target, b.kernels) for b in boards().values()],
        "Parts": [(t.name, t.name, t, "reference") for t in tflm.targets.PARTS.values()],
        "Data models": [(t.name, f"{t.name}: {t.description}", t, "reference") for t in tflm.targets.TARGETS.values()],
    }
    return [
        {
            "group": group,
            "option": "board" if group == "Boards" else "target",
            "name": name,
            "label": label,
            "kernels": [usual, *(other for other in _libraries_of(target) if other != usual)],
        }
        for group, of_group in groups.items()
        for name, label, target, usual in of_group
    ]


def _libraries_of(target: tflm.targets.Target) -> list[str]:
    return [name for name in libraries.MODULES if _is_for(name, target)]


def _is_for(library: str, target: tflm.targets.Target) -> bool:
    try:
        library_for(library, target)
    except tflm.ArgumentError:
        return False
    return True


class Session:
    """A model that is looked at, as a file in a folder.

    Each method that the page may call gives a dictionary of what JavaScript has, too; machines are named as the options
    of the command name them: `board` or `target`, and `kernels`.

    Args:
        folder: where models are kept, which is there.
    """

    def __init__(self, folder: Path):
        self._folder = folder
        self._path = folder
        self._model: tflm.Model | None = None

    def ask(self, question: str, **options: Any) -> Answer:
        """The answer of the method that is called so, with warnings in its report; under `error`, why there is none."""
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            try:
                answer: Answer = getattr(self, question)(**options)
            except (tflm.TflmError, CommandError, OSError, typer.BadParameter) as error:
                return {"error": described(error)}
        if "report" in answer:
            texts = dict.fromkeys(str(warning.message) for warning in warned)
            answer["report"] += "".join(f"<p>{escape(text)}</p>" for text in texts)
        return answer

    def open(self, name: str, data: bytes) -> Answer:
        """Take a model, whose name is that of its file."""
        self._path, self._model = self._kept("model", name, data)
        return {"name": self._path.name, "operators": operators_report(model_report(self.model, name)).html()}

    @property
    def model(self) -> tflm.Model:
        """The model that was opened."""
        if self._model is None:
            raise CommandError("no model is open")
        return self._model

    def arena(self, **machine: str | None) -> Answer:
        """The arena on a machine: figures, reports, the page with its picture; on a board, whether the model fits."""
        on = _machine(machine)
        measured = measure(self.model, on, PLANNER)
        reports = [full_report(self._path, self.model, measured, on, PLANNER)]
        fit = None
        if on.board is not None:
            fit = board_fit(self.model, on.board, kernels=on.kernels, planner=PLANNER)
            reports += [fit_report(fit), budget_report(board_budget(self.model, fit))]
        return {
            "target": on.target.name,
            "kernels": on.kernels.name,
            "minimum_arena_bytes": measured.minimum_arena_bytes,
            "arena_used_bytes": measured.arena_used_bytes,
            "head_bytes": measured.head_bytes,
            "tail_bytes": measured.tail_bytes,
            "fits": None if fit is None else fit.fits,
            "report": "".join(report.html() for report in reports),
            "page": arena_page(self._path.name, {PLANNER: drawn(self._path, self.model, on, PLANNER)}),
        }

    def check(self, **machine: str | None) -> Answer:
        """What goes another way on a machine."""
        on = _machine(machine)
        findings = check_device(self.model, target=on.target, kernels=on.kernels, board=on.board)
        place = f"{on.board.name if on.board else on.target.name} with {on.kernels.name} kernels"
        return {
            "report": findings_report(self._path.name, place, findings).html(),
            "stops": sum(finding.stops for finding in findings),
        }

    def boards(self, kernels: str | None = None) -> Answer:
        """Which boards the model fits, with the usual kernels; or those that other kernels are for, with these."""
        family = "" if kernels is None else kernels_from(kernels).family
        known = [board for board in boards().values() if family in ("", board.target.family)]
        fits = list(fits_of(self.model, known, kernels=kernels, planner=PLANNER))
        return {
            "report": fits_table(fits).html(),
            "fit": [isinstance(fit, BoardFit) and fit.fits for fit in fits],
        }

    def plan(
        self, in_place: bool, reorder: bool, seconds: float | None, progress: Told, **machine: str | None
    ) -> Answer:
        """A smaller plan, written into the model; as `tflm plan`, whose time limit holds where none is given."""
        on = _machine(machine)
        planner = OptimalPlanner(
            time_limit=DEFAULT_TIME_LIMIT if seconds is None else seconds,
            progress=lambda at: progress(plan_progress(at)),
        )
        found = tflm.plan(
            self.model, None, planner, target=on.target, kernels=on.kernels, in_place=in_place, reorder=reorder
        )
        report = plan_report(found, self._path.name)
        if not found.gains:
            report.notes.append("nothing is gained")
        return self._smaller("planned", report, found.gains, found.write)

    def tile(self, macs: str, ram: str | None, seconds: float | None, progress: Told, **machine: str | None) -> Answer:
        """The model in bands, in a smaller arena; as `tflm tile`."""
        on, enough = _machine(machine), None if ram is None else bytes_from(ram)
        found = tflm.tile(
            self.model,
            target=on.target,
            kernels=on.kernels,
            max_extra_macs=share_from(macs),
            ram=enough,
            time_limit=seconds,
            verify=VERIFIED_INPUTS,
            progress=lambda at: progress(tile_progress(at)),
        )
        return self._smaller("tiled", tile_report(found, self._path.name, enough), found.gains, found.write)

    def _smaller(self, how: str, report: Report, gains: bool, write: Callable[[Path], object]) -> Answer:
        if not gains:
            return {"report": report.html(), "gains": False}
        path = self._folder / f"{self._path.stem}_{how}.tflite"
        write(path)
        return {"report": report.html(), "gains": True, "name": path.name, "data": path.read_bytes()}

    def compare(self, name: str, data: bytes, **machine: str | None) -> Answer:
        """The model beside another: their arenas on a machine, and their answers to random inputs."""
        on = _machine(machine)
        path, other = self._kept("other", name, data)
        reports = [_sizes([(self._path, self.model), (path, other)], on)]
        a, b = Probe(self._path), Probe(path)
        try:
            require_same_shapes(a, b)
        except CommandError as error:
            reports.append(Report("", notes=[described(error)]))
        else:
            reports.append(comparison_report(*compare_models(a, b, real_inputs((a, b)))))
        return {"report": "".join(report.html() for report in reports)}

    def export(self, typed: bool, **machine: str | None) -> Answer:
        """What a firmware project needs, in a zip archive: the files of `tflm export`."""
        named = [word for option, value in machine.items() if value for word in (f"--{option}", value)]
        origin = shlex.join(["tflm", "export", self._path.name, "firmware", *named, *(["--typed"] if typed else [])])
        files = sources(self.model, self._path.stem, _machine(machine), origin, typed)
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
            for file, text in files.items():
                archive.writestr(zipfile.ZipInfo(f"firmware/{file}"), text, zipfile.ZIP_DEFLATED)
        about = f"<p><code>{escape(origin)}</code></p>"
        return {"report": about, "name": f"{self._path.stem}_firmware.zip", "data": packed.getvalue()}

    def _kept(self, role: str, name: str, data: bytes) -> tuple[Path, tflm.Model]:
        """A model as a file, so that the command's functions can read it, and in memory."""
        folder = self._folder / role
        folder.mkdir(exist_ok=True)
        path = folder / Path(name).name
        path.write_bytes(data)
        try:
            return path, load_model(path)
        except CommandError as error:
            raise CommandError(described(error).replace(str(path), path.name)) from None


def _machine(options: dict[str, str | None]) -> Machine:
    return machine_from(options.get("target"), options.get("kernels"), options.get("board"))


def _sizes(models: list[tuple[Path, tflm.Model]], on: Machine) -> Report:
    columns = {
        "model": Column.NAME,
        "file": Column.NUMBER,
        "smallest arena": Column.NUMBER,
        "used": Column.NUMBER,
        "head": Column.NUMBER,
        "tail": Column.NUMBER,
    }
    measured = [(path, model, measure(model, on, PLANNER)) for path, model in models]
    rows = (
        (path.name, len(model.data), m.minimum_arena_bytes, m.arena_used_bytes, m.head_bytes, m.tail_bytes)
        for path, model, m in measured
    )
    return Report("", tables=[Table(f"On {on.target.name} with {on.kernels.name} kernels", columns, rows)])
