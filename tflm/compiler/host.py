"""LLVM's description of this machine. It is cached, because loading LLVM's library takes longer than loading all
kernels of a model."""

from __future__ import annotations

import functools
import hashlib
import importlib
import platform
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import NamedTuple

import llvmlite

from tflm.compiler import cached_files

MODALIAS = Path("/sys/devices/system/cpu/modalias")
"""Files in which Linux describes the processor's model and all of its features, in one line."""


class Host(NamedTuple):
    """This machine as described by LLVM.

    Attributes:
        triple: its architecture and system.
        cpu: the name of its processor.
        features: "+avx,-sse4a,..."
    """

    triple: str
    cpu: str
    features: str


@functools.cache
def host() -> Host:
    """Return the description of this machine."""
    name = None if "llvmlite.binding" in sys.modules else _name()
    kept = None if name is None else _read(name)
    if kept is not None:
        return kept
    found = _ask()
    if name is not None:
        cached_files.write(name, "\n".join(found).encode())
    return found


def _read(name: str) -> Host | None:
    """Return the description in a file; None if it is missing or has another form."""
    lines = (cached_files.read(name) or b"").decode("ascii", "replace").split("\n")
    return Host(*lines) if len(lines) == len(Host._fields) and all(lines) and "".join(lines).isascii() else None


def _ask() -> Host:
    import llvmlite.binding as llvm

    return Host(llvm.get_process_triple(), llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten())


def _name() -> str | None:
    """Return the name of the file that describes this machine; None if its processor is not recognized without LLVM.

    Features that numpy detected distinguish emulators, which report the processor of the machine that they run on.
    """
    if sys.platform != "linux" or platform.machine() != "x86_64":
        return None
    try:
        found_by_linux = MODALIAS.read_text()
        found_by_numpy = importlib.import_module("numpy._core._multiarray_umath").__cpu_features__
    except (OSError, ImportError, AttributeError):
        return None
    facts = (llvmlite.__version__, EXTENSION_SUFFIXES, found_by_linux, found_by_numpy)
    return f"host-{hashlib.sha256(repr(facts).encode()).hexdigest()[:24]}"
