"""Biases that int32 cannot hold at the product of the scales of input and weights: their weights get larger scales.

litert-quantizer saturates such biases. They belong to channels whose weights are tiny, such as pruned ones, or to
inputs with a tiny range.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from tflm.graph import Graph
from tflm.quantization.recipe import CONVERSIONS
from tflm.schema.element_types import ELEMENT_TYPES
from tflm.schema.enums import TensorType
from tflm.schema.model import Model
from tflm.schema.patch import with_data_inside
from tflm.schema.tables import Operator

BIASES = {"CONV_2D": 2, "DEPTHWISE_CONV_2D": 2, "FULLY_CONNECTED": 2, "TRANSPOSE_CONV": 3}
"""The input that is a bias, by operator."""

LARGEST_BIAS = 1 << 30
"""Half of int32; the other half is for the products that are added."""

LARGEST_WEIGHT = {TensorType.INT8: 127, TensorType.INT4: 7}

Floats = npt.NDArray[np.float32]


def with_fitting_biases(data: bytes, model: Model) -> bytes:
    """The bytes of a quantized model whose weights have larger scales where int32 could not hold the bias.

    Args:
        data: the bytes of the quantized model.
        model: the float model that it was made from, with the same operators apart from conversions.
    """
    graph, before = Graph(with_data_inside(Model(data))), Graph(model)
    places = [i for i, op in enumerate(graph.operators) if graph.registration(op).name not in CONVERSIONS]
    for place, source in zip(places, before.operators, strict=True):
        operator = graph.operators[place]
        if _has_integer_bias(graph, operator):
            graph.operators[place] = _with_larger_scales(graph, operator, before, source)
    return graph.build()


def _has_integer_bias(graph: Graph, operator: Operator) -> bool:
    place, inputs = BIASES.get(graph.registration(operator).name), operator.inputs or ()
    if place is None or len(inputs) <= place or inputs[place] < 0:
        return False
    weights = inputs[graph.registration(operator).weights[0]]
    is_constant = graph.is_constant(weights) and graph.is_constant(inputs[place])
    return is_constant and graph.tensors[weights].type in LARGEST_WEIGHT


def _with_larger_scales(graph: Graph, operator: Operator, before: Graph, source: Operator) -> Operator:
    """The operator, with new weights and biases if a bias exceeds `LARGEST_BIAS`."""
    registration, inputs = graph.registration(operator), list(operator.inputs or ())
    weights, bias = registration.weights[0], BIASES[registration.name]
    float_weights, float_biases = (before.constant((source.inputs or ())[place]) for place in (weights, bias))
    (input_scale,), scales = (_scales(graph, inputs[place]) for place in (registration.activations, weights))
    needed = np.abs(float_biases) / (input_scale * np.float32(LARGEST_BIAS))
    larger = np.maximum(scales, needed if len(scales) > 1 else needed.max())
    if np.array_equal(larger, scales):
        return operator
    inputs[weights] = _requantized(graph, inputs[weights], float_weights, larger)
    inputs[bias] = _requantized(graph, inputs[bias], float_biases, input_scale * larger)
    return graph.like(operator, inputs, operator.outputs or ())


def _scales(graph: Graph, tensor: int) -> Floats:
    parameters = graph.tensors[tensor].quantization
    assert parameters is not None
    return np.array(parameters.scale, np.float32)


def _requantized(graph: Graph, tensor: int, values: Floats, scales: Floats) -> int:
    """A constant like a quantized one, with other scales."""
    table = graph.tensors[tensor]
    assert table.quantization is not None
    by_channel = [1] * values.ndim
    by_channel[table.quantization.quantized_dimension] = -1
    largest = LARGEST_WEIGHT.get(table.type, LARGEST_BIAS)
    integers = np.clip(np.rint(values / scales.reshape(by_channel)), -largest, largest)
    data = integers.astype(ELEMENT_TYPES[table.type].dtype)
    parameters = replace(table.quantization, scale=tuple(scales.tolist()))
    made = graph.add_constant(table.name, _packed(data) if table.type is TensorType.INT4 else data, parameters)
    graph.tensors[made].type, graph.tensors[made].shape = table.type, table.shape
    return made


def _packed(values: npt.NDArray[np.int8]) -> npt.NDArray[np.int8]:
    """Two elements of 4 bits in each byte, the first in the low bits."""
    pairs = np.append(values, np.zeros(values.size % 2, np.int8)).reshape(-1, 2)
    return (pairs[:, 0] & 15 | pairs[:, 1] << 4).astype(np.int8)
