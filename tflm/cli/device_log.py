"""`tflm device-log`: what a device printed, beside what is known of its model here."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

import tflm
from tflm.cli.command_line import (
    AsJson,
    BoardName,
    CommandError,
    KernelsName,
    ReleaseName,
    TargetName,
    lines_of_log,
    load_model,
    machine_from,
    print_json,
    print_line,
    show,
)
from tflm.cli.device_findings import ArenaFinding, Timed, arena_finding, forms_of_an_invoke, timed
from tflm.firmware.arena_causes import Build
from tflm.firmware.device_log import DeviceLog, Invokes, invokes_in, read_device_log
from tflm.firmware.release_search import contained_in
from tflm.report import Column, Report, Table
from tflm.runtime.micro_resource_variable import count_resource_variables
from tflm.runtime.operator_facts import multiply_accumulates


def device_log(
    log: Annotated[Path, typer.Argument(metavar="LOG", help="What the device printed; - for standard input.")],
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="The .tflite file that runs on it.")],
    target: TargetName = None,
    kernels: KernelsName = None,
    release: ReleaseName = None,
    board: BoardName = None,
    mhz: Annotated[
        float | None, typer.Option(min=0.001, metavar="MHZ", help="Ticks a microsecond, to show times.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Read a device's log: times of operators, and its arena.

    Times stand beside the work of the operators, the arena beside the one that is computed here, and why they differ.

    The log has what TFLM's MicroProfiler prints (Log, LogCsv or LogTicksPerTagCsv), what RecordingMicroInterpreter's
    PrintAllocations does, or a line with arena_used_bytes and a number; and anything else.

    \b
    Examples:
      tflm device-log serial.txt model.tflite --board nano33ble
      tflm device-log serial.txt model.tflite --target cortex-m4 --kernels cmsis-nn --mhz 64
    """
    machine = machine_from(target, kernels, board, release=release)
    loaded = load_model(model)
    read = read_device_log(lines_of_log(log), count_resource_variables(loaded))
    if not (read.events or read.ticks_by_tag or read.arena or read.failures):
        raise CommandError(
            f"{log}: nothing that TFLM prints: call MicroProfiler's LogCsv() after Invoke(), or the PrintAllocations() "
            "of a RecordingMicroInterpreter's allocator after AllocateTensors()"
        )
    invokes = invokes_in(read.events, forms_of_an_invoke(loaded)) if read.events else Invokes()
    rows = timed(loaded, invokes)
    arena = None if read.arena is None else arena_finding(loaded, machine, read.arena)
    if as_json:
        print_json(_figures(model, loaded, read, invokes, rows, arena))
        return
    for i, report in enumerate(_reports(loaded, read, invokes, rows, arena, mhz)):
        if i:
            print_line()
        show(report)


def _figures(
    path: Path, model: tflm.Model, log: DeviceLog, invokes: Invokes, rows: list[Timed], arena: ArenaFinding | None
) -> dict[str, Any]:
    return {
        "model": str(path),
        "invokes": invokes.count,
        "operators": [row._asdict() for row in rows],
        "other_events": [event._asdict() for event in invokes.others],
        "tags": [
            {"operator": tag, "ticks": ticks, "multiply_accumulates": work} for tag, ticks, work in _tags(model, log)
        ],
        "arena": None if arena is None else _arena_figures(arena),
        "failures": [failure._asdict() for failure in log.failures],
    }


def _arena_figures(arena: ArenaFinding) -> dict[str, Any]:
    return {
        **_build_figures(arena.build),
        "rows": [row._asdict() for row in arena.rows],
        "equal": arena.equal,
        "fitting": [{**_build_figures(build), **_span_figures(build)} for build in arena.fitting],
        "another_model": arena.another_model,
    }


def _build_figures(build: Build) -> dict[str, Any]:
    return {
        "target": build.target.name,
        "kernels": build.kernels.name,
        "release": build.kernels.release.name,
        "resource_variables": build.resource_variables,
    }


def _span_figures(build: Build) -> dict[str, Any]:
    return {
        "first_commit": None if build.span is None else build.span.first._asdict(),
        "last_commit": None if build.span is None else build.span.last._asdict(),
        "contained_in": _containers(build),
    }


def _containers(build: Build) -> list[str]:
    if build.span is None:
        return []
    library = build.kernels.name.partition("@")[0].partition(":")[0]
    return contained_in(build.span, library, build.kernels.release.static_memory)


