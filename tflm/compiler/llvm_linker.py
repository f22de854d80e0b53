"""Load object files of any kind with LLVM."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Mapping

import llvmlite.binding as llvm

PYTHON_API = (
    *("PyCapsule_GetPointer", "PyEval_GetFrame", "PyEval_RestoreThread", "PyEval_SaveThread"),
    *("PyList_Append", "PyList_SetSlice", "PyList_Size", "PyLong_FromLongLong"),
)
"""Functions of CPython that machine code calls."""

_engines: list[llvm.ExecutionEngine] = []
"""Owners of loaded machine code, kept until this process ends."""


def load(objects: Mapping[str, bytes]) -> dict[str, int]:
    """Load object files, by the names of their entries, and return the addresses of the entries that they contain.

    Each call uses a separate engine, so that an object file cannot define the entry of another one.
    """
    objects = {symbol: made for symbol, made in objects.items() if _names_entry(made, symbol)}
    if not objects:
        return {}
    engine = _new_engine()
    for made in objects.values():
        engine.add_object_file(llvm.ObjectFileRef.from_data(made))
    engine.finalize_object()
    _engines.append(engine)
    found = {symbol: engine.get_function_address(symbol) for symbol in objects}
    return {symbol: address for symbol, address in found.items() if address}


def _names_entry(made: bytes, symbol: str) -> bool:
    """Whether an object file has the entry's name, which ends with a zero byte in ELF, Mach-O and COFF.

    LLVM crashes on anything that is not an object file.
    """
    return symbol.encode() + b"\0" in made


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
