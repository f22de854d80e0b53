"""Reductions of all rows of an image in C: a stage combines rows with totals, and keeps no image."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from checked_program import CheckedProgram, needs_compiler
from hypothesis import given, settings
from hypothesis import strategies as st
from image_graphs import Images
from oracle import Oracle

import tflm
from tflm.c.binding import StateAndScratch
from tflm.c.kernel_needs import BoundKernels
from tflm.c.kernels import accumulation
from tflm.c.source import written
from tflm.libraries.kernel_library import reference_overlap
from tflm.schedule.call_checker import values_lost_in_calls
from tflm.schedule.calls import Call, Plan
from tflm.schema import (
    ActivationFunctionType,
    BuiltinOperator,
    Padding,
    PadOptions,
    Pool2DOptions,
    ReducerOptions,
    TensorType,
)

F32, I8, I16 = TensorType.FLOAT32, TensorType.INT8, TensorType.INT16
REDUCTIONS = {"MEAN": (F32, I8, I16), "SUM": (F32, I8, I16), "REDUCE_MAX": (F32, I8), "REDUCE_MIN": (F32, I8)}
POOLS = {"AVERAGE_POOL_2D": (F32, I8, I16), "MAX_POOL_2D": (F32, I8, I16)}


def reduced(
    operator: str, type: TensorType, shape: tuple[int, int, int], axes: Sequence[int], keep_dims: bool, relu: bool
) -> tflm.Model:
    """An image of this shape is padded to twice its channels, and reduced along some axes."""
    height, width, depth = shape
    padded = 1, height, width, 2 * depth
    is_pool = operator in POOLS
    zero_point = -3 if type == I8 else 0
    quantization = None if type == F32 else tflm.quantized(0.05, zero_point)
    makes_other = operator in ("MEAN", "SUM") and type != F32
    builder = tflm.ModelBuilder()
    main = builder.subgraph()
    x = main.input("x", (1, *shape), type, quantization)
    image = main.tensor("image", padded, type, quantization)
    paddings = main.constant("paddings", np.array([(0, 0), (0, 0), (0, 0), (0, depth)], np.int32))
    main.operator(BuiltinOperator.PAD, [x, paddings], [image], PadOptions())
    kept = [1 if d in axes else size for d, size in enumerate(padded) if keep_dims or is_pool or d not in axes]
    y = main.tensor("y", kept, type, tflm.quantized(0.07, 2 * zero_point) if makes_other else quantization)
    activation = ActivationFunctionType.RELU if relu else ActivationFunctionType.NONE
    if is_pool:
        options: Any = Pool2DOptions(
            padding=Padding.VALID,
            filter_height=height,
            filter_width=width,
            stride_h=1,
            stride_w=1,
            fused_activation_function=activation,
        )
        main.operator(BuiltinOperator[operator], [image], [y], options)
    else:
        numbers = main.constant("axes", np.array(axes, np.int32))
        main.operator(BuiltinOperator[operator], [image, numbers], [y], ReducerOptions(keep_dims=keep_dims))
    main.output(y)
    return tflm.Model(builder.build())


@st.composite
def models(draw: st.DrawFn) -> tflm.Model:
    operator = draw(st.sampled_from([*REDUCTIONS, *POOLS]))
    type = draw(st.sampled_from({**REDUCTIONS, **POOLS}[operator]))
    sizes = st.one_of(st.just(1), st.integers(1, 9))
    shape = draw(st.integers(1, 12)), draw(sizes), draw(sizes)
    axes = (1, 2) if operator in POOLS else (1, *draw(st.sets(st.sampled_from([0, 2, 3]))))
    return reduced(operator, type, shape, axes, draw(st.booleans()), draw(st.booleans()))


def values(model: tflm.Model, seed: int) -> npt.NDArray[Any]:
    """Random elements of the input."""
    tensor = (model.subgraphs[0].tensors or [])[(model.subgraphs[0].inputs or ())[0]]
    random = np.random.default_rng(seed)
    if tensor.type == F32:
        return random.standard_normal(tensor.shape or ()).astype(np.float32)
    dtype = np.int8 if tensor.type == I8 else np.int16
    limits = np.iinfo(dtype)
    return random.integers(limits.min, limits.max + 1, tensor.shape or ()).astype(dtype)


def check_answers(oracle: Oracle, model: tflm.Model, compiled: tflm.CompiledModel, seed: int) -> None:
    """Check that a program gives TFLM's answers, in two invokes."""
    calls = [[values(model, seed)], [values(model, seed + 1)]]
    expected = oracle.run(bytes(model.data), calls)
    with tempfile.TemporaryDirectory() as folder:
        found = CheckedProgram(compiled, Path(folder)).run(calls)
    for outputs, (answer,) in zip(found, expected):
        assert outputs is not None
        if answer.dtype == np.float32:
            np.testing.assert_allclose(outputs[0].reshape(answer.shape), answer, rtol=1e-5, atol=1e-6)
        else:
            np.testing.assert_array_equal(outputs[0].reshape(answer.shape), answer)


@needs_compiler
@settings(max_examples=2)
@given(model=models(), seed=st.integers(0, 99))
def test_reductions_of_all_rows_keep_a_few_of_them(oracle: Oracle, model: tflm.Model, seed: int) -> None:
    check_answers(oracle, model, tflm.compile_model(model, optimize="ram"), seed)


