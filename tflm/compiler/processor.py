"""The processor that machine code is made for: this one, or what of it is to be used."""

from __future__ import annotations

import contextlib
import functools
import os
import platform
from collections.abc import Iterator
from contextvars import ContextVar
from typing import NamedTuple

from tflm.errors import ArgumentError

VARIABLE = "TFLM_CPU"
"""The environment variable that names one of `PATHS`, or `PLAIN`; without it, all that the processor has is used."""

PLAIN = "plain"
"""The path with all that the processor has, but without matrix tiles, whose LLVM IR is written for its vectors."""

PATHS = {"avx512vnni": "cascadelake", "avx512": "skylake-avx512", "avx2": "haswell", "sse2": "x86-64"}
"""The instruction sets of x86 that kernels are tested with, and the oldest processor that has each."""


class Processor(NamedTuple):
    """What LLVM is to make code for.

    Attributes:
        name, features: as LLVM knows them.
        vector_bytes: of the widest vectors that kernels use.
        has_dot_product: whether it sums four products of bytes, unsigned times signed, in one step (VNNI).
        is_x86: whether instructions of x86 are there by name.
    """

    name: str
    features: str
    vector_bytes: int
    has_dot_product: bool
    is_x86: bool


_tiles_are_allowed: ContextVar[bool] = ContextVar("tiles are allowed", default=True)


@contextlib.contextmanager
def without_tiles() -> Iterator[None]:
    """Operators that are bound meanwhile have plain kernels in place of matrix tiles."""
    token = _tiles_are_allowed.set(False)
    try:
        yield
    finally:
        _tiles_are_allowed.reset(token)


def uses_tiles() -> bool:
    """Whether operators that are bound now have matrix tiles."""
    return _tiles_are_allowed.get() and os.environ.get(VARIABLE) != PLAIN


@functools.cache
def processor() -> Processor:
    """The processor that kernels are compiled for.

    Raises:
        ArgumentError: `TFLM_CPU` names something else than `PLAIN` or one of `PATHS`.
    """
    import llvmlite.binding as llvm  # which is not needed to bind plain kernels

    path = os.environ.get(VARIABLE, "")
    if path and path not in (*PATHS, PLAIN):
        raise ArgumentError(f"{VARIABLE} is {path!r}, must be one of {', '.join(PATHS)}, {PLAIN}")
    if path in PATHS:
        sets = list(PATHS)[list(PATHS).index(path) :]
        return Processor(PATHS[path], "", *_widths(sets))
    features = llvm.get_host_cpu_features()
    has = {
        "avx512vnni": all(features.get(name) for name in ("avx512vnni", "avx512bw", "avx512vl")),
        "avx512": all(features.get(name) for name in ("avx512f", "avx512bw", "avx512dq", "avx512vl")),
        "avx2": bool(features.get("avx2")),
    }
    return Processor(llvm.get_host_cpu_name(), features.flatten(), *_widths([name for name in has if has[name]]))


def _widths(sets: list[str]) -> tuple[int, bool, bool]:
    vector_bytes = 64 if "avx512" in sets else 32 if "avx2" in sets else 16
    return vector_bytes, "avx512vnni" in sets, platform.machine().lower() in ("x86_64", "amd64")
