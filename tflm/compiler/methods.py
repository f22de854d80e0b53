"""Kernels as functions of Python without arguments: methods of a PyCapsule, which CPython calls as it does its own.

The capsule holds the address of an array of int64: the address of a kernel's entry, then the kernel's arguments. A call
takes a fifth of the time of one through a function pointer of ctypes.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from tflm.compiler.language import Kernel, emitted

METH_NOARGS = 0x0004


@emitted
def call_entry(builder: Any, *, releases_lock: int) -> None:
    """Call the entry that the capsule names, a PyCFunction of METH_NOARGS: returns the kernel's status as a Python int.

    With `releases_lock`, other threads of Python may run meanwhile.
    """
    from llvmlite import ir

    integer = ir.IntType(64)

    def api(name: str, *arguments: Any) -> Any:
        function = ir.Function(builder.module, ir.FunctionType(integer, [integer] * len(arguments)), name)
        return builder.call(function, arguments)

    capsule = builder.ptrtoint(builder.function.args[0], integer)
    words = builder.inttoptr(api("PyCapsule_GetPointer", capsule, integer(0)), integer.as_pointer())
    arguments = builder.gep(words, [integer(1)])
    entry_type = ir.FunctionType(integer, [arguments.type])
    entry = builder.inttoptr(builder.load(words), entry_type.as_pointer())
    if releases_lock:
        thread = api("PyEval_SaveThread")
        status = builder.call(entry, [arguments])
        api("PyEval_RestoreThread", thread)
    else:
        status = builder.call(entry, [arguments])
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
"""Functions of Python refer to them as long as they live."""

_new_capsule = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)(
    ("PyCapsule_New", ctypes.pythonapi)
)
_new_function = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.POINTER(PyMethodDef), ctypes.py_object, ctypes.py_object)(
    ("PyCFunction_NewEx", ctypes.pythonapi)
)


def bind_method(method: Kernel, address: int, words: npt.NDArray[np.int64]) -> Callable[[], int]:
    """A function that calls a kernel, and returns its status.

    Args:
        method: a member of the family of `call_entry`, whose own entry is at `address`.
        words: the address of the kernel's entry, then its arguments. The caller keeps them alive.
    """
    definition = _definitions.setdefault(method, PyMethodDef(method.function_name.encode(), address, METH_NOARGS, None))
    capsule = _new_capsule(words.ctypes.data, None, None)
    function: Callable[[], int] = _new_function(ctypes.byref(definition), capsule, __name__)
    return function
