"""Models for inputs of other shapes."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from differential import run as answers_of
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from image_graphs import image_graph
from sampling import drawn, examples
from test_cli import figures, run

import tflm
from tflm.kernels import REGISTRATIONS
from tflm.kernels.shapes import StaticNode
from tflm.rewriting.resizing import SUBGRAPH_INDICES, WITHOUT_KERNEL, resized, with_main_subgraph
from tflm.schema import (
    ELEMENT_TYPES,
    ActivationFunctionType,
    AddOptions,
    BatchMatMulOptions,
    BuiltinOperator,
    CallOnceOptions,
    ConcatenationOptions,
    Conv2DOptions,
    DepthToSpaceOptions,
    DepthwiseConv2DOptions,
    FullyConnectedOptions,
    GatherOptions,
    IfOptions,
    ModelBuilder,
    PackOptions,
    Padding,
    Pool2DOptions,
    ReducerOptions,
    ReshapeOptions,
    ShapeOptions,
    SpaceToDepthOptions,
    SplitOptions,
    SplitVOptions,
    SqueezeOptions,
    StridedSliceOptions,
    SVDFOptions,
    TensorType,
    UnpackOptions,
    WhileOptions,
    options,
    read_model,
    write_model,
)
from tflm.schema.tables import METADATA_NAME, Tensor
from tflm.schema.version_rules import signature_of
from tflm.testing.operators import OPERATORS

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


@pytest.mark.parametrize("shape", [(), (2, 3, 4), (2, 3, 4, 5), (1, 2, 3, 4, 5)])
def test_an_image_has_four_dimensions(shape: tuple[int, ...]) -> None:
    node = StaticNode(BuiltinOperator.CONV_2D, (Tensor(shape=shape),), ())
    if len(shape) == 4:
        assert node.images() == shape
    else:
        with pytest.raises(tflm.OperatorError, match=f"input 0 needs 4 dimensions, .* has {len(shape)}"):
            node.images()


def test_weights_of_four_bits_are_not_read() -> None:
    builder = ModelBuilder()
    main = builder.subgraph()
    x, y = main.input("x", (1, 3), TensorType.INT8), main.tensor("y", (1, 1), TensorType.INT8)
    weights = main.constant("w", np.zeros(2, np.uint8), type=TensorType.INT4, shape=(1, 3))
    main.operator(BuiltinOperator.FULLY_CONNECTED, [x, weights, -1], [y], FullyConnectedOptions())
    main.output(y)
    assert shapes(tflm.resize(tflm.Model(builder.build()), {"x": (5, 3)}))["y"] == (5, 1)


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
        ({"z": (1,)}, "unknown input 'z' \\(available: 'image', 'picture'\\)"),
        ({1: (1,)}, "unknown input 1"),
        ({0: (-1,)}, "-1"),
    ],
)
def test_what_is_no_input_or_no_shape_is_refused(asked: Any, message: str) -> None:
    with pytest.raises(tflm.ArgumentError, match=message):
        tflm.resize(tflm.Model(pooled()), asked)


def test_another_subgraph_can_be_the_one_that_runs() -> None:
    """Operators that run subgraphs still run the same ones."""
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


def four_subgraphs() -> tflm.Model:
    """A model whose first subgraph calls the others, with a signature and a plan."""
    builder = ModelBuilder()
    main = builder.subgraph("main")
    x, y, z = (main.tensor(name, (1,), TensorType.BOOL) for name in "xyz")
    main.table.inputs = (x,)
    main.operator(BuiltinOperator.CALL_ONCE, [], [], CallOnceOptions(init_subgraph_index=3))
    main.operator(BuiltinOperator.IF, [x, x], [y], IfOptions(then_subgraph_index=1, else_subgraph_index=2))
    main.operator(BuiltinOperator.WHILE, [y], [z], WhileOptions(cond_subgraph_index=2, body_subgraph_index=1))
    main.output(z)
    for name in ("same", "opposite"):
        part = builder.subgraph(name)
        part.input("x", (1,), TensorType.BOOL)
        part.operator(BuiltinOperator.LOGICAL_NOT, [0], [part.tensor("y", (1,), TensorType.BOOL)])
        part.output(1 if name == "opposite" else 0)
    builder.subgraph("first")
    builder.signature("serve", {"x": x}, {"z": z})
    builder.signature("other", {"x": 0}, {"y": 1}, subgraph_index=2)
    return tflm.Model(builder.build())


def references(model: tflm.Model) -> list[tuple[str, str | None]]:
    """Return the references to subgraphs, with the names of these."""
    found = [(each.signature_key or "", each.subgraph_index) for each in model.root.signature_defs or ()]
    for part in model.subgraphs:
        for number, operator in enumerate(part.operators or ()):
            values = vars(operator.builtin_options or operator)
            found += [
                (f"{part.name} {number} {name}", value)
                for name, value in values.items()
                if name.endswith("subgraph_index")
            ]
    return sorted((what, model.subgraphs[index].name) for what, index in found)


@pytest.mark.parametrize("index", range(4))
def test_every_reference_to_a_subgraph_follows_it(index: int) -> None:
    model = four_subgraphs()
    assert len(references(model)) == 7
    moved = tflm.Model(with_main_subgraph(model, index))
    assert moved.subgraphs[0].name == model.subgraphs[index].name
    assert references(moved) == references(model)
    assert with_main_subgraph(moved, index) == with_main_subgraph(model, 0)


def test_the_plan_of_another_main_subgraph_is_dropped() -> None:
    planned = tflm.plan(four_subgraphs()).model
    assert planned.metadata(METADATA_NAME)
    assert tflm.Model(with_main_subgraph(planned, 0)).metadata(METADATA_NAME) is None


def test_all_options_that_name_a_subgraph_are_known() -> None:
    classes = [each for each in vars(options).values() if dataclasses.is_dataclass(each)]
    names = {field.name for each in classes for field in dataclasses.fields(each)}
    assert {name for name in names if name.endswith("subgraph_index")} == {*SUBGRAPH_INDICES}


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
    answer = run("resize", path, "-o", path)
    assert answer.returncode == 2
    assert "is the model itself" in answer.stderr


RULED_OPERATORS = {name for name, registration in REGISTRATIONS.items() if registration.shape_rule}

OF_OTHER_SHAPES = {"CONV_2D", "DEPTHWISE_CONV_2D", "PACK", "STRIDED_SLICE", "SVDF"}
"""Operators whose random models have outputs of other shapes at times than those that a converter writes."""


@pytest.mark.parametrize("operator", sorted(OPERATORS.keys() & RULED_OPERATORS - OF_OTHER_SHAPES))
@given(data=st.data())
@settings(max_examples=examples(5))
def test_the_shapes_of_outputs_follow_from_those_of_inputs(operator: str, data: st.DataObject) -> None:
    model, _ = data.draw(OPERATORS[operator])
    found, right = forgotten_and_found(model)
    assert found is None or found == right


VALUED = sorted(name for name, registration in REGISTRATIONS.items() if registration.output_values)
COMPUTING = {"ADD", "SUB", "MUL"}
"""Operators whose values are of integers without scales."""


@pytest.mark.parametrize("operator", VALUED)
def test_elements_that_follow_from_shapes_are_those_that_the_operator_computes(operator: str) -> None:
    rule, compared = REGISTRATIONS[operator].output_values, 0
    assert rule is not None
    for data, (inputs, *_) in drawn(operator, 16):
        root = read_model(memoryview(data))
        main = root.subgraphs[0]
        made = main.operators[0]
        main.outputs = made.outputs
        types = {main.tensors[i].type for i in (*made.inputs, *made.outputs)}
        activation = getattr(made.builtin_options, "fused_activation_function", ActivationFunctionType.NONE)
        if operator in COMPUTING and (types != {TensorType.INT32} or activation != ActivationFunctionType.NONE):
            continue
        elements = {i: constant(data, i) for i in made.inputs} | dict(zip(main.inputs or (), inputs))
        known = [elements[i] for i in made.inputs]
        signature = signature_of(BuiltinOperator[operator], made, main)
        with contextlib.suppress(tflm.OperatorError):
            ((expected, *_),) = answers_of(write_model(root), [inputs], delegates=())
            found = np.asarray(rule(StaticNode(**vars(signature), known=known.__getitem__)), None)
            if operator not in OF_OTHER_SHAPES or found.shape == expected.shape:
                assert found.shape == expected.shape
                np.testing.assert_array_equal(found.astype(expected.dtype), expected)
                compared += 1
    assert compared


def constant(data: bytes, tensor: int) -> np.ndarray[Any, Any] | None:
    """The elements of a constant."""
    root = read_model(memoryview(data))
    table = root.subgraphs[0].tensors[tensor]
    elements = root.buffers[table.buffer].data
    return (
        np.frombuffer(bytes(elements), ELEMENT_TYPES[table.type].dtype).reshape(table.shape or ()) if elements else None
    )


IN_NUMPY: dict[str, Callable[..., Any]] = {
    "GELU": lambda x: x,
    "RELU_N1_TO_1": lambda x: x,
    "POW": lambda x, y: x + y,
    "TILE": np.tile,
    "REDUCE_ANY": lambda x, axes, keepdims: np.any(x, tuple(axes), keepdims=keepdims),
    "REDUCE_PROD": lambda x, axes, keepdims: np.prod(x, tuple(axes), keepdims=keepdims),
}
"""Functions with the shapes of operators that TFLM lacks."""


def test_shapes_of_operators_that_tflm_lacks_are_those_of_numpy() -> None:
    assert set(IN_NUMPY) == set(WITHOUT_KERNEL)
    second: dict[str, list[Any]] = {"POW": [(3, 1), (1,), (2, 3, 4)], "TILE": [of(1, 1, 1), of(2, 3, 1), of(1, 1, 5)]}
    reduced = [of(0), of(1), of(0, 2), of(-1), of(2, 0, 1)]
    second |= dict.fromkeys(("REDUCE_ANY", "REDUCE_PROD"), reduced)
    for name, function in IN_NUMPY.items():
        for other in second.get(name, [None]):
            for keeps in (False, True) if name.startswith("REDUCE") else (None,):
                builder = ModelBuilder()
                main = builder.subgraph()
                operands = [main.input("x", (1, 1, 1), TensorType.FLOAT32)]
                values = [np.ones((2, 3, 4))]
                if isinstance(other, tuple):
                    operands.append(main.input("other", (1,), TensorType.FLOAT32))
                    values.append(np.ones(other))
                elif other is not None:
                    operands.append(main.constant("other", other))
                    values.append(other)
                y = main.tensor("y", (1,), TensorType.FLOAT32)
                options = None if keeps is None else ReducerOptions(keep_dims=keeps)
                main.operator(BuiltinOperator[name], operands, [y], options)
                main.output(y)
                given = {"x": (2, 3, 4), **({"other": other} if isinstance(other, tuple) else {})}
                data = tflm.resize(tflm.Model(builder.build(), checks="tflm"), given)
                expected = function(*values, *(() if keeps is None else (keeps,)))
                assert shapes(data)["y"] == np.shape(expected), (name, other, keeps)


@pytest.mark.parametrize(("axes", "keeps", "expected"), [((0,), False, (24,)), ((0,), True, (24, 1))])
def test_a_product_of_a_shape_is_the_number_of_elements(axes: Any, keeps: bool, expected: tuple[int, ...]) -> None:
    builder = ModelBuilder()
    main = builder.subgraph()
    x = main.input("x", (1, 1, 1), TensorType.FLOAT32)
    shape, count = main.tensor("shape", (3,), TensorType.INT32), main.tensor("count", (1,), TensorType.INT32)
    y = main.tensor("y", (1,), TensorType.FLOAT32)
    main.operator(BuiltinOperator.SHAPE, [x], [shape], ShapeOptions(out_type=TensorType.INT32))
    options = ReducerOptions(keep_dims=keeps)
    main.operator(BuiltinOperator.REDUCE_PROD, [shape, main.constant("axes", of(*axes))], [count], options)
    wanted = count
    if keeps:  # a vector, which others can be joined to
        wanted = main.tensor("both", (1,), TensorType.INT32)
        joined = [count, main.constant("one", of(1))]
        main.operator(BuiltinOperator.CONCATENATION, joined, [wanted], ConcatenationOptions(axis=0))
    main.operator(BuiltinOperator.RESHAPE, [x, wanted], [y], ReshapeOptions())
    main.output(y)
    found = shapes(tflm.resize(tflm.Model(builder.build(), checks="tflm"), {"x": (2, 3, 4)}))
    assert (found["count"], found["y"]) == ((1,) if keeps else (), expected)


def of(*numbers: int) -> np.ndarray:
    """A constant of integers."""
    return np.array(numbers, np.int32)


def window(**options: Any) -> Any:
    """Options of a convolution without padding."""
    return Conv2DOptions(padding=Padding.VALID, **{"stride_w": 1, "stride_h": 1, **options})


def strided(**masks: int) -> Any:
    """Options of a STRIDED_SLICE."""
    return StridedSliceOptions(**masks)


DEPTHWISE = DepthwiseConv2DOptions(padding=Padding.VALID, stride_h=2, stride_w=1, depth_multiplier=3)
POOL = Pool2DOptions(stride_h=2, stride_w=3, filter_height=2, filter_width=4)
VALID_POOL = Pool2DOptions(padding=Padding.VALID, stride_h=2, stride_w=3, filter_height=2, filter_width=4)
TENS = of(0, 0), of(10, 10), of(1, 1)
FILTER = np.ones((4, 3, 2, 5), np.float32)
RULED: list[tuple[str, Any, Any, Any]] = [
    ("CONV_2D", [(1, 3, 2, 5), FILTER], window(), [(1, 1, 1, 4)]),
    ("CONV_2D", [(1, 2, 2, 5), FILTER], window(), "2 rows or columns are too few for a window of 3"),
    ("CONV_2D", [(1, 6, 3, 5), FILTER], window(dilation_h_factor=2, dilation_w_factor=2), [(1, 2, 1, 4)]),
    ("CONV_2D", [(1, 9, 8, 10), FILTER], window(stride_h=2, stride_w=3), [(1, 4, 3, 4)]),
    ("CONV_2D", [(1, 9, 8, 4), FILTER], window(), "weights are for 5 channels, the input has 4"),
    ("CONV_2D", [(9, 8, 5), FILTER], window(), "needs 4 dimensions"),
    ("STRIDED_SLICE", [(10, 10), *TENS], strided(), [(10, 10)]),
    ("STRIDED_SLICE", [(5, 7, 2), of(1, 2), of(4, 9), of(2, 3)], strided(), [(2, 2, 2)]),
    ("STRIDED_SLICE", [(5, 7), of(1, 2), of(4, 5), of(1, 1)], strided(begin_mask=1, end_mask=2), [(4, 5)]),
    ("STRIDED_SLICE", [(5, 7), of(4, 6), of(0, 0), of(1, 1)], strided(shrink_axis_mask=3), [()]),
    ("STRIDED_SLICE", [(5, 7), of(4, 0), of(0, 3), of(1, 1)], strided(shrink_axis_mask=1), [(3,)]),
    ("STRIDED_SLICE", [(5, 7), of(-5, 0), of(0, 3), of(1, 1)], strided(shrink_axis_mask=1), [(3,)]),
    (
        "STRIDED_SLICE",
        [(5, 7), of(5, 0), of(0, 3), of(1, 1)],
        strided(shrink_axis_mask=1),
        "index 5 is out of range",
    ),
    (
        "STRIDED_SLICE",
        [(5, 7), of(-6, 0), of(0, 3), of(1, 1)],
        strided(shrink_axis_mask=1),
        "index -6 is out of range",
    ),
    ("STRIDED_SLICE", [(5, 7), *TENS], strided(ellipsis_mask=1), "ellipsis"),
    ("STRIDED_SLICE", [(5,), *TENS], strided(), "ranges for 2 dimensions, the input has 1"),
    ("PACK", [(2, 3), (2, 3)], PackOptions(values_count=2, axis=2), [(2, 3, 2)]),
    ("PACK", [(2, 3), (2, 3)], PackOptions(values_count=2, axis=-3), [(2, 2, 3)]),
    ("PACK", [(2, 3), (2, 3)], PackOptions(values_count=2, axis=3), "axis 3 is out of range for 3 dimensions"),
    ("PACK", [(2, 3), (2, 4)], PackOptions(values_count=2, axis=0), "must have one shape"),
    ("SVDF", [(3, 4), np.ones((6, 4)), np.ones((6, 2)), np.ones(3), (3, 12)], SVDFOptions(rank=2), [(3, 3)]),
    ("FULLY_CONNECTED", [(2, 6), np.ones((5, 4))], FullyConnectedOptions(), [(3, 5)]),
    ("FULLY_CONNECTED", [(2, 5), np.ones((5, 4))], FullyConnectedOptions(), "does not divide"),
    ("FULLY_CONNECTED", [(2, 3, 4), np.ones((5, 4))], FullyConnectedOptions(keep_num_dims=True), [(2, 3, 5)]),
    (
        "FULLY_CONNECTED",
        [(2, 4, 3), np.ones((5, 4))],
        FullyConnectedOptions(keep_num_dims=True),
        "have depth 4",
    ),
    ("RESHAPE", [(2, 6), of(3, -1)], None, [(3, 4)]),
    ("RESHAPE", [(2, 6), of(5, -1)], None, "reshapes to"),
    ("RESHAPE", [(2, 6), of(-1, -1)], None, "reshapes to"),
    ("RESHAPE", [(2, 6), of(3, 5)], None, "reshapes to"),
    ("CONCATENATION", [(2, 3), (2, 4)], ConcatenationOptions(axis=-1), [(2, 7)]),
    ("CONCATENATION", [(2, 3), (3, 3)], ConcatenationOptions(axis=1), "cannot be joined along axis 1"),
    ("CONCATENATION", [(2, 3), (2,)], ConcatenationOptions(axis=1), "cannot be joined along axis 1"),
    ("UNPACK", [(2, 3)], UnpackOptions(num=2, axis=0), [(3,), (3,)]),
    ("UNPACK", [(3, 2)], UnpackOptions(num=2, axis=0), "would need 3"),
    ("SPLIT", [of(1), (2, 6)], SplitOptions(num_splits=3), [(2, 2)] * 3),
    ("SPLIT", [of(1), (2, 7)], SplitOptions(num_splits=3), "7 can't be split into 3"),
    ("SPLIT_V", [(2, 7), of(3, -1, 2), of(1)], SplitVOptions(num_splits=3), [(2, 3), (2, 2), (2, 2)]),
    ("SPLIT_V", [(2, 5), of(3, -1, 2), of(1)], SplitVOptions(num_splits=3), [(2, 3), (2, 0), (2, 2)]),
    ("SPLIT_V", [(2, 4), of(3, -1, 2), of(1)], SplitVOptions(num_splits=3), "can't be split"),
    ("SPLIT_V", [(2, 8), of(3, 2, 2), of(1)], SplitVOptions(num_splits=3), "can't be split"),
    ("SLICE", [(4, 5), of(1, 2), of(3, -1)], None, [(3, 3)]),
    ("SLICE", [(4, 5), of(1, 2), of(4, -1)], None, "is not inside"),
    ("SLICE", [(4, 5), of(1, 5), of(1, -1)], None, [(1, 0)]),
    ("SLICE", [(4, 5), of(1, 6), of(1, -1)], None, "is not inside"),
    ("SLICE", [(4, 5), of(1), of(1)], None, "sizes for 1 dimensions"),
    ("SQUEEZE", [(1, 3, 1)], SqueezeOptions(squeeze_dims=(0,)), [(3, 1)]),
    ("SQUEEZE", [(1, 3, 1)], SqueezeOptions(), [(3,)]),
    ("SQUEEZE", [(1, 3, 1)], SqueezeOptions(squeeze_dims=(1,)), "squeeze dimensions of 1 only"),
    ("EXPAND_DIMS", [(2, 3), of(2)], None, [(2, 3, 1)]),
    ("EXPAND_DIMS", [(2, 3), of(-3)], None, [(1, 2, 3)]),
    ("EXPAND_DIMS", [(2, 3), of(3)], None, "axis 3 is out of range for 3"),
    ("SPACE_TO_DEPTH", [(1, 4, 6, 3)], SpaceToDepthOptions(block_size=2), [(1, 2, 3, 12)]),
    ("SPACE_TO_DEPTH", [(1, 4, 5, 3)], SpaceToDepthOptions(block_size=2), "can't be divided into blocks of 2"),
    ("SPACE_TO_DEPTH", [(1, 5, 4, 3)], SpaceToDepthOptions(block_size=2), "can't be divided into blocks of 2"),
    ("MEAN", [(2, 3, 4), of(-1, 0)], ReducerOptions(), [(3,)]),
    ("MEAN", [(2, 3, 4), of(-1, 0)], ReducerOptions(keep_dims=True), [(1, 3, 1)]),
    ("MEAN", [(2, 3, 4), of(3)], ReducerOptions(), "axis 3 is out of range for 3"),
    ("MEAN", [(2, 3, 4), of(-4)], ReducerOptions(), "axis -4 is out of range for 3"),
    ("BATCH_MATMUL", [(2, 3, 4), (1, 4, 5)], BatchMatMulOptions(), [(2, 3, 5)]),
    ("BATCH_MATMUL", [(2, 4, 3), (5, 4)], BatchMatMulOptions(adj_x=True, adj_y=True), [(2, 3, 5)]),
    ("BATCH_MATMUL", [(2, 3, 4), (3, 5)], BatchMatMulOptions(), "can't be multiplied"),
    ("ADD", [(2, 1, 4), (3, 1)], AddOptions(), [(2, 3, 4)]),
    ("ARG_MAX", [(2, 3, 4), of(1)], None, [(2, 4)]),
    ("ARG_MAX", [(2, 3, 4), of(0)], None, [(3, 4)]),
    ("ARG_MIN", [(2, 3, 4), of(-1)], None, [(2, 3)]),
    ("ARG_MIN", [(2, 3, 4), of(3)], None, "axis 3 is out of range for 3"),
    ("PAD", [(2, 3), np.array([[1, 4], [0, 2]], np.int32)], None, [(7, 5)]),
    ("TRANSPOSE", [(2, 3, 4), of(2, 0, 1)], None, [(4, 2, 3)]),
    ("GATHER", [(2, 3, 4), (5, 6)], GatherOptions(axis=1), [(2, 5, 6, 4)]),
    ("GATHER", [(2, 3, 4), (2, 6)], GatherOptions(axis=1, batch_dims=1), [(2, 6, 4)]),
    ("GATHER", [(2, 3, 4), (5,)], GatherOptions(axis=-1), [(2, 3, 5)]),
    ("RESIZE_BILINEAR", [(2, 3, 4, 5), of(6, 7)], None, [(2, 6, 7, 5)]),
    ("RESIZE_NEAREST_NEIGHBOR", [(2, 3, 4, 5), of(6, 7)], None, [(2, 6, 7, 5)]),
    ("DEPTHWISE_CONV_2D", [(1, 7, 9, 2), np.ones((1, 3, 2, 6))], DEPTHWISE, [(1, 3, 8, 6)]),
    *[(pool, [(2, 7, 9, 3)], POOL, [(2, 4, 3, 3)]) for pool in ("AVERAGE_POOL_2D", "MAX_POOL_2D", "L2_POOL_2D")],
    ("MAX_POOL_2D", [(2, 7, 9, 3)], VALID_POOL, [(2, 3, 2, 3)]),
    *[(operator, [(2, 3, 4), of(0, 2)], ReducerOptions(), [(3,)]) for operator in ("SUM", "REDUCE_MAX", "REDUCE_ALL")],
    ("REDUCE_MIN", [(2, 3, 4), of(1)], ReducerOptions(keep_dims=True), [(2, 1, 4)]),
    ("PADV2", [(2, 3), np.array([[1, 4], [0, 2]], np.int32)], None, [(7, 5)]),
    ("MIRROR_PAD", [(2, 3), np.array([[1, 2], [0, 2]], np.int32)], None, [(5, 5)]),
    ("SELECT_V2", [(2, 1, 1), (3, 1), (4,)], None, [(2, 3, 4)]),
    ("CUMSUM", [(2, 3), of(1)], None, [(2, 3)]),
    ("DEPTH_TO_SPACE", [(1, 2, 3, 12)], DepthToSpaceOptions(block_size=2), [(1, 4, 6, 3)]),
    ("TILE", [(2, 3), of(4, 5)], None, [(8, 15)]),
    ("BROADCAST_TO", [(3,), of(2, 3)], None, [(2, 3)]),
    ("FILL", [of(2, 5), (1,)], None, [(2, 5)]),
    ("SHAPE", [(4, 5, 6)], None, [(3,)]),
    ("TRANSPOSE_CONV", [of(1, 4, 6, 2), FILTER, (1, 2, 2, 5)], None, [(1, 4, 6, 2)]),
    ("ADD", [(2, 4), (3,)], AddOptions(), "do not broadcast"),
]


@pytest.mark.parametrize(("operator", "inputs", "options", "expected"), RULED)
def test_rules_of_shapes_give_or_refuse_what_they_should(
    operator: str, inputs: Any, options: Any, expected: Any
) -> None:
    builder = ModelBuilder()
    main = builder.subgraph()
    given, tensors = {}, []
    for i, value in enumerate(inputs):
        if isinstance(value, np.ndarray):
            tensors.append(main.constant(f"c{i}", value if value.dtype == np.int32 else value.astype(np.float32)))
        else:
            tensors.append(main.input(f"x{i}", (*value, 7), TensorType.FLOAT32))
            given[f"x{i}"] = value
    count = len(expected) if isinstance(expected, list) else getattr(options, "num_splits", getattr(options, "num", 1))
    outputs = [main.tensor(f"y{i}", (1,), TensorType.FLOAT32) for i in range(count)]
    main.operator(BuiltinOperator[operator], tensors, outputs, options)
    main.output(*outputs)
    model = tflm.Model(builder.build(), checks="tflm")
    if isinstance(expected, str):
        with pytest.raises(tflm.OperatorError, match=f"operator 0 {operator}.*{expected}"):
            tflm.resize(model, given)
        return
    found = shapes_of(tflm.resize(model, given))
    assert [found[output] for output in outputs] == expected


def shapes_of(data: bytes) -> list[tuple[int, ...]]:
    """Return the shape of each tensor, in order."""
    return [tensor.shape or () for tensor in tflm.Model(data, checks="tflm").subgraphs[0].tensors or ()]


@given(model=image_graph())
@settings(max_examples=30)
def test_the_shapes_of_images_follow_from_that_of_the_first(model: bytes) -> None:
    found, right = forgotten_and_found(model)
    assert found == right


def forgotten_and_found(model: bytes) -> tuple[list[Any] | None, list[Any]]:
    """Shapes of a model whose shapes were forgotten, and that was resized to what it was; and those that it had.

    None where the shapes depend on values that only a run shows.
    """
    root = read_model(memoryview(model))
    main = root.subgraphs[0]
    right = [tensor.shape or () for tensor in main.tensors]
    assume(all(right[tensor] for tensor in main.inputs or ()))
    is_constant = [bool(root.buffers[tensor.buffer].data) or 0 in (tensor.shape or ()) for tensor in main.tensors]
    varying = [i for i, constant in enumerate(is_constant) if not constant]
    for tensor in varying:
        main.tensors[tensor].shape = (*right[tensor], 7) if not main.tensors[tensor].is_variable else right[tensor]
    forgotten = tflm.Model(write_model(root), checks="tflm")
    try:
        data = resized(forgotten, {tensor: right[tensor] for tensor in main.inputs or ()})
    except tflm.OperatorError as error:
        if "is not a constant" not in error.reason and "no option" not in error.reason:
            raise
        return None, right
    if not main.inputs:
        return None, right
    return shapes_of(data), right
