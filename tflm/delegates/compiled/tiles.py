"""Matrix tiles: sums of products held in registers, and their epilogue.

A tile covers `rows` positions of the output and `vectors` vectors of channels. Its sums stay in rows x vectors
registers while it iterates over the depth, a unit of 32 bits at a time: it loads `vectors` registers of weights,
broadcasts one unit of each position in turn to a register, and multiplies them.

    unit    x            weights     sums
    bytes   4 uint8      int8        int32, by one instruction (VNNI; SDOT of arm64, where x is int8)
    pairs   2 int16      int16       int32, by a multiplication that adds pairs
    float   1 float32    float32     float32, one rounded product after the other

Sums of 32 bits become 8 or 16 by one of these `scale`s:

    short_lines  floors of lines in float32, where these are shown to be exact: `lines`
    lines        the same with slopes of two float32
    double       wraps at 32 bits, and rounds twice: `QuantizedMultiplier`
    wide         adds a bias of 64 bits, and rounds once: `WideQuantizedMultiplier`

The last two are in 64-bit lanes, those of even and of odd channels apart.

Results are narrowed by instructions that work within 128 bits (packs), so that the channels of the registers of a tile
are interleaved: `channel_order`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from tflm.compiler.language import Int64s, emitted
from tflm.compiler.processor import processor

Value: TypeAlias = Any

SCALE_ROWS = 8
"""Rows of 64-bit constants for each vector of channels: 4 constants, each for even and for odd channels."""

LINE_ROWS = {"lines": {"up": 3, "away": 5}, "short_lines": {"up": 2, "away": 4}}
"""Rows of float32 for each vector of channels, by `scale` and rounding."""

ROUNDS_DOWN = 0x9
"""Embedded rounding: towards minus infinity, without exceptions."""

MXCSR_ROUNDS_DOWN, FPCR_ROUNDS_DOWN = 0x3F80, 0x800000
"""The same as the mode of a thread: contents of the control registers of x86 and arm64."""


def lanes() -> int:
    """Number of 32-bit values in a vector."""
    return processor().vector_bytes // 4


def rounds_down() -> bool:
    """Whether the processor has multiply-adds of float32 that can round down."""
    return lanes() > 4 or processor().is_arm64


def embeds_rounding() -> bool:
    """Whether instructions encode their rounding, independent of the thread's mode."""
    return lanes() == 16


def has_lines() -> bool:
    """Whether `lines` needs fewer instructions than `double`, for which arm64 has special ones."""
    return rounds_down() and processor().is_x86


