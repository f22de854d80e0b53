"""Logs of devices, with all that a serial line adds to them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from example_models import INT8_MODEL
from hypothesis import given
from hypothesis import strategies as st
from models import counter
from oracle import Oracle
from typer.testing import CliRunner

import tflm
from tflm.application.device_log import (
    ArenaFinding,
    ArenaRow,
    Timed,
    _another_model,
    _arena_report,
    _arena_rows,
    _commits_in_words,
    _containers,
    _in_words,
    forms_of_an_invoke,
    reports,
    timed,
)
from tflm.cli.app import app
from tflm.firmware.arena_causes import Build, CommitRange, CommitRangeSearch, contained_in
from tflm.firmware.device_log import DeviceArena, Event, Invokes, invokes_in, read_device_log
from tflm.libraries import by_name, library_for
from tflm.releases import TODAY, history
from tflm.runtime.allocator_structures import RecordedAllocation, RecordedAllocationType
from tflm.runtime.micro_resource_variable import count_resource_variables
from tflm.schema import BuiltinOperator, Conv2DOptions, TensorType


def wide_convolution() -> bytes:
    """Return a convolution whose scratch buffer depends on the version of ESP-NN."""
    builder = tflm.ModelBuilder()
    main = builder.subgraph()
    x = main.input("x", (1, 8, 8, 16), TensorType.INT8, tflm.quantized(0.5))
    f = main.constant("f", np.ones((16, 5, 3, 16), np.int8), tflm.quantized(0.5))
    y = main.tensor("y", (1, 8, 8, 16), TensorType.INT8, tflm.quantized(0.5))
    main.operator(BuiltinOperator.CONV_2D, [x, f], [y], Conv2DOptions(stride_w=1, stride_h=1))
    main.output(y)
    return builder.build()


def lone_relu() -> bytes:
    """Return an operator for which no library has its own kernel."""
    builder = tflm.ModelBuilder()
    main = builder.subgraph()
    x = main.input("x", (8,), TensorType.INT8, tflm.quantized(0.5))
    y = main.tensor("y", (8,), TensorType.INT8, tflm.quantized(0.5))
    main.operator(BuiltinOperator.RELU, [x], [y])
    main.output(y)
    return builder.build()


MODEL = tflm.Model.from_file(INT8_MODEL)
TAG = "FULLY_CONNECTED"
CALLED_ONCE = counter(TensorType.INT8, 4, with_init=True)

PREFIXES = ("", "[00:00:01.250,000] <inf> tflm: ", "I (312) main: ", "12:03:11.004 -> ", "\x1b[0;32m", "> 17 ")
NOISE = ("", "I (99) wifi: 3,connected,ok", "temperature 21, humidity 40", "1,2,3", "took 12 ms", "ready: 0,a,b")

PRINTED: dict[str, Callable[[list[Event]], list[str]]] = {
    "Log": lambda events: [f"{tag} took {ticks} ticks ({ticks // 1000} ms)." for tag, ticks in events],
    "LogCsv": lambda events: [
        '"Event","Tag","Ticks"',
        *(f"{i},{tag},{ticks}" for i, (tag, ticks) in enumerate(events)),
    ],
}
"""How TFLM's profiler prints events."""


def recorded(build: Build, model: tflm.Model) -> list[str]:
    """Return the output of the recording allocator in a firmware."""
    measured = build.measured(model)
    tail = measured.recording_tail_bytes
    sizes = {"total": measured.head_bytes + tail, "head": measured.head_bytes, "tail": tail}
    lines = [f"[RecordingMicroAllocator] Arena allocation {part} {size} bytes" for part, size in sizes.items()]
    return lines + [
        f"[RecordingMicroAllocator] '{kind.value}' used {record.used_bytes} bytes with alignment overhead "
        f"(requested {record.requested_bytes} bytes for {record.count} allocations)"
        for kind, record in measured.records.items()
        if record.used_bytes
    ]


