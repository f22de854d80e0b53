"""The processor that machine code is compiled for: this one, or a part of its instruction sets."""

from __future__ import annotations

import ctypes
import functools
import os
import platform
import sys
from collections.abc import Collection
from enum import Enum
from typing import Any, NamedTuple

from tflm.errors import ArgumentError

VARIABLE = "TFLM_CPU"
"""Environment variable that names one of `paths()`, or `PLAIN`. By default, all instruction sets of the processor are
used."""

PLAIN = "plain"
"""The path with all instruction sets of the processor, but without matrix tiles, whose LLVM IR depends on its vectors.
"""

X86_PATHS = {"avx512vnni": "cascadelake", "avx512": "skylake-avx512", "avx2": "haswell", "sse2": "x86-64"}
ARM64_PATHS = {"dotprod": "cortex-a55", "neon": "cortex-a53"}
"""The instruction sets that kernels are tested with, and the oldest processor that has each."""


class Processor(NamedTuple):
    """The processor that LLVM generates code for.

    Attributes:
        name, features: LLVM's names for them.
        vector_bytes: size of the widest vectors that kernels use.
        has_dot_product: whether one instruction sums four products of bytes: unsigned times signed with VNNI of x86,
            both signed with SDOT of arm64.
        is_x86, is_arm64: whether instructions of this architecture can be used by name.
    """

    name: str
    features: str
    vector_bytes: int
    has_dot_product: bool
    is_x86: bool
    is_arm64: bool


class Profile(Enum):
    """The kernels that operators are bound to.

    `TILES` are for this processor: matrix tiles, tables, series in place of C's functions. `PLAIN` ones can also be
    translated to C.
    """

    TILES = "tiles"
    PLAIN = "plain"

    @classmethod
    def of_engine(cls) -> Profile:
        """Return the profile of the compiled engine."""
        return cls.PLAIN if os.environ.get(VARIABLE) == PLAIN else cls.TILES

    @property
    def has_tiles(self) -> bool:
        """Whether kernels depend on this processor."""
        return self is Profile.TILES


def paths() -> dict[str, str]:
    """Return the instruction sets of this machine's architecture that kernels are tested with, the largest first."""
    return X86_PATHS if _is_x86() else ARM64_PATHS if _is_arm64() else {}


@functools.cache
def processor() -> Processor:
    """Return the processor that kernels are compiled for.

    Raises:
        ArgumentError: `TFLM_CPU` is neither `PLAIN` nor one of `paths()`.
    """
    from tflm.compiler.host import host  # not needed to bind plain kernels

    path, known = os.environ.get(VARIABLE, ""), paths()
    if path and path not in (*known, PLAIN):
        raise ArgumentError(f"{VARIABLE} is {path!r}, must be one of {', '.join((*known, PLAIN))}")
    if path in known:
        return Processor(known[path], "", *_properties(list(known)[list(known).index(path) :]))
    features = host().features
    sets = _arm64_sets() if _is_arm64() else _x86_sets(features.split(","))
    # LLVM does not detect this feature on every system.
    added = [f"{'+' if 'dotprod' in sets else '-'}dotprod"] if _is_arm64() else []
    flat = ",".join(filter(None, [features, *added]))
    return Processor(host().cpu, flat, *_properties(sets))


def _is_x86() -> bool:
    return platform.machine().lower() in ("x86_64", "amd64")


def _is_arm64() -> bool:
    return platform.machine().lower() in ("arm64", "aarch64")


def _x86_sets(features: Collection[str]) -> list[str]:
    """Return the larger sets of `X86_PATHS` that this processor has."""
    needed = {
        "avx512vnni": ("avx512vnni", "avx512bw", "avx512vl"),
        "avx512": ("avx512f", "avx512bw", "avx512dq", "avx512vl"),
        "avx2": ("avx2", "fma"),
    }
    return [name for name, all_of in needed.items() if all(f"+{each}" in features for each in all_of)]


def _arm64_sets() -> list[str]:
    """Return the larger sets of `ARM64_PATHS` that this processor has."""
    return ["dotprod"] if has_dot_product_on_arm64() else []


def _properties(sets: list[str]) -> tuple[int, bool, bool, bool]:
    """Return the fields of `Processor` after name and features."""
    vector_bytes = 64 if "avx512" in sets else 32 if "avx2" in sets else 16
    has_dot_product = "avx512vnni" in sets or "dotprod" in sets
    return vector_bytes, has_dot_product, _is_x86(), _is_arm64()


AT_HWCAP = 16
HWCAP_ASIMDDP = 1 << 20
"""Linux: the key of the instruction sets in the auxiliary vector, and the bit for dot products."""

FEAT_DOT_PROD = b"hw.optional.arm.FEAT_DotProd"
"""macOS: name of the sysctl, an int32, that tells whether the processor has dot products."""

PF_ARM_V82_DP_INSTRUCTIONS_AVAILABLE = 43
"""Windows: the feature number for dot products."""


def has_dot_product_on_arm64() -> bool:
    """Whether a 64-bit Arm processor has SDOT and UDOT, which sum four products of bytes."""
    if sys.platform == "win32":
        return has_dot_product_on_windows(ctypes.WinDLL("kernel32"))
    c_library = ctypes.CDLL(None)
    return has_dot_product_on_macos(c_library) if sys.platform == "darwin" else has_dot_product_on_linux(c_library)


def has_dot_product_on_linux(c_library: Any) -> bool:
    """Ask the C library. One without `getauxval`, as on a BSD, does not know."""
    ask = getattr(c_library, "getauxval", None)
    if ask is None:
        return False
    ask.argtypes, ask.restype = [ctypes.c_ulong], ctypes.c_ulong
    return bool(ask(AT_HWCAP) & HWCAP_ASIMDDP)


def has_dot_product_on_macos(c_library: Any) -> bool:
    """Ask `sysctl`."""
    value = ctypes.c_int32(0)
    size = ctypes.c_size_t(ctypes.sizeof(value))
    status = c_library.sysctlbyname(FEAT_DOT_PROD, ctypes.byref(value), ctypes.byref(size), None, ctypes.c_size_t(0))
    return status == 0 and value.value != 0


def has_dot_product_on_windows(kernel32: Any) -> bool:
    """Ask the kernel."""
    return bool(kernel32.IsProcessorFeaturePresent(PF_ARM_V82_DP_INSTRUCTIONS_AVAILABLE))
