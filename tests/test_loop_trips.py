"""How often loops of kernels run, against kernels that are walked loop by loop and counted."""

from __future__ import annotations

import itertools
import math
import random
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from tflm.firmware.loop_trips import PATHS, LoopShape, LoopTrips
from tflm.kernels.layers.geometry import Axis

Trips = Counter[str]
Walk = Callable[[LoopShape, Trips], None]


def parts(trips: Trips, name: str, length: int, *sizes: int) -> None:
    """Loops over parts of a length, from large to small."""
    for size in sizes:
        if length >= size:
            trips[f"{name}, by {size}, entered"] += 1
        while length >= size:
            trips[f"{name}, by {size}"] += 1
            length -= size


def windows(axis: Axis) -> list[list[bool]]:
    """Of each window, which of its taps lie in the image."""
    return [
        [0 <= place * axis.stride - axis.before + tap * axis.dilation < axis.size for tap in range(axis.taps)]
        for place in range(axis.windows)
    ]


def positions(layer: LoopShape) -> Iterator[tuple[list[bool], list[bool]]]:
    """Every window of every image, by rows and columns."""
    for _ in range(layer.output[0]):
        yield from itertools.product(windows(layer.rows), windows(layer.columns))


def chunks(length: int, size: int) -> int:
    return len(range(0, length, size))


# --- TFLM's own kernels ------------------------------------------------------------------------------------------


def conv_2d(layer: LoopShape, trips: Trips) -> None:
    for rows, columns in positions(layer):
        trips["positions"] += 1
        for _ in range(layer.output[3]):
            trips["outputs"] += 1
            for row in rows:
                trips["rows of windows"] += 1
                for column in columns:
                    trips["taps"] += 1
                    if row and column:
                        trips["taps inside"] += 1
                        trips["products"] += layer.inputs[1][3]


