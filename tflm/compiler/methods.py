"""Kernels as Python functions without arguments: methods of a PyCapsule, which CPython calls like built-in ones.

The capsule holds the address of an array of int64, `words_of` a call. A call takes a fifth of the time of a ctypes
call.

A call may be guarded by a list, which is empty while no other call is in progress. The frame that calls is in it
meanwhile, so that everybody sees when that has ended. A kernel that keeps the interpreter lock only looks whether the
list is empty: nothing else runs meanwhile.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any

import numpy as np
import numpy.typing as npt

from tflm.compiler.language import Kernel, emitted

METH_NOARGS = 0x0004


def has_interpreter_lock() -> bool:
    """Whether this process runs with a global interpreter lock."""
    is_enabled: Callable[[], bool] = getattr(sys, "_is_gil_enabled", lambda: True)
    return is_enabled()


IN_USE = -1
"""Returned by a guarded call if the list is not empty."""

GUARD, ENTRY, ARGUMENTS = range(3)
"""Places of words: the list or 0, the address of the kernel's entry, then the kernel's arguments."""


def words_of(entry: int, arguments: Sequence[int], guard: list[FrameType] | None = None) -> npt.NDArray[np.int64]:
    """Return the words of a call; the caller also keeps the guard alive."""
    return np.array([0 if guard is None else id(guard), entry, *arguments], np.int64)


@emitted
def call_entry(builder: Any, *, releases_lock: int) -> None:
    """Call the entry that the capsule names, as a PyCFunction of METH_NOARGS, and return the kernel's status as a
    Python int.

    With `releases_lock`, other threads of Python may run meanwhile. A guarded call whose status is above 0 leaves the
    frame in the list.
    """
    from llvmlite import ir

    integer = ir.IntType(64)

    def api(name: str, *arguments: Any) -> Any:
        kind = ir.FunctionType(integer, [integer] * len(arguments))
        function = builder.module.globals.get(name) or ir.Function(builder.module, kind, name)
        return builder.call(function, arguments)

    capsule = builder.ptrtoint(builder.function.args[0], integer)
    words = builder.inttoptr(api("PyCapsule_GetPointer", capsule, integer(0)), integer.as_pointer())
    guard, address = (builder.load(builder.gep(words, [integer(place)])) for place in (GUARD, ENTRY))
    is_guarded = builder.icmp_signed("!=", guard, integer(0))
    arguments = builder.gep(words, [integer(ARGUMENTS)])
    entry = builder.inttoptr(address, ir.FunctionType(integer, [arguments.type]).as_pointer())

    def hold() -> None:
        api("PyList_Append", guard, api("PyEval_GetFrame"))

    with builder.if_then(is_guarded):
        with builder.if_then(builder.icmp_signed("!=", api("PyList_Size", guard), integer(0))):
            builder.ret(api("PyLong_FromLongLong", integer(IN_USE)))
        if releases_lock:
            hold()
    if releases_lock:
        thread = api("PyEval_SaveThread")
        status = builder.call(entry, [arguments])
        api("PyEval_RestoreThread", thread)
    else:
        status = builder.call(entry, [arguments])
    is_done = builder.icmp_signed("==", status, integer(0))
    with builder.if_then(builder.and_(is_guarded, is_done if releases_lock else builder.not_(is_done))):
        if releases_lock:
            api("PyList_SetSlice", guard, integer(0), integer(1), integer(0))
        else:
            hold()
    builder.ret(api("PyLong_FromLongLong", status))


class PyMethodDef(ctypes.Structure):
    """CPython's structure of that name."""

    _fields_ = [
        ("ml_name", ctypes.c_char_p),
        ("ml_meth", ctypes.c_void_p),
        ("ml_flags", ctypes.c_int),
        ("ml_doc", ctypes.c_char_p),
    ]


_definitions: dict[Kernel, PyMethodDef] = {}
"""Referenced by the Python functions as long as these live."""

_new_capsule = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)(
    ("PyCapsule_New", ctypes.pythonapi)
)
_new_function = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.POINTER(PyMethodDef), ctypes.py_object, ctypes.py_object)(
    ("PyCFunction_NewEx", ctypes.pythonapi)
)


def bind_method(method: Kernel, address: int, words: npt.NDArray[np.int64]) -> Callable[[], int]:
    """Return a function that calls a kernel, and returns its status.

    Args:
        method: a member of the family of `call_entry`, whose own entry is at `address`.
        words: the words of the call, which the caller keeps alive.
    """
    definition = _definitions.setdefault(method, PyMethodDef(method.function_name.encode(), address, METH_NOARGS, None))
    capsule = _new_capsule(words.ctypes.data, None, None)
    function: Callable[[], int] = _new_function(ctypes.byref(definition), capsule, __name__)
    return function
