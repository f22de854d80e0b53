"""Parts of an evaluation: items of a stream, drawings, and the distribution of work."""

from __future__ import annotations

import contextlib
import functools
import itertools
import pickle
import wave
from collections.abc import Callable, Iterator
from concurrent import futures
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock, call

import numpy as np
import pytest

import tflm
from tflm.errors import DataError
from tflm.evaluation import evaluation, pictures
from tflm.evaluation.calibration import CalibrationReport, TensorRange
from tflm.evaluation.input_files import ClipInput, files_in, fitted, fitted_clip, read_given, read_inputs
from tflm.evaluation.metrics import classification, difference
from tflm.evaluation.runner import TRIES, Job, Runner, runner_of
from tflm.evaluation.samples import Arrays, Sample, Stream, data_set
from tflm.memory.tensor import TfLiteTensor
from tflm.schema import BuiltinOperator, TensorType, quantized


def adding(inputs: int, width: int = 2) -> tflm.Model:
    """Return a model of one operator with this many float inputs."""
    builder = tflm.ModelBuilder()
    main = builder.subgraph()
    tensors = [main.input(f"x{i}", (1, width), TensorType.FLOAT32) for i in range(inputs)]
    y = main.tensor("y", (1, width), TensorType.FLOAT32)
    main.operator(BuiltinOperator.ADD if inputs == 2 else BuiltinOperator.ABS, tensors, [y])
    main.output(y)
    return tflm.Model(builder.build())


@pytest.fixture(scope="module")
def tensors() -> dict[int, list[TfLiteTensor]]:
    """The inputs of a model of one input, and of a model of two."""
    return {count: Runner(adding(count)).inputs for count in (1, 2)}


A, B = np.array([1, 2], np.float32), np.array([3, 4], np.float32)


@pytest.mark.parametrize(
    ("item", "arrays", "label"),
    [
        (A, [A], None),
        ((A, 7), [A], 7),
        (([A], 7), [A], 7),
        ([A], [A], None),
        ((A,), [A], None),
        ([A, B], [A, B], None),
        (([A, B], 5), [A, B], 5),
        (((A, B), 5), [A, B], 5),
    ],
)
def test_an_item_is_an_array_for_each_input_and_a_pair_has_a_label(
    item: Any, arrays: list[np.ndarray], label: int | None, tensors: dict[int, list[TfLiteTensor]]
) -> None:
    (sample,) = Stream((item,), first=4).samples(tensors[len(arrays)])
    assert isinstance(sample, Sample)
    assert (sample.name, sample.label) == ("sample 4", label)
    (step,) = sample.steps
    assert [values.reshape(-1).tolist() for values in step] == [array.tolist() for array in arrays]


def test_an_item_that_does_not_fit_is_named_and_the_next_ones_are_there(tensors: dict[int, list[TfLiteTensor]]) -> None:
    found = list(Stream(([A, B], A, A[:1], A), first=10).samples(tensors[1]))
    assert [isinstance(each, DataError) for each in found] == [True, False, True, False]
    assert str(found[0]).startswith("sample 10: has 2 arrays")
    assert "sample 12" in str(found[2])


def test_parts_of_a_stream_follow_each_other_from_any_start() -> None:
    for start, count in itertools.product((0, 1, 63, 64, 65), (0, 1, 64, 65, 129, 200)):
        parts: Any = list(Stream(range(count)).parts(start))
        items = [item for _, part in parts for item in part.items]
        assert items == list(range(start, count))
        assert [part.first for _, part in parts] == list(range(start, count, 64))
        assert [size for size, _ in parts] == [len(part.items) for _, part in parts]
    assert Stream(range(9)).count == 9
    assert Stream(iter(range(9))).count is None


def test_a_part_of_arrays_has_the_values_labels_and_number_of_its_samples(
    monkeypatch: pytest.MonkeyPatch, tensors: dict[int, list[TfLiteTensor]]
) -> None:
    values = np.arange(14, dtype=np.float32).reshape(7, 2)
    whole = Arrays((values, values + 100), np.arange(7) + 50)
    monkeypatch.setattr("tflm.evaluation.samples.SAMPLES_OF_A_PART", 3)
    parts = list(whole.parts(1))
    assert [count for count, _ in parts] == [3, 3]
    seen = [sample for _, part in parts for sample in part.samples(tensors[2])]
    assert [sample.name for sample in seen] == [f"sample {i}" for i in range(1, 7)]
    assert [sample.label for sample in seen] == list(range(51, 57))
    assert [sample.steps[0][1].reshape(-1).tolist() for sample in seen] == (values[1:] + 100).tolist()
    monkeypatch.setattr("tflm.evaluation.samples.BYTES_OF_A_PART", 2 * 16)
    assert [count for count, _ in whole.parts(0)] == [2, 2, 2, 1]
    monkeypatch.setattr("tflm.evaluation.samples.BYTES_OF_A_PART", 1)
    assert [count for count, _ in whole.parts(4)] == [1, 1, 1]


