"""Programs that are fed rows of an image: the same answers, and nothing is read but the rows of each call."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import outcomes
import pytest
from checked_program import Array, CheckedProgram, needs_compiler
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from image_graphs import Images, image_graph
from sampling import examples

import tflm
from tflm.schema import BuiltinOperator, GatherOptions, ModelBuilder, TensorType

pytestmark = needs_compiler


def parts(image: Array, rows: int) -> list[list[Array]]:
    """The rows of an image for one call after the other."""
    return [[image[:, first : first + rows]] for first in range(0, image.shape[1], rows)]


def feed(program: CheckedProgram, images: Sequence[Array], rows: int) -> list[list[Array]]:
    """The outputs for images whose rows are fed."""
    calls = [part for image in images for part in parts(image, rows)]
    found, each = program.run(calls), len(calls) // len(images)
    assert [outputs is not None for outputs in found] == [(i + 1) % each == 0 for i in range(len(calls))]
    return [outputs for outputs in found if outputs is not None]


def answers(model: tflm.Model, image: Array) -> list[Array]:
    interpreter = tflm.MicroInterpreter(model, tflm.AllOpsResolver(), bytearray(1 << 22))
    interpreter.allocate_tensors()
    interpreter.input(0).data[...] = image
    interpreter.invoke()
    return [np.array(interpreter.output(i).data) for i in range(interpreter.outputs_size())]


def input_bytes(model: tflm.Model) -> int:
    main = model.subgraphs[0]
    return int(np.prod(main.tensors[main.inputs[0]].shape))


@pytest.mark.runs(0.3)
@settings(max_examples=examples(8), phases=(Phase.reuse, Phase.generate))
@given(image_graph(), st.integers(1, 9), st.integers(0, 9))
def test_fed_programs_answer_as_the_model(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, rows: int, seed: int
) -> None:
    model = tflm.Model(data)
    try:
        compiled = tflm.compile_model(model, "net", feed_rows=rows)
    except (tflm.CompileError, tflm.ArgumentError):
        outcomes.count(ran=False)
        return
    outcomes.count(ran=True)
    program = CheckedProgram(compiled, tmp_path_factory.mktemp("net"))
    rng = np.random.default_rng(seed)
    shape = model.subgraphs[0].tensors[model.subgraphs[0].inputs[0]].shape
    images = rng.integers(-128, 128, (2, *shape)).astype(np.int8)
    for image, outputs in zip(images, feed(program, images, rows)):
        for found, expected in zip(outputs, answers(model, image)):
            np.testing.assert_array_equal(found, expected)


def test_a_reset_between_two_feeds_begins_a_new_image(tmp_path: Path) -> None:
    model = convolutions()
    program = CheckedProgram(tflm.compile_model(model, "net", feed_rows=3), tmp_path)
    first, second = np.random.default_rng(0).integers(-128, 128, (2, 1, 16, 8, 3)).astype(np.int8)
    *before, outputs = program.run([*parts(first, 3)[:2], None, *parts(second, 3)])
    assert not any(before)
    np.testing.assert_array_equal(outputs, answers(model, second))


def convolutions(height: int = 16) -> tflm.Model:
    images = Images(ModelBuilder().subgraph(), (1, height, 8, 3))
    images.convolution(images.last, 4, (3, 3), (2, 2))
    images.convolution(images.last, 8, (3, 3), (2, 2))
    images.main.output(images.last)
    return tflm.Model(images.main.builder.build())


def test_the_image_is_not_in_ram() -> None:
    model = convolutions(64)
    compiled = tflm.compile_model(model, "net", feed_rows=1)
    image = input_bytes(model)
    assert compiled.ram_bytes < image < tflm.compile_model(model, "net").ram_bytes
    header = compiled.files["net.h"]
    assert "#define NET_FEEDS 64" in header
    assert "#define NET_FEED_ROWS 1" in header
    assert "net_invoke" not in header
    assert "net_input_0(" not in header + compiled.files["net.c"]


def test_operators_are_counted_as_in_the_model() -> None:
    compiled = tflm.compile_model(convolutions(64), "net", feed_rows=1)
    assert [tuple(stage) for stage in compiled.stages] == [(0, 2)]
    assert "/* 0 CONV_2D: " in compiled.files["net.c"]
    assert "/* 2 " not in compiled.files["net.c"]


def test_the_header_says_how_many_rows_the_last_call_takes() -> None:
    header = tflm.compile_model(convolutions(), "net", feed_rows=7).files["net.h"]
    assert "#define NET_FEEDS 3" in header
    assert "#define NET_LAST_FEED_ROWS 2" in header


@pytest.mark.parametrize("rows", [0, 17, True])
def test_no_other_number_of_rows_is_taken(rows: int) -> None:
    with pytest.raises(tflm.ArgumentError, match=r"invalid number of rows .* \(expected 1 to 16"):
        tflm.compile_model(convolutions(), "net", feed_rows=rows)


def test_an_operator_that_needs_the_whole_image_is_named() -> None:
    """The first one that reads it; others may read rows of it, or need all rows of something else."""
    images = Images(ModelBuilder().subgraph(), (1, 16, 8, 3))
    main, x = images.main, images.last
    numbers = main.constant("numbers", np.array([1], np.int32))
    clipped, turned, whole, cut = (
        main.tensor(name, (1, rows, 8, 3), TensorType.INT8, tflm.quantized(0.1))
        for name, rows in (("clipped", 16), ("turned", 16), ("whole", 16), ("cut", 1))
    )
    main.operator(BuiltinOperator.RELU, [x], [clipped])
    main.operator(BuiltinOperator.REVERSE_V2, [clipped, numbers], [turned])
    main.operator(BuiltinOperator.REVERSE_V2, [x, numbers], [whole])
    main.operator(BuiltinOperator.GATHER, [x, numbers], [cut], GatherOptions(axis=1))
    main.output(turned, whole, cut)
    with pytest.raises(tflm.CompileError, match=r"operator 2 \(REVERSE_V2\) needs the whole image"):
        tflm.compile_model(tflm.Model(main.builder.build()), "net", feed_rows=1)


def test_an_image_that_is_an_output_is_not_fed() -> None:
    images = Images(ModelBuilder().subgraph(), (1, 16, 8, 3))
    x = images.last
    images.main.output(images.convolution(x, 4), x)
    with pytest.raises(tflm.CompileError, match="the image is an output as well"):
        tflm.compile_model(tflm.Model(images.main.builder.build()), "net", feed_rows=1)


@pytest.mark.long
@pytest.mark.parametrize(("name", "most"), [("vww_96_int8", 18_500), ("person_detect", 13_856)])
def test_real_networks_are_fed_in_less_ram(tmp_path: Path, corpus: Path, name: str, most: int) -> None:
    model = tflm.Model.from_file(corpus / "models" / f"{name}.tflite")
    compiled, whole = tflm.compile_model(model, "net", feed_rows=1), tflm.compile_model(model, "net")
    assert compiled.ram_bytes <= most
    build = "cortex-m4", "-O2"
    # The formulas overestimate by 0.6 %.
    assert compiled.instructions.total[build] <= 1.026 * whole.instructions.total[build]
    image = np.random.default_rng(0).integers(-128, 128, (1, 96, 96, 3 if name.startswith("vww") else 1))
    (outputs,) = feed(CheckedProgram(compiled, tmp_path), [image.astype(np.int8)], 1)
    np.testing.assert_array_equal(outputs, answers(model, image.astype(np.int8)))
