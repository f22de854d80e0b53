"""Random graphs of all operators give the same by every way: numpy, the engine, rewritten, planned, as C, and in TFLM.

`make long` draws thousands.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import outcomes
import pytest
from differential import assert_close, run
from hypothesis import Phase, find, given, settings
from joined_graphs import JoinedGraph, joined_graphs
from models import Arrays
from numpy import ndarray
from oracle import Oracle, OracleError

import tflm
from tflm.delegates import Compiled

IN_ONE_PROGRAM = 100
"""Graphs that are compiled together: a program for each takes ten times as long."""

WAYS: dict[str, Callable[[JoinedGraph], list[Arrays]]] = {
    "the engine": lambda graph: run(graph.data, graph.invocations, delegates=[Compiled()]),
    "fold": lambda graph: numpy_answers(tflm.fold(tflm.Model(graph.data)), graph.invocations),
    "strip": lambda graph: numpy_answers(tflm.strip(tflm.Model(graph.data)), graph.invocations),
    "tile": lambda graph: numpy_answers(
        tflm.tile(tflm.Model(graph.data), max_extra_macs=1).model.data, graph.invocations
    ),
    "plan": lambda graph: numpy_answers(
        tflm.plan(tflm.Model(graph.data), in_place=True, reorder=True).model.data, graph.invocations
    ),
}
"""What gives the answers of a graph otherwise than its operators on numpy, one after the other."""


def numpy_answers(data: bytes, invocations: Sequence[Arrays]) -> list[Arrays]:
    return run(data, invocations, delegates=())


def assert_same(way: str, answers: Sequence[Arrays], expected: Sequence[Arrays]) -> None:
    """Answers of all invokes are equal; an error tells by which way they are not."""
    for invoke, (ours, theirs) in enumerate(zip(answers, expected, strict=True)):
        try:
            assert_close(ours, theirs)
        except AssertionError as error:
            error.add_note(f"by way of {way}, in invoke {invoke}")
            raise


@pytest.mark.runs(0.7)
@given(graph=joined_graphs())
@settings(max_examples=2 * settings().max_examples)
def test_every_way_gives_the_same(oracle: Oracle, graph: JoinedGraph) -> None:
    try:
        expected = oracle.run(graph.data, graph.invocations)
    except OracleError:
        outcomes.count(ran=False)
        with pytest.raises(tflm.TflmError):
            numpy_answers(graph.data, graph.invocations)
        return
    outcomes.count(ran=True)
    assert_same("numpy", numpy_answers(graph.data, graph.invocations), expected)
    for way, answers in WAYS.items():
        assert_same(way, answers(graph), expected)


# --- As C -----------------------------------------------------------------------------------------------------------


@pytest.mark.runs(0.7)
def test_graphs_in_c_give_what_numpy_gives(tmp_path: Path) -> None:
    """Where one fails, the smallest graph of its operators that fails is found."""
    if shutil.which("cc") is None:
        pytest.skip("there is no C compiler, cc")
    graphs = [graph for graph in drawn(settings().max_examples) if outcomes.count(ran=runs(graph))]
    for start in range(0, len(graphs), IN_ONE_PROGRAM):
        together = graphs[start : start + IN_ONE_PROGRAM]
        failing = failures(together, tmp_path)
        if not failing:
            continue
        names = tuple(sorted({name for i in failing for name in together[i].operators}))
        wrong = find(joined_graphs(names), lambda graph: runs(graph) and bool(failures([graph], tmp_path)))
        raise AssertionError(f"as C, {wrong.operators} differs: {failures([wrong], tmp_path)[0]}")


def drawn(count: int) -> list[JoinedGraph]:
    """Graphs; the same in every run but for `make long`."""
    found: list[JoinedGraph] = []

    @settings(max_examples=count, phases=(Phase.generate,), database=None)
    @given(joined_graphs())
    def draw(graph: JoinedGraph) -> None:
        found.append(graph)

    draw()
    return found


def runs(graph: JoinedGraph) -> bool:
    try:
        numpy_answers(graph.data, graph.invocations)
        tflm.compile_model(tflm.Model(graph.data))
    except tflm.TflmError:
        return False
    return True


def failures(graphs: Sequence[JoinedGraph], folder: Path) -> dict[int, str]:
    """Graphs whose C differs from numpy, with what the program says of them."""
    compiled = tflm.compile_models({f"g{i}": tflm.Model(graph.data) for i, graph in enumerate(graphs)})
    compiled.write(folder)
    parts = [f"g{i}" for i in range(len(graphs))]
    tests = [checks_of(i, graph) for i, graph in enumerate(graphs)]
    calls = "".join(f"test_{i}();" for i in range(len(graphs)))
    text = [with_own_names((folder / f"{part}.c").read_text(), part) for part in parts]
    (folder / "all.c").write_text(
        "\n".join(['#include "kernels.c"', *text, COMPARISON, *tests, f"int main(void) {{ {calls} return 0; }}\n"])
    )
    subprocess.run(["cc", "-w", *SANITIZERS, "-o", "all", "all.c", "-lm"], cwd=folder, check=True)
    ran = subprocess.run([folder / "all"], capture_output=True, text=True, check=False)
    if ran.returncode:
        return dict.fromkeys(range(len(graphs)), ran.stderr)
    return {int(line.split(":")[0]): line for line in reversed(ran.stdout.splitlines())}


SANITIZERS = ("-O0", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")

STATIC = re.compile(r"\w+_(?:CONST|CODE) static (?:const )?(?:struct )?\w+ (\w+)")

COMPARISON = """
#include <math.h>
#include <stdio.h>
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


def with_own_names(text: str, prefix: str) -> str:
    """A file whose tables and functions have names that those of no other file have."""
    names = set(STATIC.findall(text))
    return re.sub(r"\b\w+\b", lambda word: f"{prefix}_own_{word[0]}" if word[0] in names else word[0], text)


def checks_of(i: int, graph: JoinedGraph) -> str:
    """A function that prints what differs from numpy's answers: "graph: invoke, output"."""
    lines = [f"g{i}_reset(ram.bytes);"]
    for invoke, answers in enumerate(numpy_answers(graph.data, graph.invocations)):
        inputs = graph.invocations[invoke]
        lines += [f"memcpy(g{i}_input_{k}(ram.bytes), {in_c(x)}, {x.nbytes});" for k, x in enumerate(inputs)]
        lines += [f'if (g{i}_invoke(ram.bytes)) {{ puts("{i}: invoke {invoke} fails"); }}']
        lines += [
            f"if (differs(g{i}_output_{k}(ram.bytes), {in_c(y)}, {y.nbytes}, {int(y.dtype.kind == 'f')}))"
            f' {{ puts("{i}: invoke {invoke}, output {k}"); }}'
            for k, y in enumerate(answers)
        ]
    return f"static void test_{i}(void) {{ static union g{i}_ram ram;\n" + "\n".join(lines) + "\n}\n"


def in_c(array: ndarray[Any, Any]) -> str:
    """The bytes of an array as a constant of C."""
    return "(const unsigned char[]){" + ",".join(map(str, [*array.tobytes(), 0])) + "}"
