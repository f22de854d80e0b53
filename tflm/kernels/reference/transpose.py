"""Elements in another order: TRANSPOSE, REVERSE_V2, and blocks of pixels moved to depth or batch and back.

The blocks are those of SPACE_TO_DEPTH, DEPTH_TO_SPACE, SPACE_TO_BATCH_ND and BATCH_TO_SPACE_ND. An image (batch,
height, width, depth) consists of blocks of pixels. The pixels of a block are moved to the depth, or the pixels at one
position of each block to a batch of their own.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from tflm.errors import OperatorError
from tflm.kernels.node import KernelContext, Node
from tflm.kernels.registration import Registration
from tflm.kernels.requests import Request, tensors, writable_dims
from tflm.kernels.shapes import Shapes, StaticNode, require_axis, same_as_input
from tflm.kernels.support.checks import (
    constant_integers,
    element_count,
    require_alike,
    require_one_type,
    require_rank,
    require_type,
    shape_error,
)
from tflm.kernels.support.elementwise import Copy, Copying
from tflm.memory.tensor import TfLiteEvalTensor, TfLiteTensor
from tflm.schema.enums import BuiltinOperator, TensorType
from tflm.schema.options import DepthToSpaceOptions, SpaceToDepthOptions
from tflm.schema.version_rules import Feature, by_input, either, input_is, rank_above
from tflm.targets import INT, INT32, Struct

MAXIMUM_RANK = 5
TYPES = (TensorType.FLOAT32, TensorType.INT8, TensorType.INT16)


def _prepare_transpose(context: KernelContext, node: Node) -> None:
    """The op data are the axes of the input in the order of the output."""
    input, order, output = node.expect_tensors(2)
    require_one_type(TYPES, input, output)
    rank = require_rank(input, MAXIMUM_RANK)
    if order.dims != (rank,):
        raise shape_error(order, f", must have {[rank]}")
    axes = constant_integers(order, rank)
    if sorted(axes) != list(range(rank)):
        raise OperatorError(f"is {axes}; each dimension from 0 to {rank - 1} must occur once", tensor=order.name)
    shape = [input.dims[axis] for axis in axes]
    if [*shape, *(1 for _ in output.dims[rank:])] != list(output.dims):
        raise shape_error(output, f", must have {shape}")
    node.op_data = axes


def _copies_transpose(node: Node) -> list[Copy]:
    source = node.eval_input(0).elements.transpose(node.op_data)
    return [(node.eval_output(0).elements.reshape(source.shape), source)]


TRANSPOSE = Registration(
    BuiltinOperator.TRANSPOSE,
    Copying(_copies_transpose),
    _prepare_transpose,
    requests=tensors(2),
    max_version=6,
    types=TYPES,
    since="560fd3d1d",
    output_shapes=lambda node: [[node.shape(0)[axis] for axis in node.numbers(1)]],
    versions={
        9: input_is("FLOAT16"),
        8: Feature("more than 6 dimensions, and BFLOAT16", either(rank_above(6), input_is("BFLOAT16"))),
        7: input_is("INT4"),
        6: Feature("6 dimensions", rank_above(5)),
        5: input_is("INT16"),
        4: Feature("5 dimensions", rank_above(4)),
        3: input_is("BOOL"),
        2: input_is("INT8"),
    },
)


REVERSE_RANK = 6
REVERSE_TYPES = (
    TensorType.FLOAT32,
    TensorType.INT8,
    TensorType.UINT8,
    TensorType.INT16,
    TensorType.INT32,
    TensorType.INT64,
    TensorType.BOOL,
)


def _prepare_reverse(context: KernelContext, node: Node) -> None:
    input, axis, output = node.expect_tensors(2)
    require_type(input, *REVERSE_TYPES)
    require_alike(output, input)
    require_type(axis, TensorType.INT32)
    rank = require_rank(input, REVERSE_RANK)
    if len(axis.dims) != 1 or not 0 < element_count(axis) <= rank:
        raise shape_error(axis, f", must name some of {rank} dimensions")


def _copies_reverse(node: Node) -> list[Copy]:
    input, axis = (node.eval_input(i) for i in range(2))
    axes = tuple(sorted(require_axis(number, len(input.dims), input.name) for number in axis.elements.tolist()))
    if axes != tuple(range(axes[0], axes[0] + len(axes))):
        raise OperatorError(f"has the axes {list(axes)}, which must be adjacent", tensor=axis.name)
    return [(node.eval_output(0).elements.reshape(input.dims), np.flip(input.elements, axes))]


REVERSE_V2 = Registration(
    BuiltinOperator.REVERSE_V2,
    Copying(_copies_reverse, parameters=(1,)),
    _prepare_reverse,
    requests=tensors(2),
    max_version=3,
    types=REVERSE_TYPES,
    since="41a9c8a6c",
    output_shapes=same_as_input,
    versions=by_input(FLOAT8=4, INT8=3, BOOL=2),
)


INPUT, BLOCK, BORDER = range(3)
BLOCK_TYPES = (TensorType.FLOAT32, TensorType.INT8)

TFLITE_SPACE_TO_DEPTH_PARAMS = Struct("TfLiteSpaceToDepthParams", block_size=INT)
TFLITE_DEPTH_TO_SPACE_PARAMS = Struct("TfLiteDepthToSpaceParams", block_size=INT)
SPACE_TO_BATCH_PARAMS = Struct("SpaceToBatchParams", output_offset=INT32)

Image = npt.NDArray[Any]


def _pixels(image: Image, block_size: int) -> Image:
    """The image as (batch, rows of blocks, y, columns of blocks, x, depth), where y and x are places in a block."""
    batch, height, width, depth = image.shape
    return image.reshape(batch, height // block_size, block_size, width // block_size, block_size, depth)


def _depths(image: Image, block_size: int) -> Image:
    """The same for an image with the pixels of a block in its depth."""
    batch, rows, columns, depth = image.shape
    places = image.reshape(batch, rows, columns, block_size, block_size, depth // block_size**2)
    return places.transpose(0, 1, 3, 2, 4, 5)


def _prepare_space_to_depth(context: KernelContext, node: Node) -> None:
    """The op data is the block size."""
    options = node.options(SpaceToDepthOptions)
    input, size = _prepared(node, options.block_size)
    batch, height, width, depth = input.dims
    if height % size or width % size:
        raise shape_error(input, f"; {height} x {width} cannot be divided into blocks of {size} x {size}")
    node.eval_output(0).dims = batch, height // size, width // size, depth * size * size


def _prepare_depth_to_space(context: KernelContext, node: Node) -> None:
    """The op data is the block size."""
    options = node.options(DepthToSpaceOptions)
    input, size = _prepared(node, options.block_size)
    batch, rows, columns, depth = input.dims
    if depth % (size * size):
        raise shape_error(input, f"; a depth of {depth} cannot be divided among blocks of {size} x {size}")
    node.eval_output(0).dims = batch, rows * size, columns * size, depth // (size * size)


def _prepared(node: Node, block_size: int) -> tuple[TfLiteTensor, int]:
    input, output = node.expect_tensors(1)
    require_one_type(BLOCK_TYPES, output, input)
    for tensor in (input, output):
        if len(tensor.dims) != 4:
            raise shape_error(tensor, ", must have 4 dimensions")
    if block_size < 1:
        raise OperatorError(f"has block size {block_size}, must be at least 1")
    node.op_data = block_size
    return input, block_size


def _requests(node: Node) -> Iterator[Request]:
    yield from tensors()(node)
    yield writable_dims(node.output(0))


def _copies_to_depth(node: Node) -> list[Copy]:
    x, y = node.eval_input(0).elements, node.eval_output(0).elements
    return [(_depths(y, node.op_data), _pixels(x, node.op_data))]


def _copies_from_depth(node: Node) -> list[Copy]:
    x, y = node.eval_input(0).elements, node.eval_output(0).elements
    return [(_pixels(y, node.op_data), _depths(x, node.op_data))]


def _prepare_batch(context: KernelContext, node: Node) -> None:
    """The op data is the padding value."""
    node.expect(inputs=3, outputs=1)
    input, output = node.input(INPUT), node.output(0)
    require_one_type(BLOCK_TYPES, input, output)
    for tensor in (input, output):
        if len(tensor.dims) not in (3, 4) or len(tensor.dims) != len(input.dims):
            raise shape_error(tensor, "; must be (batch, height, depth) or (batch, height, width, depth)")
    if input.dims[-1] != output.dims[-1]:
        raise OperatorError(f"has depth {output.dims[-1]}, the input has {input.dims[-1]}", tensor=output.name)
    spatial = len(input.dims) - 2
    for index, count in ((BLOCK, spatial), (BORDER, 2 * spatial)):
        numbers = node.eval_input(index)
        require_type(numbers, TensorType.INT32)
        if element_count(numbers) < count:
            raise shape_error(numbers, f"; {spatial} spatial dimensions need {count} numbers")
    node.op_data = output.zero_point if output.type == TensorType.INT8 else 0


def _copies_to_batch(node: Node) -> list[Copy]:
    x, y = _image(node.eval_input(INPUT)), _image(node.eval_output(0))
    block, padding = _block_and_border(node, y, x)
    copies = [(batch, pixels) for pixels, batch in _pixels_and_batches(x, y, block, padding)]
    is_padded = sum(target.size for target, _ in copies) < y.size
    return [(y, np.asarray(node.op_data, y.dtype)), *copies] if is_padded else copies


def _copies_from_batch(node: Node) -> list[Copy]:
    x, y = _image(node.eval_input(INPUT)), _image(node.eval_output(0))
    block, (top, left) = _block_and_border(node, x, y)
    height, width = x.shape[1] * block[0], x.shape[2] * block[1]
    if min(top, left) < 0 or top + y.shape[1] > height or left + y.shape[2] > width:
        reason = f"crops {top} rows and {left} columns of {[len(y), height, width, x.shape[3]]}, "
        raise OperatorError(reason + f"the output is {list(y.shape)}", tensor=node.eval_input(BORDER).name)
    return _pixels_and_batches(y, x, block, (top, left))


def _pixels_and_batches(image: Image, batches: Image, block: tuple[int, int], border: tuple[int, int]) -> list[Copy]:
    """For each position in a block, its pixels in the image without the border, and the batches that they form."""
    pairs = []
    for place in itertools.product(*map(range, block)):
        first = (place[0] * block[1] + place[1]) * len(image)
        parts = [_pixels_at(place[i], block[i], border[i], image.shape[i + 1], batches.shape[i + 1]) for i in range(2)]
        (rows, batch_rows), (columns, batch_columns) = parts
        batch = batches[first : first + len(image)]
        pairs.append((image[:, rows, columns], batch[:, batch_rows, batch_columns]))
    return pairs


def _pixels_at(place: int, block: int, border: int, size: int, blocks: int) -> tuple[slice, slice]:
    """Along a dimension, the pixels at one position of all blocks, and the blocks that have it inside the image."""
    first = max(-((place - border) // block), 0)
    end = max(min(-((place - border - size) // block), blocks), first)
    start = first * block + place - border
    return slice(start, start + (end - first) * block, block), slice(first, end)


def _image(tensor: TfLiteEvalTensor) -> Image:
    """A three-dimensional tensor is an image of width 1."""
    batch, height, *width, depth = tensor.dims
    return tensor.elements.reshape(batch, height, *(width or (1,)), depth)


def _block_and_border(node: Node, batches: Image, image: Image) -> tuple[tuple[int, int], tuple[int, int]]:
    """Height and width of a block, and of the border above and to the left. TFLM does not read the others."""
    block, border = (node.eval_input(i) for i in (BLOCK, BORDER))
    has_width = len(node.eval_input(INPUT).dims) == 4
    height, width = int(block.elements.flat[0]), int(block.elements.flat[1]) if has_width else 1
    top, left = int(border.elements.flat[0]), int(border.elements.flat[2]) if has_width else 0
    if min(height, width) < 1:
        raise OperatorError(f"has blocks of {height} x {width}, must be 1 x 1 or more", tensor=block.name)
    if len(batches) != len(image) * height * width:
        reason = f"has blocks of {height} x {width}, which do not turn {len(image)} batches into {len(batches)}"
        raise OperatorError(reason, tensor=block.name)
    return (height, width), (top, left)


def _space_to_depth_shapes(node: StaticNode) -> Shapes:
    batch, height, width, channels = node.images()
    block = node.option("block_size")
    if height % block or width % block:
        raise OperatorError(f"{height} x {width} can't be divided into blocks of {block} x {block}")
    return [(batch, height // block, width // block, channels * block * block)]


def _depth_to_space_shapes(node: StaticNode) -> Shapes:
    batch, height, width, channels = node.images()
    block = node.option("block_size")
    return [(batch, height * block, width * block, channels // (block * block))]


SPACE_TO_DEPTH = Registration(
    BuiltinOperator.SPACE_TO_DEPTH,
    Copying(_copies_to_depth),
    _prepare_space_to_depth,
    requests=_requests,
    builtin_data=TFLITE_SPACE_TO_DEPTH_PARAMS,
    max_version=2,
    types=BLOCK_TYPES,
    since="89817c30d",
    output_shapes=_space_to_depth_shapes,
    versions=by_input(INT8=2),
)
DEPTH_TO_SPACE = replace(
    SPACE_TO_DEPTH,
    operator=BuiltinOperator.DEPTH_TO_SPACE,
    bind=Copying(_copies_from_depth),
    prepare=_prepare_depth_to_space,
    builtin_data=TFLITE_DEPTH_TO_SPACE_PARAMS,
    since="5a65a54ce",
    output_shapes=_depth_to_space_shapes,
)
SPACE_TO_BATCH_ND = Registration(
    BuiltinOperator.SPACE_TO_BATCH_ND,
    Copying(_copies_to_batch, parameters=(BLOCK, BORDER)),
    _prepare_batch,
    op_data=SPACE_TO_BATCH_PARAMS,
    requests=tensors(),
    max_version=4,
    types=BLOCK_TYPES,
    versions={
        4: input_is("INT16"),
        3: Feature("other numbers of dimensions than 4", lambda signature: len(signature.shape(0)) != 4),
        2: input_is("INT8"),
    },
)
BATCH_TO_SPACE_ND = replace(
    SPACE_TO_BATCH_ND,
    operator=BuiltinOperator.BATCH_TO_SPACE_ND,
    bind=Copying(_copies_from_batch, parameters=(BLOCK, BORDER)),
    op_data=None,
)
