"""DEPTHWISE_CONV_2D with channels, and columns next to each other, in the lanes of vectors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tflm.compiler.language import Step
from tflm.compiler.processor import Profile
from tflm.delegates.compiled.columns import bind_columns, fits_columns
from tflm.delegates.compiled.images import SLACK, Image, aligned, image_of
from tflm.delegates.compiled.products import bind_convolution, convolution_scaling, plain_convolution
from tflm.delegates.compiled.scaling import Scaling, copied
from tflm.delegates.compiled.tiles import TAPS_OF_UNIT, VECTORS_OF_RUN, channel_order, channelwise, lanes
from tflm.kernels.layers.convolution import OpDataConv
from tflm.kernels.layers.geometry import Axis, Windows
from tflm.kernels.node import KernelContext, Node
from tflm.kernels.reference.convolution import DEPTHWISE_INPUTS


class Runs(NamedTuple):
    """Runs of adjacent outputs that are computed together.

    Attributes:
        fill: the steps that fill the image.
        image: the padded image.
        offsets: offset of each run, in bytes.
        taps: offset of each tap from the start of the run, in bytes.
        length: number of elements in a run.
    """

    fill: list[Step]
    image: npt.NDArray[Any]
    offsets: npt.NDArray[np.int64]
    taps: npt.NDArray[np.int64]
    length: int


def runs_of(x: npt.NDArray[Any], rows: Axis, columns: Axis, image: Image, copies: int, tile: int) -> Runs:
    """Return the runs of an image that contains each channel of x `copies` times.

    If there are fewer channels than in a tile, a run is a row of the output. The inputs of a tap for successive columns
    are then made contiguous: columns of the image that are a stride apart form a phase, and each phase is stored
    separately. Otherwise a run is a position.
    """
    batches, _, _, depth = x.shape
    channels = depth * copies
    by_row = columns.stride == 1 or channels < tile
    phases = columns.stride if by_row else 1
    height, width = rows.stop - rows.start, -(-(columns.stop - columns.start) // phases)
    held = aligned((batches, height, phases, width, channels), image.dtype, SLACK)
    held[...] = image.border
    fill = []
    y0, y1 = max(rows.start, 0), max(min(rows.stop, rows.size), 0)
    for phase in range(phases):
        # Column j of the phase is column j * phases + phase + columns.start of the input.
        first = max(-((phase + columns.start) // phases), 0)
        seen = x[:, y0:y1, first * phases + phase + columns.start : max(min(columns.stop, columns.size), 0) : phases]
        inside = held[:, y0 - rows.start : y1 - rows.start, phase, first : first + seen.shape[2]]
        if inside.size:
            fill.append(image.filled(seen, inside, copies))
    batch, row, of_phase, column, _ = held.strides
    places = (
        np.arange(batches, dtype=np.int64)[:, None] * batch
        + np.arange(rows.windows, dtype=np.int64) * rows.stride * row
    )
    if not by_row:
        places = places[:, :, None] + np.arange(columns.windows, dtype=np.int64) * columns.stride * column
    steps = np.arange(columns.taps, dtype=np.int64) * columns.dilation
    taps = (
        (np.arange(rows.taps, dtype=np.int64) * rows.dilation * row)[:, None]
        + steps % phases * of_phase
        + steps // phases * column
    )
    length = channels * (columns.windows if by_row else 1)
    return Runs(fill, held, places.reshape(-1), taps.reshape(-1), length)


def bind_channelwise(
    x: npt.NDArray[Any], axes: Windows, weights: npt.NDArray[Any], image: Image, scaling: Scaling, y: npt.NDArray[Any]
) -> list[Step]:
    """Return the steps that set y to the windows of x times the weights of each channel, scaled.

    Args:
        x: (batches, rows, columns, channels). The number of channels of y is a multiple of this one.
        weights: (channels of y, taps of the rows, taps of the columns).
        y: (batches, rows, columns, channels), contiguous.
    """
    channels, unit = len(weights), image.unit
    rows, columns = axes
    order = channel_order(VECTORS_OF_RUN[unit], scaling.bits)
    tile = order.size
    runs = runs_of(x, rows, columns, image, channels // x.shape[3], tile)
    tiles = -(-runs.length // tile)
    period = min(math.lcm(channels, tile) // tile, tiles)
    of_tile = (np.arange(period, dtype=np.int64)[:, None, None] * tile + order) % channels
    together = TAPS_OF_UNIT[unit]
    groups = -(-len(runs.taps) // together)
    dtype = {"bytes": np.int8, "pairs": np.int16, "float": np.float32}[unit]
    by_tap = np.zeros((channels, groups * together), dtype)
    by_tap[:, : len(runs.taps)] = weights.reshape(channels, -1)
    packed = copied(by_tap.reshape(channels, groups, together)[of_tile].transpose(0, 3, 1, 2, 4))
    taps = np.full(groups * together, runs.taps[0], np.int64)
    taps[: len(runs.taps)] = runs.taps
    flat = of_tile.reshape(-1, lanes())
    step, overhang = runs.length * y.itemsize, (tiles * tile - runs.length) * y.itemsize
    kernel = channelwise.of(unit=unit, form=scaling.form)
    multiply = kernel.step(
        image=runs.image,
        offsets=runs.offsets,
        runs=len(runs.offsets),
        tiles=tiles,
        period=period,
        groups=groups,
        taps=taps,
        channels=scaling.with_weights(packed, flat, period),
        y=y,
        y_step=step,
        direct=max(len(runs.offsets) - -(-overhang // step), 0) if overhang else len(runs.offsets),
        valid=tile * y.itemsize - overhang,
        limits=scaling.limits,
    )
    return [*runs.fill, multiply]


def _bind_depthwise(context: KernelContext, node: Node, profile: Profile) -> Sequence[Step] | None:
    arrays = DEPTHWISE_INPUTS.bound(node)
    x, weights, bias, y, constant = arrays
    if np.may_share_memory(x, y):
        return None
    op: OpDataConv = node.op_data
    if not profile.has_tiles:
        return plain_convolution(op, arrays, by_channel=True)
    if not constant:
        return None
    by_channel = weights[0].transpose(2, 0, 1)
    if x.shape[3] == 1:  # all outputs read the same channel, as in an ordinary convolution
        of_one = by_channel[np.newaxis, ..., np.newaxis]
        return bind_convolution(op, (op.rows, op.columns), arrays._replace(weights=of_one))
    image = image_of(x.dtype, op.input_zero_point, bytes_allowed=True)
    scaling = convolution_scaling(op, by_channel[np.newaxis], bias, image, y.dtype)
    if scaling is None:
        return None
    if fits_columns(op.rows, op.columns, len(by_channel), image, scaling):
        return bind_columns(x, (op.rows, op.columns), by_channel, image, scaling, y)
    return bind_channelwise(x, (op.rows, op.columns), by_channel, image, scaling, y)


BINDINGS = {"DEPTHWISE_CONV_2D": _bind_depthwise}
