"""CUMSUM: cumulative sums along an axis, from either end, with or without the element itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tflm.errors import OperatorError
from tflm.kernels.arithmetic.fixed_point import QuantizedMultiplier, quantize_multiplier
from tflm.kernels.arithmetic.requantization import OutputStage, Requantization
from tflm.kernels.node import KernelContext, Node
from tflm.kernels.registration import Refusal, Registration, Run
from tflm.kernels.requests import PersistentBuffer, Request, tensors
from tflm.kernels.shapes import require_axis, same_as_input
from tflm.kernels.support.checks import element_count, require_same_type, require_scale, require_type
from tflm.kernels.support.views import bind_by_parameters
from tflm.memory.tensor import TfLiteTensor
from tflm.schema.enums import BuiltinOperator, TensorType
from tflm.schema.options import CumsumOptions
from tflm.targets import BOOL, INT, INT32, Struct

TYPES = (TensorType.FLOAT32, TensorType.INT8)

INPUT, AXIS = range(2)

TERM_SHIFT = 19
"""Terms are shifted left by 20 bits and halved; their sums wrap at 32 bits."""

TFLITE_CUMSUM_PARAMS = Struct("TfLiteCumsumParams", exclusive=BOOL, reverse=BOOL)
OP_DATA_CUMSUM = Struct(
    "cumsum.cc:OpData",
    output_activation_min=INT32,
    output_activation_max=INT32,
    input_offset=INT32,
    output_offset=INT32,
    input_multiplier=INT32,
    output_multiplier=INT32,
    input_shift=INT,
    output_shift=INT,
    left_shift=INT,
)


Array = npt.NDArray[Any]


class CumsumQuantization(NamedTuple):
    """Converts int8 values to 32-bit terms, and their sums back to int8."""

    input_zero_point: int
    output: Requantization


def _prepare(context: KernelContext, node: Node) -> None:
    node.expect(inputs=2, outputs=1)
    input = node.input(INPUT)
    axis = node.input(AXIS)
    require_type(input, *TYPES)
    require_type(axis, TensorType.INT32)
    if element_count(axis) != 1:
        raise OperatorError(f"has shape {list(axis.dims)}, must have one element", tensor=axis.name)
    output = node.output(0)
    require_same_type(output, input)
    if not input.dims or output.dims != input.dims:
        reason = f"has shape {list(output.dims)}, must have the input's {list(input.dims)}, of one dimension or more"
        raise OperatorError(reason, tensor=output.name)
    if axis.is_constant:
        require_axis(int(axis.data.reshape(-1)[0]), len(input.dims), input.name)
    if output.type == TensorType.INT8:
        node.op_data = _quantization(input, output)


def _requests(node: Node) -> Iterator[Request]:
    yield from tensors(2)(node)
    if node.output(0).type == TensorType.INT8:
        yield PersistentBuffer(OP_DATA_CUMSUM.name, OP_DATA_CUMSUM.size(node.target))


def _quantization(input: TfLiteTensor, output: TfLiteTensor) -> CumsumQuantization:
    real = 2 * require_scale(input) / (2 ** (TERM_SHIFT + 1) * require_scale(output))
    significand, shift = quantize_multiplier(real)
    if not real < 1 or shift > 0:
        raise OperatorError(
            f"has scale {output.scale:g}, too small for sums of scale {input.scale:g}", tensor=output.name
        )
    stage = OutputStage.whole(output.zero_point, np.int8)
    return CumsumQuantization(input.zero_point, Requantization(QuantizedMultiplier(significand, shift), stage))


def _bind(context: KernelContext, node: Node) -> Run:
    input, axis = (node.eval_input(index) for index in (INPUT, AXIS))
    output = node.eval_output(0)
    options = node.options(CumsumOptions)

    def views() -> list[Array]:
        number = require_axis(int(axis.elements.reshape(-1)[0]), len(input.dims), input.name)
        return [_along_first(tensor.elements, number, options.reverse) for tensor in (input, output)]

    def run(views: list[Array]) -> None:
        x, y = views
        y[...] = _cumsum(x, options.exclusive, node.op_data)

    return bind_by_parameters([axis], views, run)


def _along_first(array: Array, axis: int, reverse: bool) -> Array:
    """A view with an axis moved to the front, and reversed if requested."""
    moved = np.moveaxis(array, axis, 0)
    return moved[::-1] if reverse else moved


def _cumsum(x: Array, exclusive: bool, op: CumsumQuantization) -> Array:
    is_float = x.dtype == np.float32
    terms = x if is_float else x.astype(np.int32) - np.int32(op.input_zero_point)
    sums: Array = np.add.accumulate(terms, axis=0, dtype=terms.dtype)
    if exclusive:
        sums = np.concatenate([np.zeros_like(sums[:1]), sums[:-1]])
    if is_float:
        return sums
    # The reference starts from the input's offset, so it adds the offset once more than the number of elements.
    return op.output((sums - np.int32(op.input_zero_point)) << TERM_SHIFT)


def _is_int8(node: Node) -> bool:
    return node.input(0).type == TensorType.INT8


CUMSUM = Registration(
    BuiltinOperator.CUMSUM,
    _bind,
    _prepare,
    requests=_requests,
    refusals=(Refusal(_is_int8, "its input may be float32", until="5a65a54ce"),),
    builtin_data=TFLITE_CUMSUM_PARAMS,
    types=TYPES,
    cpp_method="AddCumSum",
    output_shapes=same_as_input,
)
