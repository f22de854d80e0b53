"""Estimate the instructions of an invoke on a Cortex-M4, from the trip counts of the kernels' loops.

`kernel_instructions.csv` has the instructions of each trip, which `tools/compiled_figures.py` fits to counts under
emulation. They hold for one version of a kernel, identified by a checksum. Compilers specialize a kernel that is called
from a single place, so that it has separate figures.
"""

from __future__ import annotations

import csv
import functools
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files

from tflm.c import source
from tflm.c.control_flow import If, Repeat, RunOnce, SubgraphCall, While, calls_in
from tflm.c.program import KernelCall, OperatorCode, Program, Statement, reached_subgraphs
from tflm.c.sizes import Build, text_of
from tflm.c.trips import trips_of
from tflm.compiler.language import Kernel

COUNTED_BUILDS: tuple[Build, ...] = (("cortex-m4", "-Os"), ("cortex-m4", "-O2"))
"""Processors and optimizations for which instructions were counted."""

KernelKey = tuple[str, int, bool]
"""Key of a kernel's figures: its name and checksum, and whether the program calls it from a single place."""

Work = Mapping[Build, float]
"""Instructions for each of `COUNTED_BUILDS`."""

PROGRAM: KernelKey = ("", 0, False)
"""Key of the program's own code between its calls."""


@dataclass(frozen=True)
class Instructions:
    """Estimated instructions of an invoke.

    Attributes:
        total: for each processor and optimization; None if a kernel has no estimate, or the model calls a library.
        operators: instructions of each operator's kernels, by index in the model; operators without an estimate are
            missing.
        unknown: names of kernels without an estimate.
    """

    total: dict[Build, int] | None
    operators: dict[int, dict[Build, int]] = field(repr=False)
    unknown: tuple[str, ...] = ()


@functools.cache
def measured_instructions() -> dict[KernelKey, dict[str, tuple[float, ...]]]:
    """Read the instructions of a trip for each of `COUNTED_BUILDS`, by key and by what is counted."""
    text = (files("tflm.c") / "kernel_instructions.csv").read_text(encoding="utf-8")
    found: dict[KernelKey, dict[str, tuple[float, ...]]] = {}
    for row in csv.DictReader(text.splitlines()):
        costs = tuple(float(row[" ".join(build)]) for build in COUNTED_BUILDS)
        key = row["kernel"], int(row["checksum"], 16), row["places"] == "1"
        found.setdefault(key, {})[row["count"]] = costs
    return found


def keys_of(program: Program) -> dict[Kernel, KernelKey]:
    """Return the key of each kernel in a program. Calls of a stage that are listed in a table count as a single
    place."""
    places: dict[Kernel, set[object]] = {}
    for number, codes in enumerate(program.subgraphs):
        for code in codes:
            if not isinstance(code, OperatorCode):
                continue
            for i, call in enumerate(calls_in(code.statements, KernelCall)):
                places.setdefault(call.kernel, set()).add((number, code.operator.index, i))
    return {kernel: (*text_of(kernel), len(found) == 1) for kernel, found in places.items()}


def instructions_of(program: Program) -> Instructions:
    """Estimate the instructions of an invoke of a program, which is not the first after a reset.

    Both subgraphs of an IF count half, and a WHILE counts with one iteration.
    """
    estimate = _Estimate(program)
    operators: dict[int, Counter[Build]] = {}
    works: list[Work | None] = [_sum(PROGRAM, program_counts(program))]
    partial: set[int] = set()
    for code in program.subgraphs[0]:
        if not isinstance(code, OperatorCode):
            continue
        number = program.number_of(code.operator)
        work = estimate.total(code.statements)
        works.append(work)
        operators.setdefault(number, Counter()).update(work or {})
        partial.update([number] if work is None else [])
    total = _total(works)
    by_operator = {
        index: {build: round(each[build]) for build in COUNTED_BUILDS}
        for index, each in operators.items()
        if index not in partial
    }
    rounded = None if total is None else {build: round(total[build]) for build in COUNTED_BUILDS}
    return Instructions(rounded, by_operator, tuple(estimate.unknown))