def depthwise_conv_2d(layer: LoopShape, trips: Trips) -> None:
    depth = layer.inputs[0][3]
    for rows, columns in positions(layer):
        trips["positions"] += 1
        for _ in range(depth):
            trips["channels of input"] += 1
            for _ in range(layer.output[3] // depth):
                trips["outputs"] += 1
                for row in rows:
                    trips["rows of windows"] += 1
                    for column in columns:
                        trips["taps"] += 1
                        trips["taps in rows inside"] += row
                        trips["taps in columns inside"] += column
                        trips["taps inside"] += row and column


def pool(layer: LoopShape, trips: Trips) -> None:
    for rows, columns in positions(layer):
        trips["positions"] += 1
        for _ in range(layer.output[3]):
            trips["outputs"] += 1
            trips["rows of windows"] += sum(rows)
            trips["taps inside"] += sum(rows) * sum(columns)


# --- CMSIS-NN ----------------------------------------------------------------------------------------------------


def convolve(layer: LoopShape, trips: Trips) -> None:
    batches, height, width, channels = layer.output
    depth = layer.inputs[1][3]
    for rows, columns in positions(layer):
        trips["columns"] += 1
        for row in rows:
            trips["rows of windows"] += 1
            for column in columns:
                inside = row and column
                trips["taps inside" if inside else "taps outside"] += 1
                if inside:
                    parts(trips, "bytes inside", depth, 64, 16, 4, 1)
                else:
                    parts(trips, "bytes outside", depth, 16, 4, 1)
        parts(trips, "columns widened", layer.rows.taps * layer.columns.taps * depth, 4, 1)
    length = len(windows(layer.rows)[0]) * len(windows(layer.columns)[0]) * depth
    for _ in range(batches):
        left = height * width
        while left >= 2:
            left -= 2
            trips["pairs of columns"] += 1
            if channels >= 2:
                trips["pairs of columns and channels, entered"] += 1
            for _ in range(channels // 2):
                trips["pairs of columns and channels"] += 1
                parts(trips, "pairs of columns and channels", length, 4, 1)
            if channels % 2:
                trips["pairs of columns, odd channel"] += 1
                parts(trips, "pairs of columns, odd channel", length, 4, 1)
        if left:
            for _ in range(channels):
                trips["odd column"] += 1
                parts(trips, "odd column", length, 4, 1)


def products(trips: Trips, rows: int, channels: int, depth: int) -> None:
    if channels >= 2:
        trips["pairs of channels, entered"] += 1
    for _ in range(channels // 2):
        trips["pairs of channels"] += 1
        trips["pairs of channels, sum"] += depth
        if rows >= 2:
            trips["pairs of rows, entered"] += 1
        for _ in range(rows // 2):
            trips["pairs of rows"] += 1
            parts(trips, "pairs of rows", depth, 16, 4, 1)
        if rows % 2:
            trips["odd row"] += 1
            parts(trips, "odd row", depth, 16, 4, 1)
    if channels % 2:
        trips["odd channel"] += 1
        for _ in range(rows):
            trips["odd channel, rows"] += 1
            trips["odd channel, products"] += depth


def mve_products(trips: Trips, rows: int, channels: int, depth: int) -> None:
    while rows >= 4:
        rows -= 4
        trips["four rows"] += 1
        for _ in range(channels):
            trips["four rows, channels"] += 1
            trips["four rows, vectors"] += chunks(depth, 16)
    if rows:
        trips["rows left over, entered"] += 1
    for _ in range(rows):
        trips["rows left over"] += 1
        for _ in range(channels):
            trips["rows left over, channels"] += 1
            trips["rows left over, vectors"] += chunks(depth, 16)
        trips["rows left over, four channels"] += channels // 4
        trips["rows left over, odd channels"] += channels % 4
        if channels % 4:
            trips["rows left over, odd channels, entered"] += 1


def pointwise(layer: LoopShape, trips: Trips, multiply: Callable[[Trips, int, int, int], None]) -> None:
    batches, height, width, channels = layer.output
    if layer.rows.stride == layer.columns.stride == 1:
        multiply(trips, batches * height * width, channels, layer.inputs[0][3])
        return
    for _ in range(batches * height):
        trips["rows of image"] += 1
        multiply(trips, width, channels, layer.inputs[0][3])


def depthwise_3x3(layer: LoopShape, trips: Trips) -> None:
    channels = layer.output[3]
    trips["rows"] += layer.output[1]
    for rows, columns in positions(layer):
        trips["positions"] += 1
        left, right = columns[0], columns[2]
        kind = {
            (True, True): "whole rows",
            (False, True): "rows without left",
            (True, False): "rows without right",
            (False, False): "rows of one place",
        }[left, right]
        for name, times in (("four channels", channels // 4), ("channels left over", channels % 4)):
            if times:
                trips[f"{name}, entered"] += 1
            for _ in range(times):
                trips[name] += 1
                trips[f"{name}, {kind}"] += sum(rows)


def depthwise_opt(layer: LoopShape, trips: Trips) -> None:
    channels = layer.output[3]
    for rows, columns in positions(layer):
        trips["positions"] += 1
        for row in rows:
            if not row:
                trips["bytes above and below"] += 2 * len(columns) * channels
                continue
            trips["rows inside"] += 1
            for column in columns:
                if column:
                    trips["taps inside"] += 1
                    parts(trips, "elements inside", channels, 4, 1)
                else:
                    trips["taps beside"] += 1
                    trips["bytes beside"] += 2 * channels
        taps = len(rows) * len(columns)
        if channels >= 4:
            trips["four channels, entered"] += 1
        for _ in range(channels // 4):
            trips["four channels"] += 1
            trips["four channels, two taps"] += taps // 2
            trips["four channels, odd tap"] += taps % 2
        if channels % 4:
            trips["channels left over, entered"] += 1
        for _ in range(channels % 4):
            trips["channels left over"] += 1
            trips["channels left over, taps"] += taps


def depthwise_any(layer: LoopShape, trips: Trips) -> None:
    batches, *_, channels = layer.output
    depth = layer.inputs[0][3]
    times = channels // depth
    if times % 4 == 0 and batches == 1 and layer.rows.dilation == layer.columns.dilation == 1:
        times //= 4
    for rows, columns in positions(layer):
        trips["positions"] += 1
        for _ in range(depth):
            trips["channels of input"] += 1
            for _ in range(times):
                trips["outputs"] += 1
                trips["outputs of dilated rows"] += layer.rows.dilation >= 2
                trips["outputs of dilated columns"] += layer.columns.dilation >= 2
                trips["rows inside"] += sum(rows)
                trips["taps inside"] += sum(rows) * sum(columns)


def average_pool(layer: LoopShape, trips: Trips) -> None:
    for rows, columns in positions(layer):
        trips["positions"] += 1
        trips["outputs"] += layer.output[3]
        trips["rows inside"] += sum(rows)
        trips["later taps"] += sum(rows) * sum(columns) - 1
        trips["later elements"] += (sum(rows) * sum(columns) - 1) * layer.output[3]


def max_pool(layer: LoopShape, trips: Trips) -> None:
    channels = layer.output[3]
    for rows, columns in positions(layer):
        trips["positions"] += 1
        trips["rows inside"] += sum(rows)
        trips["bytes copied"] += channels
        for _ in range(sum(rows) * sum(columns) - 1):
            trips["later taps"] += 1
            parts(trips, "later elements", channels, 4, 1)
    for _ in range(layer.output[0]):
        parts(trips, "clamped", math.prod(layer.output[1:]), 4, 1)


def mve_average_pool(layer: LoopShape, trips: Trips) -> None:
    vectors = chunks(layer.output[3], 16)
    for rows, columns in positions(layer):
        trips["positions"] += 1
        trips["vectors"] += vectors
        trips["outputs"] += layer.output[3]
        trips["rows inside"] += sum(rows) * vectors
        trips["taps inside"] += sum(rows) * sum(columns)
        trips["vectors inside"] += sum(rows) * sum(columns) * vectors


def mve_max_pool(layer: LoopShape, trips: Trips) -> None:
    vectors = chunks(layer.output[3], 16)
    for rows, columns in positions(layer):
        trips["positions"] += 1
        trips["vectors copied"] += vectors
        trips["rows inside"] += sum(rows)
        trips["later taps"] += sum(rows) * sum(columns) - 1
        trips["later vectors"] += (sum(rows) * sum(columns) - 1) * vectors
    trips["vectors clamped"] += layer.output[0] * chunks(math.prod(layer.output[1:]), 16)


def count_window(trips: Trips, rows: list[bool], columns: list[bool], vectors: int) -> None:
    """Count the taps of one window, inside and outside of the input, each of so many vectors."""
    for row in rows:
        trips["rows of windows"] += 1
        for column in columns:
            where = "inside" if row and column else "outside"
            trips[f"taps {where}"] += 1
            trips[f"vectors {where}"] += vectors


def mve_columns(layer: LoopShape, trips: Trips, depth: int) -> None:
    for rows, columns in positions(layer):
        trips["columns"] += 1
        count_window(trips, rows, columns, chunks(depth, 16))
    batches, height, width, channels = layer.output
    for _ in range(batches):
        mve_products(trips, height * width, channels, layer.rows.taps * layer.columns.taps * depth)


def mve_depthwise(layer: LoopShape, trips: Trips) -> None:
    channels = layer.output[3]
    for first in range(0, channels, 124):
        block = min(channels - first, 124)
        trips["blocks"] += 1
        gathered = 0
        for rows, columns in positions(layer):
            trips["positions"] += 1
            count_window(trips, rows, columns, chunks(block, 16))
            gathered += 1
            if gathered == 4:
                gathered = 0
                trips["four positions"] += 1
                trips["four positions, four channels"] += chunks(block, 4)
                trips["four positions, four channels, taps"] += chunks(block, 4) * len(rows) * len(columns)
        taps = layer.rows.taps * layer.columns.taps
        trips["positions left over, four channels"] += gathered * chunks(block, 4)
        trips["positions left over, four channels, taps"] += gathered * chunks(block, 4) * taps


# --- Layers ------------------------------------------------------------------------------------------------------


def axis(dice: random.Random, taps: int, dilation: int, stride: int) -> Axis:
    size, covered = dice.randint(1, 7), (taps - 1) * dilation + 1
    if size >= covered and dice.random() < 0.5:
        return Axis(size, taps, (size - covered) // stride + 1, stride, dilation)
    count = -(-size // stride)
    return Axis(size, taps, count, stride, dilation, max((count - 1) * stride + covered - size, 0) // 2)


def layers(operator: str, count: int, seed: int = 0) -> Iterator[LoopShape]:
    """Random ones, whose channels and windows lie on both sides of what kernels have code of their own for."""
    dice = random.Random(f"{operator}{seed}")
    for _ in range(count):
        batches, small = dice.choice([1, 1, 1, 2]), dice.random() < 0.4
        dilations = (1, 1) if dice.random() < 0.75 else dice.choice([(2, 1), (1, 2), (2, 2)])
        taps = dice.choice([(1, 1), (3, 3)]) if small else (dice.randint(1, 5), dice.randint(1, 5))
        if operator.endswith("POOL_2D"):
            dilations = (1, 1)
        rows, columns = (axis(dice, t, d, dice.choice([1, 1, 2])) for t, d in zip(taps, dilations))
        depth = dice.choice([1, 2, 3, 4, 5, 8, 15, 16, 17, 20])
        channels = dice.choice([1, 2, 3, 4, 5, 6, 7, 9])
        filter: tuple[int, ...] = (channels, *taps, depth)
        if operator == "DEPTHWISE_CONV_2D":
            channels = depth * dice.choice([1, 1, 1, 2, 3, 4, 5, 8])
            filter = (1, *taps, channels)
        elif operator.endswith("POOL_2D"):
            channels = depth
        elif dice.random() < 0.25:
            depth = dice.choice([63, 64, 65, 85])
            filter = (channels, *taps, depth)
        image = (batches, rows.size, columns.size, depth)
        yield LoopShape(operator, (image, filter), (batches, rows.windows, columns.windows, channels), rows, columns)


def check(found: LoopTrips | None, path: str, layer: LoopShape, walk: Walk) -> None:
    trips: Trips = Counter({"call": 1})
    walk(layer, trips)
    assert found is not None, layer
    assert found.path == path, layer
    assert +Counter(found.trips) == +trips, layer
    assert trips.keys() - {name for name, times in trips.items() if not times} <= found.trips.keys()


def is_pointwise(layer: LoopShape) -> bool:
    return all(a.taps == a.dilation == 1 and a.before == 0 for a in (layer.rows, layer.columns))


@pytest.mark.parametrize(
    ("operator", "walk"),
    [
        ("CONV_2D", conv_2d),
        ("DEPTHWISE_CONV_2D", depthwise_conv_2d),
        ("AVERAGE_POOL_2D", pool),
        ("MAX_POOL_2D", pool),
    ],
)
def test_windows_of_the_reference(operator: str, walk: Walk) -> None:
    for layer in layers(operator, 40):
        check(PATHS["reference"][operator](layer), operator.lower(), layer, walk)
        if operator == "AVERAGE_POOL_2D":
            check(PATHS["cmsis-nn/none"][operator](layer), operator.lower(), layer, walk)


@pytest.mark.parametrize("kind", ["dsp", "none"])
def test_conv_2d_of_cmsis_nn(kind: str) -> None:
    for layer in layers("CONV_2D", 80):
        found = PATHS[f"cmsis-nn/{kind}"]["CONV_2D"](layer)
        if is_pointwise(layer):
            check(found, "conv_2d, 1x1", layer, lambda layer, trips: pointwise(layer, trips, products))
        else:
            check(found, "conv_2d, columns", layer, convolve)


def test_conv_2d_with_helium() -> None:
    seen = Counter[str]()
    rows = [
        LoopShape("CONV_2D", ((1, height, 9, depth), (3, 1, 3, depth)), (1, height, columns.windows, 3), row, columns)
        for height, depth in itertools.product((1, 2), (2, 3, 4, 6))
        for row in [Axis(height, 1, height)]
        for columns in (Axis(9, 3, 7), Axis(9, 3, 4, 2), Axis(9, 3, 5, 1, 2))
    ]
    for layer in itertools.chain(layers("CONV_2D", 120), rows):
        depth = layer.inputs[0][3]
        found = PATHS["cmsis-nn/mve"]["CONV_2D"](layer)
        one_row = layer.rows.size == layer.rows.taps == layer.columns.dilation == 1
        if is_pointwise(layer):
            check(found, "conv_2d, 1x1", layer, lambda layer, trips: pointwise(layer, trips, mve_products))
        elif one_row and layer.columns.stride * depth % 4 == 0:
            assert found is None
            seen["one row"] += 1
        else:
            check(found, "conv_2d, columns", layer, lambda layer, trips: mve_columns(layer, trips, layer.inputs[0][3]))
            seen["one row, not in words"] += one_row
    assert all(seen.values())
    assert len(seen) == 2


def test_grouped_convolutions_have_no_count() -> None:
    for padded in (0, 1):
        rows = Axis(4, 1 + 2 * padded, 4, before=padded)
        layer = LoopShape("CONV_2D", ((1, 4, 4, 6), (4, rows.taps, rows.taps, 3)), (1, 4, 4, 4), rows, rows)
        assert all(PATHS[kind]["CONV_2D"](layer) is None for kind in PATHS)


def kept(layer: LoopShape) -> bool:
    dilated = (layer.rows.dilation, layer.columns.dilation) != (1, 1)
    return layer.inputs[0][3] == layer.output[3] and layer.output[0] == 1 and not dilated


def any_path(layer: LoopShape) -> str:
    batches, *_, channels = layer.output
    dilated = (layer.rows.dilation, layer.columns.dilation) != (1, 1)
    fours = channels // layer.inputs[0][3] % 4 == 0 and batches == 1 and not dilated
    return f"depthwise_conv_2d, {'by fours' if fours else 'any'}"


def test_depthwise_conv_2d_of_cmsis_nn() -> None:
    seen = set()
    wide = Axis(9, 3, 9, before=1), Axis(9, 3, 5, 2, before=2)
    more = [LoopShape("DEPTHWISE_CONV_2D", ((1, 9, 9, 5), (1, 3, 3, 5)), (1, *(a.windows for a in pair), 5), *pair)
            for pair in itertools.product(wide, wide)]  # fmt: skip
    for layer in itertools.chain(layers("DEPTHWISE_CONV_2D", 200), more):
        dsp, none = (PATHS[f"cmsis-nn/{kind}"]["DEPTHWISE_CONV_2D"](layer) for kind in ("dsp", "none"))
        small = layer.rows.taps == layer.columns.taps == 3 and layer.rows.before <= 1 >= layer.columns.before
        if kept(layer) and small:
            for found in (dsp, none):
                check(found, "depthwise_conv_2d, 3x3", layer, depthwise_3x3)
        elif kept(layer):
            check(dsp, "depthwise_conv_2d, any window", layer, depthwise_opt)
            check(none, any_path(layer), layer, depthwise_any)
        else:
            for found in (dsp, none):
                check(found, any_path(layer), layer, depthwise_any)
        assert dsp is not None
        seen.add(dsp.path)
    assert len(seen) == 4


def test_depthwise_conv_2d_with_helium() -> None:
    seen = set()
    pair = Axis(3, 2, 3, before=0), Axis(4, 2, 3)
    blocks = [
        LoopShape("DEPTHWISE_CONV_2D", ((1, 3, 4, channels), (1, 2, 2, channels)), (1, 3, 3, channels), *pair)
        for channels in (123, 124, 125, 126, 248, 260)
    ]

    def of_one(layer: LoopShape, trips: Trips) -> None:
        trips["transposed"] += math.prod(layer.inputs[1])
        mve_columns(layer, trips, 1)

    for layer in itertools.chain(layers("DEPTHWISE_CONV_2D", 200), blocks):
        found = PATHS["cmsis-nn/mve"]["DEPTHWISE_CONV_2D"](layer)
        if layer.inputs[0][3] == 1 and layer.output[3] >= 2:
            check(found, "depthwise_conv_2d, of one channel", layer, of_one)
        elif kept(layer):
            check(found, "depthwise_conv_2d, any window", layer, mve_depthwise)
        else:
            check(found, any_path(layer), layer, depthwise_any)
        assert found is not None
        seen.add(found.path)
    assert len(seen) == 4


@pytest.mark.parametrize(
    ("kind", "operator", "walk"),
    [
        ("dsp", "AVERAGE_POOL_2D", average_pool),
        ("dsp", "MAX_POOL_2D", max_pool),
        ("none", "MAX_POOL_2D", max_pool),
        ("mve", "AVERAGE_POOL_2D", mve_average_pool),
        ("mve", "MAX_POOL_2D", mve_max_pool),
    ],
)
def test_pools_of_cmsis_nn(kind: str, operator: str, walk: Walk) -> None:
    for layer in layers(operator, 60):
        check(PATHS[f"cmsis-nn/{kind}"][operator](layer), operator.lower(), layer, walk)


# --- Without windows ---------------------------------------------------------------------------------------------


def fully_connected(kind: str) -> Walk:
    def walk(layer: LoopShape, trips: Trips) -> None:
        channels, depth = layer.inputs[1]
        for _ in range(math.prod(layer.output[:-1])):
            trips["batches"] += 1
            if kind == "reference":
                trips["outputs"] += channels
                trips["products"] += channels * depth
            elif kind == "none":
                trips["three channels"] += channels // 3
                trips["three channels, products"] += channels // 3 * depth
                trips["channels left over"] += channels % 3
                trips["channels left over, products"] += channels % 3 * depth
            elif kind == "dsp":
                trips["pairs of channels, entered"] += channels >= 2
                for _ in range(channels // 2):
                    trips["pairs of channels"] += 1
                    parts(trips, "pairs of channels", depth, 32, 4, 1)
                if channels % 2:
                    trips["odd channel"] += 1
                    parts(trips, "odd channel", depth, 4, 1)
            else:
                for name, times in (("four channels", channels // 4), ("channels left over", channels % 4)):
                    trips[name] += times
                    trips[f"{name}, entered"] += times > 0
                    trips[f"{name}, vectors"] += times * chunks(depth, 16)

    return walk


@pytest.mark.parametrize("kind", ["reference", "none", "dsp", "mve"])
def test_fully_connected(kind: str) -> None:
    path = PATHS["reference" if kind == "reference" else f"cmsis-nn/{kind}"]["FULLY_CONNECTED"]
    for batches, depth, channels in itertools.product(
        ((1,), (3,), (2, 3), (2, 1, 2)), (1, 4, 15, 16, 17, 18, 20, 32, 36, 39), (1, 2, 3, 4, 5, 7)
    ):
        layer = LoopShape("FULLY_CONNECTED", ((*batches, depth), (channels, depth)), (*batches, channels))
        if kind != "reference" and len(batches) > 1 and depth % 4 == 0:
            multiply = mve_products if kind == "mve" else products
            rows = math.prod(batches)
            check(
                path(layer),
                "conv_2d, 1x1",
                layer,
                lambda layer, trips, rows=rows, multiply=multiply: multiply(  # type: ignore[misc]
                    trips, rows, layer.output[-1], layer.inputs[1][1]
                ),
            )
        else:
            check(path(layer), "fully_connected", layer, fully_connected(kind))


@pytest.mark.parametrize("shape", [(1,), (3,), (4,), (5,), (2, 3), (2, 2, 4), (1, 3, 3, 5)])
def test_elements(shape: tuple[int, ...]) -> None:
    count = math.prod(shape)
    for kind, paths in PATHS.items():
        for operator in ("ADD", "MUL"):
            trips: Trips = Counter({"call": 1})
            if kind == "reference":
                trips["outputs"] = count
            elif kind == "cmsis-nn/mve":
                trips["vectors"] = chunks(count, 4)
            else:
                parts(trips, "outputs", count, 4, 1)
            found = paths[operator](LoopShape(operator, (shape, shape), shape))
            assert found is not None
            assert (found.path, +Counter(found.trips)) == (operator.lower(), trips)
            assert paths[operator](LoopShape(operator, (shape, (1, *shape)), (1, *shape))) is None
        one = {"call": 1, "outputs": count}
        assert paths["SOFTMAX"](LoopShape("SOFTMAX", (shape,), shape)) == (
            "softmax",
            one | {"rows": count // shape[-1]},
        )
        for operator in ("DEQUANTIZE", "LEAKY_RELU"):
            assert paths[operator](LoopShape(operator, (shape,), shape)) == (operator.lower(), one)
        for types, name in ((("float32", "int8"), "float32"), (("int8", "int16"), "integers")):
            assert paths["QUANTIZE"](LoopShape("QUANTIZE", (shape,), shape, types=types)) == (f"quantize, {name}", one)


def pads(count: int) -> Iterator[LoopShape]:
    dice = random.Random(count)
    for number in range(count):
        rank = dice.choice([1, 2, 3, 4, 4, 4])
        shape = tuple(dice.choice([1, 2, 3, 4, 8]) for _ in range(rank))
        around = [(dice.choice([0, 0, 1, 2, 4, 5]), dice.choice([0, 1, 3, 4])) for _ in range(rank)]
        if number % 2:
            around[-1] = (0, 0)
        output = tuple(size + before + after for size, (before, after) in zip(shape, around))
        yield LoopShape("PAD", (shape,), output, paddings=tuple(around))


def cmsis_pad(layer: LoopShape, trips: Trips) -> None:
    missing = 4 - len(layer.output)
    image, around = (1,) * missing + layer.inputs[0], ((0, 0),) * missing + layer.paddings
    outer = (1,) * missing + layer.output
    whole = image[3] == outer[3]

    def fill(size: int) -> None:
        trips["fills"] += size > 0
        trips["filled, by 4"] += size // 4
        trips["filled, by 1"] += size % 4

    def copy(size: int, in_words: bool) -> None:
        parts(trips, "copied", size, 16, 4, 1)
        trips["copied"] += size
        trips["copied, unaligned"] += 0 if in_words else size

    words = image[3] % 4 == outer[3] % 4 == 0
    for side in (0, 1):
        fill(around[0][side] * math.prod(outer[1:]))
        for _ in range(image[0]):
            fill(around[1][side] * outer[2] * outer[3])
            for _ in range(image[1]):
                fill(around[2][side] * outer[3])
                for _ in range(0 if whole else image[2]):
                    fill(around[3][side])
    trips["batches"] += image[0]
    for _ in range(image[0] * image[1]):
        trips["rows"] += 1
        if whole:
            copy(image[2] * image[3], words)
        for _ in range(0 if whole else image[2]):
            trips["positions"] += 1
            copy(image[3], words and around[3][0] % 4 == 0)


def test_pads() -> None:
    for layer in pads(150):
        missing = 4 - len(layer.output)
        batches, rows, columns, depth = (1,) * missing + layer.output
        copied = math.prod(layer.inputs[0])
        wanted = {
            "call": 1,
            "rows": batches * rows,
            "positions": batches * rows * columns,
            "copied": copied,
            "filled": batches * rows * columns * depth - copied,
        }
        assert PATHS["reference"]["PAD"](layer) == ("pad", wanted)
        whole = layer.inputs[0][-1] == layer.output[-1]
        for kind in ("none", "dsp", "mve"):
            check(PATHS[f"cmsis-nn/{kind}"]["PAD"](layer), f"pad, {'rows' if whole else 'positions'}", layer, cmsis_pad)
    for kind in PATHS:
        assert PATHS[kind]["PAD"](LoopShape("PAD", ((1,) * 5,), (1,) * 5, paddings=((0, 0),) * 5)) is None
