"""Machine code: the process that compiles it, the files that keep it, and what happens where either fails."""

from __future__ import annotations

import ast
import contextlib
import ctypes
import errno
import fcntl
import logging
import os
import resource
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from graphlib import TopologicalSorter
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any, NamedTuple

import numpy as np
import pytest
from llvmlite import ir
from relu_model import RELU_OF_RANGE, allocated, answer

import tflm.compiler as package
from tflm.compiler import (
    cache,
    cached_files,
    calls,
    compiler,
    compiler_main,
    compiler_process,
    llvm_ir,
    machine_code,
    methods,
    numba_compiler,
    object_loader,
    posix_files,
)
from tflm.compiler.language import DONE, Elements, Int64s, Kernel, emitted, inlined, kernel
from tflm.delegates.compiled.program import run_steps
from tflm.memory.buffer import Integers

ADDED = 3
FACTORS = (2, 5)


@inlined
def with_added(value: int) -> int:
    return value + ADDED


@kernel
def add(x: Int64s) -> int:
    x[0] = with_added(x[0]) * FACTORS[1]
    return DONE


FUNCTIONS: dict[str, Callable[..., Any]] = {"times": lambda a, b: a * b * FACTORS[0], "less": lambda a, b: a < b}
Function = Annotated[Callable[..., Any], FUNCTIONS]


@kernel
def each(x1: Elements, function: Function, x2: Elements, y: Elements, count: int) -> int:
    for i in range(count):
        y[i] = function(x1[i], x2[i])
    return DONE


VALUES = {"stored": 7}


def _value() -> ir.Constant:
    return ir.IntType(64)(VALUES["stored"])


@emitted
def store(builder: Any, x: Int64s) -> None:
    builder.store(_value(), x)


@emitted
def store_number(builder: Any, x: Int64s, n: int) -> None:
    builder.store(ir.IntType(64)(n), x)


@emitted
def clear(builder: Any, x: Int64s) -> None:
    builder.store(ir.IntType(64)(0), x)


