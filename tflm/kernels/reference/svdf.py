"""SVDF: filters over the input, whose results are kept for some steps and filtered over time.

Filters = units * rank. The input is (batches, size), the weights are (filters, size) over the input and (filters,
memory) over time, the bias is (units, ...), and the state, a variable, holds (batches, filters, memory), the oldest
first. Types are float32, or int8 with time weights and state of int16 or int8.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tflm.errors import OperatorError
from tflm.kernels.arithmetic.fixed_point import QuantizedMultiplier, Raw
from tflm.kernels.arithmetic.requantization import OutputStage, Requantization
from tflm.kernels.layers.product import FloatLayer, IntegerLayer
from tflm.kernels.node import KernelContext, Node
from tflm.kernels.registration import Refusal, Registration, Run, Shape
from tflm.kernels.requests import Request, ScratchBuffer, tensors
from tflm.kernels.shapes import Shapes, StaticNode
from tflm.kernels.support.activation import SCALES, TFLITE_FUSED_ACTIVATION
from tflm.kernels.support.checks import require_same_type, require_scale, require_type, shape_error
from tflm.memory.tensor import TfLiteTensor
from tflm.schema.enums import ELEMENT_TYPES, ActivationFunctionType, BuiltinOperator, TensorType
from tflm.schema.options import SVDFOptions
from tflm.schema.version_rules import asymmetric_hybrid, hybrid, input_is
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


Activation = Callable[[npt.NDArray[np.float32]], npt.NDArray[Any]]

ACTIVATIONS: dict[ActivationFunctionType, Activation] = {
    ActivationFunctionType.RELU: lambda x: np.fmax(x, np.float32(0)),
    ActivationFunctionType.RELU_N1_TO_1: lambda x: np.fmax(np.fmin(x, np.float32(1)), np.float32(-1)),
    ActivationFunctionType.RELU6: lambda x: np.fmax(np.fmin(x, np.float32(6)), np.float32(0)),
    ActivationFunctionType.TANH: np.tanh,
    ActivationFunctionType.SIGN_BIT: np.signbit,
}
"""Activations of float results; fmin and fmax map NaN to the limit, as in C. As in TFLM, integers have none."""


@dataclass(frozen=True)
class OpDataSvdf:
    """Constants of an integer SVDF.

    Attributes:
        to_state: requantizes sums over the input to the newest values, without the state's zero point.
        to_output: requantizes sums over time to the output.
        input_zero_point, state_zero_point: zero points of these tensors.
    """

    to_state: Requantization
    to_output: Requantization
    input_zero_point: int
    state_zero_point: int


def _prepare(context: KernelContext, node: Node) -> None:
    node.expect(inputs=5, outputs=1)
    if not node.has_input(BIAS):
        raise OperatorError("needs a bias")
    _check_shapes(node)
    input, feature, time, bias, state = (node.input(i) for i in range(5))
    require_type(input, *TYPES)
    for tensor in (feature, node.output(0)):
        require_same_type(tensor, input)
    if input.type == TensorType.FLOAT32:
        for tensor in (time, bias, state):
            require_same_type(tensor, input)
        return
    require_type(time, TensorType.INT16, TensorType.INT8)
    # The time weights determine the state's type; TFLM may read the first half of a 16-bit state as 8-bit.
    require_type(state, *{TensorType.INT16, time.type})
    require_type(bias, TensorType.INT32)
    node.op_data = _quantization(node)


def _requests(node: Node) -> Iterator[Request]:
    yield from tensors(5)(node)
    yield from sums_requests(node)


def sums_requests(node: Node) -> Iterator[Request]:
    """Buffers for the sums over the input, one per filter, and, for integers, over time, one per unit."""
    batches, filters = node.input(INPUT).dims[0], node.input(WEIGHTS_FEATURE).dims[0]
    yield ScratchBuffer("sums of features", 4 * batches * filters)
    if node.input(INPUT).type != TensorType.FLOAT32:
        yield ScratchBuffer("sums over time", 4 * batches * (filters // node.options(SVDFOptions).rank))


def _check_shapes(node: Node) -> None:
    input, feature, time, bias, state = (node.input(i) for i in range(5))
    output, rank = node.output(0), node.options(SVDFOptions).rank
    for tensor in (input, feature, time):
        if len(tensor.dims) != 2 or tensor.dims[0] == 0:
            raise shape_error(tensor, ", must have two dimensions")
    (batches, size), filters, memory = input.dims, feature.dims[0], time.dims[1]
    if memory == 0:
        raise shape_error(time, ": no memory")
    if rank <= 0 or filters % rank:
        raise OperatorError(f"has {filters} filters, which is not a multiple of the rank {rank}", tensor=feature.name)
    wanted = {
        feature: (filters, size),
        time: (filters, memory),
        state: (batches, memory * filters),
        output: (batches, filters // rank),
    }
    for tensor, shape in wanted.items():
        if tensor.dims != shape:
            raise shape_error(tensor, f", must be {list(shape)}")
    if bias.dims[:1] != output.dims[1:] or 0 in bias.dims:
        raise shape_error(bias, f", must be {list(output.dims[1:])}")
    if not state.is_variable:
        raise OperatorError("is the state, and must be a variable", tensor=state.name)


def _quantization(node: Node) -> OpDataSvdf:
    input, feature, time, bias, state = (node.input(i) for i in range(5))
    output, number = node.output(0), SCALES.number(node.release)
    product = state.scale * time.scale
    if not abs(bias.scale - product) < 1e-5:
        reason = f"has scale {bias.scale:g}; the product of state and weights has {product:g}, they must be equal"
        raise OperatorError(reason, tensor=bias.name)

    def multiplier(x: TfLiteTensor, weights: TfLiteTensor, y: TfLiteTensor) -> QuantizedMultiplier:
        return QuantizedMultiplier.of(float(number(x.scale) * number(weights.scale) / number(require_scale(y))))

    return OpDataSvdf(
        Requantization(multiplier(input, feature, state), OutputStage.whole(0, ELEMENT_TYPES[time.type].dtype)),
        Requantization(multiplier(state, time, output), OutputStage.whole(output.zero_point, np.int8)),
        input.zero_point,
        state.zero_point,
    )


@dataclass(frozen=True)
class SvdfTensors:
    """The tensors of an SVDF as arrays.

    Attributes:
        x, y: (batches, size) and (batches, units).
        feature, time: weights, (filters, size) and (filters, memory).
        bias: (units,).
        state: (batches, filters, memory), the oldest first.
    """

    x: npt.NDArray[Any]
    feature: npt.NDArray[Any]
    time: npt.NDArray[Any]
    bias: npt.NDArray[Any]
    state: npt.NDArray[Any]
    y: npt.NDArray[Any]

    @classmethod
    def of(cls, node: Node) -> SvdfTensors:
        """Those of a node."""
        x, feature, time, bias, state = (node.eval_input(i).elements for i in range(5))
        y = node.eval_output(0).elements
        bias = bias.reshape(-1)[: y.shape[1]]  # ignore further dimensions
        state = state.reshape(-1).view(time.dtype)[: state.size].reshape(len(x), *time.shape)
        return cls(x, feature, time, bias, state, y)


def _bind(context: KernelContext, node: Node) -> Run:
    t, op, constant = SvdfTensors.of(node), node.op_data, node.eval_input(WEIGHTS_FEATURE).is_constant
    if t.x.dtype == np.float32:
        filters = FloatLayer(t.feature, None, -np.inf, np.inf, constant=constant)
        activation = ACTIVATIONS.get(node.options(SVDFOptions).fused_activation_function, np.positive)
        return _bind_steps(t, lambda: filters.product(t.x, filters.weights), lambda: activation(float_outputs(t)))
    features = IntegerLayer(
        t.feature,
        None,
        op.to_state.multiplier,
        op.to_state.stage,
        x_dtype=t.x.dtype,
        x_zero_point=op.input_zero_point,
        constant=constant,
    )
    return _bind_steps(t, lambda: integer_features(t, op, features), lambda: integer_outputs(t, op))


def _bind_steps(t: SvdfTensors, features: Callable[[], Any], outputs: Callable[[], Any]) -> Run:
    """The state drops its oldest values and appends the features; then the outputs are computed from it."""

    def run() -> None:
        newest = features()
        t.state[..., :-1] = t.state[..., 1:].copy()
        t.state[..., -1] = newest
        t.y[...] = outputs()

    return run


def float_outputs(t: SvdfTensors) -> npt.NDArray[np.float32]:
    """Each unit's bias plus its filters' state times the time weights, added in the reference's order."""
    (batches, units), by_filter = t.y.shape, _last_sum(t.state * t.time)
    bias = np.broadcast_to(t.bias[:, np.newaxis], (batches, units, 1))
    return _last_sum(np.concatenate([bias, by_filter.reshape(batches, units, -1)], axis=-1))


