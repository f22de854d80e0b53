"""The package's interface for the page: one model at a time; answers are HTML, figures and bytes."""

from __future__ import annotations

import io
import shlex
import warnings
import zipfile
from collections.abc import Callable, Mapping
from html import escape
from pathlib import Path
from typing import Any

import tflm
from tflm.application.arena import ArenaLimits, arena_needs, drawn, fits_of_boards, measure, needs_reports
from tflm.application.comparison import Probe, compare_models, comparison_report, real_inputs, require_same_shapes
from tflm.application.compiled_fit import CompiledFit, compiled_verdict
from tflm.application.errors import RequestError, described
from tflm.application.export import Firmware, identifier, sources
from tflm.application.fit import Fit, fit, fit_report
from tflm.application.machine import Machine, MachineOptions, libraries_for
from tflm.application.models import bytes_from, load_model, share_from
from tflm.application.rewriting_report import VERIFIED_INPUTS, placed, plan_progress, tile_progress, tile_report
from tflm.application.several_memories import drawn_memories, memories_of, memories_report
from tflm.application.streaming_report import streaming_report
from tflm.arena_page import arena_page
from tflm.boards import boards, by_name, chips, completions
from tflm.c.compile import identifier_of
from tflm.c.compile_report import compile_report
from tflm.firmware.board_fit import BoardFit
from tflm.firmware.board_report import findings_report, fits_table
from tflm.firmware.device_check import check_device
from tflm.memory import OptimalPlanner
from tflm.memory.plan_search import DEFAULT_TIME_LIMIT
from tflm.planning.plan_report import shown as plan_report
from tflm.report import NAME, NUMBER, Figure, Report, Table
from tflm.runtime.micro_measurement_report import ARENA_SIZES, drawn_figures
from tflm.runtime.model_report import model_report

PLANNER = "greedy"
"""TFLM's default planner."""

Answer = dict[str, Any]
Told = Callable[[str], None]


def machines() -> list[Answer]:
    """Return all boards, parts and data models with their kernel libraries, the usual library first."""
    groups = {
        "Boards": [(b.name, f"{b.name}: {b.description}", b.target, b.kernels) for b in boards().values()],
        "Chips": [(c.name, f"{c.name}: {c.description}", c.target, c.kernels) for c in chips().values()],
        "Parts": [(t.name, t.name, t, "reference") for t in tflm.targets.PARTS.values()],
        "Data models": [(t.name, f"{t.name}: {t.description}", t, "reference") for t in tflm.targets.TARGETS.values()],
    }
    return [
        {
            "group": group,
            "option": "board" if group in ("Boards", "Chips") else "target",
            "name": name,
            "label": label,
            "kernels": [usual, *(other for other in libraries_for(target) if other != usual)],
        }
        for group, of_group in groups.items()
        for name, label, target, usual in of_group
    ]


def names() -> list[str]:
    """Every name of boards and chips, for the search box."""
    return completions()


