"""Memory plans that keep every value, and plans that do not: judged on tags, told by answers."""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import models
import numpy as np
import outcomes
import pytest
from differential import assert_close, run
from hypothesis import given, reject, settings
from hypothesis import strategies as st
from oracle import Oracle, OracleError
from sampling import examples

import tflm
from tflm.kernels import REGISTRATIONS
from tflm.kernels.plan_checker import lost_values
from tflm.memory.buffer import Place
from tflm.memory.byte_labels import Label, LabelledBytes
from tflm.schema import (
    BuiltinOperator,
    CallOnceOptions,
    ConcatenationOptions,
    Conv2DOptions,
    FullyConnectedOptions,
    IfOptions,
    TensorType,
    VarHandleOptions,
    WhileOptions,
)
from tflm.schema.patch import with_metadata
from tflm.schema.tables import METADATA_NAME, ONLINE, encode_offsets
from tflm.testing import graphs
from tflm.testing.operators import OPERATORS

FLOAT32 = TensorType.FLOAT32


def planned(model: bytes, offsets: Sequence[int]) -> bytes:
    """The model with a plan."""
    return with_metadata(tflm.Model(model), METADATA_NAME, encode_offsets(offsets))


def interpreter_of(model: tflm.Model, planner: Any = "greedy") -> tflm.MicroInterpreter:
    """An interpreter with every tensor in place."""
    interpreter = tflm.MicroInterpreter(model, tflm.AllOpsResolver(), bytearray(1 << 17), planner=planner)
    interpreter.allocate_tensors()
    return interpreter


spans = st.tuples(st.integers(0, 12), st.integers(0, 12))


@given(writes=st.lists(spans, max_size=8), others=st.lists(spans, max_size=4), looked_at=spans)
def test_memory_holds_of_each_byte_what_was_written_last(
    writes: list[tuple[int, int]], others: list[tuple[int, int]], looked_at: tuple[int, int]
) -> None:
    memory, held = LabelledBytes(), [Label((), None, None)] * 13
    for number, (begin, end) in enumerate(writes):
        label = Label(((number, begin), (99, 0)), (0, number), None)
        memory.write(begin, end, label)
        held[begin:end] = [label] * max(0, end - begin)
    other = memory.copy()
    both = list(held)
    for number, (begin, end) in enumerate(others):
        label = Label(((99, 0), (50 + number, begin)), (1, number), None)
        other.write(begin, end, label)
        both[begin:end] = [label] * max(0, end - begin)

    def bytes_of(of: LabelledBytes, begin: int, end: int) -> list[Label]:
        found: list[Label] = []
        for first, stop, label in of.read(begin, end):
            assert first == begin + len(found)
            assert stop <= max(end, begin)
            found += [label] * (stop - first)
        return found

    begin, end = looked_at
    assert bytes_of(memory, 0, 13) == held
    assert bytes_of(memory, begin, end) == held[begin:end]
    assert bytes_of(other, 0, 13) == both
    memory.meet(other)
    for met, one, two in zip(bytes_of(memory, 0, 13), held, both):
        assert set(met.values) == set(one.values) & set(two.values)
        assert met.tensor in (one.tensor, two.tensor)


