"""Delegates: what they see and claim, how claimed operators are grouped, and what delegates may change."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sine_delegate import SineDelegate
from typer.testing import CliRunner

import tflm
from tflm.cli.app import app
from tflm.delegates import Delegate, DelegateContext, DelegateParams
from tflm.runtime.execution_plan import DependencyGraph, StandaloneRun
from tflm.runtime.host_placement import displaced_buffers
from tflm.runtime.micro_graph import MicroGraph, bind_node
from tflm.runtime.micro_interpreter import lay_out
from tflm.schema import BuiltinOperator, CallOnceOptions, TensorType, VarHandleOptions

KINDS = [BuiltinOperator.ADD, BuiltinOperator.MAXIMUM, BuiltinOperator.MINIMUM, "ADD_IN_SCRATCH"]


def prepare_with_scratch(context: tflm.KernelContext, node: tflm.Node) -> None:
    node.op_data = context.request_scratch_buffer_in_arena(20)


def bind_add_in_scratch(context: tflm.KernelContext, node: tflm.Node) -> Callable[[], None]:
    a, b = (context.get_eval_input(node, i).elements for i in range(2))
    y, scratch = context.get_eval_output(node, 0).elements, context.get_scratch_buffer(node.op_data).view(np.float32)

    def run() -> None:
        np.add(a, b, out=scratch)
        y[...] = scratch

    return run


def all_operators() -> tflm.AllOpsResolver:
    """A resolver that also has an addition with a scratch buffer."""
    resolver = tflm.AllOpsResolver()
    resolver.add_custom(tflm.Registration("ADD_IN_SCRATCH", bind_add_in_scratch, prepare_with_scratch))
    return resolver


def sines() -> tflm.Model:
    """sin(x) + x + sin(2x)."""
    builder = tflm.ModelBuilder()
    main = builder.subgraph()
    x = main.input("x", (4,), TensorType.FLOAT32)
    two = main.constant("two", np.full(4, 2, np.float32))
    a, b, c, d, e = (main.tensor(name, (4,), TensorType.FLOAT32) for name in "abcde")
    main.operator(BuiltinOperator.SIN, [x], [a])
    main.operator(BuiltinOperator.ADD, [a, x], [b])
    main.operator(BuiltinOperator.MUL, [x, two], [c])
    main.operator(BuiltinOperator.SIN, [c], [d])
    main.operator(BuiltinOperator.ADD, [b, d], [e])
    main.output(e)
    return tflm.Model(builder.build())


def interpreter(model: tflm.Model, delegates: Sequence[Delegate] | None, **options: Any) -> tflm.MicroInterpreter:
    return tflm.MicroInterpreter(model, all_operators(), bytearray(1 << 16), delegates=delegates, **options)


def result(made: tflm.MicroInterpreter) -> list[np.ndarray[Any, Any]]:
    """Outputs after two invokes, a reset and a third, on inputs that are always the same."""
    made.allocate_tensors()
    answers = []
    for step in range(3):
        for i in range(made.inputs_size()):
            tensor = made.input(i)
            tensor.data = np.random.default_rng([i, step]).integers(-9, 9, tensor.dims).astype(tensor.data.dtype)
        made.invoke()
        answers += [np.array(made.output(i).data) for i in range(made.outputs_size())]
        if step == 1:
            made.reset()
    return answers


class Takes(Delegate):
    """Claims the operators at some positions, and runs them with their own kernels, the last one first if possible."""

    def __init__(self, *places: int, on_device: bool = False, runs_in_order: bool = False):
        self.places, self.on_device, self.runs_in_order = places, on_device, runs_in_order
        self.seen: list[DelegateParams] = []

    def prepare(self, context: DelegateContext) -> None:
        count = len(context.subgraph.operators or ())
        free = [i for i in context.execution_plan() if i in self.places and i < count]
        registration = tflm.Registration("TAKES", self.bind, init=self.init)
        context.replace_node_subsets_with_delegate_kernels(registration, free)

    def init(self, context: tflm.KernelContext, params: DelegateParams) -> DelegateParams:
        self.seen.append(params)
        return params

    def bind(self, context: tflm.KernelContext, node: tflm.Node) -> Callable[[], None]:
        runs = [bind_node(context, replaced, registration) for replaced, registration in node.op_data.replaced]

        def run() -> None:
            for part in runs:
                part()

        return run


@pytest.mark.parametrize("on_device", [False, True])
def test_a_reset_reaches_every_subset_of_a_delegate(on_device: bool) -> None:
    seen: list[Any] = []

    class Resets(Takes):
        def prepare(self, context: DelegateContext) -> None:
            registration = tflm.Registration(
                "TAKES", self.bind, init=self.init, reset=lambda _, node: seen.append(node.op_data.nodes_to_replace)
            )
            context.replace_node_subsets_with_delegate_kernels(registration, self.places)

    made = interpreter(sines(), [Resets(1, 2, 4, on_device=on_device)])
    made.allocate_tensors()
    seen.clear()
    for count in range(3):
        assert seen == [(1, 2), (4,)] * count
        made.reset()


def test_subsets_alternate_as_tflite_groups_them() -> None:
    made = interpreter(sines(), [SineDelegate()])
    assert [node.operators for node in made.execution_plan()] == [(0,), (1,), (2,), (3,), (4,)]
    assert [node.delegate is not None for node in made.execution_plan()] == [True, False, False, True, False]
    both = interpreter(sines(), [Takes(1, 2, 4)])
    assert [node.operators for node in both.execution_plan()] == [(0,), (1, 2), (3,), (4,)]


def test_a_subset_knows_its_tensors() -> None:
    delegate = Takes(1, 2, 4)
    interpreter(sines(), [delegate]).allocate_tensors()
    first, second = delegate.seen
    assert (first.nodes_to_replace, first.input_tensors, first.output_tensors) == ((1, 2), (0, 1, 2), (3, 4))
    assert (second.nodes_to_replace, second.input_tensors, second.output_tensors) == ((4,), (3, 5), (6,))


@pytest.mark.parametrize("returned", [None, "mine"])
def test_what_init_returns_takes_the_place_of_the_parameters(returned: str | None) -> None:
    kept = []

    class Keeps(Takes):
        def init(self, context: tflm.KernelContext, params: DelegateParams) -> Any:
            super().init(context, params)
            return returned

        def bind(self, context: tflm.KernelContext, node: tflm.Node) -> Callable[[], None]:
            kept.append(node.op_data)
            node.op_data = self.seen[-1]
            return super().bind(context, node)

    delegate = Keeps(1, 2)
    interpreter(sines(), [delegate]).allocate_tensors()
    assert kept == [returned or delegate.seen[0]]


@given(
    operators=st.lists(
        st.tuples(
            st.lists(st.integers(-1, 7), max_size=3),
            st.lists(st.integers(0, 7), max_size=2),
            st.booleans(),
            st.booleans(),
        ),
        max_size=7,
    ),
    variable=st.integers(0, 7),
)
def test_an_operator_waits_for_all_that_must_be_done_before_it(
    operators: list[tuple[list[int], list[int], bool, bool]], variable: int
) -> None:
    builder = tflm.ModelBuilder()
    main = builder.subgraph()
    for i in range(8):
        main.tensor(f"t{i}", (1,), TensorType.FLOAT32, is_variable=i == variable)
    built = [
        (
            tflm.Node("op", i, tuple(inputs), tuple(outputs), (), None, memoryview(b""), 1, (9,) if runs else ()),
            tflm.Registration("op", lambda *_: lambda: None, has_state=False, ends_invoke=ends),
        )
        for i, (inputs, outputs, runs, ends) in enumerate(operators)
    ]
    found = DependencyGraph(main.table, built).waits_for
    state = [runs or variable in (*inputs, *outputs) for inputs, outputs, runs, _ in operators]
    must: list[set[int]] = []
    for j, (inputs, _, _, ends) in enumerate(operators):
        makers = {max((i for i in range(j) if t in operators[i][1]), default=-1) for t in inputs} - {-1}
        must.append(makers | {i for i in range(j) if (state[i] and state[j]) or ends or operators[i][3]})

    def all_before(waits: list[set[int]]) -> list[set[int]]:
        closed: list[set[int]] = []
        for before in waits:
            closed.append(before.union(*(closed[i] for i in before)))
        return closed

    assert all_before(found) == all_before(must)


def test_a_delegate_gives_its_own_results() -> None:
    made = interpreter(sines(), [SineDelegate()])
    plain = result(interpreter(sines(), ()))
    for ours, theirs in zip(result(made), plain):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6)


def test_several_delegates_take_what_is_left_and_none_takes_anothers() -> None:
    made = interpreter(sines(), [Takes(1), SineDelegate()])
    made.modify_graph_with_delegate(Takes(2))
    names = [node.delegate.name if node.delegate else None for node in made.execution_plan()]
    assert names == ["SineDelegate", "Takes", "Takes", "SineDelegate", None]
    with pytest.raises(tflm.DelegateError, match="node 0: SINE already has it"):
        made.modify_graph_with_delegate(Greedy())
    assert [node.delegate is not None for node in made.execution_plan()].count(True) == 4
    made.allocate_tensors()
    with pytest.raises(tflm.InterpreterError, match="before allocate_tensors"):
        made.modify_graph_with_delegate(Takes(4))


class Greedy(Delegate):
    """Claims operators that it must not claim."""

    def __init__(self, *places: int):
        self.places = places or (0, 1, 2)

    def prepare(self, context: DelegateContext) -> None:
        context.replace_node_subsets_with_delegate_kernels(tflm.Registration("GREEDY"), self.places)


def test_what_a_delegate_can_not_take_is_an_error() -> None:
    with pytest.raises(tflm.DelegateError, match="Greedy can't take node 7: there are 5"):
        interpreter(sines(), [Greedy(7)]).allocate_tensors()
    builder = tflm.ModelBuilder()
    main = builder.subgraph()
    x, y = main.input("x", (4,), TensorType.FLOAT32), main.tensor("y", (4,), TensorType.FLOAT32)
    main.operator(BuiltinOperator.ADD, [x, x], [y], version=2)
    main.output(y)
    with pytest.raises(tflm.DelegateError, match="ADD version 2, and the registration GREEDY has versions 1 to 1"):
        interpreter(tflm.Model(builder.build()), [Greedy(0)]).allocate_tensors()


def test_operators_that_the_resolver_lacks_may_be_taken() -> None:
    resolver = tflm.MicroMutableOpResolver(2)
    resolver.add_add()
    resolver.add_mul()
    with pytest.raises(tflm.UnresolvedOperator, match="add_sin"):
        tflm.MicroInterpreter(sines(), resolver, bytearray(4096), delegates=()).allocate_tensors()
    made = tflm.MicroInterpreter(sines(), resolver, bytearray(4096), delegates=[SineDelegate()])
    for ours, theirs in zip(result(made), result(interpreter(sines(), ()))):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6)


def _figures(made: tflm.MicroInterpreter) -> tuple[Any, ...]:
    return made.head_bytes, made.tail_bytes, made.planned_buffers()


@settings(max_examples=30)
@given(st.data())
def test_random_graphs_with_random_delegates(data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 12))
    model = _random_graph(data, count)
    planner = data.draw(st.sampled_from(["greedy", "linear", "best_fit"]))
    if planner == "greedy" and data.draw(st.booleans()):
        model = tflm.plan(model, all_operators(), in_place=True).model
    takers = [
        Takes(*(i for i in range(count) if data.draw(st.booleans())), runs_in_order=data.draw(st.booleans()))
        for _ in range(data.draw(st.integers(0, 3)))
    ]
    plain, delegated = interpreter(model, (), planner=planner), interpreter(model, takers, planner=planner)
    for ours, theirs in zip(result(delegated), result(plain)):
        np.testing.assert_array_equal(ours, theirs)
    assert _figures(plain) == _figures(delegated)
    plan = delegated.execution_plan()
    assert sorted(i for node in plan for i in node.operators) == list(range(count))
    _check_order(model, plan)
    _check_that_subsets_are_maximal(model, plan)


def _random_graph(data: st.DataObject, count: int) -> tflm.Model:
    builder = tflm.ModelBuilder()
    main = builder.subgraph()
    tensors = [main.input(f"x{i}", (5,), TensorType.FLOAT32) for i in range(data.draw(st.integers(1, 2)))]
    for i in range(count):
        y = main.tensor(f"y{i}", (5,), TensorType.FLOAT32)
        inputs = [data.draw(st.sampled_from(tensors)) for _ in range(2)]
        main.operator(data.draw(st.sampled_from(KINDS)), inputs, [y])
        tensors.append(y)
    main.output(tensors[-1])
    if data.draw(st.booleans()):
        main.output(data.draw(st.sampled_from(tensors[-4:-1] or tensors[:1])))
    return tflm.Model(builder.build())


def _makers(model: tflm.Model) -> dict[int, int]:
    return {t: i for i, op in enumerate(model.subgraphs[0].operators or ()) for t in op.outputs or ()}


def _check_order(model: tflm.Model, plan: list[Any]) -> None:
    makers, operators, done = _makers(model), model.subgraphs[0].operators or [], set()
    for node in plan:
        done |= set(node.operators)
        assert {makers[t] for i in node.operators for t in operators[i].inputs or () if t in makers} <= done


def _check_that_subsets_are_maximal(model: tflm.Model, plan: list[Any]) -> None:
    """Two nodes of one delegate are two because the later waits for what runs between them."""
    makers, operators = _makers(model), model.subgraphs[0].operators or []
    for k, node in enumerate(plan):
        for j in range(k + 1, len(plan)):
            if node.delegate is None or plan[j].delegate is not node.delegate:
                continue
            between = {i for other in plan[k + 1 : j] for i in other.operators}
            assert {makers.get(t) for i in plan[j].operators for t in operators[i].inputs or ()} & between


class Npu(Takes):
    """Hardware of the device, which asks for memory of its own."""

    def __init__(self, *places: int):
        super().__init__(*places, on_device=True)

    def prepare(self, context: DelegateContext) -> None:
        registration = tflm.Registration("NPU", self.bind, self.ask)
        context.replace_node_subsets_with_delegate_kernels(registration, self.places)

    def ask(self, context: tflm.KernelContext, node: tflm.Node) -> None:
        self.persistent = context.allocate_persistent_buffer(32)
        self.scratch = context.request_scratch_buffer_in_arena(48)

    def bind(self, context: tflm.KernelContext, node: tflm.Node) -> Callable[[], None]:
        inputs = [context.get_eval_input(node, i).elements for i in range(len(node.inputs))]
        outputs = [context.get_eval_output(node, i).elements for i in range(len(node.outputs))]
        scratch = context.get_scratch_buffer(self.scratch)

        def run() -> None:
            scratch[:] = 255
            total = np.sum(inputs, 0)
            for output in outputs:
                output[...] = total

        return run


def test_hardware_of_the_device_changes_the_arena_and_asks_for_memory() -> None:
    plain, device = interpreter(sines(), ()), interpreter(sines(), [Npu(0, 1)])
    plain.allocate_tensors()
    device.allocate_tensors()
    names = {buffer.name for buffer in plain.planned_buffers()} - {buffer.name for buffer in device.planned_buffers()}
    assert names == {"a"}
    (scratch,) = [buffer for buffer in device.planned_buffers() if buffer.kind == "scratch"]
    assert (scratch.name, scratch.bytes) == ("NPU", 48)
    device.input(0).data[:] = 0.5
    device.invoke()
    np.testing.assert_allclose(device.output(0).data, 0.5 + np.sin(1.0), rtol=1e-6)
    measured = tflm.measure_arena(sines(), tflm.AllOpsResolver(), delegates=[Npu(0, 1)])
    assert measured.arena_used_bytes == device.arena_used_bytes()
    assert (
        tflm.MicroInterpreter(
            sines(), tflm.AllOpsResolver(), bytearray(measured.minimum_arena_bytes), delegates=[Npu(0, 1)]
        ).allocate_tensors()
        is None
    )


def test_a_delegate_of_the_host_may_not_ask_for_memory_of_the_device() -> None:
    delegate = Npu(0, 1)
    delegate.on_device = False
    with pytest.raises(tflm.InterpreterError, match="persistent memory"):
        interpreter(sines(), [delegate]).allocate_tensors()


class Fails(Takes):
    """Raises in one of its phases, as long as it is told to."""

    def __init__(self, phase: str):
        super().__init__(0, 1)
        self.phase: str | None = phase
        self.freed = 0

    def prepare(self, context: DelegateContext) -> None:
        self.fail("prepare")
        registration = tflm.Registration("FAILS", self.bind, init=self.init, prepare=self.ready, free=self.free)
        context.replace_node_subsets_with_delegate_kernels(registration, self.places)

    def fail(self, phase: str) -> None:
        if self.phase == phase:
            raise RuntimeError(f"no {phase}")

    def init(self, context: tflm.KernelContext, params: DelegateParams) -> DelegateParams:
        self.fail("init")
        return params

    def ready(self, context: tflm.KernelContext, node: tflm.Node) -> None:
        self.fail("ready")

    def bind(self, context: tflm.KernelContext, node: tflm.Node) -> Callable[[], None]:
        self.fail("bind")
        run = super().bind(context, node)

        def failing() -> None:
            run()
            self.fail("invoke")

        return failing

    def free(self, context: tflm.KernelContext, node: tflm.Node) -> None:
        self.freed += 1


@pytest.mark.parametrize("phase", ["prepare", "init", "ready", "bind"])
def test_an_error_before_the_first_invoke_leaves_the_arena_free(phase: str) -> None:
    delegate, arena = Fails(phase), bytearray(4096)
    allocator = tflm.MicroAllocator(arena)
    used = allocator.used_bytes()
    made = tflm.MicroInterpreter(sines(), tflm.AllOpsResolver(), allocator, delegates=[delegate])
    with pytest.raises(RuntimeError, match=f"no {phase}"):
        made.allocate_tensors()
    assert allocator.used_bytes() == used
    assert delegate.freed == (phase != "prepare")
    delegate.phase = None
    for ours, theirs in zip(result(made), result(interpreter(sines(), ()))):
        np.testing.assert_array_equal(ours, theirs)


def test_an_error_in_an_invoke_leaves_the_interpreter_usable() -> None:
    delegate = Fails("invoke")
    made = interpreter(sines(), [delegate])
    made.allocate_tensors()
    for _ in range(2):
        with pytest.raises(RuntimeError, match="no invoke"):
            made.invoke()
    delegate.phase = None
    for ours, theirs in zip(result(made), result(interpreter(sines(), ()))):
        np.testing.assert_array_equal(ours, theirs)


def test_a_failed_modification_leaves_the_graph_as_it_was() -> None:
    made = interpreter(sines(), [SineDelegate()])
    before = [node.operators for node in made.execution_plan()]
    with pytest.raises(RuntimeError, match="no prepare"):
        made.modify_graph_with_delegate(Fails("prepare"))
    assert [node.operators for node in made.execution_plan()] == before
    made.allocate_tensors()


def test_what_a_delegate_holds_is_freed_once() -> None:
    delegate = Fails("nothing")
    made = interpreter(sines(), [delegate])
    made.allocate_tensors()
    assert delegate.freed == 0
    del made
    assert delegate.freed == 1


@settings(max_examples=10)
@given(st.data())
def test_random_graphs_in_a_shared_arena(data: st.DataObject) -> None:
    models = [_random_graph(data, data.draw(st.integers(1, 8))) for _ in range(2)]
    takers = [Takes(*range(0, 8, 2), runs_in_order=data.draw(st.booleans())), Takes(*range(1, 8, 2))]
    allocators = tflm.MicroAllocator(bytearray(1 << 16)), tflm.MicroAllocator(bytearray(1 << 16))
    resolver = all_operators()
    plain = [tflm.MicroInterpreter(model, resolver, allocators[0], delegates=()) for model in models]
    delegated = [tflm.MicroInterpreter(model, resolver, allocators[1], delegates=takers) for model in models]
    for one, other in zip(plain, delegated):
        one.allocate_tensors()
        other.allocate_tensors()
    assert allocators[0].used_bytes() == allocators[1].used_bytes()
    for _ in range(2):
        for one, other in zip(plain, delegated):
            for ours, theirs in zip(result(other), result(one)):
                np.testing.assert_array_equal(ours, theirs)


def test_variables_and_subgraphs_keep_their_order() -> None:
    builder = tflm.ModelBuilder()
    main, first = builder.subgraph(), builder.subgraph()
    options = VarHandleOptions(shared_name="v")
    x, y = main.input("x", (4,), TensorType.FLOAT32), main.tensor("y", (4,), TensorType.FLOAT32)
    handle, read = main.tensor("h", (), TensorType.RESOURCE), main.tensor("r", (4,), TensorType.FLOAT32)
    other, start = first.tensor("h2", (), TensorType.RESOURCE), first.constant("s", np.full(4, 7, np.float32))
    first.operator(BuiltinOperator.VAR_HANDLE, [], [other], options)
    first.operator(BuiltinOperator.ASSIGN_VARIABLE, [other, start], [])
    main.operator(BuiltinOperator.CALL_ONCE, [], [], CallOnceOptions(init_subgraph_index=1))
    main.operator(BuiltinOperator.VAR_HANDLE, [], [handle], options)
    main.operator(BuiltinOperator.READ_VARIABLE, [handle], [read])
    main.operator(BuiltinOperator.ADD, [read, x], [y])
    main.operator(BuiltinOperator.ASSIGN_VARIABLE, [handle, y], [])
    main.output(y)
    model = tflm.Model(builder.build())
    for places in ((0, 2, 4), (2, 3), (1, 3), (0, 1), (0, 1, 2, 3, 4)):
        for in_order in (False, True):
            made = interpreter(model, [Takes(*places, runs_in_order=in_order)])
            plan = [i for node in made.execution_plan() for i in node.operators]
            assert [i for i in plan if i != 3] == [0, 1, 2, 4] or plan.index(2) < plan.index(3) < plan.index(4)
            for ours, theirs in zip(result(made), result(interpreter(model, ()))):
                np.testing.assert_array_equal(ours, theirs)


def test_a_profile_names_what_a_delegate_runs_together() -> None:
    class Asks(Takes):
        def prepare(self, context: DelegateContext) -> None:
            profiled.append(context.is_profiled)
            super().prepare(context)

    profiler, profiled = tflm.MicroProfiler(), list[bool]()
    interpreter(sines(), [Asks(1, 2)]).allocate_tensors()
    made = interpreter(sines(), [Asks(1, 2)], profiler=profiler)
    made.allocate_tensors()
    made.invoke()
    assert profiled == [False, True]
    assert [event.tag for event in profiler.events] == ["SIN", "TAKES(ADD, MUL)", "SIN", "ADD"]


class Wrong(SineDelegate):
    """Claims every SIN, and returns another result."""

    def prepare(self, context: DelegateContext) -> None:
        sines = [i for i in context.execution_plan() if context.node_and_registration(i)[0].operator == "SIN"][1:]
        context.replace_node_subsets_with_delegate_kernels(tflm.Registration("WRONG", self.bind), sines)

    def bind(self, context: tflm.KernelContext, node: tflm.Node) -> Callable[[], None]:
        y = context.get_eval_output(node, 0).elements
        return lambda: y.fill(3)


def test_compare_finds_the_first_operator_where_a_delegate_departs(tmp_path: Path) -> None:
    path = tmp_path / "sines.tflite"
    path.write_bytes(sines().data)
    shown = CliRunner().invoke(app, ["compare", str(path), "--delegate", "test_delegates:Wrong"])
    assert "first to diverge: d of operator 3 SIN" in shown.output
    shown = CliRunner().invoke(app, ["compare", str(path), "--delegate", "sine_delegate:SineDelegate"])
    assert "no tensor is off by more" in shown.output
    shown = CliRunner().invoke(app, ["profile", str(path), "--runs", "2", "--delegate", "test_delegates:Wrong"])
    assert "WRONG(SIN)" in shown.output


def with_variable(order: str) -> tflm.Model:
    """ADDs of a variable (v) or of the input alone (x), in that order; each sum is an output.

    The variable is written by none, so that nothing but its use says that these operators have an order.
    """
    builder = tflm.ModelBuilder()
    main = builder.subgraph()
    x = main.input("x", (4,), TensorType.FLOAT32)
    variable = main.tensor("variable", (4,), TensorType.FLOAT32, is_variable=True)
    for i, of in enumerate(order):
        y = main.tensor(f"y{i}", (4,), TensorType.FLOAT32)
        main.operator(BuiltinOperator.ADD, [x, variable if of == "v" else x], [y])
        main.output(y)
    return tflm.Model(builder.build())


def test_operators_that_use_a_variable_keep_their_order() -> None:
    """Operators that do not use it are grouped, wherever they are."""
    plan = interpreter(with_variable("vvv"), [Takes(0, 2)]).execution_plan()
    assert [node.operators for node in plan] == [(0,), (1,), (2,)]
    plan = interpreter(with_variable("xxx"), [Takes(0, 2)]).execution_plan()
    assert [node.operators for node in plan] == [(0, 2), (1,)]
    plan = interpreter(with_variable("vxv"), [Takes(0, 2)]).execution_plan()
    assert [node.operators for node in plan] == [(0, 2), (1,)]
    plan = interpreter(with_variable("xvxv"), [Takes(0, 3)]).execution_plan()
    assert [node.operators for node in plan] == [(0,), (1,), (2,), (3,)]


def test_a_variable_is_no_output_of_what_reads_it() -> None:
    delegate = Takes(0, 1)
    interpreter(with_variable("vv"), [delegate]).allocate_tensors()
    (seen,) = delegate.seen
    assert (seen.input_tensors, seen.output_tensors) == ((0, 1), (2, 3))


def test_buffers_that_stay_in_the_arena_are_not_alive_together_on_the_host() -> None:
    """Nothing else moves, and what the caller sees moves last."""
    rng, resolver, moved = np.random.default_rng(3), all_operators(), {"tensor": 0, "scratch": 0}
    for _ in range(100):
        builder, count = tflm.ModelBuilder(), int(rng.integers(2, 9))
        main = builder.subgraph()
        tensors = [main.input(f"x{i}", (5,), TensorType.FLOAT32) for i in range(2)]
        reads = [rng.integers(2 + i, size=2).tolist() for i in range(count)]
        kinds = [KINDS[rng.integers(len(KINDS))] for _ in range(count)]
        for i, (kind, inputs) in enumerate(zip(kinds, reads)):
            tensors.append(main.tensor(f"y{i}", (5,), TensorType.FLOAT32))
            main.operator(kind, [tensors[j] for j in inputs], [tensors[-1]])
        main.output(tensors[-1])
        taken = Takes(*np.flatnonzero(rng.integers(2, size=count)).tolist(), runs_in_order=bool(rng.integers(2)))
        graph = MicroGraph(tflm.Model(builder.build()), resolver, [taken])
        layout = lay_out(graph, tflm.MicroAllocator(bytearray(1 << 12)))
        planned, by_subgraph = layout.planned, [each.tensors for each in graph.allocations]
        displaced = displaced_buffers(graph.model, graph.plans, by_subgraph, planned, layout.steps)

        step: dict[int, int] = {}
        for node in graph.plans[0].running:
            is_split = taken.runs_in_order or node.delegate is None
            for group in [[i] for i in node.operators] if is_split else [node.operators]:
                step.update(dict.fromkeys(group, len(set(step.values())) + 1))
        with_scratch = iter(i for i, kind in enumerate(kinds) if kind == "ADD_IN_SCRATCH")
        occupied = []
        for buffer in planned:
            if buffer.tensor is None:
                uses = [step[next(with_scratch)]]
            else:
                uses = [step[i] for i in range(count) if buffer.tensor in (*reads[i], i + 2)]
                uses += [0] * (buffer.tensor < 2) + [max(step.values())] * (buffer.tensor == count + 1)
            alive, place = range(min(uses), max(uses) + 1), range(buffer.offset, buffer.offset + buffer.size)
            occupied.append(set(itertools.product(alive, place)))
        kept = [i for i in range(len(planned)) if i not in displaced]
        assert not any(occupied[one] & occupied[other] for one, other in itertools.combinations(kept, 2))
        for i in displaced:
            moved[planned[i].kind] += 1
            shown = {0, 1, count + 1}
            rivals = [k for k in kept if planned[k].tensor in shown] if planned[i].tensor in shown else kept
            assert any(occupied[i] & occupied[other] for other in rivals)
    assert min(moved.values()) > 5


class Waits(Takes):
    """Is final, and can run alone, once `waiting` is empty."""

    def __init__(self) -> None:
        super().__init__(*range(5))
        self.waiting: list[Any] = []
        self.calls: list[str] = []

    def bind(self, context: tflm.KernelContext, node: tflm.Node) -> Callable[[], None]:
        self.waiting.append(super().bind(context, node))
        return self.waiting[-1]  # type: ignore[no-any-return]

    def is_final(self, run: Callable[[], None]) -> bool:
        return run not in self.waiting

    def standalone(self, run: Callable[[], None], guard: Any) -> StandaloneRun | None:
        self.calls.append("standalone")
        return None if self.waiting else StandaloneRun(self.start, lambda status: None)

    def start(self) -> int:
        self.calls.append("start")
        return 0


@pytest.mark.parametrize("first", [0, -1])
def test_a_delegate_may_run_alone_once_all_of_its_nodes_are_final(first: int) -> None:
    delegate, builder = Waits(), tflm.ModelBuilder()
    for _ in range(2):
        graph = builder.subgraph()
        x, y = graph.input("x", (4,), TensorType.FLOAT32), graph.tensor("y", (4,), TensorType.FLOAT32)
        graph.operator(BuiltinOperator.SIN, [x], [y])
        graph.output(y)
    made = interpreter(tflm.Model(builder.build()), [delegate])
    made.allocate_tensors()
    for _ in range(2):
        made.invoke()
        assert delegate.calls == ["standalone"]
        delegate.waiting.pop(first)
    made.invoke()
    assert delegate.calls == ["standalone"] * 2
    made.invoke()
    assert delegate.calls[2:] == ["start"]
