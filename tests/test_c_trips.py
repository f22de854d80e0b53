"""Trip counts of kernels' loops equal the number of times that the loops run in Python, for any numbers."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tflm
from tflm.c import instructions
from tflm.c.instructions import instructions_of, keys_of
from tflm.c.program import KernelCall, Pointer, Table
from tflm.c.trips import trips_of
from tflm.compiler.language import DONE, Int32s, Int64s, kernel
from tflm.schedule.calls import RamBuffer
from tflm.schema import ELEMENT_TYPES, BuiltinOperator, IfOptions, TensorType, WhileOptions

RAN: Counter[str] = Counter()
"""What ran in Python."""


def ran(name: str) -> int:
    """Record that a place was reached."""
    RAN[name] += 1
    return 0


@kernel
def windows(x: Int32s, rows: int, columns: int, taps: int, stride: int, before: int) -> int:
    """Loops whose bounds depend on those around them, and on what earlier trips left."""
    top = -before
    for _row in range(rows):
        first = max(-top, 0)
        end = min(columns - top, taps)
        for k in range(first, end):
            x[0] += ran("taps") + k
        if top < 0:
            for k in range(taps):
                x[0] += ran("outside") + k
        else:
            for k in range(taps // 2):
                x[0] += ran("inside") + k
        left = 0
        for j in range(columns):
            left += j % 2
            for k in range(left):
                x[0] += ran("triangle") + k
        top += stride
        if top > rows:
            continue
        for k in range(taps):
            x[0] += ran("until") + k
    return DONE


@kernel
def odometer(x: Int32s, steps: Int64s, count: int) -> int:
    """Loops whose bounds are in a table."""
    for i in range(steps[0]):
        for k in range(steps[1] + i):
            x[0] += ran("inner") + k
    for _again in range(count):
        for k in range(steps[2]):
            x[0] += ran("again") + k
    return DONE


@kernel
def other_branch(x: Int32s, count: int) -> int:
    """A loop whose bound is data, if another is not taken."""
    if count > 4:
        last = 4
    else:
        x[0] += 1
        last = x[1]
    for k in range(last):
        x[0] += ran("last") + k
    return DONE


NUMBERS = st.integers(0, 9)
RAM = Pointer(RamBuffer("x", 16, 0, 0), 0)


@given(rows=NUMBERS, columns=NUMBERS, taps=NUMBERS, stride=st.integers(1, 3), before=NUMBERS)
@settings(max_examples=30)
def test_loops_are_counted_as_often_as_they_run(rows: int, columns: int, taps: int, stride: int, before: int) -> None:
    numbers = {"rows": rows, "columns": columns, "taps": taps, "stride": stride, "before": before}
    trips = trips_of(KernelCall(windows, {"x": RAM, **numbers}))
    RAN.clear()
    windows.function([0], **numbers)
    inner = sorted(RAN[name] for name in ("taps", "outside", "inside", "triangle", "until"))
    counts = [count for name, count in trips.items() if " for " in name]
    assert not Counter(inner) - Counter(counts)
    assert rows in counts


@given(sizes=st.lists(NUMBERS, min_size=3, max_size=3), count=NUMBERS)
@settings(max_examples=20)
def test_bounds_in_tables_are_known(sizes: list[int], count: int) -> None:
    steps = Pointer(Table("steps", np.array(sizes, np.int64)), 0)
    trips = trips_of(KernelCall(odometer, {"x": RAM, "steps": steps, "count": count}))
    RAN.clear()
    odometer.function([0], sizes, count)
    assert not Counter(RAN.values()) - Counter(trips.values())


def test_bounds_in_ram_are_counted_once() -> None:
    trips = trips_of(KernelCall(odometer, {"x": RAM, "steps": RAM, "count": 7}))
    assert set(trips.values()) == {1, 7}
    loops = [count for name, count in trips.items() if " for " in name]
    assert sorted(loops) == [1, 1, 7, 7]  # the inner loops with those around them
    for count, times in ((3, 1), (7, 4)):
        trips = trips_of(KernelCall(other_branch, {"x": RAM, "count": count}))
        assert max(trips.values()) == times


@pytest.mark.parametrize("operator", ["ARG_MAX", "MEAN", "SUM"])
def test_axes_in_ram_are_taken_to_be_the_last(operator: str) -> None:
    builder = tflm.ModelBuilder()
    main = builder.subgraph()
    x = main.input("x", (5, 6, 7), TensorType.INT8, tflm.quantized(0.5))
    axis = main.input("axis", (1,), TensorType.INT32)
    kind = TensorType.INT32 if operator == "ARG_MAX" else TensorType.INT8
    y = main.tensor("y", (5, 6), kind, None if operator == "ARG_MAX" else tflm.quantized(0.7))
    main.operator(BuiltinOperator[operator], [x, axis], [y])
    main.output(y)
    *_, call = tflm.compile_model(tflm.Model(builder.build())).program.calls()
    elements = 5 * 6 * 6 if operator == "ARG_MAX" else 5 * 6 * 7
    assert max(trips_of(call).values()) == elements


def compiled() -> tflm.CompiledModel:
    """A model with two kernels."""
    builder = tflm.ModelBuilder()
    main = builder.subgraph()
    x = main.input("x", (1, 2), TensorType.FLOAT32)
    y, z = (main.tensor(name, (1, 2), TensorType.FLOAT32) for name in "yz")
    main.operator(BuiltinOperator.ABS, [x], [y])
    main.operator(BuiltinOperator.NEG, [y], [z])
    main.output(z)
    return tflm.compile_model(tflm.Model(builder.build()))


REDUCTIONS = ("ARG_MAX", "ARG_MIN", "MEAN", "REDUCE_MAX", "REDUCE_MIN", "SUM")


def reduction(name: str, type: TensorType, shape: tuple[int, int], *, x_in_ram: bool, axis_in_ram: bool) -> tflm.Model:
    """A reduction of rows to one."""
    builder = tflm.ModelBuilder()
    main = builder.subgraph()
    scale = None if type == TensorType.FLOAT32 else tflm.quantized(0.5)
    values = np.array([108, -71, 3, 7, 7, 9, 11, 4][: shape[0] * shape[1]], ELEMENT_TYPES[type].dtype).reshape(shape)
    x = main.input("x", shape, type, scale) if x_in_ram else main.constant("x", values, scale)
    axis = main.input("axis", (1,), TensorType.INT32) if axis_in_ram else main.constant("axis", np.zeros(1, np.int32))
    is_index = name.startswith("ARG")
    y = main.tensor("y", shape[1:], TensorType.INT32 if is_index else type, None if is_index else scale)
    main.operator(BuiltinOperator[name], [x, axis], [y])
    main.output(y)
    return tflm.Model(builder.build())


@pytest.mark.parametrize("type", [TensorType.INT8, TensorType.FLOAT32])
@pytest.mark.parametrize("name", REDUCTIONS)
def test_branches_on_constants_are_counted(name: str, type: TensorType) -> None:
    """A kernel's function may compare elements of the model, such as those of a constant input."""
    model = reduction(name, type, (3, 1), x_in_ram=False, axis_in_ram=False)
    *_, call = tflm.compile_model(model).program.calls()
    assert max(trips_of(call).values()) in range(1, 7)