def _last_sum(terms: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Sums along the last dimension, adding one term after the other."""
    sums: npt.NDArray[np.float32] = np.add.accumulate(terms, axis=-1, dtype=np.float32)[..., -1]
    return sums


def integer_features(t: SvdfTensors, op: OpDataSvdf, features: IntegerLayer) -> npt.NDArray[Any]:
    """The result of each filter over the input, (batches, filters); adding the state's zero point wraps."""
    return (features(t.x).astype(np.int64) + op.state_zero_point).astype(t.state.dtype)


def integer_outputs(t: SvdfTensors, op: OpDataSvdf) -> Raw:
    """The outputs of integers."""
    products = (t.state.astype(np.int64) - op.state_zero_point) * t.time
    return op.to_output(products.reshape(*t.y.shape, -1).sum(axis=-1, dtype=np.int64) + t.bias)


def _multiply_accumulates(inputs: Sequence[Shape], output: Shape) -> int:
    return inputs[INPUT][0] * (math.prod(inputs[WEIGHTS_FEATURE]) + math.prod(inputs[WEIGHTS_TIME]))


def _has_int8_state(node: Node) -> bool:
    return node.input(WEIGHTS_TIME).type == TensorType.INT8


def _output_shapes(node: StaticNode) -> Shapes:
    (batch, _), (filters, _) = node.ranked(0, 2), node.ranked(1, 2)
    if node.has(STATE):
        node.state_shapes[STATE] = (batch, *node.shape(STATE)[1:])
    return [(batch, filters // node.option("rank"))]


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
    weights=(WEIGHTS_FEATURE, WEIGHTS_TIME),
    int8_registration=True,
    output_shapes=_output_shapes,
    versions={3: input_is("INT8"), 4: asymmetric_hybrid(), 2: hybrid()},
)
