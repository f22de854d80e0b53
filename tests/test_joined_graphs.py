"""Random graphs of all operators have the same results in TFLM, in numpy, in the engine, rewritten, planned and as C.

`make graphs` draws 10,000.
"""

from __future__ import annotations

import random
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import outcomes
import pytest
from differential import assert_close, run
from hypothesis import Phase, find, given, seed, settings
from hypothesis.errors import NoSuchExample
from joined_graphs import JoinedGraph, joined_graphs
from models import Arrays
from numpy import ndarray
from oracle import Oracle, OracleError

import tflm
from tflm.c.compile import SHARED_KERNELS, compiled_with
from tflm.c.emitter import kernel_files, kernels_of
from tflm.c.planner import CompileOptions
from tflm.delegates import Compiled

IN_ONE_PROGRAM = 100
"""Graphs that are compiled together: a program for each takes ten times as long."""

PARTS = 2
"""Tests that share the graphs, for two processes."""

ARENA_BYTES = 1 << 24

REWRITINGS: dict[str, Callable[[tflm.Model], bytes]] = {
    "fold": tflm.fold,
    "strip": tflm.strip,
    "tile": lambda model: bytes(tflm.tile(model, max_extra_macs=1).model.data),
    "plan": lambda model: bytes(tflm.plan(model, in_place=True, reorder=True).model.data),
}


class Wrong(NamedTuple):
    """A graph with a different result in one of these ways."""

    graph: JoinedGraph
    what: str

    def __str__(self) -> str:
        return f"{self.graph.operators}: {self.what}"


@pytest.mark.runs(0.7)
@pytest.mark.parametrize("part", range(PARTS))
def test_every_way_gives_the_same(oracle: Oracle, tmp_path: Path, part: int) -> None:
    """If a graph differs, the smallest graph of its operators that differs is found."""
    ways = Ways(oracle, tmp_path)
    count = settings().max_examples
    first = part if settings().derandomize else random.randrange(1 << 32)
    wrong: list[Wrong] = []
    for start in range(0, count, IN_ONE_PROGRAM):
        wrong += ways.differences(drawn(min(IN_ONE_PROGRAM, count - start), first + PARTS * start))
    print(f"{count} graphs from seed {first}; of them went through {dict(ways.reached)}")
    assert not wrong, "\n".join([f"{len(wrong)} graphs differ:", *map(str, wrong), str(smallest(wrong[0], ways))])


def drawn(count: int, number: int) -> list[JoinedGraph]:
    """Graphs of a seed."""
    found: list[JoinedGraph] = []

    @seed(number)
    @settings(max_examples=count, phases=(Phase.generate,), database=None)
    @given(joined_graphs())
    def draw(graph: JoinedGraph) -> None:
        found.append(graph)

    draw()
    return found


def smallest(wrong: Wrong, ways: Ways) -> Wrong:
    """The smallest graph that is found of the operators of one that differs, and differs."""
    names = tuple(sorted(set(wrong.graph.operators)))
    try:
        graph = find(joined_graphs(names), lambda graph: bool(ways.differences([graph])))
    except NoSuchExample:
        return wrong
    return ways.differences([graph])[0]


class Ways:
    """All that gives the answers of a graph.

    Attributes:
        reached: how many graphs went by each way; and of those that were rewritten, how many were changed by it.
    """

    def __init__(self, oracle: Oracle, folder: Path):
        self._oracle, self._folder = oracle, folder
        self.reached: Counter[str] = Counter()

    def differences(self, graphs: Sequence[JoinedGraph]) -> list[Wrong]:
        """The graphs that differ, each with the first difference."""
        wrong: list[Wrong] = []
        programs: list[Program] = []
        for graph in graphs:
            try:
                answers = self._answers(graph)
                program = None if answers is None else self._program(graph, len(programs), answers)
            except Exception as error:  # a crash is a difference, too
                notes = getattr(error, "__notes__", ())
                wrong.append(Wrong(graph, "; ".join([*notes, f"{type(error).__name__}: {error}"])))
                continue
            if outcomes.count(ran=program is not None) and program is not None:
                programs.append(program)
        if programs and shutil.which("cc") is not None:
            wrong += failures(programs, self._folder)
        return wrong

    def _answers(self, graph: JoinedGraph) -> list[Arrays] | None:
        """The answers of each invoke, or None where TFLM refuses the model."""
        try:
            expected = self._oracle.run(graph.data, graph.invocations)
        except OracleError:
            with pytest.raises(tflm.TflmError):
                run(graph.data, graph.invocations, ARENA_BYTES, delegates=())
            return None
        self.reached["TFLM"] += 1
        answers = self._compared("numpy", graph, graph.data, expected)
        self._compared("the engine", graph, graph.data, expected, Compiled())
        for way, rewrite in REWRITINGS.items():
            data = rewrite(tflm.Model(graph.data))
            if data == graph.data:
                self.reached[way] += 1
            else:
                self.reached[f"{way} (changed)"] += 1
                self._compared(way, graph, data, expected)
        return answers

    def _compared(
        self, way: str, graph: JoinedGraph, data: bytes, expected: Sequence[Arrays], *delegates: Compiled
    ) -> list[Arrays]:
        """Answers of all invokes, which are those expected; an error tells by which way they are not."""
        self.reached[way] += 1
        answers = run(data, graph.invocations, ARENA_BYTES, delegates=delegates)
        for invoke, (ours, theirs) in enumerate(zip(answers, expected, strict=True)):
            try:
                assert_close(ours, theirs)
            except AssertionError as error:
                error.add_note(f"by way of {way}, in invoke {invoke}")
                raise
        return answers

    def _program(self, graph: JoinedGraph, number: int, answers: list[Arrays]) -> Program | None:
        """A graph as C, or None where one of its operators has no kernels."""
        try:
            compiled = compiled_with(CompileOptions(), tflm.Model(graph.data), f"g{number}", SHARED_KERNELS)
        except tflm.CompileError:
            return None
        self.reached["C"] += 1
        return Program(graph, compiled, answers)


