"""Variables as state: whatever reads and assigns them, and in whatever order, the model answers as before."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from differential import run

import tflm
from tflm.runtime.growing_arena import ready_interpreter
from tflm.schedule.states import StatefulModel, followed, warm_up, with_states
from tflm.schema import (
    AddOptions,
    BuiltinOperator,
    CallOnceOptions,
    ConcatenationOptions,
    Conv2DOptions,
    DepthwiseConv2DOptions,
    PackOptions,
    Padding,
    Pool2DOptions,
    ReducerOptions,
    ReshapeOptions,
    SliceOptions,
    SplitOptions,
    TensorType,
    VarHandleOptions,
)

INPUTS = [
    [np.array(values, np.int8)] for values in ([-128, 5, 100, 0], [3, -7, 1, 90], [0, 0, -1, -128], [9, 9, -9, 2])
]


def model_of(uses: str) -> tflm.Model:
    """A model that does with a variable what these words say, one after the other."""
    builder = tflm.ModelBuilder()
    main = builder.subgraph()
    last = x = main.input("x", (4,), TensorType.INT8)
    handle = main.tensor("handle", (), TensorType.RESOURCE)
    main.operator(BuiltinOperator.VAR_HANDLE, [], [handle], VarHandleOptions(shared_name="v", container=""))
    for use in uses.split():
        if use == "read":
            read, larger = (main.tensor(name, (4,), TensorType.INT8) for name in ("read", "larger"))
            main.operator(BuiltinOperator.READ_VARIABLE, [handle], [read])
            main.operator(BuiltinOperator.MINIMUM if last == x else BuiltinOperator.MAXIMUM, [last, read], [larger])
            last = larger
        elif use == "once":
            main.operator(BuiltinOperator.CALL_ONCE, [], [], CallOnceOptions(init_subgraph_index=1))
        else:
            constant = main.constant("constant", np.array([1, 2, 3, 4], np.int8))
            source = {"assign": last, "input": x, "constant": constant}[use]
            main.operator(BuiltinOperator.ASSIGN_VARIABLE, [handle, source], [])
    main.output(last)
    if "once" in uses:
        first = builder.subgraph("first")
        handle = first.tensor("handle", (), TensorType.RESOURCE)
        first.operator(BuiltinOperator.VAR_HANDLE, [], [handle], VarHandleOptions(shared_name="v", container=""))
        value = first.constant("value", np.array([7, -7, 0, 1], np.int8))
        first.operator(BuiltinOperator.ASSIGN_VARIABLE, [handle, value], [])
    return tflm.Model(builder.build())


def answers(stateful: StatefulModel) -> list[Any]:
    """Answers of a model whose states are set before each invoke to what the last one left."""
    interpreter = ready_interpreter(stateful.model, delegates=(), preserve_all_tensors=True)
    values = {state: np.array(initial) for state, initial in stateful.initial.items()}
    found = []
    for (x,) in INPUTS:
        interpreter.input(0).data[...] = x
        for state, value in values.items():
            interpreter.get_tensor(state).data[...] = value.reshape(interpreter.get_tensor(state).data.shape)
        interpreter.invoke()
        values = {state: np.array(interpreter.get_tensor(source).data) for state, source in stateful.states.items()}
        found.append([np.array(interpreter.output(0).data)])
    return found


@pytest.mark.parametrize(
    ("uses", "becomes_state"),
    [
        ("read assign", True),
        ("read read assign", False),
        ("read assign assign", False),
        ("read assign read", False),
        ("read assign constant", False),
        ("read input", False),
        ("read constant", False),
        ("assign read", False),
        ("input read assign", False),
        ("once read assign", True),
        ("once once read assign", False),
        ("read once assign", False),
        ("read assign once", False),
        ("once read input", False),
    ],
)
def test_variables_become_state_where_that_changes_nothing(uses: str, becomes_state: bool) -> None:
    model = model_of(uses)
    stateful = with_states(model)
    assert bool(stateful.states) == becomes_state
    np.testing.assert_array_equal(answers(stateful), run(model.data, INPUTS, delegates=()))


@pytest.mark.parametrize("is_assigned", [True, False])
@pytest.mark.parametrize("shape", [(-1, 2), (2, -1), (-1,)])
def test_dimensions_that_operators_compute_change_nothing(shape: tuple[int, ...], is_assigned: bool) -> None:
    """A RESHAPE computes the -1 of its output, whether it is assigned to the variable or not."""
    computed = (4,) if len(shape) == 1 else (2, 2)

    def compiled(shape: tuple[int, ...]) -> tflm.CompiledModel:
        builder = tflm.ModelBuilder()
        main = builder.subgraph()
        x, handle = main.input("x", (4,), TensorType.INT8), main.tensor("handle", (), TensorType.RESOURCE)
        read, smaller = (main.tensor(name, (4,), TensorType.INT8) for name in ("read", "smaller"))
        reshaped = main.tensor("reshaped", shape, TensorType.INT8)
        options = ReshapeOptions(new_shape=computed)
        main.operator(BuiltinOperator.VAR_HANDLE, [], [handle], VarHandleOptions(shared_name="v", container=""))
        main.operator(BuiltinOperator.READ_VARIABLE, [handle], [read])
        main.operator(BuiltinOperator.MINIMUM, [x, read], [smaller])
        main.operator(BuiltinOperator.RESHAPE, [smaller], [reshaped], options)
        main.operator(BuiltinOperator.ASSIGN_VARIABLE, [handle, reshaped if is_assigned else smaller], [])
        main.output(reshaped)
        return tflm.compile_model(tflm.Model(builder.build()))

    partial, whole = compiled(shape), compiled(computed)
    assert (partial.ram_bytes, partial.warm_up, partial.stages) == (whole.ram_bytes, whole.warm_up, whole.stages)


def test_variables_are_told_apart_by_container_and_name() -> None:
    """Each handle reads its variable, then assigns it the sum of what it read and an input of its own size."""
    names = [("", "a"), ("", "b"), ("one", "a"), ("two", "a"), ("one", "b"), (None, "a"), ("one", "a")]
    builder = tflm.ModelBuilder()
    main = builder.subgraph()
    x = main.input("x", (4,), TensorType.FLOAT32)
    for container, name in names:
        handle = main.tensor("handle", (1,), TensorType.RESOURCE)
        options = VarHandleOptions(container=container, shared_name=name)
        main.operator(BuiltinOperator.VAR_HANDLE, [], [handle], options)
        read, total = (main.tensor(name, (4,), TensorType.FLOAT32) for name in ("read", "total"))
        main.operator(BuiltinOperator.READ_VARIABLE, [handle], [read])
        main.operator(BuiltinOperator.ADD, [read, x], [total], AddOptions())
        main.operator(BuiltinOperator.ASSIGN_VARIABLE, [handle, total], [])
        main.output(total)
    data, invocations = builder.build(), [[np.array([1, 2, -3, k], np.float32)] for k in range(3)]
    values: dict[tuple[str, str], Any] = {}
    expected = []
    for (fed,) in invocations:
        answers = []
        for container, name in names:
            key = container or "", name
            answers.append(values.get(key, 0) + fed)
            values[key] = answers[-1]
        expected.append(answers)
    for delegates in ((), None):
        np.testing.assert_array_equal(run(data, invocations, delegates=delegates), expected)


def test_variables_that_are_exchanged_are_no_state() -> None:
    """Their values would have to be moved at once. A variable that takes over another's value is state."""
    for exchanged in (True, False):
        builder = tflm.ModelBuilder()
        main = builder.subgraph()
        x, handles, reads = main.input("x", (4,), TensorType.INT8), [], []
        for name in "ab":
            handles.append(main.tensor("handle", (), TensorType.RESOURCE))
            reads.append(main.tensor("read", (4,), TensorType.INT8))
            options = VarHandleOptions(shared_name=name, container="")
            main.operator(BuiltinOperator.VAR_HANDLE, [], handles[-1:], options)
            main.operator(BuiltinOperator.READ_VARIABLE, handles[-1:], reads[-1:])
        smaller, y = (main.tensor(name, (4,), TensorType.INT8) for name in ("smaller", "y"))
        main.operator(BuiltinOperator.MINIMUM, [x, reads[0]], [smaller])
        main.operator(BuiltinOperator.MAXIMUM, [smaller, reads[1]], [y])
        for handle, value in zip(handles, (reads[1], reads[0] if exchanged else smaller)):
            main.operator(BuiltinOperator.ASSIGN_VARIABLE, [handle, value], [])
        main.output(y)
        model = tflm.Model(builder.build())
        stateful = with_states(model)
        assert len(stateful.states) == (0 if exchanged else 2)
        np.testing.assert_array_equal(answers(stateful), run(model.data, INPUTS, delegates=()))