@pytest.fixture(autouse=True)
def _fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An empty cache, nothing in memory, and no compiler."""
    monkeypatch.setenv(cached_files.CACHE_VARIABLE, str(tmp_path / "cache"))
    monkeypatch.setattr(machine_code, "_addresses", {})
    monkeypatch.setattr(compiler_process, "_compiler", None)
    functions = (cached_files.cache_folder, machine_code._warn, machine_code._tell)
    for function in functions:
        function.cache_clear()
    yield
    compiler_process._end()
    for function in functions:
        function.cache_clear()


@pytest.fixture
def _compiled_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """No other process: the compiler is called."""
    monkeypatch.setattr(compiler_process, "object_of", compiler.object_of)


@pytest.mark.usefixtures("_compiled_here")
def test_compiling_is_logged_once_with_the_folder_unless_asked_not_to(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[tuple[Any, ...]] = []
    monkeypatch.setattr(logging.getLogger(machine_code.__name__), "warning", lambda *text: said.append(text))
    counts = []
    for quietly, wanted in ((True, store), (False, store), (False, clear), (False, clear)):
        machine_code.load([wanted], quietly)
        counts.append(len(said))
    assert counts == [0, 0, 1, 1]
    assert str(cached_files.cache_folder()) in said[0][1]


def test_what_another_process_compiled_meanwhile_is_not_compiled_again(monkeypatch: pytest.MonkeyPatch) -> None:
    @contextlib.contextmanager
    def locked(kernel: Kernel) -> Iterator[None]:
        cache.write(kernel, compiler.object_of(kernel))
        yield

    monkeypatch.setattr(cache, "locked", locked)
    monkeypatch.setattr(compiler_process, "object_of", lambda _: b"compiled again")
    assert called(machine_code.addresses([store])[store], 1) == VALUES["stored"]


def test_a_file_of_the_cache_is_opened_without_waiting(tmp_path: Path) -> None:
    """It may be a FIFO. Nobody else may read it."""
    descriptor = posix_files.open_at_once(str(tmp_path / "file"), os.O_CREAT | os.O_RDWR)
    with open(descriptor, "wb") as file:
        assert not os.get_blocking(descriptor)
        assert os.fstat(file.fileno()).st_mode & 0o777 == 0o600


def test_elements_have_the_types_of_llvm() -> None:
    types = {"int8": "i8", "uint16": "i16", "int64": "i64", "float32": "float", "float64": "double"}
    assert {name: str(llvm_ir._ir_type(name)) for name in types} == types


def performed(function: ir.Function, words: list[int], returned: dict[str, int]) -> tuple[list[str], int]:
    """The functions that the IR of a function calls, by name, and what it returns.

    Args:
        words: what it loads, by place.
        returned: what the functions return; others return 0.
    """
    names: list[str] = []
    results: dict[Any, int] = {}

    def value(of: Any) -> int:
        if of in results or isinstance(of, ir.Argument):
            return results.get(of, 0)
        if isinstance(of, ir.Constant):
            return int(of.constant)
        first, *others = [value(operand) for operand in of.operands]
        of_opname: dict[str, Callable[..., int]] = {
            "load": lambda: words[first],
            "getelementptr": lambda place: first + place,
            "icmp": lambda other: (first == other) if of.op == "eq" else (first != other),
            "xor": lambda other: (first ^ other) & 1,
            "and": lambda other: first & other,
        }
        return int(of_opname.get(of.opname, lambda: first)(*others))

    block = function.entry_basic_block
    while True:
        for call in (each for each in block.instructions if isinstance(each, ir.CallInstr)):
            names.append(call.callee.name if isinstance(call.callee, ir.Function) else "entry")
            results[call] = returned.get(names[-1], 0)
        end = block.terminator
        if end.opname == "ret":
            (result,) = end.operands
            return names, value(result.operands[1])
        block = end.operands[0 if len(end.operands) == 1 else 2 - value(end.operands[0])]


@pytest.mark.parametrize(("guard", "held", "status"), [(None, 0, 0), (None, 0, 7), ([], 0, 0), ([], 0, 7), ([], 1, 0)])
@pytest.mark.parametrize("releases_lock", [0, 1])
def test_a_guarded_kernel_holds_the_list_while_others_may_call(
    releases_lock: int, guard: list[Any] | None, held: int, status: int
) -> None:
    method, module = methods.call_entry.of(releases_lock=releases_lock), ir.Module()
    builder, arguments = llvm_ir.entry_of(module, method)
    method.write(builder, arguments)
    returned = {"PyList_Size": held, "entry": status}
    names, result = performed(module.globals[method.symbol], methods.words_of(1, [], guard).tolist(), returned)
    is_guarded = guard is not None
    hold = ["PyEval_GetFrame", "PyList_Append"]
    expected = ["PyCapsule_GetPointer"] + ["PyList_Size"] * is_guarded
    if not held and releases_lock:
        expected += [*hold * is_guarded, "PyEval_SaveThread", "entry", "PyEval_RestoreThread"]
        expected += ["PyList_SetSlice"] * (is_guarded and not status)
    elif not held:
        expected += ["entry", *hold * (is_guarded and status > 0)]
    assert names == [*expected, "PyLong_FromLongLong"]
    assert result == (methods.IN_USE if held else status)


def files() -> list[str]:
    """What the cache holds beside its locks."""
    folder = cached_files.cache_folder()
    return [] if folder is None else sorted(path.name for path in folder.iterdir() if not path.name.startswith("lock-"))


def called(entry: int, value: int) -> int:
    """What a kernel makes of a value."""
    x = np.array([value], np.int64)
    arguments = np.array([x.ctypes.data], np.int64)
    assert ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)(entry)(arguments.ctypes.data) == DONE
    return int(x[0])


# --- The process -------------------------------------------------------------------------------------------------


ECHO = """
import json, sys
for line in sys.stdin.buffer:
    request = json.loads(line)
    made = request["kernel"].encode()
    header = {"request": request["request"] + OFFSET, "bytes": len(made)}
    sys.stdout.buffer.write(json.dumps(header).encode() + b"\\n" + made)
    sys.stdout.buffer.flush()
