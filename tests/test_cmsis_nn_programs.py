"""Models as C that call CMSIS-NN: what is called, for which processors, and, with the library's sources, the answers.

`TFLM_CMSIS_NN` names a folder of CMSIS-NN 7: models are then built with it, for this machine and for emulated parts.
"""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from image_graphs import Images
from sampling import examples
from test_real_models import recorded
from typer.testing import CliRunner

import tflm
import tflm.c.compile
from tflm.c import cmsis_nn
from tflm.c.cmsis_nn import processors
from tflm.c.cmsis_nn.products import row_sums
from tflm.c.cmsis_nn.structures import Array, wide_sums_fit
from tflm.c.compile_report import compile_report
from tflm.c.library_calls import Address, LibraryCall, Structure
from tflm.c.library_writer import LibraryWriter, local_bytes
from tflm.c.program import Pointer, Table
from tflm.c.sizes import library_stacks
from tflm.cli.app import app
from tflm.kernels.arithmetic.fixed_point import WideQuantizedMultiplier, quantize_multiplier
from tflm.libraries import library_for
from tflm.runtime.growing_arena import ready_interpreter
from tflm.schedule.calls import RamBuffer
from tflm.schema import (
    ActivationFunctionType,
    AddOptions,
    BuiltinOperator,
    Conv2DOptions,
    DepthwiseConv2DOptions,
    FullyConnectedOptions,
    MulOptions,
    Padding,
    SoftmaxOptions,
    SVDFOptions,
    TensorType,
    UnidirectionalSequenceLSTMOptions,
    quantized,
)
from tflm.targets import by_name
from tflm.testing.drawing import SingleOperator
from tflm.testing.operators import OPERATORS

INT8, INT16, INT32 = TensorType.INT8, TensorType.INT16, TensorType.INT32
HALF = quantized(0.5)
SOURCES = os.environ.get("TFLM_CMSIS_NN")
KINDS = (None, "cortex-m0", "cortex-m4", "cortex-m55")
"""No part, and one of each kind."""


