"""A device with the interface of an interpreter: the model runs there, and its tensors are copied here."""

from __future__ import annotations

import struct
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tflm.device.session import MAX_PAYLOAD, Answer, Kind, Session, Status, Transport
from tflm.device.transports import BAUD, wire_to
from tflm.errors import DeviceError, DeviceReset, InterpreterError, WrongModel
from tflm.evaluation.runner import has_state
from tflm.memory.tensor import TfLiteTensor
from tflm.runtime.growing_arena import ready_interpreter
from tflm.schema.model import Model
from tflm.schema.patch import with_data_inside

INVOKE_SECONDS = 60.0
"""Seconds that an invoke may take, unless it is said otherwise."""

REOPEN_SECONDS = 10.0
"""How long a wire that was cut is opened again, as boards with USB are gone while they restart."""

TRIES = 3
"""How often an invoke is started before a device that is reset each time is given up."""

NEVER = 0xFFFFFFFF
"""A position at which no invoke pauses, and a number that the device does not know."""

ANNOUNCES = 1

READ_BYTES = 2048
"""Bytes of one reply with a tensor."""

FACTS = struct.Struct("<8I")
OPERATOR = np.dtype([("ticks", "<u4"), ("checksum", "<u4")])

Bytes = npt.NDArray[np.uint8]


class DataKind(IntEnum):
    """The kinds of data that a device reads and writes."""

    TENSOR = 0
    INPUT = 1
    OUTPUT = 2
    OPERATORS = 3
    MODEL = 4


class Facts(NamedTuple):
    """Facts that a device reports about itself.

    Attributes:
        model_bytes, model_checksum: size and CRC-32 of its model's file; the size is 0 for a model as C.
        arena_used_bytes: of TFLM, or the RAM of a model as C; 0 if the model could not be prepared.
        stack_used_bytes, heap_free_bytes: the most stack that was used until now, and free heap; None if unknown.
        operators: of the first subgraph.
        ticks_per_second: of the clock that operators are timed with.
        overflow: the first operator that used up the stack since the device started; None if none did.
        description: kernels and version.
    """

    model_bytes: int
    model_checksum: int
    arena_used_bytes: int
    stack_used_bytes: int | None
    heap_free_bytes: int | None
    operators: int
    ticks_per_second: int
    overflow: int | None
    description: str


