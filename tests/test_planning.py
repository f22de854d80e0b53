"""Plans that are written into models: smaller heads, the same answers, here and in TFLM."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import models
import numpy as np
import pytest
from differential import assert_close, printed_figures, run
from hypothesis import given, reject, settings
from hypothesis import strategies as st
from image_graphs import shrinking_network
from oracle import Oracle, OracleError
from sampling import examples
from test_arena import corpus_models
from test_real_models import recorded

import tflm
from tflm.memory import Buffer, GreedyMemoryPlanner, OptimalPlanner, SearchProgress
from tflm.memory.plan_search import search_plan
from tflm.planning.bars import BodyPlacement
from tflm.planning.head_plan import Head, _body, _scratch_body
from tflm.planning.operator_order import _Graph, smaller_order
from tflm.planning.plan_report import shown
from tflm.planning.views import Body, Piece, Views, last_steps, peak_alive
from tflm.schema import (
    AddOptions,
    BuiltinOperator,
    ConcatenationOptions,
    IfOptions,
    SliceOptions,
    SplitVOptions,
    TensorType,
    read_model,
    write_model,
)
from tflm.schema.patch import HEADER_BYTES, LARGEST_ALIGNMENT, with_metadata, with_operator_order, with_plan
from tflm.schema.tables import METADATA_NAME, drop_plan
from tflm.testing import graphs
from tflm.testing.operators import OPERATORS

MODES = [{"in_place": in_place, "reorder": reorder} for in_place in (False, True) for reorder in (False, True)]


def head_bytes(model: bytes) -> int:
    """The head that the model takes here."""
    return tflm.measure_arena(tflm.Model(model), tflm.AllOpsResolver()).head_bytes


def some_inputs(model: bytes, seed: int) -> list[np.ndarray[Any, Any]]:
    """Random small numbers for each input."""
    main = tflm.Model(model).subgraphs[0]
    tables = [(main.tensors or [])[i] for i in main.inputs or ()]
    rng = np.random.default_rng(seed)
    return [rng.integers(-9, 9, t.shape).astype(tflm.schema.ELEMENT_TYPES[t.type].dtype) for t in tables]


# Changing a model's bytes.


@given(model=graphs(), names=st.lists(st.sampled_from(["a", "plan", "é"]), max_size=3), data=st.data())
def test_metadata_is_added_and_all_else_stays(model: bytes, names: list[str], data: st.DataObject) -> None:
    changed, kept = model, {}
    for name in names:
        content = kept[name] = data.draw(st.binary(max_size=40))
        changed = with_metadata(tflm.Model(changed), name, content)
        assert tflm.verify(changed) == []
    after = tflm.Model(changed)
    assert {name: bytes(after.metadata(name) or b"") for name in kept} == kept
    assert len(after.root.metadata or ()) == len(kept)
    assert changed.endswith(model[HEADER_BYTES:])
    assert (len(changed) - len(model)) % LARGEST_ALIGNMENT == 0
    before = tflm.Model(model).root
    after.root.metadata = before.metadata
    after.root.buffers = (after.root.buffers or [])[: len(before.buffers or ())]
    assert write_model(after.root) == write_model(before)


def test_metadata_of_the_same_length_is_overwritten_where_it_stands() -> None:
    first = with_metadata(tflm.Model(models.counter(models.INT8, 4, with_init=True)), "plan", b"12345678")
    second = with_metadata(tflm.Model(first), "plan", b"abcdefgh")
    at = first.index(b"12345678")
    assert second == first[:at] + b"abcdefgh" + first[at + 8 :]
    longer = tflm.Model(with_metadata(tflm.Model(second), "plan", b"another length"))
    assert [(entry.name, bytes(longer.metadata("plan") or b"")) for entry in longer.root.metadata or ()] == [
        ("plan", b"another length")
    ]


def test_metadata_of_a_buffer_that_others_use_is_not_overwritten() -> None:
    model = tflm.ModelBuilder()
    main = model.subgraph()
    x = main.input("x", (4,), TensorType.INT8)
    weights = main.constant("w", np.arange(4, dtype=np.int8))
    y = main.tensor("y", (4,), TensorType.INT8)
    main.operator(BuiltinOperator.MAXIMUM, [x, weights], [y])
    main.output(y)
    model.metadata("plan", b"")
    entries = model.model.metadata
    assert entries
    entries[0].buffer = 1
    changed = tflm.Model(with_metadata(tflm.Model(model.build()), "plan", b"abcd"))
    assert changed.metadata("plan") == b"abcd"
    assert changed.constant((changed.subgraphs[0].tensors or [])[1]) == bytes(range(4))


def test_a_plan_is_dropped_and_other_metadata_stays() -> None:
    model = tflm.Model(models.counter(models.INT8, 4, with_init=True))
    planned = tflm.Model(with_metadata(tflm.Model(with_plan(model, [-1] * count_of_tensors(model))), "mine", b"kept"))
    roots = planned.root, tflm.Model(with_plan(model, [-1] * count_of_tensors(model))).root
    for root in roots:
        drop_plan(root)
    assert [[entry.name for entry in root.metadata or ()] for root in roots] == [["mine"], []]
    assert roots[1].metadata is None


def count_of_tensors(model: tflm.Model) -> int:
    return sum(len(subgraph.tensors or ()) for subgraph in model.subgraphs)


@given(model=graphs(), data=st.data())
def test_operators_change_places_and_nothing_else_does(model: bytes, data: st.DataObject) -> None:
    before = tflm.Model(model).root
    operators = (before.subgraphs or [])[0].operators or []
    order = data.draw(st.permutations(range(len(operators))))
    changed = with_operator_order(tflm.Model(model), 0, order)
    after = read_model(memoryview(changed))  # it need not be an order in which they can run
    assert (after.subgraphs or [])[0].operators == [operators[i] for i in order]
    (after.subgraphs or [])[0].operators = operators
    assert after == before
    assert sum(a != b for a, b in zip(changed, model)) <= 4 * len(operators)


# Plans.


@pytest.mark.parametrize("mode", MODES, ids=str)
@given(model=graphs(), seed=st.integers(0, 99))
@settings(max_examples=examples(30))
def test_a_plan_keeps_its_promise_and_the_answers(
    oracle: Oracle, mode: dict[str, bool], model: bytes, seed: int
) -> None:
    plan = tflm.plan(tflm.Model(model), **mode)
    assert plan.lower_bound_bytes <= plan.head_bytes <= plan.greedy_head_bytes == head_bytes(model)
    assert plan.head_bytes > plan.lower_bound_bytes or plan.proved_optimal
    assert head_bytes(plan.data) == plan.head_bytes == printed_figures(oracle.allocations(plan.data))["head"]
    invocations = [some_inputs(model, seed), some_inputs(model, seed + 1)]
    for expected, *answers in zip(
        run(model, invocations), run(plan.data, invocations), oracle.run(plan.data, invocations)
    ):
        for answer in answers:
            assert_close(answer, expected)


@pytest.mark.parametrize("name", corpus_models())
def test_plans_of_real_models_hold_in_tflm(corpus: Path, oracle: Oracle, name: str) -> None:
    model = tflm.Model.from_file(corpus / "models" / f"{name}.tflite")
    inputs, outputs = recorded(corpus, name)
    smallest = 1 << 62
    for mode in (MODES[0], MODES[-1]):
        plan = tflm.plan(model, planner=OptimalPlanner(time_limit=None, step_limit=2000), **mode)
        assert plan.head_bytes <= min(plan.greedy_head_bytes, smallest)
        smallest = plan.head_bytes
        assert head_bytes(plan.data) == plan.head_bytes == printed_figures(oracle.allocations(plan.data))["head"]
        for answers in (run(plan.data, inputs[:2]), oracle.run(plan.data, inputs[:2])):
            for answer, expected in zip(answers, outputs):
                assert_close(answer, expected)


def test_visual_wake_words_needs_no_more_than_what_is_alive(corpus: Path) -> None:
    plan = tflm.plan(tflm.Model.from_file(corpus / "models" / "vww_96_int8.tflite"))
    assert (plan.greedy_head_bytes, plan.head_bytes, plan.lower_bound_bytes) == (73728, 55296, 55296)
    assert plan.proved_optimal


@pytest.mark.parametrize("operator", sorted(name for name in OPERATORS if name.startswith("UNIDIR") or "SVDF" in name))
@given(data=st.data())
@settings(max_examples=examples(15))
def test_scratch_buffers_are_planned_for(oracle: Oracle, operator: str, data: st.DataObject) -> None:
    model, invocations = data.draw(OPERATORS[operator])
    try:
        expected = oracle.run(model, invocations)
        plan = tflm.plan(tflm.Model(model))
    except (OracleError, tflm.TflmError):
        reject()  # such cases do not count: without any other, the test fails
    assert head_bytes(plan.data) == plan.head_bytes == printed_figures(oracle.allocations(plan.data))["head"]
    for answer, right in zip(oracle.run(plan.data, invocations), expected):
        assert_close(answer, right)


# Tensors inside others.


def splitting(first: int, reread: str | None) -> tuple[tflm.Model, dict[str, int]]:
    """x is split after `first` bytes into a and b, which are changed to c and d, and d is read with `reread`."""
    builder = tflm.ModelBuilder()
    main = builder.subgraph()
    named = {"x": main.input("x", (9, 1), TensorType.INT8)}
    for name, rows in (("a", first), ("b", 9 - first), ("c", first), ("d", 9 - first), ("y", 9)):
        named[name] = main.tensor(name, (rows, 1), TensorType.INT8)
    sizes = main.constant("sizes", np.array([first, 9 - first], np.int32))
    axis = main.constant("axis", np.int32(0))
    a, b, c, d = (named[name] for name in "abcd")
    main.operator(BuiltinOperator.SPLIT_V, [named["x"], sizes, axis], [a, b], SplitVOptions(num_splits=2))
    main.operator("change", [a], [c])
    main.operator("change", [b, *([named[reread]] if reread else [])], [d])
    main.operator(BuiltinOperator.CONCATENATION, [c, d], [named["y"]], ConcatenationOptions(axis=0))
    main.output(named["y"])
    return tflm.Model(builder.build()), named


def bodies_in(model: tflm.Model, named: dict[str, int], alignment: int) -> list[Body]:
    """The bodies of a split model."""
    life = {"x": (0, 1), "a": (1, 2), "b": (1, 3), "c": (2, 4), "d": (3, 4), "y": (4, 4)}
    tensors = model.subgraphs[0].tensors or []
    buffers = {
        index: Buffer((tensors[index].shape or ())[0], *life[name], 0, name, tensor=index)
        for name, index in named.items()
    }
    return Views(model, buffers, alignment=alignment).bodies()


def bodies_of(model: tflm.Model, named: dict[str, int], alignment: int = 1) -> dict[str, dict[str, int]]:
    """For each tensor in another one or with another in it, the tensors of its body with their offsets, by name."""
    name_of = {index: name for name, index in named.items()}
    bodies = [
        {name_of[tensor]: offset for tensor, offset in body.offsets.items()}
        for body in bodies_in(model, named, alignment)
    ]
    return {name: body for body in bodies for name in body}


@pytest.mark.parametrize("first", [1, 3, 4, 8])
def test_parts_lie_in_wholes_at_any_offset_or_only_at_aligned_ones(first: int) -> None:
    model, named = splitting(first, None)
    for alignment in (1, 2, 4, 16):
        bodies = bodies_of(model, named, alignment)
        aligned = first % alignment == 0
        assert bodies["x"] == {"x": 0, "a": 0} | ({"b": first} if aligned else {})
        assert bodies["y"] == {"y": 0, "c": 0} | ({"d": first} if aligned else {})
        assert bodies["b"] == (bodies["x"] if aligned else {"b": 0})


@pytest.mark.parametrize("first", [1, 3, 4, 8])
@pytest.mark.parametrize("alignment", [1, 2, 4, 16])
def test_bytes_are_needed_until_what_is_copied_of_them_is_copied(first: int, alignment: int) -> None:
    """Where b is a part of x, nothing is copied; x is in memory from step 0 on, a until 2, and b until 3."""
    model, named = splitting(first, None)
    bodies = bodies_in(model, named, alignment)
    (of_x,) = (body.pieces for body in bodies if named["x"] in body.offsets)
    is_part = first % alignment == 0
    assert sorted(of_x) == [Piece(0, first, 0, 2), Piece(first, 9, 0, 3 if is_part else 1)]
    alone = [body.pieces for body in bodies if body.offsets.keys() == {named["b"]}]
    assert alone == ([] if is_part else [(Piece(0, 9 - first, 1, 3),)])


@pytest.mark.parametrize("also_reads", ["nothing", "x", "half"])
@pytest.mark.parametrize("given_to_caller", ["nothing", "x", "half", "other"])
def test_a_value_gives_way_only_when_nobody_looks_at_it_any_more(also_reads: str, given_to_caller: str) -> None:
    """The rest of x may be overwritten by `other` once x was read, but not by the operator that reads it."""
    builder = tflm.ModelBuilder()
    main = builder.subgraph()
    named = {name: main.input(name, (8, 1), TensorType.INT8) for name in "xw"}
    named |= {name: main.tensor(name, (n, 1), TensorType.INT8) for name, n in (("half", 4), ("other", 4), ("y", 8))}
    begin, size = (main.constant("", np.array(of, np.int32)) for of in ([0, 0], [4, 1]))
    main.operator(BuiltinOperator.SLICE, [named["x"], begin, size], [named["half"]], SliceOptions())
    read = [named["w"], *([named[also_reads]] if also_reads != "nothing" else [])]
    main.operator("change", read, [named["other"]])
    main.operator(
        BuiltinOperator.CONCATENATION, [named["half"], named["other"]], [named["y"]], ConcatenationOptions(axis=0)
    )
    main.output(named["y"], *([named[given_to_caller]] if given_to_caller != "nothing" else []))
    life = {"x": [0, 1], "w": [0, 2], "half": [1, 3], "other": [2, 3], "y": [3, 3]}
    for name, until in ((also_reads, 2), (given_to_caller, 3)):
        if name in life:
            life[name][1] = max(life[name][1], until)
    sizes = {"x": 8, "w": 8, "half": 4, "other": 4, "y": 8}
    buffers = {index: Buffer(sizes[name], *life[name], 0, name, tensor=index) for name, index in named.items()}  # type: ignore[call-arg]
    bodies = Views(tflm.Model(builder.build()), buffers).bodies()
    (of_y,) = (body for body in bodies if named["y"] in body.offsets)
    assert {named["half"], named["other"]} <= of_y.offsets.keys()
    assert (named["x"] in of_y.offsets) == ("x" not in (also_reads, given_to_caller))
    if named["x"] in of_y.offsets:
        assert sorted(of_y.pieces) == [Piece(0, 4, 0, 3), Piece(4, 8, 0, 0), Piece(4, 8, 2, 3)]


@pytest.mark.parametrize("begin", [0, 2, 4])
def test_a_body_ends_with_the_last_of_its_tensors(begin: int) -> None:
    """x is cut, and what is cut out of it is joined with w, which fits behind x alone."""
    builder = tflm.ModelBuilder()
    main = builder.subgraph()
    sizes = {"x": 8, "part": 4, "w": 4, "y": 8}
    x, w = (main.input(name, (sizes[name], 1), TensorType.INT8) for name in "xw")
    part, y = (main.tensor(name, (sizes[name], 1), TensorType.INT8) for name in ("part", "y"))
    start, size = (main.constant("", np.array(numbers, np.int32)) for numbers in ([begin, 0], [4, 1]))
    main.operator(BuiltinOperator.SLICE, [x, start, size], [part], SliceOptions())
    main.operator(BuiltinOperator.CONCATENATION, [part, w], [y], ConcatenationOptions(axis=0))
    main.output(y)
    lives = [(0, 1), (1, 2), (0, 2), (2, 2)]
    buffers = {
        tensor: Buffer(sizes[name], *life, 0, name, tensor=tensor)  # type: ignore[call-arg]
        for name, tensor, life in zip(sizes, (x, part, w, y), lives)
    }
    bodies = Views(tflm.Model(builder.build()), buffers).bodies()
    wholes = [{x: 0, part: 4, y: 4, w: 8}] if begin == 4 else [{x: 0}, {part: 0, y: 0, w: 4}]
    assert [body.offsets for body in bodies] == wholes
    for body in bodies:
        ends = [offset + buffers[tensor].size for tensor, offset in body.offsets.items()]
        assert body.bytes == max(ends) == max(piece.end for piece in body.pieces)


def calling() -> tflm.Model:
    """RELU, IF between a subgraph of two operators and one of none, RELU."""
    builder = tflm.ModelBuilder()
    main = builder.subgraph()
    condition, x = main.input("condition", (1,), TensorType.BOOL), main.input("x", (4,), TensorType.FLOAT32)
    a, b, y = (main.tensor(name, (4,), TensorType.FLOAT32) for name in "aby")
    main.operator(BuiltinOperator.RELU, [x], [a])
    main.operator(BuiltinOperator.IF, [condition, a], [b], IfOptions(then_subgraph_index=1, else_subgraph_index=2))
    main.operator(BuiltinOperator.RELU, [b], [y])
    main.output(y)
    for operators in (2, 0):
        part = builder.subgraph(f"of {operators}")
        tensor = part.input("in", (4,), TensorType.FLOAT32)
        for i in range(operators):
            following = part.tensor(f"t{i}", (4,), TensorType.FLOAT32)
            part.operator(BuiltinOperator.RELU, [tensor], [following])
            tensor = following
        part.output(tensor)
    return tflm.Model(builder.build())


def test_an_operator_is_over_when_all_that_it_runs_is() -> None:
    """TFLM counts a step to enter each subgraph, and one for each operator in it."""
    model = calling()
    assert last_steps(model) == [1, 6, 7]
    life = {b.name: (b.first_use, b.last_use) for b in tflm.measure_arena(model, tflm.AllOpsResolver()).buffers}
    assert (life["a"], life["b"], life["y"]) == ((1, 6), (2, 7), (7, 7))


def test_bodies_of_scratch_and_of_tensors_are_as_large_as_these() -> None:
    scratch = _scratch_body(Buffer(48, 3, 5))
    assert (scratch.bytes, scratch.pieces) == (48, (Piece(0, 48, 3, 5),))
    tensors = {0: Buffer(16, 1, 2), 1: Buffer(32, 2, 4)}
    body = _body({0: 0, 1: 8}, tensors)
    assert (body.bytes, body.pieces) == (40, (Piece(0, 16, 1, 2), Piece(8, 40, 2, 4)))
    assert peak_alive([scratch, body]) == 80
    assert peak_alive([body]) == 48


lifetimes = st.tuples(st.integers(0, 4), st.integers(0, 4)).map(sorted)


@given(
    tensors=st.lists(st.tuples(st.integers(1, 5), lifetimes), min_size=1, max_size=6),
    scratch=st.lists(st.tuples(st.integers(1, 5), st.integers(0, 4)), max_size=6),
)
def test_a_device_that_places_scratch_itself_needs_no_more_than_promised(
    tensors: list[tuple[int, list[int]]], scratch: list[tuple[int, int]]
) -> None:
    builder = tflm.ModelBuilder()
    main = builder.subgraph()
    for i in range(len(tensors)):
        main.tensor(f"t{i}", (1,), TensorType.INT8)
    buffers = [Buffer(16 * n, a, b, 0, tensor=i) for i, (n, (a, b)) in enumerate(tensors)]
    buffers += [Buffer(16 * n, at, at, 0, kind="scratch") for n, at in scratch]
    head = Head(tflm.Model(builder.build()), buffers)
    planner = OptimalPlanner()
    plan = head.planned(planner, in_place=False)
    assert planner.searched is not None
    assert plan.lower_bound_bytes <= plan.head_bytes <= planner.searched.head_bytes
    assert all(offset >= 0 for offset in plan.offsets)


def test_a_plan_takes_the_place_of_the_one_before(tmp_path: Path) -> None:
    model = tflm.Model(models.counter(models.INT8, 40, with_init=True))
    first = tflm.plan(model, planner="breadth")
    entries = len(first.model.root.metadata or ())
    second = tflm.plan(first.model, tflm.AllOpsResolver(), OptimalPlanner(step_limit=10))
    assert second.greedy_head_bytes == first.greedy_head_bytes
    assert len(second.model.root.metadata or ()) == entries == 1
    assert len(second.data) == len(first.data)
    second.write(tmp_path / "planned.tflite")
    written = tflm.Model.from_file(tmp_path / "planned.tflite")
    assert written.metadata(METADATA_NAME) is not None
    assert first.data.endswith(bytes(model.data)[HEADER_BYTES:])


def test_the_largest_plan_is_that_of_greedy() -> None:
    model = tflm.Model(wide_graph([3, 5, 2, 4], joined=True))
    linear = tflm.measure_arena(model, tflm.AllOpsResolver(), planner="linear")
    plan = tflm.plan(model, planner="linear")
    assert plan.head_bytes == plan.greedy_head_bytes < linear.head_bytes
    assert set(plan.offsets) == {-1}
    on: dict[str, Any] = {"target": "cortex-m55", "kernels": "cmsis-nn"}  # scratch memory is alive at the peak
    least, left = (tflm.plan(shrinking_network(32), planner=name, **on) for name in ("optimal", "linear"))
    assert least.lower_bound_bytes == left.lower_bound_bytes == least.head_bytes
    assert set(left.offsets) == {-1}


def test_an_unknown_planner_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown planner 'best'; use one of greedy"):
        tflm.plan(tflm.Model(models.counter(models.INT8, 4, with_init=False)), planner="best")


# An output in the place of an input.


def test_what_is_still_needed_is_not_overwritten() -> None:
    """The input is also an output of the model, which only the last operator reads."""
    builder = tflm.ModelBuilder()
    main = builder.subgraph()
    x = main.input("x", (1, 8), TensorType.FLOAT32)
    y = main.tensor("y", (1, 8), TensorType.FLOAT32)
    main.operator(BuiltinOperator.NEG, [x], [y])
    main.output(x, y)
    plan = tflm.plan(tflm.Model(builder.build()), in_place=True)
    assert plan.overwritten == {}
    ((first, second),) = run(plan.data, [[np.ones((1, 8), np.float32)]])
    assert np.array_equal(first, -second)


def test_a_chain_of_operators_runs_in_one_place() -> None:
    builder = tflm.ModelBuilder()
    main = builder.subgraph()
    tensors = [main.input("x", (1, 64), TensorType.FLOAT32)]
    for i, operator in enumerate((BuiltinOperator.ABS, BuiltinOperator.NEG, BuiltinOperator.SQUARE)):
        tensors.append(main.tensor(f"t{i}", (1, 64), TensorType.FLOAT32))
        main.operator(operator, [tensors[-2]], [tensors[-1]])
    main.output(tensors[-1])
    m4 = tflm.targets.by_name("cortex-m4")
    for kernels in ("reference", "cmsis-nn"):
        plan = tflm.plan(tflm.Model(builder.build()), in_place=True, target=m4, kernels=kernels)
        assert (plan.greedy_head_bytes, plan.head_bytes, plan.lower_bound_bytes) == (512, 256, 256)
        assert plan.overwritten == {1: 0, 2: 1, 3: 2}
        report = shown(plan)
        assert ("in-place outputs", "3") in report.facts
        assert any("not with cmsis-nn" in note for note in report.notes) == (kernels == "cmsis-nn")


# Another order.


def wide_graph(widths: Sequence[int], joined: bool) -> bytes:
    """Branches that grow from one input to `widths` and shrink again, all grown before the first shrinks."""
    builder = tflm.ModelBuilder()
    main = builder.subgraph()
    x = main.input("x", (2, 8), TensorType.FLOAT32)  # two rows: what is put beside it does not lie behind it
    grown = []
    for i, width in enumerate(widths):
        grown.append(main.tensor(f"grown{i}", (2, 8 * width), TensorType.FLOAT32))
        main.operator(BuiltinOperator.CONCATENATION, [x] * width, [grown[-1]], ConcatenationOptions(axis=1))
    small = []
    for i, tensor in enumerate(grown):
        small.append(main.tensor(f"small{i}", (2, 1), TensorType.FLOAT32))
        axis = main.constant(f"axis{i}", np.array([1], np.int32))
        main.operator(BuiltinOperator.SUM, [tensor, axis], [small[-1]], tflm.schema.ReducerOptions(keep_dims=True))
    if joined:
        total = main.tensor("total", (2, 1), TensorType.FLOAT32)
        main.operator(BuiltinOperator.ADD_N, small, [total])
        small = [total]
    main.output(*small)
    return builder.build()


@pytest.mark.parametrize("joined", [False, True])
def test_another_order_needs_less(oracle: Oracle, joined: bool) -> None:
    model = wide_graph([3, 5, 2, 4], joined)
    plan = tflm.plan(tflm.Model(model), reorder=True)
    assert plan.order is not None
    assert plan.order.exact
    assert plan.head_bytes == plan.order.peak_bytes < tflm.plan(tflm.Model(model)).head_bytes
    assert head_bytes(plan.data) == plan.head_bytes == printed_figures(oracle.allocations(plan.data))["head"]
    inputs = [some_inputs(model, 0)]
    for answers in (run(plan.data, inputs), oracle.run(plan.data, inputs)):
        assert_close(answers[0], run(model, inputs)[0])


@pytest.mark.long
def test_a_wide_graph_is_reordered_by_a_search_that_is_cut_short() -> None:
    plan = tflm.plan(
        tflm.Model(wide_graph([2 + i % 9 for i in range(14)], joined=False)), planner="greedy", reorder=True
    )
    assert plan.order is not None
    assert not plan.order.exact
    assert plan.head_bytes < plan.greedy_head_bytes


class Clock:
    """A substitute for the module `time`: its clock advances by this many seconds whenever it is read, or on demand."""

    def __init__(self, step: float = 0.0):
        self.now, self.step = 0.0, step

    def monotonic(self) -> float:
        self.now += self.step
        return self.now


def test_an_order_is_exact_if_all_sets_of_operators_were_kept() -> None:
    """After each step, one of two branches is ahead."""
    model = tflm.Model(wide_graph([3, 4], joined=False))
    sizes = Head(model, tflm.measure_arena(model, tflm.AllOpsResolver()).buffers).tensor_bytes()
    found = [smaller_order(model, sizes, {}, max_sets=count) for count in (1, 2, 3)]
    assert [order is not None and order.exact for order in found] == [False, True, True]


def test_the_search_for_an_order_ends_with_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tflm.Model(wide_graph([2 + i % 9 for i in range(14)], joined=False))
    measured = tflm.measure_arena(model, tflm.AllOpsResolver())
    sizes = Head(model, measured.buffers).tensor_bytes()
    operators = len(model.subgraphs[0].operators or ())
    for seconds, found in ((float(operators * 4), True), (float(operators // 2), False)):
        clock = Clock(step=1.0)
        monkeypatch.setattr("tflm.planning.operator_order.time", clock)
        order = smaller_order(model, sizes, {}, seconds)
        assert (order is not None) == found
        assert clock.now <= seconds + 2


def test_the_search_for_an_order_reports_its_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tflm.memory.plan_search.SECONDS_BETWEEN_REPORTS", 0)
    reports: list[SearchProgress] = []
    model = tflm.Model(wide_graph([2 + i % 9 for i in range(6)], joined=False))
    plan = tflm.plan(model, planner=OptimalPlanner(step_limit=100, progress=reports.append), reorder=True)
    ordering = [report for report in reports if report.stage == "ordering"]
    assert [report.steps for report in ordering] == list(range(1, len(ordering) + 1))
    assert plan.order is not None
    assert plan.order.peak_bytes < ordering[-1].head_bytes
    bounds = [report.lower_bound_bytes for report in ordering]
    assert bounds == sorted(bounds)
    assert plan.order.peak_bytes >= bounds[-1] > 0


@pytest.mark.parametrize("mode", MODES, ids=str)
def test_all_stages_together_keep_the_time_limit(monkeypatch: pytest.MonkeyPatch, mode: dict[str, bool]) -> None:
    """Each is taken to use all the seconds that it is given."""
    clock, given = Clock(), []

    def use(seconds: float | None) -> None:
        assert seconds is not None
        assert seconds > 0
        given.append(seconds)
        clock.now += seconds

    def searched(buffers: Any, limits: Any) -> Any:
        use(limits.seconds)
        return search_plan(buffers, limits._replace(seconds=None, steps=20))

    def ordered(model: Any, tensors: Any, scratch: Any, seconds: float | None, progress: Any) -> Any:
        use(seconds)
        return smaller_order(model, tensors, scratch)

    search = BodyPlacement.search

    def placed(self: BodyPlacement, bound: int, seconds: float | None, rounds: int) -> list[int]:
        use(seconds)
        return search(self, bound, None, 1)

    monkeypatch.setattr("tflm.planning.head_plan.time", clock)
    monkeypatch.setattr("tflm.memory.plan_search.search_plan", searched)
    monkeypatch.setattr("tflm.planning.model_plan.smaller_order", ordered)
    monkeypatch.setattr(BodyPlacement, "search", placed)
    tflm.plan(tflm.Model(wide_graph([4] * 5, joined=True)), planner=OptimalPlanner(time_limit=10), **mode)
    assert len(given) >= (3 if mode["reorder"] else 1)
    assert clock.now <= 10 + 1e-9


def test_a_planner_without_the_properties_has_their_defaults() -> None:
    """Any object with the methods of a planner will do: it places at once, and lets buffers share memory."""

    class Plain:
        def __init__(self) -> None:
            greedy = self._greedy = GreedyMemoryPlanner()
            self.init, self.add_buffer = greedy.init, greedy.add_buffer
            self.get_maximum_memory_size = greedy.get_maximum_memory_size
            self.get_buffer_count = greedy.get_buffer_count
            self.get_offset_for_buffer = greedy.get_offset_for_buffer

    model = tflm.Model(wide_graph([4] * 5, joined=True))
    greedy, plain = (tflm.plan(model, planner=planner) for planner in ("greedy", Plain()))
    assert plain.offsets == greedy.offsets
    interpreter = tflm.MicroInterpreter(model, tflm.AllOpsResolver(), bytearray(1 << 14), planner=Plain())
    interpreter.allocate_tensors()
    with pytest.raises(tflm.InterpreterError, match="preserve_all_tensors"):
        interpreter.get_tensor(0)


def peak(operators: Sequence[Any], inputs: Sequence[int], outputs: Sequence[int], sizes: dict[int, int]) -> int:
    """Return the maximum number of bytes alive at an operator, from the lifetimes of all tensors."""
    uses: dict[int, list[int]] = {tensor: [0] for tensor in inputs}
    for step, operator in enumerate(operators, 1):
        for tensor in (*operator.inputs, *operator.outputs):
            uses.setdefault(tensor, []).append(step)
    for tensor in outputs:
        uses.setdefault(tensor, []).append(len(operators))
    alive = [
        sum(size for t, size in sizes.items() if t in uses and min(uses[t]) <= step <= max(uses[t]))
        for step in range(len(operators) + 1)
    ]
    return max(alive)


@given(model=graphs(), data=st.data())
def test_the_order_is_the_best_of_all_and_keeps_what_depends(model: bytes, data: st.DataObject) -> None:
    main = tflm.Model(model).subgraphs[0]
    operators, tables = main.operators or [], main.tensors or []
    main.operators = operators = operators[:6]
    outputs = {t for operator in operators for t in operator.outputs or ()}
    main.outputs = tuple(t for t in main.outputs or () if t in outputs | {0})
    model = write_model(dataclasses.replace(tflm.Model(model).root, subgraphs=[main]))
    sizes = {t: 16 * data.draw(st.integers(1, 9)) for t in (0, *sorted(outputs))}
    stateful = [op for op in operators if any(t >= 0 and tables[t].is_variable for t in op.inputs or ())]

    def is_valid(order: Sequence[Any]) -> bool:
        made = set(range(len(tables))) - outputs | {-1}
        for operator in order:
            if not set(operator.inputs) <= made:
                return False
            made |= set(operator.outputs)
        return [operator for operator in order if operator in stateful] == stateful

    peaks = [
        peak(order, main.inputs or (), main.outputs, sizes)
        for order in itertools.permutations(operators)
        if is_valid(order)
    ]
    before = peak(operators, main.inputs or (), main.outputs, sizes)
    found = smaller_order(tflm.Model(model), sizes, {})
    assert (before if found is None else found.peak_bytes) == min(peaks)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("tflm.planning.operator_order.time", Clock(step=1.0))
        in_a_hurry = smaller_order(tflm.Model(model), sizes, {}, seconds=60.0)  # half of it for all but the best sets
    assert in_a_hurry is None or min(peaks) <= in_a_hurry.peak_bytes < before
    for answer in (found, in_a_hurry):
        if answer is None:
            continue
        order = [operators[i] for i in answer.order]
        assert is_valid(order)
        assert peak(order, main.inputs or (), main.outputs, sizes) == answer.peak_bytes


@pytest.mark.parametrize("kept", [False, True])
def test_an_input_that_nobody_reads_is_alive_only_while_it_is_filled(kept: bool) -> None:
    """Unless it is an output as well: then it counts at every step."""
    builder = tflm.ModelBuilder()
    main = builder.subgraph()
    unread, x = (main.input(name, (size,), TensorType.INT8) for name, size in (("unread", 64), ("x", 16)))
    tensor = x
    for width in (48, 96, 16):
        following = main.tensor(f"t{width}", (width,), TensorType.INT8)
        main.operator("mine", [tensor], [following])
        tensor = following
    main.output(tensor, *([unread] if kept else []))
    model = tflm.Model(builder.build())
    sizes = {i: (table.shape or ())[0] for i, table in enumerate(model.subgraphs[0].tensors or ())}
    graph = _Graph(model, sizes, {1: 1000})
    assert graph.bytes_at_start == 80
    assert graph.peak(range(3)) == 48 + 96 + 1000 + (64 if kept else 0)
    assert _Graph(model, sizes, {}).peak(range(3)) == (48 + 96 + (64 if kept else 0))
    assert _Graph(model, {i: 16 * n if i == unread else n for i, n in sizes.items()}, {}).peak(range(3)) == (
        1024 + 16 + (128 if kept else 0)
    )


def test_a_variable_is_read_before_it_is_assigned() -> None:
    """Assigning first would need less: the large sum would be gone before the state is read."""
    builder = tflm.ModelBuilder()
    main = builder.subgraph()
    x = main.input("x", (1, 4), TensorType.FLOAT32)
    handle = main.tensor("handle", (1,), TensorType.RESOURCE)
    state, y = (main.tensor(name, (1, 4), TensorType.FLOAT32) for name in ("state", "y"))
    options = tflm.schema.VarHandleOptions(container="", shared_name="state")
    main.operator(BuiltinOperator.VAR_HANDLE, [], [handle], options)
    main.operator(BuiltinOperator.READ_VARIABLE, [handle], [state])
    main.operator(BuiltinOperator.ADD, [x, x], [y], AddOptions())
    main.operator(BuiltinOperator.ASSIGN_VARIABLE, [handle, y], [])
    main.output(state)
    model = tflm.Model(builder.build())
    sizes = {x: 64, state: 64, y: 16}
    found = smaller_order(model, sizes, {})
    names = [i for i in (found.order if found else range(4)) if i != 2]
    assert names == [0, 1, 3]


@pytest.mark.parametrize("runs_another", [False, True])
def test_only_a_model_that_runs_no_subgraphs_gets_another_order(runs_another: bool) -> None:
    """One branch after the other needs less than both at once."""
    builder = tflm.ModelBuilder()
    main = builder.subgraph()
    x = main.input("x", (16,), TensorType.INT8)
    wide = [main.tensor(f"wide{i}", (96,), TensorType.INT8) for i in range(2)]
    narrow = [main.tensor(f"narrow{i}", (16,), TensorType.INT8) for i in range(2)]
    if runs_another:
        builder.subgraph()
        main.operator(BuiltinOperator.CALL_ONCE, [], [], tflm.schema.CallOnceOptions(init_subgraph_index=1))
    for sources, targets in (([x, x], wide), (wide, narrow)):
        for source, target in zip(sources, targets):
            main.operator(BuiltinOperator.RELU, [source], [target])
    main.output(*narrow)
    model = tflm.Model(builder.build())
    sizes = {i: (table.shape or ())[0] for i, table in enumerate(model.subgraphs[0].tensors or ())}
    assert (smaller_order(model, sizes, {}) is None) == runs_another


def test_a_model_that_runs_subgraphs_keeps_its_order() -> None:
    model = tflm.Model(models.counter(models.INT8, 8, with_init=True))
    assert tflm.plan(model, reorder=True).order is None