def compiled(model: tflm.Model, part: str | None = None, self_test: Any = 0) -> tflm.CompiledModel:
    """A model that calls CMSIS-NN wherever it can, for a part or for all."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tflm.c.compile, "kept_kernels", lambda generated, processors: {})
        return compared(model, part, self_test)


def compared(model: tflm.Model, part: str | None = None, self_test: Any = 0) -> tflm.CompiledModel:
    """Compile a model that calls CMSIS-NN unless that is expected to be slower, for a part or for all."""
    target = None if part is None else by_name(part)
    return tflm.compile_model(model, kernels="cmsis-nn", target=target, self_test=self_test)


def called(made: tflm.CompiledModel) -> list[str]:
    """The functions that a program calls, in order."""
    invoke = made.files["model.c"].partition("_invoke(void")[2].partition("#if defined(MODEL_WITH_STEP)")[0]
    return re.findall(r"\b(arm_\w+|lstm_\w+)\(", invoke)


def is_called(model: tflm.Model) -> bool:
    """Whether the single operator of a model calls the library."""
    try:
        return compiled(model).library_operators == 1
    except tflm.CompileError:  # the generated kernels cannot compute it, either
        return False


def convolution(
    channels: int = 8, type: TensorType = INT8, groups: int = 1, taps: int = 3, operators: int = 1
) -> tflm.Model:
    """CONV_2D after CONV_2D."""
    builder = tflm.ModelBuilder()
    main = builder.subgraph()
    y = main.input("x", (1, 6, 6, channels), type, HALF)
    for i in range(operators):
        weights = np.arange(channels * taps * taps * channels // groups) % 7 - 3
        shape = (channels, taps, taps, channels // groups)
        filter = main.constant(f"w{i}", weights.astype(np.int8).reshape(shape), quantized(0.25))
        x, y = y, main.tensor(f"y{i}", (1, 6, 6, channels), type, HALF)
        options = Conv2DOptions(padding=Padding.SAME, stride_h=1, stride_w=1)
        main.operator(BuiltinOperator.CONV_2D, [x, filter], [y], options)
    main.output(y)
    return tflm.Model(builder.build())


def element_wise(
    operator: BuiltinOperator, type: TensorType = INT8, shapes: Sequence[tuple[int, ...]] = ((2, 4), (2, 4))
) -> tflm.Model:
    """An operator with one or two inputs, and an output that is as large as the first."""
    builder = tflm.ModelBuilder()
    main = builder.subgraph()
    inputs = [main.input(f"x{i}", shape, type, HALF) for i, shape in enumerate(shapes)]
    scale = {INT8: quantized(1 / 256, -128), INT16: quantized(1 / 32768)}[type]
    y = main.tensor("y", shapes[0], type, scale if operator == BuiltinOperator.SOFTMAX else HALF)
    options = {BuiltinOperator.ADD: AddOptions(), BuiltinOperator.MUL: MulOptions()}
    main.operator(operator, inputs, [y], options.get(operator, SoftmaxOptions(beta=1.0)))
    main.output(y)
    return tflm.Model(builder.build())


def dense(
    weights: TensorType,
    activations: TensorType = INT8,
    *,
    rows: int = 1,
    zero_point: int = 0,
    shape: tuple[int, ...] = (2, 6),
    zero_points: tuple[int, int] = (0, 0),
) -> tflm.Model:
    """Return a FULLY_CONNECTED of four channels with this many scales of the weights, on an input of this shape."""
    builder = tflm.ModelBuilder()
    main = builder.subgraph()
    x = main.input("x", shape, activations, quantized(0.5, zero_points[0]))
    scales = quantized([2.0**-4 * (i + 1) for i in range(rows)], zero_point)
    if weights == TensorType.INT4:
        w = main.constant("w", np.full(12, 0x2F, np.uint8), scales, type=weights, shape=(4, 6))
    else:
        w = main.constant("w", np.arange(4 * shape[-1], dtype=np.int8).reshape(4, -1), scales)
    y = main.tensor("y", (*shape[:-1], 4), activations, quantized(0.5, zero_points[1]))
    options = FullyConnectedOptions(keep_num_dims=len(shape) > 2)
    main.operator(BuiltinOperator.FULLY_CONNECTED, [x, w, -1], [y], options)
    main.output(y)
    return tflm.Model(builder.build())


def svdf(state: TensorType) -> tflm.Model:
    """SVDF with a state of a type."""
    builder = tflm.ModelBuilder()
    main = builder.subgraph()
    dtype = {INT8: np.int8, INT16: np.int16}[state]
    tensors = [
        main.input("x", (1, 4), INT8, HALF),
        main.constant("feature", np.ones((2, 4), np.int8), HALF),
        main.constant("time", np.ones((2, 3), dtype), HALF),
        main.constant("bias", np.ones(2, np.int32), quantized(0.25)),
        main.tensor("state", (1, 6), state, HALF, is_variable=True),
    ]
    y = main.tensor("y", (1, 2), INT8, HALF)
    main.operator(BuiltinOperator.SVDF, tensors, [y], SVDFOptions(rank=1))
    main.output(y)
    return tflm.Model(builder.build())


def lstm(batches: int, units: int = 5, zero_point: int = 0, activation: str = "TANH") -> tflm.Model:
    """An LSTM of int8 with the batches first, whose gates saturate."""
    builder = tflm.ModelBuilder()
    main = builder.subgraph()
    rng = np.random.default_rng(0)
    hidden = quantized(1 / 128, 3)
    tensors = [-1] * 24
    tensors[0] = main.input("x", (batches, 3, 4), INT8, quantized(1 / 32, -7))
    for i in range(1, 9):
        weights = rng.integers(-127, 128, (units, 4 if i < 5 else units)).astype(np.int8)
        tensors[i] = main.constant(f"w{i}", weights, quantized(2.0**-4, zero_point))
    for i in range(12, 16):
        tensors[i] = main.constant(f"b{i}", rng.integers(-9999, 9999, units).astype(np.int32), quantized(2.0**-9))
    tensors[18] = main.tensor("hidden", (batches, units), INT8, hidden, is_variable=True)
    tensors[19] = main.tensor("cell", (batches, units), INT16, quantized(2.0**-11), is_variable=True)
    y = main.tensor("y", (batches, 3, units), INT8, hidden)
    options = UnidirectionalSequenceLSTMOptions(
        fused_activation_function=ActivationFunctionType[activation], time_major=False
    )
    main.operator(BuiltinOperator.UNIDIRECTIONAL_SEQUENCE_LSTM, tensors, [y], options)
    main.output(y)
    return tflm.Model(builder.build())


def test_an_lstm_that_loses_its_state_leaves_the_variables_as_they_are() -> None:
    model, target = lstm(1), by_name("cortex-m4")
    kernels = library_for("cmsis-nn", target)
    interpreter = ready_interpreter(model, target=target, kernels=kernels, preserve_all_tensors=True, delegates=[])
    places = [i for i, tensor in enumerate(model.subgraphs[0].tensors or []) if tensor.is_variable]
    outputs = []
    for value in (5, 9):
        for i in places:
            interpreter.get_tensor(i).data[...] = value
        interpreter.input(0).data[...] = 7
        interpreter.invoke()
        outputs.append(interpreter.output(0).data.tolist())
        assert [set(interpreter.get_tensor(i).data.flat) for i in places] == [{value}] * 2
    assert outputs[0] == outputs[1]


CALLS = {
    "int8 convolution": (convolution(), ["arm_convolve_wrapper_s8"]),
    "int16 convolution": (convolution(type=INT16), ["arm_convolve_wrapper_s16"]),
    "groups": (convolution(groups=2), ["arm_convolve_wrapper_s8"]),
    "two convolutions": (convolution(operators=2), ["arm_convolve_wrapper_s8"] * 2),
    "sum": (element_wise(BuiltinOperator.ADD), ["arm_elementwise_add_s8"]),
    "elements of int16 multiplied": (element_wise(BuiltinOperator.MUL, INT16), ["arm_elementwise_mul_s16"]),
    "softmax": (element_wise(BuiltinOperator.SOFTMAX, shapes=((2, 4),)), ["arm_softmax_s8"]),
    "product of int8": (dense(INT8, zero_point=1), ["arm_fully_connected_wrapper_s8"]),
    "product of int8 with a scale for each row": (dense(INT8, rows=4), ["arm_fully_connected_wrapper_s8"]),
    "product of a matrix with four columns": (dense(INT8, shape=(4, 4)), ["arm_fully_connected_wrapper_s8"]),
    "product of two matrices with four columns": (dense(INT8, shape=(2, 3, 4)), ["arm_convolve_1x1_s8_fast"]),
    "product of two matrices with six columns": (dense(INT8, shape=(2, 4, 6)), ["arm_fully_connected_wrapper_s8"]),
    "product of int4": (dense(TensorType.INT4), ["arm_fully_connected_s4"]),
    "product of int16": (dense(INT8, INT16), ["arm_fully_connected_s16"]),
    "SVDF": (svdf(INT16), ["arm_svdf_state_s16_s8"]),
    "LSTM": (lstm(1), ["lstm_s8"]),
    "LSTM of two batches": (lstm(2), ["lstm_s8"] * 2),
}
"""Models, and the functions that they call."""


@functools.cache
def calling(name: str, part: str | None = None) -> tflm.CompiledModel:
    """The program of one of these models, for a part or for all."""
    return compiled(CALLS[name][0], part)


GENERATED = {
    "groups of int16": convolution(type=INT16, groups=2),
    "groups of single elements": convolution(groups=2, taps=1),
    "broadcast": element_wise(BuiltinOperator.ADD, shapes=((2, 4), (1, 4))),
    "softmax of one int16": element_wise(BuiltinOperator.SOFTMAX, INT16, ((4, 1),)),
    "product of int16 with a scale for each row": dense(INT8, INT16, rows=4),
    "product of int16 whose weights have a zero point": dense(INT8, INT16, zero_point=1),
    "SVDF with a state of int8": svdf(INT8),
    "LSTM whose weights have a zero point": lstm(1, zero_point=1),
    "LSTM without tanh": lstm(1, activation="NONE"),
}
"""Models for which CMSIS-NN has no kernel, or one with other results."""


@pytest.mark.parametrize("name", CALLS)
def test_operators_call_the_library(name: str) -> None:
    made, (_, functions) = calling(name), CALLS[name]
    assert called(made) == functions
    text = made.files["model.c"]
    assert text.index("#include <arm_nnfunctions.h>") < text.index("_invoke(void")


@pytest.mark.parametrize("name", GENERATED)
def test_other_operators_keep_generated_kernels(name: str) -> None:
    made = compiled(GENERATED[name])
    assert made.library_operators == 0
    assert "arm_" not in made.files["model.c"]
    own = [tflm.compile_model(GENERATED[name], **options) for options in ({}, {"optimize": "speed"})]
    assert made.files["model.c"] in [each.files["model.c"] for each in own]


def wide(operator: str, weights: Array, bias: Array, scales: list[float]) -> tflm.Model:
    """A layer of int16 with sums of 64 bits; weights are (channels, taps)."""
    single, (channels, taps) = SingleOperator(), weights.shape
    is_dense = operator == "FULLY_CONNECTED"
    single.input(INT16, [np.zeros((1, taps) if is_dense else (1, 1, taps, 1), np.int16)], quantized(1))
    if operator == "CONV_2D":
        weights = weights.reshape(channels, 1, taps, 1)
    elif operator == "DEPTHWISE_CONV_2D":
        weights = weights.T.reshape(1, 1, taps, channels)
    single.constant(weights, quantized(scales, 0, 3 if operator == "DEPTHWISE_CONV_2D" else 0))
    single.constant(bias, quantized(scales))
    options = {
        "CONV_2D": Conv2DOptions(padding=Padding.VALID, stride_h=1, stride_w=1),
        "DEPTHWISE_CONV_2D": DepthwiseConv2DOptions(
            padding=Padding.VALID, stride_h=1, stride_w=1, depth_multiplier=channels
        ),
        "FULLY_CONNECTED": FullyConnectedOptions(),
    }
    output = (1, channels) if is_dense else (1, 1, 1, channels)
    model, _ = single.case(BuiltinOperator[operator], [(output, INT16, quantized(1))], options[operator])
    return tflm.Model(model)


LARGEST_SUM, LARGEST_INT16 = 2**31 - 1, 2**15


@pytest.mark.parametrize("operator", ["CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED"])
@pytest.mark.parametrize(
    ("weights", "bias", "scales", "calls"),
    [
        ([[1]], [LARGEST_SUM - LARGEST_INT16], [2**-10], True),
        ([[1]], [LARGEST_SUM - LARGEST_INT16 + 1], [2**-10], False),
        ([[0], [1]], [0, LARGEST_SUM - LARGEST_INT16 + 1], [2**-10] * 2, False),
        ([[-1, 1]], [-LARGEST_SUM + 2 * LARGEST_INT16], [2**-10], True),
        ([[-1, 1]], [-LARGEST_SUM + 2 * LARGEST_INT16 - 1], [2**-10], False),
        ([[1]], [0], [2**14 * (1 - 2**-20)], True),
        ([[1]], [0], [2**14], False),
        ([[1], [1]], [0, 0], [2**-10, 2**14], False),
        ([[2, 1]], [0], [2**13], True),
        ([[2, 2]], [0], [2**13], False),
        ([[2, 2], [2, 2]], [0, 0], [2**-10, 2**13], False),
        ([[1]], [2**30 - LARGEST_INT16 - 2], [1], True),
        ([[1]], [2**30 - LARGEST_INT16 - 1], [1], False),
    ],
)
def test_sums_and_results_of_int16_fit_the_bits_of_the_library(
    operator: str, weights: list[list[int]], bias: list[int], scales: list[float], calls: bool
) -> None:
    """Sums have 32 bits, results 31 before they are doubled, and multipliers at most 14 in front of their point."""
    rows, sums = np.array(weights, np.int8), np.array(bias, np.int64)
    multipliers = WideQuantizedMultiplier(*np.transpose([quantize_multiplier(scale) for scale in scales]))
    assert wide_sums_fit(rows, sums, multipliers) == calls
    if scales in ([2**-10], [2**-10] * 2)[: 1 if operator == "FULLY_CONNECTED" else 2]:
        assert is_called(wide(operator, rows, sums, scales)) == calls


@pytest.mark.parametrize("operator", ["AVERAGE_POOL_2D", "MAX_POOL_2D"])
@pytest.mark.parametrize(("window", "calls"), [((1, 2**15 - 1), True), ((1, 2**15), False), ((128, 256), False)])
def test_windows_of_pools_have_15_bits(operator: str, window: tuple[int, int], calls: bool) -> None:
    builder = tflm.ModelBuilder()
    images = Images(builder.subgraph(), (1, *window, 1))
    images.main.output(images.pool(images.last, BuiltinOperator[operator], window, (1, 1), Padding.VALID))
    assert is_called(tflm.Model(builder.build())) == calls


def test_calls_have_their_own_structures_and_return_the_operator_that_failed() -> None:
    """Constant structures are shared by calls if their types and fields are equal; others are filled at the call."""
    ram, table = Pointer(RamBuffer("scratch", 64), 16), Pointer(Table("weights", np.zeros(4, np.int32)), 4)

    def structures(size: int) -> list[Structure]:
        tile = {"w": size, "h": -(2**31)}
        context = {"buf": Address("scratch", "void *", ram), "size": size}
        constant = {"tile": Structure("cmsis_nn_tile", tile), "table": Address("table", "int32_t *", table)}
        return [
            Structure("cmsis_nn_tile", tile),
            Structure("cmsis_nn_activation", tile),
            Structure("cmsis_nn_context", context),
            Structure("cmsis_nn_params", constant),
        ]

    records: list[str] = []
    writer = LibraryWriter(records, lambda place, c_type: f"{c_type}{place.offset}")
    calls = [LibraryCall("run", tuple(structures(size)), "OK", (), "") for size in (3, 5, 3)]
    calls.append(LibraryCall("set", (Address("none", "const void *", None), 7)))
    text = "\n".join("\n".join(writer.call(call, operator, "")) for operator, call in enumerate(calls))
    defined = dict(re.findall(r"static const (\w+ \w+) = \{(.*)\};", "".join(records)))
    assert [re.sub(r"\w+ ", "", each) for each in defined] == [
        *("tile_0", "activation_1", "params_2"),
        *("tile_3", "activation_4", "params_5"),
    ]
    assert defined["cmsis_nn_activation activation_4"] == ".w = 5, .h = INT32_MIN"
    assert defined["cmsis_nn_params params_2"] == (
        ".tile = {.w = 3, .h = INT32_MIN}, .table = (int32_t *)(const int32_t *4)"
    )
    assert writer.structure_bytes == 4 * 2 * (2 + 2 + 3)
    passed = re.findall(r"run\((.*)\) != OK\) \{\s*return (\d+);", text)
    assert passed == [
        ("&tile_0, &activation_1, &context_0, &params_2", "1"),
        ("&tile_3, &activation_4, &context_0, &params_5", "2"),
        ("&tile_0, &activation_1, &context_0, &params_2", "3"),
    ]
    assert re.findall(r"cmsis_nn_context context_0 = \{(.*)\};", text) == [
        f".buf = void *16, .size = {size}" for size in (3, 5, 3)
    ]
    assert [local_bytes(call) for call in calls] == [8, 8, 8, 0]
    assert text.splitlines()[-1] == "set(NULL, 7);"


def test_parameters_are_constant_and_equal_ones_are_shared() -> None:
    text = compiled(convolution(operators=2)).files["model.c"]
    structures = re.findall(r"^(.*)\b(cmsis_nn_\w+) (\w+) = ", text, re.M)
    assert {kind for first, kind, _ in structures if first.strip() != "MODEL_CONST static const"} == {
        "cmsis_nn_context"
    }
    assert len([name for _, kind, name in structures if kind == "cmsis_nn_dims"]) == 3  # images, weights, and bias


def test_a_failing_call_returns_one_more_than_the_index_of_its_operator() -> None:
    text = compiled(convolution(operators=3)).files["model.c"]
    assert re.findall(r" != ARM_CMSIS_NN_SUCCESS\) {\s+return (\d+);", text) == ["1", "2", "3"]


@pytest.mark.parametrize("name", CALLS)
def test_ram_for_every_part_is_enough_for_each(name: str) -> None:
    every, *each = (calling(name, part).ram_bytes for part in KINDS)
    assert every >= max(each)
    assert calling(name).generated_ram_bytes == tflm.compile_model(CALLS[name][0]).ram_bytes


def test_dsp_and_helium_take_scratch_of_their_own() -> None:
    needed = {part: compiled(convolution(), part).ram_bytes for part in KINDS}
    column = 3 * 3 * 8
    tensors = 2 * 6 * 6 * 8
    assert needed["cortex-m4"] <= tensors + 4 * column + 16
    assert needed["cortex-m55"] <= tensors + 4 * 80 + 16
    assert needed["cortex-m55"] > needed["cortex-m4"]


def test_offsets_of_inputs_are_negative_zero_points() -> None:
    source = compiled(dense(INT8, zero_point=2, zero_points=(-3, 7))).files["model.c"]
    assert ".input_offset = 3, .filter_offset = -2, .output_offset = 7," in source


def guard_of(part: str | None, model: tflm.Model | None = None) -> str:
    """The condition under which a program for a part does not compile."""
    return "".join(re.findall(r"#if (.*ARM_MATH_.*)", compiled(model or convolution(), part).files["model.c"]))


def test_programs_stop_compilers_for_parts_that_need_other_memory() -> None:
    assert guard_of(None) == guard_of("cortex-m3", GENERATED["broadcast"]) == ""
    assert guard_of("cortex-m55") == "!defined(ARM_MATH_MVEI)"
    assert guard_of("cortex-m7") == "defined(ARM_MATH_MVEI)"
    assert guard_of("cortex-m3") == "defined(ARM_MATH_DSP) || defined(ARM_MATH_MVEI)"


@given(st.data())
@settings(max_examples=20)
def test_sums_of_rows_replace_offsets_in_a_product(data: st.DataObject) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    depth, offset, weights_offset = data.draw(st.tuples(st.integers(1, 9), *[st.integers(-127, 128)] * 2))
    weights, x = (rng.integers(-128, 128, shape).astype(np.int8) for shape in ((3, depth), (depth,)))
    bias = rng.integers(-(2**20), 2**20, 3).astype(np.int32)
    wanted = (weights.astype(np.int64) + weights_offset) @ (x.astype(np.int64) + offset) + bias
    sums = row_sums(weights, offset, weights_offset, bias)
    assert ((weights.astype(np.int64) + weights_offset) @ x.astype(np.int64) + sums == wanted).all()


def test_what_is_asked_for_must_fit() -> None:
    with pytest.raises(tflm.ArgumentError, match="use generated or cmsis-nn"):
        tflm.compile_model(convolution(), kernels="esp-nn")
    with pytest.raises(tflm.ArgumentError, match="generated kernels are the same on all"):
        tflm.compile_model(convolution(), target=by_name("cortex-m4"))
    with pytest.raises(tflm.ArgumentError, match=r"not for target 'esp32'.*cortex-m55"):
        compiled(convolution(), "esp32")


def test_the_command_shows_the_ram_of_both(tmp_path: Path) -> None:
    model = convolution()
    (tmp_path / "wide.tflite").write_bytes(model.data)
    options = ["--kernels", "cmsis-nn", "--target", "cortex-m55", "--self-test", "1"]
    ran = CliRunner().invoke(app, ["compile", str(tmp_path / "wide.tflite"), str(tmp_path / "c"), *options])
    made = compared(model, "cortex-m55")
    assert f"{made.ram_bytes:,} B" in ran.output
    assert f"{made.generated_ram_bytes:,} B" in ran.output
    assert "1 of 1 operators" in ran.output
    assert "make check CMSIS_NN=path" in (tmp_path / "c" / "Makefile").read_text()


def test_operators_call_the_library_where_it_takes_fewer_instructions() -> None:
    softmax, image = CALLS["softmax"][0], convolution(32)
    for part in (None, "cortex-m4", "cortex-m55"):
        (kept,) = compared(softmax, part).kept_kernels.values()
        assert kept.ratio is not None
        assert kept.ratio > 1
    assert compared(image, "cortex-m55").kept_kernels == {}
    assert compared(image, "cortex-m55").library_operators == 1


def test_a_program_for_every_part_calls_the_library_where_each_part_would() -> None:
    for model in (CALLS["softmax"][0], convolution(8), convolution(32, operators=2)):
        kept = [compared(model, part).kept_kernels.keys() for part in ("cortex-m4", "cortex-m55")]
        every = compared(model).kept_kernels
        assert every.keys() == kept[0] | kept[1]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(processors, "EVERY_KIND", processors.EVERY_KIND[::-1])
            assert compared(model).kept_kernels == every


@pytest.mark.parametrize("name", ["int16 convolution", "SVDF", "LSTM"])
def test_operators_that_were_not_counted_call_the_library_for_helium(name: str) -> None:
    model, _ = CALLS[name]
    calls = {part: compared(model, part).library_operators for part in KINDS}
    assert calls == {None: 0, "cortex-m0": 1, "cortex-m4": 0, "cortex-m55": 1}
    (kept,) = compared(model).kept_kernels.values()
    assert "Helium" in kept.reason


def test_the_report_says_which_operators_keep_their_kernels() -> None:
    report = compile_report(compared(GENERATED["broadcast"], "cortex-m4"))
    assert (" generated: operators", "0: CMSIS-NN has no function with TFLM's results") in report.facts


def test_the_stack_of_every_function_is_known_for_every_part() -> None:
    assert set(library_stacks()) == {*cmsis_nn.FUNCTIONS, *cmsis_nn.HELPERS}
    assert all(min(stacks.values()) > 0 for stacks in library_stacks().values())


@pytest.mark.parametrize("operator", cmsis_nn.OPERATORS)
@given(data=st.data())
@settings(max_examples=examples(10), phases=(Phase.generate,), deadline=None)
def test_a_bound_of_the_stack_includes_the_functions_that_are_called(operator: str, data: st.DataObject) -> None:
    model, _ = data.draw(OPERATORS[operator])
    try:
        made = compiled(tflm.Model(model))
    except tflm.TflmError:
        return
    calls = {call.function for call in made.program.library_calls()}
    assert calls <= set(library_stacks())
    for function in calls if made.stack_bounds is not None else ():
        assert all(made.stack_bounds[build] > stack for build, stack in library_stacks()[function].items())


@pytest.mark.parametrize("name", CALLS)
def test_a_bound_of_the_stack_is_for_parts_that_a_program_can_be_compiled_for(name: str) -> None:
    parts = {"cortex-m0plus", "cortex-m4", "cortex-m55"}
    wanted = {None: parts, "cortex-m0": {"cortex-m0plus"}, "cortex-m4": parts - {"cortex-m55"}}
    for part in KINDS:
        bounds = calling(name, part).stack_bounds
        assert bounds is not None
        assert {each for each, _ in bounds} == wanted.get(part, {"cortex-m55"})


# --- With the library's sources ------------------------------------------------------------------------------------

needs_sources = pytest.mark.skipif(SOURCES is None, reason="TFLM_CMSIS_NN names no folder of CMSIS-NN")
PARTS = {"check": None, "qemu": "cortex-m4", "qemu with Helium": "cortex-m55"}
"""What `make` is asked for, and the part that a model is compiled for."""


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Folders in which the library is built, for each target of make."""
    return {goal: tmp_path_factory.mktemp("library") for goal in PARTS}


