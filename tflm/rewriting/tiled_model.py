"""The smallest arena that a model is found to run in, whatever it takes: a plan, small rewrites, bands of rows."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from tflm.libraries import KernelLibrary, Kernels, library_for
from tflm.memory import OptimalPlanner
from tflm.planning import plan
from tflm.planning.improved_model import ImprovedModel
from tflm.releases import Releases
from tflm.rewriting.candidates import Progress, Rewritten, Tiler
from tflm.rewriting.graph import Graph
from tflm.rewriting.operator_costs import Measure
from tflm.rewriting.simplify import simplified
from tflm.rewriting.stage_search import ChosenStage
from tflm.rewriting.verification import Verification, verified, without_plan
from tflm.runtime.micro_measurement import ArenaMeasurement, measure_arena
from tflm.runtime.micro_op_resolver import AllOpsResolver, MicroMutableOpResolver
from tflm.runtime.operator_facts import multiply_accumulates
from tflm.schema.model import Model, require_model
from tflm.schema.patch import with_data_inside
from tflm.targets import HOST, Target, require_target

PLAN_STEPS = 20_000
"""Search steps that a plan of a model without bands takes at the most; so it does not depend on the machine."""


@dataclass(frozen=True)
class TiledStage:
    """Operators that run band by band.

    Attributes:
        first, last: their indices in the model before it was put in bands, both included.
        operators: their names.
        bands: rows of the last one's output, [first, end) for each band, in the order in which they run.
    """

    first: int
    last: int
    operators: tuple[str, ...]
    bands: tuple[tuple[int, int], ...]

    def __str__(self) -> str:
        rows = ", ".join(f"{first}-{end - 1}" for first, end in self.bands)
        what = f"operators {self.first} to {self.last} ({self.operators[0]} to {self.operators[-1]})"
        if self.first == self.last:
            what = f"operator {self.first} ({self.operators[0]})"
        return f"{what} in {len(self.bands)} bands of rows {rows}"


@dataclass(frozen=True)
class TiledModel(ImprovedModel):
    """A model in the smallest arena that was found for it; sizes in bytes.

    Attributes:
        data: the model. The bytes that there were, if nothing was found that is smaller.
        before, after: what the model as it was needs of an arena, and what this one does.
        file_bytes_before: the file's size as it was.
        operators_before: the operators that it had.
        extra_macs: multiply-accumulates more than before, as a share of those before.
        stages: what runs in bands.
        rewrites: what else was changed, and how often.
        needed_operators: names of operators that the resolver must have, and that the model had no need of.
        proved: what was checked of the model: that it is `data` which gives the answers.
    """

    data: bytes
    before: ArenaMeasurement
    after: ArenaMeasurement
    file_bytes_before: int
    operators_before: int
    extra_macs: float
    stages: tuple[TiledStage, ...]
    rewrites: dict[str, int]
    needed_operators: tuple[str, ...]
    proved: Verification

    def __repr__(self) -> str:
        arena = f"{self.minimum_arena_bytes} bytes needed on {self.after.target.name}"
        stages = f"{len(self.stages)} stages in bands"
        return f"TiledModel({arena}, {self.minimum_arena_bytes_before} before, {stages}, {self.proved})"

    def _repr_html_(self) -> str:
        from tflm.rewriting.tiling_report import shown  # only notebooks ask
        from tflm.runtime.micro_measurement_report import picture

        drawn = {"previous": self.before, "new": self.after} if self.gains else {"memory": self.after}
        return shown(self).html() + picture(**drawn)

    @property
    def gains(self) -> bool:
        """Whether anything was found that is smaller."""
        return not self.proved.unchanged


def tile(
    model: Model,
    resolver: MicroMutableOpResolver | None = None,
    *,
    target: Target = HOST,
    kernels: Kernels = "reference",
    max_extra_macs: float = 0.10,
    time_limit: float | None = None,
    ram: int | None = None,
    alias: bool = True,
    overlap: str | None = None,
    verify: int = 2,
    progress: Callable[[Progress], None] | None = None,
    release: Releases | None = None,
) -> TiledModel:
    """Rewrite a model so that it runs in a smaller arena, with the same answers, on any TFLM.

    Operators that need most memory run once for each band of rows: see docs/smaller.md. Where a plan alone, or nothing
    at all, does as well, that is what it gives.

    Args:
        model: the model.
        resolver: the operators that there are; every one of this package, if it is not given.
        target: the machine whose structures and scratch buffers count.
        kernels: the kernel library that the firmware is built with, whose structures and scratch buffers they are.
        max_extra_macs: multiply-accumulates that may be added, as a share of those there are: rows at the edges of
            bands are computed twice.
        time_limit: seconds for the search; None to try as many rewrites as are usually worth while, which takes seconds
            for small models and a minute for large ones, and gives the same everywhere.
        ram: bytes of an arena that is small enough: the least work with which the model fits is what counts then. Where
            nothing fits, the result is the smallest that was found.
        alias: let CONCATENATION's inputs lie in its output, so that it copies bytes onto themselves. The reference
            kernel does so with memcpy, for which that is formally not defined.
        overlap: as in `tflm.plan`: let outputs of convolutions reach into their inputs.
        verify: how many random inputs the model must give the same answers for as it did.
        progress: is told of each rewrite that was tried, then of what is being checked.
        release: the TFLM that the firmware has, as for `MicroInterpreter`.

    Raises:
        TflmError: the model can't be laid out in an arena; or a rewrite does not hold what it promises, which is a
            fault of this package.
    """
    begin = time.monotonic()
    model = with_data_inside(require_model(model))
    resolver = AllOpsResolver() if resolver is None else resolver
    library = library_for(kernels, require_target(target), release)

    def measure(model: Model) -> ArenaMeasurement:
        return measure_arena(model, resolver, target=target, kernels=library)

    search = _Search(model, resolver, target, library, measure, alias, overlap, ram, time_limit)
    search.plan(model, {})
    graph = Graph(model)
    rewrites = simplified(graph)
    simple = graph.checked() if rewrites else without_plan(model)
    if rewrites:
        search.plan(simple, rewrites)
    if not search.is_enough() and all(name in resolver for name in MOVERS):
        end = None if time_limit is None else begin + time_limit
        search.tile(simple, rewrites, max_extra_macs, end, progress)

    def report(checking: str) -> None:
        if progress is not None:
            progress(Progress(time.monotonic() - begin, 0, 0, checking))

    return search.result(verify, report)


def fold(model: Model) -> bytes:
    """The bytes of a model after all small rewrites that keep every bit, such as PAD folded into convolutions.

    The model's own bytes where there is nothing to be done. A memory plan that the model has is left out, for it is a
    plan of other tensors.

    Raises:
        ModelError: the model can't be written.
    """
    model = with_data_inside(require_model(model))
    graph = Graph(model)
    return bytes(graph.checked().data) if simplified(graph) else bytes(model.data)


MOVERS = ("SLICE", "CONCATENATION")
"""The operators that bands need."""


class _Found(NamedTuple):
    """A model that does what it should: its smallest arena, and how it came about.

    Attributes:
        simple: the model that its stages count in.
    """

    arena: int
    data: bytes
    simple: Model
    rewrites: Mapping[str, int]
    stages: tuple[ChosenStage, ...]
    ends: Mapping[int, int]


class _Search:
    """Keeps the model with the smallest arena, or with the least changes whose arena is small enough."""

    def __init__(
        self,
        model: Model,
        resolver: MicroMutableOpResolver,
        target: Target,
        library: KernelLibrary,
        measure: Measure,
        alias: bool,
        overlap: str | None,
        ram: int | None,
        time_limit: float | None,
    ):
        self._model, self._resolver, self._measure = model, resolver, measure
        self._target, self._library = target, library
        self._apart = () if alias else ("CONCATENATION",)
        self._overlap = overlap
        self._ram, self._time_limit = ram, time_limit
        self._before = measure(model)
        self._best = _Found(self._before.minimum_arena_bytes, bytes(model.data), model, {}, (), {})

    def is_enough(self) -> bool:
        """Whether nothing smaller is asked for."""
        return self._ram is not None and self._best.arena <= self._ram

    def plan(self, model: Model, rewrites: Mapping[str, int]) -> None:
        """Try a model with a plan alone."""
        if self.is_enough():
            return
        planner = OptimalPlanner(time_limit=self._time_limit, step_limit=PLAN_STEPS)
        planned = plan(
            model,
            self._resolver,
            planner,
            target=self._target,
            kernels=self._library,
            views=not self._apart,
            overlap=self._overlap,
        )
        self._keep(_Found(planned.minimum_arena_bytes, planned.data, model, rewrites, (), {}))

    def tile(
        self,
        model: Model,
        rewrites: Mapping[str, int],
        max_extra_macs: float,
        end: float | None,
        progress: Callable[[Progress], None] | None,
    ) -> None:
        """Try a model in bands."""
        whole = sum(_macs(self._model))
        macs = int(whole * (1 + max_extra_macs)) - sum(_macs(model))
        measured = self._measure(model)
        tiler = partial(
            Tiler,
            model,
            measured,
            self._measure,
            macs,
            apart=self._apart,
            alignment=self._library.view_alignment,
            overlap=self._overlap is not None,
            end=end,
            progress=progress,
        )
        if self._ram is not None:
            made = tiler().within(self._ram)
            self._keep_bands(made, model, rewrites)
        if not self.is_enough():
            made = tiler().smallest(self._best.arena)
            self._keep_bands(made, model, rewrites)

    def _keep_bands(self, made: Rewritten | None, model: Model, rewrites: Mapping[str, int]) -> None:
        if made is not None:
            self._keep(_Found(made.arena, made.data, model, rewrites, made.stages, made.ends))

    def result(self, inputs: int, report: Callable[[str], None]) -> TiledModel:
        """The best that was found, checked; `report` is told what is being checked."""
        best, model = self._best, Model(self._best.data)
        unchanged = best.data == self._model.data
        after = self._before if unchanged else self._measure(model)
        return TiledModel(
            data=best.data,
            before=self._before,
            after=after,
            file_bytes_before=len(self._model.data),
            operators_before=len(self._model.subgraphs[0].operators or ()),
            extra_macs=sum(_macs(model)) / max(sum(_macs(self._model)), 1) - 1 if not unchanged else 0.0,
            stages=tuple(_stage(best.simple, stage) for stage in best.stages),
            rewrites=dict(best.rewrites),
            needed_operators=tuple(sorted(_operators(model) - _operators(self._model))),
            proved=Verification(unchanged=True)
            if unchanged
            else verified(self._model, best.simple, model, self._resolver, after, best.ends, inputs, report),
        )

    def _keep(self, found: _Found) -> None:
        if found.arena < self._best.arena:
            self._best = found


def _macs(model: Model) -> list[int]:
    main = model.subgraphs[0]
    return [multiply_accumulates(model, main, operator) for operator in main.operators or ()]


def _operators(model: Model) -> set[str]:
    return {model.operator_name(operator) for subgraph in model.subgraphs for operator in subgraph.operators or ()}


def _stage(model: Model, stage: ChosenStage) -> TiledStage:
    operators = (model.subgraphs[0].operators or [])[stage.first : stage.end]
    return TiledStage(
        first=stage.first,
        last=stage.end - 1,
        operators=tuple(model.operator_name(operator) for operator in operators),
        bands=tuple((band.first, band.end) for band in stage.bands),
    )
