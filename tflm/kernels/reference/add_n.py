"""ADD_N: the sum of any number of inputs of one shape, for float32 and int8."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tflm.errors import OperatorError
from tflm.kernels.arithmetic.fixed_point import QuantizedMultiplier, Raw, quantize_multiplier
from tflm.kernels.arithmetic.requantization import OutputStage, Requantization
from tflm.kernels.host_memory import kept
from tflm.kernels.overlap import element_wise
from tflm.kernels.reference.arithmetic import Term
from tflm.kernels.registration import KernelContext, Node, Registration, Run
from tflm.kernels.requests import NodeView, PersistentBuffer, Released, Request, ScratchBuffer, TempInput, TempOutput
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
    """What each value of an input adds, by its bits, what the sum begins with, and how it becomes the output."""

    addends: Raw
    start: int
    output: Requantization


def _prepare(context: KernelContext, node: Node) -> None:
    if len(node.inputs) < 2:
        raise OperatorError(f"takes 2 inputs at least, not {len(node.inputs)}")
    node.expect(outputs=1)
    first = context.input_tensor(node, 0)
    output = context.output_tensor(node, 0)
    require_type(first, *TYPES)
    require_same_type(output, first)
    for i in range(1, len(node.inputs)):
        _check_alike(context.input_tensor(node, i), first)
    if output.dims != first.dims:
        raise OperatorError(f"has shape {list(output.dims)}, the inputs have {list(first.dims)}", tensor=output.name)
    if output.type == TensorType.INT8:
        node.op_data = _quantized_sum(first, output)


def _requests(node: NodeView) -> Iterator[Request]:
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
        raise OperatorError("has another scale or zero point than the first input", tensor=input.name)


def _quantized_sum(input: TfLiteTensor, output: TfLiteTensor) -> QuantizedSum:
    require_scale(input)
    real = 2 * input.scale / (2**LEFT_SHIFT * require_scale(output))
    significand, shift = quantize_multiplier(real)
    if not real < 1 or shift > 0:
        reason = f"has scale {output.scale:g}, too small for a scale {input.scale:g} of the inputs"
        raise OperatorError(reason, tensor=output.name)
    term = Term(input.zero_point, LEFT_SHIFT, QuantizedMultiplier.of(0.5))
    values = np.arange(256, dtype=np.uint8).view(np.int8).astype(np.int64)
    term.rescale(values, kept(np.empty_like(values)))
    result = Requantization(QuantizedMultiplier(significand, shift), OutputStage.whole(output.zero_point, np.int8))
    # As in the reference, the sum begins with what a stored zero would add.
    return QuantizedSum(values, int(values[0]), result)


def _bind(context: KernelContext, node: Node) -> Run:
    inputs = [context.get_eval_input(node, i).elements.reshape(-1) for i in range(len(node.inputs))]
    y = context.get_eval_output(node, 0).elements.reshape(-1)
    if y.dtype == np.int8:
        return _bind_quantized([x.view(np.uint8) for x in inputs], y, node.op_data)

    is_read_later = any(np.may_share_memory(x, y) for x in inputs[2:])  # a plan may have the output there
    total = kept(np.empty_like(y)) if is_read_later else y

    def run() -> None:
        np.add(inputs[0], inputs[1], out=total)
        for x in inputs[2:]:
            np.add(total, x, out=total)
        if is_read_later:
            np.copyto(y, total)

    return run


def _bind_quantized(inputs: list[npt.NDArray[np.uint8]], y: npt.NDArray[np.int8], op: QuantizedSum) -> Run:
    index = kept(np.empty(y.shape, np.intp))
    sums, addends = (kept(np.empty(y.shape, np.int64)) for _ in range(2))

    def run() -> None:
        sums.fill(op.start)
        for x in inputs:
            np.copyto(index, x)
            op.addends.take(index, out=addends, mode="clip")
            np.add(sums, addends, out=sums)
        np.copyto(y, op.output.in_place(sums, addends), casting="unsafe")

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
