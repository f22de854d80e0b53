"""Detect instruction sets of 64-bit Arm processors, which each system reports in a different way."""

from __future__ import annotations

import ctypes
import sys
from typing import Any

AT_HWCAP = 16
HWCAP_ASIMDDP = 1 << 20
"""Linux: the key of the instruction sets in the auxiliary vector, and the bit for dot products."""

FEAT_DOT_PROD = b"hw.optional.arm.FEAT_DotProd"
"""macOS: name of the sysctl, an int32, that tells whether the processor has dot products."""

PF_ARM_V82_DP_INSTRUCTIONS_AVAILABLE = 43
"""Windows: the feature number for dot products."""


def has_dot_product() -> bool:
    """Whether the processor has SDOT and UDOT, which sum four products of bytes."""
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
