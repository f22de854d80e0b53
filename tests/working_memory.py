"""How much memory of the host an invoke takes and gives back, and whether it keeps any."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable

import numpy as np

TRANSIENT_LIMIT = (256 if np.lib.NumpyVersion(np.__version__) < "2.3.0" else 64) * 1024
"""Bytes that one invoke may take and give back: working memory is taken before the first one. Before numpy 2.3, einsum
walks through its operands in buffers whose size can't be told it."""


def transient_and_growth(invoke: Callable[[], None], times: int) -> tuple[int, int]:
    """Bytes at the most that one invoke has of its own while it runs, and bytes that `times` invokes leave behind.

    Other threads of the process, such as those that hand out tests, are counted too, but do not come back at once: it
    is the smaller one of two measurements that tells.
    """
    invoke()
    gc.disable()  # what others left may not be given back in between
    tracemalloc.start()
    try:
        for _ in range(10):  # until the lists of free objects that Python keeps are full
            invoke()
        measured = [_measured(invoke, times) for _ in range(2)]
    finally:
        tracemalloc.stop()
        gc.enable()
    transients, growths = zip(*measured)
    return min(transients), min(growths)


def _measured(invoke: Callable[[], None], times: int) -> tuple[int, int]:
    before, _ = tracemalloc.get_traced_memory()
    tracemalloc.reset_peak()
    for _ in range(times):
        invoke()
    after, peak = tracemalloc.get_traced_memory()
    return peak - before, after - before