class Device:
    """A device that runs a model, with the interface of `MicroInterpreter`.

    Args:
        wire: opens the connection; called again after it was lost.
        model: the model; None to read it from the device.
        limit: seconds that an invoke or a reset may take.
        preserve_all_tensors: whether each invoke reads all tensors, for `get_tensor`, which takes some time.

    Attributes:
        model: the model.
        facts: what the device says of itself.
        invokes: how many invokes it has ended.

    Raises:
        DeviceError: no answer within the limit, or the device cannot prepare the model.
        WrongModel: the device has another model.
    """

    def __init__(
        self,
        wire: Callable[[], Transport],
        model: Model | None = None,
        *,
        limit: float = INVOKE_SECONDS,
        preserve_all_tensors: bool = False,
    ):
        self._open, self._limit, self._preserves = wire, limit, preserve_all_tensors
        self._session = Session(wire())
        self.invokes = 0
        try:
            self._session.open()
            self.facts = self._facts()
            self.model = self._read_model(self.facts.model_bytes) if model is None else with_data_inside(model)
            self._require_model()
            self._host = ready_interpreter(self.model, preserve_all_tensors=True, delegates=[])
            self._has_state = has_state(self.model)
            self.reset()
        except BaseException:
            self.close()
            raise
        main = self.model.subgraphs[0]
        self._made = [[i for i in op.outputs or () if i >= 0] for op in main.operators or ()]

    # --- The interface of an interpreter ------------------------------------------------------------------------

    def inputs_size(self) -> int:
        """The number of inputs."""
        return self._host.inputs_size()

    def outputs_size(self) -> int:
        """The number of outputs."""
        return self._host.outputs_size()

    def input(self, index: int) -> TfLiteTensor:
        """Return an input; `invoke` sends the values written to its `data`."""
        return self._host.input(index)

    def output(self, index: int) -> TfLiteTensor:
        """An output of the last invoke."""
        return self._host.output(index)

    def get_tensor(self, tensor_index: int) -> TfLiteTensor:
        """A tensor of the first subgraph, as the operator that made it in the last invoke left it.

        Raises:
            InterpreterError: the device was opened without `preserve_all_tensors`.
        """
        if not self._preserves:
            raise InterpreterError("open the device with preserve_all_tensors=True to read tensors")
        return self._host.get_tensor(tensor_index)

    def arena_used_bytes(self) -> int:
        """Bytes of the device's arena that are in use."""
        return self.facts.arena_used_bytes

    def reset(self) -> None:
        """Reset the state that persists between invokes.

        Raises:
            DeviceError: no answer within the limit.
        """
        try:
            self._reset()
        except DeviceReset:
            self._connect_again()

    def invoke(self) -> None:
        """Send the inputs, run the model and fetch the outputs.

        If the device is reset meanwhile, it starts again with the same inputs, unless an earlier invoke may have left
        state that is lost now.

        Raises:
            DeviceReset: state was lost; start again from the first invoke after `reset`.
            DeviceError: no answer within the limit, or the invoke failed.
        """
        reads = {2 * i + 1: made for i, made in enumerate(self._made)} if self._preserves else {}
        for (_, tensor), data in self.observe(reads).items():
            _fill(self._host.get_tensor(tensor), data)

    # --- Only devices --------------------------------------------------------------------------------

    def observe(self, reads: Mapping[int, Sequence[int]], announces: bool = False) -> dict[tuple[int, int], bytes]:
        """Invoke as `invoke` does, and read tensors on the way.

        Args:
            reads: tensors to read before an operator (2 * its index) or after it (2 * its index + 1).
            announces: whether the device announces each operator, so that an error names the one that never ends.

        Returns:
            The bytes of each tensor, by place and index.
        """
        for left in reversed(range(TRIES)):
            is_first = self._is_fresh
            try:
                return self._invoke(reads, announces)
            except DeviceReset as error:
                try:
                    self._connect_again()
                except DeviceError as gone:
                    raise type(gone)(f"{error}; {gone}") from None
                if not (left and (is_first or not self._has_state)):
                    raise
        raise AssertionError

    def operators_after(
        self, reads: Mapping[int, Sequence[int]]
    ) -> tuple[npt.NDArray[Any], dict[tuple[int, int], bytes]]:
        """Invoke as `observe` does, with announcements; the table of `operators`, and what was read."""
        read = self.observe(reads, announces=True)
        return self.operators(), read

    def operators(self) -> npt.NDArray[Any]:
        """Ticks and the CRC-32 of the outputs of each operator in the last invoke: NEVER if it was not observed."""
        size = OPERATOR.itemsize * self.facts.operators
        return np.frombuffer(self._required(DataKind.OPERATORS, 0, size), OPERATOR)

    def checksum(self, tensor: int) -> int | None:
        """The CRC-32 of a tensor, as it is now; None if the device does not have it in one piece."""
        answer = self._request(Kind.CHECKSUM, DataKind.TENSOR, tensor, 0)
        return int.from_bytes(answer.data, "little") if answer.status is Status.DONE else None

    def read_facts(self) -> Facts:
        """Ask for the facts again: an invoke may have used more stack."""
        self.facts = self._facts()
        return self.facts

    def close(self) -> None:
        """Close the wire."""
        self._session.transport.close()

    def __enter__(self) -> Device:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Device({self._session.transport.name!r}, {self.facts.description!r})"

    # --- Requests ----------------------------------------------------------------------------------------------

    def _request(self, kind: Kind, *numbers: int, data: bytes = b"", **settings: Any) -> Answer:
        return self._session.request(kind, struct.pack(f"<{len(numbers)}I", *numbers) + data, **settings)

    def _facts(self) -> Facts:
        data = self._request(Kind.FACTS, max_bytes=MAX_PAYLOAD).data
        size, checksum, arena, stack, heap, operators, ticks, full = FACTS.unpack_from(data)
        known_stack, known_heap = (None if each == NEVER else each for each in (stack, heap))
        text = data[FACTS.size :].decode(errors="replace")
        return Facts(size, checksum, arena, known_stack, known_heap, operators, ticks, full - 1 if full else None, text)

    def _require_model(self) -> None:
        name, facts = self._session.transport.name, self.facts
        if facts.model_checksum != zlib.crc32(self.model.data):
            raise WrongModel(
                f"{name}: the device has another model: the CRC-32 of its file is {facts.model_checksum:08x}, not "
                f"{zlib.crc32(self.model.data):08x}; flash the firmware of this model, or check the flash"
            )
        if not facts.arena_used_bytes:
            raise DeviceError(
                f"{name}: the device cannot prepare the model: its arena is too small, or an operator is missing"
            )

    def _read_model(self, size: int) -> Model:
        if not size:
            raise DeviceError(f"{self._session.transport.name}: the device has no model file; pass the model")
        return Model(self._required(DataKind.MODEL, 0, size))

    def _read(self, what: DataKind, index: int, size: int) -> bytes | None:
        """Bytes of a tensor; None if the device does not have them."""
        found = b""
        while len(found) < size:
            count = min(READ_BYTES, size - len(found))
            answer = self._request(Kind.READ, what, index, len(found), count, max_bytes=count)
            if answer.status is not Status.DONE or len(answer.data) != count:
                return None
            found += answer.data
        return found

    def _required(self, what: DataKind, index: int, size: int) -> bytes:
        found = self._read(what, index, size)
        if found is None:
            raise DeviceError(
                f"{self._session.transport.name}: the device has no {what.name.lower()} {index} of {size} bytes"
            )
        return found

    def _write(self, index: int, data: bytes) -> None:
        room = self._session.payload - 12
        for begin in range(0, len(data), room):
            self._request(Kind.WRITE, DataKind.INPUT, index, begin, data=data[begin : begin + room])

    def _invoke(self, reads: Mapping[int, Sequence[int]], announces: bool) -> dict[tuple[int, int], bytes]:
        for i in range(self.inputs_size()):
            self._write(i, self.input(i).data.tobytes())
        found: dict[tuple[int, int], bytes] = {}
        at, kind = -1, Kind.INVOKE
        self._is_fresh = False
        while True:
            place = min((each for each in reads if each > at), default=NEVER)
            answer = self._request(kind, ANNOUNCES * announces, place, limit=self._limit)
            status, (at, full) = answer.status, struct.unpack("<II", answer.data)
            if status is Status.FAILED:
                raise DeviceError(f"{self._session.transport.name}: operator {at} failed on the device")
            if full:
                self.facts = self.facts._replace(overflow=full - 1)
            if status is not Status.PAUSED:
                break
            for tensor in reads.get(at, ()):
                data = self._read(DataKind.TENSOR, tensor, self._host.get_tensor(tensor).bytes)
                if data is not None:
                    found[at, tensor] = data
            kind = Kind.RESUME
        for i in range(self.outputs_size()):
            output = self.output(i)
            _fill(output, self._required(DataKind.OUTPUT, i, output.bytes))
        self.invokes += 1
        return found

    def _reset(self) -> None:
        self._request(Kind.RESET, limit=self._limit)
        self._is_fresh = True

    def _connect_again(self) -> None:
        """Open a new session with a device that was reset; its state is that before the first invoke."""
        end = time.monotonic() + REOPEN_SECONDS
        while True:
            try:
                self._session.open()
                self._reset()
                break
            except DeviceReset as error:
                if time.monotonic() > end:
                    raise DeviceError(f"{error}; it was not back within {REOPEN_SECONDS:g} s") from None
                self._reopen(end)
        facts = self._facts()
        if facts.model_checksum != self.facts.model_checksum:
            raise WrongModel(f"{self._session.transport.name}: the device has another model since it was reset")
        self.facts = facts

    def _reopen(self, end: float) -> None:
        """Open the wire again, which was cut."""
        self.close()
        while True:
            try:
                self._session.transport = self._open()
                return
            except DeviceError:
                if time.monotonic() > end:
                    raise
                time.sleep(REOPEN_SECONDS / 50)


def _fill(tensor: TfLiteTensor, data: bytes) -> None:
    values = np.asarray(tensor.data, tensor.data.dtype)
    values[...] = np.frombuffer(data, values.dtype).reshape(values.shape)


def connect(
    port: str,
    model: Model | None = None,
    *,
    baud: int = BAUD,
    limit: float = INVOKE_SECONDS,
    preserve_all_tensors: bool = False,
) -> Device:
    """Open a device whose firmware `tflm export --serve` or `tflm compile --serve` wrote.

    Args:
        port: a serial port such as /dev/ttyACM0 or COM3; tcp:HOST:PORT or unix:PATH for a socket; or exec:COMMAND for
            a program that serves at its standard input and output.
        model: the model; None to read it from the device, which takes a while. Firmware of a model as C has no file.
        baud: of a serial port.
        limit: seconds that an invoke may take.
        preserve_all_tensors: whether each invoke reads all tensors, for `get_tensor`.

    Raises:
        DeviceError: the port cannot be opened, or nothing answers there within the limit.
        WrongModel: the device has another model.
    """
    return Device(lambda: wire_to(port, baud), model, limit=limit, preserve_all_tensors=preserve_all_tensors)
