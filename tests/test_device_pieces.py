"""Pieces of devices on a wire: limits of time, ports that cannot be opened, and what a verdict counts and knows."""

from __future__ import annotations

import os
import socket
import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from simulated_device import LossyLink, SimulatedDevice
from test_device import STEPS, Silent, model_with_state

import tflm
from tflm.application.device_run import DeviceRun, OperatorTicks, machine_of, run_report
from tflm.application.machine import MachineOptions
from tflm.device import Device, transports
from tflm.device.device import NEVER, Facts
from tflm.device.session import BEGIN, READ_SECONDS, REPLY, Frame, FrameReader, Kind, Session
from tflm.device.transports import BAUD, CHUNK, WRITE_SECONDS, FileWire, SerialWire, wire_to
from tflm.device.verdict import (
    FLOAT_ERROR,
    Status,
    Verdict,
    WrongOperator,
    _Expected,
    compare,
    first_difference,
    made_by,
)
from tflm.libraries import library_for
from tflm.libraries.kernel_library import REFERENCE
from tflm.runtime.growing_arena import ready_interpreter
from tflm.schema import (
    ActivationFunctionType,
    AddOptions,
    BuiltinOperator,
    FullyConnectedOptions,
    IfOptions,
    ModelBuilder,
    SubgraphBuilder,
    TensorType,
    TransposeConvOptions,
    VarHandleOptions,
    quantized,
)

# --- What is compared ------------------------------------------------------------------------------------------------


def test_operators_that_make_a_handle_are_not_compared() -> None:
    """Also if they make other tensors; operators that make nothing may be compared."""
    builder = ModelBuilder()
    main, branch = builder.subgraph(), builder.subgraph()
    branch.output(branch.input("inner handle", (), TensorType.RESOURCE), branch.input("inner", (1, 4), TensorType.INT8))
    x = main.input("x", (1, 4), TensorType.INT8)
    condition, handle = main.constant("condition", [True]), main.tensor("handle", (), TensorType.RESOURCE)
    outputs = [main.tensor("same", (), TensorType.RESOURCE), main.tensor("y", (1, 4), TensorType.INT8)]
    main.operator(BuiltinOperator.VAR_HANDLE, [], [handle], VarHandleOptions(shared_name="v"))
    main.operator(BuiltinOperator.ASSIGN_VARIABLE, [handle, x], [])
    options = IfOptions(then_subgraph_index=1, else_subgraph_index=1)
    main.operator(BuiltinOperator.IF, [condition, handle, x], outputs, options)
    main.output(outputs[1])
    expected = _Expected(tflm.Model(builder.build()), tflm.targets.HOST, REFERENCE)
    assert expected._has_handles == [True, False, True]


# --- Time and ports --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [0.04, 0.25, 0.3, 1.0, 7.7])
def test_a_request_ends_at_its_limit_and_no_read_waits_longer(limit: float) -> None:
    class Timed(Silent):
        longest = 0.0

        def read(self, seconds: float) -> bytes:
            self.longest = max(self.longest, seconds)
            return super().read(seconds)

    wire = Timed()
    session = Session(wire)
    session.open()
    wire.seconds = 0.0
    with pytest.raises(tflm.DeviceError, match=f"within {limit:g} s; nothing came"):
        session.request(Kind.RESET, limit=limit)
    assert wire.seconds == pytest.approx(limit)
    assert 0 < wire.longest <= READ_SECONDS


