"""Runs the parts of a data set: in this thread, in threads, in processes, or with a Dask client."""

from __future__ import annotations

import contextlib
import os
from collections import deque
from collections.abc import Callable, Iterator
from concurrent import futures
from typing import Any

from tflm.compiler.calls import is_available
from tflm.errors import DataError
from tflm.evaluation.runner import Job, Outcome, Runnable, Runner, outcomes_of, run_part
from tflm.evaluation.samples import SampleBatch
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
