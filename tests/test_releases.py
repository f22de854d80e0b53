"""Releases of TFLM: their names, what declarations say of them, and TFLM's own history, built and run."""

from __future__ import annotations

import functools
import json
import os
import re
import warnings
from collections.abc import Iterator
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tflm
from tflm import releases
from tflm.kernels import REGISTRATIONS, registration
from tflm.libraries.kernel_library import message
from tflm.memory import lifetimes, simple_memory_allocator, tensor
from tflm.releases import TODAY, WHEEL, Commit, Release, distributions, history
from tflm.releases.release import LATER, position
from tflm.runtime import allocator_structures
from tflm.schema import BuiltinOperator, IfOptions, LeakyReluOptions, ModelBuilder, SubOptions, TensorType, quantized
from tflm.targets import CORTEX_M, INT8, INT32, POINTER, Either, Since, Struct, Until, When

PACKAGE = Path(tflm.__file__).parent
WHOLE = os.environ.get("TFLM_HISTORY") == "whole"
"""Whether every line of the recorded history is compared: `make history`. Otherwise a sample is."""

FIRST, BEFORE, AFTER = "a37043ff7", "225459ce1", "1ca285989"
"""Three commits in their order; the last two follow each other."""


# --- The timeline and names --------------------------------------------------------------------------------------


def test_the_history_is_in_order() -> None:
    dates = [commit.date for commit in history()]
    assert dates == sorted(dates)
    assert len({commit.hash for commit in history()}) == len(history())
    assert all(re.fullmatch("[0-9a-f]{9}", commit.hash) for commit in history())
    assert (TODAY.commit, TODAY.date) == history()[-1]


def test_every_commit_that_a_declaration_names_is_in_the_history() -> None:
    named = {
        (path.name, commit)
        for path in PACKAGE.rglob("*.py")
        if path.name not in ("blobs.py",)
        for commit in re.findall('"([0-9a-f]{9})"', path.read_text("utf-8"))
    }
    known = {commit.hash for commit in history()}
    assert len(named) > 50
    assert {(file, commit) for file, commit in named if commit not in known} == set()


def test_what_a_distribution_contains_is_in_the_history() -> None:
    for versions in distributions().values():
        for version in versions:
            assert position(version.commit) >= 0, version
            assert version.date == "" or date.fromisoformat(version.date), version
            assert version.kernels == "" or version.kernels in tflm.libraries.MODULES, version
    rows = [line.split("\t") for line in (PACKAGE / "releases/distributions.txt").read_text().splitlines()]
    words = {True: "yes", False: "no", None: "?"}
    found = [version for versions in distributions().values() for version in versions]
    assert [
        [each.name, each.version, each.date or "-", each.commit, words[each.static_memory], each.kernels or "?"]
        for each in found
    ] == rows


@pytest.mark.parametrize(
    ("name", "commit", "static_memory"),
    [
        ("b6cbaea68", "b6cbaea68", True),
        ("b6cbae", "b6cbaea68", True),
        ("90b983c2b3f1480642e040bbd2ddb37b998f3424", "90b983c2b", True),
        ("2021-08-11", "74f357c53", True),
        ("2021-09", "69722ade7", True),
        ("esp-tflite-micro 1.3.3", "10ebaab9f", True),
        ("esp-tflite-micro v1.3.3~1", "10ebaab9f", True),
        ("esphome 2025.5", "10ebaab9f", True),
        ("ESPHome 2026.3", "10ebaab9f", True),
        ("zephyr 3.7", "71fba59b5", False),
        ("zephyr 4.2", "ef6459127", False),
        ("chirale 2.0.0", "e6ae16fa4", False),
        ("pico-tflmicro", "87d5152c9", True),
        ("wheel", "wheel", True),
    ],
)
def test_a_name_is_a_release(name: str, commit: str, static_memory: bool) -> None:
    found = releases.by_name(name)
    assert found.commit == commit
    assert found.static_memory is static_memory


@pytest.mark.parametrize("static_memory", [False, True])
def test_the_name_of_a_release_is_one(static_memory: bool) -> None:
    names = ["wheel", FIRST, AFTER, *(f"{each} {of[0].version}" for each, of in distributions().items())]
    named = [releases.by_name(name, static_memory=static_memory) for name in names]
    assert [releases.by_name(each.name) for each in named] == named


