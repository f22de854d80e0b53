"""LiteRT's placement of tensors: as observed on real models, and as a restatement of its rules."""

from __future__ import annotations

import itertools
import json
import math
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import tflm
from tflm.memory.arena_planner import Temporary, plan_as_tflite
from tflm.memory.buffer import Place
from tflm.schema import (
    AddOptions,
    BuiltinOperator,
    ConcatenationOptions,
    ModelBuilder,
    ReshapeOptions,
    SoftmaxOptions,
    SplitVOptions,
    TensorType,
    VarHandleOptions,
    quantized,
)


def test_real_models_are_laid_out_as_recorded(corpus: Path) -> None:
    lines = [json.loads(line) for line in (corpus / "golden" / "arena_planner.jsonl").read_text().splitlines()]
    assert len(lines) == 58
    for recorded in lines:
        model = tflm.Model.from_file(corpus / "models" / f"{recorded['model']}.tflite")
        sizes = {tensor: size for tensor, size, _ in recorded["rw"]}
        temporaries = [Temporary(node, tensor, sizes.get(tensor, 0)) for node, tensor in recorded["temporaries"]]
        plan = plan_as_tflite(model, recorded["subgraph"], temporaries=temporaries)
        found = {tensor: (place.bytes, place.offset) for tensor, place in plan.arena.items()}
        persistent = {tensor: (place.bytes, place.offset) for tensor, place in plan.persistent_arena.items()}
        expected = {tensor: (size, offset) for tensor, size, offset in recorded["rw"]}
        assert persistent == {tensor: (size, offset) for tensor, size, offset in recorded["persistent"]}
        assert found == expected, recorded["model"]


@st.composite
def graphs(draw: Callable[[Any], Any]) -> bytes:
    """Chains and joins of operators that may share an input's place, and of others."""
    builder = ModelBuilder()
    main = builder.subgraph()
    sizes = draw(st.lists(st.integers(1, 60), min_size=1, max_size=3, unique=True))
    made = [(main.input(f"x{i}", (size,), TensorType.FLOAT32), size) for i, size in enumerate(sizes)]
    kinds = st.sampled_from(["ADD", "RELU", "RESHAPE", "SOFTMAX", "FILL"])
    for i, kind in enumerate(draw(st.lists(kinds, min_size=1, max_size=9))):
        tensor, size = draw(st.sampled_from(made))
        same = [other for other, its in made if its == size]
        grown = size if kind != "FILL" else draw(st.integers(1, 60))
        y = main.tensor(f"y{i}", (grown,), TensorType.FLOAT32)
        if kind == "ADD":
            main.operator(BuiltinOperator.ADD, [tensor, draw(st.sampled_from(same))], [y], AddOptions())
        elif kind == "RELU":
            main.operator(BuiltinOperator.RELU, [tensor], [y])
        elif kind == "SOFTMAX":
            main.operator(BuiltinOperator.SOFTMAX, [tensor], [y], SoftmaxOptions(beta=1.0))
        elif kind == "RESHAPE":
            main.operator(BuiltinOperator.RESHAPE, [tensor], [y], ReshapeOptions(new_shape=(size,)))
        else:  # something of another size
            zero = main.constant(f"p{i}", [0, 0])
            main.operator("mine", [tensor, zero], [y])
        made.append((y, grown))
    main.output(
        *{draw(st.sampled_from(made))[0] for _ in range(draw(st.integers(1, 2)))} - set(main.table.inputs or ())
    )
    return builder.build()


