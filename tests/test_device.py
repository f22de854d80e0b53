"""Devices on a wire: frames, sessions over links that lose bytes, verdicts, and evaluation."""

from __future__ import annotations

import contextlib
import functools
import os
import re
import shlex
import shutil
import struct
import subprocess
import sys
import threading
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import outcomes
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from image_graphs import Images
from models import counter
from simulated_device import MISHAPS, LossyLink, Mishap, SimulatedDevice, off_by_one

import tflm
from tflm.application.device_run import overflow_lines, run_device
from tflm.application.export import Firmware
from tflm.application.machine import MachineOptions
from tflm.application.progress import silent
from tflm.application.projects.compiled import compiled_name, compiled_project_files, compiled_sources
from tflm.atomic_write import write_files
from tflm.device import Device, session
from tflm.device.device import NEVER
from tflm.device.session import BEGIN, MAX_PAYLOAD, PROTOCOL, REPLY, Frame, FrameReader, Kind, Session
from tflm.device.transports import FileWire
from tflm.device.verdict import Status, compare
from tflm.libraries.kernel_library import REFERENCE
from tflm.runtime.growing_arena import ready_interpreter
from tflm.schema import BuiltinOperator, Padding, TensorType, quantized
from tflm.schema.options import AddOptions, IfOptions, SVDFOptions

RUNS = int(os.environ.get("TFLM_DEVICE_RUNS", "300"))
"""Examples of the lossy link; `make device` sets more."""

FRAMES = st.builds(
    Frame, st.integers(0, 255), st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1), st.binary(max_size=300)
)


@given(st.lists(st.one_of(FRAMES, st.binary(max_size=60))), st.integers(1, 50))
def test_whole_frames_are_found_between_other_bytes(stream: list[Any], chunk: int) -> None:
    """Whatever is between them, unless it holds a begin: then the next frames may wait for more bytes."""
    pieces = [each.encoded() if isinstance(each, Frame) else each.replace(BEGIN[:1], b"") for each in stream]
    data, reader, found = b"".join(pieces), FrameReader(), []
    for begin in range(0, len(data), chunk):
        found += reader.feed(data[begin : begin + chunk])
    assert found == [each for each in stream if isinstance(each, Frame)]
    assert reader.strays + len(b"".join(each.encoded() for each in found)) <= len(data)


@given(FRAMES, st.binary(max_size=40), st.data())
def test_a_changed_frame_is_no_frame_and_hides_none(frame: Frame, garbage: bytes, data: st.DataObject) -> None:
    whole = bytearray(frame.encoded())
    place = data.draw(st.integers(0, len(whole) - 1))
    whole[place] ^= data.draw(st.integers(1, 255))
    reader, after = FrameReader(), Frame(1, 2, 3, b"after")
    found = reader.feed(garbage + bytes(whole) + after.encoded())
    for _ in range(MAX_PAYLOAD):  # each time the rest of a frame does not come
        found += reader.give_up()
    assert found == [after]


def test_a_frame_is_found_wherever_its_bytes_are_cut() -> None:
    frame = Frame(1, 2, 3, b"payload")
    data = b"x" + frame.encoded()
    for cut in range(len(data)):
        reader, small = FrameReader(len(frame.payload)), FrameReader(len(frame.payload) - 1)
        assert [*reader.feed(data[:cut]), *reader.feed(data[cut:])] == [frame]
        assert reader.strays == 1
        assert [*small.feed(data[:cut]), *small.feed(data[cut:])] == []


HELLO = Kind.HELLO, b"\0" + struct.pack("<II", PROTOCOL, 100)


class Script:
    """A wire whose device answers the requests in turn, each with some frames of a kind and a payload."""

    name = "script"

    def __init__(self, answers: list[list[tuple[Kind, bytes]]]):
        self._answers, self._coming = answers, b""

    def write(self, data: bytes) -> None:
        """Answer a request."""
        (asked,) = FrameReader().feed(data)
        frames = [asked._replace(kind=kind | REPLY, payload=payload) for kind, payload in self._answers.pop(0)]
        self._coming = b"".join(frame.encoded() for frame in frames)

    def read(self, seconds: float) -> bytes:
        """The answers to the last request."""
        found, self._coming = self._coming, b""
        return found

    def now(self) -> float:
        """A clock that stands still: nothing is late."""
        return 0.0

    def close(self) -> None:
        """Nothing to close."""


