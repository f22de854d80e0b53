"""DEPTHWISE_CONV_2D like `columns`, for fewer channels than a register has bytes: columns lie beside each other in it.

A tile has 64 bytes of a row of the output. The rows of the image are interleaved to units, the taps of a column, in
blocks of 64 bytes, each once. What the next tap sees are the units of a block and of the following one, shifted by the
channels of a column.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tflm.compiler.language import Int64s, Step, emitted
from tflm.delegates.compiled.bands import bands_of, together
from tflm.delegates.compiled.columns import ROWS, VECTORS, framed, interleaved
from tflm.delegates.compiled.images import Image
from tflm.delegates.compiled.scaling import Scaling, copied
from tflm.delegates.compiled.tiles import Epilogue, Value, Writer, channel_order, lanes
from tflm.kernels.layers.geometry import Axis

BLOCK = 64
CHANNELS = 4, 8, 16, 32
"""Of layers that `bind_shifts` binds: a unit of 32 bits has one of several taps."""


def fits_shifts(rows: Axis, columns: Axis, channels: int, image: Image, scaling: Scaling) -> bool:
    """Whether `bind_shifts` binds such a layer."""
    of_bytes = image.unit == "bytes" and scaling.bits == 8 and lanes() == 16
    is_dense = columns.stride == 1 and columns.dilation == 1 and 1 < rows.taps <= ROWS
    return (
        of_bytes
        and is_dense
        and channels in CHANNELS
        and 1 < columns.taps <= VECTORS
        and (columns.taps - 1) * channels <= BLOCK <= columns.windows * channels
    )


def bind_shifts(
    x: npt.NDArray[Any],
    rows: Axis,
    columns: Axis,
    weights: npt.NDArray[Any],
    image: Image,
    scaling: Scaling,
    y: npt.NDArray[Any],
) -> list[Step]:
    """The steps that set y to the windows of x times the weights of each channel; arguments as `bind_channelwise`."""
    channels = len(weights)
    fill, held, sources = framed(x, rows, columns, channels, image)
    order = channel_order(VECTORS, 8) % channels
    by_row = np.zeros((channels, columns.taps, ROWS), np.int8)
    by_row[..., : rows.taps] = weights.transpose(0, 2, 1)
    row_bytes = columns.windows * channels
    kernel = shiftwise.of(row_taps=rows.taps, column_taps=columns.taps, channels=channels, **scaling.kind)
    packed = copied(by_row[order].transpose(2, 0, 1, 3))
    steps = (
        kernel.step(
            image=held,
            sources=sources[band],
            runs=band.stop - band.start,
            row_bytes=row_bytes,
            row_step=rows.dilation * held.strides[1],
            weights=packed,
            bias=scaling.first_sums(order),
            constants=scaling.constants(order),
            y=y.ctypes.data + band.start * row_bytes,
            zero_point=scaling.zero_point,
            least=scaling.least,
            most=scaling.most,
        ).owning(y)
        for band in bands_of(len(sources), row_bytes * columns.taps * VECTORS // BLOCK)
    )
    return [*fill, *together(list(steps))]


@emitted
def shiftwise(
    builder: Any,
    image: int,
    sources: Int64s,
    runs: int,
    row_bytes: int,
    row_step: int,
    weights: int,
    bias: int,
    constants: int,
    y: int,
    zero_point: int,
    least: int,
    most: int,
    *,
    row_taps: int,
    column_taps: int,
    channels: int,
    scale: str,
    bits: int,
    rounds: str,
    left: int,
    adds: int,
    clamps: int,
) -> None:
    """The outputs of rows.

    Args:
        image: address of the image.
        sources: offsets of the first rows of the image that rows of the output see.
        runs: number of rows.
        row_bytes: of the output, a block at least.
        row_step: bytes of the image from row tap to row tap.
        weights: (column taps, vectors, lanes, 4 rows).
        bias: (vectors, lanes) int32 that sums begin with.
        constants: constants of `Epilogue`.
        y: address of the output.
    """
    w = Writer(builder)
    b, vector_bytes = builder, 4 * w.width
    epilogue = Epilogue(w, scale, bits, rounds, left, adds, clamps, zero_point, least, most)
    kind = w.vector(w.i32, w.width)
    held = [w.variable(kind) for _ in range(VECTORS)]
    factors = [w.load(w.add(weights, place * vector_bytes), kind) for place in range(column_taps * VECTORS)]

    def block(address: Value) -> list[Value]:
        """The units of a block of the image."""
        return interleaved(
            w, [w.load(w.add(address, w.times(row_step, tap)), w.vector(w.i8, BLOCK)) for tap in range(row_taps)]
        )

    def start(address: Value) -> None:
        for place, value in zip(held, block(address)):
            b.store(value, place)

    def compute(source: Value, target: Value) -> None:
        """A tile; its block is held, and then the next one is."""
        blocks = [[b.load(place) for place in held], block(w.add(source, BLOCK))]
        sums = [w.load(w.add(bias, v * vector_bytes), kind) for v in range(VECTORS)]
        for tap in range(column_taps):
            for v in range(VECTORS):
                # Lane i of vector v has unit 16 * (i // 4) + 4 * v + i % 4 of its block.
                quarters, vector = divmod(v + tap * channels // 4, VECTORS)
                order = list(range(4 * quarters, 4 * quarters + w.width))
                units = w.shuffled(blocks[0][vector], blocks[1][vector], order)
                sums[v] = w.sum_of_products("bytes", sums[v], units, factors[tap * VECTORS + v])
        ((outputs,),) = epilogue([sums], constants)
        w.store(outputs, target)
        for place, value in zip(held, blocks[1]):
            b.store(value, place)

    tiles = b.udiv(row_bytes, w.number(BLOCK))
    last = w.add(row_bytes, -BLOCK)
    with epilogue.rounding(), w.loop(runs) as run:
        source, target = w.add(image, b.load(b.gep(sources, [run]))), w.add(y, w.times(run, row_bytes))
        start(source)
        with w.loop(tiles) as tile:
            place = w.times(tile, BLOCK)
            compute(w.add(source, place), w.add(target, place))
        with b.if_then(b.icmp_signed("<", w.times(tiles, BLOCK), row_bytes)):
            # The last tile begins in the one before.
            start(w.add(source, last))
            compute(w.add(source, last), w.add(target, last))
