"""The engine on systems and processors other than those of this machine.

Stand-ins answer for the systems, and machine code for Windows is called by its own convention.
"""

from __future__ import annotations

import ctypes
import errno
import importlib
import io
import os
import platform
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

pytest.importorskip("llvmlite", reason="needs the extra `fast`")

import llvmlite.binding as llvm
from differential import assert_close, run
from llvmlite import ir
from models import layer

from tflm.compiler import (
    cache,
    cached_files,
    calls,
    compiler,
    compiler_process,
    llvm_linker,
    machine_code,
    methods,
    object_loader,
    processor,
    windows_files,
)
from tflm.compiler.language import Kernel
from tflm.delegates import Compiled
from tflm.delegates.compiled import program
from tflm.errors import ArgumentError
from tflm.schema import TensorType

ROOT = Path(__file__).parents[1]

# --- Processors --------------------------------------------------------------------------------------------------


def linux(hardware: int) -> SimpleNamespace:
    """A C library of Linux, which tells of instruction sets by bits."""
    return SimpleNamespace(getauxval=lambda key: hardware if key == 16 else 0)


def macos(names: dict[bytes, int]) -> SimpleNamespace:
    """A C library of macOS, which tells of instruction sets by name."""

    def sysctlbyname(name: bytes, value: Any, size: Any, new: None, new_size: Any) -> int:
        if name not in names:
            return -1
        assert size._obj.value == 4
        value._obj.value = names[name]
        return 0

    return SimpleNamespace(sysctlbyname=sysctlbyname)


def windows(*present: int) -> SimpleNamespace:
    """The kernel library of Windows, which tells of instruction sets by number."""
    return SimpleNamespace(IsProcessorFeaturePresent=lambda number: number in present)


@pytest.mark.parametrize(
    ("ask", "system", "expected"),
    [
        (processor.has_dot_product_on_linux, linux(0x887), False),  # a Cortex-A53
        (processor.has_dot_product_on_linux, linux(0x119FFF), True),  # a Neoverse N1
        (processor.has_dot_product_on_linux, SimpleNamespace(), False),
        (processor.has_dot_product_on_macos, macos({b"hw.optional.arm.FEAT_DotProd": 1}), True),
        (processor.has_dot_product_on_macos, macos({b"hw.optional.arm.FEAT_DotProd": 0}), False),
        (processor.has_dot_product_on_macos, macos({}), False),
        (processor.has_dot_product_on_windows, windows(30, 31, 43), True),
        (processor.has_dot_product_on_windows, windows(30, 31), False),
    ],
)
def test_each_system_is_asked_for_dot_products(
    ask: Callable[[Any], bool], system: SimpleNamespace, expected: bool
) -> None:
    assert ask(system) is expected


@pytest.mark.parametrize("has_dot_product", [False, True])
@pytest.mark.parametrize("system", ["linux", "darwin", "win32", "freebsd14"])
def test_the_library_of_the_system_is_asked(
    monkeypatch: pytest.MonkeyPatch, system: str, has_dot_product: bool
) -> None:
    libraries = {
        "linux": linux(has_dot_product << 20),
        "darwin": macos({b"hw.optional.arm.FEAT_DotProd": has_dot_product}),
        "win32": windows(*[43] * has_dot_product),
    }
    library = libraries.get(system, SimpleNamespace())
    monkeypatch.setattr(sys, "platform", system)
    monkeypatch.setattr(ctypes, "WinDLL", {"kernel32": library}.__getitem__, raising=False)
    monkeypatch.setattr(ctypes, "CDLL", {None: library}.__getitem__)
    assert processor.has_dot_product_on_arm64() is (has_dot_product and system in libraries)