@pytest.mark.parametrize(
    ("states", "values"),
    [({1: 2}, []), ({1: 1}, [1]), ({1: 2, 2: 3}, [2]), ({1: 2, 2: 3, 3: 1}, [2, 3, 1]), ({1: 2, 2: 3, 3: 2}, [2, 3])],
)
def test_a_state_takes_the_values_of_those_that_follow(states: dict[int, int], values: list[int]) -> None:
    assert followed(states, 1) == values


class Window:
    """A state and a new row, before or after it, as one tensor, and what an operator makes of it.

    Attributes:
        row, window: the new row, and the tensor of all rows.
        states: the state, with the rows of the window that are left for the next invoke.
    """

    def __init__(self, rows: int = 8, columns: int = 3, *, is_first: bool = False, type: TensorType = TensorType.INT8):
        self.main, self.type, self.scale = tflm.ModelBuilder().subgraph(), type, tflm.quantized(0.05)
        self.row, state = (self.input(count, columns) for count in (1, rows - 1))
        both, options = [self.row, state] if is_first else [state, self.row], ConcatenationOptions(axis=1)
        self.window = self.made(BuiltinOperator.CONCATENATION, both, (1, rows, columns, 2), options)
        self.states = {state: self.part(self.window, 0 if is_first else 1, (1, rows - 1, columns, 2))}

    def input(self, rows: int, columns: int = 3) -> int:
        return self.main.input("rows", (1, rows, columns, 2), self.type, self.scale)

    def made(self, code: BuiltinOperator, inputs: Sequence[int], shape: Sequence[int], options: Any = None) -> int:
        """The output of an operator."""
        output = self.main.tensor("made", shape, self.type, self.scale)
        self.main.operator(code, inputs, [output], options)
        return output

    def numbers(self, *values: int) -> int:
        return self.main.constant("numbers", np.array(values, np.int32))

    def part(self, tensor: int, row: int, shape: Sequence[int], channel: int = 0) -> int:
        places = [self.numbers(*values) for values in ((0, row, 0, channel), shape)]
        return self.made(BuiltinOperator.SLICE, [tensor, *places], shape, SliceOptions())

    def reshaped(self, tensor: int, *shape: int) -> int:
        options = ReshapeOptions(new_shape=shape)
        return self.made(BuiltinOperator.RESHAPE, [tensor, self.numbers(*shape)], shape, options)

    def halves(self) -> list[int]:
        """Both outputs of a SPLIT along the rows."""
        outputs = [self.main.tensor("half", (1, 4, 3, 2), self.type, self.scale) for _ in "ab"]
        axis = self.main.constant("axis", np.array(1, np.int32))
        self.main.operator(BuiltinOperator.SPLIT, [axis, self.window], outputs, SplitOptions(num_splits=2))
        return outputs

    def convolved(self, taps: tuple[int, int], shape: Sequence[int], **options: Any) -> int:
        """A convolution of each channel alone."""
        common = {"padding": Padding.VALID, "stride_h": 1, "stride_w": 1, "depth_multiplier": 1, **options}
        weights = np.random.default_rng(0).integers(20, 128, (1, *taps, 2)).astype(np.int8)
        operands = [self.window, self.main.constant("taps", weights, tflm.quantized([0.02, 0.01], 0, 3))]
        return self.made(BuiltinOperator.DEPTHWISE_CONV_2D, operands, shape, DepthwiseConv2DOptions(**common))

    def pooled(self) -> int:
        options = Pool2DOptions(padding=Padding.SAME, filter_height=3, filter_width=2, stride_h=2, stride_w=1)
        return self.made(BuiltinOperator.MAX_POOL_2D, [self.window], (1, 4, 3, 2), options)

    def convolved_with_itself(self) -> int:
        """The new row, with taps from the window."""
        taps = self.reshaped(self.part(self.window, 3, (1, 2, 3, 2)), 4, 1, 3, 1)
        row = self.part(self.row, 0, (1, 1, 3, 1))
        options = Conv2DOptions(padding=Padding.VALID, stride_h=1, stride_w=1)
        return self.made(BuiltinOperator.CONV_2D, [row, taps], (1, 1, 1, 4), options)

    def packed(self) -> int:
        rows = [self.part(self.window, row, (1, 2, 3, 2)) for row in (1, 4, 3)]
        options = PackOptions(values_count=3, axis=0)
        return self.reshaped(self.made(BuiltinOperator.PACK, rows, (3, 1, 2, 3, 2), options), 1, 6, 3, 2)

    def joined(self) -> int:
        rows = [self.part(self.window, row, (1, 2, 3, 2)) for row in (1, 3)]
        return self.made(BuiltinOperator.CONCATENATION, rows, (1, 2, 3, 4), ConcatenationOptions(axis=-1))

    def added(self) -> int:
        return self.made(BuiltinOperator.ADD, [self.row, self.window], (1, 8, 3, 2), AddOptions())

    def total(self) -> int:
        return self.made(BuiltinOperator.SUM, [self.window, self.numbers(1, 2, 3)], (1,), ReducerOptions())

    def model(self, *outputs: int) -> tflm.Model:
        for output in outputs:
            self.main.output(output)
        return tflm.Model(self.main.builder.build())