"""
"""A compiler that replies to each request with the name of the kernel."""


def stand_in(script: str) -> Callable[[], list[str]]:
    """What starts a Python script in place of the compiler."""
    return lambda: [sys.executable, "-I", "-S", "-c", script]


@pytest.fixture
def _echo(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiler_process, "_command", stand_in(ECHO.replace("OFFSET", "0")))


def running() -> subprocess.Popen[bytes]:
    assert compiler_process._compiler is not None
    return compiler_process._compiler._child


class Interrupted(BaseException):
    """What a signal handler may raise."""


@pytest.mark.usefixtures("_echo")
def test_an_interrupted_request_leaves_no_reply_for_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(stream: object) -> None:
        raise Interrupted

    assert compiler_process.object_of(store) == store.function_name.encode()
    child = running()
    for name in ("_header", "_read_exactly"):
        with monkeypatch.context() as patch:
            patch.setattr(compiler_process, name, lambda *_: interrupt(None))
            with pytest.raises(Interrupted):
                compiler_process.object_of(store)
        assert child.poll() is not None
        assert compiler_process.object_of(clear) == clear.function_name.encode()
        child = running()


@pytest.mark.parametrize("script", [ECHO.replace("OFFSET", "1"), "print('[]')", "print('a line of numba')"])
def test_what_is_no_reply_to_the_request_is_refused(monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    monkeypatch.setattr(compiler_process, "_command", stand_in(script))
    with pytest.raises(compiler_process.CompilerError):
        compiler_process.object_of(store)
    assert running().poll() is not None


@pytest.mark.usefixtures("_echo")
def test_a_process_that_ended_is_replaced() -> None:
    compiler_process.object_of(store)
    first = running()
    first.kill()
    assert compiler_process.object_of(clear) == clear.function_name.encode()
    assert running() is not first


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("import os; os.abort()", "was ended by SIGABRT"),
        ("import sys; sys.exit('LLVM went wrong')", "ended with status 1; its last output: LLVM went wrong"),
        ('import os; os.write(1, b\'{"request": 1, "bytes": 9}\\n1234\')', "ended with status 0"),
        (f"import os; os._exit({compiler_main.OUT_OF_TIME})", "more than 60 s of CPU time"),
    ],
)
def test_a_failure_says_why_the_process_ended(monkeypatch: pytest.MonkeyPatch, script: str, reason: str) -> None:
    monkeypatch.setattr(compiler_process, "_command", stand_in(script))
    with pytest.raises(compiler_process.CompilerError, match=reason):
        compiler_process.object_of(store)


def test_time_for_a_kernel_is_processor_time() -> None:
    watch = compiler_main.Watch(cpu_seconds=60, still_ticks=60)
    watch.begin(0.0)
    used = 0.0
    for _ in range(10_000):  # a machine so busy that each tick brings a few milliseconds
        used += 0.005
        assert watch.tick(used) is None
    assert watch.tick(60.01) == compiler_main.OUT_OF_TIME
    watch.begin(60.01)
    assert watch.tick(120.0) is None


def test_a_process_that_computes_nothing_ends() -> None:
    watch = compiler_main.Watch(cpu_seconds=60, still_ticks=3)
    assert [watch.tick(used) for used in (1.0, 1.0, 1.0, 2.0, 2.0, 2.0, 2.0)] == [None] * 6 + [compiler_main.STILL]


def test_watching_is_no_computing(monkeypatch: pytest.MonkeyPatch) -> None:
    """All CPU time of the process is that of the thread that watches."""
    ticks: list[float] = []
    ended: list[int] = []
    clock = {name: lambda: float(len(ticks)) for name in ("process_time", "thread_time")}
    monkeypatch.setattr(compiler_main, "time", SimpleNamespace(sleep=ticks.append, **clock))
    monkeypatch.setattr(os, "_exit", ended.append)
    compiler_main._keep_watch(compiler_main.Watch(cpu_seconds=60, still_ticks=3), 1.0)
    assert ended == [compiler_main.STILL]


def test_the_process_keeps_its_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiler_process, "TICK_SECONDS", 0.001)
    with monkeypatch.context() as patch:
        patch.setattr(compiler_process, "CPU_SECONDS", 0.0)
        with pytest.raises(compiler_process.CompilerError, match="more than 0 s of CPU time"):
            compiler_process.object_of(run_steps)
    monkeypatch.setattr(compiler_process, "STILL_TICKS", 5)
    idle = compiler_process._Compiler()
    assert idle._child.wait() == compiler_main.STILL
    idle.end()


def test_a_kernel_that_cannot_be_compiled_is_told_from_a_compiler_that_is_not_there() -> None:
    header, _ = compiler_main._reply_to({"kernel": "delegates.compiled.tiles.product", "constants": {"unit": "none"}})
    assert header["error"].startswith("TypeError: ")
    header, _ = compiler_main._reply_to({"kernel": "no_such_module.product", "constants": {}})
    assert "no_such_module" in header["missing"]


def test_a_package_is_not_taken_from_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "numba.py").write_text("")
    (tmp_path / "elsewhere").symlink_to(tmp_path)
    expected = cache.package_file("numba")
    monkeypatch.chdir(tmp_path)
    for entry in ("", ".", str(tmp_path), str(tmp_path / "elsewhere")):
        with monkeypatch.context() as patch:
            patch.delitem(sys.modules, "numba", raising=False)
            patch.syspath_prepend(entry)
            assert cache.package_file("numba") == expected


def test_the_compiler_leaves_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for entry in ("", str(tmp_path)):
        monkeypatch.syspath_prepend(entry)
    rest = sys.path[2:]
    compiler_main.leave_working_directory()
    assert (sys.path, Path.cwd()) == (rest, Path(sys.prefix))


@pytest.mark.skipif(not Path("/proc/self/cwd").exists(), reason="needs /proc")
def test_a_process_that_compiles_leaves_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    compiler_process.object_of(run_steps)
    assert Path(f"/proc/{running().pid}/cwd").resolve() == Path(sys.prefix).resolve()


def test_what_changes_the_code_of_numba_is_not_handed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_DISABLE_JIT", "1")
    script = "import os, sys; sys.exit(' '.join(name for name in os.environ if name.startswith('NUMBA')) or 'none')"
    monkeypatch.setattr(compiler_process, "_command", stand_in(script))
    with pytest.raises(compiler_process.CompilerError, match=r"last output: none$"):
        compiler_process.object_of(store)


IN_FORKS = """
from __future__ import annotations
import os, sys, threading
from llvmlite import ir
from tflm.compiler import cache, cached_files, compiler, compiler_process, machine_code
from tflm.compiler.language import Int64s, emitted

