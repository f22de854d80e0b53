"""Kernels where something changes: the first value that wraps or saturates, the last size that fits, a tie.

By numpy and by the compiled engine; beside TFLM, or beside integers of Python where TFLM can't be asked.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import pytest
from differential import assert_close, run
from models import Case
from oracle import Oracle, OracleError

import tflm
from tflm.delegates import Compiled
from tflm.kernels.reference.reduce import Rescaling
from tflm.schema import (
    ActivationFunctionType,
    AddOptions,
    BatchMatMulOptions,
    BuiltinOperator,
    Conv2DOptions,
    DepthwiseConv2DOptions,
    DivOptions,
    FullyConnectedOptions,
    L2NormOptions,
    ModelBuilder,
    MulOptions,
    Padding,
    Pool2DOptions,
    QuantizationParameters,
    ReducerOptions,
    SoftmaxOptions,
    StridedSliceOptions,
    SubOptions,
    SVDFOptions,
    TensorType,
    UnidirectionalSequenceLSTMOptions,
    quantized,
)
from tflm.schema.enums import TENSOR_TYPES
from tflm.testing.operators.custom import detection_model, detection_options

ENGINES: dict[str, list[Any]] = {"numpy": [], "compiled": [Compiled()]}
"""The delegates of each."""


class Given(NamedTuple):
    """A tensor with its values; those of an output are not looked at."""

    values: np.ndarray[Any, Any]
    quantization: QuantizationParameters | None = None
    is_constant: bool = False
    is_variable: bool = False


def one_operator(operator: str, inputs: Sequence[Given | None], output: Given, options: Any = None) -> Case:
    """A model of one operator, with one invoke."""
    builder = ModelBuilder()
    main = builder.subgraph()
    places = []
    for i, given in enumerate(inputs):
        if given is None:
            places.append(-1)
            continue
        type, shape = TENSOR_TYPES[given.values.dtype], given.values.shape
        if given.is_constant:
            places.append(main.constant(f"x{i}", given.values, given.quantization))
        elif given.is_variable:
            places.append(main.tensor(f"x{i}", shape, type, given.quantization, is_variable=True))
        else:
            places.append(main.input(f"x{i}", shape, type, given.quantization))
    y = main.tensor("y", output.values.shape, TENSOR_TYPES[output.values.dtype], output.quantization)
    main.operator(BuiltinOperator[operator], places, [y], options)
    main.output(y)
    changing = [g.values for g in inputs if g is not None and not g.is_constant and not g.is_variable]
    return builder.build(), [changing]


def answers(case: Case) -> list[np.ndarray[Any, Any]]:
    """Return the output of the first invoke with numpy, and with the engine."""
    return [run(*case, arena_bytes=1 << 22, delegates=delegates)[0][0] for delegates in ENGINES.values()]


def assert_same(oracle: Oracle, case: Case) -> np.ndarray[Any, Any]:
    """Check that both engines return TFLM's result, and return it."""
    expected = oracle.run(*case)[0]
    for answer in answers(case):
        assert_close([answer], expected)
    return expected[0]


def assert_refused(case: Case, reason: str) -> None:
    """Check that both engines reject the model, or an invoke of it."""
    for delegates in ENGINES.values():
        with pytest.raises(tflm.OperatorError, match=reason):
            run(*case, arena_bytes=1 << 22, delegates=delegates)


def rounded(value: Fraction) -> int:
    """Round to the nearest integer, halves away from zero."""
    whole = math.floor(abs(value) + Fraction(1, 2))
    return whole if value >= 0 else -whole


def wrapped(value: int) -> int:
    """The low 32 bits, as a signed number."""
    return (value + 2**31) % 2**32 - 2**31


@pytest.mark.parametrize("is_constant", [False, True])
def test_either_factor_has_a_zero_point_of_its_own(oracle: Oracle, is_constant: bool) -> None:
    rng = np.random.default_rng(0)
    left, right = (rng.integers(-128, 128, shape, np.int8) for shape in ((3, 4), (4, 5)))
    factors = [Given(left, quantized(0.5, -7)), Given(right, quantized(0.5, 11), is_constant)]
    output = Given(np.zeros((3, 5), np.int8), quantized(64.0, 3))
    assert_same(oracle, one_operator("BATCH_MATMUL", factors, output, BatchMatMulOptions()))


@pytest.mark.parametrize("zero_point", [-1000, 0, 1000])
def test_numbers_of_32_bits_wrap_with_their_zero_point(oracle: Oracle, zero_point: int) -> None:
    """The largest scale below that of the output leaves 127 between a result and the ends of 32 bits."""
    scale = quantized(float(np.nextafter(np.float32(1), np.float32(0))))
    x = Given(np.array([-(2**31), 1 - 2**31, -1000, 0, 7, 2**31 - 2, 2**31 - 1], np.int32), scale)
    assert_same(oracle, one_operator("QUANTIZE", [x], Given(np.zeros(7, np.int16), quantized(1.0, zero_point))))


@pytest.mark.parametrize("count", [33025, 33026, 66053])
def test_squares_wrap_to_32_bits(oracle: Oracle, count: int) -> None:
    x = Given(np.full((1, count), -128, np.int8), quantized(1.0, 127))
    assert_same(oracle, one_operator("L2_NORMALIZATION", [x], Given(x.values, quantized(1 / 128)), L2NormOptions()))


# --- Sums that are long ------------------------------------------------------------------------------------------