def test_an_operator_is_announced_for_one_request() -> None:
    ran = [(Kind.ANNOUNCE, (3).to_bytes(4, "little")), (Kind.INVOKE, b"\0")]
    session = Session(Script([[HELLO], ran, [(Kind.RESET, b"\0")]]))
    session.open()
    session.request(Kind.INVOKE)
    assert session.announced == 3
    session.request(Kind.RESET)
    assert session.announced is None


@pytest.mark.parametrize("other", [{"session": 0}, {"sequence": 9}, {"payload": b""}, {"kind": Kind.RESET | REPLY}])
def test_only_an_answer_to_this_request_counts(other: dict[str, Any]) -> None:
    class Late(Script):
        def write(self, data: bytes) -> None:
            super().write(data)
            (answer,) = FrameReader().feed(self._coming)
            wrong = answer._replace(**{"payload": b"\0late", **other})
            self._coming = wrong.encoded() + self._coming

    opened = Session(Late([[HELLO], [(Kind.READ, b"\0now")]]))
    opened.open()
    assert opened.request(Kind.READ).data == b"now"


@pytest.mark.parametrize(
    ("status", "error", "message", "began"),
    [
        (
            session.Status.UNKNOWN_SESSION,
            tflm.DeviceReset,
            "script: the device was reset, or answers another program as well",
            "; operator 3 began, and did not end",
        ),
        (session.Status.NOT_NOW, tflm.DeviceError, "script: the device can't invoke now; connect again", ""),
    ],
)
@pytest.mark.parametrize("is_announced", [False, True])
def test_a_request_that_a_device_refuses_is_an_error(
    status: int, error: type[Exception], message: str, began: str, is_announced: bool
) -> None:
    announced = [(Kind.ANNOUNCE, (3).to_bytes(4, "little"))] * is_announced
    opened = Session(Script([[HELLO], [*announced, (Kind.INVOKE, bytes([status]))]]))
    opened.open()
    with pytest.raises(error, match=f"^{message}{began if is_announced else ''}$"):
        opened.request(Kind.INVOKE)


class Silent(Script):
    """A wire at which nobody answers after the first request, with a clock that goes on while it is read.

    Attributes:
        written: when each further request was written, in seconds.
    """

    def __init__(self) -> None:
        super().__init__([[HELLO]])
        self.seconds, self.written = 0.0, list[float]()

    def write(self, data: bytes) -> None:
        """Answer the first request; note the time of the others."""
        if self._answers:
            super().write(data)
        else:
            self.written.append(self.seconds)

    def read(self, seconds: float) -> bytes:
        """Wait in vain."""
        self.seconds += seconds
        return super().read(seconds)

    def now(self) -> float:
        """The seconds that were waited."""
        return self.seconds


def test_a_request_is_sent_again_after_longer_and_longer_waits() -> None:
    wire = Silent()
    session = Session(wire)
    session.open()
    with pytest.raises(tflm.DeviceError):
        session.request(Kind.RESET, limit=20)
    waits = np.diff(wire.written).tolist()
    assert waits == pytest.approx([0.3, 0.6, 1.2, 2.4, *([3.0] * (len(waits) - 4))])
    assert 17 < wire.written[-1] - wire.written[0] < 20


def test_a_wire_that_takes_few_bytes_at_a_time_gets_all() -> None:
    source, target = os.pipe()
    os.set_blocking(target, False)
    data, found = os.urandom(300_000), b""

    def write() -> None:
        FileWire("pipe", source, target).write(data)
        os.close(target)

    writing = threading.Thread(target=write)
    writing.start()
    while piece := os.read(source, 4096):
        found += piece
    writing.join()
    os.close(source)
    assert found == data


@functools.cache
def model_with_state() -> tflm.Model:
    """An SVDF, whose state lasts over invokes, between two other operators."""
    builder, rng = tflm.ModelBuilder(), np.random.default_rng(0)
    main = builder.subgraph()
    x = main.input("x", (1, 5), TensorType.INT8, quantized(0.05))
    a = main.tensor("a", (1, 5), TensorType.INT8, quantized(0.05))
    main.operator(BuiltinOperator.RELU, [x], [a])
    features = main.constant("f", rng.integers(-127, 128, (4, 5), np.int8), quantized(0.02))
    times = main.constant("t", rng.integers(-3000, 3000, (4, 3), np.int16), quantized(0.001))
    bias = main.constant("bias", np.zeros(4, np.int32), quantized(1e-5))
    state = main.tensor("state", (1, 12), TensorType.INT16, quantized(0.01), is_variable=True)
    b = main.tensor("b", (1, 4), TensorType.INT8, quantized(0.1))
    main.operator(BuiltinOperator.SVDF, [a, features, times, bias, state], [b], SVDFOptions(rank=1))
    y = main.tensor("y", (1, 4), TensorType.INT8, quantized(1 / 256, -128))
    main.operator(BuiltinOperator.LOGISTIC, [b], [y])
    main.output(y)
    return tflm.Model(builder.build())