def read(tmp_path: Path, lines: list[str], model: bytes, *options: str) -> Any:
    """Return the command's report on a log and a model."""
    (tmp_path / "log.txt").write_text("\r\n".join(lines))
    (tmp_path / "m.tflite").write_bytes(model)
    arguments = ["device-log", str(tmp_path / "log.txt"), str(tmp_path / "m.tflite"), *options]
    shown, told = (CliRunner().invoke(app, [*arguments, *more]) for more in ([], ["--json"]))
    assert shown.exit_code == told.exit_code == 0, shown.output
    return {**json.loads(told.stdout), "shown": shown.stdout}


@given(st.data(), st.sampled_from(sorted(PRINTED)))
def test_events_are_found_among_whatever_else_is_printed(data: st.DataObject, form: str) -> None:
    draw = data.draw
    events = draw(st.lists(st.builds(Event, st.sampled_from([TAG, "ethos-u", "CONV_2D"]), st.integers(0, 2**32 - 1))))
    lines = []
    for line in PRINTED[form](events):
        lines += draw(st.lists(st.sampled_from(NOISE), max_size=2))
        lines.append(draw(st.sampled_from(PREFIXES)) + line + draw(st.sampled_from(["", "\r", "\x1b[0m\r"])))
    assert read_device_log(lines, 0).events == events


@given(st.lists(st.sampled_from("abc"), min_size=1), st.integers(0, 3), st.integers(0, 50))
def test_whole_invokes_are_counted_and_what_is_cut_off_is_left(tags: list[str], count: int, cut: int) -> None:
    form = [((0, i), tag) for i, tag in enumerate(tags)]
    events = [Event(tag, i) for i, tag in enumerate(tags)]
    whole = invokes_in(events * count + events[: cut % len(events)], [form])
    assert whole.count == count
    assert whole.ticks == ({(0, i): [i] * count for i in range(len(tags))} if count else {})
    assert whole.others == events[: cut % len(events)]


@pytest.mark.parametrize("form", PRINTED)
def test_times_stand_beside_the_work_of_each_operator(form: str, tmp_path: Path) -> None:
    events = [Event("preprocessing", 5), *(Event(TAG, t) for t in (100, 600, 300, 120, 640, 320)), Event(TAG, 1)]
    told = read(tmp_path, PRINTED[form](events), INT8_MODEL.read_bytes(), "--mhz", "0.5")
    assert told["invokes"] == 2
    assert [(op["ticks"], op["multiply_accumulates"]) for op in told["operators"]] == [(110, 16), (620, 256), (310, 16)]
    assert told["operators"][1]["share"] == pytest.approx(620 / 1040)
    assert [event["tag"] for event in told["other_events"]] == ["preprocessing", TAG]
    assert "2.08 ms" in told["shown"]


def test_a_profile_that_is_printed_again_counts_once(tmp_path: Path) -> None:
    once = [Event(TAG, t) for t in (1, 2, 3)]
    lines = PRINTED["LogCsv"](once) + PRINTED["LogCsv"](once + [Event(TAG, t) for t in (4, 5, 6)])
    assert read(tmp_path, lines, INT8_MODEL.read_bytes())["invokes"] == 2


def test_two_runs_of_a_device_in_one_log_count_twice(tmp_path: Path) -> None:
    """A log that goes over a reset of the device has profiles of which none goes on from the one before."""
    first, second = ([Event(TAG, t) for t in times] for times in ((1, 2, 3), (7, 2, 3)))
    lines = [*PRINTED["LogCsv"](first), "rst:0x1 (POWERON)", *PRINTED["LogCsv"](second)]
    told = read(tmp_path, lines, INT8_MODEL.read_bytes())
    assert told["invokes"] == 2
    assert [(op["runs"], op["ticks"]) for op in told["operators"]] == [(2, 4), (2, 2), (2, 3)]
    shorter = PRINTED["LogCsv"](first) + PRINTED["LogCsv"](first[:2])
    assert read(tmp_path, shorter, INT8_MODEL.read_bytes())["invokes"] == 1


