"""TensorFlow's operators in models: numpy's functions compared with TensorFlow's results, and the delegate that runs
them."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flatbuffers import flexbuffers
from flex_cases import ONE_OUTPUT, Case, cases

import tflm
from tflm.delegates import FlexDelegate
from tflm.delegates.flex import node_def, tensorflow
from tflm.delegates.flex.registry import OPERATORS, bound
from tflm.memory.tensor import affine_quantization
from tflm.runtime.model_report import model_report
from tflm.schema.enums import TENSOR_TYPES


def arrays(path: Path) -> dict[str, Any]:
    """Return the contents of a numpy file."""
    with np.load(path) as file:
        return dict(file)


ANSWERS = arrays(Path(__file__).with_name("flex_answers.npz"))
CASES = cases()
TYPE_NUMBERS = {dtype: number for number, dtype in reversed(node_def.DTYPES.items())}


def inputs_of(case: Case) -> list[Any]:
    return [x for given in case.inputs for x in (given if isinstance(given, list) else [given])]


def answers(index: int) -> list[Any]:
    names = [f"{index}_{j}" for j in range(10)]
    return [ANSWERS[name] for name in names if name in ANSWERS]


def check(given: Any, expected: Any, step: float = 0.0) -> None:
    assert given.shape == expected.shape
    if expected.dtype.kind in "biu":
        np.testing.assert_array_equal(given.astype(expected.dtype), expected)
    else:
        np.testing.assert_allclose(given, expected, rtol=2e-5, atol=step + 1e-6)


@pytest.mark.parametrize("name", sorted({case.operator for case in CASES}))
def test_numpy_gives_what_tensorflow_gives(name: str) -> None:
    for i, case in enumerate(CASES):
        if case.operator == name:
            with np.errstate(all="ignore"):
                given = bound(case.operator, case.attributes)(*inputs_of(case))
            compared = given[:1] if name in ONE_OUTPUT else given
            for ours, theirs in zip(compared, answers(i), strict=True):
                check(ours, theirs)


def test_every_family_is_compared() -> None:
    compared = {case.operator for case in CASES}
    assert len(compared) >= 200
    assert compared <= OPERATORS.keys()


def options(operator: str, attributes: dict[str, Any]) -> bytes:
    """The custom options of a Flex operator: a flexbuffer of the name and the serialized NodeDef."""
    message = node_def._messages()["NodeDef"](name="node", op=operator)
    for key, value in attributes.items():
        entry = message.attr.add(key=key)
        if isinstance(value, np.dtype):
            entry.value.type = TYPE_NUMBERS[value]
        elif isinstance(value, bytes):
            entry.value.s = value
        elif isinstance(value, bool):
            entry.value.b = value
        elif isinstance(value, list):
            entry.value.list.SetInParent()
            (entry.value.list.f if any(isinstance(v, float) for v in value) else entry.value.list.i).extend(value)
        elif isinstance(value, float):
            entry.value.f = value
        else:
            entry.value.i = value
    builder = flexbuffers.Builder()
    with builder.Vector():
        builder.String(operator)
        builder.Blob(message.SerializeToString())
    return bytes(builder.Finish())


def model(case: Case, outputs: list[Any], signature: tuple[int, ...] | None = None) -> tflm.Model:
    """A model of one Flex operator, its inputs those of the model."""
    builder = tflm.ModelBuilder()
    main = builder.subgraph()
    inputs = [main.input(f"x{i}", x.shape, TENSOR_TYPES[x.dtype]) for i, x in enumerate(inputs_of(case))]
    made = [main.tensor(f"y{i}", y.shape, TENSOR_TYPES[y.dtype]) for i, y in enumerate(outputs)]
    main.operator(f"Flex{case.operator}", inputs, made, custom_options=options(case.operator, case.attributes))
    for tensor in made:
        main.output(tensor)
        (main.table.tensors or [])[tensor].shape_signature = signature
    return tflm.Model(builder.build())


def interpreter(made: tflm.Model, **arguments: Any) -> tflm.MicroInterpreter:
    return tflm.MicroInterpreter(made, tflm.AllOpsResolver(), bytearray(1 << 16), **arguments)


RUNNABLE = [i for i, case in enumerate(CASES) if all(x.size for x in [*inputs_of(case), *answers(i)])][::7]


@pytest.mark.parametrize("index", RUNNABLE, ids=lambda i: CASES[i].operator)
def test_a_model_with_a_flex_operator_runs_without_being_told(index: int) -> None:
    case, expected = CASES[index], answers(index)
    made = interpreter(model(case, expected))
    made.allocate_tensors()
    assert [type(node.delegate).__name__ for node in made.execution_plan()] == ["FlexDelegate"]
    for i, value in enumerate(inputs_of(case)):
        made.input(i).data[...] = value
    made.invoke()
    for i, value in enumerate(expected):
        check(np.asarray(made.output(i).data), value)


SINE = Case("Sin", {"T": np.dtype(np.float32)}, [np.zeros((2, 3), np.float32)])


def test_without_the_delegate_the_operator_is_missing() -> None:
    with pytest.raises(tflm.UnresolvedOperator, match="FlexSin is an operator of TensorFlow, which no device can run"):
        interpreter(model(SINE, SINE.inputs), delegates=()).allocate_tensors()


def test_an_operator_that_numpy_lacks_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensorflow, "is_installed", lambda: False)
    made = interpreter(model(SINE._replace(operator="Betainc"), SINE.inputs))
    with pytest.raises(tflm.OperatorError, match=r"0 FlexBetainc.*pip install tensorflow"):
        made.allocate_tensors()


def test_an_open_shape_is_refused_by_the_tensors_name() -> None:
    with pytest.raises(tflm.OperatorError, match=r"'y0': has the open shape \[-1, 3\]"):
        interpreter(model(SINE, SINE.inputs, (-1, 3))).allocate_tensors()


def test_another_shape_than_the_models_is_refused() -> None:
    made = interpreter(model(SINE, [np.zeros((3, 2), np.float32)]))
    made.allocate_tensors()
    said = r"'y0': has shape \[3, 2\] in the model, the operator returns \[2, 3\]"
    with pytest.raises(tflm.OperatorError, match=said):
        made.invoke()


@pytest.mark.parametrize("custom_options", [b"", b"nonsense", bytes(40), options("Sin", {})[:-4]])
def test_broken_options_are_refused(custom_options: bytes) -> None:
    with pytest.raises(tflm.OperatorError, match="custom options"):
        node_def.flex_node(custom_options)


def test_the_models_of_tensorflows_converter(corpus: Path) -> None:
    """Where the converter added quantized tensors, which TensorFlow's own results lack, they are off by a step."""
    folder = corpus / "flex"
    if not folder.is_dir():
        pytest.skip("no folder flex beside the real models")
    paths = sorted(folder.glob("*.tflite"))
    assert paths, f"no models in {folder}"
    for path in paths:
        recorded, loaded = arrays(path.with_suffix(".npz")), tflm.Model.from_file(path)
        made = interpreter(loaded, delegates=[FlexDelegate(use_tensorflow=False)])
        made.allocate_tensors()
        for i in range(made.inputs_size()):
            made.input(i).data = recorded[f"in{i}"]
        made.invoke()
        quantized = [affine_quantization(table) for table in loaded.subgraphs[0].tensors or ()]
        step = max((scale for q in quantized if q is not None for scale in q.scale), default=0.0)
        for i in range(made.outputs_size()):
            check(np.asarray(made.output(i).data), recorded[f"out{i}"], step)


