"""Reduces a model's arena by all means: a plan, simplifications, and bands of rows."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from tflm.errors import ArgumentError
from tflm.graph import Graph, multiply_accumulates
from tflm.libraries import KernelLibrary, Kernels, library_for
from tflm.libraries.kernel_library import overlap_allowed_by
from tflm.memory import OptimalPlanner
from tflm.planning import plan
from tflm.planning.improved_model import ImprovedModel, SeparateMemories
from tflm.planning.model_plan import require_overlap
from tflm.releases import Releases
from tflm.report import Report, Table, with_thousands
from tflm.rewriting.simplify import simplified
from tflm.rewriting.verification import Verification, check_tags, verified
from tflm.runtime.micro_measurement import SeparateArenas, measure_arena, measure_separate_arenas
from tflm.runtime.micro_measurement_report import CHANGES, FILE_CHANGE, ArenaMeasurement, picture
from tflm.runtime.micro_op_resolver import AllOpsResolver, MicroMutableOpResolver
from tflm.schedule.band_costs import BandedStage
from tflm.schedule.band_search import Progress, Rewritten, Tiler
from tflm.schedule.operator_costs import HeadArena, Measure, Objective, OneArena
from tflm.schema.model import Model, require_model
from tflm.schema.patch import with_data_inside, without_plan
from tflm.targets import HOST, Target, require_target


@dataclass(frozen=True)
class TiledStage:
    """Operators that run band by band.

    Attributes:
        first: index of the first one, in the model after the small rewrites.
        last: index of the last one.
        operators: their names.
        bands: rows of the last one's output, [first, end) for each band, in execution order.
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
    """A model with the smallest arena that was found for it; sizes in bytes.

    Attributes:
        data: the model; unchanged if nothing smaller was found.
        before, after: arena requirements of the original model and of this one.
        file_bytes_before: size of the original file.
        operators_before: number of operators of the original model.
        extra_macs: additional multiply-accumulates, as a share of the original's.
        stages: the stages that run in bands.
        rewrites: other changes, with their counts.
        needed_operators: names of operators that the resolver must have in addition to the original's.
        proved: the checks that `data` passed.
        separate: the arenas with head and tail in separate memories, if `head_ram` or `tail_ram` was given.
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
    separate: SeparateMemories | None = None

    def __repr__(self) -> str:
        arena = f"{self.minimum_arena_bytes} bytes needed on {self.after.target.name}"
        stages = f"{len(self.stages)} stages in bands"
        return f"TiledModel({arena}, {self.minimum_arena_bytes_before} before, {stages}, {self.proved})"

    def _repr_html_(self) -> str:
        drawn = {"previous": self.before, "new": self.after} if self.gains else {"memory": self.after}
        return shown(self).html() + picture(**drawn)

    @property
    def gains(self) -> bool:
        """Whether the arena is smaller than before."""
        return not self.proved.unchanged


def shown(tiled: TiledModel, name: str = "model") -> Report:
    """The result as a text report."""
    rows = [
        *(change.row(tiled) for change in (*CHANGES, FILE_CHANGE)),
        ("operators", tiled.operators_before, len(tiled.model.subgraphs[0].operators or ())),
    ]
    facts = [("work", f"{tiled.extra_macs:+.1%} multiply-accumulates")] if tiled.stages or tiled.rewrites else []
    facts += [("rewritten", f"{count} {what}") for what, count in tiled.rewrites.items()]
    facts += [("stage", str(stage)) for stage in tiled.stages]
    if tiled.needed_operators:
        facts.append(("the firmware's resolver needs", ", ".join(tiled.needed_operators)))
    facts.append(("checked", str(tiled.proved)))
    notes = []
    if not tiled.gains:
        notes.append(f"found no arena smaller than {with_thousands(tiled.minimum_arena_bytes_before)}")
    return Report(f"{name} on {tiled.after.target.name}", facts, [Table.of_changes(rows)], notes)


SHARE_OF_PLAN = 0.1
"""Share of the time limit for a plan of the model without bands."""

PLAN_STEPS = 20_000
"""Maximum number of search steps for the plan of a model without bands. Unlike a time limit, it gives the same result
on every machine."""


def tile(
    model: Model,
    resolver: MicroMutableOpResolver | None = None,
    *,
    target: Target | str = HOST,
    kernels: Kernels = "reference",
    max_extra_macs: float = 0.10,
    time_limit: float | None = None,
    ram: int | None = None,
    head_ram: int | None = None,
    tail_ram: int | None = None,
    alias: bool = True,
    overlap: str | bool | None = None,
    verify: int = 2,
    progress: Callable[[Progress], None] | None = None,
    release: Releases | None = None,
) -> TiledModel:
    """Rewrite a model so that it runs in a smaller arena, with the same answers, on any TFLM.

    Operators that need the most memory run once for each band of rows; see docs/smaller.md. If a plan alone, or the
    unchanged model, is as small, the result is that.

    Args:
        model: the model.
        resolver: the available operators; by default all of this package.
        target: the target whose structures and scratch buffers are counted.
        kernels: the kernel library of the firmware, which determines structures and scratch buffers.
        max_extra_macs: most multiply-accumulates to add, as a share of the model's; rows at the edges of bands are
            computed twice.
        time_limit: seconds for the search; None for a fixed number of attempts, which takes seconds for small models
            and a minute for large ones, and has the same result on every machine.
        ram: target arena size in bytes: find the least extra work that fits. If nothing fits, the result is the
            smallest arena found.
        head_ram: bytes of the head's memory, if the tail has a separate one. Used instead of `ram`: the search
            reduces the head's arena, and finds the least extra work with which it fits.
        tail_ram: bytes of the tail's memory, which must hold it. If only one of the two is given, the other memory
            has any size.
        alias: let CONCATENATION's inputs lie in its output, so that it copies bytes onto themselves. The reference
            kernel uses memcpy, for which this is formally undefined.
        overlap: let outputs overlap inputs, as in `tflm.plan`.
        verify: number of random inputs on which the outputs are compared with the original's.
        progress: called after each rewrite tried, then with each check of the result.
        release: the firmware's TFLM release, as for `MicroInterpreter`.

    Raises:
        ArgumentError: `ram` is given together with `head_ram` or `tail_ram`.
        TflmError: the model can't be laid out in an arena; or a check of the result failed, which is a bug in this
            package.
    """
    is_separate = head_ram is not None or tail_ram is not None
    if ram is not None and is_separate:
        raise ArgumentError("ram is for one arena, head_ram and tail_ram are for two; pass one or the other")
    model = with_data_inside(require_model(model))
    resolver = AllOpsResolver() if resolver is None else resolver
    part = require_target(target)
    library = library_for(kernels, part, release)

    unaliased = () if alias else ("CONCATENATION",)

    def measure(model: Model) -> ArenaMeasurement:
        return measure_arena(model, resolver, target=part, kernels=library)

    def separate(model: Model) -> SeparateArenas:
        return measure_separate_arenas(model, resolver, target=part, kernels=library)

    objective = HeadArena(separate, tail_ram) if is_separate else OneArena(measure)
    enough = head_ram if is_separate else ram
    search = _Search(
        model,
        resolver,
        part,
        library,
        measure,
        objective,
        unaliased,
        overlap,
        enough,
        time_limit,
        max_extra_macs,
        progress,
    )
    search.plan(model, {})
    graph = Graph(model)
    rewrites = simplified(graph)
    simple = graph.checked() if rewrites else without_plan(model)
    if rewrites:
        search.plan(simple, rewrites)
    if not search.is_enough() and all(name in resolver for name in MOVERS):
        search.tile(simple, rewrites)
    found = search.result(verify)
    if not is_separate:
        return found
    arenas = SeparateMemories(head_ram, tail_ram, separate(model), separate(found.model))
    return replace(found, separate=arenas)


def fold(model: Model) -> bytes:
    """The bytes of a model after all simplifications with bit-identical results, such as folding PAD into convolutions.

    If nothing can be simplified, returns the model unchanged. Otherwise drops its memory plan, which would not match
    the new tensors.

    Raises:
        ModelError: the model can't be written.
    """
    model = with_data_inside(require_model(model))
    graph = Graph(model)
    return bytes(graph.checked().data) if simplified(graph) else bytes(model.data)


MOVERS = ("SLICE", "CONCATENATION")
"""The operators that bands add."""


class _Found(NamedTuple):
    """A candidate model and how it was made.

    Attributes:
        arena: bytes of the objective.
        simple: the simplified model that its stages refer to.
    """

    arena: int
    data: bytes
    simple: Model
    rewrites: Mapping[str, int]
    stages: tuple[BandedStage, ...]
    ends: Mapping[int, int]


@dataclass
class _Search:
    """Keeps the model with the smallest arena, or the least changed one whose arena is small enough.

    The fields are the arguments of `tile`; `unaliased` names operators whose inputs and outputs must not share memory,
    and the search stops at an arena of `enough` bytes.
    """

    model: Model
    resolver: MicroMutableOpResolver
    target: Target
    kernels: KernelLibrary
    measure: Measure
    objective: Objective
    unaliased: tuple[str, ...]
    overlap: str | bool | None
    enough: int | None
    time_limit: float | None
    max_extra_macs: float
    progress: Callable[[Progress], None] | None

    def __post_init__(self) -> None:
        self._begin = time.monotonic()
        self.before = self.measure(self.model)
        self._best = _Found(self.objective.measured(self.model), bytes(self.model.data), self.model, {}, (), {})

    def is_enough(self) -> bool:
        """Whether the arena is as small as requested."""
        return self.enough is not None and self._best.arena <= self.enough

    def plan(self, model: Model, rewrites: Mapping[str, int]) -> None:
        """Try a model with a plan alone."""
        if self.is_enough():
            return
        seconds = None if self.time_limit is None else SHARE_OF_PLAN * self.time_limit
        planner = OptimalPlanner(time_limit=seconds, step_limit=PLAN_STEPS)
        planned = plan(
            model,
            self.resolver,
            planner,
            target=self.target,
            kernels=self.kernels,
            views=not self.unaliased,
            overlap=self.overlap,
        )
        self._keep(_Found(self.objective.measured(planned.model), planned.data, model, rewrites, (), {}))

    def tile(self, model: Model, rewrites: Mapping[str, int]) -> None:
        """Try a model in bands."""
        macs = int(sum(_macs(self.model)) * (1 + self.max_extra_macs)) - sum(_macs(model))
        tiler = Tiler(
            model,
            self.measure(model),
            self.measure,
            self.objective,
            macs,
            unaliased=self.unaliased,
            alignment=self.kernels.view_alignment,
            overlap=require_overlap(self.overlap, self.kernels),
            allowed=overlap_allowed_by([(self.target, self.kernels)]),
            end=None if self.time_limit is None else self._begin + self.time_limit,
            progress=self.progress,
        )
        if self.enough is not None:
            self._keep_bands(tiler.within(self.enough), model, rewrites)
        if not self.is_enough():
            self._keep_bands(tiler.smallest(self._best.arena), model, rewrites)

    def _keep_bands(self, made: Rewritten | None, model: Model, rewrites: Mapping[str, int]) -> None:
        if made is not None:
            self._keep(_Found(made.arena, made.data, model, rewrites, made.stages, made.ends))

    def _report(self, checking: str) -> None:
        if self.progress is not None:
            self.progress(Progress(time.monotonic() - self._begin, 0, 0, checking))

    def result(self, inputs: int) -> TiledModel:
        """The best model found, checked with `inputs` random inputs."""
        best, model = self._best, Model(self._best.data)
        unchanged = best.data == self.model.data
        after, proved = self.before, Verification(unchanged=True)
        if not unchanged:
            after = self.measure(model)
            self._report("values in the plan")
            check_tags(model, after)
            proved = verified(self.model, best.simple, model, self.resolver, best.ends, inputs, self._report)
        return TiledModel(
            data=best.data,
            before=self.before,
            after=after,
            file_bytes_before=len(self.model.data),
            operators_before=len(self.model.subgraphs[0].operators or ()),
            extra_macs=sum(_macs(model)) / max(sum(_macs(self.model)), 1) - 1 if not unchanged else 0.0,
            stages=tuple(_stage(best.simple, stage) for stage in best.stages),
            rewrites=dict(best.rewrites),
            needed_operators=tuple(sorted(_operators(model) - _operators(self.model))),
            proved=proved,
        )

    def _keep(self, found: _Found) -> None:
        if found.arena < self._best.arena:
            self._best = found


def _macs(model: Model) -> list[int]:
    main = model.subgraphs[0]
    return [multiply_accumulates(model, main, operator) for operator in main.operators or ()]


def _operators(model: Model) -> set[str]:
    return {model.operator_name(operator) for subgraph in model.subgraphs for operator in subgraph.operators or ()}


def _stage(model: Model, stage: BandedStage) -> TiledStage:
    operators = (model.subgraphs[0].operators or [])[stage.first : stage.end]
    return TiledStage(
        first=stage.first,
        last=stage.end - 1,
        operators=tuple(model.operator_name(operator) for operator in operators),
        bands=tuple((band.first, band.end) for band in stage.bands),
    )
