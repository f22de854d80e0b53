"""SVDF: a layer of filters over the input, each remembered for some steps and filtered over time.

Filters = units * rank. The input is (batches, size), the weights are (filters, size) over the input and (filters,
memory) over time, the bias is (units, ...), and the state, a variable, holds (batches, filters, memory), the oldest
first. Types are float32, or int8 with weights over time, and what the state holds, of int16 or int8.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tflm.errors import OperatorError
from tflm.kernels.arithmetic.fixed_point import QuantizedMultiplier
from tflm.kernels.arithmetic.requantization import OutputStage
from tflm.kernels.host_memory import kept
from tflm.kernels.layers.integer_product import IntegerWeights, SumRequantizer
from tflm.kernels.layers.product import bind_product
from tflm.kernels.registration import KernelContext, Node, Registration, Run, Shape
from tflm.kernels.requests import NodeView, Refusal, Request, ScratchBuffer, tensors
from tflm.kernels.support.activation import TFLITE_FUSED_ACTIVATION
from tflm.kernels.support.checks import require_same_type, require_scale, require_type
from tflm.kernels.support.precision import SCALES
from tflm.memory.tensor import TfLiteTensor
from tflm.schema.element_types import ELEMENT_TYPES
from tflm.schema.enums import ActivationFunctionType, BuiltinOperator, TensorType
from tflm.schema.options import SVDFOptions
from tflm.targets import BOOL, INT, INT32, Since, Struct

TYPES = (TensorType.FLOAT32, TensorType.INT8)

INPUT, WEIGHTS_FEATURE, WEIGHTS_TIME, BIAS, STATE = range(5)

TFLITE_SVDF_PARAMS = Struct(
    "TfLiteSVDFParams", rank=INT, activation=TFLITE_FUSED_ACTIVATION, asymmetric_quantize_inputs=BOOL
)
OP_DATA_SVDF = Struct(
    "OpDataSvdf",
    effective_scale_1_a=INT32,
    effective_scale_2_a=INT32,
    effective_scale_1_b=INT,
    effective_scale_2_b=INT,
    scratch_tensor_index=INT,
    scratch_output_tensor_index=INT,
    input_zero_point=INT,
    output_zero_point=INT,
    activation_state_zero_point=Since("c8c08497e", INT),
)


def _limited(x: npt.NDArray[Any], low: float, high: float, out: npt.NDArray[Any]) -> None:
    """C's fmin, then its fmax: NaN becomes the upper limit."""
    np.fmin(x, np.float32(high), out=out)
    np.fmax(out, np.float32(low), out=out)


ACTIVATIONS: dict[ActivationFunctionType, Callable[..., Any]] = {
    ActivationFunctionType.NONE: np.positive,
    ActivationFunctionType.RELU: lambda x, out: np.fmax(x, np.float32(0), out=out),
    ActivationFunctionType.RELU_N1_TO_1: lambda x, out: _limited(x, -1, 1, out),
    ActivationFunctionType.RELU6: lambda x, out: _limited(x, 0, 6, out),
    ActivationFunctionType.TANH: np.tanh,
    ActivationFunctionType.SIGN_BIT: lambda x, out: np.copyto(out, np.signbit(x)),
}
"""What is applied to float results; integer ones take none, as in TFLM."""


@dataclass
class OpData:
    """Multipliers and zero points of the integers; and the type at whose limits a new column of the state saturates."""

    to_state: QuantizedMultiplier
    to_output: QuantizedMultiplier
    input_zero_point: int
    state_zero_point: int
    output_zero_point: int
    column: np.dtype[Any]


