"""The state of an interpreter after an error, and its use by several threads."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tflm
from tflm.runtime.micro_interpreter import BUFFER_ELEMENTS
from tflm.runtime.reentrancy_guard import ReentrancyGuard
from tflm.schema import AddOptions, BuiltinOperator, CallOnceOptions, GatherOptions, TensorType

HALF = tflm.quantized(0.5)


def summing_model(width: int = 4) -> tflm.Model:
    """total += x, by a custom operator MEET that a test says something about in between; then y = max(total, 0)."""
    builder = tflm.ModelBuilder()
    main = builder.subgraph()
    x = main.input("x", (1, width), TensorType.INT8, HALF)
    total = main.tensor("total", (1, width), TensorType.INT8, HALF, is_variable=True)
    y = main.tensor("y", (1, width), TensorType.INT8, HALF)
    main.operator("MEET", [x, total], [])
    main.operator(BuiltinOperator.RELU, [total], [y])
    main.output(y)
    return tflm.Model(builder.build())


def summing(meet: Callable[[], object], arena: Any = None, width: int = 4) -> tflm.MicroInterpreter:
    """An interpreter of the summing model that calls `meet` with half of the sum written."""

    def invoke(context: tflm.KernelContext, node: tflm.Node) -> None:
        x, total = (context.get_eval_input(node, i).elements for i in range(2))
        half = width // 2
        total[0, :half] += x[0, :half]
        meet()
        total[0, half:] += x[0, half:]

    resolver = tflm.AllOpsResolver()
    resolver.add_custom(tflm.Registration("MEET", invoke=invoke))
    arena = bytearray(4096 + 16 * width) if arena is None else arena
    interpreter = tflm.MicroInterpreter(summing_model(width), resolver, arena)
    interpreter.allocate_tensors()
    return interpreter


def nothing() -> None:
    """Do nothing, as most operators do."""


def sum_after(interpreter: tflm.MicroInterpreter, value: int) -> list[int]:
    interpreter.input(0).data = value
    interpreter.invoke()
    return interpreter.output(0).data[0].tolist()  # type: ignore[no-any-return]


# --- After an error --------------------------------------------------------------------------------------------------

ERRORS = [
    tflm.OperatorError("can't go on"),
    ZeroDivisionError("division by zero"),
    MemoryError(),
    KeyboardInterrupt(),
    SystemExit(3),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_every_call_is_allowed_after_an_error_of_an_operator(error: BaseException) -> None:
    """The error itself is passed on; `reset` puts right what was left half done."""
    errors: list[BaseException] = []

    def meet() -> None:
        if errors:
            raise errors.pop()

    interpreter = summing(meet)
    assert sum_after(interpreter, 2) == [2, 2, 2, 2]
    used, numpy_settings = interpreter.arena_used_bytes(), (np.geterr(), np.getbufsize())
    for _ in range(3):
        errors.append(error)
        with pytest.raises(type(error)) as raised:
            interpreter.invoke()
        assert raised.value is error
        assert (np.geterr(), np.getbufsize()) == numpy_settings
        assert interpreter.arena_used_bytes() == used
        interpreter.allocate_tensors()
        assert interpreter.input(0).data.tolist() == [[2, 2, 2, 2]]
        assert sum_after(interpreter, 1) == sum_after(interpreter, 0)
        interpreter.reset()
        assert sum_after(interpreter, 2) == [2, 2, 2, 2]


def test_what_was_half_done_stays_so_until_reset() -> None:
    errors: list[BaseException] = [ZeroDivisionError()]
    interpreter = summing(lambda: errors and (_ for _ in ()).throw(errors.pop()))
    interpreter.input(0).data = 5
    with pytest.raises(ZeroDivisionError):
        interpreter.invoke()
    assert sum_after(interpreter, 1) == [6, 6, 1, 1]


@pytest.mark.parametrize("phase", ["init", "prepare", "bind", "reset"])
@pytest.mark.parametrize("shared", [False, True], ids=["arena", "allocator"])
def test_an_error_while_the_model_is_placed_leaves_the_arena_as_it_was(phase: str, shared: bool) -> None:
    """The interpreter is unchanged, too: once the cause is fixed, the same call succeeds."""
    errors: list[BaseException] = []

    def work(*_: object) -> Any:
        if errors:
            raise errors.pop()
        return nothing

    settings: dict[str, Any] = {phase: work} if phase == "bind" else {phase: work, "invoke": lambda *_: None}
    resolver = tflm.AllOpsResolver()
    resolver.add_custom(tflm.Registration("MEET", **settings))
    arena: Any = tflm.MicroAllocator(bytearray(4096)) if shared else bytearray(4096)
    interpreter = tflm.MicroInterpreter(summing_model(), resolver, arena)
    for error in ERRORS:
        errors.append(error)
        with pytest.raises(type(error)):
            interpreter.allocate_tensors()
        with pytest.raises(tflm.InterpreterError, match="call allocate_tensors"):
            interpreter.invoke()
    interpreter.allocate_tensors()
    assert sum_after(interpreter, 9) == [0, 0, 0, 0]
    untouched: Any = tflm.MicroAllocator(bytearray(4096)) if shared else bytearray(4096)
    other = tflm.MicroInterpreter(summing_model(), resolver, untouched)
    other.allocate_tensors()
    assert interpreter.arena_used_bytes() == other.arena_used_bytes()


def test_an_error_in_reset_leaves_the_interpreter_usable() -> None:
    errors: list[BaseException] = []

    def reset(*_: object) -> None:
        if errors:
            raise errors.pop()

    resolver = tflm.AllOpsResolver()
    resolver.add_custom(tflm.Registration("MEET", invoke=lambda *_: None, reset=reset))
    interpreter = tflm.MicroInterpreter(summing_model(), resolver, bytearray(4096))
    interpreter.allocate_tensors()
    errors.append(ZeroDivisionError())
    with pytest.raises(ZeroDivisionError):
        interpreter.reset()
    interpreter.reset()
    assert sum_after(interpreter, 1) == [0, 0, 0, 0]


def test_an_interpreter_that_is_dropped_gives_its_memory_back_at_once() -> None:
    """Also one whose operators hold on to what they were given, without waiting for the garbage collector."""
    gc.disable()
    try:
        interpreter = summing(nothing)
        assert sum_after(interpreter, 1) == [1, 1, 1, 1]
        assert interpreter._allocated is not None
        graph, output = weakref.ref(interpreter._allocated.graph), interpreter.output(0)
        del interpreter
        assert graph() is None
        assert output.data.tolist() == [[1, 1, 1, 1]]
    finally:
        gc.enable()


def picking_model(*, large: bool = False) -> tflm.Model:
    """y = (1, 2, 3, 4)[i], behind two subgraphs that run once; each calls a custom operator, FIRST or SECOND."""
    builder = tflm.ModelBuilder()
    main = builder.subgraph()
    index = main.input("i", (1,), TensorType.INT32)
    picked, y = main.tensor("picked", (1,), TensorType.FLOAT32), main.tensor("y", (1,), TensorType.FLOAT32)
    table = main.constant("table", np.array([1, 2, 3, 4], np.float32))
    main.operator(BuiltinOperator.CALL_ONCE, [], [], CallOnceOptions(init_subgraph_index=1))
    main.operator(BuiltinOperator.GATHER, [table, index], [picked], GatherOptions(axis=0))
    main.operator(BuiltinOperator.CALL_ONCE, [], [], CallOnceOptions(init_subgraph_index=2))
    main.operator(BuiltinOperator.RELU, [picked], [y])
    if large:
        wide = np.ones((1 << 15,), np.float32)
        z = main.tensor("z", wide.shape, TensorType.FLOAT32)
        main.operator(BuiltinOperator.ADD, [y, main.constant("wide", wide)], [z], AddOptions())
    main.output(y)
    for name in ("FIRST", "SECOND"):
        builder.subgraph(name).operator(name, [], [])
    return tflm.Model(builder.build())


def picking(calls: dict[str, Callable[[], object]], delegates: Any, *, large: bool = False) -> tflm.MicroInterpreter:
    resolver = tflm.AllOpsResolver()
    for name, call in calls.items():
        resolver.add_custom(tflm.Registration(name, invoke=lambda context, node, call=call: call()))
    interpreter = tflm.MicroInterpreter(
        picking_model(large=large), resolver, bytearray(1 << 19 if large else 1 << 14), delegates=delegates
    )
    interpreter.allocate_tensors()
    return interpreter


def picked_by(interpreter: tflm.MicroInterpreter, index: int) -> float:
    interpreter.input(0).data[:] = index
    interpreter.invoke()
    return float(interpreter.output(0).data[0])


ENGINES = pytest.mark.parametrize("delegates", [None, ()], ids=["engine", "numpy"])


@ENGINES
def test_what_runs_once_does_so_in_its_turn_whatever_was_refused_before_it(delegates: Any) -> None:
    """The engine leaves CALL_ONCE, and an index out of range, to Python, and goes on behind it."""
    ran: list[str] = []
    interpreter = picking({name: lambda name=name: ran.append(name) for name in ("FIRST", "SECOND")}, delegates)
    for _ in range(2):
        with pytest.raises(tflm.OperatorError, match=r"operator 1 GATHER.*index 4"):
            picked_by(interpreter, 4)
        assert ran == ["FIRST"]
    assert [picked_by(interpreter, index) for index in (3, 0, 2)] == [4, 1, 3]
    assert ran == ["FIRST", "SECOND"]


@ENGINES
def test_what_is_to_run_once_is_tried_again_after_an_error(delegates: Any) -> None:
    tries: list[str] = []

    def first() -> None:
        tries.append("FIRST")
        if len(tries) < 3:
            raise ZeroDivisionError

    interpreter = picking({"FIRST": first, "SECOND": lambda: tries.append("SECOND")}, delegates)
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            interpreter.invoke()
    assert picked_by(interpreter, 2) == 3
    assert picked_by(interpreter, 1) == 2
    assert tries == ["FIRST"] * 3 + ["SECOND"]


@ENGINES
def test_numpy_is_silent_in_an_operator_that_the_engine_leaves_to_it(delegates: Any) -> None:
    inside: list[str] = []
    calls = {name: lambda: inside.extend(np.geterr().values()) for name in ("FIRST", "SECOND")}
    picked_by(picking(calls, delegates), 0)
    assert set(inside) == {"ignore"}


@ENGINES
@pytest.mark.parametrize("large", [False, True], ids=["small", "large"])
def test_no_call_is_allowed_in_the_midst_of_an_invoke(delegates: Any, large: bool) -> None:
    refused: list[object] = []

    def meet() -> None:
        for call in (interpreter.reset, interpreter.invoke):
            with pytest.raises(tflm.InterpreterError, match="while another call is in progress"):
                call()
            refused.append(call)

    interpreter = picking({"FIRST": meet, "SECOND": meet}, delegates, large=large)
    assert picked_by(interpreter, 1) == 2
    assert len(refused) == 4
    interpreter.reset()
    assert picked_by(interpreter, 3) == 4
    assert len(refused) == 4


@ENGINES
def test_no_model_runs_in_the_midst_of_another_in_its_arena(delegates: Any) -> None:
    """Nor one that the engine runs as a whole; afterwards it runs."""
    allocator = tflm.MicroAllocator(bytearray(1 << 15))
    main = (builder := tflm.ModelBuilder()).subgraph()
    x, y = main.input("x", (1, 8), TensorType.FLOAT32), main.tensor("y", (1, 8), TensorType.FLOAT32)
    main.operator(BuiltinOperator.RELU, [x], [y])
    main.output(y)
    inner = tflm.MicroInterpreter(tflm.Model(builder.build()), tflm.AllOpsResolver(), allocator, delegates=delegates)
    inner.allocate_tensors()
    refused: list[object] = []

    def meet() -> None:
        with pytest.raises(tflm.InterpreterError, match="invoke while another call is in progress"):
            inner.invoke()
        refused.append(inner)

    assert sum_after(summing(meet, allocator), 3) == [3, 3, 3, 3]
    assert len(refused) == 1
    inner.input(0).data[...] = np.float32(-1)
    inner.invoke()
    assert not inner.output(0).data.any()


def test_what_failed_to_allocate_takes_nothing_of_a_shared_arena() -> None:
    """Neither used bytes, nor temp memory, nor a larger head for the models that come after it."""
    allocator = tflm.MicroAllocator(bytearray(1 << 15))
    first = summing(nothing, allocator)
    used = allocator.used_bytes(), allocator.head_bytes, allocator.tail_bytes
    for phase in ("init", "prepare", "bind"):

        def fail(context: tflm.KernelContext, node: tflm.Node, phase: str = phase) -> Any:
            if phase == "prepare":
                context.allocate_temp_input_tensor(node, 0)
                context.request_scratch_buffer_in_arena(512)
            raise ZeroDivisionError

        phases: dict[str, Any] = {phase: fail} if phase == "bind" else {phase: fail, "invoke": lambda *_: None}
        resolver = tflm.AllOpsResolver()
        resolver.add_custom(tflm.Registration("MEET", **phases))
        interpreter = tflm.MicroInterpreter(summing_model(width=1000), resolver, allocator)
        with pytest.raises(ZeroDivisionError):
            interpreter.allocate_tensors()
        assert (allocator.used_bytes(), allocator.head_bytes, allocator.tail_bytes) == used
    assert sum_after(first, 3) == [3, 3, 3, 3]
    second = summing(nothing, allocator, width=8)
    fresh = tflm.MicroAllocator(bytearray(1 << 15))
    summing(nothing, fresh)
    summing(nothing, fresh, width=8)
    assert allocator.used_bytes() == fresh.used_bytes()
    assert allocator.head_bytes == fresh.head_bytes
    assert sum_after(second, 3) == [3] * 8


# --- Threads ---------------------------------------------------------------------------------------------------------

CALLS: dict[str, Callable[[tflm.MicroInterpreter], object]] = {
    "invoke": tflm.MicroInterpreter.invoke,
    "reset": tflm.MicroInterpreter.reset,
}
PATIENCE = 30.0


class Meeting:
    """Stops an operator in the midst of its work until it is told to go on."""

    def __init__(self) -> None:
        self.reached, self.go_on = threading.Event(), threading.Event()

    def __call__(self) -> None:
        self.reached.set()
        assert self.go_on.wait(PATIENCE)


@pytest.mark.parametrize("call", CALLS)
def test_a_second_thread_is_refused_and_changes_nothing(call: str) -> None:
    meeting = Meeting()
    interpreter = summing(meeting)
    interpreter.input(0).data = 3
    thread = threading.Thread(target=interpreter.invoke)
    thread.start()
    assert meeting.reached.wait(PATIENCE)
    with pytest.raises(tflm.InterpreterError, match=f"{call} while another call is in progress.*separate interpreter"):
        CALLS[call](interpreter)
    meeting.go_on.set()
    thread.join(PATIENCE)
    assert interpreter.output(0).data.tolist() == [[3, 3, 3, 3]]
    assert sum_after(interpreter, 1) == [4, 4, 4, 4]


def test_interpreters_that_share_an_allocator_count_as_one() -> None:
    """Their heads share memory: while one runs, the others would write over its tensors."""
    meeting = Meeting()
    allocator = tflm.MicroAllocator(bytearray(1 << 14))
    first, second = summing(meeting, allocator), summing(nothing, allocator)
    third = tflm.MicroInterpreter(summing_model(), tflm.AllOpsResolver(), allocator)
    first.input(0).data = 3
    thread = threading.Thread(target=first.invoke)
    thread.start()
    assert meeting.reached.wait(PATIENCE)
    for refused in (second.invoke, second.reset, third.allocate_tensors):
        with pytest.raises(tflm.InterpreterError, match="in progress in this arena"):
            refused()
    meeting.go_on.set()
    thread.join(PATIENCE)
    assert first.output(0).data.tolist() == [[3, 3, 3, 3]]
    assert sum_after(second, 7) == [7, 7, 7, 7]


def test_an_operator_can_not_run_its_own_interpreter() -> None:
    refusals: list[tflm.InterpreterError] = []

    def meet() -> None:
        with pytest.raises(tflm.InterpreterError, match="in an operator that calls back") as raised:
            interpreter.invoke()
        refusals.append(raised.value)

    interpreter = summing(meet)
    assert sum_after(interpreter, 3) == [3, 3, 3, 3]
    assert len(refusals) == 1


@pytest.mark.parametrize("width", [4, 5000], ids=["small", "large"])
def test_two_interpreters_run_in_two_threads(width: int) -> None:
    """Both are in the middle of an invoke at the same time; numpy's settings for one apply only to its thread."""
    barrier = threading.Barrier(2)
    settings = (np.geterr(), np.getbufsize())
    sums: dict[int, list[int]] = {}

    def run(step: int) -> None:
        interpreter = summing(lambda: barrier.wait(PATIENCE), width=width)
        for _ in range(20):
            total = sum_after(interpreter, step)
        sums[step] = total

    threads = [threading.Thread(target=run, args=(step,)) for step in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert sums == {1: [20] * width, 2: [40] * width}
    assert (np.geterr(), np.getbufsize()) == settings


def test_numpy_works_in_other_threads_as_it_did() -> None:
    """While one thread is in an invoke, with small buffers and silent overflows, another is not; nor is it later."""
    settings = (np.geterr(), np.getbufsize())
    inside = []

    def meet() -> None:
        inside.append((np.geterr()["over"], np.getbufsize()))
        meeting()

    meeting = Meeting()
    interpreter = summing(meet, width=5000)
    assert (np.geterr(), np.getbufsize()) == settings
    thread = threading.Thread(target=interpreter.invoke)
    thread.start()
    assert meeting.reached.wait(PATIENCE)
    assert (np.geterr(), np.getbufsize()) == settings
    meeting.go_on.set()
    thread.join(PATIENCE)
    interpreter.invoke()
    assert (np.geterr(), np.getbufsize()) == settings
    assert inside == [("ignore", BUFFER_ELEMENTS)] * 2


class LateGuard(ReentrancyGuard):
    """A guard that its first caller acquires only after `meanwhile`."""

    meanwhile: Callable[[], object] | None = None

    def acquire(self, call: str) -> None:
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            meanwhile()
        super().acquire(call)


def test_a_model_is_allocated_once_though_two_threads_saw_that_it_was_not() -> None:
    prepared = []
    resolver = tflm.AllOpsResolver()
    registration = tflm.Registration(
        "MEET", prepare=lambda context, node: prepared.append(node.index), invoke=lambda context, node: None
    )
    resolver.add_custom(registration)
    allocator = tflm.MicroAllocator(bytearray(1 << 14))
    allocator.turn = guard = LateGuard()
    interpreter = tflm.MicroInterpreter(summing_model(), resolver, allocator)

    def in_another_thread() -> None:
        thread = threading.Thread(target=interpreter.allocate_tensors, daemon=True)
        thread.start()
        thread.join(PATIENCE)
        assert not thread.is_alive()

    guard.meanwhile = in_another_thread
    interpreter.allocate_tensors()
    assert prepared == [0]
