"""Runs a data set through a model and summarizes the results.

The parts of a data set run in this thread, in threads, in processes, or with a Dask client.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent import futures
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tflm.compiler.calls import is_available
from tflm.errors import ArgumentError, DataError
from tflm.evaluation.input_files import units_of
from tflm.evaluation.metrics import Classification, Difference, ResultsFile, classification, difference
from tflm.evaluation.runner import Job, Outcome, Runnable, Runner, outcomes_of, run_part
from tflm.evaluation.samples import DataSet, SampleBatch, data_set
from tflm.evaluation.signal import SIGNAL_FIGURES, SignalLoss, signal_losses
from tflm.memory.tensor import TfLiteTensor
from tflm.report import NAME, NUMBER, TEXT, Table
from tflm.schema.model import Model

PARTS_AHEAD = 3
"""Parts that wait per worker; bounds the memory in use."""

Parts = Iterator[tuple[int, SampleBatch]]


def outcomes(
    job: Job, parts: Parts, workers: int, scheduler: Any = None, device: Runnable | None = None
) -> Iterator[list[Outcome]]:
    """The outcomes of each part, in order; of a device, those of each sample.

    Args:
        workers: number of parallel workers; 1 runs the parts in this thread.
        scheduler: a `dask.distributed.Client`, or None.
        device: a device that runs the model, or None.
    """
    if device is not None:
        runner = Runner(Model(job.model), device=device, **dict(job.settings))
        return ([outcome] for _, part in parts for outcome in outcomes_of(runner, part))
    if scheduler is not None:
        return _by_dask(job, parts, scheduler)
    if workers == 1:
        return (run_part(job, part) for _, part in parts)
    # Import the process pool only when used, because browsers lack it.
    pool = futures.ThreadPoolExecutor if is_available() else futures.ProcessPoolExecutor
    return _in_order(pool(workers), job, parts, workers)


def _in_order(executor: futures.Executor, job: Job, parts: Parts, workers: int) -> Iterator[list[Outcome]]:
    with executor:
        yield from _drawn(lambda part: executor.submit(run_part, job, part), parts, workers * (1 + PARTS_AHEAD))


def _by_dask(job: Job, parts: Parts, client: Any) -> Iterator[list[Outcome]]:
    """Dask reruns the parts of a lost worker; each part counts once, in order."""
    if not hasattr(client, "submit"):
        raise DataError(f"scheduler takes a dask.distributed.Client, not {type(client).__name__}")
    kept = client.submit(_itself, job, pure=False)  # unlike scattered data, it outlives the worker that has it
    threads = max(1, sum(client.nthreads().values()))

    def submit(part: SampleBatch) -> Any:
        return client.submit(run_part, kept, part, pure=False, retries=3)

    yield from _drawn(submit, parts, threads * (1 + PARTS_AHEAD))


def _itself(job: Job) -> Job:
    return job


def _drawn(submit: Callable[[SampleBatch], Any], parts: Parts, ahead: int) -> Iterator[list[Outcome]]:
    """Results in the order of the parts, with at most `ahead` parts in progress."""
    waiting: deque[Any] = deque()
    try:
        for _, part in parts:
            waiting.append(submit(part))
            if len(waiting) >= ahead:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        for future in waiting:
            with contextlib.suppress(Exception):
                future.cancel()


def default_workers() -> int:
    """The number of CPUs that this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1


Report = Callable[[int, "int | None"], None]
SAMPLES_FOR_SIGNAL = 16


