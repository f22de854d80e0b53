"""Reductions over dimensions and segments, cumulative sums, finding and counting of elements, and Fourier transforms.

Transforms and spectrograms are over the innermost dimensions, in double precision.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tflm.delegates.flex.registry import (
    FLOAT32,
    INT32,
    INT64,
    OPERATORS,
    Array,
    axis_of,
    exact,
    ints,
    lowest,
    operator,
    require,
)

OPERATORS |= {  # of one expression each
    "ArgMax": lambda x, dimension, *, output_type=INT64: np.argmax(x, axis_of(dimension, x.ndim)).astype(output_type),
    "ArgMin": lambda x, dimension, *, output_type=INT64: np.argmin(x, axis_of(dimension, x.ndim)).astype(output_type),
    "InTopK": lambda predictions, targets, *, k: _in_top_k_v2(predictions, targets, np.asarray(k, np.int32)),
    "TopK": lambda x, *, k: _top_k_v2(x, np.asarray(k, np.int32)),
    "Unique": lambda x, *, out_idx=INT32: _unique_with_counts(x, out_idx=out_idx)[:2],
    "UniqueV2": lambda x, axis, *, out_idx=INT32: _unique_with_counts_v2(x, axis, out_idx=out_idx)[:2],
    "Where": lambda condition: np.argwhere(condition).astype(np.int64),
}


def _reduction(reduce: Callable[..., Any]) -> Callable[..., Array]:
    def reduced(x: Array, axis: Array, *, keep_dims: bool = False) -> Array:
        axes = tuple(axis_of(index, x.ndim) for index in ints(axis))
        values = x if x.dtype.kind == "b" else exact(x)
        return np.asarray(reduce(values, axis=axes, keepdims=keep_dims), None).astype(x.dtype)

    return reduced


def _sum_type(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The type that sums are computed in: 64 bits for integers, also on 32-bit hosts."""
    return np.dtype({"b": np.int64, "i": np.int64, "u": np.uint64}.get(dtype.kind, dtype))


def _mean(x: Array, **where: Any) -> Array:
    if x.dtype.kind not in "iu":
        return x.mean(**where)
    total = x.sum(**where, dtype=_sum_type(x.dtype))
    count = x.size // max(1, total.size)
    return np.trunc(total / count)


OPERATORS.update(
    {
        "All": _reduction(np.all),
        "Any": _reduction(np.any),
        "EuclideanNorm": _reduction(lambda x, **where: np.sqrt((abs(x) ** 2).sum(**where, dtype=_sum_type(x.dtype)))),
        "Max": _reduction(lambda x, **where: np.max(x, initial=lowest(x.dtype), **where)),
        "Mean": _reduction(_mean),
        "Min": _reduction(lambda x, **where: np.min(x, initial=_highest(x.dtype), **where)),
        "Prod": _reduction(np.prod),
        "Sum": _reduction(np.sum),
    }
)


def _highest(dtype: np.dtype[Any]) -> Any:
    return np.inf if dtype.kind == "f" else np.iinfo(dtype).max


def _cumulative(accumulate: Callable[..., Any], start: float) -> Callable[..., Array]:
    def accumulated(x: Array, axis: Array, *, exclusive: bool = False, reverse: bool = False) -> Array:
        index = axis_of(axis, x.ndim)
        values = np.flip(x, index) if reverse else x
        if exclusive:
            first = np.full((*x.shape[:index], min(1, x.shape[index]), *x.shape[index + 1 :]), start, x.dtype)
            values = np.concatenate([first, np.take(values, range(x.shape[index] - 1), index)], index)
        total = np.asarray(accumulate(exact(values), axis=index), None).astype(x.dtype)
        return np.flip(total, index) if reverse else total

    return accumulated


OPERATORS.update(
    {
        "Cumprod": _cumulative(np.cumprod, 1),
        "Cumsum": _cumulative(np.cumsum, 0),
        "CumulativeLogsumexp": _cumulative(np.logaddexp.accumulate, -np.inf),
    }
)


