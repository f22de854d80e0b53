"""Shapes, joining and splitting, indices, gathering and scattering, padding, blocks."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tflm.delegates.flex.registry import INT32, OPERATORS, Array, axis_of, ints, operator, require

OPERATORS |= {  # of one expression each
    "BatchToSpace": lambda x, crops, *, block_size: _batch_to_space_nd(x, np.full(2, block_size, np.int64), crops),
    "BroadcastArgs": lambda a, b: np.asarray(np.broadcast_shapes(tuple(a), tuple(b)), a.dtype),
    "BroadcastTo": lambda x, shape: np.broadcast_to(x, ints(shape)),
    "Concat": lambda axis, *values: np.concatenate(values, axis_of(axis, values[0].ndim)),
    "ConjugateTranspose": lambda x, order: np.conj(x.transpose(ints(order))),
    "DynamicPartition": lambda x, partitions, *, num_partitions: [x[partitions == i] for i in range(num_partitions)],
    "Empty": lambda shape, *, dtype: np.zeros(ints(shape), dtype),
    "ExpandDims": lambda x, axis: np.expand_dims(x, axis_of(axis, x.ndim + 1)),
    "Fill": lambda dims, value: np.full(ints(dims), value, value.dtype),
    "GatherNd": lambda params, indices, *, batch_dims=0: params[_split_indices(indices, params.shape)],
    "IdentityN": lambda *inputs: inputs,
    "LinSpace": lambda start, stop, count: np.linspace(start.item(), stop.item(), ints(count)[0]).astype(start.dtype),
    "Pack": lambda *values, axis=0: np.stack(values, axis),
    "Pad": lambda x, paddings: np.pad(x, paddings),
    "PadV2": lambda x, paddings, value: np.pad(x, paddings, constant_values=value.item()),
    "ParallelConcat": lambda *values: np.concatenate(values),
    "Rank": lambda x: np.asarray(x.ndim, np.int32),
    "Reverse": lambda x, dims: np.flip(x, tuple(int(i) for i in np.flatnonzero(dims))),
    "ReverseV2": lambda x, axis: np.flip(x, tuple(axis_of(index, x.ndim) for index in ints(axis))),
    "Roll": lambda x, shift, axis: np.roll(x, ints(shift), ints(axis)),
    "Shape": lambda x, *, out_type=INT32: np.asarray(x.shape, out_type),
    "ShapeN": lambda *inputs, out_type=INT32: [np.asarray(x.shape, out_type) for x in inputs],
    "Size": lambda x, *, out_type=INT32: np.asarray(x.size, out_type),
    "Split": lambda axis, x, *, num_split: np.split(x, num_split, axis_of(axis, x.ndim)),
    "Tile": lambda x, multiples: np.tile(x, ints(multiples)),
    "Transpose": lambda x, order: x.transpose(ints(order)),
    "Unpack": lambda x, *, axis=0: list(np.moveaxis(x, axis_of(axis, x.ndim), 0)),
}


@operator("Reshape")
def _reshape(x: Array, shape: Array) -> Array:
    require(math.prod(ints(shape)) == x.size or -1 in shape, f"can't give {x.size} elements the shape {ints(shape)}")
    return x.reshape(ints(shape))


@operator("EnsureShape")
def _ensure_shape(x: Array, *, shape: Any = None) -> Array:
    fits = shape is None or (len(shape) == x.ndim and all(a in (-1, b) for a, b in zip(shape, x.shape)))
    require(fits, f"has shape {list(x.shape)}, must have {shape}")
    return x


@operator("Squeeze")
def _squeeze(x: Array, *, squeeze_dims: Sequence[int] = ()) -> Array:
    return np.squeeze(x, tuple(axis_of(axis, x.ndim) for axis in squeeze_dims) or None)


@operator("Range")
def _range(start: Array, limit: Array, delta: Array) -> Array:
    require(delta.item(), "has a step of zero")
    count = max(0, int(np.ceil((limit.item() - start.item()) / delta.item())))
    return (start + np.arange(count, dtype=np.int64) * delta).astype(start.dtype)


@operator("BroadcastGradientArgs")
def _broadcast_gradient_args(a: Array, b: Array) -> list[Array]:
    rank = max(len(a), len(b))
    shapes = [[1] * (rank - len(shape)) + ints(shape) for shape in (a, b)]
    both_one = [m == n == 1 for m, n in zip(*shapes)]
    return [
        np.asarray([i for i in range(rank) if shape[i] == 1 and (other[i] != 1 or both_one[i])], a.dtype)
        for shape, other in (shapes, shapes[::-1])
    ]


# Joining and splitting.


@operator("ConcatV2")
def _concat_v2(*values_and_axis: Array) -> Array:
    *values, axis = values_and_axis
    return np.concatenate(values, axis_of(axis, values[0].ndim))


@operator("ConcatOffset")
def _concat_offset(axis: Array, *shapes: Array) -> list[Array]:
    index = axis_of(axis, len(shapes[0]))
    ends = np.cumsum([shape[index] for shape in shapes], dtype=np.int64)
    offsets = [np.zeros_like(shape) for shape in shapes]
    for offset, shape, end in zip(offsets, shapes, ends):
        offset[index] = end - shape[index]
    return offsets


@operator("SplitV")
def _split_v(x: Array, sizes: Array, axis: Array) -> list[Array]:
    index = axis_of(axis, x.ndim)
    lengths = ints(sizes)
    lengths = [x.shape[index] - sum(lengths) - 1 if length == -1 else length for length in lengths]
    return np.split(x, np.cumsum(lengths, dtype=np.int64)[:-1], index)


# Slices.


@operator("Slice")
def _slice(x: Array, begin: Array, size: Array) -> Array:
    ends = [n if length == -1 else first + length for first, length, n in zip(ints(begin), ints(size), x.shape)]
    return x[tuple(slice(first, end) for first, end in zip(ints(begin), ends))]


def _strided(function: Callable[..., Array]) -> Callable[..., Array]:
    """Give a function numpy's index of a strided slice in place of begin, end, strides and the masks."""

    def with_index(
        x: Array,
        begin: Array,
        end: Array,
        strides: Array,
        *values: Array,
        begin_mask: int = 0,
        end_mask: int = 0,
        ellipsis_mask: int = 0,
        new_axis_mask: int = 0,
        shrink_axis_mask: int = 0,
    ) -> Array:
        index: list[Any] = []
        for i, (first, last, step) in enumerate(zip(ints(begin), ints(end), ints(strides))):
            if ellipsis_mask >> i & 1:
                index.append(Ellipsis)
            elif new_axis_mask >> i & 1:
                index.append(np.newaxis)
            elif shrink_axis_mask >> i & 1:
                index.append(first)
            else:
                index.append(slice(None if begin_mask >> i & 1 else first, None if end_mask >> i & 1 else last, step))
        return function(x, tuple(index), *values)

    return with_index


