"""Kernels are compiled in the background. Results in the meantime are the same, in whatever order kernels are ready."""

from __future__ import annotations

import atexit
import contextlib
import gc
import os
import re
import signal
import subprocess
import sys
import threading
import types
import warnings
import weakref
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import outcomes
import pytest
from example_models import INT8_MODEL
from hypothesis import given, settings
from hypothesis import strategies as st
from models import Arrays
from test_compiled import COMPILED
from test_real_models import recorded

import tflm
from tflm.compiler import background, cache, cached_files, compiler_process, machine_code
from tflm.compiler.language import Emitted, Kernel
from tflm.delegates import Compiled
from tflm.testing.operators import OPERATORS

EXAMPLES = settings.default.max_examples if "TFLM_HYPOTHESIS" in os.environ else 2


def interpreter_of(model: bytes, **delegate: Any) -> tflm.MicroInterpreter:
    delegates = [Compiled(**delegate)]
    interpreter = tflm.MicroInterpreter(
        tflm.Model(model), tflm.AllOpsResolver(), bytearray(1 << 20), delegates=delegates
    )
    interpreter.allocate_tensors()
    return interpreter


def answer(interpreter: tflm.MicroInterpreter, inputs: Arrays) -> list[bytes]:
    for i, values in enumerate(inputs):
        interpreter.input(i).data[...] = values
    interpreter.invoke()
    return [interpreter.output(i).data.tobytes() for i in range(interpreter.outputs_size())]


class Shelf:
    """The kernels of this process, all hidden: a test says when each of them is compiled."""

    def __init__(self) -> None:
        self.hidden: dict[str, int | None] = machine_code._addresses
        self.ready: dict[str, int | None] = {}
        self.requested: dict[str, None] = {}

    def load(self, kernels: list[Kernel], quietly: bool = False) -> machine_code.Failures:
        self.compile(kernel.name for kernel in kernels)
        return {}

    def request(self, kernels: list[Kernel]) -> None:
        self.requested.update(dict.fromkeys(kernel.name for kernel in kernels))

    def compile(self, names: Any) -> None:
        self.ready.update({name: self.hidden[name] for name in names})


@contextlib.contextmanager
def shelf_of_kernels() -> Iterator[Shelf]:
    shelf = Shelf()
    with (
        mock.patch.multiple(machine_code, _addresses=shelf.ready, _link_from_cache=lambda kernels: None),
        mock.patch.object(machine_code, "load", shelf.load),
        mock.patch.multiple(background, request=shelf.request, is_at_work=lambda: True),
    ):
        yield shelf


def answers_while_compiling(
    model: bytes, invocations: Sequence[Arrays], when: Callable[[str], int]
) -> tuple[list[list[bytes]], tflm.MicroInterpreter]:
    """Answers of an interpreter; `when` says before which invoke each kernel is ready, for those that it requests."""
    with shelf_of_kernels() as shelf:
        interpreter = interpreter_of(model, in_background=True)
        ready_at = {name: when(name) for name in shelf.requested}
        answers = []
        for invoke, inputs in enumerate(invocations):
            shelf.compile(name for name, at in ready_at.items() if at == invoke)
            answers.append(answer(interpreter, inputs))
        return answers, interpreter


@pytest.mark.runs(0.3)
@pytest.mark.parametrize("operator", COMPILED)
@given(data=st.data())
@settings(max_examples=EXAMPLES)
def test_answers_are_the_same_whichever_kernels_are_ready(operator: str, data: st.DataObject) -> None:
    model, invocations = data.draw(OPERATORS[operator])
    invocations = [*invocations, *invocations]

    def when(name: str) -> int:
        return data.draw(st.integers(0, len(invocations)), label=name)

    try:
        interpreter = interpreter_of(model)
        expected = [answer(interpreter, inputs) for inputs in invocations]
    except tflm.TflmError as error:
        outcomes.count(ran=False)
        with pytest.raises(type(error), match=re.escape(str(error))):
            answers_while_compiling(model, invocations, when)
        return
    outcomes.count(ran=True)
    assert answers_while_compiling(model, invocations, when)[0] == expected


