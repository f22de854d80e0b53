"""Matrix products x @ w: exact for integers, in the reference's order of addition for floats."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from tflm.kernels.arithmetic.numpy_calls import einsum


def exact_type(largest_sum: int) -> np.dtype[Any]:
    """The dtype for products whose sums have at most this absolute value: the fastest one that is exact."""
    return np.dtype(np.float32 if largest_sum < 1 << 24 else np.float64 if largest_sum < 1 << 53 else np.int64)


def largest_distance(dtype: np.dtype[Any], zero_point: int) -> int:
    """The largest absolute difference of an integer of a type from a zero point."""
    limits = np.iinfo(dtype)
    return max(int(limits.max) - zero_point, zero_point - int(limits.min))


def factors(x: npt.NDArray[Any], zero_point: int, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """Subtract the zero point; returns a factor of an exact product."""
    values: npt.NDArray[Any] = np.subtract(x, zero_point, dtype=dtype)
    return values


def float_product(x: npt.NDArray[np.float32], w: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """x @ w, adding one rounded product at a time, in order.

    BLAS adds in another order; its results differ by more than 1e-5 if large terms cancel.
    """
    rows, columns = x.shape[-2], w.shape[-1]
    batches = np.broadcast_shapes(x.shape[:-2], w.shape[:-2])
    if math.prod(batches) > max(rows, columns):
        return _product_of_small_matrices(x, w, batches)
    if rows > columns:
        return float_product(w.swapaxes(-1, -2), x.swapaxes(-1, -2)).swapaxes(-1, -2)
    if columns == 1:
        w = np.concatenate([w, w], axis=-1)
    return ordered_product(x, np.ascontiguousarray(w, None))[..., :columns]


def _product_of_small_matrices(
    x: npt.NDArray[np.float32], w: npt.NDArray[np.float32], batches: tuple[int, ...]
) -> npt.NDArray[np.float32]:
    """`float_product` with an inner loop along the batches, of which there are many."""
    count = math.prod(batches)
    x, w = (
        np.ascontiguousarray(
            np.broadcast_to(a, (*batches, *a.shape[-2:])).reshape(count, *a.shape[-2:]).transpose(1, 2, 0), None
        )
        for a in (x, w)
    )
    product: npt.NDArray[np.float32]
    if len(w) and einsum_fuses():
        product = _sum_in_order(x[:, d, np.newaxis] * w[d] for d in range(len(w)))
    else:
        product = einsum("pdb,dnb->pnb", x, w)
    return product.transpose(2, 0, 1).reshape(*batches, *product.shape[:2])


def ordered_product(x: npt.NDArray[np.float32], w: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """`float_product` for a contiguous w of two columns or more: einsum runs its inner loop along them."""
    if w.shape[-2] and einsum_fuses():
        return _sum_in_order(x[..., d, np.newaxis] * w[..., np.newaxis, d, :] for d in range(w.shape[-2]))
    product: npt.NDArray[np.float32] = einsum("...pd,...dn->...pn", x, w)
    return product


@functools.cache
def einsum_fuses() -> bool:
    """Whether einsum adds products without rounding them first, as numpy's does on arm64."""
    factor = np.float32(1 + 2**-12)
    x = np.array([[-1, factor]], np.float32)
    w = np.full((2, 9), factor, np.float32)
    w[0] *= factor  # whole vectors and single elements: the other product less itself, rounded
    return bool(einsum("pd,dn->pn", x, w).any())


def _sum_in_order(products: Iterator[npt.NDArray[np.float32]]) -> npt.NDArray[np.float32]:
    """The sum of one product or more."""
    sums = next(products) + np.float32(0)  # as sums begin with 0, which -0 does not change
    for product in products:
        sums += product
    return sums