@pytest.mark.runs(0.1)
@given(model=graphs(), data=st.data())
@settings(max_examples=examples(60))
def test_a_plan_that_is_accepted_gives_the_answers_of_the_model_without_it(model: bytes, data: st.DataObject) -> None:
    """In metadata and as a list of offsets, which are judged alike; what is refused runs if that is wanted."""
    main = tflm.Model(model).subgraphs[0]
    buffers = tflm.measure_arena(tflm.Model(model), tflm.AllOpsResolver()).buffers
    chosen = data.draw(st.lists(st.integers(0, 6), min_size=len(buffers), max_size=len(buffers)))
    offsets = [ONLINE] * len(main.tensors or ())
    for buffer, choice in zip(buffers, chosen):
        if buffer.tensor is not None:
            offsets[buffer.tensor] = 16 * choice
    shared = planned(model, offsets)
    tensors = [(main.tensors or [])[i] for i in main.inputs or ()]
    rng = np.random.default_rng(0)
    values = [rng.integers(-9, 9, t.shape).astype(tflm.schema.ELEMENT_TYPES[t.type].dtype) for t in tensors]
    is_sound = outcomes.count(ran=tflm.verify(shared) == [])
    if is_sound:
        ((expected,), (answer,)) = (run(data, [values], arena_bytes=1 << 17) for data in (model, shared))
        assert_close(answer, expected)
    else:
        with pytest.raises(tflm.ModelError, match="share bytes"):
            tflm.Model(shared)
        interpreter_of(tflm.Model(shared, checks="tflm")).invoke()
    if all(buffer.kind == "tensor" for buffer in buffers):
        given_offsets = [16 * choice for choice in chosen]
        if is_sound:
            interpreter_of(tflm.Model(model), given_offsets)
        else:
            with pytest.raises(tflm.ArenaError, match="loses a value"):
                interpreter_of(tflm.Model(model), given_offsets)


def test_scratch_buffers_of_a_branch_take_the_place_of_what_is_over_by_then() -> None:
    """An input of the model that only the operator before the IF reads."""
    builder = tflm.ModelBuilder()
    main, branch = builder.subgraph(), builder.subgraph()
    half = tflm.quantized(0.5)
    inner = branch.input("inner", (1, 16), TensorType.INT8, half)
    total = branch.tensor("total", (1, 16), TensorType.INT8, half)
    branch.operator(BuiltinOperator.ADD_N, [inner, inner], [total])
    branch.output(total)
    condition, x = main.input("condition", (1,), TensorType.BOOL), main.input("x", (1, 16), TensorType.INT8, half)
    a, y = (main.tensor(name, (1, 16), TensorType.INT8, half) for name in "ay")
    main.operator(BuiltinOperator.RELU, [x], [a])
    main.operator(BuiltinOperator.IF, [condition, a], [y], IfOptions(then_subgraph_index=1, else_subgraph_index=1))
    main.output(y)
    model = tflm.Model(builder.build())
    buffers = tflm.measure_arena(model, tflm.AllOpsResolver()).buffers
    assert [buffer.kind for buffer in buffers].index("scratch") == len(buffers) - 1
    names = [buffer.name for buffer in buffers if buffer.kind != "scratch"]
    for over, is_sound in (("x", True), ("inner", False), ("total", False)):
        place = 32 * names.index(over)
        offsets = [*range(0, 32 * len(names), 32), place]
        if is_sound:
            interpreter_of(model, offsets)
        else:
            with pytest.raises(tflm.ArenaError, match="loses a value"):
                interpreter_of(model, offsets)


def counted(width: int) -> models.Case:
    """A model that sets a variable with CALL_ONCE and counts in it, and inputs of two invokes."""
    ones = [np.ones((1, width), np.float32)]
    return models.counter(FLOAT32, width, with_init=True), [ones, ones]


