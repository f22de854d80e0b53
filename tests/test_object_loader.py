"""Object files that are loaded without LLVM, and what LLVM said about this machine."""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import mmap
import os
import platform
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from example_models import INT8_MODEL
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("llvmlite", reason="needs the extra `fast`")

from llvmlite import ir

from tflm.compiler import cached_files, compiler, host, llvm_linker, object_loader
from tflm.compiler.language import Int64s, emitted

IS_LOADED_HERE = sys.platform == "linux" and platform.machine() == "x86_64"

here_only = pytest.mark.skipif(not IS_LOADED_HERE, reason="elsewhere LLVM loads object files")


@emitted
def copied(builder: Any, x: Int64s) -> None:
    """Copy a table by a function of the C library: as many bytes as the first value says."""
    values = ir.Constant(ir.ArrayType(ir.IntType(64), 3), [5, 6, 7])
    table = ir.GlobalVariable(builder.module, values.type, "table")
    table.initializer, table.global_constant = values, True
    address = ir.IntType(8).as_pointer()
    memmove = ir.Function(builder.module, ir.FunctionType(address, [address, address, ir.IntType(64)]), "memmove")
    builder.call(memmove, [*(builder.bitcast(pointer, address) for pointer in (x, table)), builder.load(x)])
    number = ir.IntType(64)
    second = ir.Function(builder.module, ir.FunctionType(number, [number]), "doubled")
    inner = ir.IRBuilder(second.append_basic_block())
    inner.ret(inner.add(*second.args, *second.args))


@emitted
def counted(builder: Any, x: Int64s) -> None:
    """Count the calls."""
    count = ir.GlobalVariable(builder.module, ir.IntType(64), "count")
    count.initializer = ir.IntType(64)(0)
    builder.store(builder.add(builder.load(count), ir.IntType(64)(1)), count)
    builder.store(builder.load(count), x)


MADE = compiler.object_of(copied)


def values_of(address: int, first: int) -> list[int]:
    """What a kernel makes of three values."""
    x = np.array([first, 0, 0], np.int64)
    arguments = np.array([x.ctypes.data], np.int64)
    ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)(address)(arguments.ctypes.data)
    values: list[int] = x.tolist()
    return values


@here_only
def test_a_kernel_with_constants_and_calls_does_what_it_does_when_llvm_loads_it() -> None:
    address = object_loader.load(MADE, copied.symbol)
    by_llvm = llvm_linker.load({copied.symbol: MADE})[copied.symbol]
    assert values_of(address, 16) == values_of(by_llvm, 16) == [5, 6, 0]


@here_only
def test_a_function_is_found_behind_another_one() -> None:
    assert ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(object_loader.load(MADE, "doubled"))(21) == 42


