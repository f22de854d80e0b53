"""Measure code and stack of the kernels that compiled models consist of, for tflm/c/kernel_sizes.csv.

Every kernel is compiled by itself for Cortex-M0+, M4 and M55 with -Os and -O2, and linked with newlib: the stack is the
deepest chain of calls, with functions of the C library. Needs arm-none-eabi-gcc.
"""

from __future__ import annotations

import csv
import os
import re
import subprocess
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from stack_bounds import Depths, functions_of

from tflm.c import source
from tflm.c.emitter import includes_of
from tflm.c.sizes import BUILDS, Build, KernelSize, checksum_of, measured_sizes
from tflm.compiler.language import Kernel

TABLE = Path(__file__).parents[1] / "tflm/c/kernel_sizes.csv"
SECTION = re.compile(r"^\.(?:text|rodata)\S*\s+(\d+)", re.MULTILINE)


def flags_of(part: str) -> list[str]:
    """The compiler's flags for a part."""
    floats = [] if part == "cortex-m0plus" else ["-mfloat-abi=hard", "-mfpu=auto"]
    return [f"-mcpu={part}", "-mthumb", *floats]


def compiled(folder: Path, name: str, build: Build) -> str:
    """Compile a C file of a folder; returns the object's name."""
    part, optimization = build
    made = f"{name}.{part}{optimization}.o"
    command = ["arm-none-eabi-gcc", *flags_of(part), "-std=c99", optimization, "-ffunction-sections"]
    subprocess.run([*command, "-c", f"{name}.c", "-o", made], cwd=folder, check=True)
    return made


def depths_of(
    folder: Path, names: Sequence[str], objects: Iterable[str], build: Build, *, all_known: bool = False
) -> dict[str, int]:
    """Bytes of the deepest chain of calls of functions, by name, linked with the C library.

    Raises:
        ValueError: `all_known`, and a function makes a call that is not followed.
    """
    image = f"linked.{''.join(build)}.elf"
    kept = [f"-Wl,--undefined={name}" for name in names]
    link = ["-nostartfiles", "--specs=nosys.specs", f"-Wl,--entry={names[0]}", "-Wl,--no-warn-mismatch", "-w"]
    # All kernels at once take more than a chip has: nothing is loaded.
    command = ["arm-none-eabi-gcc", *flags_of(build[0]), *link, *kept, *objects, "-lm", "-o", image]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    listing = subprocess.run(
        ["arm-none-eabi-objdump", "-d", "--no-show-raw-insn", image],
        cwd=folder,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    functions = functions_of(listing)
    depths = Depths(functions, [])
    addresses = {function.name: address for address, function in functions.items()}
    if all_known:
        for name in names:
            depths.followed(addresses[name])
    return {name: depths.of(addresses[name], frozenset()) for name in names}


def code_bytes(folder: Path, name: str) -> int:
    """Bytes of code and constants of an object."""
    sizes = subprocess.run(["arm-none-eabi-size", "-A", name], cwd=folder, check=True, capture_output=True, text=True)
    return sum(map(int, SECTION.findall(sizes.stdout)))


def measure(kernels: Sequence[Kernel]) -> dict[Kernel, dict[Build, KernelSize]]:
    """Sizes of kernels for each build; only those are compiled that are not in the table."""
    known, found = measured_sizes(), {}
    missing = []
    for kernel in kernels:
        sizes = known.get((source.name_of(kernel), checksum_of(kernel)))
        if sizes is None:
            missing.append(kernel)
        else:
            found[kernel] = sizes
    if missing:
        found |= _measured(missing)
    return found


def _measured(kernels: Sequence[Kernel]) -> Mapping[Kernel, dict[Build, KernelSize]]:
    names = [source.name_of(kernel) for kernel in kernels]
    sizes: dict[Kernel, dict[Build, KernelSize]] = {kernel: {} for kernel in kernels}
    with tempfile.TemporaryDirectory() as temporary, ThreadPoolExecutor(os.cpu_count()) as pool:
        folder = Path(temporary)
        for name, kernel in zip(names, kernels):
            code = source.structures([kernel]) + source.translate([kernel], linkage="")
            (folder / f"{name}.c").write_text(f"#include <stdint.h>\n{includes_of(code)}{code}")
        for build in BUILDS:
            objects = list(pool.map(lambda name: compiled(folder, name, build), names))  # noqa: B023  # used at once
            depths = depths_of(folder, names, objects, build)
            for kernel, name, each in zip(kernels, names, objects):
                sizes[kernel][build] = KernelSize(code_bytes(folder, each), depths[name])
    return sizes


def write_table(sizes: Mapping[Kernel, Mapping[Build, KernelSize]]) -> None:
    """Write the table of sizes."""
    with TABLE.open("w", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(["kernel", "checksum", *map(" ".join, BUILDS)])
        for kernel in sorted(sizes, key=source.name_of):
            row = [f"{sizes[kernel][build].code_bytes}/{sizes[kernel][build].stack_bytes}" for build in BUILDS]
            table.writerow([source.name_of(kernel), f"{checksum_of(kernel):08x}", *row])
