"""Limits and counts of small parts on both sides: scratch buffers, a cached description, costs, words of codes."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from checked_program import CheckedProgram, needs_compiler
from differential import run
from hypothesis import given
from hypothesis import strategies as st
from models import FLOAT32, INT8, INT16
from oracle import Oracle
from reference_kernels import ReferenceKernels, plan

import tflm
from tflm.compiler import host
from tflm.kernels.reference import decode
from tflm.kernels.reference.decode import Encoded, huffman_codes
from tflm.memory.tensor import TfLiteEvalTensor, TfLiteTensor
from tflm.rewriting.compression.encodings import smallest_encoding
from tflm.schedule.call_checker import values_lost_in_calls
from tflm.schedule.operator_costs import MEASURED_COPIES, _difference
from tflm.schema import (
    BuiltinOperator,
    FullyConnectedOptions,
    IfOptions,
    ModelBuilder,
    SVDFOptions,
    TensorType,
    quantized,
)

# --- Scratch buffers -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("counts", [(12, 12), (0, 12), (12, 1, 12), (7, 7), (13, 0), (0, 13), (12, 13)])
def test_each_operator_may_ask_for_twelve_scratch_buffers(counts: tuple[int, ...]) -> None:
    main = ModelBuilder().subgraph()
    x, resolver = main.input("x", (1, 4), FLOAT32), tflm.AllOpsResolver()

    def registration(name: str, count: int) -> tflm.Registration:
        def prepare(context: tflm.KernelContext, node: tflm.Node) -> None:
            for _ in range(count):
                context.request_scratch_buffer_in_arena(16)

        return tflm.Registration(name, prepare=prepare, invoke=lambda context, node: None)

    for i, count in enumerate(counts):
        y = main.tensor(f"y{i}", (1, 4), FLOAT32)
        main.operator(f"Asks{i}", [x], [y])
        resolver.add_custom(registration(f"Asks{i}", count))
        x = y
    main.output(x)
    model = tflm.Model(main.builder.build())
    if max(counts) <= 12:
        measured = tflm.measure_arena(model, resolver)
        assert sum(buffer.kind == "scratch" for buffer in measured.buffers) == sum(counts)
    else:
        with pytest.raises(tflm.ArenaError, match="12 scratch buffers"):
            tflm.measure_arena(model, resolver)


# --- A cached description of this machine ----------------------------------------------------------------------------

GOOD = b"x86_64-linux\nznver3\n+avx,-sse4a"


@pytest.mark.parametrize(
    ("content", "is_used"),
    [
        (GOOD, True),
        (None, False),
        (b"", False),
        (GOOD + b"\nmore", False),
        (GOOD.rpartition(b"\n")[0], False),
        (b"\nznver3\n+avx", False),
        (b"x86_64-linux\n\n+avx", False),
        (b"x86_64-linux\nznver3\n", False),
        (GOOD.replace(b"avx", b"\xff\xfe"), False),
    ],
)
def test_a_damaged_description_of_the_machine_is_not_used(
    monkeypatch: pytest.MonkeyPatch, content: bytes | None, is_used: bool
) -> None:
    monkeypatch.setattr("tflm.compiler.host.cached_files.read", lambda name: content)
    found = host._read("host")
    assert found == (tuple(GOOD.decode().split("\n")) if is_used else None)


# --- What another copy of an operator adds ---------------------------------------------------------------------------


@given(st.integers(0, 500), st.integers(0, 300))
def test_what_a_copy_adds_is_rounded_up(before: int, growth: int) -> None:
    def measure(copies: Any) -> Any:
        return SimpleNamespace(tail_bytes=before + (growth if copies else 0))

    def with_copies(count: int) -> Any:
        return count

    each = _difference(with_copies, measure)
    assert (each - 1) * MEASURED_COPIES < growth <= each * MEASURED_COPIES


# --- Words of Huffman codes ------------------------------------------------------------------------------------------


def encoded(values: np.ndarray[Any, Any]) -> Encoded:
    """The Huffman codes of values."""
    main = ModelBuilder().subgraph()
    main.output(main.constant("c", values, quantized(0.5)))
    model = tflm.Model(main.builder.build())
    (table,) = model.subgraphs[0].tensors or ()
    tensor = TfLiteTensor(table, TfLiteEvalTensor(model, table))
    found = smallest_encoding(tensor, (decode.HUFFMAN,))
    assert found is not None
    return Encoded(found.codes, found.metadata, "c", INT8, values.shape, (0,), False)


@pytest.mark.parametrize("bits", [1, 2, 4])
@pytest.mark.parametrize("count", [1, 7, 8, 9, 16, 31, 32, 33, 64])
def test_codes_of_equal_lengths_are_read_from_as_many_words_as_they_fill(bits: int, count: int) -> None:
    """A table with as many bits as the codes needs no bit more than theirs."""
    values = np.arange(count, dtype=np.int64) % 2**bits - 3
    if len(set(values.tolist())) < 2**bits:
        return
    found = huffman_codes(encoded(values.astype(np.int8)))
    assert found.symbols == [int(value) & 0xFF for value in values]
    if count % 2**bits == 0:  # each value is as frequent as the others
        assert found.end == bits * count
        assert found.words - found.put_back_words == -(-found.end // 32)
        assert (found.indices, found.put_back) == (count, 0)


# --- Plans of C programs ---------------------------------------------------------------------------------------------


def state_in_a_branch(other: int = 2) -> tflm.Model:
    """An IF whose first branch has a state, before another operator.

    Args:
        other: the subgraph of the other branch; 1 for the same.
    """
    builder = ModelBuilder()
    main, scale = builder.subgraph(), quantized(0.5)
    condition, x = main.input("condition", (1,), TensorType.BOOL), main.input("x", (1, 64), INT8, scale)
    a, y = main.tensor("a", (1, 4), INT8, scale), main.tensor("y", (1, 4), INT8, scale)
    main.operator(BuiltinOperator.IF, [condition, x], [a], IfOptions(then_subgraph_index=1, else_subgraph_index=other))
    main.operator(BuiltinOperator.RELU, [a], [y])
    main.output(y)
    branch = builder.subgraph("branch")
    x = branch.input("x", (1, 64), INT8, scale)
    features = branch.constant("features", np.ones((4, 64), np.int8), quantized(0.01))
    time = branch.constant("time", np.ones((4, 2), np.int16), quantized(0.01))
    bias = branch.constant("bias", np.zeros(4, np.int32), quantized(0.001))
    state = branch.tensor("state", (1, 8), INT16, quantized(0.1), is_variable=True)
    y = branch.tensor("y", (1, 4), INT8, scale)
    branch.operator(BuiltinOperator.SVDF, [x, features, time, bias, state], [y], SVDFOptions(rank=1))
    branch.output(y)
    plain = builder.subgraph("plain")
    x, y = plain.input("x", (1, 64), INT8, scale), plain.tensor("y", (1, 4), INT8, scale)
    weights = plain.constant("weights", np.ones((4, 64), np.int8), quantized(0.01))
    plain.operator(BuiltinOperator.FULLY_CONNECTED, [x, weights, -1], [y], FullyConnectedOptions())
    plain.output(y)
    return tflm.Model(builder.build())


@needs_compiler
@pytest.mark.parametrize("other", [1, 2])
def test_c_programs_keep_the_state_of_a_branch(tmp_path: Path, other: int) -> None:
    """The other branch leaves it as it is, or is the same subgraph."""
    model, rng = state_in_a_branch(other), np.random.default_rng(0)
    steps = [[np.array([i % 3 > 0]), rng.integers(-128, 128, (1, 64)).astype(np.int8)] for i in range(8)]
    found = CheckedProgram(tflm.compile_model(model, "net"), tmp_path).run(steps)
    for ours, theirs in zip(found, run(bytes(model.data), steps), strict=True):
        np.testing.assert_array_equal(ours[0], theirs[0])


def test_a_state_of_another_subgraph_may_not_be_overwritten() -> None:
    model = state_in_a_branch()
    planned, kernels = plan(model), ReferenceKernels(model)
    places = {key: i for i, buffer in enumerate(planned.buffers) for key, _ in buffer.tensors}
    names = {(i, j): t.name for i, s in enumerate(model.subgraphs) for j, t in enumerate(s.tensors or ())}
    (state,) = (places[key] for key, name in names.items() if name == "state" and key in places)
    assert not list(values_lost_in_calls(model, planned, kernels))
    for key, place in places.items():
        if place != state:
            buffers = list(planned.buffers)
            buffers[place] = buffers[place]._replace(offset=buffers[state].offset, memory=buffers[state].memory)
            assert list(values_lost_in_calls(model, planned._replace(buffers=tuple(buffers)), kernels)), names[key]


# --- Kernels ---------------------------------------------------------------------------------------------------------

ENGINES = pytest.mark.parametrize("engine", [{}, {"delegates": ()}], ids=["compiled", "numpy"])


@ENGINES
@pytest.mark.parametrize("count", [2, 3, 5])
def test_a_sum_of_floats_has_each_of_them_once(engine: dict[str, Any], count: int) -> None:
    main = ModelBuilder().subgraph()
    tensors = [main.input(f"x{i}", (1, 3), FLOAT32) for i in range(count)]
    y = main.tensor("y", (1, 3), FLOAT32)
    main.operator(BuiltinOperator.ADD_N, tensors, [y])
    main.output(y)
    values = [np.full((1, 3), 10.0**i, np.float32) for i in range(count)]
    ((found,),) = run(main.builder.build(), [values], **engine)
    assert found.tolist() == [[float("1" * count)] * 3]


@ENGINES
@pytest.mark.parametrize("shape", [(1, 3), (3, 1), (1, 1), (0, 3), (3, 0)])
def test_elements_are_gathered_from_dimensions_of_one_and_of_none_refused(
    engine: dict[str, Any], shape: tuple[int, int]
) -> None:
    main = ModelBuilder().subgraph()
    x, indices = main.input("x", shape, FLOAT32), main.input("indices", (2, 2), TensorType.INT32)
    y = main.tensor("y", (2,), FLOAT32)
    main.operator(BuiltinOperator.GATHER_ND, [x, indices], [y])
    main.output(y)
    values = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    last = np.array(shape, np.int32) - 1
    if 0 in shape:
        with pytest.raises(tflm.TflmError):
            run(main.builder.build(), [[values, np.zeros((2, 2), np.int32)]], **engine)
    else:
        ((found,),) = run(main.builder.build(), [[values, np.array([last * 0, last])]], **engine)
        assert found.tolist() == [values.reshape(-1)[0], values.reshape(-1)[-1]]


@ENGINES
@pytest.mark.parametrize("scales", [(0.1, 0.1003), (0.5, 0.01), (0.013, 0.0131)])
def test_all_pairs_of_two_scales_compare_as_in_tflm(oracle: Oracle, engine: dict[str, Any], scales: Any) -> None:
    main = ModelBuilder().subgraph()
    x, z = (
        main.input(name, shape, INT8, quantized(scale, 3))
        for name, shape, scale in zip("xz", [(256, 1), (1, 256)], scales)
    )
    for code in (BuiltinOperator.LESS, BuiltinOperator.EQUAL):
        y = main.tensor(code.name, (256, 256), TensorType.BOOL)
        main.operator(code, [x, z], [y])
        main.output(y)
    values = np.arange(-128, 128).astype(np.int8)
    inputs = [[values.reshape(256, 1), values.reshape(1, 256)]]
    model = main.builder.build()
    for ours, theirs in zip(run(model, inputs, **engine)[0], oracle.run(model, inputs)[0], strict=True):
        np.testing.assert_array_equal(ours, theirs)