def _combined(data: Array, ids: Array, count: int, combine: np.ufunc = np.add, start: Any = 0) -> Array:
    """The rows of each segment, combined; those with a negative id are left out."""
    rows = data.reshape(ids.size, *data.shape[ids.ndim :])
    flat = ids.reshape(-1)
    require(flat.max(initial=-1) < count, f"has segment {flat.max(initial=-1)}, of {count}")
    made = np.full((count, *rows.shape[1:]), start, exact(data).dtype)
    combine.at(made, flat[flat >= 0], exact(rows)[flat >= 0])
    return made.astype(data.dtype)


def _segment_count(ids: Array) -> int:
    """The number of segments of sorted ids."""
    return int(ids[-1]) + 1 if ids.size else 0


def _add_segments(name: str, combine: np.ufunc, start: Callable[[Any], Any], empty: int) -> None:
    """Add the two operators that combine the elements of segments.

    Args:
        start: the value of an unsorted segment without elements, from the limits of the type.
        empty: the value of a sorted segment without elements.
    """

    def initial(data: Array) -> Any:
        return start(np.finfo(data.dtype) if data.dtype.kind == "f" else np.iinfo(data.dtype))

    def by_segment(data: Array, ids: Array) -> Array:
        made = _combined(data, ids, _segment_count(ids), combine, initial(data))
        made[np.setdiff1d(np.arange(len(made), dtype=np.int64), ids)] = empty
        return made

    OPERATORS[f"Segment{name}"] = by_segment
    OPERATORS[f"UnsortedSegment{name}"] = lambda data, ids, count: _combined(
        data, ids, ints(count)[0], combine, initial(data)
    )


_add_segments("Max", np.maximum, lambda limits: limits.min, 0)
_add_segments("Min", np.minimum, lambda limits: limits.max, 0)
_add_segments("Prod", np.multiply, lambda limits: 1, 1)
_add_segments("Sum", np.add, lambda limits: 0, 0)


def _sizes(ids: Array, count: int, rank: int) -> Array:
    """The number of rows of each segment, at least 1, as a divisor."""
    return np.maximum(np.bincount(ids.reshape(-1).astype(np.intp), minlength=count), 1).reshape(-1, *[1] * (rank - 1))


@operator("SegmentMean")
def _segment_mean(data: Array, ids: Array) -> Array:
    count = _segment_count(ids)
    return (_combined(exact(data), ids, count) / _sizes(ids, count, data.ndim)).astype(data.dtype)


def _add_sparse_segments(name: str, divide: Callable[[Array, Array], Array]) -> None:
    """Add the operators that sum rows by segment; `divide` normalizes sums by the sizes of their segments."""

    def by_segment(data: Array, indices: Array, ids: Array, num_segments: Any = None) -> Array:
        count = _segment_count(ids) if num_segments is None else ints(num_segments)[0]
        total = _combined(exact(data)[indices], ids, count)
        return divide(total, _sizes(ids, count, data.ndim)).astype(data.dtype)

    def gradient(slopes: Array, indices: Array, ids: Array, count: Array) -> Array:
        shares = divide(exact(slopes), _sizes(ids, len(slopes), slopes.ndim))[ids]
        return _combined(shares, indices, ints(count)[0]).astype(slopes.dtype)

    OPERATORS[f"SparseSegment{name}"] = OPERATORS[f"SparseSegment{name}WithNumSegments"] = by_segment
    OPERATORS[f"SparseSegment{name}Grad"] = gradient


_add_sparse_segments("Sum", lambda total, sizes: total)
_add_sparse_segments("Mean", lambda total, sizes: total / sizes)
_add_sparse_segments("SqrtN", lambda total, sizes: total / np.sqrt(sizes))


@operator("Bincount")
def _bincount(values: Array, size: Array, weights: Array) -> Array:
    require((values >= 0).all(), "counts a negative value")
    (count,) = ints(size)
    inside = values.reshape(-1) < count
    given = weights.reshape(-1)[inside] if weights.size else None
    counts = np.bincount(values.reshape(-1)[inside].astype(np.intp), given, count)
    return counts.astype(weights.dtype)


@operator("DenseBincount")
def _dense_bincount(values: Array, size: Array, weights: Array, *, binary_output: bool = False) -> Array:
    (count,) = ints(size)
    rows = np.atleast_2d(values)
    shares = np.ones(rows.shape, weights.dtype) if binary_output or not weights.size else weights.reshape(rows.shape)
    counts = [_bincount(row, size, share) for row, share in zip(rows, shares)]
    made = np.asarray(counts, weights.dtype).reshape(*values.shape[:-1], count)
    return (made > 0).astype(weights.dtype) if binary_output else made