@needs_compiler
@pytest.mark.parametrize("rows", [1, 3])
def test_fed_rows_are_reduced_as_they_come(tmp_path: Path, rows: int) -> None:
    """Rows of an image that is in memory nowhere, for two operators."""
    builder = tflm.ModelBuilder()
    main = builder.subgraph()
    x = main.input("x", (1, 8, 5, 3), I8, tflm.quantized(0.05, 4))
    for operator, axes in (("MEAN", [1, 2]), ("REDUCE_MAX", [1, 3])):
        shape = [1 if d in axes else size for d, size in enumerate((1, 8, 5, 3))]
        y = main.tensor("y", shape, I8, tflm.quantized(0.05, 4))
        numbers = main.constant("axes", np.array(axes, np.int32))
        main.operator(BuiltinOperator[operator], [x, numbers], [y], ReducerOptions(keep_dims=True))
        main.output(y)
    model = tflm.Model(builder.build())
    image = values(model, 1)
    interpreter = tflm.MicroInterpreter(model, tflm.AllOpsResolver(), bytearray(4096))
    interpreter.allocate_tensors()
    interpreter.input(0).data[...] = image
    interpreter.invoke()
    program = CheckedProgram(tflm.compile_model(model, feed_rows=rows), tmp_path)
    *before, found = program.run([[image[:, row : row + rows]] for row in range(0, 8, rows)])
    assert found is not None
    assert not any(before)
    for number, output in enumerate(found):
        np.testing.assert_array_equal(output, interpreter.output(number).data)


def network(operator: str) -> tflm.Model:
    """Convolutions whose image is reduced to a vector."""
    builder = tflm.ModelBuilder()
    images = Images(builder.subgraph(), (1, 32, 32, 3))
    x = images.convolution(images.convolution(images.last, 8), 32, taps=(1, 1))
    main, quantization = images.main, tflm.quantized(0.05, 4)
    if operator == "AVERAGE_POOL_2D":
        main.output(images.pool(x, BuiltinOperator.AVERAGE_POOL_2D, (32, 32), (1, 1), Padding.VALID))
    else:
        y = main.tensor("y", (1, 32), I8, quantization)
        main.operator(BuiltinOperator[operator], [x, main.constant("axes", np.array([1, 2], np.int32))], [y])
        main.output(y)
    return tflm.Model(builder.build())


@pytest.mark.parametrize("operator", ["AVERAGE_POOL_2D", "MEAN", "SUM"])
def test_an_image_that_is_reduced_to_a_vector_is_not_kept(operator: str) -> None:
    compiled = tflm.compile_model(network(operator))
    rows = 3 * 32 * 8 + 32 * 32  # of the inner tensors
    vectors = 4 * 32 + 32  # totals, and the output
    buffer = 2 * 4 * 3 * 3 * 8  # four windows
    assert compiled.ram_bytes <= 32 * 32 * 3 + rows + vectors + buffer + 64


def faults(plan: Plan) -> dict[str, Plan]:
    """Plans that lose totals, or rows that they lack."""
    calls = list(plan.calls)
    places = [i for i, call in enumerate(calls) if isinstance(call, Call) and call.accumulates]
    first, second, *_, last = places
    totals = calls[first].scratch[0]
    image = next(call.outputs[0] for call in calls[:first] if isinstance(call, Call) and call.outputs[0] is not None)
    moved = [
        buffer._replace(offset=plan.buffers[image.buffer].offset) if number == totals.buffer else buffer
        for number, buffer in enumerate(plan.buffers)
    ]
    without = [call for i, call in enumerate(calls) if i != second]
    twice = [*calls[: second + 1], *calls[second:]]

    def with_outputs(place: int, outputs: Any) -> list[Any]:
        call = calls[place]
        assert isinstance(call, Call)
        return [*calls[:place], call._replace(outputs=outputs), *calls[place + 1 :]]

    early, never = with_outputs(second, calls[last].outputs), with_outputs(last, (None,))
    return {
        "overwritten": plan._replace(buffers=tuple(moved)),
        **{
            name: plan._replace(calls=tuple(changed))
            for name, changed in (("without", without), ("twice", twice), ("early", early), ("never", never))
        },
    }


@pytest.mark.parametrize("fault", ["overwritten", "without", "twice", "early", "never"])
def test_the_checker_finds_totals_that_lack_rows(fault: str) -> None:
    program = tflm.compile_model(network("MEAN")).program
    kernels = BoundKernels(program.bound, StateAndScratch(program.bound, written), reference_overlap)
    model = program.bound.model
    assert not list(values_lost_in_calls(model, program.plan, kernels))
    assert list(values_lost_in_calls(model, faults(program.plan)[fault], kernels))


def test_totals_that_cost_many_instructions_take_no_more_ram_than_without_them() -> None:
    """Rows of one window of four are slow; kernels with less scratch are not, and are kept."""
    builder = tflm.ModelBuilder()
    images = Images(builder.subgraph(), (1, 23, 5, 1))
    x = images.convolution(images.last, 4)
    images.main.output(images.pool(x, BuiltinOperator.AVERAGE_POOL_2D, (23, 5), (1, 1), Padding.VALID))
    model = tflm.Model(builder.build())
    default, least = tflm.compile_model(model), tflm.compile_model(model, optimize="ram")
    assert least.ram_bytes < default.ram_bytes < tflm.compile_model(model, optimize="speed").ram_bytes


def test_totals_are_not_used_where_they_save_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Totals are within a tenth of the least RAM, which kernels with less scratch take without them."""
    builder = tflm.ModelBuilder()
    images = Images(builder.subgraph(), (1, 26, 7, 1))
    x = images.convolution(images.convolution(images.last, 8, (1, 1), (2, 2)))
    x = images.convolution(images.convolution(x, 16, (1, 1)), 32)
    images.main.output(images.pool(x, BuiltinOperator.AVERAGE_POOL_2D, (13, 4), (1, 1), Padding.VALID))
    model = tflm.Model(builder.build())
    found = tflm.compile_model(model).ram_bytes
    monkeypatch.setattr(accumulation, "totals_of", lambda node: None)
    assert found <= tflm.compile_model(model).ram_bytes