class _Estimate:
    """Estimates the instructions of a program's statements.

    Args:
        program: the program.

    Attributes:
        unknown: names of kernels without an estimate.
    """

    def __init__(self, program: Program):
        self._keys = keys_of(program)
        self.unknown: dict[str, None] = {}
        self._subgraphs: dict[int, Work | None] = {}
        for index in filter(None, reached_subgraphs(program.bound)):
            codes = [code for code in program.subgraphs[index] if isinstance(code, OperatorCode)]
            statements = [statement for code in codes for statement in code.statements]
            own = _sum(PROGRAM, {"call": 1, "calls of kernels": sum(repeated(each)[1] for each in statements)})
            self._subgraphs[index] = _total([own, self.total(statements)])

    def total(self, statements: Sequence[Statement]) -> Work | None:
        """Return the instructions of statements; None if a part has no estimate."""
        return _total([self._work(statement) for statement in statements])

    def _work(self, statement: Statement) -> Work | None:
        if isinstance(statement, If):
            both = _total([self._run(statement.then), self._run(statement.otherwise)])
            return None if both is None else {build: work / 2 for build, work in both.items()}
        if isinstance(statement, While):
            condition = self._subgraphs[statement.condition]
            return _total([self.total(statement.before), condition, self._run(statement.body), condition])
        if isinstance(statement, RunOnce):
            return {}
        call, count = repeated(statement)
        work = None if call is None else _costs_of(call, count, self._keys)
        self.unknown |= {source.name_of(call.kernel): None} if call is not None and work is None else {}
        return work

    def _run(self, call: SubgraphCall[KernelCall]) -> Work | None:
        return _total([self.total(call.before), self._subgraphs[call.subgraph], self.total(call.after)])


def _total(works: Sequence[Work | None]) -> Counter[Build] | None:
    """Return the sum of instructions; None if one of them is unknown."""
    found: Counter[Build] = Counter()
    for work in works:
        if work is None:
            return None
        found.update(work)
    return found


def repeated(statement: Statement) -> tuple[KernelCall | None, int]:
    """Return the kernel call of a statement and how often it runs; no call for other statements."""
    if isinstance(statement, Repeat):
        return statement.call, statement.count
    return (statement, 1) if isinstance(statement, KernelCall) else (None, 1)


def _costs_of(call: KernelCall, times: int, keys: Mapping[Kernel, KernelKey]) -> dict[Build, float] | None:
    """Return the instructions of a call that runs this many times; None without an estimate."""
    name, checksum, is_once = keys[call.kernel]
    for key in ((name, checksum, is_once), (name, checksum, not is_once)):
        if key in measured_instructions() and (costs := _sum(key, trips_of(call))) is not None:
            return {build: times * cost for build, cost in costs.items()}
    return None


def _sum(key: KernelKey, counts: Mapping[str, int]) -> dict[Build, float] | None:
    """Return the instructions for these counts; None if one of them was not measured."""
    known = measured_instructions().get(key)
    if known is None or any(count and name not in known for name, count in counts.items()):
        return None
    return {
        build: sum(known[name][i] * count for name, count in counts.items() if count)
        for i, build in enumerate(COUNTED_BUILDS)
    }


def program_counts(program: Program) -> dict[str, int]:
    """Count the program's own work: calls, calls from tables, and moved bytes."""
    codes = program.subgraphs[0]
    moves = [code for code in codes if not isinstance(code, OperatorCode)]
    operators = [code for code in codes if isinstance(code, OperatorCode)]
    return {
        "call": 1,
        "calls of kernels": sum(repeated(statement)[1] for code in operators for statement in code.statements),
        "calls from tables": sum(len(code.statements) for code in operators if code.rows is not None) + len(moves),
        "moves": len(moves),
        "moved bytes": sum(code.size for code in moves),
    }