READERS: dict[str, Callable[[Window], int | list[int]]] = {
    "rows": lambda of: of.part(of.window, 3, (1, 2, 3, 2)),
    "a channel": lambda of: of.part(of.window, 3, (1, 2, 3, 1), 1),
    "rows side by side": lambda of: of.part(of.joined(), 0, (1, 2, 3, 2), 2),
    "taps": lambda of: of.part(of.convolved((3, 2), (1, 6, 2, 2)), 2, (1, 2, 2, 2)),
    "padding": lambda of: of.part(of.convolved((4, 1), (1, 8, 3, 2), padding=Padding.SAME), 3, (1, 1, 3, 2)),
    "strides": lambda of: of.part(of.convolved((3, 3), (1, 2, 1, 2), stride_h=3), 1, (1, 1, 1, 2)),
    "distant taps": lambda of: of.part(of.convolved((2, 1), (1, 5, 3, 2), dilation_h_factor=3), 2, (1, 2, 3, 2)),
    "taps from the window": Window.convolved_with_itself,
    "pool": lambda of: of.part(of.pooled(), 1, (1, 2, 3, 2)),
    "second half": lambda of: of.halves()[1],
    "both halves": Window.halves,
    "columns": lambda of: of.part(of.reshaped(of.window, 1, 4, 6, 2), 2, (1, 1, 6, 2)),
    "packed rows": lambda of: of.part(of.packed(), 2, (1, 2, 3, 2)),
    "total": Window.total,
    "sums": lambda of: of.part(of.added(), 3, (1, 2, 3, 2)),
    "everything": lambda of: of.window,
    "the new row": lambda of: of.part(of.row, 0, (1, 1, 2, 2)),
}
"""What reads a window, by name."""