@emitted
def first(builder, x: Int64s):
    builder.store(ir.IntType(64)(1), x)

@emitted
def second(builder, x: Int64s):
    builder.store(ir.IntType(64)(2), x)

def status(child):
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

compiler_process._command = lambda: [sys.executable, "-I", "-S", "-c", sys.argv[1]]
compiler_process.object_of(first)
running = compiler_process._compiler
child = os.fork()
if not child:
    compiler_process.object_of(second)
    sys.exit(6 if compiler_process._compiler is running else 3)
assert status(child) == 3
compiler_process.object_of(second)
assert compiler_process._compiler is running, "the fork ended its parent's compiler"

begun, release = threading.Event(), threading.Event()

def object_of_slowly(kernel):
    begun.set()
    release.wait()
    return compiler.object_of(kernel)

cache.write(second, compiler.object_of(second))
compiler_process.object_of = object_of_slowly
thread = threading.Thread(target=machine_code.addresses, args=([first],))
thread.start()
begun.wait()
child = os.fork()
if not child:
    os._exit(4 if machine_code.addresses([second]) and not cached_files._locks else 5)
assert status(child) == 4
release.set()
thread.join()
print("done")
"""


def test_a_fork_leaves_its_parents_compiler_alone_and_waits_for_no_thread_of_it(tmp_path: Path) -> None:
    script = tmp_path / "forks.py"
    script.write_text(IN_FORKS)
    paths = [str(Path(package.__file__).parents[2]), *filter(None, sys.path)]
    done = subprocess.run(
        [sys.executable, str(script), ECHO.replace("OFFSET", "0")],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
        timeout=50,  # the compiler of a parent that is gone ends after 60 s
        check=False,
    )
    assert done.stdout == "done\n", done.stderr


@pytest.mark.parametrize("how", ["end", "abandon"])
@pytest.mark.parametrize("has_ended", [None, False, True])
def test_a_process_is_left_once_and_only_while_it_runs(
    monkeypatch: pytest.MonkeyPatch, how: str, has_ended: bool | None
) -> None:
    """There is no process if `has_ended` is None."""
    calls: list[str] = []
    running = SimpleNamespace(has_ended=has_ended, **{how: lambda: calls.append(how)})
    monkeypatch.setattr(compiler_process, "_compiler", None if has_ended is None else running)
    for _ in range(2):
        getattr(compiler_process, f"_{how}")()
        assert compiler_process._compiler is None
    assert calls == ([how] if has_ended is False else [])


def test_a_lock_is_free_again_though_a_fork_still_has_its_file() -> None:
    folder = cached_files.cache_folder()
    assert folder is not None
    lock = folder / cached_files.lock_of("kernel")
    with cached_files.locked("kernel"):
        (held,) = cached_files._locks
        inherited = os.dup(held)  # as in a fork
        with lock.open("a") as other:
            assert not posix_files.try_lock(other.fileno())
    assert not cached_files._locks
    code = "import fcntl, sys; fcntl.flock(open(sys.argv[1]), fcntl.LOCK_EX | fcntl.LOCK_NB)"
    subprocess.run([sys.executable, "-I", "-S", "-c", code, str(lock)], check=True)
    os.close(inherited)


def is_free(lock: Path) -> bool:
    with lock.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


def test_who_waits_for_a_stopped_process_says_so_and_goes_on(monkeypatch: pytest.MonkeyPatch, log: list[str]) -> None:
    monkeypatch.setattr(cached_files, "SECONDS_TO_WAIT", 0.05)
    folder = cached_files.cache_folder()
    assert folder is not None
    with (folder / cached_files.lock_of("kernel")).open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with cached_files.locked("kernel"):
            assert any("another process has held a lock" in message for message in log)
        assert not is_free(folder / cached_files.lock_of("kernel"))


def test_other_processes_compile_other_kernels_meanwhile() -> None:
    folder = cached_files.cache_folder()
    assert folder is not None
    with cached_files.locked("a"):
        assert not is_free(folder / cached_files.lock_of("a"))
        assert is_free(folder / cached_files.lock_of("b"))


# --- Objects -----------------------------------------------------------------------------------------------------


@pytest.fixture(params=["without LLVM", "with LLVM"])
def _loaded(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Object files are loaded in both ways."""
    if request.param == "with LLVM":
        monkeypatch.setattr(object_loader, "RELOCATABLE", None)  # so that it refuses them all