def test_static_memory_is_asked_for_where_nothing_else_decides() -> None:
    assert not releases.by_name("b6cbaea68", static_memory=False).static_memory
    assert releases.by_name("esphome 2025.5", static_memory=False).static_memory
    assert not releases.by_name("edge-impulse 29ca890", static_memory=False).static_memory


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("b6cbaea69", "no commit"),
        ("2021-01", "history begins on 2021-04-08"),
        ("esp-tflite-micro 9.9", "use one of"),
        ("zephyr 1.0", "use one of 2.7"),
        ("b6cbaea68 2", "unknown release"),
        ("arduino-nano", "esp-tflite-micro, "),
        ("", "unknown release"),
        ("2025-13", "unknown release '2025-13'"),
        ("2025-02-30", "unknown release"),
    ],
)
def test_another_name_is_refused(name: str, said: str) -> None:
    with pytest.raises(tflm.ArgumentError, match=re.escape(said)):
        releases.by_name(name)


@pytest.mark.parametrize(("digits", "found"), [("abcdef", "2 commits"), ("fedcba", "no commit"), ("abcdef0", "")])
def test_a_commit_is_named_by_digits_that_no_other_has(
    digits: str, found: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    commits = [Commit(hash, "2026-01-01") for hash in ("abcdef001", "abcdef123")]
    monkeypatch.setattr(releases, "history", lambda: commits)
    named = releases._commit.__wrapped__
    if not found:
        assert named(digits) == commits[0]
    else:
        with pytest.raises(tflm.ArgumentError, match=f"^{found} of TFLM's main branch"):
            named(digits)


def test_only_names_and_releases_are_taken() -> None:
    with pytest.raises(tflm.ArgumentError, match="is not a release"):
        tflm.measure_arena(one_leaky_relu(), tflm.AllOpsResolver(), release=2023)  # type: ignore[arg-type]


# --- What declarations say ---------------------------------------------------------------------------------------


def test_a_field_is_there_from_a_commit_on_or_until_one() -> None:
    struct = Struct("s", old=Until(AFTER, INT8), new=Since(AFTER, POINTER), always=INT32)
    before, after = (releases.by_name(commit) for commit in (BEFORE, AFTER))
    assert struct.size(CORTEX_M, before) == Struct("s", old=INT8, always=INT32).size(CORTEX_M) == 8
    assert struct.size(CORTEX_M, after) == struct.size(CORTEX_M) == 8
    assert struct.alignment(CORTEX_M, before) == 4
    assert Struct("s", a=INT8, b=Since(AFTER, INT32)).size(CORTEX_M, before) == 1


def test_an_option_is_a_release_s() -> None:
    struct = Struct("s", always=INT32, option=When("static_memory", INT32))
    either = Either("static_memory", Struct("e", a=INT32), Struct("e", a=INT32, b=POINTER))
    plain, full = (releases.by_name(FIRST, static_memory=static) for static in (True, False))
    assert (struct.size(CORTEX_M, plain), struct.size(CORTEX_M, full)) == (8, 4)
    assert (either.size(CORTEX_M, plain), either.size(CORTEX_M, full)) == (4, 8)


def test_what_is_later_than_the_history_is_of_the_wheel_alone() -> None:
    assert not TODAY.holds(LATER[-1])
    assert not releases.by_name("90b983c2b").holds(LATER[-1])
    assert WHEEL.holds(LATER[-1])
    assert TODAY.answers_hold(LATER[-1])


def test_results_are_those_of_a_commit_from_that_commit_on() -> None:
    before, own, after = (commit.hash for commit in history()[-4:-1])
    release = replace(TODAY, commit=before, answers=own)
    assert [release.answers_hold(each) for each in ("", before, own, after)] == [True, True, True, False]
    assert [release.holds(each) for each in ("", before, own, after)] == [True, True, False, False]


def test_today_is_what_its_commit_is() -> None:
    """Results are the exception: they follow the wheel."""
    model, resolver = one_leaky_relu(), tflm.AllOpsResolver()
    today = tflm.measure_arena(model, resolver, target=CORTEX_M)
    named = tflm.measure_arena(model, resolver, target=CORTEX_M, release="90b983c2b")
    assert (today.arena_used_bytes, today.minimum_arena_bytes) == (named.arena_used_bytes, named.minimum_arena_bytes)


def test_an_operator_is_refused_before_it_came() -> None:
    graph = (builder := ModelBuilder()).subgraph()
    x = graph.input("x", [1, 4], TensorType.FLOAT32)
    y = graph.tensor("y", [1, 4], TensorType.FLOAT32)
    graph.operator(BuiltinOperator.LOG_SOFTMAX, [x], [y])
    graph.output(y)
    model = tflm.Model(builder.build())
    with pytest.raises(tflm.UnresolvedOperator, match="Didn't find op for builtin opcode 'LOG_SOFTMAX' version '1'"):
        tflm.measure_arena(model, tflm.AllOpsResolver(), release="2022-10-11")
    tflm.measure_arena(model, tflm.AllOpsResolver(), release="2022-10-12")


@pytest.mark.parametrize(
    ("commit", "operator", "said"),
    [
        (FIRST, "VAR_HANDLE", "Op builtin_code out of range: 142. Are you using old TFLite binary with newer model?"),
        (
            FIRST,
            BuiltinOperator(140).name,  # the last one of its schema
            f"Didn't find op for builtin opcode '{BuiltinOperator(140).name}' version '1'. An older version of this "
            "builtin might be supported. Are you using an old TFLite binary with a newer model?",
        ),
        ("2b7a4ad62", "BATCH_MATMUL", "Didn't find op for builtin opcode 'BATCH_MATMUL'"),
        ("2b7a4ad62", "TFLM_DECODE", "Failed to get registration from op code CUSTOM"),
    ],
)
def test_a_release_says_it_in_its_own_words(commit: str, operator: str, said: str) -> None:
    assert message(releases.by_name(commit), operator, 1) == said


def one_leaky_relu(input_scale: float = 0.1, output_scale: float = 0.2, alpha: float = 0.3) -> tflm.Model:
    """A LEAKY_RELU of int16."""
    graph = (builder := ModelBuilder()).subgraph()
    x = graph.input("x", [1, 4], TensorType.INT16, quantization=quantized(input_scale, 0))
    y = graph.tensor("y", [1, 4], TensorType.INT16, quantization=quantized(output_scale, 0))
    graph.operator(BuiltinOperator.LEAKY_RELU, [x], [y], LeakyReluOptions(alpha=alpha))
    graph.output(y)
    return tflm.Model(builder.build())


def one_sub(scale: float, output_scale: float) -> tflm.Model:
    """A SUB of int16, whose second input has a third of the scale of the first."""
    graph = (builder := ModelBuilder()).subgraph()
    x, z = (graph.input("x", [1, 4], TensorType.INT16, quantization=quantized(s, 0)) for s in (scale, scale / 3))
    y = graph.tensor("y", [1, 4], TensorType.INT16, quantization=quantized(output_scale, 0))
    graph.operator(BuiltinOperator.SUB, [x, z], [y], SubOptions())
    graph.output(y)
    return tflm.Model(builder.build())


def prepared(model: tflm.Model, release: str | Release | None) -> Any:
    """The op data of the only operator."""
    interpreter = tflm.MicroInterpreter(model, tflm.AllOpsResolver(), bytearray(1 << 16), release=release, delegates=())
    interpreter.allocate_tensors()
    (planned,) = interpreter.execution_plan()
    return planned.node.op_data


@pytest.mark.parametrize(
    ("release", "number"),
    [
        (None, np.float64),
        ("wheel", np.float64),
        ("90b983c2b", np.float32),
        ("3bede6679", np.float64),
        ("2021-05", np.float32),
    ],
)
def test_scales_are_divided_in_the_release_s_precision(release: str | None, number: type[np.floating[Any]]) -> None:
    """The reference computes a multiplier from the ratio; 1 / 3 is a different number in float32."""
    from tflm.kernels.arithmetic.fixed_point import QuantizedMultiplier

    one, three = number(np.float32(0.1)), number(np.float32(0.3))
    assert prepared(one_leaky_relu(0.1, 0.3), release).identity == QuantizedMultiplier.of(float(one / three))
    significand = QuantizedMultiplier.of(float(number(np.float32(0.1 / 3)) / (2 * number(np.float32(0.1)))))
    assert prepared(one_sub(0.1, 0.3), release).addend2.multiplier == significand


# --- TFLM's history ----------------------------------------------------------------------------------------------

OPEN = frozenset({"BATCH_MATMUL__06", "EMBEDDING_LOOKUP__00", "SOFTMAX__03"})
"""Without static memory TFLM gets through in 16 bytes less than what is asked for here: it reads a temp tensor that
lies under a buffer of the tail, and what it finds there does no harm by chance."""


def recorded(corpus: Path, file: str, stride: int) -> Iterator[dict[str, Any]]:
    """Lines of a file of the history; every `stride`th, or all of them for `make history`."""
    path = corpus / "golden" / "history" / file
    if not path.is_file():
        pytest.skip(f"no {path}")
    for i, line in enumerate(path.read_text().splitlines()):
        if WHOLE or i % stride == 0:
            yield json.loads(line)


@functools.cache
def recorded_model(corpus: Path, name: str) -> tflm.Model:
    """A model of the corpus, or a single operator of it."""
    return tflm.Model.from_file(next(p for f in ("ops", "models") if (p := corpus / f / f"{name}.tflite").exists()))


def figures(model: tflm.Model, release: Release) -> dict[str, int] | str:
    """Return the recorded history of a model: four figures, or the reason for its rejection."""
    try:
        found = tflm.measure_arena(model, tflm.AllOpsResolver(), target=CORTEX_M, release=release)
    except tflm.TflmError as error:
        return str(error)
    return {
        "arena_used_bytes": found.arena_used_bytes,
        "head": found.head_bytes,
        "tail": found.tail_bytes,
        "minimum_arena_bytes": found.minimum_arena_bytes,
    }


@pytest.mark.parametrize(
    ("file", "static_memory", "stride"),
    [
        ("arena_history.jsonl", True, 53),
        ("arena_history_full.jsonl", False, 53),
        ("arena_history_signal.jsonl", True, 1),
    ],
)
def test_arenas_of_every_release_are_reproduced(corpus: Path, file: str, static_memory: bool, stride: int) -> None:
    """Used bytes, head, tail and smallest arena, or the refusal in TFLM's words where an operator is not there."""
    compared, differences = 0, []
    for line in recorded(corpus, file, stride):
        refused, commit = line.get("refused", ""), line.get("first") or line["commit"]
        is_open = not static_memory and line["model"] in OPEN
        if is_open or refused.startswith("emulator"):  # a measurement that did not end
            continue
        release = releases.by_name(commit, static_memory=static_memory)
        found = figures(recorded_model(corpus, line["model"]), release)
        said = re.search("Didn't find op.*|Op builtin_code.*|Only 1 subgraph.*|Failed to get registration.*", refused)
        if said is not None:
            same = isinstance(found, str) and said[0].strip() in found
        elif refused:
            same = isinstance(found, str)
        else:
            same = not isinstance(found, str) and found.items() <= line.items()
        compared += 1
        if not same:
            differences.append((commit, line["model"], refused or line, found))
    assert compared
    assert not differences, f"{len(differences)} of {compared} differ: {differences[:5]}"


@pytest.mark.parametrize("release", ["2022-03-01", None])
@pytest.mark.parametrize(("outer", "inner"), [(1000, 10), (10, 1000)])
def test_the_head_is_that_of_the_largest_subgraph(release: str | None, outer: int, inner: int) -> None:
    """Up to 8c41f9606 each subgraph had a plan of its own, in the same bytes."""
    builder = ModelBuilder()
    main, branch = builder.subgraph(), builder.subgraph("branch")
    condition = main.input("condition", (1,), TensorType.BOOL)
    for graph, size in ((main, outer), (branch, inner)):
        x, y = graph.input("x", (1, size), TensorType.FLOAT32), graph.tensor("y", (1, size), TensorType.FLOAT32)
        graph.operator(BuiltinOperator.ABS, [x], [y])
        graph.output(y)
    small, z = main.input("small", (1, inner), TensorType.FLOAT32), main.tensor("z", (1, inner), TensorType.FLOAT32)
    options = IfOptions(then_subgraph_index=1, else_subgraph_index=1)
    main.operator(BuiltinOperator.IF, [condition, small], [z], options)
    main.output(z)
    model = tflm.Model(builder.build())
    head = tflm.measure_arena(model, tflm.AllOpsResolver(), release=release).head_bytes
    assert head >= 2 * 4 * 1000


def requests_of(model: tflm.Model, release: Release) -> str:
    """The requests of the tail and of temp memory, as the history writes them."""
    from tflm.libraries import library_for
    from tflm.runtime.micro_allocator import PLANNER_WORKING_SPACE
    from tflm.runtime.micro_graph import MicroGraph
    from tflm.runtime.micro_interpreter import lay_out
    from tflm.runtime.recording_micro_allocator import LoggingMicroAllocator

    library = library_for("reference", CORTEX_M, release)
    allocator = LoggingMicroAllocator(bytearray(1 << 21), "greedy", CORTEX_M, kernels=library)
    lay_out(MicroGraph(model, tflm.AllOpsResolver(), (), library), allocator)
    left_out = ("head",), (PLANNER_WORKING_SPACE, "room for the plan")
    kinds = {"tail": "P", "temp": "T"}
    return " ".join(
        f"{kinds[a.section]}{a.size}/{a.alignment}"
        for a in allocator.log
        if a.section not in left_out[0] and a.what not in left_out[1]
    )


def test_requests_of_every_release_are_reproduced_in_order(corpus: Path) -> None:
    differences, compared = [], 0
    for line in recorded(corpus, "requests_history.jsonl", 7):
        for commit, requests in line["from"]:
            wanted = " ".join(word for word in requests.split() if word[0] in "PT")
            found = requests_of(recorded_model(corpus, line["model"]), releases.by_name(commit))
            compared += 1
            if found != wanted:
                differences.append((commit, line["model"]))
    assert compared
    assert differences == []


STRUCTURES = (
    allocator_structures.MICRO_ALLOCATOR,
    simple_memory_allocator.SINGLE_ARENA_BUFFER_ALLOCATOR,
    simple_memory_allocator.NON_PERSISTENT_ARENA_BUFFER_ALLOCATOR,
    lifetimes.SCRATCH_BUFFER_REQUEST,
    tensor.TFLITE_TENSOR,
    registration.TFLITE_NODE,
    registration.NODE_AND_REGISTRATION,
    *{r.builtin_data for r in REGISTRATIONS.values() if r.builtin_data is not None},
    *{r.op_data for r in REGISTRATIONS.values() if isinstance(r.op_data, Struct)},
)
"""Structures whose names the history has, and others, which it does not name so."""


@pytest.mark.parametrize(("file", "static_memory"), [("structures.jsonl", True), ("structures_full.jsonl", False)])
def test_sizes_of_structures_are_those_of_every_release(corpus: Path, file: str, static_memory: bool) -> None:
    found = set()
    for line in recorded(corpus, file, 6 if static_memory else 1):
        release = releases.by_name(line["commit"], static_memory=static_memory)
        sizes: dict[str, set[tuple[int, int]]] = {}
        for name, size in line["sizes"].items():
            sizes.setdefault(name.split("::", 1)[-1], set()).add(tuple(size))
        for struct in STRUCTURES:
            if struct.name in sizes:
                found.add(struct.name)
                size, alignment = struct.size(CORTEX_M, release), struct.alignment(CORTEX_M, release)
                assert (size, alignment) in sizes[struct.name], (line["commit"], struct.name)
                end = max(struct.end_of(field, CORTEX_M, release) for field in struct.fields)
                assert end <= size, (line["commit"], struct.name)
    assert {"MicroAllocator", "TfLiteNode", "TfLiteTensor", "OpDataConv"} <= found


@pytest.mark.parametrize(("day", "later"), [("2026-10", True), ("2027", True), ("2026", False), ("2026-08-20", False)])
def test_a_day_after_the_known_history_is_not_taken_without_a_word(day: str, later: bool) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert releases.by_name(day).commit == history()[-1].hash
    assert [each.category for each in caught] == [tflm.VersionAssumed] * later
    assert all(f"ends on {history()[-1].date}" in str(each.message) for each in caught)
