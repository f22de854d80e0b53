"""Programs in C of operators and generated networks are those that `make figures` recorded, in size and in text.

A change that is not meant to change programs changes none of them.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from sampling import one_type_each
from test_figures import model

import tflm
from tflm.testing.operators import LARGE

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

NETWORKS = {
    **dict.fromkeys(("smallest", "fastest"), ("shrinking", "wide", "window", "dense")),
    "balanced": ("parts",),
    "CMSIS-NN": ("parts", "dense"),
    "in two memories": ("shrinking",),
    "with a test": ("window",),
    "CMSIS-NN with a test": ("parts",),
    "fed by the row": ("striding",),
    "fed by four rows": ("shrinking",),
    "streamed by two frames": ("window",),
}
"""The networks that are compiled with a choice."""

OF_OPERATORS = ("smallest", "fastest", "balanced")
"""The choices that operators are compiled with: every second operator, with one of these."""

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
    return one_type_each(LARGE, place)[place :: 2 * len(OF_OPERATORS)]


def of_choice(choice: str) -> dict[str, tflm.Model]:
    """The models to compile with a choice, by name."""
    operators = {name: tflm.Model(LARGE[name]()[0]) for name in operators_of(choice)}
    return {name: model(name) for name in NETWORKS[choice]} | operators


def program(model: tflm.Model, options: dict[str, Any]) -> list[Any]:
    """RAM, tables, the largest stack, the largest code and the instructions of a program, and a digest of its text."""
    made = tflm.compile_model(model, **options)
    text = "".join(NUMBERS.sub("", ORIGIN.sub("", made.files[name])) for name in sorted(made.files))
    largest = [None if of is None else max(of.values()) for of in (made.stack_bounds, made.code_bytes)]
    instructions = None if made.instructions.total is None else sorted(made.instructions.total.values())
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    return [made.ram_bytes, made.constant_bytes, *largest, instructions, digest]


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
