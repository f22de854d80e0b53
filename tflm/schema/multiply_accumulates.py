"""How many multiply-accumulates an operator takes, from the shapes of its tensors."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from tflm.schema.model import Model
from tflm.schema.tables import Operator, SubGraph

Shape = Sequence[int]


def _conv_2d(inputs: list[Shape], output: Shape) -> int:
    return math.prod(output) * math.prod(inputs[1][1:])  # filter: (channels out, height, width, channels in)


def _depthwise_conv_2d(inputs: list[Shape], output: Shape) -> int:
    return math.prod(output) * math.prod(inputs[1][1:3])  # filter: (1, height, width, channels out)


def _transpose_conv(inputs: list[Shape], output: Shape) -> int:
    return math.prod(inputs[2]) * math.prod(inputs[1][:3])  # each element of the input meets the whole filter


def _fully_connected(inputs: list[Shape], output: Shape) -> int:
    return math.prod(output) * inputs[1][-1]


def _batch_matmul(inputs: list[Shape], output: Shape) -> int:
    return math.prod(output) * math.prod(inputs[0]) // max(math.prod(output[:-1]), 1)


def _svdf(inputs: list[Shape], output: Shape) -> int:
    batches = inputs[0][0]
    return batches * (math.prod(inputs[1]) + math.prod(inputs[2]))  # features, then time


def _lstm(inputs: list[Shape], output: Shape) -> int:
    steps = math.prod(inputs[0][:-1])
    return steps * sum(math.prod(weights) for weights in inputs[1:9])  # four gates: from the input, and recurrent


FORMULAS: dict[str, Callable[[list[Shape], Shape], int]] = {
    "BATCH_MATMUL": _batch_matmul,
    "CONV_2D": _conv_2d,
    "DEPTHWISE_CONV_2D": _depthwise_conv_2d,
    "FULLY_CONNECTED": _fully_connected,
    "SVDF": _svdf,
    "TRANSPOSE_CONV": _transpose_conv,
    "UNIDIRECTIONAL_SEQUENCE_LSTM": _lstm,
}
"""What multiplies weights; all other operators count as none."""


def multiply_accumulates(model: Model, subgraph: SubGraph, operator: Operator) -> int:
    """Multiply-accumulates of one run of an operator; 0 for what does not multiply weights."""
    formula = FORMULAS.get(model.operator_name(operator))
    if formula is None or not operator.outputs:
        return 0
    tensors = subgraph.tensors or []
    inputs: list[Shape] = [tensors[i].shape or () if i >= 0 else () for i in operator.inputs or ()]
    try:
        return formula(inputs, tensors[operator.outputs[0]].shape or ())
    except IndexError:  # tensors are left out that the formula counts on; the operator will be refused when it runs
        return 0
