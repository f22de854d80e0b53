"""Kernel libraries without a version, in releases of TFLM: the version that is used, and the behaviour of the glue
code."""

from __future__ import annotations

import json
import math
import re
import warnings
from pathlib import Path

import numpy as np
import pytest
from models import INT8

import tflm
from tflm.firmware.device_check import check_device
from tflm.libraries import Effect, library_for
from tflm.libraries.cmsis_nn_scratch import COMMITS_OF_TAGS
from tflm.libraries.cmsis_nn_scratch import VERSIONS as CMSIS_NN_VERSIONS
from tflm.libraries.pins import CMSIS_NN, ESP_NN, ESPHOME, NEAREST_VERSIONS, versions_in
from tflm.releases import distributions
from tflm.schema import (
    BuiltinOperator,
    Conv2DOptions,
    FullyConnectedOptions,
    ModelBuilder,
    Padding,
    TensorType,
    quantized,
)

S3, P4, ESP32, M4 = map(tflm.targets.by_name, ("esp32s3", "esp32p4", "esp32", "cortex-m4"))


def taken(kernels: str, target: tflm.targets.Target, release: str | None) -> str:
    return library_for(kernels, target, release).name


# --- Versions ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kernels", "target", "release", "name"),
    [
        ("cmsis-nn", M4, "5448dcf07", "cmsis-nn@e98ee09a"),
        ("cmsis-nn", M4, "2023-06-10", "cmsis-nn@23.02"),
        ("cmsis-nn", M4, "2023-06-15", "cmsis-nn@dc64e488"),
        ("cmsis-nn:size", M4, "2025-01", "cmsis-nn:size@v7.0.0"),
        ("cmsis-nn", M4, "90b983c2b", "cmsis-nn"),
        ("cmsis-nn", M4, "wheel", "cmsis-nn"),
        ("cmsis-nn", M4, "chirale 2.0.0", "cmsis-nn@8aa412fd"),
        ("cmsis-nn", M4, "pico-tflmicro dfea53b", "cmsis-nn@v7.0.0"),
        ("cmsis-nn@v6.0.0", M4, "2023-06-14", "cmsis-nn@v6.0.0"),
        ("cmsis-nn", M4, None, "cmsis-nn"),
        ("esp-nn", S3, None, "esp-nn"),
        ("esp-nn", S3, "2024-01", "esp-nn"),
        ("esp-nn", S3, "chirale 2.0.0", "esp-nn"),
        ("esp-nn", S3, "esp-tflite-micro 2690c7a", "esp-nn@1.0.0"),
        ("esp-nn", S3, "esphome 2024.10", "esp-nn@1.1.0"),
        ("esp-nn", S3, "esphome 2024.12.4", "esp-nn@1.1.0"),
        ("esp-nn", S3, "esphome 2026.5", "esp-nn@1.1.2"),
        ("esp-nn:ansi", S3, "esp-tflite-micro 1.3.3", "esp-nn:ansi"),
        ("reference", M4, "2022-01", "reference"),
    ],
)
def test_a_release_says_which_version_it_has(
    kernels: str, target: tflm.targets.Target, release: str | None, name: str
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert taken(kernels, target, release) == name


@pytest.mark.parametrize(
    ("kernels", "target", "release", "name", "said"),
    [
        ("esp-nn", S3, "esp-tflite-micro 1.3.3", "esp-nn@1.4.0", r"ESP-NN \^1\.1\.0 .* 1\.4\.0 is assumed"),
        ("esp-nn", P4, "esp-tflite-micro 1.3.3", "esp-nn", r"\^1\.1\.0 .* 1\.2\.3 is assumed, .* for esp32p4"),
        ("esp-nn", S3, "esp-tflite-micro 1.4.0", "esp-nn@1.4.0", r">=1\.1\.1 .* 1\.4\.0 is assumed"),
        ("esp-nn", S3, "esphome 2025.5", "esp-nn@1.4.0", r"esphome 2025\.5 allows any ESP-NN \^1\.1\.0"),
        ("esp-nn", S3, "esp-tflite-micro 8e99cd1", "esp-nn@1.0.0-rc1", "commit e04f1b8; 1.0.0-rc1 is assumed"),
        ("cmsis-nn", M4, "2022-10-26", "cmsis-nn@e98ee09a", "part of CMSIS.* e98ee09a is assumed"),
        ("cmsis-nn", M4, "zephyr 3.7", "cmsis-nn@01dee38e", "its own CMSIS-NN.* 01dee38e is assumed"),
    ],
)
def test_a_version_that_a_release_leaves_open_is_warned_of(
    kernels: str, target: tflm.targets.Target, release: str, name: str, said: str
) -> None:
    with pytest.warns(tflm.VersionAssumed, match=said):
        assert taken(kernels, target, release) == name


def test_what_is_pinned_is_known() -> None:
    components = [each.version for each in distributions()["esp-tflite-micro"]]
    assert {*CMSIS_NN.values()} <= {*CMSIS_NN_VERSIONS, *COMMITS_OF_TAGS}
    assert list(ESP_NN) == sorted(ESP_NN, key=components.index)
    assert {contents.component for contents in ESPHOME.values()} <= {*components}
    assert list(ESPHOME) == [each.version for each in distributions()["esphome"]]
    stated = [*ESP_NN.values(), *(contents.esp_nn for contents in ESPHOME.values() if contents.esp_nn)]
    assert all(versions_in(NEAREST_VERSIONS.get(each, each), S3) for each in stated)


def test_a_range_is_of_one_major_version_or_of_all() -> None:
    assert versions_in("^1.2.0", S3) == ["1.2.0", "1.2.0~1", "1.2.1", "1.2.2", "1.2.3", "1.4.0"]
    assert versions_in(">=1.2.2", P4) == ["1.2.2", "1.2.3"]
    assert versions_in("1.1.0", S3) == ["1.1.0"]


# --- The component's glue ----------------------------------------------------------------------------------------

COMPARED = {"okay_nabu_v2", "person_detect", "conv0", "kws_ref_model"}


def test_arenas_of_versions_of_the_component(corpus: Path) -> None:
    """Every chip with plain C, and the ESP32-S3 with one version of ESP-NN: heads by version are compared elsewhere."""
    count = 0
    for line in map(json.loads, (corpus / "golden" / "arena_esp_versions.jsonl").read_text().splitlines()):
        if line["model"] not in COMPARED or line["esp_nn"] != "1.2.1" or line["chip"] in ("esp32", "esp32p4"):
            continue
        is_s3 = line["chip"] == "esp32s3"
        found = tflm.measure_arena(
            tflm.Model.from_file(corpus / "models" / f"{line['model']}.tflite"),
            tflm.AllOpsResolver(),
            target=S3 if is_s3 else ESP32,
            kernels="esp-nn@1.2.1" if is_s3 else "esp-nn:ansi",
            release=f"esp-tflite-micro {line['esp_tflite_micro']}",
        )
        figures = found.arena_used_bytes, found.head_bytes, found.tail_bytes, found.minimum_arena_bytes
        assert figures == tuple(line[key] for key in ("arena_used_bytes", "head", "tail", "minimum_arena_bytes")), line
        count += 1
    assert count


def one_operator(
    code: BuiltinOperator,
    image: list[int],
    filter: list[int],
    output: list[int],
    options: Conv2DOptions | FullyConnectedOptions,
    weights: TensorType = INT8,
) -> tflm.Model:
    builder = ModelBuilder()
    main = builder.subgraph()
    x = main.input("x", image, INT8, quantized(0.1, 0))
    ones = np.ones(math.prod(filter) // (1 if weights == INT8 else 2), np.int8)
    f = main.constant("f", ones, quantized(0.1), type=weights, shape=filter)
    y = main.tensor("y", output, INT8, quantized(0.1))
    main.operator(code, [x, f], [y], options)
    main.output(y)
    return tflm.Model(builder.build())


def convolution(dilation: int = 1) -> tflm.Model:
    options = Conv2DOptions(
        padding=Padding.SAME, stride_h=1, stride_w=1, dilation_h_factor=dilation, dilation_w_factor=dilation
    )
    return one_operator(BuiltinOperator.CONV_2D, [1, 6, 6, 8], [4, 3, 3, 8], [1, 6, 6, 4], options)


def fully_connected(dims: list[int], weights: TensorType) -> tflm.Model:
    options = FullyConnectedOptions(keep_num_dims=True)
    return one_operator(BuiltinOperator.FULLY_CONNECTED, [*dims[:-1], 8], [dims[-1], 8], dims, options, weights)


@pytest.mark.parametrize(
    ("release", "kernels", "dilation", "is_slow"),
    [
        ("esp-tflite-micro 1.3.5", "esp-nn@1.2.3", 1, True),
        ("esp-tflite-micro 1.3.5", "esp-nn@1.4.0", 1, True),
        ("esphome 2025.5", "esp-nn@1.2.3", 1, True),
        ("esp-tflite-micro 1.3.5", "esp-nn@1.2.2", 1, False),
        ("esp-tflite-micro 1.3.7", "esp-nn@1.2.3", 1, False),
        ("esp-tflite-micro 1.3.5", "esp-nn:ansi@1.2.3", 1, False),
        ("esp-tflite-micro 1.3.5", "esp-nn@1.2.3", 2, False),
        (None, "esp-nn", 1, False),
    ],
)
def test_convolutions_in_plain_c_are_slow(release: str | None, kernels: str, dilation: int, is_slow: bool) -> None:
    found = check_device(convolution(dilation), target=S3, kernels=kernels, release=release)
    slow = [finding for finding in found if finding.effect is Effect.SLOW]
    assert bool(slow) is is_slow
    assert not any(finding.stops for finding in slow)
    assert all("1.3.7" in finding.happens for finding in slow)


@pytest.mark.parametrize(
    ("release", "dims", "weights", "differs"),
    [
        ("esp-tflite-micro 1.3.1", [1, 4, 2], INT8, True),
        ("esp-tflite-micro 1.3.1", [1, 4, 2], TensorType.INT4, False),  # unpacked for TFLM's own kernel
        ("esphome 2024.10", [2], INT8, True),
        ("esp-tflite-micro 1.3.1", [4, 2], INT8, False),
        ("esp-tflite-micro 1.3.2", [1, 4, 2], INT8, False),
        (None, [1, 4, 2], INT8, False),
    ],
)
def test_fully_connected_of_another_rank_differs_in_old_components(
    release: str | None, dims: list[int], weights: TensorType, differs: bool
) -> None:
    found = check_device(fully_connected(dims, weights), target=ESP32, kernels="esp-nn@1.1.0", release=release)
    assert [finding.operator for finding in found] == ["FULLY_CONNECTED"] * differs
    assert all(re.search(r"up to 1\.3\.1; fixed in 1\.3\.2", finding.happens) for finding in found)


@pytest.mark.parametrize(
    ("version", "size"), [("5be29f4", 56), ("13f26b8", 60), ("1.3.3", 56), ("1.3.4", 60), ("", 60)]
)
def test_what_the_glue_s_conv_asks_for(version: str, size: int) -> None:
    release = tflm.releases.by_name(f"esp-tflite-micro {version}") if version else tflm.releases.TODAY
    library = library_for("esp-nn@1.1.2", S3, release)
    op_data = library.memory["CONV_2D"].op_data
    assert op_data is not None
    assert library.layout(op_data, S3)[0] == size
    depthwise = library.memory["DEPTHWISE_CONV_2D"].op_data
    assert depthwise is not None
    assert library.layout(depthwise, S3)[0] == 60
