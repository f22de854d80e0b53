"""DEPTHWISE_CONV_2D of 8 bits with a dot product of four bytes: the taps of a column are the four bytes of a unit.

A tile has 64 channels of one position, or fewer channels of several positions below each other, so that they fill four
vectors. It moves along the columns of the image. The rows of each column are interleaved to units once, and stay in
registers for all windows that read the column.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from tflm.compiler.language import Int64s, Step, emitted
from tflm.delegates.compiled.bands import bands_of, together
from tflm.delegates.compiled.images import Image
from tflm.delegates.compiled.scaling import Scaling, copied
from tflm.delegates.compiled.tiles import (
    ChannelConstants,
    Epilogue,
    EpilogueForm,
    OutputLimits,
    Value,
    Writer,
    channel_order,
    lanes,
)
from tflm.kernels.layers.geometry import Axis, Windows

VECTORS = 4
ROWS = 4
"""Maximum number of rows of a window: the number of bytes in a unit."""

MAX_COLUMNS = 4
MIN_CHANNELS = 8
"""The number of channels of a layer must be a multiple of this."""


def fits_columns(rows: Axis, columns: Axis, channels: int, image: Image, scaling: Scaling) -> bool:
    """Whether `bind_columns` supports such a layer."""
    is_small = 1 < rows.taps <= ROWS and columns.stride < columns.taps <= MAX_COLUMNS and columns.dilation == 1
    of_bytes = image.unit == "bytes" and scaling.bits == 8 and lanes() == 16
    return of_bytes and is_small and channels % MIN_CHANNELS == 0


def bind_columns(
    x: npt.NDArray[Any], axes: Windows, weights: npt.NDArray[Any], image: Image, scaling: Scaling, y: npt.NDArray[Any]
) -> list[Step]:
    """Return the steps that set y to the windows of x times the weights of each channel; arguments as in
    `bind_channelwise`."""
    channels, (rows, columns) = len(weights), axes
    fill, held = image.padded(x, rows, columns, channels)
    batch, row, *_ = held.strides
    batch_offsets = np.arange(len(x), dtype=np.int64)[:, np.newaxis] * batch
    sources = (batch_offsets + np.arange(rows.windows, dtype=np.int64) * rows.stride * row).reshape(-1)
    targets = np.arange(len(sources), dtype=np.int64) * columns.windows * channels
    runs = sources, targets
    steps = (_steps(held, axes, weights, scaling, y, runs, *block) for block in _blocks(channels))
    return [*fill, *itertools.chain.from_iterable(steps)]


def _blocks(channels: int) -> Iterator[tuple[int, int, int]]:
    """Divide channels into blocks: (first channel, number of tiles, positions of a tile)."""
    first = 0
    for parts in (1, 2, 4, 8):
        size = VECTORS * lanes() // parts
        tiles = (channels - first) // size
        if tiles:
            yield first, tiles, parts
        first += tiles * size


def _steps(
    held: npt.NDArray[Any],
    axes: Windows,
    weights: npt.NDArray[Any],
    scaling: Scaling,
    y: npt.NDArray[Any],
    runs: tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]],
    first: int,
    tiles: int,
    parts: int,
) -> list[Step]:
    rows, columns = axes
    order = channel_order(VECTORS, 8)
    size = order.size // parts
    channels = first + np.arange(tiles, dtype=np.int64)[:, np.newaxis, np.newaxis] * size + order % size
    by_row = np.zeros((len(weights), columns.taps, ROWS), np.int8)
    by_row[..., : rows.taps] = weights.transpose(0, 2, 1)
    flat = channels.reshape(-1, lanes())
    groups = -(-len(runs[0]) // parts)
    # The last group may contain the last run more than once.
    members = np.minimum(np.arange(groups * parts, dtype=np.int64), len(runs[0]) - 1).reshape(groups, parts)
    kernel = columnwise.of(
        row_taps=rows.taps, column_taps=columns.taps, stride=columns.stride, parts=parts, form=scaling.form
    )
    constants = scaling.with_weights(copied(by_row[channels].transpose(0, 3, 1, 2, 4)), flat, tiles)
    steps = (
        kernel.step(
            image=held.ctypes.data + first,
            sources=runs[0][members[band]],
            targets=runs[1][members[band]],
            groups=len(members[band]),
            windows=columns.windows,
            row_step=rows.dilation * held.strides[1],
            column_step=held.strides[2],
            tiles=tiles,
            channels=constants,
            y=y.ctypes.data + first,
            y_step=len(weights),
            limits=scaling.limits,
        ).owning(held, y)
        for band in bands_of(len(members), tiles * columns.windows * columns.taps * VECTORS)
    )
    return together(list(steps))


@emitted
def columnwise(
    builder: Any,
    image: int,
    sources: Int64s,
    targets: Int64s,
    groups: int,
    windows: int,
    row_step: int,
    column_step: int,
    tiles: int,
    channels: ChannelConstants,
    y: int,
    y_step: int,
    limits: OutputLimits,
    *,
    row_taps: int,
    column_taps: int,
    stride: int,
    parts: int,
    form: EpilogueForm,
) -> None:
    """Compute the outputs of groups of `parts` rows, for tiles of channels.

    Args:
        image: address of the image, at the first channel.
        sources, targets: offsets of the rows of each group: the first row that is read from the image, and those of the
            output.
        windows: number of windows in a row.
        row_step, column_step: step of the image from tap to tap, in bytes.
        channels: weights (tiles, columns, vectors, lanes, 4 rows), bias (tiles, vectors, lanes).
        y, y_step: address of the output, at the first channel, and bytes from one window to the next.
    """
    w = Writer(builder)
    b, vector_bytes = builder, 4 * w.width
    epilogue = Epilogue(w, form, limits)
    kind = w.vector(w.i32, w.width)
    tile_bytes, part_bytes = VECTORS * vector_bytes, vector_bytes // parts
    held = [[w.variable(kind) for _ in range(VECTORS)] for _ in range(column_taps)]
    carried = column_taps - stride

    def column(addresses: list[Value]) -> list[Value]:
        """Return the units of a column."""
        found = [
            _joined(
                w, [w.load(w.add(address, w.times(row_step, tap)), w.vector(w.i8, part_bytes)) for address in addresses]
            )
            for tap in range(row_taps)
        ]
        return interleaved(w, found)

    def see(tap: int, addresses: list[Value]) -> None:
        offset = w.times(column_step, tap)
        for place, value in zip(held[tap], column([w.add(address, offset) for address in addresses])):
            b.store(value, place)

    with epilogue.rounding(), w.loop(tiles) as tile:
        channel = w.times(tile, part_bytes)
        factors_at = w.add(channels.weights, w.times(tile, column_taps * tile_bytes))
        factors = [w.load(w.add(factors_at, at * vector_bytes), kind) for at in range(column_taps * VECTORS)]
        bias_at = w.add(channels.bias, w.times(tile, tile_bytes))
        constants_at = w.add(channels.constants, w.times(tile, channels.constants_bytes))
        with w.loop(groups) as group:
            members = [w.add(w.times(group, parts), part) for part in range(parts)]
            starts = [w.add(image, channel, b.load(b.gep(sources, [member]))) for member in members]
            goals = [w.add(y, channel, b.load(b.gep(targets, [member]))) for member in members]
            for tap in range(carried):
                see(tap, starts)
            with w.loop(windows) as window:
                seen = w.times(window, w.times(column_step, stride))
                for tap in range(carried, column_taps):
                    see(tap, [w.add(start, seen) for start in starts])
                sums = [w.load(w.add(bias_at, v * vector_bytes), kind) for v in range(VECTORS)]
                for tap in range(column_taps):
                    for v in range(VECTORS):
                        unit, factor = b.load(held[tap][v]), factors[tap * VECTORS + v]
                        sums[v] = w.sum_of_products("bytes", sums[v], unit, factor)
                ((outputs,),) = epilogue([sums], constants_at)
                for part, goal in enumerate(goals):
                    own = list(range(part * part_bytes, (part + 1) * part_bytes))
                    w.store(w.shuffled(outputs, outputs, own), w.add(goal, w.times(window, y_step)))
                for tap in range(carried):
                    for place, following in zip(held[tap], held[tap + stride]):
                        b.store(b.load(following), place)


def interleaved(w: Writer, rows: list[Value]) -> list[Value]:
    """Interleave up to four rows of bytes to units, in the order of `channel_order`."""
    rows = rows + [w.ir.Constant(rows[0].type, None)] * (ROWS - len(rows))
    pairs = [w.zipped(*rows[:2]), w.zipped(*rows[2:])]
    halves = [[w.b.bitcast(each, w.vector(w.i16, 2 * w.width)) for each in pair] for pair in pairs]
    units = w.zipped(halves[0][0], halves[1][0]) + w.zipped(halves[0][1], halves[1][1])
    return [w.b.bitcast(each, w.vector(w.i32, w.width)) for each in units]


def _joined(w: Writer, values: list[Value]) -> Value:
    """Concatenate vectors."""
    while len(values) > 1:
        count = 2 * values[0].type.count
        values = [w.shuffled(*pair, list(range(count))) for pair in zip(values[::2], values[1::2])]
    return values[0]
