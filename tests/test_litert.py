"""LiteRT's interface over this runtime: results and errors as LiteRT's beside it, and scripts as users write them."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import inspect
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from example_models import INT8_MODEL
from models import negated
from test_shapes import flattened, pooled

import tflm
from tflm.compat.litert import interpreter as ours
from tflm.compat.litert.subgraph import _sparsity
from tflm.schema import (
    AddOptions,
    AssignVariableOptions,
    BuiltinOperator,
    ModelBuilder,
    MulOptions,
    ReadVariableOptions,
    ReshapeOptions,
    SparsityParameters,
    SVDFOptions,
    TensorType,
    VarHandleOptions,
    quantized,
)
from tflm.schema.enums import DimensionType
from tflm.schema.tables import DimensionMetadata, Int32Vector

litert = importlib.import_module("ai_edge_litert.interpreter") if importlib.util.find_spec("ai_edge_litert") else None
beside_litert = pytest.mark.skipif(litert is None, reason="ai-edge-litert is not installed")


def two_signatures() -> bytes:
    """A sum and a product, a subgraph and a signature each; the names of the first are not in order."""
    builder = ModelBuilder()
    operators = ((BuiltinOperator.ADD, AddOptions()), (BuiltinOperator.MUL, MulOptions()))
    for index, (code, options) in enumerate(operators):
        part = builder.subgraph(code.name)
        a, b = (part.input(f"{code.name}_{name}:0", (2,), TensorType.FLOAT32) for name in "ab")
        y = part.tensor("y", (2,), TensorType.FLOAT32)
        part.operator(code, [a, b], [y], options)
        part.output(y)
        builder.signature(code.name.lower(), {"first": a, "b": b}, {"y": y}, index)
    return builder.build()


def counter() -> bytes:
    """A variable that grows by its input with each invoke."""
    builder = ModelBuilder()
    main = builder.subgraph()
    x = main.input("x", (1,), TensorType.FLOAT32)
    handle = main.tensor("handle", (1,), TensorType.RESOURCE)
    before, after = (main.tensor(name, (1,), TensorType.FLOAT32) for name in ("before", "after"))
    main.operator(BuiltinOperator.VAR_HANDLE, [], [handle], VarHandleOptions(container="", shared_name="count"))
    main.operator(BuiltinOperator.READ_VARIABLE, [handle], [before], ReadVariableOptions())
    main.operator(BuiltinOperator.ADD, [before, x], [after], AddOptions())
    main.operator(BuiltinOperator.ASSIGN_VARIABLE, [handle, after], [], AssignVariableOptions())
    main.output(after)
    return builder.build()


def refused() -> bytes:
    """Return a RESHAPE that fits only one shape of the input."""
    builder = ModelBuilder()
    main = builder.subgraph()
    x, y = main.input("x", (2, 3), TensorType.INT8, quantized(0.5)), main.tensor("y", (6,), TensorType.INT8)
    main.operator(BuiltinOperator.RESHAPE, [x], [y], ReshapeOptions(new_shape=(6,)))
    main.output(y)
    return builder.build()


MODELS: dict[str, Callable[[], bytes]] = {
    "hello_world": INT8_MODEL.read_bytes,
    "two_signatures": two_signatures,
    "pooled": pooled,
    "flattened": flattened,
    "refused": refused,
}


def both(data: bytes) -> tuple[Any, Any]:
    """LiteRT's interpreter and this one."""
    assert litert is not None
    theirs = litert.Interpreter(model_content=data, experimental_op_resolver_type=litert.OpResolverType.BUILTIN_REF)
    return theirs, ours.Interpreter(model_content=data)


def check_same(theirs: Any, mine: Any) -> None:
    """Equal values of equal types, all the way down."""
    assert type(mine) is type(theirs)
    if isinstance(theirs, dict):
        assert list(mine) == list(theirs)
        for key, value in theirs.items():
            check_same(value, mine[key])
    elif isinstance(theirs, (list, tuple)):
        assert len(mine) == len(theirs)
        for a, b in zip(theirs, mine):
            check_same(a, b)
    elif isinstance(theirs, np.ndarray):
        assert mine.dtype == theirs.dtype
        np.testing.assert_array_equal(mine, theirs)
    else:
        assert mine == theirs


