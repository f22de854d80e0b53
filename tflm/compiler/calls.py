"""Kernels as functions of Python: machine code where the extra `fast` is installed, else their definition."""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import os
from collections.abc import Callable

import numpy as np

from tflm.compiler.language import Kernel

ENTRY = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)
"""The type of a kernel's entry, which takes the address of its arguments."""


@functools.cache
def is_available() -> bool:
    """Whether kernels can be compiled: the extra is installed, and the system is one that the compiler knows."""
    return os.name == "posix" and all(importlib.util.find_spec(name) for name in ("numba", "llvmlite"))


def as_function(kernel: Kernel) -> Callable[..., int]:
    """A function that takes the parameters of a kernel by name, and returns what the kernel does."""
    if not is_available():
        return kernel.function
    from tflm.compiler.machine_code import addresses

    address = addresses([kernel]).get(kernel)
    if address is None:
        return kernel.function
    entry = ENTRY(address)

    def call(**values: object) -> int:
        step = kernel.step(**values)
        arguments = np.array(step.arguments, np.int64)
        status: int = entry(arguments.ctypes.data)
        return status

    return call
