"""Removes operators that return their input unchanged, and merges constants into the layer before them.

An operator on integers, or a chain such as DEQUANTIZE and QUANTIZE, is run on all values of its type. It is removed if
every value is returned unchanged, with the same scale and zero point.

ADD, SUB and MUL of a constant are merged into the weights and the bias. Floats: a layer without a bias can add ADD's
constant as its bias, to the same sums. A MUL stays: even with a power of two, sums of scaled weights may overflow or
round as subnormal numbers where the product of the sum does not. Integers: the layer rounds its result, and ADD and MUL
round again. So only a MUL that returns its input's integers can be merged: the scales of its input and output differ by
a power of two, which moves to the scales of the weights.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tflm.errors import TflmError
from tflm.graph import Graph, alike
from tflm.kernels.overlap import element_wise
from tflm.rewriting.cleanup import replace_by_inputs
from tflm.runtime.growing_arena import ready_interpreter
from tflm.schema.builder import ModelBuilder
from tflm.schema.enums import ELEMENT_TYPES, ActivationFunctionType, BuiltinOperator, TensorType
from tflm.schema.model import Model
from tflm.schema.tables import Operator, QuantizationParameters
from tflm.schema.verifier import LARGEST_SCALE, SMALLEST_SCALE

INTEGERS = (TensorType.INT8, TensorType.INT16, TensorType.UINT8)

LONGEST_CHAIN = 3
"""Maximum number of operators in a chain."""

MAX_VALUES = 1 << 20
"""Maximum number of values of the type, times distinct constants, that are run."""

NEUTRAL: dict[BuiltinOperator, tuple[float, bool]] = {
    BuiltinOperator.MUL: (1.0, True),
    BuiltinOperator.DIV: (1.0, False),
    BuiltinOperator.SUB: (0.0, False),
    BuiltinOperator.ADD: (-0.0, True),
}
"""The constant that preserves every bit of a float, and whether it may be the first input. ADD needs -0: 0 + -0 is
0.
"""

CLAMPS_FLOATS = frozenset(
    {
        BuiltinOperator.ADD,
        BuiltinOperator.SUB,
        BuiltinOperator.MUL,
        BuiltinOperator.DIV,
        BuiltinOperator.CONV_2D,
        BuiltinOperator.DEPTHWISE_CONV_2D,
        BuiltinOperator.FULLY_CONNECTED,
        BuiltinOperator.AVERAGE_POOL_2D,
        BuiltinOperator.MAX_POOL_2D,
    }
)
"""Operators that never return infinity, because any activation, even NONE, clamps to the largest float."""


def drop_identities(graph: Graph) -> int:
    """Remove operators and chains that return their input; returns the number of chains."""
    sources = {id(operator): _source(graph, operator) for operator in graph.operators}
    return replace_by_inputs(graph, {key: source for key, source in sources.items() if source is not None})


def _source(graph: Graph, operator: Operator) -> int | None:
    """The tensor that an operator's output equals."""
    outputs = operator.outputs or ()
    if len(outputs) != 1 or not _is_element_wise(graph, operator):
        return None
    if graph.tensors[outputs[0]].type not in INTEGERS:
        return _unchanged_floats(graph, operator)
    for chain, source in _chains(graph, operator):
        if _same_kind(graph, source, outputs[0]) and _returns_all_values(graph, chain, source):
            return source
    return None


def _is_element_wise(graph: Graph, operator: Operator) -> bool:
    return graph.registration(operator).overlap is element_wise and not graph.has_state(operator)


def _chains(graph: Graph, operator: Operator) -> Iterator[tuple[list[Operator], int]]:
    """Chains that end with an operator, the shortest first, and the tensor that each begins with."""
    producers = graph.producers()
    chain: list[Operator] = []
    while len(chain) < LONGEST_CHAIN and _is_element_wise(graph, operator):
        inputs = [tensor for tensor in operator.inputs or () if tensor < 0 or not graph.is_constant(tensor)]
        if len(inputs) != 1 or inputs[0] < 0:
            return
        chain.insert(0, operator)
        yield list(chain), inputs[0]
        if inputs[0] not in producers:
            return
        operator = graph.operators[producers[inputs[0]]]


def _same_kind(graph: Graph, one: int, other: int) -> bool:
    ours, theirs = graph.tensors[one], graph.tensors[other]
    return (ours.type, ours.shape) == (theirs.type, theirs.shape) and alike(ours.quantization, theirs.quantization)


def _returns_all_values(graph: Graph, chain: list[Operator], source: int) -> bool:
    values = all_values(graph.tensors[source].type)
    results = results_of(graph, chain, source)
    return results is not None and bool((results == values[:, None]).all())


def all_values(type: TensorType) -> npt.NDArray[Any]:
    """All values of a type of integers."""
    dtype = ELEMENT_TYPES[type].dtype
    limits = np.iinfo(dtype)
    return np.arange(limits.min, limits.max + 1, dtype=np.int64).astype(dtype)