# --- As C -----------------------------------------------------------------------------------------------------------


class Program(NamedTuple):
    """A graph as C, whose names begin with "g" and a number, and its answers on numpy."""

    graph: JoinedGraph
    compiled: tflm.CompiledModel
    answers: list[Arrays]


def failures(programs: Sequence[Program], folder: Path) -> list[Wrong]:
    """Return graphs whose C differs from numpy, with the program's output about them."""
    made = [program.compiled for program in programs]
    kernels = (kernel for one in made for kernel in kernels_of(one.program))
    files = kernel_files(kernels, SHARED_KERNELS, "")
    for name, text in [*files.items(), *(item for one in made for item in one.files.items())]:
        (folder / name).write_text(text)
    sources = [with_own_names(one.files[f"{one.name}.c"], one.name) for one in made]
    data = bytearray()
    tests = [checks_of(program, data) for program in programs]
    (folder / "data").write_bytes(data)
    parts = ['#include "kernels.c"', *sources, READING.replace("DATA_BYTES", str(len(data))), COMPARISON, *tests]
    parts += [MAIN.replace("TESTS", ", ".join(f"test_{one.name}" for one in made))]
    (folder / "all.c").write_text("\n".join(parts))
    subprocess.run(["cc", "-w", *SANITIZERS, "-o", "all", "all.c", "-lm"], cwd=folder, check=True)
    said: dict[str, str] = {}
    begun = 0
    while begun < len(made):
        command = [folder / "all", str(begun)]
        ran = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        begun += ran.stdout.count(BEGINS)
        said |= dict(line.split(": ", 1) for line in reversed(ran.stdout.splitlines()) if line != BEGINS)
        if ran.returncode:
            said[made[begun - 1].name] = ran.stderr
    return [Wrong(program.graph, f"as C, {said[one.name]}") for program, one in zip(programs, made) if one.name in said]


FLOATS = (np.float32, np.complex64)
"""Types whose elements are compared as floats of 32 bits."""

SANITIZERS = ("-O0", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")

STATIC = re.compile(r"\w+_(?:CONST|CODE) static (?:const )?(?:struct )?\w+ (\w+)")

BEGINS = "the next graph begins"

READING = """
#include <stdio.h>
#include <stdlib.h>

static unsigned char data[DATA_BYTES + 1];

/* Inputs and expected outputs of all graphs. */
static void read_data(void)
{
    FILE *file = fopen("data", "rb");
    fread(data, 1, DATA_BYTES, file);
    fclose(file);
}
"""

COMPARISON = """
#include <math.h>
#include <string.h>
/* As integers, or as floats within one part in 100,000. */
static int differs(const void *actual, const unsigned char *expected, long bytes, int is_float)
{
    long i;
    for (i = 0; is_float && i < bytes; i += 4) {
        float a, e;
        memcpy(&a, (const char *)actual + i, 4);
        memcpy(&e, expected + i, 4);
        if (!(a == e || (a != a && e != e) || fabsf(a - e) <= 1e-6f + 1e-5f * fabsf(e))) {
            return 1;
        }
    }
    return !is_float && memcmp(actual, expected, bytes) != 0;
}
"""


MAIN = f"""
/* Runs the graphs from the one on that the argument names. */
int main(int arguments, char **argument)
{{
    static void (*const tests[])(void) = {{TESTS}};
    int i;
    read_data();
    for (i = atoi(argument[1]); i < (int)(sizeof tests / sizeof *tests); i++) {{
        puts("{BEGINS}");
        fflush(stdout);
        tests[i]();
    }}
    return 0;
}}
"""


def with_own_names(text: str, prefix: str) -> str:
    """A file whose tables and functions have names that those of no other file have."""
    names = set(STATIC.findall(text))
    return re.sub(r"\b\w+\b", lambda word: f"{prefix}_own_{word[0]}" if word[0] in names else word[0], text)


def checks_of(program: Program, data: bytearray) -> str:
    """A function that prints what differs from numpy's answers: "graph: invoke, output"; data grow by what it reads."""

    def place(array: ndarray[Any, Any]) -> str:
        data.extend(array.tobytes())
        return f"data + {len(data) - array.nbytes}, {array.nbytes}"

    name = program.compiled.name
    lines = [f"{name}_reset(ram.bytes);"]
    for invoke, (inputs, answers) in enumerate(zip(program.graph.invocations, program.answers, strict=True)):
        lines += [f"memcpy({name}_input_{k}(ram.bytes), {place(x)});" for k, x in enumerate(inputs)]
        lines += [f'if ({name}_invoke(ram.bytes)) {{ puts("{name}: invoke {invoke} fails"); }}']
        lines += [
            f"if (differs({name}_output_{k}(ram.bytes), {place(y)}, {int(y.dtype in FLOATS)}))"
            f' {{ puts("{name}: invoke {invoke}, output {k}"); }}'
            for k, y in enumerate(answers)
        ]
    return f"static void test_{name}(void) {{ static union {name}_ram ram;\n" + "\n".join(lines) + "\n}\n"