@pytest.mark.usefixtures("_compiled_here", "_loaded")
@pytest.mark.parametrize("made", [compiler.object_of(clear), b"no object file", b""], ids=["other", "text", "empty"])
def test_an_object_without_the_entry_is_no_object(monkeypatch: pytest.MonkeyPatch, made: bytes) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(compiler_process, "object_of", lambda _: made)
        with pytest.warns(UserWarning, match=f"can't compile {store.name}; Python and numpy run"):
            assert machine_code.addresses([store]) == {}
    assert files() == []
    machine_code._addresses.clear()
    cache.write(store, made)
    found = machine_code.addresses([store, clear])
    assert (called(found[store], 1), called(found[clear], 1)) == (7, 0)
    assert cache.read(store) == compiler.object_of(store)


@pytest.mark.usefixtures("_compiled_here", "_loaded")
def test_an_address_of_zero_is_no_address(monkeypatch: pytest.MonkeyPatch) -> None:
    """As of an object file that only mentions the entry, here in a comment of its own."""
    mentions = compiler.object_of(clear) + store.symbol.encode() + b"\0"
    cache.write(store, mentions)
    assert cache.read(store) == mentions
    assert called(machine_code.addresses([store])[store], 1) == 7
    assert cache.read(store) == compiler.object_of(store)


