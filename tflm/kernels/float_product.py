"""Matrix products of floats that round as the reference does: each sum is taken in the order of the depth.

BLAS sums in another order, which differs by more than 1e-5 where large terms cancel.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt


class FloatProduct:
    """sums[b, n] = sum over d of x[b, d] * w[n, d], in float32.

    Args:
        x: (batches, depth), read anew at each call.
        weights: (rows, depth).
        constant: whether the weights never change, so that they are laid out once.
    """

    def __init__(self, x: npt.NDArray[Any], weights: npt.NDArray[Any], *, constant: bool):
        rows, depth = weights.shape
        self._x = [batch[:, np.newaxis] for batch in x]
        self._weights = weights
        self._constant = constant
        # numpy adds the rows of a matrix one after the other, but a single column pairwise: make it two at least.
        columns = max(rows, 2)
        self._factors, self._products = (np.zeros((depth, columns), np.float32) for _ in range(2))
        self._sums = np.empty((len(x), columns), np.float32)
        self._result = self._sums[:, :rows]
        self._lay_out()

    def __call__(self) -> npt.NDArray[np.float32]:
        """The sums for the values that x has now, of shape (batches, rows), valid until the next call."""
        if not self._constant:
            self._lay_out()
        for x, sums in zip(self._x, self._sums):
            np.multiply(self._factors, x, out=self._products)
            np.add.reduce(self._products, axis=0, out=sums)
        return self._result

    def _lay_out(self) -> None:
        self._factors[:, : len(self._weights)] = self._weights.T
