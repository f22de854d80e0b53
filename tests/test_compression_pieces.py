"""Pieces of the compression of weights: which tensors are chosen within a limit, and what the result says of itself."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from models import INT8
from test_compression import branches, layers, sparse, svdf

import tflm
from tflm.graph import Graph
from tflm.libraries import library_for
from tflm.rewriting.compression.compressed_model import _Compressor
from tflm.rewriting.compression.compression_report import shown
from tflm.rewriting.compression.encodings import Encoding
from tflm.rewriting.compression.trials import Trials, with_decoded
from tflm.schema import (
    BuiltinOperator,
    ConcatenationOptions,
    FullyConnectedOptions,
    ModelBuilder,
    MulOptions,
    SparsityParameters,
)
from tflm.schema.flexbuffer import FlexbufferType
from tflm.schema.tables import METADATA_NAME

DENSE = FullyConnectedOptions()


def compressor(model: tflm.Model) -> _Compressor:
    """The trials of a model's constants on this computer."""
    host = tflm.targets.HOST
    return _Compressor(Trials(model, tflm.AllOpsResolver(), host, library_for("reference", host, None), 0, len))


def side_by_side(kept: float) -> tflm.Model:
    """Layers that lie in one tensor if there is a plan; the first one's weights are sparse."""
    main, parameters = ModelBuilder().subgraph(), tflm.quantized(0.5, 3)
    x = main.input("x", (1, 4), INT8, parameters)
    others = [np.random.default_rng(i).integers(-127, 127, (128, 4)).astype(np.int8) for i in range(3)]
    made = []
    for weights in (sparse((96, 4), kept), *others):
        made.append(main.tensor("part", (1, len(weights)), INT8, parameters))
        w = main.constant("w", weights, tflm.quantized(0.01))
        main.operator(BuiltinOperator.FULLY_CONNECTED, [x, w, -1], made[-1:], DENSE)
    whole = main.tensor("whole", (1, 96 + 3 * 128), INT8, parameters)
    main.operator(BuiltinOperator.CONCATENATION, made, [whole], ConcatenationOptions(axis=1))
    main.output(whole)
    return tflm.Model(main.builder.build())


def dense_layers(widths: Sequence[int], sources: Sequence[int], kept: Sequence[float], rows: int = 1) -> tflm.Model:
    """Layers that read earlier outputs, or the input, which counts as the first; what none reads is an output."""
    main, parameters = ModelBuilder().subgraph(), tflm.quantized(0.5, 3)
    values = [main.input("x", (rows, widths[0]), INT8, parameters)]
    for i, (width, source) in enumerate(zip(widths[1:], sources)):
        weights = main.constant("w", sparse((width, widths[source]), kept[i], i), tflm.quantized(0.01))
        values.append(main.tensor("y", (rows, width), INT8, parameters))
        main.operator(BuiltinOperator.FULLY_CONNECTED, [values[source], weights, -1], values[-1:], DENSE)
    main.output(*(values[i] for i in range(1, len(widths)) if i not in sources))
    return tflm.Model(main.builder.build())


def has_plan(model: tflm.Model) -> bool:
    return model.metadata(METADATA_NAME) is not None


@pytest.mark.parametrize("kept", [0.05, 0.14, 0.2, 0.23, 0.4])
@pytest.mark.parametrize("is_planned", [False, True])
def test_a_model_becomes_smaller_or_stays_as_it_is(kept: float, is_planned: bool) -> None:
    """A plan is written again where there was one, and its bytes count."""
    model = side_by_side(kept)
    original = tflm.Model(tflm.plan(model).data) if is_planned else model
    assert has_plan(original) == is_planned
    found = tflm.compress(original)
    assert has_plan(found.model) == is_planned
    if found.tensors:
        assert len(found.data) < len(original.data)
        assert found.verified_inputs == 2
    else:
        assert (found.data, found.verified_inputs) == (original.data, 0)
    for measured, of in ((found.before, original), (found.after, found.model)):
        assert measured.minimum_arena_bytes == tflm.measure_arena(of, tflm.AllOpsResolver()).minimum_arena_bytes


def test_a_plan_is_added_where_an_arena_is_too_small_without() -> None:
    """TFLM's planner leaves gaps between the outputs of these layers."""
    widths, sources, rows = (28, 28, 24, 28, 8, 28, 24, 24), (0, 0, 0, 3, 2, 2, 4), 64
    model = dense_layers(widths, sources, [0.1, *[1.0] * 6], rows)
    alone = tflm.compress(model).minimum_arena_bytes
    for ram, needs_plan in ((alone - 1, True), (alone, False)):
        within = tflm.compress(model, ram=ram)
        assert within.tensors
        assert within.minimum_arena_bytes <= ram
        assert has_plan(within.model) == needs_plan