@pytest.mark.parametrize("platform", ["linux", "win32"])
@pytest.mark.parametrize("ports", [[], ["COM9"], ["/dev/ttyB", "/dev/ttyA"]])
@pytest.mark.parametrize("error", ["[Errno 13] Permission denied", "no such port"])
def test_a_port_that_cannot_be_opened_is_named_with_the_others(
    monkeypatch: pytest.MonkeyPatch, platform: str, ports: list[str], error: str
) -> None:
    serial = pytest.importorskip("serial", reason="needs the extra `device`")
    list_ports = pytest.importorskip("serial.tools.list_ports", reason="needs the extra `device`")
    monkeypatch.setattr(sys, "platform", platform)
    monkeypatch.setattr(list_ports, "comports", lambda: [SimpleNamespace(device=n, description=None) for n in ports])

    def refuse(*_: object, **__: object) -> None:
        raise OSError(error)

    monkeypatch.setattr(serial, "Serial", refuse)
    with pytest.raises(tflm.DeviceError) as raised:
        wire_to("/dev/ttyX")
    group = "; add yourself to the group dialout" if "denied" in error and platform == "linux" else ""
    known = ", ".join(sorted(ports)) or "none"
    assert str(raised.value) == f"/dev/ttyX: {error}{group}; ports of this machine: {known}"


class Port:
    """A serial port as pyserial has it, with bytes that have come, and an error that it raises next.

    Attributes:
        taken: what was written.
        is_open: whether it was not closed.
    """

    def __init__(self, *pieces: bytes, error: Exception | None = None):
        self._pieces, self._error = list(pieces), error
        self.timeout, self.taken, self.is_open = -1.0, b"", True

    @property
    def in_waiting(self) -> int:
        return len(self._pieces[0])

    def read(self, count: int) -> bytes:
        """Bytes that have come; an empty piece stands for a read that timed out."""
        if self._error is not None:
            raise self._error
        found, self._pieces[0] = self._pieces[0][:count], self._pieces[0][count:]
        if not self._pieces[0]:
            self._pieces.pop(0)
            self._pieces.append(b"")
        return found

    def write(self, data: bytes) -> None:
        """Take bytes."""
        if self._error is not None:
            raise self._error
        self.taken += data

    def close(self) -> None:
        """Close it."""
        self.is_open = False


def test_a_serial_wire_reads_all_that_has_come() -> None:
    port = Port(b"abcdef", b"", b"g")
    wire = SerialWire("port", port)
    assert [wire.read(seconds) for seconds in (0.5, 0.1, 0.25)] == [b"abcdef", b"", b"g"]
    assert port.timeout == 0.25
    wire.write(b"to")
    wire.write(b"gether")
    assert port.taken == b"together"
    assert port.is_open
    wire.close()
    assert not port.is_open


def test_a_serial_port_is_opened_at_its_rate_with_writes_that_end(monkeypatch: pytest.MonkeyPatch) -> None:
    serial = pytest.importorskip("serial", reason="needs the extra `device`")
    opened: list[tuple[str, int, dict[str, float]]] = []

    def opener(name: str, baud: int, **settings: float) -> Port:
        opened.append((name, baud, settings))
        return Port(b"read")

    monkeypatch.setattr(serial, "Serial", opener)
    assert wire_to("COM3", 9600).name == "COM3"
    assert wire_to("/dev/ttyX").read(0) == b"read"
    settings = {"timeout": 0, "write_timeout": WRITE_SECONDS}
    assert opened == [("COM3", 9600, settings), ("/dev/ttyX", BAUD, settings)]


@pytest.mark.parametrize(
    ("error", "ends_write"),
    [(OSError("gone"), True), (TypeError("closed"), False), (OSError("Write timeout"), False)],
)
def test_a_serial_wire_is_cut_by_errors(error: Exception, ends_write: bool) -> None:
    """A write that times out is not: the request will not be answered, and is sent again."""
    wire = SerialWire("port", Port(b"a", error=error))
    lost = f"^port: the connection is lost: {error}; check the cable, and connect again$"
    with pytest.raises(tflm.DeviceReset, match=lost):
        wire.read(0)
    if ends_write:
        with pytest.raises(tflm.DeviceReset, match=lost):
            wire.write(b"a")
    elif isinstance(error, OSError):
        wire.write(b"a")


