"""Programs: the steps of operators in turn, run by compiled code with no Python in between."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tflm.delegates.compiled.intrinsics import call, call_with_two_arguments, call_without_arguments
from tflm.delegates.compiled.language import ABORTED, DONE, Int64s, Kernel, Step, UInt8s, inlined, kernel
from tflm.delegates.compiled.machine_code import addresses
from tflm.kernels.registration import InvokeAborted, Run
from tflm.runtime.turn import Turn

WORDS_BEFORE_BYTES = (bytes.__basicsize__ - 1) // 8
"""Words of CPython's bytes object that stand before the bytes themselves."""

BYTES_OF_A_SHORT_PROGRAM = 1 << 16
"""A program whose steps own less than this is over before another thread could be told to go on."""

BUSY = -1


@inlined
def status_of(program: Int64s, first: int, last: int) -> int:
    """Run steps: 0, or 4 times the place of the one that did not end well, and its status."""
    for step in range(first, last):
        status = call(program[2 * step], program[2 * step + 1])
        if status != DONE:
            return 4 * step + status
    return DONE


@kernel
def run_steps(
    _count: int,
    _type: int,
    _size: int,
    _hash: int,
    program: Int64s,
    first: Int64s,
    last: int,
    save_thread: int,
    restore_thread: int,
    new_integer: int,
) -> int:
    """A method of a bytes object: run the steps from first[0], which is set back to 0, to `last`; gives the status.

    The first parameters are the head of that object. Where there is `save_thread`, other threads of Python may run
    meanwhile.
    """
    begin, first[0] = first[0], 0
    if save_thread:
        state = call_without_arguments(save_thread)
        status = status_of(program, begin, last)
        call(restore_thread, state)
    else:
        status = status_of(program, begin, last)
    return call(new_integer, status)


@kernel
def invoke_steps(
    _count: int,
    _type: int,
    _size: int,
    _hash: int,
    program: Int64s,
    last: int,
    busy: UInt8s,
    save_thread: int,
    restore_thread: int,
    new_integer: int,
    call_function: int,
    otherwise: int,
    increment: int,
    none: int,
) -> int:
    """A method of a bytes object: run all steps, unless busy[0] is set, which it is meanwhile; gives None.

    Where it is set, or a step does not end well, the answer is that of the Python function `otherwise`, which is given
    `BUSY` or the status.
    """
    if busy[0]:
        return call_with_two_arguments(call_function, otherwise, call(new_integer, BUSY))
    busy[0] = 1
    if save_thread:
        state = call_without_arguments(save_thread)
        status = status_of(program, 0, last)
        call(restore_thread, state)
    else:
        status = status_of(program, 0, last)
    if status != DONE:
        none = call_with_two_arguments(call_function, otherwise, call(new_integer, status))
    else:
        call(increment, none)
    busy[0] = 0
    return none


@dataclass
class Operator:
    """What runs an operator.

    Attributes:
        steps: calls of kernels; None where numpy runs it.
        bind_numpy: binds the numpy kernel, where that is needed: there are no steps, or one of them refuses.
    """

    steps: Sequence[Step] | None
    bind_numpy: Callable[[], Run]
    _numpy: Run | None = field(default=None, init=False)

    def run_numpy(self) -> None:
        """Run the numpy kernel."""
        if self._numpy is None:
            self._numpy = self.bind_numpy()
        self._numpy()


class Program:
    """Operators in turn. Called, it runs them all."""

    def __init__(self, operators: Sequence[Operator]):
        available = addresses([run_steps, *(step.kernel for operator in operators for step in operator.steps or ())])
        self._runs: list[Run] = []
        segment: list[Operator] = []
        for operator in operators:
            if _can_run(operator, available):
                segment.append(operator)
                continue
            if segment:
                self._runs.append(Segment(segment, available))
                segment = []
            self._runs.append(operator.bind_numpy())
        if segment:
            self._runs.append(Segment(segment, available))

    def __call__(self) -> None:
        for run in self._runs:
            run()

    @property
    def sole_segment(self) -> Segment | None:
        """The segment that is all there is to run; None where there is more."""
        segment = self._runs[0] if len(self._runs) == 1 else None
        return segment if isinstance(segment, Segment) else None


def _can_run(operator: Operator, available: dict[Kernel, int]) -> bool:
    """Whether compiled code can run an operator: it has steps, and their kernels could be compiled."""
    steps = operator.steps
    return steps is not None and run_steps in available and all(step.kernel in available for step in steps)


