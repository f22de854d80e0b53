"""Kernels as Python functions: machine code if the extra `fast` is installed, else their definition in Python."""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import os
import platform
import sys
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from tflm.compiler.language import Kernel, Step

ENTRY = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)
"""Type of a kernel's entry, which takes the address of its arguments."""

FIRST_FREE_THREADED = (3, 14)
"""First Python version for which numba and llvmlite have free-threaded builds."""


def is_available() -> bool:
    """Whether kernels can be compiled."""
    return not obstacle()


@functools.cache
def obstacle() -> str:
    """Return the reason why kernels can't be compiled; empty if they can."""
    if os.name not in ("posix", "nt"):
        return f"not available on {platform.system()}"
    if sys.maxsize != 2**63 - 1:
        return "needs a 64-bit Python"
    if all(importlib.util.find_spec(name) for name in ("numba", "llvmlite")):
        return ""
    if is_free_threaded() and sys.version_info < FIRST_FREE_THREADED:
        first = ".".join(map(str, FIRST_FREE_THREADED))
        return f"the extra fast is not installed; numba supports free-threaded Python from {first} on"
    return "the extra fast is not installed: pip install numba"


def is_free_threaded() -> bool:
    """Whether this Python was built without a global interpreter lock."""
    import sysconfig  # not needed otherwise

    return bool(sysconfig.get_config_var("Py_GIL_DISABLED"))


def as_function(kernel: Kernel) -> Callable[..., int]:
    """Return a function that takes the parameters of a kernel by name, and returns the kernel's status."""
    entry = _entry(kernel)
    if entry is None:
        return kernel.function

    def call(**values: object) -> int:
        step = kernel.step(**values)
        arguments = np.array(step.arguments, np.int64)
        status: int = entry(arguments.ctypes.data)
        return status

    return call


def prepared(kernel: Kernel, **values: object) -> Callable[[], int]:
    """Return a call of a kernel with the same arguments each time; the elements of arrays may change in between."""
    entry = _entry(kernel)
    if entry is None:
        return functools.partial(kernel.function, **values)
    step = kernel.step(**values)
    return _PreparedCall(entry, step, np.array(step.arguments, np.int64))


class _PreparedCall:
    """A call of machine code. It keeps the arrays alive whose addresses it contains."""

    def __init__(self, entry: Callable[[int], int], step: Step, arguments: npt.NDArray[np.int64]):
        self._entry, self._step, self._arguments = entry, step, arguments
        self._address = arguments.ctypes.data

    def __call__(self) -> int:
        return self._entry(self._address)


def _entry(kernel: Kernel) -> Callable[[int], int] | None:
    """Return the machine code of a kernel; None if there is none."""
    if not is_available():
        return None
    from tflm.compiler.machine_code import addresses

    address = addresses([kernel]).get(kernel)
    return None if address is None else ENTRY(address)
