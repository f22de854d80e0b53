"""Copies whose positions are inputs that change between invokes: slices, borders, reversed dimensions, blocks.

A first kernel computes the offset in the other tensor for each coordinate of each dimension. A second one copies
elements: the offset of an element is the sum of its coordinates' offsets.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tflm.compiler.language import DONE, REFUSED, Elements, Int32s, Step, inlined, kernel
from tflm.delegates.compiled.casts import as_int32, as_int64
from tflm.delegates.compiled.movement import copy_steps, fixed_copies
from tflm.delegates.compiled.work_arrays import work_array
from tflm.kernels.node import KernelContext, Node


@kernel
def slice_places(
    begin: Elements,
    size: Elements,
    dims: Int32s,
    steps: Int32s,
    bases: Int32s,
    sizes: Int32s,
    places: Int32s,
    rank: int,
    count: int,
) -> int:
    """Compute the offsets of a slice of `count` elements, and its sizes; a size of -1 stands for the rest of the
    dimension.

    Args:
        dims, steps: dimensions and steps of the sliced tensor.
        bases: index of each dimension's first offset.
    """
    found = as_int64(1)
    for d in range(rank):
        start, length = as_int32(begin[d]), as_int64(as_int32(size[d]))
        stop = as_int64(dims[d]) if length == -1 else start + length
        if start < 0 or stop < start or stop > dims[d]:
            return REFUSED
        sizes[d] = stop - start
        found *= stop - start
        for i in range(sizes[d]):
            places[bases[d] + i] = (start + i) * steps[d]
    return DONE if found == count else REFUSED


@kernel
def mirror_places(
    paddings: Elements,
    dims: Int32s,
    steps: Int32s,
    bases: Int32s,
    sizes: Int32s,
    places: Int32s,
    rank: int,
    offset: int,
) -> int:
    """Compute the offsets of a tensor with mirrored borders.

    Args:
        paddings: number of elements before and after, for each dimension. As in TFLM, `sizes` decides how many follow.
        sizes: sizes of the output, which must have elements.
        offset: distance from the border to the first mirrored element.
    """
    first, last, elements = as_int64(0), as_int64(0), as_int64(1)
    for d in range(rank):
        before, size = as_int32(paddings[2 * d]), as_int64(dims[d])
        lowest, highest = as_int64(2**62), as_int64(-(2**62))
        for i in range(sizes[d]):
            place = as_int64(i) - before
            if place < 0:
                place = offset - 1 - place
            elif place >= size:
                place = max(2 * size - 1 - offset - place, 0)
            lowest, highest = min(lowest, place), max(highest, place)
            places[bases[d] + i] = place * steps[d]
        first += lowest * steps[d]
        last += highest * steps[d]
        elements *= size
    if first < 0 or last >= elements:
        return REFUSED
    return DONE


@kernel
def reversed_places(
    axes: Int32s, dims: Int32s, steps: Int32s, bases: Int32s, places: Int32s, rank: int, count: int
) -> int:
    """Compute the offsets of a tensor with `count` adjacent dimensions reversed."""
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
        for i in range(dims[d]):
            places[bases[d] + i] = (dims[d] - 1 - i if times else i) * steps[d]
    return DONE


@kernel
def update_places(
    start: Elements, dims: Int32s, sizes: Int32s, steps: Int32s, bases: Int32s, places: Int32s, rank: int
) -> int:
    """Compute the offsets of a slice, moved so that it is inside of a tensor.

    Args:
        dims, steps: dimensions and steps of the tensor.
        sizes: sizes of the slice.
    """
    for d in range(rank):
        first = min(max(as_int64(start[d]), 0), dims[d] - sizes[d])
        for i in range(sizes[d]):
            places[bases[d] + i] = (as_int32(first) + i) * steps[d]
    return DONE


@kernel
def take_places(x: Elements, y: Elements, sizes: Int32s, bases: Int32s, places: Int32s, rank: int, count: int) -> int:
    """Set y, of these sizes, to the elements of x at the offsets of the coordinates."""
    for i in range(count):
        rest, source = i, 0
        for d in range(rank - 1, -1, -1):
            source += places[bases[d] + rest % sizes[d]]
            rest //= sizes[d]
        y[i] = x[source]
    return DONE


@kernel
def set_places(x: Elements, y: Elements, sizes: Int32s, bases: Int32s, places: Int32s, rank: int, count: int) -> int:
    """Set the elements of y at the offsets of x's coordinates to x, which has these sizes."""
    for i in range(count):
        rest, target = i, 0
        for d in range(rank - 1, -1, -1):
            target += places[bases[d] + rest % sizes[d]]
            rest //= sizes[d]
        y[target] = x[i]
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


