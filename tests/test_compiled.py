"""The compiled engine has the same results as the numpy kernels."""

from __future__ import annotations

import gc
import itertools
import os
import re
import subprocess
import sys
import weakref
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import outcomes
import pytest
from differential import assert_close, run
from example_models import INT8_MODEL
from guarded_memory import GuardedMemory
from hypothesis import given, settings
from hypothesis import strategies as st
from large_operators import LARGE
from models import Arrays, layer
from oracle import Oracle
from relu_model import RELU_OF_RANGE, allocated, answer, relu_model
from test_real_models import NAMES, recorded

import tflm
from tflm.c.binding import bind_model
from tflm.compiler.processor import Profile
from tflm.delegates import Compiled
from tflm.delegates.compiled import bands
from tflm.delegates.compiled.bindings import FAMILIES, bind_steps
from tflm.delegates.compiled.movement import copy_steps
from tflm.delegates.compiled.program import run_steps
from tflm.schema import (
    ELEMENT_TYPES,
    BuiltinOperator,
    ConcatenationOptions,
    DepthwiseConv2DOptions,
    FullyConnectedOptions,
    Padding,
    SVDFOptions,
    TensorType,
)
from tflm.schema.writer import write_model
from tflm.testing.operators import OPERATORS

COMPILED = sorted(OPERATORS.keys() & {operator for operators in FAMILIES.values() for operator in operators})
EXAMPLES = settings.default.max_examples if "TFLM_HYPOTHESIS" in os.environ else 3
GARBAGE = 0xA5


class WorkArrays:
    """What `work_array` has in place of numpy: arrays full of garbage, between bytes that must stay as they are."""

    EDGE = 256

    def __init__(self) -> None:
        self._edges: list[np.ndarray[Any, Any]] = []

    def empty(self, shape: int | Sequence[int], dtype: Any) -> np.ndarray[Any, Any]:
        size = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
        memory = np.full(size + 2 * self.EDGE, GARBAGE, np.uint8)
        before, array, after = np.split(memory, [self.EDGE, self.EDGE + size])
        self._edges += [before, after]
        return array.view(dtype).reshape(shape)

    def check(self) -> None:
        assert all((edge == GARBAGE).all() for edge in self._edges), "written outside of a work array"


def run_guarded(model: bytes, invocations: Sequence[Arrays], planner: str) -> list[Arrays]:
    """Outputs of the engine, in an arena whose tensors end at a page that can't be touched.

    An invoke writes only to tensors and work arrays, not between them.
    """
    arena = bytearray(1 << 20)
    measured = tflm.MicroAllocator(arena, planner, persistent_arena=bytearray(1 << 20))
    tflm.MicroInterpreter(tflm.Model(model), tflm.AllOpsResolver(), measured, delegates=()).allocate_tensors()
    memory = GuardedMemory(len(arena), measured.head_bytes)
    allocator = tflm.MicroAllocator(memory.buffer, planner, persistent_arena=bytearray(1 << 20))
    interpreter = tflm.MicroInterpreter(tflm.Model(model), tflm.AllOpsResolver(), allocator, delegates=[Compiled()])
    work_arrays = WorkArrays()
    with mock.patch.object(bands, "np", work_arrays):
        interpreter.allocate_tensors()
    memory.close()
    between = np.ones(measured.head_bytes, np.bool_)
    for buffer in interpreter.planned_buffers():
        between[buffer.offset : buffer.offset + buffer.bytes] = False
    canaries = np.frombuffer(memory.buffer, np.uint8)[: len(between)]
    canaries[between] = GARBAGE
    outputs = []
    for inputs in invocations:
        for i, values in enumerate(inputs):
            interpreter.input(i).data[...] = values
        interpreter.invoke()
        outputs.append([np.array(interpreter.output(i).data) for i in range(interpreter.outputs_size())])
    assert (canaries[between] == GARBAGE).all()
    work_arrays.check()
    return outputs


