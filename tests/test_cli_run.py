"""`tflm run` with inputs of all kinds, run as a user runs it."""

from __future__ import annotations

import itertools
import wave
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from example_models import INT8_MODEL
from image_graphs import Images
from test_cli import figures, refusal, run

import tflm
from tflm.application.comparison import Probe, compare_models, difference, first_beyond, require_same_shapes
from tflm.application.errors import OptionError, RequestError
from tflm.application.models import bytes_from, share_from, title_of, with_shapes
from tflm.application.running import Step, _abbreviated, _random_values, answers, input_names, set_inputs, write_outputs
from tflm.application.stream_run import Frontend, _filling, curves, read_frames, stream_report, streaming_form
from tflm.runtime.growing_arena import ready_interpreter
from tflm.schema import BuiltinOperator, Padding, TensorType

HALVES = tflm.quantized(0.5, 3)


def write_sum(path: Path, *inputs: str, shape: tuple[int, ...], type: TensorType = TensorType.INT8) -> Path:
    """A model whose outputs are each input plus zero, and so what was given."""
    builder = tflm.ModelBuilder()
    main = builder.subgraph()
    scale = HALVES if type in (TensorType.INT8, TensorType.UINT8) else None
    tensors = [main.input(name, shape, type, scale) for name in inputs]
    builder.signature("serve", {f"{name}_in": tensor for name, tensor in zip(inputs, tensors)}, {})
    dims = main.constant("dims", np.array(shape, np.int32))
    for name, tensor in zip(inputs, tensors):
        output = main.tensor(f"{name} again", shape, type, scale)
        main.operator(BuiltinOperator.RESHAPE, [tensor, dims], [output])
        main.output(output)
    path.write_bytes(builder.build())
    return path


def answered(*arguments: object) -> list[Any]:
    """The outputs of each step."""
    return [output["values"] for output in figures("run", *arguments)["outputs"]]


def test_real_values_are_quantized_and_answers_are_shown_as_real_ones_too(tmp_path: Path) -> None:
    model = write_sum(tmp_path / "model.tflite", "x", shape=(1, 3))
    np.save(tmp_path / "x.npy", np.array([[1.0, -0.74, 1000.0]]))
    (output,) = figures("run", model, "--inputs", tmp_path / "x.npy", "--real")["outputs"]
    assert output["values"] == [[5, 2, 127]]
    assert output["real_values"] == [[1.0, -0.5, 62.0]]
    shown = run("run", model, "--inputs", tmp_path / "x.npy", "--real").stdout
    assert "5 2 127" in shown
    assert "1 -0.5 62" in shown
    np.save(tmp_path / "whole.npy", np.array([[1, 0, 100]]))
    assert answered(model, "--inputs", tmp_path / "whole.npy") == [[[1, 0, 100]]]
    assert answered(model, "--inputs", tmp_path / "whole.npy", "--real") == [[[5, 3, 127]]]
    np.save(tmp_path / "other.npy", np.zeros(4))
    assert "takes shape [1, 3], or [N, 3] for N samples, not [4]" in refusal(
        "run", model, "--inputs", tmp_path / "other.npy", "--real"
    )


def test_inputs_go_by_their_names(tmp_path: Path) -> None:
    model = write_sum(tmp_path / "model.tflite", "x", "y/read:0", shape=(2,))
    x, y = np.array([1, 2], np.int8), np.array([3, 4], np.int8)
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "y.npy", y)
    np.savez(tmp_path / "both.npz", **{"y/read:0": y, "x": x})
    files = ("--inputs", f"y/read:0={tmp_path / 'y.npy'}", "--inputs", f"x_in={tmp_path / 'x.npy'}")
    assert answered(model, *files) == answered(model, "--inputs", tmp_path / "both.npz") == [[1, 2], [3, 4]]
    assert "input 1 (y/read:0) is missing" in refusal("run", model, "--inputs", f"x={tmp_path / 'x.npy'}")
    assert "unknown input 'z'" in refusal("run", model, "--inputs", f"z={tmp_path / 'x.npy'}")
    two = ("--inputs", tmp_path / "x.npy", "--inputs", tmp_path / "y.npy")
    assert "the model has several inputs" in refusal("run", model, *two)