@pytest.mark.parametrize("is_mapped", [False, True])
def test_a_part_has_the_same_samples_in_another_process(
    is_mapped: bool, monkeypatch: pytest.MonkeyPatch, tensors: dict[int, list[TfLiteTensor]], tmp_path: Path
) -> None:
    """A part of a file is sent without its values."""
    values, path = np.arange(14, dtype=np.float32).reshape(7, 2), tmp_path / "values.npy"
    np.save(path, values)
    monkeypatch.setattr("tflm.evaluation.samples.SAMPLES_OF_A_PART", 3)
    whole = Arrays((values,), np.arange(7) + 50, path=str(path) if is_mapped else None)
    parts: Any = whole.parts(1)
    for begin, (_, part) in zip((1, 4), parts):
        sent = pickle.dumps(part)
        assert (part.inputs[0].tobytes() in sent) != is_mapped
        for one in (part, pickle.loads(sent)):
            found = [(each.name, each.label, each.steps[0][0].reshape(-1).tolist()) for each in one.samples(tensors[1])]
            assert found == [(f"sample {i}", 50 + i, values[i].tolist()) for i in range(begin, begin + 3)]


def test_a_thread_keeps_the_runner_of_the_job_that_it_works_on() -> None:
    one, other = Job.of(adding(1)), Job.of(adding(2))
    assert one.key != other.key
    assert one.key != Job.of(adding(1), preserve_all_tensors=True).key
    made = runner_of(one)
    assert runner_of(Job.of(adding(1))) is made
    assert runner_of(other) is not made
    assert len(runner_of(other).inputs) == 2
    assert runner_of(one) is not made


# --- What is drawn ---------------------------------------------------------------------------------------------------


def tensor_range(name: str, lowest: float, highest: float, saturated: float) -> TensorRange:
    return TensorRange(name, f"0 {name}", lowest, highest, -4.0, 4.0, saturated, 0.0)


