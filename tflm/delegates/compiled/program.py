"""Programs: sequences of operators' steps that compiled code runs without returning to Python."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from types import FrameType
from typing import Any

import numpy as np
import numpy.typing as npt

from tflm.compiler import background
from tflm.compiler.language import ABORTED, DONE, Int64s, Kernel, Step, emitted
from tflm.compiler.machine_code import addresses, known_addresses, known_count, unknown
from tflm.compiler.methods import bind_method, call_entry, has_interpreter_lock, words_of
from tflm.delegates.compiled.team import KERNELS as TEAM_KERNELS
from tflm.delegates.compiled.team import Team, run_together
from tflm.kernels.node import InvokeAborted
from tflm.kernels.registration import Run

BYTES_OF_A_SHORT_PROGRAM = 1 << 16
"""Minimum size of a program's arrays, in bytes, for which the interpreter lock is released. Smaller programs finish
before another thread could take it."""


@emitted
def run_steps(builder: Any, first: int, last: int, program: Int64s) -> None:
    """Run the steps from `first` to `last`. Return 0, or 4 times the index of the step that failed, plus its status.

    It is written in LLVM IR: every program needs it, and numba takes half a second to start.

    Args:
        builder: builder of the kernel.
        first, last: indices of steps.
        program: for each step, the addresses of its kernel's entry and of its arguments.
    """
    from llvmlite import ir

    integer = ir.IntType(64)
    start = builder.block
    head, body, following, failed, end = (builder.append_basic_block() for _ in range(5))
    builder.branch(head)
    builder.position_at_end(head)
    step = builder.phi(integer)
    step.add_incoming(first, start)
    builder.cbranch(builder.icmp_signed("<", step, last), body, end)
    builder.position_at_end(body)
    place = builder.gep(program, [builder.shl(step, integer(1))])
    entry, arguments = builder.load(place), builder.load(builder.gep(place, [integer(1)]))
    function = ir.FunctionType(integer, [integer]).as_pointer()
    status = builder.call(builder.inttoptr(entry, function), [arguments])
    builder.cbranch(builder.icmp_signed("==", status, integer(DONE)), following, failed)
    builder.position_at_end(following)
    step.add_incoming(builder.add(step, integer(1)), following)
    builder.branch(head)
    builder.position_at_end(failed)
    builder.ret(builder.add(builder.shl(step, integer(2)), status))
    builder.position_at_end(end)


KEEPS_LOCK, RELEASES_LOCK = call_entry.of(releases_lock=0), call_entry.of(releases_lock=1)
ALWAYS_NEEDED = (run_steps, KEEPS_LOCK, RELEASES_LOCK)


@dataclass
class Operator:
    """An operator in compiled form, and its fallback.

    Attributes:
        steps: calls of kernels; None if numpy runs the operator.
        bind_numpy: binds the numpy kernel, which runs if there are no steps or a step returns `REFUSED`.
        is_interchangeable: whether the numpy kernel has the same result bit for bit, so that it may run until the
            others are compiled.
        threads: number of threads that run steps in parallel.
    """

    steps: Sequence[Step] | None
    bind_numpy: Callable[[], Run]
    is_interchangeable: bool = True
    threads: int = 1
    _numpy: Run | None = field(default=None, init=False)

    @property
    def kernels(self) -> list[Kernel]:
        """The kernels that the operator needs."""
        if self.steps is None:
            return []
        return [*ALWAYS_NEEDED, *(TEAM_KERNELS if self.has_bands else ()), *(step.kernel for step in self.steps)]

    @property
    def has_bands(self) -> bool:
        """Whether threads share the operator."""
        return self.threads > 1 and any(step.parallel for step in self.steps or ())

    def numpy(self) -> Run:
        """The numpy kernel, bound on first use."""
        if self._numpy is None:
            self._numpy = self.bind_numpy()
        return self._numpy

    def run_numpy(self) -> None:
        """Run the numpy kernel."""
        self.numpy()()

    def forget_numpy(self) -> None:
        """Release the numpy kernel and its arrays until it is needed again."""
        self._numpy = None


def bind_program(operators: Sequence[Operator]) -> Run:
    """Return a function that runs operators in order: `Segment.run` if all of them can be compiled."""
    return bind_available(operators, addresses(kernel for operator in operators for kernel in operator.kernels))


def bind_cached(operators: Sequence[Operator]) -> Run:
    """Do the same as `bind_program` without compiling: numpy runs operators whose kernels are not in the cache.

    Numpy also runs operators that are not interchangeable, so that no result depends on the cache.
    """
    operators = [operator if operator.is_interchangeable else replace(operator, steps=None) for operator in operators]
    kernels = [kernel for operator in operators for kernel in operator.kernels]
    return bind_available(operators, addresses(kernels, compiles=False))


def bind_available(operators: Sequence[Operator], available: dict[Kernel, int]) -> Run:
    """Do the same with these kernels. Operators whose kernels may still be compiled bind the numpy kernel when they
    run."""
    runs = _runs(operators, available)

    def run_all() -> None:
        for run in runs:
            run()

    return runs[0] if len(runs) == 1 else run_all


def _runs(operators: Sequence[Operator], available: dict[Kernel, int]) -> list[Run]:
    runs: list[Run] = []
    for is_compiled, group in itertools.groupby(operators, partial(can_run, available)):
        if is_compiled:
            runs.append(Segment(list(group), available).run)
        else:
            runs.extend(operator.run_numpy if unknown(operator.kernels) else operator.numpy() for operator in group)
    return runs


def can_run(available: dict[Kernel, int], operator: Operator) -> bool:
    """Whether compiled code can run an operator: it has steps, and their kernels can be compiled."""
    return operator.steps is not None and all(kernel in available for kernel in operator.kernels)


class Segment:
    """Steps of consecutive operators. Threads run parallel steps at the same time if they share the operator."""

    def __init__(self, operators: Sequence[Operator], available: dict[Kernel, int]):
        steps = [step for operator in operators for step in operator.steps or ()]
        threads = max((operator.threads for operator in operators if operator.has_bands), default=1)
        self._team = Team(threads, available) if threads > 1 else None
        self._operators, self._available = operators, available
        self._steps = steps  # they own the arrays that the arguments point to
        self._arguments: list[npt.NDArray[np.int64]] = []
        calls = [[self._call(step) for step in self._together(operator.steps or ())] for operator in operators]
        self._ends = np.cumsum([len(each) for each in calls], dtype=np.int64)
        self._program = np.array([call for each in calls for call in each], np.int64)
        self._call_arguments = run_steps.step(first=0, last=len(self._program), program=self._program).arguments
        owned = sum(array.nbytes for step in steps for array in step.owners)
        self._method = RELEASES_LOCK if self._team or owned >= BYTES_OF_A_SHORT_PROGRAM else KEEPS_LOCK
        self._starts: dict[int, Callable[[], int]] = {}
        self.start = self._start_at(0)
        """Runs the steps until one fails; returns what `run_steps` returns."""

    def guarded_start(self, guard: list[FrameType]) -> Callable[[], int] | None:
        """Return the same as `start`, guarded as in `tflm.compiler.methods`; None for a team and without interpreter
        lock."""
        if self._team or not has_interpreter_lock():
            return None
        return self._method_of(words_of(self._available[run_steps], self._call_arguments, guard))

    def _method_of(self, words: npt.NDArray[np.int64]) -> Callable[[], int]:
        self._arguments.append(words)
        return bind_method(self._method, self._available[self._method], words)

    def _start_at(self, first: int) -> Callable[[], int]:
        """Return the same as `start` from a later step."""
        if first not in self._starts:
            run = self._method_of(words_of(self._available[run_steps], [first, *self._call_arguments[1:]]))
            self._starts[first] = partial(self._team.run, run) if self._team else run
        return self._starts[first]

    def _together(self, steps: Sequence[Step]) -> Iterator[list[Step]]:
        """Yield the steps of an operator in order. Those that a team runs at the same time are in one list."""
        group: list[Step] = []
        for step in steps:
            if group and not (step.parallel and self._team):
                yield group
                group = []
            group.append(step)
        if group:
            yield group

    def _call(self, steps: Sequence[Step]) -> tuple[int, int]:
        """Return the addresses of an entry and its arguments that run a step, or several steps at the same time."""
        calls = [(self._available[step.kernel], self._address(step.arguments)) for step in steps]
        if len(calls) == 1 or self._team is None:
            return calls[0]
        parts = self._address([value for call in calls for value in call])
        return self._available[run_together], self._address([self._team.address, parts, len(calls)])

    def _address(self, arguments: Sequence[int]) -> int:
        self._arguments.append(np.array(arguments, np.int64))
        address: int = self._arguments[-1].ctypes.data
        return address

    def run(self) -> None:
        """Run all steps."""
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
            self._operators[refused].run_numpy()
            status = self._start_at(int(self._ends[refused]))()


def bind_unfinished(operators: Sequence[Operator]) -> Run:
    """Returns a function that runs operators in order; waits only for kernels of those that aren't interchangeable."""
    addresses(kernel for operator in operators if not operator.is_interchangeable for kernel in operator.kernels)
    kernels = [kernel for operator in operators for kernel in operator.kernels]
    available = addresses(kernels, compiles=False)
    return UnfinishedProgram(operators).run if unknown(kernels) else bind_available(operators, available)


class UnfinishedProgram:
    """Operators in order. Each runs with numpy until all of its kernels are compiled, and with these from then on.

    Args:
        operators: the operators. Those that lack kernels must be interchangeable.

    Attributes:
        final: what runs the operators once nothing is left to compile; None until then.
    """

    def __init__(self, operators: Sequence[Operator]):
        self.final: Run | None = None
        self._operators = operators
        self._kernels = [kernel for operator in operators for kernel in operator.kernels]
        self._renew()

    def run(self) -> None:
        """Run all operators with the kernels that are compiled by now."""
        if self.final is None and (self._known_count != known_count() or not background.is_at_work()):
            self._renew()
        self._run()

    def _renew(self) -> None:
        self._known_count = known_count()
        missing = unknown(self._kernels)
        background.request(missing)  # again: a fork has to
        available = known_addresses(self._kernels)
        self._run = bind_available(self._operators, available)
        for operator in self._operators:
            if can_run(available, operator):
                operator.forget_numpy()
        if not missing:
            self.final = self._run