def test_a_wire_of_pipes_is_cut_when_the_other_side_closes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transports, "WRITE_SECONDS", 0.0)
    (source, there), (back, target) = os.pipe(), os.pipe()
    os.set_blocking(target, False)
    owner = Port()
    wire = FileWire("pipe", source, target, owner)
    assert wire.read(0) == b""
    os.write(there, b"x" * (CHUNK + 1))
    assert [wire.read(0), wire.read(0)] == [b"x" * CHUNK, b"x"]
    wire.write(b"y" * (1 << 20))  # more than fits: the rest is lost
    assert os.read(back, 3) == b"yyy"
    os.close(there)
    os.close(back)
    with pytest.raises(tflm.DeviceReset, match=r"^pipe: the connection is lost: the other side closed it; check"):
        wire.read(0)
    with pytest.raises(tflm.DeviceReset, match=r"pipe: the connection is lost: .*Broken pipe"):
        wire.write(b"y")
    wire.close()
    FileWire("pipe", source, target).close()
    assert not owner.is_open
    os.close(source)
    os.close(target)


@pytest.mark.parametrize("host", ["localhost", ""])
def test_a_wire_may_be_a_socket(host: str) -> None:
    with socket.create_server(("localhost", 0)) as server:
        wire = wire_to(f"tcp:{host}:{server.getsockname()[1]}")
        other = server.accept()[0]
        wire.write(b"to")
        other.sendall(b"back")
        assert (other.recv(9), wire.read(1)) == (b"to", b"back")
        wire.close()
        assert other.recv(9) == b""
        other.close()
    with pytest.raises(tflm.DeviceError, match="is the emulator or the bridge running"):
        wire_to("tcp:localhost:http")


class AsC(SimulatedDevice):
    """A device whose model was compiled to C: it has no file."""

    def payload(self, frame: Frame) -> bytes:
        """The size of the file is 0."""
        reply = super().payload(frame)
        return reply if frame.kind != Kind.FACTS else reply[:1] + bytes(4) + reply[5:]


