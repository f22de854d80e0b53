"""Runs samples with one interpreter per thread; the threads of a process share the model."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from tflm.errors import DataError, DeviceError, DeviceReset, TflmError
from tflm.evaluation.input_files import ClipInput, ReferenceInput, Units
from tflm.evaluation.samples import Sample, SampleBatch
from tflm.memory.tensor import TfLiteTensor
from tflm.runtime.growing_arena import ready_interpreter
from tflm.runtime.micro_op_resolver import AllOpsResolver
from tflm.schema.model import Model


class Runnable(Protocol):
    """An interpreter or a device that runs a model, with the methods of `MicroInterpreter`."""

    def inputs_size(self) -> int:
        """The number of inputs."""

    def outputs_size(self) -> int:
        """The number of outputs."""

    def input(self, index: int) -> TfLiteTensor:
        """An input."""

    def output(self, index: int) -> TfLiteTensor:
        """An output."""

    def get_tensor(self, tensor_index: int) -> TfLiteTensor:
        """Any tensor of the first subgraph."""

    def invoke(self) -> None:
        """Run the model once."""

    def reset(self) -> None:
        """Reset the state to that before the first invoke."""


def inputs_of(interpreter: Runnable) -> list[TfLiteTensor]:
    """The inputs, in order."""
    return [interpreter.input(i) for i in range(interpreter.inputs_size())]


def outputs_of(interpreter: Runnable) -> list[TfLiteTensor]:
    """The outputs, in order."""
    return [interpreter.output(i) for i in range(interpreter.outputs_size())]


TRIES = 3
"""How often a sample is started before a device that is reset each time is given up."""


class Outcome(NamedTuple):
    """The result of a sample: its outputs or an error, and its label."""

    name: str
    outputs: list[npt.NDArray[Any]] | None
    reason: str
    label: Any


@dataclass(frozen=True)
class Job:
    """A model and how to run it; the same in every worker.

    Attributes:
        model: its bytes.
        settings: arguments of the interpreter.
    """

    model: bytes
    settings: tuple[tuple[str, Any], ...] = ()
    key: str = field(default="", compare=False)

    @classmethod
    def of(cls, model: Model, **settings: Any) -> Job:
        """The job of running this model."""
        data = bytes(model.data)
        return cls(data, tuple(settings.items()), hashlib.sha256(data).hexdigest() + repr(settings))


_local = threading.local()


def runner_of(job: Job) -> Runner:
    """This thread's runner of a job, made once."""
    made: dict[str, Runner] = _local.__dict__.setdefault("runners", {})
    if job.key not in made:
        made.clear()  # a thread works on one job at a time
        made[job.key] = Runner(Model(job.model), **dict(job.settings))
    return made[job.key]


class Runner:
    """An interpreter with views of its inputs and outputs.

    Attributes:
        interpreter: an allocated interpreter.
        inputs, outputs: the model's tensors. With `units`, integers for a float input are dequantized with these.
    """

    def __init__(self, model: Model, units: Sequence[Units] = (), *, device: Runnable | None = None, **settings: Any):
        self.interpreter: Runnable = device or ready_interpreter(model, **settings)
        self.inputs, self.outputs = inputs_of(self.interpreter), outputs_of(self.interpreter)
        self._given = [np.asarray(tensor.data, tensor.data.dtype) for tensor in self.inputs]
        self._got = [np.asarray(tensor.data, tensor.data.dtype) for tensor in self.outputs]
        self._remembers = has_state(model)
        if len(units) == len(self.inputs):
            self.inputs = list(map(ReferenceInput, self.inputs, units))
        elif self._remembers:
            self.inputs = list(map(ClipInput, self.inputs))

    def run(self, sample: Sample, after_step: Callable[[], None] | None = None) -> Outcome:
        """The outputs of the last step of a sample. State is kept from step to step, and reset before the first.

        Args:
            after_step: called after each step.

        Raises:
            DeviceError: a device does not answer, or resets each time.
        """
        for left in reversed(range(TRIES)):
            try:
                self._run_steps(sample, after_step)
                break
            except DeviceReset:
                if not left:
                    raise
            except DeviceError:
                raise
            except TflmError as error:
                return Outcome(sample.name, None, f"{sample.name}: {error}", sample.label)
        return Outcome(sample.name, [got.copy() for got in self._got], "", sample.label)

    def _run_steps(self, sample: Sample, after_step: Callable[[], None] | None) -> None:
        if self._remembers:
            self.interpreter.reset()
        for step in sample.steps:
            for given, values in zip(self._given, step):
                given[...] = values
            self.interpreter.invoke()
            if after_step is not None:
                after_step()


def has_state(model: Model) -> bool:
    """Whether the model has state that outlives an invoke."""
    resolver = AllOpsResolver()
    if any(tensor.is_variable for subgraph in model.subgraphs for tensor in subgraph.tensors or ()):
        return True
    registrations = (resolver.find_op(code) for code in model.operator_codes)
    return any(registration.reset is not None or registration.shares_state for registration in registrations)


def run_part(job: Job, part: SampleBatch) -> list[Outcome]:
    """Run the samples of a part, in order."""
    return list(outcomes_of(runner_of(job), part))


def outcomes_of(runner: Runner, part: SampleBatch) -> Iterator[Outcome]:
    """Run the samples of a part one by one."""
    for sample in part.samples(runner.inputs):
        yield Outcome("", None, str(sample), None) if isinstance(sample, DataError) else runner.run(sample)