# Beside LiteRT.


@beside_litert
@pytest.mark.parametrize("name", ["__init__", "invoke", "set_tensor", "resize_tensor_input", "get_tensor_details"])
def test_parameters_have_litert_s_names_and_defaults(name: str) -> None:
    theirs, mine = (inspect.signature(getattr(each.Interpreter, name)).parameters for each in (litert, ours))
    assert [(each, value.default) for each, value in mine.items() if each != "experimental_op_resolver_type"] == [
        (each, value.default) for each, value in theirs.items() if each != "experimental_op_resolver_type"
    ]


@beside_litert
@pytest.mark.parametrize("name", MODELS)
def test_details_are_litert_s_key_for_key_and_type_for_type(name: str) -> None:
    theirs, mine = both(MODELS[name]())
    for _ in range(2):
        for call in ("get_input_details", "get_output_details", "get_signature_list", "_get_ops_details"):
            check_same(getattr(theirs, call)(), getattr(mine, call)())
        assert mine.num_subgraphs() == theirs.num_subgraphs()
        for interpreter in (theirs, mine):
            interpreter.allocate_tensors()
    for subgraph in range(theirs.num_subgraphs()):
        found, expected = mine.get_tensor_details(subgraph), theirs.get_tensor_details(subgraph)
        for details in expected:  # LiteRT's kernels spread a single scale of weights over all channels
            details["quantization_parameters"].pop("scales")
        for details in found:
            details["quantization_parameters"].pop("scales")
        check_same(expected[: len(found)], found)
    for key in theirs.get_signature_list():
        runners = [interpreter.get_signature_runner(key) for interpreter in (theirs, mine)]
        check_same(runners[0].get_input_details(), runners[1].get_input_details())
        check_same(runners[0].get_output_details(), runners[1].get_output_details())


def test_a_sparse_tensor_has_a_description_of_each_dimension() -> None:
    """LiteRT's keys; TFLM has no sparse tensors to compare."""
    segments, indices = Int32Vector(values=(0, 1, 2)), Int32Vector(values=(3, 5))
    dimensions = [
        DimensionMetadata(format=DimensionType.DENSE, dense_size=2),
        DimensionMetadata(format=DimensionType.SPARSE_CSR, array_segments=segments, array_indices=indices),
        DimensionMetadata(format=DimensionType.SPARSE_CSR),
    ]
    found = _sparsity(SparsityParameters(traversal_order=(0, 1, 2), dim_metadata=dimensions))
    vectors = [np.array(each, np.int32) for each in ((0, 1, 2), (3, 5), ())]
    expected = [
        {"format": 0, "dense_size": 2},
        {"format": 1, "array_segments": vectors[0], "array_indices": vectors[1]},
        {"format": 1, "array_segments": vectors[2], "array_indices": vectors[2]},
    ]
    check_same({"traversal_order": vectors[0], "dim_metadata": expected}, found)
    blocks = _sparsity(SparsityParameters(traversal_order=(0, 1, 2), block_map=(3, 5)))
    check_same({"traversal_order": vectors[0], "block_map": vectors[1], "dim_metadata": []}, blocks)
    assert _sparsity(None) == {}


@beside_litert
def test_real_models_have_litert_s_details(corpus: Path) -> None:
    for name in ("trained_lstm", "kws_ref_model", "okay_nabu_v2", "pad3", "quantize0"):
        theirs, mine = both((corpus / "models" / f"{name}.tflite").read_bytes())
        for index in range(theirs.num_subgraphs()):
            check_same(theirs.get_tensor_details(index), mine.get_tensor_details(index))
        check_same(theirs._get_ops_details(), mine._get_ops_details())


Call = Callable[[Any], Any]

