"""A device's log compared with the model: times by operator, arenas, and why these differ, as figures and reports."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tflm.application.machine import Machine
from tflm.application.progress import Progress
from tflm.firmware.arena_causes import Build, builds_that_fit, contained_in, equals, figures_here
from tflm.firmware.device_log import DeviceArena, DeviceLog, Invokes, Place
from tflm.graph import multiply_accumulates
from tflm.releases import Commit
from tflm.report import NAME, NUMBER, TEXT, Figure, Report, Table, document_of, json_key, machine_keys
from tflm.runtime.allocator_structures import RecordedAllocation, RecordedAllocationType
from tflm.runtime.growing_arena import ready_interpreter
from tflm.runtime.micro_measurement_report import ArenaMeasurement
from tflm.runtime.micro_profiler import MicroProfiler
from tflm.runtime.micro_resource_variable import count_resource_variables
from tflm.schema.model import Model


class Timed(NamedTuple):
    """An operator on the device.

    Attributes:
        subgraph_index: the index of its subgraph.
        operator_index: its index in the subgraph.
        operator: its name.
        runs: the number of its runs in the log.
        ticks: ticks of the device's clock, the median of its runs.
        share: its share of the ticks of the first subgraph's operators, from 0 to 1.
        multiply_accumulates: those of one run; 0 for operators without weights.
    """

    subgraph_index: int
    operator_index: int
    operator: str
    runs: int
    ticks: float
    share: float
    multiply_accumulates: int


class ArenaRow(NamedTuple):
    """A size in the arena.

    Attributes:
        part: `total`, `head`, `tail`, or a category of the tail.
        device_bytes: the size on the device.
        here_bytes: the size computed here.
    """

    part: str
    device_bytes: int
    here_bytes: int


class ArenaFinding(NamedTuple):
    """The device's arena compared with the computed one.

    Attributes:
        build: the assumed firmware build.
        rows: each size that the device reports.
        equal: whether all are equal.
        fitting: other builds with the device's sizes, if the assumed build has different ones.
        another_model: why the device's model cannot be this one; empty otherwise.
    """

    build: Build
    rows: list[ArenaRow]
    equal: bool
    fitting: list[Build]
    another_model: str


def figures(
    path: Path, model: Model, log: DeviceLog, invokes: Invokes, rows: list[Timed], arena: ArenaFinding | None
) -> dict[str, Any]:
    """Return the JSON document of a log."""
    return {
        "model": path,
        "invokes": invokes.count,
        "operators": rows,
        "other_events": invokes.others,
        "tags": list(_tags(model, log)),
        "arena": None if arena is None else document_of(arena, ARENA_FIGURES),
        "failures": log.failures,
    }


def _containers(build: Build) -> list[str]:
    if build.commits is None:
        return []
    library = build.kernels.name.partition("@")[0].partition(":")[0]
    return contained_in(build.commits, library, build.kernels.release.static_memory)


ARENA_FIGURES = (
    *machine_keys("build."),
    json_key("resource_variables", int, "as many as the model names", "build.resource_variables"),
    json_key("rows", list[ArenaRow], "each size that the device reports"),
    json_key("equal", bool, "whether all that the device says is so here"),
    json_key(
        "fitting",
        [
            (
                *machine_keys(),
                json_key("resource_variables", int, "capacity for resource variables"),
                json_key(
                    "first_commit",
                    Commit | None,
                    "if releases were tried: the first commit of TFLM with the same figures",
                    "commits.first",
                ),
                json_key("last_commit", Commit | None, "the last one; the release is this one", "commits.last"),
                json_key(
                    "contained_in",
                    list[str],
                    "distributions that contain a TFLM between these commits, with the same kernel library",
                    _containers,
                ),
            )
        ],
        "if not equal: builds that have the device's figures",
    ),
    json_key("another_model", str, "why the device's model can't be this one; empty otherwise"),
)
"""The figures of an arena."""


class TagTicks(NamedTuple):
    """All runs of a kind of operator, if the log has sums.

    Attributes:
        operator: a kind of operator, if the log has sums.
        ticks: of all its runs.
        multiply_accumulates: of all of that kind, in one invoke of the first subgraph.
    """

    operator: str
    ticks: int
    multiply_accumulates: int


def _tags(model: Model, log: DeviceLog) -> Iterator[TagTicks]:
    main = model.subgraphs[0]
    for tag, ticks in log.ticks_by_tag.items():
        named = (operator for operator in main.operators or () if model.operator_name(operator) == tag)
        yield TagTicks(tag, ticks, sum(multiply_accumulates(model, main, operator) for operator in named))


TICKS = Figure("ticks", NUMBER, "ticks", ",.0f")
WORK = Figure("MACs", NUMBER, lambda row: row.multiply_accumulates or None)


def reports(
    model: Model, log: DeviceLog, invokes: Invokes, rows: list[Timed], arena: ArenaFinding | None, mhz: float | None
) -> Iterator[Report]:
    """Report times of operators, the arena, and failures, if they are in the log.

    Args:
        mhz: ticks per microsecond; None to show no times.
    """
    if log.events:
        yield _time_report(invokes, rows, mhz)
    if log.ticks_by_tag:
        total = sum(log.ticks_by_tag.values()) or 1
        share = Figure("share", NUMBER, lambda tag: tag.ticks / total, ".1%")
        columns = (Figure("operators", NAME, "operator"), TICKS._replace(form=""), share, WORK)
        yield Report("ticks by kind of operator", [], [Table.of("", _tags(model, log), *columns)])
    if arena is not None:
        yield _arena_report(arena)
    for failure in log.failures:
        yield Report(failure.line, [], [], [failure.advice])


def _ticks_per_mac(row: Timed) -> float | None:
    return row.ticks / row.multiply_accumulates if row.multiply_accumulates else None


def _time_report(invokes: Invokes, rows: list[Timed], mhz: float | None) -> Report:
    table = Table.of(
        "",
        rows,
        Figure("#", NUMBER, lambda row: f"{row.subgraph_index}:{row.operator_index}".removeprefix("0:")),
        Figure("operator", NAME, "operator"),
        TICKS,
        Figure("us", NUMBER, lambda row: row.ticks / mhz, ",.1f") if mhz else None,
        Figure("share", NUMBER, lambda row: row.share if row.subgraph_index == 0 else None, ".1%"),
        WORK,
        Figure("ticks/MAC", NUMBER, _ticks_per_mac, ".3g"),
    )
    total = sum(row.ticks for row in rows if row.subgraph_index == 0)
    facts = [("invokes", str(invokes.count)), ("ticks per invoke", f"{total:,.0f}")]
    if mhz:
        facts.append(("time per invoke", f"{total / mhz / 1e3:,.2f} ms"))
    notes = []
    if invokes.others:
        ticks = sum(event.ticks for event in invokes.others)
        notes.append(
            f"{len(invokes.others)} events with {ticks:,} ticks do not belong to a complete invoke of this model"
        )
    return Report("times on the device, medians", facts, [table] if rows else [], notes)


def _arena_report(arena: ArenaFinding) -> Report:
    table = Table.of(
        "",
        arena.rows,
        Figure("bytes", TEXT, "part"),
        Figure("device", NUMBER, "device_bytes"),
        Figure("here", NUMBER, "here_bytes"),
        Figure("difference", NUMBER, lambda row: _signed(row.device_bytes - row.here_bytes)),
    )
    title = f"arena on the device, compared with {arena.build.target.name} with {arena.build.kernels.name} kernels"
    return Report(title, [], [table], list(_arena_notes(arena)))


def _signed(size: int) -> str:
    return f"{size:+,}" if size else "0"


def _arena_notes(arena: ArenaFinding) -> Iterator[str]:
    if arena.equal:
        yield "all equal"
    elif arena.another_model:
        yield f"another model: {arena.another_model}"
    elif arena.fitting:
        yield "equal with " + "; or ".join(_in_words(build, arena.build) for build in arena.fitting)
    else:
        yield (
            "no known combination of kernel library, TFLM release, part and number of resource variables has these "
            "sizes; check that the file is the same, and that the firmware uses TFLM's default planner and one arena"
        )


def _in_words(build: Build, thought: Build) -> str:
    """Describe how a build differs from the assumed one."""
    words = []
    if build.target != thought.target:
        words.append(f"the part {build.target.name}")
    if build.kernels.name != thought.kernels.name or build.target != thought.target:
        words.append(f"{build.kernels.name} kernels")
    if build.commits is not None:
        words.append(_commits_in_words(build))
    elif build.kernels.release is not thought.kernels.release:
        words.append(build.kernels.release.name)
    if build.resource_variables != thought.resource_variables:
        words.append(f"space for {build.resource_variables} resource variables instead of {thought.resource_variables}")
    return ", ".join(words)


def _commits_in_words(build: Build) -> str:
    assert build.commits is not None
    first, last = build.commits
    words = f"TFLM {first.hash} of {first.date}"
    if first != last:
        words += f" to {last.hash} of {last.date}"
    if not build.kernels.release.static_memory:
        words += " without static memory"
    containers = _containers(build)
    return words + (f" (as in {', '.join(containers)})" if containers else "")


def forms_of_an_invoke(model: Model) -> list[list[tuple[Place, str]]]:
    """Return the operators in the order of the second invoke, and of the first one if it differs.

    Raises:
        TflmError: the model cannot be run here.
    """
    profiler = MicroProfiler()
    interpreter = ready_interpreter(model, profiler=profiler, delegates=[])
    forms = []
    for _ in range(2):
        profiler.clear_events()
        with np.errstate(all="ignore"):
            interpreter.invoke()
        forms.append([(event.place, event.tag) for event in profiler.events if event.place is not None])
    return forms[1:] if forms[0] == forms[1] else forms[::-1]


def timed(model: Model, invokes: Invokes) -> list[Timed]:
    """Each operator that ran, in the model's order."""
    medians = {place: statistics.median(ticks) for place, ticks in invokes.ticks.items()}
    total = sum(ticks for (subgraph, _), ticks in medians.items() if subgraph == 0) or 1.0
    rows = []
    for i, j in sorted(medians):
        operator = (model.subgraphs[i].operators or [])[j]
        work = multiply_accumulates(model, model.subgraphs[i], operator)
        ticks, runs = medians[i, j], len(invokes.ticks[i, j])
        rows.append(Timed(i, j, model.operator_name(operator), runs, ticks, ticks / total, work))
    return rows


