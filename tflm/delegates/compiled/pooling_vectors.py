"""AVERAGE_POOL_2D and MAX_POOL_2D in vectors of channels, which stay in registers for all elements of a window."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tflm.compiler.language import Int32s, emitted
from tflm.delegates.compiled.tiles import Value, Writer

VECTORS = 4
"""Registers of a block of channels, at most."""

BITS = {"int8": 8, "int16": 16, "float32": 32}


@emitted
def pool(
    builder: Any,
    x: int,
    y: int,
    rows: Int32s,
    columns: Int32s,
    height: int,
    width: int,
    channels: int,
    batches: int,
    windows_down: int,
    windows_across: int,
    least: int,
    most: int,
    *,
    function: str,
    element: str,
) -> None:
    """The largest element ("MAX") or the mean ("AVERAGE") of each window and channel, within limits.

    Args:
        x, y: addresses, of arrays that don't overlap.
        rows, columns: for each window, the first row of the input that it covers, and the one after the last.
        least, most: the bits of a float64 for floats.
    """
    w = Writer(builder)
    b = builder
    item = BITS[element] // 8
    pixel = w.times(channels, item)
    blocks = _MaxBlocks(w, element, least, most) if function == "MAX" else _MeanBlocks(w, element, least, most)

    def compute(source: Value, target: Value, ends: list[Value], count: int) -> None:
        """The outputs of `count` channels of a window; `source` is the address of its image, at these channels."""
        first_row, last_row, first_column, last_column = ends
        totals = [w.variable(kind) for kind in blocks.kinds(count)]
        for total in totals:
            b.store(blocks.start(total.type.pointee), total)
        with w.loop(b.sub(last_row, first_row)) as i:
            line = w.times(w.add(first_row, i), width)
            with w.loop(b.sub(last_column, first_column)) as j:
                at = w.add(source, w.times(w.add(line, first_column, j), pixel))
                for total in totals:
                    lanes = total.type.pointee.count
                    value = w.load(at, w.vector(blocks.of_x, lanes))
                    b.store(blocks.combined(b.load(total), value), total)
                    at = w.add(at, lanes * item)
        covered = b.mul(b.sub(last_row, first_row), b.sub(last_column, first_column))
        for total in totals:
            w.store(blocks.output(b.load(total), covered), target)
            target = w.add(target, total.type.pointee.count * item)

    def all_channels(source: Value, target: Value, ends: list[Value], counts: list[int]) -> None:
        """Whole blocks of the largest size that fits, and then the last channels again, up to the end."""
        largest, *smaller = counts

        def in_blocks() -> None:
            whole = b.udiv(channels, w.number(largest))
            with w.loop(whole) as block:
                place = w.times(block, largest * item)
                compute(w.add(source, place), w.add(target, place), ends, largest)
            with b.if_then(b.icmp_signed("<", w.times(whole, largest), channels)):
                place = w.times(w.add(channels, -largest), item)
                compute(w.add(source, place), w.add(target, place), ends, largest)

        if not smaller:
            in_blocks()
            return
        with b.if_else(b.icmp_signed(">=", channels, w.number(largest))) as (fits, does_not):
            with fits:
                in_blocks()
            with does_not:
                all_channels(source, target, ends, smaller)

    def range_of(ends: Value, window: Value) -> list[Value]:
        place = w.times(window, 2)
        return [b.sext(b.load(b.gep(ends, [w.add(place, end)])), w.i64) for end in range(2)]

    image_bytes = w.times(w.times(w.times(height, width), channels), item)
    with w.loop(batches) as batch, w.loop(windows_down) as row, w.loop(windows_across) as column:
        window = w.add(w.times(w.add(w.times(batch, windows_down), row), windows_across), column)
        ends = range_of(rows, row) + range_of(columns, column)
        source = w.add(x, w.times(batch, image_bytes))
        all_channels(source, w.add(y, w.times(window, pixel)), ends, blocks.counts)


class _Blocks:
    """How blocks of channels are pooled.

    Attributes:
        of_x: type of the elements.
        counts: of channels in a block, the largest first.
    """

    of_x: Any
    counts: list[int]

    def __init__(self, w: Writer, element: str, least: Value, most: Value):
        self.w, self.is_float = w, element == "float32"
        self.of_x = w.f32 if self.is_float else w.ir.IntType(BITS[element])
        b = w.b
        if self.is_float:
            self.limits = [b.fptrunc(b.bitcast(value, w.ir.DoubleType()), w.f32) for value in (least, most)]
        else:
            self.limits = [b.trunc(value, self.of_total) for value in (least, most)]

    @property
    def of_total(self) -> Any:
        """Type of what elements are combined to."""
        raise NotImplementedError

    def kinds(self, count: int) -> list[Any]:
        """The vectors of a block of `count` channels."""
        bits = 32 if self.is_float else self.of_total.width
        lanes = min(count, 32 * self.w.width // bits)
        return [self.w.vector(self.of_total, lanes)] * (count // lanes)

    def start(self, kind: Any) -> Value:
        """What a window begins with."""
        raise NotImplementedError

    def combined(self, total: Value, x: Value) -> Value:
        """The total with elements of x."""
        raise NotImplementedError

    def output(self, total: Value, covered: Value) -> Value:
        """The outputs of windows of so many elements."""
        raise NotImplementedError

    def within_limits(self, values: Value) -> Value:
        """C's max and min, which let NaN through."""
        w, b, count = self.w, self.w.b, values.type.count
        least, most = (w.splat(limit, count) for limit in self.limits)
        is_less: Callable[..., Value] = b.fcmp_ordered if self.is_float else b.icmp_signed
        values = b.select(is_less("<", values, least), least, values)
        return b.select(is_less("<", most, values), most, values)


