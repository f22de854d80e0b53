"""Models for inputs of other shapes."""

from __future__ import annotations

import importlib
import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_cli import figures, refusal, run

import tflm
from tflm.rewriting.shapes import resized, with_main_subgraph
from tflm.schema import (
    BuiltinOperator,
    FullyConnectedOptions,
    IfOptions,
    ModelBuilder,
    PackOptions,
    ReducerOptions,
    ReshapeOptions,
    ShapeOptions,
    StridedSliceOptions,
    TensorType,
)

HAS_LITERT = importlib.util.find_spec("ai_edge_litert") is not None


def pooled(batch: int = 1) -> bytes:
    """The mean of each image; the batch size is not known."""
    builder = ModelBuilder()
    main = builder.subgraph()
    x = main.input("image", (batch, 8, 8, 2), TensorType.FLOAT32)
    axes = main.constant("axes", np.array([1, 2], np.int32))
    y = main.tensor("mean", (batch, 2), TensorType.FLOAT32)
    main.operator(BuiltinOperator.MEAN, [x, axes], [y], ReducerOptions())
    main.output(y)
    builder.signature("serving_default", {"picture": x}, {"mean": y})
    tables = builder.model.subgraphs[0].tensors
    tables[x].shape_signature = (-1, -1, -1, 2)
    return builder.build()


def flattened() -> bytes:
    """A dense layer after a RESHAPE whose shape is made of the SHAPE of the input."""
    builder = ModelBuilder()
    main = builder.subgraph()
    x = main.input("x", (1, 2, 3), TensorType.FLOAT32)
    shape, batch = main.tensor("shape", (3,), TensorType.INT32), main.tensor("batch", (), TensorType.INT32)
    wanted = main.tensor("wanted", (2,), TensorType.INT32)
    zero, one = (main.constant(name, np.array([value], np.int32)) for name, value in (("zero", 0), ("one", 1)))
    six = main.constant("six", np.array(6, np.int32))
    flat, y = main.tensor("flat", (1, 6), TensorType.FLOAT32), main.tensor("y", (1, 1), TensorType.FLOAT32)
    weights = main.constant("w", np.arange(6, dtype=np.float32).reshape(1, 6))
    main.operator(BuiltinOperator.SHAPE, [x], [shape], ShapeOptions(out_type=TensorType.INT32))
    options = StridedSliceOptions(shrink_axis_mask=1)
    main.operator(BuiltinOperator.STRIDED_SLICE, [shape, zero, one, one], [batch], options)
    main.operator(BuiltinOperator.PACK, [batch, six], [wanted], PackOptions(values_count=2, axis=0))
    main.operator(BuiltinOperator.RESHAPE, [x, wanted], [flat], ReshapeOptions())
    main.operator(BuiltinOperator.FULLY_CONNECTED, [flat, weights, -1], [y], FullyConnectedOptions())
    main.output(y)
    return builder.build()


def shapes(model: bytes) -> dict[str, tuple[int, ...]]:
    return {t.name or "": t.shape or () for t in tflm.Model(model).subgraphs[0].tensors or ()}


def test_an_input_is_known_by_its_name_in_the_signature_as_a_tensor_and_by_its_position() -> None:
    model = tflm.Model(pooled())
    keys: list[str | int] = ["picture", "image", 0]
    for key in keys:
        found = shapes(tflm.resize(model, {key: [3, 4, 6, 2]}))
        assert (found["image"], found["mean"]) == ((3, 4, 6, 2), (3, 2))
    assert tflm.resize(model, {}) == tflm.resize(model, {"image": (1, 8, 8, 2)})


def test_shapes_that_are_made_of_shapes_follow() -> None:
    data = tflm.resize(tflm.Model(flattened()), {"x": (4, 2, 3)})
    assert (shapes(data)["flat"], shapes(data)["y"]) == ((4, 6), (4, 1))
    interpreter = tflm.MicroInterpreter(tflm.Model(data), tflm.AllOpsResolver(), bytearray(8192))
    interpreter.allocate_tensors()
    x = np.random.default_rng(0).integers(-9, 9, (4, 2, 3)).astype(np.float32)
    interpreter.input(0).data[:] = x
    interpreter.invoke()
    np.testing.assert_array_equal(interpreter.output(0).data, x.reshape(4, 6) @ np.arange(6)[:, None])


