"""Programs: sequences of operators' steps, run by compiled code without Python in between."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from tflm.compiler.intrinsics import call
from tflm.compiler.language import ABORTED, DONE, Int64s, Kernel, Step, kernel
from tflm.compiler.machine_code import addresses
from tflm.compiler.methods import bind_method, call_entry
from tflm.kernels.node import InvokeAborted
from tflm.kernels.registration import Run

BYTES_OF_A_SHORT_PROGRAM = 1 << 16
"""A program whose steps own fewer bytes finishes before another thread could take the interpreter lock."""


@kernel
def run_steps(first: int, last: int, program: Int64s) -> int:
    """Run the steps from `first` to `last`: 0, or 4 times the index of the one that failed, plus its status.

    Args:
        program: for each step the address of its kernel's entry, and that of its arguments.
    """
    for step in range(first, last):
        status = call(program[2 * step], program[2 * step + 1])
        if status != DONE:
            return 4 * step + status
    return DONE


KEEPS_LOCK, RELEASES_LOCK = call_entry.of(releases_lock=0), call_entry.of(releases_lock=1)
ALWAYS_NEEDED = (run_steps, KEEPS_LOCK, RELEASES_LOCK)


@dataclass
class Operator:
    """An operator in compiled form, and its fallback.

    Attributes:
        steps: calls of kernels; None if numpy runs the operator.
        bind_numpy: binds the numpy kernel, which runs if there are no steps or a step returns `REFUSED`.
    """

    steps: Sequence[Step] | None
    bind_numpy: Callable[[], Run]
    _numpy: Run | None = field(default=None, init=False)

    def run_numpy(self) -> None:
        """Run the numpy kernel."""
        if self._numpy is None:
            self._numpy = self.bind_numpy()
        self._numpy()


def bind_program(operators: Sequence[Operator], compiles: bool) -> Run:
    """Returns a function that runs operators in order: `Segment.run` if all of them are compiled.

    Args:
        operators: the operators.
        compiles: whether to compile kernels that are not in the cache; if not, numpy runs their operators.
    """
    kernels = (step.kernel for operator in operators for step in operator.steps or ())
    available = addresses([*ALWAYS_NEEDED, *kernels], compiles)
    runs: list[Run] = []
    for is_compiled, group in itertools.groupby(operators, partial(_can_run, available)):
        if is_compiled:
            runs.append(Segment(list(group), available).run)
        else:
            runs.extend(operator.bind_numpy() for operator in group)

    def run_all() -> None:
        for run in runs:
            run()

    return runs[0] if len(runs) == 1 else run_all


def _can_run(available: dict[Kernel, int], operator: Operator) -> bool:
    """Whether compiled code can run an operator: it has steps, and their kernels compile."""
    steps = operator.steps
    needed = [*ALWAYS_NEEDED, *(step.kernel for step in steps or ())]
    return steps is not None and all(kernel in available for kernel in needed)


class Segment:
    """Steps of operators in turn."""

    def __init__(self, operators: Sequence[Operator], available: dict[Kernel, int]):
        steps = [step for operator in operators for step in operator.steps or ()]
        self._operators = operators
        self._ends = np.cumsum([len(operator.steps or ()) for operator in operators], dtype=np.int64)
        self._arguments = [np.array(step.arguments, np.int64) for step in steps]
        self._steps = steps  # which own the arrays that the arguments point to
        self._program = np.array(
            [(available[step.kernel], of.ctypes.data) for step, of in zip(steps, self._arguments)], np.int64
        )
        call = run_steps.step(first=0, last=len(steps), program=self._program)
        words = np.array([available[run_steps], *call.arguments], np.int64)
        self._first = words[1:2]
        owned = sum(array.nbytes for step in steps for array in step.owners)
        method = RELEASES_LOCK if owned >= BYTES_OF_A_SHORT_PROGRAM else KEEPS_LOCK
        self.start: Callable[[], int] = bind_method(method, available[method], words)
        """Runs the steps until one fails; returns what `run_steps` returns."""

    def run(self) -> None:
        """Run them all."""
        status = self.start()
        if status:
            self.finish(status)

    def finish(self, status: int) -> None:
        """Continue after a failed step; if the step returned `REFUSED`, numpy runs its operator."""
        while status:
            place, reason = divmod(status, 4)
            if reason == ABORTED:
                raise InvokeAborted
            refused = int(np.searchsorted(self._ends, place, "right"))
            with np.errstate(all="ignore"):
                self._operators[refused].run_numpy()
            self._first[0] = self._ends[refused]
            try:
                status = self.start()
            finally:
                self._first[0] = 0
