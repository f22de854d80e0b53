"""Scratch sizes of every version of ESP-NN on random shapes and at its limits, against the rules read from its source.

w, h are the taps, W, H the image, C its channels, O the outputs, M the multiplier; pw, ph the padding before.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import pytest

import tflm
from tflm.libraries.esp_nn_scratch import (
    CONV_BYTES,
    DEPTHWISE_BYTES,
    VERSIONS,
    Convolution,
    bytes_for,
    known_versions,
)
from tflm.libraries.kernel_library import Version

S3, P4, PLAIN = (tflm.targets.by_name(chip) for chip in ("esp32s3", "esp32p4", "esp32"))


def up(value: int, step: int) -> int:
    return -(-value // step) * step


@dataclass(frozen=True)
class Shape:
    """A convolution as the rules name its sizes."""

    W: int
    H: int
    C: int
    w: int
    h: int
    sw: int = 1
    sh: int = 1
    same: bool = False
    O: int = 1  # noqa: E741
    M: int = 1

    @property
    def OW(self) -> int:  # noqa: N802
        return -(-self.W // self.sw) if self.same else (self.W - self.w) // self.sw + 1

    @property
    def OH(self) -> int:  # noqa: N802
        return -(-self.H // self.sh) if self.same else (self.H - self.h) // self.sh + 1

    @property
    def all_padding(self) -> tuple[int, int]:
        return (
            max(0, (self.OW - 1) * self.sw + self.w - self.W),
            max(0, (self.OH - 1) * self.sh + self.h - self.H),
        )

    @property
    def pw(self) -> int:
        return self.all_padding[0] // 2

    @property
    def ph(self) -> int:
        return self.all_padding[1] // 2

    @property
    def pr(self) -> int:
        return self.all_padding[0] - self.pw

    @property
    def pb(self) -> int:
        return self.all_padding[1] - self.ph

    @property
    def F(self) -> int:  # noqa: N802
        return self.w * self.h * self.C * self.M

    @property
    def pads(self) -> bool:
        return self.pw > 0 or self.ph > 0

    @property
    def pointwise(self) -> bool:
        return self.w == self.h == self.sw == self.sh == 1 and not self.pads

    @property
    def convolution(self) -> Convolution:
        return Convolution(
            rows=self.H,
            columns=self.W,
            channels=self.C,
            taps=(self.h, self.w),
            outputs=self.O,
            output_size=(self.OH, self.OW),
            strides=(self.sh, self.sw),
            padding=(self.ph, self.pw),
            multiplier=self.M,
        )


# --- The rules ---------------------------------------------------------------------------------------------------


def block(s: Shape, channels: int) -> int:
    return 0 if s.W * s.H < 8 else 16 * channels


def columns(s: Shape) -> int:
    length = up(s.w * s.h * s.C, 16)
    return 4 * s.O + 16 + s.O * length + 16 + length + 64


def a0(s: Shape) -> int:
    if s.pointwise and s.C % 8 == 0:
        return s.C * s.O + block(s, s.C) + 32
    return 2 * (s.w * s.h * s.C * s.O + s.W * s.H * s.C) + block(s, s.C) + 32


def matrices(s: Shape, margin: int) -> int:
    n = up(s.C, 8)
    return (s.W * s.H * n if s.C % 8 else 0) + n * s.O + block(s, n) + margin


def around(s: Shape) -> int:
    return (s.W + 2 * s.pw) * (s.H + 2 * s.ph) * s.C if s.pads else 0


def a1(s: Shape) -> int:
    return matrices(s, 32) if s.pointwise else around(s) + s.w * s.h * up(s.C, 16) * s.O + 32 + 4 * s.O


def a2(margin: int) -> Callable[[Shape], int]:
    def size(s: Shape) -> int:
        if s.pointwise:
            return matrices(s, margin)
        if s.w * s.C < 16 <= s.w * s.h * s.C:
            return columns(s) - 64 + margin
        right, bottom = max(0, s.OW * s.sw + s.w - 1 - s.W), max(0, s.OH * s.sh + s.h - 1 - s.H)
        bound = (s.W + right) * (s.H + bottom) * s.C if right > 0 or bottom > 0 else 0
        filters = s.w * s.h * up(s.C, 16) * s.O + up(s.w * s.C, 16) * s.h * s.O
        return around(s) + filters + bound + margin + 4 * s.O

    return size


def a4(s: Shape) -> int:
    if s.w == s.h == 3 and s.C % 16 == 0 and s.O >= 16:
        return 9 * s.C * (s.O + 1) + 4 * s.O + 32
    if s.pointwise:
        sizes = [block(s, up(s.C, 8)) + 64, 24 * s.C + 8 * s.O + 64]
        return max(sizes + ([24 * s.C + 16384 + 64] if s.C * s.O > 24576 else []))
    if s.w * s.C < 16 <= s.w * s.h * s.C:
        return columns(s)
    image = (s.W + s.pw + s.pr) * (s.H + s.ph + s.pb) * s.C if s.pads or s.pr or s.pb else 0
    return image + max(up(s.w * s.C, 16) * s.h * s.O, s.w * s.h * s.C * s.O) + 64 + 4 * s.O


def more_3x3(s: Shape) -> tuple[int, int]:
    return (2 * s.pw, 2 * s.ph) if s.pads else (s.OW * s.sw + 2 - s.W, s.OH * s.sh + 2 - s.H)


def b1(margin: int) -> Callable[[Shape], int]:
    def size(s: Shape) -> int:
        widened = 2 * (s.F + s.W * s.H * s.C) + margin
        if s.M == 1 and s.C % 8 == 0 and s.w == s.h == 3:
            if s.C % 16:
                return widened
            wide, high = more_3x3(s)
            return s.F + ((s.W + wide) * (s.H + high) * s.C if (wide, high) != (0, 0) else 0) + 16
        return widened if s.M % 4 == 0 else 32

    return size


def other_depthwise(s: Shape, quantization: int) -> int:
    widened = 2 * (s.F + s.W * s.H * s.C)
    if s.M == 1 and s.C % 8 == 0 and s.w == s.h == 3 and s.C >= 12:
        n = up(s.C, 16)
        wide, high = 2 * s.pw + max(0, s.OW * s.sw + 2 - s.W), 2 * s.ph + max(0, s.OH * s.sh + 2 - s.H)
        return 9 * n + (s.W + wide) * (s.H + high) * n + s.OW * s.OH * n + quantization * n + 64
    if s.M == 1 and s.C == 8 and s.w == s.h == 3:
        return widened + 32
    if s.M == 1 and s.C % 8 == 0:
        return widened + 32 if widened <= 49152 else 2 * s.F + 2 * s.W * s.h * s.C + 32
    if s.M == 1 and s.C > 3:
        n = up(s.C, 8)
        return up(up(up(2 * s.w * s.h * n, 16) + 2 * s.W * s.H * n, 16) + s.OW * s.OH * n, 16) + 12 * n + 16
    return widened + 32 if s.M % 4 == 0 else 32


def is_vectors_3x3(s: Shape) -> bool:
    return s.M == 1 and s.C % 16 == 0 and s.w == s.h == 3


def b3(s: Shape) -> int:
    if not is_vectors_3x3(s):
        return other_depthwise(s, 0)
    wide, high = more_3x3(s)
    if (wide, high) == (0, 0):
        return s.F + 16
    full = (s.W + wide) * (s.H + high) * s.C
    return s.F + 16 + (full if full <= 40960 else (s.W + wide) * s.h * s.C)


def strips(s: Shape, wide: int, high: int) -> int:
    if (wide, high) == (0, 0):
        return s.F + 16
    row = (s.W + wide) * s.C
    if row * (s.H + high) <= 40960:
        return s.F + row * (s.H + high) + 16
    fitting = [rows for rows in range(3, s.H + high + 1) if s.F + rows * row + 32 <= 40960] or [3]
    return s.F + fitting[-1] * row + 32


def one_column(s: Shape) -> int | None:
    if s.M == s.W == s.w == s.OW == s.sw == 1 and s.pw == 0 and s.C % 16 == 0:
        return 4 * s.C + 2 * s.h * s.C + 64
    return None


def b4(s: Shape) -> int:
    if (size := one_column(s)) is not None:
        return size
    if is_vectors_3x3(s) and (s.pw, s.ph) in ((1, 1), (0, 0)):
        return strips(s, *more_3x3(s))
    return other_depthwise(s, 12)


def b5(s: Shape) -> int:
    if (size := one_column(s)) is not None:
        return size
    return strips(s, s.pw + s.pr, s.ph + s.pb) if is_vectors_3x3(s) else other_depthwise(s, 12)


def p4(s: Shape) -> int:
    bias = 4 * s.O
    if s.pointwise:
        return bias + 16 * s.O + 64 if s.C < 16 else matrices(s, 32)
    whole = s.w * s.h * up(s.C, 16) * s.O
    if not s.pads and s.w * s.C >= 16:
        return whole + 32 + bias
    if s.w * s.h * s.C >= 16:
        return bias + s.w * s.h * s.C + 32
    e = up((16 + s.w - 1) // s.w, 16)
    if not s.pads:
        return bias + s.w * s.h * e * s.O + s.W * s.H * e + 32
    if around(s) + bias <= 32768:
        return around(s) + whole + 32 + bias
    filter, row = s.w * s.h * e * s.O, (s.W + 2 * s.pw) * e
    budget, tile = 32768 - bias - filter, 1
    while tile < s.OH and s.h * row + tile * s.sh * row <= budget:
        tile += 1
    return ((tile - 1) * s.sh + s.h + 2 * s.ph) * row + filter + 32 + bias


# --- Shapes ------------------------------------------------------------------------------------------------------


def random_shapes(count: int, depthwise: bool) -> Iterator[Shape]:
    dice = random.Random(count)
    while count:
        one = Shape(
            W=dice.choice([1, 2, 4, 7, 8, 9, 30]),
            H=dice.choice([1, 2, 3, 7, 8, 11, 60]),
            C=dice.choice([1, 1, 2, 3, 4, 5, 7, 8, 12, 15, 16, 16, 17, 24, 32, 40]),
            w=dice.choice([1, 1, 2, 3, 3, 3, 4, 5]),
            h=dice.choice([1, 1, 2, 3, 3, 3, 4, 5]),
            sw=dice.choice([1, 1, 2, 3]),
            sh=dice.choice([1, 1, 2, 3]),
            same=dice.random() < 0.5,
            O=dice.choice([1, 2, 4, 15, 16, 17, 40]),
            M=dice.choice([1, 1, 1, 1, 2, 4, 5, 8]) if depthwise else 1,
        )
        if dice.random() < 0.3:
            one = replace(one, h=one.w, sh=one.sw)
        if one.w <= one.W and one.h <= one.H:
            count -= 1
            yield one


LIMITS = [
    *(
        Shape(W=wide, H=high, C=channels, w=taps, h=high_taps, same=same, O=3)
        for wide, high in ((7, 1), (8, 1), (9, 9))
        for channels, taps, high_taps in ((15, 1, 1), (16, 1, 1), (5, 3, 1), (8, 2, 1), (3, 5, 1), (1, 5, 3), (4, 2, 2))
        for same in (False, True)
        if wide >= taps and high >= high_taps
    ),
    *(Shape(W=3, H=3, C=channels, w=1, h=1, O=outputs) for channels, outputs in ((7, 3511), (128, 192), (8, 3073))),
    Shape(W=40, H=40, C=64, w=1, h=1, O=2),
    *(Shape(W=184, H=174, C=1, w=3, h=3, same=True, O=outputs) for outputs in (8, 9, 40)),
    *(Shape(W=wide, H=60, C=1, w=3, h=3, same=True, O=8) for wide in (680, 681, 700, 2000)),
    # The budget of a tile is a whole number of its steps: 32768 - 4 O - 144 O = 16 (3 + 5 n) (W + 2), or nearly so.
    *(
        Shape(W=wide, H=400, C=1, w=3, h=3, sh=stride, same=True, O=outputs)
        for wide in (80, 94, 107, 126, 158, 160, 182, 200)
        for stride in (1, 2)
        for outputs in (4, 8, 12, 221, 222)
    ),
]

LARGE = [
    *(Shape(W=wide, H=38, C=16, w=3, h=3, same=True) for wide in (61, 62, 63)),
    *(Shape(W=wide, H=90, C=32, w=3, h=3, same=same) for wide in (124, 125, 126, 127, 128) for same in (False, True)),
    *(Shape(W=wide, H=5, C=16, w=3, h=3, same=True) for wide in (300, 600, 840, 900, 2000)),
    *(Shape(W=wide, H=61, C=16, w=3, h=3, sw=2, sh=2, same=True) for wide in (60, 61, 62, 63, 64)),
    *(Shape(W=wide, H=6, C=8, w=6, h=2) for wide in (509, 510, 511, 512)),
    *(Shape(W=wide, H=15, C=8, w=6, h=2) for wide in (203, 204, 205)),
    *(Shape(W=1, H=9, C=channels, w=1, h=taps, sh=2) for channels in (8, 16, 24, 32) for taps in (1, 2, 3)),
    *(Shape(W=2, H=9, C=16, w=1, h=3, sw=stride) for stride in (1, 2)),
    Shape(W=1, H=9, C=16, w=1, h=3, sw=2),
    Shape(W=1, H=9, C=16, w=2, h=3, same=True),
    Shape(W=1, H=9, C=16, w=3, h=3, same=True),
    Shape(W=2, H=9, C=16, w=1, h=3, sw=2),
    Shape(W=2, H=9, C=16, w=2, h=3),
    *(Shape(W=5, H=5, C=3, w=3, h=3, M=times) for times in (1, 2, 3, 4, 5)),
]

CONV: dict[str, dict[str, Callable[[Shape], int]]] = {
    "esp32s3": {"1.0-beta": a0, "1.0.0-rc1": a1, "1.2.1": a2(32), "1.2.3": a2(64), "58ca1a4": a4},
    "esp32p4": {"1.1.0": a1, "1.2.3": p4},
}
DEPTHWISE: dict[str, Callable[[Shape], int]] = {
    "1.0-beta": b1(16),
    "1.2.0": b1(32),
    "1.2.1": b3,
    "58ca1a4": b4,
    "1.4.0": b5,
}


@pytest.mark.parametrize(("chip", "version"), [(chip, version) for chip in CONV for version in CONV[chip]])
def test_conv_2d(chip: str, version: str) -> None:
    found = bytes_for(CONV_BYTES, tflm.targets.by_name(chip), Version(version, VERSIONS))
    for shape in itertools.chain(LIMITS, random_shapes(1500, False)):
        assert found(shape.convolution) == CONV[chip][version](shape), shape


@pytest.mark.parametrize("version", DEPTHWISE)
def test_depthwise_conv_2d(version: str) -> None:
    found = bytes_for(DEPTHWISE_BYTES, S3, Version(version, VERSIONS))
    for shape in itertools.chain(LARGE, random_shapes(2000, True)):
        assert found(shape.convolution) == DEPTHWISE[version](shape), shape


def test_between_changes_sizes_stay() -> None:
    for name in VERSIONS:
        version = Version(name, VERSIONS)
        for sizes, changes in ((CONV_BYTES, CONV["esp32s3"]), (DEPTHWISE_BYTES, DEPTHWISE)):
            rule = [rule for since, rule in changes.items() if VERSIONS.index(since) <= VERSIONS.index(name)][-1]
            for shape in random_shapes(40, sizes is DEPTHWISE_BYTES):
                assert bytes_for(sizes, S3, version)(shape.convolution) == rule(shape)
                assert bytes_for(sizes, PLAIN, version)(shape.convolution) == 0


def test_which_versions_are_known() -> None:
    assert known_versions(S3) == known_versions(PLAIN) == list(VERSIONS)
    assert known_versions(P4) == list(VERSIONS[: VERSIONS.index("58ca1a4")])
    for name in ("1.0-beta", "1.0.2"):
        sizes = bytes_for(CONV_BYTES, P4, Version(name, VERSIONS))
        assert not any(sizes(shape.convolution) for shape in LIMITS)
    assert not any(bytes_for(DEPTHWISE_BYTES, P4, Version("1.2.3", VERSIONS))(shape.convolution) for shape in LARGE)
