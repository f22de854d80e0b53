"""GATHER, GATHER_ND, EMBEDDING_LOOKUP, RESIZE_NEAREST_NEIGHBOR and RESIZE_BILINEAR."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Annotated, Any

import numpy as np

from tflm.compiler.intrinsics import copy_bytes, move_bytes
from tflm.compiler.language import DONE, REFUSED, Address, Elements, Float32s, Int8s, Int32s, Step, inlined, kernel
from tflm.compiler.processor import Profile
from tflm.delegates.compiled.casts import as_int32, as_int64
from tflm.delegates.compiled.fixed_point import rounding_divided
from tflm.delegates.compiled.products import take_rows
from tflm.kernels.node import KernelContext, Node
from tflm.kernels.reference.resize import STEP_BITS, Neighbours


@kernel
def gather(
    x: Address, indices: Int32s, y: Address, batches: int, outer: int, size: int, count: int, slice_bytes: int
) -> int:
    """Copy the slices at `count` indices of each batch, (outer, size, slice)."""
    outside = 0
    for i in range(batches * count):
        outside += indices[i] < 0 or indices[i] >= size
    if outside:
        return REFUSED
    target = 0
    for batch in range(batches):
        for row in range(batch * outer, (batch + 1) * outer):
            source = row * size * slice_bytes
            for i in range(batch * count, (batch + 1) * count):
                copy_bytes(y + target, x + (source + indices[i] * slice_bytes), slice_bytes)
                target += slice_bytes
    return DONE


@kernel
def gather_slices(
    x: Address, indices: Int32s, y: Address, steps: Int32s, length: int, size: int, count: int, slice_bytes: int
) -> int:
    """Copy `count` slices of x, which contains `size` slices, each given by an index of `length` numbers.

    Args:
        steps: number of slices from one to the next along each indexed dimension.
    """
    outside = 0
    for i in range(count):
        place = as_int64(0)
        for k in range(length):
            place += as_int64(indices[i * length + k]) * steps[k]
        outside += place < 0 or place >= size
    if outside:
        return REFUSED
    for i in range(count):
        first = 0
        for k in range(length):
            first += indices[i * length + k] * steps[k]
        move_bytes(y + i * slice_bytes, x + first * slice_bytes, slice_bytes)
    return DONE


@kernel
def dequantize_rows(x: Int8s, indices: Int32s, y: Float32s, scale: Float32s, size: int, count: int, depth: int) -> int:
    """Dequantize the rows of x, which has `size` rows, at `count` indices."""
    outside = 0
    for i in range(count):
        outside += indices[i] < 0 or indices[i] >= size
    if outside:
        return REFUSED
    factor = scale[0]
    for i in range(count):
        for k in range(depth):
            y[i * depth + k] = x[indices[i] * depth + k] * factor
    return DONE


@inlined
def mean_int8(a: Any, b: Any, c: Any, d: Any, upper: Any, lower: Any, left: Any, right: Any) -> Any:
    """Return the weighted mean of four neighbours; products are in Q11.20."""
    total = a * (upper * left) + b * (lower * left) + c * (upper * right) + d * (lower * right)
    return rounding_divided(as_int32(total), 2 * STEP_BITS)


@inlined
def mean_float32(a: Any, b: Any, c: Any, d: Any, upper: Any, lower: Any, left: Any, right: Any) -> Any:
    """Return the same for floats; the product of each weight is rounded."""
    return a * upper * left + b * lower * left + c * upper * right + d * lower * right


Mean = Annotated[Callable[..., Any], {"int8": mean_int8, "float32": mean_float32}]


@kernel
def interpolate(
    mean: Mean,
    x: Elements,
    y: Elements,
    rows: Int32s,
    columns: Int32s,
    row_weights: Elements,
    column_weights: Elements,
    shape: Int32s,
) -> int:
    """Compute each pixel of y from its four neighbours in x.

    Args:
        rows, columns: the lower neighbours of all rows or columns of y, then the upper ones.
        row_weights, column_weights: weights of the neighbours.
        shape: batches, height, width and depth of x, height and width of y.
    """
    height, width, depth = shape[4], shape[5], shape[3]
    dst = 0
    for batch in range(shape[0]):
        image = batch * shape[1] * shape[2]
        for i in range(height):
            above, below = image + rows[i] * shape[2], image + rows[height + i] * shape[2]
            upper, lower = row_weights[i], row_weights[height + i]
            for j in range(width):
                a, b = (above + columns[j]) * depth, (below + columns[j]) * depth
                c, d = (above + columns[width + j]) * depth, (below + columns[width + j]) * depth
                left, right = column_weights[j], column_weights[width + j]
                for k in range(depth):
                    y[dst + k] = mean(x[a + k], x[b + k], x[c + k], x[d + k], upper, lower, left, right)
                dst += depth
    return DONE


def _bind_gather(context: KernelContext, node: Node, profile: Profile) -> list[Step] | None:
    input, indices = (node.eval_input(i) for i in range(2))
    axis, batch_dims = node.op_data
    return [
        gather.step(
            x=input.elements,
            indices=indices.elements,
            y=node.eval_output(0).elements,
            batches=math.prod(input.dims[:batch_dims]),
            outer=math.prod(input.dims[batch_dims:axis]),
            size=input.dims[axis],
            count=math.prod(indices.dims[batch_dims:]),
            slice_bytes=math.prod(input.dims[axis + 1 :]) * input.elements.itemsize,
        )
    ]


def _bind_gather_nd(context: KernelContext, node: Node, profile: Profile) -> list[Step] | None:
    input, indices = (node.eval_input(i) for i in range(2))
    length = indices.dims[-1]
    return [
        gather_slices.step(
            x=input.elements,
            indices=indices.elements,
            y=node.eval_output(0).elements,
            steps=np.array([math.prod(input.dims[i + 1 : length]) for i in range(length)], np.int32),
            length=length,
            size=math.prod(input.dims[:length]),
            count=math.prod(indices.dims[:-1]),
            slice_bytes=math.prod(input.dims[length:]) * input.elements.itemsize,
        )
    ]


def _bind_embedding_lookup(context: KernelContext, node: Node, profile: Profile) -> list[Step] | None:
    lookup, value = (node.eval_input(i) for i in range(2))
    arrays = {"x": value.elements, "indices": lookup.elements, "y": node.eval_output(0).elements}
    sizes = {"size": value.dims[0], "count": lookup.dims[0]}
    depth = math.prod(value.dims[1:])
    if node.op_data is None:
        return [gather.step(**arrays, **sizes, batches=1, outer=1, slice_bytes=depth * value.elements.itemsize)]
    return [dequantize_rows.step(**arrays, **sizes, scale=np.array([node.op_data], np.float32), depth=depth)]


def _bind_nearest(context: KernelContext, node: Node, profile: Profile) -> list[Step] | None:
    input, y = node.eval_input(0), node.eval_output(0).elements
    (batches, height, width, depth), (rows, columns) = input.dims, node.op_data
    all_rows = np.add.outer(np.arange(batches, dtype=np.int64) * height, rows)
    pixels = np.add.outer(all_rows * width, columns).reshape(-1)
    places = pixels.astype(np.int32)
    return [take_rows.step(source=input.elements, places=places, count=pixels.size, size=depth, target=y)]


def _bind_bilinear(context: KernelContext, node: Node, profile: Profile) -> list[Step] | None:
    input, y = node.eval_input(0), node.eval_output(0).elements
    rows: Neighbours
    columns: Neighbours
    rows, columns = node.op_data
    return [
        interpolate.step(
            mean=y.dtype.name,
            x=input.elements,
            y=y,
            rows=rows.places.astype(np.int32),
            columns=columns.places.astype(np.int32),
            row_weights=rows.weights,
            column_weights=columns.weights,
            shape=np.array([*input.dims, rows.places.shape[1], columns.places.shape[1]], np.int32),
        )
    ]


BINDINGS = {
    "EMBEDDING_LOOKUP": _bind_embedding_lookup,
    "GATHER": _bind_gather,
    "GATHER_ND": _bind_gather_nd,
    "RESIZE_BILINEAR": _bind_bilinear,
    "RESIZE_NEAREST_NEIGHBOR": _bind_nearest,
}