def test_of_several_arenas_in_a_log_the_last_one_counts(tmp_path: Path) -> None:
    builds = [Build(tflm.targets.by_name("cortex-m4"), by_name(name), 0) for name in ("cmsis-nn", "reference")]
    lines = [line for build in builds for line in recorded(build, MODEL)]
    told = read(tmp_path, lines, INT8_MODEL.read_bytes(), "--target", "cortex-m4", "--kernels", "reference")
    assert told["arena"]["equal"]
    whole, used = recorded(builds[0], MODEL), ["arena_used_bytes() = 77"]
    for of_both in ([*used, *whole], [*whole, *used]):
        assert read_device_log(of_both, 0).arena == read_device_log(whole, 0).arena


def test_sums_of_two_tables_are_those_of_the_last(tmp_path: Path) -> None:
    header = '"Unique Tag","Total ticks across all events with that tag."'
    lines = [header, f"{TAG}, 900", "ADD, 5", '"total number of ticks", 905', header, f"{TAG}, 901"]
    assert read(tmp_path, lines, INT8_MODEL.read_bytes())["tags"] == [
        {"operator": TAG, "ticks": 901, "multiply_accumulates": 288}
    ]


def test_sums_by_kind_of_operator_stand_beside_their_work(tmp_path: Path) -> None:
    header = '"Unique Tag","Total ticks across all events with that tag."'
    lines = [header, f"12:00 -> {TAG}, 900", '"total number of ticks", 900', f"{TAG}, 7"]
    told = read(tmp_path, lines, INT8_MODEL.read_bytes())
    assert told["tags"] == [{"operator": TAG, "ticks": 900, "multiply_accumulates": 288}]


def test_the_first_invoke_of_a_model_with_variables_has_another_form(tmp_path: Path) -> None:
    profiler = tflm.MicroProfiler()
    interpreter = tflm.MicroInterpreter(
        tflm.Model(CALLED_ONCE), tflm.AllOpsResolver(), bytearray(1 << 16), profiler=profiler, delegates=[]
    )
    interpreter.allocate_tensors()
    for _ in range(3):
        interpreter.invoke()
    told = read(tmp_path, PRINTED["Log"]([Event(e.tag, 7) for e in profiler.events]), CALLED_ONCE)
    assert told["invokes"] == 3
    assert told["other_events"] == []
    assert {op["subgraph_index"] for op in told["operators"]} == {0, 1}
    assert {op["runs"] for op in told["operators"] if op["subgraph_index"]} == {1}
    main = [op for op in told["operators"] if not op["subgraph_index"]]
    assert sum(op["share"] for op in main) == pytest.approx(1)
    assert f"ticks per invoke {7 * len(main)} " in " ".join(told["shown"].split())
    later, first = ({subgraph for (subgraph, _), _ in form} for form in forms_of_an_invoke(tflm.Model(CALLED_ONCE)))
    assert (later, first) == ({0}, {0, 1})


