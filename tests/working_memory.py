"""How much host memory an invoke takes and releases, and whether it keeps any."""

from __future__ import annotations

import gc
import math
import tracemalloc
from collections.abc import Callable

import numpy as np

import tflm
from tflm.kernels.layers.convolution import LARGEST_PRODUCT

TRANSIENT_LIMIT = (256 if np.lib.NumpyVersion(np.__version__) < "2.3.0" else 64) * 1024
"""Bytes that an invoke of the engine may take and release. Before numpy 2.3, the buffers of einsum had a fixed size."""

LAYERS = 4


def numpy_transient_limit(model: tflm.Model) -> int:
    """Bytes that one invoke of the numpy kernels may take and release: a few times the tensors of the largest operator.

    Their elements are computed in 64 bits.
    """
    largest = 0
    for subgraph in model.subgraphs:
        elements = [math.prod(tensor.shape or ()) for tensor in subgraph.tensors or ()]
        for operator in subgraph.operators or ():
            tensors = (*(operator.inputs or ()), *(operator.outputs or ()))
            largest = max(largest, sum(elements[i] for i in tensors if i >= 0))
    return TRANSIENT_LIMIT + LAYERS * 8 * largest + 8 * LARGEST_PRODUCT


def transient_and_growth(invoke: Callable[[], None], times: int) -> tuple[int, int]:
    """Bytes at the most that one invoke has of its own while it runs, and bytes that `times` invokes leave behind.

    Other threads of the process, such as those that hand out tests, are counted too, but do not come back at once: it
    is the smaller one of two measurements that tells.
    """
    invoke()
    gc.disable()  # memory that others left must not be freed in between
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