@pytest.mark.usefixtures("_loaded")
def test_numba_compiles_a_kernel_with_an_entry() -> None:
    """What numba's documentation does not promise, and `_object_with_entry` relies on."""
    machine_code._link({add: numba_compiler.object_of(add)})
    assert called(machine_code.addresses([add])[add], 4) == (4 + ADDED) * FACTORS[1]


@pytest.mark.usefixtures("_compiled_here")
def test_a_generic_kernel_takes_types_from_arrays_and_functions_by_name() -> None:
    x1, x2 = np.array([1, -2, 3], np.int16), np.array([1.5, 2.5, 3.5], np.float32)
    y, truths = np.zeros(3, np.int32), np.zeros(3, np.bool_)
    steps = [
        each.step(x1=x1, function="times", x2=x1, y=y, count=3),
        each.step(x1=x1, function="less", x2=x2, y=truths, count=2),
    ]
    for step in steps:
        arguments = np.array(step.arguments, np.int64)
        entry = machine_code.addresses([step.kernel])[step.kernel]
        assert ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)(entry)(arguments.ctypes.data) == DONE
    assert y.tolist() == [2, 8, 18]
    assert truths.tolist() == [True, True, False]
    assert each.step(x1=x1, function="times", x2=x1, y=y, count=1).kernel is steps[0].kernel
    for wrong in ({}, {"function": "times", "counts": 3}):
        with pytest.raises(TypeError, match=r"takes x1, function, x2, y, count"):
            each.step(x1=x1, x2=x1, y=y, count=3, **wrong)


class Pair(NamedTuple):
    values: Integers
    count: int  # type: ignore[assignment]


@inlined
def total(pair: Pair) -> int:
    result = 0
    for i in range(pair.count):
        result += pair.values[i]
    return result


@kernel
def difference(first: Pair, factor: float, second: Pair) -> int:
    return int(factor * (total(first) - total(second)))


@pytest.mark.usefixtures("_compiled_here")
@pytest.mark.parametrize("is_there", [True, False])
def test_a_kernel_is_a_function_with_and_without_a_compiler(monkeypatch: pytest.MonkeyPatch, is_there: bool) -> None:
    monkeypatch.setattr(calls, "is_available", lambda: is_there)
    first, second = Pair(np.array([1, 20, 300], np.int64), 3), Pair(np.array([4, 50], np.int64), 1)
    assert calls.as_function(difference)(first=first, factor=-2.5, second=second) == int(-2.5 * (321 - 4))
    assert len(files()) == is_there


@pytest.mark.usefixtures("_compiled_here")
def test_a_kernel_that_cannot_be_compiled_runs_in_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiler_process, "object_of", lambda _: b"no object file")
    with pytest.warns(UserWarning, match="can't compile"):
        assert calls.as_function(difference) is difference.function