def run(folder: Path, goal: str, compiled: tflm.CompiledModel) -> None:
    """Build and run a self-test in a folder that keeps the library."""
    if goal != "check" and not all(map(shutil.which, ("arm-none-eabi-gcc", "qemu-system-arm"))):
        pytest.skip("there is no arm-none-eabi-gcc or qemu-system-arm")
    compiled.write(folder)
    assert SOURCES is not None
    command = ["make", goal.split()[0], f"CMSIS_NN={Path(SOURCES).resolve()}"]
    ran = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=600, check=False)
    for file in folder.glob("model_*"):
        file.unlink()
    assert ran.returncode == 0, ran.stdout[-2000:] + ran.stderr[-2000:]
    assert "all outputs as recorded" in ran.stdout


@needs_sources
@pytest.mark.parametrize("goal", PARTS)
@pytest.mark.parametrize("name", CALLS)
def test_operators_answer_as_tflm(libraries: dict[str, Path], name: str, goal: str) -> None:
    run(libraries[goal], goal, compiled(CALLS[name][0], PARTS[goal], self_test=3))


@needs_sources
@pytest.mark.parametrize("goal", PARTS)
@pytest.mark.parametrize(
    "name", ["dtln_noise_suppression", "keyword_scrambled", "kws_ref_model", "micro_speech_quantized", "person_detect"]
)
def test_real_models_give_recorded_answers(corpus: Path, libraries: dict[str, Path], name: str, goal: str) -> None:
    inputs, _ = recorded(corpus, name)
    part = PARTS[goal]
    model = tflm.Model.from_file(corpus / "models" / f"{name}.tflite")
    made = compiled(model, part, inputs)
    assert made.library_operators > 0
    run(libraries[goal], goal, made)


