"""Measure the stack of CMSIS-NN's functions that compiled models call, for tflm/c/library_stacks.csv.

The library is compiled for Cortex-M0+, M4 and M55 with -Os and -O2, and linked with newlib: the stack is the deepest
chain of calls, with functions of the C library. Needs arm-none-eabi-gcc.
"""

from __future__ import annotations

import csv
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from compiled_sizes import depths_of, flags_of

from tflm.c.cmsis_nn import FUNCTIONS, HELPERS
from tflm.c.sizes import BUILDS, Build

TABLE = Path(__file__).parents[1] / "tflm/c/library_stacks.csv"
FLOATS = ("_f16.c", "_f32.c", "_flt.c")
"""Ends of files with functions that programs do not call; they need CMSIS-DSP."""


def compiled_library(library: Path, folder: Path, build: Build) -> list[str]:
    """Compile the library, and the functions that programs define beside it, into a folder; returns the objects.

    Raises:
        ValueError: a function takes a number of bytes that it works out when it runs.
    """
    part, optimization = build
    headers = "#include <string.h>\n#include <arm_nnfunctions.h>\n#include <arm_nnsupportfunctions.h>\n"
    (folder / "helpers.c").write_text(headers + "".join(HELPERS.values()).replace("static void lstm_s", "void lstm_s"))
    files = [str(path) for path in sorted(library.glob("Source/*/*.c")) if not path.name.endswith(FLOATS)]
    options = ["-ffunction-sections", "-fstack-usage", "-I", str(library / "Include"), "-w"]
    command = ["arm-none-eabi-gcc", *flags_of(part), optimization, *options, "-c", "helpers.c", *files]
    subprocess.run(command, cwd=folder, check=True)
    for usage in folder.glob("*.su"):
        for line in usage.read_text().splitlines():
            if "dynamic" in line.rpartition("\t")[2]:
                raise ValueError(f"the stack of {line} has no bound")
    return [path.name for path in sorted(folder.glob("*.o"))]


def measure(library: Path) -> dict[str, dict[Build, int]]:
    """Bytes of stack of each function for each build.

    Args:
        library: the folder of CMSIS-NN, absolute.
    """
    names = [*FUNCTIONS, *HELPERS]
    found: dict[str, dict[Build, int]] = {name: {} for name in names}
    for build in BUILDS:
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary)
            objects = compiled_library(library, folder, build)
            for name, depth in depths_of(folder, names, objects, build, all_known=True).items():
                found[name][build] = depth
    return found


def write_table(stacks: Mapping[str, Mapping[Build, int]]) -> None:
    """Write the table of stacks."""
    with TABLE.open("w", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(["function", *map(" ".join, BUILDS)])
        for name in sorted(stacks):
            table.writerow([name, *(stacks[name][build] for build in BUILDS)])
