"""Copies whose positions are inputs that change between invokes: slices, borders, reversed dimensions, blocks.

A kernel checks the positions first. Then it copies one row of the last dimension after the other.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from tflm.compiler.language import DONE, REFUSED, Elements, Int32s, Step, inlined, kernel
from tflm.compiler.processor import Profile
from tflm.delegates.compiled.casts import as_int32, as_int64
from tflm.delegates.compiled.movement import copy_steps, fixed_copies
from tflm.kernels.node import KernelContext, Node


@kernel
def take_slice(
    x: Elements, y: Elements, begin: Elements, size: Elements, dims: Int32s, steps: Int32s, rank: int, count: int
) -> int:
    """Copy a slice of `count` elements from x; a size of -1 stands for the rest of the dimension.

    Args:
        dims, steps: dimensions and steps of x.
    """
    found = as_int64(1)
    for d in range(rank):
        start, length = as_int32(begin[d]), as_int64(as_int32(size[d]))
        stop = as_int64(dims[d]) if length == -1 else start + length
        if start < 0 or stop < start or stop > dims[d]:
            return REFUSED
        found *= stop - start
    if found != count:
        return REFUSED
    last = rank - 1
    inner = dims[last] - as_int32(begin[last]) if size[last] == -1 else as_int32(size[last])
    rows = count // inner if inner > 0 else 0
    for row in range(rows):
        rest, source, target = row, as_int32(begin[last]), row * inner
        for d in range(rank - 2, -1, -1):
            length_of_d = dims[d] - as_int32(begin[d]) if size[d] == -1 else as_int32(size[d])
            source += (as_int32(begin[d]) + rest % length_of_d) * steps[d]
            rest //= length_of_d
        for k in range(inner):
            y[target + k] = x[source + k]
    return DONE


@inlined
def mirrored(place: Any, size: Any, offset: int) -> Any:
    """Return the position in a dimension that a position before, in or after it copies."""
    if place < 0:
        return offset - 1 - place
    return place if place < size else max(2 * size - 1 - offset - place, 0)


@kernel
def take_mirrored(
    x: Elements,
    y: Elements,
    paddings: Elements,
    dims: Int32s,
    sizes: Int32s,
    steps: Int32s,
    rank: int,
    offset: int,
    rows: int,
) -> int:
    """Copy x to y with mirrored borders.

    Args:
        paddings: number of elements before and after, for each dimension. As in TFLM, `sizes` decides how many follow.
        dims, steps: dimensions and steps of x.
        sizes: sizes of y, which must have elements.
        offset: distance from the border to the first mirrored element.
        rows: number of rows of y.
    """
    first, last, elements = as_int64(0), as_int64(0), as_int64(1)
    for d in range(rank):
        before, size = as_int32(paddings[2 * d]), as_int64(dims[d])
        lowest, highest = as_int64(2**62), as_int64(-(2**62))
        for i in range(sizes[d]):
            place = mirrored(as_int64(i) - before, size, offset)
            lowest, highest = min(lowest, place), max(highest, place)
        first += lowest * steps[d]
        last += highest * steps[d]
        elements *= size
    if first < 0 or last >= elements:
        return REFUSED
    end = rank - 1
    inner, inner_before, width = sizes[end], as_int32(paddings[2 * end]), dims[end]
    for row in range(rows):
        rest, source = row, 0
        for d in range(rank - 2, -1, -1):
            source += mirrored(rest % sizes[d] - as_int32(paddings[2 * d]), dims[d], offset) * steps[d]
            rest //= sizes[d]
        for k in range(inner):
            y[row * inner + k] = x[source + mirrored(k - inner_before, width, offset)]
    return DONE


@kernel
def take_reversed(
    x: Elements, y: Elements, axes: Int32s, dims: Int32s, steps: Int32s, rank: int, count: int, rows: int
) -> int:
    """Copy x to y with `count` adjacent dimensions reversed."""
    first, last = rank, -1
    for k in range(count):
        axis = axes[k] + rank if axes[k] < 0 else axes[k]
        if axis < 0 or axis >= rank:
            return REFUSED
        first, last = min(first, axis), max(last, axis)
    for d in range(rank):
        times = 0
        for k in range(count):
            times += axes[k] == d or axes[k] == d - rank
        if times != (first <= d <= last):
            return REFUSED
    end = rank - 1
    inner = dims[end]
    step = -1 if first <= end <= last else 1
    for row in range(rows):
        rest, source = row, inner - 1 if step < 0 else 0
        for d in range(rank - 2, -1, -1):
            place = rest % dims[d]
            source += (dims[d] - 1 - place if first <= d <= last else place) * steps[d]
            rest //= dims[d]
        for k in range(inner):
            y[row * inner + k] = x[source + k * step]
    return DONE


@inlined
def first_place(start: Any, size: Any, dim: Any) -> Any:
    """Return the start of a slice in a dimension, clamped so that the slice fits."""
    return as_int32(min(max(start, 0), dim - size))


@kernel
def set_slice(
    x: Elements, y: Elements, start: Elements, dims: Int32s, sizes: Int32s, steps: Int32s, rank: int, rows: int
) -> int:
    """Copy x to a slice of y, whose start is clamped so that it fits.

    Args:
        dims, steps: dimensions and steps of y.
        sizes: sizes of x.
        rows: number of rows of x.
    """
    last = rank - 1
    inner, inner_first = sizes[last], first_place(start[last], sizes[last], dims[last])
    for row in range(rows):
        rest, target = row, inner_first
        for d in range(rank - 2, -1, -1):
            target += (first_place(start[d], sizes[d], dims[d]) + rest % sizes[d]) * steps[d]
            rest //= sizes[d]
        for k in range(inner):
            y[target + k] = x[row * inner + k]
    return DONE


@inlined
def block_of(block: Any, border: Any, shape: Any) -> tuple[int, int, int, int]:
    """Return height and width of a block, and of the border above and to the left. Images without a width are 1
    wide."""
    has_width = shape[7]
    return block[0], block[1] if has_width else 1, border[0], border[2] if has_width else 0


@kernel
def take_blocks(x: Elements, y: Elements, block: Int32s, border: Int32s, shape: Int32s, padding: Elements) -> int:
    """Set the batches of y to the pixels at the same position in all blocks of an image.

    Args:
        shape: images, height and width of x; batches, rows and columns of y; depth; whether there is a width.
    """
    height, width, top, left = block_of(block, border, shape)
    if min(height, width) < 1 or as_int64(height) * width * shape[0] != shape[3]:
        return REFUSED
    depth, target = shape[6], 0
    for batch in range(shape[3]):
        place = batch // shape[0]
        for i in range(shape[4]):
            row = i * height + place // width - top
            for j in range(shape[5]):
                column = j * width + place % width - left
                is_inside = 0 <= row < shape[1] and 0 <= column < shape[2]
                pixel = ((batch % shape[0]) * shape[1] + row) * shape[2] + column
                for k in range(depth):
                    y[target + k] = x[pixel * depth + k] if is_inside else padding[0]
                target += depth
    return DONE


@kernel
def set_blocks(x: Elements, y: Elements, block: Int32s, border: Int32s, shape: Int32s) -> int:
    """Do the inverse: set pixels of y to the batches of x; arguments as in `take_blocks`, with x and y exchanged."""
    height, width, top, left = block_of(block, border, shape)
    if min(height, width) < 1 or as_int64(height) * width * shape[0] != shape[3] or min(top, left) < 0:
        return REFUSED
    if as_int64(top) + shape[1] > shape[4] * height or as_int64(left) + shape[2] > shape[5] * width:
        return REFUSED
    depth, target = shape[6], 0
    for image in range(shape[0]):
        for i in range(top, top + shape[1]):
            for j in range(left, left + shape[2]):
                batch = ((i % height) * width + j % width) * shape[0] + image
                pixel = (batch * shape[4] + i // height) * shape[5] + j // width
                for k in range(depth):
                    y[target + k] = x[pixel * depth + k]
                target += depth
    return DONE


def _shape(dims: tuple[int, ...]) -> dict[str, Any]:
    """Return the dimensions of a tensor and its steps in elements."""
    steps = [math.prod(dims[d + 1 :]) for d in range(len(dims))]
    return {"dims": np.array(dims, np.int32), "steps": np.array(steps, np.int32), "rank": len(dims)}


def _ends(node: Node) -> dict[str, npt.NDArray[Any]] | None:
    """Return the first input and the output; None if they have no dimensions."""
    x, y = node.eval_input(0).elements, node.eval_output(0).elements
    return {"x": _plain(x), "y": _plain(y)} if x.ndim else None


def _slice(node: Node) -> list[Step] | None:
    input, begin, size = (node.eval_input(i) for i in range(3))
    ends = _ends(node)
    if ends is None:
        return None
    numbers = {"begin": begin.elements, "size": size.elements, "count": ends["y"].size}
    return [take_slice.step(**ends, **numbers, **_shape(input.dims))]


def _mirror(node: Node) -> list[Step] | None:
    input, paddings, output = node.eval_input(0), node.eval_input(1), node.eval_output(0)
    ends = _ends(node)
    if ends is None or not output.elements.size:
        return None
    numbers = {"paddings": paddings.elements.reshape(-1), "offset": node.op_data, "rows": math.prod(output.dims[:-1])}
    return [take_mirrored.step(**ends, **numbers, **_shape(input.dims), sizes=np.array(output.dims, np.int32))]


def _reverse(node: Node) -> list[Step] | None:
    dims, axes = node.eval_input(0).dims, node.eval_input(1).elements
    ends = _ends(node)
    if ends is None:
        return None
    return [take_reversed.step(**ends, **_shape(dims), axes=axes, count=axes.size, rows=math.prod(dims[:-1]))]


def _update(node: Node) -> list[Step] | None:
    operand, update, start = (node.eval_input(i) for i in range(3))
    x, y = update.elements, node.eval_output(0).elements
    copies = copy_steps([(y.reshape(operand.dims), operand.elements)])
    if copies is None or not x.ndim:
        return None
    ends = {"x": _plain(x), "y": _plain(y), "start": start.elements, "sizes": np.array(update.dims, np.int32)}
    return [*copies, set_slice.step(**ends, **_shape(operand.dims), rows=math.prod(update.dims[:-1]))]


def _blocks(node: Node) -> list[Step] | None:
    input, block, border, output = (*(node.eval_input(i) for i in range(3)), node.eval_output(0))
    x, y = input.elements, output.elements
    if not x.size or not y.size:
        return None
    is_taken = node.operator == "SPACE_TO_BATCH_ND"
    image, batches = (input.dims, output.dims) if is_taken else (output.dims, input.dims)
    has_width = len(input.dims) == 4
    sizes = [*(*image[:-1], 1)[:3], *(*batches[:-1], 1)[:3], image[-1], has_width]
    numbers = (tensor.elements.reshape(-1) for tensor in (block, border))
    arrays = dict(zip(("x", "y", "block", "border", "shape"), (x, y, *numbers, np.array(sizes, np.int32))))
    if is_taken:
        return [take_blocks.step(**arrays, padding=np.array([node.op_data], x.dtype))]
    return [set_blocks.step(**arrays)]


def _plain(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return elements as integers, except float32, whose type C must know."""
    return array if array.dtype == np.float32 else array.view(f"i{array.itemsize}")


VARIABLE: dict[str, Callable[[Node], list[Step] | None]] = {
    "BATCH_TO_SPACE_ND": _blocks,
    "DYNAMIC_UPDATE_SLICE": _update,
    "MIRROR_PAD": _mirror,
    "REVERSE_V2": _reverse,
    "SLICE": _slice,
    "SPACE_TO_BATCH_ND": _blocks,
}
"""Binding functions of operators whose copies can change between invokes."""


def _bind(context: KernelContext, node: Node, profile: Profile) -> list[Step] | None:
    copies = fixed_copies(node)
    return VARIABLE[node.operator](node) if copies is None else copy_steps(copies)


BINDINGS = dict.fromkeys(VARIABLE, _bind)