@pytest.fixture
def _other_machine(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv(processor.VARIABLE, raising=False)
    processor.processor.cache_clear()
    yield
    processor.processor.cache_clear()


@pytest.mark.usefixtures("_other_machine")
@pytest.mark.parametrize("machine", ["arm64", "aarch64", "ARM64"])
@pytest.mark.parametrize("has_dot_product", [False, True])
def test_llvm_is_told_of_the_dot_products_of_arm64(
    monkeypatch: pytest.MonkeyPatch, machine: str, has_dot_product: bool
) -> None:
    monkeypatch.setattr(platform, "machine", lambda: machine)
    monkeypatch.setattr(processor, "has_dot_product_on_arm64", lambda: has_dot_product)
    found = processor.processor()
    assert found.features.split(",")[-1] == ("+dotprod" if has_dot_product else "-dotprod")
    assert (found.vector_bytes, found.has_dot_product, found.is_x86, found.is_arm64) == (
        16,
        has_dot_product,
        False,
        True,
    )


@pytest.mark.usefixtures("_other_machine")
@pytest.mark.parametrize(
    ("machine", "path", "others"),
    [("AMD64", "avx2", "dotprod"), ("arm64", "dotprod", "avx2"), ("riscv64", "plain", "sse2")],
)
def test_instruction_sets_are_those_of_the_machine(
    monkeypatch: pytest.MonkeyPatch, machine: str, path: str, others: str
) -> None:
    monkeypatch.setattr(platform, "machine", lambda: machine)
    monkeypatch.setenv(processor.VARIABLE, path)
    processor.processor()
    processor.processor.cache_clear()
    monkeypatch.setenv(processor.VARIABLE, others)
    with pytest.raises(ArgumentError, match=rf"TFLM_CPU is '{others}', must be one of .*plain"):
        processor.processor()


# --- Systems -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("attribute", "value", "reason"),
    [
        ((os, "name"), "java", "not available on"),
        ((sys, "maxsize"), 2**31 - 1, "needs a 64-bit Python"),
        ((importlib.util, "find_spec"), lambda name: None, "the extra fast is not installed"),
    ],
)
def test_the_engine_says_why_it_is_not_available(
    monkeypatch: pytest.MonkeyPatch, attribute: tuple[Any, str], value: Any, reason: str
) -> None:
    find = calls.obstacle.__wrapped__
    assert find() == ""
    with monkeypatch.context() as patch:
        patch.setattr(*attribute, value)
        found = find()
    assert found.startswith(reason)


@pytest.mark.parametrize(("version", "says_why"), [((3, 13), True), ((3, 14), False)])
def test_a_python_without_a_lock_says_from_which_version_on_there_is_a_compiler(
    monkeypatch: pytest.MonkeyPatch, version: tuple[int, int], says_why: bool
) -> None:
    variable = sysconfig.get_config_var
    monkeypatch.setattr(sysconfig, "get_config_var", lambda name: 1 if name == "Py_GIL_DISABLED" else variable(name))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(calls, "sys", SimpleNamespace(maxsize=sys.maxsize, version_info=version))
    assert ("free-threaded Python from 3.14 on" in calls.obstacle.__wrapped__()) is says_why


def test_machine_code_knows_nothing_of_the_layout_of_objects() -> None:
    """It hands them to functions of CPython only: builds without a global lock lay objects out in another way."""
    for kernel in (program.KEEPS_LOCK, program.RELEASES_LOCK):
        module = ir.Module("call")
        function = ir.Function(module, ir.FunctionType(ir.IntType(64), [ir.IntType(64).as_pointer()]), "call")
        kernel.function(ir.IRBuilder(function.append_basic_block()), **kernel.constants)
        (capsule,) = (line.split()[0] for line in str(function).splitlines() if 'ptrtoint i64* %".1"' in line)
        users = [
            line for line in str(function).splitlines() if capsule in line and not line.strip().startswith(capsule)
        ]
        assert [line.partition("@")[2].split("(")[0].strip('"') for line in users] == ["PyCapsule_GetPointer"]
        assert str(function).count('%".1"') == 2  # its declaration and that conversion