STATEFUL = ["okay_nabu_v2", "dtln_noise_suppression", "audio_preprocessor_int8", "trained_lstm", "person_detect"]


@pytest.mark.parametrize("name", STATEFUL)
def test_models_answer_the_same_if_they_switch_before_any_invoke(corpus: Path, name: str) -> None:
    model = (corpus / "models" / f"{name}.tflite").read_bytes()
    invocations, _ = recorded(corpus, name)
    invocations = (invocations * 6)[:6]
    interpreter = interpreter_of(model)
    expected = [answer(interpreter, inputs) for inputs in invocations]
    for at in range(len(invocations) + 1):
        answers, switched = answers_while_compiling(model, invocations, lambda name, at=at: at)  # type: ignore[misc]
        assert answers == expected
        switched.reset()
        assert answer(switched, invocations[0]) == expected[0]
    order = iter(range(1000))  # one kernel after the other
    assert answers_while_compiling(model, invocations, lambda name: next(order) % 6)[0] == expected


@pytest.mark.parametrize("name", ["trained_lstm", "dtln_noise_suppression", "pretrainedResnet"])
def test_without_compiling_floats_are_those_of_numpy_whatever_is_cached(corpus: Path, name: str) -> None:
    model = (corpus / "models" / f"{name}.tflite").read_bytes()
    invocations, _ = recorded(corpus, name)
    interpreter_of(model)  # caches all kernels
    numpy = tflm.MicroInterpreter(tflm.Model(model), tflm.AllOpsResolver(), bytearray(1 << 20), delegates=())
    numpy.allocate_tensors()
    cached = interpreter_of(model, compiles=False)
    for inputs in invocations:
        assert answer(cached, inputs) == answer(numpy, inputs)


# --- The thread --------------------------------------------------------------------------------------------------


INPUTS: Arrays = [np.array([[50]], np.int8)]


class Gate:
    """A compiler that lets each kernel wait until a test opens it."""

    def __init__(self) -> None:
        self.opened, self.begun = threading.Event(), threading.Event()
        self.error: Exception | None = None
        interpreter_of(INT8_MODEL.read_bytes())
        self.objects = cache.read

    def object_of(self, kernel: Kernel) -> bytes:
        self.begun.set()
        assert self.opened.wait(50)
        if self.error is not None:
            raise self.error
        made = self.objects(kernel)
        assert made is not None
        return made


def wait_for_thread() -> None:
    thread = background._thread
    if thread is not None:
        thread.join(50)
    assert not background.is_at_work()


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    gate = Gate()
    monkeypatch.setattr(machine_code, "_addresses", {})
    monkeypatch.setattr(machine_code, "_link_from_cache", lambda kernels: None)
    monkeypatch.setattr(cache, "write", lambda kernel, made: None)
    monkeypatch.setattr(cached_files, "locked", contextlib.nullcontext)  # other processes may hold it
    monkeypatch.setattr(compiler_process, "object_of", gate.object_of)
    machine_code._warn.cache_clear()
    yield gate
    gate.opened.set()
    wait_for_thread()
    machine_code._warn.cache_clear()


def expected() -> list[bytes]:
    return answer(interpreter_of(INT8_MODEL.read_bytes(), compiles=False), INPUTS)


def is_compiled(interpreter: tflm.MicroInterpreter) -> bool:
    """Whether an invoke calls nothing but machine code."""
    return "call_entry" in repr(interpreter._start)


