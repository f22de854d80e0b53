"""TRANSPOSE_CONV as an ordinary convolution, with the windows and the weights of each phase of the output.

The rows of the output whose index has the same remainder modulo the stride form a phase. Each row of a phase is
computed from a window of ceil(taps / stride) rows of the input, and from every stride-th row of the filter. All phases
together are a single convolution: each channel of the weights exists once for each phase.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tflm.kernels.layers.geometry import Axis


@dataclass(frozen=True)
class Phases:
    """How output positions along one dimension are computed from windows of the input.

    Output position o is phase (o + before) modulo stride of window (o + before) / stride.

    Attributes:
        taps: number of taps of the filter.
        outputs: number of output positions.
        windows: number of windows of the input that the output uses.
    """

    taps: int
    outputs: int
    stride: int
    before: int
    windows: Axis

    @property
    def count(self) -> int:
        """Number of different phases. All phases beyond the filter are alike."""
        return min(self.stride, self.taps + 1)

    @property
    def fills_windows(self) -> bool:
        """Whether all phases have the same number of taps, so that none is padded with zeros."""
        return self.taps % self.stride == 0

    def places(self) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
        """Return the window and the phase of each output position."""
        window, phase = np.divmod(np.arange(self.outputs, dtype=np.intp) + self.before, self.stride)
        return window - window[0], np.minimum(phase, self.count - 1)


def phases(axis: Axis) -> Phases:
    """Return the phases of one dimension. The axis is that of a convolution from the output to the input."""
    first, last = axis.before // axis.stride, (axis.before + axis.size - 1) // axis.stride
    taps = -(-axis.taps // axis.stride)
    windows = Axis(axis.windows, taps, last - first + 1, before=taps - 1 - first)
    return Phases(axis.taps, axis.size, axis.stride, axis.before, windows)


def by_phase(weights: npt.NDArray[Any], rows: Phases, columns: Phases) -> npt.NDArray[Any]:
    """Reorder weights (channels, rows, columns, depth) by phase.

    Returns:
        (row phases * column phases * channels, row taps, column taps, depth).
    """
    channels, depth = weights.shape[0], weights.shape[3]
    row_taps, column_taps = rows.windows.taps, columns.windows.taps
    padded = np.zeros((channels, row_taps * rows.count, column_taps * columns.count, depth), weights.dtype)
    padded[:, : rows.taps, : columns.taps] = weights
    # A window goes forward through the input, and backward through the filter.
    split = padded.reshape(channels, row_taps, rows.count, column_taps, columns.count, depth)[:, ::-1, :, ::-1]
    return split.transpose(2, 4, 0, 1, 3, 5).reshape(-1, row_taps, column_taps, depth)


def places_by_window(batches: int, rows: Phases, columns: Phases) -> npt.NDArray[np.intp]:
    """Return each output position's index in the order by window, then by phase."""
    (row, row_phase), (column, column_phase) = rows.places(), columns.places()
    batch = np.arange(batches, dtype=np.intp)[:, np.newaxis]
    line = ((batch * rows.windows.windows + row) * columns.windows.windows)[:, :, np.newaxis] + column
    phase = row_phase[:, np.newaxis] * columns.count + column_phase
    places: npt.NDArray[np.intp] = (line * (rows.count * columns.count) + phase).reshape(-1)
    return places