def _prepare(context: KernelContext, node: Node) -> None:
    node.expect(inputs=5, outputs=1)
    if not node.has_input(BIAS):
        raise OperatorError("needs a bias")
    input, feature, time, bias, state = (context.input_tensor(node, i) for i in range(5))
    rank = (node.options(SVDFOptions) or SVDFOptions()).rank
    output = context.output_tensor(node, 0)
    _check_shapes(input, feature, time, bias, state, output, rank)
    require_type(input, *TYPES)
    for tensor in (feature, output):
        require_same_type(tensor, input)
    if input.type == TensorType.FLOAT32:
        for tensor in (time, bias, state):
            require_same_type(tensor, input)
        return
    require_type(time, TensorType.INT16, TensorType.INT8)
    # The weights over time say what the state holds; of one of 16 bits TFLM may take the first half for 8 bits.
    require_type(state, *{TensorType.INT16, time.type})
    require_type(bias, TensorType.INT32)
    number = SCALES.number(context.release)
    node.op_data = _quantization(input, feature, time, bias, state, output, number)


def _requests(node: NodeView) -> Iterator[Request]:
    yield from tensors(5)(node)
    yield from sums_requests(node)


def sums_requests(node: NodeView) -> Iterator[Request]:
    """The sums over the input, one for each filter, and of integers those over time, one for each unit."""
    batches, filters = node.input(INPUT).dims[0], node.input(WEIGHTS_FEATURE).dims[0]
    yield ScratchBuffer("sums of features", 4 * batches * filters)
    if node.input(INPUT).type != TensorType.FLOAT32:
        yield ScratchBuffer("sums over time", 4 * batches * (filters // node.options(SVDFOptions).rank))


def _check_shapes(
    input: TfLiteTensor,
    feature: TfLiteTensor,
    time: TfLiteTensor,
    bias: TfLiteTensor,
    state: TfLiteTensor,
    output: TfLiteTensor,
    rank: int,
) -> None:
    for tensor in (input, feature, time):
        if len(tensor.dims) != 2 or tensor.dims[0] == 0:
            raise OperatorError(f"has shape {list(tensor.dims)}, must have two dimensions", tensor=tensor.name)
    (batches, size), filters, memory = input.dims, feature.dims[0], time.dims[1]
    if memory == 0:
        raise OperatorError(f"has shape {list(time.dims)}: no memory", tensor=time.name)
    if rank <= 0 or filters % rank:
        raise OperatorError(f"has {filters} filters, which is no multiple of the rank {rank}", tensor=feature.name)
    wanted = {
        feature: (filters, size),
        time: (filters, memory),
        state: (batches, memory * filters),
        output: (batches, filters // rank),
    }
    for tensor, shape in wanted.items():
        if tensor.dims != shape:
            raise OperatorError(f"has shape {list(tensor.dims)}, must be {list(shape)}", tensor=tensor.name)
    if bias.dims[:1] != output.dims[1:] or 0 in bias.dims:
        raise OperatorError(f"has shape {list(bias.dims)}, must be {list(output.dims[1:])}", tensor=bias.name)
    if not state.is_variable:
        raise OperatorError("is the state, and must be a variable", tensor=state.name)


def _effective_scale(
    input: TfLiteTensor, weights: TfLiteTensor, output: TfLiteTensor, number: type[np.float32] | type[np.float64]
) -> float:
    return float(number(input.scale) * number(weights.scale) / number(require_scale(output)))


def _quantization(
    input: TfLiteTensor,
    feature: TfLiteTensor,
    time: TfLiteTensor,
    bias: TfLiteTensor,
    state: TfLiteTensor,
    output: TfLiteTensor,
    number: type[np.float32] | type[np.float64],
) -> OpData:
    product = state.scale * time.scale
    if not abs(bias.scale - product) < 1e-5:
        reason = f"has scale {bias.scale:g}; the product of state and weights has {product:g}, they must be equal"
        raise OperatorError(reason, tensor=bias.name)
    return OpData(
        QuantizedMultiplier.of(_effective_scale(input, feature, state, number)),
        QuantizedMultiplier.of(_effective_scale(state, time, output, number)),
        input.zero_point,
        state.zero_point,
        output.zero_point,
        ELEMENT_TYPES[time.type].dtype,
    )


class Memory:
    """The state of floats as a matrix that is multiplied with the weights over time, and the sums of the products.

    Sums are taken row by row, in the order of the reference, and round as there.

    Args:
        state: (batches, filters, memory), the tensor.
        weights: (filters, memory), read anew at each call.
        bias: (units,).
    """

    def __init__(self, state: npt.NDArray[Any], weights: npt.NDArray[Any], bias: npt.NDArray[Any]):
        batches, filters, memory = state.shape
        units = len(bias)
        columns = batches * filters
        # numpy adds up the rows of a matrix one after the other, but a single column pairwise: make it two at least.
        self._numbers, self._weights, self._products = (
            kept(np.zeros((memory, max(columns, 2)), np.float32)) for _ in range(3)
        )
        self._sums = kept(np.zeros(max(columns, 2), np.float32))
        self._terms = kept(np.zeros((filters // units + 1, max(batches * units, 2)), np.float32))
        self._results = kept(np.zeros(max(batches * units, 2), np.float32))
        self.results = self._results[: batches * units].reshape(batches, units)
        by_step = np.moveaxis(state, -1, 0)  # (memory, batches, filters)
        numbers = self._numbers[:, :columns].reshape(by_step.shape) if columns > 1 else self._numbers[:, :1, np.newaxis]
        self._present = numbers, by_step
        spread = self._weights[:, :columns].reshape(by_step.shape) if columns > 1 else self._weights[:, :1, np.newaxis]
        self._spread = spread, np.broadcast_to(weights.T[:, np.newaxis], by_step.shape)
        ranks = self._sums[:columns].reshape(batches, units, -1)
        terms = self._terms[1:, : batches * units]
        self._ranked = [(terms[i].reshape(batches, units), ranks[:, :, i]) for i in range(ranks.shape[2])]
        self._bias = self._terms[0, : batches * units].reshape(batches, units), np.broadcast_to(bias, (batches, units))

    def sum_up(self) -> npt.NDArray[Any]:
        """The sums, (batches, units)."""
        np.copyto(*self._present)
        np.copyto(*self._spread)
        np.multiply(self._numbers, self._weights, out=self._products)
        np.add.reduce(self._products, axis=0, out=self._sums)
        np.copyto(*self._bias)
        for target, source in self._ranked:
            np.copyto(target, source)
        np.add.reduce(self._terms, axis=0, out=self._results)
        return self.results


def _bind(context: KernelContext, node: Node) -> Run:
    tensors = [context.get_eval_input(node, i) for i in range(5)]
    x, feature, time, bias, state = (tensor.elements for tensor in tensors)
    y = context.get_eval_output(node, 0).elements
    bias = bias.reshape(-1)[: y.shape[1]]  # further dimensions do not count
    state = state.reshape(-1).view(time.dtype)[: state.size]
    if x.dtype == np.float32:
        activation = (node.options(SVDFOptions) or SVDFOptions()).fused_activation_function
        return _bind_float(x, feature, time, bias, state, y, ACTIVATIONS.get(activation, np.positive))
    constants = tensors[WEIGHTS_FEATURE].is_constant, all(tensors[i].is_constant for i in (WEIGHTS_TIME, BIAS))
    return _bind_quantized(x, feature, time, bias, state, y, node.op_data, *constants)


def _bind_float(
    x: npt.NDArray[Any],
    feature: npt.NDArray[Any],
    time: npt.NDArray[Any],
    bias: npt.NDArray[Any],
    state: npt.NDArray[Any],
    y: npt.NDArray[Any],
    activation: Callable[..., Any],
) -> Run:
    filters, size = feature.shape
    factors, products = (kept(np.zeros((size, max(filters, 2)), np.float32)) for _ in range(2))
    sums = kept(np.zeros((len(x), max(filters, 2)), np.float32))
    rows = [(batch[:, np.newaxis], result) for batch, result in zip(x, sums)]
    forget_oldest, newest = _shift(state, *time.shape)
    memory = Memory(state.reshape(len(x), *time.shape), time, bias)

    def run() -> None:
        np.copyto(factors[:, :filters], feature.T)
        for batch, result in rows:
            np.multiply(factors, batch, out=products)
            np.add.reduce(products, axis=0, out=result)
        forget_oldest()
        np.copyto(newest, sums[:, :filters])
        activation(memory.sum_up(), out=y)

    return run


def _shift(state: npt.NDArray[Any], filters: int, memory: int) -> tuple[Run, npt.NDArray[Any]]:
    """What makes room for a value of each filter, and where it belongs, (batches, filters)."""
    # As plain bytes: Python moves those where they overlap, numpy copies them twice.
    content = state.reshape(-1).view(np.uint8).data
    later, earlier = content[state.itemsize :], content[: -state.itemsize]

    def forget_oldest() -> None:
        earlier[:] = later

    return forget_oldest, state.reshape(-1, filters, memory)[:, :, -1]


def _bind_quantized(
    x: npt.NDArray[Any],
    feature: npt.NDArray[Any],
    time: npt.NDArray[Any],
    bias: npt.NDArray[Any],
    state: npt.NDArray[Any],
    y: npt.NDArray[Any],
    op: OpData,
    feature_is_constant: bool,
    time_is_constant: bool,
) -> Run:
    """Two layers: one from the input to the newest values, one from what a unit remembers to its output.

    Between them, the state forgets its oldest values, and takes the newest.
    """
    forget_oldest, newest = _shift(state, *time.shape)
    values = kept(np.empty((1, *newest.shape), op.column))
    (of_each_batch,) = values
    zero_point = np.array(op.state_zero_point, np.int64).astype(state.dtype)
    find_features = _bind_features(x, feature, values, op, feature_is_constant)
    sum_up_over_time = _bind_over_time(state, time, bias, y, op, time_is_constant)

    def run() -> None:
        find_features()
        forget_oldest()
        if zero_point:
            np.add(values, zero_point, values)  # wraps, as in the reference
        newest[...] = of_each_batch
        sum_up_over_time()

    return run


def _bind_features(
    x: npt.NDArray[Any], feature: npt.NDArray[Any], values: npt.NDArray[Any], op: OpData, constant: bool
) -> Run:
    """What sets values (1, batches, filters) to what each filter makes of the input."""
    weights = IntegerWeights(
        feature[np.newaxis], None, x_dtype=x.dtype, x_zero_point=op.input_zero_point, constant=constant
    )
    return bind_product(
        x[np.newaxis], values, weights, SumRequantizer(weights, op.to_state, OutputStage.whole(0, op.column))
    )


def _bind_over_time(
    state: npt.NDArray[Any],
    time: npt.NDArray[Any],
    bias: npt.NDArray[Any],
    y: npt.NDArray[Any],
    op: OpData,
    constant: bool,
) -> Run:
    """What sets y to the sum, for each unit, of all that its filters remember."""
    batches, units = y.shape
    weights = IntegerWeights(
        time.reshape(units, 1, -1), bias, x_dtype=state.dtype, x_zero_point=op.state_zero_point, constant=constant
    )
    finish = SumRequantizer(weights, op.to_output, OutputStage.whole(op.output_zero_point, np.int8))
    remembered = state.reshape(batches, units, -1).transpose(1, 0, 2)
    return bind_product(remembered, y.T[:, :, np.newaxis], weights, finish)


def _multiply_accumulates(inputs: Sequence[Shape], output: Shape) -> int:
    return inputs[INPUT][0] * (math.prod(inputs[WEIGHTS_FEATURE]) + math.prod(inputs[WEIGHTS_TIME]))


def _has_int8_state(node: NodeView) -> bool:
    return node.input(WEIGHTS_TIME).type == TensorType.INT8


SVDF = Registration(
    BuiltinOperator.SVDF,
    _bind,
    _prepare,
    op_data=OP_DATA_SVDF,
    requests=_requests,
    refusals=(Refusal(_has_int8_state, "weights_time->type != kTfLiteInt16", until="c8c08497e"),),
    builtin_data=TFLITE_SVDF_PARAMS,
    max_version=4,
    types=TYPES,
    multiply_accumulates=_multiply_accumulates,
    int8_registration=True,
)
