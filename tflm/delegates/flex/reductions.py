"""Reductions over dimensions, cumulative ones, over segments, and those that find or count elements."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tflm.delegates.flex.registry import INT32, INT64, OPERATORS, Array, axis_of, exact, ints, operator, require


def _reduction(reduce: Callable[..., Any]) -> Callable[..., Array]:
    def reduced(x: Array, axis: Array, *, keep_dims: bool = False) -> Array:
        axes = tuple(axis_of(index, x.ndim) for index in ints(axis))
        values = x if x.dtype.kind == "b" else exact(x)
        return np.asarray(reduce(values, axis=axes, keepdims=keep_dims), None).astype(x.dtype)

    return reduced


def _sum_type(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Integers are added in 64 bits, on a machine of 32 bits, too."""
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
        "Max": _reduction(lambda x, **where: np.max(x, initial=_lowest(x.dtype), **where)),
        "Mean": _reduction(_mean),
        "Min": _reduction(lambda x, **where: np.min(x, initial=_highest(x.dtype), **where)),
        "Prod": _reduction(np.prod),
        "Sum": _reduction(np.sum),
    }
)


def _lowest(dtype: np.dtype[Any]) -> Any:
    return -np.inf if dtype.kind == "f" else np.iinfo(dtype).min


def _highest(dtype: np.dtype[Any]) -> Any:
    return np.inf if dtype.kind == "f" else np.iinfo(dtype).max


@operator("ArgMax")
def _arg_max(x: Array, dimension: Array, *, output_type: np.dtype[Any] = INT64) -> Array:
    return np.argmax(x, axis_of(dimension, x.ndim)).astype(output_type)


@operator("ArgMin")
def _arg_min(x: Array, dimension: Array, *, output_type: np.dtype[Any] = INT64) -> Array:
    return np.argmin(x, axis_of(dimension, x.ndim)).astype(output_type)


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

SEGMENTS: dict[str, tuple[np.ufunc, Callable[[np.dtype[Any]], Any]]] = {
    "Max": (np.maximum, lambda dtype: np.finfo(dtype).min if dtype.kind == "f" else np.iinfo(dtype).min),
    "Min": (np.minimum, lambda dtype: np.finfo(dtype).max if dtype.kind == "f" else np.iinfo(dtype).max),
    "Prod": (np.multiply, lambda dtype: 1),
    "Sum": (np.add, lambda dtype: 0),
}
"""How elements of a segment are combined, and what an unsorted segment without any gives."""


def _combined(data: Array, ids: Array, count: int, combine: np.ufunc, start: Any) -> Array:
    """The rows of each segment, combined; those with a negative id are left out."""
    rows = data.reshape(ids.size, *data.shape[ids.ndim :])
    flat = ids.reshape(-1)
    require(flat.max(initial=-1) < count, f"has segment {flat.max(initial=-1)}, of {count}")
    made = np.full((count, *rows.shape[1:]), start, exact(data).dtype)
    combine.at(made, flat[flat >= 0], exact(rows)[flat >= 0])
    return made.astype(data.dtype)


def _unsorted(combine: np.ufunc, start: Callable[[np.dtype[Any]], Any]) -> Callable[..., Array]:
    return lambda data, ids, count: _combined(data, ids, ints(count)[0], combine, start(data.dtype))


def _sorted(combine: np.ufunc, start: Callable[[np.dtype[Any]], Any], empty: int) -> Callable[..., Array]:
    def by_segment(data: Array, ids: Array) -> Array:
        count = int(ids[-1]) + 1 if ids.size else 0
        made = _combined(data, ids, count, combine, start(data.dtype))
        made[np.setdiff1d(np.arange(count, dtype=np.int64), ids)] = empty
        return made

    return by_segment


for _name, (_ufunc, _start) in SEGMENTS.items():
    OPERATORS[f"UnsortedSegment{_name}"] = _unsorted(_ufunc, _start)
    OPERATORS[f"Segment{_name}"] = _sorted(_ufunc, _start, int(_name == "Prod"))


def _sizes(ids: Array, count: int, rank: int) -> Array:
    """How many rows each segment has, at least 1; to divide by."""
    return np.maximum(np.bincount(ids.reshape(-1).astype(np.intp), minlength=count), 1).reshape(-1, *[1] * (rank - 1))


@operator("SegmentMean")
def _segment_mean(data: Array, ids: Array) -> Array:
    count = int(ids[-1]) + 1 if ids.size else 0
    return (_combined(exact(data), ids, count, np.add, 0) / _sizes(ids, count, data.ndim)).astype(data.dtype)


