"""Programs in C of operators and generated networks are those that `make figures` recorded, in size and in text.

A change that is not meant to change programs changes none of them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from image_graphs import Images
from large_operators import LARGE
from sampling import one_type_each
from test_c_accumulation import reduced
from test_c_broadcasts import BOTH, DEEP, add_operator, add_select
from test_encoded_weights import SCHEMES, encoded, model_of_layers
from test_figures import MODELS, digest, model

import tflm
from tflm.schema import BuiltinOperator, Conv2DOptions, MulOptions, Padding, TensorType

RECORDED = Path(__file__).with_name("recorded") / "programs.json"

OPTIONS: dict[str, dict[str, Any]] = {
    "smallest": {"optimize": "ram"},
    "fastest": {"optimize": "speed"},
    "balanced": {},
    "CMSIS-NN": {"kernels": "cmsis-nn", "target": tflm.targets.by_name("cortex-m55")},
    "in two memories": {"memories": {"fast": 1 << 10, "slow": 1 << 14}},
    "with a test": {"self_test": 2},
    "CMSIS-NN with a test": {"kernels": "cmsis-nn", "target": tflm.targets.by_name("cortex-m4"), "self_test": 1},
    "fed by the row": {"feed_rows": 1},
    "fed by four rows": {"feed_rows": 4},
    "streamed by two frames": {"stream": 2},
}
"""Options of programs by the name of the choice that they make."""


def convolutions() -> tflm.Model:
    """Layers of an image side by side: of one channel, of many, dilated, and of each channel alone."""
    images = Images(tflm.ModelBuilder().subgraph(), (1, 9, 7, 3))
    layers: list[dict[str, Any]] = [
        {"channels": 1},
        {"channels": 5, "taps": (1, 1)},
        {"channels": 4, "dilations": (2, 1), "padding": Padding.VALID},
        {"taps": (3, 3)},
        {"taps": (3, 3), "strides": (2, 2)},
        {"taps": (5, 1), "multiplier": 2},
    ]
    for layer in layers:
        images.main.output(images.convolution(images.last, **layer))
    return tflm.Model(images.main.builder.build())


def one_channel() -> tflm.Model:
    """A layer that is the smallest where it reads its windows in place."""
    images = Images(tflm.ModelBuilder().subgraph(), (1, 9, 7, 3))
    images.main.output(images.convolution(images.last, 1))
    return tflm.Model(images.main.builder.build())


def short_rows(taps: int, bias: int) -> tflm.Model:
    """A layer of 16-bit elements, with windows of so many elements along a row."""
    main = tflm.ModelBuilder().subgraph()
    x = main.input("x", (1, 6, 7, 3), TensorType.INT16, tflm.quantized(0.5))
    weights = np.random.default_rng(taps).integers(-127, 128, (3, 2, taps, 3)).astype(np.int8)
    scales = tflm.quantized([0.01, 0.02, 0.03], 0, 0)
    operands = [x, main.constant("w", weights, scales), main.constant("b", np.full(3, bias, np.int64), scales)]
    y = main.tensor("y", (1, 5, 8 - taps, 3), TensorType.INT16, tflm.quantized(0.9))
    options = Conv2DOptions(padding=Padding.VALID, stride_w=1, stride_h=1)
    main.operator(BuiltinOperator.CONV_2D, operands, [y], options)
    main.output(y)
    return tflm.Model(main.builder.build())


def broadcasts() -> tflm.Model:
    """Operators whose inputs have different shapes, and a choice between two of them."""
    main = tflm.ModelBuilder().subgraph()
    for shapes in (BOTH, DEEP):
        add_operator(main, "MUL", TensorType.INT8, TensorType.INT8, MulOptions(), shapes)
        add_operator(main, "LESS", TensorType.FLOAT32, TensorType.BOOL, None, shapes)
    add_select(main, TensorType.INT16, (*BOTH, (3, 5, 6, 1)))
    return tflm.Model(main.builder.build())


GRAPHS: dict[str, Callable[[], tflm.Model]] = {
    **{name: partial(model, name) for name in MODELS},
    **{f"encoded, {name}": partial(encoded, model_of_layers(), scheme) for name, scheme in SCHEMES.items()},
    "convolutions": convolutions,
    "one channel": one_channel,
    "short rows": partial(short_rows, 2, 900),
    "long rows": partial(short_rows, 6, 1 << 40),
    "broadcasts": broadcasts,
    "mean": partial(reduced, "MEAN", TensorType.INT8, (6, 5, 2), (1, 2), True, False),
}

NETWORKS = {
    "smallest": ("shrinking", "window", "dense", "convolutions", "one channel", "mean"),
    "fastest": ("shrinking", "wide", "window", "dense", "convolutions", "short rows", "long rows"),
    "balanced": ("parts", "broadcasts", *(f"encoded, {name}" for name in SCHEMES)),
    "CMSIS-NN": ("dense",),
    "in two memories": ("shrinking",),
    "with a test": ("window",),
    "CMSIS-NN with a test": ("window",),
    "fed by the row": ("striding",),
    "fed by four rows": ("shrinking",),
    "streamed by two frames": ("window",),
}
"""The networks that are compiled with a choice."""

OF_OPERATORS = ("smallest", "fastest", "balanced")
"""The choices that operators are compiled with: every second operator, with one of these."""

WITH_MANY_KERNELS = (
    *("CONV_2D-INT8", "CONV_2D-INT16", "DEPTHWISE_CONV_2D-INT16", "DEPTHWISE_CONV_2D-INT8", "FULLY_CONNECTED-INT16"),
    *("SVDF-INT8-INT16", "UNIDIRECTIONAL_SEQUENCE_LSTM-INT8", "SignalFilterBankSquareRoot", "TRANSPOSE-INT8"),
)
"""Operators that are compiled with one of these choices besides."""

CALLING = (
    *("ADD-INT16", "MUL-INT8", "SOFTMAX-INT8-INT16", "AVERAGE_POOL_2D-INT8", "MAX_POOL_2D-INT16", "CONV_2D-INT8"),
    *("DEPTHWISE_CONV_2D-INT16", "FULLY_CONNECTED-INT8", "FULLY_CONNECTED-INT16", "SVDF-INT8-INT16"),
    *("UNIDIRECTIONAL_SEQUENCE_LSTM-INT8", "UNIDIRECTIONAL_SEQUENCE_LSTM-INT16"),
)
"""Operators that call functions of CMSIS-NN."""

ORIGIN = re.compile(r"^/\*.*?\*/\n", re.DOTALL)
NUMBERS = re.compile(r"^[-+.,\sxinfe0-9]+$", re.MULTILINE)
"""Lines of tables, whose last bits follow from the mathematical functions of the machine."""


def operators_of(choice: str) -> Sequence[str]:
    """The operators to compile with a choice, by name."""
    if choice not in OF_OPERATORS:
        return CALLING if choice == "CMSIS-NN" else ()
    place = OF_OPERATORS.index(choice)
    return [
        *WITH_MANY_KERNELS[place :: len(OF_OPERATORS)],
        *one_type_each(LARGE, place)[place :: 2 * len(OF_OPERATORS)],
    ]


def of_choice(choice: str) -> dict[str, tflm.Model]:
    """The models to compile with a choice, by name."""
    operators = {name: tflm.Model(LARGE[name]()[0]) for name in operators_of(choice)}
    return {name: GRAPHS[name]() for name in NETWORKS[choice]} | operators


def program(model: tflm.Model, options: dict[str, Any]) -> list[Any]:
    """RAM, tables, the largest stack, the largest code and the instructions of a program, and a digest of its text."""
    made = tflm.compile_model(model, **options)
    text = "".join(NUMBERS.sub("", ORIGIN.sub("", made.files[name])) for name in sorted(made.files))
    largest = [None if of is None else max(of.values()) for of in (made.stack_bounds, made.code_bytes)]
    instructions = None if made.instructions.total is None else sorted(made.instructions.total.values())
    text = text.replace(tflm.__version__, "")
    return [made.ram_bytes, made.constant_bytes, *largest, instructions, digest(text.encode())]


def programs(choice: str) -> dict[str, list[Any]]:
    """What is recorded of the programs of a choice."""
    return {name: program(each, OPTIONS[choice]) for name, each in of_choice(choice).items()}


@pytest.mark.parametrize("choice", OPTIONS)
def test_programs_are_those_that_were_recorded(choice: str) -> None:
    recorded = json.loads(RECORDED.read_text(encoding="utf-8"))[choice]
    assert programs(choice) == recorded


if __name__ == "__main__":
    found = (
        f"{json.dumps(choice)}: {{\n"
        + ",\n".join(f"{json.dumps(name)}: {json.dumps(of)}" for name, of in programs(choice).items())
        + "\n}"
        for choice in OPTIONS
    )
    RECORDED.write_text("{\n" + ",\n".join(found) + "\n}\n", encoding="utf-8")