def test_the_operator_that_does_not_allow_it_is_named() -> None:
    builder = ModelBuilder()
    main = builder.subgraph()
    x, y = main.input("x", (2, 3), TensorType.FLOAT32), main.tensor("y", (6,), TensorType.FLOAT32)
    main.operator(BuiltinOperator.RESHAPE, [x], [y], ReshapeOptions(new_shape=(6,)))
    main.output(y)
    with pytest.raises(tflm.OperatorError, match=r"operator 0 RESHAPE: reshapes to \[6\], .* of \[4, 3\]"):
        tflm.resize(tflm.Model(builder.build()), {"x": (4, 3)})


def test_an_operator_without_a_rule_is_named() -> None:
    builder = ModelBuilder()
    main = builder.subgraph()
    x, y = main.input("x", (2, 3), TensorType.FLOAT32), main.tensor("y", (2, 3), TensorType.FLOAT32)
    main.operator("mine", [x], [y])
    main.output(y)
    with pytest.raises(tflm.OperatorError, match="operator 0 mine: does not allow"):
        tflm.resize(tflm.Model(builder.build()), {"x": (4, 3)})


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"z": (1,)}, "there is no input 'z'; there are 'image', 'picture'"),
        ({1: (1,)}, "no input 1"),
        ({0: (-1,)}, "-1"),
    ],
)
def test_what_is_no_input_or_no_shape_is_refused(asked: Any, message: str) -> None:
    with pytest.raises(tflm.ArgumentError, match=message):
        tflm.resize(tflm.Model(pooled()), asked)


def test_another_subgraph_can_be_the_one_that_runs() -> None:
    """And the operators that run subgraphs still run the same ones."""
    builder = ModelBuilder()
    for name in ("main", "negative", "same"):
        part = builder.subgraph(name)
        if name == "main":
            condition = part.input("condition", (), TensorType.BOOL)
            x = part.input("x", (2,), TensorType.FLOAT32)
            y = part.tensor("y", (2,), TensorType.FLOAT32)
            options = IfOptions(then_subgraph_index=1, else_subgraph_index=2)
            part.operator(BuiltinOperator.IF, [condition, x], [y], options)
        else:
            x, y = part.input("x", (2,), TensorType.FLOAT32), part.tensor("y", (2,), TensorType.FLOAT32)
            part.operator(BuiltinOperator.NEG if name == "negative" else BuiltinOperator.ABS, [x], [y])
        part.output(y)
    moved = tflm.Model(with_main_subgraph(tflm.Model(builder.build()), 2))
    assert [part.name for part in moved.subgraphs] == ["same", "negative", "main"]
    (operator,) = moved.subgraphs[2].operators or ()
    assert operator.builtin_options == IfOptions(then_subgraph_index=1, else_subgraph_index=0)


@pytest.mark.skipif(not HAS_LITERT, reason="ai-edge-litert is not installed")
def test_shapes_are_those_that_litert_finds(corpus: Path) -> None:
    litert = importlib.import_module("ai_edge_litert.interpreter")
    for name in (
        "ad01_int8",
        "conv3",
        "kws_ref_model",
        "leaky_relu3",
        "pad6",
        "sub3",
        "strided_slice9",
        "trained_lstm",
    ):
        path = corpus / "models" / f"{name}.tflite"
        model = tflm.Model.from_file(path)
        tensors, main = model.subgraphs[0].tensors or [], model.subgraphs[0]
        asked = {t: (2 * (tensors[t].shape or ())[0], *(tensors[t].shape or ())[1:]) for t in main.inputs or ()}
        theirs = litert.Interpreter(str(path), experimental_op_resolver_type=litert.OpResolverType.BUILTIN_REF)
        for tensor, shape in asked.items():
            theirs.resize_tensor_input(tensor, shape)
        try:
            theirs.allocate_tensors()
        except RuntimeError:
            with pytest.raises(tflm.OperatorError):
                resized(model, asked)
            continue
        found = tflm.Model(resized(model, asked)).subgraphs[0].tensors or []
        for details in theirs.get_tensor_details()[: len(found)]:
            assert tuple(details["shape"]) == (found[details["index"]].shape or ()), (name, details["name"])


def test_commands_take_shapes(tmp_path: Path) -> None:
    path, written = tmp_path / "model.tflite", tmp_path / "resized.tflite"
    path.write_bytes(pooled())
    report = figures("resize", path, "-o", written, "--shape", "picture=1,96,96,2")
    assert report["inputs"] == [{"name": "image", "shape": [1, 96, 96, 2]}]
    assert (
        figures("arena", path, "--shape", "image=1,96,96,2")["models"][0]["head_bytes"]
        == (figures("arena", written)["models"][0]["head_bytes"])
    )
    assert run("resize", path, "-o", written, "--shape", "image").returncode == 2
    assert "is the model itself" in refusal("resize", path, "-o", path)
