"""Faults planted in firmware that serves: `tflm device` names the operator.

One program has all faults; a variable of the environment chooses one. Those in TFLM's firmware run with `make devices`.
"""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from image_graphs import Images
from test_device import STEPS, firmware, model_with_state

import tflm
from tflm.device.verdict import Status, Verdict, compare
from tflm.libraries.kernel_library import REFERENCE
from tflm.schema import BuiltinOperator, Padding


@functools.cache
def net() -> tflm.Model:
    """CONV_2D 0 and 1, DEPTHWISE_CONV_2D 2, CONV_2D 3, ADD 4 of 0 and 3, MAX_POOL_2D 5 and CONV_2D 6."""
    builder = tflm.ModelBuilder()
    images = Images(builder.subgraph(), (1, 6, 6, 4))
    first = images.convolution(images.last, 8, taps=(1, 1))
    last = images.convolution(images.convolution(images.convolution(first, 8)), 8)
    pooled = images.pool(images.add(first, last), BuiltinOperator.MAX_POOL_2D, (2, 2), (2, 2), Padding.VALID)
    images.main.output(images.convolution(pooled, 8, padding=Padding.VALID))
    return tflm.Model(builder.build())


INPUTS = [[each] for each in np.random.default_rng(0).integers(-128, 128, (3, 1, 6, 6, 4), np.int8)]

HELPERS = """\
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* Whether a fault is planted. */
static int planted(int fault)
{
    const char *chosen = getenv("FAULT");
    return chosen && atoi(chosen) == fault;
}

/* A table, or a copy in which a bit is changed. */
static const void *changed(int fault, const void *table, size_t bytes, size_t at, int bit)
{
    static int64_t copy[512];
    if (!planted(fault) || bytes > sizeof(copy)) {
        return table;
    }
    memcpy(copy, table, bytes);
    ((uint8_t *)copy)[at] ^= (uint8_t)(1 << bit);
    return copy;
}

"""


class Fault(NamedTuple):
    """A fault in the step of an operator.

    Attributes:
        name: what is wrong.
        step: the step that is changed.
        old, new: a pattern in its call, and what replaces it; `FAULT` is its number.
        named: the operator that must be named, and whether it overwrites the tensor of another one.
        invoke: the first invoke that is wrong.
    """

    name: str
    step: int
    old: str
    new: str
    named: tuple[int, bool]
    invoke: int = 0


def off_by_one(channel: int) -> str:
    """A loop over an output of 8 channels at a pointer."""
    return f"for (int i = {channel}; planted(FAULT) && i < 288; i += 8) OUT[i] ^= 1;\n        "


END = "(?=break;)"
OUT = r"\(int8_t \*\)(?:\(base \+ \d+\)|base)"
TABLE, WEIGHTS = r"\b(\w+_table)\b", r"\b(\w+_weights)\b"

FAULTS = [
    Fault("off by one in one channel of a convolution", 1, END, off_by_one(3), (1, False)),
    Fault("off by one in one channel of a depthwise convolution", 2, END, off_by_one(0), (2, False)),
    Fault("off by one in one channel of a sum", 4, END, off_by_one(7), (4, False)),
    Fault("a wrong multiplier", 1, TABLE, r"changed(FAULT, \1, sizeof(\1), sizeof(\1) / 2 + 2, 6)", (1, False)),
    Fault("a wrong multiplier of the first one", 0, TABLE, r"changed(FAULT, \1, sizeof(\1), 2, 6)", (0, False)),
    Fault("a bit of weights flipped in flash", 2, WEIGHTS, r"changed(FAULT, \1, sizeof(\1), 40, 6)", (2, False)),
    Fault("a bit of other weights flipped in flash", 6, WEIGHTS, r"changed(FAULT, \1, sizeof(\1), 3, 6)", (6, False)),
    Fault("an output one element too far", 2, OUT, r"\g<0> + planted(FAULT)", (2, False)),
    Fault("an operator that is left out", 5, r"pooling_", r"if (!planted(FAULT)) pooling_", (5, False)),
    Fault(
        "an operator that is left out first", 0, r"im2col_convolve", r"if (!planted(FAULT)) im2col_convolve", (0, False)
    ),
    Fault(
        "a sum of the first operand and itself",
        4,
        r"(\(const int8_t \*\)[^,]+), (\(const int8_t \*\)[^,]+),",
        r"\1, planted(FAULT) ? \1 : \2,",
        (4, False),
    ),
    Fault(
        "wrong from the second invoke on",
        5,
        END,
        "{ static int count; if (planted(FAULT) && count++) OUT[5] ^= 8; }\n        ",
        (5, False),
        1,
    ),
    Fault(
        "scratch that overlaps a tensor that is alive",
        3,
        r"\(int16_t \*\)(\(base \+ \d+\)|base)",
        r"(int16_t *)(void *)(planted(FAULT) ? (uint8_t *)SKIP - 288 : \1)",
        (3, True),
    ),
    Fault(
        "an interrupt that writes into the arena",
        1,
        END,
        "if (planted(FAULT)) memset(SKIP, 1, 8);\n        ",
        (1, True),
    ),
]