def test_a_report_names_the_operators_that_no_device_can_run() -> None:
    assert "TensorFlow's operators: FlexSin" in str(model_report(model(SINE, SINE.inputs)).notes)


def numbers(*values: float, dtype: Any = np.float32) -> np.ndarray[Any, Any]:
    return np.array(values, dtype)


def i32(*values: int) -> np.ndarray[Any, Any]:
    return numbers(*values, dtype=np.int32)


def row(*values: float) -> np.ndarray[Any, Any]:
    """An image of one row and one channel."""
    return numbers(*values).reshape(1, 1, -1, 1)


HALVES = numbers(-300, -127.5, -2.5, -1.5, -0.5, 0, 0.5, 1.5, 2.5, 126.5, 300)
"""Ties at a scale of one, and what saturates."""
EVEN, AWAY, UP = (
    {b"HALF_TO_EVEN": [-2, -2, 0, 0, 0, 2, 2, 126], b"HALF_AWAY_FROM_ZERO": [-3, -2, -1, 0, 1, 2, 3, 127],
     b"HALF_UP": [-2, -1, 0, 0, 1, 2, 3, 127]}[mode] for mode in (b"HALF_TO_EVEN", b"HALF_AWAY_FROM_ZERO", b"HALF_UP")
)  # fmt: skip
ONE_RANGE = numbers(-128)[0], numbers(127)[0]
NARROW_RANGE = numbers(-127)[0], numbers(127)[0]
INT8, UINT8 = np.dtype(np.int8), np.dtype(np.uint8)