@operator("StridedSliceGrad")
@_strided
def _strided_slice_gradient(shape: Array, index: tuple[Any, ...], gradient: Array) -> Array:
    made = np.zeros(ints(shape), gradient.dtype)
    made[index] = gradient
    return made


@operator("TensorStridedSliceUpdate")
@_strided
def _strided_slice_update(x: Array, index: tuple[Any, ...], value: Array) -> Array:
    made = np.array(x, None)
    made[index] = value
    return made


OPERATORS["StridedSlice"] = _strided(lambda x, index: x[index])


# Orders.


@operator("InvertPermutation")
def _invert_permutation(x: Array) -> Array:
    require(np.array_equal(np.sort(x), np.arange(len(x), dtype=np.int64)), "is given what is not a permutation")
    return np.argsort(x).astype(x.dtype)


@operator("ReverseSequence")
def _reverse_sequence(x: Array, lengths: Array, *, seq_dim: int, batch_dim: int = 0) -> Array:
    moved = np.array(np.moveaxis(x, (batch_dim, seq_dim), (0, 1)), None)
    for row, length in zip(moved, ints(lengths)):
        row[:length] = row[:length][::-1].copy()
    return np.moveaxis(moved, (0, 1), (batch_dim, seq_dim))


def _layout(src: bytes, dst: bytes) -> list[int]:
    return [src.index(letter) for letter in dst]


