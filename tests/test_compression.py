"""Models with compressed weights: the same answers here and in TFLM, in the predicted arena."""

from __future__ import annotations

import bisect
import itertools
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from differential import assert_close, measured_figures, printed_figures
from hypothesis import example, given, settings
from hypothesis import strategies as st
from models import FLOAT32, INT8, INT16, INT32, INT64
from oracle import Oracle
from test_cli import figures, refusal, run

import tflm
from tflm.graph import Graph
from tflm.kernels.reference import decode
from tflm.memory.tensor import TfLiteEvalTensor, TfLiteTensor
from tflm.rewriting.compression.encodings import smallest_encoding
from tflm.rewriting.compression.prefix_codes import huffman_code, look_up_tables, packed_codes
from tflm.rewriting.compression.tensor_choice import (
    Candidate,
    Costs,
    groups_of,
    largest_saving,
    largest_saving_in,
    options_of,
    smallest_arena_for,
)
from tflm.rewriting.compression.trials import _file_sizes
from tflm.rewriting.verification import random_inputs
from tflm.schema import ActivationFunctionType, BuiltinOperator, ModelBuilder, SubgraphBuilder, TensorType
from tflm.schema.enums import ELEMENT_TYPES
from tflm.schema.options import FullyConnectedOptions, IfOptions, SVDFOptions

SCHEMES = tuple(decode.SCHEMES.values())


def sparse(shape: tuple[int, ...], kept: float, seed: int = 0) -> np.ndarray:
    """Weights of int8 of which a share is not zero."""
    rng = np.random.default_rng(seed)
    return np.where(rng.random(shape) < kept, rng.integers(-127, 128, shape), 0).astype(np.int8)


def layers(weights: list[np.ndarray], shared: bool = False) -> bytes:
    """FULLY_CONNECTED layers one after the other; the last may read the first one's weights again."""
    builder = ModelBuilder()
    main = builder.subgraph()
    x = main.input("x", (1, weights[0].shape[1]), INT8, tflm.quantized(0.5, 3))
    constants = [main.constant(f"w{i}", each, tflm.quantized(0.01, 0)) for i, each in enumerate(weights)]
    for i, w in enumerate([*constants, *(constants[:1] if shared else [])]):
        rows = weights[i % len(weights)].shape[0]
        y = main.tensor(f"y{i}", (1, rows), INT8, tflm.quantized(0.5, -1))
        bias = main.constant(f"b{i}", np.arange(rows, dtype=np.int32), tflm.quantized(0.005, 0))
        main.operator(BuiltinOperator.FULLY_CONNECTED, [x, w, bias], [y], FullyConnectedOptions())
        x = y
    main.output(x)
    return builder.build()


# --- Encodings -------------------------------------------------------------------------------------------------------


@st.composite
def constants(draw: Any) -> TfLiteTensor:
    """Constants of each type that DECODE writes, with channels along any dimension, of few values or many."""
    type = draw(st.sampled_from([INT8, INT8, INT16, INT32, INT64, FLOAT32, TensorType.BOOL]))
    shape = tuple(draw(st.lists(st.integers(1, 9), min_size=1, max_size=3)))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    dtype = np.dtype(ELEMENT_TYPES[type].dtype)
    table = np.frombuffer(rng.bytes(8 * dtype.itemsize * 200), np.uint8)[: 200 * dtype.itemsize]
    table = rng.integers(0, 2, 200).astype(dtype) if type == TensorType.BOOL else table.view(dtype)
    table = table[: draw(st.sampled_from([1, 2, 3, 9, 130, 200]))]
    dimension = draw(st.integers(0, len(shape) - 1))
    zeros = rng.integers(-3, 4, shape[dimension]).tolist() if type == INT8 else [0] * shape[dimension]
    quantization = draw(
        st.sampled_from([None, tflm.quantized(0.5, zeros[0]), tflm.quantized([0.5] * len(zeros), zeros, dimension)])
    )
    builder = ModelBuilder()
    main = builder.subgraph()
    main.output(main.constant("c", rng.choice(table, shape), quantization))
    model = tflm.Model(builder.build())
    (tensor,) = model.subgraphs[0].tensors or ()
    return TfLiteTensor(tensor, TfLiteEvalTensor(model, tensor))


