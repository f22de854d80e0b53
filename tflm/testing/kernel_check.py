"""Check that a kernel obeys the rules of the arena and computes the expected results."""

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
from tflm.schema import BuiltinOperator, Operator, SubGraph, Tensor, TensorType
from tflm.schema.model import Model
from tflm.testing.counterexample import EXAMPLES, check_examples
from tflm.testing.models import COMMON_TYPES, Case, single_operator_models
from tflm.testing.operators import OPERATORS

Arrays = list[npt.NDArray[Any]]

Oracle = Callable[[Model, Arrays], Sequence[npt.ArrayLike]]
"""The outputs of a model's operator, from the model and the operator's inputs."""

ARENA_BYTES = 1 << 16
MARGIN_BYTES = 1 << 10
"""Memory before and after the arena, which no kernel may write either."""

LAYOUTS = ((0x00, "greedy"), (0xA5, "linear"), (0x5A, "greedy"))
"""For each interpreter: the bytes that fill the arena, outputs and scratch buffers before an invoke; and its planner.
The linear planner puts outputs after inputs, the greedy one before them."""

FLOAT_TOLERANCE = 1e-5

RESETS = 3
"""Times that the invokes of a case are repeated."""

RESOURCE_OPERATORS = frozenset({"ASSIGN_VARIABLE", "READ_VARIABLE", "VAR_HANDLE"})

RUNS_ONCE = "CALL_ONCE"
"""Runs its subgraph in the first invoke alone, also after a reset."""


def check_kernel(
    registration: Registration,
    oracle: Oracle | Registration | None = None,
    *,
    models: st.SearchStrategy[Case] | None = None,
    max_examples: int = EXAMPLES,
) -> None:
    """Check a kernel on random models of one operator.

    An invoke writes nothing but the operator's outputs, scratch buffers, variables and persistent memory. It writes
    every element of the outputs, and its result does not depend on what the memory held before, or on other
    interpreters. After a reset the kernel repeats its results, unless the model has CALL_ONCE, which a reset does not
    run again; without state, it repeats them in every invoke. Unsupported models are rejected with `OperatorError` in
    `prepare`, unsupported elements of inputs in an invoke, which a registration as oracle must then reject too.
    Integers equal those of the oracle; floats agree to 1e-5. Neither where tensors are in the arena nor the inputs of
    earlier invokes change a result.

    Args:
        registration: the kernel.
        oracle: what it should compute: another registration of the operator, or a function of the model and the
            operator's inputs that returns the outputs. The default is the package's kernel of a builtin operator.
        models: models of this operator. If there are others, they are the package's, and the outputs of the model are
            compared. The default are models of the package's operator of that name, and models with one to three inputs
            that have the shape and type of the output.
        max_examples: number of models to try, of each kind.

    Raises:
        CheckFailed: with the smallest model that was found.
        ArgumentError: the kernel rejected every model.
    """
    if oracle is None and isinstance(registration.operator, BuiltinOperator):
        oracle = REGISTRATIONS[registration.name]
    kinds = _default_models(registration) if models is None else [models]
    accepted: list[Case] = []

    def examine(case: Case) -> None:
        if _Run(registration, oracle, case).check():
            accepted.append(case)

    for strategy in kinds:
        check_examples(strategy, examine, max_examples)
    if not accepted:
        raise ArgumentError(f"{registration.name} rejected every model; pass models= with models that it supports")


def _default_models(registration: Registration) -> list[st.SearchStrategy[Case]]:
    types = registration.types or COMMON_TYPES
    like_output = st.sampled_from([1, 1, 2, 3]).flatmap(
        lambda n: single_operator_models(registration.operator, types, inputs=n)
    )
    if registration.name not in OPERATORS:
        return [like_output]
    return [OPERATORS[registration.name].map(lambda case: _described(*case)), like_output]


def _described(data: bytes, invocations: list[Arrays]) -> Case:
    """The case with a second invoke, if it has one only, and a description of the tensors."""
    if len(invocations) == 1:
        invocations = [*invocations, [_reversed(array) for array in invocations[0]]]
    tensors = Model(data).subgraphs[0].tensors or []
    return Case(data, invocations, ", ".join(_tensor_text(tensor) for tensor in tensors))