def test_one_module_imports_numba() -> None:
    users = set()
    for path in Path(package.__file__).parents[1].rglob("*.py"):
        source = path.read_text()
        for node in ast.walk(ast.parse(source)) if "numba" in source else ():
            names = [name.name for name in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            users |= {path.stem for name in names if name.partition(".")[0] == "numba"}
    assert users == {"numba_compiler"}


def test_few_names_from_within_numba_are_used() -> None:
    tree = ast.walk(ast.parse(Path(numba_compiler.__file__).read_text()))
    imports = [
        node for node in tree if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("numba.core")
    ]
    names = {name.name for node in imports for name in node.names}
    undocumented = {"AOTCodeLibrary", "JITCPUCodegen", "cpu_target", "global_compiler_lock"}
    assert names == {"CompilerBase", "PassManager", "typed_passes", "untyped_passes", *undocumented}


def test_modules_of_the_engine_import_each_other_in_one_direction() -> None:
    """Imports inside functions count, too."""
    prefix = package.__name__
    graph: dict[str, set[str]] = {}
    for path in Path(package.__file__).parent.glob("*.py"):
        names = set()
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module == prefix:
                names |= {name.name for name in node.names}
            elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith(prefix + "."):
                names.add((node.module or "").removeprefix(prefix + "."))
        graph[path.stem] = names
    assert list(TopologicalSorter(graph).static_order())


# --- Keys --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("of", "name", "value"),
    [
        (add, "DONE", 1),
        (add, "FACTORS", (2, 6)),
        (add, "ADDED", 4),
        (each.of(function="times", x1="int8", x2="int8", y="int8"), "FACTORS", (2, 6)),
        (store, "VALUES", {"stored": 8}),
    ],
)
def test_a_constant_that_a_kernel_reaches_changes_its_key(
    monkeypatch: pytest.MonkeyPatch, of: Kernel, name: str, value: object
) -> None:
    before = cache.key(of)
    unaffected = cache.key(clear)
    monkeypatch.setattr(sys.modules[__name__], name, value)
    assert cache.key(of) != before
    assert cache.key(clear) == unaffected


def test_kernels_of_one_function_have_keys_of_their_own() -> None:
    kernels: list[Kernel] = [store, store_number, store_number.of(n=1), store_number.of(n=2), add]
    kernels += [each.of(function=name, x1=of, x2=of, y=of) for name in FUNCTIONS for of in ("int8", "int16")]
    assert len({cache.key(kernel) for kernel in kernels}) == 9


def test_a_kernel_is_the_same_whatever_the_order_of_its_constants() -> None:
    constants = {"function": "less", "x1": "int8", "x2": "int16", "y": "int8"}
    assert each.of(**dict(reversed(constants.items()))) is each.of(**constants)


# --- Files and folders -------------------------------------------------------------------------------------------


def make_fifo(path: Path) -> None:
    os.mkfifo(path)


def make_dangling(path: Path) -> None:
    path.symlink_to(path / "nowhere")


def make_sparse(path: Path) -> None:
    with open(path, "wb") as file:
        file.truncate(1 << 40)


OBSTACLES = [Path.mkdir, make_fifo, make_dangling, make_sparse]


@pytest.mark.usefixtures("_compiled_here")
@pytest.mark.parametrize("obstacle", OBSTACLES)
@pytest.mark.parametrize("place", ["lock", "kernel"])
def test_what_is_no_file_is_no_obstacle(obstacle: Callable[[Path], None], place: str) -> None:
    folder = cached_files.cache_folder()
    assert folder is not None
    name = cache._name(store)
    path = folder / (cached_files.lock_of(name) if place == "lock" else name)
    obstacle(path)
    assert called(machine_code.addresses([store])[store], 1) == 7
    assert files() == [cache._name(store)]
    made = cache.read(store)
    assert made is None if place == "kernel" and obstacle is Path.mkdir else made == compiler.object_of(store)


