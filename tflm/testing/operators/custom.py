"""Models of custom operators that are no part of signal processing."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
from hypothesis import strategies as st

from tflm.schema import BuiltinOperator, ModelBuilder, TensorType, quantized
from tflm.testing.drawing import (
    FLOAT32,
    INT8,
    INT16,
    INT32,
    INT64,
    Draw,
    OperatorCase,
    SingleOperator,
    custom_options,
    values,
    zero_points,
)
from tflm.testing.operators.declared import OPERATORS, DrawnOperator, strategy

INVOKES = 7
DETECTION = "TFLite_Detection_PostProcess"
LOOK_UP, HUFFMAN, PRUNE = 0, 1, 2


@st.composite
def circular_buffer(draw: Draw) -> OperatorCase:
    """Two buffers one after the other, with a RELU between them; both pause, or one, or none."""
    width, depth = draw(st.integers(1, 3)), draw(st.integers(1, 5))
    builder = ModelBuilder()
    main = builder.subgraph()
    scale = quantized(0.5, draw(zero_points(INT8)))
    x = main.input("x", (1, 1, width, depth), INT8, scale)
    tensor = x
    for i in range(2):
        slots = draw(st.sampled_from([1, 2, 3, 5, 13, 25]))
        cycles = draw(st.sampled_from([None, None, -1, 0, 1, 2, 3]))
        options = None if cycles is None else custom_options({"cycles_max": cycles})
        output = main.tensor(f"buffer{i}", (1, slots, width, depth), INT8, scale, is_variable=True)
        main.operator("CIRCULAR_BUFFER", [tensor], [output], custom_options=options)
        tensor = main.tensor(f"first{i}", (1, 1, width, depth), INT8, scale)
        main.operator(BuiltinOperator.RELU, [x], [tensor])
        main.output(output)
    return builder.build(), [[values(draw, INT8, (1, 1, width, depth))] for _ in range(INVOKES)]


def detection_options(**changed: Any) -> dict[str, Any]:
    """Options that go with two classes."""
    options = {
        "max_detections": 5,
        "max_classes_per_detection": 1,
        "detections_per_class": 3,
        "use_regular_nms": True,
        "nms_score_threshold": 0.3,
        "nms_iou_threshold": 0.5,
        "num_classes": 2,
        "y_scale": 10.0,
        "x_scale": 10.0,
        "h_scale": 5.0,
        "w_scale": 5.0,
    }
    return options | changed


def detection_model(boxes: int, classes: int, coordinates: int, anchors: np.ndarray, options: dict[str, Any]) -> bytes:
    """A detector's last operator; `classes` counts a background, if there is one."""
    model = SingleOperator()
    for size in (coordinates, classes):
        model.input(FLOAT32, [np.zeros((1, boxes, size), np.float32)])
    model.constant(anchors)
    room = options["max_detections"] * min(options["max_classes_per_detection"], options["num_classes"]) ** 2
    shapes = [(1, room, 4), (1, room), (1, room), (1,)]
    data, _ = model.case(DETECTION, [(shape, FLOAT32, None) for shape in shapes], **options)
    return data


def detections(draw: Draw, /, **changed: Any) -> OperatorCase:
    """Detections over a few boxes that overlap, with scores of which some are equal.

    By class they write all of the outputs; the fast ones leave the rest of them as it was.
    """
    boxes, num_classes = draw(st.integers(1, 40)), draw(st.integers(1, 4))
    classes = num_classes + draw(st.integers(0, 1))
    coordinates = draw(st.sampled_from([4, 4, 6]))
    options = detection_options(
        num_classes=num_classes,
        max_detections=draw(st.integers(1, 8)),
        detections_per_class=draw(st.integers(1, 5)),
        nms_score_threshold=draw(st.sampled_from([0.0, 0.3, 0.6])),
        nms_iou_threshold=draw(st.sampled_from([0.1, 0.35, 0.6, 1.0])),
        **changed,
    )
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    anchors = rng.uniform(0.2, 1, (boxes, 4)).astype(np.float32)
    model = detection_model(boxes, classes, coordinates, anchors, options)
    scores = rng.choice(rng.uniform(0, 1, 3 * boxes + 1), (1, boxes, classes)).astype(np.float32)
    return model, [[rng.uniform(-2, 2, (1, boxes, coordinates)).astype(np.float32), scores] for _ in range(2)]