@pytest.mark.runs(0.3)
@pytest.mark.parametrize("operator", COMPILED)
@given(data=st.data())
@settings(max_examples=EXAMPLES)
def test_compiled_kernels_give_what_numpy_kernels_give(operator: str, data: st.DataObject) -> None:
    model, invocations = data.draw(OPERATORS[operator])
    planner = data.draw(st.sampled_from(["greedy", "linear"]))
    try:
        expected = run(model, invocations, delegates=())
    except tflm.TflmError as error:
        outcomes.count(ran=False)
        with pytest.raises(type(error), match=re.escape(str(error))):
            run(model, invocations, delegates=[Compiled()])
        return
    outcomes.count(ran=True)
    for ours, theirs in zip(run_guarded(model, invocations, planner), expected, strict=True):
        assert_close(ours, theirs)


CHANNELS = [1, 2, 3, 5, 15, 16, 17, 31, 33, 47, 63, 65]


@pytest.mark.parametrize("type", [TensorType.INT8, TensorType.INT16, TensorType.FLOAT32], ids=lambda type: type.name)
@pytest.mark.parametrize("operator", ["FULLY_CONNECTED", "CONV_2D", "DEPTHWISE_CONV_2D"])
def test_vectors_are_written_no_further_than_the_output(operator: str, type: TensorType) -> None:
    """Whole vectors are stored where later ones write over what is too much: as far as there are later ones.

    What is beyond the output stays as it was, for outputs that are shorter and longer than a vector by any number.
    """
    sizes = [(1, 1), (1, 3), (23, 1), (70, 1)]
    for channels, (positions, width) in itertools.product(CHANNELS, sizes):
        model, invocations = layer(operator, positions, width, channels, type)
        expected = run(model, invocations, delegates=())
        assert_close(run_guarded(model, invocations, "linear")[0], expected[0])


