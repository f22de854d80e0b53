"""What kernel libraries do differently with changes of operators, as `make figures` recorded it."""

from __future__ import annotations

import functools
import itertools
import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from large_operators import LARGE
from test_changed_operators import changed

import tflm
from tflm.firmware.device_check import operator_findings
from tflm.libraries import Effect, library_for
from tflm.schema import BuiltinOperator, SVDFOptions, TensorType

RECORDED = Path(__file__).with_name("recorded") / "concerns.json"
STEP = 3
"""Of so many changes, one is tried."""

BUILDS = (
    ("cmsis-nn", "cortex-m4"),
    ("cmsis-nn:size", "cortex-m55"),
    ("esp-nn", "esp32s3"),
    ("cmsis-nn@v4.0.0", "cortex-m55"),
    ("cmsis-nn@v7.0.0", "cortex-m4"),
    ("esp-nn@1.0.0", "esp32s3"),
    ("esp-nn@1.1.0", "esp32"),
    ("esp-nn@1.2.2", "esp32s3"),
    ("esp-nn@1.4.0", "esp32p4"),
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


@pytest.mark.parametrize("filters", [2, 3, 4])
@pytest.mark.parametrize("columns", [1, 2])
@pytest.mark.parametrize("type", [np.int8, np.int16])
@pytest.mark.parametrize("kernels", ["cmsis-nn@v4.0.0", "cmsis-nn@v4.1.0", "cmsis-nn:size@v4.0.0"])
def test_helium_overwrites_the_state_of_several_columns_of_three_filters(
    filters: int, columns: int, type: type[np.int8 | np.int16], kernels: str
) -> None:
    main = tflm.ModelBuilder().subgraph()
    scale, int8 = tflm.quantized(0.5), TensorType.INT8
    x, y = main.input("x", (1, 2), int8, scale), main.tensor("y", (1, filters), int8, scale)
    features = main.constant("features", np.ones((filters, 2), np.int8), scale)
    times = main.constant("times", np.ones((filters, columns), type), scale)
    bias = main.constant("bias", np.zeros(filters, np.int32), tflm.quantized(0.25))
    state = TensorType.INT8 if type is np.int8 else TensorType.INT16
    memory = main.tensor("state", (1, filters * columns), state, scale, is_variable=True)
    main.operator(BuiltinOperator.SVDF, [x, features, times, bias, memory], [y], SVDFOptions(rank=1))
    main.output(y)
    model = tflm.Model(main.builder.build())
    for part in ("cortex-m4", "cortex-m55"):
        target = tflm.targets.by_name(part)
        found = operator_findings(model, target=target, kernels=library_for(kernels, target))
        is_broken = part == "cortex-m55" and filters >= 3 and columns > 1 and type is np.int8 and "v4.0" in kernels
        assert [each.effect for each in found if each.effect is not Effect.DIFFERS] == [Effect.BREAKS] * is_broken
        assert len(found) == is_broken + (type is np.int8)


if __name__ == "__main__":
    found = {f"{kernels} on {part}": counted(kernels, part) for kernels, part in BUILDS}
    RECORDED.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n", encoding="utf-8")
