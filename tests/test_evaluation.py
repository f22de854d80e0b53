"""Evaluation on a data set: the same results with any kind of workers, nothing is lost, and problems are named."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import wave
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from image_graphs import Images
from test_cli import figures

import tflm
from tflm.application.evaluation_report import calibration_report
from tflm.evaluation.calibration import CalibrationReport, TensorRange
from tflm.evaluation.input_files import fitted
from tflm.evaluation.metrics import ResultsFile, classification, difference
from tflm.evaluation.pictures import _as_picture, worst_samples, write_confusion
from tflm.evaluation.runner import Outcome, Runner
from tflm.evaluation.samples import Sample, data_set
from tflm.evaluation.signal import _pairs
from tflm.schema import BuiltinOperator, FullyConnectedOptions, ModelBuilder, Padding, SVDFOptions, TensorType

RNG = np.random.default_rng(0)
IMAGES = RNG.integers(-128, 128, (300, 8), dtype=np.int8)
CLASSES = 3


def classifier(type: TensorType = TensorType.INT8) -> tflm.Model:
    """Scores of three classes for eight numbers."""
    builder = tflm.ModelBuilder()
    main = builder.subgraph()
    weights = np.random.default_rng(1).integers(-127, 128, (CLASSES, 8)).astype(np.int8)
    quantized = type == TensorType.INT8
    x = main.input("x", (1, 8), type, tflm.quantized(0.5, 3) if quantized else None)
    values = weights if quantized else (weights * np.float32(0.01))
    w = main.constant("w", values, tflm.quantized(0.01) if quantized else None)
    y = main.tensor("y", (1, CLASSES), type, tflm.quantized(4.0, -1) if quantized else None)
    main.operator(BuiltinOperator.FULLY_CONNECTED, [x, w, -1], [y], FullyConnectedOptions())
    main.output(y)
    return tflm.Model(builder.build())


def one_by_one(model: tflm.Model, samples: np.ndarray) -> np.ndarray:
    """Return the model's results for each sample, run one after the other."""
    interpreter = tflm.MicroInterpreter(model, tflm.AllOpsResolver(), bytearray(1 << 16))
    interpreter.allocate_tensors()
    answers = []
    for sample in samples:
        interpreter.input(0).data[...] = sample
        interpreter.invoke()
        answers.append(np.array(interpreter.output(0).data))
    return np.array(answers)


def test_answers_are_those_of_an_interpreter_and_metrics_follow_from_them() -> None:
    model = classifier()
    scores = one_by_one(model, IMAGES).reshape(len(IMAGES), CLASSES)
    labels = RNG.integers(0, CLASSES, len(IMAGES))
    found = tflm.evaluate(model, IMAGES, labels, top_k=2, workers=1)
    assert np.array_equal(found.records["output0"].reshape(scores.shape), scores)
    taken = scores.argmax(axis=1)
    assert found.accuracy == np.mean(taken == labels)
    assert found.classification is not None
    expected = [[int(np.sum((labels == i) & (taken == j))) for j in range(CLASSES)] for i in range(CLASSES)]
    assert found.classification.confusion.tolist() == expected
    better = (scores > scores[np.arange(len(labels)), labels][:, None]).sum(axis=1)
    assert found.classification.top_k_accuracy == np.mean(better < 2)


@pytest.mark.parametrize("workers", [2, 3])
def test_results_are_the_same_bytes_for_any_number_of_workers(tmp_path: Path, workers: int) -> None:
    inputs = RNG.integers(-128, 128, (2000, 8), dtype=np.int8)
    tflm.evaluate(classifier(), inputs, workers=1, results=tmp_path / "one")
    tflm.evaluate(classifier(), inputs, workers=workers, results=tmp_path / "several")
    assert (tmp_path / "one").read_bytes() == (tmp_path / "several").read_bytes()