@pytest.mark.parametrize("channels", [16, 48, 80, 112, 128])
@given(data=st.data())
@settings(max_examples=6)
def test_depthwise_windows_of_whole_vectors_of_channels(channels: int, data: st.DataObject) -> None:
    """Windows whose columns stay in registers, and others: of any taps, strides, dilations, batches and rows."""
    draw = data.draw
    taps, strides, dilations = (
        tuple(draw(st.integers(least, most)) for _ in range(2)) for least, most in ((1, 5), (1, 3), (1, 2))
    )
    multiplier, batches = draw(st.sampled_from([1, 1, 1, 2])), draw(st.integers(1, 2))
    sizes = [draw(st.integers((tap - 1) * dilation + 1, 12)) for tap, dilation in zip(taps, dilations)]
    same, zero_point = draw(st.booleans()), draw(st.sampled_from([-128, 5]))
    reach = [1 if same else (tap - 1) * dilation + 1 for tap, dilation in zip(taps, dilations)]
    windows = [(size - least) // stride + 1 for size, least, stride in zip(sizes, reach, strides)]
    rng = np.random.default_rng(channels)
    main = (builder := tflm.ModelBuilder()).subgraph()
    scale = tflm.quantized(0.5, zero_point)
    x = main.input("x", (batches, *sizes, channels // multiplier), TensorType.INT8, scale)
    weights = rng.integers(-128, 128, (1, *taps, channels)).astype(np.int8)
    scales = [float(of) for of in rng.uniform(0.0005, 0.004, channels)]
    w = main.constant("weights", weights, tflm.quantized(scales, [0] * channels, 3))
    bias = rng.integers(-9999, 9999, channels).astype(np.int32)
    operands = [x, w, main.constant("bias", bias, tflm.quantized([of / 2 for of in scales]))]
    y = main.tensor("y", (batches, *windows, channels), TensorType.INT8, scale)
    options = DepthwiseConv2DOptions(
        padding=Padding.SAME if same else Padding.VALID,
        stride_h=strides[0],
        stride_w=strides[1],
        dilation_h_factor=dilations[0],
        dilation_w_factor=dilations[1],
        depth_multiplier=multiplier,
    )
    main.operator(BuiltinOperator.DEPTHWISE_CONV_2D, operands, [y], options)
    main.output(y)
    model, invocations = (
        builder.build(),
        [[rng.integers(-128, 128, (batches, *sizes, channels // multiplier)).astype(np.int8)]],
    )
    expected = run(model, invocations, delegates=())
    np.testing.assert_array_equal(run_guarded(model, invocations, "linear")[0][0], expected[0][0])


@pytest.mark.parametrize("type", [TensorType.INT8, TensorType.INT16, TensorType.FLOAT32], ids=lambda type: type.name)
@pytest.mark.parametrize(("depth", "channels"), [(4, 66), (20, 1), (64, 130), (88, 3), (100, 17), (516, 5), (640, 1)])
def test_matrices_times_one_vector(depth: int, channels: int, type: TensorType) -> None:
    """Few channels, and more than in a vector, with depths that fill whole vectors or don't."""
    rng = np.random.default_rng(depth)
    is_float, dtype = type == TensorType.FLOAT32, ELEMENT_TYPES[type].dtype
    zero_points = (-7, 9) if type == TensorType.INT8 else (0, 0)
    main = (builder := tflm.ModelBuilder()).subgraph()
    x = main.input("x", (1, depth), type, None if is_float else tflm.quantized(0.5, zero_points[0]))
    weights = rng.integers(-127, 128, (channels, depth)).astype(np.float32 if is_float else np.int8)
    w = main.constant("weights", weights, None if is_float else tflm.quantized(0.25))
    scale = 32.0 * depth**0.5
    y = main.tensor("y", (1, channels), type, None if is_float else tflm.quantized(scale, zero_points[1]))
    main.operator(BuiltinOperator.FULLY_CONNECTED, [x, w], [y], FullyConnectedOptions())
    main.output(y)
    limits = (-99, 99) if is_float else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    model, invocations = builder.build(), [[rng.integers(*limits, (1, depth)).astype(dtype)] for _ in range(3)]
    expected = run(model, invocations, delegates=())
    for ours, theirs in zip(run_guarded(model, invocations, "linear"), expected, strict=True):
        assert_close(ours, theirs)


@pytest.mark.parametrize("time", [np.int8, np.int16], ids=lambda of: of.__name__)
@pytest.mark.parametrize(("units", "rank", "memory"), [(64, 1, 8), (83, 1, 4), (129, 2, 10), (17, 3, 12), (49, 1, 32)])
@given(data=st.data())
@settings(max_examples=2)
def test_svdf_of_more_units_than_a_vector_has(
    units: int, rank: int, memory: int, time: type[np.integer[Any]], data: st.DataObject
) -> None:
    """State of several invokes, and outputs: of units that fill whole vectors, and of those that are left over."""
    batches, x_zero, state_zero, y_zero = data.draw(st.tuples(st.integers(1, 2), *[st.integers(-128, 127)] * 3))
    filters, width = units * rank, np.dtype(time)
    rng = np.random.default_rng(units)
    weights = [
        rng.integers(-127, 128, shape).astype(of) for shape, of in (((filters, 5), np.int8), ((filters, memory), time))
    ]
    to_state = {1: 0.004, 2: 0.6}[width.itemsize]
    to_output = data.draw(st.sampled_from([2.0**-9, 0.003])) / width.itemsize
    main = (builder := tflm.ModelBuilder()).subgraph()
    state_type = {np.int8: TensorType.INT8, np.int16: TensorType.INT16}[time]
    bias = rng.integers(-9999, 9999, units).astype(np.int32)
    operands = [
        main.input("x", (batches, 5), TensorType.INT8, tflm.quantized(to_state, x_zero)),
        main.constant("feature", weights[0], tflm.quantized(1.0)),
        main.constant("time", weights[1], tflm.quantized(1.0)),
        main.constant("bias", bias, tflm.quantized(1.0)),
        main.tensor(
            "state", (batches, memory * filters), state_type, tflm.quantized(1.0, state_zero), is_variable=True
        ),
    ]
    y = main.tensor("y", (batches, units), TensorType.INT8, tflm.quantized(1 / to_output, y_zero))
    main.operator(BuiltinOperator.SVDF, operands, [y], SVDFOptions(rank=rank))
    main.output(y)
    model, invocations = (
        builder.build(),
        [[rng.integers(-128, 128, (batches, 5)).astype(np.int8)] for _ in range(memory + 2)],
    )
    expected = run(model, invocations, delegates=())
    for ours, theirs in zip(run_guarded(model, invocations, "linear"), expected, strict=True):
        np.testing.assert_array_equal(ours[0], theirs[0])


@pytest.mark.parametrize("sizes", [(16, 32), (64, 17), (33, 16), (32, 64)])
def test_rows_of_one_vector_are_copied_no_further(sizes: tuple[int, int]) -> None:
    """Side by side, among rows of other sizes; nothing beyond the last row is read."""
    rng = np.random.default_rng(0)
    main = (builder := tflm.ModelBuilder()).subgraph()
    parts = [main.input(f"x{size}", (1, 5, size), TensorType.INT8) for size in sizes]
    y = main.tensor("y", (1, 5, sum(sizes)), TensorType.INT8)
    main.operator(BuiltinOperator.CONCATENATION, parts, [y], ConcatenationOptions(axis=2))
    main.output(y)
    inputs = [rng.integers(-128, 128, (1, 5, size)).astype(np.int8) for size in sizes]
    (found,) = run_guarded(builder.build(), [inputs], "linear")
    np.testing.assert_array_equal(found[0], np.concatenate(inputs, axis=2))


def test_the_engine_accepts_large_operators_of_every_type() -> None:
    """It leaves none to numpy, whose results would be the same."""
    bind = partial(bind_steps, profile=Profile.of_engine())
    operators = set().union(*FAMILIES.values())
    for name, case in LARGE.items():
        if name.split("-")[0] in operators:
            bind_model(tflm.Model(case()[0]), bind)


def in_a_process(script: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """A Python process that runs the model, with its cache in a folder.

    Its working directory contains modules that end a process that imports them. Those of the same names that this
    process needs are imported before; it imports nothing of the tests but the model, which takes a second less.
    """
    planted = folder / "planted"
    planted.mkdir(exist_ok=True)
    for name in ("numba", "select", "llvmlite", "json", "sitecustomize"):
        (planted / f"{name}.py").write_text("import os\nos._exit(1)\n")
    file = folder / "script.py"
    loaded = "import json, llvmlite, select, subprocess, sys\nfrom relu_model import *"
    file.write_text(f"{loaded}\nsys.path.insert(0, '')\n{script}")
    paths = [str(Path(__file__).parent), str(Path(tflm.__file__).parents[1]), *filter(None, sys.path)]
    variables = {**os.environ, "TFLM_CACHE_DIR": str(folder / "cache"), "PYTHONPATH": os.pathsep.join(paths)}
    return subprocess.run(
        [sys.executable, str(file)], cwd=planted, env=variables, capture_output=True, text=True, check=True
    )


USES_NUMBA = "print(answer(allocated()) == RELU_OF_RANGE, 'numba' in sys.modules)"

COMPILES_WITHOUT_NUMBA = """
from tflm.compiler import machine_code
from tflm.delegates.compiled.program import run_steps
print(len(machine_code.addresses([run_steps])))
"""
"""Importing numba takes most of the time of a process that compiles few kernels."""


def test_a_process_finds_the_machine_code_of_another(tmp_path: Path) -> None:
    first = in_a_process(USES_NUMBA, tmp_path)
    assert "compiles" in first.stderr
    kept = {path: path.read_bytes() for path in (tmp_path / "cache").glob(f"*{run_steps.function_name}*")}
    assert kept
    damaged = {path: data[:-1] + b"x" for path, data in kept.items()}
    for path, data in damaged.items():  # what was damaged, or may have been written by somebody else, is made anew
        path.write_bytes(data)
    assert "compiles" in in_a_process(USES_NUMBA, tmp_path).stderr
    assert all(path.read_bytes() != data for path, data in damaged.items())
    third = in_a_process(USES_NUMBA, tmp_path)
    assert (third.stdout, third.stderr) == ("True False\n", "")
    (tmp_path / "cache").chmod(0o777)
    last = in_a_process(COMPILES_WITHOUT_NUMBA, tmp_path)
    assert last.stdout == "1\n"
    assert "no folder" in last.stderr


def test_the_engine_can_be_switched_off() -> None:
    def delegates(interpreter: tflm.MicroInterpreter) -> list[str | None]:
        return [node.delegate and node.delegate.name for node in interpreter.execution_plan()]

    assert delegates(allocated()) == ["Compiled"]
    assert delegates(allocated(delegates=())) == [None]
    with mock.patch.dict(os.environ, TFLM_COMPILED="0"):
        assert delegates(allocated()) == [None]


def test_a_profiler_sees_each_operator_that_the_engine_runs() -> None:
    model = tflm.Model.from_file(INT8_MODEL)
    profiler = tflm.MicroProfiler()
    answers = []
    for each in (None, profiler):
        interpreter = tflm.MicroInterpreter(model, tflm.AllOpsResolver(), bytearray(4096), profiler=each)
        interpreter.allocate_tensors()
        interpreter.input(0).data[...] = 42
        interpreter.invoke()
        answers.append((interpreter.output(0).data.tobytes(), [n.operators for n in interpreter.execution_plan()]))
    (alone, together), (profiled, apart) = answers
    assert profiled == alone
    assert (together, apart) == ([(0, 1, 2)], [(0,), (1,), (2,)])
    assert [event.tag for event in profiler.events] == ["Compiled(FULLY_CONNECTED)"] * 3
    assert [event.place for event in profiler.events] == [(0, 0), (0, 1), (0, 2)]


def test_an_invoke_outlives_its_interpreter() -> None:
    interpreter = allocated()
    interpreter.input(0).data[...] = np.float32(-1)
    invoke, output = interpreter.invoke, interpreter.output(0)
    del interpreter
    gc.collect()
    for _ in range(1000):
        invoke()
    assert not output.data.any()


def test_an_interpreter_is_freed_without_the_garbage_collector() -> None:
    interpreter = allocated(delegates=[Compiled()])
    answer(interpreter)
    reference = weakref.ref(interpreter)
    gc.disable()
    try:
        del interpreter
        assert reference() is None
    finally:
        gc.enable()


def test_two_large_models_in_two_threads_give_what_each_gives_alone() -> None:
    rng = np.random.default_rng(0)
    builder = tflm.ModelBuilder()
    main = builder.subgraph()
    x = main.input("x", (64, 512), TensorType.FLOAT32)
    weights = main.constant("w", rng.standard_normal((512, 512)).astype(np.float32))
    y = main.tensor("y", (64, 512), TensorType.FLOAT32)
    main.operator(BuiltinOperator.FULLY_CONNECTED, [x, weights, -1], [y])
    main.output(y)
    model = tflm.Model(builder.build())
    interpreters = [tflm.MicroInterpreter(model, tflm.AllOpsResolver(), bytearray(1 << 20)) for _ in range(2)]
    inputs = rng.standard_normal((2, 64, 512)).astype(np.float32)
    expected = []
    for interpreter, values in zip(interpreters, inputs):
        interpreter.allocate_tensors()
        interpreter.input(0).data[...] = values
        interpreter.invoke()
        expected.append(np.array(interpreter.output(0).data))

    def answers(interpreter: tflm.MicroInterpreter) -> list[Any]:
        found = []
        for _ in range(20):
            interpreter.output(0).data[...] = 0
            interpreter.invoke()
            found.append(np.array(interpreter.output(0).data))
        return found

    with ThreadPoolExecutor(2) as pool:
        for found, values in zip(pool.map(answers, interpreters), expected, strict=True):
            for answer in found:
                np.testing.assert_array_equal(answer, values)


def test_a_second_thread_runs_and_is_refused_while_a_large_model_runs() -> None:
    """The rejection shows that it ran: if the model blocked other threads, it would have finished before."""
    rng = np.random.default_rng(0)
    builder = tflm.ModelBuilder()
    main = builder.subgraph()
    x = main.input("x", (256, 1024), TensorType.FLOAT32)
    weights = main.constant("w", rng.standard_normal((1024, 1024)).astype(np.float32))
    y = main.tensor("y", (256, 1024), TensorType.FLOAT32)
    main.operator(BuiltinOperator.FULLY_CONNECTED, [x, weights, -1], [y])
    main.output(y)
    interpreter = tflm.MicroInterpreter(tflm.Model(builder.build()), tflm.AllOpsResolver(), bytearray(1 << 22))
    interpreter.allocate_tensors()
    refusals: list[str] = []

    def until_refused() -> None:
        for _ in range(50):
            if refusals:
                break
            try:
                interpreter.invoke()
            except tflm.InterpreterError as error:
                refusals.append(str(error))

    with ThreadPoolExecutor(2) as pool:
        for done in [pool.submit(until_refused) for _ in range(2)]:
            done.result()
    assert refusals
    assert "invoke while another call is in progress" in refusals[0]
    interpreter.invoke()


def test_a_class_that_overrides_invoke_keeps_its_own() -> None:
    class Counting(tflm.MicroInterpreter):
        invokes = 0

        def invoke(self) -> None:
            self.invokes += 1
            super().invoke()

    interpreter = Counting(tflm.Model(relu_model()), tflm.AllOpsResolver(), bytearray(1 << 14))
    interpreter.allocate_tensors()
    assert answer(interpreter) == RELU_OF_RANGE
    assert interpreter.invokes == 1


@pytest.mark.parametrize("name", NAMES)
def test_models_write_to_their_tensors_only(corpus: Path, name: str) -> None:
    """The results equal numpy's, in successive invokes."""
    inputs, outputs = recorded(corpus, name)
    model = (corpus / "models" / f"{name}.tflite").read_bytes()
    for actual, expected in zip(run_guarded(model, inputs, "greedy"), outputs, strict=True):
        assert_close(actual, expected)


def test_repeated_axes_cost_no_more_for_more_elements() -> None:
    """Axes times elements would be 2^38 steps."""
    main = (builder := tflm.ModelBuilder()).subgraph()
    axes = np.tile(np.array([1, -1, 1, -2], np.int32), 1 << 16)
    x, axis = main.input("x", (1 << 9, 1 << 10), TensorType.FLOAT32), main.input("axis", axes.shape, TensorType.INT32)
    y = main.tensor("y", (), TensorType.FLOAT32)
    main.operator(BuiltinOperator.REDUCE_MAX, [x, axis], [y])
    main.output(y)
    values = np.arange(1 << 19, dtype=np.float32).reshape(1 << 9, 1 << 10)
    ((answer,),) = run(builder.build(), [[values, axes]], arena_bytes=1 << 23, delegates=[Compiled()])
    assert answer == (1 << 19) - 1


@pytest.mark.parametrize("variable", [0, 1], ids=["weights", "bias"])
def test_a_constant_that_is_a_variable_begins_at_zero_as_in_tflm(oracle: Oracle, variable: int) -> None:
    """Whatever is in the arena before."""
    main = (builder := tflm.ModelBuilder()).subgraph()
    scale = tflm.quantized(0.5)
    x, y = main.input("x", (1, 3), TensorType.INT8, scale), main.tensor("y", (1, 2), TensorType.INT8, scale)
    weights = main.constant("weights", np.array([[1, 2, 3], [4, 5, 6]], np.int8), tflm.quantized(0.25))
    bias = main.constant("bias", np.array([7, 8], np.int32), tflm.quantized(0.125))
    main.operator(BuiltinOperator.FULLY_CONNECTED, [x, weights, bias], [y], FullyConnectedOptions())
    main.output(y)
    root = tflm.Model(builder.build()).root
    root.subgraphs[0].tensors[(weights, bias)[variable]].is_variable = True
    data = write_model(root)
    inputs = [np.array([[9, 10, 11]], np.int8)]
    ((expected,),) = oracle.run(data, [inputs])
    for delegates in ([], [Compiled()]):
        arena = bytearray(b"\x5a" * (1 << 14))
        interpreter = tflm.MicroInterpreter(tflm.Model(data), tflm.AllOpsResolver(), arena, delegates=delegates)
        interpreter.allocate_tensors()
        interpreter.input(0).data[...] = inputs[0]
        interpreter.invoke()
        np.testing.assert_array_equal(interpreter.output(0).data, expected)


def test_copies_may_read_between_what_others_wrote() -> None:
    """The addresses of host memory make no difference."""
    memory, other = np.zeros(12, np.int8), np.arange(4, dtype=np.int8)
    first, between, last = np.split(memory, 3)
    assert copy_steps([(first, other), (last, other), (np.zeros(4, np.int8), between)]) is not None
    assert copy_steps([(first, other), (last, other), (np.zeros(4, np.int8), last)]) is None
