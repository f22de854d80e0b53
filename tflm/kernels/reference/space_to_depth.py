"""SPACE_TO_DEPTH, DEPTH_TO_SPACE, SPACE_TO_BATCH_ND, BATCH_TO_SPACE_ND: blocks of space moved elsewhere, and back.

An image (batch, height, width, depth) cut into blocks is (batch, rows, y, columns, x, depth), where y and x are places
in a block. The operators copy between that and a tensor that has y and x in its depth, or in its batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from tflm.errors import OperatorError
from tflm.kernels.host_memory import kept
from tflm.kernels.registration import KernelContext, Node, Registration, Run
from tflm.kernels.requests import NodeView, Request, tensors, writable_dims
from tflm.kernels.support.checks import element_count, require_same_type, require_type
from tflm.kernels.support.parameters import bind_by_parameters
from tflm.kernels.support.views import bind_copies, bind_copy
from tflm.memory.tensor import TfLiteEvalTensor, TfLiteTensor
from tflm.schema.enums import BuiltinOperator, TensorType
from tflm.schema.options import DepthToSpaceOptions, SpaceToDepthOptions
from tflm.targets import INT, INT32, Struct

INPUT, BLOCK, BORDER = range(3)
TYPES = (TensorType.FLOAT32, TensorType.INT8)

TFLITE_SPACE_TO_DEPTH_PARAMS = Struct("TfLiteSpaceToDepthParams", block_size=INT)
TFLITE_DEPTH_TO_SPACE_PARAMS = Struct("TfLiteDepthToSpaceParams", block_size=INT)
SPACE_TO_BATCH_PARAMS = Struct("SpaceToBatchParams", output_offset=INT32)

Image = npt.NDArray[Any]
Block = tuple[int, int]
"""Height and width of a block."""


def _blocks_of_space(image: Image, block: Block) -> Image:
    batch, height, width, depth = image.shape
    return image.reshape(batch, height // block[0], block[0], width // block[1], block[1], depth)


def _blocks_of_depth(image: Image, block: Block) -> Image:
    batch, rows, columns, depth = image.shape
    return image.reshape(batch, rows, columns, *block, depth // (block[0] * block[1])).transpose(0, 1, 3, 2, 4, 5)


def _blocks_of_batch(image: Image, block: Block) -> Image:
    batch, rows, columns, depth = image.shape
    return image.reshape(*block, batch // (block[0] * block[1]), rows, columns, depth).transpose(2, 3, 0, 4, 1, 5)


def _prepare_space_to_depth(context: KernelContext, node: Node) -> None:
    """The op data is the block."""
    options = node.options(SpaceToDepthOptions) or SpaceToDepthOptions()
    input, size = _prepared(context, node, options.block_size)
    batch, height, width, depth = input.dims
    if height % size or width % size:
        reason = f"has shape {list(input.dims)}; {height} x {width} can't be cut into blocks of {size} x {size}"
        raise OperatorError(reason, tensor=input.name)
    _set_dims(context, node, (batch, height // size, width // size, depth * size * size))


def _prepare_depth_to_space(context: KernelContext, node: Node) -> None:
    """The op data is the block."""
    options = node.options(DepthToSpaceOptions) or DepthToSpaceOptions()
    input, size = _prepared(context, node, options.block_size)
    batch, rows, columns, depth = input.dims
    if depth % (size * size):
        reason = f"has shape {list(input.dims)}; a depth of {depth} can't be laid out in blocks of {size} x {size}"
        raise OperatorError(reason, tensor=input.name)
    _set_dims(context, node, (batch, rows * size, columns * size, depth // (size * size)))


def _prepared(context: KernelContext, node: Node, block_size: int) -> tuple[TfLiteTensor, int]:
    node.expect(inputs=1, outputs=1)
    input, output = context.input_tensor(node, 0), context.output_tensor(node, 0)
    require_type(output, *TYPES)
    require_same_type(input, output)
    for tensor in (input, output):
        if len(tensor.dims) != 4:
            raise OperatorError(f"has shape {list(tensor.dims)}, must have 4 dimensions", tensor=tensor.name)
    if block_size < 1:
        raise OperatorError(f"has block size {block_size}, must be at least 1")
    node.op_data = block_size, block_size
    return input, block_size


def _set_dims(context: KernelContext, node: Node, dims: tuple[int, ...]) -> None:
    output = context.get_eval_output(node, 0)
    context.allocate_requested(node)
    output.dims = dims


def _requests(node: NodeView) -> Iterator[Request]:
    yield from tensors()(node)
    yield writable_dims(node.output(0))


def _bind_space_to_depth(context: KernelContext, node: Node) -> Run:
    x, y = context.get_eval_input(node, 0).elements, context.get_eval_output(node, 0).elements
    return bind_copy(_blocks_of_depth(y, node.op_data), _blocks_of_space(x, node.op_data))


def _bind_depth_to_space(context: KernelContext, node: Node) -> Run:
    x, y = context.get_eval_input(node, 0).elements, context.get_eval_output(node, 0).elements
    return bind_copy(_blocks_of_space(y, node.op_data), _blocks_of_depth(x, node.op_data))


def _prepare_batch(context: KernelContext, node: Node) -> None:
    """The op data is what borders are made of."""
    node.expect(inputs=3, outputs=1)
    input, output = context.input_tensor(node, INPUT), context.output_tensor(node, 0)
    require_type(input, *TYPES)
    require_same_type(output, input)
    for tensor in (input, output):
        if len(tensor.dims) not in (3, 4) or len(tensor.dims) != len(input.dims):
            reason = f"has shape {list(tensor.dims)}; must be (batch, height, depth) or (batch, height, width, depth)"
            raise OperatorError(reason, tensor=tensor.name)
    if input.dims[-1] != output.dims[-1]:
        raise OperatorError(f"has depth {output.dims[-1]}, the input has {input.dims[-1]}", tensor=output.name)
    spatial = len(input.dims) - 2
    for index, count in ((BLOCK, spatial), (BORDER, 2 * spatial)):
        numbers = context.get_eval_input(node, index)
        require_type(numbers, TensorType.INT32)
        if element_count(numbers) < count:
            reason = f"has shape {list(numbers.dims)}; {spatial} dimensions of space need {count} numbers"
            raise OperatorError(reason, tensor=numbers.name)
    node.op_data = output.zero_point if output.type == TensorType.INT8 else 0


def _bind_space_to_batch(context: KernelContext, node: Node) -> Run:
    input, block, border = (context.get_eval_input(node, i) for i in (INPUT, BLOCK, BORDER))
    x, y = _image(input), _image(context.get_eval_output(node, 0))
    memory = kept(np.empty(y.size, y.dtype))

    def bind() -> Run:
        size, top, left = _block_and_border(block, border, len(input.dims))
        _check_batches(y, x, size, block)
        batch, height, width, depth = x.shape
        padded = memory.reshape(batch, y.shape[1] * size[0], y.shape[2] * size[1], depth)
        if (top, left) == (0, 0) and padded.shape == x.shape:
            return bind_copy(_blocks_of_batch(y, size), _blocks_of_space(x, size))
        padded[...] = node.op_data
        (to_rows, rows), (to_columns, columns) = (
            _placed(top, height, padded.shape[1]),
            _placed(left, width, padded.shape[2]),
        )
        return bind_copies(
            [
                (padded[:, to_rows, to_columns], x[:, rows, columns]),
                (_blocks_of_batch(y, size), _blocks_of_space(padded, size)),
            ]
        )

    return bind_by_parameters([block, border], bind)


def _bind_batch_to_space(context: KernelContext, node: Node) -> Run:
    input, block, border = (context.get_eval_input(node, i) for i in (INPUT, BLOCK, BORDER))
    x, y = _image(input), _image(context.get_eval_output(node, 0))
    memory = kept(np.empty(x.size, x.dtype))

    def bind() -> Run:
        size, top, left = _block_and_border(block, border, len(input.dims))
        _check_batches(x, y, size, block)
        batch, height, width, depth = y.shape
        whole = memory.reshape(batch, x.shape[1] * size[0], x.shape[2] * size[1], depth)
        if min(top, left) < 0 or top + height > whole.shape[1] or left + width > whole.shape[2]:
            reason = f"crops {top} rows and {left} columns of {list(whole.shape)}, the output is {list(y.shape)}"
            raise OperatorError(reason, tensor=border.name)
        if whole.shape == y.shape:
            return bind_copy(_blocks_of_space(y, size), _blocks_of_batch(x, size))
        return bind_copies(
            [
                (_blocks_of_space(whole, size), _blocks_of_batch(x, size)),
                (y, whole[:, top : top + height, left : left + width]),
            ]
        )

    return bind_by_parameters([block, border], bind)


def _image(tensor: TfLiteEvalTensor) -> Image:
    """A tensor of 3 dimensions is an image of width 1."""
    batch, height, *width, depth = tensor.dims
    return tensor.elements.reshape(batch, height, *(width or (1,)), depth)


def _block_and_border(block: TfLiteEvalTensor, border: TfLiteEvalTensor, rank: int) -> tuple[Block, int, int]:
    """The block, and the rows above and columns to the left in the border. TFLM reads nothing of what is after."""
    height, width = block.elements.flat[0], block.elements.flat[1] if rank == 4 else 1
    top, left = border.elements.flat[0], border.elements.flat[2] if rank == 4 else 0
    if min(height, width) < 1:
        raise OperatorError(f"says blocks of {height} x {width}, must be 1 x 1 or more", tensor=block.name)
    return (int(height), int(width)), int(top), int(left)


def _check_batches(blocks: Image, image: Image, size: Block, block: TfLiteEvalTensor) -> None:
    if blocks.shape[0] != image.shape[0] * size[0] * size[1]:
        reason = f"says blocks of {size[0]} x {size[1]}, which don't lie between {image.shape[0]} and {blocks.shape[0]}"
        raise OperatorError(f"{reason} batches", tensor=block.name)


def _placed(start: int, size: int, limit: int) -> tuple[slice, slice]:
    """Where what begins at `start` lies between 0 and `limit`, and the part of it that does."""
    first = max(start, 0)
    last = max(min(start + size, limit), first)
    return slice(first, last), slice(first - start, last - start)


SPACE_TO_DEPTH = Registration(
    BuiltinOperator.SPACE_TO_DEPTH,
    _bind_space_to_depth,
    _prepare_space_to_depth,
    requests=_requests,
    builtin_data=TFLITE_SPACE_TO_DEPTH_PARAMS,
    max_version=2,
    types=TYPES,
    since="89817c30d",
)
DEPTH_TO_SPACE = Registration(
    BuiltinOperator.DEPTH_TO_SPACE,
    _bind_depth_to_space,
    _prepare_depth_to_space,
    requests=_requests,
    builtin_data=TFLITE_DEPTH_TO_SPACE_PARAMS,
    max_version=2,
    types=TYPES,
    since="5a65a54ce",
)
SPACE_TO_BATCH_ND = Registration(
    BuiltinOperator.SPACE_TO_BATCH_ND,
    _bind_space_to_batch,
    _prepare_batch,
    op_data=SPACE_TO_BATCH_PARAMS,
    requests=tensors(),
    max_version=4,
    types=TYPES,
)
BATCH_TO_SPACE_ND = Registration(
    BuiltinOperator.BATCH_TO_SPACE_ND,
    _bind_batch_to_space,
    _prepare_batch,
    requests=tensors(),
    max_version=4,
    types=TYPES,
)