def arena_finding(model: Model, machine: Machine, device: DeviceArena, progress: Progress) -> ArenaFinding:
    """Compare the arena with the computed one; if they differ, search for builds that explain it."""
    build = Build(machine.target, machine.kernels, count_resource_variables(model))
    measured = build.measured(model)
    equal = equals(measured, device)
    another = _another_model(model, device)
    fitting: list[Build] = []
    if not equal and not another:
        with progress("trying other builds", 500) as advance:
            fitting = builds_that_fit(model, device, build, advance)
    return ArenaFinding(build, list(_arena_rows(measured, device)), equal, fitting, another)


def _arena_rows(measured: ArenaMeasurement, device: DeviceArena) -> Iterator[ArenaRow]:
    here = figures_here(measured, device.recording)
    for part, size in device.parts.items():
        yield ArenaRow(part, size, here[part])
    for kind in RecordedAllocationType if device.records else ():
        sizes = (records.get(kind, RecordedAllocation()).used_bytes for records in (device.records, measured.records))
        row = ArenaRow(kind.value, *sizes)
        if row.device_bytes or row.here_bytes:
            yield row


def _another_model(model: Model, device: DeviceArena) -> str:
    """Return why the log cannot be of this model (it counts other tensors or operators), or an empty text."""
    tensors = sum(len(subgraph.tensors or ()) for subgraph in model.subgraphs)
    operators = sum(len(subgraph.operators or ()) for subgraph in model.subgraphs)
    counts = (
        (RecordedAllocationType.EVAL_TENSOR_DATA, tensors, "tensors"),
        (RecordedAllocationType.NODE_AND_REGISTRATION_ARRAY, operators, "operators"),
    )
    for kind, count, what in counts:
        if kind in device.records and device.records[kind].count != count:
            return f"the device's model has {device.records[kind].count} {what}, this one has {count}"
    return ""
