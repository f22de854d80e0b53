"""Compare the overlaps that are declared for CMSIS-NN's loops with traces of their reads and writes.

`make overlaps` compares answers of the kernels themselves.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from differential import run
from test_planning import some_inputs

import tflm
from tflm import libraries
from tflm.kernels import REGISTRATIONS
from tflm.kernels.layers.geometry import windows
from tflm.kernels.overlap import OperatorFacts, TensorFacts
from tflm.libraries.kernel_library import overlap_allowed_by
from tflm.schema import Conv2DOptions, DepthwiseConv2DOptions, Padding, Pool2DOptions, TensorType
from tflm.targets import by_name

PARTS = ("cortex-m3", "cortex-m4", "cortex-m55")
"""Without any extension, with DSP, with Helium."""

Access = tuple[str, int]
"""Whether a byte is read from the input or written to the output, and which."""


def distance_needed(accesses: Iterable[Access]) -> int | None:
    """Return the smallest distance of the input after the output's start at which nothing is read after it is
    overwritten."""
    written, needed = -1, None
    for kind, address in accesses:
        if kind == "write":
            written = max(written, address)
        elif written >= 0:
            needed = max(written - address + 1, needed if needed is not None else written - address + 1)
    return needed


class Loops:
    """The loops of a kernel."""

    def __init__(self, facts: OperatorFacts):
        x, both = facts.inputs[0], windows(facts)
        assert x is not None
        assert both is not None
        self.places, self.channels, self.depth = [], facts.outputs[0].dims[3], x.dims[3]
        (rows, columns), (batches, height, width, _) = both, x.dims
        for image, row, column in itertools.product(range(batches), range(rows.windows), range(columns.windows)):
            taps = [
                ((image * height + i) * width + j) * self.depth
                for i in (row * rows.stride - rows.before + t * rows.dilation for t in range(rows.taps))
                for j in (column * columns.stride - columns.before + t * columns.dilation for t in range(columns.taps))
                if 0 <= i < height and 0 <= j < width
            ]
            self.places.append(taps)

    def read(self, window: int, channels: Iterable[int]) -> Iterator[Access]:
        return (("read", tap + c) for tap, c in itertools.product(self.places[window], channels))

    def write(self, window: int, channels: Iterable[int]) -> Iterator[Access]:
        return (("write", window * self.channels + c) for c in channels)


def windows_copied(loops: Loops, at_once: int = 1) -> Iterator[Access]:
    """Copy this many windows before any of their outputs is written."""
    for first in range(0, len(loops.places), at_once):
        block = range(first, min(first + at_once, len(loops.places)))
        for window in block:
            yield from loops.read(window, range(loops.depth))
        for window in block:
            yield from loops.write(window, range(loops.channels))


def channels_outermost(loops: Loops) -> Iterator[Access]:
    """For each two channels, all windows."""
    for channel in range(0, loops.channels, 2):
        for window in range(len(loops.places)):
            yield from loops.read(window, range(loops.depth))
            yield from loops.write(window, range(channel, min(channel + 2, loops.channels)))


def blocks_of_four(loops: Loops, run: int) -> Iterator[Access]:
    """Four windows for each channel; those that are left at the end of a run one after the other."""
    first = 0
    while first < len(loops.places):
        block = range(first, first + (4 if run - first % run >= 4 else 1))
        for channel in range(loops.channels):
            for window in block:
                yield from loops.read(window, range(loops.depth))
            for window in block:
                yield from loops.write(window, [channel])
        first = block.stop


def groups_of_channels(loops: Loops, at_once: int) -> Iterator[Access]:
    """Compute this many channels of a window at a time."""
    multiplier = loops.channels // loops.depth
    for window, first in itertools.product(range(len(loops.places)), range(0, loops.channels, at_once)):
        group = range(first, min(first + at_once, loops.channels))
        yield from loops.read(window, sorted({c // multiplier for c in group}))
        yield from loops.write(window, group)


def largest_so_far(loops: Loops) -> Iterator[Access]:
    """The output has the largest of the taps that were read."""
    for window, taps in enumerate(loops.places):
        for tap in taps:
            yield from (("read", tap + c) for c in range(loops.channels))
            yield from loops.write(window, range(loops.channels))


def int8(*dims: int) -> TensorFacts:
    return TensorFacts(TensorType.INT8, dims)


def operator(
    name: str,
    sizes: tuple[int, int, int, int],
    channels: int,
    taps: tuple[int, int],
    strides: tuple[int, int] = (1, 1),
    padding: Padding = Padding.SAME,
) -> OperatorFacts:
    """A convolution or a pool of int8, as a model declares it."""
    n, height, width, depth = sizes
    common: dict[str, Any] = {"padding": padding, "stride_h": strides[0], "stride_w": strides[1]}
    same = padding is Padding.SAME
    rows, columns = (
        -(-size // stride) if same else (size - tap) // stride + 1
        for size, tap, stride in zip((height, width), taps, strides)
    )
    x, y = int8(*sizes), int8(n, rows, columns, channels)
    if "POOL" in name:
        return OperatorFacts([x], [y], Pool2DOptions(**common, filter_height=taps[0], filter_width=taps[1]))
    if name == "CONV_2D":
        return OperatorFacts([x, int8(channels, *taps, depth)], [y], Conv2DOptions(**common))
    multiplier = channels // depth
    return OperatorFacts(
        [x, int8(1, *taps, channels)], [y], DepthwiseConv2DOptions(**common, depth_multiplier=multiplier)
    )


def some_operator(rng: random.Random, name: str, taps: tuple[int, int]) -> OperatorFacts:
    depth = rng.randint(1, 9)
    channels = rng.randint(1, 9) if name == "CONV_2D" else depth
    sizes = rng.choice((1, 2)), rng.randint(taps[0], 6), rng.randint(max(taps[1], 2), 7), depth
    strides = rng.randint(1, 2), rng.randint(1, 2)
    return operator(name, sizes, channels, taps, strides, rng.choice((Padding.SAME, Padding.VALID)))


def declared(name: str, part: str, facts: OperatorFacts, kernels: str = "cmsis-nn") -> range:
    return libraries.by_name(kernels).allowed_overlap(REGISTRATIONS[name], by_name(part), facts, 0)


def run_of(facts: OperatorFacts) -> int:
    """Windows that the product of matrices for Helium takes at once: with strides, those of a row of the image."""
    both, y = windows(facts), facts.outputs[0]
    assert both is not None
    return y.dims[2] if max(axis.stride for axis in both) > 1 else y.dims[0] * y.dims[1] * y.dims[2]


ORDERS: dict[tuple[str, str, tuple[int, int]], Callable[[OperatorFacts], Iterator[Access]]] = {
    ("cortex-m3", "CONV_2D", (3, 3)): lambda facts: windows_copied(Loops(facts), 2),
    ("cortex-m4", "CONV_2D", (3, 2)): lambda facts: windows_copied(Loops(facts), 2),
    ("cortex-m55", "CONV_2D", (3, 3)): lambda facts: windows_copied(Loops(facts), 4),
    ("cortex-m55", "CONV_2D", (1, 1)): lambda facts: blocks_of_four(Loops(facts), run_of(facts)),
    ("cortex-m3", "DEPTHWISE_CONV_2D", (3, 3)): lambda facts: groups_of_channels(Loops(facts), 4),
    ("cortex-m3", "DEPTHWISE_CONV_2D", (2, 3)): lambda facts: groups_of_channels(Loops(facts), 1),
    ("cortex-m4", "DEPTHWISE_CONV_2D", (3, 3)): lambda facts: groups_of_channels(Loops(facts), 4),
    ("cortex-m4", "DEPTHWISE_CONV_2D", (5, 2)): lambda facts: windows_copied(Loops(facts)),
    ("cortex-m55", "DEPTHWISE_CONV_2D", (3, 3)): lambda facts: windows_copied(Loops(facts), 4),
    **{(part, "MAX_POOL_2D", (2, 2)): lambda facts: largest_so_far(Loops(facts)) for part in PARTS},
    ("cortex-m3", "AVERAGE_POOL_2D", (2, 3)): lambda facts: groups_of_channels(Loops(facts), 1),
    ("cortex-m4", "AVERAGE_POOL_2D", (2, 3)): lambda facts: windows_copied(Loops(facts)),
    ("cortex-m55", "AVERAGE_POOL_2D", (2, 3)): lambda facts: groups_of_channels(Loops(facts), 16),
}
"""By part, operator and window, what a kernel reads and writes."""


@pytest.mark.parametrize(("part", "name", "taps"), ORDERS)
def test_no_byte_is_read_after_an_output_is_written_over_it(part: str, name: str, taps: tuple[int, int]) -> None:
    rng = random.Random(0)
    gains = 0
    for _ in range(40):
        facts = some_operator(rng, name, taps)
        allowed = declared(name, part, facts)
        needed = distance_needed(ORDERS[part, name, taps](facts))
        if needed is not None and allowed:
            assert allowed.start >= needed, facts
            gains += allowed.start < facts.outputs[0].bytes
    assert gains > 10


@pytest.mark.parametrize("strides", [(1, 1), (2, 1), (1, 2), (2, 2)])
@pytest.mark.parametrize("width", [3, 4, 6, 8, 14])
def test_four_windows_at_once_need_exactly_what_is_declared(strides: tuple[int, int], width: int) -> None:
    facts = operator("CONV_2D", (1, 4, width, 8), 12, (1, 1), strides)
    needed = distance_needed(blocks_of_four(Loops(facts), run_of(facts)))
    assert declared("CONV_2D", "cortex-m55", facts).start == needed


@pytest.mark.parametrize("part", ["cortex-m0", "cortex-m3", "cortex-m4", "cortex-m33"])
def test_a_pointwise_convolution_without_helium_reads_its_whole_input_again(part: str) -> None:
    facts = operator("CONV_2D", (1, 6, 6, 8), 8, (1, 1))
    needed = distance_needed(channels_outermost(Loops(facts)))
    assert needed is not None
    assert needed > facts.outputs[0].bytes - 8
    assert not declared("CONV_2D", part, facts)


def with_types(facts: OperatorFacts, type: TensorType) -> OperatorFacts:
    inputs = [tensor and tensor._replace(type=type) for tensor in facts.inputs]
    return facts._replace(inputs=inputs, outputs=[facts.outputs[0]._replace(type=type)])


UNKNOWN = {
    "int16": with_types(operator("CONV_2D", (1, 6, 6, 8), 8, (3, 3)), TensorType.INT16),
    "groups": operator("CONV_2D", (1, 6, 6, 8), 8, (3, 3))._replace(inputs=[int8(1, 6, 6, 8), int8(8, 3, 3, 4)]),
    "one row": operator("CONV_2D", (1, 1, 32, 8), 8, (1, 5)),
}


@pytest.mark.parametrize("what", UNKNOWN)
def test_nothing_is_allowed_where_nothing_is_known(what: str) -> None:
    assert REGISTRATIONS["CONV_2D"].overlap is not None
    assert REGISTRATIONS["CONV_2D"].overlap(UNKNOWN[what], 0)
    assert not declared("CONV_2D", "cortex-m55", UNKNOWN[what])


def test_helium_goes_over_the_image_once_for_each_block_of_channels() -> None:
    one, two = (operator("DEPTHWISE_CONV_2D", (1, 6, 6, c), c, (3, 3)) for c in (124, 125))
    assert declared("DEPTHWISE_CONV_2D", "cortex-m55", one)
    assert not declared("DEPTHWISE_CONV_2D", "cortex-m55", two)
    assert declared("DEPTHWISE_CONV_2D", "cortex-m4", two)


def test_versions_that_were_not_run_allow_nothing() -> None:
    facts = operator("AVERAGE_POOL_2D", (1, 6, 6, 8), 8, (2, 2), (2, 2))
    assert declared("AVERAGE_POOL_2D", "cortex-m55", facts, "cmsis-nn@24.02")
    assert not declared("AVERAGE_POOL_2D", "cortex-m55", facts, "cmsis-nn@v5.0.0")


def test_a_plan_for_several_parts_allows_what_all_of_them_allow() -> None:
    facts = operator("CONV_2D", (1, 6, 6, 8), 8, (1, 1))
    kernels = libraries.by_name("cmsis-nn")
    both = overlap_allowed_by([(by_name(part), kernels) for part in ("cortex-m4", "cortex-m55")])
    assert declared("CONV_2D", "cortex-m55", facts)
    assert not both(REGISTRATIONS["CONV_2D"], facts, 0)


def test_floats_are_left_to_the_kernels_of_tflm() -> None:
    facts = with_types(operator("CONV_2D", (1, 6, 6, 8), 8, (1, 1)), TensorType.FLOAT32)
    assert declared("CONV_2D", "cortex-m4", facts) == declared("CONV_2D", "cortex-m4", facts, "reference") != range(0)


def test_no_library_allows_more_than_the_kernels_of_this_package() -> None:
    rng = random.Random(0)
    for part, (_, name, taps) in itertools.product(PARTS, ORDERS):
        facts = some_operator(rng, name, taps)
        library, reference = (declared(name, part, facts, kernels) for kernels in ("cmsis-nn", "reference"))
        assert not library or library.start >= reference.start


def test_a_plan_for_helium_lets_outputs_reach_into_inputs(corpus: Path) -> None:
    model = tflm.Model.from_file(corpus / "models" / "person_detect.tflite")
    plain, overlapping, dsp = (
        tflm.plan(model, target=by_name(part), kernels="cmsis-nn", overlap=overlap)
        for part, overlap in (("cortex-m55", None), ("cortex-m55", "cmsis-nn"), ("cortex-m4", True))
    )
    assert overlapping.head_bytes < 0.9 * plain.head_bytes
    assert dsp.head_bytes == plain.head_bytes  # 1x1 convolutions
    inputs = [some_inputs(bytes(model.data), 0)]
    np.testing.assert_array_equal(run(overlapping.data, inputs), run(bytes(model.data), inputs))


@pytest.mark.parametrize(
    ("overlap", "message"), [("cmsis-nn", "another kernel library"), ("esp-nn", "order of"), (True, "order of")]
)
def test_overlap_is_for_the_library_of_the_firmware_if_its_loops_are_known(overlap: str | bool, message: str) -> None:
    builder = tflm.ModelBuilder()
    main = builder.subgraph()
    main.output(main.input("x", (1, 4), TensorType.INT8))
    with pytest.raises(tflm.ArgumentError, match=message):
        tflm.plan(tflm.Model(builder.build()), target=by_name("esp32s3"), kernels="esp-nn", overlap=overlap)


@pytest.mark.parametrize(("kernels", "shares"), [("reference", True), ("esp-nn", False)])
def test_in_place_outputs_are_those_that_the_library_declares(kernels: str, shares: bool) -> None:
    builder = tflm.ModelBuilder()
    main = builder.subgraph()
    x = main.input("x", (1, 64), TensorType.FLOAT32)
    y, z = (main.tensor(name, (1, 64), TensorType.FLOAT32) for name in "yz")
    for before, after in ((x, y), (y, z)):
        main.operator(tflm.schema.BuiltinOperator.RELU, [before], [after])
    main.output(z)
    plan = tflm.plan(tflm.Model(builder.build()), target=by_name("esp32s3"), kernels=kernels, in_place=True)
    assert bool(plan.overwritten) == shares