def metadata(kind: int, parameters: int = 0, stride: int = 0) -> np.ndarray:
    """The 16 bytes that say how a tensor is compressed."""
    data = np.zeros(16, np.uint8)
    data[[0, 1, 4, 5, 6]] = kind, 1, 1, parameters, stride
    return data


def packed(indices: np.ndarray, width: int) -> np.ndarray:
    """Indices of `width` bits each, one after the other from the highest bit of the first byte."""
    bits = indices.reshape(-1, 1) >> np.arange(width, dtype=np.int64)[::-1] & 1
    return np.packbits(bits.astype(np.uint8))


def with_table(head: np.ndarray, table: np.ndarray) -> np.ndarray:
    """Metadata with its table, of any type."""
    return np.concatenate([head, np.frombuffer(table.tobytes(), np.uint8)])


Encoded = tuple[np.ndarray, np.ndarray, TensorType, tuple[int, ...], Any]
"""Codes, metadata, and the output's type, shape and quantization."""

VALUE_TYPES = [INT8, INT8, FLOAT32, INT16, INT32, INT64, TensorType.BOOL]


def channels_of(draw: Draw, type: TensorType) -> tuple[tuple[int, ...], Any, int]:
    """A shape, quantization by channel along the first or last dimension, and the number of channels."""
    shape = tuple(draw(st.lists(st.integers(1, 7), min_size=1, max_size=3)))
    along = draw(st.sampled_from(["none", "all", "first", "last"])) if type != FLOAT32 else "none"
    if along in ("none", "all"):
        zero = draw(zero_points(INT8)) if type == INT8 else 0
        return shape, None if along == "none" else quantized(0.5, zero), 1
    dimension = 0 if along == "first" else len(shape) - 1
    channels = shape[dimension]
    zeros = [draw(zero_points(INT8)) if type == INT8 else 0 for _ in range(channels)]
    return shape, quantized([0.5] * channels, zeros, dimension), channels


def look_up(draw: Draw) -> Encoded:
    """A table of values for each channel."""
    type, width = draw(st.sampled_from(VALUE_TYPES)), draw(st.integers(1, 7))
    shape, parameters, channels = channels_of(draw, type)
    stride = draw(st.integers(1, 2**width))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    indices = rng.integers(0, stride, math.prod(shape))
    table = values(draw, type, (channels * stride,))
    padding = np.zeros(8, np.uint8)
    codes = np.concatenate([packed(indices, width), padding])
    return codes, with_table(metadata(LOOK_UP, width, stride), table), type, shape, parameters


def pruned(draw: Draw) -> Encoded:
    """Draw values, and a bitmap of their positions."""
    type = draw(st.sampled_from(VALUE_TYPES))
    shape, parameters, _ = channels_of(draw, type)
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    kept = rng.integers(0, 2, math.prod(shape))
    table = values(draw, type, (int(kept.sum(dtype=np.int64)),))
    return packed(kept, 1), with_table(metadata(PRUNE), table), type, shape, parameters