@dataclass(frozen=True)
class Evaluation:
    """Results of a model on a data set.

    Attributes:
        count: number of samples in the results.
        left_out: names of the samples that could not be run in this run, with reasons.
        classes: names of the classes, by label; empty if they have none.
        records: a structured array, mapped from the results file: `ran`, `label`, `output0`, ...
        classification: accuracy and related figures; None without labels.
        difference: differences from the reference; None without a reference.
        signal: signal loss between reference and model, by tensor; empty without a reference.
        samples_per_second: of this run; 0.0 if every sample was in the results file.
        workers: number of workers.
    """

    count: int
    left_out: tuple[str, ...]
    classes: tuple[str, ...]
    records: npt.NDArray[Any] = field(repr=False)
    classification: Classification | None = None
    difference: Difference | None = None
    signal: tuple[SignalLoss, ...] = field(default=(), repr=False)
    samples_per_second: float = 0.0
    workers: int = 1

    @property
    def accuracy(self) -> float | None:
        """Share of samples that are classified correctly, 0 to 1; None without labels."""
        return None if self.classification is None else self.classification.accuracy

    def name_of(self, label: int) -> str:
        """The name of a class, or its number if it has none."""
        return self.classes[label] if label < len(self.classes) else str(label)

    @property
    def class_names(self) -> list[str]:
        """The names of all classes that the model has; there must be labels."""
        assert self.classification is not None
        return [self.name_of(label) for label in range(len(self.classification.confusion))]

    def tables(self) -> list[Table]:
        """The tables that the command prints."""
        return [table for table in (self._summary(), self._confusion(), self._signal()) if table is not None]

    def _summary(self) -> Table:
        rows: list[tuple[str, Any]] = [("samples", self.count), ("left out", len(self.left_out))]
        found = self.classification
        if found is not None:
            rows += [("accuracy", f"{found.accuracy:.4f}"), (f"top {found.k}", f"{found.top_k_accuracy:.4f}")]
            if found.auc is not None:
                rows.append(("area under ROC", f"{found.auc:.4f}"))
        if self.difference is not None:
            far = self.difference
            if far.changed_answers is not None:
                rows.append(("answers that differ from the reference", f"{far.changed_answers:.4%}"))
            rows += [
                ("mean absolute error", f"{far.mean_absolute_error:.6g}"),
                ("root mean square error", f"{far.root_mean_square_error:.6g}"),
                ("largest error", f"{far.largest_error:.6g}"),
                ("signal to noise", f"{far.signal_to_noise_db:.1f} dB"),
            ]
        return Table("Evaluation", {"what": TEXT, "value": NUMBER}, rows)

    def _confusion(self) -> Table | None:
        if self.classification is None:
            return None
        found = self.classification
        names = self.class_names
        if len(names) > 20:
            return None
        columns = {"is": NAME, **{f"as {name}": NUMBER for name in names}, "recall": NUMBER}
        rows = [(n, *row.tolist(), f"{r:.3f}") for n, row, r in zip(names, found.confusion, found.recall)]
        return Table("Taken for", columns, rows)

    def _signal(self) -> Table | None:
        if not self.signal:
            return None
        return Table.of("Signal loss compared with the reference", self.signal, *SIGNAL_FIGURES)

    def _repr_html_(self) -> str:
        return "".join(table.html() for table in self.tables())