@operator("DataFormatDimMap")
def _data_format_dim_map(x: Array, *, src_format: bytes = b"NHWC", dst_format: bytes = b"NCHW") -> Array:
    places = np.argsort(_layout(src_format, dst_format)).astype(x.dtype)
    return places[x % len(places)]


@operator("DataFormatVecPermute")
def _data_format_vec_permute(x: Array, *, src_format: bytes = b"NHWC", dst_format: bytes = b"NCHW") -> Array:
    letters = src_format if len(x) == len(src_format) else bytes(c for c in src_format if c in b"DHW")
    wanted = dst_format if len(x) == len(dst_format) else bytes(c for c in dst_format if c in b"DHW")
    return x[_layout(letters, wanted)]


# Gathering and scattering.


def _check_indices(indices: Array, count: int) -> None:
    require(((indices >= 0) & (indices < count)).all(), f"is given an index outside of 0 to {count - 1}")


@operator("Gather")
def _gather(params: Array, indices: Array) -> Array:
    _check_indices(indices, len(params))
    return params[indices]


@operator("GatherV2")
def _gather_v2(params: Array, indices: Array, axis: Array, *, batch_dims: int = 0) -> Array:
    index, batch = axis_of(axis, params.ndim), batch_dims + indices.ndim if batch_dims < 0 else batch_dims
    _check_indices(indices, params.shape[index])
    places = indices.astype(np.intp)
    if not batch:
        return np.take(params, places, index)
    made = np.empty((*params.shape[:index], *indices.shape[batch:], *params.shape[index + 1 :]), params.dtype)
    for place in np.ndindex(params.shape[:batch]):
        made[place] = np.take(params[place], places[place], index - batch)
    return made


def _split_indices(indices: Array, shape: Sequence[int]) -> tuple[Array, ...]:
    for i, column in enumerate(np.moveaxis(indices, -1, 0)):
        _check_indices(column, shape[i])
    return tuple(np.moveaxis(indices, -1, 0))


@operator("ScatterNd")
def _scatter_nd(indices: Array, updates: Array, shape: Array) -> Array:
    made = np.zeros(ints(shape), updates.dtype)
    np.add.at(made, _split_indices(indices, made.shape), updates)
    return made


def _assign_at(made: Array, index: tuple[Array, ...], updates: Array) -> None:
    made[index] = updates


def _tensor_scatter(change: Callable[[Array, tuple[Array, ...], Array], None]) -> Callable[..., Array]:
    def scattered(x: Array, indices: Array, updates: Array) -> Array:
        made = np.array(x, None)
        change(made, _split_indices(indices, made.shape), updates)
        return made

    return scattered


for _name, _change in {
    "Add": np.add.at,
    "Sub": np.subtract.at,
    "Max": np.maximum.at,
    "Min": np.minimum.at,
    "Update": _assign_at,
}.items():
    OPERATORS[f"TensorScatter{_name}"] = _tensor_scatter(_change)
OPERATORS["ScatterNdNonAliasingAdd"] = _tensor_scatter(np.add.at)


def _in_place(change: Callable[[Array, tuple[Array, ...], Array], None]) -> Callable[..., Array]:
    def changed(x: Array, rows: Array, values: Array) -> Array:
        made = np.array(x, None)
        change(made, (rows % len(x),), values)
        return made

    return changed


for _name, _change in {"Add": np.add.at, "Sub": np.subtract.at, "Update": _assign_at}.items():
    OPERATORS[f"Inplace{_name}"] = _in_place(_change)


@operator("DynamicStitch", "ParallelDynamicStitch")
def _dynamic_stitch(*indices_and_data: Array) -> Array:
    half = len(indices_and_data) // 2
    indices, data = indices_and_data[:half], indices_and_data[half:]
    rest = data[0].shape[indices[0].ndim :]
    made = np.zeros((max(int(i.max(initial=-1)) for i in indices) + 1, *rest), data[0].dtype)
    for index, values in zip(indices, data):
        made[index.reshape(-1)] = values.reshape(-1, *rest)
    return made