@given(tensor=constants())
def test_encodings_lose_nothing_and_the_smallest_is_taken(tensor: TfLiteTensor) -> None:
    """`smallest_encoding` decodes each encoding with TFLM_DECODE's kernel, and compares the bytes."""
    best = smallest_encoding(tensor, SCHEMES)
    each = [smallest_encoding(tensor, (scheme,)) for scheme in SCHEMES]
    sizes = [encoding.file_bytes for encoding in each if encoding is not None]
    assert (best is None) == (not sizes)
    assert best is None or best.file_bytes == min(sizes)


def fewest_bits(counts: list[int]) -> int:
    """Bits of an optimal code for symbols that occur so often: one for each symbol below each branch of its tree."""
    left, bits = sorted(counts), 0
    while len(left) > 1:
        both = left.pop(0) + left.pop(0)
        bits += both
        bisect.insort(left, both)
    return bits


@given(counts=st.lists(st.integers(1, 10_000), min_size=1, max_size=300), data=st.data())
def test_huffman_codes_are_optimal_prefix_codes_in_tables_without_repetition(
    counts: list[int], data: st.DataObject
) -> None:
    code = huffman_code(counts)
    lengths = code.lengths.tolist()
    texts = [format(c, f"0{n}b") if n else "" for c, n in zip(code.codes.tolist(), lengths)]
    assert all(not one.startswith(other) for one, other in zip(texts[1:], texts))
    assert len(counts) == 1 or sum(2.0**-n for n in lengths) == 1
    bits = sum(counts[symbol] * n for symbol, n in zip(code.symbols.tolist(), lengths))
    assert bits == fewest_bits(counts)
    tables = look_up_tables(code, list(range(len(counts))), 32)
    symbols = [entry & 0xFFFF for entry in tables.entries if entry >> 31]
    assert sorted(symbols) == sorted(range(len(counts))) or len(counts) == 1
    chosen = np.array(data.draw(st.lists(st.integers(0, len(counts) - 1), min_size=1, max_size=9)))
    length_of = dict(zip(code.symbols.tolist(), lengths))
    words = -(-sum(length_of[symbol] for symbol in chosen.tolist()) // 32)
    assert len(packed_codes(code, chosen)) == 4 * max(words, 1)


def test_equal_elements_take_no_bits() -> None:
    builder = ModelBuilder()
    main = builder.subgraph()
    main.output(main.constant("c", np.full(5000, 9, np.int8), tflm.quantized(0.5)))
    model = tflm.Model(builder.build())
    (tensor,) = model.subgraphs[0].tensors or ()
    encoding = smallest_encoding(TfLiteTensor(tensor, TfLiteEvalTensor(model, tensor)), SCHEMES)
    assert encoding is not None
    assert (encoding.name, len(encoding.codes), len(encoding.metadata)) == ("Huffman", 4, 20)


# --- Models ----------------------------------------------------------------------------------------------------------

KINDS = {
    "look-up table": np.random.default_rng(1).choice(np.array([-90, 3, 5, 77], np.int8), (64, 96)),
    "pruned": sparse((64, 96), 0.1),
    "Huffman": (np.random.default_rng(2).standard_normal((64, 96)) * 6).astype(np.int8),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shared", [False, True])
def test_tflm_gives_the_same_answers_in_the_predicted_arena(oracle: Oracle, kind: str, shared: bool) -> None:
    weights = [KINDS[kind], sparse((96, 64), 0.2)]
    model = layers(weights, shared)
    compressed = tflm.compress(tflm.Model(model), target=tflm.targets.HOST_WHEEL)
    assert [tensor.encoding for tensor in compressed.tensors] == [kind, "pruned"]
    assert compressed.tensors[0].readers == ((0, 2) if shared else (0,))
    assert compressed.saved_bytes > 0.3 * sum(each.size for each in weights)
    rng = np.random.default_rng(3)
    invocations = [random_inputs(compressed.model, rng) for _ in range(3)]
    expected = oracle.run(model, invocations)
    for ours, theirs in zip(oracle.run(compressed.data, invocations), expected, strict=True):
        assert_close(ours, theirs)
    printed = printed_figures(oracle.allocations(compressed.data))
    assert printed == measured_figures(compressed.data)
    assert printed["total"] == compressed.after.arena_used_bytes


@pytest.mark.long
def test_a_person_detector_shrinks_by_120_kilobytes(oracle: Oracle, corpus: Path) -> None:
    model = tflm.Model.from_file(corpus / "models" / "vww_96_int8.tflite")
    compressed = tflm.compress(model, target=tflm.targets.HOST_WHEEL, verify=1)
    assert compressed.saved_bytes >= 120_000
    rng = np.random.default_rng(4)
    invocations = [random_inputs(model, rng) for _ in range(2)]
    for ours, theirs in zip(oracle.run(compressed.data, invocations), oracle.run(bytes(model.data), invocations)):
        assert_close(ours, theirs)
    assert printed_figures(oracle.allocations(compressed.data)) == measured_figures(compressed.data)
    within = tflm.compress(model, target=tflm.targets.HOST_WHEEL, verify=1, ram=compressed.minimum_arena_bytes_before)
    assert within.minimum_arena_bytes <= compressed.minimum_arena_bytes_before
    assert {tensor.name for tensor in within.tensors} == {tensor.name for tensor in compressed.tensors}


@pytest.mark.parametrize("memory", [64 * 96, 64 * 96 + 16, 2 * 64 * 96])
def test_memory_for_decoded_tensors_is_not_in_the_arena(oracle: Oracle, memory: int) -> None:
    target = tflm.targets.HOST_WHEEL
    model = tflm.Model(layers([KINDS["pruned"], sparse((96, 64), 0.2), sparse((32, 96), 0.2)]))
    inside = tflm.compress(model, target=target)
    beside = tflm.compress(model, target=target, decompression_memory=memory)
    assert beside.data == inside.data
    assert beside.minimum_arena_bytes < inside.minimum_arena_bytes - 5000
    printed = printed_figures(oracle.allocations(beside.data, decompression_bytes=memory))
    assert printed["total"] == beside.after.arena_used_bytes
    arena = bytearray(beside.minimum_arena_bytes + tflm.memory.ARENA_ALIGNMENT)
    interpreter = tflm.MicroInterpreter(
        beside.model, tflm.AllOpsResolver(), arena, target=target, decompression_memory=bytearray(memory)
    )
    interpreter.allocate_tensors()
    assert interpreter.arena_used_bytes() == beside.after.arena_used_bytes


def test_a_file_grows_by_the_code_and_by_each_operator() -> None:
    builder = ModelBuilder()
    builder.subgraph().input("x", (1,), FLOAT32)
    model = tflm.Model(builder.build())
    sizes = _file_sizes(model)
    for count in (0, 1, 2, 3, 7):
        graph = Graph(model)
        graph.operators = [graph.make_custom_operator(decode.TFLM_DECODE.name, [], []) for _ in range(count)]
        assert len(graph.build()) == sizes.plain + bool(count) * sizes.code + count * sizes.operator


def test_a_model_with_nothing_to_gain_is_unchanged() -> None:
    model = layers([np.random.default_rng(0).integers(-128, 128, (16, 16)).astype(np.int8)])
    compressed = tflm.compress(tflm.Model(model))
    assert compressed.data == model
    assert (compressed.tensors, compressed.needed_operators, compressed.saved_bytes) == ((), (), 0)
    assert "in fewer bytes: the model is unchanged" in compressed._repr_html_()


def branches() -> bytes:
    """FULLY_CONNECTED, then IF with a layer of its own in each branch; all weights are sparse."""
    builder = ModelBuilder()
    main = builder.subgraph()
    is_first = main.input("is_first", (1,), TensorType.BOOL)
    x = main.input("x", (1, 96), INT8, tflm.quantized(0.5, 3))
    y, z = (main.tensor(name, (1, 96), INT8, tflm.quantized(0.5, 3)) for name in "yz")
    dense(main, x, y, seed=1)
    main.operator(BuiltinOperator.IF, [is_first, y], [z], IfOptions(then_subgraph_index=1, else_subgraph_index=2))
    main.output(z)
    for seed in (2, 3):
        branch = builder.subgraph(f"branch {seed}")
        x = branch.input("x", (1, 96), INT8, tflm.quantized(0.5, 3))
        y = branch.tensor("y", (1, 96), INT8, tflm.quantized(0.5, 3))
        dense(branch, x, y, seed)
        branch.output(y)
    return builder.build()


def dense(subgraph: SubgraphBuilder, x: int, y: int, seed: int) -> None:
    """A layer with sparse weights."""
    weights = subgraph.constant(f"w{seed}", sparse((96, 96), 0.1 * seed, seed), tflm.quantized(0.01, 0))
    subgraph.operator(BuiltinOperator.FULLY_CONNECTED, [x, weights, -1], [y], FullyConnectedOptions())


@pytest.mark.parametrize("memory", [0, 96 * 96])
def test_constants_of_all_subgraphs_are_compressed(oracle: Oracle, memory: int) -> None:
    target, model = tflm.targets.HOST_WHEEL, branches()
    compressed = tflm.compress(tflm.Model(model), target=target, decompression_memory=memory)
    assert [(tensor.subgraph, tensor.name, tensor.readers) for tensor in compressed.tensors] == [
        (0, "w1", (0,)),
        (1, "w2", (0,)),
        (2, "w3", (0,)),
    ]
    rng = np.random.default_rng(3)
    invocations = [
        [np.array([first]), rng.integers(-128, 128, (1, 96)).astype(np.int8)] for first in (True, False, True)
    ]
    for ours, theirs in zip(oracle.run(compressed.data, invocations), oracle.run(model, invocations), strict=True):
        assert_close(ours, theirs)
    printed = printed_figures(oracle.allocations(compressed.data, decompression_bytes=memory))
    assert printed["total"] == compressed.after.arena_used_bytes
    within = tflm.compress(tflm.Model(model), target=target, ram=compressed.minimum_arena_bytes)
    assert within.minimum_arena_bytes <= compressed.minimum_arena_bytes


def test_a_compressed_model_is_compressed_further(path: Path) -> None:
    """With a limit, some constants stay uncompressed; a second run without a limit compresses them."""
    first, second = path.with_name("first.tflite"), path.with_name("second.tflite")
    size = path.stat().st_size
    assert len(figures("compress", path, "-o", first, "--target", "cortex-m4", "--flash", size - 1000)["tensors"]) == 1
    again = figures("compress", first, "-o", second, "--target", "cortex-m4")
    assert len(again["tensors"]) == len(again["decoding_instructions"]) == 1
    assert second.stat().st_size < first.stat().st_size


def svdf() -> bytes:
    """An SVDF with sparse features."""
    builder = ModelBuilder()
    main = builder.subgraph()
    x = main.input("x", (1, 64), INT8, tflm.quantized(0.5, 3))
    features = main.constant("features", sparse((64, 64), 0.1), tflm.quantized(0.01, 0))
    time = main.constant("time", np.arange(128, dtype=np.int16).reshape(64, 2), tflm.quantized(0.01, 0))
    bias = main.constant("bias", np.arange(64, dtype=np.int32), tflm.quantized(0.001, 0))
    state = main.tensor("state", (1, 128), INT16, tflm.quantized(0.1, 0), is_variable=True)
    y = main.tensor("y", (1, 64), INT8, tflm.quantized(0.5, -1))
    options = SVDFOptions(rank=1, fused_activation_function=ActivationFunctionType.RELU)
    main.operator(BuiltinOperator.SVDF, [x, features, time, bias, state], [y], options)
    main.output(y)
    return builder.build()


def test_weights_that_a_kernel_library_needs_as_constants_stay_constants() -> None:
    """With Helium, CMSIS-NN sums the features of SVDF in its prepare phase."""
    model = tflm.Model(svdf())
    parts = {
        part: [tensor.name for tensor in tflm.compress(model, target=target, kernels="cmsis-nn").tensors]
        for part in ("cortex-m4", "cortex-m55")
        if (target := tflm.targets.by_name(part))
    }
    assert parts == {"cortex-m4": ["features"], "cortex-m55": []}


def test_releases_without_decode_are_refused_and_old_ones_get_what_they_decode() -> None:
    model = tflm.Model(layers([KINDS["Huffman"], KINDS["pruned"].T]))
    with pytest.raises(tflm.RewriteError, match=r"of 2025-10-16.* lacks TFLM_DECODE"):
        tflm.compress(model, release="2025-10-16")
    encodings = [
        {tensor.encoding for tensor in tflm.compress(model, release=day).tensors}
        for day in ("2025-10-18", "2025-10-24", "2025-11-01")
    ]
    assert encodings == [{"look-up table"}, {"look-up table", "pruned"}, {"Huffman", "pruned"}]


def test_programs_hold_the_bits_of_codes_in_a_register() -> None:
    """With 64 bits, they take 1.4 times the instructions on a Cortex-M."""
    compressed = tflm.compress(tflm.Model(layers([KINDS["Huffman"]])))
    assert {tensor.encoding for tensor in compressed.tensors} == {"Huffman"}
    text = tflm.compile_model(compressed.model).files["model.c"]
    assert re.search(r"int32_t huffman_row.*?\bint32_t bits = .*?\n}", text, re.DOTALL)


def test_the_command_notes_that_the_arena_grows(tmp_path: Path) -> None:
    """A large matrix between small tensors is decoded into the arena; --ram with the old arena prevents it."""
    path = tmp_path / "m.tflite"
    path.write_bytes(layers([sparse((96, 64), 0.1), sparse((8, 96), 0.5)]))
    found = figures("compress", path)
    before, after = found["minimum_arena_bytes_before"], found["minimum_arena_bytes"]
    assert after > before + 3000
    note = f"the arena grows from {before:,} to {after:,} bytes"
    assert note in " ".join(run("compress", path).stdout.split())
    assert "the arena grows" not in run("compress", path, "--ram", str(before)).stdout


def test_without_decode_in_the_resolver_nothing_is_compressed() -> None:
    resolver = tflm.MicroMutableOpResolver(1)
    resolver.add_fully_connected()
    assert tflm.compress(tflm.Model(layers([KINDS["pruned"]])), resolver).tensors == ()


# --- Limits ----------------------------------------------------------------------------------------------------------


@st.composite
def choices(draw: Any) -> tuple[list[Candidate], Costs]:
    """Up to six constants of up to four operators, some of them read by two."""
    count = draw(st.integers(1, 4))
    live = draw(st.lists(st.integers(0, 20).map(lambda units: 16 * units), min_size=count, max_size=count))
    candidates = [
        Candidate(
            i,
            tuple(sorted(draw(st.sets(st.integers(0, count - 1), min_size=1, max_size=2)))),
            draw(st.integers(-20, 300)),
            draw(st.integers(1, 320)),
            4 * draw(st.integers(0, 12)),
        )
        for i in range(draw(st.integers(1, 6)))
    ]
    memory = draw(st.just(0) | st.integers(0, 500))
    return candidates, Costs(draw(st.integers(0, 60)), 4 * draw(st.integers(0, 12)), live, memory)


def added_to_head(decoded: list[Candidate], memory: int) -> int:
    """Return the size of a TFLM_DECODE's tensors that do not fit the memory outside of the arena."""
    taken = added = 0
    for candidate in decoded:
        rounded = -(-candidate.decoded_bytes // 16) * 16
        if taken + candidate.decoded_bytes <= memory:
            taken += rounded
        else:
            added += rounded
    return added


@pytest.mark.parametrize(("memory", "head"), [(31, 132), (32, 100), (79, 132), (80, 100)])
def test_tensors_fill_the_decompression_memory_to_its_last_byte(memory: int, head: int) -> None:
    sizes = (32,) if memory < 64 else (48, 32)
    group = [Candidate(i, (0,), 100, size, 0) for i, size in enumerate(sizes)]
    every = next(each for each in options_of(group, Costs(1, 1, [100], memory)) if len(each.tensors) == len(sizes))
    assert every.head_bytes == head


def outcome(chosen: tuple[Candidate, ...], costs: Costs) -> tuple[int, int]:
    """Bytes saved, and by which the arena grows, if the head is as small as its peak."""
    readers = {reader for candidate in chosen for reader in candidate.readers}
    loads = [
        live + added_to_head([candidate for candidate in chosen if i in candidate.readers], costs.decompression_memory)
        for i, live in enumerate(costs.live_bytes)
    ]
    saved = sum(candidate.saved_bytes for candidate in chosen) - costs.operator_file_bytes * len(readers)
    tail = sum(candidate.tail_bytes for candidate in chosen) + costs.operator_tail_bytes * len(readers)
    return saved, max(loads) - max(costs.live_bytes) + tail


@given(problem=choices())
@example(([Candidate(0, (0,), 100, 32, 0)], Costs(0, 0, [64, 96], 0)))  # the tail does not grow
@example(([Candidate(i, (i // 2,), 100 - 10 * i, 32, 32 - 16 * i % 32) for i in range(4)], Costs(0, 0, [400, 400], 0)))
@example(([Candidate(i, (i,), 100 - 30 * i, 32, 16 + 20 * i) for i in range(4)], Costs(0, 0, [64, 80, 96, 112], 0)))
def test_tensors_are_chosen_optimally(problem: tuple[list[Candidate], Costs]) -> None:
    """The choice is as good as the best of all subsets, for each kind of limit, also at the limits of subsets."""
    candidates, costs = problem
    groups = [options_of(group, costs) for group in groups_of(candidates)]
    head = max(costs.live_bytes)
    subsets = [s for n in range(len(candidates) + 1) for s in itertools.combinations(candidates, n)]
    outcomes = [outcome(subset, costs) for subset in subsets]

    def of(tensors: tuple[int, ...]) -> tuple[int, int]:
        return outcome(tuple(candidates[tensor] for tensor in sorted(tensors)), costs)

    assert of(largest_saving(groups))[0] == max(saved for saved, _ in outcomes)
    limits = sorted({growth - below for _, growth in outcomes for below in (0, 1)} - {-1})
    for limit in limits[:: len(limits) // 16 + 1]:
        within = largest_saving_in(groups, head, limit)
        limited = of(within.tensors)
        assert limited[1] == within.growth_bytes <= limit
        assert limited[0] == max(saved for saved, growth in outcomes if growth <= limit)
    sizes = sorted({saved + more for saved, _ in outcomes for more in (0, 1) if saved + more > 0})
    for wanted in sizes[:: len(sizes) // 16 + 1]:
        choice = smallest_arena_for(groups, head, wanted)
        enough = [growth for saved, growth in outcomes if saved >= wanted]
        assert (choice is None) == (not enough)
        if choice is not None:
            saved, growth = of(choice.tensors)
            assert saved >= wanted
            assert growth == choice.growth_bytes == min(enough)


def test_an_arena_that_is_large_enough_already_takes_late_weights_only() -> None:
    """The last layer's weights fit next to its small tensors; the first layer's do not."""
    builder = ModelBuilder()
    main = builder.subgraph()
    x = main.input("x", (1, 3000), INT8, tflm.quantized(0.5, 3))
    y = main.tensor("y", (1, 3000), INT8, tflm.quantized(0.5, 3))
    z = main.tensor("z", (1, 3), INT8, tflm.quantized(0.5, 3))
    end = main.tensor("end", (1, 700), INT8, tflm.quantized(0.5, 3))
    early, late = (main.constant(name, sparse(s, 0.1), tflm.quantized(0.01, 0)) for name, s in SHAPES.items())
    main.operator(BuiltinOperator.RELU, [x], [y])
    main.operator(BuiltinOperator.FULLY_CONNECTED, [y, early, -1], [z], FullyConnectedOptions())
    main.operator(BuiltinOperator.FULLY_CONNECTED, [z, late, -1], [end], FullyConnectedOptions())
    main.output(end)
    model = tflm.Model(builder.build())
    before = tflm.measure_arena(model, tflm.AllOpsResolver()).minimum_arena_bytes
    assert len(tflm.compress(model).tensors) == 2
    assert tflm.compress(model, ram=before).tensors == ()
    within = tflm.compress(model, ram=before + 400)
    assert [tensor.name for tensor in within.tensors] == ["late"]
    assert within.minimum_arena_bytes <= before + 400
    by_flash = tflm.compress(model, flash=len(model.data) - 1000)
    assert [tensor.name for tensor in by_flash.tensors] == ["late"]


SHAPES = {"early": (3, 3000), "late": (700, 3)}


# --- The command -----------------------------------------------------------------------------------------------------


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A model with sparse weights, in a file."""
    path = tmp_path / "layers.tflite"
    path.write_bytes(layers([sparse((64, 96), 0.1), sparse((96, 64), 0.2)]))
    return path


def test_the_command_writes_the_model_and_what_it_cost(path: Path) -> None:
    output = path.with_name("smaller.tflite")
    printed = figures("compress", path, "-o", output, "--target", "cortex-m4", "--kernels", "cmsis-nn")
    assert printed["file_bytes"] == output.stat().st_size < printed["file_bytes_before"]
    assert printed["needed_operators"] == ["TFLM_DECODE"]
    kernel = printed["firmware_flash_change_bytes"] + printed["file_bytes_before"] - printed["file_bytes"]
    assert 10_000 < kernel < 30_000
    assert [tensor["encoding"] for tensor in printed["tensors"]] == ["pruned", "pruned"]
    (arena,) = figures("arena", output, "--target", "cortex-m4", "--kernels", "cmsis-nn")["models"]
    assert arena["minimum_arena_bytes"] == printed["minimum_arena_bytes"]
    again = run("compress", output)
    assert again.returncode == 0, again.stderr
    assert "the model is unchanged" in again.stdout


def test_a_limit_that_can_not_be_met_is_an_error(path: Path) -> None:
    output = path.with_name("smaller.tflite")
    for option, what in (("--ram", "arena"), ("--flash", "file")):
        assert f"the smallest {what} found has" in refusal("compress", path, "-o", output, option, "100")
    assert not output.exists()
    assert "lacks TFLM_DECODE" in refusal("compress", path, "--target", "cortex-m4", "--kernels", "arduino")


@settings(max_examples=6)
@given(st.lists(st.sampled_from([16, 48, 150]), min_size=3, max_size=4), st.integers(0, 3))
def test_the_file_shrinks_as_far_as_each_arena_lets_it(sizes: list[int], seed: int) -> None:
    """No arena is exceeded, and a larger arena never leads to a larger file."""
    rng = np.random.default_rng(seed)
    builder = ModelBuilder()
    main = builder.subgraph()
    values = [main.input("x", (1, sizes[0]), INT8, tflm.quantized(0.5, 3))]
    for i, (before, after) in enumerate(itertools.pairwise(sizes)):
        weights = main.constant(f"w{i}", sparse((after, before), rng.uniform(0.05, 0.3)), tflm.quantized(0.01, 0))
        values.append(main.tensor(f"y{i}", (1, after), INT8, tflm.quantized(0.5, 3)))
        main.operator(BuiltinOperator.FULLY_CONNECTED, [values[-2], weights, -1], [values[-1]], FullyConnectedOptions())
    main.output(values[-1])
    model = tflm.Model(builder.build())
    least = tflm.measure_arena(model, tflm.AllOpsResolver()).minimum_arena_bytes
    enough = tflm.compress(model).minimum_arena_bytes
    files = []
    for ram in np.linspace(least, max(least, enough), 4).astype(int).tolist():
        within = tflm.compress(model, ram=ram)
        assert tflm.measure_arena(within.model, tflm.AllOpsResolver()).minimum_arena_bytes <= ram
        files.append(len(within.data))
    assert files == sorted(files, reverse=True)
    assert files[-1] == len(tflm.compress(model).data)
