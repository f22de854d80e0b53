"""Code and stack of compiled models, from what was measured of each kernel on Cortex-M.

`tools/compiled_sizes.py` writes the table. It holds for one text of a kernel, which its checksum stands for.
"""

from __future__ import annotations

import csv
import functools
import zlib
from collections.abc import Iterable
from importlib.resources import files
from typing import NamedTuple

from tflm.c import source
from tflm.compiler.language import Kernel

BUILDS = tuple(
    (part, optimization) for part in ("cortex-m0plus", "cortex-m4", "cortex-m55") for optimization in ("-Os", "-O2")
)
"""Parts and optimizations that kernels were measured for."""

FRAME_BYTES = 96
"""Stack of NAME_invoke, or of the function of a stage: saved registers, locals and calls in between."""

BYTES_OF_AN_ARGUMENT = 8
"""Stack of an argument at most; the first four are in registers."""


class KernelSize(NamedTuple):
    """What a kernel takes.

    Attributes:
        code_bytes: with the functions that it calls.
        stack_bytes: a bound, without functions of the C library.
    """

    code_bytes: int
    stack_bytes: int


Build = tuple[str, str]


@functools.cache
def measured_sizes() -> dict[tuple[str, int], dict[Build, KernelSize]]:
    """Sizes for each build, by a kernel's name and checksum."""
    text = (files("tflm.c") / "kernel_sizes.csv").read_text(encoding="utf-8")
    rows = csv.DictReader(text.splitlines())
    return {
        (row["kernel"], int(row["checksum"], 16)): {
            build: KernelSize(*map(int, row[" ".join(build)].split("/"))) for build in BUILDS
        }
        for row in rows
    }


def checksum_of(kernel: Kernel) -> int:
    """The checksum of a kernel's text in C."""
    return zlib.crc32((source.structures([kernel]) + source.translate([kernel], linkage="")).encode())


def sizes_of(kernel: Kernel) -> dict[Build, KernelSize] | None:
    """Sizes for each build; None for a kernel that was not measured."""
    return measured_sizes().get((source.name_of(kernel), checksum_of(kernel)))


def code_bytes(kernels: Iterable[Kernel]) -> dict[Build, int] | None:
    """Bytes of code of kernels together, for each build; None if one was not measured."""
    sizes = [sizes_of(kernel) for kernel in kernels]
    if any(size is None for size in sizes):
        return None
    return {build: sum(size[build].code_bytes for size in sizes if size is not None) for build in BUILDS}


def stack_bound(kernels: Iterable[Kernel]) -> int | None:
    """A bound of an invoke's stack in bytes, on any of the parts; None if a kernel was not measured."""
    largest = 0
    for kernel in kernels:
        sizes = sizes_of(kernel)
        if sizes is None:
            return None
        arguments = BYTES_OF_AN_ARGUMENT * len(source.parameters(kernel))
        largest = max(largest, arguments + max(size.stack_bytes for size in sizes.values()))
    return 2 * FRAME_BYTES + largest
