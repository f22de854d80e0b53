"""What firmware is built with in place of TFLM's reference kernels, and what that asks of the arena.

`kernel_library` says what a library is; each other module declares one, or a release of TFLM, in the terms of
`tflm.kernels`. Nothing here imports the runtime.
"""

from __future__ import annotations

import importlib
import warnings
from dataclasses import replace
from typing import Union

from tflm.errors import ArgumentError, VersionAssumed
from tflm.libraries.kernel_library import REFERENCE, Concern, Effect, KernelLibrary
from tflm.releases import TODAY, WHEEL, Release, Releases, require_release
from tflm.targets import HOST_WHEEL, Target

MODULES = {
    "reference": "kernel_library.REFERENCE",
    "cmsis-nn": "cmsis_nn.library",
    "cmsis-nn:size": "cmsis_nn.library_for_size",
    "esp-nn": "esp_nn.library",
    "esp-nn:ansi": "esp_nn.plain_library",
    "arduino": "arduino.ARDUINO",
}
"""The libraries that have a name, and where they are; imported when they are asked for.

A function takes a version: `esp-nn@1.2.1`.
"""

Kernels = Union[str, KernelLibrary]
"""A kernel library, or the name of one."""


def by_name(name: str) -> KernelLibrary:
    """The kernel library of that name, such as `cmsis-nn`, or with a version, `esp-nn@1.2.1`.

    Raises:
        ArgumentError: there is none of that name; or it has no such version. The message lists what there is.
    """
    library, _, version = name.partition("@")
    if library not in MODULES:
        raise ArgumentError(f"unknown kernel library {library!r}; known are {', '.join(MODULES)}")
    module, _, constant = MODULES[library].partition(".")
    found = getattr(importlib.import_module(f"{__name__}.{module}"), constant)
    if isinstance(found, KernelLibrary):
        if version:
            raise ArgumentError(f"kernel library {library!r} has no versions; leave out {'@' + version!r}")
        return found
    made = found(version) if version else found()
    assert isinstance(made, KernelLibrary)
    return made


def library_for(kernels: Kernels, target: Target, release: Releases | None = None) -> KernelLibrary:
    """A library as it is, or by its name, for a machine, built into a release of TFLM.

    Args:
        kernels: the library. One that is named without a version is the one that the release is built with; where the
            release leaves that open, the newest, and `VersionAssumed` is warned of.
        release: the TFLM, or its name; None for that of the library, and for the package on its own target.

    Raises:
        ArgumentError: the library or the release is none, or has a name that none has; or the library is not made for
            the machine, and the message lists the parts that it is made for.
    """
    if isinstance(kernels, str):
        kernels = by_name(_with_version(kernels, target, release))
    if not isinstance(kernels, KernelLibrary):
        raise ArgumentError(f"{kernels!r} is not a kernel library; by their names there are {', '.join(MODULES)}")
    kernels.require_part(target)
    if release is None and target == HOST_WHEEL and kernels.release is TODAY:  # a program, not a machine alone
        release = WHEEL
    return kernels if release is None else replace(kernels, release=require_release(release))


def _with_version(name: str, target: Target, release: Releases | None) -> str:
    """A library's name, with the version that a release is built with, where neither is left open."""
    if release is None:
        return name
    from tflm.libraries.pins import PINS  # what names no release needs none of this

    if name not in PINS:
        return name
    pin = PINS[name](require_release(release), target)
    if pin is None:
        return name
    if pin.doubt:
        warnings.warn(pin.doubt, VersionAssumed, stacklevel=3)
    return f"{name}@{pin.version}"


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
