"""A signal handler that raises, between any two instructions of a call, leaves an interpreter that works."""

from __future__ import annotations

import functools
import gc
import random
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest
from flatbuffers import flexbuffers
from sampling import apart

import tflm
from tflm.compiler.calls import is_available
from tflm.delegates import Compiled
from tflm.schema import ELEMENT_TYPES, BuiltinOperator, TensorType
from tflm.schema.options import CallOnceOptions, VarHandleOptions

PACKAGE = Path(tflm.__file__).parent
ENGINES = [
    pytest.param([], id="numpy"),
    pytest.param(
        [Compiled()], id="engine", marks=pytest.mark.skipif(not is_available(), reason="needs the extra `fast`")
    ),
]


class Interrupt(BaseException):
    """The exception that a test's signal handler raises."""


@contextmanager
def interrupted_at(instruction: int) -> Iterator[list[int]]:
    """Raise an exception before an instruction of the package, counted from 0; yields how many there were.

    Those of `tflm.compiler` do not count: it compiles kernels, which were compiled before. Nor do those of finalizers
    of other interpreters, where Python would drop the exception: garbage is collected before and after.
    """
    count = [0]

    def count_instructions(frame: FrameType, event: str, argument: object) -> Any:
        if event == "opcode":
            count[0] += 1
            if count[0] > instruction:
                sys.settrace(None)
                raise Interrupt
        return count_instructions

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        if not _counts(frame.f_code.co_filename):
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return count_instructions

    before, collects = sys.gettrace(), gc.isenabled()
    gc.disable()
    sys.settrace(trace)
    try:
        yield count
    finally:
        sys.settrace(before)
        if collects:
            gc.enable()


@functools.cache
def _counts(file: str) -> bool:
    return PACKAGE in Path(file).parents and Path(file).parent.name != "compiler"


def instructions_of(call: Callable[[], object]) -> int:
    """The number of instructions of the package that a call takes."""
    with interrupted_at(1 << 60) as count:
        call()
    return count[0]


# --- Models: each ends its invoke in another way -------------------------------------------------------------------


@functools.cache
def whole(width: int = 4) -> bytes:
    """A model that the engine runs in one call, with the interpreter lock if it is small."""
    main = (builder := tflm.ModelBuilder()).subgraph()
    x, y = main.input("x", (1, width), TensorType.FLOAT32), main.tensor("y", (1, width), TensorType.FLOAT32)
    main.operator(BuiltinOperator.RELU, [x], [y])
    main.output(y)
    return builder.build()


@functools.cache
def large() -> bytes:
    """One that lets other threads run meanwhile."""
    return whole(1 << 15)


@functools.cache
def ending_early() -> bytes:
    """One whose CIRCULAR_BUFFER ends each other invoke."""
    main = (builder := tflm.ModelBuilder()).subgraph()
    scale = tflm.quantized(0.5)
    x = main.input("x", (1, 1, 1, 4), TensorType.INT8, scale)
    y = main.tensor("y", (1, 2, 1, 4), TensorType.INT8, scale)
    main.operator("CIRCULAR_BUFFER", [x], [y], custom_options=bytes(flexbuffers.Dumps({"cycles_max": 2})))
    main.output(y)
    return builder.build()


@functools.cache
def calling_once() -> bytes:
    """One that Python continues in its first invoke after a reset, then machine code."""
    builder = tflm.ModelBuilder()
    main, setup = builder.subgraph(), builder.subgraph()
    options = VarHandleOptions(container="", shared_name="v")
    handle = setup.tensor("handle", (), TensorType.RESOURCE)
    setup.operator(BuiltinOperator.VAR_HANDLE, [], [handle], options)
    first = setup.constant("first", np.array([[3, 1, 4, 1]], np.float32))
    setup.operator(BuiltinOperator.ASSIGN_VARIABLE, [handle, first], [])
    main.operator(BuiltinOperator.CALL_ONCE, [], [], CallOnceOptions(init_subgraph_index=1))
    x, y = main.input("x", (1, 4), TensorType.FLOAT32), main.tensor("y", (1, 4), TensorType.FLOAT32)
    again = main.tensor("again", (), TensorType.RESOURCE)
    main.operator(BuiltinOperator.VAR_HANDLE, [], [again], options)
    read = main.tensor("read", (1, 4), TensorType.FLOAT32)
    main.operator(BuiltinOperator.READ_VARIABLE, [again], [read])
    main.operator(BuiltinOperator.ADD, [x, read], [y])
    main.output(y)
    return builder.build()


MODELS = [whole, large, ending_early, calling_once]
RESOLVER = tflm.AllOpsResolver()
parsed = functools.cache(tflm.Model)


def interpreter_of(model: bytes, delegates: Any, allocator: Any = None) -> tflm.MicroInterpreter:
    return tflm.MicroInterpreter(
        parsed(model), RESOLVER, bytearray(1 << 19) if allocator is None else allocator,
        delegates=delegates,
    )  # fmt: skip


