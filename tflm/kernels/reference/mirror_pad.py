"""MIRROR_PAD: padding with the input's own elements, mirrored at the border element (REFLECT) or including it
(SYMMETRIC).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

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
    """Return the copies. TFLM reads the elements that each padding before a dimension leads to, regardless of the
    output's shape."""
    x, y = node.eval_input(INPUT).elements, node.eval_output(0).elements
    paddings = node.eval_input(PADDINGS).elements.astype(np.int32)
    if not y.size:
        return []
    parts = [_parts(*sizes, node.op_data) for sizes in zip(x.shape, y.shape, paddings[:, 0].tolist())]
    steps = [math.prod(x.shape[i + 1 :]) for i in range(x.ndim)]
    places = [[place for part in of_dimension for place in part.ends] for of_dimension in parts]
    first, last = (sum(end(p) * step for p, step in zip(places, steps)) for end in (min, max))
    if first < 0 or last >= x.size:
        reason = f"has shape {list(y.shape)}; cannot pad {list(x.shape)} with {paddings.tolist()}"
        raise OperatorError(f"{reason}, which reads elements {first} to {last}", tensor=node.eval_output(0).name)
    return [(view_of(y, [part.written for part in both]), _read(x, both, steps)) for both in itertools.product(*parts)]


class _Part(NamedTuple):
    """Along a dimension: a slice of the output, and where the input is read for its first element and from then on."""

    written: slice
    first: int
    step: int

    @property
    def length(self) -> int:
        return int(self.written.stop - self.written.start)

    @property
    def ends(self) -> tuple[int, int]:
        return self.first, self.first + (self.length - 1) * self.step


def _parts(size: int, padded: int, before: int, offset: int) -> list[_Part]:
    """The padding before, the input, the padding after, and what lies behind the last element that can be mirrored."""
    end, mirrored = before + size, max(size - offset, 0)
    places = [min(max(place, 0), padded) for place in (0, before, end, end + mirrored, padded)]
    starts = ((before + offset - 1, -1), (-before, 1), (end + mirrored - 1, -1), (0, 0))
    parts = zip(map(slice, places, places[1:]), starts)
    return [_Part(part, at_zero + part.start * step, step) for part, (at_zero, step) in parts if part.start < part.stop]


def _read(x: npt.NDArray[Any], parts: Sequence[_Part], steps: Sequence[int]) -> npt.NDArray[Any]:
    """A view of what parts of all dimensions read; a place beyond the end of a row lies in the next one."""
    first = sum(part.first * step for part, step in zip(parts, steps))
    strides = [part.step * step * x.itemsize for part, step in zip(parts, steps)]
    # A view by `as_strided` would hide the memory that it is of from the generator of C.
    return np.ndarray([part.length for part in parts], x.dtype, x.reshape(-1), first * x.itemsize, strides)


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
