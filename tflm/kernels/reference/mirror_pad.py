"""MIRROR_PAD: the input with its own elements, mirrored, on every side; the border is repeated or not."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from tflm.errors import OperatorError
from tflm.kernels.registration import KernelContext, Node, Registration, Run
from tflm.kernels.requests import NodeView, Request, ScratchBuffer, tensors
from tflm.kernels.support.checks import require_same_type, require_type
from tflm.kernels.support.parameters import bind_by_parameters
from tflm.kernels.support.views import bind_copies, view_of
from tflm.memory.tensor import TfLiteEvalTensor
from tflm.schema.enums import BuiltinOperator, MirrorPadMode, TensorType
from tflm.schema.options import MirrorPadOptions
from tflm.targets import INT, EnumType, Struct

INPUT, PADDINGS = range(2)
TYPES = (TensorType.FLOAT32, TensorType.INT8)

TFLITE_MIRROR_PADDING_PARAMS = Struct("TfLiteMirrorPaddingParams", mode=EnumType(largest=2))
OP_DATA_MIRROR_PAD = Struct(
    "OpDataMirrorPad",
    input_dims=INT,
    output_size=INT,
    offset=INT,
    output_dims_num_elements_buffer_index=INT,
    input_dims_num_elements_buffer_index=INT,
)

Piece = tuple[slice, slice]
"""Part of the output along a dimension, and what it shows of the input."""


def _prepare(context: KernelContext, node: Node) -> None:
    """The op data is how far from the border the mirrored elements begin: 1 if it is not repeated."""
    input, paddings = (context.input_tensor(node, i) for i in (INPUT, PADDINGS))
    output = context.output_tensor(node, 0)
    require_type(output, *TYPES)
    require_same_type(input, output)
    require_type(paddings, TensorType.INT32, TensorType.INT64)
    rank = len(input.dims)
    if paddings.dims != (rank, 2) or len(output.dims) != rank:
        reason = f"has shape {list(paddings.dims)}; {rank} dimensions need {[rank, 2]}, and an output of as many"
        raise OperatorError(reason, tensor=paddings.name)
    options = node.options(MirrorPadOptions)
    node.op_data = 1 if options is not None and options.mode == MirrorPadMode.REFLECT else 0


def _requests(node: NodeView) -> Iterator[Request]:
    yield from tensors(2)(node)
    rank = len(node.input(INPUT).dims)
    yield ScratchBuffer("elements in a step of each output dimension", 4 * rank)
    yield ScratchBuffer("elements in a step of each input dimension", 4 * rank)


def _bind(context: KernelContext, node: Node) -> Run:
    input, paddings = (context.get_eval_input(node, i) for i in (INPUT, PADDINGS))
    output = context.get_eval_output(node, 0)
    x, y = input.elements, output.elements

    def bind() -> Run:
        copies = []
        for part in itertools.product(*_pieces(input, output, paddings, node.op_data)):
            targets, sources = [target for target, _ in part], [source for _, source in part]
            copies.append((view_of(y, targets), view_of(x, sources)))
        return bind_copies(copies)

    return bind_by_parameters([paddings], bind)


def _pieces(
    input: TfLiteEvalTensor, output: TfLiteEvalTensor, paddings: TfLiteEvalTensor, offset: int
) -> list[list[Piece]]:
    """For each dimension, what comes before the input, the input, and what comes after; what is empty is left out."""
    dimensions = []
    for size, padded, (before, after) in zip(input.dims, output.dims, paddings.elements.tolist()):
        if min(before, after) < 0 or max(before, after) > size - offset or before + size + after != padded:
            reason = f"has shape {list(output.dims)}; {size} elements can't be mirrored to {before} before and {after}"
            raise OperatorError(f"{reason} after for {padded}", tensor=output.name)
        pieces = [
            (slice(0, before), _backwards(before - 1 + offset, before)),
            (slice(before, before + size), slice(0, size)),
            (slice(before + size, padded), _backwards(size - 1 - offset, after)),
        ]
        dimensions.append([piece for piece in pieces if piece[0].start < piece[0].stop])
    return dimensions


def _backwards(first: int, count: int) -> slice:
    """So many elements from the first one on towards the beginning."""
    return slice(first, first - count if first >= count else None, -1)


MIRROR_PAD = Registration(
    BuiltinOperator.MIRROR_PAD,
    _bind,
    _prepare,
    op_data=OP_DATA_MIRROR_PAD,
    requests=_requests,
    builtin_data=TFLITE_MIRROR_PADDING_PARAMS,
    max_version=3,
    types=TYPES,
    since="873b98c42",
)
