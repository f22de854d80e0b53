"""Matrix products over many positions, a block of positions at a time: what layers with weights have in common.

A layer multiplies what it sees at each position, the input itself or a window of it, by weights; then it finishes the
sums: it adds a bias, scales, clamps, stores. A block of positions is small enough for its sums to stay in a cache, and
its working memory does not grow with the tensors.
"""

from __future__ import annotations

import itertools
import math
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from tflm.kernels.host_memory import kept
from tflm.kernels.registration import Run

SUMS_IN_A_BLOCK = 1 << 14
FACTORS_IN_A_BLOCK = 1 << 20
FEWEST_POSITIONS = 64
"""Fewer would read all weights anew too often."""


class Weights(Protocol):
    """The weights of a layer as a product needs them.

    Attributes:
        dtype: of the sums and of what is multiplied.
        depth_major: whether the products want positions, not rows of weights, side by side in memory.
        constant: whether neither they nor the bias ever change.
    """

    dtype: np.dtype[Any]
    depth_major: bool
    constant: bool

    def lay_out(self) -> None:
        """Read the weights anew."""

    def product(self, x: npt.NDArray[Any], sums: npt.NDArray[Any]) -> None:
        """Set sums[g, p, n] to the sum over d of x[g, p, d] * w[g, n, d]."""


class Finish(Protocol):
    """What a layer makes of its sums."""

    def bind(self, sums: npt.NDArray[Any], y: npt.NDArray[Any], channels: tuple[int, ...]) -> Run:
        """What sets y from sums of the same shape, which it overwrites.

        Args:
            sums: contiguous in memory.
            y: a view of the output.
            channels: the shape that what the layer has for each channel broadcasts with.
        """

    def refresh(self) -> None:
        """Read anew what depends on weights and bias."""


class Scratch:
    """Arrays to work in that all blocks share; the first block needs the largest."""

    def __init__(self, dtype: np.dtype[Any]):
        self._dtype = dtype
        self._arrays: dict[str, npt.NDArray[Any]] = {}

    def array(self, name: str, *shape: int) -> npt.NDArray[Any]:
        """The beginning of the array of that name, with a shape."""
        size = math.prod(shape)
        if name not in self._arrays:
            self._arrays[name] = kept(np.empty(size, self._dtype))
        return self._arrays[name][:size].reshape(shape)


def bind_product(x: npt.NDArray[Any], y: npt.NDArray[Any], weights: Weights, finish: Finish) -> Run:
    """What sets y from x, by way of the sums of products.

    Args:
        x: (groups, positions..., depth...), a view of what is seen at each position.
        y: (groups, positions..., rows), a view of the output.
    """
    positions, depth = y.shape[1:-1], math.prod(x.shape[y.ndim - 1 :])
    per_position = x.shape[0] * depth
    most = max(FEWEST_POSITIONS, SUMS_IN_A_BLOCK // max(y.shape[0] * y.shape[-1], 1))
    steps = []
    scratch = Scratch(weights.dtype)
    for block in blocks(positions, max(min(most, FACTORS_IN_A_BLOCK // max(per_position, 1)), 4)):
        of_all_groups = (slice(None), *block)
        steps.append(_bind_block(x[of_all_groups], y[of_all_groups], weights, finish, scratch))
    product = weights.product

    def run() -> None:
        for patches, window, matrix, sums, finish_block in steps:
            patches[...] = window
            product(matrix, sums)
            finish_block()

    return run if weights.constant else _laid_out_first(run, weights, finish)


def _bind_block(
    x: npt.NDArray[Any],
    y: npt.NDArray[Any],
    weights: Weights,
    finish: Finish,
    scratch: Scratch,
) -> tuple[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any], Run]:
    """Where a block's windows are copied to; the windows; the copy as matrices; its sums; and how they are finished."""
    groups, *positions, rows = y.shape
    depth = x.shape[y.ndim - 1 :]
    p, d = math.prod(positions), math.prod(depth)
    patches, sums = scratch.array("patches", groups * p * d), scratch.array("sums", groups * p * rows)
    if weights.depth_major:
        axes = (0, *range(1 + len(depth), 1 + len(depth) + len(positions)), *range(1, 1 + len(depth)))
        nd_patches = patches.reshape(groups, *depth, *positions).transpose(axes)
        matrix, matrix_of_sums = (a.reshape(groups, -1, p).transpose(0, 2, 1) for a in (patches, sums))
        channels = (groups, rows, *[1] * len(positions))
        finish_block = finish.bind(sums.reshape(groups, rows, *positions), np.moveaxis(y, -1, 1), channels)
    else:
        nd_patches = patches.reshape(x.shape)
        matrix, matrix_of_sums = patches.reshape(groups, p, d), sums.reshape(groups, p, rows)
        channels = (groups, *[1] * len(positions), rows)
        finish_block = finish.bind(sums.reshape(y.shape), y, channels)
    return nd_patches, x, matrix, matrix_of_sums, finish_block


def _laid_out_first(run: Run, weights: Weights, finish: Finish) -> Run:
    def run_with_changing_weights() -> None:
        weights.lay_out()
        finish.refresh()
        run()

    return run_with_changing_weights


def blocks(shape: tuple[int, ...], limit: int) -> list[tuple[slice, ...]]:
    """Slices that cut an array of `shape` into blocks of about equal size, of `limit` elements at the most.

    The first block is the largest. With a limit of 4 or more, none has a single element unless the array has.
    """
    cuts: list[list[slice]] = []
    room = max(limit, 1)
    for size in reversed(shape):
        count = -(-size // room)
        ends = [-(-i * size // count) for i in range(count + 1)] if count else []
        cuts.insert(0, [slice(*pair) for pair in itertools.pairwise(ends)])
        room = max(room // max(size, 1), 1)
    return list(itertools.product(*cuts))