@pytest.mark.runs(0.3)
@given(
    case=st.one_of(OPERATORS["IF"], OPERATORS["WHILE"], st.integers(1, 9).map(counted)),
    moved=st.lists(st.tuples(st.integers(0, 99), st.integers(0, 99)), max_size=3),
    apart=st.booleans(),
)
@settings(max_examples=examples(80))
def test_values_are_followed_into_subgraphs(
    oracle: Oracle, case: models.Case, moved: list[tuple[int, int]], apart: bool
) -> None:
    """Tensors of all subgraphs as TFLM plans them, or each in a place of its own; then some in the place of others.

    The plan without those is sound. With them, either it is refused or the answers are those of the model without it.
    """
    model, invocations = case
    try:
        expected = oracle.run(model, invocations)
        buffers = tflm.measure_arena(tflm.Model(model), tflm.AllOpsResolver()).buffers
        run(model, invocations)
    except (OracleError, tflm.TflmError):
        reject()
    places = {buffer.tensor: buffer.offset for buffer in buffers if buffer.tensor is not None}
    if apart:
        sizes = [-(-buffer.bytes // 16) * 16 for buffer in buffers if buffer.tensor is not None]
        places = dict(zip(places, itertools.accumulate(sizes, initial=0)))
    count = sum(len(subgraph.tensors or ()) for subgraph in tflm.Model(model).subgraphs)
    tensors = list(places)
    sound = planned(model, [places.get(i, ONLINE) for i in range(count)])
    assert tflm.verify(sound) == []
    for a, b in moved:
        places[tensors[a % len(tensors)]] = places[tensors[b % len(tensors)]]
    shared = planned(model, [places.get(i, ONLINE) for i in range(count)])
    if any(finding.level == "error" for finding in tflm.verify(shared)):
        outcomes.count(ran=False)
        return
    outcomes.count(ran=True)
    for answers in (run(shared, invocations, arena_bytes=1 << 17), oracle.run(shared, invocations)):
        for answer, right in zip(answers, expected):
            assert_close(answer, right)


@pytest.mark.parametrize("operator", ["IF", "WHILE", "CALL_ONCE"])
def test_a_value_that_a_subgraph_overwrites_is_lost(operator: str) -> None:
    """A tensor that the caller reads later shares memory with one of the called subgraph."""
    data, held, inside = with_a_value_across(operator)
    tensors = [len(subgraph.tensors or ()) for subgraph in tflm.Model(data).subgraphs]
    apart = [ONLINE if is_constant(data, i) else 64 * i for i in range(sum(tensors))]
    assert tflm.verify(planned(data, apart)) == []
    apart[inside] = apart[held]
    (finding, *_) = tflm.verify(planned(data, apart))
    assert finding.level == "error"
    assert "tensor 1 ('held') and tensor" in str(finding)
    assert "share bytes" in str(finding)


def is_constant(data: bytes, tensor: int) -> bool:
    """Whether a tensor, counted through all subgraphs, has its data in the model."""
    model = tflm.Model(data)
    tables = [table for subgraph in model.subgraphs for table in subgraph.tensors or ()]
    return bool(model.buffers[tables[tensor].buffer].data)


def with_a_value_across(operator: str) -> tuple[bytes, int, int]:
    """NEG x -> held; an operator that runs subgraphs; held + its result. With `held`, and a tensor that those make."""
    builder = tflm.ModelBuilder()
    main, first, second = (builder.subgraph() for _ in range(3))
    x, held, y = (main.tensor(name, (4,), FLOAT32) for name in ("x", "held", "y"))
    main.table.inputs = (x,)
    main.operator(BuiltinOperator.NEG, [x], [held])
    result = x
    if operator == "CALL_ONCE":
        four = first.constant("four", np.full(4, 4, np.float32))
        first.operator(BuiltinOperator.NEG, [four], [first.tensor("inside", (4,), FLOAT32)])
        second.output(second.input("unused", (4,), FLOAT32))
        main.operator(BuiltinOperator.CALL_ONCE, [], [], CallOnceOptions(init_subgraph_index=1))
        inside = 1
    else:
        flag = main.constant("flag", np.array([True]))
        result = main.tensor("result", (4,), FLOAT32)
        is_loop = operator == "WHILE"
        for branch in (first, second):
            given = branch.input("given", (4,), FLOAT32)
            made = branch.tensor("inside", (4,), FLOAT32)
            branch.operator(BuiltinOperator.NEG, [given], [made])
            branch.output(branch.constant("end", np.array([False])) if is_loop and branch is first else made)
        if is_loop:
            main.operator(
                BuiltinOperator.WHILE, [x], [result], WhileOptions(cond_subgraph_index=1, body_subgraph_index=2)
            )
        else:
            options = IfOptions(then_subgraph_index=1, else_subgraph_index=2)
            main.operator(BuiltinOperator.IF, [flag, x], [result], options)
        inside = 1
    main.operator(BuiltinOperator.ADD, [held, result], [y])
    main.output(y)
    data = builder.build()
    return data, held, len(tflm.Model(data).subgraphs[0].tensors or ()) + inside


def sums(builder: tflm.ModelBuilder) -> bytes:
    """x -> NEG a -> NEG b; y = a + b."""
    main = builder.subgraph()
    x = main.input("x", (4,), FLOAT32)
    a, b, y = (main.tensor(name, (4,), FLOAT32) for name in "aby")
    main.operator(BuiltinOperator.NEG, [x], [a])
    main.operator(BuiltinOperator.NEG, [a], [b])
    main.operator(BuiltinOperator.ADD, [a, b], [y])
    main.output(y)
    return builder.build()


def test_a_lost_value_is_told_with_both_tensors_and_the_operator() -> None:
    data = planned(sums(tflm.ModelBuilder()), [64, 0, 0, 32])
    (finding,) = tflm.verify(data)
    assert finding.level == "error"
    assert str(finding).endswith(
        "tensor 1 ('a') and tensor 2 ('b') share bytes: "
        "operator 1 NEG writes the second over the first before operator 2 ADD reads it"
    )
    with pytest.raises(tflm.ModelError, match="share bytes"):
        tflm.Model(data)
    interpreter = interpreter_of(tflm.Model(data, checks="tflm"))
    interpreter.input(0).data[:] = 1
    interpreter.invoke()
    assert interpreter.output(0).data.tolist() == [2, 2, 2, 2]  # b + b, as in TFLM


def test_checks_are_known_by_name() -> None:
    with pytest.raises(ValueError, match="checks are 'all' or 'tflm', not 'none'"):
        tflm.Model(sums(tflm.ModelBuilder()), checks="none")


@pytest.fixture(scope="module")
def bands() -> bytes:
    """A tensor of eight rows in two slices, each negated, and joined again; tensors in the order of `BANDS`."""
    builder = tflm.ModelBuilder()
    main = builder.subgraph()
    x = main.input("x", (1, 8, 4), FLOAT32)
    parts = [main.tensor(f"part{i}", (1, 4, 4), FLOAT32) for i in range(2)]
    negated = [main.tensor(f"negated{i}", (1, 4, 4), FLOAT32) for i in range(2)]
    y = main.tensor("y", (1, 8, 4), FLOAT32)
    size = main.constant("size", np.array([1, 4, 4], np.int32))
    for i in range(2):
        begin = main.constant(f"begin{i}", np.array([0, 4 * i, 0], np.int32))
        main.operator(BuiltinOperator.SLICE, [x, begin, size], [parts[i]])
        main.operator(BuiltinOperator.NEG, [parts[i]], [negated[i]])
    main.operator(BuiltinOperator.CONCATENATION, negated, [y], ConcatenationOptions(axis=1))
    main.output(y)
    return builder.build()


BANDS = ("x", "part0", "part1", "negated0", "negated1", "y")


def is_right(model: bytes) -> bool:
    """Whether the bands are negated, with the plan as it is."""
    interpreter = interpreter_of(tflm.Model(model, checks="tflm"))
    values = np.arange(32, dtype=np.float32).reshape(1, 8, 4)
    interpreter.input(0).data[...] = values
    interpreter.invoke()
    return bool(np.array_equal(interpreter.output(0).data, -values))


@pytest.mark.parametrize(
    ("offsets", "is_sound"),
    [
        ((0, 0, 64, 0, 64, 0), True),  # everything in one place
        ((0, 0, 64, 128, 192, 128), True),  # parts are views of x, negated ones of y
        ((0, 0, 64, 0, 64, 16), False),  # joined over what is still to be joined
        ((0, 0, 64, 64, 64, 128), False),  # the first half over the second
        ((64, 0, 0, 192, 256, 192), True),  # one part after the other
        ((0, 128, 128, 192, 0, 192), True),  # what was sliced is needed no more
        ((64, 0, 0, 128, 192, 128), False),  # negated rows over rows that are still to be sliced
    ],
)
def test_views_are_sound_where_bytes_are_where_they_belong(
    bands: bytes, offsets: tuple[int, ...], is_sound: bool
) -> None:
    """SLICE's output in its input, CONCATENATION's inputs in its output."""
    data = planned(bands, [*offsets, *[ONLINE] * 3])
    assert (tflm.verify(data) == []) == is_sound


@given(offsets=st.lists(st.integers(0, 12), min_size=6, max_size=6))
def test_views_that_are_accepted_give_the_right_answer(bands: bytes, offsets: list[int]) -> None:
    data = planned(bands, [*(16 * offset for offset in offsets), *[ONLINE] * 3])
    assert is_right(data) or tflm.verify(data) != []


def convolutions() -> bytes:
    """Two convolutions that an NPU can run, and between them an operator that it can't."""
    builder = tflm.ModelBuilder()
    main = builder.subgraph()
    parameters = tflm.quantized(0.5)
    x = main.input("x", (1, 16, 16, 4), TensorType.INT8, parameters)
    tensors = [x]
    for i in range(2):
        weights = np.random.default_rng(i).integers(-9, 9, (4, 3, 3, 4)).astype(np.int8)
        filter = main.constant(f"weights{i}", weights, tflm.quantized(0.25))
        bias = main.constant(f"bias{i}", np.zeros(4, np.int32), tflm.quantized(0.125))
        tensors.append(main.tensor(f"y{i}", (1, 16, 16, 4), TensorType.INT8, parameters))
        options = Conv2DOptions(stride_h=1, stride_w=1)
        main.operator(BuiltinOperator.CONV_2D, [tensors[-2], filter, bias], [tensors[-1]], options)
        if i == 0:
            real = main.tensor("real", (1, 16, 16, 4), FLOAT32)
            main.operator(BuiltinOperator.DEQUANTIZE, [tensors[-1]], [real])
            square = main.tensor("square", (1, 16, 16, 4), FLOAT32)
            main.operator(BuiltinOperator.COS, [real], [square])
            tensors.append(main.tensor("again", (1, 16, 16, 4), TensorType.INT8, parameters))
            main.operator(BuiltinOperator.QUANTIZE, [square], [tensors[-1]])
    main.output(tensors[-1])
    return builder.build()


@pytest.mark.parametrize("accelerator", ["ethos-u55-128", "ethos-u85-256"])
def test_what_vela_compiles_is_sound_and_can_be_measured(tmp_path: Path, accelerator: str) -> None:
    pytest.importorskip("ethosu.vela", reason="Arm's compiler for Ethos-U, package ethos-u-vela")
    source = tmp_path / "net.tflite"
    source.write_bytes(convolutions())
    options = ["--accelerator-config", accelerator, "--output-dir", str(tmp_path)]
    vela = "import sys; from ethosu.vela.vela import main; sys.exit(main(sys.argv[1:]))"
    subprocess.run([sys.executable, "-c", vela, str(source), *options], check=True, capture_output=True)
    data = (tmp_path / "net_vela.tflite").read_bytes()
    assert tflm.verify(data) == []
    model = tflm.Model(data)
    names = [model.operator_name(operator) for operator in model.subgraphs[0].operators or ()]
    assert names.count("ethos-u") == 2
    assert set(names) > {"ethos-u", "COS"}
    measured = tflm.measure_arena(model, tflm.AllOpsResolver())
    resolver = tflm.AllOpsResolver()
    driven = tflm.MicroMutableOpResolver(len(set(names)))
    for name in set(names):
        driven.add(tflm.ethos_u(lambda *_: None) if name == "ethos-u" else REGISTRATIONS[name])
    interpreter = tflm.MicroInterpreter(model, driven, bytearray(measured.minimum_arena_bytes))
    interpreter.allocate_tensors()
    interpreter.invoke()
    with pytest.raises(tflm.OperatorError, match="needs a driver"):
        tflm.MicroInterpreter(model, resolver, bytearray(1 << 17)).allocate_tensors()


def test_an_opaque_operator_is_trusted_with_its_own_tensors_only() -> None:
    """Its output may overlap its input, even if that is read later, but no tensor that other operators still need."""
    builder = tflm.ModelBuilder()
    main = builder.subgraph()
    x = main.input("x", (4,), FLOAT32)
    a, b, c, y = (main.tensor(name, (4,), FLOAT32) for name in "abcy")
    main.operator(BuiltinOperator.NEG, [x], [a])
    main.operator(BuiltinOperator.NEG, [x], [b])
    main.operator("somebody's own", [a], [c])
    main.operator(BuiltinOperator.ADD_N, [a, b, c], [y])
    main.output(y)
    model = builder.build()
    assert tflm.verify(planned(model, [64, 0, 16, 0, 32])) == []
    (finding,) = tflm.verify(planned(model, [64, 0, 16, 16, 32]))
    assert "tensor 2 ('b') and tensor 3 ('c')" in finding.reason


def test_scratch_counts_and_a_library_of_kernels_may_have_an_order_of_its_own() -> None:
    """The allowed overlaps may be those of another library."""
    model = tflm.Model(sums(tflm.ModelBuilder())).root
    places = {(0, 0): Place(0, 16), (0, 1): Place(16, 16), (0, 2): Place(32, 16), (0, 3): Place(48, 16)}
    assert list(lost_values(model, places)) == []
    lost, *_ = lost_values(model, places, scratch={(0, 1): [Place(16, 4)]})
    assert (lost.tensor, lost.writer) == ("tensor 1 ('a')", "a scratch buffer")
    overlapping = {**places, (0, 3): Place(32, 16)}
    assert list(lost_values(model, overlapping)) == []
    assert list(lost_values(model, overlapping, overlaps={"ADD": lambda operator, input: range(0)})) != []


@pytest.mark.parametrize("scales", [[0.25], [0.25, 0.5]], ids=["one scale", "a scale for each row"])
def test_a_product_without_an_output_scale_is_what_it_is_in_tflm(oracle: Oracle, scales: list[float]) -> None:
    builder = tflm.ModelBuilder()
    main = builder.subgraph()
    x = main.input("x", (1, 4), TensorType.INT8, tflm.quantized(0.5))
    weights = main.constant("w", np.arange(8, dtype=np.int8).reshape(2, 4), tflm.quantized(scales))
    y = main.tensor("y", (1, 2), TensorType.INT8)
    main.operator(BuiltinOperator.FULLY_CONNECTED, [x, weights], [y], FullyConnectedOptions())
    main.output(y)
    data = builder.build()
    invocations = [[np.array([[1, -2, 3, 100]], np.int8)]]
    ((answer,),), ((expected,),) = run(data, invocations), oracle.run(data, invocations)
    assert np.array_equal(answer, expected)


def test_a_variable_whose_first_value_was_cleared_is_odd_and_runs(oracle: Oracle) -> None:
    """TFLM's own model transforms produce this: the value that CALL_ONCE assigns has no bytes."""
    builder = tflm.ModelBuilder()
    main = builder.subgraph()
    x, y = main.input("x", (4,), FLOAT32), main.tensor("y", (4,), FLOAT32)
    handle, value = main.tensor("handle", (1,), TensorType.RESOURCE), main.tensor("value", (4,), FLOAT32)
    names = VarHandleOptions(container="", shared_name="v")
    main.operator(BuiltinOperator.CALL_ONCE, [], [], CallOnceOptions(init_subgraph_index=1))
    main.operator(BuiltinOperator.VAR_HANDLE, [], [handle], names)
    main.operator(BuiltinOperator.ASSIGN_VARIABLE, [handle, x], [])
    main.operator(BuiltinOperator.READ_VARIABLE, [handle], [value])
    main.operator(BuiltinOperator.ADD, [x, value], [y])
    main.output(y)
    first = builder.subgraph("first")
    initial, own = first.tensor("initial", (4,), FLOAT32), first.tensor("own", (1,), TensorType.RESOURCE)
    first.operator(BuiltinOperator.VAR_HANDLE, [], [own], names)
    first.operator(BuiltinOperator.ASSIGN_VARIABLE, [own, initial], [])
    data = builder.build()
    assert [finding.level for finding in tflm.verify(data)] == ["warning"]
    invocations = [[np.arange(4, dtype=np.float32)], [np.ones(4, np.float32)]]
    for answers, expected in zip(run(data, invocations), oracle.run(data, invocations)):
        assert_close(answers, expected)