def channel_order(vectors: int, bits: int) -> npt.NDArray[np.intp]:
    """Return, for each vector of a tile and each lane, which channel of the tile it holds, if the output has this many
    bits.

    Tiles of three vectors do not support 16-bit outputs.
    """
    width = lanes()
    interleaved = {8: vectors, 16: min(vectors, 2), 32: 1}[bits]
    natural = np.arange(vectors * width, dtype=np.intp).reshape(vectors // interleaved, width // 4, interleaved, 4)
    return natural.transpose(0, 2, 1, 3).reshape(vectors, width)


# --- Writing LLVM IR ---------------------------------------------------------------------------------------------


class Writer:
    """A builder with the types and vector operations of tiles."""

    def __init__(self, builder: Any):
        from llvmlite import ir

        self.ir, self.b = ir, builder
        self.width = lanes()
        self.i8, self.i16, self.i32, self.i64 = (ir.IntType(bits) for bits in (8, 16, 32, 64))
        self.f32 = ir.FloatType()
        self._is_rounding_down = False

    def vector(self, element: Any, count: int) -> Any:
        """Return a vector type."""
        return self.ir.VectorType(element, count)

    def number(self, value: int) -> Value:
        """Return a constant int64."""
        return self.i64(value)

    def splat(self, value: Value, count: int) -> Value:
        """Return a vector with the same value in all lanes."""
        kind = self.vector(value.type, count)
        one = self.b.insert_element(self.ir.Constant(kind, self.ir.Undefined), value, self.i32(0))
        zeros = self.ir.Constant(self.vector(self.i32, count), None)
        return self.b.shuffle_vector(one, self.ir.Constant(kind, self.ir.Undefined), zeros)

    def shuffled(self, a: Value, c: Value, order: list[int]) -> Value:
        """Return lanes of two vectors in this order."""
        mask = self.ir.Constant(self.vector(self.i32, len(order)), order)
        return self.b.shuffle_vector(a, c, mask)

    def pointer(self, address: Value, kind: Any) -> Value:
        """Convert an address to a pointer to this type."""
        return self.b.inttoptr(address, kind.as_pointer())

    def load(self, address: Value, kind: Any) -> Value:
        """Load a value from an address."""
        return self.b.load(self.pointer(address, kind), align=1)

    def store(self, value: Value, address: Value) -> None:
        """Store a value at an address."""
        self.b.store(value, self.pointer(address, value.type), align=1)

    def add(self, address: Value, *offsets: Value | int) -> Value:
        """Return the sum of int64."""
        for offset in offsets:
            address = self.b.add(address, self.number(offset) if isinstance(offset, int) else offset)
        return address

    def times(self, a: Value, c: Value | int) -> Value:
        """Return the product of int64."""
        return self.b.mul(a, self.number(c) if isinstance(c, int) else c)

    def variable(self, kind: Any, value: Value | None = None) -> Value:
        """Return a stack slot with a value. LLVM turns it into a register."""
        with self.b.goto_entry_block():
            place = self.b.alloca(kind)
        if value is not None:
            self.b.store(value, place)
        return place

    @contextlib.contextmanager
    def loop(self, count: Value) -> Iterator[Value]:
        """Generate a loop over 0 to count - 1."""
        b = self.b
        place = self.variable(self.i64, self.number(0))
        head, body, end = (b.append_basic_block() for _ in range(3))
        b.branch(head)
        b.position_at_end(head)
        index = b.load(place)
        b.cbranch(b.icmp_signed("<", index, count), body, end)
        b.position_at_end(body)
        yield index
        b.store(b.add(index, self.number(1)), place)
        b.branch(head)
        b.position_at_end(end)

    def smaller(self, a: Value, c: Value) -> Value:
        """Return the smaller of two integers."""
        return self.b.select(self.b.icmp_signed("<", a, c), a, c)

    def larger(self, a: Value, c: Value) -> Value:
        """Return the larger of two integers."""
        return self.b.select(self.b.icmp_signed(">", a, c), a, c)

    def intrinsic(self, name: str, result: Any, *arguments: Value) -> Value:
        """Call an LLVM intrinsic."""
        kind = self.ir.FunctionType(result, [argument.type for argument in arguments])
        module = self.b.module
        function = module.globals.get(name) or self.ir.Function(module, kind, name)
        return self.b.call(function, arguments)

    # Products.

    def sum_of_products(self, unit: str, sums: Value, x: Value, weights: Value) -> Value:
        """Return sums to which the products of one unit are added."""
        if unit == "float":
            return self.b.fadd(sums, self.b.fmul(x, weights))
        cpu = processor()
        if cpu.has_dot_product and cpu.is_x86:
            name = "vpdpbusd" if unit == "bytes" else "vpdpwssd"
            return self.intrinsic(f"llvm.x86.avx512.{name}.{8 * cpu.vector_bytes}", sums.type, sums, x, weights)
        if unit == "bytes":
            x, weights = (self.b.bitcast(value, self.vector(self.i8, 4 * self.width)) for value in (x, weights))
            return self.intrinsic("llvm.aarch64.neon.sdot.v4i32.v16i8", sums.type, sums, x, weights)
        assert unit == "pairs"
        return self.b.add(sums, self._sum_of_pairs(x, weights))

    def _sum_of_pairs(self, x: Value, weights: Value) -> Value:
        count = 2 * self.width
        narrow, wide = self.vector(self.i16, count), self.vector(self.i32, self.width)
        x, weights = self.b.bitcast(x, narrow), self.b.bitcast(weights, narrow)
        if processor().is_x86:
            name = {64: "avx512.pmaddw.d.512", 32: "avx2.pmadd.wd", 16: "sse2.pmadd.wd"}[processor().vector_bytes]
            return self.intrinsic(f"llvm.x86.{name}", wide, x, weights)
        products = []
        for first in range(2):
            lanes_of = list(range(first, count, 2))
            halves = [self.b.sext(self.shuffled(value, value, lanes_of), wide) for value in (x, weights)]
            products.append(self.b.mul(*halves))
        return self.b.add(*products)

    # Numbers rounded down.

    @contextlib.contextmanager
    def rounding_down(self) -> Iterator[None]:
        """Make `sum_rounded_down` and `floor` round down values that are loaded and stored inside of the context.

        LLVM moves neither loads nor stores across the instructions that set the mode, and therefore none of the
        operations between them.
        """
        self._is_rounding_down = True
        if embeds_rounding():
            yield
            return
        void = self.ir.VoidType()
        if processor().is_x86:
            modes = (self.variable(self.i32, self.i32(MXCSR_ROUNDS_DOWN)) for _ in range(2))
            before, down = (self.b.bitcast(mode, self.i8.as_pointer()) for mode in modes)
            self.intrinsic("llvm.x86.sse.stmxcsr", void, before)
            set_mode = "llvm.x86.sse.ldmxcsr"
        else:
            before, down = self.intrinsic("llvm.aarch64.get.fpcr", self.i64), self.i64(FPCR_ROUNDS_DOWN)
            set_mode = "llvm.aarch64.set.fpcr"
        self.intrinsic(set_mode, void, down)
        yield
        self.intrinsic(set_mode, void, before)

    def sum_rounded_down(self, x: Value, factor: Value, addend: Value) -> Value:
        """Return x * factor + addend of float32 vectors, rounded once."""
        assert self._is_rounding_down
        if embeds_rounding():
            return self.intrinsic("llvm.x86.avx512.vfmadd.ps.512", x.type, x, factor, addend, self.i32(ROUNDS_DOWN))
        return self.intrinsic(f"llvm.fma.v{self.width}f32", x.type, x, factor, addend)

    def floor(self, x: Value) -> Value:
        """Return the floor of a float32 vector as int32."""
        kind = self.vector(self.i32, self.width)
        if embeds_rounding():
            name, zeros = "llvm.x86.avx512.mask.cvtps2dq.512", self.ir.Constant(kind, None)
            return self.intrinsic(name, kind, x, zeros, self.i16(-1), self.i32(ROUNDS_DOWN))
        name = "x86.avx.cvt.ps2dq.256" if processor().is_x86 else "aarch64.neon.fcvtms.v4i32.v4f32"
        return self.intrinsic(f"llvm.{name}", kind, x)

    # Lanes within 128 bits.

    def zipped(self, a: Value, c: Value) -> list[Value]:
        """Interleave two vectors: the low halves of their 128-bit parts, and the high halves."""
        count, group = a.type.count, 128 // a.type.element.width
        orders = [
            [value + start + lane for start in range(0, count, group) for lane in half for value in (0, count)]
            for half in (range(group // 2), range(group // 2, group))
        ]
        return [self.shuffled(a, c, order) for order in orders]

    def packed(self, a: Value, c: Value) -> Value:
        """Combine two vectors to one with half the bits for each lane, saturated. Lanes of each 128 bits stay
        together."""
        bits, count = a.type.element.width // 2, 2 * a.type.count
        narrow = self.vector(self.ir.IntType(bits), count)
        if processor().is_x86:
            name = "packssdw" if bits == 16 else "packsswb"
            prefix = {64: "avx512.{}.512", 32: "avx2.{}", 16: "sse2.{}.128"}[processor().vector_bytes]
            return self.intrinsic("llvm.x86." + prefix.format(name), narrow, a, c)
        group = 128 // a.type.element.width
        order = [
            lane
            for start in range(0, a.type.count, group)
            for value in (0, a.type.count)
            for lane in range(value + start, value + start + group)
        ]
        halves = [self.saturated(value, bits) for value in (a, c)]
        return self.shuffled(halves[0], halves[1], order)

    def saturated(self, values: Value, bits: int) -> Value:
        """Saturate lanes to fewer bits."""
        limit, count = 1 << (bits - 1), values.type.count
        values = self.larger(values, self.splat(values.type.element(-limit), count))
        values = self.smaller(values, self.splat(values.type.element(limit - 1), count))
        return self.b.trunc(values, self.vector(self.ir.IntType(bits), count))


# --- From sums to outputs ----------------------------------------------------------------------------------------


class EpilogueForm(NamedTuple):
    """The part of an epilogue that is compiled into kernels.

    Attributes:
        scale: "short_lines", "lines", "double", "wide"; "float" for an activation alone.
        bits: bits of the output.
        rounds: rounding of halves below zero: "away" from zero, or "up" if such results are clamped anyway.
        left: whether any multiplier shifts sums to the left first.
        adds: whether the zero point isn't 0.
        clamps: whether the limits are narrower than the type.
    """

    scale: str
    bits: int
    rounds: str
    left: int
    adds: int
    clamps: int


class OutputLimits(NamedTuple):
    """Zero point and limits of an output, as int64. For floats, the limits are the bits of a float64."""

    zero_point: Value
    minimum: Value
    maximum: Value


class ChannelConstants(NamedTuple):
    """Arrays that tiles read for each channel, in the order of the tiles."""

    weights: Value
    bias: Value
    constants: Value
    constants_bytes: Value


class Epilogue:
    """Turns the sums of a tile into outputs."""

    def __init__(self, w: Writer, form: EpilogueForm, limits: OutputLimits):
        self.w = w
        self.scale, self.bits, self.rounds, self.left, self.adds, self.clamps = form
        b = w.b
        if self.scale == "float":
            bounds = [b.fptrunc(b.bitcast(value, w.ir.DoubleType()), w.f32) for value in limits[1:]]
            self.activation_min, self.activation_max = (w.splat(value, w.width) for value in bounds)
            return
        narrow = [b.trunc(value, w.i16) for value in limits]
        self.zero_point, self.activation_min, self.activation_max = (w.splat(value, 2 * w.width) for value in narrow)

    def __call__(self, rows: list[list[Value]], constants: Value) -> list[list[Value]]:
        """Return vectors of outputs for each position, in the order of channels, from the vectors of its sums.

        Args:
            constants: address of the constants of the first vector.
        """
        w = self.w
        if self.scale == "float":
            return [[self._activated(value, constants, place) for place, value in enumerate(sums)] for sums in rows]
        if self.scale in LINE_ROWS:
            step, scale = LINE_ROWS[self.scale][self.rounds] * 4 * w.width, self._on_line
        else:
            step, scale = SCALE_ROWS * 4 * w.width + (4 * w.width if self.left else 0), self._scaled
        scaled = [[scale(value, w.add(constants, v * step)) for v, value in enumerate(sums)] for sums in rows]
        together = 4 // len(scaled[0])  # number of positions whose bytes fill a vector
        if self.bits == 8 and len(rows) % together == 0:
            groups = (scaled[first : first + together] for first in range(0, len(rows), together))
            return [row for group in groups for row in self._bytes(group)]
        return [self._narrowed(value) for value in scaled]

    def rounding(self) -> contextlib.AbstractContextManager[None]:
        """Return the context for the rounding that outputs need, for the whole kernel."""
        return self.w.rounding_down() if self.scale in LINE_ROWS else contextlib.nullcontext()

    def _bytes(self, rows: list[list[Value]]) -> list[list[Value]]:
        """Return the bytes of as many positions as fill one vector."""
        w = self.w
        values = [value for row in rows for value in row]
        words = [self._clamped(w.packed(*values[:2])), self._clamped(w.packed(values[2], values[-1]))]
        packed, parts = w.packed(*words), len(rows)
        if len(values) == 3:  # the last quarter of each 128 bits repeats the third vector
            units = w.b.bitcast(packed, w.vector(w.i32, w.width))
            kept = w.shuffled(units, units, [lane for lane in range(w.width) if lane % 4 < 3])
            return [[w.b.bitcast(kept, w.vector(w.i8, 3 * w.width))]]
        if parts == 1:
            return [[packed]]
        # Each 128 bits have parts of every position: combine them.
        unit = w.vector(w.ir.IntType(128 // parts), w.width // 4 * parts)
        order = [lane * parts + row for row in range(parts) for lane in range(w.width // 4)]
        sorted_ = w.b.bitcast(packed, unit)
        sorted_ = w.b.bitcast(w.shuffled(sorted_, sorted_, order), packed.type)
        count = packed.type.count // parts
        return [[w.shuffled(sorted_, sorted_, list(range(row * count, (row + 1) * count)))] for row in range(parts)]

    def _narrowed(self, scaled: list[Value]) -> list[Value]:
        """Return the outputs of one position."""
        words = []
        for place in range(0, len(scaled), 2):
            pair = scaled[place : place + 2]
            words.append(self._clamped(self.w.packed(pair[0], pair[-1])))
        if len(scaled) == 1:  # only the first half of the lanes counts, because a vector was packed with itself
            words = [self._halved(words[0])]
        if self.bits == 16:
            return words
        return [self.w.saturated(value, 8) for value in words]

    def _activated(self, sums: Value, constants: Value, place: int) -> Value:
        """Add the bias, then apply C's max and min, which propagate NaN."""
        w, b = self.w, self.w.b
        values = b.fadd(sums, w.load(w.add(constants, 4 * w.width * place), sums.type))
        values = b.select(b.fcmp_ordered("<", values, self.activation_min), self.activation_min, values)
        return b.select(b.fcmp_ordered("<", self.activation_max, values), self.activation_max, values)

    def _clamped(self, words: Value) -> Value:
        w = self.w
        if self.adds:
            words = w.intrinsic(f"llvm.sadd.sat.v{2 * w.width}i16", words.type, words, self.zero_point)
        return w.smaller(w.larger(words, self.activation_min), self.activation_max) if self.clamps else words

    def _halved(self, words: Value) -> Value:
        order = [lane for group in range(0, 2 * self.w.width, 8) for lane in range(group, group + 4)]
        return self.w.shuffled(words, words, order)

    def _on_line(self, sums: Value, constants: Value) -> Value:
        """Return floor(fma(x, high, fma(x, low, offset))); offset is `below` if x < switch. Short lines have no
        `low`."""
        w, b = self.w, self.w.b
        x = b.sitofp(sums, w.vector(w.f32, w.width))
        count = LINE_ROWS[self.scale][self.rounds]
        rows = [w.load(w.add(constants, row * 4 * w.width), x.type) for row in range(count)]
        slopes = 1 if self.scale == "short_lines" else 2
        offset = rows[slopes]
        if self.rounds == "away":
            below, switch = rows[slopes + 1 :]
            offset = b.select(b.fcmp_ordered("<", x, switch), below, offset)
        for slope in reversed(rows[:slopes]):
            offset = w.sum_rounded_down(x, slope, offset)
        return w.floor(offset)

    def _scaled(self, sums: Value, constants: Value) -> Value:
        """Return the 32-bit results of 32-bit sums."""
        w, b = self.w, self.w.b
        half = w.width // 2
        wide = w.vector(w.i64, half)
        thirty_two = w.splat(w.i64(32), half)
        if self.left:
            sums = b.shl(sums, w.load(w.add(constants, SCALE_ROWS * 4 * w.width), sums.type))
        if self.scale == "double" and processor().is_arm64:
            return self._double_on_arm64(sums, constants)
        both = b.bitcast(sums, wide)
        results = []
        for odd in (False, True):
            x = b.ashr(both if odd else b.shl(both, thirty_two), thirty_two)
            rows = [w.load(w.add(constants, (2 * row + odd) * 4 * w.width), wide) for row in range(4)]
            results.append(self._wide(x, *rows) if self.scale == "wide" else self._double(x, *rows))
        even, odd_ones = results
        order = [lane + (lane % 2) * w.width for lane in range(w.width)]
        narrow = sums.type
        return w.shuffled(b.bitcast(even, narrow), b.bitcast(b.shl(odd_ones, thirty_two), narrow), order)

    def _double(self, x: Value, significand: Value, addend: Value, sign: Value, shift: Value) -> Value:
        """floor((x * significand + addend - (sign if x * significand + 2^30 is negative)) / 2^shift).

        The first rounding adds 2^30 before a right shift by 31; the second one subtracts 1 from a negative number, adds
        one half, and shifts right. All addends can be added before a single shift.
        """
        w, b = self.w, self.w.b
        product = b.mul(x, significand)
        total = b.add(product, addend)
        if self.rounds == "away":
            is_negative = b.icmp_signed("<", product, w.splat(w.i64(-(1 << 30)), x.type.count))
            total = b.select(is_negative, b.sub(total, sign), total)
        return b.ashr(total, shift)

    def _double_on_arm64(self, sums: Value, constants: Value) -> Value:
        """Return the same for the 32-bit lanes of `sums`: SQRDMULH rounds as the first step does, SRSHL as the second.

        It uses the low halves of the 64-bit constants; `sign` is the sign bit if there is a second rounding.
        """
        w, b, kind = self.w, self.w.b, sums.type

        def constant(row: int) -> Value:
            even, odd = (w.load(w.add(constants, (2 * row + part) * 4 * w.width), kind) for part in range(2))
            return w.shuffled(even, odd, [lane - lane % 2 + lane % 2 * w.width for lane in range(w.width)])

        significand, sign, shift = constant(0), constant(2), constant(3)
        high = w.intrinsic("llvm.aarch64.neon.sqrdmulh.v4i32", kind, sums, significand)
        if self.rounds == "away":
            below_zero = b.ashr(b.and_(high, sign), w.splat(w.i32(31), w.width))
            high = w.intrinsic("llvm.sadd.sat.v4i32", kind, high, below_zero)
        return w.intrinsic("llvm.aarch64.neon.srshl.v4i32", kind, high, b.sub(w.splat(w.i32(31), w.width), shift))

    def _wide(self, x: Value, significand: Value, addend: Value, bias: Value, shift: Value) -> Value:
        """Return floor(((x + bias) * significand + addend) / 2^shift)."""
        b = self.w.b
        return b.ashr(b.add(b.mul(b.add(x, bias), significand), addend), shift)


# --- Kernels -----------------------------------------------------------------------------------------------------


@emitted
def product(
    builder: Any,
    image: int,
    offsets: Int64s,
    positions: int,
    segments: int,
    segment_offsets: Int64s,
    units: int,
    channels: ChannelConstants,
    blocks: int,
    y: int,
    y_step: int,
    direct: int,
    valid: int,
    limits: OutputLimits,
    *,
    unit: str,
    rows: int,
    vectors: int,
    split: int,
    form: EpilogueForm,
) -> None:
    """Compute the outputs of all positions for blocks of channels.

    Args:
        image: address of the image.
        offsets: offset of the first unit of each position in the image, in bytes.
        segments, segment_offsets, units: a position has `segments` runs of `units` units each, at these offsets in
            bytes.
        channels: weights (blocks, segments, units, vectors, lanes), bias (blocks, vectors, lanes).
        y, y_step: address of the output, and bytes from one position to the next.
        direct: number of tiles that may write beyond their channels, into the next position.
        valid: number of bytes of a position that belong to the block.
        split: number of register sets among which the units are distributed in turn.
    """
    w = Writer(builder)
    b, vector_bytes = builder, 4 * w.width
    element = w.f32 if unit == "float" else w.i32
    kind = w.vector(element, w.width)
    epilogue = Epilogue(w, form, limits)
    block_bytes, unit_bytes = vectors * w.width * form.bits // 8, vectors * vector_bytes
    y_place, w_place = w.variable(w.i64, y), w.variable(w.i64, channels.weights)
    bias_place, constants_place = w.variable(w.i64, channels.bias), w.variable(w.i64, channels.constants)
    sums = [[[w.variable(kind) for _ in range(vectors)] for _ in range(rows)] for _ in range(split)]
    with b.goto_entry_block():
        spill = b.alloca(w.vector(w.i8, block_bytes), size=rows)
    tiles = b.sdiv(w.add(positions, rows - 1), w.number(rows))
    steps = b.sdiv(units, w.number(split))
    spread = kind if unit == "float" else w.vector(w.i32, w.width)
    with epilogue.rounding(), w.loop(blocks):
        y_block, constants_block, bias_block = b.load(y_place), b.load(constants_place), b.load(bias_place)
        weights_block = b.load(w_place)
        with w.loop(tiles) as tile:
            first = w.smaller(w.times(tile, rows), w.add(positions, -rows))
            zero = w.ir.Constant(kind, None)
            for part in range(split):
                for v in range(vectors):
                    begin = zero
                    if unit != "float" and part == 0:
                        begin = w.load(w.add(bias_block, v * vector_bytes), kind)
                    for r in range(rows):
                        b.store(begin, sums[part][r][v])
            xs = [w.add(image, b.load(b.gep(offsets, [w.add(first, r)]))) for r in range(rows)]
            b.store(weights_block, w_place)
            with w.loop(segments) as segment:
                start = b.load(b.gep(segment_offsets, [segment]))
                begins = [w.add(x, start) for x in xs]
                w_segment = b.load(w_place)

                def multiply(first: Value, count: int, begins: list[Value] = begins, at: Value = w_segment) -> None:
                    """Add the products of `count` units, each to a set of registers of its own."""
                    for place in range(count):
                        factors = w.add(at, w.times(first, unit_bytes), place * unit_bytes)
                        loaded = [w.load(w.add(factors, v * vector_bytes), spread) for v in range(vectors)]
                        for r in range(rows):
                            one = w.load(w.add(begins[r], w.times(first, 4), 4 * place), element)
                            x = w.splat(one, w.width)
                            for v in range(vectors):
                                total = sums[place][r][v]
                                b.store(w.sum_of_products(unit, b.load(total), x, loaded[v]), total)

                with w.loop(steps) as step:
                    multiply(w.times(step, split), split)
                if split > 1:
                    with w.loop(b.srem(units, w.number(split))) as rest:
                        multiply(w.add(w.times(steps, split), rest), 1)
                b.store(w.add(w_segment, w.times(units, vectors * vector_bytes)), w_place)
            totals = [[b.load(value) for value in sums[0][r]] for r in range(rows)]
            for part in range(1, split):
                totals = [
                    [b.add(total, b.load(value)) for total, value in zip(row, sums[part][r])]
                    for r, row in enumerate(totals)
                ]
            outputs = epilogue(totals, constants_block)
            targets = [w.add(y_block, w.times(w.add(first, r), y_step)) for r in range(rows)]
            with b.if_else(b.icmp_signed("<", tile, direct)) as (direct_ones, others):
                with direct_ones:
                    for target, vectors_of in zip(targets, outputs):
                        _store_all(w, vectors_of, target)
                with others:
                    base = b.ptrtoint(spill, w.i64)
                    for r, (target, vectors_of) in enumerate(zip(targets, outputs)):
                        _store_all(w, vectors_of, w.add(base, r * block_bytes))
                        copy_bytes(w, w.add(base, r * block_bytes), target, valid)
        b.store(w.add(y_block, block_bytes), y_place)
        b.store(w.add(bias_block, vectors * vector_bytes), bias_place)
        b.store(w.add(constants_block, channels.constants_bytes), constants_place)


def _store_all(w: Writer, values: list[Value], address: Value) -> None:
    for value in values:
        w.store(value, address)
        bits = 32 if value.type.element == w.f32 else value.type.element.width
        address = w.add(address, value.type.count * bits // 8)


def copy_bytes(w: Writer, source: Value, target: Value, count: Value) -> None:
    """Copy bytes one by one."""
    with w.loop(count) as i:
        w.store(w.load(w.add(source, i), w.i8), w.add(target, i))


@emitted
def copy_flipped(
    builder: Any,
    x: int,
    image: int,
    n0: int,
    n1: int,
    n2: int,
    count: int,
    x0: int,
    x1: int,
    x2: int,
    image0: int,
    image1: int,
    image2: int,
    flip: int,
) -> None:
    """Set image[i, j, k, :count] = x[i, j, k, :count] ^ flip; sizes and steps are in bytes; `flip` has 8 bytes."""
    w = Writer(builder)
    b = builder
    vector, pair = w.vector(w.i64, w.width // 2), w.vector(w.i64, 2)
    flips = {vector: w.splat(flip, w.width // 2), pair: w.splat(flip, 2), w.i64: flip, w.i8: b.trunc(flip, w.i8)}

    def copy_in(kind: Any, bytes_of_kind: int) -> None:
        """Copy whole units, and then the last, possibly overlapping one."""
        units = b.udiv(count, w.number(bytes_of_kind))
        has_rest = b.icmp_unsigned("!=", b.urem(count, w.number(bytes_of_kind)), w.number(0))
        with w.loop(n0) as i, w.loop(n1) as j, w.loop(n2) as k:
            source = w.add(x, w.times(i, x0), w.times(j, x1), w.times(k, x2))
            target = w.add(image, w.times(i, image0), w.times(j, image1), w.times(k, image2))

            def move(place: Value) -> None:
                w.store(b.xor(w.load(w.add(source, place), kind), flips[kind]), w.add(target, place))

            with w.loop(units) as unit:
                move(w.times(unit, bytes_of_kind))
            with b.if_then(has_rest):
                move(w.add(count, -bytes_of_kind))

    def copy_in_largest(kinds: Sequence[tuple[Any, int]]) -> None:
        largest, *smaller = kinds
        if not smaller:
            copy_in(*largest)
            return
        with b.if_else(b.icmp_signed(">=", count, w.number(largest[1]))) as (fits, does_not):
            with fits:
                copy_in(*largest)
            with does_not:
                copy_in_largest(smaller)

    copy_in_largest([(vector, 4 * w.width), (pair, 16), (w.i64, 8), (w.i8, 1)])


TAPS_OF_UNIT = {"bytes": 4, "pairs": 2, "float": 1}
"""Number of taps whose products one instruction adds to the sums of a channel."""

VECTORS_OF_RUN = {"bytes": 4, "pairs": 2, "float": 4}
"""Number of vectors of sums in a tile of adjacent channels."""


@emitted
def channelwise(
    builder: Any,
    image: int,
    offsets: Int64s,
    runs: int,
    tiles: int,
    period: int,
    groups: int,
    taps: Int64s,
    channels: ChannelConstants,
    y: int,
    y_step: int,
    direct: int,
    valid: int,
    limits: OutputLimits,
    *,
    unit: str,
    form: EpilogueForm,
) -> None:
    """Compute the outputs of runs. Each output element reads the image elements at the same index of the run, one for
    each tap.

    Args:
        image: address of the image.
        offsets: offset of the start of each run in the image, in bytes.
        tiles: number of tiles in a run; the weights of every `period` tiles are the same.
        groups: number of groups of taps; the last group is padded with zero weights.
        taps: offset of each tap from the start of the run, in bytes.
        channels: weights (period, groups, vectors, lanes), bias (period, vectors, lanes).
        y, y_step: address of the output, and bytes from one run to the next.
        direct: number of runs that may write beyond their end, into the next one.
        valid: number of bytes of a run's last tile that belong to the run.
    """
    w = Writer(builder)
    b, vector_bytes = builder, 4 * w.width
    count, together = VECTORS_OF_RUN[unit], TAPS_OF_UNIT[unit]
    kind = w.vector(w.f32 if unit == "float" else w.i32, w.width)
    epilogue = Epilogue(w, form, limits)
    tile_bytes = count * w.width * form.bits // 8
    loaded_bytes = count * vector_bytes // together
    with b.goto_entry_block():
        spill = b.alloca(w.vector(w.i8, tile_bytes))
    sums = [w.variable(kind) for _ in range(count)]
    turn = w.variable(w.i64)
    with epilogue.rounding(), w.loop(runs) as run:
        begin = w.add(image, b.load(b.gep(offsets, [run])))
        target = w.add(y, w.times(run, y_step))
        b.store(w.number(0), turn)
        with w.loop(tiles) as tile:
            place = b.load(turn)
            following = w.add(place, 1)
            b.store(b.select(b.icmp_signed("==", following, period), w.number(0), following), turn)
            for v, value in enumerate(sums):
                start = w.ir.Constant(kind, None)
                if unit != "float":
                    at = w.add(channels.bias, w.times(place, count * vector_bytes), v * vector_bytes)
                    start = w.load(at, kind)
                b.store(start, value)
            source = w.add(begin, w.times(tile, loaded_bytes))
            factors = w.add(channels.weights, w.times(w.times(place, groups), count * vector_bytes))
            with w.loop(groups) as group:
                first = w.times(group, together)
                seen = [w.add(source, b.load(b.gep(taps, [w.add(first, tap)]))) for tap in range(together)]
                at = w.add(factors, w.times(group, count * vector_bytes))
                for v, x in enumerate(_interleaved(w, unit, seen)):
                    factor = w.load(w.add(at, v * vector_bytes), x.type)
                    b.store(w.sum_of_products(unit, b.load(sums[v]), x, factor), sums[v])
            totals = [b.load(value) for value in sums]
            (outputs,) = epilogue([totals], w.add(channels.constants, w.times(place, channels.constants_bytes)))
            goal = w.add(target, w.times(tile, tile_bytes))
            is_last = b.icmp_signed("==", tile, w.add(tiles, -1))
            is_confined = b.and_(is_last, b.icmp_signed(">=", run, direct))
            with b.if_else(is_confined) as (confined, others):
                with confined:
                    base = b.ptrtoint(spill, w.i64)
                    _store_all(w, outputs, base)
                    copy_bytes(w, base, goal, valid)
                with others:
                    _store_all(w, outputs, goal)


def _interleaved(w: Writer, unit: str, addresses: list[Value]) -> list[Value]:
    """Return the inputs of the taps, for the channels of one tile: vectors of units, in the order of
    `channel_order`."""
    vector_bytes = 4 * w.width
    if unit == "float":
        kind = w.vector(w.f32, w.width)
        return [w.load(w.add(addresses[0], v * vector_bytes), kind) for v in range(VECTORS_OF_RUN[unit])]
    element = w.i8 if unit == "bytes" else w.i16
    vectors = [w.load(address, w.vector(element, 8 * vector_bytes // element.width)) for address in addresses]
    vectors = w.zipped(vectors[0], vectors[1]) + w.zipped(vectors[-2], vectors[-1])[: len(vectors) - 2]
    if unit == "bytes":
        low_ab, high_ab, low_cd, high_cd = (w.b.bitcast(value, w.vector(w.i16, 2 * w.width)) for value in vectors)
        vectors = w.zipped(low_ab, low_cd) + w.zipped(high_ab, high_cd)
    return [w.b.bitcast(value, w.vector(w.i32, w.width)) for value in vectors]