REFUSALS: dict[str, Call] = {
    "invoke before allocate": lambda i: i.invoke(),
    "data before allocate": lambda i: i.get_tensor(0),
    "view before allocate": lambda i: i.tensor(0)(),
    "values before allocate": lambda i: i.set_tensor(0, np.zeros((1, 1), np.int8)),
    "type": lambda i: i.set_tensor(0, np.zeros((1, 1), np.float32)),
    "type of a list": lambda i: i.set_tensor(0, [[1]]),
    "string": lambda i: i.set_tensor(0, "a"),
    "rank": lambda i: i.set_tensor(0, np.zeros(1, np.int8)),
    "dimension": lambda i: i.set_tensor(0, np.zeros((2, 1), np.int8)),
    "index to write": lambda i: i.set_tensor(99, np.zeros((1, 1), np.int8)),
    "index to read": lambda i: i.get_tensor(99),
    "negative index": lambda i: i.get_tensor(-1),
    "subgraph": lambda i: i.get_tensor(0, 3),
    "first missing subgraph": lambda i: i.get_tensor(0, 1),
    "subgraph of details": lambda i: i.get_tensor_details(1),
    "node": lambda i: i._get_op_details(99),
    "first missing node": lambda i: i._get_op_details(len(i._get_ops_details())),
    "details": lambda i: i._get_tensor_details(99, 0),
    "first missing tensor": lambda i: i._get_tensor_details(len(i.get_tensor_details()), 0),
    "strict": lambda i: i.resize_tensor_input(0, [2, 1], strict=True),
    "a constant": lambda i: i.resize_tensor_input(1, [2, 1]),
    "a number for a shape": lambda i: i.resize_tensor_input(0, 5),
    "signature": lambda i: i.get_signature_runner("other"),
    "number of inputs": lambda i: i.get_signature_runner()(),
    "name of an input": lambda i: i.get_signature_runner()(y=np.zeros((1, 1), np.int8)),
}


@beside_litert
@pytest.mark.parametrize("call", REFUSALS)
def test_errors_are_litert_s(call: str) -> None:
    messages, kinds = [], []
    for interpreter in both(INT8_MODEL.read_bytes()):
        with pytest.raises((ValueError, RuntimeError)) as raised:
            REFUSALS[call](interpreter)
        kinds.append(raised.type)
        messages.append(str(raised.value))
    assert kinds[0] is kinds[1]
    assert messages[0] == messages[1]


OTHER_WORDS: dict[str, dict[str, Any]] = {
    "neither": {},
    "both": {"model_path": "a", "model_content": b"b"},
    "short": {"model_content": b"short"},
    "another file": {"model_content": b"wrong_identifier"},
    "no file": {"model_path": "no such file"},
    "threads": {"model_path": str(INT8_MODEL), "num_threads": 0},
    "type of threads": {"model_path": str(INT8_MODEL), "num_threads": 4.2},
    "resolver": {"model_path": str(INT8_MODEL), "experimental_op_resolver_type": "test"},
    "not bytes": {"model_content": "text"},
}
"""Where this package says more than LiteRT, its message begins as LiteRT's."""


@beside_litert
@pytest.mark.parametrize("arguments", OTHER_WORDS.values(), ids=OTHER_WORDS)
def test_what_can_not_be_opened_is_refused_as_by_litert(arguments: dict[str, Any]) -> None:
    assert litert is not None
    with pytest.raises((ValueError, TypeError)) as theirs:
        litert.Interpreter(**arguments)
    with pytest.raises((ValueError, TypeError)) as mine:
        ours.Interpreter(**arguments)
    assert mine.type is theirs.type
    if mine.type is ValueError:
        assert str(mine.value).startswith(str(theirs.value).partition(".The")[0][:40])