class Session:
    """The model that the page shows, stored in a folder.

    The methods that the page calls return dictionaries of types that JavaScript has. Machines are named as in options
    of the command: `board` or `target`, and `kernels`.

    Args:
        folder: an existing folder for models.
    """

    def __init__(self, folder: Path):
        self._folder = folder
        self._path = folder
        self._model: tflm.Model | None = None

    def ask(self, question: str, **options: Any) -> Answer:
        """Call a method by name; warnings are added to its report, and an error is returned under `error`."""
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            try:
                answer: Answer = getattr(self, question)(**options)
            except (tflm.TflmError, OSError) as error:
                return {"error": described(error)}
        if "report" in answer:
            texts = dict.fromkeys(str(warning.message) for warning in warned)
            answer["report"] += "".join(f"<p>{escape(text)}</p>" for text in texts)
        return answer

    def open(self, name: str, data: bytes) -> Answer:
        """Open a model; its name is that of its file."""
        self._path, self._model = self._kept("model", name, data)
        return {"name": self._path.name, "operators": model_report(self.model, name).html()}

    @property
    def model(self) -> tflm.Model:
        """The open model."""
        if self._model is None:
            raise RequestError("no model is open")
        return self._model

    def find(self, name: str) -> Answer:
        """Find a board or chip by any of its names."""
        return {"name": by_name(name).name}

    def arena(self, **machine: str | None) -> Answer:
        """Measure the arena on a machine: figures, reports, the picture; on a board, whether the model fits."""
        on = _machine(machine)
        needs = arena_needs([(Path(self._path.name), self.model)], on, PLANNER, ArenaLimits(on.board))
        ((_, measured),) = needs.measured
        return {
            "target": on.target.name,
            "kernels": on.kernels.name,
            "minimum_arena_bytes": measured.minimum_arena_bytes,
            "arena_used_bytes": measured.arena_used_bytes,
            "head_bytes": measured.head_bytes,
            "tail_bytes": measured.tail_bytes,
            "fits": needs.is_fitting if needs.fits else None,
            "answer": None if needs.verdict is None else needs.verdict.answer.value,
            "verdict": None if needs.verdict is None else needs.verdict.figures,
            "report": "".join(report.html() for report in needs_reports(needs)),
            "page": arena_page(self._path.name, {PLANNER: drawn(self._path, self.model, on, PLANNER)}),
        }

    def check(self, **machine: str | None) -> Answer:
        """Check what behaves differently on a machine."""
        on = _machine(machine)
        findings = check_device(self.model, target=on.target, kernels=on.kernels, board=on.board)
        place = f"{on.place} with {on.kernels.name} kernels"
        return {
            "report": findings_report(self._path.name, place, findings).html(),
            "stops": sum(finding.stops for finding in findings),
        }

    def boards(self, kernels: str | None = None) -> Answer:
        """Check which boards the model fits, with their usual kernels, or all boards that `kernels` are for."""
        fits = fits_of_boards(self.model, kernels, PLANNER)
        return {
            "report": fits_table(fits).html(),
            "fit": [isinstance(fit, BoardFit) and fit.fits for fit in fits],
        }

    def fit(self, reserve: str, progress: Told, best: Callable[[Answer], None], **machine: str | None) -> Answer:
        """Make the model fit a board, as `tflm fit` does: returns the report, both plans as a page, the model and its
        project. Each improved result is passed to `best`, because a page that stops the search gets no answer.
        """
        on = _machine(machine)
        if on.board is None:
            raise RequestError(f"choose a board or chip: the memory of {on.target.name} is unknown")
        kernels = None if on.kernels == on.board.library() else on.kernels
        found = fit(
            self.model,
            board=on.board,
            reserve=bytes_from(reserve),
            kernels=kernels,
            time_limit=None,
            progress=progress,
            improved=lambda found: best(self._fitted(found)),
        )
        return self._fitted(found)

    def _fitted(self, found: Fit) -> Answer:
        plans = {} if found.original is None else {"as it is": drawn_figures(found.original.measured)}
        plans[found.chosen.name] = drawn_figures(found.found.measured)
        name = f"{self._path.stem}_{found.board.name}"
        origin = shlex.join(["tflm", "fit", self._path.name, "--board", found.board.name, "-o", name])
        return {
            "fits": found.fits,
            "report": fit_report(found, self._path.name).html(),
            "page": arena_page(self._path.name, plans),
            "files": [
                {"name": f"{name}.tflite", "data": found.data},
                {"name": f"{name}.zip", "data": _packed(name, found.files(self._path.stem, origin))},
            ],
        }

    def plan(
        self, in_place: bool, reorder: bool, seconds: float | None, progress: Told, **machine: str | None
    ) -> Answer:
        """Write a smaller plan into the model, as `tflm plan` does, with its default time limit."""
        on, planner = _machine(machine), _planner(seconds, progress)
        found = tflm.plan(
            self.model, None, planner, target=on.target, kernels=on.kernels, in_place=in_place, reorder=reorder
        )
        report = plan_report(found, self._path.name)
        if not found.gains:
            report.notes.append("nothing is gained")
        return self._smaller("planned", report, on, found)

    def memories(
        self, memories: str, cost: str | None, seconds: float | None, progress: Told, **machine: str | None
    ) -> Answer:
        """Place the buffers in several memories, as `tflm plan --memories` does; the picture shows each memory."""
        on, planner = _machine(machine), _planner(seconds, progress)
        given = memories_of(memories, self.model, on, cost)
        found = tflm.plan(self.model, None, planner, memories=given, target=on.target, kernels=on.kernels)
        return {
            "report": memories_report(found, self._path.name, on).html(),
            "page": arena_page(self._path.name, drawn_memories(found, on)),
            "files": [{"name": "memory_plan.h", "data": found.header(identifier(self._path.stem)).encode()}],
        }

    def tile(self, macs: str, ram: str | None, seconds: float | None, progress: Told, **machine: str | None) -> Answer:
        """Rewrite the model into row bands, as `tflm tile` does."""
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
        return self._smaller("tiled", tile_report(found, self._path.name, enough), on, found)

    def stream(self, hop: int, causal: bool, progress: Told, **machine: str | None) -> Answer:
        """Rewrite the model to take new frames only, as `tflm stream` does."""
        on = _machine(machine)
        found = tflm.stream(self.model, hop=hop, causal=causal, report=progress)
        before, after = (measure(each, on, PLANNER) for each in (self.model, found.model))
        report = streaming_report(self._path.name, found, on, before, after, None)
        return {
            "report": report.html(),
            "files": [{"name": f"{self._path.stem}_streaming.tflite", "data": found.data}],
        }

    def _smaller(self, how: str, report: Report, on: Machine, found: tflm.ModelPlan | tflm.TiledModel) -> Answer:
        placed(Path(self._path.name), self.model, found, on, None).add_to(report)
        if not found.gains:
            return {"report": report.html(), "gains": False}
        files = [{"name": f"{self._path.stem}_{how}.tflite", "data": found.data}]
        return {"report": report.html(), "gains": True, "files": files}

    def compare(self, name: str, data: bytes, **machine: str | None) -> Answer:
        """Compare the model with another: arenas on a machine, and results on random inputs."""
        on = _machine(machine)
        path, other = self._kept("other", name, data)
        reports = [_sizes([(self._path, self.model), (path, other)], on)]
        a, b = Probe(self._path), Probe(path)
        try:
            require_same_shapes(a, b)
        except RequestError as error:
            reports.append(Report("", notes=[described(error)]))
        else:
            reports.append(comparison_report(*compare_models(a, b, real_inputs((a, b)))))
        return {"report": "".join(report.html() for report in reports)}

    def export(self, typed: bool, **machine: str | None) -> Answer:
        """Create the files of `tflm export` in a zip archive."""
        named = [word for option, value in machine.items() if value for word in (f"--{option}", value)]
        options = ["--project", "none", *(["--typed"] if typed else []), *named]
        origin = shlex.join(["tflm", "export", self._path.name, "firmware", *options])
        packed = _packed("firmware", sources(Firmware(self.model, self._path.stem, _machine(machine), origin), typed))
        about = f"<p><code>{escape(origin)}</code></p>"
        return {"report": about, "files": [{"name": f"{self._path.stem}_firmware.zip", "data": packed}]}

    def compile(self, tests: int, **machine: str | None) -> Answer:
        """Create the files of `tflm compile` in a zip archive, with a test of so many invokes; show the sizes."""
        on, name = _machine(machine), identifier_of(self._path.stem)
        compiled = tflm.compile_model(self.model, name, self_test=tests)
        report = compile_report(compiled)
        if on.board is not None:
            report.notes.append(compiled_verdict(CompiledFit(on.board, compiled)))
        return {
            "ram_bytes": compiled.ram_bytes,
            "report": report.html(),
            "files": [{"name": f"{name}_c.zip", "data": _packed(name, compiled.files)}],
        }

    def _kept(self, role: str, name: str, data: bytes) -> tuple[Path, tflm.Model]:
        """Store a model as a file, which the command's functions can read, and load it."""
        folder = self._folder / role
        folder.mkdir(exist_ok=True)
        path = folder / Path(name).name
        path.write_bytes(data)
        try:
            return path, load_model(path)
        except RequestError as error:
            raise RequestError(described(error).replace(str(path), path.name)) from None


def _planner(seconds: float | None, progress: Told) -> OptimalPlanner:
    return OptimalPlanner(
        time_limit=DEFAULT_TIME_LIMIT if seconds is None else seconds,
        progress=lambda at: progress(plan_progress(at)),
    )


def _packed(folder: str, files: Mapping[str, str | bytes]) -> bytes:
    """Pack files into a folder of a zip archive."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for file, content in files.items():
            archive.writestr(zipfile.ZipInfo(f"{folder}/{file}"), content, zipfile.ZIP_DEFLATED)
    return packed.getvalue()


def _machine(options: dict[str, str | None]) -> Machine:
    return MachineOptions(**options).machine()


def _sizes(models: list[tuple[Path, tflm.Model]], on: Machine) -> Report:
    figures = Figure("model", NAME, lambda each: each[0].name), Figure("file", NUMBER, lambda each: len(each[1].data))
    pairs = ((each, measure(each[1], on, PLANNER)) for each in models)
    title = f"On {on.target.name} with {on.kernels.name} kernels"
    return Report("", tables=[Table.of_pairs(title, pairs, figures, ARENA_SIZES)])
