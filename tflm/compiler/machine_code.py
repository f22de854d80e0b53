"""The machine code of kernels: from memory, from the cache, or from the compiler."""

from __future__ import annotations

import ctypes
import functools
import os
import threading
import warnings
from collections import defaultdict
from collections.abc import Iterable
from logging import getLogger

import llvmlite.binding as llvm

from tflm.compiler import cache
from tflm.compiler.language import Kernel

PYTHON_API = "PyCapsule_GetPointer", "PyEval_RestoreThread", "PyEval_SaveThread", "PyLong_FromLongLong"
"""Functions of CPython that machine code calls."""

_log = getLogger(__name__)

_lock = threading.Lock()
"""Held while kernels are read or compiled. A fork gets a new one: the thread that holds it is not in the fork."""

_linking = threading.RLock()
"""Held while LLVM is at work, a moment. A fork waits for it: LLVM's state is whole in the fork, and its locks free."""

_addresses: dict[str, int | None] = {}
_engines: list[llvm.ExecutionEngine] = []
"""What owns machine code, as long as this process lives."""


def addresses(kernels: Iterable[Kernel], compiles: bool = True) -> dict[Kernel, int]:
    """The addresses of the kernels' entries; a kernel that can't be compiled has none, and a warning says so.

    Args:
        kernels: the kernels.
        compiles: whether to compile those that are not in the cache; if not, they have no address.
    """
    wanted = list(dict.fromkeys(kernels))
    with _lock:
        if not compiles:
            _link_from_cache(_unknown(wanted))
        elif _unknown(wanted):
            _load(wanted)
        found = ((kernel, _addresses.get(kernel.name)) for kernel in wanted)
        return {kernel: address for kernel, address in found if address is not None}


def requested_kernels() -> dict[str, bool]:
    """Returns the names of all kernels that this process has asked for, and whether each has machine code."""
    return {name: address is not None for name, address in _addresses.items()}


def _unknown(kernels: Iterable[Kernel]) -> list[Kernel]:
    return [kernel for kernel in kernels if kernel.name not in _addresses]


def _load(kernels: list[Kernel]) -> None:
    _link_from_cache(_unknown(kernels))
    if _unknown(kernels):
        with cache.locked():  # another process may be compiling them: wait for it, and look again
            _link_from_cache(_unknown(kernels))
            _compile(_unknown(kernels))
    _addresses.update(dict.fromkeys((kernel.name for kernel in _unknown(kernels)), None))


def _link_from_cache(kernels: list[Kernel]) -> None:
    read = ((kernel, cache.read(kernel)) for kernel in kernels)
    _link({kernel: made for kernel, made in read if made is not None})


def _link(objects: dict[Kernel, bytes]) -> None:
    """Load object files; what lacks the entry of its kernel is left out.

    Each call has an engine of its own: whatever else an object file defines, it can't stand for a kernel of another.
    """
    objects = {kernel: made for kernel, made in objects.items() if _names_entry(made, kernel)}
    if not objects:
        return
    with _linking:
        engine = _new_engine()
        for made in objects.values():
            engine.add_object_file(llvm.ObjectFileRef.from_data(made))
        engine.finalize_object()
        _engines.append(engine)
        for kernel in objects:
            address = engine.get_function_address(kernel.symbol)
            if address:
                _addresses[kernel.name] = address


def _names_entry(made: bytes, kernel: Kernel) -> bool:
    """Whether an object file has the entry's name, which ends with a zero byte in ELF, Mach-O and COFF.

    LLVM does not survive what is no object file.
    """
    return kernel.symbol.encode() + b"\0" in made


def _new_engine() -> llvm.ExecutionEngine:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    _name_python_api()
    machine = llvm.Target.from_default_triple().create_target_machine()
    return llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)


@functools.cache
def _name_python_api() -> None:
    for name in PYTHON_API:
        llvm.add_symbol(name, ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value)


def _compile(kernels: list[Kernel]) -> None:
    """Compile, link and keep kernels, and warn of those where that fails."""
    if not kernels:
        return
    from tflm.compiler import compiler_process  # a process that finds all in files does without

    _tell()
    failed = defaultdict(list)
    for kernel in kernels:
        try:
            made = compiler_process.object_of(kernel)
        except compiler_process.NoCompilerError as error:
            _warn(f"kernels can't be compiled, Python and numpy run in their place: {error}")
            break
        except compiler_process.CompilerError as error:
            failed[str(error)].append(kernel.name)
            continue
        _link({kernel: made})
        if _unknown([kernel]):
            failed["the object file lacks their entry"].append(kernel.name)
        else:
            cache.write(kernel, made)
    for reason, names in failed.items():
        _warn(f"can't compile {', '.join(names)}; Python and numpy run in their place: {reason}")


@functools.cache
def _tell() -> None:
    folder = cache.cache_folder()
    where = f"they are kept in {folder}" if folder is not None else "no folder can be written to keep them in"
    _log.warning("tflm compiles kernels for this processor, which takes a moment; %s", where)


@functools.cache
def _warn(message: str) -> None:
    warnings.warn(message, stacklevel=5)


def _renew_lock() -> None:
    global _lock
    _lock = threading.Lock()
    _linking.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_linking.acquire, after_in_parent=_linking.release, after_in_child=_renew_lock)
