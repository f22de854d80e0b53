"""ADD_N: the sum of any number of inputs of one shape, for float32 and int8."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tflm.errors import OperatorError
from tflm.kernels.arithmetic.fixed_point import QuantizedMultiplier, Raw, quantize_multiplier
from tflm.kernels.arithmetic.lookup import lookup_table
from tflm.kernels.arithmetic.requantization import OutputStage, Requantization
from tflm.kernels.node import KernelContext, Node
from tflm.kernels.overlap import element_wise
from tflm.kernels.reference.arithmetic import Addend
from tflm.kernels.registration import Registration, Run
from tflm.kernels.requests import PersistentBuffer, Released, Request, ScratchBuffer, TempInput, TempOutput
from tflm.kernels.support.checks import require_same_type, require_scale, require_type
from tflm.memory.tensor import TfLiteTensor
from tflm.schema.enums import BuiltinOperator, TensorType
from tflm.targets import INT, INT32, Struct

TYPES = (TensorType.FLOAT32, TensorType.INT8)

LEFT_SHIFT = 20

OP_DATA_ADD_N = Struct(
    "add_n.cc:OpData",
    output_activation_min=INT32,
    output_activation_max=INT32,
    input_offset=INT32,
    output_offset=INT32,
    input_multiplier=INT32,
    output_multiplier=INT32,
    input_shift=INT,
    output_shift=INT,
    left_shift=INT,
    scratch_index=INT,
)


@dataclass
class QuantizedSum:
    """A quantized sum of inputs of one scale and zero point.

    Attributes:
        addends: a table of the addend of each input value, indexed by its bits.
        output: requantizes the sum.
    """

    addends: Raw
    output: Requantization

    def __call__(self, inputs: Sequence[npt.NDArray[np.int8]]) -> Raw:
        total = self.addends[
            np.zeros(inputs[0].shape, np.uint8)
        ]  # as in the reference, the sum starts from a stored zero
        for x in inputs:
            total += self.addends[x.view(np.uint8)]
        return self.output(total)


def float_sum(inputs: Sequence[npt.NDArray[np.float32]]) -> npt.NDArray[np.float32]:
    """The sum, from the first input to the last."""
    total = inputs[0]
    for x in inputs[1:]:
        total = total + x
    return total


def _prepare(context: KernelContext, node: Node) -> None:
    if len(node.inputs) < 2:
        raise OperatorError(f"has {len(node.inputs)} inputs, must have at least 2")
    node.expect(outputs=1)
    first = node.input(0)
    output = node.output(0)
    require_type(first, *TYPES)
    require_same_type(output, first)
    for i in range(1, len(node.inputs)):
        _check_alike(node.input(i), first)
    if output.dims != first.dims:
        raise OperatorError(f"has shape {list(output.dims)}, the inputs have {list(first.dims)}", tensor=output.name)
    node.op_data = _quantized_sum(first, output) if output.type == TensorType.INT8 else float_sum


def _requests(node: Node) -> Iterator[Request]:
    yield TempInput(0)
    yield TempOutput(0)
    for i in range(1, node.input_count):
        yield TempInput(i)
        yield Released(TempInput(i))
    if node.output(0).type == TensorType.INT8:
        yield PersistentBuffer(OP_DATA_ADD_N.name, OP_DATA_ADD_N.size(node.target))
    yield ScratchBuffer("pointers to inputs", node.target.pointer_size * node.input_count)


def _check_alike(input: TfLiteTensor, first: TfLiteTensor) -> None:
    require_same_type(input, first)
    if input.dims != first.dims:
        reason = f"has shape {list(input.dims)}, the first input has {list(first.dims)}; they must be equal"
        raise OperatorError(reason, tensor=input.name)
    if input.type == TensorType.INT8 and (input.scale, input.zero_point) != (first.scale, first.zero_point):
        raise OperatorError("differs from the first input in scale or zero point", tensor=input.name)


def _quantized_sum(input: TfLiteTensor, output: TfLiteTensor) -> QuantizedSum:
    require_scale(input)
    real = 2 * input.scale / (2**LEFT_SHIFT * require_scale(output))
    significand, shift = quantize_multiplier(real)
    if not real < 1 or shift > 0:
        reason = f"has scale {output.scale:g}, too small for a scale {input.scale:g} of the inputs"
        raise OperatorError(reason, tensor=output.name)
    result = Requantization(QuantizedMultiplier(significand, shift), OutputStage.whole(output.zero_point, np.int8))
    addend = Addend.of(input, LEFT_SHIFT, 0.5)
    return QuantizedSum(lookup_table(addend, np.dtype(np.int8), np.dtype(np.int64)), result)


def _bind(context: KernelContext, node: Node) -> Run:
    inputs = [node.eval_input(i).elements for i in range(len(node.inputs))]
    y = node.eval_output(0).elements

    def run() -> None:
        y[...] = node.op_data(inputs)

    return run


ADD_N = Registration(
    BuiltinOperator.ADD_N,
    _bind,
    _prepare,
    requests=_requests,
    max_version=3,
    types=TYPES,
    overlap=element_wise,
)
