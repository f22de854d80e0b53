"""Operators of programs and reports have their numbers in the model as it was before it was simplified."""

from __future__ import annotations

import re

import numpy as np
from image_graphs import Images
from test_c_ram import crossing_branches, parts_of_an_image

import tflm
from tflm.c.compile_report import compile_report, operators_work
from tflm.graph import Graph, operator_origins
from tflm.rewriting.simplify import simplified
from tflm.schema import BuiltinOperator, ModelBuilder, Padding, TensorType


def padded_convolutions() -> tflm.Model:
    """Return a model with a PAD before every other convolution."""
    builder = ModelBuilder()
    images = Images(builder.subgraph(), (1, 24, 24, 3))
    for _ in range(2):
        images.convolution(images.pad(images.last, (1, 1), (1, 1)), 16, padding=Padding.VALID)
        images.convolution(images.last, 2)
    images.main.output(images.last)
    return tflm.Model(builder.build())


def comments(compiled: tflm.CompiledModel) -> set[tuple[int, str]]:
    """Return the number and the kind of each operator that the file names."""
    return {(int(number), kind) for number, kind in re.findall(r"/\* (\d+) (\w+)", compiled.files["model.c"])}


def test_merged_operators_are_left_out_of_the_numbers() -> None:
    compiled = tflm.compile_model(padded_convolutions())
    assert compiled.origins == (1, 2, 4, 5)
    assert comments(compiled) == {(number, "CONV_2D") for number in (1, 2, 4, 5)}
    assert set(compiled.instructions.operators) == {1, 2, 4, 5}
    facts = dict(compile_report(compiled).facts)
    assert facts["in bands of rows"].startswith("operators 4-5, ")


def test_the_profile_has_the_work_of_each_operator() -> None:
    compiled = tflm.compile_model(padded_convolutions())
    work = operators_work(compiled)
    assert [(each.index, each.operator) for each in work] == [(number, "CONV_2D") for number in (1, 2, 4, 5)]
    assert all(f"{kernel}(" in compiled.files["model.c"] for each in work for kernel in each.kernels)
    assert compiled.instructions.total is not None
    for build, total in compiled.instructions.total.items():
        assert 0.9 * total < sum(each.instructions[" ".join(build)] for each in work) <= total


def test_each_part_has_the_number_of_its_split() -> None:
    compiled = tflm.compile_model(parts_of_an_image(2, 3, (1, 1), 3))
    names = [compiled.program.bound.operators[0][i].node.operator for i in range(len(compiled.origins))]
    parts = [number for number, name in zip(compiled.origins, names) if name == "SLICE"]
    assert len(parts) == 2
    assert len({*parts}) == 1


def test_operators_keep_their_numbers_in_another_order() -> None:
    model = crossing_branches()
    compiled = tflm.compile_model(model)
    assert compiled.origins != tuple(sorted(compiled.origins))
    kinds = list(map(model.operator_name, model.subgraphs[0].operators or []))
    assert comments(compiled) == set(enumerate(kinds))


def test_an_operator_stands_for_its_own_kind_not_for_what_was_merged_into_it() -> None:
    """Without the RESHAPE that has no effect, the convolution writes its output."""
    builder = ModelBuilder()
    images = Images(builder.subgraph(), (1, 4, 4, 2))
    x, main = images.convolution(images.last, 2), images.main
    y = main.tensor("y", (1, 4, 4, 2), TensorType.INT8, images._quantization(x))
    shape = main.constant("shape", np.array([1, 4, 4, 2], np.int32))
    main.operator(BuiltinOperator.RESHAPE, [x, shape], [y])
    main.output(y)
    model = tflm.Model(builder.build())
    graph = Graph(model)
    assert simplified(graph)
    rewritten = graph.model(drop_unused=True)
    assert operator_origins(model, rewritten, graph.moved) == (0,)