def average(x: np.ndarray[Any, Any], window: tuple[int, int]) -> Case:
    """Return AVERAGE_POOL_2D of an image of one channel, with windows next to each other."""
    height, width = (size // taps for size, taps in zip(x.shape[1:3], window))
    options = Pool2DOptions(
        padding=Padding.VALID,
        stride_h=window[0],
        stride_w=window[1],
        filter_height=window[0],
        filter_width=window[1],
    )
    scale = quantized(1.0)
    return one_operator(
        "AVERAGE_POOL_2D", [Given(x, scale)], Given(np.zeros((1, height, width, 1), x.dtype), scale), options
    )


@pytest.mark.parametrize("dtype", [np.int8, np.int16])
@pytest.mark.parametrize("count", [1, 2, 127, 128, 129, 255, 256, 511, 512, 513, 1023])
def test_averages_are_rounded_halves_away_from_zero(dtype: type[np.integer], count: int) -> None:
    """Sums next to a tie, at both ends of the type."""
    limits = np.iinfo(dtype)
    ties = [
        end * count + sign * of
        for end in (limits.min, limits.max, 0, 1)
        for sign in (-1, 1)
        for of in (count // 2 - 1, count // 2, count // 2 + 1)
    ]
    sums = [of for of in ties if limits.min * count <= of <= limits.max * count]
    rows = np.array([[of // count + (i < of % count) for i in range(count)] for of in sums], dtype)
    for answer in answers(average(rows.reshape(1, len(rows), count, 1), (1, count))):
        assert answer.reshape(-1).tolist() == [rounded(Fraction(of, count)) for of in sums]


@pytest.mark.parametrize("shape", [(128, 255), (128, 256), (200, 200), (255, 257), (256, 256), (256, 257), (300, 300)])
@pytest.mark.parametrize("value", [-32768, 32767])
def test_averages_of_int16_over_many_elements(oracle: Oracle, shape: tuple[int, int], value: int) -> None:
    """From 2^16 elements on, the sum may leave 32 bits, which it wraps to."""
    result = assert_same(oracle, average(np.full((1, *shape, 1), value, np.int16), shape))
    if math.prod(shape) < 1 << 16:
        assert result.item() == value


@pytest.mark.parametrize("dtype", [np.int8, np.int16])
@pytest.mark.parametrize("operator", ["SUM", "MEAN"])
@pytest.mark.parametrize("count", [2, 3, 32767, 32768, 65535, 65536, 65537, 70000])
def test_sums_wrap_to_32_bits(oracle: Oracle, operator: str, dtype: type[np.integer], count: int) -> None:
    limits = np.iinfo(dtype)
    ratio = 1.0 if operator == "MEAN" else 1 / count
    for value in (limits.min, limits.max):
        x = Given(np.full((1, count), value, dtype), quantized(ratio))
        axis = Given(np.array([1], np.int32), is_constant=True)
        options = ReducerOptions(keep_dims=False)
        assert_same(oracle, one_operator(operator, [x, axis], Given(np.zeros(1, dtype), quantized(1.0)), options))


@pytest.mark.parametrize(
    "divisor", [1, 2, 3, 4, 7, 8, 255, 256, (1 << 31) + 1, (1 << 32) - 1, 1 << 32, 3 << 32, 5 << 33]
)
@pytest.mark.parametrize("shift", [-31, -30, -29, -1, 0, 1, 30])
def test_a_division_is_taken_into_a_multiplier(divisor: int, shift: int) -> None:
    """As many bits to the left as the divisor has, but 32 at the most, and not beyond a shift of -31 in all."""
    significand = (1 << 30) + 12345
    multiplier = Rescaling(significand, shift, 0, 0).multiplier(divisor)
    left = math.floor(math.log2(divisor))
    while left > 32 or shift - left < -31:
        left -= 1
    assert (int(multiplier.significand), int(multiplier.shift)) == ((significand << left) // divisor, shift - left)


def softmax(x: np.ndarray[Any, Any], output: np.dtype[Any], scale: float = 0.1) -> Case:
    """SOFTMAX from integers to integers."""
    quantization = {
        ("int8", "int8"): quantized(1 / 256, -128),
        ("int8", "int16"): quantized(1 / 65536, -32768),
        ("int16", "int16"): quantized(1 / 32768),
    }[x.dtype.name, output.name]
    given = Given(x, quantized(scale))
    return one_operator("SOFTMAX", [given], Given(np.zeros(x.shape, output), quantization), SoftmaxOptions(beta=1.0))


@pytest.mark.parametrize(
    "depth", [1, 2, 3, 255, 256, 257, 2048, 4095, 4096, 4097, 5000, 8191, 8193, 9000, 12288, 20000]
)
@pytest.mark.parametrize("rows", [1, 3])
def test_softmax_of_long_rows(oracle: Oracle, depth: int, rows: int) -> None:
    """Q12.19 holds a sum of 8191 equal elements; then it wraps. What is left of 8192 of them, no reciprocal is for."""
    x = np.zeros((rows, depth), np.int8)
    x[:, : depth // 3] = -5
    x[:, -1] = 1
    assert_same(oracle, softmax(x, np.dtype(np.int16)))


@pytest.mark.parametrize("depth", [255, 256, 257, 510, 8192 + 100, 8192 + 255])
def test_softmax_of_long_rows_to_bytes(oracle: Oracle, depth: int) -> None:
    assert_same(oracle, softmax(np.full((1, depth), 7, np.int8), np.dtype(np.int8)))


@pytest.mark.parametrize("depth", [1, 2, 3, 4096, 16384, 32767, 32768, 65535, 65536, 65537, 65538])
@pytest.mark.parametrize("lower", [0, -50])
def test_softmax_of_long_rows_of_int16(oracle: Oracle, depth: int, lower: int) -> None:
    """The maximum number of equal elements is that for which the sum fits Q16.15."""
    x = np.zeros((1, depth), np.int16)
    x[:, : depth // 3] = lower
    assert_same(oracle, softmax(x, np.dtype(np.int16)))


@pytest.mark.parametrize("depth", [1, 2, 3, 255, 4095, 4096, 5000, 5900])
def test_log_softmax_of_long_rows(oracle: Oracle, depth: int) -> None:
    x = np.zeros((1, depth), np.int8)
    x[:, : depth // 3] = -30
    case = one_operator("LOG_SOFTMAX", [Given(x, quantized(0.1))], Given(x, quantized(1 / 16, 127)))
    assert_same(oracle, case)


# --- Division ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_constant", [False, True])
@pytest.mark.parametrize("place", [0, 3, 6])
def test_int32_is_not_divided_by_zero(place: int, is_constant: bool) -> None:
    divisor = np.array([1, -1, 2, 3, -2, 5, 7], np.int32)
    dividend = np.array([-(2**31), 2**31 - 1, -(2**31), 7, 7, -7, 0], np.int32)
    case = one_operator("DIV", [Given(dividend), Given(divisor, None, is_constant)], Given(dividend), DivOptions())
    for answer in answers(case):
        assert answer.tolist() == [-(2**31), -(2**31) + 1, -(2**30), 2, -3, -1, 0]
    divisor = divisor.copy()
    divisor[place] = 0
    case = one_operator("DIV", [Given(dividend), Given(divisor, None, is_constant)], Given(dividend), DivOptions())
    assert_refused(case, "divides by zero")


# --- Scales ------------------------------------------------------------------------------------------------------

EXPONENTS = [-36, -34, -33, -32, -31, -30, -29, -17, -16, -15, -9, -1, 0, 1, 7, 13, 14, 15, 16, 17, 23, 29, 30, 31, 32]
SCALED: dict[str, tuple[tuple[int, ...], tuple[int, ...], Any]] = {
    "MUL": ((1, 64), (1, 1), MulOptions()),
    "PRELU": ((1, 64), (1, 1), None),
    "FULLY_CONNECTED": ((64, 1), (1, 1), FullyConnectedOptions()),
    "BATCH_MATMUL": ((64, 1), (1, 1), None),
    "CONV_2D": ((1, 8, 8, 1), (1, 1, 1, 1), Conv2DOptions(padding=Padding.VALID, stride_w=1, stride_h=1)),
    "DEPTHWISE_CONV_2D": (
        (1, 8, 8, 1),
        (1, 1, 1, 1),
        DepthwiseConv2DOptions(padding=Padding.VALID, stride_w=1, stride_h=1, depth_multiplier=1),
    ),
    "LEAKY_RELU": ((1, 64), (), tflm.schema.LeakyReluOptions(alpha=0.75)),
    "QUANTIZE": ((1, 64), (), None),
    "RELU": ((1, 64), (), None),
    "SUM": ((64, 1), (), ReducerOptions(keep_dims=True)),
}
"""Shapes of the input and of weights, if any, which are constant."""


def scaled(operator: str, dtype: type[np.integer], real: float, values: np.ndarray[Any, Any]) -> Case:
    """An operator that multiplies by that real number, or one next to it; weights are 1."""
    shape, weights_shape, options = SCALED[operator]
    x = Given(values.astype(dtype).reshape(shape), quantized(2.0**-6))
    weights_type = dtype if operator in ("MUL", "BATCH_MATMUL") else np.int8
    inputs = [x]
    if weights_shape:
        inputs.append(Given(np.ones(weights_shape, weights_type), quantized([1.0]), is_constant=True))
    if operator == "SUM":
        inputs.append(Given(np.array([1], np.int32), is_constant=True))
    return one_operator(operator, inputs, Given(x.values, quantized(2.0**-6 / real)), options)


def same_or_both(oracle: Oracle, case: Case) -> None:
    """Return TFLM's result; if the model crashes TFLM, check that the engines agree."""
    try:
        assert_same(oracle, case)
    except OracleError:
        given = []
        for delegates in ENGINES.values():
            try:
                given.append(run(*case, delegates=delegates)[0][0].tolist())
            except tflm.TflmError as error:
                given.append(str(error))
        assert given[0] == given[1]


@pytest.mark.parametrize("dtype", [np.int8, np.int16])
@pytest.mark.parametrize("operator", SCALED)
def test_multipliers_of_every_size(oracle: Oracle, operator: str, dtype: type[np.integer]) -> None:
    """From those that leave nothing of any element to those whose shift is taken modulo 32, or 64."""
    limits = np.iinfo(dtype)
    values = np.concatenate([[limits.min, limits.min + 1, limits.max], np.arange(-30, 31)])
    for exponent, factor in zip(EXPONENTS, itertools.cycle([1.9, 1.0, 1.25, 1.51])):
        case = scaled(operator, dtype, float(np.float32(factor * 2.0**exponent)), values)
        same_or_both(oracle, case)


@pytest.mark.parametrize("exponent", [-60, -46, -38, -32, -28, -24, -20, -16, -12, -8, -4, 0])
def test_cells_of_every_scale(oracle: Oracle, exponent: int) -> None:
    """Products of gates and cells, from those that scaling leaves nothing of to those that saturate or wrap."""
    rng = np.random.default_rng(5)

    def four(shape: tuple[int, ...], dtype: type[np.integer] = np.int8) -> list[Given]:
        arrays = (rng.integers(-100, 100, shape).astype(dtype) for _ in range(4))
        return [Given(each, quantized(2.0**-9), is_constant=True) for each in arrays]

    hidden = quantized(2.0**-7)
    state = Given(np.zeros((1, 16), np.int8), hidden, is_variable=True)
    cell = Given(np.zeros((1, 16), np.int16), quantized(2.0**exponent), is_variable=True)
    x = Given(rng.integers(-128, 128, (1, 5, 6)).astype(np.int8), quantized(2.0**-5))
    inputs = [x, *four((16, 6)), *four((16, 16)), *[None] * 3, *four((16,), np.int32), None, None, state, cell]
    options = UnidirectionalSequenceLSTMOptions(fused_activation_function=ActivationFunctionType.TANH)
    y = Given(np.zeros((1, 5, 16), np.int8), hidden)
    assert_same(oracle, one_operator("UNIDIRECTIONAL_SEQUENCE_LSTM", [*inputs, *[None] * 4], y, options))


EVERY = np.arange(-128, 128, dtype=np.int8)
ENDS = (-128, -127, 0, 126, 127)
"""Zero points."""

UNARY: dict[str, Any] = {
    **dict.fromkeys(["RELU", "QUANTIZE", "LEAKY_RELU", "HARD_SWISH", "ABS", "ELU"]),
    "LEAKY_RELU": tflm.schema.LeakyReluOptions(alpha=-1.5),
}


@pytest.mark.parametrize("operator", UNARY)
def test_functions_saturate_at_any_zero_point(oracle: Oracle, operator: str) -> None:
    """Results reach beyond both ends of the output, and every element of it occurs."""
    for (zero_point, output_zero_point), ratio in zip(
        itertools.product(ENDS, (-128, 3, 127)), itertools.cycle([0.3, 5.0])
    ):
        x = Given(EVERY, quantized(0.03, zero_point))
        assert_same(
            oracle,
            one_operator(operator, [x], Given(EVERY, quantized(0.03 * ratio, output_zero_point)), UNARY[operator]),
        )


NONE, RELU, RELU_N1_TO_1, RELU6 = (
    ActivationFunctionType.NONE,
    ActivationFunctionType.RELU,
    ActivationFunctionType.RELU_N1_TO_1,
    ActivationFunctionType.RELU6,
)
BINARY = {"ADD": AddOptions, "SUB": SubOptions, "MUL": MulOptions, "DIV": DivOptions, "SQUARED_DIFFERENCE": None}


@pytest.mark.parametrize("operator", BINARY)
def test_pairs_saturate_at_any_zero_point(oracle: Oracle, operator: str) -> None:
    options = BINARY[operator]
    some = np.array([-128, -127, -90, -64, -3, -2, -1, 0, 1, 2, 3, 64, 100, 126, 127], np.int8)
    pairs = np.array(list(itertools.product(some, some)), np.int8).T.copy()
    corners = [*itertools.product((-128, 127), repeat=3), (5, -7, 3)]
    for zero_points, activation in zip(corners * 2, [NONE] * 9 + [RELU, RELU_N1_TO_1, RELU6] * 3):
        quantizations = [quantized(scale, of) for scale, of in zip((0.05, 0.02, 0.03), zero_points)]
        inputs = [pairs[0], np.where(pairs[1] == zero_points[1], np.int8(1), pairs[1])]
        given = [Given(x, q) for x, q in zip(inputs, quantizations)]
        case = one_operator(
            operator,
            given,
            Given(pairs[0], quantizations[2]),
            options(fused_activation_function=activation) if options else None,
        )
        assert_same(oracle, case)


@pytest.mark.parametrize("scale", [0.01, 1 / 127, 0.05, 1.0])
@pytest.mark.parametrize("activation", [NONE, RELU, RELU_N1_TO_1, RELU6])
def test_activations_end_where_the_type_does(activation: ActivationFunctionType, scale: float, oracle: Oracle) -> None:
    """The bounds -1, 0, 1 and 6, quantized, may lie outside of the output's type, below or above all of its values."""
    for zero_point, dtype in [(of, np.int8) for of in ENDS] + [(0, np.int16)]:
        limits = np.iinfo(dtype)
        real = {NONE: (-math.inf, math.inf), RELU: (0, math.inf), RELU_N1_TO_1: (-1, 1), RELU6: (0, 6)}[activation]
        ends = [
            end if math.isinf(end) else rounded(Fraction(float(np.float32(end) / np.float32(scale)))) for end in real
        ]
        low, high = max(limits.min, ends[0] + zero_point), min(limits.max, ends[1] + zero_point)
        values = np.linspace(limits.min, limits.max, 256).astype(dtype)
        x = Given(values.reshape(1, 16, -1, 1), quantized(scale, zero_point))
        pool = Pool2DOptions(
            padding=Padding.VALID,
            stride_w=1,
            stride_h=1,
            filter_width=1,
            filter_height=1,
            fused_activation_function=activation,
        )
        for operator in ("AVERAGE_POOL_2D", "MAX_POOL_2D"):
            answer = assert_same(oracle, one_operator(operator, [x], x, pool))
            assert answer.reshape(-1).tolist() == np.clip(values, low, high).tolist()
        one = Given(np.ones((1, 1, 1, 1), np.int8), quantized([1.0]), is_constant=True)
        convolution = Conv2DOptions(padding=Padding.VALID, stride_w=1, stride_h=1, fused_activation_function=activation)
        answer = assert_same(oracle, one_operator("CONV_2D", [x, one], x, convolution))
        assert answer.reshape(-1).tolist() == np.clip(values, low, high).tolist()


def test_activations_of_layers_reach_beyond_their_zero_points(oracle: Oracle) -> None:
    """RELU_N1_TO_1 leaves results below the zero point, which are rounded away from zero as those above."""
    x = Given(EVERY.reshape(1, 16, 16, 1), quantized(0.5))
    y = Given(x.values, quantized(1.0, 3))
    one = Given(np.ones((1, 1, 1, 1), np.int8), quantized([0.01]), is_constant=True)
    options: dict[str, Conv2DOptions | DepthwiseConv2DOptions] = {
        "CONV_2D": Conv2DOptions(padding=Padding.VALID, stride_w=1, stride_h=1),
        "DEPTHWISE_CONV_2D": DepthwiseConv2DOptions(padding=Padding.VALID, stride_w=1, stride_h=1, depth_multiplier=1),
    }
    for (operator, of), activation, scale in itertools.product(
        options.items(), (NONE, RELU, RELU_N1_TO_1), (1.0, 0.01, 0.005)
    ):
        of.fused_activation_function = activation
        assert_same(oracle, one_operator(operator, [x, one], y._replace(quantization=quantized(scale, 3)), of))


@pytest.mark.parametrize("with_bias", [None, np.int32, np.int64])
@pytest.mark.parametrize("of_bias", [TensorType.FLOAT32, TensorType.INT32, TensorType.INT64])
@pytest.mark.parametrize("operator", ["CONV_2D", "FULLY_CONNECTED"])
def test_sums_of_int16_are_rounded_by_the_width_of_the_bias(
    oracle: Oracle, operator: str, of_bias: TensorType, with_bias: type[np.integer] | None
) -> None:
    """Where there is no bias, the options say it; where they do not, sums have 64 bits, which are rounded once."""
    rng = np.random.default_rng(0)
    shape = (1, 8, 8, 4) if operator == "CONV_2D" else (64, 4)
    x = Given(rng.integers(-32768, 32767, shape, np.int16, endpoint=True), quantized(0.01))
    weights = rng.integers(-127, 128, (6, *[1] * (len(shape) - 2), 4), np.int8)
    given = Given(weights, quantized([0.0123]), is_constant=True)
    bias = (
        None
        if with_bias is None
        else Given(rng.integers(-999, 999, 6, with_bias), quantized(0.000123), is_constant=True)
    )
    kind: Any = Conv2DOptions if operator == "CONV_2D" else FullyConnectedOptions
    options = kind(quantized_bias_type=of_bias)
    if operator == "CONV_2D":
        options.padding, options.stride_w, options.stride_h = Padding.VALID, 1, 1
    y = Given(np.zeros((*shape[:-1], 6), np.int16), quantized(0.0317))
    same_or_both(oracle, one_operator(operator, [x, given, bias], y, options))


@pytest.mark.parametrize("operator", ["LOGISTIC", "TANH"])
@pytest.mark.parametrize("scale", [2.0**-15, 2.0**-12, 1 / 4096 * 1.3, 2.0**-9, 0.1])
def test_sigmoids_of_every_int16(oracle: Oracle, operator: str, scale: float) -> None:
    every = np.arange(-(2**15), 2**15).astype(np.int16).reshape(1, -1)
    case = one_operator(operator, [Given(every, quantized(scale))], Given(every, quantized(2.0**-15)))
    assert_same(oracle, case)


@pytest.mark.parametrize(("operator", "output"), [("LOGISTIC", (1 / 256, -128)), ("TANH", (1 / 128, 0))])
@pytest.mark.parametrize("scale", [2.0**-12, 0.01, 0.07, 0.5, 4.0])
def test_sigmoids_of_every_int8(oracle: Oracle, operator: str, output: tuple[float, int], scale: float) -> None:
    for zero_point in ENDS:
        x = Given(EVERY.reshape(1, -1), quantized(scale, zero_point))
        assert_same(oracle, one_operator(operator, [x], Given(x.values, quantized(*output))))


# --- What is refused ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("which", ["stride_w", "stride_h", "dilation_w_factor", "dilation_h_factor"])
@pytest.mark.parametrize("operator", ["CONV_2D", "DEPTHWISE_CONV_2D"])
def test_strides_and_dilations_have_16_bits(oracle: Oracle, operator: str, which: str) -> None:
    kind: Any = Conv2DOptions if operator == "CONV_2D" else DepthwiseConv2DOptions
    options = kind(padding=Padding.VALID, stride_w=1, stride_h=1)
    if operator == "DEPTHWISE_CONV_2D":
        options.depth_multiplier = 1
    x = Given(np.full((1, 1, 1, 1), 3, np.int8), quantized(1.0))
    one = Given(np.ones((1, 1, 1, 1), np.int8), quantized([1.0]), is_constant=True)
    setattr(options, which, 32767)
    assert assert_same(oracle, one_operator(operator, [x, one], x, options)).item() == 3
    for step in (32768, 65535, *([0] if which.startswith("stride") else [])):
        setattr(options, which, step)
        assert_refused(one_operator(operator, [x, one], x, options), "stride|dilation")


def svdf(bias_scale: float, time: type[np.integer] = np.int16) -> Case:
    """An SVDF of one filter, whose state and weights over time have scales with the product 1."""
    inputs = [
        Given(np.full((1, 1), 100, np.int8), quantized(0.5)),
        Given(np.full((1, 1), 2, np.int8), quantized(1.0), is_constant=True),
        Given(np.ones((1, 2), time), quantized(2.0), is_constant=True),
        Given(np.full(1, 4, np.int32), quantized(bias_scale), is_constant=True),
        Given(np.zeros((1, 2), np.int16), quantized(0.5), is_variable=True),
    ]
    return one_operator("SVDF", inputs, Given(np.zeros((1, 1), np.int8), quantized(4.0)), SVDFOptions(rank=1))


@pytest.mark.parametrize("off", [0.0, 2.0**-17, -(2.0**-17)])
def test_the_bias_of_an_svdf_has_the_scale_of_its_products(oracle: Oracle, off: float) -> None:
    assert assert_same(oracle, svdf(1 + off)).item() == (200 + 4) // 4


@pytest.mark.parametrize("off", [2.0**-16, -(2.0**-16), 1.0])
def test_another_scale_is_refused(off: float) -> None:
    assert_refused(svdf(1 + off), "must be equal")


@pytest.mark.parametrize("operator", ["AVERAGE_POOL_2D"])
@pytest.mark.parametrize(
    ("scale", "zero_point", "runs"),
    [(0.5, 3, True), (0.5 + 2e-7, 3, True), (0.50001, 3, False), (0.5, 4, False), (0.49999, 3, False)],
)
def test_pools_keep_the_quantization(operator: str, scale: float, zero_point: int, runs: bool) -> None:
    x = Given(np.full((1, 1, 1, 1), 9, np.int8), quantized(0.5, 3))
    y = x._replace(quantization=quantized(scale, zero_point))
    options = Pool2DOptions(padding=Padding.VALID, stride_w=1, stride_h=1, filter_width=1, filter_height=1)
    if runs:
        assert [answer.item() for answer in answers(one_operator(operator, [x], y, options))] == [9, 9]
    else:
        assert_refused(one_operator(operator, [x], y, options), "must be equal")


@pytest.mark.parametrize(
    ("operator", "shape", "scales", "dimension", "reason"),
    [
        ("CONV_2D", (3, 1, 1, 2), 1, 0, ""),
        ("CONV_2D", (3, 1, 1, 2), 3, 0, ""),
        ("CONV_2D", (3, 1, 1, 3), 3, 3, ""),
        ("CONV_2D", (3, 1, 1, 2), 2, 3, "3 channels need one each"),
        ("DEPTHWISE_CONV_2D", (1, 1, 1, 3), 1, 3, ""),
        ("DEPTHWISE_CONV_2D", (1, 1, 1, 3), 3, 3, ""),
        ("DEPTHWISE_CONV_2D", (1, 2, 1, 3), 2, 1, "3 channels need one each"),
        ("FULLY_CONNECTED", (3, 2), 1, 0, ""),
        ("FULLY_CONNECTED", (3, 2), 3, 0, ""),
        ("FULLY_CONNECTED", (3, 4), 4, 1, ""),
        ("FULLY_CONNECTED", (3, 2), 2, 1, "has 2 scales for 3 rows"),
    ],
)
def test_weights_have_a_scale_for_each_channel(
    oracle: Oracle, operator: str, shape: tuple[int, ...], scales: int, dimension: int, reason: str
) -> None:
    """The checks of a model look at the dimension that is named; a kernel, at the one that it needs."""
    options: Any = {
        "CONV_2D": Conv2DOptions(padding=Padding.VALID, stride_w=1, stride_h=1),
        "DEPTHWISE_CONV_2D": DepthwiseConv2DOptions(padding=Padding.VALID, stride_w=1, stride_h=1, depth_multiplier=3),
        "FULLY_CONNECTED": FullyConnectedOptions(),
    }[operator]
    x_shape = {
        "CONV_2D": (1, 1, 1, shape[-1]),
        "DEPTHWISE_CONV_2D": (1, *shape[1:3], 1),
        "FULLY_CONNECTED": (1, shape[-1]),
    }
    x = Given(np.full(x_shape[operator], 10, np.int8), quantized(1.0))
    quantization = quantized([0.5 + i for i in range(scales)], 0, dimension)
    weights = Given(np.ones(shape, np.int8), quantization, is_constant=True)
    y = Given(np.zeros((*[1] * (len(shape) - 1), 3), np.int8), quantized(1.0))
    case = one_operator(operator, [x, weights], y, options)
    if reason:
        assert_refused(case, reason)
    else:
        assert_same(oracle, case)


@pytest.mark.parametrize("shape", [(3,), (1, 3), (3, 3), (3, 1)])
@pytest.mark.parametrize("dimension", [0, 1, 3])
def test_scales_of_slices_go_with_their_dimension(shape: tuple[int, ...], dimension: int) -> None:
    """A bias may name the dimension of its weights: in one dimension there is no other than its own."""
    values = np.arange(math.prod(shape), dtype=np.int32).reshape(shape)
    builder = ModelBuilder()
    main = builder.subgraph()
    main.output(main.input("x", shape, TensorType.INT32, quantized([1.0, 10.0, 100.0], [1, 2, 3], dimension)))
    if shape != (3,) and (dimension >= len(shape) or shape[dimension] != 3):
        with pytest.raises(tflm.ModelError, match="dimension"):
            tflm.Model(builder.build())
        return
    interpreter = tflm.MicroInterpreter(tflm.Model(builder.build()), tflm.AllOpsResolver(), bytearray(4096))
    interpreter.allocate_tensors()
    tensor = interpreter.input(0)
    tensor.data = values
    factors = np.array([1.0, 10.0, 100.0]), np.array([1, 2, 3])
    if len(shape) == 2 and dimension == 0:
        factors = factors[0][:, np.newaxis], factors[1][:, np.newaxis]
    expected = (values - factors[1]) * factors[0]
    np.testing.assert_array_equal(tensor.dequantized(), expected)
    np.testing.assert_array_equal(tensor.quantized(expected), values)


# --- Detection ---------------------------------------------------------------------------------------------------


def detections(oracle: Oracle, boxes: Any, scores: Any, **changed: Any) -> list[list[float]]:
    """Box by box, from the highest score: class and score of what is detected, as both engines and TFLM have it."""
    scores = np.array([scores], np.float32)
    # An anchor of one unit around zero: an encoding of y, x, 0, 0 is a box of one unit around them.
    anchors = np.tile(np.array([0, 0, 1, 1], np.float32), (len(boxes), 1))
    options = detection_options(num_classes=scores.shape[2], y_scale=1.0, x_scale=1.0, **changed)
    model = detection_model(len(boxes), scores.shape[2], 4, anchors, options)
    encodings = np.array([[[*box, 0, 0] for box in boxes]], np.float32)
    expected = oracle.run(model, [[encodings, scores]])[0]
    count = int(expected[3].item())  # TFLM may leave the elements after these unchanged
    for delegates in ENGINES.values():
        given = run(model, [[encodings, scores]], delegates=delegates)[0]
        assert_close([of[:, :count] for of in given[:3]], [of[:, :count] for of in expected[:3]])
        assert given[3].item() == count
    return np.stack([expected[1][0], expected[2][0]], axis=1)[:count].tolist()


@pytest.mark.parametrize("is_regular", [True, False])
def test_a_score_at_the_threshold_is_detected(oracle: Oracle, is_regular: bool) -> None:
    below = float(np.nextafter(np.float32(0.5), np.float32(0)))
    found = detections(
        oracle,
        [(0, 0), (5, 5), (9, 9)],
        [[0.5, 0], [below, 0], [0.75, 0]],
        nms_score_threshold=0.5,
        use_regular_nms=is_regular,
    )
    assert found == [[0, 0.75], [0, 0.5]]


@pytest.mark.parametrize("is_regular", [True, False])
@pytest.mark.parametrize(("threshold", "kept"), [(1 / 3, 2), (0.33, 1), (0.34, 2), (1.0, 2)])
def test_an_overlap_at_the_threshold_is_kept(oracle: Oracle, is_regular: bool, threshold: float, kept: int) -> None:
    """Half of each of two boxes is a third of both together."""
    found = detections(
        oracle, [(0, 0), (0.5, 0)], [[0.9], [0.8]], nms_iou_threshold=threshold, use_regular_nms=is_regular
    )
    assert len(found) == kept


@pytest.mark.parametrize("is_regular", [True, False])
def test_boxes_side_by_side_do_not_overlap(oracle: Oracle, is_regular: bool) -> None:
    boxes = [(0, 0), (1, 0), (0, 1), (-1, 0), (0, -1)]
    scores = [[0.5]] * 5
    assert (
        len(
            detections(
                oracle, boxes, scores, nms_iou_threshold=1e-6, use_regular_nms=is_regular, detections_per_class=9
            )
        )
        == 5
    )


@pytest.mark.parametrize("is_regular", [True, False])
@pytest.mark.parametrize("most", [1, 2, 3, 4, 5])
def test_as_many_are_detected_as_there_may_be(oracle: Oracle, is_regular: bool, most: int) -> None:
    """The limits apply in total and for each class; of equal scores, the first ones are chosen."""
    boxes = [(3 * i, 0) for i in range(5)]
    scores = [[0.5, 0.75], [0.5, 0.75], [0.5, 0.5], [0.75, 0.5], [0.5, 0.5]]
    found = detections(oracle, boxes, scores, max_detections=most, detections_per_class=2, use_regular_nms=is_regular)
    assert len(found) == min(most, 4 if is_regular else 5)


# --- Conversions and comparisons ---------------------------------------------------------------------------------

TIES = [-3.5, -2.5, -1.5, -1.0, -0.5, -0.49999997, 0.0, 0.49999997, 0.5, 1.0, 1.5, 2.5, 3.5]


@pytest.mark.parametrize("dtype", [np.int8, np.int16, np.int32])
def test_floats_become_integers_up_to_the_ends_of_a_type(oracle: Oracle, dtype: type[np.integer]) -> None:
    """CAST cuts off, QUANTIZE rounds halves away from zero; both end where the type does."""
    limits = np.iinfo(dtype)
    at_ends = [end + of for end in (limits.min, limits.max) for of in (-1.5, -1, -0.5, 0, 0.5, 1, 1.5)]
    x = np.array([*TIES, *(at_ends if dtype != np.int32 else [-(2.0**31), 2.0**31 - 128])], np.float32)
    assert_same(oracle, one_operator("CAST", [Given(x)], Given(np.zeros(x.shape, dtype))))
    for zero_point in {np.int8: (0, 3), np.int16: (0,), np.int32: ()}[dtype]:
        output = Given(np.zeros(x.shape, dtype), quantized(1.0, zero_point))
        assert_same(oracle, one_operator("QUANTIZE", [Given(x)], output))


SMALL_CHANGES = *(3.0 + step for step in (-2e-7, 0, 3e-7)), *(6.0 + step for step in (-5e-7, 0, 5e-7))
CUT_OFF = -9.0
"""Where functions change, and below it, TFLM computes LOGISTIC in another way."""


@pytest.mark.parametrize(
    "operator",
    ["ROUND", "FLOOR", "CEIL", "RELU", "RELU6", "ABS", "NEG", "SQUARE", "LOGISTIC", "ELU", "HARD_SWISH", "TANH"],
)
def test_floats_at_ties_signs_and_where_functions_change(oracle: Oracle, operator: str) -> None:
    changes = [*SMALL_CHANGES, *(-each for each in SMALL_CHANGES), CUT_OFF - 1e-6, CUT_OFF, CUT_OFF + 1e-6]
    x = np.array([*TIES, *changes, 2.0**23 - 0.5, 2.0**23 + 1, -(2.0**23) + 0.5], np.float32)
    case = one_operator(operator, [Given(x)], Given(x))
    expected = assert_same(oracle, case)
    for answer in answers(case):
        np.testing.assert_allclose(answer, expected, rtol=1e-5, atol=0)


@pytest.mark.parametrize("begin", range(-5, 5))
@pytest.mark.parametrize("stride", [-1, 1, 2])
def test_an_element_alone_is_taken_forwards_from_inside(oracle: Oracle, begin: int, stride: int) -> None:
    """An index before the first element is that of the first."""
    x = np.array([3, 5, 7, 9], np.float32)
    bounds = [Given(np.array([each], np.int32), is_constant=True) for each in (begin, begin + 1, stride)]
    case = one_operator(
        "STRIDED_SLICE", [Given(x), *bounds], Given(np.zeros((), np.float32)), StridedSliceOptions(shrink_axis_mask=1)
    )
    if stride < 0 or begin == 4:
        assert_refused(case, "the index of a dimension that shrinks is out of range")
    else:
        assert assert_same(oracle, case) == x[max(begin, -4)]


@pytest.mark.parametrize("operator", ["EQUAL", "NOT_EQUAL", "GREATER", "GREATER_EQUAL", "LESS", "LESS_EQUAL"])
@pytest.mark.parametrize("type", ["float32", "int32", "int64", "int8"])
def test_comparisons_of_neighbours(oracle: Oracle, operator: str, type: str) -> None:
    """Bytes are compared by their real values: at twice the scale, every other one has an equal."""
    some = np.array([-128, -127, -2, -1, 0, 1, 2, 126, 127], np.int64)
    pairs = np.array(list(itertools.product(some, some))).T.copy().astype(type)
    scales = (quantized(0.25, 1), quantized(0.5, -2)) if type == "int8" else (None, None)
    x, y = (Given(of, scale) for of, scale in zip(pairs, scales))
    assert_same(oracle, one_operator(operator, [x, y], Given(np.zeros(len(pairs[0]), np.bool_))))


@pytest.mark.parametrize("operator", ["FLOOR_DIV", "FLOOR_MOD"])
def test_divisions_round_down(oracle: Oracle, operator: str) -> None:
    some = np.array([-7, -6, -3, -2, -1, 1, 2, 3, 6, 7], np.float32)
    pairs = np.array(list(itertools.product(some, some))).T.copy()
    x, y = map(Given, pairs)
    assert_same(oracle, one_operator(operator, [x, y], x))


@pytest.mark.parametrize("operator", ["ARG_MAX", "ARG_MIN"])
@pytest.mark.parametrize("dtype", [np.int8, np.float32])
def test_the_first_of_equal_elements_counts(oracle: Oracle, operator: str, dtype: Any) -> None:
    rows = np.array([[1, 3, 3, 1], [3, 1, 1, 3], [2, 2, 2, 2], [-1, -3, -3, -1], [0, 0, 1, -1]], dtype)
    axis = Given(np.array([1], np.int32), is_constant=True)
    x = Given(rows, quantized(1.0) if dtype == np.int8 else None)
    options = tflm.schema.ArgMaxOptions() if operator == "ARG_MAX" else tflm.schema.ArgMinOptions()
    options.output_type = TensorType.INT32
    assert_same(oracle, one_operator(operator, [x, axis], Given(np.zeros(5, np.int32)), options))


@pytest.mark.parametrize("count", [1, 255, 8191, 8192, 8193, 16384, 16385])
@pytest.mark.parametrize("operator", ["ADD", "SUB", "MUL"])
def test_functions_of_pairs_in_blocks(oracle: Oracle, operator: str, count: int) -> None:
    """Every element is worked out once, the last ones, too; a single one is spread over all."""
    rng = np.random.default_rng(count)
    a, b = (rng.integers(-32768, 32767, count, np.int16, endpoint=True).reshape(1, -1) for _ in range(2))
    x, y = Given(a, quantized(0.01)), Given(a, quantized(0.02))
    options = BINARY[operator]()
    assert_same(oracle, one_operator(operator, [x, Given(b, quantized(0.013))], y, options))
    assert_same(oracle, one_operator(operator, [x, Given(b[:, :1], quantized(0.013))], y, options))


@pytest.mark.parametrize(
    ("rows", "depth"), [(1, 8192), (2, 4096), (3, 4096), (8192, 1), (8193, 1), (4097, 2), (911, 9), (2, 8193)]
)
def test_rows_in_blocks(oracle: Oracle, rows: int, depth: int) -> None:
    x = np.random.default_rng(rows).integers(-128, 127, (rows, depth), np.int8, endpoint=True)
    assert_same(oracle, softmax(x, np.dtype(np.int16)))
    assert_same(oracle, softmax(x.astype(np.int16) * 100, np.dtype(np.int16), 0.001))
    y = Given(x, quantized(1 / 16, 127))
    assert_same(oracle, one_operator("LOG_SOFTMAX", [Given(x, quantized(0.1))], y))


@pytest.mark.parametrize("shape", [(1, 1), (7, 3), (8, 8), (17, 2), (33, 31), (64, 40), (5, 300), (128, 129)])
@pytest.mark.parametrize("dtype", [np.int8, np.int16])
@pytest.mark.parametrize("scale", [0.9, 0.01])
def test_layers_of_every_size_scale_their_sums(
    oracle: Oracle, shape: tuple[int, int], dtype: type[np.integer], scale: float
) -> None:
    """Whatever way a layer's size takes it: steps that are searched, float64, int64."""
    rows, depth = shape
    rng = np.random.default_rng(rows * 1000 + depth)
    limits = np.iinfo(dtype)
    zero_points = (-128, 127) if dtype == np.int8 else (0, 0)
    x = Given(rng.integers(limits.min, limits.max, (3, depth), dtype, endpoint=True), quantized(0.5, zero_points[0]))
    weights = Given(rng.integers(-128, 127, (rows, depth), np.int8, endpoint=True), quantized(scale), is_constant=True)
    bias_type = np.int32 if dtype == np.int8 else np.int64
    bias = Given(rng.integers(-(2**20), 2**20, rows).astype(bias_type), quantized(0.5 * scale), is_constant=True)
    for output_scale in (1e-6, 1.0, 700.0):
        y = Given(np.zeros((3, rows), dtype), quantized(output_scale, zero_points[1]))
        for inputs in ([x, weights], [x, weights, bias]):
            for activation in (NONE, RELU):
                options = FullyConnectedOptions(fused_activation_function=activation)
                same_or_both(oracle, one_operator("FULLY_CONNECTED", inputs, y, options))


@pytest.mark.parametrize("extreme", [(-(2**31), 2**31 - 1), (2**31 - 1, 2**31 - 1), (-(2**31), -(2**31))])
@pytest.mark.parametrize("rows", [2, 64])
def test_sums_with_a_bias_wrap_to_32_bits(oracle: Oracle, extreme: tuple[int, int], rows: int) -> None:
    x = Given(np.array([[127, 127], [-128, -128], [0, 1]], np.int8), quantized(1.0))
    weights = Given(
        np.tile(np.array([[127, 127], [-128, 3]], np.int8), (rows // 2, 1)), quantized(1.0), is_constant=True
    )
    bias = Given(np.array(extreme * (rows // 2), np.int32), quantized(1.0), is_constant=True)
    for zero_point, scale in itertools.product((-128, 0, 127), (1.0, 2.0**24, 2.0**25)):
        y = Given(np.zeros((3, rows), np.int8), quantized(scale, zero_point))
        assert_same(oracle, one_operator("FULLY_CONNECTED", [x, weights, bias], y, FullyConnectedOptions()))


# --- Layers with a memory ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("state_type", [np.int8, np.int16])
@pytest.mark.parametrize(("scale", "output_scale"), [(0.01, 0.05), (4.0, 1.0), (0.0001, 2.0), (2.0, 64.0)])
def test_the_state_of_an_svdf_saturates(
    oracle: Oracle, state_type: type[np.integer], scale: float, output_scale: float
) -> None:
    """Over several invokes, at zero points from one end of the type to the other."""
    rng = np.random.default_rng(0)
    for zero_point, state_zero_point in itertools.product((-128, 127), (-128, 0, 5) if state_type == np.int8 else (0,)):
        state_quantization = quantized(0.25, state_zero_point)
        inputs = [
            Given(np.zeros((2, 3), np.int8), quantized(0.5, zero_point)),
            Given(rng.integers(-128, 127, (4, 3), np.int8, endpoint=True), quantized(scale), is_constant=True),
            Given(rng.integers(-128, 127, (4, 3)).astype(state_type), quantized(0.5), is_constant=True),
            Given(np.array([1000, -1000], np.int32), quantized(0.125), is_constant=True),
            Given(np.zeros((2, 12), state_type), state_quantization, is_variable=True),
        ]
        output = Given(np.zeros((2, 2), np.int8), quantized(output_scale, zero_point))
        model, _ = one_operator("SVDF", inputs, output, SVDFOptions(rank=2))
        invocations = [[rng.integers(-128, 127, (2, 3), np.int8, endpoint=True)] for _ in range(4)]
        invocations += [[np.full((2, 3), end, np.int8)] for end in (-128, 127)]
        expected = oracle.run(model, invocations)
        for delegates in ENGINES.values():
            for ours, theirs in zip(run(model, invocations, delegates=delegates), expected):
                assert_close(ours, theirs)


# --- What the engine leaves to numpy -----------------------------------------------------------------------------


def is_left_to_numpy(case: Case) -> bool:
    """Whether the engine binds any kernel of numpy's for a model."""
    with mock.patch("tflm.delegates.compiled.delegate.bind_node", side_effect=AssertionError):
        try:
            run(case[0], [], arena_bytes=1 << 22, delegates=[Compiled()])
        except AssertionError:
            return True
    return False


@pytest.mark.parametrize("dtype", [np.int8, np.int16])
@pytest.mark.parametrize("operator", SCALED)
def test_ordinary_scales_are_compiled(operator: str, dtype: type[np.integer]) -> None:
    """These leave room in 32 bits for adding a zero point to results."""
    for exponent in (-20, -9, 0, 3):
        assert not is_left_to_numpy(scaled(operator, dtype, 2.0**exponent, np.arange(64)))


def test_long_sums_are_compiled_as_long_as_they_do_not_wrap() -> None:
    def of(shape: tuple[int, int]) -> Case:
        return average(np.zeros((1, *shape, 1), np.int16), shape)

    assert not is_left_to_numpy(of((255, 257)))
    assert is_left_to_numpy(of((256, 256)))


def fully_connected(rows: int, depth: int, weight: int, dtype: type[np.integer], output: tuple[float, int]) -> Case:
    """A layer whose weights are all one number, without a bias."""
    x = Given(np.full((2, depth), np.iinfo(dtype).min, dtype), quantized(1.0))
    weights = Given(np.full((rows, depth), weight, np.int8), quantized(1.0), is_constant=True)
    y = Given(np.zeros((2, rows), dtype), quantized(*output))
    return one_operator("FULLY_CONNECTED", [x, weights], y, FullyConnectedOptions())


def test_sums_of_int16_are_compiled_as_long_as_they_fit(oracle: Oracle) -> None:
    """Those that are rounded once are added in 32 bits, which 512 products of -128 and 2^15 leave."""
    for depth, weight, leaves in ((511, -128, False), (512, -128, True), (512, 127, False), (517, 127, True)):
        case = fully_connected(3, depth, weight, np.int16, (2.0**16, 0))
        assert is_left_to_numpy(case) is leaves
        assert_same(oracle, case)


@pytest.mark.parametrize(("zero_point", "leaves"), [(0, False), (6, False), (-6, False), (7, True), (-7, True)])
def test_results_are_compiled_as_long_as_a_zero_point_can_be_added(
    oracle: Oracle, zero_point: int, leaves: bool
) -> None:
    """The scales multiply to 2^-28 less than a power of two: the largest result is 2^31 less 8, and what is rounded."""
    step = 2.0**-23
    x = Given(np.full((2, 4), -128, np.int8), quantized(1 + 512 * step))
    weights = Given(np.full((2, 4), -128, np.int8), quantized(1 - 512 * step), is_constant=True)
    for exponent, reaches in ((14, False), (15, True), (20, True)):
        y = Given(np.zeros((2, 2), np.int8), quantized(2.0**-exponent, zero_point))
        case = one_operator("FULLY_CONNECTED", [x, weights], y, FullyConnectedOptions())
        assert is_left_to_numpy(case) is (leaves and reaches)
        assert_same(oracle, case)


# --- Slices from anywhere to anywhere -----------------------------------------------------------------------------


def test_slices_of_one_dimension_are_those_of_python(oracle: Oracle) -> None:
    """Slices from before the first element to after the last one, in both directions; many of them are empty."""
    builder = ModelBuilder()
    main = builder.subgraph()
    x = main.input("x", (3,), TensorType.INT8, quantized(0.5))
    values = np.array([5, 6, 7], np.int8)
    expected = []
    for first, last, stride in itertools.product(range(-4, 5), range(-4, 5), (1, -1, 2, -2)):
        expected.append(values[slice(first, last, stride)])
        numbers = [main.constant("", np.array([number], np.int32)) for number in (first, last, stride)]
        y = main.tensor("", expected[-1].shape, TensorType.INT8, quantized(0.5))
        main.operator(BuiltinOperator.STRIDED_SLICE, [x, *numbers], [y], StridedSliceOptions())
        main.output(y)
    case = builder.build(), [[values]]
    for answers in (*(run(*case, delegates=delegates) for delegates in ENGINES.values()), oracle.run(*case)):
        assert_close(answers[0], expected)