@pytest.mark.parametrize("suffix", [".png", ".jpg"])
@pytest.mark.parametrize(("channels", "mode"), [(1, "L"), (3, "RGB")])
def test_pictures_are_inputs(tmp_path: Path, suffix: str, channels: int, mode: str) -> None:
    image = pytest.importorskip("PIL.Image", reason="needs Pillow, of the extra `images`")
    pixels = np.full((4, 6, channels), 200, np.uint8)
    image.fromarray(pixels.squeeze(), mode).save(tmp_path / f"photo{suffix}")
    for type, expected in ((TensorType.UINT8, 200), (TensorType.INT8, 72), (TensorType.FLOAT32, 200 / 255)):
        model = write_sum(tmp_path / "model.tflite", "x", shape=(1, 4, 6, channels), type=type)
        (values,) = answered(model, "--inputs", tmp_path / f"photo{suffix}")
        assert np.asarray(values) == pytest.approx(np.full((1, 4, 6, channels), expected), abs=1e-6)
    small = write_sum(tmp_path / "model.tflite", "x", shape=(1, 6, 4, channels))
    assert "this picture is 6 wide and 4 high" in refusal("run", small, "--inputs", tmp_path / f"photo{suffix}")


def test_sound_is_an_input_of_one_step_after_the_other(tmp_path: Path) -> None:
    samples = np.array([0, 256, -32768, 32767, -256, 512], "<i2")
    with wave.open(str(tmp_path / "sound.wav"), "wb") as file:
        file.setparams((1, 2, 16000, 0, "NONE", ""))
        file.writeframes(samples.tobytes())
    expected = {
        TensorType.INT16: samples.astype(float),
        TensorType.INT8: samples >> 8,
        TensorType.FLOAT32: samples / 32768,
    }
    for type, values in expected.items():
        model = write_sum(tmp_path / "model.tflite", "x", shape=(1, 3), type=type)
        steps = answered(model, "--inputs", tmp_path / "sound.wav")
        assert np.asarray(steps).reshape(-1) == pytest.approx(values)
        assert len(steps) == 2
    model = write_sum(tmp_path / "model.tflite", "x", shape=(1, 4))
    assert "takes 4 values in each step" in refusal("run", model, "--inputs", tmp_path / "sound.wav")


def test_numbers_as_text_are_inputs(tmp_path: Path) -> None:
    model = write_sum(tmp_path / "model.tflite", "x", shape=(1, 3))
    (tmp_path / "x.csv").write_text("1, 2, 3\n-4,5,6\n")
    assert answered(model, "--inputs", tmp_path / "x.csv") == [[[1, 2, 3]], [[-4, 5, 6]]]
    assert answered(model, "--inputs", tmp_path / "x.csv", "--real") == [[[5, 7, 9]], [[-5, 13, 15]]]
    (tmp_path / "x.csv").write_text("1, 2.5, 3\n")
    assert "2.5 is not a valid int8; --real takes real values" in refusal("run", model, "--inputs", tmp_path / "x.csv")
    (tmp_path / "x.csv").write_text("a, b, c\n")
    assert "invalid number" in refusal("run", model, "--inputs", tmp_path / "x.csv")
    (tmp_path / "x.csv").write_text('"1","2","3"\n')
    assert answered(model, "--inputs", tmp_path / "x.csv") == [[[1, 2, 3]]]
    (tmp_path / "x.csv").write_text("1" * (1 << 18))
    assert "is not a CSV file" in refusal("run", model, "--inputs", tmp_path / "x.csv")


def test_without_inputs_it_says_how_to_give_them() -> None:
    answer = run("run", INT8_MODEL)
    assert answer.returncode == 2
    for shown in ("INT8 of shape [1, 1]", "--inputs", ".wav", "--random"):
        assert shown in answer.stderr
    assert answered(INT8_MODEL, "--random") == answered(INT8_MODEL, "--random", 0)
    assert run("run", INT8_MODEL, "--random", "--steps", 2).stdout.count("int8") == 2
    assert "--random" in run("run", INT8_MODEL, "--random", -1).stderr


def test_a_model_without_inputs_needs_none(tmp_path: Path) -> None:
    builder = tflm.ModelBuilder()
    main = builder.subgraph()
    one, y = main.constant("one", np.ones(2, np.float32)), main.tensor("y", (2,), TensorType.FLOAT32)
    main.operator(BuiltinOperator.NEG, [one], [y])
    main.output(y)
    (tmp_path / "model.tflite").write_bytes(builder.build())
    assert answered(tmp_path / "model.tflite") == [[-1, -1]]