@pytest.mark.parametrize("mhz", [None, 0.5])
def test_a_report_of_times_has_the_work_of_each_operator(mhz: float | None) -> None:
    rows = [
        Timed(0, 0, "CONV_2D", 2, 1_000.0, 0.8, 50),
        Timed(0, 2, "RELU", 2, 250.0, 0.2, 0),
        Timed(1, 0, "ADD", 1, 70.0, 9.0, 0),
    ]
    others = [Event("begin", 1_000), Event("end", 234)]
    log: Any = SimpleNamespace(events=[1], ticks_by_tag={TAG: 900, "ADD": 100}, failures=[])
    times, tags = reports(MODEL, log, Invokes(2, {}, others), rows, None, mhz)
    us = [["2,000.0"], ["500.0"], ["140.0"]] if mhz else [[]] * 3
    assert [[str(value) for value in row] for row in times.tables[0].rows] == [
        ["0", "CONV_2D", "1,000", *us[0], "80.0%", "50", "20"],
        ["2", "RELU", "250", *us[1], "20.0%", "", ""],
        ["1:0", "ADD", "70", *us[2], "", "", ""],
    ]
    facts = [("invokes", "2"), ("ticks per invoke", "1,250"), ("time per invoke", "2.50 ms")]
    assert times.facts == (facts if mhz else facts[:2])
    assert times.notes == ["2 events with 1,234 ticks do not belong to a complete invoke of this model"]
    assert [[str(value) for value in row] for row in tags.tables[0].rows] == [
        [TAG, "900", "90.0%", "288"],
        ["ADD", "100", "10.0%", ""],
    ]
    (alone,) = reports(
        MODEL, SimpleNamespace(events=[1], ticks_by_tag={}, failures=[]), Invokes(0, {}, []), [], None, mhz
    )
    assert (alone.tables, alone.notes) == ([], [])


def test_times_are_medians_in_the_order_of_the_model() -> None:
    model = tflm.Model(CALLED_ONCE)
    names = [[model.operator_name(operator) for operator in each.operators] for each in model.subgraphs]
    invokes = Invokes(3, {(1, 0): [8], (0, 1): [30, 10, 20], (0, 0): [5, 5, 6, 9]}, [])
    found = timed(model, invokes)
    assert [(row.subgraph_index, row.operator_index, row.operator) for row in found] == [
        (0, 0, names[0][0]),
        (0, 1, names[0][1]),
        (1, 0, names[1][0]),
    ]
    assert [(row.runs, row.ticks, row.share) for row in found] == [
        (4, 5.5, 5.5 / 25.5),
        (3, 20, 20 / 25.5),
        (1, 8, 8 / 25.5),
    ]


# --- Arenas ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kernels", ["cmsis-nn", "cmsis-nn:size", "reference"])
def test_distributions_have_every_build_of_their_library(kernels: str) -> None:
    target = tflm.targets.by_name("cortex-m4")
    commits = CommitRange(history()[0], history()[-1])
    library = library_for(kernels, target, TODAY)
    found = _containers(Build(target, library, 0, commits))
    assert found == contained_in(commits, kernels.partition(":")[0], static_memory=True) != []
    assert _containers(Build(target, library, 0)) == []


def test_a_size_that_only_one_side_has_is_listed() -> None:
    measured = Build(tflm.targets.by_name("cortex-m4"), by_name("cmsis-nn"), 0).measured(MODEL)
    ours = {kind for kind, record in measured.records.items() if record.used_bytes}
    theirs = next(kind for kind in RecordedAllocationType if kind not in ours)
    rows = [*_arena_rows(measured, DeviceArena(records={theirs: RecordedAllocation(used_bytes=8)}))]
    assert {row.part: row.device_bytes for row in rows} == {theirs.value: 8, **{kind.value: 0 for kind in ours}}