@beside_litert
def test_resized_inputs_give_litert_s_shapes_and_the_answers_of_each_row() -> None:
    theirs, mine = both(flattened())
    x = np.random.default_rng(1).standard_normal((5, 2, 3)).astype(np.float32)
    answers = []
    for interpreter in (theirs, mine):
        interpreter.resize_tensor_input(0, x.shape)
        with pytest.raises(RuntimeError, match="not ready"):
            interpreter.invoke()
        interpreter.allocate_tensors()
        interpreter.set_tensor(0, x)
        interpreter.invoke()
        answers.append(interpreter.get_tensor(interpreter.get_output_details()[0]["index"]))
        assert interpreter.get_input_details()[0]["shape"].tolist() == [5, 2, 3]
    assert answers[1].shape == answers[0].shape == (5, 1)
    np.testing.assert_allclose(answers[1], answers[0], rtol=1e-5)


@beside_litert
def test_unknown_dimensions_alone_may_change_where_that_is_asked_for() -> None:
    for interpreter in both(pooled()):
        interpreter.resize_tensor_input(0, [4, 16, 8, 2], strict=True)
        with pytest.raises(RuntimeError, match="ResizeInputTensorStrict only allows"):
            interpreter.resize_tensor_input(0, [4, 16, 8, 3], strict=True)
        interpreter.allocate_tensors()
        (output,) = interpreter.get_output_details()
        assert output["shape"].tolist() == [4, 2]
        assert interpreter.get_input_details()[0]["shape_signature"].tolist() == [-1, -1, -1, 2]


@beside_litert
@pytest.mark.parametrize("allocates", [False, True])
def test_strictness_goes_by_the_shape_of_the_file_however_often_an_input_is_resized(allocates: bool) -> None:
    shapes = [
        ([4, 16, 8, 2], True),
        ([4, 8, 8, 3], False),
        ([2, 4, 4, 2], True),
        ([2, 4, 2], False),
        ([1, 4, 4, 2], True),
    ]
    for interpreter in both(pooled()):
        for shape, allowed in shapes:
            if allowed:
                interpreter.resize_tensor_input(0, shape, strict=True)
                now = shape
            else:
                with pytest.raises(RuntimeError, match="ResizeInputTensorStrict only allows"):
                    interpreter.resize_tensor_input(0, shape, strict=True)
            if allocates:
                interpreter.allocate_tensors()
                assert interpreter.get_output_details()[0]["shape"].tolist() == [now[0], 2]
            assert interpreter.get_input_details()[0]["shape"].tolist() == now
    for interpreter in both(INT8_MODEL.read_bytes()):
        for _ in range(2):
            interpreter.resize_tensor_input(0, [1, 1], strict=True)
            with pytest.raises(RuntimeError, match="ResizeInputTensorStrict only allows"):
                interpreter.resize_tensor_input(0, [2, 1], strict=True)
        interpreter.resize_tensor_input(0, [2, 1])
        with pytest.raises(RuntimeError, match="ResizeInputTensorStrict only allows"):
            interpreter.resize_tensor_input(0, [1, 1], strict=True)


@beside_litert
def test_an_input_that_keeps_its_shape_stays_where_it_is() -> None:
    for interpreter in both(flattened()):
        shape = interpreter.get_input_details()[0]["shape"]
        interpreter.allocate_tensors()
        interpreter.resize_tensor_input(0, shape)
        interpreter.invoke()
        interpreter.resize_tensor_input(0, [shape[0] + 1, *shape[1:]])
        with pytest.raises(RuntimeError, match="not ready"):
            interpreter.invoke()


def test_an_operator_that_does_not_allow_it_is_named() -> None:
    interpreter = ours.Interpreter(model_content=refused())
    interpreter.resize_tensor_input(0, [4, 3])
    with pytest.raises(RuntimeError, match=r"operator 0 RESHAPE: reshapes to \[6\].* Node number 0"):
        interpreter.allocate_tensors()


def test_constants_have_their_shape_before_tensors_are_allocated() -> None:
    tensors = tflm.Model.from_file(INT8_MODEL).subgraphs[0].tensors or []
    interpreter = ours.Interpreter(model_path=INT8_MODEL)
    shapes = {}
    for index in range(len(tensors)):
        with contextlib.suppress(ValueError):  # not a constant
            shapes[index] = interpreter.get_tensor(index).shape
    assert len(set(shapes.values())) > 2
    assert shapes == {index: tensors[index].shape for index in shapes}