def restated(model: tflm.Model) -> dict[int, int]:
    """Offsets by the rules as they are told: who lives when, who shares, in which order, into which gap."""
    main = model.subgraphs[0]
    operators, inputs, outputs = main.operators or [], set(main.inputs or ()), set(main.outputs or ())
    tensors = main.tensors or []
    size = {i: 4 * math.prod(tensor.shape or ()) for i, tensor in enumerate(tensors)}
    reads = {i: [n for n, op in enumerate(operators) for t in op.inputs or () if t == i] for i in size}
    needed = Counter({i: len(reads[i]) + (i in inputs) + (i in outputs) for i in size})
    home = {i: i for i in size}
    for operator in operators:
        name, (out,) = model.operator_name(operator), operator.outputs or ()
        for source in (operator.inputs or ())[: {"ADD": 2, "SOFTMAX": 1, "RESHAPE": 1}.get(name, 0)]:
            if source in inputs or out in outputs:
                continue
            if name == "RESHAPE":
                home[out] = home[source]
            elif size[source] == size[out] > 4 and needed[source] <= 1:
                if needed[home[source]] <= 1:
                    home[out] = home[source]
                break
    made = {tensor: n for n, operator in enumerate(operators) for tensor in operator.outputs or ()}
    lives = {}
    for tensor in (*inputs, *made):
        uses = [n for other, its in home.items() if its == tensor for n in reads[other]]
        kept = tensor in inputs | outputs or not uses
        if home[tensor] == tensor:
            lives[tensor] = (made.get(tensor, 0), math.inf if kept else max(uses))
    ranks = [(size[tensor], lives[tensor][0]) for tensor in lives if lives[tensor] != (0, math.inf)]
    assume(len(set(ranks)) == len(ranks))
    order = sorted(lives, key=lambda t: (0, t, 0) if lives[t] == (0, math.inf) else (1, -size[t], lives[t][0]))
    offsets: dict[int, int] = {}
    for tensor in order:
        begin, end = lives[tensor]
        others = sorted(
            (offsets[other], offsets[other] + size[other])
            for other in offsets
            if lives[other][0] <= end and lives[other][1] >= begin
        )
        top = 0
        best: tuple[float, int | None] = (math.inf, None)
        for low, high in others:
            start = -(-top // 64) * 64
            if start + size[tensor] <= low and low - start < best[0]:
                best = (low - top, start)
            top = max(top, high)
        offsets[tensor] = -(-top // 64) * 64 if best[1] is None else best[1]
    return {tensor: offsets[home[tensor]] for tensor in (*inputs, *made)}


@given(data=graphs())
def test_any_graph_is_laid_out_by_the_rules(data: bytes) -> None:
    model = tflm.Model(data)
    plan = plan_as_tflite(model)
    assert {tensor: place.offset for tensor, place in plan.arena.items()} == restated(model)


@st.composite
def streaming_graphs(draw: Callable[[Any], Any]) -> bytes:
    """Resource variables, and splits whose halves have one size and one first use."""
    builder = ModelBuilder()
    main = builder.subgraph()
    values = [main.input("x", (1, 64), TensorType.INT8, quantized(0.5))]
    for i in range(draw(st.integers(1, 5))):
        handle = main.tensor(f"handle{i}", (), TensorType.RESOURCE)
        values.append(main.tensor(f"value{i}", (1, 64), TensorType.INT8, quantized(0.5)))
        main.operator(BuiltinOperator.VAR_HANDLE, [], [handle], VarHandleOptions(container="", shared_name=f"{i}"))
        main.operator(BuiltinOperator.ASSIGN_VARIABLE, [handle, values[0]], [])
        main.operator(BuiltinOperator.READ_VARIABLE, [handle], [values[-1]])
    sizes, axis = main.constant("sizes", np.array([32, 32], np.int32)), main.constant("axis", np.array(1, np.int32))
    for i, splits in enumerate(draw(st.lists(st.booleans(), min_size=4, max_size=20))):
        y = main.tensor(f"y{i}", (1, 64), TensorType.INT8, quantized(0.5))
        source = draw(st.sampled_from(values[-4:]))
        if splits:
            halves = [main.tensor(f"half{i}_{j}", (1, 32), TensorType.INT8, quantized(0.5)) for j in range(2)]
            main.operator(BuiltinOperator.SPLIT_V, [source, sizes, axis], halves, SplitVOptions(num_splits=2))
            main.operator(BuiltinOperator.CONCATENATION, halves, [y], ConcatenationOptions(axis=1))
        else:
            main.operator(BuiltinOperator.ADD, [source, draw(st.sampled_from(values))], [y], AddOptions())
        values.append(y)
    main.output(values[-1])
    return builder.build()


@given(data=streaming_graphs())
def test_models_with_resource_variables_are_laid_out_as_litert_does(data: bytes) -> None:
    """Distances between the tensors' addresses in LiteRT itself."""
    litert = pytest.importorskip("ai_edge_litert.interpreter", reason="ai-edge-litert is not installed")
    resolver = litert.OpResolverType.BUILTIN_REF
    interpreter = litert.Interpreter(model_content=data, experimental_op_resolver_type=resolver, num_threads=1)
    interpreter.allocate_tensors()
    indices = [detail["index"] for detail in interpreter.get_tensor_details() if detail["dtype"] is np.int8]
    addresses = {i: interpreter.tensor(i)().__array_interface__["data"][0] for i in indices}
    plan = plan_as_tflite(tflm.Model(data)).arena
    assert {i: addresses[i] - addresses[0] for i in indices} == {i: plan[i].offset - plan[0].offset for i in indices}


@given(data=graphs())
def test_with_all_tensors_preserved_none_shares_memory(data: bytes) -> None:
    places = sorted(plan_as_tflite(tflm.Model(data), preserve_all_tensors=True).arena.values())
    assert all(place.offset % 64 == 0 for place in places)
    assert all(a.offset + a.bytes <= b.offset for a, b in itertools.pairwise(places))


@pytest.mark.parametrize(
    ("upper", "wanted", "place"),
    [(640, 64, "low"), (640, 640, "low"), (576, 64, "high"), (576, 576, "high"), (576, 577, "low")],
)
def test_a_tensor_goes_to_the_smallest_gap_and_to_the_lowest_of_equals(upper: int, wanted: int, place: str) -> None:
    builder = ModelBuilder()
    main = builder.subgraph()
    x = main.input("x", (64,), TensorType.INT8)
    sizes = {"low": 640, "between": 640, "high": upper, "above": upper}
    made = {name: main.tensor(name, (size,), TensorType.INT8) for name, size in sizes.items()}
    for tensor in made.values():
        main.operator("make", [x], [tensor])
    d, y = main.tensor("d", (wanted,), TensorType.INT8), main.tensor("y", (1,), TensorType.INT8)
    main.operator("read", [made["low"], made["high"]], [])
    main.operator("make", [x], [d])
    main.operator("read", [d, made["between"], made["above"]], [y])
    main.output(y)
    arena = plan_as_tflite(tflm.Model(builder.build())).arena
    assert [arena[made[name]].offset for name in sizes] == [64, 704, 1344, 1344 + upper]
    assert arena[d].offset == arena[made[place]].offset


def test_a_constant_has_no_place_though_it_is_an_input_and_an_output() -> None:
    main = (builder := ModelBuilder()).subgraph()
    constant, y = main.constant("c", np.ones(4, np.float32)), main.tensor("y", (4,), TensorType.FLOAT32)
    main.operator(BuiltinOperator.SIN, [constant], [y])
    main.table.inputs = (constant,)
    main.output(constant, y)
    assert plan_as_tflite(tflm.Model(builder.build())).arena == {y: Place(0, 16)}


def test_an_interpreter_with_these_places_gives_the_same_answers(corpus: Path) -> None:
    for name in ("kws_ref_model", "okay_nabu_v2", "keyword_scrambled"):
        model = tflm.Model.from_file(corpus / "models" / f"{name}.tflite")
        answers = []
        for planner in ("greedy", "tflite"):
            interpreter = tflm.MicroInterpreter(
                model, tflm.AllOpsResolver(), bytearray(1 << 20), planner=planner, delegates=[]
            )
            interpreter.allocate_tensors()
            for _ in range(2):
                interpreter.input(0).data[:] = 7
                interpreter.invoke()
            answers.append(interpreter.output(0).data.tolist())
            if planner == "tflite":
                tensors = [buffer for buffer in interpreter.planned_buffers() if buffer.kind == "tensor"]
                assert {buffer.offset % 64 for buffer in tensors} == {0}
        assert answers[0] == answers[1]


def test_a_measurement_takes_the_same_planner() -> None:
    builder = ModelBuilder()
    main = builder.subgraph()
    x = main.input("x", (100,), TensorType.FLOAT32)
    y, z = (main.tensor(name, (100,), TensorType.FLOAT32) for name in "yz")
    main.operator(BuiltinOperator.RELU, [x], [y])
    main.operator(BuiltinOperator.SOFTMAX, [y], [z], SoftmaxOptions(beta=1.0))
    main.output(z)
    model = tflm.Model(builder.build())
    measured = tflm.measure_arena(model, tflm.AllOpsResolver(), planner="tflite")
    assert [buffer.offset for buffer in measured.buffers] == [0, 448, 896]
    with pytest.raises(tflm.ArgumentError, match="tflite"):
        tflm.measure_arena(model, tflm.AllOpsResolver(), planner="lite")
