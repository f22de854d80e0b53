"""Versions of ESP-NN and CMSIS-NN: their names, their arena requests, and their defects."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from models import INT8

import tflm
from tflm import libraries
from tflm.firmware.device_check import check_device, node_in_file
from tflm.kernels.requests import PersistentBuffer, ScratchBuffer
from tflm.libraries import Effect
from tflm.schema import (
    BuiltinOperator,
    Conv2DOptions,
    DepthwiseConv2DOptions,
    ModelBuilder,
    Padding,
    TensorType,
    TransposeConvOptions,
    quantized,
)

CPUS = {"none": "cortex-m3", "dsp": "cortex-m4", "mve": "cortex-m55"}


def lines(corpus: Path, name: str) -> Iterator[dict[str, Any]]:
    with open(corpus / "golden" / name) as file:
        yield from map(json.loads, file)


def scratch_sizes(model: tflm.Model, target: str, kernels: str) -> list[int]:
    found = tflm.measure_arena(model, tflm.AllOpsResolver(), target=tflm.targets.by_name(target), kernels=kernels)
    return [buffer.bytes for buffer in found.buffers if buffer.kind == "scratch"]


# --- Names -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("esp-nn@1.2.1", "esp-nn@1.2.1"),
        ("esp-nn@v1.1.2", "esp-nn@1.1.2"),
        ("esp-nn@1.2.3", "esp-nn"),
        ("esp-nn:ansi@1.2.1", "esp-nn:ansi@1.2.1"),
        ("cmsis-nn@v6.0.0", "cmsis-nn@v6.0.0"),
        ("cmsis-nn@6.0.0", "cmsis-nn@v6.0.0"),
        ("cmsis-nn:size@22080c68d040c98139e6cb1549473e3149735f4d", "cmsis-nn:size@v7.0.0"),
        ("cmsis-nn@4ab83cc3c", "cmsis-nn"),
    ],
)
def test_a_version_has_the_names_that_its_library_gives_it(name: str, found: str) -> None:
    assert libraries.by_name(name).name == found


def test_esp_nn_in_plain_c_has_only_the_faults_of_what_calls_it() -> None:
    of_plain, of_chip = (
        [each.operator for each in libraries.by_name(name).concerns] for name in ("esp-nn:ansi", "esp-nn")
    )
    assert of_plain == ["FULLY_CONNECTED"]
    assert {"FULLY_CONNECTED", "SOFTMAX", "CONV_2D"} <= set(of_chip)


@pytest.mark.parametrize(
    ("name", "alignment"), [("reference", 1), ("cmsis-nn", 1), ("esp-nn", 16), ("esp-nn@1.0.0", 16), ("esp-nn:ansi", 1)]
)
def test_vectors_of_esp_nn_need_aligned_views(name: str, alignment: int) -> None:
    assert libraries.by_name(name).view_alignment == alignment


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("esp-nn@9.9", r"unknown version '9\.9' of ESP-NN; use one of 1\.0-beta, .*1\.2\.3"),
        ("esp-nn@1.2.10", r"unknown version '1\.2\.10' of ESP-NN"),
        ("cmsis-nn@v3", r"unknown version 'v3' of CMSIS-NN; use one of .*v7\.0\.0"),
        ("reference@1", "has no versions; leave out '@1'"),
        ("esp@1.2.3", "unknown kernel library 'esp'; use one of reference, .*esp-nn"),
    ],
)
def test_an_unknown_version_is_refused_with_those_that_are_known(name: str, message: str) -> None:
    with pytest.raises(tflm.ArgumentError, match=message):
        libraries.by_name(name)


def test_sizes_that_nobody_knows_are_refused(corpus: Path) -> None:
    model = tflm.Model.from_file(corpus / "models" / "kws_ref_model.tflite")
    with pytest.raises(tflm.ArgumentError, match=r"ESP-NN 1\.4\.0 on esp32p4 are unknown; use .* 1\.2\.3"):
        scratch_sizes(model, "esp32p4", "esp-nn@1.4.0")


# --- Sizes, as builds of each version had them -------------------------------------------------------------------

RETYPED = {"1.4.0-876c072": "1.4.0", "after-1.2.3-58ca1a4": "58ca1a4"}


@pytest.mark.long
def test_heads_of_every_version_of_esp_nn(corpus: Path) -> None:
    models: dict[str, tflm.Model] = {}
    seen = {}
    for line in lines(corpus, "arena_esp_versions.jsonl"):
        version = RETYPED.get(line["esp_nn"], line["esp_nn"])
        is_plain = line["chip"].startswith("any")
        target, library = ("esp32", "esp-nn:ansi") if is_plain else (line["chip"], "esp-nn")
        key = line["model"], target, f"{library}@{version}"
        if key not in seen:  # the head is the same in every release of the component
            model = models.setdefault(key[0], tflm.Model.from_file(corpus / "models" / f"{key[0]}.tflite"))
            machine = tflm.targets.by_name(target)
            seen[key] = tflm.measure_arena(model, tflm.AllOpsResolver(), target=machine, kernels=key[2]).head_bytes
        assert seen[key] == line["head"], line
    assert seen


Buffers = (PersistentBuffer, ScratchBuffer)
BUFFERS = {
    "CONV_2D": "columns",
    "DEPTHWISE_CONV_2D": "columns",
    "FULLY_CONNECTED": "kernel_sums",
    "SVDF": "kernel_sums",
    "AVERAGE_POOL_2D": "sums",
    "TRANSPOSE_CONV": "sums",
}


@pytest.mark.long
def test_sizes_of_every_version_of_cmsis_nn(corpus: Path) -> None:
    models: dict[str, tflm.Model] = {}
    count = 0
    for line in lines(corpus, "scratch_cmsis_versions.jsonl"):
        version = line["cmsis_nn"].split("_")[-1].removeprefix("t")
        library = libraries.by_name(f"cmsis-nn@{version}")
        model = models.setdefault(line["model"], tflm.Model.from_file(corpus / "models" / f"{line['model']}.tflite"))
        main, machine = model.subgraphs[0], tflm.targets.by_name(CPUS[line["extension"]])
        for index, operator, size in line["sizes"]:
            if size >= 0:  # -1: that version has no such function
                view = node_in_file(model, main, main.operators[index], machine, library.release)
                buffers = (asked for asked in library.memory[operator].prepare(view) if isinstance(asked, Buffers))
                found = sum(buffer.bytes for buffer in buffers if buffer.name == BUFFERS[operator])
                assert found == size, (line["cmsis_nn"], line["extension"], line["model"], index)
                count += 1
    assert count


# --- Defects, on both sides of their conditions ------------------------------------------------------------------


WEIGHTS: dict[TensorType, Any] = {
    INT8: (np.int8, np.int32),
    TensorType.INT16: (np.int8, np.int64),
    TensorType.FLOAT32: (np.float32, np.float32),
}
"""Types of weights and bias, by that of the input."""


def convolution(
    operator: str,
    image: tuple[int, int, int],
    taps: tuple[int, int],
    strides: tuple[int, int] = (1, 1),
    padding: str = "SAME",
    channels: int = 0,
    zero_point: int = 3,
    dilation: int = 1,
    multiplier: int = 1,
    type: TensorType = INT8,
) -> tflm.Model:
    """A CONV_2D, DEPTHWISE_CONV_2D or TRANSPOSE_CONV over rows, columns and channels."""
    builder = ModelBuilder()
    main = builder.subgraph()
    code, depth = BuiltinOperator[operator], image[2]
    options: Any = {"padding": Padding[padding], "stride_h": strides[0], "stride_w": strides[1]}
    channels = channels or depth * multiplier
    filter = (1, *taps, channels) if operator == "DEPTHWISE_CONV_2D" else (channels, *taps, depth)
    weight_type, bias_type = WEIGHTS[type]
    x = main.input("x", (1, *image), type, quantized(0.5, zero_point if type == INT8 else 0))
    f = main.constant("f", np.ones(filter, weight_type), quantized(0.5))
    spans = [(size, (tap - 1) * dilation + 1, stride) for size, tap, stride in zip(image, taps, strides)]
    if operator == "TRANSPOSE_CONV":
        places = [size * stride if padding == "SAME" else (size - 1) * stride + tap for size, tap, stride in spans]
        operands = [main.constant("shape", np.array([1, *places, channels], np.int32)), f, x]
        made: Any = TransposeConvOptions(**options)
    else:
        places = [-(-(size if padding == "SAME" else size - span + 1) // stride) for size, span, stride in spans]
        operands = [x, f, main.constant("b", np.zeros(channels, bias_type), quantized(0.25))]
        options |= {"dilation_h_factor": dilation, "dilation_w_factor": dilation}
        is_plain = operator == "CONV_2D"
        made = Conv2DOptions(**options) if is_plain else DepthwiseConv2DOptions(depth_multiplier=multiplier, **options)
    y = main.tensor("y", (1, *places, channels), type, quantized(0.5))
    main.operator(code, operands, [y], made)
    main.output(y)
    return tflm.Model(builder.build())


def effects(model: tflm.Model, kernels: str, target: str) -> set[Effect]:
    findings = check_device(model, target=tflm.targets.by_name(target), kernels=kernels)
    return {finding.effect for finding in findings}


DEPTHWISE, CONV = "DEPTHWISE_CONV_2D", "CONV_2D"
BREAKS, DIFFERS = {Effect.BREAKS}, {Effect.DIFFERS}


@pytest.mark.parametrize(
    ("version", "shape", "found"),
    [
        # 3x3 with padding of one side only, from a stride of 2 along the columns: rows 1 above, columns 0 before.
        ("1.2.0", (DEPTHWISE, (8, 8, 16), (3, 3), (1, 2)), BREAKS),
        ("1.2.3", (DEPTHWISE, (8, 8, 16), (3, 3), (1, 2)), BREAKS),
        ("1.4.0", (DEPTHWISE, (8, 8, 16), (3, 3), (1, 2)), set()),
        ("1.2.3", (DEPTHWISE, (8, 8, 16), (3, 3)), set()),
        ("1.2.3", (DEPTHWISE, (8, 8, 8), (3, 3), (1, 2)), set()),
        # Windows of 3x3 that need padding at the end only, over more than 40960 bytes, or not more.
        ("1.2.3", (DEPTHWISE, (60, 62, 16), (3, 3), (2, 2)), BREAKS),
        ("1.2.3", (DEPTHWISE, (44, 44, 16), (3, 3), (2, 2)), set()),
        ("1.2.0", (DEPTHWISE, (60, 62, 16), (3, 3), (2, 2)), set()),
        ("1.4.0", (DEPTHWISE, (60, 62, 16), (3, 3), (2, 2)), set()),
        # Padded rows of an image that takes more than 49152 bytes as int16.
        ("1.2.1", (DEPTHWISE, (60, 60, 8), (5, 5)), DIFFERS),
        ("1.2.0", (DEPTHWISE, (60, 60, 8), (5, 5)), set()),
        ("1.4.0", (DEPTHWISE, (60, 60, 8), (5, 5)), set()),
        ("1.2.1", (DEPTHWISE, (30, 30, 8), (5, 5)), set()),
        ("1.2.1", (DEPTHWISE, (60, 60, 8), (5, 5), (1, 1), "VALID"), set()),
        ("1.2.1", (DEPTHWISE, (60, 60, 8), (5, 5), (1, 1), "SAME", 0, 0), set()),
        # Filters widened to int16, whose size has a rest below 8 modulo 16, or not.
        ("1.1.2", (DEPTHWISE, (6, 6, 1), (3, 1), (1, 1), "SAME", 0, 3, 1, 12), BREAKS),
        ("1.2.0", (DEPTHWISE, (6, 6, 1), (3, 1), (1, 1), "SAME", 0, 3, 1, 12), set()),
        ("1.1.2", (DEPTHWISE, (6, 6, 1), (3, 1), (1, 1), "SAME", 0, 3, 1, 4), set()),
        ("1.1.2", (DEPTHWISE, (6, 6, 8), (3, 3)), set()),
        # Trailing padding that exceeds the leading one: 3 taps at a stride of 2 over an even size.
        ("1.2.0", (CONV, (8, 8, 16), (3, 3), (2, 2)), DIFFERS),
        ("1.2.3", (CONV, (8, 8, 16), (3, 3), (2, 2)), set()),
        ("1.2.3", (CONV, (8, 9, 16), (3, 3), (2, 2)), DIFFERS),
        ("1.4.0", (CONV, (8, 9, 16), (3, 3), (2, 2)), set()),
        ("1.2.3", (CONV, (8, 9, 3), (3, 3), (2, 2)), set()),
        ("1.2.0", (CONV, (9, 9, 16), (3, 3), (2, 2)), set()),
        ("1.2.0", (CONV, (8, 8, 16), (3, 3), (2, 2), "SAME", 4, 3, 2), set()),
        # Unequal leading padding.
        ("1.0.1", (CONV, (9, 9, 16), (1, 3)), BREAKS),
        ("1.0.2", (CONV, (9, 9, 16), (1, 3)), set()),
        ("1.0.1", (CONV, (9, 9, 16), (3, 1)), set()),
    ],
)
def test_defects_of_esp_nn_are_found_where_they_apply(version: str, shape: Any, found: set[Effect]) -> None:
    assert effects(convolution(*shape), f"esp-nn@{version}", "esp32s3") == found
    assert effects(convolution(*shape), f"esp-nn@{version}", "esp32") == set()
    for type in WEIGHTS.keys() - {INT8}:
        assert effects(convolution(*shape, type=type), f"esp-nn@{version}", "esp32s3") == set()


def test_a_defect_is_told_with_the_versions_that_have_it_and_the_one_that_mends_it() -> None:
    model = convolution(CONV, (8, 8, 16), (3, 3), (2, 2))
    (finding,) = check_device(model, target=tflm.targets.by_name("esp32s3"), kernels="esp-nn@1.2.0")
    assert "up to 1.2.3; fixed in 1.4.0" in finding.happens
    assert "Use ESP-NN 1.4.0 or later" in finding.advice


@pytest.mark.parametrize(
    ("version", "shape", "found"),
    [
        ("v7.0.0", ((5, 5, 8), (5, 5), (3, 3)), DIFFERS),
        ("4ab83cc3", ((5, 5, 8), (5, 5), (3, 3)), DIFFERS),
        ("99f736a6", ((5, 5, 8), (5, 5), (3, 3)), set()),
        ("f2cb41ca", ((5, 5, 8), (5, 5), (3, 3)), set()),
        ("v7.0.0", ((5, 5, 8), (4, 4), (3, 3)), set()),
        ("v7.0.0", ((5, 5, 8), (5, 5), (3, 3), "VALID"), set()),
        ("v7.0.0", ((5, 5, 8), (4, 4), (2, 2)), DIFFERS),
        ("v7.0.0", ((5, 5, 17), (4, 4), (2, 2)), set()),
        ("v7.0.0", ((5, 5, 17), (5, 5), (3, 3)), DIFFERS),
    ],
)
def test_transposed_convolutions_with_uneven_padding_differ(version: str, shape: Any, found: set[Effect]) -> None:
    made = {type: convolution("TRANSPOSE_CONV", *shape, type=type) for type in WEIGHTS}
    assert effects(made.pop(INT8), f"cmsis-nn@{version}", "cortex-m4") == found
    for model in made.values():
        assert not DIFFERS & effects(model, f"cmsis-nn@{version}", "cortex-m4")