STEPS = [[np.random.default_rng(i).integers(-128, 128, (1, 5), np.int8)] for i in range(3)]


@functools.cache
def model_of_floats() -> tflm.Model:
    """A model of floats: SQRT of the sum of x and its square."""
    builder = tflm.ModelBuilder()
    main = builder.subgraph()
    x = main.input("x", (1, 5), TensorType.FLOAT32)
    square, total, y = (main.tensor(name, (1, 5), TensorType.FLOAT32) for name in ("square", "total", "y"))
    main.operator(BuiltinOperator.SQUARE, [x], [square])
    main.operator(BuiltinOperator.ADD, [square, x], [total], AddOptions())
    main.operator(BuiltinOperator.SQRT, [total], [y])
    main.output(y)
    return tflm.Model(builder.build())


def compared(link: Any, steps: Any = STEPS, model: tflm.Model | None = None) -> Any:
    with Device(lambda: link, model or model_with_state()) as device:
        return compare(device, steps, target=tflm.targets.HOST, kernels=REFERENCE)


def test_an_equal_device_is_equal() -> None:
    device = SimulatedDevice(model_with_state())
    verdict = compared(LossyLink(device))
    assert (verdict.status, verdict.invokes, verdict.compared) == (Status.EQUAL, 3, 3)
    assert device.invokes == 3
    assert device.announcing == {True}  # an error can name the operator that never ended


def test_operators_of_other_subgraphs_are_not_compared() -> None:
    """They run before the output of the operator that calls them is there."""
    builder = tflm.ModelBuilder()
    main = builder.subgraph()
    condition, x = main.input("condition", (1,), TensorType.BOOL), main.input("x", (1, 5), TensorType.FLOAT32)
    chosen, y = main.tensor("chosen", (1, 5), TensorType.FLOAT32), main.tensor("y", (1, 5), TensorType.FLOAT32)
    main.operator(BuiltinOperator.IF, [condition, x], [chosen], IfOptions(then_subgraph_index=1, else_subgraph_index=2))
    main.operator(BuiltinOperator.ABS, [chosen], [y])
    main.output(y)
    for code in (BuiltinOperator.NEG, BuiltinOperator.SQUARE):
        branch = builder.subgraph(code.name)
        value = branch.input("x", (1, 5), TensorType.FLOAT32)
        branch.output(branch.tensor("y", (1, 5), TensorType.FLOAT32))
        branch.operator(code, [value], [value + 1])
    model = tflm.Model(builder.build())
    steps = [[np.array([first]), np.full((1, 5), 3, np.float32)] for first in (True, False)]
    assert compared(LossyLink(SimulatedDevice(model)), steps, model).status is Status.EQUAL


@functools.cache
def model_with_state_of_floats() -> tflm.Model:
    """A model of an SVDF of floats with state."""
    builder = tflm.ModelBuilder()
    main = builder.subgraph()
    x, y = main.input("x", (1, 5), TensorType.FLOAT32), main.tensor("y", (1, 4), TensorType.FLOAT32)
    features, times = (main.constant(name, np.ones((4, size), np.float32)) for name, size in (("f", 5), ("t", 3)))
    bias = main.constant("bias", np.zeros(4, np.float32))
    state = main.tensor("state", (1, 12), TensorType.FLOAT32, is_variable=True)
    main.operator(BuiltinOperator.SVDF, [x, features, times, bias, state], [y], SVDFOptions(rank=1))
    main.output(y)
    return tflm.Model(builder.build())


@pytest.mark.parametrize("model", [model_with_state, model_with_state_of_floats])
def test_a_state_that_differs_is_wrong_unless_it_is_of_floats(model: Callable[[], tflm.Model]) -> None:
    """Also if no output shows it; floats may be rounded differently."""
    (state,) = (i for i, each in enumerate(model().subgraphs[0].tensors or ()) if each.is_variable)
    (svdf,) = (k for k, each in enumerate(model().subgraphs[0].operators or ()) if state in (each.inputs or ()))

    def fault(operator: int, output: Any) -> None:
        if operator == svdf:
            data = device.interpreter.get_tensor(state).data
            data[0, 11] = np.nextafter(data[0, 11], np.float32(9)) if data.dtype == np.float32 else data[0, 11] + 1

    device = SimulatedDevice(model(), fault)
    steps = [[values[0].astype(np.float32) if model is model_with_state_of_floats else values[0]] for values in STEPS]
    verdict = compared(LossyLink(device), steps, model())
    if model is model_with_state_of_floats:
        assert (verdict.status, verdict.invokes) == (Status.EQUAL, 3)
    else:
        assert (verdict.status, verdict.wrong.operator, verdict.wrong.invoke) == (Status.WRONG, "SVDF", 0)
        assert (verdict.wrong.tensor, verdict.wrong.element) == ("state", 11)