@pytest.mark.parametrize("is_off", [False, True])
def test_the_compiler_writes_bytecode_if_this_process_does(is_off: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", is_off)
    interpreter, *options = compiler_process._command()[: -len(["script", "settings"])]
    asked = "import sys; print(sys.dont_write_bytecode, sys.flags.isolated)"
    printed = subprocess.run([interpreter, *options, "-c", asked], capture_output=True, text=True, check=True).stdout
    assert printed.split() == [str(is_off), "1"]


class Written(Emitted):
    """A kernel that needs no numba, of a given name."""

    name = ""

    def __init__(self, name: str):
        self.name = name


@pytest.mark.parametrize(
    ("requests", "order"),
    [
        (["abc", "d"], "dabc"),
        (["a", "bcd"], "abcd"),
        (["a", "b"], "ab"),
        (["abc", "ab"], "abc"),
        (["abc", "cd"], "dabc"),
        (["abC", "D"], "DCab"),
        (["a", "bCd", "E"], "ECabd"),
    ],
)
def test_small_requests_are_compiled_first_and_kernels_without_numba_before_others(
    requests: list[str], order: str
) -> None:
    """A capital letter stands for a kernel that needs no numba."""

    def kernels(names: str) -> list[Any]:
        return [Written(name) if name.isupper() else types.SimpleNamespace(name=name) for name in names]

    wanted: dict[str, Kernel] = {}
    with mock.patch.multiple(background, _wanted=wanted, _thread=threading.current_thread()):
        for names in requests:
            background.request(kernels(names))
    assert "".join(wanted) == order


def test_the_thread_ends_before_what_it_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    registered: list[object] = []
    monkeypatch.setattr(atexit, "register", registered.append)
    background._end_at_exit.__wrapped__()
    assert registered[::-1] == [background._finish, machine_code.close, compiler_process.close]


@pytest.mark.parametrize("has_replied", [False, True])
def test_a_process_waits_longer_for_the_first_kernel_than_for_others(
    monkeypatch: pytest.MonkeyPatch, has_replied: bool
) -> None:
    """Until then, no other kernel is begun. Ctrl-C ends the wait, and without a thread there is none."""
    waited: list[float] = []

    def join(seconds: float) -> None:
        waited.append(seconds)
        raise KeyboardInterrupt

    monkeypatch.setattr(compiler_process, "has_replied", lambda: has_replied)
    monkeypatch.setattr("tflm.compiler.background.time.monotonic", lambda: 1000.0)
    for thread in (types.SimpleNamespace(join=join), None):
        monkeypatch.setattr(background, "_thread", thread)
        monkeypatch.setattr(background, "_end", 0.0)
        background._finish()
        assert background._end == 1000 + background.SECONDS_TO_GO_ON
    assert waited == [background.SECONDS_TO_FINISH if has_replied else background.SECONDS_TO_FINISH_FIRST]
    assert background.SECONDS_TO_FINISH < background.SECONDS_TO_FINISH_FIRST


def test_an_interpreter_becomes_what_it_would_have_been(gate: Gate) -> None:
    interpreter = interpreter_of(INT8_MODEL.read_bytes(), in_background=True)
    assert gate.begun.wait(50)
    assert answer(interpreter, INPUTS) == expected()
    assert not is_compiled(interpreter)
    gate.opened.set()
    wait_for_thread()
    for _ in range(2):
        assert answer(interpreter, INPUTS) == expected()
    assert is_compiled(interpreter)


def test_who_waits_for_kernels_gets_them(gate: Gate) -> None:
    interpreter_of(INT8_MODEL.read_bytes(), in_background=True)
    assert gate.begun.wait(50)
    threading.Timer(0.01, gate.opened.set).start()
    assert is_compiled(interpreter_of(INT8_MODEL.read_bytes()))


@pytest.mark.parametrize("filters", ["default", "error"])
@pytest.mark.parametrize("error", [compiler_process.CompilerError("of no use"), MemoryError("of no use")])
def test_a_compiler_that_fails_leaves_numpy_in_place(
    gate: Gate, error: Exception, filters: Any, log: list[str]
) -> None:
    gate.error = error
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter(filters)
        interpreter = interpreter_of(INT8_MODEL.read_bytes(), in_background=True)
        gate.opened.set()
        wait_for_thread()
        for _ in range(2):
            assert answer(interpreter, INPUTS) == expected()
        assert not is_compiled(interpreter)
    said = [*map(str, caught), *log]
    assert said
    assert all("of no use" in message for message in said)
    assert not background.is_at_work()


def test_an_interpreter_that_is_deleted_frees_its_memory_at_once(gate: Gate) -> None:
    interpreter = interpreter_of(INT8_MODEL.read_bytes(), in_background=True)
    answer(interpreter, INPUTS)
    gone = weakref.ref(interpreter._allocated.graph)  # type: ignore[union-attr]
    gc.disable()
    try:
        del interpreter
        assert gone() is None
    finally:
        gc.enable()
    gate.opened.set()
    wait_for_thread()
    assert machine_code.known_count()


@pytest.fixture
def _interruptible() -> Iterator[None]:
    """Ctrl-C raises, even if pytest was started in the background of a shell, which ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("_interruptible")
def test_ctrl_c_leaves_the_compiler_at_work(gate: Gate) -> None:
    interpreter = interpreter_of(INT8_MODEL.read_bytes(), in_background=True)
    assert gate.begun.wait(50)
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
    gate.opened.set()
    wait_for_thread()
    answer(interpreter, INPUTS)
    assert is_compiled(interpreter)


SCRIPT = """
import os, sys, time
from tflm.compiler import background, compiler_process
import tflm
compiler_process._command = lambda: [sys.executable, "-I", "-S", "-c", "import sys; sys.stdin.read()"]
background.SECONDS_TO_FINISH_FIRST = 0.5

def ready():
    interpreter = tflm.MicroInterpreter(tflm.Model.from_file(sys.argv[1]), tflm.AllOpsResolver(), bytearray(1 << 14))
    interpreter.allocate_tensors()
    interpreter.invoke()
    return interpreter

interpreter = ready()
while compiler_process._compiler is None:
    time.sleep(0.001)
"""

FORK = """
child = os.fork()
if not child:
    assert not background.is_at_work()
    interpreter.invoke()
    assert background.is_at_work()  # it waits for its parent, which holds the lock of the cache
    sys.exit(3)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
"""


@pytest.mark.parametrize("then", ["", FORK, "raise KeyboardInterrupt"], ids=["exit", "fork", "interrupt"])
def test_a_process_ends_while_the_compiler_is_at_work(then: str, tmp_path: Path) -> None:
    environment = {**os.environ, "TFLM_COMPILED": "1", "TFLM_CACHE_DIR": str(tmp_path)}
    script = SCRIPT + then + "\nprint(compiler_process._compiler._child.pid)"
    done = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", script, str(INT8_MODEL)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=50,  # a compiler without work ends after 60 s
    )
    if "KeyboardInterrupt" in then:
        assert done.stderr.rstrip().endswith("KeyboardInterrupt")
        return
    assert (done.returncode, done.stderr) == (0, "")
    pid = int(done.stdout.split()[-1])
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert not any(file.name.startswith("delegates") for file in tmp_path.iterdir())


def test_short_processes_get_their_kernels_compiled(tmp_path: Path) -> None:
    """Each ends after the first kernel that it compiles, however long that takes. In the end there is nothing left to
    compile."""
    script = SCRIPT[SCRIPT.index("def ready") : SCRIPT.index("while")]
    imports = "import sys, tflm\nfrom tflm.compiler import background\n"
    waits = "background.SECONDS_TO_FINISH, background.SECONDS_TO_FINISH_FIRST = 0, 60\n"
    script = f"{imports}{waits}{script}print('call_entry' in repr(interpreter._start))"
    environment = {**os.environ, "TFLM_COMPILED": "1", "TFLM_CACHE_DIR": str(tmp_path)}
    is_compiled, before = False, -1
    while not is_compiled:
        done = subprocess.run(
            [sys.executable, "-c", script, str(INT8_MODEL)], env=environment, capture_output=True, text=True, check=True
        )
        is_compiled = done.stdout == "True\n"
        kept = len([file for file in tmp_path.iterdir() if not file.name.startswith("lock")])
        assert is_compiled or kept > before
        before = kept
