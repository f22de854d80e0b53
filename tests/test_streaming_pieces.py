"""Pieces of streaming on their own: rows that are the same in the next window, rows that are kept, places of time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from image_graphs import Images
from models import INT8, Arrays
from test_row_rules import OWN, SHARED, answers, graphs, time_tracks
from test_streaming import model_of_two_windows, reshaped, temporal_network, windows

import tflm
from tflm.graph import Graph
from tflm.rewriting.streaming.causal import candidates, causal_form, minimum_hop, tracks_of
from tflm.rewriting.streaming.kept_rows import TimedTensor, Timeline, _divided, runs, timeline
from tflm.rewriting.streaming.time_rules import Read, Track, moved, time_rule
from tflm.runtime.growing_arena import ready_interpreter
from tflm.schema import BuiltinOperator, ModelBuilder, Padding, ReshapeOptions, quantized

# --- Rows that are kept ----------------------------------------------------------------------------------------------


def best_rows(needed: set[int], same: set[int], shift: int) -> tuple[set[int], set[int]]:
    """The rows to hold, and which of them come from the window before: every needed row that can.

    A row of the next window is that of this one `shift` rows later, if it is the same. So a needed row comes from the
    nearest needed row behind it, by way of the rows between them.
    """
    held, kept = set(needed), set()
    for row in needed:
        way = [row]
        while way[-1] in same and way[-1] + shift <= max(needed):
            way.append(way[-1] + shift)
            if way[-1] in needed:
                held.update(way)
                kept.update(way[:-1])
                break
    return held, kept


def numbers(rows: Sequence[Any]) -> set[int]:
    return {row for each in rows for row in range(*each)}


@given(
    st.sets(st.integers(0, 19), min_size=1, max_size=12), st.sets(st.integers(0, 19)), st.integers(0, 6), st.booleans()
)
def test_every_needed_row_is_kept_that_can_be_and_no_others(
    needed: set[int], same: set[int], shift: int, keeps: bool
) -> None:
    same = {row for row in same if row + shift < 20}
    timed = TimedTensor(Track(1, 1, 20), 1, shift or None, same)
    found = _divided(needed, Timeline(1, {7: timed}, ()), 7, keeps)
    held, kept = best_rows(needed, same, shift) if shift and keeps else (needed, set())
    assert (numbers(found.needed), numbers(found.kept), numbers(found.computed)) == (held, kept, held - kept)
    for ranges in (found.needed, found.kept, found.computed):
        assert list(ranges) == sorted(ranges)
        assert len(ranges) == len(list(runs(numbers(ranges))))
    assert all(found.saved(each) == (each.first + found.shift, each.end + found.shift) for each in found.kept)


# --- Rows that are the same ------------------------------------------------------------------------------------------


def values_of(model: tflm.Model, window: Any) -> list[Any]:
    """The elements of all tensors for a window."""
    interpreter = ready_interpreter(model, delegates=(), preserve_all_tensors=True)
    interpreter.input(0).data[...] = window
    interpreter.invoke()
    return [np.array(interpreter.get_tensor(i).data) for i in range(len(model.subgraphs[0].tensors or ()))]


def rows_that_move(graph: Graph, timed: TimedTensor, this: Any, following: Any) -> set[int]:
    """The rows of the following window that are those of this one, `shift` rows later."""
    assert timed.shift is not None
    one, other = (np.moveaxis(values, timed.track.axis, 0) for values in (this, following))
    return {row for row in range(timed.track.rows - timed.shift) if (other[row] == one[row + timed.shift]).all()}


@st.composite
def convolutions(draw: Any) -> tuple[Images, list[int]]:
    """Layers along time, which pad by themselves or have PADs, and the frames from one row of each to the next."""
    images, strides = Images(ModelBuilder().subgraph(), (1, draw(st.integers(12, 30)), 1, 6)), [1]
    has_pads = draw(st.booleans())
    for _ in range(draw(st.integers(1, 3))):
        if has_pads:
            images.pad(images.last, draw(st.sampled_from([(0, 1), (1, 0), (2, 3)])), (0, 0))
            strides.append(strides[-1])
        height = images.shapes[images.last][1]
        stride, taps = draw(st.integers(1, 3)), min(draw(st.sampled_from([1, 2, 3, height])), height)
        dilation = draw(st.integers(1, 2)) if 2 * (taps - 1) < height else 1
        padding = Padding.VALID if has_pads else draw(st.sampled_from(Padding))
        images.convolution(images.last, 6, (taps, 1), (stride, 1), (dilation, 1), padding)
        strides.append(strides[-1] * stride)
    images.main.output(images.last)
    return images, strides


@given(convolutions())
def test_rows_are_the_same_exactly_where_their_values_are(made: tuple[Images, list[int]]) -> None:
    """Values of the whole network, for two windows of random frames."""
    images, strides = made
    model = tflm.Model(images.main.builder.build())
    for hop in (1, 2, 3, 4, 6, 9):
        require_same_rows_as_values(model, list(images.shapes), strides, hop)


def require_same_rows_as_values(model: tflm.Model, tensors: list[int], strides: list[int], hop: int) -> None:
    graph = Graph(model)
    (x,) = graph.inputs
    shape = graph.shape(x)
    track = Track(1, 1, shape[1])
    timed = timeline(graph, tracks_of(graph, x, track), x, track, hop)
    assert list(timed.tensors) == tensors
    assert [each.stride for each in timed.tensors.values()] == strides
    assert [each.shift for each in timed.tensors.values()] == [None if hop % s else hop // s for s in strides]
    frames = np.random.default_rng(hop).integers(-128, 128, (1, shape[1] + hop, *shape[2:])).astype(np.int8)
    this, following = (values_of(model, frames[:, first : first + shape[1]]) for first in (0, hop))
    for tensor, each in timed.tensors.items():
        assert each.track == Track(1, 1, graph.shape(tensor)[1])
        if each.shift is None:
            assert not each.same
        else:
            assert set(each.same) == rows_that_move(graph, each, this[tensor], following[tensor])


@given(convolutions())
def test_the_smallest_hop_moves_every_layer_by_whole_rows(made: tuple[Images, list[int]]) -> None:
    images, strides = made
    graph = Graph(tflm.Model(images.main.builder.build()))
    (x,) = graph.inputs
    track = Track(1, 1, graph.shape(x)[1])
    timed = timeline(graph, tracks_of(graph, x, track), x, track, 1)
    layers = [
        stride
        for stride, tensor, operator in zip(strides[1:], list(images.shapes)[1:], graph.operators)
        if graph.code(operator).name == "CONV_2D" and images.shapes[tensor][1] > 1
    ]
    assert minimum_hop(graph, timed) == math.lcm(*layers)


def test_the_smallest_hop_fits_the_strides_of_all_branches() -> None:
    images = Images(ModelBuilder().subgraph(), (1, 19, 1, 4))
    for stride in (2, 3):
        images.main.output(images.convolution(0, 4, (3, 1), (stride, 1), padding=Padding.VALID))
    graph = Graph(tflm.Model(images.main.builder.build()))
    track = Track(1, 1, 19)
    assert minimum_hop(graph, timeline(graph, tracks_of(graph, 0, track), 0, track, 1)) == 6


# --- Where time is ---------------------------------------------------------------------------------------------------

ALWAYS_FOUND = "ADD", "CONCATENATION", "MAXIMUM", "MEAN", "REDUCE_MAX", "REDUCE_MIN", "SPLIT", "SPLIT_V", "SUB", "SUM"
"""Operators with a rule wherever each row depends on the same row alone, if all inputs with rows are tensors."""


def follows_alone(name: str, model: bytes, inputs: Arrays, graph: Graph, tracks: dict[int, Track]) -> bool:
    """Whether some dimension of the outputs has rows that change with the same row of the inputs, and no others."""
    whole = answers(model, inputs)
    (rows,) = {track.rows for track in tracks.values()}
    parts = {"CONCATENATION": inputs, "SPLIT": whole, "SPLIT_V": whole}.get(name)
    if whole is None or (parts is not None and len(parts) == 1):  # along time, too
        return False
    axes = {axis for axis in range(whole[0].ndim) if all(values.shape[axis] == rows for values in whole)}
    rng, has_changed = np.random.default_rng(0), False
    for row in range(rows):
        changed = [np.array(values) for values in inputs]
        for tensor, values in zip(graph.inputs, changed):
            part = np.moveaxis(values, tracks[tensor].axis, 0)[row : row + 1]
            part[...] = rng.choice(values.reshape(-1), part.shape)
        for one, other in zip(whole, answers(model, changed) or whole):
            differs = one != other
            has_changed |= bool(differs.any())
            axes -= {axis for axis in axes if np.delete(differs, row, axis).any()}
    return has_changed and bool(axes)


@pytest.mark.parametrize("name", [*ALWAYS_FOUND, "TRANSPOSE"])
def test_time_is_found_wherever_rows_follow_alone(name: str) -> None:
    assert name in (*OWN, *SHARED)
    tried = False
    for model, inputs, graph in graphs(name, 30 if name == "CONCATENATION" else 10):
        (operator,) = graph.operators
        data = {"SPLIT": [1], "CONCATENATION": range(len(operator.inputs or ()))}.get(name, [0])
        is_shared = name in SHARED
        read = [(operator.inputs or ())[place] for place in (range(2) if is_shared else data)]
        for tracks in time_tracks(graph):
            is_plain = all(track.unit == 1 and track.rows <= 24 for track in tracks.values())
            if is_plain and set(read) <= set(tracks) and follows_alone(name, model, inputs, graph, tracks):
                assert time_rule(graph, operator, tracks) is not None
                tried = True
    assert tried


@given(st.lists(st.integers(1, 4), min_size=1, max_size=4), st.data())
def test_time_after_a_reshape_is_where_the_rows_are(shape: list[int], data: st.DataObject) -> None:
    """Rows are numbered, and stay together in the other shape."""
    axis = data.draw(st.integers(0, len(shape) - 1))
    unit = data.draw(st.sampled_from([n for n in range(1, shape[axis] + 1) if shape[axis] % n == 0]))
    track = Track(axis, unit, shape[axis] // unit)
    flat = list(shape)
    while len(flat) > 1 and data.draw(st.booleans()):
        at = data.draw(st.integers(0, len(flat) - 2))
        flat[at : at + 2] = [flat[at] * flat[at + 1]]
    if data.draw(st.booleans()):
        flat.insert(data.draw(st.integers(0, len(flat))), 1)

    def rows_of(of: Track, values: Any) -> list[Any]:
        return [values.take(range(i * of.unit, (i + 1) * of.unit), of.axis).reshape(-1) for i in range(of.rows)]

    values = np.arange(math.prod(shape)).reshape(shape)
    expected = rows_of(track, values)
    possible = [
        other
        for place, size in enumerate(flat)
        if size % track.rows == 0
        for other in [Track(place, size // track.rows, track.rows)]
        if all(map(np.array_equal, rows_of(other, values.reshape(flat)), expected))
    ]
    found = moved(track, tuple(shape), tuple(flat))
    if found is None:
        assert not possible or math.prod(shape[:axis]) > 1
    else:
        assert found in possible
        assert found.unit == min(each.unit for each in possible)


def test_frames_are_looked_for_along_each_dimension_of_several_elements() -> None:
    graph = Graph(temporal_network([3]))
    (x,) = graph.inputs
    assert candidates(graph, x, None) == [Track(1, 1, 20), Track(3, 1, 4)]
    assert [candidates(graph, x, axis) for axis in (1, -3, 0)] == [[Track(1, 1, 20)], [Track(1, 1, 20)], []]
    images = Images(ModelBuilder().subgraph(), (1, 80))
    images.main.output(reshaped(images, images.last, (1, 20, 4)))
    graph = Graph(tflm.Model(images.main.builder.build()))
    elements, frames = Track(1, 1, 80), Track(1, 4, 20)
    for axis, wanted in ((None, [elements, frames]), (0, []), (1, [elements, frames])):
        assert set(candidates(graph, graph.inputs[0], axis)) == set(wanted)
    main = ModelBuilder().subgraph()
    pair = main.input("pair", (2, 1), INT8)
    main.output(pair)
    assert candidates(Graph(tflm.Model(main.builder.build())), pair, None) == [Track(0, 1, 2)]


# --- The causal form -------------------------------------------------------------------------------------------------

LAYERS = "convolution", "depthwise", "maximum", "mean"


def padded_layers(frames: int, width: int, layers: Sequence[tuple[str, int]]) -> tflm.Model:
    """Layers that pad time, and features if there are several."""
    images = Images(ModelBuilder().subgraph(), (1, frames, width, 2))
    for kind, taps in layers:
        extent, x = (taps, min(3, width)), images.last
        if kind in ("convolution", "depthwise"):
            images.convolution(x, 2 * (kind == "convolution"), extent)
        else:
            code = BuiltinOperator.MAX_POOL_2D if kind == "maximum" else BuiltinOperator.AVERAGE_POOL_2D
            images.pool(x, code, extent, (1, 1), Padding.SAME)
    images.main.output(images.last)
    return tflm.Model(images.main.builder.build())


def answer_of(model: tflm.Model, window: Any) -> Any:
    interpreter = ready_interpreter(model, delegates=())
    interpreter.input(0).data[...] = window
    interpreter.invoke()
    return np.array(interpreter.output(0).data)


@pytest.mark.parametrize("width", [1, 4])
@pytest.mark.parametrize(
    "layers",
    [
        [("maximum", 3)],
        [("convolution", 4)],
        [("mean", 3)],
        [("depthwise", 2), ("maximum", 4)],
        [("convolution", 3), ("depthwise", 5), ("mean", 2)],
    ],
)
def test_rows_of_the_causal_form_are_those_inside_of_a_longer_recording(
    layers: list[tuple[str, int]], width: int
) -> None:
    """There, no layer sees an end of the recording. The last row looks at the last frame."""
    model, track = padded_layers(10, width, layers), Track(1, 1, 10)
    if width > 1 and layers[-1][0] == "mean":
        with pytest.raises(
            tflm.StreamError, match=rf"operator {len(layers) - 1} \(AVERAGE_POOL_2D\) leaves out padding"
        ):
            causal_form(model, 0, track)
        return
    causal, earlier = causal_form(model, 0, track)
    assert earlier == sum(taps - 1 for _, taps in layers)
    recording = np.random.default_rng(0).integers(-128, -90, (1, 50, width, 2)).astype(np.int8)
    whole = answer_of(padded_layers(50, width, layers), recording)
    begin = 15
    found = answer_of(causal, recording[:, begin : begin + earlier + 10])
    behind = sum((taps - 1) // 2 for _, taps in layers)
    np.testing.assert_array_equal(found, whole[:, begin + behind : begin + behind + 10])


# --- The result ------------------------------------------------------------------------------------------------------


def answers_after(streamed: tflm.StreamedModel, frames: Sequence[Any]) -> list[Any]:
    interpreter = ready_interpreter(streamed.model, delegates=())
    found = []
    for new in frames:
        interpreter.input(0).data[...] = new
        interpreter.invoke()
        found.append(np.array(interpreter.output(0).data))
    return found


@pytest.mark.parametrize("hop", [1, 2, 3])
@pytest.mark.parametrize("unread", [0, 5])
@pytest.mark.parametrize(("kernels", "strides"), [([3], [1]), ([2, 3], [1, 1]), ([1], [3])])
def test_the_first_window_counts_until_the_warm_up_ends(
    kernels: list[int], strides: list[int], unread: int, hop: int
) -> None:
    if hop % math.prod(strides):
        return
    images = Images(ModelBuilder().subgraph(), (1, 20, 1, 4))
    if unread:
        images.cropped(images.last, unread, 20 - unread)
    for kernel, stride in zip(kernels, strides):
        images.convolution(images.last, 4, (kernel, 1), (stride, 1), padding=Padding.VALID)
    images.main.output(images.last)
    model, rng = tflm.Model(images.main.builder.build()), np.random.default_rng(hop)
    firsts = rng.integers(-128, 128, (2, 1, 20, 1, 4)).astype(np.int8)
    made = [tflm.stream(model, hop=hop, initial=first) for first in firsts]
    warm_up = made[0].warm_up
    frames = rng.integers(-128, 128, (warm_up + 2, 1, hop, 1, 4)).astype(np.int8)
    differs = [(one != other).any() for one, other in zip(*(answers_after(each, frames) for each in made))]
    assert differs[: warm_up - 1] == [True] * (warm_up - 1)
    assert not any(differs[warm_up - 1 :])


@pytest.mark.parametrize(("kernels", "hop"), [([3], 1), ([3, 5], 2)])
def test_progress_counts_the_windows_that_are_compared(kernels: list[int], hop: int) -> None:
    told: list[str] = []
    streamed = tflm.stream(temporal_network(kernels), hop=hop, report=told.append)
    total = streamed.windows_checked + 2
    assert told == ["time axis", *(f"window {i} of {total}" for i in range(1, total + 1))]


def test_a_streaming_form_is_streamed_along_its_other_input() -> None:
    """The variables of both streams have names of their own."""
    model = model_of_two_windows()
    twice = tflm.stream(tflm.stream(model, input=0).model, input=1)
    assert (twice.macs, twice.macs_before) == (2 * 3 * 4 * 4, (1 + 10) * 3 * 4 * 4)
    frames = np.random.default_rng(0).integers(-128, 128, (2, 14, 1, 1, 1, 4)).astype(np.int8)
    whole = [list(windows(np.full((1, 12, 1, 4), -3, np.int8), list(each), 1)) for each in frames]
    found, expected = (ready_interpreter(each, delegates=()) for each in (twice.model, model))
    for new, full in zip(zip(*frames), zip(*whole)):
        for interpreter, values in ((found, new), (expected, full)):
            for i, value in enumerate(values):
                interpreter.input(i).data[...] = value
            interpreter.invoke()
        np.testing.assert_array_equal(found.output(0).data, expected.output(0).data)


def strided_branches(*strides: int, frames: int = 20) -> tflm.Model:
    """Convolutions of the same frames, each of which is an output."""
    images = Images(ModelBuilder().subgraph(), (1, frames, 1, 4))
    x = images.last
    for stride in strides:
        images.main.output(images.convolution(x, 4, (3, 1), (stride, 1), padding=Padding.VALID))
    return tflm.Model(images.main.builder.build())


def strided_image(*strides: int) -> tflm.Model:
    """A convolution of an image with a stride along each of its sides."""
    images = Images(ModelBuilder().subgraph(), (1, 20, 20, 2))
    images.main.output(images.convolution(images.last, 2, (3, 3), strides, padding=Padding.VALID))
    return tflm.Model(images.main.builder.build())


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("is_turned", [False, True])
def test_the_axis_is_chosen_that_saves_most_work(is_turned: bool, causal: bool) -> None:
    shape, taps = (1, 5, 20, 2), (3, 4)
    images = Images(ModelBuilder().subgraph(), (1, 20, 5, 2) if is_turned else shape)
    padding = Padding.SAME if causal else Padding.VALID
    images.convolution(images.last, 3, taps[::-1] if is_turned else taps, padding=padding)
    images.main.output(images.last)
    model = tflm.Model(images.main.builder.build())
    chosen, each = (
        tflm.stream(model, causal=causal),
        [tflm.stream(model, axis=axis, causal=causal).macs for axis in (1, 2)],
    )
    assert chosen.axis == (1 if is_turned else 2)
    assert chosen.macs == min(each) < max(each)


@pytest.mark.parametrize(
    ("model", "hop", "message"),
    [
        (
            temporal_network([3], [2]),
            5,
            r"a hop of 5 does not fit the strides of operator 0 .*; use hops of 2, 4, 6, \.\.\.",
        ),
        (strided_branches(2, 3), 4, r"use hops of 6, 12, 18 frames"),
        (strided_branches(3, 7), 1, r"saves no work: operator \d \(CONV_2D\) needs the whole window again"),
        (strided_branches(9), 1, r"use hops of 9, 18 frames"),
        (strided_image(2, 3), 1, r"use hops of 2, 4, 6, \.\.\."),  # along the side that saves most work
        (strided_image(3, 2), 1, r"use hops of 2, 4, 6, \.\.\."),
        (strided_branches(1, frames=4), 4, "a hop of 4 frames leaves nothing of a window of 4; use 3 or less"),
    ],
)
def test_the_hops_are_told_that_are_possible(model: tflm.Model, hop: int, message: str) -> None:
    with pytest.raises(tflm.StreamError, match=message):
        tflm.stream(model, hop=hop)


def test_an_input_without_frames_is_refused() -> None:
    builder = ModelBuilder()
    builder.model = temporal_network([3]).root
    (builder.model.subgraphs[0].tensors or [])[0].shape = (1, 0, 1, 4)
    with pytest.raises(tflm.StreamError, match=r"dynamic shape, \[1, 0, 1, 4\]; fix it first"):
        tflm.stream(tflm.Model(builder.build(), checks="tflm"))


@pytest.mark.parametrize("channels", [(0, 4), (0, 2), (1, 3)])
@pytest.mark.parametrize("hop", [1, 2, 6])
def test_rows_and_channels_that_are_cut_out_are_read_and_are_outputs(channels: tuple[int, int], hop: int) -> None:
    """Of the first output, no row is kept with the last hop."""
    images = Images(ModelBuilder().subgraph(), (1, 12, 1, 4))
    x = images.convolution(images.last, 4, (3, 1), padding=Padding.VALID)
    given, read = images.cropped(x, 2, 6, *channels), images.cropped(x, 1, 8, *channels)
    for tensor in (given, images.convolution(read, 4, (2, 1))):
        images.main.output(tensor)
    streamed = tflm.stream(tflm.Model(images.main.builder.build()), hop=hop)
    assert len(streamed.model.subgraphs[0].outputs or ()) == 2
    assert streamed.windows_checked > 12 // hop


@pytest.mark.parametrize("hop", [1, 2, 6])
def test_layers_are_told_with_the_rows_that_are_new(hop: int) -> None:
    """A row that is computed from the whole window is new each time."""
    images = Images(ModelBuilder().subgraph(), (1, 20, 1, 4))
    images.convolution(images.last, 4, (3, 1), padding=Padding.VALID)
    images.convolution(images.last, 4, (18, 1), (4, 1), padding=Padding.VALID)
    images.main.output(images.last)
    layers = tflm.stream(tflm.Model(images.main.builder.build()), hop=hop).layers
    assert [(layer.rows, layer.computed, layer.moved) for layer in layers] == [(18, hop, hop), (1, 1, 1)]


@pytest.mark.parametrize("padding", [(1, 1), (0, 2), (2, 0)])
@pytest.mark.parametrize(("axis", "unit", "is_found"), [(1, 1, True), (1, 3, True), (2, 1, True), (2, 2, False)])
def test_rows_of_several_elements_are_padded_along_other_dimensions_only(
    axis: int, unit: int, is_found: bool, padding: tuple[int, int]
) -> None:
    """A row of padding would have as many elements as the others."""
    main = ModelBuilder().subgraph()
    x, y = main.input("x", (1, 12, 8), INT8, quantized(0.5)), main.tensor("y", (1, 12, 10), INT8, quantized(0.5))
    paddings = main.constant("paddings", np.array([(0, 0), (0, 0), padding], np.int32))
    main.operator(BuiltinOperator.PAD, [x, paddings], [y])
    main.output(y)
    graph = Graph(tflm.Model(main.builder.build()))
    rule = time_rule(graph, graph.operators[0], {x: Track(axis, unit, graph.shape(x)[axis] // unit)})
    assert (rule is not None) == is_found


@pytest.mark.parametrize(
    ("begin", "size", "rows"), [(0, 12, 6), (4, 6, 3), (3, 6, None), (4, 5, None), (5, 1, None), (2, 2, 1)]
)
def test_rows_of_several_elements_are_cut_out_whole(begin: int, size: int, rows: int | None) -> None:
    main = ModelBuilder().subgraph()
    x, y = main.input("x", (12, 8), INT8, quantized(0.5)), main.tensor("y", (size, 8), INT8, quantized(0.5))
    numbers = [main.constant(f"c{i}", np.array(pair, np.int32)) for i, pair in enumerate([(begin, 0), (size, 8)])]
    main.operator(BuiltinOperator.SLICE, [x, *numbers], [y])
    main.output(y)
    graph = Graph(tflm.Model(main.builder.build()))
    rule = time_rule(graph, graph.operators[0], {x: Track(0, 2, 6)})
    assert (None if rule is None else rule.track) == (None if rows is None else Track(0, 2, rows))
    if rule is not None:
        assert rule.crops
        assert rule.reads(0) == (Read(0, begin // 2),)


@pytest.mark.parametrize("kind", ["options", "tensor", "both"])
def test_reshapes_name_the_shape_of_the_rows_that_they_make(kind: str) -> None:
    images = Images(ModelBuilder().subgraph(), (1, 20, 4))
    main, shape = images.main, (1, 20, 1, 4)
    y = main.tensor("y", shape, INT8, (main.table.tensors or [])[0].quantization)
    images.shapes[y] = shape
    given = [] if kind == "options" else [main.constant("shape", np.array(shape, np.int32))]
    options = None if kind == "tensor" else ReshapeOptions(new_shape=shape)
    main.operator(BuiltinOperator.RESHAPE, [images.last, *given], [y], options)
    main.output(images.convolution(y, 4, (3, 1), padding=Padding.VALID))
    graph = Graph(tflm.stream(tflm.Model(main.builder.build()), hop=2).model)
    reshapes = [operator for operator in graph.operators if graph.code(operator) is BuiltinOperator.RESHAPE]
    assert reshapes
    for operator in reshapes:
        made = graph.shape((operator.outputs or ())[0])
        assert tuple(graph.constant((operator.inputs or ())[1])) == made
        named = getattr(operator.builtin_options, "new_shape", None)
        assert named is None or tuple(named) == made
