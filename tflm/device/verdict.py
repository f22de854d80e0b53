"""Compare every tensor of a device with the one computed here, and find the first operator that is wrong.

The device computes a checksum of each operator's outputs right after the operator ran, with the memory plan of the
firmware. Tensors are read only where a checksum differs: the invoke is repeated, and pauses there.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np
import numpy.typing as npt

from tflm.device.device import NEVER, OPERATOR, Device
from tflm.firmware.device_check import DeviceFinding, operator_findings
from tflm.libraries import KernelLibrary
from tflm.libraries.kernel_library import REFERENCE, Effect
from tflm.runtime.growing_arena import ready_interpreter
from tflm.runtime.micro_profiler import MicroProfiler
from tflm.schema.enums import TensorType
from tflm.schema.model import Model
from tflm.targets import Target

Array = npt.NDArray[Any]
Arrays = Sequence[Array]
Steps = Sequence[Arrays]

FLOATS = (TensorType.FLOAT16, TensorType.FLOAT32, TensorType.FLOAT64, TensorType.COMPLEX64)

HANDLES = (TensorType.RESOURCE, TensorType.VARIANT)
"""Types of quantized tensors."""

FLOAT_ERROR = 1e-5
"""Largest error of a float, relative to 1 + its magnitude: the order of additions differs between compilers."""


class Status(Enum):
    """The result of a comparison."""

    EQUAL = "equal"
    DOCUMENTED = "differs as documented"
    WRONG = "differs"


@dataclass(frozen=True)
class WrongOperator:
    """The first operator that is wrong.

    Attributes:
        invoke: the number of the invoke, from 0.
        operator_index: its index in the first subgraph.
        operator: its name.
        tensor: name of the tensor that is wrong.
        overwrites: whether it overwrote that tensor, which another operator had made.
        element: index of the first element that differs; None if the tensor could not be read.
        expected: the tensor as computed here.
        received: the tensor of the device; None if it could not be read.
        inputs: the operator's inputs on the device, by name.
        known: what is known about the operator with these kernels.
    """

    invoke: int
    operator_index: int
    operator: str
    tensor: str
    overwrites: bool
    element: int | None
    expected: Array
    received: Array | None
    inputs: dict[str, Array]
    known: tuple[str, ...]


@dataclass(frozen=True)
class Verdict:
    """The result of comparing a device with the results computed here.

    Attributes:
        status: equal, as documented, or neither.
        invokes: number of compared invokes.
        compared: number of operators compared in each invoke; the others have no separate output in memory.
        documented: what the kernel library is known to do differently, if that explains all differences.
        wrong: the first operator that is wrong.
        outputs: of the device, for each invoke.
        ticks: of each operator, for each invoke; `NEVER` if it was not observed.
    """

    status: Status
    invokes: int
    compared: int
    documented: tuple[str, ...]
    wrong: WrongOperator | None
    outputs: list[list[Array]]
    ticks: npt.NDArray[np.uint32]


class _Expected(MicroProfiler):
    """The results of some kernels, computed here one invoke after the other, and compared with those of a device.

    With floats, each operator starts from the device's tensors, so that rounding does not add up.

    Attributes:
        made: the outputs of each operator.
        state: tensors that last over invokes, with the first operator that takes them.
        values: of the outputs of the operator that `follow` returned.
    """

    def __init__(self, model: Model, target: Target, kernels: KernelLibrary):
        super().__init__()
        main = model.subgraphs[0]
        tensors, operators = main.tensors or [], main.operators or []
        self.made = [[i for i in op.outputs or () if i >= 0] for op in operators]
        self.has_floats = any(tensor.type in FLOATS for tensor in tensors)
        self._has_handles = [any(tensors[i].type in HANDLES for i in made) for made in self.made]
        takers = {i: k for k, op in reversed([*enumerate(operators)]) for i in op.inputs or () if i >= 0}
        self.state = {i: k for i, k in takers.items() if tensors[i].is_variable}
        self.values: dict[int, Array] = {}
        self._settings: dict[str, Any] = {"target": target, "kernels": kernels}
        self._model = model
        self.start()
        self._table: npt.NDArray[Any] = np.zeros(0, OPERATOR)
        self._received: Mapping[int, bytes] = {}
        self._wrong: int | None = None

    def start(self) -> None:
        """Begin with the first invoke again."""
        self._interpreter = ready_interpreter(
            self._model, preserve_all_tensors=True, delegates=[], profiler=self, **self._settings
        )

    def follow(self, values: Sequence[Array], table: npt.NDArray[Any], received: Mapping[int, bytes]) -> int | None:
        """Invoke once.

        Args:
            values: the inputs.
            table: ticks and checksum of each operator on the device.
            received: tensors of the device, where floats need them.

        Returns:
            The first operator whose outputs differ; None if all are equal.
        """
        self._table, self._received, self._wrong = table, received, None
        for i, value in enumerate(values):
            self._interpreter.input(i).data[...] = value
        self._interpreter.invoke()
        return self._wrong

    def tensor(self, index: int) -> Array:
        """A tensor after the last invoke."""
        found = self._interpreter.get_tensor(index).data
        return np.array(found, found.dtype)

    def begin_operator(self, tag: str, place: tuple[int, int]) -> int:
        """Called before each operator; returns its index in the first subgraph, or -1."""
        return -1 if place[0] else place[1]

    def end_event(self, event_handle: int) -> None:
        """Called after each operator: compares its outputs."""
        handle = event_handle
        if handle < 0 or handle >= len(self._table) or self._table["ticks"][handle] == NEVER:
            return
        if self._has_handles[handle]:
            return
        made = {i: self.tensor(i) for i in self.made[handle]}
        if self.has_floats:
            received = {i: as_array(self._received[i], made[i]) for i in made if i in self._received}
            is_equal = all(agrees(made[i], received[i]) for i in received)
            for i, values in received.items():
                self._interpreter.get_tensor(i).data[...] = values
        else:
            is_equal = checksum_of(made.values()) == self._table["checksum"][handle]
        if not is_equal and self._wrong is None:
            self._wrong, self.values = handle, made


def checksum_of(tensors: Iterable[Array]) -> int:
    """The CRC-32 of tensors, one after the other."""
    checksum = 0
    for values in tensors:
        checksum = zlib.crc32(values.tobytes(), checksum)
    return checksum


def as_array(data: bytes, like: Array) -> Array:
    """Bytes as an array with the type and shape of another one."""
    return np.frombuffer(data, like.dtype).reshape(like.shape)


def agrees(expected: Array, received: Array) -> bool:
    """Whether two tensors are equal, except for the rounding of floats."""
    return first_difference(expected, received) is None


def first_difference(expected: Array, received: Array) -> int | None:
    """Return the first element that differs, in memory order; None if there is none."""
    if expected.dtype.kind in "fc":
        is_equal = np.isclose(received, expected, FLOAT_ERROR, FLOAT_ERROR, equal_nan=True)
    else:
        is_equal = received == expected
    places = np.flatnonzero(~is_equal)
    return int(places[0]) if places.size else None


@dataclass(frozen=True)
class _Search:
    """The search for the operator that is to blame, in an invoke that is repeated with pauses."""

    device: Device
    expected: _Expected
    steps: Steps
    findings: Sequence[DeviceFinding]

    def culprit(self, operator: int) -> WrongOperator:
        """Return what is wrong with an operator whose outputs differ: the operator, or an earlier one that overwrote
        its inputs."""
        main = self.device.model.subgraphs[0]
        tensors, node = main.tensors or [], (main.operators or [])[operator]
        constants = {i for i, each in enumerate(tensors) if self.device.model.constant(each) is not None}
        taken = [i for i in dict.fromkeys(node.inputs or ()) if i >= 0 and i not in constants]
        state = [i for i in taken if tensors[i].is_variable]
        read = self._repeat({2 * operator: taken, 2 * operator + 1: [*self.expected.made[operator], *state]})
        inputs = {i: self._array(i, read[2 * operator, i]) for i in taken if (2 * operator, i) in read}
        names = {tensors[i].name or str(i): values for i, values in inputs.items()}
        for i, values in inputs.items():
            if i not in state and not agrees(self.expected.tensor(i), values):
                return self._overwriter(i, operator, names)
        for i in [*self.expected.made[operator], *state]:
            wanted = self.expected.values.get(i, self.expected.tensor(i))
            data = read.get((2 * operator + 1, i))
            if data is not None and not agrees(wanted, self._array(i, data)):
                return self._wrong(operator, i, wanted, self._array(i, data), names)
        i = self.expected.made[operator][0]
        return self._wrong(operator, i, self.expected.values.get(i, self.expected.tensor(i)), None, names)

    def _overwriter(self, tensor: int, reader: int, inputs: dict[str, Array]) -> WrongOperator:
        """Return the operator that overwrote a tensor."""
        maker = next((k for k, made in enumerate(self.expected.made) if tensor in made), -1)
        read = self._repeat({2 * k + 1: [tensor] for k in range(max(maker, 0), reader)})
        wanted = self.expected.tensor(tensor)
        for k in range(max(maker, 0), reader):
            data = read.get((2 * k + 1, tensor))
            if data is not None and not agrees(wanted, self._array(tensor, data)):
                values = self._array(tensor, data)
                return self._wrong(k, tensor, wanted, values, {}, k != maker)
        return self._wrong(reader, tensor, wanted, None, inputs, overwrites=True)

    def _repeat(self, reads: dict[int, list[int]]) -> dict[tuple[int, int], bytes]:
        """The last invoke again, after all before it, with pauses."""
        self.device.reset()
        self.expected.start()
        found: dict[tuple[int, int], bytes] = {}
        for values in self.steps:
            found = observed(self.device, self.expected, values, reads if values is self.steps[-1] else {})[1]
        return found

    def _array(self, tensor: int, data: bytes) -> Array:
        return as_array(data, self.expected.tensor(tensor))

    def _wrong(
        self,
        operator: int,
        tensor: int,
        expected: Array,
        received: Array | None,
        inputs: dict[str, Array],
        overwrites: bool = False,
    ) -> WrongOperator:
        main = self.device.model.subgraphs[0]
        found = (main.operators or [])[operator]
        known = [each.happens for each in self.findings if each.operator_index == operator]
        return WrongOperator(
            len(self.steps) - 1,
            operator,
            self.device.model.operator_name(found),
            (main.tensors or [])[tensor].name or str(tensor),
            overwrites,
            None if received is None else first_difference(expected, received),
            expected,
            received,
            inputs,
            tuple(known),
        )


def observed(
    device: Device, expected: _Expected, values: Sequence[Array], more: Mapping[int, Sequence[int]]
) -> tuple[int | None, dict[tuple[int, int], bytes]]:
    """Invoke the device and follow it; the first operator that differs, and the tensors that were read."""
    table, read = invoked(device, expected, values, more)
    return expected.follow(values, table, made_by(read)), read


def invoked(
    device: Device, expected: _Expected, values: Sequence[Array], more: Mapping[int, Sequence[int]]
) -> tuple[npt.NDArray[Any], dict[tuple[int, int], bytes]]:
    """Invoke the device; its table of operators, and the tensors that were read: with floats, all outputs."""
    for i, value in enumerate(values):
        device.input(i).data[...] = value
    reads: dict[int, list[int]] = {place: list(wanted) for place, wanted in more.items()}
    if expected.has_floats:
        for k, made in enumerate(expected.made):
            reads.setdefault(2 * k + 1, []).extend(i for i in made if i not in reads.get(2 * k + 1, ()))
    return device.operators_after(reads)


def made_by(read: Mapping[tuple[int, int], bytes]) -> dict[int, bytes]:
    """The tensors that were read after an operator, by index: of several, the first, right after it was made."""
    return {tensor: data for (place, tensor), data in sorted(read.items(), reverse=True) if place % 2}


def compare(
    device: Device, steps: Steps, *, target: Target, kernels: KernelLibrary, advance: Callable[[], None] = lambda: None
) -> Verdict:
    """Run a device from its first invoke on, and compare each operator with TFLM's results and the library's.

    Args:
        device: the device.
        steps: for each invoke, an array for each input.
        target, kernels: the part and the kernels of the firmware.
        advance: called after each invoke.

    Raises:
        DeviceError: no answer within the limit; the message names the operator that did not end.
    """
    model = device.model
    findings = [
        each
        for each in operator_findings(model, target=target, kernels=kernels)
        if each.effect is Effect.DIFFERS and each.subgraph_index == 0
    ]
    libraries = [REFERENCE, kernels] if any(each.shown for each in findings) else [REFERENCE]
    candidates = [_Expected(model, target, library) for library in libraries]
    wrong: list[tuple[int, int] | None] = [None for _ in candidates]
    outputs: list[list[Array]] = []
    tables: list[npt.NDArray[Any]] = []
    device.reset()
    for number, values in enumerate(steps):
        table, read = invoked(device, candidates[0], values, {})
        tables.append(table)
        outputs.append([device.output(i).data.copy() for i in range(device.outputs_size())])
        for place, expected in enumerate(candidates):
            found = expected.follow(values, table, made_by(read))
            found = _wrong_state(device, expected) if found is None else found
            if wrong[place] is None and found is not None:
                wrong[place] = number, found
        advance()
        if None not in wrong:
            break
    ticks = np.array([table["ticks"] for table in tables], np.uint32)
    compared = int(np.count_nonzero((ticks != NEVER).all(axis=0))) if len(ticks) else 0
    if None in wrong:
        known = tuple(f"{each.operator} {each.operator_index}: {each.happens}" for each in findings if each.shown)
        status, known = (Status.EQUAL, ()) if wrong[0] is None else (Status.DOCUMENTED, known)
        return Verdict(status, len(outputs), compared, known, None, outputs, ticks)
    last = max(each for each in wrong if each is not None)
    search = _Search(device, candidates[wrong.index(last)], steps[: last[0] + 1], findings)
    return Verdict(Status.WRONG, len(outputs), compared, (), search.culprit(last[1]), outputs, ticks)


def _wrong_state(device: Device, expected: _Expected) -> int | None:
    """The first operator whose state differs after an invoke."""
    for tensor, operator in expected.state.items():
        wanted = expected.tensor(tensor)
        if wanted.dtype.kind not in "fc" and device.checksum(tensor) not in (None, checksum_of([wanted])):
            return operator
    return None