class Drawings:
    """A substitute for files that records the sizes of pictures, and the axes that they were drawn on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch):
        self.axes, self.sizes, self.paths = MagicMock(), list[tuple[float, float]](), list[Path]()
        monkeypatch.setattr(pictures, "_drawing", self._drawing)

    @contextlib.contextmanager
    def _drawing(self, path: Path, width: float, height: float) -> Iterator[Any]:
        self.paths.append(path)
        self.sizes.append((width, height))
        yield self.axes


def test_ranges_are_drawn_as_shares_of_their_room(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    tensors = [
        tensor_range("A", -4.0, 0.0, 0.01),
        tensor_range("B", 2.0, 3.0, 0.02),
        tensor_range("$C", -4.0, 4.0, 1.0),
    ]
    drawings = Drawings(monkeypatch)
    axes = drawings.axes
    pictures.write_ranges(tmp_path / "r.png", CalibrationReport(1234, tuple(tensors)))
    bars = [(of.args[0], of.args[1], of.kwargs.get("left", 0)) for of in axes.barh.call_args_list]
    assert bars[0::2] == [(place, 1, 0) for place in range(3)]
    assert bars[1::2] == [(0, 0.5, 0.0), (1, 0.125, 0.75), (2, 1.0, 0.0)]
    colours = [of.kwargs["color"] for of in axes.barh.call_args_list[1::2]]
    assert colours[0] != colours[1] == colours[2]
    assert all(0 < of.kwargs["height"] < 1 for of in axes.barh.call_args_list)
    assert axes.set_xlim.call_args == call(0, 1)
    assert axes.set_xticks.call_args.args[0] == [0, 1]
    places, names = axes.set_yticks.call_args.args
    assert list(zip(places, names)) == [(0, "0 A"), (1, "0 B"), (2, "0 $C")]
    axes.invert_yaxis.assert_called_once_with()
    assert "1,234" in axes.set_title.call_args.args[0]
    assert drawings.paths == [tmp_path / "r.png"]


def test_pictures_of_more_tensors_and_classes_are_larger(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with monkeypatch.context() as patched:
        drawings = Drawings(patched)
        for count in (1, 2, 20, 40):
            tensors = tuple(tensor_range("A", 0, 1, 0) for _ in range(count))
            pictures.write_ranges(tmp_path / "r.png", CalibrationReport(1, tensors))
    heights = [height for _, height in drawings.sizes]
    assert heights[0] == heights[1] == 2.5
    assert heights[3] - heights[2] == pytest.approx(heights[2] - 1.2)
    pytest.importorskip("matplotlib", reason="needs matplotlib")
    pictures.write_ranges(tmp_path / "r.png", CalibrationReport(1, (tensor_range("$\\frac$", 0, 1, 0),)))
    assert (tmp_path / "r.png").read_bytes()[:4] == b"\x89PNG"


def drawn_confusion(monkeypatch: pytest.MonkeyPatch, counts: list[list[int]], names: tuple[str, ...]) -> Any:
    matrix = np.array(counts, np.int64)
    found = MagicMock()
    found.classification.confusion = matrix
    found.classification.accuracy, found.classification.count = 0.25, 4321
    found.class_names = names
    drawings = Drawings(monkeypatch)
    pictures.write_confusion(Path("c.png"), found)
    return drawings.axes


def test_a_confusion_matrix_has_at_most_4096_classes() -> None:
    with pytest.raises(DataError, match="at most 4,096 are classes"):
        classification(records(np.zeros((1, 4097), np.int8), [0]))


@pytest.mark.parametrize(("classes", "numbers"), [(30, 30), (31, 0)])
def test_numbers_are_left_out_where_they_could_not_be_read(
    monkeypatch: pytest.MonkeyPatch, classes: int, numbers: int
) -> None:
    axes = drawn_confusion(monkeypatch, np.eye(classes, dtype=int).tolist(), tuple(map(str, range(classes))))
    assert axes.text.call_count == numbers


@pytest.mark.parametrize("width", [16, 15])
def test_wrong_answers_are_written_with_their_class_and_the_one_that_they_were_taken_for(
    width: int, tmp_path: Path
) -> None:
    """A sample of 16 values is drawn as 4 by 4 pixels, each of 32 by 32; one of 15 is an array."""
    image = pytest.importorskip("matplotlib.image", reason="needs matplotlib")
    samples: list[Any] = [np.arange(width, dtype=np.float32) * (-1) ** i + i for i in range(6)]
    samples[3] = np.zeros(3, np.float32)  # cannot be run
    scores = np.array([[0, 9], [9, 0], [0, 9], [9, 0], [0, 9], [0, 9]], np.int8)
    found = tflm.Evaluation(
        6, (), ("cat",), records(scores, [1, 1, 0, 1, NO_LABEL, 1], [True] * 3 + [False, True, True])
    )
    items = [*zip(samples, [1, 1, 0, 1]), samples[4], (samples[5], 1)]
    pictures.write_worst(tmp_path, found, Stream(items), adding(1, width))
    names = {1: "000001_is_1_taken_for_cat", 2: "000002_is_cat_taken_for_1"}
    suffix = "png" if width == 16 else "npy"
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"{name}.{suffix}" for name in names.values()]
    for i, name in names.items():
        if width == 15:
            np.testing.assert_array_equal(np.load(tmp_path / f"{name}.npy"), [samples[i]])
            continue
        drawn = image.imread(tmp_path / f"{name}.png")[..., 0]
        shades = np.arange(16)[:: (-1) ** i].reshape(4, 4) / 15
        np.testing.assert_allclose(drawn, np.kron(shades, np.ones((32, 32))), atol=0.005)


def test_the_worst_samples_of_a_comparison_have_no_class(tmp_path: Path) -> None:
    far: Any = MagicMock(worst=((2, 9.0), (0, 4.0)))
    found = tflm.Evaluation(3, (), (), records(np.zeros((3, 1), np.float32)), difference=far)
    pictures.write_worst(tmp_path, found, Stream([A, B, A + B]), adding(1))
    assert {path.name: np.load(path).tolist() for path in tmp_path.iterdir()} == {
        "000000.npy": [[1, 2]],
        "000002.npy": [[4, 6]],
    }


def test_a_confusion_matrix_is_drawn_by_the_shares_of_each_class(monkeypatch: pytest.MonkeyPatch) -> None:
    axes = drawn_confusion(monkeypatch, [[2, 2, 0], [0, 1300, 0], [0, 0, 0]], ("cat", "doge", "$x"))
    shares = axes.imshow.call_args
    assert shares.args[0].tolist() == [[0.5, 0.5, 0], [0, 1, 0], [0, 0, 0]]
    assert (shares.kwargs["vmin"], shares.kwargs["vmax"]) == (0, 1)
    written = [(*of.args, of.kwargs["color"]) for of in axes.text.call_args_list]
    assert written == [(0, 0, "2", "black"), (1, 0, "2", "black"), (1, 1, "1,300", "white")]
    for drawn in (axes.set_xticks.call_args, axes.set_yticks.call_args):
        assert (list(drawn.args[0]), drawn.args[1]) == ([0, 1, 2], ["cat", "doge", "$x"])
    assert axes.set_xticks.call_args.kwargs["rotation"] == 90
    assert drawn_confusion(monkeypatch, [[1]], ("cat",)).set_xticks.call_args.kwargs["rotation"] == 0
    assert axes.set_title.call_args == call("25.00% of 4,321 right")
    assert (axes.set_xlabel.call_args, axes.set_ylabel.call_args) == (call("taken for"), call("is"))


# --- Metrics ---------------------------------------------------------------------------------------------------------

NO_LABEL = np.iinfo(np.int64).min


def records(outputs: Any, labels: Any = None, ran: Any = None) -> np.ndarray:
    outputs = np.asarray(outputs)
    kind = [("ran", "?"), ("label", "i8"), ("output0", outputs.dtype, outputs.shape[1:])]
    made = np.zeros(len(outputs), kind)
    made["output0"], made["label"], made["ran"] = outputs, NO_LABEL, True
    if labels is not None:
        made["label"] = labels
    if ran is not None:
        made["ran"] = ran
    return made


def test_a_single_score_stands_for_class_one_above_the_middle_of_its_range() -> None:
    for scores, labels in (
        (np.array([[-128], [-1], [0], [127]], np.int8), [0, 0, 1, 1]),
        (np.array([[0], [127], [128], [255]], np.uint8), [0, 0, 1, 1]),
        (np.array([[0.0], [0.5], [0.51], [1.0]], np.float32), [0, 0, 1, 1]),
    ):
        found = classification(records(scores, labels))
        assert found is not None
        assert (found.accuracy, found.top_k_accuracy, found.k) == (1, 1, 2)
        assert found.confusion.tolist() == [[2, 0], [0, 2]]


def test_a_class_is_among_the_best_where_fewer_score_above_it() -> None:
    scores = np.array([[9, 5, 7, 5], [1, 1, 1, 1], [4, 3, 2, 1]], np.int8)
    for k, share in ((1, 1 / 3), (2, 1 / 3), (3, 2 / 3), (4, 1)):
        found = classification(records(scores, [1, 2, 3]), k)
        assert found is not None
        assert found.top_k_accuracy == pytest.approx(share)
        assert found.k == k
    found = classification(records(scores, [1, NO_LABEL, 0], [True, True, False]), 9)
    assert found is not None
    assert (found.count, found.accuracy, found.k) == (1, 0, 4)
    assert found.recall[1] == 0
    assert np.isnan(found.recall[[0, 2, 3]]).all()


@pytest.mark.parametrize(
    ("scores", "labels", "area"),
    [
        ([[0], [1], [2], [3]], [0, 0, 1, 1], 1.0),
        ([[0], [1], [2], [3]], [0, 1, 0, 1], 0.75),
        ([[0], [1], [2], [3]], [1, 1, 1, 1], None),
        ([[9, 0], [8, 1], [1, 8], [0, 9]], [0, 0, 1, 1], 1.0),
        ([[9, 0], [1, 8], [8, 1], [0, 9]], [1, 1, 0, 0], 0.25),
        ([[9, 0, 0], [0, 9, 0], [0, 0, 9]], [0, 1, 2], 1.0),
        ([[9, 0, 0], [0, 9, 0], [0, 0, 9]], [0, 2, 1], 0.5),
        ([[9, 0, 0], [0, 9, 0], [0, 0, 9]], [0, 1, 1], None),
        ([[9, 0], [8, 1]], [0, 0], None),
    ],
)
def test_an_area_is_of_scores_of_all_classes(scores: list[list[int]], labels: list[int], area: float | None) -> None:
    pytest.importorskip("sklearn", reason="needs scikit-learn, of the extra `metrics`")
    found = classification(records(np.array(scores, np.int8), labels))
    assert found is not None
    assert found.auc == (None if area is None else pytest.approx(area))


def test_without_samples_or_labels_there_is_no_accuracy() -> None:
    assert classification(records(np.zeros((0, 4), np.int8))) is None
    assert classification(records(np.zeros((2, 4), np.int8))) is None
    assert classification(records(np.zeros((2, 4), np.int8), [0, 1], [False, False])) is None


def test_labels_are_whole_numbers_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "labels.txt").write_text("3, 1\n2,0\n")
    values = np.arange(8, dtype=np.float32).reshape(4, 2)
    data: Any = data_set(values, tmp_path / "labels.txt")
    assert data.labels.tolist() == [3, 1, 2, 0]
    for text, message in (("1 2 3 1.5", "labels are whole numbers"), ("1 2 3", "there are 3 labels for 4 samples")):
        (tmp_path / "labels.txt").write_text(text)
        with pytest.raises(DataError, match=message):
            data_set(values, tmp_path / "labels.txt")
    pairs: Any = data_set([A, B], [5, 6])
    assert [(item.tolist(), label) for item, label in pairs.items] == [([1, 2], 5), ([3, 4], 6)]


@pytest.mark.parametrize("label", [-1, 4])
def test_labels_are_classes_that_the_model_tells(label: int) -> None:
    with pytest.raises(DataError, match=str(label)):
        classification(records(np.zeros((2, 4), np.int8), [0, label]))
    assert classification(records(np.zeros((2, 4), np.int8), [0, 3])) is not None


def test_differences_are_those_of_real_values() -> None:
    ours, theirs = np.array([[1, 5], [2, 2], [9, 9]], np.int8), np.array([[1, 3], [4, 1], [0, 0]], np.float32)
    both = [True, True, False]
    found = difference(records(ours, ran=both), records(theirs), lambda x: x * 2.0, lambda x: x)
    assert found is not None
    errors = np.array([[1, 7], [0, 3]])
    assert (found.count, found.largest_error, found.changed_answers) == (2, 7, 0)
    assert found.mean_absolute_error == np.abs(errors).mean()
    assert found.root_mean_square_error == pytest.approx(np.sqrt(np.square(errors).mean()))
    assert found.signal_to_noise_db == pytest.approx(10 * np.log10(27 / 59))
    assert found.worst == ((0, 25.0), (1, 4.5))
    assert difference(records(ours, ran=both), records(theirs, ran=[False] * 3), np.asarray, np.asarray) is None
    same = difference(records(theirs), records(theirs), np.asarray, np.asarray, worst=1)
    assert same is not None
    assert (same.signal_to_noise_db, same.worst) == (np.inf, ((0, 0.0),))
    single = difference(records(theirs[:, :1]), records(theirs[:, :1]), np.asarray, np.asarray)
    assert single is not None
    assert single.changed_answers is None


# --- Work that is handed out -----------------------------------------------------------------------------------------


class Pool:
    """Stands for workers: a part is done when its result is asked for."""

    def __init__(self) -> None:
        self.waiting = 0
        self.most = 0
        self.cancelled: list[int] = []

    def submit(self, part: Any) -> Any:
        self.waiting += 1
        self.most = max(self.most, self.waiting)
        future = MagicMock()

        def result() -> Any:
            self.waiting -= 1
            if part == "bad":
                raise DataError("a bad part")
            return [part]

        future.result = result
        future.cancel = lambda: self.cancelled.append(part)
        return future


@pytest.mark.parametrize("ahead", [1, 2, 5])
def test_so_many_parts_are_on_their_way_and_results_come_in_their_order(ahead: int) -> None:
    pool = Pool()
    assert list(evaluation._drawn(pool.submit, iter([(1, i) for i in range(9)]), ahead)) == [[i] for i in range(9)]
    assert (pool.most, pool.waiting, pool.cancelled) == (ahead, 0, [])


def test_what_is_on_its_way_is_called_off_where_a_part_fails() -> None:
    pool = Pool()
    drawn = evaluation._drawn(pool.submit, iter([(1, "bad"), (1, 1), (1, 2)]), 2)
    with pytest.raises(DataError, match="a bad part"):
        next(drawn)
    assert pool.cancelled == [1]


def test_workers_of_a_pool_have_a_few_parts_each(monkeypatch: pytest.MonkeyPatch) -> None:
    pools: list[tuple[Pool, int]] = []

    class Executor(futures.Executor):
        def __init__(self, count: int) -> None:
            self.pool = Pool()
            pools.append((self.pool, count))

        def submit(self, run: Any, job: Any, part: Any) -> Any:  # type: ignore[override]
            return self.pool.submit(part)

    monkeypatch.setattr("tflm.evaluation.evaluation.futures.ThreadPoolExecutor", Executor)
    monkeypatch.setattr("tflm.evaluation.evaluation.futures.ProcessPoolExecutor", Executor)
    parts: Any = [(1, i) for i in range(40)]
    assert len(list(evaluation.outcomes(Job(b""), iter(parts), 3))) == 40
    ((pool, count),) = pools
    assert (count, pool.most) == (3, 12)


def test_a_dask_client_has_parts_for_each_of_its_threads() -> None:
    pool, client = Pool(), MagicMock()
    client.nthreads.return_value = {"a": 2, "b": 1}
    client.submit.side_effect = lambda run, *given, **_: given[0] if len(given) == 1 else pool.submit(given[1])
    parts: Any = [(1, i) for i in range(30)]
    assert len(list(evaluation.outcomes(Job(b""), iter(parts), 1, client))) == 30
    assert pool.most == 12
    options = [of.kwargs for of in client.submit.call_args_list]
    assert all(of["pure"] is False for of in options)
    assert all(of["retries"] > 0 for of in options[1:])
    with pytest.raises(DataError, match=r"not int"):
        list(evaluation.outcomes(Job(b""), iter(parts), 1, 5))


# --- Files, for each type of input -----------------------------------------------------------------------------------

SCALE, ZERO_POINT = 1 / 64, {TensorType.INT8: -5}
TYPES = (TensorType.INT8, TensorType.INT16, TensorType.FLOAT32)


@functools.cache
def input_of(type: TensorType, *shape: int) -> TfLiteTensor:
    """An input of a model."""
    builder = tflm.ModelBuilder()
    main = builder.subgraph()
    parameters = None if type is TensorType.FLOAT32 else quantized(SCALE, ZERO_POINT.get(type, 0))
    x, y = (make(name, shape, type, parameters) for make, name in ((main.input, "x"), (main.tensor, "y")))
    main.operator(BuiltinOperator.RELU, [x], [y])
    main.output(y)
    return Runner(tflm.Model(builder.build())).inputs[0]


def rounded(real: Any, type: TensorType) -> Any:
    """Real values as the input has them: integers are rounded half away from zero, and saturated."""
    if type is TensorType.FLOAT32:
        return np.float32(real)
    scaled = np.float64(real) / SCALE
    limits = np.iinfo(np.int8 if type is TensorType.INT8 else np.int16)
    halves = np.sign(scaled) * np.floor(np.abs(scaled) + 0.5)
    return np.clip(halves + ZERO_POINT.get(type, 0), limits.min, limits.max).astype(limits.dtype)


@pytest.mark.parametrize("type", TYPES)
@pytest.mark.parametrize("real", [False, True])
@pytest.mark.parametrize(
    ("mode", "shape"),
    [
        *[("L", shape) for shape in ((1, 3, 4), (3, 4), (1, 3, 4, 1), (3, 4, 1), (12,), (1, 12))],
        *[("RGB", shape) for shape in ((1, 3, 4, 3), (3, 4, 3), (36,))],
        ("RGBA", (1, 3, 4, 4)),
    ],
)
def test_pixels_are_shares_of_255_or_integers(
    mode: str, shape: tuple[int, ...], real: bool, type: TensorType, tmp_path: Path
) -> None:
    """Integers of 8 bits with a sign are 128 less."""
    image = pytest.importorskip("PIL.Image")
    tensor = input_of(type, *shape)
    pixels = np.linspace(0, 255, tensor.data.size).astype(np.uint8)
    by_channels = pixels.reshape((3, 4) if mode == "L" else (3, 4, -1))
    image.fromarray(by_channels).save(tmp_path / "in.png")
    ((found,),) = read_inputs(tmp_path / "in.png", [tensor], real=real)
    integers = pixels.astype(np.int16) - 128 * (type is TensorType.INT8)
    expected = rounded(np.float32(pixels) / np.float32(255), type) if real or type is TensorType.FLOAT32 else integers
    assert found.dtype == tensor.data.dtype
    np.testing.assert_array_equal(found, expected.reshape(shape))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["x0={}", "x0={}"], "input 'x0' is given twice"),
        (["x0={}", "x2={}"], r"unknown input 'x2' \(available: x0, x1\)"),
        (["{}", "x1={}"], "the model has several inputs; use one of --inputs x0="),
        (["x0={}"], r"input 1 \(x1\) is missing"),
    ],
)
def test_each_input_has_a_file(
    given: list[str], message: str, tensors: dict[int, list[TfLiteTensor]], tmp_path: Path
) -> None:
    np.save(tmp_path / "in.npy", A.reshape(1, 2))
    with pytest.raises(DataError, match=message):
        read_given([each.format(tmp_path / "in.npy") for each in given], tensors[2], {"x0": 0, "x1": 1}, False)


def test_an_array_of_one_invoke_is_given_in_all(tensors: dict[int, list[TfLiteTensor]]) -> None:
    rows = np.arange(6, dtype=np.float32).reshape(3, 2)
    inputs = [ClipInput(tensor) for tensor in tensors[2]]
    steps = fitted_clip([rows, A], inputs, "clip")
    assert [[values.tolist() for values in step] for step in steps] == [[[row.tolist()], [[1, 2]]] for row in rows]
    with pytest.raises(DataError, match=r"^clip: its arrays are for different numbers of invokes: \[2, 3\]$"):
        fitted_clip([rows, rows[:2]], inputs, "clip")


def test_each_output_is_recorded() -> None:
    main = tflm.ModelBuilder().subgraph()
    x = main.input("x", (1, 2), TensorType.FLOAT32)
    for name in ("ABS", "NEG"):
        y = main.tensor(name, (1, 2), TensorType.FLOAT32)
        main.operator(BuiltinOperator[name], [x], [y])
        main.output(y)
    records = tflm.evaluate(tflm.Model(main.builder.build()), [A, -B], workers=1).records
    assert records["output0"].tolist() == [[[1, 2]], [[3, 4]]]
    assert records["output1"].tolist() == [[[-1, -2]], [[3, 4]]]


def test_samples_of_a_folder_are_its_files_of_known_kinds_in_order(tmp_path: Path) -> None:
    for name in ("b.NPY", "a.png", "c.txt", "d"):
        (tmp_path / name).touch()
    (tmp_path / "e.npy").mkdir()
    assert [path.name for path in files_in(tmp_path)] == ["a.png", "b.NPY"]


def test_a_confusion_matrix_needs_labels() -> None:
    found: Any = MagicMock(classification=None)
    with pytest.raises(DataError, match="a confusion matrix needs labels"):
        pictures.write_confusion(Path("c.png"), found)


@pytest.mark.parametrize(("processors", "workers"), [(6, 6), (None, 1)])
def test_without_an_affinity_there_is_a_worker_for_each_processor(
    processors: int | None, workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr("os.sched_getaffinity", raising=False)
    monkeypatch.setattr("os.cpu_count", lambda: processors)
    assert evaluation.default_workers() == workers


def evaluated(inputs: Any, *others: Any, **options: Any) -> Callable[[Path], object]:
    return lambda _: tflm.evaluate(adding(1), inputs, *others, **options)


def saved(name: str, content: Any) -> Callable[[Path], object]:
    def evaluate(folder: Path) -> object:
        path = folder / name
        if isinstance(content, str):
            path.write_text(content)
        elif isinstance(content, dict):
            np.savez(path, **content)
        else:
            np.save(path, content)
        return tflm.evaluate(adding(1), path)

    return evaluate


@pytest.mark.parametrize(
    ("evaluate", "message"),
    [
        (evaluated([A], on_bad="skip"), "on_bad is 'stop' or 'leave-out', not 'skip'"),
        (evaluated([A], workers=0), "workers is a number from 1 on, not 0"),
        (evaluated([A], workers=2.0), "workers is a number from 1 on, not 2.0"),
        (evaluated([A], scheduler="dask"), "scheduler takes a dask.distributed.Client, not str"),
        (saved("in.npz", {"a": np.zeros((6, 2)), "b": np.zeros((3, 2))}), "different numbers of samples: .*6.*3"),
        (evaluated(iter([A]), [0]), "separate labels need a known number of samples"),
        (lambda folder: tflm.evaluate(adding(1), folder), "holds no .*csv.* file, nor folders of them"),
        (saved("in.csv", " \n"), "in.csv: is empty"),
        (saved("in.npy", np.array(["a"])), "holds <U1; samples are arrays of numbers"),
        (saved("in.npy", np.zeros((3, 0))), r"has samples of shape \[0\], without values"),
        (saved("in.npy", np.float32(1)), "is a single number; samples lie along the first dimension"),
        (saved("in.npz", {"labels": np.zeros(3)}), "has labels but no array of samples"),
        (saved("in.txt", "1"), "data is a .npy, .npz or .csv file"),
    ],
)
def test_what_is_no_evaluation_is_refused(evaluate: Callable[[Path], object], message: str, tmp_path: Path) -> None:
    with pytest.raises(tflm.TflmError, match=message):
        evaluate(tmp_path)


RESET, LOST = tflm.DeviceReset("reset"), tflm.DeviceError("no answer")


@pytest.mark.parametrize(
    ("errors", "raised", "reason"),
    [
        ([], None, ""),
        ([RESET] * (TRIES - 1), None, ""),
        ([RESET] * TRIES, RESET, ""),
        ([RESET, LOST], LOST, ""),
        ([tflm.OperatorError("index 9 is out of range")], None, "one: index 9 is out of range"),
    ],
)
def test_a_sample_is_run_again_after_a_reset_and_an_evaluation_ends_with_its_device(
    errors: list[tflm.TflmError], raised: tflm.TflmError | None, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner, left = Runner(adding(1)), [*errors]
    run_steps = runner._run_steps

    def run_or_fail(sample: Sample, after_step: Callable[[], None] | None) -> None:
        if left:
            raise left.pop(0)
        run_steps(sample, after_step)

    monkeypatch.setattr(runner, "_run_steps", run_or_fail)
    with contextlib.nullcontext() if raised is None else pytest.raises(type(raised), match=str(raised)):
        outcome = runner.run(Sample("one", [[A.reshape(runner.inputs[0].data.shape)]], 7))
        assert (outcome.name, outcome.reason, outcome.label) == ("one", reason, 7)
        assert (outcome.outputs is None) == bool(reason)
    assert left == []


@pytest.mark.parametrize(
    ("name", "write"),
    [
        ("in.csv", lambda path, values: path.write_text("\n".join(map(str, values)))),
        ("in.bin", lambda path, values: path.write_bytes(values.tobytes())),
        ("in.npy", np.save),
        ("in.npz", np.savez),
    ],
)
def test_a_file_with_a_value_that_no_integer_represents_is_named(
    name: str, write: Callable[[Path, Any], object], tmp_path: Path
) -> None:
    path = tmp_path / name
    write(path, np.array([1, np.nan], np.float32))
    with pytest.raises(DataError, match=rf"{name}.*: nan can't be quantized"):
        read_inputs(path, [input_of(TensorType.INT8, 1, 2)], real=True)


@pytest.mark.parametrize(
    ("arrays", "expected"),
    [
        ({"a": A, "b": B}, [A, B]),
        ({"b": B, "a": A}, [A, B]),
        ({"b": B, "y": A, "a": A}, [A, B]),
        ({"b": B, "c": A}, [B, A]),  # not all of them are inputs: in their order
        ({"c": B, "d": A}, [B, A]),
        ({"labels": A, "c": B, "d": A}, [B, A]),
        ({"in_0_1": A, "in_0_0": B}, [B, A]),
        ({"a": A}, "has 1 arrays, but the model has 2 inputs"),
        ({"c": A, "d": B, "e": A}, "has 3 arrays, but the model has 2 inputs"),
    ],
)
def test_arrays_of_a_file_are_inputs_by_name_or_in_their_order(
    arrays: dict[str, Any], expected: list[Any] | str, tensors: dict[int, list[TfLiteTensor]], tmp_path: Path
) -> None:
    np.savez(tmp_path / "in.npz", **arrays)
    if isinstance(expected, str):
        with pytest.raises(DataError, match=expected):
            read_inputs(tmp_path / "in.npz", tensors[2], {"a": 0, "b": 1})
        return
    (step,) = read_inputs(tmp_path / "in.npz", tensors[2], {"a": 0, "b": 1})
    np.testing.assert_array_equal(step, np.reshape(expected, np.shape(step)))


@pytest.mark.parametrize("shape", [(4, 3), (1, 4, 3, 1), (3, 4, 2), (1, 3, 4, 5), (2, 3, 4), (11,), (24,)])
def test_a_picture_of_another_size_names_both(shape: tuple[int, ...], tmp_path: Path) -> None:
    pytest.importorskip("PIL.Image").fromarray(np.zeros((3, 4), np.uint8)).save(tmp_path / "in.png")
    with pytest.raises(DataError, match=r"input 'x' takes shape .*; this picture is 4 wide and 3 high"):
        read_inputs(tmp_path / "in.png", [input_of(TensorType.INT8, *shape)])


@pytest.mark.parametrize("name", ["in.png", "in.wav", "in.npy", "in.npz", "in.csv", "in.bin"])
def test_a_file_that_is_missing_is_no_broken_file(name: str, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=name):
        read_inputs(tmp_path / name, [input_of(TensorType.INT8, 3, 4)])


@pytest.mark.parametrize("type", TYPES)
@pytest.mark.parametrize("real", [False, True])
@pytest.mark.parametrize("width", [1, 2, 4])
def test_sound_has_16_bits_of_which_int8_takes_the_upper_half(
    width: int, real: bool, type: TensorType, tmp_path: Path
) -> None:
    samples = np.array([-32768, -32513, -256, -1, 0, 1, 255, 32767])
    if width == 1:
        samples = samples >> 8 << 8
    stored = {1: (samples >> 8) + 128, 2: samples, 4: (samples << 16) + 65535}[width]
    with wave.open(str(tmp_path / "in.wav"), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(width)
        file.setframerate(16000)
        file.writeframes(stored.astype({1: "u1", 2: "<i2", 4: "<i4"}[width]).tobytes())
    steps = read_inputs(tmp_path / "in.wav", [input_of(type, 1, 4)], real=real)
    assert [each[0].shape for each in steps] == [(1, 4), (1, 4)]
    found = np.concatenate([each[0] for each in steps], None)
    integers = samples >> 8 if type is TensorType.INT8 else samples
    expected = rounded(samples / 32768, type) if real or type is TensorType.FLOAT32 else integers
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("type", [TensorType.INT8, TensorType.INT16])
@pytest.mark.parametrize("is_text", [False, True])
def test_integers_are_taken_up_to_the_ends_of_the_type_and_no_further(
    is_text: bool, type: TensorType, tmp_path: Path
) -> None:
    tensor = input_of(type, 1, 2)
    limits = np.iinfo(tensor.data.dtype)

    def taken(*values: float) -> list[int]:
        if not is_text:
            return fitted(np.array([values], np.int64), tensor, "here").reshape(-1).tolist()
        (tmp_path / "in.csv").write_text(",".join(map(str, values)))
        return read_inputs(tmp_path / "in.csv", [tensor])[0][0].reshape(-1).tolist()

    assert taken(limits.min, limits.max) == [limits.min, limits.max]
    for wrong in (limits.min - 1, limits.max + 1, *([0.5] if is_text else [])):
        for pair in ((0, wrong), (wrong, 0)):
            with pytest.raises(DataError, match=f"{limits.dtype}"):
                taken(*pair)