def _tags(model: tflm.Model, log: DeviceLog) -> Iterator[tuple[str, int, int]]:
    """Sums over each kind of operator, with its multiply-accumulates in an invoke of the first subgraph."""
    main = model.subgraphs[0]
    for tag, ticks in log.ticks_by_tag.items():
        named = (operator for operator in main.operators or () if model.operator_name(operator) == tag)
        yield tag, ticks, sum(multiply_accumulates(model, main, operator) for operator in named)


def _reports(
    model: tflm.Model,
    log: DeviceLog,
    invokes: Invokes,
    rows: list[Timed],
    arena: ArenaFinding | None,
    mhz: float | None,
) -> Iterator[Report]:
    if log.events:
        yield _time_report(invokes, rows, mhz)
    if log.ticks_by_tag:
        columns = {"operators": Column.NAME, "ticks": Column.NUMBER, "share": Column.NUMBER, "MACs": Column.NUMBER}
        total = sum(log.ticks_by_tag.values()) or 1
        cells = ((tag, ticks, f"{ticks / total:.1%}", work or "") for tag, ticks, work in _tags(model, log))
        yield Report("ticks by kind of operator", [], [Table("", columns, cells)])
    if arena is not None:
        yield _arena_report(arena)
    for failure in log.failures:
        yield Report(failure.line, [], [], [failure.advice])


def _time_report(invokes: Invokes, rows: list[Timed], mhz: float | None) -> Report:
    columns = {
        "#": Column.NUMBER,
        "operator": Column.NAME,
        "ticks": Column.NUMBER,
        **({"us": Column.NUMBER} if mhz else {}),
        "share": Column.NUMBER,
        "MACs": Column.NUMBER,
        "ticks/MAC": Column.NUMBER,
    }
    cells = (
        (
            f"{row.subgraph_index}:{row.operator_index}" if row.subgraph_index else str(row.operator_index),
            row.operator,
            f"{row.ticks:,.0f}",
            *([f"{row.ticks / mhz:,.1f}"] if mhz else []),
            f"{row.share:.1%}" if row.subgraph_index == 0 else "",
            row.multiply_accumulates or "",
            f"{row.ticks / row.multiply_accumulates:.3g}" if row.multiply_accumulates else "",
        )
        for row in rows
    )
    total = sum(row.ticks for row in rows if row.subgraph_index == 0)
    facts = [("invokes", str(invokes.count)), ("ticks of an invoke", f"{total:,.0f}")]
    if mhz:
        facts.append(("time of an invoke", f"{total / mhz / 1e3:,.2f} ms"))
    notes = []
    if invokes.others:
        ticks = sum(event.ticks for event in invokes.others)
        notes.append(f"{len(invokes.others)} events with {ticks:,} ticks belong to no whole invoke of this model")
    return Report("times on the device, medians", facts, [Table("", columns, cells)] if rows else [], notes)


def _arena_report(arena: ArenaFinding) -> Report:
    columns = {
        "bytes": Column.TEXT,
        "device": Column.NUMBER,
        "here": Column.NUMBER,
        "difference": Column.NUMBER,
    }
    cells = (
        (row.part, row.device_bytes, row.here_bytes, _signed(row.device_bytes - row.here_bytes)) for row in arena.rows
    )
    title = f"arena on the device, beside {arena.build.target.name} with {arena.build.kernels.name} kernels"
    return Report(title, [], [Table("", columns, cells)], list(_arena_notes(arena)))


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
            "no kernel library, release of TFLM, part or number of resource variables that is known gives these "
            "figures: is it the same file, with TFLM's own planner, in one arena?"
        )


def _in_words(build: Build, thought: Build) -> str:
    """What of a build is another than was thought."""
    words = []
    if build.target != thought.target:
        words.append(f"the part {build.target.name}")
    if build.kernels.name != thought.kernels.name or build.target != thought.target:
        words.append(f"{build.kernels.name} kernels")
    if build.span is not None:
        words.append(_span_in_words(build))
    elif build.kernels.release is not thought.kernels.release:
        words.append(build.kernels.release.name)
    if build.resource_variables != thought.resource_variables:
        words.append(f"room for {build.resource_variables} resource variables, not {thought.resource_variables}")
    return ", ".join(words)


def _span_in_words(build: Build) -> str:
    assert build.span is not None
    first, last = build.span
    words = f"TFLM {first.hash} of {first.date}"
    if first != last:
        words += f" to {last.hash} of {last.date}"
    if not build.kernels.release.static_memory:
        words += " without static memory"
    containers = _containers(build)
    return words + (f" (as in {', '.join(containers)})" if containers else "")
