"""CIRCULAR_BUFFER, the detection post-processing, TFLM_DECODE and ethos-u, beyond what strategies can compare."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from differential import assert_close, measured_figures, printed_figures, run
from flatbuffers import flexbuffers
from hypothesis import given, reject
from hypothesis import strategies as st
from models import FLOAT32, INT8, INT16, INT32, Case
from oracle import INSTALLED, Oracle, OracleError

import tflm
from tflm.memory import Buffer
from tflm.runtime.micro_measurement import _npu_bytes
from tflm.schema import ModelBuilder, TensorType, read_model, write_model
from tflm.testing.operators import OPERATORS, custom


@given(case=st.one_of([OPERATORS[name] for name in ("CIRCULAR_BUFFER", custom.DETECTION, "TFLM_DECODE")]))
def test_the_arena_is_what_the_wheel_says(oracle: Oracle, case: Case) -> None:
    model, (inputs, *_) = case
    try:
        printed = oracle.allocations(model, inputs)
    except OracleError:
        reject()  # TFLM refuses the model; where it refuses all, the test fails
    assert measured_figures(model) == printed_figures(printed)


# --- CIRCULAR_BUFFER -------------------------------------------------------------------------------------------------


def test_a_buffer_keeps_the_last_inputs_until_it_is_reset() -> None:
    builder = ModelBuilder()
    main = builder.subgraph()
    x = main.input("x", (1, 1, 1, 2), INT8, tflm.quantized(0.5, -3))
    kept = main.tensor("kept", (1, 3, 1, 2), INT8, tflm.quantized(0.5, -3), is_variable=True)
    y = main.tensor("y", (1, 3, 1, 2), INT8, tflm.quantized(0.5, -3))
    options = bytes(flexbuffers.Dumps({"cycles_max": 2}))
    main.operator("CIRCULAR_BUFFER", [x], [kept], custom_options=options)
    main.operator(tflm.schema.BuiltinOperator.RELU, [kept], [y])
    main.output(kept, y)
    interpreter = tflm.MicroInterpreter(tflm.Model(builder.build()), tflm.AllOpsResolver(), bytearray(1 << 14))
    interpreter.allocate_tensors()
    for _ in range(2):
        seen = []
        for i in range(4):
            interpreter.output(1).data[...] = -128
            interpreter.input(0).data[...] = i
            interpreter.invoke()
            seen.append((interpreter.output(0).data[0, :, 0, 0].tolist(), int(interpreter.output(1).data[0, 2, 0, 0])))
        assert seen == [([-3, -3, 0], -128), ([-3, 0, 1], 1), ([0, 1, 2], -128), ([1, 2, 3], 3)]
        interpreter.invoke()
        interpreter.reset()


@pytest.mark.parametrize("shape", [(1, 3, 1, 3), (1, 3, 2), (2, 3, 1, 2), (1, 3, 2, 2)])
def test_a_buffer_has_slots_of_the_shape_of_its_input(shape: tuple[int, ...]) -> None:
    builder = ModelBuilder()
    main = builder.subgraph()
    x, y = main.input("x", (1, 1, 1, 2), INT8), main.tensor("y", shape, INT8)
    main.operator("CIRCULAR_BUFFER", [x], [y])
    with pytest.raises(tflm.OperatorError, match=r"tensor 'y': has shape .*must be \[n, slots, w, depth\]"):
        run(builder.build(), [])


@pytest.mark.skipif(not INSTALLED, reason="tflite-micro is not installed (pip install -e '.[oracle]')")
@pytest.mark.parametrize("slots", [[3] * 6, [5, 3, 3, 3, 3, 3, 3], [13], [2, 25, 1], [3] * 4 + [5, 3]])
@pytest.mark.parametrize("dims", [(2, 96), (2, 95), (1, 96)])
def test_buffers_without_options_pause_by_their_number_and_shape(slots: list[int], dims: tuple[int, int]) -> None:
    """TFLM counts them as long as its process lives: each case has one of its own."""
    builder = ModelBuilder()
    main = builder.subgraph()
    scale = tflm.quantized(0.5, -3)
    x = main.input("x", (1, 1, *dims), INT8, scale)
    for i, count in enumerate(slots):
        kept = main.tensor(f"kept{i}", (1, count, *dims), INT8, scale, is_variable=True)
        main.operator("CIRCULAR_BUFFER", [x], [kept])
        main.output(kept)
    invocations = [[np.full((1, 1, *dims), i, np.int8)] for i in range(40)]
    oracle = Oracle()
    for ours, theirs in zip(run(builder.build(), invocations), oracle.run(builder.build(), invocations)):
        assert_close(ours, theirs)
    oracle.close()


# --- TFLite_Detection_PostProcess ------------------------------------------------------------------------------------


@st.composite
def fast_detections(draw: Any, per_box: int = 1) -> Case:
    """Detections by box."""
    return custom.detections(draw, use_regular_nms=False, max_classes_per_detection=per_box)


@given(data=st.data(), per_box=st.integers(1, 3))
def test_fast_detections_are_those_of_tflm(oracle: Oracle, data: st.DataObject, per_box: int) -> None:
    """TFLM leaves unused elements unchanged; here they are 0, and the written scores are not."""
    model, invocations = data.draw(fast_detections(per_box))
    for ours, theirs in zip(run(model, invocations), oracle.run(model, invocations)):
        assert ours[3] == theirs[3]
        written = ours[2] > 0
        for actual, expected in zip(ours[:3], theirs[:3]):
            np.testing.assert_allclose(actual[written], expected[written], 1e-5, 1e-6)
        assert not ours[0][~written].any()


@pytest.mark.parametrize(("per_box", "places"), [(1, [0, 1]), (2, [0, 3, 4, 7]), (5, [0, 3, 4, 7])])
def test_a_box_has_no_more_classes_than_there_are(per_box: int, places: list[int]) -> None:
    """Each of several classes of a box leaves a gap, as in TFLM."""
    options = custom.detection_options(use_regular_nms=False, max_detections=2, max_classes_per_detection=per_box)
    model = custom.detection_model(3, 3, 4, ANCHORS, options)
    found = [(0.9, 0), (0.1, 1), (0.7, 1), (0.4, 0)][:: 2 // min(per_box, 2)]
    for delegates in (None, ()):
        _, classes, scores, count = run(model, [[TWO_BOXES, SCORES]], delegates=delegates)[0]
        assert count.tolist() == [len(places)]
        assert np.flatnonzero(scores).tolist() == places
        assert [(round(float(scores[0, at]), 4), classes[0, at]) for at in places] == found


TWO_BOXES = np.array([[[0, 0, 0, 0], [1, 0, 0, 0], [0, 0, 0, 0]]], np.float32)
ANCHORS = np.array([[0.5, 0.5, 1, 1], [0.5, 0.5, 1, 1], [3.5, 0.5, 1, 1]], np.float32)
SCORES = np.array([[[0, 0.9, 0.1], [0, 0.8, 0.2], [0, 0.4, 0.7]]], np.float32)


@pytest.mark.parametrize("delegates", [None, ()])
@pytest.mark.parametrize("is_regular", [False, True])
def test_boxes_that_overlap_a_better_one_are_left_out(is_regular: bool, delegates: Any) -> None:
    options = custom.detection_options(use_regular_nms=is_regular, max_detections=2)
    model = custom.detection_model(3, 3, 4, ANCHORS, options)
    boxes, classes, scores, count = run(model, [[TWO_BOXES, SCORES]], delegates=delegates)[0]
    np.testing.assert_allclose(boxes, [[[0, 0, 1, 1], [3, 0, 4, 1]]], atol=1e-6)
    assert (classes.tolist(), count.tolist()) == ([[0, 1]], [2])
    np.testing.assert_allclose(scores, [[0.9, 0.7]])


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"max_detections": 0}, "max_detections = 0, must be 1 or more"),
        ({"num_classes": 0}, "num_classes = 0"),
        ({"detections_per_class": 0}, "detections_per_class = 0"),
        ({"nms_iou_threshold": 0.0}, "must be above 0"),
        ({"nms_iou_threshold": 1.5}, "at most 1"),
        ({"num_classes": 1}, r"must be \[1, 3, 1\]"),
        ({"num_classes": 4}, r"must be \[1, 3, 4\]"),
    ],
)
def test_options_that_nothing_can_be_detected_with_are_refused(changed: dict[str, Any], reason: str) -> None:
    with pytest.raises(tflm.OperatorError, match=reason):
        run(custom.detection_model(3, 3, 4, ANCHORS, custom.detection_options(**changed)), [])


def test_a_box_without_extent_is_refused() -> None:
    anchors = ANCHORS * np.array([1, 1, 1, 0], np.float32)
    model = custom.detection_model(3, 3, 4, anchors, custom.detection_options())
    with pytest.raises(tflm.OperatorError, match="box 0 is empty"):
        run(model, [[TWO_BOXES, SCORES]])


# --- TFLM_DECODE -----------------------------------------------------------------------------------------------------


def decoded(
    codes: Sequence[int], metadata: np.ndarray, *shape: int, type: TensorType = INT8, quantization: Any = None
) -> list[Any]:
    """Decode a tensor of that shape."""
    model = custom.decode_model([(np.array(codes, np.uint8), metadata, type, shape, quantization)])
    return run(model, [[]])[0][0].tolist()


VALUES = np.array([10, 20, 30, 40], np.int8)


def test_a_table_is_looked_up() -> None:
    head = custom.with_table(custom.metadata(custom.LOOK_UP, 2, 4), VALUES)
    assert decoded([0b00_01_10_11, 0b11_000000], head, 5) == [10, 20, 30, 40, 40]


def test_channels_along_the_last_dimension_have_tables_in_turn() -> None:
    head = custom.with_table(custom.metadata(custom.LOOK_UP, 1, 2), VALUES)
    assert decoded([0b01010000], head, 2, 2, quantization=tflm.quantized([1, 1], 0, 1)) == [[10, 40], [10, 40]]


def test_what_was_pruned_is_the_zero_point() -> None:
    head = custom.with_table(custom.metadata(custom.PRUNE), VALUES)
    assert decoded([0b01101000], head, 6, quantization=tflm.quantized(1, 7)) == [7, 10, 20, 7, 30, 7]


def test_codes_are_followed_from_table_to_table() -> None:
    """0 is 5, 10 is 6, 11 is 7: a table for one bit, which leads to one for the next."""
    symbol, table = 1 << 15 | 1 << 11, np.array([0, 1, 0, 0], np.uint16)
    table[[0, 2, 3]] = symbol | 5, symbol | 6, symbol | 7
    head = custom.with_table(custom.metadata(custom.HUFFMAN), table)
    assert decoded([0b0_10_11_0_0_0, 0, 0, 0], head, 5) == [5, 6, 7, 5, 5]


LOOK_UP = custom.with_table(custom.metadata(custom.LOOK_UP, 2, 4), VALUES)
HUFFMAN = custom.with_table(custom.metadata(custom.HUFFMAN), np.array([0, 1, 0, 0], np.uint16))


def changed(metadata: np.ndarray, place: int, value: int) -> np.ndarray:
    """The metadata with another byte."""
    copy = metadata.copy()
    copy[place] = value
    return copy


@pytest.mark.parametrize(
    ("metadata", "output", "reason"),
    [
        (LOOK_UP[:15], (4, INT8), "has 15 bytes"),
        (changed(LOOK_UP, 0, 127), (4, INT8), "compression type 127"),
        (changed(LOOK_UP, 1, 2), (4, INT8), "versions"),
        (changed(LOOK_UP, 4, 0), (4, INT8), "versions"),
        (changed(LOOK_UP, 5, 0), (4, INT8), "indices of no bits"),
        (LOOK_UP, (17, INT8), "need 34 bits"),
        (LOOK_UP, (4, TensorType.UINT8), "is UINT8"),
        (changed(LOOK_UP, 0, custom.PRUNE), (9, INT8), "there are values for 4"),
        (HUFFMAN, (4, INT16), "is INT16"),
        (HUFFMAN, (4, INT8), "leads out of its table|ends after"),
    ],
)
def test_what_can_not_be_decoded_is_refused(metadata: np.ndarray, output: tuple[int, TensorType], reason: str) -> None:
    with pytest.raises(tflm.OperatorError, match=reason):
        decoded([0xFF, 0xFF, 0xFF, 0x1B], metadata, output[0], type=output[1])


@pytest.mark.parametrize(
    ("names", "reason"),
    [
        (["codes"], "has 1 inputs, must have 2"),
        (["codes", "metadata", "codes"], "has 3 inputs, must have 2"),
        (["x", "metadata"], "must be a constant"),
        (["codes", "x"], "must be a constant"),
    ],
)
def test_each_output_needs_constant_codes_and_metadata(names: list[str], reason: str) -> None:
    main = ModelBuilder().subgraph()
    tensors = {
        "x": main.input("x", (20,), TensorType.UINT8),
        "codes": main.constant("codes", np.zeros(4, np.uint8)),
        "metadata": main.constant("metadata", LOOK_UP),
    }
    y = main.tensor("y", (4,), INT8, tflm.quantized(1))
    main.operator("TFLM_DECODE", [tensors[name] for name in names], [y])
    main.output(y)
    with pytest.raises(tflm.OperatorError, match=reason):
        run(main.builder.build(), [])


# --- ethos-u ---------------------------------------------------------------------------------------------------------


def npu_model(options: bytes = bytes([1, 4, 1]), subgraphs: int = 1) -> bytes:
    """In each subgraph a command stream, weights, two scratch areas, one input and one output."""
    builder = ModelBuilder()
    for _ in range(subgraphs):
        graph = builder.subgraph()
        commands = graph.constant("commands", np.arange(8).astype(np.uint8))
        weights = graph.constant("weights", np.array([3], np.uint8))
        areas = [graph.tensor(name, (16,), TensorType.UINT8) for name in ("arena", "fast scratch")]
        x, y = graph.input("x", (4,), INT8), graph.tensor("y", (4,), INT32)
        graph.operator("ethos-u", [commands, weights, *areas, x], [y], custom_options=options)
        graph.output(y)
    return builder.build()


def test_a_driver_gets_the_command_stream_and_views_of_the_memory() -> None:
    seen: list[Any] = []

    def driver(command_stream: np.ndarray, base_addresses: Sequence[np.ndarray]) -> None:
        seen.append((command_stream.tolist(), [len(memory) for memory in base_addresses]))
        weights, _arena, _scratch, x, y = base_addresses
        y.view(np.int32)[:] = x.view(np.int8).astype(np.int32) * weights[0]

    resolver = tflm.MicroMutableOpResolver(1)
    resolver.add_custom(tflm.ethos_u(driver))
    interpreter = tflm.MicroInterpreter(tflm.Model(npu_model()), resolver, bytearray(4096))
    interpreter.allocate_tensors()
    interpreter.input(0).data = np.array([1, -2, 3, -4], np.int8)
    interpreter.invoke()
    assert seen == [(list(range(8)), [1, 16, 16, 4, 16])]
    assert interpreter.output(0).data.tolist() == [3, -6, 9, -12]


def test_an_npu_has_the_two_scratch_areas_of_each_subgraph_in_the_arena() -> None:
    model, tensors = tflm.Model(npu_model(subgraphs=2)), range(12)
    planned = [Buffer(1 << tensor, 0, 1, 1 << tensor, tensor=tensor) for tensor in tensors]
    assert _npu_bytes(model, planned) == sum(1 << tensor for tensor in (2, 3, 8, 9))
    assert _npu_bytes(model, [replace(buffer, tensor=None) for buffer in planned]) == 0


@pytest.mark.parametrize(("inputs", "seen"), [(1, 5), (4, 8), (6, 8)])
def test_a_driver_gets_the_first_eight_tensors_after_the_command_stream(inputs: int, seen: int) -> None:
    addresses: list[int] = []
    resolver = tflm.MicroMutableOpResolver(1)
    resolver.add_custom(tflm.ethos_u(lambda _, base_addresses: addresses.append(len(base_addresses))))
    root = read_model(npu_model())
    (main,) = root.subgraphs or ()
    (operator,) = main.operators or ()
    operator.inputs = (*(operator.inputs or ())[:4], *(operator.inputs or ())[4:] * inputs)
    interpreter = tflm.MicroInterpreter(tflm.Model(write_model(root)), resolver, bytearray(4096))
    interpreter.allocate_tensors()
    interpreter.invoke()
    assert addresses == [seen]


def test_without_a_driver_the_error_says_how_to_give_one() -> None:
    with pytest.raises(tflm.OperatorError, match=r"needs a driver.*tflm\.ethos_u\(driver\)"):
        run(npu_model(), [])


def allocate_npu(options: bytes) -> None:
    resolver = tflm.MicroMutableOpResolver(1)
    resolver.add_custom(tflm.ethos_u(lambda *_: None))
    tflm.MicroInterpreter(tflm.Model(npu_model(options)), resolver, bytearray(4096)).allocate_tensors()


@pytest.mark.parametrize("options", [b"", bytes([2, 4, 1]), bytes([1, 12, 1]), bytes([4, 8])])
def test_a_command_stream_for_something_else_is_refused(options: bytes) -> None:
    with pytest.raises(tflm.OperatorError, match="for a command stream of an Ethos-U"):
        allocate_npu(options)


@pytest.mark.parametrize("width", [1, 2, 3, 4, 8])
@pytest.mark.parametrize("kind", range(4))
def test_options_of_a_command_stream_are_one_integer(width: int, kind: int) -> None:
    """Of one to eight bytes, signed or not: kinds 1 and 2."""
    one, two = (value.to_bytes(width, "little") + bytes([kind << 2, width]) for value in (1, 2))
    is_integer = kind in (1, 2) and width != 3
    for options, is_taken in ((one, is_integer), (two, False), (one[1:], False)):
        refuses = pytest.raises(tflm.OperatorError, match="for a command stream of an Ethos-U")
        with nullcontext() if is_taken else refuses:
            allocate_npu(options)


def test_floats_only_are_post_processed() -> None:
    builder = ModelBuilder()
    main = builder.subgraph()
    inputs = [main.input(name, shape, INT8) for name, shape in (("b", (1, 3, 4)), ("s", (1, 3, 3)), ("a", (3, 4)))]
    outputs = [main.tensor(f"y{i}", (8,), FLOAT32) for i in range(4)]
    options = bytes(flexbuffers.Dumps(custom.detection_options()))
    main.operator(custom.DETECTION, inputs, outputs, custom_options=options)
    with pytest.raises(tflm.OperatorError, match="is INT8; supported here: FLOAT32"):
        run(builder.build(), [])


@pytest.mark.parametrize(("size", "beside"), [(2, 0), (3, 1), (18, 1), (19, 2), (34, 2), (35, 3), (64, 3)])
def test_tensors_beside_the_arena_begin_at_multiples_of_16(size: int, beside: int) -> None:
    """Three tensors of 3 bytes, in the order of one operator's outputs; what does not fit goes into the arena."""
    head = custom.with_table(custom.metadata(custom.LOOK_UP, 2, 4), VALUES)
    codes = [np.array([of], np.uint8) for of in (0b00_01_10_00, 0b11_10_01_00, 0b00_00_11_00)]
    model = custom.decode_model([(of, head, INT8, (3,), None) for of in codes])
    memory = bytearray(size)
    interpreter = tflm.MicroInterpreter(
        tflm.Model(model), tflm.AllOpsResolver(), bytearray(1 << 14), decompression_memory=memory
    )
    interpreter.allocate_tensors()
    interpreter.invoke()
    answers = [[10, 20, 30], [40, 30, 20], [10, 10, 40]]
    assert [interpreter.output(i).data.tolist() for i in range(3)] == answers
    held = [list(memory[start : start + 3]) for start in (0, 16, 32)]
    assert [of == answer for of, answer in zip(held, answers)] == [i < beside for i in range(3)]