def test_integers_are_differences_and_infinities_and_nan_are_told_apart() -> None:
    inf, nan = np.inf, np.nan
    theirs = np.array([[1.0, -4.0, 2.0, 0.0]])
    for ours, largest, relative in (
        ([1, -4, 2, 0], 0, 0),
        ([1, -4, 2, 2], 2, 0.5),
        ([1, -5, 2, 0], 1, 0.25),
        ([1, -4, nan, 0], inf, inf),
        ([1, -4, inf, 0], inf, inf),
    ):
        found = difference("t", "op", np.array([ours], float), theirs)
        assert (found.largest_error, found.relative_error) == (largest, relative)
        assert (found.snr_db is None) == (largest == 0)
    equal = difference("t", "", np.array([nan, inf, -inf, 3.0]), np.array([nan, inf, -inf, 3.0]))
    assert (equal.largest_error, equal.relative_error, equal.snr_db) == (0, 0, None)
    halved = difference("t", "", np.array([0.0, 6.0]), np.array([0.0, 5.0]))
    assert halved.snr_db == pytest.approx(10 * np.log10(25))
    zero = difference("t", "", np.array([0.0, 1.0]), np.zeros(2))
    assert (zero.relative_error, zero.snr_db) == (None, -inf)
    assert difference("t", "", np.zeros(2), np.zeros(2)).relative_error == 0
    assert difference("t", "", np.zeros((1, 0)), np.zeros((1, 0))).largest_error == 0


def test_a_tensor_diverges_only_beyond_the_tolerance() -> None:
    theirs = np.array([4.0])
    exact, quarter = (difference(name, "", np.array([value]), theirs) for name, value in (("a", 4.0), ("b", 5.0)))
    assert first_beyond([exact, quarter], 0.25) is None
    assert first_beyond([exact, quarter], 0.2499) is quarter
    assert first_beyond([exact], 0) is None
    assert first_beyond([difference("c", "", np.ones(1), np.zeros(1)), quarter], 1e9) is not None


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0", 0),
        ("17", 17),
        ("64K", 65536),
        ("64k", 65536),
        ("64 KiB", 65536),
        ("1.5K", 1536),
        ("2M", 2 << 20),
        ("2MB", 2 << 20),
        ("3q", None),
        ("-1", None),
        ("K", None),
        ("1G", None),
    ],
)
def test_sizes_are_bytes_or_counted_in_k_and_m(text: str, size: int | None) -> None:
    if size is None:
        with pytest.raises(OptionError):
            bytes_from(text)
    else:
        assert bytes_from(text) == size


@pytest.mark.parametrize(
    ("text", "share"),
    [("0", 0), ("0.25", 0.25), ("25%", 0.25), ("300%", 3), ("-1%", None), ("inf", None), ("nan", None), ("%", None)],
)
def test_shares_are_fractions_or_percentages(text: str, share: float | None) -> None:
    if share is None:
        with pytest.raises(OptionError, match="invalid share"):
            share_from(text)
    else:
        assert share_from(text) == share


def test_shapes_are_lists_of_sizes(tmp_path: Path) -> None:
    model = tflm.Model.from_file(write_sum(tmp_path / "m.tflite", "x", shape=(1, 3)))
    for texts in (["x=1,3"], ["x = [1, 3]"], ["x_in=1,3"]):
        assert with_shapes(model, texts).subgraphs[0].tensors[0].shape == (1, 3)
    assert with_shapes(model, None) is with_shapes(model, []) is model
    for text in ("x", "x=", "x=1;3", "y=1,3"):
        with pytest.raises(OptionError):
            with_shapes(model, [text])


def test_reports_have_the_name_of_the_file_as_their_title() -> None:
    assert [title_of(Path(path)) for path in ("models/a.tflite", "-")] == ["a.tflite", "standard input"]