def answer(interpreter: tflm.MicroInterpreter) -> bytes:
    """Return the output once an invoke has filled the buffer, regardless of its contents."""
    x = interpreter.input(0)
    x.data[...] = (np.arange(x.data.size).reshape(x.dims) % 100).astype(ELEMENT_TYPES[x.type].dtype)
    for _ in range(4):
        interpreter.invoke()
    return interpreter.output(0).data.tobytes()


def ready(model: Callable[[], bytes], delegates: Any, invokes: int) -> tflm.MicroInterpreter:
    interpreter = interpreter_of(model(), delegates)
    interpreter.allocate_tensors()
    for _ in range(invokes):
        interpreter.invoke()
    return interpreter


@pytest.mark.parametrize("delegates", ENGINES)
@pytest.mark.parametrize("invokes", [0, 1])
@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)
def test_an_invoke_may_be_interrupted_anywhere(model: Callable[[], bytes], invokes: int, delegates: Any) -> None:
    """At the even instructions of the first invoke, and the odd ones of the second; or at all of both."""
    expected = answer(ready(model, delegates, invokes))
    instructions = instructions_of(ready(model, delegates, invokes).invoke)
    assert instructions > 5
    numpy_settings = np.geterr(), np.getbufsize()
    for at in range(invokes % apart(2), instructions, apart(2)):
        interpreter = ready(model, delegates, invokes)
        with pytest.raises(Interrupt), interrupted_at(at):
            interpreter.invoke()
        assert (np.geterr(), np.getbufsize()) == numpy_settings
        assert answer(interpreter) == expected


@pytest.mark.parametrize("delegates", ENGINES)
def test_a_reset_may_be_interrupted_anywhere(delegates: Any) -> None:
    interpreter = ready(ending_early, delegates, 0)
    expected = answer(interpreter)
    for at in range(instructions_of(interpreter.reset)):
        with pytest.raises(Interrupt), interrupted_at(at):
            interpreter.reset()
        interpreter.reset()
        assert answer(interpreter) == expected


@pytest.mark.parametrize("shared", [False, True], ids=["own arena", "shared"])
@pytest.mark.parametrize("delegates", ENGINES)
@pytest.mark.filterwarnings("ignore::tflm.ArenaShared")
def test_allocating_may_be_interrupted_anywhere(delegates: Any, shared: bool) -> None:
    """At the first and the last instructions, and some between. What is allocated next takes no more of the arena."""
    model = calling_once()

    def begun() -> tuple[tflm.MicroInterpreter, Any]:
        arena: Any = bytearray(1 << 16)
        arena = tflm.MicroAllocator(arena) if shared else arena
        if shared:
            interpreter_of(model, delegates, arena).allocate_tensors()
        return interpreter_of(model, delegates, arena), arena

    def used(arena: Any) -> object:
        another = interpreter_of(model, delegates, arena)
        another.allocate_tensors()
        return another.arena_used_bytes(), answer(another)

    interpreter, arena = begun()
    instructions = instructions_of(interpreter.allocate_tensors)
    expected = answer(interpreter), used(arena)
    some, step = random.Random(1).sample(range(200, instructions - 200), 8), 3 * apart(2)
    for at in (*range(0, 200, 23), *some, *range(instructions - 200 + 3 * shared % step, instructions, step)):
        interpreter, arena = begun()
        with suppress(Interrupt), interrupted_at(at):  # the number of instructions varies a little
            interpreter.allocate_tensors()
        interpreter.allocate_tensors()
        assert (answer(interpreter), used(arena)) == expected


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="the system has no timers that raise signals")
@pytest.mark.parametrize("delegates", ENGINES)
@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)
@pytest.mark.parametrize("times", [1, 2])
def test_signals_may_come_at_any_time(model: Callable[[], bytes], delegates: Any, times: int) -> None:
    """Once, or again some microseconds later, while the first exception is handled."""
    interpreter = ready(model, delegates, 0)
    expected = answer(interpreter)
    left = 0

    def interrupt(number: int, frame: FrameType | None) -> None:
        nonlocal left
        if left:
            left -= 1
            if left:
                signal.setitimer(signal.ITIMER_REAL, delays.uniform(2e-6, 5e-5))
            raise Interrupt

    def meet_signals() -> None:
        try:
            while left:
                for _ in range(100):
                    interpreter.invoke()
                time.sleep(0)
        except Interrupt:
            wait()

    def wait() -> None:
        """Until all signals came. CPython before 3.13 can miss one in a loop that keeps the interpreter lock."""
        while left:
            time.sleep(0)

    before = signal.signal(signal.SIGALRM, interrupt)
    delays = random.Random(1)
    try:
        for _ in range(200):
            try:
                try:
                    left = times
                    signal.setitimer(signal.ITIMER_REAL, delays.uniform(2e-5, 5e-4))
                    meet_signals()
                except Interrupt:  # as the timer was set, or before the function ended
                    wait()
            except Interrupt:  # the second one
                pass
            assert answer(interpreter) == expected
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
