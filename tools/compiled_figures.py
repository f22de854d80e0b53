"""Measure the kernels of compiled models: code and stack of each, and instructions by formulas.

    python tools/compiled_figures.py MODEL ...           writes tflm/c/kernel_sizes.csv and kernel_instructions.csv
                                                         from these models and those of compiled_training.py
    python tools/compiled_figures.py --library FOLDER    writes tflm/c/library_stacks.csv from the sources of CMSIS-NN
    python tools/compiled_figures.py --check MODEL ...   compares their figures with what models take

Models that cannot be compiled are left out. Kernels whose text has not changed are neither compiled nor counted again,
unless their rows are deleted. The check
prints, for each model and each optimization on a Cortex-M4: the bound of the stack, the bytes of the stack that an
invoke touched under emulation, the deepest chain of calls of the linked program, and the instructions by formulas and
as counted. With `--parts`, the deepest chain on Cortex-M0+ and M55, too. The exit status is 1 if a bound does not hold.

Needs arm-none-eabi-gcc with newlib, qemu-system-arm with plugins, cc, and scipy.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import compiled_instructions
import compiled_sizes
import library_stacks
from compiled_emulation import Emulator
from compiled_training import training_models

import tflm
from tflm.c import source
from tflm.c.compile import CompiledModel, identifier_of
from tflm.c.emitter import kernels_of
from tflm.c.instructions import COUNTED_BUILDS
from tflm.c.sizes import BUILDS, measured_as
from tflm.compiler.language import Kernel
from tflm.schedule.calls import Call
from tflm.schedule.plan import MINIMUM_RAM, SPEED


def compiled_models(paths: Iterable[Path]) -> list[CompiledModel]:
    """The models that can be compiled, with names of their own."""
    found = []
    for number, path in enumerate(paths):
        try:
            found.append(tflm.compile_model(tflm.Model.from_file(path), identifier_of(f"{path.stem}_{number}")))
        except tflm.TflmError as error:
            print(f"{path.name}: {error}", file=sys.stderr)
    return found


def training_programs() -> Iterator[CompiledModel]:
    """The models for training, with the fastest kernels, and with those that use less RAM where there are some."""
    for name, model in training_models():
        yield tflm.compile_model(model, name, optimize=SPEED)
        lean = tflm.compile_model(model, f"{name}_lean", optimize=MINIMUM_RAM)
        if any(isinstance(call, Call) and (call.lean or call.accumulates) for call in lean.program.plan.calls):
            yield lean


def write(models: Sequence[CompiledModel]) -> None:
    """Write both tables."""
    kernels: dict[str, Kernel] = {}
    for model in models:
        kernels |= {source.name_of(kernel): kernel for kernel in map(measured_as, kernels_of(model.program))}
    compiled_sizes.write_table(compiled_sizes.measure(list(kernels.values())))
    compiled_instructions.write_table(compiled_instructions.updated(models))


def check(models: Sequence[CompiledModel], all_parts: bool) -> bool:
    """Compare the figures of models with what they take; whether all bounds hold."""
    holds = True
    builds = [build for build in BUILDS if all_parts or build in COUNTED_BUILDS]
    print(f"{'model':32} {'build':18} bound chain touched    by formulas      counted   error")
    for build in builds:
        for batch in compiled_instructions.batches(models):
            with tempfile.TemporaryDirectory() as folder:
                holds &= _check(batch, build, Path(folder))
    return holds


def _check(models: Sequence[CompiledModel], build: tuple[str, str], folder: Path) -> bool:
    """Compare models that fit a firmware together."""
    for model in models:
        model.write(folder)
    names = [f"{model.name}_invoke" for model in models]
    objects = [compiled_sizes.compiled(folder, model.name, build) for model in models]
    chains = compiled_sizes.depths_of(folder, names, objects, build)
    stacks: list[int | None] = [None] * len(models)
    counts: list[int | None] = [None] * len(models)
    if build in COUNTED_BUILDS:
        emulator = Emulator(folder, build[1])
        stacks = [ran.stack_bytes for ran in emulator.stacks(models)]
        counts = list(emulator.invokes(models))
    holds = True
    for model, name, touched, counted in zip(models, names, stacks, counts):
        bound = None if model.stack_bounds is None else model.stack_bounds[build]
        estimate = (model.instructions.total or {}).get(build)
        error = f"{estimate / counted - 1:+.2%}" if estimate and counted else ""
        print(
            f"{model.name:32} {' '.join(build):18} {bound or '':5} {chains[name]:5} {touched or '':7} "
            f"{estimate or '':14} {counted or '':12} {error:>7}",
            flush=True,
        )
        holds &= bound is None or bound >= max(chains[name], touched or 0)
    return holds


def main() -> None:
    """Write the tables, or check them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", type=Path, metavar="MODEL")
    parser.add_argument("--check", action="store_true", help="compare the tables with models")
    parser.add_argument("--parts", action="store_true", help="with --check: also the stack on Cortex-M0+ and M55")
    parser.add_argument("--library", type=Path, metavar="FOLDER", help="write the table of stacks of this CMSIS-NN")
    arguments = parser.parse_args()
    if arguments.library is not None:
        library_stacks.write_table(library_stacks.measure(arguments.library.resolve()))
        return
    if not arguments.models:
        parser.error("name the models, or --library FOLDER")
    models = compiled_models(arguments.models)
    if not arguments.check:
        write([*training_programs(), *models])
    elif not check(models, arguments.parts):
        sys.exit("a bound of the stack does not hold")


if __name__ == "__main__":
    main()