def test_a_run_that_was_cut_off_goes_on_where_its_results_are_good(tmp_path: Path) -> None:
    path, whole = tmp_path / "results", tmp_path / "whole"
    tflm.evaluate(classifier(), IMAGES, results=whole)
    tflm.evaluate(classifier(), IMAGES, results=path, limit=100)
    with open(path, "r+b") as file:
        file.seek(-7, os.SEEK_END)
        file.write(b"\xff")  # the last record is damaged
        file.seek(path.stat().st_size // 2)
        file.write(bytes(40))  # and one in the middle, with good ones after it
        file.seek(0, os.SEEK_END)
        file.write(b"half a record")
    done: list[int] = []
    found = tflm.evaluate(classifier(), IMAGES, results=path, report=lambda count, total: done.append(count))
    assert found.count == len(IMAGES)
    assert path.read_bytes() == whole.read_bytes()
    assert tflm.evaluate(classifier(), IMAGES, results=path).samples_per_second == 0
    with open(path, "r+b") as file:
        file.seek(path.stat().st_size // 2)
        file.write(bytes(40))
    tflm.evaluate(classifier(), IMAGES, workers=1, results=path, limit=200)
    assert path.stat().st_size < whole.stat().st_size  # without the old records after it


@pytest.mark.parametrize("records", [None, 0, 1])
def test_results_begin_where_a_file_has_none_yet(tmp_path: Path, records: int | None) -> None:
    path, whole = tmp_path / "results", tmp_path / "whole"
    tflm.evaluate(classifier(), IMAGES[:3], results=whole)
    head, all_records = whole.read_bytes().split(b"\n", 1)
    path.write_bytes(b"" if records is None else head + b"\n" + all_records[: records * len(all_records) // 3])
    tflm.evaluate(classifier(), IMAGES[:3], results=path)
    assert path.read_bytes() == whole.read_bytes()


def test_results_of_another_model_are_not_gone_on_with(tmp_path: Path) -> None:
    tflm.evaluate(classifier(), IMAGES[:5], results=tmp_path / "results")
    with pytest.raises(tflm.DataError, match="not a results file of this model"):
        tflm.evaluate(classifier(TensorType.FLOAT32), IMAGES[:5], results=tmp_path / "results")


def test_a_bad_sample_stops_or_is_left_out_by_name(tmp_path: Path) -> None:
    samples = [np.zeros(8, np.int8), np.zeros(9, np.int8), np.ones(8, np.int8)]
    with pytest.raises(tflm.DataError, match=r"sample 1: has shape \[9\]; input 'x' takes shape \[1, 8\]"):
        tflm.evaluate(classifier(), samples, results=tmp_path / "kept")
    found = tflm.evaluate(classifier(), samples, on_bad="leave-out", results=tmp_path / "kept")
    assert found.records["ran"].tolist() == [True, False, True]
    assert [reason.partition(":")[0] for reason in found.left_out] == ["sample 1"]


def test_too_few_labels_and_labels_of_no_class_are_named() -> None:
    with pytest.raises(tflm.DataError, match="299 labels for 300 samples"):
        tflm.evaluate(classifier(), IMAGES, np.zeros(299, np.int64))
    with pytest.raises(tflm.DataError, match="labels range from 7 to 7; the model has 3 classes"):
        tflm.evaluate(classifier(), IMAGES, np.full(300, 7))


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_full_disk_says_what_to_do() -> None:
    runner = Runner(classifier())
    outcome = Outcome("", [np.zeros((1, CLASSES), np.int8)], "", None)
    file = ResultsFile(Path("/dev/full"), b"", runner.outputs)
    with pytest.raises(tflm.DataError, match="No space left on device; 0 samples are kept; free space"):
        file.append([outcome] * 5000)


def test_real_values_are_quantized_as_the_input_says() -> None:
    model = classifier()
    real = RNG.normal(0, 20, (50, 8)).astype(np.float32)
    interpreter = tflm.MicroInterpreter(model, tflm.AllOpsResolver(), bytearray(1 << 16))
    interpreter.allocate_tensors()
    integers = np.array([interpreter.input(0).quantized(row[None])[0] for row in real])
    found = tflm.evaluate(model, real)
    assert np.array_equal(found.records["output0"], one_by_one(model, integers))


def test_a_reference_shows_how_far_answers_are_and_where_the_signal_goes() -> None:
    quantized, exact = classifier(), classifier(TensorType.FLOAT32)
    real = RNG.normal(0, 10, (64, 8)).astype(np.float32)
    found = tflm.evaluate(quantized, real, reference=exact)
    assert found.difference is not None
    ours = np.array([(row.astype(np.float64) + 1) * 4 for row in found.records["output0"].reshape(-1, CLASSES)])
    theirs = one_by_one(exact, real[:, None]).reshape(-1, CLASSES).astype(np.float64)
    assert found.difference.mean_absolute_error == pytest.approx(np.abs(ours - theirs).mean())
    worst = np.square(ours - theirs).mean(axis=1).argmax()
    assert found.difference.worst[0][0] == worst
    assert [(loss.operator, loss.tensor) for loss in found.signal] == [("0 FULLY_CONNECTED", "y")]


def test_state_lives_within_a_clip_and_not_from_one_to_the_next(tmp_path: Path) -> None:
    builder = tflm.ModelBuilder()
    main = builder.subgraph()
    x = main.input("x", (1, 1), TensorType.FLOAT32)
    feature, time = (main.constant(n, np.ones(s, np.float32)) for n, s in (("f", (1, 1)), ("t", (1, 3))))
    bias = main.constant("b", np.zeros(1, np.float32))
    state = main.tensor("state", (1, 3), TensorType.FLOAT32, is_variable=True)
    y = main.tensor("y", (1, 1), TensorType.FLOAT32)
    main.operator(BuiltinOperator.SVDF, [x, feature, time, bias, state], [y], SVDFOptions(rank=1))
    main.output(y)
    for name, values in (("a", "1,2,3"), ("b", "5,7")):
        (tmp_path / f"{name}.csv").write_text(values)
    found = tflm.evaluate(tflm.Model(builder.build()), tmp_path)
    assert found.records["output0"].ravel().tolist() == [6, 12]


def test_an_array_may_hold_the_frames_of_several_invokes() -> None:
    """The clip of a streaming model is a window; zeros come before one that does not fill its invokes."""
    images = Images(ModelBuilder().subgraph(), (1, 9, 1, 4))
    images.convolution(images.last, 4, (3, 1), padding=Padding.VALID)
    images.main.output(images.last)
    model = tflm.Model(images.main.builder.build())
    windows = np.random.default_rng(0).integers(-128, 128, (5, 9, 1, 4)).astype(np.int8)
    for hop in (1, 2, 3):
        for samples in (windows, list(windows), windows.astype(np.float32) * np.float32(0.05)):
            found = tflm.evaluate(tflm.stream(model, hop=hop).model, samples, reference=model, workers=1)
            assert (found.count, found.difference.largest_error) == (5, 0)
    with pytest.raises(tflm.DataError, match=r"takes shape \[1, 9, 1, 4\]"):
        tflm.evaluate(model, np.zeros((5, 18, 1, 4), np.int8), workers=1)


def test_folders_are_classes_and_files_are_read_by_their_kind(tmp_path: Path) -> None:
    for label, name in enumerate(("no", "yes")):
        (tmp_path / name).mkdir()
        with wave.open(str(tmp_path / name / "clip.wav"), "wb") as file:
            file.setnchannels(1), file.setsampwidth(2), file.setframerate(16000)
            file.writeframes(np.full(8, 256 * label, np.int16).tobytes())
        np.save(tmp_path / name / "array.npy", np.full((1, 8), label, np.int8))
    (tmp_path / "yes" / "broken.npy").write_bytes(b"nothing")
    found = tflm.evaluate(classifier(), tmp_path, on_bad="leave-out")
    assert found.classes == ("no", "yes")
    assert found.records["label"][found.records["ran"]].tolist() == [0, 0, 1, 1]
    assert "broken.npy" in found.left_out[0]


def test_memory_stays_flat_for_a_mapped_file(tmp_path: Path) -> None:
    """A sparse file of half a gibibyte has samples of a megabyte, of which the model returns the first bytes."""
    builder = tflm.ModelBuilder()
    main = builder.subgraph()
    x = main.input("x", (1, 1 << 20), TensorType.INT8)
    begin, size = main.constant("begin", np.zeros(2, np.int32)), main.constant("size", np.array([1, 4], np.int32))
    y = main.tensor("y", (1, 4), TensorType.INT8)
    main.operator(BuiltinOperator.SLICE, [x, begin, size], [y])
    main.output(y)
    (tmp_path / "model.tflite").write_bytes(builder.build())
    path = tmp_path / "large.npy"
    mapped = np.lib.format.open_memmap(path, "w+", np.int8, (1 << 9, 1 << 20))
    mapped[-1, :4] = 7
    del mapped
    script = (
        "import re, sys, tflm\n"
        "found = tflm.evaluate(tflm.Model.from_file(sys.argv[1]), sys.argv[2], workers=2)\n"
        "peak = re.search('VmHWM:[^0-9]*([0-9]+)', open('/proc/self/status').read())\n"
        "print(found.count, found.records['output0'][-1].sum(), peak[1])"
    )
    # Not getrusage: it counts what this process had when the other one began.
    command = [sys.executable, "-c", script, str(tmp_path / "model.tflite"), str(path)]
    count, last, kibibytes = map(int, subprocess.check_output(command, text=True).split())
    assert (count, last) == (1 << 9, 28)
    assert kibibytes < 256 << 10


@pytest.mark.long
def test_a_lost_worker_changes_nothing_under_dask(tmp_path: Path) -> None:
    distributed = pytest.importorskip("distributed", reason="needs dask and distributed, of the extra `dask`")
    inputs = RNG.integers(-128, 128, (6000, 8), dtype=np.int8)
    tflm.evaluate(classifier(), inputs, workers=1, results=tmp_path / "here")
    settings = {"dashboard_address": None, "silence_logs": 50, "processes": True, "threads_per_worker": 1}
    with distributed.LocalCluster(n_workers=2, **settings) as cluster, distributed.Client(cluster) as client:
        pid = client.run(os.getpid, nanny=False)
        lost = threading.Event()

        def kill_one(done: int, total: int | None) -> None:
            if not lost.is_set():
                lost.set()
                os.kill(next(iter(pid.values())), signal.SIGKILL)

        tflm.evaluate(classifier(), inputs, scheduler=client, results=tmp_path / "there", report=kill_one)
    assert lost.is_set()
    assert (tmp_path / "here").read_bytes() == (tmp_path / "there").read_bytes()


@pytest.mark.parametrize(("shape", "reason"), [((0, 8), "$"), ((2, 7), r": sample 0: has shape \[7\]")])
def test_calibration_needs_a_sample(shape: tuple[int, int], reason: str) -> None:
    with pytest.raises(tflm.DataError, match=f"no sample of the data could be run{reason}"):
        tflm.calibrate_report(classifier(), np.zeros(shape, np.int8))


def test_calibration_says_what_is_cut_off_and_what_is_never_used() -> None:
    wide = np.full((10, 8), 127, np.int8)
    narrow = np.full((10, 8), 4, np.int8)
    (cut, _) = tflm.calibrate_report(classifier(), wide).tensors
    assert (cut.operator, cut.tensor, cut.saturated) == ("input", "x", 1)
    assert (cut.room_from, cut.room_to) == ((-128 - 3) * 0.5, (127 - 3) * 0.5)
    (unused, _) = tflm.calibrate_report(classifier(), narrow).tensors
    assert unused.wasted_bits == 8
    assert (unused.lowest, unused.highest) == (0.5, 0.5)


def test_a_single_score_is_the_probability_of_class_one() -> None:
    dtype = np.dtype([("ran", "?"), ("label", "<i8"), ("output0", "i1", (1, 1))])
    records = np.array([(True, 1, [[5]]), (True, 0, [[-5]]), (True, 0, [[1]]), (False, 1, [[9]])], dtype)
    found = classification(records)
    assert found is not None
    assert found.accuracy == pytest.approx(2 / 3)


def test_the_command_prints_what_the_function_gives(tmp_path: Path) -> None:
    (tmp_path / "model.tflite").write_bytes(classifier().data)
    labels = RNG.integers(0, CLASSES, len(IMAGES))
    np.savez(tmp_path / "data.npz", images=IMAGES, labels=labels)
    data, confusion, worst = (tmp_path / name for name in ("data.npz", "c.png", "worst"))
    model = tmp_path / "model.tflite"
    told = figures("evaluate", model, "--inputs", data, "--confusion", confusion, "--worst", worst)
    found = tflm.evaluate(classifier(), IMAGES, labels)
    assert told["accuracy"] == found.accuracy
    assert (tmp_path / "c.png").read_bytes()[:4] == b"\x89PNG"
    written = list(worst.iterdir())
    assert len(written) == len(worst_samples(found)) > 0
    for path in written:
        sample, label, taken = map(int, re.findall(r"\d+", path.name))
        assert np.load(path).tolist() == [IMAGES[sample].tolist()]
        assert label == labels[sample] != taken == found.records["output0"][sample].argmax()


def test_the_worst_samples_are_those_whose_own_class_scores_least_beside_the_answer() -> None:
    scores = one_by_one(classifier(), IMAGES).reshape(len(IMAGES), CLASSES).astype(int)
    labels = RNG.integers(0, CLASSES, len(IMAGES))
    behind = scores.max(axis=1) - scores[np.arange(len(labels)), labels]
    worst = worst_samples(tflm.evaluate(classifier(), IMAGES, labels))
    assert [behind[sample] for sample in worst] == sorted(behind, reverse=True)[: len(worst)]


def test_where_all_is_right_the_worst_samples_are_those_that_differ_most_from_the_reference() -> None:
    labels = one_by_one(classifier(), IMAGES).reshape(len(IMAGES), CLASSES).argmax(axis=1)
    found = tflm.evaluate(classifier(), IMAGES, labels, reference=classifier(TensorType.FLOAT32))
    assert found.difference is not None
    assert worst_samples(found) == [sample for sample, _ in found.difference.worst]


@pytest.mark.long
def test_the_example_of_digits_evaluates_both_its_networks(tmp_path: Path) -> None:
    pytest.importorskip("sklearn", reason="needs scikit-learn, of the extra `metrics`")
    example = Path(__file__).parents[1] / "examples" / "digits" / "digits.py"
    told = subprocess.check_output([sys.executable, str(example), str(tmp_path)], text=True)
    in_float, in_int8 = (float(value) for value in re.findall(r"(0\.\d{4})", told.splitlines()[0]))
    assert min(in_float, in_int8) > 0.96
    images, labels = np.load(tmp_path / "digits.npz").values()
    assert tflm.evaluate(
        tflm.Model.from_file(tmp_path / "digits_int8.tflite"), images, labels
    ).accuracy == pytest.approx(in_int8, abs=5e-5)
    wrong = [path for path in (tmp_path / "worst").iterdir() if not re.search(r"is_(\d)_taken_for_\1\.png", path.name)]
    assert len(wrong) >= 10


def test_several_inputs_are_several_arrays() -> None:
    builder = tflm.ModelBuilder()
    main = builder.subgraph()
    a, b = (main.input(name, (1, 2), TensorType.FLOAT32) for name in "ab")
    y = main.tensor("y", (1, 2), TensorType.FLOAT32)
    main.operator(BuiltinOperator.SUB, [a, b], [y])
    main.output(y)
    model = tflm.Model(builder.build())
    arrays = tuple(RNG.normal(size=(20, 2)).astype(np.float32) for _ in range(2))
    found = tflm.evaluate(model, arrays)
    assert np.array_equal(found.records["output0"].reshape(20, 2), arrays[0] - arrays[1])


def test_names_of_classes_are_drawn_as_they_are(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="needs matplotlib")
    found = tflm.evaluate(classifier(), IMAGES[:9], np.arange(9) % CLASSES, workers=1)
    write_confusion(tmp_path / "confusion.png", replace(found, classes=("$\\frac$", "$x^$", "\x1b[31m")))
    assert (tmp_path / "confusion.png").stat().st_size


def scored(count: int, classes: int, seed: int) -> np.ndarray:
    """Return records of a model with this many scores; some samples did not run, some have no label."""
    rng = np.random.default_rng(seed)
    records = np.zeros(count, [("ran", "?"), ("label", "<i8"), ("output0", "i1", (1, classes))])
    records["ran"] = rng.random(count) < 0.8
    records["label"] = np.where(rng.random(count) < 0.8, rng.integers(0, classes, count), np.iinfo(np.int64).min)
    records["output0"] = rng.integers(-5, 6, (count, 1, classes))
    return records


@pytest.mark.parametrize("block", [1, 7, 40])
def test_what_is_found_does_not_depend_on_how_many_samples_are_looked_at_at_once(
    monkeypatch: pytest.MonkeyPatch, block: int
) -> None:
    records, reference = scored(40, 4, 1), scored(40, 4, 2)
    whole = classification(records, 2), difference(records, reference, real, real, worst=6)
    monkeypatch.setattr("tflm.evaluation.metrics.BLOCK", block)
    assert repr((classification(records, 2), difference(records, reference, real, real, worst=6))) == repr(whole)


def real(integers: np.ndarray) -> np.ndarray:
    """Real values of scores."""
    return 0.5 * (integers.astype(np.float64) - 1)


def test_differences_are_those_of_the_samples_that_both_ran() -> None:
    records, reference = scored(50, 3, 3), scored(50, 3, 4)
    found = difference(records, reference, real, real, worst=7)
    assert found is not None
    both = np.flatnonzero(records["ran"] & reference["ran"])
    ours, theirs = (real(of["output0"][both, 0]) for of in (records, reference))
    assert found.count == len(both) < 50
    assert found.changed_answers == np.mean(ours.argmax(axis=1) != theirs.argmax(axis=1))
    assert found.mean_absolute_error == pytest.approx(np.abs(ours - theirs).mean())
    assert found.root_mean_square_error == pytest.approx(np.sqrt(np.square(ours - theirs).mean()))
    assert found.largest_error == np.abs(ours - theirs).max()
    power = np.square(theirs).sum() / np.square(ours - theirs).sum()
    assert found.signal_to_noise_db == pytest.approx(10 * np.log10(power))
    error = np.square(ours - theirs).mean(axis=1)
    order = sorted(range(len(both)), key=lambda i: (-error[i], i))[:7]
    assert found.worst == tuple((int(both[i]), pytest.approx(error[i])) for i in order)
    equal = difference(records, records, real, real)
    assert equal is not None
    assert (equal.changed_answers, equal.largest_error, equal.signal_to_noise_db) == (0, 0, np.inf)


def test_classes_are_told_apart_as_counted_by_hand() -> None:
    records = scored(60, 4, 5)
    found = classification(records, 2)
    assert found is not None
    chosen = [r for r in records if r["ran"] and r["label"] >= 0]
    scores, labels = np.array([r["output0"][0] for r in chosen]), [int(r["label"]) for r in chosen]
    above = [int((row > row[label]).sum()) for row, label in zip(scores, labels)]
    assert found.count == len(chosen) < 60
    assert found.top_k_accuracy == np.mean([rank < 2 for rank in above])
    assert found.accuracy == np.mean([int(row.argmax()) == label for row, label in zip(scores, labels)])
    confusion = np.zeros((4, 4), int)
    for row, label in zip(scores, labels):
        confusion[label, int(row.argmax())] += 1
    assert found.confusion.tolist() == confusion.tolist()
    assert found.recall.tolist() == pytest.approx([confusion[c, c] / confusion[c].sum() for c in range(4)])
    assert classification(records, 9).k == 4
    records["ran"] = False
    assert classification(records) is None


def test_the_worst_samples_are_found_in_every_block(monkeypatch: pytest.MonkeyPatch) -> None:
    records = scored(100, 4, 7)
    found = tflm.Evaluation(100, (), (), records)
    own = {
        i: int(r["output0"][0].max()) - int(r["output0"][0, r["label"]])
        for i, r in enumerate(records)
        if r["ran"] and r["label"] >= 0
    }
    worst = sorted((i for i, behind in own.items() if behind), key=lambda i: (-own[i], i))[:16]
    assert worst_samples(found) == worst
    for block in (1, 9, 99, 100, 101):
        monkeypatch.setattr("tflm.evaluation.metrics.BLOCK", block)
        assert worst_samples(found) == worst


def names_in(data: Any, start: int, tensors: Any) -> list[list[str]]:
    """Names of the samples of each part from `start` on."""
    parts = [(count, [sample.name for sample in part.samples(tensors)]) for count, part in data.parts(start)]
    assert [count for count, _ in parts] == [len(names) for _, names in parts]
    return [names for _, names in parts]


def test_parts_have_every_sample_once_from_any_start(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    tensors = Runner(classifier()).inputs
    images = IMAGES[:10]
    np.save(tmp_path / "images.npy", images)
    for i in range(66):
        np.save(tmp_path / f"{i:02d}.npy", IMAGES[i : i + 1])
    (tmp_path / "images.npy").rename(tmp_path.parent / "images.npy")
    for max_bytes, most, size in ((8 * 3, 512, 3), (8 * 4 - 1, 512, 3), (1, 512, 1), (1 << 20, 4, 4), (80, 512, 10)):
        monkeypatch.setattr("tflm.evaluation.samples.BYTES_OF_A_PART", max_bytes)
        monkeypatch.setattr("tflm.evaluation.samples.SAMPLES_OF_A_PART", most)
        for data in (data_set(images), data_set(tmp_path.parent / "images.npy")):
            for start in (0, 1, 9, 10):
                parts = names_in(data, start, tensors)
                assert [name for part in parts for name in part] == [f"sample {i}" for i in range(start, 10)]
                assert all(len(part) == size for part in parts[:-1])
                assert 0 < len(parts[-1]) <= size if start < 10 else not parts
    for data, name_of in (
        (data_set([*IMAGES[:66]]), "sample {}".format),
        (data_set(iter(IMAGES[:66])), "sample {}".format),
        (data_set(tmp_path), lambda i: str(tmp_path / f"{i:02d}.npy")),
    ):
        start = 1 if data.count is None else 65
        parts = names_in(data, start, tensors)
        assert [len(part) for part in parts] == ([64, 1] if start == 1 else [1])
        assert [name for part in parts for name in part] == [name_of(i) for i in range(start, 66)]


@pytest.mark.parametrize("limit", [0, 1, 3, 4, 6, 10, 11, None])
def test_a_limit_is_kept_across_parts_and_runs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, limit: int | None
) -> None:
    monkeypatch.setattr("tflm.evaluation.samples.SAMPLES_OF_A_PART", 3)
    told: list[tuple[int, int | None]] = []
    count = min(10, 10 if limit is None else limit)
    found = tflm.evaluate(classifier(), IMAGES[:10], limit=limit, workers=1, report=lambda *at: told.append(at))
    assert found.count == len(found.records) == count
    assert told == [(min(3 * i, count), count) for i in range(1, (count + 2) // 3 + 1)]
    for part in (2, limit):
        found = tflm.evaluate(classifier(), IMAGES[:10], limit=part, workers=1, results=tmp_path / "results")
    assert found.records["output0"].tolist() == one_by_one(classifier(), IMAGES[: max(count, 2)]).tolist()
    assert (found.samples_per_second > 0) == (count > 2)


def test_integers_must_be_such_as_the_input_holds() -> None:
    (x,) = Runner(classifier()).inputs
    assert fitted(np.array([-128, 127] * 4), x, "s").tolist() == [[-128, 127] * 4]
    for value in (-129, 128):
        with pytest.raises(tflm.DataError, match=f"s: has int64 numbers.*{value}"):
            fitted(np.array([0] * 7 + [value]), x, "s")
    assert fitted(np.zeros((8, 1)), x, "s").tolist() == [[3] * 8]
    for shape in ((7,), (9,), (2, 4)):
        with pytest.raises(tflm.DataError, match=r"s: has shape .* takes shape \[1, 8\]"):
            fitted(np.zeros(shape, np.int8), x, "s")


@pytest.mark.parametrize(
    ("text", "values", "labels"),
    [
        ("1,2\n3,4\n", [[1, 2], [3, 4]], None),
        ("a,b\n1,2\n\n3,4\n", [[1, 2], [3, 4]], None),
        ("a,label\n1,2\n3,4\n", [[1], [3]], [2, 4]),
        ("y,a,b\n1,2,5\n3,4,6\n", [[2, 5], [4, 6]], [1, 3]),
        ("y,1,b\n1,2,5\n3,4,6\n", [[2, 5], [4, 6]], [1, 3]),
        ("1,2\n3,x\n", 2, None),
        ("a,b\n1,2\n3\n", 3, None),
        ("1,2\n3,4,5\n", 2, None),
        ("\n\n", "is empty", None),
    ],
)
def test_tables_may_have_names_and_labels(tmp_path: Path, text: str, values: Any, labels: Any) -> None:
    path = tmp_path / "data.csv"
    path.write_text(text)
    if not isinstance(values, list):
        said = f"line {values}: expected 2 numbers" if isinstance(values, int) else values
        with pytest.raises(tflm.DataError, match=said):
            data_set(path)
        return
    data: Any = data_set(path)
    assert data.inputs[0].tolist() == values
    assert (None if data.labels is None else data.labels.tolist()) == labels


def test_saturation_counts_values_at_either_end_but_for_those_that_stand_for_zero() -> None:
    for zero_point, saturated in ((0, 3 / 8), (-128, 2 / 8), (127, 1 / 8)):
        builder = tflm.ModelBuilder()
        main = builder.subgraph()
        x = main.input("x", (1, 8), TensorType.INT8, tflm.quantized(0.5, zero_point))
        y = main.tensor("y", (1, 8), TensorType.INT8, tflm.quantized(0.5, zero_point))
        main.operator(BuiltinOperator.RELU, [x], [y])
        main.output(y)
        values = np.array([[-128, 127, 127, 0, 1, 2, 3, 4]], np.int8)
        found = tflm.calibrate_report(tflm.Model(builder.build()), values[None])
        of_x = found.tensors[0]
        assert (of_x.saturated, of_x.wasted_bits) == (saturated, 0)
        assert (of_x.lowest, of_x.highest) == (0.5 * (-128 - zero_point), 0.5 * (127 - zero_point))
        assert (of_x.room_from, of_x.room_to) == (of_x.lowest, of_x.highest)
    narrow = tflm.calibrate_report(
        classifier(), np.array([[0, 1, 2, 3, 4, 5, 6, 7], [60, 0, 1, 2, 3, 4, 5, 63]], np.int8)
    )
    assert narrow.count == 2
    assert narrow.tensors[0].wasted_bits == 2
    assert narrow.tensors[0].highest == 0.5 * (63 - 3)
    assert tflm.calibrate_report(classifier(), IMAGES[:5], limit=4).count == 4


@pytest.mark.parametrize(
    ("shape", "picture"),
    [
        ((1, 4, 5, 1), (4, 5)),
        ((1, 4, 5, 3), (4, 5, 3)),
        ((1, 4, 5, 4), (4, 5, 4)),
        ((1, 4, 5, 2), None),
        ((1, 16), (4, 4)),
        ((1, 15), None),
        ((1, 9), None),
        ((1, 25), (5, 5)),
        ((1, 2, 3, 4, 3), None),
        ((4, 5), (4, 5)),
    ],
)
def test_samples_are_drawn_where_they_look_like_pictures(
    shape: tuple[int, ...], picture: tuple[int, ...] | None
) -> None:
    drawn = _as_picture(np.arange(np.prod(shape), dtype=np.int8).reshape(shape))
    assert (None if drawn is None else drawn.shape) == picture
    if drawn is not None:
        assert (drawn.min(), drawn.max()) == (0, 1)
        assert not _as_picture(np.full(shape, 7)).any()


def chain_of(operators: list[BuiltinOperator], names: list[str], widths: list[int], scale: float | None) -> tflm.Model:
    """Return a chain of operators whose outputs have these names and widths."""
    builder = tflm.ModelBuilder()
    main = builder.subgraph()
    type, quantized = (TensorType.FLOAT32, None) if scale is None else (TensorType.INT8, tflm.quantized(scale))
    tensor = main.input("x", (1, widths[0]), type, quantized)
    for operator, name, width in zip(operators, names, widths):
        following = main.tensor(name, (1, width), type, quantized)
        main.operator(operator, [tensor], [following])
        tensor = following
    main.output(tensor)
    return tflm.Model(builder.build())


def test_tensors_stand_beside_those_of_their_name_or_else_of_their_place() -> None:
    relu, absolute, negative = BuiltinOperator.RELU, BuiltinOperator.ABS, BuiltinOperator.NEG
    model = chain_of([relu, absolute], ["a", "b"], [4, 4], 0.5)
    for reference, pairs in (
        (chain_of([relu, absolute], ["a", "b"], [4, 4], None), [(1, 1), (2, 2)]),
        (chain_of([relu, absolute], ["b", "a"], [4, 4], None), [(1, 2), (2, 1)]),
        (chain_of([relu, absolute], ["c", "d"], [4, 4], None), [(1, 1), (2, 2)]),
        (chain_of([relu, negative], ["c", "d"], [4, 4], None), []),
        (chain_of([relu, negative], ["c", "b"], [4, 4], None), [(2, 2)]),
        (chain_of([relu, absolute], ["a", "d"], [4, 5], None), [(1, 1)]),
        (chain_of([relu], ["b"], [4], None), [(2, 1)]),
    ):
        assert [(ours, theirs) for _, ours, theirs in _pairs(model, reference)] == pairs
    assert [operator for operator, *_ in _pairs(model, model)] == ["0 RELU", "1 ABS"]


def test_signal_is_lost_where_integers_are_coarse() -> None:
    relu = BuiltinOperator.RELU
    model, reference = (chain_of([relu, relu], ["a", "b"], [4, 4], scale) for scale in (1.0, None))
    values = np.array([[1.25, 2.25, -3.0, 4.0], [1.0, 2.0, 3.0, -4.0]], np.float32)
    first, second = tflm.evaluate(model, values, reference=reference).signal
    rounded = np.floor(np.maximum(values, 0) + 0.5)
    power = np.square(np.maximum(values, 0)).sum() / np.square(rounded - np.maximum(values, 0)).sum()
    assert first.decibels == second.decibels == pytest.approx(10 * np.log10(power))
    given = 10 * np.log10(np.square(values).sum() / np.square(np.floor(values + 0.5) - values).sum())
    assert first.lost == pytest.approx(given - first.decibels)
    assert second.lost == 0
    (alone,) = {loss.decibels for loss in tflm.evaluate(model, values[1:], reference=reference).signal}
    assert alone == np.inf


@pytest.mark.parametrize("failing", ["values", "model", "reference"])
@pytest.mark.parametrize("is_stream", [False, True])
def test_signal_is_that_of_samples_that_both_models_run(
    failing: str, is_stream: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    relu = BuiltinOperator.RELU
    model, reference = (chain_of([relu, relu], ["a", "b"], [4, 4], scale) for scale in (1.0, None))
    values = np.array([[1.25, 2.25, -3, 4], [7, 8.5, 9, 1], [1, 2.75, 3, -4], [9.5, 0.25, 4, 1]], np.float32)
    wanted = [loss.decibels for loss in tflm.evaluate(model, values[[0, 2, 3]], reference=reference).signal]
    values[1, 2] = np.nan if failing == "values" else 9
    run = Runner.run

    def refusing(self: Runner, sample: Sample, *others: Any) -> Outcome:
        if sample.name == "sample 1" and (self.outputs[0].type == TensorType.INT8) == (failing == "model"):
            return Outcome(sample.name, None, "fails", sample.label)
        return run(self, sample, *others)

    if failing != "values":
        monkeypatch.setattr(Runner, "run", refusing)
    given: Any = list(values) if is_stream else values
    found = tflm.evaluate(model, given, reference=reference, on_bad="leave-out")
    assert [loss.decibels for loss in found.signal] == wanted
    if failing == "values":
        assert found.left_out == ("sample 1: nan can't be quantized for 'x': no integer represents it",)
        with pytest.raises(tflm.DataError, match="sample 1: nan can't be quantized"):
            tflm.evaluate(model, given)


def test_signal_is_lost_beside_the_least_that_any_tensor_before_had() -> None:
    """Values are cut off together with their noise: the signal rises, and what falls again later was lost before."""

    def chain(scales: Sequence[float | None]) -> tflm.Model:
        builder = tflm.ModelBuilder()
        main = builder.subgraph()
        types = [TensorType.FLOAT32 if scale is None else TensorType.INT8 for scale in scales]
        quantizations = [None if scale is None else tflm.quantized(scale) for scale in scales]
        tensors = [main.input("x", (1, 4), types[0], quantizations[0])]
        for name, type, quantization in zip("aby", types[1:], quantizations[1:]):
            tensors.append(main.tensor(name, (1, 4), type, quantization))
        operators = BuiltinOperator.RELU, BuiltinOperator.RELU6, BuiltinOperator.RELU
        for operator, source, target in zip(operators, tensors, tensors[1:]):
            main.operator(operator, [source], [target])
        main.output(tensors[-1])
        return tflm.Model(builder.build())

    values = np.array([[40.5, 7.5, 7.5, 5]], np.float32)
    losses = tflm.evaluate(chain([0.5, 1, 1, 4]), values, reference=chain([None] * 4)).signal
    first, second, third = (loss.decibels for loss in losses)
    assert third < first < second
    assert [loss.lost for loss in losses] == [0, 0, pytest.approx(first - third)]


def test_the_worst_tensors_waste_bits_or_cut_values_off() -> None:
    tensors = [
        TensorRange(name, "", 0, 1, 0, 1, saturated, wasted)
        for name, saturated, wasted in (("a", 0.0, 3.0), ("b", 0.5, 0.0), ("c", 0.25, 3.0), ("d", 0.0, 0.0))
    ]
    report = CalibrationReport(1, tuple(tensors))
    assert [tensor.tensor for tensor in report.worst()] == ["c", "b", "a", "d"]
    assert [tensor.tensor for tensor in report.worst(2)] == ["c", "b"]
    assert [note.split(":")[0].strip() for note in calibration_report(report).notes] == ["c", "b", "a"]
