"""Checks that a kernel keeps the rules of the arena and computes what it should."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
from hypothesis import strategies as st

from tflm.errors import ArenaError, ArgumentError, CheckFailed, OperatorError
from tflm.kernels import REGISTRATIONS, KernelContext, Node, Registration
from tflm.memory.buffer import Place
from tflm.runtime.micro_interpreter import MicroInterpreter
from tflm.runtime.micro_op_resolver import MicroMutableOpResolver
from tflm.schema import BuiltinOperator
from tflm.schema.model import Model
from tflm.testing.counterexample import EXAMPLES, check_examples
from tflm.testing.models import COMMON_TYPES, Case, single_operator_models

Arrays = list[npt.NDArray[Any]]

Oracle = Callable[[Model, Arrays], Sequence[npt.ArrayLike]]
"""The outputs of a model's operator, from the model and the operator's inputs."""

ARENA_BYTES = 1 << 16
FILLINGS = (0x00, 0xA5, 0x5A)
"""What the arena, and before each invoke the outputs and scratch buffers, are filled with."""

FLOAT_TOLERANCE = 1e-5


def check_kernel(
    registration: Registration,
    oracle: Oracle | Registration | None = None,
    *,
    models: st.SearchStrategy[Case] | None = None,
    max_examples: int = EXAMPLES // 2,
) -> None:
    """Check a kernel on random models of one operator.

    An invoke writes nothing but the operator's outputs, scratch buffers, variables and persistent memory. It writes
    every element of the outputs, and its result does not depend on what the memory held before, or on other
    interpreters. After a reset the kernel repeats its results; without state, in every invoke. Unsupported models are
    rejected with `OperatorError` in `prepare`. Integers equal those of the oracle; floats agree to 1e-5.

    Args:
        registration: the kernel.
        oracle: what it should compute: another registration of the operator, or a function of the model and the
            operator's inputs that returns the outputs. The default is the package's kernel of a builtin operator.
        models: models whose first subgraph has this operator alone. The default are models with one to three inputs
            that have the shape and type of the output.
        max_examples: number of models to try.

    Raises:
        CheckFailed: with the smallest model that was found.
        ArgumentError: the kernel rejected every model.
    """
    if oracle is None and isinstance(registration.operator, BuiltinOperator):
        oracle = REGISTRATIONS[registration.name]
    if models is None:
        types = registration.types or COMMON_TYPES
        models = st.sampled_from([1, 1, 2, 3]).flatmap(
            lambda n: single_operator_models(registration.operator, types, inputs=n)
        )
    accepted: list[Case] = []

    def examine(case: Case) -> None:
        if _Run(registration, oracle, case).check():
            accepted.append(case)

    check_examples(models, examine, max_examples)
    if not accepted:
        raise ArgumentError(f"{registration.name} rejected every model; pass models= with models that it supports")


class _Recorded:
    """A context that records the arrays of the arena that a kernel gets."""

    def __init__(self, context: KernelContext, arrays: Arrays):
        self._context, self._arrays = context, arrays

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._context, name)
        if name not in ("allocate_persistent_buffer", "allocate_array", "get_scratch_buffer", "get_resource"):
            return method

        def recorded(*arguments: Any) -> Any:
            array = method(*arguments)
            self._arrays.append(array)
            return array

        return recorded


def _recording(registration: Registration, arrays: Arrays) -> Registration:
    """The registration with phases that see a recording context."""

    def wrapped(phase: Callable[..., Any] | None) -> Callable[..., Any] | None:
        if phase is None:
            return None

        def call(context: KernelContext, node: Any) -> Any:
            answer = phase(_Recorded(context, arrays), node)
            if isinstance(node, Node):
                arrays.extend(node.persistent.values())
            return answer

        return call

    phases = {name: wrapped(getattr(registration, name)) for name in ("init", "prepare", "bind", "invoke", "reset")}
    return replace(registration, **phases)  # type: ignore[arg-type]


class _Instance:
    """An interpreter whose arena was filled with a byte."""

    def __init__(self, registration: Registration, case: Case, filling: int):
        self.filling = filling
        self.model = Model(case.data)
        self.bytes = np.full(ARENA_BYTES, filling, np.uint8)
        self.arrays: Arrays = []
        recording = _recording(registration, self.arrays)
        self.interpreter = MicroInterpreter(self.model, _resolver(recording), self.bytes, delegates=())
        self.interpreter.allocate_tensors()
        operator = (self.model.subgraphs[0].operators or [])[0]
        tensors = self.interpreter.eval_tensors()
        self.inputs = [tensors[i].elements for i in operator.inputs or () if i >= 0]
        self.outputs = [tensors[i].elements for i in operator.outputs or ()]
        tables = self.model.subgraphs[0].tensors or []
        variables = [t.elements for t, table in zip(tensors, tables) if table.is_variable]
        self.writable = [*self.outputs, *variables]
        scratch = [b.place for b in self.interpreter.planned_buffers() if b.kind == "scratch"]
        self.scratch = [self.bytes[place.offset : place.end] for place in scratch]

    def invoke(self, inputs: Arrays) -> tuple[Arrays, npt.NDArray[np.bool_]]:
        """The outputs of an invoke, and which bytes of the arena it changed without being allowed to."""
        for array in (*self.outputs, *self.scratch):
            array.view(np.uint8)[...] = self.filling
        for index, array in enumerate(inputs):
            self.interpreter.input(index).data[...] = array
        before = self.bytes.copy()
        self.interpreter.invoke()
        changed = before != self.bytes
        for array in (*self.writable, *self.scratch, *self.arrays):
            start = array.ctypes.data - self.bytes.ctypes.data
            if 0 <= start < ARENA_BYTES:
                changed[start : start + array.nbytes] = False
        return [array.copy() for array in self.outputs], changed

    def owner(self, byte: int) -> str:
        """What is at a byte of the arena."""
        buffers = self.interpreter.planned_buffers()
        names = [f"tensor {b.name!r}" for b in buffers if b.place.meets(Place(byte, 1)) and b.kind == "tensor"]
        return " and ".join(names) or "memory that is not its own"


def _resolver(registration: Registration) -> MicroMutableOpResolver:
    resolver = MicroMutableOpResolver(1)
    resolver.add(registration)
    return resolver


class _Run:
    """One kernel and one model."""

    def __init__(self, registration: Registration, oracle: Oracle | Registration | None, case: Case):
        self._registration, self._oracle, self._case = registration, oracle, case
        self._inputs: Arrays = []

    def check(self) -> bool:
        """Whether the kernel accepts the model; raises `CheckFailed` if a rule is broken."""
        instances = self._instances()
        if not instances:
            return False
        first = [self._invoke(instances, inputs) for inputs in self._case.invocations]
        self._check_answers(first)
        for instance in instances:
            instance.interpreter.reset()
        for inputs, expected in zip(self._case.invocations, first):
            self._compare(self._invoke(instances, inputs), expected, "after a reset, the result of the same invoke")
        if not self._registration.shares_state:
            again = self._invoke(instances, self._case.invocations[0])
            self._compare(again, first[0], "without state, the result of a later invoke with the same inputs")
        return True

    def _instances(self) -> list[_Instance]:
        try:
            return [_Instance(self._registration, self._case, filling) for filling in FILLINGS]
        except (OperatorError, ArenaError):
            return []
        except Exception as error:
            self._fail(
                f"the kernel raised {type(error).__name__} in prepare or bind, must raise OperatorError: {error}", error
            )
        return []

    def _invoke(self, instances: list[_Instance], inputs: Arrays) -> Arrays:
        """The outputs, which must be the same in all interpreters."""
        self._inputs = inputs
        answers: list[Arrays] = []
        for instance in instances:
            try:
                outputs, changed = instance.invoke(inputs)
            except Exception as error:
                self._fail(f"the kernel raised {type(error).__name__} in an invoke: {error}", error)
            if changed.any():
                byte = int(np.flatnonzero(changed)[0])
                self._fail(f"the kernel wrote to byte {byte} of the arena: {instance.owner(byte)}")
            answers.append(outputs)
        for other in answers[1:]:
            self._compare(other, answers[0], "with other bytes in the memory before, the result")
        return answers[0]

    def _check_answers(self, answers: list[Arrays]) -> None:
        if self._oracle is None:
            return
        model = Model(self._case.data)
        expected: Sequence[Sequence[npt.ArrayLike]]
        if isinstance(self._oracle, Registration):
            instance = _Instance(self._oracle, self._case, 0)
            expected = [instance.invoke(inputs)[0] for inputs in self._case.invocations]
        else:
            count = len((model.subgraphs[0].operators or [])[0].inputs or ())
            expected = [self._oracle(model, inputs[:count]) for inputs in self._case.invocations]
        for inputs, answer, correct in zip(self._case.invocations, answers, expected):
            self._inputs = inputs
            self._compare(answer, correct, "the result", FLOAT_TOLERANCE, "the oracle's")

    def _compare(
        self,
        answers: Sequence[npt.ArrayLike],
        expected: Sequence[npt.ArrayLike],
        what: str,
        tolerance: float = 0,
        whose: str = "the first",
    ) -> None:
        for index, (answer, correct) in enumerate(zip(map(np.asarray, answers), map(np.asarray, expected))):
            if answer.shape != correct.shape:
                self._fail(f"{what} has shape {list(answer.shape)}, {whose} has {list(correct.shape)}")
            if answer.dtype.kind == "f":
                same = np.isclose(answer, correct, tolerance, tolerance, equal_nan=True)
            else:
                same = answer == correct
            if not same.all():
                place = tuple(np.argwhere(~same)[0].tolist())
                self._fail(
                    f"{what} differs: output {index}{list(place)} is {answer[place]}, {whose} is {correct[place]}"
                )

    def _fail(self, invariant: str, cause: Exception | None = None) -> None:
        lines = [f"{self._registration.name}: {self._case.description}"]
        lines += [f"input {i}: {array.tolist()}" for i, array in enumerate(self._inputs[:-1])]
        raise CheckFailed(invariant, "\n".join(lines)) from cause
