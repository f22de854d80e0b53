"""Kernels where something changes: the first value that wraps or saturates, the last size that fits, a tie.

By numpy and by the compiled engine; beside TFLM, or beside integers of Python where TFLM can't be asked.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
import pytest
from differential import assert_close, run
from models import Arrays, Case
from oracle import Oracle, OracleError
from strategies.custom import detection_model, detection_options

import tflm
from tflm.delegates import Compiled
from tflm.kernels.reference.reduce import Rescaling
from tflm.schema import (
    ActivationFunctionType,
    AddOptions,
    BuiltinOperator,
    Conv2DOptions,
    DepthwiseConv2DOptions,
    DivOptions,
    FullyConnectedOptions,
    ModelBuilder,
    MulOptions,
    Padding,
    Pool2DOptions,
    QuantizationParameters,
    ReducerOptions,
    SoftmaxOptions,
    SubOptions,
    SVDFOptions,
    TensorType,
    quantized,
)
from tflm.schema.element_types import TENSOR_TYPES

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
    """The output of the first invoke by numpy, and by the engine."""
    return [run(*case, arena_bytes=1 << 22, delegates=delegates)[0][0] for delegates in ENGINES.values()]


def assert_same(oracle: Oracle, case: Case) -> np.ndarray[Any, Any]:
    """Both engines give what TFLM gives, which is returned."""
    expected = oracle.run(*case)[0]
    for answer in answers(case):
        assert_close([answer], expected)
    return expected[0]


def assert_refused(case: Case, reason: str) -> None:
    """Both engines refuse the model, or an invoke of it."""
    for delegates in ENGINES.values():
        with pytest.raises(tflm.OperatorError, match=reason):
            run(*case, arena_bytes=1 << 22, delegates=delegates)


def rounded(value: Fraction) -> int:
    """To the nearest integer, halves away from zero."""
    whole = math.floor(abs(value) + Fraction(1, 2))
    return whole if value >= 0 else -whole


def wrapped(value: int) -> int:
    """The low 32 bits, as a signed number."""
    return (value + 2**31) % 2**32 - 2**31


# --- Sums that are long ------------------------------------------------------------------------------------------


def average(x: np.ndarray[Any, Any], window: tuple[int, int]) -> Case:
    """AVERAGE_POOL_2D of an image of one channel, with windows beside each other."""
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
    ties = [end * count + sign * of for end in (limits.min, limits.max, 0, 1) for sign in (-1, 1) for of in
            (count // 2 - 1, count // 2, count // 2 + 1)]
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


@pytest.mark.parametrize("divisor", [1, 2, 3, 4, 7, 8, 255, 256, (1 << 31) + 1, (1 << 32) - 1, 1 << 32, 3 << 32, 5 << 33])
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


@pytest.mark.parametrize("depth", [1, 2, 3, 255, 256, 257, 2048, 4095, 4096, 4097, 5000, 8191, 8193, 9000, 12288, 20000])
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


@pytest.mark.parametrize("depth", [1, 2, 3, 4096, 16384, 32767, 32768, 65535, 65536, 65537])
def test_softmax_of_long_rows_of_int16(oracle: Oracle, depth: int) -> None:
    x = np.zeros((1, depth), np.int16)
    x[:, : depth // 3] = -50
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