def evaluate(
    model: Model,
    inputs: Any,
    labels: Any = None,
    *,
    reference: Model | None = None,
    top_k: int = 5,
    workers: int | None = None,
    scheduler: Any = None,
    results: str | Path | None = None,
    on_bad: str = "stop",
    limit: int | None = None,
    report: Report | None = None,
    device: Runnable | None = None,
) -> Evaluation:
    """Run a model on every sample, with the device's integers, and compute accuracy and errors.

    Args:
        model: the model. Streaming models keep their state within a clip, and are reset for the next one.
        inputs: an array with samples along its first dimension (a mapped one may be larger than the memory); a tuple of
            them, one for each input; a path to a .npy, .npz or .csv file, or to a folder with a folder for each class;
            or any iterable of arrays, or of pairs of arrays and label. Real values are quantized as the input says.
        labels: the class of each sample: an array, or a file of numbers. None if `inputs` has them, or there are none.
        reference: a model to compare the results with, such as the float version.
        top_k: the k of the top-k accuracy.
        workers: how many samples are run at once, on this machine; by default, the number of processors. Answers
            and their order do not depend on it.
        scheduler: a `dask.distributed.Client` that runs them, on whatever machines it has.
        results: a file for the results, from which an interrupted run resumes. Temporary by default.
        on_bad: what to do with a sample that can't be read or run: "stop", or "leave-out".
        limit: the number of samples to run, the first ones.
        report: called with how many samples are done, and of how many (None where that is not known).
        device: what runs the model instead of this machine, such as `tflm.device.connect(...)`: one sample at a time,
            each written to `results` before the next one. A sample is started again if the device is reset meanwhile.
            The reference runs here.

    Raises:
        DeviceError: the device does not answer. Earlier results are kept in the `results` file.
        DataError: a sample is bad and `on_bad` is "stop"; labels do not match the samples; the disk is full. Earlier
            results are kept in the `results` file.
        ArgumentError: an argument is invalid.
    """
    if not isinstance(model, Model):
        raise ArgumentError(f"model is a tflm.Model, not {model!r}: tflm.Model.from_file('...')")
    if on_bad not in ("stop", "leave-out"):
        raise ArgumentError(f"on_bad is 'stop' or 'leave-out', not {on_bad!r}")
    count = default_workers() if workers is None else workers
    if not isinstance(count, int) or count < 1:
        raise ArgumentError(f"workers is a number from 1 on, not {workers!r}")
    data = data_set(inputs, labels, model)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "results") if results is None else Path(results)
        run = _Run(data, count, scheduler, on_bad, limit, report)
        first = run.through(model, path, device)
        second = None
        if reference is not None:
            units = units_of(Runner(model).inputs)
            second = run.through(reference, path.with_name(path.name + ".reference"), units=units)
        records = np.array(first.records, first.records.dtype) if results is None else first.records
        compared = None
        if second is not None:
            compared = difference(records, second.records, first.real, second.real)
    losses = signal_losses(model, reference, data, SAMPLES_FOR_SIGNAL) if reference is not None else ()
    return Evaluation(
        len(records),
        tuple(first.left_out),
        data.classes,
        records,
        classification(records, top_k),
        compared,
        tuple(losses),
        first.rate,
        count,
    )


@dataclass
class _Through:
    """The results of running one model."""

    records: npt.NDArray[Any]
    left_out: list[str]
    rate: float
    real: Callable[[npt.NDArray[Any]], npt.NDArray[Any]]


@dataclass
class _Run:
    """How to run a data set, for the model and its reference."""

    data: DataSet
    workers: int
    scheduler: Any
    on_bad: str
    limit: int | None
    report: Report | None

    def through(self, model: Model, path: Path, device: Runnable | None = None, **settings: Any) -> _Through:
        """Run the samples that are not in the results file yet."""
        outputs = Runner(model).outputs
        file = ResultsFile(path, bytes(model.data), outputs)
        left_out: list[str] = []
        began, before = time.perf_counter(), file.count or 0
        try:
            job, parts = Job.of(model, **settings), self._parts(before)
            for found in outcomes(job, parts, self.workers, self.scheduler, device):
                bad = [outcome.reason for outcome in found if outcome.outputs is None]
                if bad and self.on_bad == "stop":
                    whole = next(i for i, outcome in enumerate(found) if outcome.outputs is None)
                    file.append(found[:whole])
                    raise DataError(f"{bad[0]} (on_bad='leave-out' skips such samples)")
                left_out += bad
                file.append(found)
                if self.report is not None:
                    self.report(file.count or 0, self._total())
        finally:
            file.close()
        done = (file.count or 0) - before
        rate = done / max(time.perf_counter() - began, 1e-9) if done else 0.0
        return _Through(file.records(), left_out, rate, lambda integers: dequantized(outputs[0], integers))

    def _total(self) -> int | None:
        counts = [count for count in (self.data.count, self.limit) if count is not None]
        return min(counts) if counts else None

    def _parts(self, start: int) -> Any:
        """The parts from sample `start` on, up to the limit, which may shorten the last one."""
        left = None if self.limit is None else self.limit - start
        for count, part in self.data.parts(start):
            if left is not None and count > left:
                if left > 0:
                    yield left, _FirstOf(part, left)
                return
            yield count, part
            left = None if left is None else left - count


@dataclass(frozen=True)
class _FirstOf:
    """A part limited to its first samples."""

    part: Any
    count: int

    def samples(self, tensors: Any) -> Any:
        """The first `count` samples of the part."""
        return islice(self.part.samples(tensors), self.count)


def dequantized(tensor: TfLiteTensor, integers: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """The real values of a tensor's integers, for any number of samples."""
    values = np.asarray(integers, np.float64)
    return values if not tensor.scale else (values - tensor.zero_point) * tensor.scale