@pytest.mark.parametrize("operator", range(3))
@pytest.mark.parametrize("is_rounding", [True, False])
def test_floats_may_differ_by_rounding_at_every_operator_and_no_more(operator: int, is_rounding: bool) -> None:
    def fault(index: int, output: Any) -> None:
        if index == operator:
            output[0, 1] = np.nextafter(output[0, 1], np.float32(9)) if is_rounding else output[0, 1] + 0.5

    device = SimulatedDevice(model_of_floats(), fault)
    steps = [[np.linspace(1, 1 + i, 5, dtype=np.float32).reshape(1, 5)] for i in range(2)]
    verdict = compared(LossyLink(device), steps, model_of_floats())
    assert verdict.status is (Status.EQUAL if is_rounding else Status.WRONG)
    if not is_rounding:
        assert (verdict.wrong.operator_index, verdict.wrong.element) == (operator, 1)


@pytest.mark.parametrize("memory", [(NEVER, NEVER), (100, NEVER), (NEVER, 0), (0, 100)])
def test_what_a_device_does_not_know_of_its_memory_is_none(memory: tuple[int, int]) -> None:
    simulated = SimulatedDevice(model_with_state())
    simulated.memory = memory
    with Device(lambda: LossyLink(simulated), model_with_state()) as device:
        told = device.facts.stack_used_bytes, device.facts.heap_free_bytes
    assert told == tuple(None if each == NEVER else each for each in memory)


@pytest.mark.parametrize("operator", range(3))
def test_the_operator_that_is_wrong_is_named(operator: int) -> None:
    found = compared(LossyLink(SimulatedDevice(model_with_state(), off_by_one(operator)))).wrong
    assert (found.operator_index, found.overwrites, found.element) == (operator, False, 1)
    assert (np.argwhere(found.expected != found.received) == [[0, 1]]).all()
    assert found.invoke == 0
    assert len(found.inputs) == (2 if operator == 1 else 1)  # the state is one of them


def test_what_runs_once_runs_again_where_the_wrong_operator_is_sought() -> None:
    """A device that is reset allocates the model again, so CALL_ONCE sets variables again."""
    model = tflm.Model(counter(TensorType.INT8, 5, with_init=True))
    found = compared(LossyLink(SimulatedDevice(model, off_by_one(3))), STEPS, model).wrong
    assert (found.operator, found.invoke, found.element) == ("ADD", 0, 1)
    assert (np.argwhere(found.expected != found.received) == [[0, 1]]).all()


def test_an_operator_that_used_up_the_stack_is_told() -> None:
    with Device(lambda: LossyLink(SimulatedDevice(model_with_state(), overflow=1)), model_with_state()) as device:
        ran = run_device(device, STEPS, MachineOptions(), silent)
    assert ran.verdict.status is Status.EQUAL
    (line,) = overflow_lines(ran)
    assert line.startswith("operator 1 SVDF overflowed the stack")


def test_the_time_of_an_operator_is_the_median_of_the_invokes_in_microseconds() -> None:
    with Device(lambda: LossyLink(SimulatedDevice(model_with_state())), model_with_state()) as device:
        ran = run_device(device, STEPS, MachineOptions(), silent)
    medians = np.median(ran.verdict.ticks, axis=0)
    assert medians.all()
    assert [each.microseconds for each in ran.operators] == [*(medians / ran.facts.ticks_per_second * 1e6)]


class Requests(LossyLink):
    """A link that counts requests by their kind, and calls something before each of them.

    Args:
        before: called with the number of the request, from 0, and its kind.
    """

    def __init__(self, device: SimulatedDevice, before: Callable[[int, Kind], None] = lambda number, kind: None):
        super().__init__(device)
        self.kinds: list[Kind] = []
        self.before = before

    def write(self, data: bytes) -> None:
        """Count a request, and send it."""
        (asked,) = FrameReader().feed(data)
        self.before(len(self.kinds), Kind(asked.kind))
        self.kinds.append(Kind(asked.kind))
        super().write(data)