FACTS: list[tuple[str, dict[str, Any], list[Any], list[list[float]]]] = [
    # Rounding to 8 bits and back, at a scale of one.
    ("QuantizeAndDequantizeV2", {}, [HALVES, *ONE_RANGE], [[-128, -128, *EVEN, 127]]),
    ("QuantizeAndDequantizeV2", {"round_mode": b"HALF_UP"}, [HALVES, *ONE_RANGE], [[-128, -127, *UP, 127]]),
    ("QuantizeAndDequantizeV2", {"narrow_range": True}, [HALVES, *NARROW_RANGE], [[-127, -127, *EVEN, 127]]),
    (
        "QuantizeAndDequantizeV2",
        {"signed_input": False},
        [numbers(-1, 0, 0.5, 1.5, 254.5, 255, 300), numbers(0)[0], numbers(255)[0]],
        [[0, 0, 0, 2, 254, 255, 255]],
    ),
    (
        "QuantizeAndDequantizeV2",
        {"num_bits": 3, "range_given": False, "round_mode": b"HALF_UP"},
        [numbers(-4, -0.5, 0.5, 2.5, 3), *ONE_RANGE],
        [[-4, 0, 1, 3, 3]],
    ),
    ("QuantizeAndDequantizeV2", {}, [numbers(1, 2), numbers(0)[0], numbers(0)[0]], [[1, 2]]),
    ("QuantizeAndDequantizeV3", {}, [numbers(-9, 0.5, 9), numbers(-4)[0], numbers(3)[0], np.int32(3)], [[-4, 0, 3]]),
    # The smaller of two scales counts.
    ("QuantizeAndDequantizeV2", {}, [numbers(-300, 300, 63.7), numbers(-256)[0], numbers(127)[0]], [[-256, 254, 64]]),
    ("QuantizeAndDequantizeV2", {}, [numbers(-300, 300, 63.7), numbers(-1)[0], numbers(254)[0]], [[-256, 254, 64]]),
    # To 8 bits.
    ("QuantizeV2", {"T": INT8, "mode": b"SCALED"}, [HALVES, *ONE_RANGE], [[-128, -128, *AWAY, 127], -128.0, 127.0]),
    (
        "QuantizeV2",
        {"T": INT8, "mode": b"SCALED", "round_mode": b"HALF_TO_EVEN"},
        [HALVES, *ONE_RANGE],
        [[-128, -128, *EVEN, 127], -128.0, 127.0],
    ),
    (
        "QuantizeV2",
        {"T": INT8, "mode": b"SCALED", "narrow_range": True},
        [HALVES, *NARROW_RANGE],
        [[-127, -127, *AWAY, 127], -127.0, 127.0],
    ),
    (
        "QuantizeV2",
        {"T": UINT8, "mode": b"SCALED", "narrow_range": True},
        [numbers(-5, 0.5, 254.4, 300), numbers(0)[0], numbers(255)[0]],
        [[0, 1, 254, 255], 0.0, 255.0],
    ),
    (
        "QuantizeV2",
        {"T": UINT8},
        [numbers(-5, 0, 0.4, 0.5, 1.5, 254.4, 254.5, 255, 300), numbers(0)[0], numbers(255)[0]],
        [[0, 0, 0, 1, 2, 254, 255, 255, 255], 0.0, 255.0],
    ),
    (
        "QuantizeV2",
        {"T": INT8, "mode": b"MIN_FIRST"},
        [numbers(-200, -128, -0.5, 0.5, 1.5, 127, 200), *ONE_RANGE],
        [[-128, -128, 0, 0, 2, 127, 127], -128.0, 127.0],
    ),
    # A range begins at zero or below, ends at zero or above, and is not empty.
    ("QuantizeV2", {"T": UINT8}, [numbers(51, 255), numbers(51)[0], numbers(255)[0]], [[51, 255], 0.0, 255.0]),
    ("QuantizeV2", {"T": UINT8}, [numbers(0, 0.01, 1), numbers(0)[0], numbers(0)[0]], [[0, 255, 255], 0.0, 0.01]),
    (
        "QuantizeV2",
        {"T": UINT8, "ensure_minimum_range": 0.5},
        [numbers(-100, 0), numbers(-100)[0], numbers(-90)[0]],
        [[0, 255], -100.0, 0.0],
    ),
    # And back.
    ("Dequantize", {"mode": b"SCALED"}, [numbers(-128, 1, 127, dtype=np.int8), *ONE_RANGE], [[-128, 1, 127]]),
    (
        "Dequantize",
        {"mode": b"SCALED", "narrow_range": True},
        [numbers(-127, 1, 127, dtype=np.int8), *NARROW_RANGE],
        [[-127, 1, 127]],
    ),
    (
        "Dequantize",
        {"mode": b"SCALED", "narrow_range": True},
        [numbers(-127, 1, 127, dtype=np.int8), numbers(-254)[0], numbers(127)[0]],
        [[-254, 2, 254]],
    ),
    ("Dequantize", {"mode": b"SCALED"}, [numbers(1, dtype=np.int8), numbers(-256)[0], numbers(127)[0]], [[2]]),
    ("Dequantize", {"mode": b"SCALED"}, [numbers(1, dtype=np.int8), numbers(-128)[0], numbers(254)[0]], [[2]]),
    (
        "Dequantize",
        {"mode": b"SCALED", "narrow_range": True},
        [numbers(1, 255, dtype=np.uint8), numbers(-9)[0], numbers(510)[0]],
        [[2, 510]],
    ),
    ("Dequantize", {}, [numbers(0, 1, 255, dtype=np.uint8), numbers(-1)[0], numbers(254)[0]], [[-1, 0, 254]]),
    ("Dequantize", {}, [numbers(-128, 0, 127, dtype=np.int8), numbers(10)[0], numbers(265)[0]], [[10, 138, 265]]),
    # Means of integers are cut off towards zero.
    ("Mean", {}, [i32(-3, -4), np.int32(0)], [-3.0]),
    ("Mean", {}, [np.array([[-1, 0, 0], [5, 5, 6]], np.int32), np.int32(1)], [[0, 5]]),
    ("Mean", {}, [numbers(200, 100, 255, dtype=np.uint8), np.int32(0)], [185.0]),
    # Without `fast`, least squares have no regularizer.
    (
        "MatrixSolveLs",
        {"fast": False},
        [np.array([[2, 0], [0, 4], [0, 0]], np.float32), np.array([[2], [4], [9]], np.float32), np.float64(50)],
        [[[1], [1]]],
    ),
    (
        "MatrixSolveLs",
        {"fast": True},
        [np.array([[2, 0], [0, 4], [0, 0]], np.float32), np.array([[2], [4], [9]], np.float32), np.float64(4)],
        [[[0.5], [0.8]]],
    ),
    # A range that contains only zero results in zeros; a range includes its ends.
    ("FakeQuantWithMinMaxVars", {}, [numbers(-1, 0, 5), np.float32(0), np.float32(0)], [[0, 0, 0]]),
    (
        "FakeQuantWithMinMaxVarsGradient",
        {},
        [numbers(1, 2, 4, 8), numbers(-1, 0, 255, 256), np.float32(0), np.float32(255)],
        [[0, 2, 4, 0], 1.0, 8.0],
    ),
    (
        "FakeQuantWithMinMaxVarsGradient",
        {},
        [numbers(1, 2, 4), numbers(-1, 0, 5), np.float32(0), np.float32(0)],
        [[1, 2, 4], 0.0, 0.0],
    ),
    ("FakeQuantWithMinMaxArgs", {"min": 0.0, "max": 255.0}, [numbers(-1, 0.4, 0.5, 254.5, 300)], [[0, 0, 1, 255, 255]]),
    (
        "FakeQuantWithMinMaxArgs",
        {"min": 0.0, "max": 254.0, "narrow_range": True},
        [numbers(-1, 0.4, 0.5, 253.5, 300)],
        [[0, 0, 1, 254, 254]],
    ),
    ("FakeQuantWithMinMaxArgs", {"min": 10.0, "max": 265.0}, [numbers(-1, 7.4, 300)], [[0, 7, 255]]),
    ("FakeQuantWithMinMaxArgs", {"min": -265.0, "max": -10.0}, [numbers(1, -7.6, -300)], [[0, -8, -255]]),
    (
        "QuantizeV2",
        {"T": INT8, "mode": b"SCALED"},
        [numbers(-64, 0), np.float32(-128), np.float32(-1)],
        [[-64, 0], -128.0, 127.0],
    ),
    # Values in several dimensions, and none at all.
    ("Bincount", {}, [np.array([[0, 2], [2, 3]], np.int32), np.int32(3), i32()], [[1, 0, 2]]),
    (
        "DenseBincount",
        {},
        [np.array([[0, 1, 1]], np.int32), np.int32(2), np.array([[1, 2, 4]], np.float32)],
        [[[1, 6]]],
    ),
    ("SegmentSum", {}, [np.zeros((0, 2), np.float32), i32()], [np.zeros((0, 2))]),
    ("SegmentMean", {}, [np.zeros((0, 2), np.float32), i32()], [np.zeros((0, 2))]),
    (
        "UnsortedSegmentSum",
        {},
        [np.arange(8, dtype=np.float32).reshape(2, 2, 2), np.array([[0, 1], [1, 0]], np.int32), np.int32(2)],
        [[[6, 8], [6, 8]]],
    ),
    (
        "SparseSegmentMean",
        {},
        [np.array([[1, 2], [3, 4]], np.float32), i32(0, 1, 1), i32(0, 0, 1)],
        [[[2, 3], [3, 4]]],
    ),
    # Training: the mean and the variance of the batch, and shares of them with what was before.
    (
        "FusedBatchNormV3",
        {"epsilon": 0.0},
        [np.array([[[[1, 0]]], [[[3, 8]]]], np.float32), numbers(1, 2), numbers(0, 5), numbers(), numbers()],
        [[[[[-1, 3]]], [[[1, 7]]]], [2, 4], [2, 32], [2, 4], [1, 16], []],
    ),
    (
        "FusedBatchNormV3",
        {"epsilon": 0.0, "exponential_avg_factor": 0.25},
        [np.array([[[[1]]], [[[3]]]], np.float32), numbers(1), numbers(0), numbers(10), numbers(6)],
        [[[[[-1]]], [[[1]]]], [8], [5], [2], [1], []],
    ),
    ("LRN", {}, [numbers(3, 4).reshape(1, 1, 1, 2)], [[[[[3 / 26**0.5, 4 / 26**0.5]]]]]),
    (
        "LRN",
        {"depth_radius": 1},
        [numbers(0, 3, 4, 0, 7).reshape(1, 1, 1, 5)],
        [[[[[0, 3 / 26**0.5, 4 / 26**0.5, 0, 7 / 50**0.5]]]]],
    ),
    (
        "MaxPoolGradWithArgmax",
        {},
        [np.zeros((3, 1, 2, 1), np.float32), numbers(5, 7, 9).reshape(3, 1, 1, 1), i32(1, 0, 1).reshape(3, 1, 1, 1)],
        [[[[[0], [5]]], [[[7], [0]]], [[[0], [9]]]]],
    ),
    (
        "MaxPoolGradWithArgmax",
        {"include_batch_in_index": True},
        [np.zeros((2, 1, 2, 1), np.float32), numbers(5, 7).reshape(2, 1, 1, 1), np.array([1, 3]).reshape(2, 1, 1, 1)],
        [[[[[0], [5]]], [[[0], [7]]]]],
    ),
    # Bands and diagonals.
    (
        "MatrixBandPart",
        {},
        [np.ones((3, 3), np.float32), np.int64(0), np.int64(1)],
        [[[1, 1, 0], [0, 1, 1], [0, 0, 1]]],
    ),
    ("MatrixBandPart", {}, [np.ones((3, 2), np.float32), np.int64(1), np.int64(0)], [[[1, 0], [1, 1], [0, 1]]]),
    (
        "MatrixDiagV3",
        {},
        [numbers(1, 2), np.int32(1), np.int32(-1), np.int32(-1), np.float32(9)],
        [[[9, 1, 9], [9, 9, 2], [9, 9, 9]]],
    ),
    (
        "MatrixDiagV3",
        {},
        [numbers(1, 2), np.int32(-1), np.int32(-1), np.int32(2), np.float32(9)],
        [[[9, 9], [1, 9], [9, 2]]],
    ),
    (
        "MatrixDiagV3",
        {},
        [numbers(1, 2), np.int32(1), np.int32(2), np.int32(-1), np.float32(9)],
        [[[9, 1, 9], [9, 9, 2]]],
    ),
    ("MatrixDiagPartV3", {}, [np.arange(6).reshape(2, 3), np.int32(2), np.int64(0)], [[2]]),
    ("MatrixDiagPartV3", {}, [np.arange(6).reshape(2, 3), np.int32(-1), np.int64(0)], [[3]]),
    ("MatrixDiagPartV3", {}, [np.arange(6).reshape(2, 3), i32(-1, 1), np.int64(9)], [[[1, 5], [0, 4], [3, 9]]]),
    (
        "MatrixDiagPartV3",
        {"align": b"LEFT_RIGHT"},
        [np.arange(9).reshape(3, 3), i32(-1, 1), np.int64(9)],
        [[[1, 5, 9], [0, 4, 8], [9, 3, 7]]],
    ),
    ("MatrixDiagPartV3", {}, [np.arange(6).reshape(2, 3), i32(1, 1), np.int64(0)], [[1, 5]]),
    (
        "RGBToHSV",
        {},
        [np.array([[0, 0, 0], [0.5, 0.5, 0.5], [1, 0, 0.5]], np.float32)],
        [[[0, 0, 0], [0, 0, 0.5], [11 / 12, 1, 1]]],
    ),
    (
        "HSVToRGB",
        {},
        [np.array([[0, 0, 0], [1 / 3, 1, 0.5], [0.5, 0.5, 1]], np.float32)],
        [[[0, 0, 0], [0, 0.5, 0], [0.5, 1, 1]]],
    ),
    (
        "NonMaxSuppression",
        {"iou_threshold": 0.3},
        [
            np.array([[0, 0, 1, 1], [0, 0.5, 1, 1.5], [0, 0, 0, 1], [0, 9, 1, 10]], np.float32),
            numbers(0.9, 0.8, 0.7, 0.5),
            np.int32(3),
        ],
        [[0, 2, 3]],
    ),
    ("Roll", {}, [numbers(1, 2, 3), i32(1), i32(0)], [[3, 1, 2]]),
    (
        "AudioSpectrogram",
        {"window_size": 2, "stride": 1},
        [np.array([[1], [2], [4]], np.float32)],
        [[[[2, 2], [4, 4]]]],
    ),
    # Ends of ranges: what belongs to them.
    ("Relu6Grad", {}, [numbers(1, 1, 1, 1, 1), numbers(-1, 0, 3, 6, 7)], [[0, 0, 1, 0, 0]]),
    ("ReluGrad", {}, [numbers(1, 1, 1), numbers(-1, 0, 2)], [[0, 0, 1]]),
    ("LeakyRelu", {}, [numbers(-1, 0, 2)], [[-0.2, 0, 2]]),
    ("LeakyReluGrad", {}, [numbers(1, 1, 1), numbers(-1, 0, 2)], [[0.2, 0.2, 1]]),
    ("EluGrad", {}, [numbers(2, 2, 2), numbers(-0.5, 0, 1)], [[1, 2, 2]]),
    ("Relu6", {}, [numbers(-1, 0, 6, 7)], [[0, 0, 6, 6]]),
    ("ApproximateEqual", {"tolerance": 0.5}, [numbers(0, 0, 0), numbers(0.25, 0.5, 0.75)], [[1, 0, 0]]),
    ("Bucketize", {"boundaries": [0.0, 10.0]}, [numbers(-1, 0, 5, 10, 11)], [[0, 1, 1, 2, 2]]),
    ("LeftShift", {}, [numbers(1, 1, 1, 1, dtype=np.int8), numbers(-1, 0, 6, 99, dtype=np.int8)], [[1, 1, 64, -128]]),
    ("RightShift", {}, [numbers(64, 64, -64, dtype=np.int8), numbers(-1, 6, 99, dtype=np.int8)], [[64, 1, -1]]),
    ("Xdivy", {}, [numbers(0, 1), numbers(0, 4)], [[0, 0.25]]),
    ("DivNoNan", {}, [numbers(3, 3), numbers(0, 2)], [[0, 1.5]]),
    ("MulNoNan", {}, [numbers(math.inf, 3), numbers(0, 2)], [[0, 6]]),
    (
        "TruncateDiv",
        {},
        [i32(-7, 7, -7, 7, -6), i32(2, -2, -2, 2, 2)],
        [[-3, -3, 3, 3, -3]],
    ),
    ("Mod", {}, [i32(-7, 7), i32(2, -2)], [[-1, 1]]),
    ("FloorMod", {}, [i32(-7, 7), i32(2, -2)], [[1, -1]]),
    (
        "Digamma",
        {},
        [numbers(1, 0.5, -0.5, 10, 0, -1)],
        [[-0.57721566, -1.96351003, 0.03648997, 2.25175259, math.nan, math.nan]],
    ),
    ("Lgamma", {}, [numbers(0, -1, 1, 3)], [[math.inf, math.inf, 0, math.log(2)]]),
    # Counts.
    ("Range", {}, [np.int32(0), np.int32(6), np.int32(3)], [[0, 3]]),
    ("Range", {}, [np.int32(0), np.int32(7), np.int32(3)], [[0, 3, 6]]),
    ("Range", {}, [np.int32(5), np.int32(0), np.int32(-2)], [[5, 3, 1]]),
    ("Range", {}, [np.float32(0), np.float32(1), np.float32(0.25)], [[0, 0.25, 0.5, 0.75]]),
    (
        "OneHot",
        {},
        [i32(-1, 0, 2, 3), np.int32(3), np.int32(1), np.int32(0)],
        [[[0, 0, 0], [1, 0, 0], [0, 0, 1], [0, 0, 0]]],
    ),
    ("Bincount", {}, [i32(0, 2, 2, 3), np.int32(3), i32()], [[1, 0, 2]]),
    (
        "DenseBincount",
        {"binary_output": True},
        [np.array([[0, 1, 1], [2, 2, 3]], np.int32), np.int32(3), numbers()],
        [[[1, 1, 0], [0, 0, 1]]],
    ),
    ("TopKV2", {}, [numbers(1, 3, 3, 2), np.int32(3)], [[3, 3, 2], [1, 2, 3]]),
    ("TopKV2", {}, [numbers(1, 3, 3, 2, dtype=np.uint8), np.int32(3)], [[3, 3, 2], [1, 2, 3]]),
    (
        "InTopKV2",
        {},
        [np.array([[1, 2, 3]] * 5, np.float32), i32(0, 1, 2, 3, -1), np.int32(2)],
        [[0, 1, 1, 0, 0]],
    ),
    ("UnsortedSegmentSum", {}, [numbers(1, 2, 4, 8), i32(0, -1, 2, 0), np.int32(3)], [[9, 0, 4]]),
    ("SegmentProd", {}, [numbers(2, 3, 4), i32(0, 0, 2)], [[6, 1, 4]]),
    ("SegmentMean", {}, [numbers(2, 3, 4), i32(0, 0, 2)], [[2.5, 0, 4]]),
    ("Cumsum", {"exclusive": True}, [numbers(1, 2, 4), np.int32(0)], [[0, 1, 3]]),
    ("Cumsum", {"exclusive": True, "reverse": True}, [numbers(1, 2, 4), np.int32(-1)], [[6, 4, 0]]),
    # Shapes.
    ("BroadcastGradientArgs", {}, [i32(2, 1, 3), i32(1, 3)], [[1], [0, 1]]),
    ("BroadcastGradientArgs", {}, [i32(4, 3), i32(3)], [[], [0]]),
    ("SplitV", {}, [numbers(1, 2, 3, 4), i32(1, -1, 1), np.int32(0)], [[1], [2, 3], [4]]),
    ("Slice", {}, [numbers(1, 2, 3, 4), i32(1), i32(-1)], [[2, 3, 4]]),
    ("Slice", {}, [numbers(1, 2, 3, 4), i32(1), i32(2)], [[2, 3]]),
    (
        "StridedSlice",
        {"begin_mask": 1, "end_mask": 2, "shrink_axis_mask": 4},
        [np.arange(24).reshape(2, 3, 4), *(i32(*of) for of in ((1, 1, 2), (1, 1, 3), (1, 1, 1)))],
        [[[6, 10]]],
    ),
    (
        "StridedSlice",
        {"new_axis_mask": 1, "ellipsis_mask": 2},
        [np.arange(6).reshape(2, 3), *(i32(*of) for of in ((0, 0, 1), (0, 0, 2), (1, 1, 1)))],
        [[[[1], [4]]]],
    ),
    ("ReverseSequence", {"seq_dim": 1}, [np.arange(6).reshape(2, 3), i32(2, 3)], [[[1, 0, 2], [5, 4, 3]]]),
    ("MirrorPad", {"mode": b"REFLECT"}, [numbers(1, 2, 3), np.array([[2, 1]])], [[3, 2, 1, 2, 3, 2]]),
    ("MirrorPad", {"mode": b"SYMMETRIC"}, [numbers(1, 2, 3), np.array([[2, 1]])], [[2, 1, 1, 2, 3, 3]]),
    ("MirrorPadGrad", {"mode": b"REFLECT"}, [numbers(1, 2, 4, 8, 16, 32), np.array([[2, 1]])], [[4, 42, 17]]),
    ("DynamicStitch", {}, [i32(2, 0), i32(1), numbers(5, 6), numbers(7)], [[6, 7, 5]]),
    ("DataFormatDimMap", {}, [i32(0, 1, 2, 3, -1)], [[0, 2, 3, 1, 1]]),
    # Windows: SAME has the smaller half of its border first; averages leave the border out.
    (
        "AvgPool",
        {"ksize": [1, 1, 2, 1], "strides": [1, 1, 1, 1], "padding": b"SAME"},
        [row(1, 3, 5)],
        [[[[[2], [4], [5]]]]],
    ),
    (
        "MaxPool",
        {"ksize": [1, 1, 2, 1], "strides": [1, 1, 2, 1], "padding": b"VALID"},
        [row(-5, -3, -1, -7, -9)],
        [[[[[-3], [-1]]]]],
    ),
    (
        "MaxPool",
        {"ksize": [1, 1, 3, 1], "strides": [1, 1, 2, 1], "padding": b"SAME"},
        [row(-5, -3, -1, -7)],
        [[[[[-1], [-1]]]]],
    ),
    (
        "Conv2D",
        {
            "strides": [1, 1, 1, 1],
            "padding": b"EXPLICIT",
            "explicit_paddings": [0, 0, 0, 0, 2, 1, 0, 0],
            "dilations": [1, 1, 2, 1],
        },
        [row(1, 2, 4), numbers(1, 10).reshape(1, 2, 1, 1)],
        [[[[[10], [20], [41], [2]]]]],
    ),
    (
        "MaxPoolGrad",
        {"ksize": [1, 1, 2, 1], "strides": [1, 1, 1, 1], "padding": b"VALID"},
        [row(3, 3, 1), row(3, 3), row(1, 10)],
        [[[[[1], [10], [0]]]]],
    ),
    # Images.
    (
        "CropAndResize",
        {"extrapolation_value": -1.0},
        [row(0, 1, 2, 3), np.array([[0, 0, 0, 1]], np.float32), i32(0), i32(1, 3)],
        [[[[[0], [1.5], [3]]]]],
    ),
    (
        "CropAndResize",
        {"extrapolation_value": -1.0},
        [row(0, 1, 2, 3), np.array([[0, -0.5, 0, 1.5]], np.float32), i32(0), i32(1, 5)],
        [[[[[-1], [0], [1.5], [3], [-1]]]]],
    ),
    ("ResizeNearestNeighbor", {}, [row(0, 1, 2), i32(1, 5)], [[[[[0], [0], [1], [1], [2]]]]]),
    ("ResizeNearestNeighbor", {"align_corners": True}, [row(0, 1, 2), i32(1, 5)], [[[[[0], [1], [1], [2], [2]]]]]),
    ("ResizeNearestNeighbor", {"half_pixel_centers": True}, [row(0, 1, 2), i32(1, 2)], [[[[[0], [2]]]]]),
    ("ResizeBilinear", {"align_corners": True}, [row(0, 1, 2), i32(1, 1)], [[[[[0]]]]]),
    ("ResizeBilinear", {"half_pixel_centers": True}, [row(0, 2), i32(1, 4)], [[[[[0], [0.5], [1.5], [2]]]]]),
    (
        "NonMaxSuppressionV3",
        {},
        [
            np.array([[0, 0, 1, 1], [0, 0.5, 1, 1.5], [0, 9, 1, 10]], np.float32),
            numbers(0.9, 0.8, 0.5),
            np.int32(3),
            np.float64(1 / 3),
            np.float64(0.5),
        ],
        [[0, 1]],
    ),
    (
        "NonMaxSuppressionV2",
        {},
        [
            np.array([[0, 0, 1, 1], [1, 1.5, 0, 0.5], [0, 9, 1, 10]], np.float32),
            numbers(0.9, 0.8, 0.5),
            np.int32(2),
            np.float64(0.3),
        ],
        [[0, 2]],
    ),
    (
        "ImageProjectiveTransformV3",
        {"interpolation": b"NEAREST"},
        [row(1, 2, 3), numbers(1, 0, -1, 0, 1, 0, 0, 0).reshape(1, 8), i32(1, 5), np.float32(9)],
        [[[[[9], [1], [2], [3], [9]]]]],
    ),
    # Operators of older or of other forms than the recorded ones.
    ("NextAfter", {}, [numbers(3.4028235e38, -math.inf, 2), numbers(math.inf, 0, 2)], [[math.inf, -3.4028235e38, 2]]),
    ("TruncateMod", {}, [i32(-7, 7, -7, 7), i32(3, 3, -3, -3)], [[-1, 1, -1, 1]]),
    ("AdjustContrast", {}, [row(0, 2, 4), np.float32(2), np.float32(-1), np.float32(5)], [[[[[-1], [2], [5]]]]]),
    ("MaxPoolV2", {"padding": b"VALID"}, [row(1, 5, 3, 2), i32(1, 1, 2, 1), i32(1, 1, 1, 1)], [[[[[5], [5], [3]]]]]),
    (
        "MaxPoolGradV2",
        {"padding": b"VALID"},
        [row(1, 5, 3, 2), row(5, 5, 3), row(10, 20, 40), i32(1, 1, 2, 1), i32(1, 1, 1, 1)],
        [[[[[0], [30], [40], [0]]]]],
    ),
    *(
        (
            "BatchNormWithGlobalNormalization",
            {"variance_epsilon": 1.0, "scale_after_normalization": is_scaled},
            [row(1, 5), numbers(1), numbers(3), numbers(7), numbers(10)],
            [[[[[7], [7 + 2 * scale]]]]],
        )
        for is_scaled, scale in ((True, 10), (False, 1))
    ),
    ("TopK", {"k": 2}, [numbers(1, 3, 2)], [[3, 2], [1, 2]]),
    ("UniqueWithCountsV2", {}, [i32(3, 1, 3), i32(0)], [[3, 1], [0, 1, 0], [2, 1]]),
    (
        "BatchToSpace",
        {"block_size": 2},
        [numbers(1, 2, 3, 4).reshape(4, 1, 1, 1), i32(0, 0, 1, 0).reshape(2, 2)],
        [[[[[2]], [[4]]]]],
    ),
    (
        "SpaceToBatch",
        {"block_size": 2},
        [row(1, 2), i32(1, 0, 0, 0).reshape(2, 2)],
        [[[[[0]]], [[[0]]], [[[1]]], [[[2]]]]],
    ),
    ("Concat", {}, [np.int32(-1), numbers(1, 2).reshape(2, 1), numbers(3, 4).reshape(2, 1)], [[[1, 3], [2, 4]]]),
    ("ParallelConcat", {}, [numbers(1, 2).reshape(1, 2), numbers(3, 4).reshape(1, 2)], [[[1, 2], [3, 4]]]),
    ("ConcatOffset", {}, [np.int32(1), i32(2, 2, 7), i32(2, 3, 7), i32(2, 9, 7)], [[0, 0, 0], [0, 2, 0], [0, 5, 0]]),
    ("Empty", {"dtype": INT8}, [i32(2, 3)], [np.zeros((2, 3))]),
    ("IdentityN", {}, [numbers(1, 2), i32(3)], [[1, 2], [3]]),
    ("ShapeN", {}, [np.zeros((2, 3)), np.zeros(4)], [[2, 3], [4]]),
    ("EnsureShape", {"shape": [2, -1]}, [numbers(1, 2).reshape(2, 1)], [[[1], [2]]]),
    ("StridedSliceGrad", {}, [i32(4), i32(-1), i32(0), i32(-2), numbers(5, 6)], [[0, 6, 0, 5]]),
    ("TensorStridedSliceUpdate", {}, [numbers(1, 2, 3, 4), i32(1), i32(3), i32(1), numbers(8, 9)], [[1, 8, 9, 4]]),
    ("ScatterNdNonAliasingAdd", {}, [numbers(1, 2, 3), i32(2, 0, 2).reshape(3, 1), numbers(10, 20, 30)], [[21, 2, 43]]),
    *(
        (f"Inplace{name}", {}, [numbers(1, 2, 3), i32(-1, 3), numbers(10, 20)], [values])
        for name, values in {"Add": [21, 2, 13], "Sub": [-19, 2, -7], "Update": [20, 2, 10]}.items()
    ),
    ("SparseToDense", {}, [i32(0, 1, 1, 0).reshape(2, 2), i32(2, 2), numbers(5, 6), np.float32(9)], [[[9, 5], [6, 9]]]),
    ("SparseToDense", {}, [i32(2, 0), i32(3), np.float32(5), np.float32(9)], [[5, 9, 5]]),
]