class _MaxBlocks(_Blocks):
    def __init__(self, w: Writer, element: str, least: Value, most: Value):
        super().__init__(w, element, least, most)
        vector = 32 * w.width // BITS[element]
        self.counts = [vector, vector // 4, 1]

    @property
    def of_total(self) -> Any:
        return self.of_x

    def start(self, kind: Any) -> Value:
        return self.w.splat(self.limits[0], kind.count)

    def combined(self, total: Value, x: Value) -> Value:
        """The larger elements; those of x must not be NaN."""
        b = self.w.b
        is_less: Callable[..., Value] = b.fcmp_ordered if self.is_float else b.icmp_signed
        return b.select(is_less("<", total, x), x, total)

    def output(self, total: Value, covered: Value) -> Value:
        return self.within_limits(total)


class _MeanBlocks(_Blocks):
    def __init__(self, w: Writer, element: str, least: Value, most: Value):
        super().__init__(w, element, least, most)
        self.counts = [VECTORS * w.width, w.width, w.width // 4, 1]

    @property
    def of_total(self) -> Any:
        return self.w.f32 if self.is_float else self.w.i32

    def start(self, kind: Any) -> Value:
        return self.w.ir.Constant(kind, None)

    def combined(self, total: Value, x: Value) -> Value:
        """Sums, of floats in their order."""
        b = self.w.b
        return b.fadd(total, x) if self.is_float else b.add(total, b.sext(x, total.type))

    def output(self, total: Value, covered: Value) -> Value:
        w, b, lanes = self.w, self.w.b, total.type.count
        if self.is_float:
            return self.within_limits(b.fdiv(total, w.splat(b.sitofp(covered, w.f32), lanes)))
        # Halves go away from zero. Quotients of float64 differ from an integer where those of integers do.
        wide = w.vector(w.ir.DoubleType(), lanes)
        half = w.splat(b.sitofp(b.udiv(covered, w.number(2)), w.ir.DoubleType()), lanes)
        is_negative = b.icmp_signed("<", total, w.ir.Constant(total.type, None))
        exact = b.sitofp(total, wide)
        exact = b.select(is_negative, b.fsub(exact, half), b.fadd(exact, half))
        means = b.fdiv(exact, w.splat(b.sitofp(covered, w.ir.DoubleType()), lanes))
        return b.trunc(self.within_limits(b.fptosi(means, total.type)), w.vector(self.of_x, lanes))