def test_outputs_are_written_in_the_form_of_the_suffix(tmp_path: Path) -> None:
    of = np.arange(6, dtype=np.int8).reshape(2, 3)

    def step(*outputs: np.ndarray, tensors: dict[int, np.ndarray] | None = None) -> Step:
        return Step([*outputs], [None] * len(outputs), tensors or {})

    for results, fits in (
        ([step(of)], True),
        ([step(of), step(of)], False),
        ([step(of, of)], False),
        ([step(of, tensors={3: of})], False),
    ):
        write_outputs(tmp_path / "out.npz", results)
        with np.load(tmp_path / "out.npz") as kept:
            names = {f"out_{s}_{j}" for s, one in enumerate(results) for j in range(len(one.outputs))}
            names |= {f"tensor_{s}_{i}" for s, one in enumerate(results) for i in one.tensors}
            assert set(kept) == names
            assert all(np.array_equal(kept[name], of) for name in names)
        for suffix in ("npy", "bin"):
            path = tmp_path / f"out.{suffix}"
            if not fits:
                with pytest.raises(RequestError, match="one output of one step"):
                    write_outputs(path, results)
                continue
            write_outputs(path, results)
            assert np.array_equal(np.load(path), of) if suffix == "npy" else path.read_bytes() == of.tobytes()


@pytest.mark.parametrize("count", [1, 15, 16, 17, 1234])
def test_sixteen_values_of_an_output_are_shown(count: int) -> None:
    shown = _abbreviated(np.arange(count))
    assert shown.split(" ...")[0].split() == [str(i) for i in range(min(count, 16))]
    assert (f"({count:,} elements)" in shown) == (count > 16)


def test_random_values_are_over_the_whole_type_or_16_bits_of_it() -> None:
    rng = np.random.default_rng(0)
    for dtype, low, high in (
        (np.int8, -128, 127),
        (np.uint8, 0, 255),
        (np.int16, -(1 << 15), (1 << 15) - 1),
        (np.int32, -(1 << 15), (1 << 15) - 1),
        (np.uint32, 0, (1 << 15) - 1),
        (np.bool_, False, True),
    ):
        values = _random_values((1 << 20,), np.dtype(dtype), rng)
        assert values.dtype == dtype
        assert (values.min(), values.max()) == (low, high)
        assert abs(values.mean() - (low + high) / 2) < (high - low) / 100
    for kind in (np.float32, np.complex64):
        values = _random_values((1 << 14,), np.dtype(kind), rng)
        assert values.dtype == kind
        assert abs(values.real).max() > 2
        assert len(np.unique(values.real)) > 1000


def test_inputs_are_named_by_their_tensors_and_by_signatures_of_the_first_subgraph() -> None:
    builder = tflm.ModelBuilder()
    main, other = builder.subgraph(), builder.subgraph()
    outer = [main.tensor("", (2,), TensorType.INT8), *(main.input(name, (2,), TensorType.INT8) for name in ("x", ""))]
    inner = [other.input("inner", (2,), TensorType.INT8), other.input("more", (2,), TensorType.INT8)]
    builder.signature("serve", {"no input": outer[0], "first": outer[1], "second": outer[2]}, {})
    builder.signature("other", {"elsewhere": inner[1]}, {}, subgraph_index=1)
    assert input_names(tflm.Model(builder.build())) == {"x": 0, "first": 0, "1": 1, "second": 1}


def test_models_of_different_shapes_are_not_compared() -> None:
    def probe(**sides: list[int]) -> Any:
        return SimpleNamespace(**{side: [SimpleNamespace(dims=dims)] for side, dims in sides.items()})

    one = probe(inputs=[1, 2], outputs=[1, 3])
    require_same_shapes(one, probe(inputs=[1, 2], outputs=[1, 3]))
    with pytest.raises(RequestError, match=r"different inputs: shapes \[\[1, 2\]\] and \[\[2, 2\]\]"):
        require_same_shapes(one, probe(inputs=[2, 2], outputs=[1, 3]))
    with pytest.raises(RequestError, match=r"different outputs: shapes \[\[1, 3\]\] and \[\[1, 4\]\]"):
        require_same_shapes(one, probe(inputs=[1, 2], outputs=[1, 4]))


