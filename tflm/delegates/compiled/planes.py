"""Sums of two 8-bit inputs in float32: outputs are floors of points on a plane.

The output for x1 and x2 is floor(fma(x1, slope1, fma(x2, slope2, offset))) + zero_point, clamped; both sums are rounded
down. `plane_of` compares it with the exact function for all pairs of inputs.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tflm.compiler.language import emitted
from tflm.delegates.compiled.tiles import Value, Writer, copy_bytes

Floats = npt.NDArray[np.float64]
Table = npt.NDArray[np.int8]

GROWTHS = 0.0, 2.0**-17, 2.0**-15, 2.0**-13
"""Factors for the slopes to try. Larger slopes round halves away from zero."""

MIN_SLOPE, LARGEST_SLOPE = 2.0**-12, 2.0**5
OFFSET_UNIT = 2.0**-40
"""Range of slopes for which products and sums of 8-bit integers and float32 are exact in float64."""


class Plane(NamedTuple):
    """Arguments of `sum_on_plane`; the larger slope comes first."""

    slope1: float
    slope2: float
    offset: float
    zero_point: int


def plane_of(slopes: tuple[float, float], table: Table) -> Plane | None:
    """Find a plane with approximately these slopes that reproduces a table of outputs; None if there is none.

    Args:
        table: (256, 256), outputs for all x1 and x2 from -128 to 127.
    """
    if not all(MIN_SLOPE <= abs(slope) <= LARGEST_SLOPE for slope in slopes):
        return None
    x = np.arange(-128, 128, dtype=np.float64)
    x1, x2 = x[:, np.newaxis], x
    for slope1, slope2 in _candidates(slopes):
        heights = slope1 * x1 + slope2 * x2
        outputs = table.astype(np.float64)
        lowest = (outputs - heights)[table > table.min()].max(initial=-np.inf)
        end = (outputs + 1 - heights)[table < table.max()].min(initial=np.inf)
        if not -np.inf < lowest < end < np.inf:
            continue
        middle = (lowest + end) / 2
        zero_point = int(np.rint(middle))
        offset = np.rint((middle - zero_point) / OFFSET_UNIT) * OFFSET_UNIT
        plane = Plane(slope1, slope2, float(np.float32(offset)), zero_point)
        results = _floors(plane, x1, x2) + zero_point
        if (np.clip(results, table.min(), table.max()) == table).all():
            return plane
    return None


def _candidates(slopes: tuple[float, float]) -> Iterator[tuple[float, float]]:
    """Yield slopes in float32 to try: the nearest ones, larger ones, and neighbours of the nearest ones."""
    for growth in GROWTHS:
        yield float(np.float32(slopes[0] * (1 + growth))), float(np.float32(slopes[1] * (1 + growth)))
    ends = np.float32(-np.inf), np.float32(np.inf)
    near = [[float(np.nextafter(np.float32(slope), end)) for end in (np.float32(slope), *ends)] for slope in slopes]
    yield from itertools.product(*near)


def _floors(plane: Plane, x1: Floats, x2: Floats) -> Floats:
    """Return the results of the machine code before the zero point is added."""
    inner = plane.slope2 * x2 + plane.offset
    nearest = inner.astype(np.float32)
    down = np.where(nearest > inner, np.nextafter(nearest, np.float32(-np.inf)), nearest)
    floors: Floats = np.floor(plane.slope1 * x1 + down.astype(np.float64))
    return floors


@emitted
def sum_on_plane(
    builder: Any,
    x1: int,
    x2: int,
    y: int,
    count: int,
    slope1: float,
    slope2: float,
    offset: float,
    zero_point: int,
    activation_min: int,
    activation_max: int,
) -> None:
    """Set y to the outputs for x1 and x2, which are addresses of int8."""
    w = Writer(builder)
    b = builder
    factor1, factor2, addend = (w.splat(b.fptrunc(value, w.f32), w.width) for value in (slope1, slope2, offset))
    stage = [w.splat(b.trunc(value, w.i16), 2 * w.width) for value in (zero_point, activation_min, activation_max)]
    with b.goto_entry_block():
        spill = b.alloca(w.vector(w.i8, w.width), size=3)

    def floors(first: Value, second: Value) -> Value:
        kind = w.vector(w.f32, w.width)
        values = [b.sitofp(w.load(address, w.vector(w.i8, w.width)), kind) for address in (first, second)]
        inner = w.sum_rounded_down(values[1], factor2, addend)
        return w.floor(w.sum_rounded_down(values[0], factor1, inner))

    def compute(first: Value, second: Value, target: Value, vectors: int) -> None:
        found = [floors(w.add(first, v * w.width), w.add(second, v * w.width)) for v in range(vectors)]
        words = [w.packed(found[0], found[1 % vectors]), w.packed(found[-2 % vectors], found[-1])]
        shifted = [w.intrinsic(f"llvm.sadd.sat.v{2 * w.width}i16", word.type, word, stage[0]) for word in words]
        packed = w.packed(*(w.smaller(w.larger(word, stage[1]), stage[2]) for word in shifted))
        units = b.bitcast(packed, w.vector(w.i32, w.width))
        order = [group * 4 + v for v in range(vectors) for group in range(w.width // 4)]
        w.store(w.shuffled(units, units, order), target)

    def blocks(start: Value, end: Value, vectors: int) -> Value:
        """Compute whole blocks of vectors, and return where they end."""
        size = vectors * w.width
        whole = b.udiv(b.sub(end, start), w.number(size))
        with w.loop(whole) as block:
            place = w.add(start, w.times(block, size))
            compute(w.add(x1, place), w.add(x2, place), w.add(y, place), vectors)
        return w.add(start, w.times(whole, size))

    with w.rounding_down():
        done = blocks(blocks(w.number(0), count, 4), count, 1)
        rest = b.sub(count, done)
        with b.if_then(b.icmp_signed(">", rest, w.number(0))):
            first = b.ptrtoint(spill, w.i64)
            second, target = w.add(first, w.width), w.add(first, 2 * w.width)
            copy_bytes(w, w.add(x1, done), first, rest)
            copy_bytes(w, w.add(x2, done), second, rest)
            compute(first, second, target, 1)
            copy_bytes(w, target, w.add(y, done), rest)