# Arrays that look into the interpreter.


def test_nothing_moves_while_an_array_looks_into_the_interpreter() -> None:
    interpreter = ours.Interpreter(model_path=INT8_MODEL)
    interpreter.allocate_tensors()
    function = interpreter.tensor(0)
    assert interpreter._safe_to_run()
    array = function()
    part = array[0]
    array[...] = 42
    assert interpreter.get_tensor(0).tolist() == [[42]]
    for call in (interpreter.allocate_tensors, interpreter.invoke, lambda: interpreter.resize_tensor_input(0, [1, 1])):
        with pytest.raises(RuntimeError, match="There is at least 1 reference to internal data"):
            call()
    del array
    with pytest.raises(RuntimeError, match="There is at least 1 reference"):
        interpreter.invoke()
    del part
    interpreter.invoke()


# Scripts as users write them, with the import changed; answers are TFLM's.


def test_classifying_an_image(corpus: Path) -> None:
    from tflm.compat.litert.interpreter import Interpreter

    path = corpus / "models" / "person_detect.tflite"
    interpreter = Interpreter(model_path=str(path), num_threads=2)
    interpreter.allocate_tensors()
    details = interpreter.get_input_details()[0]
    _, height, width, _ = details["shape"]
    image = np.random.default_rng(0).integers(0, 256, (height, width)).astype(np.float32) / 255
    scale, zero_point = details["quantization"]
    values = np.clip(np.round(image / scale + zero_point), -128, 127).astype(details["dtype"])
    interpreter.set_tensor(details["index"], values[None, :, :, None])
    interpreter.invoke()
    found = interpreter.get_tensor(interpreter.get_output_details()[0]["index"])
    assert found.shape == (1, 2)
    np.testing.assert_array_equal(found, answer_of(path, values[None, :, :, None]))


def answer_of(path: Path, *inputs: Any) -> Any:
    """What `MicroInterpreter` gives for the last of several inputs."""
    interpreter = tflm.MicroInterpreter(tflm.Model.from_file(path), tflm.AllOpsResolver(), bytearray(1 << 20))
    interpreter.allocate_tensors()
    for values in inputs:
        interpreter.input(0).data[:] = values
        interpreter.invoke()
    return interpreter.output(0).data.copy()


def test_listening_to_a_stream_and_beginning_anew(corpus: Path) -> None:
    path = corpus / "models" / "keyword_scrambled.tflite"
    interpreter = ours.Interpreter(model_path=path)
    interpreter.allocate_tensors()
    (details,), (output,) = interpreter.get_input_details(), interpreter.get_output_details()
    rng = np.random.default_rng(3)
    frames = [np.asarray(rng.standard_normal(details["shape"]), details["dtype"]) for _ in range(5)]

    def heard() -> Any:
        for frame in frames:
            interpreter.set_tensor(details["index"], frame)
            interpreter.invoke()
        return interpreter.get_tensor(output["index"])

    first = heard()
    np.testing.assert_array_equal(first, answer_of(path, *frames))
    interpreter.reset_all_variables()
    np.testing.assert_array_equal(heard(), first)


def test_variables_begin_anew_when_they_are_reset() -> None:
    interpreter = ours.Interpreter(model_content=counter())
    interpreter.allocate_tensors()
    x, y = interpreter.get_input_details()[0]["index"], interpreter.get_output_details()[0]["index"]
    counts = []
    for step in range(4):
        if step == 2:
            interpreter.reset_all_variables()
        interpreter.set_tensor(x, np.array([2], np.float32))
        interpreter.invoke()
        counts.append(interpreter.get_tensor(y).item())
    assert counts == [2, 4, 2, 4]


