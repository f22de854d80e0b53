"""TensorFlow's operators in models: numpy's functions beside TensorFlow's answers, and the delegate that runs them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flatbuffers import flexbuffers
from flex_cases import Case, cases

import tflm
from tflm.delegates import FlexDelegate
from tflm.delegates.flex import node_def, tensorflow
from tflm.delegates.flex.registry import OPERATORS, bound
from tflm.memory.tensor import affine_quantization
from tflm.runtime.model_report import model_report, shown
from tflm.schema.element_types import TENSOR_TYPES


def arrays(path: Path) -> dict[str, Any]:
    """What a file of numpy's holds."""
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
            for ours, theirs in (
                zip(given, answers(i), strict=True) if len(given) == len(answers(i)) else zip(given, answers(i))
            ):
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
    with pytest.raises(tflm.OperatorError, match=r"'y0': has shape \[3, 2\] in the model, the operator gives \[2, 3\]"):
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
    for path in sorted(folder.glob("*.tflite")):
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
    assert "TensorFlow's operators: FlexSin" in str(shown(model_report(model(SINE, SINE.inputs))).notes)


def numbers(*values: float, dtype: Any = np.float32) -> np.ndarray[Any, Any]:
    return np.array(values, dtype)


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
    ("QuantizeV2", {"T": INT8, "mode": b"SCALED"}, [HALVES, *ONE_RANGE], [[-128, -128, *AWAY, 127], [-128], [127]]),
    (
        "QuantizeV2",
        {"T": INT8, "mode": b"SCALED", "round_mode": b"HALF_TO_EVEN"},
        [HALVES, *ONE_RANGE],
        [[-128, -128, *EVEN, 127], [-128], [127]],
    ),
    (
        "QuantizeV2",
        {"T": INT8, "mode": b"SCALED", "narrow_range": True},
        [HALVES, *NARROW_RANGE],
        [[-127, -127, *AWAY, 127], [-127], [127]],
    ),
    (
        "QuantizeV2",
        {"T": UINT8, "mode": b"SCALED", "narrow_range": True},
        [numbers(-5, 0.5, 254.4, 300), numbers(0)[0], numbers(255)[0]],
        [[0, 1, 254, 255], [0], [255]],
    ),
    (
        "QuantizeV2",
        {"T": UINT8},
        [numbers(-5, 0, 0.4, 0.5, 1.5, 254.4, 254.5, 255, 300), numbers(0)[0], numbers(255)[0]],
        [[0, 0, 0, 1, 2, 254, 255, 255, 255], [0], [255]],
    ),
    (
        "QuantizeV2",
        {"T": INT8, "mode": b"MIN_FIRST"},
        [numbers(-200, -128, -0.5, 0.5, 1.5, 127, 200), *ONE_RANGE],
        [[-128, -128, 0, 0, 2, 127, 127], [-128], [127]],
    ),
    # A range begins at zero or below, ends at zero or above, and is not empty.
    ("QuantizeV2", {"T": UINT8}, [numbers(51, 255), numbers(51)[0], numbers(255)[0]], [[51, 255], [0], [255]]),
    ("QuantizeV2", {"T": UINT8}, [numbers(0, 0.01, 1), numbers(0)[0], numbers(0)[0]], [[0, 255, 255], [0], [0.01]]),
    (
        "QuantizeV2",
        {"T": UINT8, "ensure_minimum_range": 0.5},
        [numbers(-100, 0), numbers(-100)[0], numbers(-90)[0]],
        [[0, 255], [-100], [0]],
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
    ("Mean", {}, [numbers(-3, -4, dtype=np.int32), np.int32(0)], [-3.0]),
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
]  # fmt: skip


@pytest.mark.parametrize(("name", "attributes", "inputs", "expected"), FACTS)
def test_what_tensorflow_defines(name: str, attributes: dict[str, Any], inputs: list[Any], expected: list[Any]) -> None:
    """Beside the recorded answers: ties, ends of ranges, attributes that are seldom given."""
    given = bound(name, attributes)(*inputs)
    assert len(given) == len(expected)
    for ours, theirs in zip(given, expected):
        np.testing.assert_allclose(np.asarray(ours, np.float64).reshape(np.shape(theirs)), theirs, rtol=1e-6)