def test_bytes_alive_are_those_of_all_tensors_of_a_step() -> None:
    def rounded(*sizes: int) -> int:
        return sum(-(-size // 16) * 16 for size in sizes)

    widths = (40, 72, 24, 100)
    chain = layers([sparse((after, before), 0.2) for before, after in itertools.pairwise(widths)])
    alive = compressor(tflm.Model(chain))._live_bytes()
    assert alive == [rounded(*pair) for pair in itertools.pairwise(widths)]
    # The condition lives until IF, and with IF's tensors there are those of a branch.
    inside = rounded(1, 96, 96, 96, 96)
    assert compressor(tflm.Model(branches()))._live_bytes() == [rounded(1, 96, 96)] * 2 + [inside] * 2


def test_the_file_within_an_arena_and_the_arena_within_a_file_are_those_of_the_best_subset() -> None:
    found = compressor(dense_layers((8, 48, 48, 16), (0, 1, 2), (0.25, 0.1, 0.2)))
    options = found._options()
    tensors = sorted(found.trials.found)
    subsets = [each for n in range(len(tensors) + 1) for each in itertools.combinations(tensors, n)]
    assert len(subsets) == 8
    for ram in {found._built(each, None).measured.minimum_arena_bytes - below for each in subsets for below in (0, 1)}:
        within = [found._built(each, ram) for each in subsets]
        files = [len(each.data) for each in within if each.measured.minimum_arena_bytes <= ram]
        assert len(found._fitting(options, ram).data) == min(files, default=len(found.model.data))
    planned = [found._built(each, 0) for each in subsets]
    for flash in {len(each.data) + more for each in planned for more in (-1, 0)}:
        chosen = found._small_enough(options, flash)
        arenas = [each.measured.minimum_arena_bytes for each in planned if len(each.data) <= flash]
        if arenas:
            assert len(chosen.data) <= flash
            assert chosen.measured.minimum_arena_bytes == min(arenas)
        else:
            assert len(chosen.data) == min(len(each.data) for each in planned)
        if flash >= len(found.model.data):
            assert not chosen.tensors


def test_every_result_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Here, each layer gets the other one's weights."""
    model = dense_layers((32, 32, 32), (0, 1), (0.05, 0.1))
    assert len(tflm.compress(model).tensors) == 2

    def exchanged(model: tflm.Model, encodings: Mapping[int, Encoding]) -> tflm.Model:
        return with_decoded(model, dict(zip(encodings, reversed(encodings.values()))))

    monkeypatch.setattr("tflm.rewriting.compression.compressed_model.with_decoded", exchanged)
    with pytest.raises(tflm.RewriteError, match="differs"):
        tflm.compress(model)


@pytest.mark.parametrize("verify", [1, 3])
def test_progress_names_each_trial_and_each_run_of_the_checks(verify: int) -> None:
    told: list[str] = []
    model = dense_layers((96, 32, 16), (0, 1), (0.1, 0.1))
    assert tflm.compress(model, verify=verify, progress=told.append).verified_inputs == verify
    count = len(model.subgraphs[0].tensors or ())
    trials = [text for text in told if text.startswith("trying")]
    assert trials == [f"trying tensor {i} of {count}" for i in (1, 3)]
    assert told[len(trials)] == "compressing 2 tensors"
    runs = [f"checking, run {i} of {2 * verify}" for i in range(1, 2 * verify + 1)]
    assert told[-1 - len(runs) :] == ["checking the memory plan", *runs]


def test_a_tensor_that_several_operators_read_is_that_of_the_first() -> None:
    main, parameters = ModelBuilder().subgraph(), tflm.quantized(0.5)
    x, z = (main.input(name, shape, INT8, parameters) for name, shape in (("x", (1, 64)), ("z", (32, 64))))
    y, product = main.tensor("y", (1, 32), INT8, parameters), main.tensor("product", (32, 64), INT8, parameters)
    weights = main.constant("w", sparse((32, 64), 0.1), parameters)
    main.operator(BuiltinOperator.FULLY_CONNECTED, [x, weights, -1], [y], DENSE)
    main.operator(BuiltinOperator.MUL, [z, weights], [product], MulOptions())
    main.output(y, product)
    (tensor,) = tflm.compress(tflm.Model(main.builder.build())).tensors
    assert (tensor.name, tensor.operator, tensor.readers) == ("w", "FULLY_CONNECTED", (0, 1))


def test_the_tail_of_a_choice_is_what_was_measured() -> None:
    """Of weights that two operators read, and of two constants that one operator reads."""
    main, parameters = ModelBuilder().subgraph(), tflm.quantized(0.5)
    x, z = (main.input(name, (32, 64), INT8, parameters) for name in "xz")
    shared, left, right = (main.constant(name, sparse((32, 64), 0.1), parameters) for name in "slr")
    ends = [main.tensor(name, (32, size), INT8, parameters) for name, size in (("a", 64), ("b", 64), ("c", 192))]
    main.operator(BuiltinOperator.MUL, [x, shared], ends[:1], MulOptions())
    main.operator(BuiltinOperator.MUL, [z, shared], ends[1:2], MulOptions())
    main.operator(BuiltinOperator.CONCATENATION, [left, x, right], ends[2:], ConcatenationOptions(axis=1))
    main.output(*ends)
    made = compressor(tflm.Model(main.builder.build()))
    options = [option for group in made._options() for option in group if option.tensors]
    assert sorted(len(option.tensors) for option in options) == [1, 1, 1, 2]
    for option in options:
        measured = made._built(option.tensors, None).measured.tail_bytes
        assert option.tail_bytes == measured - made.before.tail_bytes


def constants_that_are_tried(model: tflm.Model, *custom: tflm.Registration) -> list[str]:
    """Names of the constants of which a smaller form is tried."""
    told: list[str] = []
    resolver, host = tflm.AllOpsResolver(), tflm.targets.HOST
    for registration in custom:
        resolver.add_custom(registration)
    Trials(model, resolver, host, library_for("reference", host, None), 0, told.append)
    tensors = model.subgraphs[0].tensors or []
    return [tensors[int(text.split()[2])].name or "" for text in told]


def two_readers(other: BuiltinOperator | str, is_output: bool = False) -> ModelBuilder:
    """Sparse weights that a layer reads and an operator after it, and weights of its own with few zeros."""
    main, parameters = ModelBuilder().subgraph(), tflm.quantized(0.5)
    x = main.input("x", (1, 64), INT8, parameters)
    both, full = (main.constant(n, sparse((64, 64), k), parameters) for n, k in (("both", 0.1), ("full", 1.0)))
    y, z, last = (main.tensor(name, shape, INT8, parameters) for name, shape in zip("yzl", [(1, 64)] * 2 + [(64, 64)]))
    main.operator(BuiltinOperator.FULLY_CONNECTED, [x, both, -1], [y], DENSE)
    main.operator(BuiltinOperator.FULLY_CONNECTED, [y, full, -1], [z], DENSE)
    main.operator(other, [both], [last])
    main.output(z, last, *([both] if is_output else []))
    return main.builder


def test_constants_are_tried_that_a_decoder_can_replace() -> None:
    assert constants_that_are_tried(tflm.Model(two_readers(BuiltinOperator.RELU).build())) == ["both"]
    assert not constants_that_are_tried(tflm.Model(two_readers(BuiltinOperator.RELU, is_output=True).build()))
    mine = tflm.Registration("Mine", invoke=lambda context, node: None)
    assert not constants_that_are_tried(tflm.Model(two_readers("Mine").build()), mine)
    builder = two_readers(BuiltinOperator.RELU)
    (builder.model.subgraphs[0].tensors or [])[1].sparsity = SparsityParameters()
    assert not constants_that_are_tried(tflm.Model(builder.build()))


@pytest.mark.parametrize(("name", "tried"), [("Mine", ["w"]), ("ethos-u", [])])
def test_nothing_is_tried_beside_an_operator_that_knows_addresses_of_constants(name: str, tried: list[str]) -> None:
    model = dense_layers((64, 64), (0,), (0.1,))
    graph = Graph(model)
    graph.operators.append(graph.make_custom_operator(name, [0], [graph.add_tensor(0, "copy", (1, 64))]))
    graph.operators[-1].custom_options = bytes([1, FlexbufferType.INT << 2, 1])
    others = [tflm.Registration(name, invoke=lambda context, node: None)] if tried else []
    assert constants_that_are_tried(tflm.Model(graph.build()), *others) == tried


def test_no_operator_differs_more_than_before_on_a_device() -> None:
    """With Helium, CMSIS-NN sums the features of SVDF in its prepare phase."""
    for part, is_found in (("cortex-m4", True), ("cortex-m55", False)):
        target = tflm.targets.by_name(part)
        library = library_for("cmsis-nn", target, None)
        found = Trials(tflm.Model(svdf()), tflm.AllOpsResolver(), target, library, 0, len).found
        assert bool(found) == is_found


@pytest.mark.parametrize("is_shared", [False, True])
def test_the_report_counts_each_decoding(is_shared: bool) -> None:
    compressed = tflm.compress(tflm.Model(layers([sparse((64, 96), 0.1), sparse((96, 64), 0.2)], is_shared)))
    facts = dict(shown(compressed).facts)
    assert facts["decoded in each inference"].startswith(f"{64 * 96 * (3 if is_shared else 2):,} B")
    assert facts["checked"] == "outputs for 2 random inputs are identical"


def test_the_report_names_subgraphs_if_there_are_several() -> None:
    for model, has_several in ((branches(), True), (layers([sparse((64, 96), 0.1)]), False)):
        table = shown(tflm.compress(tflm.Model(model))).tables[1]
        assert ("subgraph" in table.markdown()) == has_several
