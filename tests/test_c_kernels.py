"""Kernels for small processors: the integers of TFLM's definition, in place wherever they say so, in C as with LLVM."""

from __future__ import annotations

import itertools
import math
import shutil
import struct
import subprocess
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pytest
from c_library import in_c
from checked_program import SANITIZERS
from differential import assert_close
from differential import run as run_model
from outcomes import count
from sampling import drawn, some
from test_c_source import built, encoded, program, results_of_c
from test_c_source import check as check_results

import tflm
from tflm.c.binding import BindSteps, BoundModel, bind_model, bind_plain, work_arrays
from tflm.c.kernels import (
    KERNELS,
    SmallKernel,
    broadcasts,
    depthwise_convolution,
    flat_convolution,
    recurrence,
    windows_in_place,
)
from tflm.c.kernels.convolution import Layer
from tflm.c.kernels.dense import bind_vectors, bind_wide_vectors
from tflm.c.kernels.part import NEVER, StepOrLoop, first_places, no_kernels
from tflm.c.kernels.recurrence import lstm_overlap, overlap_of_parts
from tflm.c.kernels.signal import square_root
from tflm.c.kernels.wide_windows import multiply_wide
from tflm.c.row_binding import bind_lean, bind_small
from tflm.compiler.language import Kernel, Step
from tflm.delegates.compiled import batch_matmul, pooling, recurrent, unary
from tflm.delegates.compiled.arithmetic import linear_constants
from tflm.delegates.compiled.bindings import FAMILIES, bind_steps
from tflm.delegates.compiled.requantization import (
    CLAMPS,
    CONSTANTS,
    CORRECTED,
    ROUNDINGS,
    STEPPED,
    Limits,
    Requantizer,
    exact_requantizer,
    requantizer,
)
from tflm.errors import TflmError
from tflm.graph import Graph
from tflm.kernels.arithmetic.fixed_point import QuantizedMultiplier, WideQuantizedMultiplier
from tflm.kernels.arithmetic.requantization import OutputStage, Requantization
from tflm.kernels.layers.geometry import Axis
from tflm.kernels.node import KernelContext, Node
from tflm.kernels.overlap import FAR, OperatorFacts, TensorFacts
from tflm.kernels.reference.arithmetic import Addend, Sum
from tflm.kernels.reference.unidirectional_sequence_lstm import LstmTensors
from tflm.kernels.registration import Registration
from tflm.schema.enums import BuiltinOperator, Padding, TensorType
from tflm.schema.model import Model
from tflm.schema.options import TransposeConvOptions, UnidirectionalSequenceLSTMOptions
from tflm.testing.drawing import OperatorCase

Array = npt.NDArray[Any]

CASES = 60
SIZES = [1, 1, 2, 3, 4, 5, 7, 8, 9, 11]
"""Of images: mostly about as large as windows, and as a kernel's four windows at a time."""

EDGES = list(itertools.product(range(1, 6), (1, 2), (0, 1)))
"""Size, stride and padding of every way in which three taps along a dimension leave a small image."""

TYPES: dict[np.dtype[Any], TensorType] = {np.dtype(np.int8): TensorType.INT8, np.dtype(np.int16): TensorType.INT16}


class Case(NamedTuple):
    """A layer with its windows.

    Attributes:
        x, y: (1, rows, columns, channels).
        expected: of y.
        by_channel: whether each channel of the input has weights of its own.
        is_lean: whether windows are read in place.
        backwards: whether the last window is computed first.
    """

    layer: Layer
    rows: Axis
    columns: Axis
    x: Array
    y: Array
    expected: Array
    by_channel: bool
    is_lean: bool = False
    backwards: bool = False

    def bind(self, x: Array, y: Array) -> list[Step] | None:
        """The steps for these tensors."""
        by_channel = partial(depthwise_convolution.bind_each, backwards=self.backwards)
        bind: Any = by_channel if self.by_channel else flat_convolution.bind_windows
        bind = windows_in_place.bind_layer if self.is_lean else bind
        return bind(self.layer, self.rows, self.columns, x, y)

    def facts(self) -> OperatorFacts:
        """Return the planner's facts about the layer."""
        weights = (1, self.rows.taps, self.columns.taps, self.x.shape[3])
        channels = self.y.shape[3]
        dims = (*weights[:3], channels) if self.by_channel else (channels, *weights[1:])
        type = TYPES[self.x.dtype]
        inputs = [TensorFacts(type, self.x.shape), TensorFacts(TensorType.INT8, dims)]
        return OperatorFacts(inputs, [TensorFacts(type, self.y.shape)], None)


def quantization(rng: np.random.Generator, dtype: np.dtype[Any], channels: int) -> tuple[Any, OutputStage]:
    """The multiplier of each channel, and the output stage."""
    is_byte = dtype == np.int8
    kind = QuantizedMultiplier if is_byte else WideQuantizedMultiplier
    smallest, largest = (-5, -1) if rng.random() < 0.7 or not is_byte else (-1, 0.2)
    reals = 10 ** rng.uniform(smallest, largest, channels) * (1 if is_byte else 0.01)
    multipliers = [kind.of(float(real)) for real in reals]
    significands, shifts = ([getattr(each, name) for each in multipliers] for name in ("significand", "shift"))
    info = np.iinfo(dtype)
    zero_point = int(rng.integers(-128, 128)) if is_byte else 0
    # Limits without an activation, and with RELU6.
    limits = (int(info.min), int(info.max)) if rng.random() < 0.5 else (zero_point, min(zero_point + 90, int(info.max)))
    multiplier = kind(np.array(significands, np.int64), np.array(shifts, np.int64))
    return multiplier, OutputStage(zero_point, *limits)


