"""MIRROR_PAD: padding with the input's own elements, mirrored at the border element (REFLECT) or including it
(SYMMETRIC).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from tflm.errors import OperatorError
from tflm.kernels.node import KernelContext, Node
from tflm.kernels.registration import Registration
from tflm.kernels.requests import Request, ScratchBuffer, tensors
from tflm.kernels.shapes import padded_shape
from tflm.kernels.support.checks import require_same_type, require_type
from tflm.kernels.support.views import Copy, Copying, view_of
from tflm.schema.enums import BuiltinOperator, MirrorPadMode, TensorType
from tflm.schema.options import MirrorPadOptions
from tflm.schema.version_rules import by_input
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


def _prepare(context: KernelContext, node: Node) -> None:
    """The op data is the distance from the border to the first mirrored element: 1 for REFLECT, 0 for SYMMETRIC."""
    input, paddings = (node.input(i) for i in (INPUT, PADDINGS))
    output = node.output(0)
    require_type(output, *TYPES)
    require_same_type(input, output)
    require_type(paddings, TensorType.INT32, TensorType.INT64)
    rank = len(input.dims)
    if paddings.dims != (rank, 2) or len(output.dims) != rank:
        reason = f"has shape {list(paddings.dims)}; {rank} dimensions need {[rank, 2]}, and an output of as many"
        raise OperatorError(reason, tensor=paddings.name)
    options = node.builtin_options
    node.op_data = 1 if isinstance(options, MirrorPadOptions) and options.mode == MirrorPadMode.REFLECT else 0


def _requests(node: Node) -> Iterator[Request]:
    yield from tensors(2)(node)
    rank = len(node.input(INPUT).dims)
    yield ScratchBuffer("elements in a step of each output dimension", 4 * rank)
    yield ScratchBuffer("elements in a step of each input dimension", 4 * rank)


def _copies(node: Node) -> list[Copy]:
    x, paddings = node.eval_input(INPUT).elements, node.eval_input(PADDINGS).elements
    output = node.eval_output(0)
    y, offset = output.elements, node.op_data
    parts = []
    for size, padded, (before, after) in zip(x.shape, y.shape, paddings.tolist()):
        if min(before, after) < 0 or max(before, after) > size - offset or before + size + after != padded:
            reason = f"has shape {list(output.dims)}; cannot pad {size} elements with {before} before and {after}"
            raise OperatorError(f"{reason} after to {padded}", tensor=output.name)
        parts.append(_parts(size, before, after, offset))
    slices = (zip(*part) for part in itertools.product(*parts))
    return [(view_of(y, written), view_of(x, read)) for written, read in slices]


def _parts(size: int, before: int, after: int, offset: int) -> list[tuple[slice, slice]]:
    """Along a dimension, slices of output and input: the padding before, the input, and the padding after."""
    end = before + size
    parts = [
        (slice(0, before), _backwards(before - 1 + offset, before)),
        (slice(before, end), slice(0, size)),
        (slice(end, end + after), _backwards(size - 1 - offset, after)),
    ]
    return [part for part in parts if part[0].start < part[0].stop]


def _backwards(first: int, count: int) -> slice:
    return slice(first, first - count if first >= count else None, -1)


MIRROR_PAD = Registration(
    BuiltinOperator.MIRROR_PAD,
    Copying(_copies, parameters=(PADDINGS,)),
    _prepare,
    op_data=OP_DATA_MIRROR_PAD,
    requests=_requests,
    builtin_data=TFLITE_MIRROR_PADDING_PARAMS,
    max_version=3,
    types=TYPES,
    since="873b98c42",
    output_shapes=padded_shape,
    versions=by_input(INT16=3, INT8=2),
)