@pytest.mark.parametrize(
    "made",
    [
        b"",
        b"no object file",
        MADE[: len(MADE) // 2],
        MADE.replace(b"\0mem", b"\0nom"),
        compiler.object_of(counted),
    ],
    ids=["empty", "text", "half", "unknown function", "variable"],
)
def test_what_cannot_be_loaded_is_refused(made: bytes) -> None:
    with pytest.raises(object_loader.UnsupportedError):
        object_loader.load(made, copied.symbol)


@here_only
@pytest.mark.parametrize(
    ("count", "reason", "changes"),
    [
        (1, "is not code or constants", {"flags": object_loader.LOADED | object_loader.WRITABLE}),
        (1, "is not code or constants", {"kind": object_loader.SYMBOLS}),
        (1, "is not code or constants", {"alignment": 2 * mmap.PAGESIZE}),
        (1, "is truncated", {"size": len(MADE) + 1, "offset": 0}),
        (1, "is truncated", {"size": 1, "offset": len(MADE)}),
        (2, "its sections overlap", {"size": len(MADE) // 2 + 1, "offset": 0}),
    ],
)
def test_sections_that_cannot_be_loaded_are_refused(count: int, reason: str, changes: dict[str, int]) -> None:
    sections = list(object_loader._sections(MADE))
    loaded, _ = object_loader._layout(MADE, sections)
    for place in [*loaded][:count]:
        sections[place] = sections[place]._replace(**changes)
    assert len(loaded) >= count
    with pytest.raises(object_loader.UnsupportedError, match=reason):
        object_loader._layout(MADE, sections)


@pytest.mark.parametrize("value", [2**31, 2**32 - 1, 2**62, 2**63, 2**64 - 1])
def test_no_number_of_a_file_is_an_error_of_python(value: int) -> None:
    """At every place that may hold an offset, a size or an index."""
    for size in (4, 8):
        for place in range(0, len(MADE) - size, size):
            made = MADE[:place] + (value % 2 ** (8 * size)).to_bytes(size, "little") + MADE[place + size :]
            with contextlib.suppress(object_loader.UnsupportedError, OSError):
                object_loader.load(made, copied.symbol)


def test_other_systems_leave_object_files_to_llvm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(object_loader.UnsupportedError):
        object_loader.load(MADE, copied.symbol)
    assert llvm_linker.load({copied.symbol: MADE}).keys() == {copied.symbol}


@given(st.lists(st.tuples(st.integers(0, len(MADE) - 1), st.integers(0, 255)), min_size=1), st.integers(0, len(MADE)))
def test_a_damaged_file_is_refused_or_loaded(changes: list[tuple[int, int]], size: int) -> None:
    damaged = bytearray(MADE)
    for place, byte in changes:
        damaged[place] = byte
    for made in (damaged, damaged[:size]):
        with contextlib.suppress(object_loader.UnsupportedError, OSError):
            object_loader.load(bytes(made), copied.symbol)


RUN = """
import sys, tflm
interpreter = tflm.MicroInterpreter(tflm.Model.from_file(sys.argv[1]), tflm.AllOpsResolver(), bytearray(1 << 14))
interpreter.allocate_tensors()
interpreter.invoke()
from tflm.compiler.machine_code import requested_kernels
assert all(requested_kernels().values())
print("llvmlite.binding" in sys.modules)
"""


@here_only
def test_a_process_that_finds_everything_in_files_does_not_load_llvm(tmp_path: Path) -> None:
    variables = {**os.environ, cached_files.CACHE_VARIABLE: str(tmp_path), "TFLM_COMPILED": "wait"}
    command = [sys.executable, "-c", RUN, str(INT8_MODEL)]
    first, second = (subprocess.check_output(command, text=True, env=variables) for _ in range(2))
    assert (first, second) == ("True\n", "False\n")


# --- The machine -------------------------------------------------------------------------------------------------


def asked(monkeypatch: pytest.MonkeyPatch) -> Callable[[], bool]:
    """Whether LLVM has to be asked about this machine, in a process that has not loaded it."""
    monkeypatch.delitem(sys.modules, "llvmlite.binding")
    question = mock.Mock(return_value=host.Host("x86_64-linux", "cpu", "+avx,-avx2"))
    monkeypatch.setattr(host, "_ask", question)

    def ask() -> bool:
        question.reset_mock()
        assert host.host.__wrapped__() == question.return_value
        return bool(question.called)

    return ask


@pytest.fixture
def _empty_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.setenv(cached_files.CACHE_VARIABLE, str(tmp_path))
    cached_files.cache_folder.cache_clear()
    yield
    cached_files.cache_folder.cache_clear()


@here_only
@pytest.mark.usefixtures("_empty_cache")
def test_llvm_is_asked_once_about_a_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    ask = asked(monkeypatch)
    assert [ask(), ask()] == [True, False]
    (file,) = tmp_path.iterdir()
    file.write_bytes(file.read_bytes()[:-1] + b"x")
    assert [ask(), ask()] == [True, False]
    numpy = importlib.import_module("numpy._core._multiarray_umath")
    with monkeypatch.context() as patch:  # an emulator of another processor
        patch.setattr(numpy, "__cpu_features__", {**numpy.__cpu_features__, "AVX2": "emulated"})
        assert [ask(), ask()] == [True, False]
    assert not ask()
    other = tmp_path / "modalias"
    other.write_text(host.MODALIAS.read_text().replace("ven", "ven1"))
    monkeypatch.setattr(host, "MODALIAS", other)
    assert [ask(), ask()] == [True, False]


@here_only
@pytest.mark.usefixtures("_empty_cache")
@pytest.mark.parametrize("contents", [b"", b"a\nb", b"a\nb\nc\nd", b"\xff\n\xff\n\xff", b"\n\n"])
def test_another_description_of_a_machine_is_a_miss(
    contents: bytes, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Its hash is right: only its contents have another form."""
    ask = asked(monkeypatch)
    assert ask()
    (file,) = tmp_path.iterdir()
    cached_files.write(file.name, contents)
    assert [ask(), ask()] == [True, False]


@pytest.mark.usefixtures("_empty_cache")
def test_where_the_processor_is_not_described_llvm_is_asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(host, "MODALIAS", tmp_path / "missing")
    ask = asked(monkeypatch)
    assert [ask(), ask()] == [True, True]
    assert list(tmp_path.iterdir()) == []