class Places(NamedTuple):
    """Arguments that an operator's kernels share.

    Attributes:
        dims, steps: dimensions and steps of the tensor that offsets refer to.
        bases: index of each dimension's first offset.
        places: offsets of all dimensions.
        rank: number of dimensions.
    """

    dims: npt.NDArray[np.int32]
    steps: npt.NDArray[np.int32]
    bases: npt.NDArray[np.int32]
    places: npt.NDArray[np.int32]
    rank: int

    @classmethod
    def of(cls, dims: tuple[int, ...], lengths: tuple[int, ...]) -> Places:
        """Create the arguments for a tensor of these dimensions; at most `lengths` positions are used along each."""
        steps = [math.prod(dims[d + 1 :]) for d in range(len(dims))]
        bases = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths, dtype=np.int64)])
        return cls(
            dims=np.array(dims, np.int32),
            steps=np.array(steps, np.int32),
            bases=bases[:-1].astype(np.int32),
            places=work_array(int(bases[-1]), np.int32),
            rank=len(dims),
        )

    def copied(self, sizes: npt.NDArray[np.int32], count: int) -> dict[str, Any]:
        """Return the arguments of a kernel that copies elements."""
        return {"sizes": sizes, "bases": self.bases, "places": self.places, "rank": self.rank, "count": count}


def _taken(node: Node, find: Step, places: Places, sizes: npt.NDArray[np.int32]) -> list[Step] | None:
    x, y = node.eval_input(0).elements, node.eval_output(0).elements
    if np.may_share_memory(x, y):
        return None
    return [find, take_places.step(x=_plain(x), y=_plain(y), **places.copied(sizes, y.size))]


def _slice(node: Node) -> list[Step] | None:
    input, begin, size = (node.eval_input(i) for i in range(3))
    count = node.eval_output(0).elements.size
    places = Places.of(input.dims, input.dims)
    sizes = work_array(places.rank, np.int32)
    numbers = {"begin": begin.elements, "size": size.elements, "count": count}
    return _taken(node, slice_places.step(**numbers, **places._asdict(), sizes=sizes), places, sizes)


def _mirror(node: Node) -> list[Step] | None:
    input, paddings, output = node.eval_input(0), node.eval_input(1), node.eval_output(0)
    if not output.elements.size:
        return None
    sizes, places = np.array(output.dims, np.int32), Places.of(input.dims, output.dims)
    numbers = {"paddings": paddings.elements.reshape(-1), "offset": node.op_data}
    return _taken(node, mirror_places.step(**numbers, **places._asdict(), sizes=sizes), places, sizes)


def _reverse(node: Node) -> list[Step] | None:
    input, axes = node.eval_input(0), node.eval_input(1).elements
    places = Places.of(input.dims, input.dims)
    find = reversed_places.step(axes=axes, **places._asdict(), count=axes.size)
    return _taken(node, find, places, places.dims)


def _update(node: Node) -> list[Step] | None:
    operand, update, start = (node.eval_input(i) for i in range(3))
    x, y = update.elements, node.eval_output(0).elements
    copies = copy_steps([(y.reshape(operand.dims), operand.elements)])
    if copies is None or np.may_share_memory(x, y):
        return None
    places, sizes = Places.of(operand.dims, update.dims), np.array(update.dims, np.int32)
    find = update_places.step(start=start.elements, **places._asdict(), sizes=sizes)
    return [*copies, find, set_places.step(x=_plain(x), y=_plain(y), **places.copied(sizes, x.size))]


def _blocks(node: Node) -> list[Step] | None:
    input, block, border, output = (*(node.eval_input(i) for i in range(3)), node.eval_output(0))
    x, y = input.elements, output.elements
    if np.may_share_memory(x, y) or not x.size or not y.size:
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


def _bind(context: KernelContext, node: Node) -> list[Step] | None:
    copies = fixed_copies(node)
    return VARIABLE[node.operator](node) if copies is None else copy_steps(copies)


BINDINGS = dict.fromkeys(VARIABLE, _bind)
