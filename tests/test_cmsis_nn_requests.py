"""Compare the arena requests of each version of CMSIS-NN and of TFLM's glue code with their rules, node by node."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

import tflm
from tflm.kernels.requests import PersistentBuffer, ScratchBuffer, TempInput, TempOutput
from tflm.libraries import cmsis_nn
from tflm.libraries.cmsis_nn_scratch import (
    VERSIONS,
    Convolution,
    conv_s8_bytes,
    conv_s16_bytes,
    depthwise_s4_bytes,
    depthwise_s8_bytes,
    transpose_conv_bytes,
)
from tflm.libraries.kernel_library import KernelLibrary, Version
from tflm.schema import Conv2DOptions, DepthwiseConv2DOptions, Padding, TensorType, TransposeConvOptions
from tflm.targets import CORTEX_M

PARTS = {name: tflm.targets.by_name(part) for name, part in (("none", "cortex-m0"), ("dsp", "cortex-m4"))}
PARTS["mve"] = tflm.targets.by_name("cortex-m55")


def up(value: int, step: int) -> int:
    return -(-value // step) * step


# --- Sizes -------------------------------------------------------------------------------------------------------


def is_from(version: str, name: str) -> bool:
    return VERSIONS.index(version) >= VERSIONS.index(name)


def general(column: int, cpu: str, version: str) -> int:
    if cpu == "mve":
        return 4 * up(column, 16 if is_from(version, "8492d82a") else 8)
    return 4 * up(column, 4 if is_from(version, "23.08") else 1)


def conv_s8(c: Convolution, cpu: str, version: str) -> int:
    _, height, width, channels = c.x.dims
    kernel, stride, before, places = c.taps[1], c.strides[1], c.padding[1], c.y.dims[2]
    whole = channels == c.depth or not is_from(version, "6d9d61d8")
    by_stride = c.strides == (1, 1) or is_from(version, "v4.0.0")
    if not any(c.padding) and c.taps == c.dilations == (1, 1) and whole and by_stride:
        return 0
    if cpu == "mve" and height == c.taps[0] == c.dilations[1] == 1:
        taken = stride * channels % 4 == 0 and whole if is_from(version, "v4.1.0") else places % 4 == 0
        if taken and not is_from(version, "6cc31fb3"):
            return 0
        if taken:
            odd = ((places - 1) * stride + kernel - width) % 2
            right = max(1, (before + odd + stride - 1) // stride) if before + odd else 0
            left = max(1, (before + stride - 1) // stride) if before else 0
            if left + max(places - right - left, 0) + right == places:
                size = max((kernel + before) * channels, (kernel - 1 + (right if odd else before)) * channels)
                return size if is_from(version, "8492d82a") else 0
    return general(c.column, cpu, version)


def conv_s16(c: Convolution, cpu: str, version: str) -> int:
    if is_from(version, "8492d82a"):
        return 8 * up(c.column, 8) if cpu == "mve" else 4 * c.column
    return 4 * c.column if cpu == "dsp" and c.column < 512 and c.dilations == (1, 1) else 0


def is_kept(c: Convolution) -> bool:
    return c.x.dims[3] == c.y.dims[3] and c.x.dims[0] == 1 and c.dilations == (1, 1)


def depthwise_s8(c: Convolution, cpu: str, version: str) -> int:
    taps, channels = c.taps[0] * c.taps[1], c.y.dims[3]
    if cpu == "mve" and c.x.dims[3] == 1 and channels > 1 and is_from(version, "v7.0.0"):
        return conv_s8(c, cpu, version) + channels * taps
    if not is_kept(c) or cpu == "none":
        return 0
    if cpu == "mve":
        return 4 * 124 * taps
    return 0 if c.taps == (3, 3) and max(c.padding) <= 1 and is_from(version, "23.02") else 2 * channels * taps


def depthwise_s4(c: Convolution, cpu: str, version: str) -> int:
    if not is_kept(c):
        return 0
    taps = c.taps[0] * c.taps[1]
    return 496 * taps if cpu == "mve" and is_from(version, "01dee38e") else 2 * taps * c.x.dims[3]


def convolutions(count: int, depthwise: bool) -> Iterator[Convolution]:
    dice = random.Random(count)
    for _ in range(count):
        height, width = dice.choice([1, 1, 2, 5]), dice.choice([1, 4, 5, 8, 9])
        channels = dice.choice([1, 1, 2, 3, 4, 8, 9])
        taps = dice.choice([(1, 1), (1, 1), (3, 3), (3, 3), (1, 3), (1, 2), (3, 1), (1, 5), (2, 3)])
        strides = dice.choice([(1, 1), (1, 1), (1, 2), (2, 1), (2, 2), (1, 3)])
        dilations = dice.choice([(1, 1), (1, 1), (1, 1), (1, 2), (2, 1)])
        sizes = list(zip((height, width), taps, strides, dilations))
        same = dice.random() < 0.6 or any(n <= (t - 1) * d for n, t, _, d in sizes)
        places = [-(-(n if same else n - (t - 1) * d) // s) for n, t, s, d in sizes]
        before = [max(0, (p - 1) * s + (t - 1) * d + 1 - n) // 2 for p, (n, t, s, d) in zip(places, sizes)]
        if dice.random() < 0.15:
            before[0] += 1  # as a depthwise convolution of other paddings
        outputs = channels * dice.choice([1, 1, 2]) if depthwise else dice.choice([1, 2, 4])
        depth = 1 if depthwise else channels if channels % 2 or dice.random() < 0.7 else channels // 2
        x: Any = SimpleNamespace(dims=(dice.choice([1, 1, 1, 2]), height, width, channels))
        y: Any = SimpleNamespace(dims=(x.dims[0], *places, outputs))
        yield Convolution(x, y, taps, depth, strides, dilations, tuple(before))


@pytest.mark.parametrize("cpu", PARTS)
def test_sizes_of_convolutions_in_every_version(cpu: str) -> None:
    part = PARTS[cpu]
    for name in VERSIONS:
        version = Version(name, VERSIONS)
        for c in convolutions(250, False):
            assert conv_s8_bytes(c, part, version) == conv_s8(c, cpu, name), (name, c)
            assert conv_s16_bytes(c, part, version) == conv_s16(c, cpu, name), (name, c)
        for c in convolutions(251, True):
            assert depthwise_s8_bytes(c, part, version) == depthwise_s8(c, cpu, name), (name, c)
            assert depthwise_s4_bytes(c, part, version) == depthwise_s4(c, cpu, name), (name, c)


@pytest.mark.parametrize(("channels", "size"), [(511, 4 * 511), (512, 0), (513, 0)])
def test_long_windows_of_int16_took_no_columns(channels: int, size: int) -> None:
    image: Any = SimpleNamespace(dims=(1, 2, 2, channels))
    conv = Convolution(image, image, (1, 1), channels, (1, 1), (1, 1), (0, 0))
    assert conv_s16_bytes(conv, PARTS["dsp"], Version("15dbe7cd", VERSIONS)) == 4 * channels
    assert conv_s16_bytes(conv, PARTS["dsp"], Version("6cc31fb3", VERSIONS)) == size


# --- Nodes -------------------------------------------------------------------------------------------------------


def tensor(type: TensorType, *dims: int, constant: bool = True, zero: int = 0) -> Any:
    size = math.prod(dims)
    width = {TensorType.INT16: 2, TensorType.FLOAT32: 4}.get(type, 1)
    quantization = SimpleNamespace(scale=[0.5], zero_point=[zero], quantized_dimension=0)
    return SimpleNamespace(
        type=type,
        dims=dims,
        bytes=size * width,
        is_constant=constant,
        zero_point=zero,
        scale=0.5,
        quantization=quantization,
    )


class Node:
    """Operands, and a release with some commits."""

    def __init__(self, cpu: str, inputs: list[Any], output: Any, options: Any = None, without: tuple[str, ...] = ()):
        self.target = PARTS[cpu]
        self.release = SimpleNamespace(holds=lambda commit: commit not in without)
        self.input_count, self.output_count = len(inputs), 1
        self._inputs, self._output, self._options = inputs, output, options

    def input(self, index: int) -> Any:
        return self._inputs[index]

    def output(self, index: int) -> Any:
        return self._output

    def has_input(self, index: int) -> bool:
        return index < len(self._inputs) and self._inputs[index] is not None

    def options(self, kind: type) -> Any:
        return self._options


def asked(operator: str, node: Node, version: str = "4ab83cc3", for_size: bool = False) -> list[tuple[str, int]]:
    """Scratch ("s") and persistent buffers ("p") that are asked for."""
    view: Any = node
    found = list(cmsis_nn.library(version, for_size=for_size).memory[operator].prepare(view))
    buffers = [each for each in found if isinstance(each, (ScratchBuffer, PersistentBuffer))]
    return [("s" if isinstance(each, ScratchBuffer) else "p", each.bytes) for each in buffers]


I4, I8, I16, F32 = TensorType.INT4, TensorType.INT8, TensorType.INT16, TensorType.FLOAT32


def conv(filter: TensorType = I8, type: TensorType = I8, without: tuple[str, ...] = (), cpu: str = "dsp") -> Node:
    """Windows of 3x3 over 5 channels for 6."""
    options = Conv2DOptions(padding=Padding.SAME, stride_h=1, stride_w=1, dilation_h_factor=1, dilation_w_factor=1)
    f = tensor(filter, 6, 3, 3, 5)
    return Node(cpu, [tensor(type, 1, 7, 7, 5), f], tensor(type, 1, 7, 7, 6), options, without)


def depthwise(filter: TensorType = I8, type: TensorType = I8, without: tuple[str, ...] = (), cpu: str = "dsp") -> Node:
    """Windows of 3x2 over 6 channels."""
    options = DepthwiseConv2DOptions(
        padding=Padding.SAME, stride_h=1, stride_w=1, depth_multiplier=1, dilation_h_factor=1, dilation_w_factor=1
    )
    f = tensor(filter, 1, 3, 2, 6)
    return Node(cpu, [tensor(type, 1, 7, 7, 6), f], tensor(type, 1, 7, 7, 6), options, without)


MULTIPLIERS = [("p", 24), ("p", 24)]


def test_convolutions_by_type() -> None:
    assert asked("CONV_2D", conv()) == [*MULTIPLIERS, ("s", 4 * 48)]
    assert asked("CONV_2D", conv(type=I16)) == [*MULTIPLIERS, ("s", 4 * 45)]
    assert asked("CONV_2D", conv(F32, F32)) == []
    assert asked("DEPTHWISE_CONV_2D", depthwise()) == [*MULTIPLIERS, ("s", 2 * 36)]
    assert asked("DEPTHWISE_CONV_2D", depthwise(type=I16)) == MULTIPLIERS
    assert asked("DEPTHWISE_CONV_2D", depthwise(F32, F32)) == []


def test_filters_of_int4_are_unpacked_for_a_time() -> None:
    kernels, conv_first, others = "5beca7c52", "8e83744d8", "4f253e217"
    columns, unpacked = ("s", 4 * 48), ("s", 6 * 45)
    assert asked("CONV_2D", conv(I4)) == [*MULTIPLIERS, columns]
    assert asked("CONV_2D", conv(I4, without=(kernels,))) == [unpacked, *MULTIPLIERS, columns]
    assert asked("CONV_2D", conv(I4, without=(kernels, others))) == [unpacked, *MULTIPLIERS, columns]
    assert asked("CONV_2D", conv(I4, without=(kernels, others, conv_first))) == [*MULTIPLIERS, columns]
    assert asked("CONV_2D", conv(without=(kernels,))) == [*MULTIPLIERS, columns]
    windows, unpacked = ("s", 2 * 36), ("s", 36)
    for cpu, with_int4 in (("dsp", [windows]), ("none", [windows]), ("mve", [("s", 496 * 6)])):
        assert asked("DEPTHWISE_CONV_2D", depthwise(I4, cpu=cpu)) == [*MULTIPLIERS, *with_int4]
    assert asked("DEPTHWISE_CONV_2D", depthwise(cpu="none")) == MULTIPLIERS
    assert asked("DEPTHWISE_CONV_2D", depthwise(I4, without=(kernels,), cpu="none")) == [unpacked, *MULTIPLIERS]
    assert asked("DEPTHWISE_CONV_2D", depthwise(I4, without=(kernels, others), cpu="none")) == MULTIPLIERS


def transpose(strides: tuple[int, int], channels: int, type: TensorType = I8, without: tuple[str, ...] = ()) -> Node:
    """Windows of 3x5 over 4x6 places for 7 channels, two images."""
    options = TransposeConvOptions(padding=Padding.SAME, stride_h=strides[0], stride_w=strides[1])
    f, x = tensor(type, 7, 3, 5, channels), tensor(type, 2, 4, 6, channels, constant=False)
    y = tensor(type, 2, 4 * strides[0], 6 * strides[1], 7, constant=False)
    return Node("dsp", [tensor(TensorType.INT32, 4), f, x], y, options, without)


@pytest.mark.parametrize(
    ("strides", "channels", "sizes"),
    [
        ((2, 2), 17, (4 * 256, 255 * 7)),
        ((1, 2), 20, (4 * 300, 300 * 7)),
        ((2, 2), 16, (4 * (5 * 2 + 5) * 7 * 3, 0)),
        ((3, 2), 17, (4 * (5 * 2 + 5) * 7 * 3, 0)),
        ((2, 3), 17, (4 * (5 * 3 + 5) * 7 * 3, 0)),
        ((6, 1), 17, (4 * (5 * 1 + 6) * 7 * 6, 0)),
    ],
)
def test_transposed_convolutions(strides: tuple[int, int], channels: int, sizes: tuple[int, int]) -> None:
    node = transpose(strides, channels)
    view: Any = node
    multipliers, wanted = [("p", 28), ("p", 28)], [("s", size) for size in sizes]
    assert transpose_conv_bytes(view, Version("v7.0.0", VERSIONS)) == sizes
    old = 4 * 3 * 5 * 4 * 6 * 7
    assert transpose_conv_bytes(view, Version("f2cb41ca", VERSIONS)) == (old, 0)
    assert asked("TRANSPOSE_CONV", node) == [*multipliers, *wanted]
    of_outputs = ("s", 4 * 4 * strides[0] * 6 * strides[1] * 7)
    before = transpose(strides, channels, without=("182c8c770",))
    assert asked("TRANSPOSE_CONV", before, "f2cb41ca") == [*multipliers, ("s", old), of_outputs]
    of_int16 = ("s", 8 * 2 * 4 * strides[0] * 6 * strides[1] * 7)
    assert asked("TRANSPOSE_CONV", transpose(strides, channels, I16)) == [*multipliers, of_int16]


def test_transposed_convolutions_of_floats_hold_no_more_than_the_shape() -> None:
    def held(type: TensorType) -> int:
        view: Any = transpose((2, 2), 3, type)
        found = cmsis_nn.library().memory["TRANSPOSE_CONV"].prepare(view)
        return sum(isinstance(each, (TempInput, TempOutput)) for each in found)

    assert (held(I8), held(I16), held(F32)) == (6, 6, 3)
    assert asked("TRANSPOSE_CONV", transpose((2, 2), 3, F32)) == [("p", 28), ("p", 28)]


def fully_connected(dims: tuple[int, ...], depth: int = 8, **options: Any) -> Node:
    zero, cpu, type = options.pop("zero", 0), options.pop("cpu", "mve"), options.pop("type", I8)
    weights, bias = options.pop("weights", True), options.pop("bias", None)
    f = tensor(options.pop("filter", type), dims[-1], depth, constant=weights, zero=zero)
    x = tensor(type, *dims[:-1], depth, constant=False)
    inputs = [x, f, None if bias is None else tensor(TensorType.INT32, dims[-1], constant=bias)]
    return Node(cpu, inputs, tensor(type, *dims), None, options.pop("without", ()))


@pytest.mark.parametrize(
    ("node", "wanted"),
    [
        (fully_connected((2, 5)), [("p", 20)]),
        (fully_connected((2, 5), cpu="dsp"), []),
        (fully_connected((2, 5), weights=False), [("s", 20)]),
        (fully_connected((2, 5), bias=True), [("p", 20)]),
        (fully_connected((2, 5), bias=False), [("s", 20)]),
        (fully_connected((2, 5), bias=False, without=("11a8f50d9",)), [("p", 20)]),
        (fully_connected((2, 5), weights=False, without=("11a8f50d9",)), [("s", 20)]),
        (fully_connected((2, 5), weights=False, without=("11a8f50d9", "f5e498b68")), [("p", 20)]),
        (fully_connected((2, 5), zero=3), [("p", 20)]),
        (fully_connected((2, 5), zero=3, without=("11a8f50d9", "f5e498b68")), []),
        (fully_connected((2, 5), zero=3, without=("11a8f50d9", "f5e498b68", "a6e6ea182")), [("p", 20)]),
        (fully_connected((2, 5), filter=I4), []),
        (fully_connected((2, 5), filter=I4, without=("5beca7c52",)), [("p", 20), ("s", 40)]),
        (fully_connected((2, 5), filter=I4, without=("5beca7c52", "4f253e217")), [("p", 20)]),
        (fully_connected((2, 5), type=F32), []),
        (fully_connected((2, 3, 5)), [("s", 40)]),
        (fully_connected((2, 3, 5), cpu="none"), [("s", 40)]),
        (fully_connected((2, 3, 5), without=("47b545074",)), [("p", 20), ("p", 20)]),
        (fully_connected((2, 3, 5), 6), [("p", 20)]),
        (fully_connected((2, 3, 5), 6, cpu="dsp"), []),
    ],
)
def test_fully_connected(node: Node, wanted: list[tuple[str, int]]) -> None:
    assert asked("FULLY_CONNECTED", node) == wanted


def test_kernel_sums_by_build_and_version() -> None:
    node, before = fully_connected((2, 5)), fully_connected((2, 5), without=("5a46ab0e1",))
    assert asked("FULLY_CONNECTED", node, for_size=True) == [("s", 20)]
    assert asked("FULLY_CONNECTED", before, for_size=True) == [("p", 20)]
    assert asked("FULLY_CONNECTED", node, "58f17705") == [("p", 20)]
    assert asked("FULLY_CONNECTED", node, "23.08") == []


def test_a_build_for_size_keeps_the_index_of_another_scratch_buffer() -> None:
    def size(library: KernelLibrary) -> int:
        op_data = library.memory["SVDF"].op_data
        assert op_data is not None
        return library.layout(op_data, CORTEX_M)[0]

    assert size(cmsis_nn.library(for_size=True)) == size(cmsis_nn.library()) + 4


def svdf(cpu: str, type: TensorType, without: tuple[str, ...] = ()) -> Node:
    """Two images, 12 filters of 9 columns, 6 units."""
    inputs = [tensor(type, 2, 5), tensor(type, 12, 5), tensor(type, 12, 9), None, tensor(type, 2, 108)]
    return Node(cpu, inputs, tensor(type, 2, 6), SimpleNamespace(rank=2), without)


def test_svdf() -> None:
    sums = [("s", 4 * 2 * 12), ("s", 4 * 2 * 6)]
    assert asked("SVDF", svdf("mve", I8)) == [*sums, ("p", 48)]
    assert asked("SVDF", svdf("mve", I8), for_size=True) == [*sums, ("s", 48)]
    assert asked("SVDF", svdf("mve", I8, ("5a46ab0e1",)), for_size=True) == [*sums, ("p", 48)]
    assert asked("SVDF", svdf("mve", I8), "23.08") == asked("SVDF", svdf("dsp", I8)) == sums
    assert asked("SVDF", svdf("mve", F32)) == sums[:1]


@pytest.mark.parametrize(
    ("cpu", "type", "without", "wanted"),
    [
        ("dsp", I8, (), [("s", 20)]),
        ("dsp", I16, (), [("s", 20)]),
        ("dsp", I16, ("4b0314f25",), []),
        ("dsp", I8, ("4b0314f25",), [("s", 20)]),
        ("dsp", F32, (), []),
        ("none", I8, (), []),
        ("mve", I8, (), []),
    ],
)
def test_average_pools(cpu: str, type: TensorType, without: tuple[str, ...], wanted: list[tuple[str, int]]) -> None:
    node = Node(cpu, [tensor(type, 1, 4, 4, 5)], tensor(type, 1, 2, 2, 5), None, without)
    assert asked("AVERAGE_POOL_2D", node) == wanted
    assert asked("MAX_POOL_2D", node) == []


def lstm(type: TensorType, without: tuple[str, ...] = ()) -> Node:
    """Return an LSTM of three sequences and 5 units. Each weight has a different number of rows, to tell them apart."""
    rows = [tensor(type, 3, 7, 4), *(tensor(type, place, 4) for place in range(1, 18))]
    state = TensorType.INT16 if type != F32 else F32
    inputs = [*rows, tensor(type, 3, 5), tensor(state, 3, 5), *(None,) * 4]
    return Node("dsp", inputs, tensor(type, 3, 7, 5), None, without)


def test_lstm() -> None:
    name = "UNIDIRECTIONAL_SEQUENCE_LSTM"
    assert asked(name, lstm(I8)) == [("p", 20)] * 8 + [("s", 30)] * 3
    assert asked(name, lstm(I16)) == [("p", 40)] * 8 + [("s", 30)] * 3
    assert asked(name, lstm(F32)) == [("s", 60)] * 4
    rows = [("p", 4 * place) for place in (2, 2, 3, 3, 4, 4, 1, 1)]
    assert asked(name, lstm(I8, ("0ec823ed2",))) == rows + [("s", 30)] * 4
    assert asked(name, lstm(I16, ("0ec823ed2",))) == [("s", 30)] * 4
