"""Layers with few channels: adjacent windows are joined to one window that has the channels of all of them.

Vectors of channels are then full. The joined window is wider; outside of its own window, a channel has weights of zero.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tflm.kernels.layers.geometry import Axis

MAX_JOINED = 16

EPILOGUE_UNITS = 4
"""How many units of products take as long as the epilogue of a vector."""


def windows_to_join(columns: Axis, weights: npt.NDArray[Any], lanes: int, unit_elements: int) -> int:
    """How many windows along the columns are best joined to one.

    Args:
        weights: (groups, rows of weights, taps of the rows, taps of the columns, depth).
        lanes: of a vector of channels.
        unit_elements: elements of the depth that are multiplied at a time.
    """
    groups, channels, row_taps, _, depth = weights.shape
    if groups > 1 or columns.dilation != 1:
        return 1

    def cost(count: int) -> float:
        """The cost of one of the windows."""
        vectors = -(-count * channels // lanes)
        units = -(-joined(columns, count).taps * depth // unit_elements)
        units_of_vectors: float = vectors * (row_taps * units + EPILOGUE_UNITS) / count
        return units_of_vectors

    return min((count for count in range(1, MAX_JOINED + 1) if columns.windows % count == 0), key=cost)


def joined(columns: Axis, count: int) -> Axis:
    """The columns when `count` windows are joined to one."""
    taps = columns.taps + (count - 1) * columns.stride
    return columns._replace(taps=taps, windows=columns.windows // count, stride=columns.stride * count)


def weights_of_joined(columns: Axis, weights: npt.NDArray[Any], count: int) -> npt.NDArray[Any]:
    """Weights (1, rows of weights, taps of the rows, taps of the columns, depth) of joined windows."""
    _, channels, row_taps, taps, depth = weights.shape
    made = np.zeros((count, channels, row_taps, joined(columns, count).taps, depth), weights.dtype)
    for window, own in enumerate(made):
        start = window * columns.stride
        own[:, :, start : start + taps] = weights[0]
    return made.reshape(1, count * channels, *made.shape[2:])
