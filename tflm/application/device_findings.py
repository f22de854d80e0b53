"""Compare a device's log with the model: times by operator, arenas, and why these differ."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from tflm.application.machine import Machine
from tflm.application.progress import Progress
from tflm.firmware.arena_causes import Build, builds_that_fit, equals, figures_here
from tflm.firmware.device_log import DeviceArena, Invokes, Place
from tflm.runtime.growing_arena import ready_interpreter
from tflm.runtime.micro_measurement_report import ArenaMeasurement
from tflm.runtime.micro_profiler import MicroProfiler
from tflm.runtime.micro_resource_variable import count_resource_variables
from tflm.runtime.operator_facts import multiply_accumulates
from tflm.runtime.recorded_allocations import RecordedAllocation, RecordedAllocationType
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