OF_16_BITS = "rows", "a channel", "rows side by side", "pool", "columns", "sums"


@pytest.mark.parametrize(
    ("reader", "is_first", "type"),
    [
        *itertools.product(READERS, (False, True), [TensorType.INT8]),
        *itertools.product(OF_16_BITS, [False], [TensorType.INT16]),
    ],
)
def test_outputs_are_warm_once_they_read_no_row_of_the_first_state(
    reader: str, is_first: bool, type: TensorType
) -> None:
    """Rows are read if outputs change with them. In each invoke, one more row of the window is new."""
    window, rng = Window(is_first=is_first, type=type), np.random.default_rng(5)
    outputs = READERS[reader](window)
    model = window.model(*([outputs] if isinstance(outputs, int) else outputs))
    dtype = np.int8 if type is TensorType.INT8 else np.int16
    row, state, other = (rng.integers(-128, 128, (5, 1, rows, 3, 2)).astype(dtype) for rows in (1, 7, 7))
    read = [0]
    for place in range(7):
        changed = state.copy()
        changed[:, :, place] = other[:, :, place]
        results = [run(model, list(zip(row, states)), delegates=()) for states in (state, changed)]
        if any(not np.array_equal(*pair) for invoke in zip(*results) for pair in zip(*invoke)):
            read.append(1 + place if is_first else 7 - place)
    assert warm_up(model, window.states) == 1 + max(read)


Case = tuple[tflm.Model, Mapping[int, int]]


def followed_by_others(of: Window) -> Case:
    """The oldest row of the window becomes a state of its own, which others follow; the last one is read."""
    chain = [of.part(of.window, 0, (1, 1, 1, 2)), *(of.input(1, 1) for _ in range(4))]
    states = {state: value for value, state in itertools.pairwise(chain)}
    return of.model(of.reshaped(chain[-1], 2)), {**of.states, **states}


def kept_for_ever(of: Window) -> Case:
    """A total that is added to in each invoke."""
    total = of.input(1, 1)
    more = of.made(BuiltinOperator.ADD, [total, of.row], (1, 1, 1, 2), AddOptions())
    return of.model(more), {**of.states, total: more}


def in_an_operator(of: Window) -> Case:
    """Rows that a CIRCULAR_BUFFER collects."""
    output = of.main.tensor("buffer", (1, 2, 1, 2), of.type, of.scale)
    of.main.operator("CIRCULAR_BUFFER", [of.row], [output])
    return of.model(output), of.states


@pytest.mark.parametrize(
    ("made", "invokes"),
    [
        (followed_by_others, 7),
        (kept_for_ever, None),
        (in_an_operator, None),
        (lambda of: (of.model(of.row), of.states), 1),
        (lambda of: (of.model(of.row), {}), None),
    ],
)
def test_outputs_are_warm_when_all_states_are(made: Callable[[Window], Case], invokes: int | None) -> None:
    assert warm_up(*made(Window(3, 1))) == invokes
