"""What kernel libraries do differently with changes of operators, as `make figures` recorded it."""

from __future__ import annotations

import functools
import itertools
import json
from collections import Counter
from pathlib import Path

import pytest
from large_operators import LARGE
from test_changed_operators import changed

import tflm
from tflm.firmware.device_check import operator_findings
from tflm.libraries import library_for

RECORDED = Path(__file__).with_name("recorded") / "concerns.json"
STEP = 3
"""Of so many changes, one is tried."""

BUILDS = (
    ("cmsis-nn", "cortex-m4"),
    ("cmsis-nn:size", "cortex-m55"),
    ("esp-nn", "esp32s3"),
    ("esp-nn@1.1.0", "esp32"),
    ("arduino", "cortex-m4"),
)
"""Kernel libraries, and a target of each."""


@functools.cache
def changes_of(name: str) -> list[tflm.Model]:
    """A model of an operator with inputs of one type, and some changes of it."""
    data, _ = LARGE[name]()
    found = (
        data,
        *(other for _, other in itertools.islice(changed(bytes(data), name.split("-")[0], None), 0, None, STEP)),
    )
    return [tflm.Model(each) for each in found if not tflm.verify(each)]


def counted(kernels: str, part: str) -> dict[str, int]:
    """Number of findings about the models, by operator and effect."""
    target = tflm.targets.by_name(part)
    library, counts = library_for(kernels, target), Counter[str]()
    concerned = {concern.operator for concern in library.concerns}
    for name in LARGE:
        for model in changes_of(name) if name.split("-")[0] in concerned else ():
            found = operator_findings(model, target=target, kernels=library)
            counts.update(f"{name} {each.effect.text}" for each in found)
    return dict(counts)


@pytest.mark.parametrize(("kernels", "part"), BUILDS)
def test_concerns_are_about_as_many_operators_as_recorded(kernels: str, part: str) -> None:
    assert counted(kernels, part) == json.loads(RECORDED.read_text(encoding="utf-8"))[f"{kernels} on {part}"]


if __name__ == "__main__":
    found = {f"{kernels} on {part}": counted(kernels, part) for kernels, part in BUILDS}
    RECORDED.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n", encoding="utf-8")