@operator("OneHot")
def _one_hot(indices: Array, depth: Array, on: Array, off: Array, *, axis: int = -1) -> Array:
    (count,) = ints(depth)
    place = axis_of(axis, indices.ndim + 1)
    classes = np.arange(count, dtype=np.int64).reshape([count if i == place else 1 for i in range(indices.ndim + 1)])
    return np.where(np.expand_dims(indices, place) == classes, on, off)


@operator("SparseToDense")
def _sparse_to_dense(indices: Array, shape: Array, values: Array, default: Array) -> Array:
    made = np.full(ints(shape), default, values.dtype)
    made[tuple(np.reshape(indices, (-1, made.ndim)).T)] = values.reshape(-1)
    return made


# Padding and blocks.


@operator("MirrorPad")
def _mirror_pad(x: Array, paddings: Array, *, mode: bytes) -> Array:
    return np.pad(x, paddings, mode="reflect" if mode == b"REFLECT" else "symmetric")


@operator("MirrorPadGrad")
def _mirror_pad_gradient(x: Array, paddings: Array, *, mode: bytes) -> Array:
    shape = [n - before - after for n, (before, after) in zip(x.shape, paddings.tolist())]
    sources = _mirror_pad(np.arange(math.prod(shape), dtype=np.int64).reshape(shape), paddings, mode=mode)
    made = np.zeros(math.prod(shape), x.dtype)
    np.add.at(made, sources.reshape(-1), x.reshape(-1))
    return made.reshape(shape)


@operator("SpaceToBatchND")
def _space_to_batch_nd(x: Array, block: Array, paddings: Array) -> Array:
    sizes, count = ints(block), block.size
    padded = np.pad(x, [(0, 0), *paddings.tolist(), *[(0, 0)] * (x.ndim - 1 - count)])
    split = [n for length, size in zip(padded.shape[1:], sizes) for n in (length // size, size)]
    parts = padded.reshape(padded.shape[0], *split, *padded.shape[1 + count :])
    order = [*range(2, 2 * count + 1, 2), 0, *range(1, 2 * count, 2), *range(2 * count + 1, parts.ndim)]
    moved = parts.transpose(order)
    return moved.reshape(-1, *moved.shape[count + 1 :])


@operator("BatchToSpaceND")
def _batch_to_space_nd(x: Array, block: Array, crops: Array) -> Array:
    sizes, count = ints(block), block.size
    parts = x.reshape(*sizes, -1, *x.shape[1:])
    order = [count, *itertools.chain.from_iterable((count + 1 + i, i) for i in range(count))]
    moved = parts.transpose(*order, *range(2 * count + 1, parts.ndim))
    joined = moved.reshape(moved.shape[0], *(n * size for n, size in zip(x.shape[1:], sizes)), *x.shape[1 + count :])
    kept = [slice(before, n - after) for n, (before, after) in zip(joined.shape[1:], crops.tolist())]
    return joined[(slice(None), *kept)]


@operator("SpaceToBatch")
def _space_to_batch(x: Array, paddings: Array, *, block_size: int) -> Array:
    return _space_to_batch_nd(x, np.full(2, block_size, np.int64), paddings)


@operator("SpaceToDepth")
def _space_to_depth(x: Array, *, block_size: int, data_format: bytes = b"NHWC") -> Array:
    require(data_format == b"NHWC", "takes data in the order NHWC")
    n, h, w, depth = x.shape
    parts = x.reshape(n, h // block_size, block_size, w // block_size, block_size, depth)
    return parts.transpose(0, 1, 3, 2, 4, 5).reshape(n, h // block_size, w // block_size, -1)


@operator("DepthToSpace")
def _depth_to_space(x: Array, *, block_size: int, data_format: bytes = b"NHWC") -> Array:
    require(data_format == b"NHWC", "takes data in the order NHWC")
    n, h, w, depth = x.shape
    parts = x.reshape(n, h, w, block_size, block_size, depth // block_size**2)
    return parts.transpose(0, 1, 3, 2, 4, 5).reshape(n, h * block_size, w * block_size, -1)
