"""`tflm.stream`: every invoke returns what the original returns for the window that ends with the new frames."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import outcomes
import pytest
from checked_program import CheckedProgram, needs_compiler
from conftest import CORPUS
from example_models import INT8_MODEL
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from image_graphs import Images, image_graph
from models import INT8, Draw
from oracle import Oracle
from reference_kernels import ReferenceKernels
from sampling import examples, some
from test_cli import run
from typer.testing import CliRunner

import tflm
from tflm.application.machine import MachineOptions
from tflm.application.streaming_report import streaming_report
from tflm.c.program import OperatorCode
from tflm.cli.app import app
from tflm.schedule.call_checker import values_lost_in_calls
from tflm.schedule.calls import MovedRows
from tflm.schema import (
    AddOptions,
    BuiltinOperator,
    CallOnceOptions,
    ConcatenationOptions,
    DepthwiseConv2DOptions,
    ExpandDimsOptions,
    FullyConnectedOptions,
    ModelBuilder,
    Padding,
    ReducerOptions,
    ReshapeOptions,
    SliceOptions,
    SoftmaxOptions,
    SplitOptions,
    SubgraphBuilder,
    TensorType,
    TransposeOptions,
    VarHandleOptions,
    quantized,
)

Frames = npt.NDArray[np.int8]

STR_WW = CORPUS / "stream" / "str_ww_ref_model.tflite"


KINDS = ("convolution", "depthwise", "pool", "pad", "add", "late", "beside", "element")


@st.composite
def networks(draw: Draw) -> bytes:
    """Networks over frames, along rows or columns; some end in a FULLY_CONNECTED layer over the flattened window."""
    if draw(st.integers(0, 9)) == 0:
        return draw(image_graph())
    frames, other = draw(st.integers(8, 24)), draw(st.integers(1, 4))
    shape = (1, frames, other, draw(st.integers(1, 4)))
    images = Images(ModelBuilder().subgraph(), shape, draw(st.integers(0, 99)))
    for _ in range(draw(st.integers(1, 6))):
        add_layer(draw, images)
    images.main.output(images.last)
    data = images.main.builder.build()
    return with_dense_layer(data) if draw(st.booleans()) else data


def add_layer(draw: Draw, images: Images) -> None:
    """A layer whose windows are longer along time than across, mostly without strides."""
    x = images.last
    _, height, width, depth = images.shapes[x]
    kind = draw(st.sampled_from(KINDS))
    taps, strides = (draw(st.integers(1, min(5, height))), draw(st.integers(1, min(2, width)))), (1, 1)
    if draw(st.integers(0, 9)) == 0:
        strides = (2, draw(st.integers(1, 2)))
    padding = draw(st.sampled_from([Padding.VALID, Padding.VALID, Padding.SAME]))
    if kind in ("convolution", "depthwise"):
        dilation = draw(st.integers(1, 3))
        if padding == Padding.VALID and (taps[0] - 1) * dilation >= height:
            dilation = 1
        images.convolution(x, draw(st.integers(1, 4)) * (kind == "convolution"), taps, strides, (dilation, 1), padding)
    elif kind == "pool":
        code = draw(st.sampled_from([BuiltinOperator.AVERAGE_POOL_2D, BuiltinOperator.MAX_POOL_2D]))
        images.pool(x, code, taps, strides, padding)
    elif kind == "pad":
        images.pad(x, draw(st.sampled_from([(0, 0), (2, 0), (1, 3)])), draw(st.sampled_from([(0, 0), (1, 1)])))
    elif kind == "add":
        images.add(x, draw(st.sampled_from([t for t, of in images.shapes.items() if of == images.shapes[x]])))
    elif kind == "late":
        longer = [t for t, of in images.shapes.items() if of[1] >= height and (of[0], *of[2:]) == (1, width, depth)]
        other = draw(st.sampled_from(longer))
        first = draw(st.integers(0, images.shapes[other][1] - height))
        images.add(x, images.cropped(other, first, height))
    elif kind == "beside" and depth < 12:
        images.beside(x, x)
    else:
        images.element_wise(x)


def with_dense_layer(data: bytes) -> bytes:
    """Return the network with a layer of three outputs after its last image."""
    root = tflm.Model(data).root
    builder = ModelBuilder()
    builder.model = root
    main = builder.subgraph()
    root.subgraphs.pop()
    main.table = root.subgraphs[0]
    (last,) = main.table.outputs
    table = main.table.tensors[last]
    size = int(np.prod(table.shape))
    shape = main.constant("shape", np.array([1, size], np.int32))
    flat = main.tensor("flat", (1, size), INT8, table.quantization)
    main.operator(BuiltinOperator.RESHAPE, [last, shape], [flat], ReshapeOptions(new_shape=(1, size)))
    weights = np.random.default_rng(size).integers(-127, 128, (3, size)).astype(np.int8)
    w = main.constant("weights", weights, quantized(0.01))
    y = main.tensor("y", (1, 3), INT8, quantized(0.2, 3))
    main.operator(BuiltinOperator.FULLY_CONNECTED, [flat, w, -1], [y], FullyConnectedOptions())
    main.table.outputs = (y,)
    return builder.build()


def windows(first: Frames, frames: Sequence[Frames], axis: int) -> Iterator[Frames]:
    """The windows that end with each of these groups of frames."""
    window = first
    for new in frames:
        window = np.concatenate([window, new], axis).take(range(-first.shape[axis], 0), axis)
        yield window


def answers(model: tflm.Model, runs: Sequence[Frames | None], **options: object) -> list[Frames]:
    """Answers of one interpreter to successive inputs; None resets it."""
    interpreter = tflm.MicroInterpreter(model, tflm.AllOpsResolver(), bytearray(1 << 22), **options)
    interpreter.allocate_tensors()
    found = []
    for values in runs:
        if values is None:
            interpreter.reset()
            continue
        interpreter.input(0).data[...] = values
        interpreter.invoke()
        found.append(np.array(interpreter.output(0).data))
    return found


def check_against_windows(
    model: tflm.Model, streamed: tflm.StreamedModel, oracle: Oracle | None, seed: int = 0
) -> None:
    """Compare twice the number of invokes that fill the window, and more after a reset, here and in TFLM."""
    shape = model.subgraphs[0].tensors[model.subgraphs[0].inputs[0]].shape
    zero_point = model.subgraphs[0].tensors[model.subgraphs[0].inputs[0]].quantization.zero_point[0]
    first = np.full(shape, zero_point, np.int8)
    rng = np.random.default_rng(seed)
    new = list(shape)
    new[streamed.axis] = streamed.hop * streamed.frame
    count = 2 * streamed.warm_up + 2
    frames = [rng.integers(-128, 128, new).astype(np.int8) for _ in range(2 * count)]
    expected = [
        answer
        for part in (frames[:count], frames[count:])
        for answer in answers(model, list(windows(first, part, streamed.axis)), delegates=())
    ]
    runs = [*frames[:count], None, *frames[count:]]
    np.testing.assert_array_equal(answers(streamed.model, runs, delegates=()), expected)
    if oracle is not None:
        theirs = oracle.run(streamed.data, [None if each is None else [each] for each in runs])
        np.testing.assert_array_equal([answer for (answer,) in theirs], expected)


@pytest.mark.runs(0.2)
@given(networks(), st.sampled_from([1, 1, 1, 2, 2, 4, 6]), st.sampled_from([None, 1, 1, 1, 2]), st.integers(0, 9))
def test_every_invoke_answers_for_its_window(
    oracle: Oracle, data: bytes, hop: int, axis: int | None, seed: int
) -> None:
    model = tflm.Model(data)
    try:
        streamed = tflm.stream(model, hop=hop, axis=axis)
    except tflm.ArgumentError:
        outcomes.count(ran=False)
        return
    outcomes.count(ran=True)
    assert streamed.macs < streamed.macs_before
    check_against_windows(model, streamed, oracle, seed)


def temporal_network(
    kernels: Sequence[int], strides: Sequence[int] | None = None, padding: Padding = Padding.VALID, features: int = 4
) -> tflm.Model:
    """Convolutions along time over twenty frames, and a dense layer."""
    images = Images(ModelBuilder().subgraph(), (1, 20, 1, features))
    for kernel, stride in zip(kernels, strides or [1] * len(kernels)):
        images.convolution(images.last, 4, (kernel, 1), (stride, 1), padding=padding)
    images.main.output(images.last)
    return tflm.Model(with_dense_layer(images.main.builder.build()))


def test_a_network_without_padding_computes_new_rows_only() -> None:
    streamed = tflm.stream(temporal_network([3, 5]))
    layers = [layer for layer in streamed.layers if layer.operator == "CONV_2D"]
    assert [(layer.rows, layer.computed) for layer in layers] == [(18, 1), (14, 1)]
    assert streamed.macs == streamed.macs_without_padding == (3 + 5) * 4 * 4 + 14 * 4 * 3
    # Two frames, four rows and thirteen rows of four bytes, and the flag.
    assert streamed.state_bytes == (2 + 4 + 13) * 4 + 1
    assert streamed.warm_up == 20


def test_rows_next_to_padding_are_computed_again() -> None:
    streamed = tflm.stream(temporal_network([3, 5], padding=Padding.SAME))
    layers = [layer for layer in streamed.layers if layer.operator == "CONV_2D"]
    # One row at the start, and at the end the new one and the one before it; then two more on each side.
    assert [layer.computed for layer in layers] == [3, 7]
    assert streamed.macs_without_padding < streamed.macs < streamed.macs_before


@pytest.mark.parametrize("padding", [Padding.VALID, Padding.SAME])
def test_the_report_names_rows_that_are_computed_again_if_there_are_any(padding: Padding) -> None:
    streamed = tflm.stream(temporal_network([3], padding=padding))
    arena = tflm.measure_arena(streamed.model, tflm.AllOpsResolver())
    report = streaming_report("m", streamed, MachineOptions().machine(), arena, arena, None)
    assert any("next to padding" in note for note in report.notes) == (padding == Padding.SAME)


def test_rows_are_not_taken_from_the_edges_of_others() -> None:
    """With a dilation, rows next to padding are computed one by one, from windows that have other rows between them."""
    images = Images(ModelBuilder().subgraph(), (1, 21, 1, 2))
    images.convolution(images.last, 1, (4, 1), dilations=(2, 1))
    images.main.output(images.last)
    model = tflm.Model(images.main.builder.build())
    streamed = tflm.stream(model)
    assert 0 < streamed.layers[-1].kept < 20
    check_against_windows(model, streamed, None)


def test_rows_that_a_later_window_does_not_read_are_not_kept() -> None:
    """The second layer reads its older rows with gaps that no other row moves into."""
    images = Images(ModelBuilder().subgraph(), (1, 24, 1, 2))
    images.convolution(images.last, 2, (2, 1), dilations=(2, 1))
    images.convolution(images.last, 2, (4, 1), (2, 1), padding=Padding.VALID)
    images.main.output(images.last)
    streamed = tflm.stream(tflm.Model(images.main.builder.build()), hop=4)
    assert [layer.kept for layer in streamed.layers] == [3 + 3 + 3 + 6, 7]


def reshaped(images: Images, x: int, shape: Any, code: BuiltinOperator = BuiltinOperator.RESHAPE) -> int:
    """The same elements in another shape, by a RESHAPE or by an EXPAND_DIMS of the second dimension."""
    main = images.main
    y = main.tensor("r", shape, INT8, main.table.tensors[x].quantization)
    values = np.array(1 if code == BuiltinOperator.EXPAND_DIMS else shape, np.int32)
    options = ExpandDimsOptions() if code == BuiltinOperator.EXPAND_DIMS else ReshapeOptions(new_shape=shape)
    main.operator(code, [x, main.constant("shape", values)], [y], options)
    images.shapes[y], images.last = shape, y
    return y


def convolutions_of_one_dimension() -> Images:
    """Return Conv1D as Keras converts it: time is the second dimension of a tensor of rank three, and the third one of
    an image."""
    images = Images(ModelBuilder().subgraph(), (1, 20, 4))
    for kernel, dilation, code in ((3, 1, BuiltinOperator.EXPAND_DIMS), (3, 2, BuiltinOperator.RESHAPE)):
        _, rows, channels = images.shapes[images.last]
        image = reshaped(images, images.last, (1, 1, rows, channels), code)
        images.convolution(image, 4, (1, kernel), dilations=(1, dilation), padding=Padding.VALID)
        _, _, rows, channels = images.shapes[images.last]
        reshaped(images, images.last, (1, rows, channels))
    return images


def residual_blocks_with_dilations() -> Images:
    """Return a temporal convolutional network. Each block adds its input, delayed by the length of its window."""
    images = Images(ModelBuilder().subgraph(), (1, 24, 1, 3))
    for dilation in (1, 2, 4):
        x, rows = images.last, images.shapes[images.last][1] - 2 * dilation
        y = images.convolution(x, 3, (3, 1), dilations=(dilation, 1), padding=Padding.VALID)
        images.add(images.cropped(x, 2 * dilation, rows), images.convolution(y, 3, (1, 1)))
    return images


def separable_convolutions() -> Images:
    """Depthwise and pointwise convolutions over images of time and frequency, with padding in frequency alone."""
    images = Images(ModelBuilder().subgraph(), (1, 20, 6, 1))
    images.convolution(images.last, 4, (5, 3), (1, 2), padding=Padding.VALID)
    for _ in range(2):
        images.pad(images.last, (0, 0), (1, 1))
        images.convolution(images.convolution(images.last, 0, (3, 3), padding=Padding.VALID), 4, (1, 1))
    return images


def pools_with_strides() -> Images:
    """Pools that halve the rows, of which the second one overlaps, and branches with different windows."""
    images = Images(ModelBuilder().subgraph(), (1, 34, 1, 3))
    x = images.convolution(images.last, 3, (3, 1), padding=Padding.VALID)
    x = images.pool(x, BuiltinOperator.MAX_POOL_2D, (2, 1), (2, 1), Padding.VALID)
    long, short = images.convolution(x, 3, (5, 1), padding=Padding.VALID), images.cropped(x, 4, 12)
    images.pool(images.add(long, short), BuiltinOperator.AVERAGE_POOL_2D, (3, 1), (2, 1), Padding.VALID)
    return images


def halves_with_exchanged_axes() -> Images:
    """Return the mean over features of two halves of the channels, as rows of an image with time along its columns."""
    images = Images(ModelBuilder().subgraph(), (1, 20, 3, 4))
    x, main = images.convolution(images.last, 4, (3, 1), padding=Padding.VALID), images.main

    def operator(code: BuiltinOperator, inputs: Sequence[int], shapes: Sequence[Any], options: Any) -> list[int]:
        parameters = main.table.tensors[x].quantization
        outputs = [main.tensor(code.name, shape, INT8, parameters) for shape in shapes]
        images.shapes |= dict(zip(outputs, shapes))
        main.operator(code, inputs, outputs, options)
        return outputs

    def constant(*numbers: int) -> int:
        return main.constant("", np.array(numbers, np.int32))

    axis = main.constant("axis", np.array(-1, np.int32))
    halves = operator(BuiltinOperator.SPLIT, [axis, x], [(1, 18, 3, 2)] * 2, SplitOptions(num_splits=2))
    both, turn = images.add(*halves), TransposeOptions()
    (turned,) = operator(BuiltinOperator.TRANSPOSE, [both, constant(0, 2, 1, 3)], [(1, 3, 18, 2)], turn)
    (means,) = operator(BuiltinOperator.MEAN, [turned, constant(1)], [(1, 18, 2)], ReducerOptions(keep_dims=False))
    images.convolution(reshaped(images, means, (1, 1, 18, 2)), 3, (1, 4), padding=Padding.VALID)
    return images


@pytest.mark.parametrize(
    ("network", "hop", "axis", "share"),
    [
        (convolutions_of_one_dimension, 1, 1, 1 / 10),
        (convolutions_of_one_dimension, 3, 1, 1 / 4),
        (residual_blocks_with_dilations, 1, 1, 1 / 10),
        (residual_blocks_with_dilations, 4, 1, 1 / 3),
        (separable_convolutions, 1, 1, 1 / 10),
        (separable_convolutions, 2, 1, 1 / 5),
        (halves_with_exchanged_axes, 1, 1, 1 / 10),
        (pools_with_strides, 4, 1, 1 / 4),
        (pools_with_strides, 8, 1, 1 / 2),
    ],
)
def test_networks_of_the_field_compute_new_rows_only(
    oracle: Oracle, network: Callable[[], Images], hop: int, axis: int, share: float
) -> None:
    images = network()
    images.main.output(images.last)
    model = tflm.Model(with_dense_layer(images.main.builder.build()))
    streamed = tflm.stream(model, hop=hop)
    assert (streamed.axis, streamed.macs) == (axis, streamed.macs_without_padding)
    dense = images.shapes[images.last]
    assert streamed.macs - 3 * np.prod(dense) <= share * (streamed.macs_before - 3 * np.prod(dense))
    check_against_windows(model, streamed, oracle)


def model_of_two_windows() -> tflm.Model:
    """The sum of convolutions along two windows."""
    images = Images(ModelBuilder().subgraph(), (1, 12, 1, 4))
    first, second = images.last, images.main.input("y", (1, 12, 1, 4), INT8, quantized(0.05, -3))
    images.shapes[second] = (1, 12, 1, 4)
    parts = [images.convolution(x, 4, (3, 1), padding=Padding.VALID) for x in (first, second)]
    images.main.output(images.add(*parts))
    return tflm.Model(images.main.builder.build())


@pytest.mark.parametrize("index", [0, 1])
def test_one_of_two_inputs_is_streamed(index: int) -> None:
    """The other window is given whole with every invoke; answers are compared before the model is returned."""
    streamed = tflm.stream(model_of_two_windows(), input=index)
    shapes = [streamed.model.subgraphs[0].tensors[tensor].shape for tensor in streamed.model.subgraphs[0].inputs]
    assert shapes[index] == (1, 1, 1, 4)
    assert shapes[1 - index] == (1, 12, 1, 4)
    assert (streamed.macs, streamed.macs_before) == ((1 + 10) * 3 * 4 * 4, 2 * 10 * 3 * 4 * 4)


@pytest.mark.parametrize("index", [0, 1])
def test_c_streams_the_input_that_is_named(index: int) -> None:
    compiled = tflm.compile_model(model_of_two_windows(), "net", stream=1, stream_input=index)
    sizes = {f"NET_INPUT_{number}_BYTES": 4 if number == index else 48 for number in range(2)}
    assert all(f"#define {macro} {size}\n" in compiled.files["net.h"] for macro, size in sizes.items())


def test_an_input_to_stream_needs_a_hop() -> None:
    with pytest.raises(tflm.ArgumentError, match="new frames in each invoke: stream=1"):
        tflm.compile_model(model_of_two_windows(), "net", stream_input=1)
    answer = run("compile", INT8_MODEL, "c", "--stream-input", 0)
    assert answer.returncode == 2
    assert "--stream 1" in answer.stderr


def test_commands_refuse_a_model_without_time_alike(tmp_path: Path) -> None:
    np.save(tmp_path / "frames.npy", np.zeros((2, 1), np.int8))
    commands = (
        ("stream", INT8_MODEL),
        ("compile", INT8_MODEL, tmp_path / "c", "--stream", 1),
        ("run", INT8_MODEL, "--stream", "--inputs", tmp_path / "frames.npy"),
    )
    for command in commands:
        answer = run(*command)
        assert (answer.returncode, answer.stdout) == (1, "")
        assert "no input has a time axis of several frames (found [1, 1])" in answer.stderr


def test_the_report_says_what_is_not_streamed(tmp_path: Path) -> None:
    model = model_of_two_windows()
    (tmp_path / "two.tflite").write_bytes(model.data)
    printed = CliRunner().invoke(app, ["stream", str(tmp_path / "two.tflite"), "--input", "1"]).output
    assert "each invoke takes all of input 0, as before" in printed


def test_the_window_before_the_first_frames_can_be_given() -> None:
    model = temporal_network([3, 5])
    first = np.random.default_rng(1).integers(-128, 128, (1, 20, 1, 4)).astype(np.int8)
    new = np.full((1, 2, 1, 4), 7, np.int8)
    streamed = tflm.stream(model, hop=2, initial=first)
    expected = answers(model, list(windows(first, [new, new], 1)))
    for options in ({}, {"delegates": ()}):
        np.testing.assert_array_equal(answers(streamed.model, [new, new], **options), expected)


def test_unused_frames_do_not_count_for_the_warm_up() -> None:
    images = Images(ModelBuilder().subgraph(), (1, 20, 1, 4))
    images.convolution(images.last, 4, (3, 1), (3, 1), padding=Padding.VALID)  # frames 0 to 17
    images.main.output(images.last)
    assert tflm.stream(tflm.Model(images.main.builder.build()), hop=3).warm_up == 7


def test_an_invoke_takes_all_frames_of_a_hop() -> None:
    """Only the last frame of a hop is read, and an invoke still takes the other ones."""
    images = Images(ModelBuilder().subgraph(), (1, 17, 1, 4))
    images.convolution(images.last, 4, (1, 1), (4, 1), padding=Padding.VALID)  # frames 0, 4, ..., 16
    images.main.output(images.last)
    model = tflm.Model(images.main.builder.build())
    streamed = tflm.stream(model, hop=4)
    assert streamed.model.subgraphs[0].tensors[streamed.model.subgraphs[0].inputs[0]].shape == (1, 4, 1, 4)
    check_against_windows(model, streamed, None)


def causal_answers(kernels: Sequence[int], model: tflm.Model, frames: Frames) -> Frames:
    """What `temporal_network` with padding answers for its last frames if no window looks beyond its last frame.

    Convolutions without padding are run on frames that begin as much earlier, which are zeros.
    """
    longer = sum(kernels) - len(kernels)
    window = np.concatenate([np.full((1, longer, 1, 4), -3, np.int8), frames], 1)
    images = Images(ModelBuilder().subgraph(), window.shape)
    for kernel in kernels:
        images.convolution(images.last, 4, (kernel, 1), padding=Padding.VALID)
    images.main.output(images.last)
    plain = tflm.Model(with_dense_layer(images.main.builder.build()))
    (answer,) = answers(plain, [window])
    return answer


def test_the_causal_form_looks_at_no_frames_to_come() -> None:
    model = temporal_network([3, 5], padding=Padding.SAME)
    streamed = tflm.stream(model, hop=2, causal=True)
    assert (streamed.causal, streamed.window, streamed.macs) == (True, 26, streamed.macs_without_padding)
    assert [layer.computed for layer in streamed.layers if layer.operator == "CONV_2D"] == [2, 2]
    frames = np.random.default_rng(0).integers(-128, 128, (1, 24, 1, 4)).astype(np.int8)
    found = answers(streamed.model, list(np.split(frames, 12, 1)))
    np.testing.assert_array_equal(found[9], causal_answers([3, 5], model, frames[:, :20]))
    initial = np.full((1, 20, 1, 4), -3, np.int8)
    assert tflm.stream(model, hop=2, causal=True, initial=initial).data == streamed.data


def test_the_window_of_the_causal_form_is_long_enough_for_every_branch() -> None:
    images = Images(ModelBuilder().subgraph(), (1, 20, 1, 4))
    x = images.last
    images.add(images.convolution(x, 4, (1, 1)), images.convolution(x, 4, (5, 1)))
    images.main.output(images.last)
    streamed = tflm.stream(tflm.Model(images.main.builder.build()), causal=True)
    assert (streamed.window, streamed.macs) == (24, streamed.macs_without_padding)


def test_the_causal_form_pads_features_as_before() -> None:
    """If all frames are alike, rows far from the padding of time do not change."""
    images = Images(ModelBuilder().subgraph(), (1, 32, 6, 2))
    images.convolution(images.last, 3, (4, 3), (2, 2))
    images.pool(images.last, BuiltinOperator.MAX_POOL_2D, (3, 3), (1, 1), Padding.SAME)
    images.add(images.last, images.convolution(images.last, 0, (3, 3), dilations=(2, 1)))
    images.main.output(images.last)
    model = tflm.Model(images.main.builder.build())
    streamed = tflm.stream(model, hop=2, axis=1, causal=True)
    assert (streamed.window, streamed.macs) == (32 + 2 + 2 * (2 + 4), streamed.macs_without_padding)
    frames = np.repeat(np.random.default_rng(0).integers(-128, 128, (1, 2, 6, 2)), 32, 0).reshape(1, 64, 6, 2)[:, ::2]
    frames = frames.astype(np.int8)
    (expected,) = answers(model, [frames])
    found = answers(streamed.model, list(np.split(frames, 16, 1)) * 2)
    np.testing.assert_array_equal(found[-1], np.repeat(expected[:, 8:9], 16, 1))


@pytest.mark.parametrize(
    ("model", "options", "message"),
    [
        (temporal_network([3]), {"causal": True}, "no layer pads time, so the causal form is the model itself"),
        (
            temporal_network([3], features=30),
            {"hop": 20},
            "a hop of 20 frames leaves nothing of a window of 20; use 19 or less",
        ),
        (tflm.stream(temporal_network([3])).model, {}, r"operator 0 \(VAR_HANDLE\) keeps state: .* as it is"),
        (temporal_network([3]), {"hop": 0}, "invalid hop 0"),
        (temporal_network([3]), {"hop": True}, "invalid hop True"),
        (temporal_network([3]), {"hop": 1.0}, "invalid hop 1.0"),
        (temporal_network([3]), {"hop": 20}, "a hop of 20 frames leaves nothing of a window of 20; use 19 or less"),
        (
            temporal_network([3], [2]),
            {},
            r"does not fit the strides of operator 0 \(CONV_2D\); use hops of 2, 4, 6, ...",
        ),
        (temporal_network([3, 3], [2, 2]), {}, r"strides of operator 0 \(CONV_2D\); use hops of 4, 8, 12, ..."),
        (temporal_network([3, 3], [1, 3]), {"hop": 4}, r"strides of operator 1 \(CONV_2D\); use hops of 3, 6, 9, ..."),
        (temporal_network([3]), {"axis": 4}, r"axis 4 is out of range for the input's shape \[1, 20, 1, 4\]"),
        (temporal_network([3]), {"axis": 3}, "saves no work"),
        (temporal_network([3]), {"axis": 0}, "no input has a time axis of several frames .*, or choose another axis"),
        (temporal_network([3]), {"input": 1}, r"unknown input 1 \(the model has 1, counted from 0\)"),
        (
            temporal_network([3]),
            {"initial": np.zeros((1, 20, 1, 4))},
            "the initial window is float64 of shape .*; pass an array of int8",
        ),
        (
            temporal_network([3]),
            {"initial": np.zeros((20, 4), np.int8)},
            r"of shape \[20, 4\]; pass an array of int8 with shape \[1, 20, 1, 4\]",
        ),
    ],
)
def test_what_cannot_be_streamed_is_refused(model: tflm.Model, options: dict[str, object], message: str) -> None:
    with pytest.raises(tflm.ArgumentError, match=message):
        tflm.stream(model, **options)


def test_a_dynamic_shape_is_refused() -> None:
    builder = ModelBuilder()
    builder.model = temporal_network([3]).root
    builder.model.subgraphs[0].tensors[0].shape_signature = (-1, -1, 1, 4)
    with pytest.raises(tflm.ArgumentError, match=r"dynamic shape, .*; fix it first"):
        tflm.stream(tflm.Model(builder.build()))


@pytest.mark.skipif(not STR_WW.exists(), reason="needs the corpus of models")
def test_the_wake_word_network_of_mlperf_tiny(oracle: Oracle) -> None:
    model = tflm.Model.from_file(STR_WW)
    streamed = tflm.stream(model)
    assert (streamed.axis, streamed.frame, streamed.window, streamed.warm_up) == (1, 1, 30, 30)
    assert (streamed.macs, streamed.macs_before, streamed.state_bytes) == (46_040, 826_368, 3_536 + 1)
    check_against_windows(model, streamed, oracle)


@pytest.mark.skipif(not STR_WW.exists(), reason="needs the corpus of models")
def test_a_network_with_padding_keeps_what_stays_the_same() -> None:
    streamed = tflm.stream(tflm.Model.from_file(CORPUS / "models" / "kws_ref_model.tflite"), hop=2)
    kept = [layer.kept for layer in streamed.layers if layer.operator == "CONV_2D"]
    assert kept == [19, 17, 15, 13, 11]


@needs_compiler
@pytest.mark.runs(0.2)
@settings(max_examples=examples(8), phases=(Phase.reuse, Phase.generate))
@given(networks(), st.sampled_from([1, 1, 2, 4]), st.integers(0, 9))
def test_c_keeps_what_stays_the_same_in_place(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, hop: int, seed: int
) -> None:
    model = tflm.Model(data)
    try:
        compiled = tflm.compile_model(model, "net", stream=hop)
    except tflm.ArgumentError:
        outcomes.count(ran=False)
        return
    outcomes.count(ran=True)
    streamed = tflm.stream(model, hop=hop)
    program = CheckedProgram(compiled, tmp_path_factory.mktemp("net"))
    assert compiled.program.bound.states
    assert compiled.warm_up == streamed.warm_up
    assert not any("VARIABLE" in code.operator.node.operator for code in operators_of(compiled))
    shape = list(model.subgraphs[0].tensors[model.subgraphs[0].inputs[0]].shape)
    zero_point = model.subgraphs[0].tensors[model.subgraphs[0].inputs[0]].quantization.zero_point[0]
    first = np.full(shape, zero_point, np.int8)
    shape[streamed.axis] = streamed.hop * streamed.frame
    frames = np.random.default_rng(seed).integers(-128, 128, (2, streamed.warm_up + 3, *shape)).astype(np.int8)
    found = program.run([*([new] for new in frames[0]), None, *([new] for new in frames[1])])
    expected = [answer for part in frames for answer in answers(model, list(windows(first, part, streamed.axis)))]
    np.testing.assert_array_equal([outputs and outputs[0] for outputs in found], expected)


@pytest.mark.parametrize("hop", [1, 2, 3, 8])
@pytest.mark.parametrize("kernels", [[1], [3], [3, 5], [1, 4, 2]])
def test_the_warm_up_of_a_streaming_model_follows_from_its_variables(kernels: list[int], hop: int) -> None:
    streamed = tflm.stream(temporal_network(kernels), hop=hop)
    header = tflm.compile_model(streamed.model, "net", optimize="speed").files["net.h"]
    assert f"#define NET_WARM_UP {streamed.warm_up}\n" in header


@pytest.mark.parametrize("kernels", [[1], [3, 5]])
def test_a_model_without_variables_has_no_warm_up(kernels: list[int]) -> None:
    model = temporal_network(kernels)
    assert "WARM_UP" not in tflm.compile_model(model, "net", optimize="speed").files["net.h"]


def test_the_warm_up_follows_strides() -> None:
    """Of three rows in an invoke, two are computed from new frames only; one of these is in the next window, too."""
    images = Images(ModelBuilder().subgraph(), (1, 12, 1, 4))
    images.convolution(images.last, 4, (4, 1), (2, 1), padding=Padding.VALID)
    images.main.output(images.last)
    streamed = tflm.stream(tflm.Model(images.main.builder.build()), hop=6)
    assert tflm.compile_model(streamed.model, "net").warm_up == streamed.warm_up == 2


def test_c_that_streams_takes_the_warm_up_of_the_stream() -> None:
    """From the variables alone it is longer here: rows of padding wait, too."""
    images = Images(ModelBuilder().subgraph(), (1, 14, 3, 1))
    rows = images.convolution(images.last, 2, (2, 2), padding=Padding.VALID)
    images.main.output(images.pad(rows, (2, 0), (0, 0)))
    model = tflm.Model(images.main.builder.build())
    assert tflm.compile_model(model, "net", stream=1).warm_up == tflm.stream(model).warm_up == 14


@pytest.mark.parametrize(("shape", "taps", "axis"), [((1, 12, 3, 2), (3, 1), 1), ((1, 3, 12, 2), (1, 3), 2)])
def test_the_warm_up_is_known_along_either_axis(shape: tuple[int, ...], taps: tuple[int, int], axis: int) -> None:
    images = Images(ModelBuilder().subgraph(), shape)
    for _ in range(2):
        images.convolution(images.last, 3, taps, padding=Padding.VALID)
    images.main.output(images.last)
    streamed = tflm.stream(tflm.Model(images.main.builder.build()), axis=axis)
    assert tflm.compile_model(streamed.model, "net").warm_up == streamed.warm_up == 12


def wide_network(type: TensorType) -> tflm.Model:
    """Two convolutions along time of floats or of 16 bits."""
    is_float, rng = type == TensorType.FLOAT32, np.random.default_rng(0)
    main = ModelBuilder().subgraph()
    parameters = None if is_float else quantized(0.01)
    x = main.input("x", (1, 12, 1, 3), type, parameters)
    for rows, taps in ((10, 3), (7, 4)):
        weights = rng.integers(-127, 128, (1, taps, 1, 3)).astype(np.float32 if is_float else np.int8)
        bias = rng.integers(-500, 500, 3).astype(np.float32 if is_float else np.int64)
        w = main.constant("w", weights, None if is_float else quantized([0.01] * 3, 0, 3))
        b = main.constant("b", bias, None if is_float else quantized([0.0001] * 3))
        y = main.tensor("y", (1, rows, 1, 3), type, parameters)
        options = DepthwiseConv2DOptions(padding=Padding.VALID, stride_h=1, stride_w=1, depth_multiplier=1)
        main.operator(BuiltinOperator.DEPTHWISE_CONV_2D, [x, w, b], [y], options, version=3)
        x = y
    main.output(x)
    return tflm.Model(main.builder.build())


@needs_compiler
@pytest.mark.parametrize("hop", [1, 2])
@pytest.mark.parametrize("type", [TensorType.FLOAT32, TensorType.INT16])
def test_c_streams_wide_elements(tmp_path: Path, type: TensorType, hop: int) -> None:
    model = wide_network(type)
    compiled = tflm.compile_model(model, "net", stream=hop)
    dtype = np.float32 if type == TensorType.FLOAT32 else np.int16
    frames = np.random.default_rng(0).integers(-9999, 9999, (16, 1, hop, 1, 3)).astype(dtype)
    first = np.zeros((1, 12, 1, 3), dtype)
    expected = answers(model, list(windows(first, list(frames), 1)), delegates=())
    found = CheckedProgram(compiled, tmp_path).run([[frame] for frame in frames])
    np.testing.assert_allclose([outputs and outputs[0] for outputs in found], expected, 1e-5 * (dtype is np.float32))


def delay_line(begin: str, *, shows_state: bool = False) -> tflm.Model:
    """The last three frames and, after they were assigned, what was kept before; variables begin in several ways."""
    builder = ModelBuilder()
    main, parameters = builder.subgraph(), quantized(0.5, 3)
    x = main.input("x", (1, 1, 1, 4), INT8, parameters)
    handle = main.tensor("handle", (1,), TensorType.RESOURCE)
    old, window, new, y, z = (
        main.tensor(name, (1, rows, 1, 4), INT8, quantized(1 / 256, -128) if name == "z" else parameters)
        for name, rows in zip("oawyz", (2, 3, 2, 3, 2))
    )
    first, last = (main.constant("part", np.array(part, np.int32)) for part in ((0, 1, 0, 0), (1, 2, 1, 4)))
    main.operator(BuiltinOperator.VAR_HANDLE, [], [handle], VarHandleOptions(container="", shared_name="state"))
    steps = [
        (BuiltinOperator.READ_VARIABLE, [handle], [old], None),
        (BuiltinOperator.CONCATENATION, [old, x], [window], ConcatenationOptions(axis=1)),
        (BuiltinOperator.SLICE, [window, first, last], [new], SliceOptions()),
        (BuiltinOperator.ASSIGN_VARIABLE, [handle, new], [], None),
        (BuiltinOperator.RELU, [window], [y], None),
        (BuiltinOperator.LOGISTIC, [old], [z], None),
    ]
    if begin != "by default":
        steps.insert(
            int(begin == "after it is read"),
            (BuiltinOperator.CALL_ONCE, [], [], CallOnceOptions(init_subgraph_index=1)),
        )
        init = builder.subgraph("init")
        values = init.constant("first", np.arange(8, dtype=np.int8).reshape(1, 2, 1, 4), parameters)
        again = init.tensor("handle", (1,), TensorType.RESOURCE)
        init.operator(BuiltinOperator.VAR_HANDLE, [], [again], VarHandleOptions(container="", shared_name="state"))
        init.operator(BuiltinOperator.ASSIGN_VARIABLE, [again, values], [])
    for step in steps:
        main.operator(*step)
    main.output(z)
    main.output(old if shows_state else y)
    return tflm.Model(builder.build())


@needs_compiler
@pytest.mark.parametrize("begin", ["by default", "before it is read", "after it is read"])
def test_state_begins_as_variables_do(tmp_path: Path, begin: str) -> None:
    model = delay_line(begin)
    compiled = tflm.compile_model(model, "net")
    assert bool(compiled.program.bound.states) == (begin != "after it is read")
    frames = np.random.default_rng(0).integers(-128, 128, (5, 1, 1, 1, 4)).astype(np.int8)
    found = CheckedProgram(compiled, tmp_path).run([[frame] for frame in frames])
    interpreter = tflm.MicroInterpreter(model, tflm.AllOpsResolver(), bytearray(1 << 16))
    interpreter.allocate_tensors()
    for frame, outputs in zip(frames, found):
        interpreter.input(0).data[...] = frame
        interpreter.invoke()
        for number, output in enumerate(outputs or ()):
            np.testing.assert_array_equal(output, interpreter.output(number).data)


@needs_compiler
def test_what_is_kept_can_be_an_output(tmp_path: Path) -> None:
    """The caller reads it after the invoke that assigns the next value."""
    model = delay_line("by default", shows_state=True)
    frames = np.random.default_rng(0).integers(-128, 128, (5, 1, 1, 1, 4)).astype(np.int8)
    found = CheckedProgram(tflm.compile_model(model, "net"), tmp_path).run([[frame] for frame in frames])
    kept = [outputs[1] for outputs in found if outputs]
    np.testing.assert_array_equal(kept[2:], [np.concatenate(list(frames[i : i + 2]), 1) for i in range(3)])


def exchanged_variables() -> tflm.Model:
    """Each of two variables gets the value of the other one; the first one is added to the input."""
    builder, parameters = ModelBuilder(), quantized(0.5)
    main = builder.subgraph()
    x = main.input("x", (1, 4), INT8, parameters)
    old = [main.tensor(f"old_{name}", (1, 4), INT8, parameters) for name in "ab"]
    y = main.tensor("y", (1, 4), INT8, parameters)
    init = builder.subgraph("init")
    handles = []
    for name, first in zip("ab", (1, 50)):
        for subgraph in (main, init):
            handle = subgraph.tensor(name, (1,), TensorType.RESOURCE)
            options = VarHandleOptions(container="", shared_name=name)
            subgraph.operator(BuiltinOperator.VAR_HANDLE, [], [handle], options)
            if subgraph is main:
                handles.append(handle)
        values = init.constant("first", np.full((1, 4), first, np.int8), parameters)
        init.operator(BuiltinOperator.ASSIGN_VARIABLE, [handle, values], [])
    main.operator(BuiltinOperator.CALL_ONCE, [], [], CallOnceOptions(init_subgraph_index=1))
    for handle, value in zip(handles, old):
        main.operator(BuiltinOperator.READ_VARIABLE, [handle], [value])
    main.operator(BuiltinOperator.ADD, [x, old[0]], [y], AddOptions())
    for handle, value in zip(handles, reversed(old)):
        main.operator(BuiltinOperator.ASSIGN_VARIABLE, [handle, value], [])
    main.output(y)
    return tflm.Model(builder.build())


@needs_compiler
def test_variables_can_be_exchanged(tmp_path: Path) -> None:
    model = exchanged_variables()
    program = CheckedProgram(tflm.compile_model(model, "net"), tmp_path)
    frames = np.random.default_rng(0).integers(-128, 128, (4, 1, 4)).astype(np.int8)
    found = program.run([[frame] for frame in frames])
    expected = frames + np.array([1, 50, 1, 50]).reshape(4, 1, 1)
    np.testing.assert_array_equal([outputs and outputs[0] for outputs in found], expected.clip(-128, 127))


def test_the_checker_finds_state_that_is_not_passed_on() -> None:
    program = tflm.compile_model(delay_line("by default"), "net").program
    model, states = program.bound.model, program.bound.states
    kernels = ReferenceKernels(model)
    moves = [call for call in program.plan.calls if isinstance(call, MovedRows)]
    assert moves
    assert not list(values_lost_in_calls(model, program.plan, kernels, states))
    for move in moves:
        calls = tuple(call for call in program.plan.calls if call is not move)
        assert list(values_lost_in_calls(model, program.plan._replace(calls=calls), kernels, states))


@needs_compiler
@pytest.mark.parametrize(
    ("taps", "channels"),
    some(
        itertools.product([(5, 3), (3, 5), (3, 4)], [(4, 4), (3, 3), (3, 5)]),
        ((5, 3), (4, 4)),
        ((3, 5), (3, 5)),
        ((3, 4), (4, 4)),
    ),
)
def test_channels_with_different_taps_are_one_convolution(
    tmp_path: Path, taps: tuple[int, int], channels: tuple[int, int]
) -> None:
    """Of the last five frames, some channels are convolved over more frames than others."""
    depth = sum(channels)
    images = Images(ModelBuilder().subgraph(), (1, 1, 1, depth))
    main, x = images.main, images.last
    parameters = main.table.tensors[x].quantization
    handle = main.tensor("handle", (1,), TensorType.RESOURCE)
    old, window = (
        main.tensor(name, (1, rows, 1, depth), INT8, parameters) for name, rows in (("old", 4), ("window", 5))
    )
    main.operator(BuiltinOperator.VAR_HANDLE, [], [handle], VarHandleOptions(container="", shared_name="state"))
    main.operator(BuiltinOperator.READ_VARIABLE, [handle], [old])
    main.operator(BuiltinOperator.CONCATENATION, [old, x], [window], ConcatenationOptions(axis=1))
    images.shapes[window] = (1, 5, 1, depth)
    main.operator(BuiltinOperator.ASSIGN_VARIABLE, [handle, images.cropped(window, 1, 4)], [])
    made = []
    for channel, size, count in zip((0, channels[0]), channels, taps):
        part = images.cropped(window, 5 - count, count, channel, size)
        made.append(images.convolution(part, 0, (count, 1), padding=Padding.VALID))
        if taps[1] == 4:  # one scale for all channels
            for constant in main.table.operators[-1].inputs[1:]:
                table = main.table.tensors[constant]
                table.quantization = quantized(table.quantization.scale[0])
    main.table.tensors[made[1]].quantization = main.table.tensors[made[0]].quantization
    main.output(images.beside(*made))
    model = tflm.Model(main.builder.build())
    compiled = tflm.compile_model(model, "net")
    names = [code.operator.node.operator for code in operators_of(compiled)]
    assert names == ["DEPTHWISE_CONV_2D"]
    frames = np.random.default_rng(0).integers(-128, 128, (7, 1, 1, 1, depth)).astype(np.int8)
    found = CheckedProgram(compiled, tmp_path).run([[frame] for frame in frames])
    np.testing.assert_array_equal([outputs and outputs[0] for outputs in found], answers(model, list(frames)))


def operators_of(compiled: tflm.CompiledModel) -> list[OperatorCode]:
    return [code for codes in compiled.program.subgraphs for code in codes if isinstance(code, OperatorCode)]


@pytest.mark.skipif(not STR_WW.exists(), reason="needs the corpus of models")
def test_real_networks_keep_their_state_in_place() -> None:
    wake_word = tflm.compile_model(tflm.Model.from_file(STR_WW), "net", stream=1)
    assert (wake_word.ram_bytes <= 4_200, wake_word.warm_up) == (True, 30)
    assert wake_word.instructions.total is not None
    assert max(wake_word.instructions.total.values()) <= 250_000
    assert "#define NET_WARM_UP 30" in wake_word.files["net.h"]
    okay_nabu = tflm.compile_model(tflm.Model.from_file(CORPUS / "models" / "okay_nabu_v2.tflite"), "net")
    assert okay_nabu.ram_bytes <= 4_200
    assert len(okay_nabu.program.bound.states) == 6


@needs_compiler
def test_states_that_take_each_other_s_place_begin_as_they_should(tmp_path: Path) -> None:
    """With a hop of 2, every second row passes through variables that no operator reads."""
    images = Images(ModelBuilder().subgraph(), (1, 18, 4, 2))
    images.pad(images.last, (2, 0), (1, 1))
    images.convolution(images.last, 0, (3, 1), (2, 1), padding=Padding.VALID)
    images.main.output(images.last)
    model = tflm.Model(with_dense_layer(images.main.builder.build()))
    streamed = tflm.stream(model, hop=2)
    program = CheckedProgram(tflm.compile_model(streamed.model, "net"), tmp_path)
    zero_point = model.subgraphs[0].tensors[model.subgraphs[0].inputs[0]].quantization.zero_point[0]
    first = np.full((1, 18, 4, 2), zero_point, np.int8)
    frames = list(np.random.default_rng(0).integers(-128, 128, (12, 1, 2, 4, 2)).astype(np.int8))
    expected = answers(model, list(windows(first, frames, 1)))
    found = program.run([[new] for new in frames])
    np.testing.assert_array_equal([outputs and outputs[0] for outputs in found], expected)


def frames_and(main: SubgraphBuilder, shape: tuple[int, ...]) -> tuple[int, int]:
    """Return RELU of frames, and an output of their shape."""
    x = main.input("x", shape, TensorType.INT8, quantized(0.5))
    a = main.tensor("a", shape, TensorType.INT8, quantized(0.5))
    main.operator(BuiltinOperator.RELU, [x], [a])
    y = main.tensor("y", shape, TensorType.INT8, quantized(1 / 256, -128))
    main.output(y)
    return a, y


def test_what_mixes_frames_is_computed_whole() -> None:
    builder = ModelBuilder()
    main = builder.subgraph()
    a, y = frames_and(main, (1, 6))
    main.operator(BuiltinOperator.SOFTMAX, [a], [y], SoftmaxOptions(beta=1.0))
    with pytest.raises(tflm.StreamError, match=r"operator 1 \(SOFTMAX\) needs the whole window"):
        tflm.stream(tflm.Model(builder.build()), axis=1)


@pytest.mark.parametrize(
    "shape", [(1, 6, 1, 2), (6, 1, 2), (6, 1, 1), (1, 6, 1, 1), (1, 1, 1, 2), (1, 1, 2), (1, 1, 1), (2,), (1,)]
)
def test_a_constant_that_tells_frames_apart_is_added_to_the_whole_window(shape: tuple[int, ...]) -> None:
    """One that broadcasts along time is added to new frames only."""
    builder = ModelBuilder()
    main = builder.subgraph()
    a, y = frames_and(main, (1, 6, 1, 2))
    ramp = main.constant("ramp", np.arange(math.prod(shape), dtype=np.int8).reshape(shape), quantized(0.5))
    main.operator(BuiltinOperator.ADD, [a, ramp], [y], AddOptions())
    reason = r"operator 1 \(ADD\) needs the whole window" if 6 in shape else r"saves no work"
    with pytest.raises(tflm.StreamError, match=reason):
        tflm.stream(tflm.Model(builder.build()), axis=1)
