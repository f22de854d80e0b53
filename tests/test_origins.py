"""Operators of programs and reports have their numbers in the model as it was before it was simplified."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from image_graphs import Images
from test_c_ram import crossing_branches, parts_of_an_image

import tflm
from tflm.c.compile import CompiledModels, Size
from tflm.c.compile_report import compile_figures, compile_report, operators_work
from tflm.c.instructions import Instructions
from tflm.c.kernel_choice import KeptKernel
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


def test_an_operator_of_another_kind_stands_for_what_computed_its_output() -> None:
    """An earlier operator of its own kind, whose output is still computed, was not merged into it."""
    models = []
    for kind in (BuiltinOperator.ABS, BuiltinOperator.RELU):
        builder = ModelBuilder()
        main = builder.subgraph()
        x = main.input("x", (4,), TensorType.FLOAT32)
        y, z = (main.tensor(name, (4,), TensorType.FLOAT32) for name in "yz")
        main.operator(BuiltinOperator.RELU, [x], [y])
        main.operator(kind, [y], [z])
        main.output(z)
        models.append(tflm.Model(builder.build()))
    assert operator_origins(models[0], models[1], {tensor: tensor for tensor in (x, y, z)}) == (0, 1)


BUILDS = ("cortex-m4", "-O2"), ("cortex-m0plus", "-Os")

FIGURES: dict[str, tuple[dict[str, Any], dict[str, str]]] = {
    "RAM": ({"ram_bytes": 1234, "ram_alignment": 32}, {"RAM": r"1,234.*, aligned to 32"}),
    "constants": ({"constant_bytes": 5678}, {"constants": "5,678"}),
    "warm-up": ({"warm_up": 3}, {"warm-up": "3 invokes after a reset"}),
    "no warm-up": ({"warm_up": None}, {}),
    "code": ({"code_bytes": dict(zip(BUILDS, (901, 902)))}, {" kernels, {}": "90{}"}),
    "unknown code": ({"code_bytes": None}, {}),
    "stack": ({"stack_bounds": dict(zip(BUILDS, (801, 802)))}, {" stack, {}": "at most 80{} B"}),
    "unknown stack": ({"stack_bounds": None}, {}),
    "instructions": (
        {"instructions": Instructions(dict(zip(BUILDS, (701, 702))), {})},
        {" instructions, {}": "about 70{} for an invoke"},
    ),
    "kernels that were not counted": (
        {"instructions": Instructions(None, {}, ("one", "two"))},
        {"instructions": "unknown: not counted for one, two"},
    ),
    "no estimate": ({"instructions": Instructions(None, {})}, {"instructions": "unknown: the model calls library"}),
    "a library": (
        {
            "generated_ram_bytes": 999,
            "library_operators": 1,
            "kept_kernels": {(0, 1): KeptKernel("slow"), (1, 2): KeptKernel("slow")},
        },
        {" with generated kernels": "999", "CMSIS-NN": "1 of 4 operators", " generated: operators": "1, 1:2: slow"},
    ),
    "optimizations": (
        {"optimized": lambda: {"ram": Size(50, 60), "speed": Size(70, None)}},
        {" optimized for ram": "50.*about 60 ", " optimized for speed": "70"},
    ),
}
"""Figures of a program, and what its report says of them."""


@functools.cache
def plain() -> tflm.CompiledModel:
    """A program with no more than instructions beside its RAM and constants."""
    instructions = Instructions(dict.fromkeys(BUILDS, 100), {})
    none = {"code_bytes": None, "stack_bounds": None, "warm_up": None, "stages": (), "optimized": dict}
    return replace(tflm.compile_model(padded_convolutions()), instructions=instructions, **none)


def test_reports_have_each_figure_or_why_it_is_unknown() -> None:
    always = {"RAM", "constants", *(f" instructions, {' '.join(build)}" for build in BUILDS)}
    for figures, lines in FIGURES.values():
        found = dict(compile_report(replace(plain(), **figures)).facts)
        expected = {
            title.format(" ".join(build)): text.format(number)
            for title, text in lines.items()
            for number, build in enumerate(BUILDS, 1)
        }
        assert all(re.match(text, found[title]) for title, text in expected.items()), (found, expected)
        kept = set() if "instructions" in figures else {name for name in always if "instructions" in name}
        assert found.keys() == expected.keys() | {"RAM", "constants"} | kept


def test_figures_of_a_program_are_in_its_document_by_their_own_names() -> None:
    for figures, _ in FIGURES.values():
        for name, value in figures.items():
            (document,) = compile_figures([Path("m")], CompiledModels((replace(plain(), **figures),), {}))["models"]
            if name == "instructions":
                assert (document["instructions"], [*document["not_counted"]]) == (
                    by_build(value.total),
                    [*value.unknown],
                )
            elif name == "kept_kernels":
                assert [(kept["subgraph"], kept["index"], kept["reason"]) for kept in document[name]] == [
                    (*place, kept.reason) for place, kept in value.items()
                ]
            elif name == "optimized":
                assert {each.pop("optimize"): Size(**each) for each in document[name]} == value()
            else:
                assert document[name] == (by_build(value) if name in ("code_bytes", "stack_bounds") else value)


def by_build(figures: Mapping[tuple[str, str], int] | None) -> dict[str, int]:
    """Figures by the name of a build."""
    return {" ".join(build): figure for build, figure in (figures or {}).items()}