def test_what_a_connected_device_has(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its model is read from it, unless it is given, and all tensors if that is asked for."""
    model, bauds = model_with_state(), list[int]()
    simulated = SimulatedDevice(model)

    def opener(port: str, baud: int) -> LossyLink:
        bauds.append(baud)
        return LossyLink(simulated)

    monkeypatch.setattr("tflm.device.device.wire_to", opener)
    connect = tflm.device.connect
    for device in (connect("any", baud=9600, preserve_all_tensors=True), connect("any", model)):
        assert bytes(device.model.data) == bytes(model.data)
        assert device.facts.description == "reference kernels"
        assert repr(device) == "Device('lossy', 'reference kernels')"
        assert (device.inputs_size(), device.outputs_size(), device.arena_used_bytes()) == (1, 1, 1)
    assert bauds == [9600, BAUD]
    device = connect("any", model, preserve_all_tensors=True)
    device.input(0).data[...] = STEPS[0][0]
    device.invoke()
    for tensor in (1, 6, 7):
        assert device.get_tensor(tensor).data.tobytes() == simulated.bytes_of(tensor)
    simulated = AsC(model)
    assert connect("any", model).facts.model_bytes == 0
    with pytest.raises(tflm.DeviceError, match=r"^lossy: the device has no model file; pass the model$"):
        connect("any")


def test_a_device_that_stays_away_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    class Cut(LossyLink):
        is_cut = False

        def write(self, data: bytes) -> None:
            if self.is_cut:
                raise tflm.DeviceReset("lossy: the connection is lost")
            super().write(data)

    monkeypatch.setattr("tflm.device.device.REOPEN_SECONDS", -1.0)
    with Device(lambda: Cut(SimulatedDevice(model_with_state())), model_with_state()) as device:
        monkeypatch.setattr(Cut, "is_cut", True)
        with pytest.raises(tflm.DeviceError, match="lossy: the connection is lost; it was not back within -1 s"):
            device.reset()


def test_a_begin_with_a_length_that_no_answer_has_is_skipped_at_once() -> None:
    class Chatty(Silent):
        def write(self, data: bytes) -> None:
            is_open = not self._answers
            super().write(data)
            if is_open:
                (asked,) = FrameReader().feed(data)
                answer = asked._replace(kind=asked.kind | REPLY, payload=b"\0" + bytes(100))
                self._coming = BEGIN + (4000).to_bytes(2, "little") + answer.encoded()

    wire = Chatty()
    session = Session(wire)
    session.open()
    assert session.request(Kind.READ, max_bytes=100).data == bytes(100)
    assert wire.seconds <= 2 * READ_SECONDS


class Short(SimulatedDevice):
    """A device that leaves out the last bytes of what is read, a few times."""

    missing = 0
    reads = 0

    def accessed(self, kind: int, request: bytes) -> bytes:
        """The reply without its end."""
        reply = super().accessed(kind, request)
        if kind != Kind.READ or self.reads > 9:
            return reply
        self.reads += 1
        return reply[: len(reply) - self.missing]


@pytest.mark.parametrize("missing", [0, 1, 4])
def test_an_answer_that_is_too_short_is_no_answer(missing: int) -> None:
    simulated = Short(model_with_state())
    simulated.missing = missing
    with Device(lambda: LossyLink(simulated), model_with_state()) as device:
        device.input(0).data[...] = STEPS[0][0]
        if missing:
            with pytest.raises(tflm.DeviceError, match="the device has no output 0 of 4 bytes"):
                device.invoke()
        else:
            device.invoke()


# --- Verdicts --------------------------------------------------------------------------------------------------------


def test_floats_differ_from_the_error_on_and_integers_by_one() -> None:
    """The error is relative to 1 + the magnitude."""
    for value in (0.0, 1.0, -3.0, 100.0):
        error = FLOAT_ERROR * (1 + abs(value))
        expected = np.array([[0.5, value]])
        for factor, place in ((0.99, None), (1.01, 1)):
            for sign in (-1, 1):
                assert first_difference(expected, expected + np.array([0, sign * factor * error])) == place
    nan, infinite = np.array([np.nan, 1.0]), np.array([np.inf, 1.0])
    assert (first_difference(nan, nan), first_difference(infinite, infinite)) == (None, None)
    assert (first_difference(nan, infinite), first_difference(infinite, -infinite)) == (0, 0)
    numbers = np.arange(6, dtype=np.int16).reshape(2, 3) * 5000
    for place in range(6):
        changed = numbers.copy()
        changed.reshape(-1)[place:] += 1
        found = first_difference(numbers, changed)
        assert (found, type(found)) == (place, int)
    assert first_difference(numbers, numbers) is None


def test_of_several_reads_of_a_tensor_the_first_after_an_operator_counts() -> None:
    read = {(0, 7): b"before 0", (1, 7): b"after 0", (3, 7): b"after 1", (2, 8): b"before 1", (5, 9): b"after 2"}
    for order in (read, dict(reversed(read.items()))):
        assert made_by(order) == {7: b"after 0", 9: b"after 2"}


def model_with_a_bypass() -> tflm.Model:
    """Tensors that are read long after they were made: x by the last operator, a by the one before."""
    main = ModelBuilder().subgraph()
    x, *others = (
        make(name, (1, 5), TensorType.INT8, quantized(0.05))
        for make, name in zip([main.input, *[main.tensor] * 5], "xabcyz")
    )
    a, b, c, y, z = others
    main.operator(BuiltinOperator.RELU, [x], [a])
    main.operator(BuiltinOperator.ABS, [a], [b])
    main.operator(BuiltinOperator.RELU, [b], [c])
    main.operator(BuiltinOperator.ADD, [a, c], [y], AddOptions())
    main.operator(BuiltinOperator.ADD, [x, y], [z], AddOptions())
    main.output(z)
    return tflm.Model(main.builder.build())


class Overwriting(SimulatedDevice):
    """A device with an operator that writes into the tensor of another one, from the second invoke on.

    Args:
        wrong: the operator, and the tensor.
        keeps_all: whether every tensor can be read after every operator.
    """

    def __init__(self, model: tflm.Model, wrong: tuple[int, int], keeps_all: bool):
        self.wrong, self.keeps_all = wrong, keeps_all
        super().__init__(model)

    def end_event(self, event_handle: int) -> None:
        """Overwrite the tensor."""
        if event_handle == self.wrong[0] and self.invokes:
            self.interpreter.get_tensor(self.wrong[1]).data[0, 2:4] ^= 64
        super().end_event(event_handle)
        if self.keeps_all:
            self.tensors |= {(2 * event_handle + 1, i): self.bytes_of(i) for i in range(6)}


@pytest.mark.parametrize("keeps_all", [True, False])
@pytest.mark.parametrize(
    ("tensor", "operator", "reader"), [("a", 1, 3), ("a", 2, 3), ("x", 0, 4), ("x", 2, 4), ("x", 3, 4)]
)
def test_an_operator_that_overwrites_a_tensor_is_named(
    keeps_all: bool, tensor: str, operator: int, reader: int
) -> None:
    """Or else the one that reads it, where the device cannot tell: a tensor is only read beside its operators."""
    model = model_with_a_bypass()
    simulated = Overwriting(model, (operator, "xa".index(tensor)), keeps_all)
    with Device(lambda: LossyLink(simulated), model) as device:
        verdict = compare(device, STEPS, target=tflm.targets.HOST, kernels=REFERENCE)
    wrong = verdict.wrong
    assert wrong is not None
    assert (verdict.status, verdict.invokes, wrong.invoke) == (Status.WRONG, 2, 1)
    assert (wrong.tensor, wrong.overwrites) == (tensor, True)
    is_seen = keeps_all or (tensor, operator) in [("a", 1), ("x", 0)]
    assert wrong.operator_index == (operator if is_seen else reader)
    expected = STEPS[1][0] if tensor == "x" else np.maximum(STEPS[1][0], 0)
    assert np.array_equal(wrong.expected, expected)
    changed = expected ^ np.int8([[0, 0, 64, 64, 0]])
    if is_seen:
        assert wrong.received is not None
        assert np.array_equal(wrong.received, changed)
        assert (wrong.element, wrong.inputs) == (2, {})
    else:
        assert (wrong.element, wrong.received) == (None, None)
        assert np.array_equal(wrong.inputs[tensor], changed)


class Forgetful(SimulatedDevice):
    """A device that observes some operators in some invokes only.

    Args:
        unseen: the invokes that do not observe an operator, by the operator's index.
    """

    def __init__(self, model: tflm.Model, unseen: dict[int, list[int]]):
        self.unseen = unseen
        super().__init__(model)

    def end_event(self, event_handle: int) -> None:
        """As if the operator had not run."""
        super().end_event(event_handle)
        if self.invokes in self.unseen.get(event_handle, ()):
            self.table[event_handle] = (NEVER, 0)


@pytest.mark.parametrize(("unseen", "compared"), [({}, 3), ({1: [0, 1, 2]}, 2), ({1: [1]}, 2), ({0: [2], 2: [0]}, 1)])
def test_operators_are_compared_that_every_invoke_observes(unseen: dict[int, list[int]], compared: int) -> None:
    """Operators that run as a part of others have no output of their own."""
    simulated = Forgetful(model_with_state(), unseen)
    with Device(lambda: LossyLink(simulated), model_with_state()) as device:
        verdict = compare(device, STEPS, target=tflm.targets.HOST, kernels=REFERENCE)
    assert (verdict.status, verdict.compared) == (Status.EQUAL, compared)
    for operator, invokes in unseen.items():
        assert [i for i, ticks in enumerate(verdict.ticks[:, operator].tolist()) if ticks == NEVER] == invokes


def convolution(main: SubgraphBuilder, x: int) -> int:
    """A TRANSPOSE_CONV whose activation CMSIS-NN leaves out."""
    y = main.tensor("y", (1, 2, 2, 1), TensorType.INT8, quantized(0.5))
    shape = main.constant("shape", np.array([1, 2, 2, 1], np.int32))
    weights = main.constant("w", np.ones((1, 1, 1, 1), np.int8), quantized([1.0]))
    relu = TransposeConvOptions(stride_w=1, stride_h=1, fused_activation_function=ActivationFunctionType.RELU)
    main.operator(BuiltinOperator.TRANSPOSE_CONV, [shape, weights, x], [y], relu, version=3)
    return y


def test_what_is_known_of_an_operator_is_that_of_the_same_operator() -> None:
    """Not of the operator with its number in another subgraph, nor of the next one."""
    builder = ModelBuilder()
    main = builder.subgraph()
    condition = main.input("condition", (1,), TensorType.BOOL)
    x, a, z = (
        make(name, (1, 2, 2, 1), TensorType.INT8, quantized(0.5))
        for make, name in ((main.input, "x"), (main.tensor, "a"), (main.tensor, "z"))
    )
    main.operator(BuiltinOperator.RELU, [x], [a])
    y = convolution(main, a)
    options = IfOptions(then_subgraph_index=1, else_subgraph_index=1)
    main.operator(BuiltinOperator.IF, [condition, y], [z], options)
    main.output(z)
    branch = builder.subgraph("branch")
    branch.output(convolution(branch, branch.input("x", (1, 2, 2, 1), TensorType.INT8, quantized(0.5))))
    model, target = tflm.Model(builder.build()), tflm.targets.by_name("cortex-m4")
    steps = [[np.array([True]), np.arange(4, dtype=np.int8).reshape(1, 2, 2, 1)]]
    for operator, is_known in ((0, False), (1, True)):

        def fault(index: int, output: Any, wrong: int = operator) -> None:
            if index == wrong:
                output[0, 1, 0, 0] ^= 8

        with Device(lambda fault=fault: LossyLink(SimulatedDevice(model, fault)), model) as device:
            wrong = compare(device, steps, target=target, kernels=library_for("cmsis-nn", target, None)).wrong
        assert wrong is not None
        assert wrong.operator_index == operator
        assert bool(wrong.known) == is_known


def model_with_known_differences() -> tflm.Model:
    """A TRANSPOSE_CONV of which CMSIS-NN's results are known, and a layer of int16 of which they are not."""
    main = ModelBuilder().subgraph()
    x = main.input("x", (1, 2, 2, 1), TensorType.INT8, quantized(0.5))
    z = main.tensor("z", (1, 2, 2, 1), TensorType.INT8, quantized(0.5))
    main.operator(BuiltinOperator.ABS, [convolution(main, x)], [z])
    wide, y = (
        make(name, (1, 2), TensorType.INT16, quantized(0.5))
        for make, name in ((main.input, "wide"), (main.tensor, "wide_y"))
    )
    weights = main.constant("w", np.eye(2, dtype=np.int8), quantized(1.0))
    options = FullyConnectedOptions(quantized_bias_type=TensorType.INT32)
    main.operator(BuiltinOperator.FULLY_CONNECTED, [wide, weights, -1], [y], options)
    main.output(z, y)
    return tflm.Model(main.builder.build())


class WithKernels(SimulatedDevice):
    """A device with the kernels of a library.

    Args:
        settings: the target and the kernels.
        wrong: the invoke in which the last operator is wrong.
    """

    def __init__(self, model: tflm.Model, settings: dict[str, Any], wrong: int | None):
        self.settings = settings
        super().__init__(
            model, lambda index, output: self.spoil(output) if (index, self.invokes) == (2, wrong) else None
        )

    def spoil(self, output: Any) -> None:
        """Change an element."""
        output[0, 1] ^= 1

    def begin(self) -> None:
        """A new interpreter."""
        super().begin()
        self.interpreter = ready_interpreter(
            self.model, delegates=[], preserve_all_tensors=True, profiler=self, **self.settings
        )


@pytest.mark.parametrize("is_library", [False, True])
@pytest.mark.parametrize("wrong", [None, 0, 1])
def test_what_a_library_is_known_to_do_is_documented(is_library: bool, wrong: int | None) -> None:
    """The operator is named that differs from both: from the results of TFLM and from those of the library."""
    model, target = model_with_known_differences(), tflm.targets.by_name("cortex-m4")
    library = library_for("cmsis-nn", target, None)
    settings = {"target": target, "kernels": library} if is_library else {}
    values = np.array([-9, 20, -30, 5], np.int8).reshape(1, 2, 2, 1)
    steps = [[values, np.array([[300 + i, -7]], np.int16)] for i in range(3)]
    with Device(lambda: LossyLink(WithKernels(model, settings, wrong)), model) as device:
        verdict = compare(device, steps, target=target, kernels=library)
    if wrong is None:
        assert verdict.status is (Status.DOCUMENTED if is_library else Status.EQUAL)
        assert [text.split(":")[0] for text in verdict.documented] == ["TRANSPOSE_CONV 0"] * is_library
        assert verdict.invokes == 3
    else:
        assert verdict.status is Status.WRONG
        assert verdict.wrong is not None
        if is_library:
            assert (verdict.wrong.invoke, verdict.wrong.operator) == (wrong, "FULLY_CONNECTED")
        assert verdict.documented == ()


# --- Reports ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("description", "given", "target", "kernels"),
    [
        ("cmsis-nn kernels on cortex-m4, TFLM", MachineOptions(), "cortex-m4", "cmsis-nn"),
        ("cmsis-nn kernels", MachineOptions(target="cortex-m55"), "cortex-m55", "cmsis-nn"),
        ("reference kernels on a-toaster, TFLM", MachineOptions(), "cortex-m", "reference"),
        ("cmsis-nn kernels on cortex-m4, TFLM", MachineOptions("cortex-m7", "reference"), "cortex-m7", "reference"),
        ("cmsis-nn kernels on cortex-m4, TFLM", MachineOptions(board="esp32-s3-eye"), "esp32s3", "esp-nn"),
        ("something else", MachineOptions(), "cortex-m", "reference"),
    ],
)
def test_a_device_is_the_machine_that_it_says_unless_options_do(
    description: str, given: MachineOptions, target: str, kernels: str
) -> None:
    device: Any = SimpleNamespace(facts=SimpleNamespace(description=description))
    machine = machine_of(device, given)
    assert (machine.target.name, machine.kernels.name.partition("@")[0]) == (target, kernels)


