"""Measure code and stack of the kernels that compiled models consist of, and write tflm/c/kernel_sizes.csv.

    python tools/compiled_sizes.py MODEL ...

Every kernel that a model calls is compiled by itself for Cortex-M0+, M4 and M55 with -Os and -O2. Needs
arm-none-eabi-gcc. Models that cannot be compiled are left out.
"""

from __future__ import annotations

import argparse
import csv
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path

import tflm
from tflm.c import source
from tflm.c.emitter import includes_of, kernels_of
from tflm.c.sizes import BUILDS, KernelSize, checksum_of
from tflm.compiler.language import Kernel

TABLE = Path(__file__).parents[1] / "tflm/c/kernel_sizes.csv"


def kernels_of_models(paths: Iterable[Path]) -> list[Kernel]:
    """The kernels of models, by name."""
    kernels: dict[str, Kernel] = {}
    for path in paths:
        try:
            compiled = tflm.compile_model(tflm.Model.from_file(path))
        except tflm.TflmError as error:
            print(f"{path.name}: {error}")
            continue
        kernels |= {source.name_of(kernel): kernel for kernel in kernels_of(compiled.program)}
    return [kernels[name] for name in sorted(kernels)]


def measured(kernel: Kernel, part: str, optimization: str, folder: Path) -> KernelSize:
    """Code and stack of a kernel."""
    code = source.structures([kernel]) + source.translate([kernel], linkage="")
    (folder / "kernel.c").write_text(f"#include <stdint.h>\n{includes_of(code)}{code}")
    command = ["arm-none-eabi-gcc", f"-mcpu={part}", "-mthumb", "-std=c99", optimization, "-fstack-usage"]
    if part != "cortex-m0plus":
        command += ["-mfloat-abi=hard", "-mfpu=auto"]
    subprocess.run([*command, "-c", "kernel.c"], cwd=folder, check=True)
    sizes = subprocess.run(
        ["arm-none-eabi-size", "-A", "kernel.o"], cwd=folder, check=True, capture_output=True, text=True
    ).stdout
    text = sum(int(line.split()[1]) for line in sizes.splitlines() if line.startswith((".text", ".rodata")))
    stack = sum(int(line.split("\t")[1]) for line in (folder / "kernel.su").read_text().splitlines())
    return KernelSize(text, stack)


def main() -> None:
    """Write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", type=Path, metavar="MODEL")
    kernels = kernels_of_models(parser.parse_args().models)
    with tempfile.TemporaryDirectory() as folder, TABLE.open("w", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(["kernel", "checksum", *map(" ".join, BUILDS)])
        for kernel in kernels:
            sizes = (measured(kernel, *build, Path(folder)) for build in BUILDS)
            row = [f"{size.code_bytes}/{size.stack_bytes}" for size in sizes]
            table.writerow([source.name_of(kernel), f"{checksum_of(kernel):08x}", *row])


if __name__ == "__main__":
    main()
