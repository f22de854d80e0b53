"""Run CMSIS-NN's kernels with overlapping outputs, at the declared distances, and compare the results.

    tools/prove_overlap.py SOURCES [MODEL...] [--version 4ab83cc3] [--cases 8000] [--seed 0] [--build build/overlap]

SOURCES is a git directory of CMSIS-NN. Its plain C runs on this machine, the code for DSP and Helium on a Cortex-M4 and
a Cortex-M55 that QEMU emulates. Every operator has random shapes. Each is tried at the smallest distance that
`tflm.libraries` declares, and beyond; these answers must be those without overlap. Then it is tried nearer, or, where
nothing is declared, as near as TFLM's own kernels allow; for each operator some of those answers must differ, or the
comparison says nothing. Of models, which are planned with overlap, it runs every operator whose output reaches into an
input, as they lie in the plan.
"""

from __future__ import annotations

import argparse
import random
import struct
import subprocess
import sys
import tarfile
import time
from collections import Counter
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

import tflm
from tflm.kernels import REGISTRATIONS
from tflm.kernels.layers.geometry import output_size, paddings, windows
from tflm.kernels.overlap import OperatorFacts, TensorFacts
from tflm.libraries import KernelLibrary
from tflm.libraries.cmsis_nn import CURRENT, library
from tflm.schema import Conv2DOptions, DepthwiseConv2DOptions, Padding, Pool2DOptions, TensorType
from tflm.schema.layout import Table
from tflm.targets import Target, by_name

HERE = Path(__file__).parent
KINDS = (
    "CONV_2D",
    "DEPTHWISE_CONV_2D",
    "AVERAGE_POOL_2D",
    "MAX_POOL_2D",
    "ADD",
    "MUL",
    "MAXIMUM",
    "MINIMUM",
    "SOFTMAX",
)
INT16_KINDS = ("ADD", "MUL")
CODES = {name: i for i, name in enumerate((*KINDS, *(f"{kind} of int16" for kind in INT16_KINDS)))}
"""By operator, as the enum in overlap_cases.c has it."""

GROUPS = ("Convolution", "NNSupport", "Pooling", "BasicMath", "Softmax", "Transpose")
LARGEST_BYTES = 40_960
MAX_CHANNELS = 512
MAX_CASES = 16_384


class Machine(NamedTuple):
    """A machine: compiler flags, and the command that runs its code."""

    target: Target
    compiler: tuple[str, ...]
    emulator: tuple[str, ...] = ()


CROSS = ("arm-none-eabi-gcc", "-mthumb", "-mfloat-abi=hard")
QEMU = ("qemu-system-arm", "-display", "none", "-monitor", "none", "-serial", "none", "-semihosting")
MACHINES = {
    "plain C": Machine(by_name("cortex-m3"), ("gcc",)),
    "DSP": Machine(by_name("cortex-m4"), (*CROSS, "-mcpu=cortex-m4", "-mfpu=fpv4-sp-d16"), (*QEMU, "-M", "mps2-an386")),
    "Helium": Machine(by_name("cortex-m55"), (*CROSS, "-mcpu=cortex-m55"), (*QEMU, "-M", "mps3-an547")),
}


class Shapes(NamedTuple):
    """An operator with shapes, for the C program and for the declarations."""

    kind: str
    numbers: tuple[int, ...]
    facts: OperatorFacts

    @property
    def name(self) -> str:
        return f"{self.kind} of int16" if self.facts.outputs[0].type == TensorType.INT16 else self.kind

    @property
    def path(self) -> str:
        """The operator's name and, for a convolution, the kernel."""
        if self.kind == "CONV_2D":
            return "CONV_2D 1x1" if self.numbers[4:6] == (1, 1) else "CONV_2D"
        return self.name


class Case(NamedTuple):
    """Shapes with a distance of an input from the output; `allowed` is whether the answers must be the same."""

    shapes: Shapes
    distance: int
    input: int
    allowed: bool