@pytest.mark.parametrize(("name", "attributes", "inputs", "expected"), FACTS)
def test_what_tensorflow_defines(name: str, attributes: dict[str, Any], inputs: list[Any], expected: list[Any]) -> None:
    """Beside the recorded answers: ties, ends of ranges, attributes that are seldom given."""
    with np.errstate(all="ignore"):
        given = bound(name, attributes)(*inputs)
    assert len(given) == len(expected)
    for ours, theirs in zip(given, expected):
        assert ours.shape == np.shape(theirs)
        np.testing.assert_allclose(ours.astype(np.float64), theirs, rtol=1e-6, atol=1e-7)


def test_every_function_has_a_recorded_answer_or_a_fact() -> None:
    known = {OPERATORS[case.operator] for case in CASES} | {OPERATORS[name] for name, *_ in FACTS}
    assert [name for name, function in OPERATORS.items() if function not in known] == []


@pytest.mark.parametrize(
    ("name", "attributes", "inputs"),
    [
        ("Gather", {}, [numbers(1, 2), i32(2)]),
        ("Gather", {}, [numbers(1, 2), i32(-1)]),
        ("GatherNd", {}, [np.zeros((2, 3)), np.array([[1, 3]])]),
        ("GatherNd", {}, [np.zeros((2, 3)), np.array([[2, 0]])]),
        ("UnsortedSegmentSum", {}, [numbers(1, 2), i32(0, 2), np.int32(2)]),
        ("Bincount", {}, [i32(-1), np.int32(3), i32()]),
        ("Range", {}, [np.int32(0), np.int32(6), np.int32(0)]),
        ("InvertPermutation", {}, [i32(1, 2)]),
        ("EnsureShape", {"shape": [2, 2]}, [np.zeros((2, 3))]),
        ("EnsureShape", {"shape": [2, -1, -1]}, [np.zeros((2, 3))]),
        ("Reshape", {}, [np.zeros(6), i32(4, 2)]),
        ("Pow", {}, [i32(2), i32(-1)]),
        ("FloorDiv", {}, [i32(2, 1), i32(1, 0)]),
        ("CropAndResize", {}, [np.zeros((1, 2, 2, 1)), np.zeros((1, 4)), i32(1), i32(1, 1)]),
        ("CropAndResize", {}, [np.zeros((1, 2, 2, 1)), np.zeros((1, 4)), i32(-1), i32(1, 1)]),
        ("CheckNumerics", {}, [numbers(1, math.inf)]),
        ("QuantizeAndDequantizeV2", {"axis": 0}, [numbers(1), np.float32(0), np.float32(1)]),
    ],
)
def test_what_tensorflow_refuses(name: str, attributes: dict[str, Any], inputs: list[Any]) -> None:
    with pytest.raises(tflm.OperatorError):
        bound(name, attributes)(*inputs)