@pytest.mark.parametrize("type", [TensorType.INT8, TensorType.FLOAT32])
@pytest.mark.parametrize("name", REDUCTIONS)
@pytest.mark.parametrize("shape", [(2, 3), (4, 2), (1, 6)])
def test_constants_beside_an_axis_in_ram_count_as_data_in_ram(
    name: str, type: TensorType, shape: tuple[int, int]
) -> None:
    """The last axis is assumed, which may be longer than the one that is meant."""
    constant, variable = (
        [*tflm.compile_model(reduction(name, type, shape, x_in_ram=x_in_ram, axis_in_ram=True)).program.calls()]
        for x_in_ram in (False, True)
    )
    assert trips_of(constant[-1]) == trips_of(variable[-1])


def test_data_are_not_computed_with() -> None:
    """In C, the magnitude of the lowest number wraps."""
    builder = tflm.ModelBuilder()
    main = builder.subgraph()
    x = main.constant("x", np.full(6, -(2**15), np.int16))
    outputs = [main.tensor("y", (6,), TensorType.INT16), main.tensor("bits", (), TensorType.INT32)]
    main.operator("SignalFftAutoScale", [x], outputs)
    for output in outputs:
        main.output(output)
    *_, call = tflm.compile_model(tflm.Model(builder.build())).program.calls()
    assert 6 in trips_of(call).values()


