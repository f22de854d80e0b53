"""Kernel libraries that firmware uses instead of TFLM's reference kernels: their arena memory and different results.

`kernel_library` defines a library; each other module declares one, or facts about a release of TFLM. Nothing here
imports the runtime.
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
"""The modules of the named libraries, imported on demand.

If the entry is a function, it takes a version: `esp-nn@1.2.1`.
"""

Kernels = Union[str, KernelLibrary]
"""A kernel library, or its name."""


def by_name(name: str) -> KernelLibrary:
    """Return a kernel library by name, such as `cmsis-nn`, or with a version, `esp-nn@1.2.1`.

    Raises:
        ArgumentError: the name or the version is unknown; the message lists the known ones.
    """
    library, _, version = name.partition("@")
    if library not in MODULES:
        raise ArgumentError(f"unknown kernel library {library!r}; use one of {', '.join(MODULES)}")
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
    """Return a library, given as such or by name, for a machine and a release of TFLM.

    Args:
        kernels: the library. A name without a version means the version that the release is built with; if the release
            leaves that open, the newest one, with the warning `VersionAssumed`.
        release: the TFLM release or its name; None for the library's own, or for the package on its own target.

    Raises:
        ArgumentError: the library or the release is unknown, or the library is not for the machine; the message lists
            the parts that it is for.
    """
    if isinstance(kernels, str):
        kernels = by_name(_with_version(kernels, target, release))
    if not isinstance(kernels, KernelLibrary):
        raise ArgumentError(f"{kernels!r} is not a kernel library; use one of {', '.join(MODULES)}")
    kernels.require_part(target)
    if release is None and target == HOST_WHEEL and kernels.release is TODAY:  # a program, not a machine alone
        release = WHEEL
    return kernels if release is None else replace(kernels, release=require_release(release))


def _with_version(name: str, target: Target, release: Releases | None) -> str:
    """A library's name, with the version that a release is built with, where neither is left open."""
    if release is None:
        return name
    from tflm.libraries.pins import PINS  # not needed without a release

    if name not in PINS:
        return name
    pin = PINS[name](require_release(release), target)
    if pin is None:
        return name
    if pin.doubt:
        warnings.warn(pin.doubt, VersionAssumed, stacklevel=3)
    return f"{name}@{pin.version}"


__all__ = ["REFERENCE", "TODAY", "Concern", "Effect", "KernelLibrary", "Kernels", "Release", "by_name", "library_for"]
