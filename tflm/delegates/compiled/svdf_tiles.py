"""SVDF of integers in tiles of units: the state is shifted, updated and filtered over time in one pass.

The state of consecutive units is contiguous, filter by filter, the oldest value first. A tile loads it from one element
further, which drops the oldest value of each filter, blends in the newest ones, and stores it. Each lane of 32 bits
sums the products of four bytes, or of two values of 16 bits, with the weights; the lanes of a unit are added up in
registers, and `tiles.Epilogue` turns the sums into outputs.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from tflm.compiler.language import Step, emitted
from tflm.delegates.compiled.images import image_of
from tflm.delegates.compiled.products import layer_scaling
from tflm.delegates.compiled.scaling import copied
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
from tflm.delegates.compiled.vector_products import sums_of_runs
from tflm.kernels.reference.svdf import OpDataSvdf, SvdfTensors

MAX_LANES = 32
"""Maximum number of 32-bit lanes in the state of a unit."""

MAX_VECTORS = 32
"""Maximum number of vectors of state in a tile, because they are unrolled."""


def bind_tiles(t: SvdfTensors, newest: npt.NDArray[Any], op: OpDataSvdf) -> tuple[list[Step], int]:
    """Return the steps that filter the first units, as many as fill vectors, and the number of those units.

    Args:
        t: the tensors, with constant weights over time, and a constant bias.
        newest: (batches, filters), the newest values without the state's zero point.
    """
    batches, filters, memory = t.state.shape
    units = t.y.shape[1]
    rank, itemsize = filters // units, t.state.itemsize
    held_lanes, rest = divmod(rank * memory * itemsize, 4)
    if rest or not 0 < held_lanes <= MAX_LANES or units < lanes():
        return [], 0
    zero_point = op.state_zero_point
    image = image_of(t.state.dtype, zero_point, bytes_allowed=True)
    if image.unit == "pairs":  # the initial sums account for the zero point
        image = image._replace(border=zero_point, zero_point=0)
    by_unit = t.time.reshape(1, units, -1)
    scaling = layer_scaling(op.to_output.multiplier, op.to_output.stage, by_unit, t.bias, image, t.y.dtype)
    if scaling is None:
        return [], 0
    weights = copied(by_unit[0].astype(np.int8 if image.unit == "bytes" else np.int16))
    steps = []
    for first, blocks, vectors in _blocks(units, held_lanes):
        size = vectors * lanes()
        channels = first + np.arange(blocks * size, dtype=np.intp).reshape(-1, lanes())
        kernel = filter_states.of(
            element=t.state.dtype.name,
            unit=image.unit,
            flip=image.flip,
            vectors=vectors,
            rank=rank,
            memory=memory,
            form=scaling.form,
        )
        constants = scaling.with_weights(weights[first:], channels, blocks)
        steps += [
            kernel.step(
                newest=newest[batch, first * rank :],
                state=t.state[batch, first * rank :],
                state_zero_point=zero_point,
                channels=constants,
                blocks=blocks,
                y=t.y[batch, first:],
                limits=scaling.limits,
            )
            for batch in range(batches)
        ]
    return steps, units // lanes() * lanes()


def _blocks(units: int, held_lanes: int) -> Iterator[tuple[int, int, int]]:
    """Divide units into tiles: (first unit, number of tiles, vectors of units in each)."""
    first = 0
    for vectors in (4, 2, 1):
        if vectors > 1 and vectors * held_lanes > MAX_VECTORS:
            continue
        blocks = (units - first) // (vectors * lanes())
        if blocks:
            yield first, blocks, vectors
        first += blocks * vectors * lanes()


@emitted
def filter_states(
    builder: Any,
    newest: int,
    state: int,
    state_zero_point: int,
    channels: ChannelConstants,
    blocks: int,
    y: int,
    limits: OutputLimits,
    *,
    element: str,
    unit: str,
    flip: int,
    vectors: int,
    rank: int,
    memory: int,
    form: EpilogueForm,
) -> None:
    """Update the state of blocks of units, and filter it over time.

    Args:
        newest: address of the newest values, (units, rank), without the zero point of the state.
        state: address of (units, rank, memory) values.
        channels: weights (units, rank, memory), int8 for "bytes" and int16 for "pairs"; bias (blocks, vectors, lanes).
        y: address of the outputs.
    """
    w = Writer(builder)
    b, vector_bytes = builder, 4 * w.width
    of_element = {"int8": w.i8, "int16": w.i16}[element]
    itemsize = of_element.width // 8
    held = vector_bytes // itemsize  # elements of a vector of state
    count = rank * memory * itemsize // 4  # vectors of state for a vector of units
    kind, wide = w.vector(of_element, held), w.vector(w.i32, w.width)
    epilogue = Epilogue(w, form, limits)
    to_weights = 1 if unit == "bytes" else 2 // itemsize  # bytes of channels.weights for a byte of state
    offset = b.trunc(state_zero_point, of_element)
    is_flipped = w.splat(of_element(flip - 256 if itemsize == 1 and flip > 127 else flip), held)
    natural = channel_order(vectors, form.bits).reshape(-1).tolist()

    def renewed(place: int, values: Value, address: Value) -> Value:
        """Return a vector of the state of a vector of units, with the newest values of its filters."""
        filters = [(place * held + lane) // memory for lane in range(held)]
        is_newest = [(place * held + lane) % memory == memory - 1 for lane in range(held)]
        if place == count - 1:  # does not read beyond the state
            kept = w.load(address, kind)
            kept = w.shuffled(kept, kept, [*range(1, held), 0])
        else:
            kept = w.load(w.add(address, itemsize), kind)
        chosen = [number if new else 0 for number, new in zip(filters, is_newest)]
        mask = w.ir.Constant(w.vector(w.ir.IntType(1), held), is_newest)
        return b.select(mask, w.shuffled(values, values, chosen), kept)

    def products(state_at: Value, weights_at: Value, newest_at: Value) -> Value:
        """Return the sums of a vector of units."""
        values = w.load(newest_at, w.vector(of_element, w.width * rank))
        values = b.add(values, w.splat(offset, w.width * rank))
        sums: list[Value] = []
        for place in range(count):
            address = w.add(state_at, place * vector_bytes)
            x = renewed(place, values, address)
            w.store(x, address)
            x = b.xor(x, is_flipped) if flip else x
            for part in _units(w, x, unit):
                factor = w.load(w.add(weights_at, len(sums) * vector_bytes), wide)
                sums.append(w.sum_of_products(unit, w.ir.Constant(wide, None), part, factor))
        return sums_of_runs(w, sums)

    state_bytes, newest_bytes = count * vector_bytes, w.width * rank * itemsize
    with epilogue.rounding(), w.loop(blocks) as block:
        totals = []
        for v in range(vectors):
            group = w.add(w.times(block, vectors), v)
            at = w.times(group, state_bytes)
            total = products(
                w.add(state, at),
                w.add(channels.weights, w.times(at, to_weights)),
                w.add(newest, w.times(group, newest_bytes)),
            )
            totals.append(b.add(total, w.load(w.add(channels.bias, w.times(group, vector_bytes)), wide)))
        ((outputs, *_),) = epilogue([totals], w.add(channels.constants, w.times(block, channels.constants_bytes)))
        size = vectors * w.width
        w.store(w.shuffled(outputs, outputs, natural), w.add(y, w.times(block, size)))


def _units(w: Writer, x: Value, unit: str) -> list[Value]:
    """Return a vector of state as vectors of units of products."""
    wide = w.vector(w.i32, w.width)
    if unit == "bytes" or x.type.element == w.i16:
        return [w.b.bitcast(x, wide)]
    count = x.type.count // 2
    halves = [w.shuffled(x, x, list(range(first, first + count))) for first in (0, count)]
    return [w.b.bitcast(w.b.sext(half, w.vector(w.i16, count)), wide) for half in halves]