def test_real_values_are_those_of_quantized_integers() -> None:
    half = tflm.quantized(0.5, 1)
    builder = tflm.ModelBuilder()
    main = builder.subgraph()
    x = main.input("x", (2,), TensorType.FLOAT32)
    integers, floats = main.tensor("q", (2,), TensorType.INT8, half), main.tensor("f", (2,), TensorType.FLOAT32, half)
    sizes = main.tensor("s", (1,), TensorType.INT32)
    main.operator(BuiltinOperator.QUANTIZE, [x], [integers])
    main.operator(BuiltinOperator.ABS, [x], [floats])
    main.operator(BuiltinOperator.SHAPE, [x], [sizes])
    main.output(integers, floats, sizes)
    interpreter = ready_interpreter(tflm.Model(builder.build()), delegates=())
    (step,) = answers(interpreter, [[np.array([1.0, -2.5], np.float32)]])
    assert [values.tolist() for values in step.outputs] == [[3, -4], [1.0, 2.5], [2]]
    assert [None if values is None else values.tolist() for values in step.real] == [[1.0, -2.5], None, None]


def test_tensors_that_share_a_name_are_not_compared(tmp_path: Path) -> None:
    builder = tflm.ModelBuilder()
    main = builder.subgraph()
    tensors = [
        main.input("x", (2,), TensorType.FLOAT32),
        *(main.tensor(name, (2,), TensorType.FLOAT32) for name in "aaby"),
    ]
    for before, after in itertools.pairwise(tensors):
        main.operator(BuiltinOperator.ABS, [before], [after])
    main.output(tensors[-1])
    (tmp_path / "m.tflite").write_bytes(builder.build())
    assert set(Probe(tmp_path / "m.tflite", delegates=()).made) == {"b", "y"}


def test_tensors_are_compared_that_have_name_and_shape_in_common() -> None:
    def probe(**tensors: int) -> Any:
        made = {name: np.zeros(size) for name, size in tensors.items()}
        return SimpleNamespace(made=made, outputs=[], step=lambda values: ([], made), maker=lambda name: f"0 {name}")

    _, compared = compare_models(probe(both=2, larger=3, ours=4), probe(theirs=4, larger=5, both=2), [[], []])
    assert [(each.tensor, each.operator) for each in compared] == [("both", "0 both")]


def test_inputs_are_written_only_in_their_own_shape_and_type(tmp_path: Path) -> None:
    path = write_sum(tmp_path / "m.tflite", "x", shape=(2, 3))
    interpreter = tflm.MicroInterpreter(tflm.Model.from_file(path), tflm.AllOpsResolver(), bytearray(4096))
    interpreter.allocate_tensors()
    x = interpreter.input(0)
    set_inputs([x], [np.full((2, 3), 4, np.int8)])
    for values in (np.zeros((3, 2), np.int8), np.zeros((2, 3), np.uint8), np.zeros(3, np.int8), np.zeros((2, 3))):
        with pytest.raises(RequestError, match="input 0"):
            set_inputs([x], [values])
    assert (x.data == 4).all()


def frames_model(path: Path) -> Path:
    """Six frames of 2 numbers, convolved along time."""
    images = Images(tflm.ModelBuilder().subgraph(), (1, 6, 1, 2))
    images.convolution(images.last, 3, (2, 1), padding=Padding.VALID)
    images.convolution(images.last, 1, (5, 1), padding=Padding.VALID)
    images.main.output(images.last)
    path.write_bytes(images.main.builder.build())
    return path