def _reversed(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The elements in reverse order, unless they may be indices or sizes."""
    is_data = array.dtype.kind in "fb" or array.dtype.itemsize == 1
    return array.reshape(-1)[::-1].reshape(array.shape) if is_data else array


def _tensor_text(tensor: Tensor) -> str:
    shape = [] if tensor.shape is None else list(tensor.shape)
    return f"{tensor.name} {TensorType(tensor.type).name} {shape}"


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
                arrays.extend(a for a in (*node.persistent.values(), node.op_data) if isinstance(a, np.ndarray))
            return answer

        return call

    phases = {name: wrapped(getattr(registration, name)) for name in ("init", "prepare", "bind", "invoke", "reset")}
    return replace(registration, **phases)  # type: ignore[arg-type]


class _Instance:
    """An interpreter whose arena was filled with a byte."""

    def __init__(self, registration: Registration, case: Case, filling: int, planner: str = "greedy"):
        self.filling = filling
        self.model = Model(case.data)
        self.memory = np.full(ARENA_BYTES + 2 * MARGIN_BYTES, filling, np.uint8)
        self.bytes = self.memory[MARGIN_BYTES:-MARGIN_BYTES]
        self.arrays: Arrays = []
        resolver = _resolver(self.model, registration, self.arrays)
        self.interpreter = MicroInterpreter(self.model, resolver, self.bytes, planner=planner, delegates=())
        self.interpreter.allocate_tensors()
        tensors = self.interpreter.eval_tensors()
        self.outputs = [tensors[i].elements for i in _compared_tensors(self.model, registration)]
        self.writable = [tensors[i].elements for i in _written_tensors(self.model)]
        self.scratch = [
            self.bytes[buffer.place.offset : buffer.place.end]
            for buffer in self.interpreter.planned_buffers()
            if buffer.kind == "scratch" or (buffer.tensor or 0) >= len(tensors)
        ]

    def invoke(self, inputs: Arrays) -> tuple[Arrays, npt.NDArray[np.bool_]]:
        """The outputs of an invoke, and which bytes it changed without being allowed to, from the margin on."""
        for array in (a for a in (*self.outputs, *self.scratch) if a.flags.writeable):
            array.reshape(-1).view(np.uint8)[...] = self.filling
        for index, array in enumerate(inputs):
            self.interpreter.input(index).data[...] = array
        before = self.memory.copy()
        with np.errstate(all="ignore"):
            self.interpreter.invoke()
        changed = before != self.memory
        for array in (*self.writable, *self.scratch, *self.arrays):
            start = array.ctypes.data - self.memory.ctypes.data
            if 0 <= start < self.memory.size:
                changed[start : start + array.nbytes] = False
        return [array.copy() for array in self.outputs], changed

    def owner(self, byte: int) -> str:
        """Return the owner of a byte of the arena."""
        buffers = self.interpreter.planned_buffers()
        names = [f"tensor {b.name!r}" for b in buffers if b.place.meets(Place(byte, 1)) and b.kind == "tensor"]
        return " and ".join(names) or "memory that is not its own"


def _names(model: Model) -> set[str]:
    return {model.operator_name(operator) for subgraph in model.subgraphs for operator in _operators(subgraph)}


def _operators(subgraph: SubGraph) -> list[Operator]:
    return subgraph.operators or []


def _resolver(model: Model, registration: Registration, arrays: Arrays) -> MicroMutableOpResolver:
    """The kernel, and the package's other operators that the model needs; `arrays` are those that they get."""
    names = _names(model)
    resolver = MicroMutableOpResolver(len(names) + 1)
    resolver.add(_recording(registration, arrays))
    for name in names - {registration.name}:
        resolver.add(_recording(REGISTRATIONS[name], arrays))
    return resolver


def _compared_tensors(model: Model, registration: Registration) -> list[int]:
    """The outputs of the only operator, or else those of the model, unless an invoke may end before it writes them."""
    main = model.subgraphs[0]
    if len(_operators(main)) == 1:
        return list(_operators(main)[0].outputs or ())
    if registration.ends_invoke:
        return []
    return [index for index in main.outputs or () if index not in (main.inputs or ())]


def _written_tensors(model: Model) -> list[int]:
    """The tensors of the first subgraph that operators write."""
    main = model.subgraphs[0]
    outputs = {index for operator in _operators(main) for index in operator.outputs or ()}
    return [index for index, tensor in enumerate(main.tensors or []) if tensor.is_variable or index in outputs]


def _has_variables(model: Model) -> bool:
    has_resources = not _names(model).isdisjoint(RESOURCE_OPERATORS)
    tensors = (tensor for subgraph in model.subgraphs for tensor in subgraph.tensors or [])
    return has_resources or any(tensor.is_variable for tensor in tensors)


class _Rejected(Exception):
    """A kernel does not support the elements of an input."""


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
        try:
            self._check_invokes(instances)
        except _Rejected:
            self._check_rejection()
            return False
        return True

    def _check_invokes(self, instances: list[_Instance]) -> None:
        first = [self._invoke(instances, inputs) for inputs in self._case.invocations]
        correct = self._correct_answers()
        if correct is not None:
            self._compare_all(first, correct[0], "the result")
        for _ in range(RESETS):
            for instance in instances:
                instance.interpreter.reset()
            repeated = [self._invoke(instances, inputs) for inputs in self._case.invocations]
            if RUNS_ONCE in _names(instances[0].model):
                if correct is not None:
                    self._compare_all(repeated, correct[-1], "after a reset, the result")
                continue
            for inputs, answers, expected in zip(self._case.invocations, repeated, first):
                self._inputs = inputs
                self._compare(answers, expected, "after a reset, the result of the same invoke")
        if not (self._registration.shares_state or _has_variables(instances[0].model)):
            again = self._invoke(instances, self._case.invocations[0])
            self._compare(again, first[0], "without state, the result of a later invoke with the same inputs")

    def _check_rejection(self) -> None:
        """The oracle rejects the inputs too."""
        if not isinstance(self._oracle, Registration):
            return
        instance = _Instance(self._oracle, self._case, 0)
        try:
            for inputs in self._case.invocations:
                instance.invoke(inputs)
        except OperatorError:
            return
        self._fail("the kernel raised OperatorError in an invoke, the oracle does not")

    def _instances(self) -> list[_Instance]:
        try:
            return [_Instance(self._registration, self._case, *layout) for layout in LAYOUTS]
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
            except OperatorError as error:
                raise _Rejected from error
            except Exception as error:
                self._fail(f"the kernel raised {type(error).__name__} in an invoke: {error}", error)
            if changed.any():
                byte = int(np.flatnonzero(changed)[0]) - MARGIN_BYTES
                self._fail(f"the kernel wrote to byte {byte} of the arena: {instance.owner(byte)}")
            answers.append(outputs)
        for other in answers[1:]:
            self._compare(other, answers[0], "with other bytes in the memory before, the result")
        return answers[0]

    def _correct_answers(self) -> list[Sequence[Sequence[npt.ArrayLike]]] | None:
        """Return the oracle's results, and those after a reset if the oracle is a registration and they differ; None
        without an oracle."""
        if self._oracle is None:
            return None
        if isinstance(self._oracle, Registration):
            instance = _Instance(self._oracle, self._case, 0)
            answers: list[Sequence[Sequence[npt.ArrayLike]]] = []
            for _ in range(2 if RUNS_ONCE in _names(instance.model) else 1):
                answers.append([instance.invoke(inputs)[0] for inputs in self._case.invocations])
                instance.interpreter.reset()
            return answers
        model = Model(self._case.data)
        count = len(_operators(model.subgraphs[0])[0].inputs or ())
        with np.errstate(all="ignore"):
            return [[self._oracle(model, inputs[:count]) for inputs in self._case.invocations]]

    def _compare_all(self, answers: Sequence[Arrays], correct: Sequence[Sequence[npt.ArrayLike]], what: str) -> None:
        for inputs, answer, expected in zip(self._case.invocations, answers, correct):
            self._inputs = inputs
            self._compare(answer, expected, what, FLOAT_TOLERANCE, "the oracle's")

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
        lines += [f"input {i}: {array.tolist()}" for i, array in enumerate(self._inputs)]
        raise CheckFailed(invariant, "\n".join(lines)) from cause