def test_another_build_is_described_by_what_is_different() -> None:
    m4, m33 = map(tflm.targets.by_name, ("cortex-m4", "cortex-m33"))
    usual = library_for("reference", m4, TODAY)
    thought = Build(m4, usual, 1)
    first, last = history()[0], history()[-1]
    span = _commits_in_words(thought._replace(commits=CommitRange(first, last)))
    assert span.startswith(f"TFLM {first.hash} of {first.date} to {last.hash} of {last.date}")
    dynamic = SimpleNamespace(name="reference", release=SimpleNamespace(static_memory=False))
    alone = _commits_in_words(thought._replace(kernels=dynamic, commits=CommitRange(first, first)))
    assert alone.startswith(f"TFLM {first.hash} of {first.date} without static memory")
    older = library_for("reference", m4, "2021-12")
    for build, words in (
        (thought, ""),
        (thought._replace(target=m33), "the part cortex-m33, reference kernels"),
        (thought._replace(kernels=library_for("cmsis-nn", m4, TODAY)), "cmsis-nn kernels"),
        (thought._replace(resource_variables=9), "space for 9 resource variables instead of 1"),
        (thought._replace(kernels=older), older.release.name),
        (thought._replace(kernels=older, resource_variables=2, commits=CommitRange(first, last)), None),
    ):
        found = _in_words(build, thought)
        expected = (
            f"{_commits_in_words(build)}, space for 2 resource variables instead of 1" if words is None else words
        )
        assert found == expected
    rows = [ArenaRow("total", 2_000, 500), ArenaRow("head", 96, 100), ArenaRow("tail", 7, 7)]
    for finding, note in (
        (ArenaFinding(thought, rows, True, [], ""), "all equal"),
        (ArenaFinding(thought, rows, False, [], "it is"), "another model: it is"),
        (
            ArenaFinding(
                thought, rows, False, [thought._replace(target=m33), thought._replace(resource_variables=9)], ""
            ),
            "equal with the part cortex-m33, reference kernels; or space for 9 resource variables instead of 1",
        ),
    ):
        report = _arena_report(finding)
        assert report.notes == [note]
        assert report.title.endswith("cortex-m4 with reference kernels")
        assert [[str(value) for value in row] for row in report.tables[0].rows] == [
            ["total", "2,000", "500", "+1,500"],
            ["head", "96", "100", "-4"],
            ["tail", "7", "7", "0"],
        ]


def test_an_arena_as_ours_is_equal(tmp_path: Path) -> None:
    build = Build(tflm.targets.by_name("cortex-m4"), by_name("cmsis-nn"), 0)
    lines = [prefix + line for prefix, line in zip(PREFIXES * 3, recorded(build, MODEL))]
    told = read(tmp_path, lines, INT8_MODEL.read_bytes(), "--target", "cortex-m4", "--kernels", "cmsis-nn")
    assert told["arena"]["equal"]
    assert {row["part"] for row in told["arena"]["rows"]} >= {"total", "head", "tail", "Persistent buffer data"}
    assert "all equal" in told["shown"]


OTHERS = {
    "kernel library": (INT8_MODEL.read_bytes(), ("cortex-m4", "cmsis-nn", 0), "equal with cmsis-nn kernels"),
    "release": (INT8_MODEL.read_bytes(), ("cortex-m4", "arduino", 0), "chirale 2.0.0"),
    "variables": (CALLED_ONCE, ("cortex-m4", "reference", 9), "equal with space for 9 resource variables instead of 1"),
    "part": (CALLED_ONCE, ("esp32", "reference", 1), "or the part esp32s3, reference kernels"),
}
"""A model, the firmware on the device, and what is said where reference kernels on a Cortex-M4 were thought of."""


@pytest.mark.parametrize(("model", "device", "said"), OTHERS.values(), ids=OTHERS)
def test_a_build_that_explains_the_figures_is_found(
    model: bytes, device: tuple[str, str, int], said: str, tmp_path: Path
) -> None:
    build = Build(tflm.targets.by_name(device[0]), by_name(device[1]), device[2])
    told = read(tmp_path, recorded(build, tflm.Model(model)), model, "--target", "cortex-m4")
    assert not told["arena"]["equal"]
    assert said in told["shown"].replace("\n", " ")
    assert device in [
        (each["target"], each["kernels"], each["resource_variables"]) for each in told["arena"]["fitting"]
    ]


