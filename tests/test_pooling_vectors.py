"""Pooling in vectors of channels: any number of channels, windows that the border cuts off, several images."""

from __future__ import annotations

import numpy as np
import pytest

from tflm.compiler.calls import as_function
from tflm.compiler.processor import uses_tiles
from tflm.delegates.compiled.pooling_vectors import pool

ROWS, COLUMNS = [(0, 1), (0, 3), (2, 4)], [(0, 2), (1, 5)]
LEAST, MOST = -90, 100


def rounded_mean(values: np.ndarray) -> np.ndarray:
    """The mean over the first two dimensions, halves away from zero."""
    count, sums = values.shape[0] * values.shape[1], values.astype(np.int64).sum((0, 1), np.int64)
    means: np.ndarray = np.sign(sums) * ((abs(sums) + count // 2) // count)
    return means


@pytest.mark.skipif(not uses_tiles(), reason="plain kernels pool otherwise")
@pytest.mark.parametrize("function", ["MAX", "AVERAGE"])
@pytest.mark.parametrize("element", ["int8", "int16", "float32"])
@pytest.mark.parametrize("channels", [1, 3, 7, 16, 24, 64, 100])
def test_each_window_and_channel_is_pooled(function: str, element: str, channels: int) -> None:
    rng = np.random.default_rng(channels)
    x = rng.integers(-128, 128, (2, 4, 5, channels)).astype(element)
    y = np.full(2 * len(ROWS) * len(COLUMNS) * channels + 64, 7, element)
    least, most = (int(np.float64(of).view(np.int64)) if element == "float32" else of for of in (LEAST, MOST))
    as_function(pool.of(function=function, element=element))(
        x=x,
        y=y,
        rows=np.array(ROWS, np.int32),
        columns=np.array(COLUMNS, np.int32),
        height=4,
        width=5,
        channels=channels,
        batches=2,
        windows_down=len(ROWS),
        windows_across=len(COLUMNS),
        least=least,
        most=most,
    )
    pooled = []
    for image in x:
        windows = [image[slice(*rows), slice(*columns)] for rows in ROWS for columns in COLUMNS]
        if function == "MAX":
            pooled += [window.max(axis=(0, 1)) for window in windows]
        elif element == "float32":
            pooled += [window.reshape(-1, channels).mean(0, np.float64) for window in windows]
        else:
            pooled += [rounded_mean(window) for window in windows]
    expected = np.clip(np.array(pooled), LEAST, MOST).reshape(-1)
    np.testing.assert_allclose(y[: expected.size], expected, rtol=1e-6 if element == "float32" else 0)
    assert (y[expected.size :] == 7).all()