@pytest.fixture
def msvcrt(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[SimpleNamespace]:
    """A stand-in for the module of Windows, with the locks of this system; the cache has its files as on Windows."""
    fcntl = pytest.importorskip("fcntl")

    def locking(descriptor: int, mode: int, size: int) -> None:
        try:
            fcntl.lockf(descriptor, mode, size)
        except BlockingIOError:
            raise OSError(errno.EDEADLK, "Resource deadlock avoided") from None

    stand_in = SimpleNamespace(locking=locking, LK_NBLCK=fcntl.LOCK_EX | fcntl.LOCK_NB, LK_UNLCK=fcntl.LOCK_UN)
    monkeypatch.setitem(sys.modules, "msvcrt", stand_in)
    monkeypatch.setattr(cached_files, "files", windows_files)
    monkeypatch.setenv(cached_files.CACHE_VARIABLE, str(tmp_path / "cache"))
    cached_files.cache_folder.cache_clear()
    yield stand_in
    cached_files.cache_folder.cache_clear()


@pytest.mark.parametrize("value", [os.path.abspath("given"), "relative", ""])
def test_caches_of_windows_are_local_to_the_machine(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("LOCALAPPDATA", value)
    assert windows_files.caches() == (Path(value) if os.path.isabs(value) else Path.home() / "AppData" / "Local")


@pytest.mark.skipif(os.name != "posix", reason="needs fcntl")
@pytest.mark.parametrize(("system", "folder"), [("darwin", "Library/Caches"), ("linux", ".cache")])
def test_caches_are_where_the_system_has_them(monkeypatch: pytest.MonkeyPatch, system: str, folder: str) -> None:
    from tflm.compiler import posix_files

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(sys, "platform", system)
    assert posix_files.caches() == Path.home() / folder
    monkeypatch.setenv("XDG_CACHE_HOME", "/given")
    assert posix_files.caches() == Path("/given")


def test_windows_locks_the_same_byte_wherever_a_file_was_read(msvcrt: SimpleNamespace, tmp_path: Path) -> None:
    """Locks of Windows begin at the position of the file."""
    positions = []
    msvcrt.locking = lambda descriptor, *_: positions.append(os.lseek(descriptor, 0, os.SEEK_CUR))
    (tmp_path / "file").write_bytes(bytes(9))
    with (tmp_path / "file").open("r+b") as file:
        for position in (0, 5):
            file.seek(position)
            assert windows_files.try_lock(file.fileno())
            windows_files.unlock(file.fileno())
    assert positions == [0] * 4


HOLD = """
import fcntl, os, sys
file = open(sys.argv[1], "r+b")
fcntl.lockf(file, fcntl.LOCK_EX, 1)
print("held", flush=True)
sys.stdin.read()
"""


def test_a_lock_of_windows_waits_longer_than_its_attempts(
    msvcrt: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = cached_files.cache_folder()
    assert folder is not None
    lock = folder / cached_files.lock_of("kernel")
    lock.touch()
    monkeypatch.setattr(windows_files, "open_at_once", lambda path, flags: os.open(path, os.O_RDWR))
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(lock)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"
        locking, refused = msvcrt.locking, []

        def count(*arguments: int) -> None:
            try:
                locking(*arguments)
            except OSError:
                refused.append(arguments)
                if len(refused) == 3:
                    other.communicate()
                raise

        monkeypatch.setattr(msvcrt, "locking", count)
        with cached_files.locked("kernel"):
            assert len(refused) == 3


def test_where_no_file_can_be_locked_is_no_error(msvcrt: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: int) -> None:
        raise OSError(errno.EINVAL, "Invalid argument")

    monkeypatch.setattr(msvcrt, "locking", refuse)
    with cached_files.locked("kernel"), cached_files.locked("kernel"):
        pass


@pytest.mark.usefixtures("msvcrt")
def test_a_file_that_another_process_has_open_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows does not replace it."""
    cache.write(program.run_steps, b"first")

    def refuse(*_: object) -> None:
        raise PermissionError(errno.EACCES, "Access is denied")

    monkeypatch.setattr(os, "replace", refuse)
    cache.write(program.run_steps, b"second")
    folder = cached_files.cache_folder()
    assert folder is not None
    assert (cache.read(program.run_steps), len(list(folder.iterdir()))) == (b"first", 1)


WITHOUT_POSIX = """
import os, signal, sys, types
import ctypes, subprocess, tempfile, llvmlite.binding, numpy
sys.platform = "win32"
for name in ("fcntl", "resource", "pwd", "grp"):
    sys.modules[name] = None
for name in ("register_at_fork", "fork", "getuid", "O_NONBLOCK", "mkfifo"):
    delattr(os, name)
del signal.SIGALRM
def locking(descriptor, mode, size):
    taken.append(mode)
taken = []
ctypes.WinDLL = lambda name: types.SimpleNamespace(IsProcessorFeaturePresent=lambda number: 0)  # asked on arm64
sys.modules["msvcrt"] = types.SimpleNamespace(locking=locking, LK_NBLCK=1, LK_UNLCK=0)
import tflm
from tflm.compiler import machine_code
model = tflm.Model.from_file(sys.argv[1])
interpreter = tflm.MicroInterpreter(model, tflm.AllOpsResolver(), bytearray(4096))
interpreter.allocate_tensors()
interpreter.invoke()
assert all(machine_code.requested_kernels().values()), machine_code.requested_kernels()
assert taken == [1, 0] * len(machine_code.requested_kernels()), taken
print(len(machine_code.requested_kernels()), "kernels")
"""
"""A process that has what Windows has of the modules os and sys, and none that are of POSIX."""


@pytest.mark.skipif(os.name != "posix", reason="takes POSIX away")
def test_the_engine_needs_nothing_of_posix(tmp_path: Path) -> None:
    model = ROOT / "examples" / "hello_world" / "hello_world_int8.tflite"
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_POSIX, str(model)],
        cwd=ROOT,
        env={**os.environ, cached_files.CACHE_VARIABLE: str(tmp_path), "TFLM_COMPILED": "wait"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("kernels\n")


# --- Calling conventions -----------------------------------------------------------------------------------------

WINDOWS = "x86_64-pc-windows-msvc-elf"
"""The triple of machine code for Windows, in object files as MCJIT loads them there."""

FOR_WINDOWS = """
define win64cc i64 @NAME(i64 %a, i64 %b, i64 %c, i64 %d) {
  %function = inttoptr i64 ADDRESS to i64 (i64, i64, i64, i64)*
  %result = call i64 %function(i64 %a, i64 %b, i64 %c, i64 %d)
  ret i64 %result
}
"""
"""A function of this system, for callers that follow the convention of Windows."""

OF_WINDOWS = """
define i64 @enter(i64 %a, i64 %b) {
  %function = inttoptr i64 ADDRESS to i64 (i64, i64)*
  %result = call win64cc i64 %function(i64 %a, i64 %b)
  ret i64 %result
}
"""
"""A function of Windows, for callers that follow the convention of this system."""


def engine_of(text: str) -> llvm.ExecutionEngine:
    """An engine with functions of this machine, in LLVM IR."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_default_triple().create_target_machine(jit=True)
    return llvm.create_mcjit_compiler(llvm.parse_assembly(text), machine)


def address_of(name: str) -> int:
    """Return the address of a function of CPython or of the C library."""
    address = ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value
    assert address is not None
    return address


@pytest.fixture
def _code_of_windows(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Kernels are compiled for Windows. Where Python calls them, and they call Python, conventions are converted."""
    start, bind, entered = compiler_process._command, methods.bind_method, []

    def cross() -> list[str]:
        python, isolated, *rest = start()
        return [python, isolated, str(ROOT / "tools" / "cross_compiler.py"), WINDOWS, "AMD64", *rest]

    def new_engine() -> llvm.ExecutionEngine:
        names = (*llvm_linker.PYTHON_API, "memset", "memmove")
        return engine_of("".join(FOR_WINDOWS.replace("NAME", n).replace("ADDRESS", str(address_of(n))) for n in names))

    def bind_method(method: Kernel, address: int, words: npt.NDArray[np.int64]) -> Callable[[], int]:
        engine = engine_of(OF_WINDOWS.replace("ADDRESS", str(address)))
        engine.finalize_object()
        entered.append(engine)
        return bind(method, engine.get_function_address("enter"), words)

    monkeypatch.setattr(compiler_process, "_command", cross)
    monkeypatch.setattr(compiler_process, "_compiler", None)
    monkeypatch.setattr(machine_code, "_addresses", {})
    monkeypatch.setattr(llvm_linker, "_new_engine", new_engine)
    monkeypatch.setattr(object_loader, "RELOCATABLE", None)  # so that it refuses them all
    monkeypatch.setattr(methods, "_definitions", {})
    monkeypatch.setattr(program, "bind_method", bind_method)
    monkeypatch.setenv(cached_files.CACHE_VARIABLE, str(tmp_path / "cache"))
    monkeypatch.setenv(processor.VARIABLE, "avx2")
    functions = (cached_files.cache_folder, processor.processor, cache._environment)
    for function in functions:
        function.cache_clear()
    yield
    compiler_process._end()
    for function in functions:
        function.cache_clear()
    assert entered


@pytest.mark.long
@pytest.mark.usefixtures("_code_of_windows")
@pytest.mark.skipif(platform.machine() != "x86_64" or os.name != "posix", reason="runs code of Windows on x86-64")
def test_code_for_windows_follows_its_calling_convention() -> None:
    """A function finds its arguments where its caller puts them, from a Python method to kernels and back."""
    model, invocations = layer("CONV_2D", 9, 5, 17, TensorType.INT8)
    (expected,) = run(model, invocations, delegates=())
    (found,) = run(model, invocations, delegates=[Compiled()])
    assert_close(found, expected)
    assert all(machine_code.requested_kernels().values())


# --- Instructions ------------------------------------------------------------------------------------------------

SDOT, SQRDMULH = 0x4E809400, 0x6EA0B400
"""Instructions of arm64 on vectors of 128 bits, with lanes of 32; the mask leaves the registers out."""

OPERATION = 0xFFE0FC00


@pytest.mark.usefixtures("_other_machine")
@pytest.mark.parametrize(("path", "has_dot_products"), [("dotprod", True), ("neon", False)])
@pytest.mark.parametrize("operator", ["CONV_2D", "DEPTHWISE_CONV_2D"])
def test_tiles_of_arm64_have_its_instructions(
    monkeypatch: pytest.MonkeyPatch, operator: str, path: str, has_dot_products: bool
) -> None:
    """A multiplier takes one for four outputs; where there are dot products, four products take one."""
    pretend(monkeypatch, "aarch64-unknown-linux-gnu", "aarch64", path)
    objects = [compiler.object_of(tile) for tile in tiles_of(monkeypatch, operator, TensorType.INT8)]
    assert objects
    for made in objects:
        operations = np.frombuffer(made[: len(made) // 4 * 4], "<u4") & OPERATION
        assert (SDOT in operations) is has_dot_products
        assert SQRDMULH in operations


def pretend(monkeypatch: pytest.MonkeyPatch, triple: str, machine: str, path: str) -> None:
    """Kernels are compiled for that machine in this process."""

    def target_machine() -> llvm.TargetMachine:
        llvm.initialize_all_targets()
        llvm.initialize_all_asmprinters()
        cpu = processor.processor()
        options: Any = {"cpu": cpu.name, "features": cpu.features, "opt": 3, "codemodel": "jitdefault", "jit": True}
        return llvm.Target.from_triple(triple).create_target_machine(**options)

    monkeypatch.setattr(platform, "machine", lambda: machine)
    monkeypatch.setenv(processor.VARIABLE, path)
    monkeypatch.setattr(compiler, "_target_machine", target_machine)


def tiles_of(monkeypatch: pytest.MonkeyPatch, operator: str, type: TensorType) -> list[Kernel]:
    """The tiles of a layer."""
    asked: list[Kernel] = []

    def no_addresses(kernels: Iterable[Kernel], *_: object) -> dict[Kernel, int]:
        asked.extend(kernels)
        return {}

    monkeypatch.setattr(program, "addresses", no_addresses)
    model, invocations = layer(operator, 9, 5, 70, type)
    run(model, invocations, delegates=[Compiled()])
    return [kernel for kernel in asked if "form.scale" in kernel.constants]


STACK_PROBE = "__chkstk"
"""What code for Windows calls before it uses a page of the stack or more; ntdll has it."""


@pytest.mark.usefixtures("_other_machine")
@pytest.mark.parametrize(
    ("triple", "machine", "path"),
    [
        (WINDOWS, "AMD64", "avx2"),
        (WINDOWS, "AMD64", "avx512"),
        ("arm64-apple-darwin-elf", "arm64", "dotprod"),
        ("arm64-apple-darwin", "arm64", "dotprod"),
    ],
)
def test_code_calls_nothing_that_a_system_lacks(
    monkeypatch: pytest.MonkeyPatch, triple: str, machine: str, path: str
) -> None:
    pretend(monkeypatch, triple, machine, path)
    tiles = [tile for type in (TensorType.INT8, TensorType.INT16) for tile in tiles_of(monkeypatch, "CONV_2D", type)]
    available = {*llvm_linker.PYTHON_API, STACK_PROBE} if triple == WINDOWS else set(llvm_linker.PYTHON_API)
    for kernel in {*tiles, program.KEEPS_LOCK, program.RELEASES_LOCK}:
        made = compiler.object_of(kernel)
        assert kernel.symbol.encode() + b"\0" in made
        assert any(section.is_text() and section.size() for section in llvm.ObjectFileRef.from_data(made).sections())
        if triple.endswith("-elf"):
            assert undefined_names(made) <= available


def undefined_names(made: bytes) -> set[str]:
    """The names that an object file in ELF leaves to others."""
    elffile = pytest.importorskip("elftools.elf.elffile", reason="needs pyelftools")
    symbols = elffile.ELFFile(io.BytesIO(made)).get_section_by_name(".symtab").iter_symbols()
    return {symbol.name for symbol in symbols if symbol["st_shndx"] == "SHN_UNDEF" and symbol.name}
