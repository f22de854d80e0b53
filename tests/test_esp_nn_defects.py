"""The conditions of ESP-NN's defects on random convolutions, against what was found by running the kernels."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from test_esp_nn_sizes import LARGE, LIMITS, S3, Shape, b1, b3, more_3x3, random_shapes

from tflm.libraries import esp_nn_defects
from tflm.libraries.esp_nn_scratch import VERSIONS
from tflm.libraries.kernel_library import Version


def found(rule: str, shape: Shape, version: str, zero_point: int = 3, depth: int = 0) -> bool:
    x, f = SimpleNamespace(zero_point=zero_point), SimpleNamespace(dims=(1, 1, 1, depth or shape.C))
    node: Any = SimpleNamespace(input=(x, f).__getitem__, target=S3)
    return bool(getattr(esp_nn_defects, rule)(node, shape.convolution, Version(version, VERSIONS)))


def gap(shape: Shape) -> int:
    return 16 - (shape.F & 15)


def shapes() -> list[Shape]:
    return [*LARGE, *LIMITS, *random_shapes(3000, True)]


def is_3x3(shape: Shape, rest: int) -> bool:
    return shape.M == 1 and shape.w == shape.h == 3 and rest == shape.C % 16


def test_padding_of_one_side() -> None:
    hits = set()
    for s in shapes():
        one_sided = is_3x3(s, 0) and (s.ph, s.pw) not in ((0, 0), (1, 1))
        wide, high = (
            max(0, windows * stride + 2 - size - 2 * before)
            for windows, stride, size, before in ((s.OW, s.sw, s.W, s.pw), (s.OH, s.sh, s.H, s.ph))
        )
        padded = (s.W + 2 * s.pw + wide) * (s.H + 2 * s.ph + high) * s.C
        for version, written, asked in (
            ("1.0-beta", 2 * (s.F + gap(s) + s.W * s.H * s.C), b1(16)(s)),
            ("1.2.0~1", 2 * (s.F + gap(s) + s.W * s.H * s.C), b1(32)(s)),
            ("1.2.1", s.F + 16 + padded + s.OW * s.OH * s.C, b3(s)),
        ):
            wanted = one_sided and written > asked
            assert found("_padding_of_one_side", s, version) == wanted, (version, s)
            hits.add((version, one_sided, wanted))
    assert len(hits) >= 6


def test_large_images_without_padding() -> None:
    hits = set()
    even = [Shape(W=w, H=60, C=c, w=3, h=3, sw=2, sh=2, same=True) for w in (40, 42, 62) for c in (8, 16)]
    for s in [*shapes(), *even]:
        wide, high = more_3x3(s)
        image = (s.W + wide) * (s.H + high) * s.C
        wanted = is_3x3(s, 0) and not s.pads and (wide, high) != (0, 0) and image > 40960
        wanted = wanted and s.F + gap(s) + image > b3(s)
        assert found("_large_image_without_padding", s, "1.2.3") == wanted, s
        hits.add(wanted)
    assert hits == {True, False}


def test_padded_rows_of_large_images() -> None:
    hits = set()
    same = [Shape(W=w, H=h, C=8, w=5, h=taps, same=True) for w, h in ((60, 60), (60, 52), (20, 20)) for taps in (1, 5)]
    below = [Shape(W=62, H=60, C=c, w=w, h=2, same=True) for c in (8, 9) for w in (1, 2)]
    # 2 (F + W H C) is 49152, or 16 more: F + W H C is 8 (w h + W H).
    limits = [Shape(W=w, H=3, C=8, w=2, h=3, same=True) for w in (1021, 1022, 1023)]
    for s in [*shapes(), *same, *below, *limits]:
        rows = s.ph > 0 or s.pb > 0
        wanted = s.M == 1 and s.C % 8 == 0 and (s.w, s.h) != (3, 3) and 2 * (s.F + s.W * s.H * s.C) > 49152 and rows
        assert found("_padded_rows_of_large_image", s, "1.2.1") == wanted, s
        assert not found("_padded_rows_of_large_image", s, "1.2.1", zero_point=0)
        hits.add(wanted)
    assert hits == {True, False}


def test_widened_filters_and_images() -> None:
    hits = set()
    for s in shapes():
        is_widened = s.M % 4 == 0 or is_3x3(s, 8)
        rest = s.F & 15
        wanted = is_widened and rest < 8
        for version in ("1.0-beta", "1.1.2"):
            assert found("_widened_filter_and_image", s, version) == wanted, s
        hits.add((is_widened, wanted))
    assert len(hits) == 3


@pytest.mark.parametrize("version", ["1.0-beta", "1.2.0~1", "1.2.1", "1.2.3"])
def test_more_padding_behind(version: str) -> None:
    hits = set()
    for s in shapes():
        behind = not s.pointwise and (s.pr > s.pw or s.pb > s.ph)
        columns = s.w * s.C < 16 <= s.w * s.h * s.C
        wanted = behind and (version in ("1.0-beta", "1.2.0~1") or (s.pads and not columns))
        assert found("_more_padding_behind", s, version) == wanted, s
        hits.add((behind, wanted))
    assert len(hits) == (2 if version in ("1.0-beta", "1.2.0~1") else 3)


def test_unequal_padding_and_groups() -> None:
    hits = set()
    for s in shapes():
        wanted = s.pw > 0 and s.pw != s.ph
        assert found("_unequal_padding", s, "1.0.1") == wanted
        hits.add(wanted)
    assert hits == {True, False}
    assert found("_is_grouped", LIMITS[0], "1.2.1", depth=LIMITS[0].C - 1)
    assert not found("_is_grouped", LIMITS[0], "1.2.1")


RANGES = {
    "_padding_of_one_side": ("1.0-beta", "58ca1a4"),
    "_large_image_without_padding": ("1.2.1", "58ca1a4"),
    "_padded_rows_of_large_image": ("1.2.1", "1.4.0"),
    "_widened_filter_and_image": ("1.0-beta", "1.2.0"),
    "_more_padding_behind": ("1.0-beta", "58ca1a4"),
    "_unequal_padding": ("1.0-beta", "1.0.2"),
    "_is_grouped": ("1.0-beta", "1.2.3"),
}


def test_which_versions_have_them() -> None:
    for place, name in enumerate(VERSIONS):
        told = [concern.happens for concern in esp_nn_defects.concerns(Version(name, VERSIONS))]
        held = [since for since, fixed in RANGES.values() if VERSIONS.index(since) <= place < VERSIONS.index(fixed)]
        assert len(told) == len(held)
        for text, since in zip(told, held):
            assert ("(ESP-NN up to" in text) == (since == "1.0-beta")
            assert since == "1.0-beta" or f"(ESP-NN {since} to" in text
        assert not any("fixed in 58ca1a4" in text for text in told)