def results_of(graph: Graph, chain: list[Operator], source: int) -> npt.NDArray[Any] | None:
    """Run a chain of element-wise operators on all values of its first tensor's type.

    Args:
        graph: the graph of the operators.
        chain: the operators; each reads the output of the one before it, and constants.
        source: the tensor that the first one reads.

    Returns:
        Results with a row for each value and a column for each distinct element of a constant; None if several
        constants have more than one, there are too many values, or an operator rejects one.
    """
    constants = {t: np.unique(graph.constant(t)) for op in chain for t in op.inputs or () if _is_plain(graph, t)}
    several = [elements for elements in constants.values() if elements.size > 1]
    values = all_values(graph.tensors[source].type)
    columns = several[0].size if several else 1
    if len(several) > 1 or columns * values.size > MAX_VALUES:
        return None
    builder = ModelBuilder()
    main = builder.subgraph()
    shape = (values.size, columns)
    table = graph.tensors[source]
    names = {source: main.input("x", shape, table.type, table.quantization)}
    for tensor, elements in constants.items():
        names[tensor] = main.constant("", elements, graph.tensors[tensor].quantization)
    for operator in chain:
        output = (operator.outputs or ())[0]
        table = graph.tensors[output]
        names[output] = main.tensor("", shape, table.type, table.quantization)
        inputs = operator.inputs or ()
        if any(tensor not in names for tensor in inputs):
            return None
        main.operator(graph.code(operator), [names[t] for t in inputs], [names[output]], operator.builtin_options)
    main.output(names[output])
    try:
        interpreter = ready_interpreter(Model(builder.build()))
        interpreter.input(0).data[...] = np.broadcast_to(values[:, None], shape)
        interpreter.invoke()
    except TflmError:  # the operator is invalid in the model, too, or rejects some of the values
        return None
    return np.array(interpreter.output(0).data, None)


def _is_plain(graph: Graph, tensor: int) -> bool:
    """Whether a tensor is a constant of numbers."""
    types = (*INTEGERS, TensorType.INT32, TensorType.FLOAT32)
    return tensor >= 0 and graph.is_constant(tensor) and graph.tensors[tensor].type in types


def _unchanged_floats(graph: Graph, operator: Operator) -> int | None:
    """The input of a no-op such as MUL by 1 without activation; None if it may be infinite and would be clamped."""
    constant, commutes = NEUTRAL.get(graph.code(operator), (0.0, False))
    inputs = operator.inputs or ()
    if graph.code(operator) not in NEUTRAL or len(inputs) != 2 or min(inputs) < 0:
        return None
    if getattr(operator.builtin_options, "fused_activation_function", None) is not ActivationFunctionType.NONE:
        return None
    for x, c in (inputs, inputs[::-1]) if commutes else (inputs,):
        before, after = graph.tensors[x], graph.tensors[(operator.outputs or ())[0]]
        same = before.type == after.type == TensorType.FLOAT32 and before.shape == after.shape
        maker = graph.producers().get(x)
        if maker is None or graph.code(graph.operators[maker]) not in CLAMPS_FLOATS:
            continue
        if same and graph.is_constant(c) and not graph.is_constant(x) and _all_are(graph.constant(c), constant):
            return x
    return None


def _all_are(elements: npt.NDArray[Any], value: float) -> bool:
    return elements.astype(np.float32).tobytes() == np.full(elements.shape, value, np.float32).tobytes()


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
    if graph.code(operator) is not BuiltinOperator.MUL or before is None or after is None:
        return None
    type = graph.tensors[tensor].type
    if type not in (TensorType.INT8, TensorType.INT16) or np.frexp(after / before)[0] != 0.5:
        return None
    if _activation(layer) not in (ActivationFunctionType.NONE, ActivationFunctionType.RELU):
        return None
    results = results_of(graph, [operator], tensor)
    if results is None or (results != all_values(type)[:, None]).any():
        return None
    inputs = layer.inputs or ()
    made = [_with_scales(graph, t, after / before) for t in (inputs[WEIGHTS], _bias(layer)) if t >= 0]
    if None in made:
        return None
    weights, *bias = made
    return Parameters(weights or 0, *(bias or [-1]))  # type: ignore[arg-type]  # none of them is None


def _only_scale(graph: Graph, tensor: int) -> float | None:
    """The scale of a tensor with per-tensor quantization."""
    quantization = graph.tensors[tensor].quantization
    scales = (quantization.scale if quantization is not None else None) or ()
    return scales[0] if len(scales) == 1 else None


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
    # Between these, a power of two changes no bit of a scale but those of its exponent.
    if not all(SMALLEST_SCALE <= scale <= LARGEST_SCALE for scale in (*quantization.scale, *scales)):
        return None
    return graph.add_constant(table.name or "", graph.constant(tensor), dataclasses.replace(quantization, scale=scales))