def test_variables_of_every_subgraph_are_reset() -> None:
    builder = ModelBuilder()
    for index in range(2):
        part = builder.subgraph()
        x, y = part.input("x", (1, 2), TensorType.FLOAT32), part.tensor("y", (1, 1), TensorType.FLOAT32)
        state = part.tensor("state", (1, 3), TensorType.FLOAT32, is_variable=True)
        weights, times = (part.constant(name, np.ones((1, n), np.float32)) for name, n in (("w", 2), ("t", 3)))
        bias = part.constant("bias", np.zeros(1, np.float32))
        part.operator(BuiltinOperator.SVDF, [x, weights, times, bias, state], [y], SVDFOptions(rank=1))
        part.output(y)
        builder.signature(f"part {index}", {"x": x}, {"y": y}, index)
    interpreter = ours.Interpreter(model_content=builder.build())
    parts = [interpreter.get_signature_runner(f"part {index}") for index in range(2)]
    ones = np.ones((1, 2), np.float32)
    for _ in range(2):
        assert [[part(x=ones)["y"].item() for part in parts] for _ in range(3)] == [[2, 2], [4, 4], [6, 6]]
        interpreter.reset_all_variables()


def test_signatures_run_their_own_subgraphs_with_inputs_by_name() -> None:
    interpreter = ours.Interpreter(model_content=two_signatures())
    a, b = np.array([2, 3], np.float32), np.array([5, 7], np.float32)
    add, multiply = (interpreter.get_signature_runner(key) for key in ("add", "mul"))
    assert add(first=a, b=b)["y"].tolist() == [7, 10]
    assert multiply(first=a, b=b)["y"].tolist() == [10, 21]
    assert add(first=a[:1], b=b[:1])["y"].tolist() == [7]
    with pytest.raises(ValueError, match="model has 2 Signatures"):
        interpreter.get_signature_runner()
    with pytest.raises(ValueError, match="Got value of type FLOAT64 but expected type FLOAT32"):
        add(first=a.astype(np.float64), b=b)


@beside_litert
def test_signatures_leave_each_others_inputs_and_outputs_as_they_are() -> None:
    a, b = np.array([2, 3], np.float32), np.array([5, 7], np.float32)
    for interpreter in both(two_signatures()):
        add, multiply = (interpreter.get_signature_runner(key) for key in ("add", "mul"))
        total = add(first=a, b=b)
        product = multiply(first=a, b=b)
        assert multiply(first=b, b=b)["y"].tolist() == [25, 49]
        assert add(first=b[:1], b=b[:1])["y"].tolist() == [10]
        assert (total["y"].tolist(), product["y"].tolist()) == ([7, 10], [10, 21])
        details = [runner.get_input_details()["first"] for runner in (add, multiply)]
        assert [of["name"] for of in details] == ["ADD_a:0", "MUL_a:0"]
        assert [of["shape"].tolist() for of in details] == [[1], [2]]
        for arguments in ({"first": a}, {"first": a, "b": b, "c": b}, {"first": a, "c": b}):
            with pytest.raises(ValueError, match="Invalid"):
                add(**arguments)


@beside_litert
def test_what_was_taken_of_an_output_stays_after_another_invoke() -> None:
    for interpreter in both(flattened()):
        interpreter.allocate_tensors()
        (x,), (y,) = interpreter.get_input_details(), interpreter.get_output_details()
        taken = []
        for value in (1, 2):
            interpreter.set_tensor(x["index"], np.full(x["shape"], value, np.float32))
            interpreter.invoke()
            taken.append(interpreter.get_tensor(y["index"]))
        first = taken[0].copy()
        taken[1][...] = 77
        assert not np.array_equal(taken[0], taken[1])
        assert np.array_equal(taken[0], first)
        assert not (interpreter.get_tensor(y["index"]) == 77).any()


