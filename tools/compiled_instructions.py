"""Fit the instructions of compiled models' kernels to counts under emulation, for tflm/c/kernel_instructions.csv.

Every call of a kernel in a model is counted on a Cortex-M4, with -O2 and -Os. The instructions of a kernel are a sum
over its loops and branches, of trips times instructions of a trip: the non-negative ones with the least squares of
relative errors. What a program does between calls is fitted likewise.

Needs what compiled_emulation.py needs, and scipy.
"""

from __future__ import annotations

import csv
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from compiled_emulation import Emulator, is_straight
from scipy.optimize import nnls  # type: ignore[import-untyped]

from tflm.c.compile import CompiledModel
from tflm.c.instructions import (
    COUNTED_BUILDS,
    PROGRAM,
    KernelKey,
    keys_of,
    measured_instructions,
    program_counts,
    repeated,
)
from tflm.c.program import KernelCall, OperatorCode, Program
from tflm.c.sizes import Build
from tflm.c.trips import trips_of

TABLE = Path(__file__).parents[1] / "tflm/c/kernel_instructions.csv"
MANY_CALLS = 8
"""The least calls of a model from which it is seen what a program does between them."""

BATCH_BYTES = 2 << 20
"""Of constants, and of RAM, of models in a firmware together."""


class Sample(NamedTuple):
    """Something that was counted.

    Attributes:
        model: the name of the model.
        trips: the counts that its instructions depend on.
        instructions: for each build.
        scale: for each build, what an error is relative to.
    """

    model: str
    trips: Mapping[str, int]
    instructions: Mapping[Build, int]
    scale: Mapping[Build, int]


Samples = dict[KernelKey, list[Sample]]


def counted(models: Sequence[CompiledModel]) -> Samples:
    """Samples of the kernels of models, each with a name of its own; those with subgraphs are left out."""
    straight = [model for model in models if is_straight(model)]
    calls: dict[str, dict[Build, list[int]]] = defaultdict(dict)
    invokes: dict[str, dict[Build, int]] = defaultdict(dict)
    for build in COUNTED_BUILDS:
        for batch in batches(straight):
            with tempfile.TemporaryDirectory() as folder:
                emulator = Emulator(Path(folder), build[1])
                large = [model for model in batch if sum(1 for _ in model.program.calls()) >= MANY_CALLS]
                for model, counts in zip(batch, emulator.calls(batch)):
                    calls[model.name][build] = counts
                for model, count in zip(large, emulator.invokes(large) if large else ()):
                    invokes[model.name][build] = count
    return _samples(straight, calls, invokes)


def batches(models: Iterable[CompiledModel]) -> Iterator[list[CompiledModel]]:
    """Models that fit a firmware together."""
    batch: list[CompiledModel] = []
    for model in models:
        both = [*batch, model]
        if batch and any(sum(sizes) > BATCH_BYTES for sizes in zip(*((m.constant_bytes, m.ram_bytes) for m in both))):
            yield batch
            both = [model]
        batch = both
    if batch:
        yield batch


def _samples(
    models: Iterable[CompiledModel],
    calls: Mapping[str, Mapping[Build, Sequence[int]]],
    invokes: Mapping[str, Mapping[Build, int]],
) -> Samples:
    """Samples of kernels; a model that ends its invoke early has fewer calls, and none of a program."""
    found: Samples = defaultdict(list)
    for model in models:
        made = list(_executed(model.program))
        counts, keys = calls[model.name], keys_of(model.program)
        for i, call in enumerate(made):
            if all(len(each) > i for each in counts.values()):
                each = {build: counts[build][i] for build in COUNTED_BUILDS}
                found[keys[call.kernel]].append(Sample(model.name, trips_of(call), each, each))
        if model.name in invokes and all(len(each) == len(made) for each in counts.values()):
            rest = {build: invokes[model.name][build] - sum(counts[build]) for build in COUNTED_BUILDS}
            found[PROGRAM].append(Sample(model.name, program_counts(model.program), rest, invokes[model.name]))
    return found


def _executed(program: Program) -> Iterator[KernelCall]:
    """The calls of a program without other subgraphs, as often as they run."""
    for code in program.subgraphs[0]:
        for statement in code.statements if isinstance(code, OperatorCode) else ():
            call, count = repeated(statement)
            assert call is not None
            yield from [call] * count


Costs = dict[KernelKey, dict[str, tuple[float, ...]]]
"""Of each kernel and count, the instructions for each of the builds."""


def updated(models: Sequence[CompiledModel]) -> Costs:
    """Instructions of a trip of the kernels of models: those of the table, and of models with other kernels."""
    keys = {model.name: {PROGRAM, *keys_of(model.program).values()} for model in models}
    known = measured_instructions()
    counts = fitted(counted([model for model in models if keys[model.name] - known.keys()]))
    return {key: known.get(key) or counts[key] for key in set().union(*keys.values()) if key in known or key in counts}


def fitted(samples: Samples) -> Costs:
    """Instructions of a trip, for each kernel and count."""
    return {key: _fitted(each) for key, each in samples.items()}


def _fitted(samples: Sequence[Sample]) -> dict[str, tuple[float, ...]]:
    names = list(dict.fromkeys(name for sample in samples for name in sample.trips))
    trips = np.array([[sample.trips.get(name, 0) for name in names] for sample in samples], np.float64)
    costs = []
    for build in COUNTED_BUILDS:
        counts, scale = (
            np.array([max(each[build], least) for each in column], np.float64)
            for column, least in (([s.instructions for s in samples], -np.inf), ([s.scale for s in samples], 1))
        )
        # Non-negative coefficients with the least squares of relative errors.
        costs.append(nnls(trips / scale[:, None], counts / scale)[0])
    # What never ran was not counted.
    return {name: tuple(float(cost[i]) for cost in costs) for i, name in enumerate(names) if trips[:, i].any()}


def write_table(costs: Costs) -> None:
    """Write the table of instructions."""
    with TABLE.open("w", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(["kernel", "checksum", "places", "count", *map(" ".join, COUNTED_BUILDS)])
        for (name, checksum, is_once), of_kernel in sorted(costs.items()):
            for count, values in of_kernel.items():
                places = "1" if is_once else "2+"
                table.writerow([name, f"{checksum:08x}", places, count, *(f"{value:.5g}" for value in values)])
