"""ADD, SUB and MUL of a constant merged into the weights and the bias of the layer before them.

Floats: a layer without a bias can add ADD's constant as its bias, to the same sums. A MUL stays: even with a power of
two, sums of scaled weights may overflow or round as subnormal numbers where the product of the sum does not. Integers:
the layer rounds its result, and ADD and MUL round again. So only a MUL that returns its input's integers can be merged:
the scales of its input and output differ by a power of two, which moves to the scales of the weights.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tflm.graph import Graph
from tflm.rewriting.identities import all_values, results_of
from tflm.schema.enums import ActivationFunctionType, BuiltinOperator, TensorType
from tflm.schema.tables import Operator, QuantizationParameters

CHANNELS_OF_WEIGHTS = {
    BuiltinOperator.CONV_2D: 0,
    BuiltinOperator.DEPTHWISE_CONV_2D: 3,
    BuiltinOperator.FULLY_CONNECTED: 0,
}
"""The layers, and the dimension of their weights that is the output's channels."""

WEIGHTS, BIAS = 1, 2

Array = npt.NDArray[Any]


class Parameters(NamedTuple):
    """Tensor indices of a layer's weights and bias; -1 for no bias."""

    weights: int
    bias: int


def merge_constants(graph: Graph) -> int:
    """Merge operators with a constant into the layers before them; returns their number."""
    merged = 0
    readers, producers = graph.readers(), graph.producers()
    for place, operator in enumerate(graph.operators):
        tensor, constant = _operands(graph, operator)
        if tensor not in producers or readers[tensor] != [place] or tensor in graph.outputs:
            continue
        layer = graph.operators[producers[tensor]]
        parameters = _merged(graph, layer, operator, tensor, constant)
        if parameters is None:
            continue
        activation = _activation(operator if _is_float(graph, tensor) else layer)
        given = layer.inputs or ()
        inputs = [given[0], parameters.weights, *([parameters.bias] if parameters.bias >= 0 else given[BIAS:])]
        graph.operators[place] = graph.like(layer, inputs, operator.outputs or (), fused_activation_function=activation)
        readers, producers = graph.readers(), graph.producers()
        merged += 1
    return merged


def _operands(graph: Graph, operator: Operator) -> tuple[int, int]:
    """The tensor and the constant operand of an ADD, SUB or MUL; (-1, -1) for other operators."""
    codes = (BuiltinOperator.ADD, BuiltinOperator.SUB, BuiltinOperator.MUL)
    inputs = operator.inputs or ()
    if graph.code(operator) not in codes or graph.has_state(operator) or _activation(operator) is None:
        return -1, -1
    if len(inputs) != 2 or min(inputs) < 0:
        return -1, -1
    if graph.is_constant(inputs[1]) and not graph.is_constant(inputs[0]):
        return inputs[0], inputs[1]
    swaps = graph.code(operator) is not BuiltinOperator.SUB
    if swaps and graph.is_constant(inputs[0]) and not graph.is_constant(inputs[1]):
        return inputs[1], inputs[0]
    return -1, -1


def _merged(graph: Graph, layer: Operator, operator: Operator, tensor: int, constant: int) -> Parameters | None:
    """The parameters of a layer that includes the operator after it."""
    inputs, output = layer.inputs or (), (operator.outputs or ())[0]
    if graph.code(layer) not in CHANNELS_OF_WEIGHTS or graph.has_state(layer) or _activation(layer) is None:
        return None
    if len(inputs) < BIAS or min(inputs[:BIAS]) < 0 or not all(graph.is_constant(t) for t in inputs[1:] if t >= 0):
        return None
    if len(graph.readers()[inputs[WEIGHTS]]) > 1:  # other layers share these weights
        return None
    types = {graph.tensors[t].type for t in (inputs[0], tensor, output)}
    if graph.shape(tensor) != graph.shape(output) or len(types) != 1:
        return None
    if not _is_float(graph, tensor):
        return _rescaled(graph, layer, operator, tensor)
    channels = _by_channel(graph, layer, tensor, constant)
    is_sum = graph.code(operator) is not BuiltinOperator.MUL
    if channels is None or not is_sum or _activation(layer) != ActivationFunctionType.NONE:
        return None
    return _added(graph, layer, channels if graph.code(operator) is BuiltinOperator.ADD else -channels)