class Segment:
    """Steps of operators in turn. Called, it runs them all."""

    def __init__(self, operators: Sequence[Operator], available: dict[Kernel, int]):
        steps = [step for operator in operators for step in operator.steps or ()]
        self._operators = operators
        self._ends = np.cumsum([len(operator.steps or ()) for operator in operators], dtype=np.int64)
        self._arguments = [np.array(step.arguments, np.int64) for step in steps]
        calls = [(available[step.kernel], of.ctypes.data) for step, of in zip(steps, self._arguments)]
        self._program = np.array(calls, np.int64)
        self._first = np.zeros(1, np.int64)
        owned = sum(array.nbytes for step in steps for array in step.owners)
        api = ctypes.pythonapi
        self._threads = {
            "save_thread": address_of(api.PyEval_SaveThread) if owned >= BYTES_OF_A_SHORT_PROGRAM else 0,
            "restore_thread": address_of(api.PyEval_RestoreThread),
            "new_integer": address_of(api.PyLong_FromLongLong),
        }
        self._run_steps: Callable[[], int] = python_function(
            run_steps.step(
                **NO_HEAD, program=self._program, first=self._first, last=len(self._program), **self._threads
            ),
            available[run_steps],
        )

    def __call__(self) -> None:
        status = self._run_steps()
        while status:
            status = self._resume_after(status)

    def direct(self, turn: Turn) -> Run | None:
        """The same without anything around it, that takes its turn by itself.

        None where Python lacks what it calls, or `invoke_steps` can't be compiled.
        """
        api = ctypes.pythonapi
        call_function = getattr(api, "PyObject_CallOneArg", None)  # Python 3.10 has it in its headers alone
        address = addresses([invoke_steps]).get(invoke_steps)
        if call_function is None or address is None:
            return None

        def otherwise(status: int) -> None:
            if status == BUSY:
                raise turn.refusal("invoke")
            try:
                with np.errstate(all="ignore"):
                    while status:
                        status = self._resume_after(status)
            except InvokeAborted:
                return

        busy = (ctypes.c_uint8 * 1).from_buffer(turn.flag)
        arguments = invoke_steps.step(
            **NO_HEAD,
            program=self._program,
            last=len(self._program),
            busy=ctypes.addressof(busy),
            **self._threads,
            call_function=address_of(call_function),
            otherwise=id(otherwise),
            increment=address_of(api.Py_IncRef),
            none=id(None),
        )
        return python_function(arguments, address, self, otherwise, busy)

    def _resume_after(self, status: int) -> int:
        """Go on behind a step that did not end well; gives the next status."""
        place, status = divmod(status, 4)
        if status == ABORTED:
            raise InvokeAborted
        refused = int(np.searchsorted(self._ends, place, "right"))
        self._operators[refused].run_numpy()
        self._first[0] = self._ends[refused]
        return self._run_steps()


# --- Functions of Python over machine code -----------------------------------------------------------------------


class _MethodDefinition(ctypes.Structure):
    """PyMethodDef."""

    _fields_ = [
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    ]


class _Words(bytes):
    """The arguments of a kernel, and whatever must live as long as they do."""

    owners: Any


NO_ARGUMENTS = 4
"""METH_NOARGS."""

NO_HEAD = {"_count": 0, "_type": 0, "_size": 0, "_hash": 0}
"""The head of a bytes object is there when a method of it runs."""

_definitions: dict[int, _MethodDefinition] = {}


def python_function(arguments: Step, address: int, *owners: object) -> Callable[[], Any]:
    """A function of Python without arguments over a kernel whose first parameters are the head of a bytes object.

    What the kernel returns is the address of a Python object.
    """
    words = _Words(np.array(arguments.arguments[WORDS_BEFORE_BYTES:], np.int64).tobytes())
    words.owners = arguments, owners
    definition = _definitions.setdefault(
        address, _MethodDefinition(arguments.kernel.name.encode(), address, NO_ARGUMENTS, None)
    )
    new = ctypes.pythonapi.PyCFunction_NewEx
    new.restype, new.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p)
    function: Callable[[], Any] = new(ctypes.byref(definition), words, None)
    return function


def address_of(function: Any) -> int:
    """The address of a C function."""
    return ctypes.cast(function, ctypes.c_void_p).value or 0