def _sparse_segments(divide: Callable[[Array, Array], Array]) -> Callable[..., Array]:
    def by_segment(data: Array, indices: Array, ids: Array, num_segments: Any = None) -> Array:
        count = (int(ids[-1]) + 1 if ids.size else 0) if num_segments is None else ints(num_segments)[0]
        total = _combined(exact(data)[indices], ids, count, np.add, 0)
        return divide(total, _sizes(ids, count, data.ndim)).astype(data.dtype)

    return by_segment


for _name, _divide in {
    "Sum": lambda total, sizes: total,
    "Mean": lambda total, sizes: total / sizes,
    "SqrtN": lambda total, sizes: total / np.sqrt(sizes),
}.items():
    OPERATORS[f"SparseSegment{_name}"] = _sparse_segments(_divide)
    OPERATORS[f"SparseSegment{_name}WithNumSegments"] = _sparse_segments(_divide)


def _sparse_segment_gradients(divide: Callable[[Array, Array], Array]) -> Callable[..., Array]:
    def spread(gradient: Array, indices: Array, ids: Array, count: Array) -> Array:
        shares = divide(exact(gradient), _sizes(ids, len(gradient), gradient.ndim))[ids]
        return _combined(shares, indices, ints(count)[0], np.add, 0).astype(gradient.dtype)

    return spread


OPERATORS["SparseSegmentSumGrad"] = _sparse_segment_gradients(lambda gradient, sizes: gradient)
OPERATORS["SparseSegmentMeanGrad"] = _sparse_segment_gradients(lambda gradient, sizes: gradient / sizes)
OPERATORS["SparseSegmentSqrtNGrad"] = _sparse_segment_gradients(lambda gradient, sizes: gradient / np.sqrt(sizes))


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
    if values.ndim < 2:
        made = _bincount(values, size, weights[:0] if binary_output else weights)
    else:
        made = np.zeros((len(values), count), weights.dtype)
        for i, row in enumerate(values):
            made[i] = _bincount(
                row, size, weights[i] if weights.size and not binary_output else weights.reshape(-1)[:0]
            )
    return (made > 0).astype(weights.dtype) if binary_output else made


@operator("TopKV2")
def _top_k_v2(x: Array, k: Array, *, index_type: np.dtype[Any] = INT32) -> tuple[Array, Array]:
    order = np.argsort(-exact(x) if x.dtype.kind == "f" else -x.astype(object), -1, kind="stable")[..., : ints(k)[0]]
    return np.take_along_axis(x, order, -1), order.astype(index_type)


@operator("TopK")
def _top_k(x: Array, *, k: int) -> tuple[Array, Array]:
    return _top_k_v2(x, np.asarray(k, np.int32))


@operator("InTopKV2")
def _in_top_k_v2(predictions: Array, targets: Array, k: Array) -> Array:
    inside = (targets >= 0) & (targets < predictions.shape[1])
    rows = np.arange(len(targets), dtype=np.int64)
    target = predictions[rows, np.where(inside, targets, 0)]
    larger = (predictions > target[:, np.newaxis]).sum(1, dtype=np.int64)
    return inside & np.isfinite(target) & np.isfinite(predictions).all(1) & (larger < ints(k)[0])


@operator("InTopK")
def _in_top_k(predictions: Array, targets: Array, *, k: int) -> Array:
    return _in_top_k_v2(predictions, targets, np.asarray(k, np.int32))


@operator("UniqueWithCounts")
def _unique_with_counts(x: Array, *, out_idx: np.dtype[Any] = INT32) -> tuple[Array, Array, Array]:
    _, first, inverse, counts = np.unique(x, return_index=True, return_inverse=True, return_counts=True)
    order = np.argsort(first)
    places = np.empty_like(order)
    places[order] = np.arange(len(order), dtype=np.int64)
    return x[first[order]], places[inverse.reshape(-1)].astype(out_idx), counts[order].astype(out_idx)


@operator("Unique")
def _unique(x: Array, *, out_idx: np.dtype[Any] = INT32) -> tuple[Array, Array]:
    return _unique_with_counts(x, out_idx=out_idx)[:2]


@operator("UniqueWithCountsV2")
def _unique_with_counts_v2(x: Array, axis: Array, *, out_idx: np.dtype[Any] = INT32) -> tuple[Array, Array, Array]:
    require(x.ndim == 1, "takes one dimension only")
    return _unique_with_counts(x, out_idx=out_idx)


@operator("UniqueV2")
def _unique_v2(x: Array, axis: Array, *, out_idx: np.dtype[Any] = INT32) -> tuple[Array, Array]:
    return _unique_with_counts_v2(x, axis, out_idx=out_idx)[:2]


@operator("Where")
def _where(condition: Array) -> Array:
    return np.argwhere(condition).astype(np.int64)


@operator("ListDiff")
def _list_diff(x: Array, y: Array, *, out_idx: np.dtype[Any] = INT32) -> tuple[Array, Array]:
    left = ~np.isin(x, y)
    return x[left], np.flatnonzero(left).astype(out_idx)
