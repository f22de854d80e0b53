"""Wrong arguments are rejected at the call, with what was expected; public objects describe themselves."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from example_models import INT8_MODEL

import tflm

PATH = str(INT8_MODEL)
MODEL = tflm.Model.from_file(PATH)
RESOLVER = tflm.AllOpsResolver()


def interpreter(**changes: Any) -> tflm.MicroInterpreter:
    """Return an interpreter that is created with one wrong argument."""
    arguments = {"model": MODEL, "resolver": RESOLVER, "arena": bytearray(4096)} | changes
    return tflm.MicroInterpreter(**arguments)


def built(**changes: Any) -> int:
    """Return a tensor that a builder creates with one wrong argument."""
    arguments = {"name": "x", "shape": (1, 4), "type": tflm.schema.TensorType.INT8} | changes
    return tflm.ModelBuilder().subgraph().tensor(**arguments)


def operator(**changes: Any) -> None:
    """An operator that a builder is asked for, likewise."""
    main = tflm.ModelBuilder().subgraph()
    x, y = (main.tensor(name, (4,), tflm.schema.TensorType.FLOAT32) for name in "xy")
    arguments = {"operator": tflm.schema.BuiltinOperator.NEG, "inputs": [x], "outputs": [y]} | changes
    main.operator(**arguments)


FROM_FILE = r"tflm\.Model\.from_file"
MISTAKES: dict[str, tuple[Callable[[], object], str]] = {
    "a path to the interpreter": (lambda: interpreter(model=PATH), FROM_FILE),
    "a Path to the interpreter": (lambda: interpreter(model=Path(PATH)), FROM_FILE),
    "bytes to the interpreter": (lambda: interpreter(model=b"TFL3"), r"tflm\.Model\(data\)"),
    "a path to plan": (lambda: tflm.plan(PATH), FROM_FILE),
    "a path to measure_arena": (lambda: tflm.measure_arena(PATH, RESOLVER), FROM_FILE),
    "a path to Model": (lambda: tflm.Model(PATH), FROM_FILE),
    "a path to verify": (lambda: tflm.verify(PATH), FROM_FILE),
    "bytes to from_file": (lambda: tflm.Model.from_file(b"TFL3"), r"tflm\.Model\(data\)"),
    "the class of a resolver": (lambda: interpreter(resolver=tflm.AllOpsResolver), r"AllOpsResolver\(\.\.\.\)"),
    "no resolver": (lambda: interpreter(resolver=None), "expected a resolver"),
    "a resolver's class to measure_arena": (
        lambda: tflm.measure_arena(MODEL, tflm.AllOpsResolver),
        "expected a resolver",
    ),
    "a number for a target": (lambda: interpreter(target=4), "is not a target; use a Target, or one of host"),
    "no target's name": (lambda: interpreter(target="z80"), "cortex-m"),
    "no target's name to plan": (lambda: tflm.plan(MODEL, target="z80"), "unknown target 'z80'; use one of"),
    "an unknown planner": (lambda: interpreter(planner="best"), "use one of greedy, linear"),
    "an unknown planner to plan": (lambda: tflm.plan(MODEL, planner="best"), "use one of greedy, linear"),
    "the class of a planner": (lambda: interpreter(planner=tflm.memory.GreedyMemoryPlanner), "a planner is a name"),
    "a number for a planner": (lambda: interpreter(planner=4), "a planner is a name"),
    "an unknown target": (lambda: tflm.targets.by_name("z80"), "use one of host"),
    "no profiler": (lambda: interpreter(profiler="yes"), "begin_event and end_event, or None, not 'yes'"),
    "the class of a profiler": (lambda: interpreter(profiler=tflm.MicroProfiler), "a profiler is an object"),
    "a subgraph without a name": (lambda: tflm.ModelBuilder().subgraph(0), "a subgraph's name"),
    "metadata that are no bytes": (lambda: tflm.ModelBuilder().metadata("a", "b"), "bytes, not 'b'"),
    "a signature's tensors in a list": (
        lambda: tflm.ModelBuilder().signature("main", [0], {}),
        r"a dict of indices by name, not \[0\]",
    ),
    "a type by its name": (lambda: built(type="INT8"), "one of TensorType, not 'INT8'"),
    "a shape of one number": (lambda: built(shape=4), "a list of integers, not 4"),
    "a shape of floats": (lambda: built(shape=(1, 4.0)), "a list of integers, not"),
    "a tensor without a name": (lambda: built(name=None), "a tensor's name"),
    "a scale in place of a quantization": (
        lambda: built(quantization=0.5),
        r"tflm\.quantized\(scale, zero_point\)",
    ),
    "a constant of words": (lambda: tflm.ModelBuilder().subgraph().constant("c", ["a"]), "constant 'c' is <U1"),
    "an operator needs an integer index": (
        lambda: operator(operator=0),
        "one of BuiltinOperator, or a name, not 0",
    ),
    "one input that is no list": (lambda: operator(inputs=0), "inputs are a list of tensors by their index, not 0"),
    "an input by its name": (lambda: operator(inputs=["x"]), "inputs are a list of tensors by their index"),
    "an output that is not there": (lambda: operator(outputs=[7]), "tensors of the subgraph, which has 2, not 7"),
    "options in a dict": (lambda: operator(options={}), r"such as AddOptions\(\), not \{\}"),
    "an output of the subgraph that is not there": (lambda: tflm.ModelBuilder().subgraph().output(0), "which has 0"),
    "no registration": (lambda: tflm.AllOpsResolver().add_custom("Mine"), "Registration"),
}


@pytest.mark.parametrize(("call", "message"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_is_named_at_the_call(call: Callable[[], object], message: str) -> None:
    with pytest.raises(tflm.ArgumentError, match=message):
        call()


def test_tensors_are_asked_for_by_number() -> None:
    made = interpreter()
    made.allocate_tensors()
    with pytest.raises(tflm.ArgumentError, match="needs an integer index"):
        made.input("x")


def public_objects() -> dict[str, Any]:
    """One of each kind, small and large."""
    made = interpreter()
    made.allocate_tensors()
    measured = tflm.measure_arena(MODEL, RESOLVER)
    return {
        "model": MODEL,
        "a model's tables": MODEL.root,
        "subgraph": MODEL.subgraphs[0],
        "operator": (MODEL.subgraphs[0].operators or [])[0],
        "tensor table": tflm.schema.Tensor(shape=tuple(range(1000)), name="x" * 1000),
        "resolver": tflm.MicroMutableOpResolver(3),
        "all operators": RESOLVER,
        "interpreter": made,
        "interpreter before": interpreter(),
        "input": made.input(0),
        "eval tensor": made.eval_tensors()[0],
        "buffer": made.planned_buffers()[0],
        "measurement": measured,
        "peak": measured.peak,
        "record": next(iter(measured.records.values())),
        "plan": tflm.plan(MODEL),
        "allocator": tflm.MicroAllocator(bytearray(4096)),
        "recording allocator": tflm.RecordingMicroAllocator(bytearray(4096)),
        "profiler": tflm.MicroProfiler(),
        "registration": tflm.kernels.REGISTRATIONS["CONV_2D"],
        "node": tflm.Node("ADD", 0, (0, 1), (2,), (), None, memoryview(b"")),
        "target": tflm.targets.CORTEX_M,
        "builder": tflm.ModelBuilder("mine"),
        "planner": tflm.memory.OptimalPlanner(),
        "offsets": tflm.memory.OffsetsPlanner(list(range(0, 160000, 16))),
        "arena": tflm.memory.Arena(bytearray(100)),
        "error": tflm.ArenaExhausted("x", requested=1, available=0),
    }


@pytest.mark.parametrize(("name", "value"), public_objects().items(), ids=public_objects())
def test_a_repr_is_one_line_that_says_what_it_is(name: str, value: Any) -> None:
    text = repr(value)
    assert text.startswith(type(value).__name__)
    assert len(text) < 250
    assert "\n" not in text
    assert " at 0x" not in text


def test_a_notebook_shows_what_the_command_shows() -> None:
    measured, plan = tflm.measure_arena(MODEL, RESOLVER, target=tflm.targets.CORTEX_M), tflm.plan(MODEL)
    for value, shown in (
        (MODEL, ["FULLY_CONNECTED", f"{len(MODEL.data):,} B", "multiply-accumulates", "zero point"]),
        (measured, ["cortex-m", f"{measured.minimum_arena_bytes:,} B", "Alive there", "TfLiteEvalTensor data"]),
        (plan, ["head with this plan", f"{plan.head_bytes:,} B", "the head stays at"]),
    ):
        text = value._repr_html_()
        assert all(part in text for part in shown)
    builder = tflm.ModelBuilder("<script>")
    main = builder.subgraph()
    main.output(main.constant("<b>", np.ones(1, np.float32)))
    text = tflm.Model(builder.build())._repr_html_()
    assert "<script>" not in text
    assert "&lt;b&gt;" in text


def test_the_version_is_that_of_the_package() -> None:
    assert tflm.__version__ == importlib.metadata.version("pytflm")
