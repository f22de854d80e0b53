"""What shows that a rewritten model is as good as the one that it came from."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

import numpy as np
import numpy.typing as npt

from tflm.errors import RewriteError
from tflm.memory.buffer import Place
from tflm.memory.plan_checker import lost_values
from tflm.runtime.growing_arena import ready_interpreter
from tflm.runtime.micro_measurement_report import ArenaMeasurement
from tflm.runtime.micro_op_resolver import MicroMutableOpResolver
from tflm.schema.element_types import ELEMENT_TYPES
from tflm.schema.model import Model
from tflm.schema.patch import without_plan

Values = list[npt.NDArray[Any]]

RELATIVE, ABSOLUTE = 1e-5, 1e-6
"""Tolerances for floats: numpy's library may sum in another order when sizes differ."""


@dataclass(frozen=True)
class Verification:
    """What was checked of a rewritten model.

    Attributes:
        unchanged: it is the model that there was, byte for byte.
        tags: run on tags, every operator of it finds the values that it needs where its plan has them.
        inputs: random inputs for which its outputs are those of the model that it came from, in its planned arena.
        stage_tensors: tensors at the ends of stages that were compared with those of that model, for each input.
    """

    unchanged: bool = False
    tags: bool = False
    inputs: int = 0
    stage_tensors: int = 0

    def __str__(self) -> str:
        if self.unchanged:
            return "the model is as it was"
        return (
            f"values stay where they are needed; the same outputs for {self.inputs} random inputs, "
            f"and the same {self.stage_tensors} tensors at the ends of stages"
        )


def verified(
    original: Model,
    before: Model,
    after: Model,
    resolver: MicroMutableOpResolver,
    measured: ArenaMeasurement,
    ends: Mapping[int, int],
    inputs: int,
    report: Callable[[str], None] = lambda _: None,
) -> Verification:
    """Check a rewritten model.

    Args:
        original: the model as it was.
        before, after: the model that was put in bands, and what it became, with its plan.
        resolver: the available operators.
        measured: the rewritten model in its arena.
        ends: tensors of `before` that the rewritten model has as well, and what they are there.
        inputs: how many random inputs are compared.
        report: called with what is being checked.

    Raises:
        RewriteError: something differs.
    """
    report("values in their places")
    check_tags(after, measured)
    rng = np.random.default_rng(0)
    invocations = [random_inputs(before, rng) for _ in range(inputs)]
    runs = [(original, None), (before, list(ends)), (after, list(ends.values())), (after, None)]
    numbers = count(1)

    def begin() -> None:
        report(f"run {next(numbers)} of {len(runs) * inputs}")

    expected, stages, unaliased, planned = (
        _answers(each, resolver, invocations, tensors, begin) for each, tensors in runs
    )
    for i in range(inputs):
        _require_equal(planned[i], expected[i], f"output, with random input {i}")
        _require_equal(unaliased[i], stages[i], f"output or end of a stage, with random input {i}")
    return Verification(tags=True, inputs=inputs, stage_tensors=len(ends))


def check_tags(model: Model, measured: ArenaMeasurement) -> None:
    """Run a model on tags, with its scratch buffers where the device puts them.

    Raises:
        RewriteError: a value is lost.
    """
    keys = [(i, j) for i, subgraph in enumerate(model.subgraphs) for j in range(len(subgraph.tensors or ()))]
    places = {keys[b.tensor]: Place(b.offset, b.bytes) for b in measured.buffers if b.tensor is not None}
    scratch: dict[tuple[int, int], list[Place]] = {}
    for buffer in measured.buffers:
        if buffer.kind == "scratch":
            scratch.setdefault((0, buffer.first_use - 1), []).append(Place(buffer.offset, buffer.bytes))
    is_plain = len(measured.steps) == len(model.subgraphs[0].operators or ()) + 1
    for lost in lost_values(model.root, places, scratch if is_plain else None):
        raise RewriteError(f"the plan of the rewritten model is not sound: {lost}")


def random_inputs(model: Model, rng: np.random.Generator) -> Values:
    """Values for each input: integers of their whole range, floats around zero."""
    main = model.subgraphs[0]
    tables = [(main.tensors or [])[index] for index in main.inputs or ()]
    return [_random(ELEMENT_TYPES[table.type].dtype, table.shape or (), rng) for table in tables]


def _random(dtype: np.dtype[Any], shape: Sequence[int], rng: np.random.Generator) -> npt.NDArray[Any]:
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        return rng.integers(limits.min, limits.max, shape, dtype, endpoint=True)
    if dtype.kind == "b":
        return rng.integers(0, 2, shape).astype(dtype)
    return rng.standard_normal(shape).astype(dtype)


def _answers(
    model: Model,
    resolver: MicroMutableOpResolver,
    invocations: Sequence[Values],
    tensors: Sequence[int] | None,
    begin: Callable[[], None],
) -> list[Values]:
    """For each input the outputs, then some tensors; with None of them, in the arena as it is planned.

    `begin` is called before each input is run.
    """
    model = model if tensors is None else without_plan(model)
    interpreter = ready_interpreter(model, resolver, delegates=(), preserve_all_tensors=tensors is not None)
    answers = []
    for values in invocations:
        begin()
        for i, value in enumerate(values):
            interpreter.input(i).data[...] = value
        interpreter.invoke()
        made = [interpreter.output(i).data for i in range(interpreter.outputs_size())]
        made += [interpreter.get_tensor(index).data for index in tensors or ()]
        answers.append([np.array(value, None) for value in made])
    return answers


def _require_equal(ours: Values, theirs: Values, what: str) -> None:
    for i, (one, other) in enumerate(zip(ours, theirs)):
        same = np.array_equal(one, other)
        if one.dtype.kind in "fc":
            same = np.allclose(one, other, rtol=RELATIVE, atol=ABSOLUTE, equal_nan=True)
        if not same:
            raise RewriteError(f"the rewritten model differs: number {i}, {what}")
