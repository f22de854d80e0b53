"""CUMSUM: sums of all elements up to each along a dimension, from either end, with or without the element itself.

The input is float32 or int8.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tflm.errors import OperatorError
from tflm.kernels.arithmetic.fixed_point import QuantizedMultiplier, quantize_multiplier
from tflm.kernels.arithmetic.requantization import OutputStage, Requantization
from tflm.kernels.host_memory import kept
from tflm.kernels.registration import KernelContext, Node, Registration, Run
from tflm.kernels.requests import NodeView, PersistentBuffer, Refusal, Request, tensors
from tflm.kernels.support.checks import element_count, require_axis, require_same_type, require_scale, require_type
from tflm.kernels.support.parameters import bind_by_parameters
from tflm.memory.tensor import TfLiteTensor
from tflm.schema.enums import BuiltinOperator, TensorType
from tflm.schema.options import CumsumOptions
from tflm.targets import BOOL, INT, INT32, Struct

TYPES = (TensorType.FLOAT32, TensorType.INT8)

INPUT, AXIS = range(2)

TERM_SHIFT = 19
"""Terms are shifted left by so many bits (20, then halved), and their sums wrap at 32 bits."""

TFLITE_CUMSUM_PARAMS = Struct("TfLiteCumsumParams", exclusive=BOOL, reverse=BOOL)
OP_DATA = Struct(
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


@dataclass
class Quantization:
    """What is taken off each value, and what sums become."""

    input_zero_point: int
    output: Requantization


def _prepare(context: KernelContext, node: Node) -> None:
    node.expect(inputs=2, outputs=1)
    input = context.input_tensor(node, INPUT)
    axis = context.input_tensor(node, AXIS)
    require_type(input, *TYPES)
    require_type(axis, TensorType.INT32)
    if element_count(axis) != 1:
        raise OperatorError(f"has shape {list(axis.dims)}, must have one element", tensor=axis.name)
    output = context.output_tensor(node, 0)
    require_same_type(output, input)
    if not input.dims or output.dims != input.dims:
        reason = f"has shape {list(output.dims)}, must have the input's {list(input.dims)}, of one dimension or more"
        raise OperatorError(reason, tensor=output.name)
    if axis.is_constant:
        require_axis(int(axis.data.reshape(-1)[0]), len(input.dims), input.name)
    if output.type == TensorType.INT8:
        node.op_data = _quantization(input, output)


def _requests(node: NodeView) -> Iterator[Request]:
    yield from tensors(2)(node)
    if node.output(0).type == TensorType.INT8:
        yield PersistentBuffer(OP_DATA.name, OP_DATA.size(node.target))


def _quantization(input: TfLiteTensor, output: TfLiteTensor) -> Quantization:
    real = 2 * require_scale(input) / (2 ** (TERM_SHIFT + 1) * require_scale(output))
    significand, shift = quantize_multiplier(real)
    if not real < 1 or shift > 0:
        raise OperatorError(
            f"has scale {output.scale:g}, too small for sums of scale {input.scale:g}", tensor=output.name
        )
    stage = OutputStage.whole(output.zero_point, np.int8)
    return Quantization(input.zero_point, Requantization(QuantizedMultiplier(significand, shift), stage))


def _bind(context: KernelContext, node: Node) -> Run:
    input, axis = (context.get_eval_input(node, index) for index in (INPUT, AXIS))
    output = context.get_eval_output(node, 0)
    options = node.options(CumsumOptions) or CumsumOptions()

    def bind_dimension() -> Run:
        dimension = require_axis(int(axis.elements.reshape(-1)[0]), len(input.dims), input.name)
        x, y = (_along_first(tensor.elements, dimension, options.reverse) for tensor in (input, output))
        if x.dtype == np.float32:
            return _bind_float(x, y, options.exclusive)
        return _bind_int8(x, y, options.exclusive, node.op_data)

    return bind_by_parameters([axis], bind_dimension)


def _along_first(array: npt.NDArray[Any], dimension: int, reverse: bool) -> npt.NDArray[Any]:
    """A view with a dimension, turned around if `reverse`, moved to the front."""
    moved = np.moveaxis(array, dimension, 0)
    return moved[::-1] if reverse else moved


def _bind_float(x: npt.NDArray[Any], y: npt.NDArray[Any], exclusive: bool) -> Run:
    source, target, first = (x[:-1], y[1:], y[:1]) if exclusive else (x, y, y[:0])

    def run() -> None:
        first.fill(0)
        np.add.accumulate(source, axis=0, out=target)

    return run


def _bind_int8(x: npt.NDArray[Any], y: npt.NDArray[Any], exclusive: bool, op: Quantization) -> Run:
    zero_point = np.int32(op.input_zero_point)
    # The reference begins its sums with the zero point taken off nothing, once more than there are elements.
    terms, sums = (kept(np.zeros(x.shape, np.int32)) for _ in range(2))
    first = terms[:1]
    np.subtract(first, zero_point, out=first)
    source, target = (x[:-1], terms[1:]) if exclusive else (x, terms)
    values, scratch = (kept(np.empty(x.shape, np.int64)) for _ in range(2))
    requantize = op.output.in_place

    def run() -> None:
        np.copyto(target, source)
        np.subtract(target, zero_point, out=target)
        if not exclusive:
            np.subtract(first, zero_point, out=first)
        np.add.accumulate(terms, axis=0, out=sums)
        np.left_shift(sums, TERM_SHIFT, out=sums)
        np.copyto(values, sums)
        np.copyto(y, requantize(values, scratch), casting="unsafe")

    return run


def _is_int8(node: NodeView) -> bool:
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
)