@needs_sources
@pytest.mark.parametrize("goal", PARTS)
@pytest.mark.parametrize("operator", cmsis_nn.OPERATORS)
@given(data=st.data())
@settings(max_examples=5, phases=(Phase.generate,), deadline=None)
def test_random_operators_answer_as_tflm(
    libraries: dict[str, Path], operator: str, goal: str, data: st.DataObject
) -> None:
    model, invocations = data.draw(OPERATORS[operator])
    part = PARTS[goal]
    try:
        made = compiled(tflm.Model(model), part, invocations)
    except tflm.TflmError:
        return
    if made.library_operators:
        run(libraries[goal], goal, made)


@pytest.mark.skipif(shutil.which("make") is None or shutil.which("cc") is None, reason="needs make and cc")
@pytest.mark.parametrize("memories", [{}, {"DTCM": 1 << 12, "SRAM": 1 << 20}], ids=["one memory", "two memories"])
def test_the_self_test_for_helium_runs_on_this_machine_in_plain_c(tmp_path: Path, memories: dict[str, int]) -> None:
    part = tflm.targets.by_name("cortex-m55")
    made = tflm.compile_model(convolution(), kernels="cmsis-nn", target=part, self_test=1, memories=memories)
    assert made.library_operators
    made.write(tmp_path)
    ran = subprocess.run(["make", "check"], cwd=tmp_path, check=False, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr
