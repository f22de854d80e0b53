"""Estimate code size and stack of compiled models, from measurements of each kernel on Cortex-M.

`tools/compiled_figures.py` writes the tables. Figures of a kernel hold for one version of it, identified by a checksum;
those of a library's functions for the version that `tflm.c.cmsis_nn.processors` names.
"""

from __future__ import annotations

import csv
import functools
import zlib
from collections.abc import Iterable
from importlib.resources import files
from typing import NamedTuple

from tflm.c import source
from tflm.c.emitter import kernels_of
from tflm.c.library_writer import local_bytes
from tflm.c.program import OperatorCode, Program
from tflm.compiler.language import Kernel
from tflm.delegates.compiled.requantization import SHIFTS

BUILDS = tuple(
    (part, optimization) for part in ("cortex-m0plus", "cortex-m4", "cortex-m55") for optimization in ("-Os", "-O2")
)
"""Processors and optimizations for which kernels were measured."""

FRAME_BYTES = 96
"""Stack of NAME_invoke, or of a stage's function: saved registers, local variables, and calls in between."""

BYTES_OF_AN_ARGUMENT = 8
"""Maximum stack of an argument. The first four arguments are passed in registers."""


SPECIALIZED = 1.5
"""Bound of the stack of a kernel that compilers specialize for its only call, relative to the stack of the kernel
compiled separately. The largest measured ratio is 1.3, on Cortex-M0+."""


class KernelSize(NamedTuple):
    """Code size and stack of a kernel.

    Attributes:
        code_bytes: includes the functions that it calls.
        stack_bytes: an upper bound, including newlib's functions.
    """

    code_bytes: int
    stack_bytes: int


Build = tuple[str, str]


@functools.cache
def measured_sizes() -> dict[tuple[str, int], dict[Build, KernelSize]]:
    """Read the sizes for each build, by name and checksum of the kernel."""
    text = (files("tflm.c") / "kernel_sizes.csv").read_text(encoding="utf-8")
    rows = csv.DictReader(text.splitlines())
    return {
        (row["kernel"], int(row["checksum"], 16)): {
            build: KernelSize(*map(int, row[" ".join(build)].split("/"))) for build in BUILDS
        }
        for row in rows
    }


def checksum_of(kernel: Kernel) -> int:
    """Return the checksum of a kernel's C text without comments and white space."""
    text = source.structures([kernel]) + source.translate([kernel], linkage="")
    return zlib.crc32("".join(source.COMMENT.sub("", text).split()).encode())


def measured_as(kernel: Kernel) -> Kernel:
    """Return the kernel whose figures apply: the kernel itself, or one that differs only in the distance of a shift."""
    names = next((names for names in SHIFTS if kernel.constants.get("rounding") in names), None)
    return kernel if names is None else kernel.of(**{**kernel.constants, "rounding": names[0]})


@functools.cache
def text_of(kernel: Kernel) -> tuple[str, int]:
    """Return the name and the checksum of the kernel whose figures apply."""
    measured = measured_as(kernel)
    return source.name_of(measured), checksum_of(measured)


def sizes_of(kernel: Kernel) -> dict[Build, KernelSize] | None:
    """Return the sizes for each build; None if the kernel was not measured."""
    return measured_sizes().get(text_of(kernel))


def code_bytes(kernels: Iterable[Kernel]) -> dict[Build, int] | None:
    """Return the total code size of kernels, for each build; None if one was not measured."""
    sizes = [sizes_of(kernel) for kernel in kernels]
    if any(size is None for size in sizes):
        return None
    return {build: sum(size[build].code_bytes for size in sizes if size is not None) for build in BUILDS}


@functools.cache
def library_stacks() -> dict[str, dict[Build, int]]:
    """Read bounds of the stack of library functions for each build, including newlib's functions."""
    text = (files("tflm.c") / "library_stacks.csv").read_text(encoding="utf-8")
    rows = csv.DictReader(text.splitlines())
    return {row["function"]: {build: int(row[" ".join(build)]) for build in BUILDS} for row in rows}


def stack_bounds(program: Program) -> dict[Build, int] | None:
    """Return bounds of an invoke's stack in bytes, for each build; None if a kernel or function was not measured."""
    largest = dict.fromkeys(BUILDS, 0)
    for call in program.library_calls():
        if call.function not in library_stacks():
            return None
        arguments = BYTES_OF_AN_ARGUMENT * len(call.arguments) + local_bytes(call)
        share = SPECIALIZED if call.helper else 1
        for build, stack_bytes in library_stacks()[call.function].items():
            largest[build] = max(largest[build], arguments + round(share * stack_bytes))
    for kernel in kernels_of(program):
        sizes = sizes_of(kernel)
        if sizes is None:
            return None
        arguments = BYTES_OF_AN_ARGUMENT * len(source.parameters(kernel))
        for build, size in sizes.items():
            largest[build] = max(largest[build], arguments + round(SPECIALIZED * size.stack_bytes))
    frames = FRAME_BYTES * functions_in_each_other(program)
    return {build: frames + size for build, size in largest.items()}


def functions_in_each_other(program: Program) -> int:
    """Return the maximum call depth of a program: NAME_invoke, the functions of subgraphs, and that of a stage."""

    def depth(subgraph: int) -> int:
        codes = program.subgraphs[subgraph]
        called = (
            each for code in codes if isinstance(code, OperatorCode) for each in code.operator.node.called_subgraphs
        )
        is_banded = any(not isinstance(code, OperatorCode) or code.rows is not None for code in codes)
        return 1 + max([int(is_banded), *map(depth, called)])

    return depth(0)
