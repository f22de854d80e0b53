"""Verifies that a rewritten model is equivalent to the original."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

import numpy as np
import numpy.typing as npt

from tflm.errors import OperatorError, RewriteError
from tflm.kernels.plan_checker import lost_values
from tflm.memory.buffer import Place
from tflm.runtime.growing_arena import ready_interpreter
from tflm.runtime.micro_measurement_report import ArenaMeasurement
from tflm.runtime.micro_op_resolver import MicroMutableOpResolver
from tflm.schema.enums import ELEMENT_TYPES
from tflm.schema.model import Model
from tflm.schema.patch import without_plan

Values = list[npt.NDArray[Any]]

RELATIVE, ABSOLUTE = 1e-5, 1e-6
"""Tolerances for floats: BLAS may sum in another order for other sizes."""

MAX_ITERATIONS = 1000
"""Iterations of a WHILE before the input counts as rejected: a random count may take hours."""


@dataclass(frozen=True)
class Verification:
    """The checks of a rewritten model.

    Attributes:
        unchanged: the model is the original, byte for byte.
        tags: in a symbolic run, every operator found its input values where the plan places them.
        inputs: random inputs for which the outputs equal the original's, in the planned arena.
        stage_tensors: tensors at the ends of stages that were compared with the original's for each input.
    """

    unchanged: bool = False
    tags: bool = False
    inputs: int = 0
    stage_tensors: int = 0

    def __str__(self) -> str:
        if self.unchanged:
            return "the model is unchanged"
        return (
            f"the plan loses no value; outputs for {self.inputs} random inputs and {self.stage_tensors} tensors "
            f"at the ends of stages are identical"
        )


def verified(
    original: Model,
    before: Model,
    after: Model,
    resolver: MicroMutableOpResolver,
    ends: Mapping[int, int],
    inputs: int,
    report: Callable[[str], None],
) -> Verification:
    """Compare the answers of a rewritten model, whose plan `check_tags` has checked.

    Args:
        original: the model as it was.
        before, after: the model before tiling, and the rewritten model with its plan.
        resolver: the available operators.
        ends: tensor indices in `before` and their indices in the rewritten model.
        inputs: number of random inputs to compare.
        report: called with the name of each check.

    Raises:
        RewriteError: something differs.
    """
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
        require_same_values(planned[i], expected[i], f"output, with random input {i}")
        require_same_values(unaliased[i], stages[i], f"output or end of a stage, with random input {i}")
    return Verification(tags=True, inputs=inputs, stage_tensors=len(ends))


def require_equal_answers(
    original: Model,
    rewritten: Model,
    resolver: MicroMutableOpResolver,
    inputs: int,
    report: Callable[[str], None] = lambda _: None,
) -> None:
    """Run two models, each in its planned arena, and compare their outputs for random inputs.

    Args:
        report: called before each run.

    Raises:
        RewriteError: an output differs.
    """
    rng = np.random.default_rng(0)
    invocations = [random_inputs(original, rng) for _ in range(inputs)]
    numbers = count(1)

    def begin() -> None:
        report(f"run {next(numbers)} of {2 * inputs}")

    expected, found = (_answers(model, resolver, invocations, None, begin) for model in (original, rewritten))
    for i in range(inputs):
        require_same_values(found[i], expected[i], f"output, with random input {i}")


def check_tags(model: Model, measured: ArenaMeasurement) -> None:
    """Run a model symbolically, with its scratch buffers where the device puts them.

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
        raise RewriteError(f"the plan of the rewritten model is unsafe: {lost}")


def random_inputs(model: Model, rng: np.random.Generator) -> Values:
    """Random values for each input: integers over their full range, floats around zero.

    Integers wider than 16 bits are indices and counts: each input is of another order of magnitude.
    """
    main = model.subgraphs[0]
    tables = [(main.tensors or [])[index] for index in main.inputs or ()]
    return [_random(ELEMENT_TYPES[table.type].dtype, table.shape or (), rng) for table in tables]


def _random(dtype: np.dtype[Any], shape: Sequence[int], rng: np.random.Generator) -> npt.NDArray[Any]:
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        shift = int(rng.integers(limits.bits)) if limits.bits > 16 else 0
        return rng.integers(limits.min >> shift, limits.max >> shift, shape, dtype, endpoint=True)
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
    """Run each input and return the outputs, then the given tensors; if these are None, in the planned arena.

    Calls `begin` before each run. An input that an operator rejects, such as an index out of range, has no outputs.
    """
    model = model if tensors is None else without_plan(model)
    interpreter = ready_interpreter(
        model, resolver, delegates=(), preserve_all_tensors=tensors is not None, while_limit=MAX_ITERATIONS
    )
    answers: list[Values] = []
    for values in invocations:
        begin()
        for i, value in enumerate(values):
            interpreter.input(i).data[...] = value
        try:
            interpreter.invoke()
        except OperatorError:
            answers.append([])
            continue
        made = [interpreter.output(i).data for i in range(interpreter.outputs_size())]
        made += [interpreter.get_tensor(index).data for index in tensors or ()]
        answers.append([np.array(value, None) for value in made])
    return answers


def require_same_values(ours: Values, theirs: Values, what: str) -> None:
    """Compare the outputs of two models; floats may differ by what another order of sums changes.

    Raises:
        RewriteError: an output differs, or only one of the models has outputs.
    """
    if len(ours) != len(theirs):
        raise RewriteError(f"the rewritten model rejects other inputs than the original: {what}")
    for i, (one, other) in enumerate(zip(ours, theirs)):
        same = np.array_equal(one, other)
        if one.dtype.kind in "fc":
            same = np.allclose(one, other, rtol=RELATIVE, atol=ABSOLUTE, equal_nan=True)
        if not same:
            raise RewriteError(f"the rewritten model differs: number {i}, {what}")