@operator("TopKV2")
def _top_k_v2(x: Array, k: Array, *, index_type: np.dtype[Any] = INT32) -> tuple[Array, Array]:
    order = np.argsort(-exact(x) if x.dtype.kind == "f" else -x.astype(object), -1, kind="stable")[..., : ints(k)[0]]
    return np.take_along_axis(x, order, -1), order.astype(index_type)


@operator("InTopKV2")
def _in_top_k_v2(predictions: Array, targets: Array, k: Array) -> Array:
    inside = (targets >= 0) & (targets < predictions.shape[1])
    rows = np.arange(len(targets), dtype=np.int64)
    target = predictions[rows, np.where(inside, targets, 0)]
    larger = (predictions > target[:, np.newaxis]).sum(1, dtype=np.int64)
    return inside & np.isfinite(target) & np.isfinite(predictions).all(1) & (larger < ints(k)[0])


@operator("UniqueWithCounts")
def _unique_with_counts(x: Array, *, out_idx: np.dtype[Any] = INT32) -> tuple[Array, Array, Array]:
    _, first, inverse, counts = np.unique(x, return_index=True, return_inverse=True, return_counts=True)
    order = np.argsort(first)
    places = np.empty_like(order)
    places[order] = np.arange(len(order), dtype=np.int64)
    return x[first[order]], places[inverse.reshape(-1)].astype(out_idx), counts[order].astype(out_idx)


@operator("UniqueWithCountsV2")
def _unique_with_counts_v2(x: Array, axis: Array, *, out_idx: np.dtype[Any] = INT32) -> tuple[Array, Array, Array]:
    require(x.ndim == 1, "takes one dimension only")
    return _unique_with_counts(x, out_idx=out_idx)


@operator("ListDiff")
def _list_diff(x: Array, y: Array, *, out_idx: np.dtype[Any] = INT32) -> tuple[Array, Array]:
    left = ~np.isin(x, y)
    return x[left], np.flatnonzero(left).astype(out_idx)


COMPLEX64 = np.dtype(np.complex64)


def _add_transforms(suffix: str, rank: int) -> None:
    """Add the transforms over the last `rank` dimensions."""
    axes = range(-rank, 0)

    def real(x: Array, length: Array, *, Tcomplex: np.dtype[Any] = COMPLEX64) -> Array:  # noqa: N803
        return np.fft.rfftn(x.astype(np.float64), ints(length), axes).astype(Tcomplex)

    def inverse_real(x: Array, length: Array, *, Treal: np.dtype[Any] = FLOAT32) -> Array:  # noqa: N803
        return np.fft.irfftn(x.astype(np.complex128), ints(length), axes).astype(Treal)

    OPERATORS[f"FFT{suffix}"] = lambda x: np.fft.fftn(x.astype(np.complex128), axes=axes).astype(x.dtype)
    OPERATORS[f"IFFT{suffix}"] = lambda x: np.fft.ifftn(x.astype(np.complex128), axes=axes).astype(x.dtype)
    OPERATORS[f"RFFT{suffix}"], OPERATORS[f"IRFFT{suffix}"] = real, inverse_real


for _suffix, _rank in {"": 1, "2D": 2, "3D": 3}.items():
    _add_transforms(_suffix, _rank)
OPERATORS.update({f"Batch{name}": OPERATORS[name] for name in ("FFT", "IFFT", "FFT2D", "IFFT2D", "FFT3D", "IFFT3D")})


@operator("AudioSpectrogram")
def _audio_spectrogram(x: Array, *, window_size: int, stride: int, magnitude_squared: bool = False) -> Array:
    """Magnitudes over windows of a Hann curve, padded to a power of two: [channels, windows, frequencies]."""
    require(x.ndim == 2 and len(x) >= window_size > 1, f"takes [samples, channels], at least {window_size} samples")
    hann = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(window_size, dtype=np.int64) / window_size)
    windows = np.lib.stride_tricks.sliding_window_view(x.T.astype(np.float64), window_size, axis=1)[:, ::stride]
    spectrum = abs(np.fft.rfft(windows * hann, 1 << (window_size - 1).bit_length()))
    return (spectrum**2 if magnitude_squared else spectrum).astype(np.float32)
