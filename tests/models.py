"""Hypothesis strategies for models of one operator, with extreme quantization among the ordinary."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import strategies as st

from tflm.schema import (
    ELEMENT_TYPES,
    ActivationFunctionType,
    AddOptions,
    BuiltinOperator,
    CallOnceOptions,
    FullyConnectedOptions,
    ModelBuilder,
    MulOptions,
    QuantizationParameters,
    SoftmaxOptions,
    SubgraphBuilder,
    TensorType,
    VarHandleOptions,
    quantized,
)

Case = tuple[bytes, list[np.ndarray[Any, Any]]]
"""A model, and inputs for it."""

Draw = Callable[[st.SearchStrategy[Any]], Any]

INT8, INT16, INT32, UINT8, FLOAT32 = (
    TensorType.INT8,
    TensorType.INT16,
    TensorType.INT32,
    TensorType.UINT8,
    TensorType.FLOAT32,
)

ACTIVATIONS = st.sampled_from(
    [
        ActivationFunctionType.NONE,
        ActivationFunctionType.RELU,
        ActivationFunctionType.RELU_N1_TO_1,
        ActivationFunctionType.RELU6,
    ]
)


def scales(lowest: int = -20, highest: int = 8) -> st.SearchStrategy[float]:
    """Scales from 2^lowest to 2^highest, as many in each octave."""
    octave = st.integers(lowest, highest - 1)
    return st.builds(lambda o, m: float(np.float32(m * 2.0**o)), octave, st.floats(1, 2, width=32))


def factors(lowest: int, highest: int) -> st.SearchStrategy[float]:
    """Factors between scales; as often as not a power of two, next to which rounding decides."""
    powers = st.integers(lowest, highest).map(lambda exponent: 2.0**exponent)
    return powers | scales(lowest, highest) | scales(max(lowest, -3), min(highest, 3))


def float32(value: float) -> float:
    """A scale as a model can hold it."""
    return float(np.float32(value))


def zero_points(type: TensorType) -> st.SearchStrategy[int]:
    """Zero points of a type: 0 for 16 bits and more, anything for 8."""
    if type in (INT8, UINT8):
        limits = np.iinfo(ELEMENT_TYPES[type].dtype)
        return st.integers(int(limits.min), int(limits.max))
    return st.just(0)


def quantization(draw: Draw, type: TensorType, lowest: int = -30, highest: int = 12) -> QuantizationParameters | None:
    """Quantization for a type; None for floats."""
    if type == FLOAT32:
        return None
    return quantized(draw(scales(lowest, highest)), draw(zero_points(type)))


def shapes(minimum_rank: int = 1, maximum_rank: int = 4, largest: int = 6) -> st.SearchStrategy[tuple[int, ...]]:
    """Small shapes."""
    dimensions = st.lists(st.integers(1, largest), min_size=minimum_rank, max_size=maximum_rank)
    return dimensions.map(tuple)


def values(draw: Draw, type: TensorType, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """Elements over the whole range of a type, its ends included; floats of all sizes up to 2^10."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    dtype = ELEMENT_TYPES[type].dtype
    if type == FLOAT32:
        return (rng.standard_normal(shape) * 2.0 ** rng.integers(-4, 6)).astype(np.float32)
    limits = np.iinfo(dtype)
    array = rng.integers(limits.min, limits.max, shape, dtype, endpoint=True)
    flat = array.reshape(-1)
    flat[: flat.size // 4] = rng.choice([limits.min, limits.max, 0], flat.size // 4)
    return array


def unary(
    operator: BuiltinOperator,
    draw: Draw,
    types: tuple[TensorType, TensorType],
    quantizations: tuple[QuantizationParameters | None, QuantizationParameters | None],
    options: Any = None,
    shape: tuple[int, ...] | None = None,
) -> Case:
    """A model of one operator with one input."""
    dims = shape or draw(shapes())
    builder = ModelBuilder()
    main = builder.subgraph()
    x = main.input("x", dims, types[0], quantizations[0])
    y = main.tensor("y", dims, types[1], quantizations[1])
    main.operator(operator, [x], [y], options)
    main.output(y)
    return builder.build(), [values(draw, types[0], dims)]


def _rescaled(draw: Draw, type: TensorType, input: QuantizationParameters | None) -> QuantizationParameters | None:
    """Quantization for an output, from 2^-40 to 2^40 times that of the input."""
    if type == FLOAT32:
        return None
    scale = input.scale[0] if input is not None and input.scale else 1.0
    return quantized(float32(scale * draw(factors(-40, 40))), draw(zero_points(type)))


@st.composite
def relu(draw: Draw, operator: BuiltinOperator) -> Case:
    """RELU or RELU6."""
    type = draw(st.sampled_from([FLOAT32, INT8, INT16]))
    input = quantization(draw, type)
    return unary(operator, draw, (type, type), (input, _rescaled(draw, type, input)))


@st.composite
def sigmoid(draw: Draw, operator: BuiltinOperator) -> Case:
    """LOGISTIC or TANH, from scales at which almost nothing is in range to ones at which all is."""
    type = draw(st.sampled_from([FLOAT32, INT8, INT16]))
    natural = {INT8: quantized(1 / 256, -128), INT16: quantized(1 / 32768), FLOAT32: None}
    scale = draw(scales(-40, 30) | scales(-16, 2) | st.sampled_from([2.0**-12, 2.0**-11, 2.0**-10, 2.0**-4]))
    input = None if type == FLOAT32 else quantized(scale, draw(zero_points(type)))
    return unary(operator, draw, (type, type), (input, natural[type]))


@st.composite
def softmax(draw: Draw) -> Case:
    """SOFTMAX over rows of 1 to 40, from int8 to int8 and int16, int16 and float."""
    types = draw(st.sampled_from([(FLOAT32, FLOAT32), (INT8, INT8), (INT8, INT16), (INT16, INT16)]))
    natural = {
        (INT8, INT8): quantized(1 / 256, -128),
        (INT8, INT16): quantized(1 / 65536, -32768),
        (INT16, INT16): quantized(1 / 32768),
    }
    shape = (*draw(shapes(0, 3, 3)), draw(st.integers(1, 40)))
    input = (
        None if types[0] == FLOAT32 else quantized(draw(scales(-40, 20) | scales(-18, 4)), draw(zero_points(types[0])))
    )
    options = SoftmaxOptions(beta=draw(st.sampled_from([1.0, 0.5, 2.0])))
    return unary(BuiltinOperator.SOFTMAX, draw, types, (input, natural.get(types)), options, shape)


QUANTIZE_TYPES = [
    (FLOAT32, INT8),
    (FLOAT32, INT16),
    (INT32, INT8),
    (INT32, INT16),
    (INT16, INT8),
    (INT16, INT16),
    (INT16, INT32),
    (INT8, INT8),
    (INT8, UINT8),
    (INT8, INT16),
    (INT8, INT32),
    (UINT8, INT8),
]


@st.composite
def quantize(draw: Draw) -> Case:
    """QUANTIZE for every pair of types."""
    types = draw(st.sampled_from(QUANTIZE_TYPES))
    input = quantization(draw, types[0])
    return unary(BuiltinOperator.QUANTIZE, draw, types, (input, _rescaled(draw, types[1], input)))


@st.composite
def dequantize(draw: Draw) -> Case:
    """DEQUANTIZE from every type."""
    type = draw(st.sampled_from([INT8, UINT8, INT16]))
    return unary(BuiltinOperator.DEQUANTIZE, draw, (type, FLOAT32), (quantization(draw, type, -60, 60), None))


@st.composite
def reshape(draw: Draw) -> Case:
    """RESHAPE of any type, with or without the shape as an input, one dimension left open at times."""
    type = draw(st.sampled_from([FLOAT32, INT8, INT16, INT32]))
    shape = draw(shapes())
    target = list(draw(st.permutations([*shape, 1])))
    if draw(st.booleans()):
        target[draw(st.integers(0, len(target) - 1))] = -1
    builder = ModelBuilder()
    main = builder.subgraph()
    x = main.input("x", shape, type)
    inputs = [x]
    if draw(st.booleans()):
        inputs.append(main.constant("shape", np.array(target, np.int32)))
    y = main.tensor("y", target, type)
    main.operator(BuiltinOperator.RESHAPE, inputs, [y])
    # The wheel reads shapes of outputs from the model, where a dimension of -1 stays: give a tensor behind it.
    flat = main.tensor("flat", (int(np.prod(shape)),), type)
    main.operator(BuiltinOperator.RESHAPE, [y], [flat])
    main.output(flat)
    return builder.build(), [values(draw, type, shape)]


def _broadcast_shapes(draw: Draw) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Two shapes that go together: equal, or with dimensions of 1 and left out here and there."""
    shape = draw(shapes(1, 4, 5))
    pair = []
    for _ in range(2):
        kept = draw(st.lists(st.booleans(), min_size=len(shape), max_size=len(shape)))
        thinned = tuple(d if keep else 1 for d, keep in zip(shape, kept))
        pair.append(draw(st.sampled_from([shape, thinned, thinned[draw(st.integers(0, len(shape) - 1)) :]])))
    return pair[0], pair[1]


@st.composite
def arithmetic(draw: Draw, operator: BuiltinOperator) -> Case:
    """ADD or MUL of two inputs, or of an input and a constant, with broadcasting and activations."""
    type = draw(st.sampled_from([FLOAT32, INT32, INT8, INT16]))
    shape1, shape2 = _broadcast_shapes(draw)
    output_shape = np.broadcast_shapes(shape1, shape2)
    kind = {BuiltinOperator.ADD: AddOptions, BuiltinOperator.MUL: MulOptions}[operator]
    # An output much finer than the inputs is refused by ADD: the output's scale is drawn to be mostly allowed.
    scale = draw(scales(-10, 4))
    parameters = [
        None if type in (FLOAT32, INT32) else quantized(float32(scale * draw(factor)), draw(zero_points(type)))
        for factor in (factors(-6, 6), factors(-6, 6), factors(-24, 12))
    ]
    builder = ModelBuilder()
    main = builder.subgraph()
    a = main.input("a", shape1, type, parameters[0])
    inputs = [values(draw, type, shape1)]
    second = values(draw, type, shape2)
    if draw(st.booleans()):
        b = main.constant("b", second, parameters[1])
    else:
        b = main.input("b", shape2, type, parameters[1])
        inputs.append(second)
    y = main.tensor("y", output_shape, type, parameters[2])
    main.operator(operator, [a, b], [y], kind(fused_activation_function=draw(ACTIVATIONS)))
    main.output(y)
    return builder.build(), inputs


@st.composite
def fully_connected(draw: Draw) -> Case:
    """FULLY_CONNECTED in float, int8 and int16, per tensor and per row, with and without bias and activation."""
    type = draw(st.sampled_from([FLOAT32, INT8, INT16]))
    batches, rows, depth = draw(st.integers(1, 4)), draw(st.integers(1, 8)), draw(st.integers(1, 40))
    builder = ModelBuilder()
    main = builder.subgraph()
    input = quantization(draw, type)
    x = main.input("x", (batches, depth), type, input)
    weights, multipliers = _weights(draw, main, type, rows, depth)
    y_parameters = None
    if type != FLOAT32:
        # Accumulators of a random layer are about this large: an output scale near it uses the whole range.
        typical = input.scale[0] * float(multipliers[0]) * 64
        y_parameters = quantized(float32(typical * draw(factors(-30, 20))), draw(zero_points(type)))
    bias = _bias(draw, main, type, rows, input, multipliers)
    y = main.tensor("y", (batches, rows), type, y_parameters)
    options = FullyConnectedOptions(
        fused_activation_function=draw(ACTIVATIONS),
        quantized_bias_type=draw(st.sampled_from([FLOAT32, INT32])),
    )
    main.operator(BuiltinOperator.FULLY_CONNECTED, [x, weights, bias], [y], options)
    main.output(y)
    return builder.build(), [values(draw, type, (batches, depth))]


def _weights(
    draw: Draw, main: SubgraphBuilder, type: TensorType, rows: int, depth: int
) -> tuple[int, np.ndarray[Any, Any]]:
    """The weights of a layer, and their scales."""
    if type == FLOAT32:
        return main.constant("w", values(draw, FLOAT32, (rows, depth))), np.ones(1)
    base = draw(scales(-12, 0))
    per_row = draw(st.booleans())
    multipliers = np.array([base * draw(scales(-3, 3)) for _ in range(rows)]) if per_row else np.array([base])
    if not per_row and type == INT8 and draw(st.booleans()):
        packed = values(draw, UINT8, ((rows * depth + 1) // 2,))
        index = main.constant("w", packed, quantized(base), type=TensorType.INT4, shape=(rows, depth))
    else:
        index = main.constant("w", values(draw, INT8, (rows, depth)), quantized(multipliers.tolist()))
    return index, multipliers


def _bias(
    draw: Draw,
    main: SubgraphBuilder,
    type: TensorType,
    rows: int,
    input: QuantizationParameters | None,
    multipliers: np.ndarray[Any, Any],
) -> int:
    if not draw(st.booleans()):
        return -1
    if type == FLOAT32:
        return main.constant("b", values(draw, FLOAT32, (rows,)))
    assert input is not None
    parameters = quantized((multipliers * input.scale[0]).tolist())
    dtype = np.int64 if type == INT16 and draw(st.booleans()) else np.int32
    bits = draw(st.integers(1, 31 if dtype == np.int32 else 40))
    limit = 2 ** (bits - 1)
    elements = draw(st.lists(st.integers(-limit, limit - 1), min_size=rows, max_size=rows))
    return main.constant("b", np.array(elements, dtype), parameters)


@st.composite
def graph(draw: Draw) -> bytes:
    """A model of one to ten operators, each fed by any tensors made before it; several outputs; a variable at times."""
    builder = ModelBuilder()
    main = builder.subgraph()
    type = draw(st.sampled_from([FLOAT32, INT8]))
    parameters = None if type == FLOAT32 else quantized(0.5, 1)
    widths = [draw(st.integers(1, 40))]
    tensors = [main.input("x", (1, widths[0]), type, parameters)]
    if draw(st.booleans()):
        tensors.append(main.tensor("state", (1, widths[0]), type, parameters, is_variable=True))
        widths.append(widths[0])
    for i in range(draw(st.integers(1, 10))):
        chosen = draw(st.integers(0, len(tensors) - 1))
        width = widths[chosen]
        kind = draw(st.sampled_from(["RELU", "RESHAPE", "ADD", "FULLY_CONNECTED"]))
        inputs, options = [tensors[chosen]], None
        if kind == "ADD":
            same = [tensor for tensor, other in zip(tensors, widths) if other == width]
            inputs.append(draw(st.sampled_from(same)))
            options = AddOptions()
        elif kind == "FULLY_CONNECTED":
            depth, width = width, draw(st.integers(1, 40))
            weights = np.ones((width, depth), np.float32 if type == FLOAT32 else np.int8)
            scales = None if type == FLOAT32 else quantized([0.01] * draw(st.sampled_from([1, width])))
            inputs += [main.constant(f"w{i}", weights, scales), -1]
            options = FullyConnectedOptions()
        output = main.tensor(f"t{i}", (1, width), type, parameters)
        main.operator(BuiltinOperator[kind], inputs, [output], options)
        tensors.append(output)
        widths.append(width)
    for tensor in sorted({tensors[-1], *draw(st.lists(st.sampled_from(tensors), max_size=3))}):
        main.output(tensor)
    return builder.build()


def counter(type: TensorType, width: int, with_init: bool) -> bytes:
    """y = state + x, state = y; the state begins at zero, or at 2 by way of a subgraph that is called once."""
    parameters = None if type == FLOAT32 else quantized(0.5, 3)
    builder = ModelBuilder()
    main = builder.subgraph()
    x = main.input("x", (1, width), type, parameters)
    handle = main.tensor("handle", (1,), TensorType.RESOURCE)
    state = main.tensor("state", (1, width), type, parameters)
    y = main.tensor("y", (1, width), type, parameters)
    if with_init:
        main.operator(BuiltinOperator.CALL_ONCE, [], [], CallOnceOptions(init_subgraph_index=1))
    main.operator(BuiltinOperator.VAR_HANDLE, [], [handle], VarHandleOptions(container="", shared_name="state"))
    main.operator(BuiltinOperator.READ_VARIABLE, [handle], [state])
    main.operator(BuiltinOperator.ADD, [state, x], [y], AddOptions())
    main.operator(BuiltinOperator.ASSIGN_VARIABLE, [handle, y], [])
    main.output(y)
    if with_init:
        init = builder.subgraph("init")
        initial = init.constant("initial", np.full((1, width), 2, ELEMENT_TYPES[type].dtype), parameters)
        handle = init.tensor("handle", (1,), TensorType.RESOURCE)
        init.operator(BuiltinOperator.VAR_HANDLE, [], [handle], VarHandleOptions(container="", shared_name="state"))
        init.operator(BuiltinOperator.ASSIGN_VARIABLE, [handle, initial], [])
    return builder.build()
