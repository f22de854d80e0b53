"""TFLM's recorded results for the project's own small models. This needs neither TFLM nor a folder of real models.

`recorded/operators.npz` is written by `tools/recorded_answers.py` with TFLM's package: models of each operator, the
answers, and the bytes of the arena on its target. `recorded/targets.json` holds what TFLM, compiled for each target,
says of the models below, or of ones with the same operators, shapes, types and quantization, which are all that counts.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from differential import assert_close, measured_figures, run
from example_models import EXAMPLE
from models import INT8, INT16, INT32
from test_arena import figures

import tflm
from tflm.schema import (
    AddOptions,
    BuiltinOperator,
    Conv2DOptions,
    LeakyReluOptions,
    Padding,
    PadOptions,
    StridedSliceOptions,
    SubOptions,
    TensorType,
)
from tflm.testing.drawing import SingleOperator
from tflm.testing.operators import OPERATORS

RECORDED = Path(__file__).with_name("recorded")
with np.load(RECORDED / "operators.npz") as file:
    ANSWERS: dict[str, Any] = dict(file)


def arrays(name: str, kind: str) -> list[list[Any]]:
    """The recorded inputs or outputs of an operator, by invoke."""
    keys = [key for key in ANSWERS if key.startswith(f"{name}/{kind} ")]
    invokes: dict[str, list[Any]] = {}
    for key in keys:
        invokes.setdefault(key.split()[-2], []).append(ANSWERS[key])
    return list(invokes.values())


def test_every_operator_is_recorded() -> None:
    assert {key.split("/")[0] for key in ANSWERS} == set(OPERATORS)


@pytest.mark.parametrize("name", OPERATORS)
def test_an_operator_gives_what_tflm_gave(name: str) -> None:
    model = ANSWERS[f"{name}/model"].tobytes()
    outputs = arrays(name, "output")
    assert outputs
    answers = run(model, arrays(name, "input") or [[]] * len(outputs), delegates=())
    assert len(answers) == len(outputs)
    for ours, theirs in zip(answers, outputs):
        assert_close(ours, theirs)
    total, head, tail = ANSWERS[f"{name}/arena"].tolist()
    assert measured_figures(model) == {"total": total, "head": head, "tail": tail}


# --- Arenas on every target --------------------------------------------------------------------------------------


def tensor(shape: tuple[int, ...], type: TensorType = INT16) -> np.ndarray[Any, Any]:
    return np.zeros(shape, tflm.schema.ELEMENT_TYPES[type].dtype)


def made(operator: BuiltinOperator, inputs: list[Any], output: tuple[int, ...], options: Any = None) -> bytes:
    """A model of int16; arrays are inputs, tuples are constants and their quantization."""
    single = SingleOperator()
    for value in inputs:
        if isinstance(value, tuple):
            single.constant(*value)
        else:
            single.input(tflm.schema.TENSOR_TYPES[value.dtype], [value], tflm.quantized(0.5))
    model, _ = single.case(operator, [(output, INT16, tflm.quantized(0.5))], options)
    return model


MODELS: dict[str, Callable[[], bytes]] = {
    "hello_world_int8": (EXAMPLE / "hello_world_int8.tflite").read_bytes,
    "hello_world_float": (EXAMPLE / "hello_world_float.tflite").read_bytes,
    "add": lambda: made(
        BuiltinOperator.ADD, [tensor((1, 1, 5, 64))] * 2, (1, 1, 5, 64), AddOptions(pot_scale_int16=False)
    ),
    "sub": lambda: made(
        BuiltinOperator.SUB,
        [tensor((1, 2, 12, 64)), tensor((64,))],
        (1, 2, 12, 64),
        SubOptions(pot_scale_int16=False),
    ),
    "conv_2d": lambda: made(
        BuiltinOperator.CONV_2D,
        [
            tensor((1, 8, 166, 2)),
            (tensor((8, 7, 7, 2), INT8), tflm.quantized([0.5] * 8)),
            (tensor((8,), TensorType.INT64), tflm.quantized([0.25] * 8)),
        ],
        (1, 2, 160, 8),
        Conv2DOptions(padding=Padding.VALID, stride_w=1, stride_h=1),
    ),
    "leaky_relu": lambda: made(
        BuiltinOperator.LEAKY_RELU, [tensor((1, 2, 160, 8))], (1, 2, 160, 8), LeakyReluOptions(alpha=0.25)
    ),
    "pad": lambda: made(
        BuiltinOperator.PAD,
        [tensor((1, 2, 160, 2)), (np.int32([[0, 0], [0, 0], [3, 3], [0, 0]]),)],
        (1, 2, 166, 2),
        PadOptions(),
    ),
    "quantize": lambda: made(BuiltinOperator.QUANTIZE, [tensor((1, 2, 160, 2), INT32)], (1, 2, 160, 2)),
    "strided_slice": lambda: made(
        BuiltinOperator.STRIDED_SLICE,
        [tensor((1, 8, 166, 2)), *[(np.int32(values),) for values in ([0, 2, 0, 0], [0, 0, 0, 0], [1, 1, 1, 1])]],
        (1, 6, 166, 2),
        StridedSliceOptions(begin_mask=13, end_mask=15),
    ),
}

TARGETS = json.loads((RECORDED / "targets.json").read_text())["figures"]


def test_every_model_is_recorded_for_every_target() -> None:
    assert set(TARGETS) == set(MODELS)
    assert all(set(of) == {"cortex-m", "riscv32", "host", "host-wheel"} for of in TARGETS.values())


@pytest.mark.parametrize("target", ["cortex-m", "riscv32", "host", "host-wheel"])
@pytest.mark.parametrize("name", MODELS)
def test_an_arena_is_what_tflm_said_on_the_target(name: str, target: str) -> None:
    actual = figures(tflm.Model(MODELS[name]()), tflm.targets.by_name(target))
    recorded = TARGETS[name][target]
    assert {key: actual[key] for key in recorded} == recorded