def test_releases_and_versions_that_explain_the_figures_are_found(tmp_path: Path) -> None:
    """A component of 2023 with an ESP-NN of 2026, of which nothing was thought."""
    library = library_for("esp-nn@1.2.1", tflm.targets.by_name("esp32s3"), "esp-tflite-micro 1.0.0")
    model = wide_convolution()
    lines = recorded(Build(tflm.targets.by_name("esp32s3"), library, 0), tflm.Model(model))
    told = read(tmp_path, lines, model, "--target", "esp32s3", "--kernels", "esp-nn")
    found = told["arena"]["fitting"]
    assert {"esp-nn@1.2.1", "esp-nn@1.2.2"} == {build["kernels"] for build in found}
    release = tflm.releases.by_name("esp-tflite-micro 1.0.0")
    for build in found:
        first, last = build["first_commit"], build["last_commit"]
        assert first["date"] <= release.date <= last["date"]
        assert any(name.startswith("esp-tflite-micro") for name in build["contained_in"])
        assert f"TFLM {first['hash']} of {first['date']} to {last['hash']}" in told["shown"].replace("\n", " ")


@pytest.mark.parametrize("name", ["zephyr 3.7", "2021-12"])
def test_a_release_that_explains_the_figures_is_found(name: str, tmp_path: Path) -> None:
    release = tflm.releases.by_name(name)
    library = library_for("reference", tflm.targets.CORTEX_M, release)
    lines = recorded(Build(tflm.targets.CORTEX_M, library, 0), MODEL)
    told = read(tmp_path, lines, INT8_MODEL.read_bytes())
    (found,) = told["arena"]["fitting"]
    assert found["first_commit"]["date"] <= release.date <= found["last_commit"]["date"]
    assert ("without static memory" in told["shown"].replace("\n", " ")) is not release.static_memory
    if name.startswith("zephyr"):
        assert any(each.startswith("zephyr") for each in found["contained_in"])


def test_a_release_is_looked_for_with_every_library_at_once(tmp_path: Path) -> None:
    """Even if the expected library also explains the figures, another one is found."""
    model = lone_relu()
    part = tflm.targets.by_name("cortex-m4")
    library = library_for("reference", part, "2021-12")
    used = Build(part, library, 0).measured(tflm.Model(model)).arena_used_bytes
    told = read(tmp_path, [f"arena_used_bytes {used}"], model, "--target", "cortex-m4", "--kernels", "cmsis-nn")
    names = {build["kernels"].partition("@")[0] for build in told["arena"]["fitting"] if build["first_commit"]}
    assert names == {"reference", "cmsis-nn", "cmsis-nn:size"}


@pytest.mark.parametrize("name", ["SVDF__00", "okay_nabu_v2"])
def test_a_span_of_releases_has_the_figures_of_all_its_commits(name: str, corpus: Path) -> None:
    """The expected figures are from builds of TFLM's history."""
    recorded = {}
    for line in map(json.loads, (corpus / "golden" / "history" / "arena_history.jsonl").read_text().splitlines()):
        if line["model"] == name:
            recorded[line["first"]] = line.get("arena_used_bytes")
    folder = "ops" if "__" in name else "models"
    model = tflm.Model.from_file(corpus / folder / f"{name}.tflite")
    left = dict(recorded)
    search = CommitRangeSearch(static_memory=True)
    for release in search:
        library = library_for("reference", tflm.targets.CORTEX_M, release)
        try:
            used = Build(tflm.targets.CORTEX_M, library, count_resource_variables(model)).measured(model)
        except tflm.TflmError:
            used = None
        for first in [first for first in left if search.commits.contains(first)]:
            assert left.pop(first) == (None if used is None else used.arena_used_bytes), first
    assert not left


def test_figures_that_nothing_explains_are_said_to_be_so(tmp_path: Path) -> None:
    told = read(tmp_path, ["arena_used_bytes() = 12345"], INT8_MODEL.read_bytes())
    assert told["arena"]["fitting"] == []
    assert "check that the file is the same" in told["shown"]


def test_a_log_of_another_model_is_told_by_its_counts(tmp_path: Path) -> None:
    build = Build(tflm.targets.CORTEX_M, by_name("reference"), 0)
    other = counter(TensorType.INT8, 4, with_init=True)
    for model in (MODEL, tflm.Model(other)):  # the operators and tensors of all subgraphs count
        own = build._replace(resource_variables=count_resource_variables(model))
        assert _another_model(model, DeviceArena(records=own.measured(model).records)) == ""
    told = read(tmp_path, recorded(build, MODEL), other)
    assert told["arena"]["another_model"].startswith(
        f"the device's model has {len(MODEL.subgraphs[0].tensors)} tensors"
    )