def huffman(draw: Draw) -> Encoded:
    """Codes of a random prefix code, and tables that find them in steps of a few bits."""
    type = draw(st.sampled_from([INT8, INT16]))
    wide = type == INT16 or draw(st.booleans())
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    codes = prefix_code(rng, draw(st.integers(2, 12)))
    symbols = rng.integers(0, 2**11, len(codes)).tolist()
    first, step = draw(st.integers(1, 5)), draw(st.integers(1, 4))
    table = tables_of(dict(zip(codes, symbols)), first, step, 32 if wide else 16)
    shape = tuple(draw(st.lists(st.integers(1, 9), min_size=1, max_size=3)))
    chosen = rng.integers(0, len(codes), math.prod(shape))
    bits = "".join(codes[i] for i in chosen)
    bits += "0" * (64 - len(bits) % 32)
    words = np.array([int(bits[i : i + 32], 2) for i in range(0, len(bits), 32)], ">u4")
    head = metadata(HUFFMAN, int(wide) | (first - 1) << 4)
    dtype = np.uint32 if wide else np.uint16
    return np.frombuffer(words.tobytes(), np.uint8), with_table(head, np.array(table, dtype)), type, shape, None


def prefix_code(rng: np.random.Generator, count: int) -> list[str]:
    """Codes of which none begins with another, made by splitting."""
    codes = ["0", "1"]
    while len(codes) < count:
        code = codes.pop(int(rng.integers(len(codes))))
        codes += [code + "0", code + "1"]
    return codes


def tables_of(codes: dict[str, int], bits: int, step: int, size: int) -> list[int]:
    """The entries of the table for codes, and of those that it leads to, each of `step` bits."""
    table: list[int] = []

    def add(codes: dict[str, int], bits: int) -> int:
        start = len(table)
        table.extend([0] * 2**bits)
        for index in range(2**bits):
            prefix = format(index, f"0{bits}b")
            found = next((code for code in codes if prefix.startswith(code)), None)
            if found is not None:
                table[start + index] = 1 << (size - 1) | len(found) << (size - 5) | codes[found]
            else:
                rest = {code[bits:]: symbol for code, symbol in codes.items() if code.startswith(prefix)}
                table[start + index] = (step - 1) << (size - 5) | (add(rest, step) - (start + index))
        return start

    add(codes, bits)
    return table


def decode_model(encoded: list[Encoded]) -> bytes:
    """Return a model in which one operator decodes all tensors; another operator, and the caller, copy each output."""
    model = SingleOperator()
    for codes, head, *_ in encoded:
        model.constant(codes)
        model.constant(head)
    data, _ = model.case("TFLM_DECODE", [(shape, type, parameters) for *_, type, shape, parameters in encoded])
    return data


@st.composite
def decode(draw: Draw) -> OperatorCase:
    """One to three tensors, each compressed in its own way."""
    kinds = draw(st.lists(st.sampled_from([look_up, huffman, pruned]), min_size=1, max_size=3))
    return decode_model([kind(draw) for kind in kinds]), [[], []]


OPERATORS |= {"CIRCULAR_BUFFER": circular_buffer(), DETECTION: st.composite(detections)(), "TFLM_DECODE": decode()}


def classifier_case(model: SingleOperator, *inputs: npt.NDArray[Any]) -> OperatorCase:
    """Return the model, and the inputs: posteriors, classes and thresholds."""
    for array in inputs:
        model.input(INT32, [array])
    classes = inputs[1]
    return model.case("BasicClassifier", [(classes.shape, TensorType.BOOL, None), (classes.shape, INT32, None)])


@strategy("BasicClassifier")
def basic_classifier(draw: Draw, model: DrawnOperator) -> OperatorCase:
    """Any classes, sometimes one that does not exist."""
    shape = draw(st.sampled_from([(1,), (7,), (40,), (1, 5), (1, 9), (2, 3), (3, 8), (1, 1, 3)]))
    count = math.prod(shape)
    lowest, highest = draw(st.sampled_from([(0, count - 1)] * 4 + [(-1, count - 1), (0, count)]))
    classes = np.array(draw(st.lists(st.integers(lowest, highest), min_size=1, max_size=6)), np.int32)
    posteriors, thresholds = values(draw, INT32, shape), values(draw, INT32, classes.shape)
    if draw(st.booleans()):
        thresholds[0] = posteriors.reshape(-1)[classes[0] % count]
    return classifier_case(model, posteriors, classes, thresholds)