def chain(functions: Sequence[BuiltinOperator], elements: int) -> tflm.Model:
    """Functions of int8, one after the other."""
    builder = tflm.ModelBuilder()
    main = builder.subgraph()
    x = main.input("x", (1, elements), TensorType.INT8, quantized(0.1))
    for i, code in enumerate(functions):
        y = main.tensor(f"y{i}", (1, elements), TensorType.INT8, quantized(0.1))
        main.operator(code, [x], [y])
        x = y
    main.output(x)
    return tflm.Model(builder.build())


def invoked_twice(device: Device, steps: Any) -> list[bytes]:
    """The outputs of two invokes; fewer if the state of the first was lost."""
    found: list[bytes] = []
    with contextlib.suppress(tflm.DeviceReset):
        for values in steps[:2]:
            device.input(0).data[...] = values[0]
            device.invoke()
            found.append(bytes(device.output(0).data))
    return found


def forget(device: SimulatedDevice) -> None:
    """As when another host asks: the session is unknown, and the state is that of the last invoke."""
    device.session = device.last = 0


@pytest.mark.parametrize("lose", [SimulatedDevice.restart, forget])
@pytest.mark.parametrize("has_state", [False, True])
def test_a_session_lost_before_any_request_repeats_the_invoke_unless_its_state_is_lost(
    has_state: bool, lose: Callable[[SimulatedDevice], None]
) -> None:
    model = model_with_state() if has_state else chain([BuiltinOperator.RELU], 5)
    begins: list[int] = []
    expected: list[bytes] = []
    number, is_over = -1, False
    while not is_over:
        simulated = SimulatedDevice(model)
        link = Requests(simulated, lambda n, _, at=number, device=simulated: lose(device) if n == at else None)
        with Device(lambda to=link: to, model) as device:
            opened = len(link.kinds)
            found = invoked_twice(device, STEPS)
        expected = expected or found
        begins = begins or [n for n, kind in enumerate(link.kinds) if kind is Kind.WRITE]
        is_in_second = begins[1] <= number
        is_over = number >= len(link.kinds)
        assert found == (expected[:1] if has_state and is_in_second and not is_over else expected), number
        number = max(number + 1, opened)
    assert number > begins[1] > begins[0]


@pytest.mark.parametrize("resets", range(1, 5))
def test_an_invoke_is_started_three_times(resets: int) -> None:
    model, left = chain([BuiltinOperator.RELU], 5), [resets]
    simulated = SimulatedDevice(model)

    def before(_: int, kind: Kind) -> None:
        if kind is Kind.INVOKE and left[0]:
            left[0] -= 1
            simulated.restart()

    with Device(lambda: Requests(simulated, before), model) as device:
        assert len(invoked_twice(device, STEPS)) == (2 if resets < 3 else 0)