@pytest.mark.parametrize("hop", [1, 2])
def test_outputs_over_time_are_those_of_the_streaming_form(tmp_path: Path, hop: int) -> None:
    model = frames_model(tmp_path / "model.tflite")
    streaming = tmp_path / "streaming.tflite"
    tflm.stream(tflm.Model.from_file(model), hop=hop).write(streaming)
    frames = np.random.default_rng(0).integers(-128, 128, (9, 2)).astype(np.int8)
    np.save(tmp_path / "frames.npy", frames)
    np.save(tmp_path / "full.npy", frames[: 9 // hop * hop].reshape(-1, 1, hop, 1, 2))
    found = answered(model, "--stream", "--hop", hop, "--inputs", tmp_path / "frames.npy")
    assert len(found) == 9 // hop
    assert found == answered(streaming, "--inputs", tmp_path / "full.npy")
    if hop == 1:
        assert found == answered(streaming, "--stream", "--inputs", tmp_path / "frames.npy")
    lines = run("run", model, "--stream", "--hop", hop, "--inputs", tmp_path / "frames.npy").stdout.splitlines()
    assert [line.split()[0] for line in lines[-len(found) :]] == [str(step * hop + hop) for step in range(len(found))]


@pytest.mark.parametrize("hop", [None, 1, 2])
def test_an_invoke_of_a_stream_takes_so_many_frames_one_after_another(tmp_path: Path, hop: int | None) -> None:
    model = tflm.Model.from_file(frames_model(tmp_path / "model.tflite"))
    streamed = streaming_form(model, hop)
    assert streamed is not None
    assert streamed.hop == (hop or 1)
    frames = np.arange(14, dtype=np.int8).reshape(7, 2)
    np.save(tmp_path / "frames.npy", frames)
    found = read_frames([str(tmp_path / "frames.npy")], streamed.model, streamed, False, None)
    taken = [frames[i : i + streamed.hop].tolist() for i in range(0, 8 - streamed.hop, streamed.hop)]
    assert [values.tolist() for (values,) in found] == [[[[pair] for pair in each]] for each in taken]
    np.save(tmp_path / "frames.npy", frames[: streamed.hop])
    assert len(read_frames([str(tmp_path / "frames.npy")], streamed.model, streamed, False, None)) == 1
    whole = frames[: 2 * streamed.hop].reshape(2, 1, streamed.hop, 1, 2)
    np.save(tmp_path / "frames.npy", whole)
    steps = read_frames([str(tmp_path / "frames.npy")], streamed.model, None, False, None)
    assert [values.tolist() for (values,) in steps] == whole.tolist()
    assert streaming_form(streamed.model, None) is None
    with pytest.raises(OptionError, match="--hop needs a model over a window"):
        streaming_form(streamed.model, 1)
    if streamed.hop > 1:
        np.save(tmp_path / "frames.npy", frames[:1])
        with pytest.raises(RequestError, match="an invoke takes 2 frames; found 1"):
            read_frames([str(tmp_path / "frames.npy")], streamed.model, streamed, False, None)


def features_model(path: Path) -> Path:
    """A frontend that takes 4 samples, and returns those in the middle as int8."""
    builder = tflm.ModelBuilder()
    main = builder.subgraph()
    sound = main.input("sound", (1, 4), TensorType.INT16)
    edges = [main.constant(name, np.array(values, np.int32)) for name, values in (("b", [0, 1]), ("s", [1, 2]))]
    middle = main.tensor("middle", (1, 2), TensorType.INT16)
    main.operator(BuiltinOperator.SLICE, [sound, *edges], [middle])
    features = main.tensor("features", (1, 2), TensorType.INT8)
    main.operator(BuiltinOperator.CAST, [middle], [features])
    main.output(features)
    path.write_bytes(builder.build())
    return path


def write_clip(path: Path, samples: np.ndarray[Any, Any]) -> None:
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(16_000)
        file.writeframes(samples.astype("<i2").tobytes())


@pytest.mark.parametrize(("count", "step"), [(4, None), (4, 3), (7, None), (8, None), (9, 5), (9, 2), (10, 2)])
def test_frames_of_sound_begin_a_step_apart_while_samples_last(tmp_path: Path, count: int, step: int | None) -> None:
    write_clip(tmp_path / "clip.wav", np.arange(count))
    model = tflm.Model.from_file(features_model(tmp_path / "frontend.tflite"))
    found = Frontend(model, step).frames(tmp_path / "clip.wav")
    assert [frame.tolist() for frame in found] == [[[i + 1, i + 2]] for i in range(0, count - 3, step or 4)]
    write_clip(tmp_path / "clip.wav", np.arange(3))
    with pytest.raises(RequestError, match="has 3 samples; a frame has 4"):
        Frontend(model, step).frames(tmp_path / "clip.wav")


def test_a_frontend_makes_overlapping_frames_of_sound(tmp_path: Path) -> None:
    model = frames_model(tmp_path / "model.tflite")
    frontend = features_model(tmp_path / "frontend.tflite")
    samples = np.random.default_rng(0).integers(-128, 128, 25)
    write_clip(tmp_path / "clip.wav", samples)
    for step in (4, 3):
        options = ("--stream", "--frontend", frontend, "--frontend-step", step)
        found = answered(model, *options, "--inputs", tmp_path / "clip.wav")
        starts = range(0, 25 - 4 + 1, step)
        np.save(tmp_path / "frames.npy", np.array([samples[i + 1 : i + 3] for i in starts], np.int8))
        assert found == answered(model, "--stream", "--inputs", tmp_path / "frames.npy")
        pairs = tmp_path / "pairs.tflite"  # keeps state, and takes two frames
        tflm.stream(tflm.Model.from_file(model), hop=2).write(pairs)
        in_pairs = answered(model, "--stream", "--hop", 2, "--inputs", tmp_path / "frames.npy")
        assert answered(pairs, *options, "--inputs", tmp_path / "clip.wav") == in_pairs
    assert "needs one input of 16-bit samples" in refusal(
        "run", model, "--stream", "--frontend", model, "--inputs", tmp_path / "clip.wav"
    )


def test_outputs_over_time_are_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="needs the extra `plot`")
    model = frames_model(tmp_path / "model.tflite")
    np.save(tmp_path / "frames.npy", np.ones((9, 2), np.int8))
    run("run", model, "--stream", "--inputs", tmp_path / "frames.npy", "--plot", tmp_path / "answers.svg")
    assert "<svg" in (tmp_path / "answers.svg").read_text()


def test_options_of_streams_are_refused_without_one(tmp_path: Path) -> None:
    model = frames_model(tmp_path / "model.tflite")
    np.save(tmp_path / "frames.npy", np.ones((1, 2), np.int8))
    inputs = ("--inputs", tmp_path / "frames.npy")
    for options, message in (
        ((*inputs, "--hop", 2), "need --stream"),
        (("--stream",), "--stream needs --inputs"),
        (("--stream", *inputs, "--frontend-step", 2), "--frontend-step needs --frontend"),
    ):
        answer = run("run", model, *options)
        assert answer.returncode == 2
        assert message in " ".join(answer.stderr.split())
    assert "an invoke takes 2 frames; found 1" in refusal("run", model, "--stream", "--hop", 2, *inputs)


# --- Streams ----------------------------------------------------------------------------------------------------------


def steps_of_two_outputs() -> list[Step]:
    """Results of two invokes: an output of integers that represent halves, and one of floats."""
    integers = [np.array([[2 * i, 3]], np.int8) for i in range(2)]
    return [Step([each, np.float32([i])], [each.astype(np.float32) / 2, None], {}) for i, each in enumerate(integers)]


def test_curves_are_the_real_values_of_each_element() -> None:
    steps = steps_of_two_outputs()
    assert curves(["y", "z"], steps) == {"y 0": [0, 1], "y 1": [1.5, 1.5], "z 0": [0, 1]}
    assert curves(["y"], steps) == {"0": [0, 1], "1": [1.5, 1.5]}


@pytest.mark.parametrize("hop", [None, 1, 3])
def test_outputs_of_a_stream_are_listed_by_the_frames_that_were_taken(hop: int | None) -> None:
    streamed: Any = None if hop is None else SimpleNamespace(hop=hop, warm_up=4)
    report = stream_report("t", streamed, ["y"], steps_of_two_outputs())
    (table,) = report.tables
    assert list(table.columns) == ["invoke" if hop is None else "frames", "0", "1"]
    assert [row[0] for row in table.rows] == [f"{hop or 1}", f"{2 * (hop or 1)}"]
    assert [list(row[1:]) for row in table.rows] == [["0", "1.5"], ["1", "1.5"]]
    assert dict(report.facts).get("an invoke takes") == {None: None, 1: "1 new frame", 3: "3 new frames"}[hop]


@pytest.mark.parametrize(
    ("shape", "taken"),
    [
        ((1, 4), [[0], [1], [2], [3], [4]]),
        ((1, 2, 4), [[0, 1], [2, 3]]),
        ((1, 5, 4), [[0, 1, 2, 3, 4]]),
        ((1, 6, 4), []),
        ((1, 6), [[0], [1], [2], [3], [4]]),  # no whole number of frames: they are no inputs of this model
    ],
)
def test_an_input_takes_a_whole_number_of_frames(shape: tuple[int, ...], taken: list[list[int]]) -> None:
    inputs = _filling([np.full((1, 4), i) for i in range(5)], shape)
    assert [each.reshape(-1, 4)[:, 0].tolist() for each in inputs] == taken
    assert all(each.shape in (shape, (1, 4)) for each in inputs)