def with_faults(text: str) -> str:
    """The source of the model as C with all faults, in the steps of whole operators and in stages."""
    head, *pieces = re.split(r"(?=/\* \d \w+.*\*/\n\s+\w+\([^;]*;\n\s+break;)", text)
    steps = {int(piece[3]): piece for piece in pieces}
    skip = re.search(OUT, steps[0])
    assert skip is not None
    for number, fault in enumerate(FAULTS, 1):
        out = re.search(OUT, steps[fault.step])
        assert out is not None
        new = fault.new.replace("FAULT", str(number)).replace("OUT", f"({out[0]})").replace("SKIP", f"({skip[0]})")
        steps[fault.step], count = re.subn(fault.old, new, steps[fault.step], count=1)
        assert count == 1, (fault.name, steps[fault.step])
    return HELPERS + head + "".join(steps.values())


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The program with all faults."""
    return firmware(tmp_path_factory.mktemp("faults"), with_faults, net(), ram=1 << 20)


def compared(port: str, model: tflm.Model, steps: Any) -> Verdict:
    with tflm.device.connect(port, model) as device:
        return compare(device, steps, target=tflm.targets.HOST, kernels=REFERENCE)


def test_without_a_fault_the_firmware_is_equal(port: str) -> None:
    verdict = compared(port, net(), INPUTS)
    assert (verdict.status, verdict.compared) == (Status.EQUAL, 7)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (r"(&svdf_1_memory_1\);\n)", r"\1        memset(base, 0, 24);\n"),
        (r"memset\(base, 0, 24\);", r"(void)base;"),
    ],
    ids=["a state that is not kept", "a reset that keeps the state"],
)
def test_the_operator_whose_state_is_wrong_is_named(old: str, new: str, tmp_path: Path) -> None:
    port = firmware(tmp_path, lambda text: "#include <string.h>\n" + re.sub(old, new, text))
    with tflm.device.connect(port, model_with_state()) as device:
        for _ in range(2):
            verdict = compare(device, STEPS, target=tflm.targets.HOST, kernels=REFERENCE)
    assert verdict.wrong is not None
    assert (verdict.wrong.operator_index, verdict.wrong.invoke) == (1, 0)


def test_the_operator_that_crashes_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if the device is gone then: a program that ends is started again, and ends again."""
    port = firmware(
        tmp_path, lambda text: text.replace("/* 1 SVDF: b (1x4) */", "*(volatile int *)base = *(volatile int *)8;")
    )
    with tflm.device.connect(port, model_with_state()) as device:
        with pytest.raises(tflm.DeviceError, match="operator 1 began, and did not end"):
            compare(device, STEPS, target=tflm.targets.HOST, kernels=REFERENCE)
        monkeypatch.setattr("tflm.device.device.REOPEN_SECONDS", 0.2)
        (tmp_path / "run").unlink()
        with pytest.raises(tflm.DeviceError, match=r"operator 1 began, and did not end.*No such file"):
            compare(device, STEPS, target=tflm.targets.HOST, kernels=REFERENCE)


@pytest.mark.parametrize("number", range(1, 1 + len(FAULTS)), ids=lambda number: FAULTS[number - 1].name)
def test_the_operator_is_named(port: str, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAULT", str(number))
    fault, wrong = FAULTS[number - 1], compared(port, net(), INPUTS).wrong
    assert wrong is not None
    assert (wrong.operator_index, wrong.overwrites) == fault.named
    assert wrong.invoke == fault.invoke
    assert wrong.received is not None
    assert (wrong.received != wrong.expected).any()
