"""AVERAGE_POOL_2D and MAX_POOL_2D of int8."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

from .example import Example, clamp
from .layers import paddings, strides_of


def average_pool_2d(example: Example) -> list[int]:
    """The mean of the elements of a window that lie inside the image, rounded half away from zero."""

    def mean(values: list[int]) -> int:
        total, count = sum(values), len(values)
        return (total + count // 2) // count if total > 0 else -((-total + count // 2) // count)

    return _pool(example, mean)


def max_pool_2d(example: Example) -> list[int]:
    """The largest element of a window."""
    return _pool(example, max)


def _pool(example: Example, reduced: Callable[[list[int]], int]) -> list[int]:
    x, y, options = example.input(0), example.output, example.options
    limits = y.clamp_to(options.fused_activation_function)
    taps = (options.filter_height, options.filter_width)
    top, left = paddings(options.padding, x.shape[1:3], taps, strides_of(options), (1, 1))
    result = []
    for batch, row, column, channel in product(*map(range, y.shape)):
        rows = (row * options.stride_h - top + i for i in range(taps[0]))
        columns = [column * options.stride_w - left + j for j in range(taps[1])]
        places = ((r, c) for r in rows for c in columns if 0 <= r < x.shape[1] and 0 <= c < x.shape[2])
        result.append(clamp(reduced([x[batch, r, c, channel] for r, c in places]), limits))
    return result
