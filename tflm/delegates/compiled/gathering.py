"""GATHER, and images of another size: RESIZE_NEAREST_NEIGHBOR and RESIZE_BILINEAR."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from tflm.delegates.compiled.casts import as_int32
from tflm.delegates.compiled.fixed_point import rounding_divided
from tflm.delegates.compiled.intrinsics import move_bytes
from tflm.delegates.compiled.language import DONE, REFUSED, Float32s, Int8s, Int32s, Int64s, Step, kernel
from tflm.delegates.compiled.products import take_rows
from tflm.kernels.reference.resize import STEP_BITS, Between, pixel_places
from tflm.kernels.registration import KernelContext, Node


@kernel
def gather(x: int, indices: Int32s, y: int, batches: int, outer: int, size: int, count: int, slice_bytes: int) -> int:
    """Slices at as many indices for each batch, which is (outer, size, slice)."""
    outside = 0
    for i in range(batches * count):
        outside += indices[i] < 0 or indices[i] >= size
    if outside:
        return REFUSED
    for batch in range(batches):
        for row in range(batch * outer, (batch + 1) * outer):
            for i in range(count):
                place = row * size + indices[batch * count + i]
                move_bytes(y + (row * count + i) * slice_bytes, x + place * slice_bytes, slice_bytes)
    return DONE


@kernel
def interpolate_int8(
    x: Int8s,
    y: Int8s,
    rows: Int64s,
    columns: Int64s,
    row_weights: Int32s,
    column_weights: Int32s,
    shape: Int64s,
) -> int:
    """Each pixel from four of x, the products Q11.20.

    Args:
        rows, columns: for each of y, the one of x before it; and for each the one behind it.
        row_weights, column_weights: of these.
        shape: batches, height, width and depth of x, height and width of y.
    """
    height, width, depth = shape[4], shape[5], shape[3]
    to = 0
    for batch in range(shape[0]):
        image = batch * shape[1] * shape[2]
        for i in range(height):
            above, below = image + rows[i] * shape[2], image + rows[height + i] * shape[2]
            for j in range(width):
                left, right = columns[j], columns[width + j]
                a, b, c, d = (
                    (above + left) * depth,
                    (below + left) * depth,
                    (above + right) * depth,
                    (below + right) * depth,
                )
                of_a, of_b = row_weights[i] * column_weights[j], row_weights[height + i] * column_weights[j]
                of_c = row_weights[i] * column_weights[width + j]
                of_d = row_weights[height + i] * column_weights[width + j]
                for k in range(depth):
                    total = as_int32(x[a + k] * of_a + x[b + k] * of_b + x[c + k] * of_c + x[d + k] * of_d)
                    y[to + k] = rounding_divided(total, 2 * STEP_BITS)
                to += depth
    return DONE


@kernel
def interpolate_float32(
    x: Float32s,
    y: Float32s,
    rows: Int64s,
    columns: Int64s,
    row_weights: Float32s,
    column_weights: Float32s,
    shape: Int64s,
) -> int:
    """The same of floats: each product is rounded, weight by weight."""
    height, width, depth = shape[4], shape[5], shape[3]
    to = 0
    for batch in range(shape[0]):
        image = batch * shape[1] * shape[2]
        for i in range(height):
            above, below = image + rows[i] * shape[2], image + rows[height + i] * shape[2]
            upper, lower = row_weights[i], row_weights[height + i]
            for j in range(width):
                left, right = columns[j], columns[width + j]
                a, b, c, d = (
                    (above + left) * depth,
                    (below + left) * depth,
                    (above + right) * depth,
                    (below + right) * depth,
                )
                of_left, of_right = column_weights[j], column_weights[width + j]
                for k in range(depth):
                    total = x[a + k] * upper * of_left + x[b + k] * lower * of_left
                    y[to + k] = total + x[c + k] * upper * of_right + x[d + k] * lower * of_right
                to += depth
    return DONE


def _bind_gather(context: KernelContext, node: Node) -> list[Step] | None:
    input, indices = (context.get_eval_input(node, i) for i in range(2))
    axis, batch_dims = node.op_data
    return [
        gather.step(
            x=input.elements,
            indices=indices.elements,
            y=context.get_eval_output(node, 0).elements,
            batches=math.prod(input.dims[:batch_dims]),
            outer=math.prod(input.dims[batch_dims:axis]),
            size=input.dims[axis],
            count=math.prod(indices.dims[batch_dims:]),
            slice_bytes=math.prod(input.dims[axis + 1 :]) * input.elements.itemsize,
        )
    ]


def _bind_nearest(context: KernelContext, node: Node) -> list[Step] | None:
    input, y = context.get_eval_input(node, 0), context.get_eval_output(node, 0).elements
    places = pixel_places(input.dims, *node.op_data).astype(np.int64).reshape(-1)
    row_bytes = input.dims[3] * y.itemsize
    source, target = (_bytes(array) for array in (input.elements, y))
    return [take_rows.step(source=source, places=places, count=places.size, row_bytes=row_bytes, target=target)]


def _bytes(array: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    return array.reshape(-1).view(np.uint8)


def _bind_bilinear(context: KernelContext, node: Node) -> list[Step] | None:
    input, y = context.get_eval_input(node, 0), context.get_eval_output(node, 0).elements
    rows: Between
    columns: Between
    rows, columns = node.op_data
    interpolate = interpolate_float32 if y.dtype == np.float32 else interpolate_int8
    weights = np.dtype(interpolate.parameters["row_weights"].dtype)
    return [
        interpolate.step(
            x=input.elements,
            y=y,
            rows=np.concatenate(rows.places).astype(np.int64),
            columns=np.concatenate(columns.places).astype(np.int64),
            row_weights=np.concatenate(rows.weights).astype(weights),
            column_weights=np.concatenate(columns.weights).astype(weights),
            shape=np.array([*input.dims, len(rows.places[0]), len(columns.places[0])], np.int64),
        )
    ]


BINDINGS = {"GATHER": _bind_gather, "RESIZE_BILINEAR": _bind_bilinear, "RESIZE_NEAREST_NEIGHBOR": _bind_nearest}