@pytest.mark.parametrize(
    ("line", "advice"),
    [
        ("Failed to allocate resource variable. Maximum resource variable count (2) reached.", "the model has 0"),
        ("Failed to resize buffer. Requested: 800, available 512, missing: 288", "too small by at least 288 bytes"),
        ("Failed to allocate tail memory. Requested: 64, available 12, missing: 52", "too small by at least 52 bytes"),
        ("Didn't find op for builtin opcode 'SOFTMAX'", "the resolver lacks SOFTMAX"),
    ],
)
def test_what_failed_is_explained(line: str, advice: str, tmp_path: Path) -> None:
    told = read(tmp_path, [f"E (12) tflm: {line}"], INT8_MODEL.read_bytes())
    ((failure),) = told["failures"]
    assert failure["line"] == line
    assert advice in failure["advice"]


def test_all_that_is_in_a_log_is_shown(tmp_path: Path) -> None:
    build = Build(tflm.targets.by_name("cortex-m4"), by_name("cmsis-nn"), 0)
    failures = [
        "Failed to resize buffer. Requested: 8, available 5, missing: 3",
        "Didn't find op for builtin opcode 'ABS'",
    ]
    header = '"Unique Tag","Total ticks across all events with that tag."'
    lines = [*PRINTED["Log"]([Event(TAG, 7)] * 3), header, f"{TAG}, 900", *recorded(build, MODEL), *failures]
    shown = read(tmp_path, lines, INT8_MODEL.read_bytes(), "--target", "cortex-m4", "--kernels", "cmsis-nn")["shown"]
    parts = ["invokes 1 ", "ticks by kind of operator", "all equal", *(line.split(".")[0] for line in failures)]
    places = [" ".join(shown.split()).find(part) for part in parts]
    assert -1 not in places, shown
    assert places == sorted(places)


def test_a_log_without_anything_of_tflm_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "log.txt").write_text("hello\n")
    answer = CliRunner().invoke(app, ["device-log", str(tmp_path / "log.txt"), str(INT8_MODEL)])
    assert answer.exit_code == 1
    assert "call MicroProfiler's LogCsv()" in answer.stderr


@pytest.mark.parametrize(
    ("target", "said"), [("host-wheel", "all equal"), ("host", "equal with TFLM of the tflite-micro")]
)
def test_what_tflm_itself_prints_is_read(oracle: Oracle, target: str, said: str, tmp_path: Path) -> None:
    printed = oracle.allocations(INT8_MODEL.read_bytes())
    told = read(tmp_path, printed.splitlines(), INT8_MODEL.read_bytes(), "--target", target)
    assert told["arena"]["rows"][0]["part"] == "total"
    assert said in told["shown"]


@pytest.mark.parametrize(
    ("chip", "target", "kernels"), [("ESP32", "esp32", "esp-nn"), ("nRF52840", "cortex-m4", "arduino")]
)
def test_figures_of_boards_are_ours(chip: str, target: str, kernels: str, corpus: Path, tmp_path: Path) -> None:
    """The output of boards is in `silicon.jsonl`."""
    recorded = map(json.loads, (corpus / "golden" / "silicon.jsonl").read_text().splitlines())
    lines = [line for line in recorded if line["chip"] == chip and line["kernels"] != "reference"]
    assert lines
    for line in lines:
        model = (corpus / "models" / f"{line['model']}.tflite").read_bytes()
        printed = [f"arena_used_bytes: {line['arena_used_bytes']}"]
        assert read(tmp_path, printed, model, "--target", target, "--kernels", kernels)["arena"]["equal"]
