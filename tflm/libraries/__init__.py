"""What firmware is built with in place of TFLM's reference kernels, and what that asks of the arena.

`kernel_library` says what a library is; each other module declares one, or a release of TFLM, in the terms of
`tflm.kernels`. Nothing here imports the runtime.
"""

from __future__ import annotations

import importlib
from dataclasses import replace
from typing import Union

from tflm.errors import ArgumentError
from tflm.libraries.kernel_library import REFERENCE, TODAY, Concern, Effect, KernelLibrary, Release
from tflm.targets import HOST_WHEEL, Target

MODULES = {
    "reference": "kernel_library.REFERENCE",
    "cmsis-nn": "cmsis_nn.SPEED",
    "cmsis-nn:size": "cmsis_nn.SIZE",
    "esp-nn": "esp_nn.ESP_NN",
    "arduino": "arduino.ARDUINO",
}
"""The libraries that have a name, and where they are; imported when they are asked for."""

Kernels = Union[str, KernelLibrary]
"""A kernel library, or the name of one."""


def by_name(name: str) -> KernelLibrary:
    """The kernel library called `name`.

    Raises:
        ArgumentError: there is none of that name; the message lists them.
    """
    if name not in MODULES:
        raise ArgumentError(f"unknown kernel library {name!r}; known are {', '.join(MODULES)}")
    module, _, constant = MODULES[name].partition(".")
    library = getattr(importlib.import_module(f"{__name__}.{module}"), constant)
    assert isinstance(library, KernelLibrary)
    return library


def library_for(kernels: Kernels, target: Target) -> KernelLibrary:
    """A library as it is, or by its name, for a machine; for the target of the package, as it is built into that.

    Raises:
        ArgumentError: it is neither, or there is none of that name; or it is not made for the machine, and the
            message lists the parts that it is made for.
    """
    if isinstance(kernels, str):
        kernels = by_name(kernels)
    if not isinstance(kernels, KernelLibrary):
        raise ArgumentError(f"{kernels!r} is not a kernel library; by their names there are {', '.join(MODULES)}")
    kernels.require_part(target)
    if target == HOST_WHEEL and kernels.release is TODAY:  # a program, not a machine alone
        return replace(kernels, release=importlib.import_module(f"{__name__}.wheel").WHEEL)
    return kernels


__all__ = [
    "REFERENCE",
    "TODAY",
    "Concern",
    "Effect",
    "KernelLibrary",
    "Kernels",
    "Release",
    "by_name",
    "library_for",
]
