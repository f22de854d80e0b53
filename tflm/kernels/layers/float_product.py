"""Layers with float weights: sums of products that round as the reference does, then bias and activation.

Each sum is taken in the order of the depth, a rounded product at a time. BLAS sums in another order, which differs by
more than 1e-5 where large terms cancel.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tflm.kernels.arithmetic.numpy_calls import clip, einsum, scalar
from tflm.kernels.host_memory import kept
from tflm.kernels.registration import Run

FLOAT32 = np.dtype(np.float32)


def wants_positions_side_by_side(positions: int, rows: int) -> bool:
    """Whether a product of floats runs along positions, not along rows of weights."""
    return positions > rows


class FloatWeights:
    """Weights of a layer in float32; see `tflm.kernels.layers.product.Weights`.

    Args:
        weights: (groups, rows, depth...), a view.
        positions: at how many positions they are multiplied.
        constant: whether neither they nor the bias ever change.

    Attributes:
        factors: the weights, of shape (groups, depth, rows), or with a second column of zeros for a single row.
    """

    dtype = FLOAT32

    def __init__(self, weights: npt.NDArray[Any], *, positions: int, constant: bool):
        self._weights = weights
        self.constant = constant
        groups, rows = weights.shape[:2]
        depth = weights[0, 0].size
        # einsum takes the dimension that is contiguous for its inner loop. As long as that is not the depth, each sum
        # is taken in order; so it is the longer one of positions and rows, and these are two at least (`blocks` sees to
        # it for positions).
        self.depth_major = wants_positions_side_by_side(positions, rows)
        if self.depth_major:
            self._laid_out = kept(np.zeros((groups, rows, depth), FLOAT32))
            self.factors = self._laid_out.transpose(0, 2, 1)
            self._spare_column = None
        else:
            columns = max(rows, 2)
            self.factors = kept(np.zeros((groups, depth, columns), FLOAT32))
            self._laid_out = self.factors.transpose(0, 2, 1)[:, :rows]
            self._spare_column = kept(np.empty((groups, 1, columns), FLOAT32)) if columns > rows else None
        self.lay_out()

    def lay_out(self) -> None:
        """Read the weights anew."""
        for to, group in zip(self._laid_out, self._weights):
            np.copyto(to, group.reshape(to.shape))

    def product(self, x: npt.NDArray[Any], sums: npt.NDArray[Any]) -> None:
        """Set sums[g, p, n] to the sum over d of x[g, p, d] * w[g, n, d]."""
        if self._spare_column is None:
            einsum("gpd,gdn->gpn", x, self.factors, out=sums)
        else:
            einsum("gpd,gdn->gpn", x, self.factors, out=self._spare_column)
            np.copyto(sums, self._spare_column[:, :, :1])


class BiasAndActivation:
    """Adds a bias to float sums and clamps them; see `tflm.kernels.layers.product.Finish`.

    Args:
        bias: one for each channel, a view of any shape, or None.
        minimum, maximum: of the output, float32.
    """

    def __init__(self, bias: npt.NDArray[Any] | None, minimum: Any, maximum: Any):
        self._bias = bias
        self._minimum, self._maximum = scalar(minimum, FLOAT32), scalar(maximum, FLOAT32)
        self._by_channel = kept(np.zeros(() if bias is None else bias.shape, FLOAT32))
        self._spread: list[tuple[npt.NDArray[Any], npt.NDArray[Any]]] = []
        self.refresh()

    def bind(self, sums: npt.NDArray[Any], y: npt.NDArray[Any], channels: tuple[int, ...]) -> Run:
        """What sets y from sums of the same shape, which it overwrites."""
        addends = None
        if self._bias is not None:
            addends, bias = kept(np.empty(sums.shape, FLOAT32)), self._by_channel.reshape(channels)
            np.copyto(addends, bias)
            self._spread.append((addends, bias))
        minimum, maximum = self._minimum, self._maximum

        def run() -> None:
            if addends is not None:
                np.add(sums, addends, sums)
            clip(sums, minimum, maximum, y)

        return run

    def refresh(self) -> None:
        """Read the bias anew."""
        if self._bias is not None:
            np.copyto(self._by_channel, self._bias)
        for addends, bias in self._spread:
            np.copyto(addends, bias)