def axis(rng: np.random.Generator, size: int, taps: int) -> Axis:
    """Windows that may leave the image at both ends."""
    stride, before = int(rng.integers(1, 4)), int(rng.integers(0, taps))
    dilation = int(rng.choice([1, 1, 1, 1, 1, 1, 2, 3]))
    return axis_of(size, taps, stride, before, dilation)


def axis_of(size: int, taps: int, stride: int, before: int, dilation: int = 1) -> Axis:
    """Return windows that leave the image at its end by about as much as at its start."""
    return Axis(size, taps, max((size + before - 1) // stride, 1), stride, dilation, before)


def random_case(rng: np.random.Generator, *, by_channel: bool) -> Case:
    """A random layer."""
    dtype = list(TYPES)[int(rng.integers(2))]
    depth = int(rng.integers(2 if by_channel else 1, 10))  # one channel that is seen by all is an ordinary convolution
    taps = (3, 3) if rng.random() < 0.5 else tuple(int(n) for n in rng.integers(1, 10, 2))
    rows, columns = (axis(rng, int(rng.choice(SIZES)), count) for count in taps)
    if rng.random() < 0.2:  # each element alone
        taps = (1, 1)
        rows, columns = (Axis(each.size, 1, each.size) for each in (rows, columns))
    channels = depth * int(rng.choice([1, 1, 2, 3, 4, 8])) if by_channel else int(rng.integers(1, 10))
    return case_of(rng, dtype, rows, columns, depth, channels, by_channel=by_channel)


def edge_cases(rng: np.random.Generator, *, by_channel: bool) -> Iterator[Case]:
    """Layers of three by three taps on images of every small height and width, with unequal strides."""
    for columns, rows in zip(EDGES, rng.permutation(EDGES)):
        axes = [axis_of(size, 3, stride, before) for size, stride, before in (rows.tolist(), columns)]
        depth = int(rng.choice([2, 3, 8, 17])) if by_channel else int(rng.integers(2, 4))
        channels = depth if by_channel else int(rng.integers(1, 4))
        yield case_of(rng, np.dtype(np.int8), axes[0], axes[1], depth, channels, by_channel=by_channel)


def extreme_cases(rng: np.random.Generator) -> Iterator[Case]:
    """Layers with the largest sums of products, of up to more than 256 at a time, or more than 32 bits have."""
    axes = Axis(1, 1, 1), Axis(9, 1, 9)
    for depth, channels, sign in itertools.product((2, 7, 256, 257), (1, 2), (-1, 1)):
        extremes = [(-128, -128), (-128, -127)][channels - 1], (-128, sign * 127)
        yield case_of(rng, np.dtype(np.int8), *axes, depth, channels, by_channel=False, extremes=extremes)
    for depth, highest in itertools.product((510, 511, 513, 1021), (-32768, 32767)):
        extremes = (-128, -128), (-32768, highest)
        yield case_of(rng, np.dtype(np.int16), *axes, depth, 3, by_channel=False, extremes=extremes)


def case_of(
    rng: np.random.Generator,
    dtype: np.dtype[Any],
    rows: Axis,
    columns: Axis,
    depth: int,
    channels: int,
    *,
    by_channel: bool,
    extremes: Sequence[tuple[int, int]] = (),
) -> Case:
    """Return a layer with these windows, with random numbers, or with alternating extreme weights and elements."""
    info = np.iinfo(dtype)
    x = rng.integers(info.min, int(info.max) + 1, (1, rows.size, columns.size, depth)).astype(dtype)
    seen = 1 if by_channel else depth
    weights = rng.integers(-127, 128, (1, channels, rows.taps, columns.taps, seen))
    for array, values in zip((weights, x), extremes):
        array[...] = np.resize(values, array.shape)
        array[:, -1:] = rng.choice(values, array[:, -1:].shape)
    multiplier, output = quantization(rng, dtype, channels)
    zero_point = int(rng.integers(-128, 128)) if dtype == np.int8 else 0
    bias = rng.integers(-3000, 3000, channels)
    layer = Layer(weights.astype(np.int8), bias, multiplier, output, zero_point)
    sums = window_sums(x[0], weights[0], zero_point, rows, columns, by_channel=by_channel) + bias
    y = np.zeros((1, rows.windows, columns.windows, channels), dtype)
    return Case(layer, rows, columns, x, y, output.clamp(multiplier(sums))[np.newaxis], by_channel)


def window_sums(
    x: Array, weights: Array, zero_point: int, rows: Axis, columns: Axis, *, by_channel: bool
) -> npt.NDArray[np.int64]:
    """The products of each window, added up."""
    sums = np.zeros((rows.windows, columns.windows, len(weights)), np.int64)
    copies = len(weights) // x.shape[2]
    for i, j in np.ndindex(rows.windows, columns.windows):
        for a, b in np.ndindex(rows.taps, columns.taps):
            row = i * rows.stride + a * rows.dilation - rows.before
            column = j * columns.stride + b * columns.dilation - columns.before
            if 0 <= row < rows.size and 0 <= column < columns.size:
                element = x[row, column].astype(np.int64) - zero_point
                if by_channel:
                    sums[i, j] += np.repeat(element, copies) * weights[:, a, b, 0]
                else:
                    sums[i, j] += weights[:, a, b].astype(np.int64) @ element
    return sums


LAYERS = "CONV_2D", "DEPTHWISE_CONV_2D"


@cache
def cases_of(operator: str) -> list[Case]:
    """Random layers of an operator, and those with the smallest images and the largest sums."""
    by_channel = operator == "DEPTHWISE_CONV_2D"
    rng = np.random.default_rng([30, by_channel])
    cases = [random_case(rng, by_channel=by_channel) for _ in range(CASES)]
    cases += edge_cases(rng, by_channel=by_channel)
    if by_channel:
        return [*cases, *backwards(cases)]
    one_channel = [case for case in cases[CASES:] if case.y.shape[3] == 1]
    lean = [case._replace(is_lean=True, y=case.y.copy()) for case in (*cases[: CASES // 2], *one_channel)]
    return [*cases, *extreme_cases(rng), *lean]


def backwards(cases: Sequence[Case]) -> list[Case]:
    """The cases whose windows can be computed from the last one on."""
    return [
        case._replace(backwards=True, y=case.y.copy())
        for case in cases
        if depthwise_convolution.overlap_backwards(case.facts(), (case.rows, case.columns))
    ]


def distances_of(case: Case) -> Iterator[int]:
    """The smallest distances at which its output may begin over its input, and the largest if there is one."""
    kernel = KERNELS["DEPTHWISE_CONV_2D" if case.by_channel else "CONV_2D"]
    overlap = (kernel.lean if case.is_lean and kernel.lean else kernel).overlap
    overlap = kernel.overlap_backwards if case.backwards else overlap
    assert overlap is not None
    allowed = overlap(case.facts(), (case.rows, case.columns), 0)
    near = [*allowed[:2], *allowed[-2:]] if len(allowed[:3]) == 3 else list(allowed)
    distances = {d for d in near if -case.x.nbytes < d < case.y.nbytes}
    distances |= {0} if 0 in allowed and allowed.stop == FAR and allowed.start == -FAR else set()
    return (distance for distance in distances if distance % case.x.itemsize == 0)


def test_windows_from_the_end_of_an_image_on_read_nothing() -> None:
    found = first_places(Axis(4, 2, windows=4, stride=2), Axis(2, 1, windows=2))
    assert found.tolist() == [0, 1, 4, 5, *[NEVER] * 4]


@pytest.mark.parametrize("before", [-1, 0, 1])
@pytest.mark.parametrize("size", [4, 5, 6, 7])
def test_windows_that_are_vectors_lie_in_the_image(size: int, before: int) -> None:
    """Two windows of three rows, two rows apart."""
    rows = Axis(size, 3, windows=2, stride=2, before=before)
    assert flat_convolution.are_vectors(rows, axis_of(4, 4, 4, 0), 1) == (before <= 0 and 5 - before <= size)


@pytest.mark.parametrize("operator", LAYERS)
def test_outputs_can_overlap_inputs_as_declared(operator: str) -> None:
    bound = []
    for case in cases_of(operator):
        for distance in distances_of(case):
            memory = np.zeros(max(case.y.nbytes, distance + case.x.nbytes) + max(-distance, 0), np.uint8)
            x_start, y_start = max(distance, 0), max(-distance, 0)
            x = memory[x_start : x_start + case.x.nbytes].view(case.x.dtype).reshape(case.x.shape)
            y = memory[y_start : y_start + case.y.nbytes].view(case.y.dtype).reshape(case.y.shape)
            x[...] = case.x
            bound += [(case, distance, y, steps) for steps in [case.bind(x, y)] if steps is not None]
    run = in_c(step for *_, steps in bound for step in steps)
    for case, distance, y, steps in bound:
        for step in steps:
            run(step)
        np.testing.assert_array_equal(y, case.expected, f"{distance} {case.rows} {case.columns}")
    assert len(bound) > 5


class DenseCase(NamedTuple):
    """Vectors times the weights of a layer of one window."""

    steps: list[Step]
    y: Array
    expected: Array


def dense_case(rng: np.random.Generator) -> DenseCase:
    """Random vectors of 8 or 16 bits, also those with the largest sums."""
    is_byte = rng.random() < 0.7
    dtype: np.dtype[Any] = np.dtype("int8" if is_byte else "int16")
    lowest = -128 if is_byte else -32768
    count, channels = int(rng.integers(1, 3)), int(rng.integers(1, 14))
    depth = int(rng.choice([1, 2, 3, 4, 7, 15, 16, 17, 20, 64, 255, 256, 257, 700]))
    zero_point = int(rng.integers(-20, 20)) if rng.random() < 0.3 and is_byte else 0
    stored = rng.integers(-128, 128, (channels, depth))
    x = rng.integers(lowest, -lowest, (count, depth)).astype(dtype)
    if rng.random() < 0.3:
        stored[...], x[...] = rng.choice([-128, 127]), lowest
    weights = (stored - zero_point).astype(np.int16)
    multiplier, output = quantization(rng, dtype, channels)
    bias, x_zero_point = rng.integers(-3000, 3000, channels), int(rng.integers(-128, 128)) if is_byte else 0
    layer = Layer(weights[np.newaxis, :, np.newaxis, np.newaxis], bias, multiplier, output, x_zero_point)
    sums = (x.astype(np.int64) - x_zero_point) @ weights.T.astype(np.int64) + bias
    y = np.zeros((count, channels), dtype)
    steps = (bind_vectors if is_byte else bind_wide_vectors)(layer, x, y)
    assert steps is not None
    return DenseCase(steps, y, output.clamp(multiplier(sums)))


@pytest.fixture(scope="module")
def dense_cases() -> list[DenseCase]:
    rng = np.random.default_rng(31)
    return [dense_case(rng) for _ in range(CASES)]


def test_vectors_have_the_sums_of_their_products(dense_cases: list[DenseCase]) -> None:
    run = in_c(step for case in dense_cases for step in case.steps)
    for case in dense_cases:
        case.y[...] = 0
        for step in case.steps:
            run(step)
        np.testing.assert_array_equal(case.y, case.expected)


@pytest.mark.parametrize("gap", [0, 1], ids=["weights of 8 bits", "weights less a zero point"])
def test_products_of_16_bit_lstms_are_exact(gap: int) -> None:
    """Also those with the largest sums and biases; weights that no longer fit 8 bits take another kernel."""
    multiplier = WideQuantizedMultiplier(np.full(6, 3 << 29, np.int64), np.full(6, -20, np.int64))
    weights = np.full((6, 700), -128 - gap, np.int16)
    weights[3:] = 127
    x = np.array([[-32768] * 700, [32767] * 700], np.int16)
    bias = np.array([-(1 << 31) + 1, 0, (1 << 31) - 1] * 2, np.int32)
    y = np.zeros((2, 6), np.int16)
    steps = recurrence.matrix(x, weights, bias, 0, multiplier, OutputStage.whole(0, np.int16), y)
    assert steps is not None
    assert [step.kernel.function is multiply_wide.function for step in steps] == [not gap]
    run = in_c(steps)
    for step in steps:
        run(step)
    sums = x.astype(np.int64) @ weights.T.astype(np.int64) + bias
    np.testing.assert_array_equal(y, multiplier(sums).clip(-32768, 32767))
    assert len(np.unique(y)) > 4


@pytest.mark.parametrize("bind", [requantizer, exact_requantizer])
def test_sums_are_rounded_as_in_the_reference(bind: Callable[..., Requantizer | None]) -> None:
    """Every rounding that a multiplier can have, with clamps, in particular near ties and steps."""
    rng = np.random.default_rng(32)
    seen = set()
    for _ in range(400):
        highest = int(rng.integers(-20, 4))
        shift = rng.integers(highest - rng.integers(1, 12), highest + 1, 3)
        significand = np.full(3, 1 << 30) if rng.random() < 0.2 else rng.integers(1 << 30, 1 << 31, 3)
        multiplier = QuantizedMultiplier(significand.astype(np.int64), shift.astype(np.int64))
        zero_point = int(rng.integers(-128, 128))
        output = OutputStage(zero_point, *((-128, 127) if rng.random() < 0.5 else (zero_point, 127)))
        limit = 1 << int(rng.integers(8, 31))
        # Sums of any size, and those about some steps of the output.
        steps = rng.permutation(np.arange(-128, 128))[:60, np.newaxis]
        reals = (steps - zero_point - 0.5) * 2.0 ** (31 - shift) / significand
        near = np.clip(np.rint(reals), -limit, limit).astype(np.int64)
        totals = np.concatenate([rng.integers(-limit, limit + 1, (20, 3)), *(near + each for each in (-1, 0, 1))])
        totals = np.clip(totals, -limit, limit)
        found = bind(multiplier, output, np.zeros(3, np.int64), np.full(3, limit), np.dtype(np.int8))
        if found is None:
            continue
        seen.add(found.rounding)
        rounding, clamp = ROUNDINGS[found.rounding], CLAMPS[found.clamp]
        limits = Limits(found.activation_min, found.activation_max)
        bias, *constants = found.table.reshape(3, CONSTANTS).astype(np.int64).T
        for total, expected in zip(totals, output.clamp(multiplier(totals)).tolist()):
            values = [int(rounding(*each)) for each in zip(total + bias, *constants)]
            assert [clamp(value, limits) for value in values] == expected, found.rounding
    stepping = {f"stepped_{shift}" for shift in STEPPED} | {f"corrected_{shift}" for shift in CORRECTED}
    assert seen >= (
        {"stepped_4", "corrected_12"} if bind is requantizer else {*ROUNDINGS} - stepping - {"once", "wide"}
    )


@pytest.mark.parametrize("is_centred", [False, True], ids=["elements", "elements less their zero point"])
def test_a_layer_rounds_all_of_its_sums_as_the_reference(is_centred: bool) -> None:
    """The lowest and the highest sum of each channel, and some between, wherever biases and the zero point put them."""
    rng = np.random.default_rng(33)
    for _ in range(60):
        channels, taps = 5, int(rng.integers(1, 9))
        lowest = int(rng.choice([-128, -40, 0]))
        weights = rng.integers(lowest, 128, (channels, taps))
        zero_point, reach = int(rng.choice([-128, -5, 0, 105, 127])), int(abs(weights).sum(axis=1).max()) * 128
        bias = rng.integers(-4 * reach - 1, 4 * reach + 2, channels)
        shift = np.log2(float(rng.choice([1, 40, 400])) / (reach + 1)).round().astype(np.int64)
        multiplier = QuantizedMultiplier(rng.integers(1 << 30, 1 << 31, channels), np.full(channels, shift))
        output = OutputStage(int(rng.integers(-128, 128)), -128, 127)
        layer = Layer(weights[np.newaxis, :, np.newaxis, np.newaxis], bias, multiplier, output, zero_point)
        ends = np.where(weights > 0, 127, -128)
        x = np.concatenate([ends, -1 - ends, rng.integers(-128, 128, (20, taps)), np.full((1, taps), zero_point)])
        products = (x - zero_point if is_centred else x) @ weights.T
        make = layer.centred_requantizer if is_centred else layer.requantizer
        found = make(np.dtype(np.int8), np.dtype(np.int8))
        assert found is not None
        rounding, clamp = ROUNDINGS[found.rounding], CLAMPS[found.clamp]
        limits = Limits(found.activation_min, found.activation_max)
        addend, *constants = found.table.reshape(channels, CONSTANTS).astype(np.int64).T
        expected = output.clamp(multiplier((x - zero_point) @ weights.T + bias))
        for sums, outputs in zip(products + addend, expected.tolist()):
            values = [int(rounding(*each)) for each in zip(sums, *constants)]
            assert [clamp(value, limits) for value in values] == outputs


@pytest.mark.parametrize("exponents", [(0, 0, 0), (2, 0, 5)])
def test_16_bit_sums_with_large_multipliers_are_rounded_in_32_bits(exponents: tuple[int, ...]) -> None:
    multiplier = WideQuantizedMultiplier(np.array([1 << 30, 1717986944, (1 << 31) - 1], np.int64), np.array(exponents))
    output = OutputStage(0, -32768, 32767)
    totals = np.arange(-40000, 40000, 7)[:, np.newaxis] * np.ones(3, np.int64)
    found = exact_requantizer(multiplier, output, np.zeros(3, np.int64), np.full(3, 40000), np.dtype(np.int16))
    assert found is not None
    assert found.sums == "int32"
    rounding, clamp = ROUNDINGS[found.rounding], CLAMPS[found.clamp]
    constants = found.table.reshape(3, CONSTANTS).astype(np.int64).tolist()
    values = [
        [clamp(int(rounding(total, *rest)), Limits(-32768, 32767)) for _, *rest in constants] for total in totals[:, 0]
    ]
    np.testing.assert_array_equal(values, output.clamp(multiplier(totals)))


@pytest.mark.parametrize("stride", [3, 4])
def test_outputs_that_no_tap_reaches_are_copied(stride: int) -> None:
    """With one tap, the others of every three or four rows and columns."""
    builder = tflm.ModelBuilder()
    graph = builder.subgraph()
    scale = tflm.quantized(0.05, 3)
    dims = (1, 2 * stride, 3 * stride, 2)
    shape = graph.constant("shape", np.array(dims, np.int32))
    weights = graph.constant("weights", np.array([[50, -3], [7, 90]], np.int8).reshape(2, 1, 1, 2), quantization=scale)
    x = graph.input("x", (1, 2, 3, 2), TensorType.INT8, quantization=scale)
    y = graph.tensor("y", dims, TensorType.INT8, quantization=scale)
    options = TransposeConvOptions(padding=Padding.SAME, stride_h=stride, stride_w=stride)
    graph.operator(BuiltinOperator.TRANSPOSE_CONV, [shape, weights, x], [y], options)
    graph.output(y)
    program = tflm.compile_model(tflm.Model(builder.build()), "m").program
    families = [call.kernel.function.__module__.rpartition(".")[2] for call in program.calls()]
    assert sorted(families) == ["movement"] * (stride * stride - 1) + ["windows_in_place"]


def test_linear_sums_neither_wrap_nor_differ() -> None:
    """For all pairs of elements, with scales of inputs that are up to 4000 times the output's, and beyond its reach."""
    rng = np.random.default_rng(45)
    elements = np.arange(-128, 128)
    found = 0
    for _ in range(16):
        ratios = np.exp2(rng.uniform(-2, 12, 2))
        zero_points = rng.choice([-128, -1, 0, 127], 3).tolist()
        largest = 2 * ratios.max()
        first, second = (
            Addend(zero, 20, QuantizedMultiplier.of(each / largest)) for zero, each in zip(zero_points[:2], ratios)
        )
        output = OutputStage.whole(zero_points[2], np.int8)
        combine = np.add if rng.random() < 0.5 else np.subtract
        sums = Sum(first, second, combine, Requantization(QuantizedMultiplier.of(largest / (1 << 20)), output))
        constants = linear_constants(sums)
        if constants is None:
            continue
        found += 1
        factor1, factor2, addend, shift = constants
        products = elements[:, np.newaxis] * factor1 + elements * factor2
        totals = products + addend
        for each in (products, totals, totals + (128 << shift)):
            np.testing.assert_array_equal(each, each.astype(np.int32))
        expected = sums(elements[:, np.newaxis], elements[np.newaxis])
        np.testing.assert_array_equal((totals >> shift).clip(-128, 127), expected)
    assert found > 4


START = """\
#include <stdint.h>
extern void _start(void);
static void start(void)
{
    *(volatile uint32_t *)0xE000ED88 |= 0xF << 20;
    _start();
}
__attribute__((section(".vectors"), used)) static void (*const vectors[2])(void) = {(void (*)(void))0x20080000, start};
"""
"""What a Cortex-M in QEMU begins with."""

MACHINES = {"cortex-m55": ["mps3-an547", "0x40000", "-mfloat-abi=hard"]}
"""Of processors that the usual machine does not have: where data are, and the option that compilers need for Helium."""


def command_on(processor: str, source: str, folder: Path) -> list[str | Path]:
    """Return the command that runs a program with "calls" and "results", on an emulated Cortex-M or with this machine's
    sanitizers."""
    if not processor.startswith("cortex"):
        flags = [*processor.split(), *SANITIZERS]
        return [built(source, folder, *flags), "calls", "results"]
    processor, *options = processor.split()
    if None in [shutil.which(tool) for tool in ("arm-none-eabi-gcc", "qemu-system-arm")]:
        pytest.skip("needs arm-none-eabi-gcc and qemu-system-arm")
    (folder / "kernels.c").write_text(source + START)
    machine, data, *floats = MACHINES.get(processor, ["mps2-an386", "0x20000000"])
    places = f"-Wl,--section-start=.vectors=0,-Ttext-segment=0x10000,-Tdata={data}"
    command = ["arm-none-eabi-gcc", f"-mcpu={processor}", "-mthumb", *floats, "-std=gnu99", "-w", "kernels.c"]
    subprocess.run([*command, *options, "--specs=rdimon.specs", "-lm", places, "-o", "kernels"], cwd=folder, check=True)
    host = "enable=on,target=native,arg=kernels,arg=calls,arg=results"
    return ["qemu-system-arm", "-M", machine, "-nographic", "-semihosting-config", host, "-kernel", "kernels"]


@cache
def steps_of(operator: str) -> list[tuple[Array, Step]]:
    """Return the results and the step of each layer of an operator that kernels take."""
    cases = cases_of(operator)
    found = [(case.expected, step) for case in cases for step in case.bind(case.x, case.y) or ()]
    assert len(found) > 0.8 * len(cases)
    return found


AS_CORTEX_M0PLUS = "-DLONG_MULTIPLY=0 -DHIGH_MULTIPLY=0"
ALL_LAYERS = " ".join(LAYERS)
PROGRAMS = [
    *itertools.product([ALL_LAYERS], ("", AS_CORTEX_M0PLUS, "cortex-m55 -O1", "cortex-m55 -O2")),
    *itertools.product(LAYERS, (f"cortex-{core} -O{level}" for core in ("m3", "m4", "m0plus") for level in (1, 2))),
]
"""Layers whose kernels are compiled together, with those of dense layers, and the processor."""

OFTEN = [
    *((ALL_LAYERS, processor) for processor in ("", "cortex-m55 -O1")),
    ("CONV_2D", "cortex-m4 -O1"),
    ("DEPTHWISE_CONV_2D", "cortex-m0plus -O1"),
]


@pytest.mark.parametrize(("layers", "processor"), some(PROGRAMS, *OFTEN))
def test_layers_have_the_sums_of_their_products(
    dense_cases: list[DenseCase], tmp_path: Path, layers: str, processor: str
) -> None:
    """Without undefined behaviour, and without a byte outside of the arrays; with and without assembly."""
    steps = [(case.expected, step) for case in dense_cases for step in case.steps]
    steps += itertools.chain.from_iterable(map(steps_of, layers.split()))
    kernels = list(dict.fromkeys(step.kernel for _, step in steps))
    encodings = [encoded(kernels.index(step.kernel), arguments_of(step)) for _, step in steps]
    command = command_on(processor, program(kernels), tmp_path)
    (tmp_path / "calls").write_bytes(struct.pack("<q", len(steps)) + b"".join(encodings))
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    assert done.returncode == 0, done.stderr[:4000]
    results = memoryview((tmp_path / "results").read_bytes())
    for expected, step in steps:
        results = results[8:]
        for name, array in zip([name for name in step.kernel.parameters if name in step.addresses], step.owners):
            found, results = np.frombuffer(results[: array.nbytes], array.dtype), results[array.nbytes :]
            if name == "y":
                np.testing.assert_array_equal(found, expected.reshape(-1), step.kernel.name)


@pytest.mark.parametrize("processor", ["", "cortex-m4 -O2 -mfloat-abi=hard", "cortex-m55 -O2", "cortex-m3 -O2"])
def test_roots_and_nearest_integers_have_all_bits_of_numpy(processor: str, tmp_path: Path) -> None:
    """Around all halves and powers of two, signed zeros, infinities, and of any bits; of a NaN, any other is taken."""
    powers = np.exp2(np.arange(-149, 128))
    ends = np.concatenate([powers, powers - 0.5, powers + 0.5, np.arange(21) / 2]).astype(np.float32)
    sides = [np.nextafter(ends, np.float32(side)) for side in (-np.inf, np.inf)]
    positive = np.concatenate([ends, *sides, np.array([np.inf, np.nan], np.float32)])
    anything = np.random.default_rng(7).integers(0, 1 << 32, 2000, np.uint32).view(np.float32)
    x = np.concatenate([positive, -positive, anything])
    steps = [unary.each.step(function=name, x=x, y=np.empty_like(x), count=x.size) for name in ("ROUND", "SQRT")]
    kernels = [step.kernel for step in steps]
    command = command_on(processor, program(kernels), tmp_path)
    calls = [encoded(place, arguments_of(step)) for place, step in enumerate(steps)]
    (tmp_path / "calls").write_bytes(struct.pack("<q", len(calls)) + b"".join(calls))
    subprocess.run(command, cwd=tmp_path, capture_output=True, stdin=subprocess.DEVNULL, check=True)
    results = (tmp_path / "results").read_bytes()
    size = 8 + 2 * x.nbytes
    with np.errstate(invalid="ignore"):
        expected = np.rint(x), np.sqrt(x)
    for place, values in enumerate(expected):
        found = np.frombuffer(results[place * size :][8 + x.nbytes : size], np.float32)
        is_number = ~np.isnan(values)
        assert np.isnan(found[~is_number]).all()
        np.testing.assert_array_equal(found[is_number].view(np.int32), values[is_number].view(np.int32))


def test_square_roots_are_rounded_but_for_the_largest_of_16_and_32_bits(tmp_path: Path) -> None:
    """Around squares, halves between two of them, and ends of the types of which the kernel computes."""
    draw = np.random.default_rng(3).integers
    roots = [*range(300), *(end + i for end in (1 << 15, 46341, 1 << 16, 1 << 31, 1 << 32) for i in range(-3, 4))]
    roots += [int(draw(1 << bits)) for bits in range(1, 33) for _ in range(20)]
    near = {root * root + step for root in roots for step in (-1, 0, 1, root, root + 1)}
    values = sorted({min(max(value, 0), (1 << 64) - 1) for value in near})
    x, bits = np.array(values, np.uint64), np.zeros(1, np.int32)
    arguments = [x, bits, np.zeros(x.size, np.uint32), x.size]
    ((_, (*_, found, _)),) = results_of_c([square_root], [(0, arguments)], tmp_path)
    for value, root in zip(values, found.tolist(), strict=True):
        floor = math.isqrt(value)
        assert root == floor + (value - floor * floor > floor and floor not in (0xFFFF, 0xFFFFFFFF)), value


def arguments_of(step: Step) -> list[Any]:
    """The arguments of a step: arrays and numbers."""
    owners = iter(step.owners)
    values = zip(step.kernel.parameters, step.arguments)
    return [next(owners) if name in step.addresses else value for name, value in values]


SELDOM = "UNIDIRECTIONAL_SEQUENCE_LSTM"
"""An operator that its kernels take with few of the quantizations that are drawn."""

LEAN = [name for name, small in KERNELS.items() if small.lean is not None]
OPERATORS_IN_C = [
    name for name, small in KERNELS.items() if name != SELDOM and small.bind not in (no_kernels, broadcasts.bind)
] + ["BATCH_MATMUL"]  # its small kernel stands in the engine


SHARED = [
    kernel.function
    for kernel in (
        batch_matmul.multiply_matrices,
        pooling.pool,
        recurrent.filter_over_time,
        recurrent.lstm_step,
    )
]
"""Small kernels that stand beside those of the engine."""


class StepCall(NamedTuple):
    """A step, with its arguments before and after it ran."""

    kernel: Kernel
    before: list[Any]
    after: list[Any]


class BoundCase(NamedTuple):
    """A model of one operator, bound to kernels for small processors; inputs, and the results of numpy."""

    bound: BoundModel
    steps: list[Step]
    invocations: Sequence[list[Array]]
    expected: Sequence[list[Array]]


def lean_or_small(context: KernelContext, node: Node, registration: Registration) -> Sequence[StepOrLoop] | None:
    """Return the steps with less scratch memory if there are some, otherwise those of small kernels."""
    return bind_lean(context, node, registration) or bind_small(context, node, registration)


SMALL = SmallKernel.__module__.rpartition(".")[0]
"""Package of the kernels for small processors."""


def weights_as_inputs(case: OperatorCase) -> OperatorCase:
    """The same LSTM, but its weights may change between invokes."""
    model, invocations = case
    graph = Graph(Model(model))
    (lstm,) = graph.operators
    weights = [tensor for tensor in (lstm.inputs or ())[1:9] if graph.is_constant(tensor)]
    values = [graph.constant(tensor) for tensor in weights]
    for tensor in weights:
        graph.tensors[tensor].buffer = 0
    graph.set_ends([*graph.inputs, *weights], graph.outputs)
    return graph.build(), [[*inputs, *values] for inputs in invocations]


def bound_cases(operator: str, cases: int, bind: BindSteps, package: str = SMALL) -> list[BoundCase]:
    """Random models that kernels of a package take, without loops over calls; counts which of all do."""
    found, models = [], drawn(operator, cases)
    if operator == SELDOM:
        models = [*map(weights_as_inputs, models[:20:2]), *models]
    for model, invocations in models:
        try:
            expected = run_model(model, invocations, delegates=())
            bound = bind_model(Model(model), bind)
        except TflmError:
            continue
        steps = [step for bound_operator in bound.operators[0] for step in bound_operator.steps()]
        if steps != [action for bound_operator in bound.operators[0] for action in bound_operator.actions]:
            continue
        functions = [step.kernel.function for step in steps]
        if count(any(function.__module__.startswith(package) or function in SHARED for function in functions)):
            found.append(BoundCase(bound, steps, invocations, expected))
    return found


@pytest.mark.parametrize(
    "drawings",
    [
        pytest.param([(OPERATORS_IN_C, 10, bind_small), (LEAN, 12, lean_or_small)], id="all"),
        pytest.param([([SELDOM], 60, bind_small)], id="LSTM"),
        pytest.param(
            [(OPERATORS_IN_C, 40, bind_small), (LEAN, 60, lean_or_small)],
            id="all, more cases",
            marks=pytest.mark.long,
        ),
        pytest.param([([SELDOM], 200, bind_small)], id="LSTM, more cases", marks=pytest.mark.long),
    ],
)
@pytest.mark.filterwarnings("ignore:kernels can't be compiled")
@pytest.mark.runs(0.01)
def test_operators_give_what_numpy_gives(drawings: list[tuple[list[str], int, BindSteps]], tmp_path: Path) -> None:
    """With any quantization, where the kernels take it, and in shapes from one element on.

    Some run again without undefined behaviour, and without a byte outside of the arrays.
    """
    bound = [bound_cases(name, cases, bind) for operators, cases, bind in drawings for name in operators]
    assert all(bound), "an operator has no case that its kernels take"
    run = in_c(step for cases in bound for case in cases for step in case.steps)
    calls = [call for cases in bound for case in cases[:20] for call in check_case(case, run)]
    kernels = list(dict.fromkeys(call.kernel for call in calls))
    given = [(kernels.index(call.kernel), call.before) for call in calls]
    for call, (_, found) in zip(calls, results_of_c(kernels, given, tmp_path), strict=True):
        check_results(call.kernel, found, call.after)


def check_case(case: BoundCase, run: Callable[[Step], None]) -> list[StepCall]:
    """Compare kernels with numpy; returns their calls."""
    tensors, subgraph, calls = case.bound.tensors(), case.bound.model.subgraphs[0], []
    for values, results in zip(case.invocations, case.expected):
        for index, value in zip(subgraph.inputs or (), values):
            tensors[index].elements[...] = np.asarray(value, None).reshape(tensors[index].elements.shape)
        for step in case.steps:
            before = copied(arguments_of(step))
            run(step)
            in_place = any(itertools.starmap(np.may_share_memory, itertools.combinations(step.owners, 2)))
            calls += [] if in_place else [StepCall(step.kernel, before, copied(arguments_of(step)))]
        for index, result in zip(subgraph.outputs or (), results):
            np.testing.assert_array_equal(tensors[index].elements, result)
    return calls


def copied(arguments: Sequence[Any]) -> list[Any]:
    """Arguments with arrays of their own, which hold all elements between the first and the last."""
    return [memory_of(value).copy() if isinstance(value, np.ndarray) else value for value in arguments]


def memory_of(array: Array) -> Array:
    """The elements from an array's first to its last, in memory."""
    first, end = np.lib.array_utils.byte_bounds(array)
    size = array.itemsize
    return np.lib.stride_tricks.as_strided(array, ((end - first) // size,), (size,)) if array.size else array


IN_TILES = "depthwise", "normalization", "pooling", "products", "recurrent", "unary"
"""Families of which the engine binds other kernels where a processor has large vectors."""


@pytest.mark.filterwarnings("ignore:kernels can't be compiled")
def test_plain_kernels_give_what_numpy_gives() -> None:
    """All kernels of single numbers are tried."""
    names = [name for family in IN_TILES for name in FAMILIES[family]]
    bound = [
        case for name in names for case in bound_cases(name, 8, bind_plain, bind_steps.__module__.rpartition(".")[0])
    ]
    run = in_c(step for case in bound for step in case.steps)
    for case in bound:
        tensors, subgraph = case.bound.tensors(), case.bound.model.subgraphs[0]
        for values, results in zip(case.invocations, case.expected):
            for index, value in zip(subgraph.inputs or (), values):
                tensors[index].elements[...] = np.asarray(value, None).reshape(tensors[index].elements.shape)
            for step in case.steps:
                run(step)
            outputs = [np.array(tensors[index].elements, None) for index in subgraph.outputs or ()]
            assert_close([found.reshape(result.shape) for found, result in zip(outputs, results)], results)
    tried = {step.kernel.function for case in bound for step in case.steps}
    of_cast = {unary.convert.function, unary.is_not_zero.function, unary.truncate.function}
    assert {each.function for each in vars(unary).values() if isinstance(each, Kernel)} - of_cast <= tried


@pytest.mark.runs(0.01)
def test_lstms_hold_the_products_of_one_step() -> None:
    for model, _ in drawn(SELDOM, 100):
        try:
            bound = bind_model(Model(model), bind_small)
        except TflmError:
            continue
        (operator,) = (one for one in bound.operators[0] if one.node.operator == SELDOM)
        tensors, steps = LstmTensors.of(operator.node), list(operator.steps())
        gates = 4 * tensors.hidden.size * tensors.cell.itemsize
        copied_bytes = 0 if tensors.x[0].flags.c_contiguous else tensors.x[0].nbytes
        assert sum(array.nbytes for array in work_arrays(steps)) == 2 * gates + copied_bytes
        count(len(tensors.x) > 1)


@pytest.mark.parametrize("is_time_major", [False, True])
@pytest.mark.parametrize("size", [1, 3, 7])
@pytest.mark.parametrize("units", [1, 4, 6])
def test_outputs_of_lstms_in_parts_lie_over_inputs_that_were_read(is_time_major: bool, size: int, units: int) -> None:
    """A row of the output is written while the same row of the input is still to be read."""
    x, y = (TensorFacts(TensorType.INT8, (2, 3, depth)) for depth in (size, units))
    options = UnidirectionalSequenceLSTMOptions(time_major=is_time_major)
    allowed = overlap_of_parts(OperatorFacts([x], [y], options), None, 0)
    for distance in range(-x.bytes, y.bytes + 1):
        unread = [range(row * size + distance, x.bytes + distance) for row in range(6)]
        written = [range((row + 1) * units) for row in range(6)]
        is_safe = not any(set(some).intersection(others) for some, others in zip(unread, written))
        assert (distance in allowed) <= is_safe
    assert max(units, 6 * units - 5 * size) in allowed


@pytest.mark.parametrize("is_time_major", [False, True])
@pytest.mark.parametrize("batches", [1, 2])
@pytest.mark.parametrize("steps", [1, 2, 5])
@pytest.mark.parametrize(("size", "units"), [(1, 1), (4, 3), (2, 5), (3, 3)])
def test_outputs_of_lstms_lie_over_inputs_that_were_read(
    is_time_major: bool, batches: int, steps: int, size: int, units: int
) -> None:
    """At each allowed distance, no step overwrites what a later one reads."""
    order = (steps, batches) if is_time_major else (batches, steps)
    x, y = (TensorFacts(TensorType.INT8, (*order, depth)) for depth in (size, units))
    options = UnidirectionalSequenceLSTMOptions(time_major=is_time_major)
    allowed = lstm_overlap(OperatorFacts([x], [y], options), None, 0)
    reads, writes = (
        np.arange(math.prod(order) * depth).reshape(*order, depth).swapaxes(0, 0 if is_time_major else 1)
        for depth in (size, units)
    )
    assert 0 in allowed or units > size or not (is_time_major or 1 in order)
    for distance in range(-x.bytes, y.bytes + 1):
        is_safe = all(not np.isin(reads[i + 1 :] + distance, writes[: i + 1]).any() for i in range(steps))
        assert (distance in allowed) <= is_safe