def _activation(operator: Operator) -> ActivationFunctionType | None:
    """The activation in the options; None if they have none."""
    return getattr(operator.builtin_options, "fused_activation_function", None)


def _is_float(graph: Graph, tensor: int) -> bool:
    return graph.tensors[tensor].type == TensorType.FLOAT32


def _bias(layer: Operator) -> int:
    inputs = layer.inputs or ()
    return inputs[BIAS] if len(inputs) > BIAS else -1


def _by_channel(graph: Graph, layer: Operator, tensor: int, constant: int) -> Array | None:
    """A float constant broadcast to one element per channel of a float layer; None if that is impossible."""
    weights = (layer.inputs or ())[WEIGHTS]
    elements, shape = graph.shape(constant), graph.shape(tensor)
    if not _is_float(graph, weights) or not _is_float(graph, constant) or not shape:
        return None
    channels = graph.shape(weights)[CHANNELS_OF_WEIGHTS[graph.code(layer)]]
    if channels != shape[-1] or len(elements) > len(shape) or graph.size(constant) not in (1, *elements[-1:]):
        return None
    if graph.size(constant) not in (1, channels):
        return None
    return np.broadcast_to(graph.constant(constant).reshape(-1), (channels,)).astype(np.float32)


def _added(graph: Graph, layer: Operator, addends: Array) -> Parameters | None:
    bias = _bias(layer)
    if bias >= 0 and graph.constant(bias).any():  # two roundings
        return None
    return Parameters((layer.inputs or ())[WEIGHTS], graph.add_constant("bias", addends))


def _rescaled(graph: Graph, layer: Operator, operator: Operator, tensor: int) -> Parameters | None:
    """Weights and bias with other scales, so that the multipliers of the output stage do not change."""
    output = (operator.outputs or ())[0]
    before, after = _only_scale(graph, tensor), _only_scale(graph, output)
    if graph.code(operator) is not BuiltinOperator.MUL or before is None or after is None or before[1] != after[1]:
        return None
    type = graph.tensors[tensor].type
    if type not in (TensorType.INT8, TensorType.INT16) or np.frexp(after[0] / before[0])[0] != 0.5:
        return None
    if _activation(layer) not in (ActivationFunctionType.NONE, ActivationFunctionType.RELU):
        return None
    results = results_of(graph, [operator], tensor)
    if results is None or (results != all_values(type)[:, None]).any():
        return None
    inputs = layer.inputs or ()
    made = [_with_scales(graph, t, after[0] / before[0]) for t in (inputs[WEIGHTS], _bias(layer)) if t >= 0]
    if None in made:
        return None
    weights, *bias = made
    return Parameters(weights or 0, *(bias or [-1]))  # type: ignore[arg-type]  # none of them is None


def _only_scale(graph: Graph, tensor: int) -> tuple[float, int] | None:
    """The scale and zero point of a tensor with per-tensor quantization."""
    quantization = graph.tensors[tensor].quantization
    if quantization is None or len(quantization.scale or ()) != 1 or len(quantization.zero_point or ()) != 1:
        return None
    assert quantization.scale is not None
    assert quantization.zero_point is not None
    return quantization.scale[0], quantization.zero_point[0]


def _with_scales(graph: Graph, tensor: int, factor: float) -> int | None:
    """A copy of a constant whose scales are multiplied by a power of two."""
    table = graph.tensors[tensor]
    quantization: QuantizationParameters | None = table.quantization
    if (
        quantization is None
        or not quantization.scale
        or table.type not in (TensorType.INT8, TensorType.INT32, TensorType.INT64)
    ):
        return None
    scales = tuple(scale * factor for scale in quantization.scale)
    if not all(
        np.finfo(np.float32).tiny <= scale <= np.finfo(np.float32).max for scale in (*quantization.scale, *scales)
    ):
        return None
    return graph.add_constant(table.name or "", graph.constant(tensor), dataclasses.replace(quantization, scale=scales))