@pytest.mark.parametrize("elements", [1, 51, 52, 53, 104, 105])
def test_inputs_are_sent_in_requests_as_large_as_the_device_takes(elements: int) -> None:
    """Its largest request has 64 bytes, 12 of which say where the others belong."""
    model = chain([BuiltinOperator.RELU], elements)
    link = Requests(SimulatedDevice(model))
    values = np.arange(elements, dtype=np.int8).reshape(1, -1)
    with Device(lambda: link, model) as device:
        assert invoked_twice(device, [[values]]) == [values.tobytes()]
    assert link.kinds.count(Kind.WRITE) == -(-elements // 52)


@pytest.mark.parametrize("elements", [1, 2047, 2048, 2049, 4096, 4097])
def test_outputs_are_read_in_replies_of_2048_bytes(elements: int) -> None:
    model = chain([BuiltinOperator.RELU], elements)
    link = Requests(SimulatedDevice(model))
    with Device(lambda: link, model) as device:
        (found,) = invoked_twice(device, [[np.full((1, elements), 3, np.int8)]])
    assert found == bytes([3]) * elements
    assert link.kinds.count(Kind.READ) == -(-elements // 2048)


def test_tensors_are_read_before_and_after_each_operator() -> None:
    model = chain([BuiltinOperator.ABS, BuiltinOperator.HARD_SWISH, BuiltinOperator.RELU6], 5)
    here = ready_interpreter(model, preserve_all_tensors=True)
    with Device(lambda: LossyLink(SimulatedDevice(model)), model) as device:
        for each in (here, device):
            each.input(0).data[...] = [[-90, -1, 5, 20, 99]]
        here.invoke()
        tensors = [here.get_tensor(i).data.tobytes() for i in range(4)]
        places = {place: [(place + 1) // 2] for place in range(6)}
        assert device.observe(places) == {(place, i): tensors[i] for place, (i,) in places.items()}
        assert device.operators()["ticks"].tolist() == [7, 8, 9]
        assert device.operators()["checksum"].tolist() == [zlib.crc32(each) for each in tensors[1:]]
    assert len(set(tensors)) == 4


@pytest.mark.parametrize("wrong", [None, 1])
def test_a_comparison_reports_each_invoke_and_ends_at_the_first_that_differs(wrong: int | None) -> None:
    device, reported = SimulatedDevice(model_with_state()), []

    def fault(operator: int, output: Any) -> None:
        if operator == 1 and device.invokes == wrong:
            output[0, 1] ^= 1

    device.fault = fault
    with Device(lambda: LossyLink(device), model_with_state()) as opened:
        verdict = compare(
            *(opened, STEPS),
            target=tflm.targets.HOST,
            kernels=REFERENCE,
            advance=lambda: reported.append(device.invokes),
        )
    invokes = 3 if wrong is None else wrong + 1
    assert reported == [*range(1, invokes + 1)]
    assert (verdict.invokes, len(verdict.outputs), len(verdict.ticks)) == (invokes, invokes, invokes)
    if wrong is not None:
        assert (verdict.wrong.invoke, verdict.wrong.operator_index) == (wrong, 1)


MISHAP = st.builds(Mishap, st.integers(0, 2500), st.sampled_from(MISHAPS), st.integers(0, 7))
MAX_SECONDS = 3 * 60 * 40  # of the link's clock: every request has a limit


@pytest.mark.runs(0.5)
@settings(max_examples=RUNS, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(MISHAP, max_size=12), st.sampled_from([None, 0, 1, 2]))
def test_no_link_makes_a_verdict_wrong(mishaps: list[Mishap], wrong: int | None) -> None:
    """Bytes are lost, doubled, changed or late, chatter comes between them, and the device is reset at any byte."""
    device = SimulatedDevice(model_with_state(), None if wrong is None else off_by_one(wrong))
    link = LossyLink(device, mishaps)
    verdict = None
    with contextlib.suppress(tflm.DeviceError):
        verdict = compared(link)
    if outcomes.count(ran=verdict is not None):
        assert verdict.status is (Status.EQUAL if wrong is None else Status.WRONG)
        assert wrong is None or (verdict.wrong.operator_index, verdict.wrong.received is not None) == (wrong, True)
    assert link.seconds < MAX_SECONDS


def served(path: Path) -> str:
    """The port of a device in another process."""
    return "exec:" + shlex.join([sys.executable, str(Path(__file__).with_name("simulated_device.py")), str(path)])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The file of the model with state."""
    (tmp_path / "m.tflite").write_bytes(model_with_state().data)
    return tmp_path / "m.tflite"


def test_a_device_has_the_interpreters_interface(path: Path) -> None:
    """The model is read from the device, and state lasts until it is reset."""
    here = ready_interpreter(model_with_state(), preserve_all_tensors=True)
    with tflm.device.connect(served(path), preserve_all_tensors=True) as device:
        assert bytes(device.model.data) == bytes(model_with_state().data)
        for values in [*STEPS, None, *STEPS]:
            if values is None:
                device.reset()
                here.reset()
                continue
            for each in (device, here):
                each.input(0).data[...] = values[0]
                each.invoke()
            for i in (1, 6, 7):
                np.testing.assert_array_equal(device.get_tensor(i).data, here.get_tensor(i).data)
            np.testing.assert_array_equal(device.output(0).data, here.output(0).data)
        assert device.arena_used_bytes() == 1
        assert device.invokes == 6
    with (
        tflm.device.connect(served(path)) as device,
        pytest.raises(tflm.InterpreterError, match="preserve_all_tensors"),
    ):
        device.get_tensor(1)


@pytest.mark.parametrize("newer", [-1, 1])
def test_a_firmware_of_another_protocol_is_refused(newer: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("simulated_device.PROTOCOL", PROTOCOL + newer)
    with pytest.raises(tflm.DeviceError, match=f"has version {PROTOCOL + newer} of the protocol, not {PROTOCOL}"):
        Session(LossyLink(SimulatedDevice(model_with_state()))).open()


def test_a_device_with_another_model_is_told(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(tflm.WrongModel, match="another model"):
        tflm.device.connect(served(path), model_with_state())


class Stopped(Exception):
    """A run that is stopped."""


def test_an_evaluation_that_is_stopped_goes_on_where_it_was(tmp_path: Path) -> None:
    """The device is reset in the middle. Only the running sample is computed twice, and nothing is lost."""
    rng = np.random.default_rng(3)
    samples, labels = rng.integers(-128, 128, (200, 1, 5), np.int8), rng.integers(0, 4, 200)
    expected = tflm.evaluate(model_with_state(), samples, labels, workers=1)
    simulated, resets = SimulatedDevice(model_with_state()), [5_000, 20_000, 41_234]

    def evaluated(stop: int) -> Any:
        def report(done: int, total: int | None) -> None:
            assert total == 200
            if done == stop:
                raise Stopped

        link = LossyLink(simulated, [Mishap(byte, "reset", 0) for byte in resets])
        with Device(lambda: link, model_with_state()) as device:
            return tflm.evaluate(
                device.model, samples, labels, results=tmp_path / "r", report=report, device=device
            ), device.invokes

    with pytest.raises(Stopped):
        evaluated(77)
    before = simulated.invokes
    found, invokes = evaluated(-1)
    assert found.classification is not None
    assert expected.classification is not None
    np.testing.assert_array_equal(found.classification.confusion, expected.classification.confusion)
    np.testing.assert_array_equal(found.records["output0"], expected.records["output0"])
    assert invokes == 200 - 77
    assert 77 <= before <= 77 + len(resets)
    assert 200 <= simulated.invokes <= 200 + 2 * len(resets)


@pytest.mark.parametrize(
    ("mishaps", "named"),
    [
        ([Mishap(i, "drop", 0) for i in range(4000)], "nothing came"),
        ([Mishap(i, "flip", i % 8) for i in range(9000)], "baud"),
    ],
)
def test_a_silent_or_garbled_device_is_told_with_the_limit(mishaps: list[Mishap], named: str) -> None:
    link = LossyLink(SimulatedDevice(model_with_state()), mishaps)
    with pytest.raises(tflm.DeviceError, match="no answer to 'hello' within 5 s") as error:
        compared(link)
    assert link.seconds == pytest.approx(5)
    assert named == "baud" or named in str(error.value)


def test_a_request_that_is_lost_is_sent_again_before_the_limit() -> None:
    link = LossyLink(SimulatedDevice(model_with_state()), [Mishap(i, "drop", 0) for i in range(10)])
    assert compared(link).status is Status.EQUAL
    assert link.seconds < 5


def test_a_model_whose_last_tensor_alone_is_float_may_differ_by_rounding() -> None:
    builder = tflm.ModelBuilder()
    main = builder.subgraph()
    x = main.input("x", (1, 5), TensorType.INT8, quantized(0.1))
    y = main.tensor("y", (1, 5), TensorType.FLOAT32)
    main.operator(BuiltinOperator.DEQUANTIZE, [x], [y])
    main.output(y)
    model = tflm.Model(builder.build())

    def rounded(index: int, output: Any) -> None:
        output[0, 1] = np.nextafter(output[0, 1], np.float32(99))

    assert compared(LossyLink(SimulatedDevice(model, rounded)), STEPS, model).status is Status.EQUAL


def test_a_cut_wire_is_opened_again() -> None:
    """A board with USB, for example, disappears while it restarts."""
    simulated, opened, closed = SimulatedDevice(model_with_state()), [0], [0]

    class Cut(LossyLink):
        def close(self) -> None:
            closed[0] += 1

        def read(self, seconds: float) -> bytes:
            if opened[0] == 1 and self._count > 3_000:
                simulated.restart()
                raise tflm.DeviceReset("lossy: the connection is lost")
            return super().read(seconds)

    def wire() -> LossyLink:
        assert opened == closed  # most systems open a port only once
        opened[0] += 1
        return Cut(simulated)

    with Device(wire, model_with_state()) as device:
        outputs = []
        for values in STEPS * 20:
            device.reset()
            device.input(0).data[...] = values[0]
            device.invoke()
            outputs.append(bytes(device.output(0).data))
    assert opened[0] == 2
    assert outputs[:3] * 20 == outputs


# --- The firmware, on this machine ------------------------------------------------------------------------------


def firmware(
    folder: Path,
    change: Any = lambda text: text,
    model: tflm.Model | None = None,
    main: Any = lambda text: text,
    ram: int | None = None,
) -> str:
    """The port of a model as C that serves, built for this machine; `change` plants faults in its source.

    Args:
        main: changes the main source.
        ram: as of `compile_model`.
    """
    compiler = shutil.which("gcc") or shutil.which("clang")
    if compiler is None or sys.platform != "linux":
        pytest.skip("needs gcc or clang on Linux")
    model = model or model_with_state()
    compiled = tflm.compile_model(model, compiled_name("m"), ram=ram)
    files = compiled_sources(Firmware(model, "m", MachineOptions().machine(), "a test"), compiled, serve=True)
    write_files(folder, {**files, "m.c": change(files["m.c"]), "main.c": main(files["main.c"])})
    sources = [str(path) for path in folder.glob("*.c")]
    options = ["-std=c99", "-D_POSIX_C_SOURCE=200809L", "-O1", "-Wall", "-Wextra", "-Werror"]
    subprocess.run([compiler, *options, "-o", str(folder / "run"), *sources, "-lm"], check=True, timeout=120)
    return f"exec:{folder / 'run'}"


def verdict_of(port: str) -> Any:
    with tflm.device.connect(port, model_with_state()) as device:
        return compare(device, STEPS, target=tflm.targets.HOST, kernels=REFERENCE)


def test_served_c_is_equal_and_its_state_lasts(tmp_path: Path) -> None:
    verdict = verdict_of(firmware(tmp_path))
    assert (verdict.status, verdict.invokes, verdict.compared) == (Status.EQUAL, 3, 3)


@pytest.mark.parametrize("part", ["cortex-m0plus", "cortex-m4"])
def test_the_protocol_is_small(part: str, tmp_path: Path) -> None:
    """The size includes the main function of a model as C, its tables and the wire; the frame is a buffer."""
    if shutil.which("arm-none-eabi-gcc") is None:
        pytest.skip("needs arm-none-eabi-gcc")
    machine = MachineOptions(target=part).machine()
    write_files(
        tmp_path, compiled_project_files(Firmware(model_with_state(), "m", machine, "a test"), "qemu", serve=True)
    )
    gcc, made = "arm-none-eabi-gcc -std=c99 -mthumb -O2 -Wall -Wextra -Werror", tmp_path / "main.o"
    subprocess.run([*gcc.split(), f"-mcpu={part}", "-c", str(tmp_path / "main.c"), "-o", str(made)], check=True)
    text, data, bss = map(int, tool("arm-none-eabi-size", made).splitlines()[1].split()[:3])
    variables = {
        line.split()[3]: int(line.split()[1], 16)
        for line in tool("arm-none-eabi-nm", "-S", made).splitlines()
        if line.split()[-2] in "bBdD"
    }
    assert text + data <= 4096
    assert {*variables} == {"serving", "served_operators", "ram"}
    assert variables["serving"] <= 600
    assert bss == sum(variables.values())


def tool(*command: object) -> str:
    return subprocess.run(list(map(str, command)), capture_output=True, text=True, check=True).stdout


def test_variables_that_became_state_are_compared_by_the_models_operators(tmp_path: Path) -> None:
    images = Images(tflm.ModelBuilder().subgraph(), (1, 12, 4, 2))
    for _ in range(2):
        images.convolution(images.last, 3, (3, 1), (1, 1), padding=Padding.VALID)
    images.main.output(images.last)
    model = tflm.stream(tflm.Model(images.main.builder.build())).model
    frames = np.random.default_rng(0).integers(-128, 128, (4, 1, 1, 1, 4, 2), np.int8)
    with tflm.device.connect(firmware(tmp_path, model=model), model) as device:
        verdict = compare(device, list(frames), target=tflm.targets.HOST, kernels=REFERENCE)
    names = [model.operator_name(operator) for operator in model.subgraphs[0].operators]
    assert (verdict.status, verdict.invokes) == (Status.EQUAL, 4)
    assert verdict.compared >= names.count("CONV_2D")


def changed_table(text: str, operator: str) -> str:
    """The source of a model as C, with a table of an operator changed: weights, a multiplier or a look-up table."""
    found = re.search(rf"{operator}_\w+\[\d+\] = \{{(.*?)\}}", text, re.DOTALL)
    assert found is not None
    values = re.sub(r"-?\d+", lambda number: str(int(number[0]) ^ 1), found[1])
    return text[: found.start(1)] + values + text[found.end(1) :]


@pytest.mark.parametrize("operator", ["relu_0", "svdf_1", "logistic_2"])
def test_a_changed_table_of_served_c_is_found(operator: str, tmp_path: Path) -> None:
    wrong = verdict_of(firmware(tmp_path, lambda text: changed_table(text, operator))).wrong
    assert f"{wrong.operator.lower()}_{wrong.operator_index}" == operator