def test_looking_at_tensors_in_between(corpus: Path) -> None:
    path = corpus / "models" / "kws_ref_model.tflite"
    with pytest.warns(UserWarning, match="for debugging"):
        interpreter = ours.Interpreter(model_path=path, experimental_preserve_all_tensors=True)
    interpreter.allocate_tensors()
    peer = tflm.MicroInterpreter(
        tflm.Model.from_file(path), tflm.AllOpsResolver(), bytearray(1 << 20), preserve_all_tensors=True, delegates=[]
    )
    peer.allocate_tensors()
    details = interpreter.get_input_details()[0]
    values = np.random.default_rng(5).integers(-128, 128, details["shape"]).astype(np.int8)
    interpreter.set_tensor(details["index"], values)
    interpreter.invoke()
    peer.input(0).data[:] = values
    peer.invoke()
    for operator in interpreter._get_ops_details():
        for tensor in operator["outputs"]:
            np.testing.assert_array_equal(interpreter.get_tensor(tensor), peer.get_tensor(tensor).data)


# Delegates, resolvers and operators of the caller's own.


def test_delegates_are_loaded_by_name() -> None:
    delegate = ours.load_delegate("compiled")
    interpreter = ours.Interpreter(model_path=INT8_MODEL, experimental_delegates=[delegate])
    interpreter.allocate_tensors()
    interpreter.invoke()
    with pytest.raises(ValueError, match=r"Failed to load delegate from libedgetpu.so.1\n.*use one of compiled"):
        ours.load_delegate("libedgetpu.so.1")
    with pytest.raises(ValueError, match="Failed to load delegate from compiled"):
        ours.load_delegate("compiled", {"fail": "fail"})


@pytest.mark.parametrize("kind", ours.OpResolverType)
def test_every_kind_of_resolver_gives_the_same_answer(kind: ours.OpResolverType) -> None:
    interpreter = ours.Interpreter(model_path=INT8_MODEL, experimental_op_resolver_type=kind)
    interpreter.allocate_tensors()
    interpreter.set_tensor(0, np.array([[42]], np.int8))
    interpreter.invoke()
    (output,) = interpreter.get_output_details()
    np.testing.assert_array_equal(interpreter.get_tensor(output["index"]), answer_of(INT8_MODEL, [[42]]))


@pytest.mark.parametrize("kind", ours.OpResolverType)
def test_the_kind_of_resolver_says_whether_there_are_default_delegates(
    kind: ours.OpResolverType, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tflm.Model] = []

    def default_delegates(model: tflm.Model) -> list[Any]:
        asked.append(model)
        return []

    monkeypatch.setattr("tflm.delegates.default_delegates", default_delegates)
    ours.Interpreter(model_path=INT8_MODEL, experimental_op_resolver_type=kind).allocate_tensors()
    assert bool(asked) == (kind.name in ("AUTO", "BUILTIN"))


def test_operators_of_the_caller_s_own() -> None:
    added: list[tflm.MicroMutableOpResolver] = []
    ours.InterpreterWithCustomOps(model_path=INT8_MODEL, custom_op_registerers=[added.append])
    assert [type(resolver) for resolver in added] == [tflm.AllOpsResolver]
    with pytest.raises(ValueError, match="Looking up symbol 'Bogus' failed"):
        ours.InterpreterWithCustomOps(model_path=INT8_MODEL, custom_op_registerers=["Bogus"])


def test_operators_of_the_caller_s_own_may_be_registrations() -> None:
    model, registration = negated()
    interpreter = ours.InterpreterWithCustomOps(model_content=model, custom_op_registerers=[registration])
    interpreter.allocate_tensors()
    interpreter.set_tensor(0, np.array([1, -2, 3], np.float32))
    interpreter.invoke()
    assert interpreter.get_tensor(1).tolist() == [-1, 2, -3]


def test_litert_s_own_tests_find_their_stand_ins() -> None:
    """What the tool that runs them makes is what they ask for."""
    tool = Path(__file__).parents[1] / "tools" / "litert_python_tests.py"
    answer = subprocess.run([sys.executable, str(tool), "--help"], capture_output=True, text=True, check=True)
    assert "interpreter_test.py" in answer.stdout