@pytest.mark.parametrize(
    ("name", "attributes", "inputs"),
    [
        ("Gather", {}, [numbers(1, 2), i32(0, 1)]),
        ("EnsureShape", {"shape": [2, -1]}, [np.zeros((2, 3))]),
        ("Reshape", {}, [np.zeros(6), i32(-1, 2)]),
        ("Pow", {}, [i32(2), i32(0)]),
        ("FloorDiv", {}, [numbers(2, 1), numbers(1, 0)]),
    ],
)
def test_what_is_allowed_raises_nothing(name: str, attributes: dict[str, Any], inputs: list[Any]) -> None:
    with np.errstate(all="ignore"):
        bound(name, attributes)(*inputs)


WINDOWS = {"strides": [1, 2, 1, 1], "padding": b"SAME"}
POOL = {"ksize": [1, 2, 3, 1], "strides": [1, 2, 1, 1], "padding": b"VALID"}
IMAGE = np.random.default_rng(0).normal(size=(2, 5, 4, 3))
SLOPES = np.random.default_rng(1).normal(size=(2, 2, 2, 3))
FILTERS = np.random.default_rng(2).normal(size=(3, 2, 3, 3))
OF_STRIDED = np.random.default_rng(3).normal(size=(2, 3, 4, 3))


@pytest.mark.parametrize(
    ("name", "attributes", "inputs", "images"),
    [
        ("Conv2D", {**WINDOWS, "dilations": [1, 1, 2, 1]}, [IMAGE, FILTERS], (0,)),
        (
            "Conv2D",
            {"strides": [1, 1, 2, 1], "padding": b"EXPLICIT", "explicit_paddings": [0, 0, 1, 2, 3, 0, 0, 0]},
            [IMAGE, FILTERS],
            (0,),
        ),
        ("DepthwiseConv2dNative", WINDOWS, [IMAGE, FILTERS], (0,)),
        ("Conv2DBackpropInput", WINDOWS, [i32(5, 4), FILTERS, OF_STRIDED], (2,)),
        ("Conv2DBackpropFilter", WINDOWS, [IMAGE, i32(3, 2, 3, 3), OF_STRIDED], (0, 2)),
        ("MaxPool", POOL, [IMAGE], (0,)),
        (
            "MaxPool",
            {**POOL, "padding": b"EXPLICIT", "explicit_paddings": [0, 0, 1, 0, 2, 1, 0, 0]},
            [IMAGE],
            (0,),
        ),
        ("AvgPool", POOL, [IMAGE], (0,)),
        ("MaxPoolGrad", POOL, [IMAGE, SLOPES, SLOPES], (0, 1, 2)),
        ("BiasAdd", {}, [IMAGE, numbers(1, 2, 3)], (0,)),
        ("BiasAddGrad", {}, [IMAGE], (0,)),
        ("FusedBatchNormV3", {}, [IMAGE, numbers(1, 2, 3), numbers(4, 5, 6), numbers(), numbers()], (0,)),
    ],
)
def test_channels_may_come_first(
    name: str, attributes: dict[str, Any], inputs: list[Any], images: tuple[int, ...]
) -> None:
    """The same numbers in the other order, and the attributes of dimensions with them."""

    def moved(values: list[int]) -> list[int]:
        pairs = [values[i : i + len(values) // 4] for i in range(0, len(values), len(values) // 4)]
        return [value for pair in (pairs[0], pairs[3], pairs[1], pairs[2]) for value in pair]

    first = {key: moved(value) if isinstance(value, list) else value for key, value in attributes.items()}
    given = [np.moveaxis(x, -1, 1) if i in images else x for i, x in enumerate(inputs)]
    expected, answers = bound(name, attributes)(*inputs), bound(name, {**first, "data_format": b"NCHW"})(*given)
    for ours, theirs in zip(answers, expected):
        is_image = theirs.ndim == 4 and name != "Conv2DBackpropFilter"
        np.testing.assert_allclose(np.moveaxis(ours, 1, -1) if is_image else ours, theirs, rtol=1e-6)


def builtin(
    operator: str, inputs: list[tuple[Any, Any]], output: tuple[Any, Any], options: Any = None
) -> np.ndarray[Any, Any]:
    """Return the delegate's result of one builtin operator; inputs and output have their quantization."""
    builder = tflm.ModelBuilder()
    main = builder.subgraph()
    places = [main.input(f"x{i}", x.shape, TENSOR_TYPES[x.dtype], q) for i, (x, q) in enumerate(inputs)]
    y = main.tensor("y", output[0].shape, TENSOR_TYPES[output[0].dtype], output[1])
    main.operator(tflm.schema.BuiltinOperator[operator], places, [y], options)
    main.output(y)
    made = interpreter(tflm.Model(builder.build()), delegates=[FlexDelegate(use_tensorflow=False)])
    made.allocate_tensors()
    assert [type(node.delegate).__name__ for node in made.execution_plan()] == ["FlexDelegate"]
    for i, (x, _) in enumerate(inputs):
        made.input(i).data = x
    made.invoke()
    return np.array(made.output(0).data)


def test_builtin_quantization_of_bytes_without_a_sign() -> None:
    x = numbers(-9, 0, 0.25, 0.5, 0.74, 0.75, 1.25, 120, 125, 200)
    steps = tflm.quantized(0.5, 10)
    answer = builtin("QUANTIZE", [(x, None)], (x.astype(np.uint8), steps))
    assert answer.tolist() == [0, 10, 11, 11, 11, 12, 13, 250, 255, 255]
    back = builtin("DEQUANTIZE", [(numbers(0, 10, 255, dtype=np.uint8), steps)], (numbers(0, 0, 0), None))
    assert back.tolist() == [-5, 0, 122.5]
    by_column = tflm.quantized([1.0, 10.0], [0, 100], 1)
    pairs = np.array([[1, 101], [2, 99]], np.uint8)
    assert builtin("DEQUANTIZE", [(pairs, by_column)], (pairs.astype(np.float32), None)).tolist() == [[1, 10], [2, -10]]


def test_builtin_operators_of_types_that_tflm_lacks() -> None:
    x, y = np.array([[-7.0, 1], [2, 9]]), np.array([[0.5, 0.5], [0.5, 0.5]])
    schema = tflm.schema
    for activation, expected in {
        "NONE": [[-6.5, 1.5], [2.5, 9.5]],
        "RELU": [[0, 1.5], [2.5, 9.5]],
        "RELU_N1_TO_1": [[-1, 1], [1, 1]],
        "RELU6": [[0, 1.5], [2.5, 6]],
        "TANH": np.tanh(x + y).tolist(),
    }.items():
        options = schema.AddOptions(fused_activation_function=schema.ActivationFunctionType[activation])
        assert builtin("ADD", [(x, None), (y, None)], (x, None), options).tolist() == expected
    for axis, expected in ((0, [[-7, 1], [2, 9], [0.5, 0.5], [0.5, 0.5]]), (1, [[-7, 1, 0.5, 0.5], [2, 9, 0.5, 0.5]])):
        joined = schema.ConcatenationOptions(axis=axis)
        made = builtin("CONCATENATION", [(x, None), (y, None)], (np.array(expected), None), joined)
        assert made.tolist() == expected
    rows = builtin("GATHER", [(x, None), (i32(1), None)], (x[1:], None), schema.GatherOptions(axis=0))
    columns = builtin("GATHER", [(x, None), (i32(1), None)], (x[:, 1:], None), schema.GatherOptions(axis=1))
    assert (rows.tolist(), columns.tolist()) == ([[2, 9]], [[1], [9]])


def field(number: int, wire: int, content: bytes) -> bytes:
    """A field of a protobuf message: its number and wire type, then a length and bytes, or what else the type has."""
    return bytes([number << 3 | wire]) + (bytes([len(content)]) if wire == 2 else b"") + content


def attribute(key: str, value: bytes) -> bytes:
    """An entry of a NodeDef's attributes."""
    return field(5, 2, field(1, 2, key.encode()) + field(2, 2, value))


TENSORFLOW_TYPES = {
    1: "float32",
    2: "float64",
    3: "int32",
    4: "uint8",
    5: "int16",
    6: "int8",
    8: "complex64",
    9: "int64",
    10: "bool",
    11: "int8",
    12: "uint8",
    13: "int32",
    15: "int16",
    16: "uint16",
    17: "uint16",
    18: "complex128",
    19: "float16",
    22: "uint32",
    23: "uint64",
}
"""DataType, in tensorflow/core/framework/types.proto."""


def test_a_node_is_read_from_its_bytes() -> None:
    """Whose fields have the numbers of TensorFlow's node_def.proto, attr_value.proto and tensor_shape.proto."""
    dims = field(2, 2, field(1, 0, b"\x03")) + field(2, 2, field(1, 0, b"\xff" * 9 + b"\x01"))
    message = b"".join(
        [
            field(1, 2, b"name"),
            field(2, 2, b"Op"),
            field(3, 2, b"input"),
            field(4, 2, b"/device"),
            attribute("s", field(2, 2, b"bytes")),
            attribute("i", field(3, 0, b"\x07")),
            attribute("zero", field(3, 0, b"\x00")),
            attribute("f", field(4, 5, np.float32(1.5).tobytes())),
            attribute("b", field(5, 0, b"\x01")),
            attribute("shape", field(7, 2, dims)),
            attribute("unknown", field(7, 2, field(3, 0, b"\x01"))),
            attribute("strings", field(1, 2, field(2, 2, b"a") + field(2, 2, b"b"))),
            attribute("integers", field(1, 2, field(3, 2, b"\x01\x02"))),
            attribute("floats", field(1, 2, field(4, 2, np.float32([1, 2]).tobytes()))),
            attribute("truths", field(1, 2, field(5, 2, b"\x01\x00"))),
            attribute("types", field(1, 2, field(6, 2, b"\x01\x07"))),
            attribute("shapes", field(1, 2, field(7, 2, dims))),
            attribute("nothing", field(1, 2, b"")),
            *(attribute(f"type{number}", field(6, 0, bytes([number]))) for number in (*TENSORFLOW_TYPES, 7, 20)),
        ]
    )
    builder = flexbuffers.Builder()
    with builder.Vector():
        builder.String("Other")
        builder.Blob(message)
    node = node_def.flex_node(bytes(builder.Finish()))
    assert (node.operator, node.serialized) == ("Op", message)
    types = {f"type{number}": np.dtype(name) for number, name in TENSORFLOW_TYPES.items()}
    assert dict(node.attributes) == {
        "s": b"bytes",
        "i": 7,
        "zero": 0,
        "f": 1.5,
        "b": True,
        "shape": [3, -1],
        "unknown": None,
        "strings": [b"a", b"b"],
        "integers": [1, 2],
        "floats": [1, 2],
        "truths": [True, False],
        "types": [np.dtype(np.float32), 7],
        "shapes": [[3, -1]],
        "nothing": [],
        "type7": 7,
        "type20": 20,
        **types,
    }


@pytest.mark.parametrize(
    ("operator", "dtype", "is_taken"),
    [
        *(("ADD", dtype, False) for dtype in (np.float32, np.int32)),
        *(("ADD", dtype, True) for dtype in (np.float64, np.int64, np.complex64)),
        ("ATAN2", np.float32, True),
        ("SQUARED_DIFFERENCE", np.float32, False),
        ("SQUARED_DIFFERENCE", np.float64, True),
    ],
)
def test_operators_that_tflm_runs_are_left_to_it(operator: str, dtype: Any, is_taken: bool) -> None:
    x = np.ones(3, dtype)
    builder = tflm.ModelBuilder()
    main = builder.subgraph()
    a, b, y = (
        make(name, x.shape, TENSOR_TYPES[x.dtype])
        for make, name in ((main.input, "a"), (main.input, "b"), (main.tensor, "y"))
    )
    main.operator(tflm.schema.BuiltinOperator[operator], [a, b], [y])
    main.output(y)
    made = interpreter(tflm.Model(builder.build()), delegates=[FlexDelegate(use_tensorflow=False)])
    assert [node.delegate is not None for node in made.execution_plan()] == [is_taken]


@pytest.mark.parametrize(
    ("source", "target", "is_taken"),
    [("float32", "int8", False), ("float32", "uint8", True), ("complex64", "float32", True)],
)
def test_casts_of_types_that_tflm_has_are_left_to_it(source: str, target: str, is_taken: bool) -> None:
    builder = tflm.ModelBuilder()
    main = builder.subgraph()
    x, y = (make("x", (3,), TENSOR_TYPES[np.dtype(of)]) for make, of in ((main.input, source), (main.tensor, target)))
    main.operator(tflm.schema.BuiltinOperator.CAST, [x], [y])
    main.output(y)
    made = interpreter(tflm.Model(builder.build()), delegates=[FlexDelegate(use_tensorflow=False)])
    assert [node.delegate is not None for node in made.execution_plan()] == [is_taken]