def int8(*dims: int) -> TensorFacts:
    return TensorFacts(TensorType.INT8, dims)


def some_shapes(rng: random.Random, kind: str) -> Shapes | None:
    """Random shapes of an operator; None where they make no operator."""
    if kind in ("CONV_2D", "DEPTHWISE_CONV_2D", "AVERAGE_POOL_2D", "MAX_POOL_2D"):
        return windowed(rng, kind)
    n, h, w, c = 1, rng.randint(1, 6), rng.randint(1, 6), rng.randint(1, 40)
    type = rng.choice((TensorType.INT8, TensorType.INT16)) if kind in INT16_KINDS else TensorType.INT8
    each = TensorFacts(type, (n, h, w, c))
    numbers = (n, h, w, c, 1, 1, 1, h, w, c, 1, 1, 0, 0, 1, 1)
    return Shapes(kind, numbers, OperatorFacts([each] * (1 if kind == "SOFTMAX" else 2), [each], None))


def windowed(rng: random.Random, kind: str) -> Shapes | None:
    n, h, w = rng.choice((1, 1, 1, 2)), rng.randint(1, 10), rng.randint(1, 10)
    c = rng.choice((1, 2, 3, 4, 5, 8, 12, 16, 17, 20, 33))
    taps = rng.choice(((1, 1), (3, 3), (3, 3), (2, 2), (rng.randint(1, 5), rng.randint(1, 5))))
    strides = rng.choice(((1, 1), (1, 1), (2, 2), (rng.randint(1, 3), rng.randint(1, 3))))
    dilations: tuple[int, int] = (1, 1)
    if "POOL" not in kind:
        dilations = rng.choice(((1, 1), (1, 1), (1, 1), (rng.randint(1, 2), rng.randint(1, 2))))
    padding = rng.choice((Padding.SAME, Padding.VALID))
    rows, columns = (output_size(padding, *of) for of in zip((h, w), taps, strides, dilations))
    if min(rows, columns) < 1:
        return None
    depth, channels, weights = 1, c, None
    common: dict[str, Any] = {"padding": padding, "stride_h": strides[0], "stride_w": strides[1]}
    dilated: dict[str, Any] = {"dilation_h_factor": dilations[0], "dilation_w_factor": dilations[1]}
    options: Table
    if kind == "CONV_2D":
        groups = rng.choice((1, 1, 1, 1, 2)) if c % 2 == 0 else 1
        depth, channels = c // groups, rng.choice((1, 2, 3, 4, 8, 9, 16, 30)) * groups
        weights = int8(channels, *taps, depth)
        options = Conv2DOptions(**common, **dilated)
    elif kind == "DEPTHWISE_CONV_2D":
        c = rng.choice((c, c, c, 130))
        channels = c * rng.choice((1, 1, 1, 2, 3, 4))
        weights = int8(1, *taps, channels)
        options = DepthwiseConv2DOptions(**common, **dilated, depth_multiplier=channels // c)
    else:
        options = Pool2DOptions(**common, filter_height=taps[0], filter_width=taps[1])
    before = paddings(padding, (h, w), taps, strides, dilations)
    x, y = int8(n, h, w, c), int8(n, rows, columns, channels)
    if max(x.bytes, y.bytes, weights.bytes // 2 if weights else 0) > LARGEST_BYTES or channels > MAX_CHANNELS:
        return None
    numbers = (n, h, w, c, *taps, depth, rows, columns, channels, *strides, *before, *dilations)
    return Shapes(kind, numbers, OperatorFacts([x] if weights is None else [x, weights], [y], options))


def cases_of(shapes: Shapes, target: Target, kernels: KernelLibrary, rng: random.Random) -> Iterator[Case]:
    """Distances at which some bytes of the output are those of an input."""
    registration = REGISTRATIONS[shapes.kind]
    assert registration.overlap is not None
    count = 1 if len(shapes.facts.inputs) == 1 or "CONV" in shapes.kind else 2
    x, y = shapes.facts.inputs[0], shapes.facts.outputs[0]
    assert x is not None
    for input in range(count):
        allowed = kernels.allowed_overlap(registration, target, shapes.facts, input)
        nearest = allowed.start if allowed else registration.overlap(shapes.facts, input).start
        size, width = y.itemsize, y.dims[-1] * y.itemsize
        nearer = {nearest}
        if allowed:
            beyond = {nearest, -(-nearest // 16) * 16, rng.randint(nearest, max(nearest, y.bytes)) // size * size}
            yield from (Case(shapes, d, input, True) for d in beyond if nearest <= d < y.bytes and -x.bytes < d)
            nearer = {nearest - size, nearest - width, nearest - 3 * width}
        yield from (Case(shapes, d, input, False) for d in nearer if -x.bytes < d < y.bytes)


def cases_of_model(path: Path, target: Target, kernels: KernelLibrary) -> Iterator[Case]:
    """The operators of a model that is planned with overlap, where tensors share bytes; random weights do."""
    model = tflm.Model.from_file(path)
    plan = tflm.plan(model, target=target, kernels=kernels, overlap=True)
    print(f"  {path.name}: {plan.minimum_arena_bytes} bytes, {plan.minimum_arena_bytes_before} without")
    for operator in model.subgraphs[0].operators or ():
        facts = OperatorFacts.of(model.root, model.subgraphs[0], operator)
        y = (operator.outputs or ())[0]
        for i, x in enumerate((operator.inputs or ())[:2]):
            distance = plan.offsets[x] - plan.offsets[y]
            fact = facts.inputs[i]
            together = fact is not None and -fact.bytes < distance < facts.outputs[0].bytes
            if together and plan.offsets[x] >= 0 and model.operator_name(operator) in KINDS:
                yield Case(planned_shapes(model.operator_name(operator), facts), distance, i, True)


def planned_shapes(kind: str, facts: OperatorFacts) -> Shapes:
    """The shapes of an operator of a model."""
    x, y, both = facts.inputs[0], facts.outputs[0], windows(facts)
    assert x is not None
    if both is None:
        elements = (1, 1, x.elements // x.dims[-1], x.dims[-1])
        return Shapes(kind, (*elements, 1, 1, 1, *elements[1:], 1, 1, 0, 0, 1, 1), facts)
    weights = facts.inputs[1] if kind == "CONV_2D" else None
    of_axes = [tuple(getattr(axis, name) for axis in both) for name in ("taps", "stride", "before", "dilation")]
    taps, strides, before, dilations = of_axes
    depth = weights.dims[3] if weights is not None else 1
    return Shapes(kind, (*x.dims, *taps, depth, *y.dims[1:], *strides, *before, *dilations), facts)


def compiled(sources: Path, build: Path, machine: Machine) -> Path:
    """The program, with the kernels compiled for a machine."""
    build.mkdir(parents=True, exist_ok=True)
    files = [
        str(file)
        for group in GROUPS
        for file in sorted((sources / "Source" / f"{group}Functions").glob("*.c"))
        if not any(other in file.stem for other in ("f16", "f32", "_s4"))
    ]
    include = f"-I{sources / 'Include'}"
    has_maximum = "arm_maximum_s8" in (sources / "Include" / "arm_nnfunctions.h").read_text()
    subprocess.run(
        [*machine.compiler, include, "-O2", "-w", "-ffunction-sections", "-fdata-sections", "-c", *files],
        cwd=build,
        check=True,
    )
    linking = ["-Wl,--gc-sections", "-lm"]
    if machine.emulator:
        linking = ["-nostartfiles", "--specs=nosys.specs", "-Wl,--gc-sections", "-T", str(HERE / "overlap_cases.ld")]
    defined = ["-DHAS_MAXIMUM"] if has_maximum else []
    objects = [str(build / Path(file).with_suffix(".o").name) for file in files]
    source = str(HERE / "overlap_cases.c")
    program = build / "program"
    made = [*machine.compiler, include, "-O2", "-Wall", *defined, source, *objects, *linking, "-o", str(program)]
    subprocess.run(made, check=True)
    return program


def run(program: Path, machine: Machine, cases: list[Case]) -> str:
    """A letter for each case, as overlap_cases.c describes them."""
    (program.parent / "cases.bin").write_bytes(
        b"".join(
            struct.pack("<20i", CODES[c.shapes.name], *c.shapes.numbers, c.distance, c.input, seed)
            for seed, c in enumerate(cases)
        )
    )
    command = [*machine.emulator, "-kernel", str(program)] if machine.emulator else [str(program)]
    subprocess.run(command, cwd=program.parent, check=True, timeout=600)
    return (program.parent / "results.bin").read_text("ascii")


def prove(sources: Path, models: list[Path], build: Path, version: str, count: int, seed: int) -> bool:
    """Print the results; returns whether all answers are as declared."""
    kernels, good = library(version), True
    has_maximum = "arm_maximum_s8" in (sources / "Include" / "arm_nnfunctions.h").read_text()
    for name, machine in MACHINES.items():
        begin = time.monotonic()
        program = compiled(sources, build / name.replace(" ", "_"), machine)
        rng = random.Random(seed)
        cases = [case for model in models for case in cases_of_model(model, machine.target, kernels)]
        print(f"  {len(cases)} operators of models have tensors that share bytes")
        kinds = [kind for kind in KINDS if has_maximum or kind not in ("MAXIMUM", "MINIMUM")]
        weights = [4 if "CONV" in kind else 1 for kind in kinds]
        while len(cases) < count:
            shapes = some_shapes(rng, *rng.choices(kinds, weights))
            if shapes is not None:
                cases += cases_of(shapes, machine.target, kernels, rng)
        results = run(program, machine, cases[:MAX_CASES])
        good &= report(name, cases, results)
        print(f"{name}: {len(results)} cases, {time.monotonic() - begin:.0f} s", flush=True)
    return good


def report(name: str, cases: list[Case], results: str) -> bool:
    counts = Counter((case.shapes.path, case.allowed, result) for case, result in zip(cases, results))
    wrong = [(c, r) for c, r in zip(cases, results) if r == "e" or (c.allowed and r != "s")]
    for kind in sorted({case.shapes.path for case in cases}):
        same, near, differ = counts[kind, True, "s"], counts[kind, False, "s"], counts[kind, False, "d"]
        wrongs = sum(case.shapes.path == kind for case, _ in wrong)
        if same + near + differ + wrongs:
            print(f"  {kind:18} {same:5} same as declared, {wrongs} not; nearer: {differ} of {near + differ} differ")
    for case, result in wrong[:5]:
        print(f"  {result}: {case.shapes.name} {case.shapes.numbers}, distance {case.distance} of input {case.input}")
    powerless = {case.shapes.path for case in cases} - {kind for kind, allowed, r in counts if not allowed and r == "d"}
    if powerless:
        print(f"  no answer differs for {', '.join(sorted(powerless))}")
    return not wrong and not powerless


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sources", type=Path)
    parser.add_argument("models", type=Path, nargs="*")
    parser.add_argument("--version", default=CURRENT)
    parser.add_argument("--cases", type=int, default=8000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--build", type=Path, default=Path("build/overlap"))
    given = parser.parse_args(arguments)
    build = (given.build / given.version).resolve()
    archive = subprocess.run(
        ["git", "--git-dir", given.sources, "archive", given.version], check=True, capture_output=True
    )
    with tarfile.open(fileobj=BytesIO(archive.stdout)) as files:
        files.extractall(build / "sources", filter="data")
    return not prove(build / "sources", given.models, build, given.version, given.cases, given.seed)


if __name__ == "__main__":
    sys.exit(main())