@pytest.mark.usefixtures("_compiled_here")
def test_a_full_disk_leaves_no_files() -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    made = compiler.object_of(store)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))
    try:
        cache.write(store, made)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert files() == []


@pytest.mark.usefixtures("_compiled_here")
def test_machine_code_lives_in_memory_where_no_file_can_be_made(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    assert cached_files.cache_folder() is not None
    monkeypatch.setattr(tempfile, "mkstemp", refuse)
    monkeypatch.setattr(os, "open", refuse)
    assert called(machine_code.addresses([store])[store], 1) == 7
    assert files() == []


@pytest.mark.usefixtures("_echo")
def test_the_compiler_needs_no_file(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(**_: object) -> None:
        raise FileNotFoundError("No usable temporary directory found")

    monkeypatch.setattr(tempfile, "TemporaryFile", refuse)
    assert compiler_process.object_of(store) == store.function_name.encode()


def no_home(monkeypatch: pytest.MonkeyPatch, _: Path) -> None:
    def refuse() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv(cached_files.CACHE_VARIABLE)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", refuse)


def home_in_the_working_directory(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """As an archive may hold it."""
    monkeypatch.chdir(folder)
    monkeypatch.delenv(cached_files.CACHE_VARIABLE)
    monkeypatch.setenv("XDG_CACHE_HOME", ".")
    monkeypatch.setenv("HOME", "home")


def a_file_for_a_folder(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    (folder / "file").write_text("")
    monkeypatch.setenv(cached_files.CACHE_VARIABLE, str(folder / "file"))


def a_folder_below_a_file(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    a_file_for_a_folder(monkeypatch, folder)
    monkeypatch.setenv(cached_files.CACHE_VARIABLE, str(folder / "file" / "cache"))


def a_folder_of_others(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    folder.chmod(0o777)
    monkeypatch.setenv(cached_files.CACHE_VARIABLE, str(folder))


@pytest.mark.usefixtures("_compiled_here")
@pytest.mark.parametrize(
    "prepare", [no_home, home_in_the_working_directory, a_file_for_a_folder, a_folder_below_a_file, a_folder_of_others]
)
def test_a_folder_that_cannot_be_trusted_or_made_is_not_used(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, prepare: Callable[[pytest.MonkeyPatch, Path], None]
) -> None:
    prepare(monkeypatch, tmp_path)
    before = sorted(tmp_path.rglob("*"))
    assert called(machine_code.addresses([store])[store], 1) == 7
    assert cached_files.cache_folder() is None
    assert sorted(tmp_path.rglob("*")) == before


def test_a_folder_stays_the_same_when_the_working_directory_changes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(cached_files.CACHE_VARIABLE, "mine")
    assert cached_files.cache_folder() == tmp_path / "mine"


# --- Fallback ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("executable", ["", None, "/no/such/python", "/"])
def test_numpy_runs_after_one_warning_where_no_process_can_be_started(
    monkeypatch: pytest.MonkeyPatch, executable: str | None
) -> None:
    monkeypatch.setattr(sys, "executable", executable)
    with pytest.warns(UserWarning, match="kernels can't be compiled, Python and numpy run in their place") as caught:
        assert answer(allocated()) == RELU_OF_RANGE
    assert len(caught) == 1
    machine_code._addresses.clear()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert answer(allocated()) == RELU_OF_RANGE


def test_kernels_that_fail_alike_share_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: Kernel) -> bytes:
        raise compiler_process.CompilerError("it took more than 60 s of CPU time")

    monkeypatch.setattr(compiler_process, "object_of", refuse)
    with pytest.warns(
        UserWarning, match=r"can't compile .*; Python and numpy run in their place: it took more"
    ) as caught:
        assert answer(allocated()) == RELU_OF_RANGE
    assert len(caught) == 1