def test_instructions_are_a_sum_over_operators(monkeypatch: pytest.MonkeyPatch) -> None:
    program = compiled().program
    keys = list(keys_of(program).values())
    assert len(keys) == 2
    costs = {key: {name: (1.0, 2.0) for call in program.calls() for name in trips_of(call)} for key in keys}
    rest = dict.fromkeys(instructions.program_counts(program), (0.5, 1.0))
    monkeypatch.setattr(instructions, "measured_instructions", lambda: {**costs, instructions.PROGRAM: rest})
    found = instructions_of(program)
    assert found.total is not None
    beside = sum(instructions.program_counts(program).values())
    for build, scale in zip(instructions.COUNTED_BUILDS, (1, 2)):
        kernels = sum(operator[build] for operator in found.operators.values())
        assert kernels == scale * sum(sum(trips_of(call).values()) for call in program.calls())
        assert found.total[build] == round(kernels + beside * scale / 2)


def test_a_kernel_that_was_not_counted_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    program = compiled().program
    keys = list(keys_of(program).values())
    monkeypatch.setattr(instructions, "measured_instructions", dict)
    assert instructions_of(program).total is None
    assert instructions_of(program).unknown == tuple(name for name, *_ in keys)


def of_subgraphs(code: BuiltinOperator, options: Any, *sizes: int) -> int:
    """Estimate a model whose only operator runs subgraphs of that many operators; each trip is one instruction."""
    builder = tflm.ModelBuilder()
    main = builder.subgraph()
    types = [TensorType.FLOAT32] if code is BuiltinOperator.WHILE else [TensorType.BOOL, TensorType.FLOAT32]
    inputs = [main.input("x", (1, 2) if type is TensorType.FLOAT32 else (1,), type) for type in types]
    y = main.tensor("y", (1, 2), TensorType.FLOAT32)
    main.operator(code, inputs, [y], options)
    main.output(y)
    for number, size in enumerate(sizes):
        subgraph = builder.subgraph()
        x = subgraph.input("x", (1, 2), TensorType.FLOAT32)
        for _ in range(size):
            x, before = subgraph.tensor("t", (1, 2), TensorType.FLOAT32), x
            subgraph.operator(BuiltinOperator.ABS, [before], [x])
        if code is BuiltinOperator.WHILE and number == 0:
            holds, limit = (
                subgraph.tensor("holds", (1, 2), TensorType.BOOL),
                subgraph.constant("limit", np.float32([9])),
            )
            subgraph.operator(BuiltinOperator.LESS, [x, limit], [holds])
            x = holds
        subgraph.output(x)
    program = tflm.compile_model(tflm.Model(builder.build())).program
    costs = {
        key: dict.fromkeys(itertools.chain.from_iterable(map(trips_of, program.calls())), (1.0, 1.0))
        for key in keys_of(program).values()
    }
    rest = dict.fromkeys(instructions.program_counts(program), (1.0, 1.0))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(instructions, "measured_instructions", lambda: {**costs, instructions.PROGRAM: rest})
        found = instructions_of(program)
    assert found.total is not None
    assert found.unknown == ()
    assert 0 < found.operators[0]["cortex-m4", "-O2"] < found.total["cortex-m4", "-O2"]
    return found.total["cortex-m4", "-O2"]


def test_both_subgraphs_of_if_count_half() -> None:
    options = IfOptions(then_subgraph_index=1, else_subgraph_index=2)
    short, mixed, long = (of_subgraphs(BuiltinOperator.IF, options, *sizes) for sizes in ((1, 1), (1, 5), (5, 5)))
    assert 2 * mixed == short + long
    assert mixed == of_subgraphs(BuiltinOperator.IF, options, 5, 1)
    assert short < long


def test_a_while_counts_with_one_iteration() -> None:
    """Its condition runs before the iteration and after it."""
    options = WhileOptions(cond_subgraph_index=1, body_subgraph_index=2)
    short, body, condition = (
        of_subgraphs(BuiltinOperator.WHILE, options, *sizes) for sizes in ((1, 1), (1, 4), (4, 1))
    )
    assert condition - short == 2 * (body - short) > 0