@pytest.mark.parametrize("is_as_c", [False, True])
@pytest.mark.parametrize("is_read", [False, True])
def test_a_report_has_what_the_device_said_and_the_wrong_values(is_as_c: bool, is_read: bool) -> None:
    expected, received = np.int8([[1, 2, 3, 4]]), np.int8([[1, 5, 3, 6]])
    element, values = (1, received) if is_read else (None, None)
    wrong = WrongOperator(2, 0, "RELU", "y", False, element, expected, values, {"x": expected}, ("known",))
    verdict = Verdict(Status.WRONG, 3, 1, (), wrong, [], np.zeros((3, 1), np.uint32))
    facts = Facts(0 if is_as_c else 99, 0, 934, 567, 89, 1, 1000, 0, "reference kernels")
    machine = MachineOptions().machine()
    run = DeviceRun(verdict, [OperatorTicks(0, "RELU", 1.0, None)], machine, facts, None if is_as_c else 950)
    report = run_report(run)
    arena = ("RAM", "934 B") if is_as_c else ("arena", "934 B, predicted 950 B")
    assert report.title == "differs: operator 0 RELU is wrong in y, invoke 2"
    assert [*report.facts] == [("firmware", "reference kernels"), arena, ("stack", "567 B"), ("free heap", "89 B")]
    again = ["received: equal when it was read again; the device differs from run to run"]
    both = ["received from element 1: 5 3 6", "2 of 4 elements differ"]
    shown = "expected from element 1: 2 3 4" if is_read else "expected from element 0: 1 2 3 4"
    assert report.notes[:-1] == ["input x: 1 2 3 4", shown, *(both if is_read else again), "known"]
    assert "operator 0 RELU overflowed the stack" in report.notes[-1]
    silent = run._replace(facts=facts._replace(stack_used_bytes=None, heap_free_bytes=None, overflow=None))
    assert [name for name, _ in run_report(silent).facts] == ["firmware", arena[0]]
    assert report.notes[:-1] == run_report(silent).notes
