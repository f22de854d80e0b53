"""Products of matrices and one vector, which is read in place: bytes become unsigned in registers.

Channels lie along the lanes, as in `tiles`, and each unit of the vector is broadcast. If few channels read a long
vector, its units lie along the lanes instead, and the lanes of each channel are added up at the end.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tflm.compiler.language import emitted
from tflm.delegates.compiled.tiles import ChannelConstants, Epilogue, EpilogueForm, OutputLimits, Value, Writer, lanes

MAX_CHANNELS = 8
"""Maximum number of channels of `dot_products`."""

CHAINS = 4
"""Number of independent sums, to hide the latency of products."""


def has_few_channels(channels: int, units: int) -> bool:
    """Whether `dot_products` needs roughly fewer cycles than `vector_product`."""
    vectors, of_block = -(-units // lanes()), -(-channels // lanes())
    loads = (channels + 1) * vectors, (of_block + 1) * units
    fits = channels <= min(MAX_CHANNELS, lanes()) and units >= lanes()
    return fits and loads[0] // 2 + 2 * channels + 12 < loads[1] // 2


def loop_in_chains(w: Writer, count: Value, chains: int, multiply: Callable[[Value, int], None]) -> None:
    """Call `multiply` with each index below `count`, and the number of the chain that its products are added to."""
    rounds = w.b.sdiv(count, w.number(chains))
    with w.loop(rounds) as turn:
        for chain in range(chains):
            multiply(w.add(w.times(turn, chains), chain), chain)
    if chains > 1:
        with w.loop(w.b.srem(count, w.number(chains))) as rest:
            multiply(w.add(w.times(rounds, chains), rest), 0)


@emitted
def vector_product(
    builder: Any,
    x: int,
    flips: int,
    units: int,
    channels: ChannelConstants,
    blocks: int,
    y: int,
    valid: int,
    limits: OutputLimits,
    *,
    unit: str,
    flip: int,
    vectors: int,
    form: EpilogueForm,
) -> None:
    """Compute the outputs of blocks of channels.

    Args:
        x: address of the vector.
        flips: address of a vector of bytes to XOR x with. It is in memory because LLVM would not keep a constant in a
            register.
        units: number of 32-bit units in it.
        channels: weights (blocks, units, vectors, lanes), bias (blocks, vectors, lanes).
        valid: number of output bytes of a block.
    """
    w = Writer(builder)
    b, vector_bytes = builder, 4 * w.width
    element = w.f32 if unit == "float" else w.i32
    kind = w.vector(element, w.width)
    epilogue = Epilogue(w, form, limits)
    unit_bytes = vectors * vector_bytes
    chains = 1 if unit == "float" else max(CHAINS // vectors, 2)
    sums = [[w.variable(kind) for _ in range(vectors)] for _ in range(chains)]
    flipped = w.load(flips, kind) if flip else None
    with epilogue.rounding(), w.loop(blocks) as block:
        factors = w.add(channels.weights, w.times(block, w.times(units, unit_bytes)))
        for chain in range(chains):
            for v in range(vectors):
                begin = w.ir.Constant(kind, None)
                if unit != "float" and chain == 0:
                    begin = w.load(w.add(channels.bias, w.times(block, unit_bytes), v * vector_bytes), kind)
                b.store(begin, sums[chain][v])

        def multiply(place: Value, chain: int, factors: Value = factors) -> None:
            spread = w.splat(w.load(w.add(x, w.times(place, 4)), element), w.width)
            spread = b.xor(spread, flipped) if flip else spread
            for v in range(vectors):
                factor = w.load(w.add(factors, w.times(place, unit_bytes), v * vector_bytes), kind)
                b.store(w.sum_of_products(unit, b.load(sums[chain][v]), spread, factor), sums[chain][v])

        loop_in_chains(w, units, chains, multiply)
        (outputs,) = epilogue([_joined(w, sums)], w.add(channels.constants, w.times(block, channels.constants_bytes)))
        store_valid(w, outputs, w.add(y, w.times(block, valid)), valid)


@emitted
def dot_products(
    builder: Any,
    x: int,
    count: int,
    last: int,
    weights: int,
    bias: int,
    constants: int,
    y: int,
    valid: int,
    limits: OutputLimits,
    *,
    unit: str,
    flip: int,
    channels: int,
    form: EpilogueForm,
) -> None:
    """Compute the outputs of a few channels.

    Args:
        x: address of the input.
        count: number of vectors in it. The last one ends with the input, and may overlap the one before.
        last: offset of the last vector, in bytes.
        weights: (vectors, channels, lanes) units, zero where the last vector overlaps.
        bias: (lanes) int32, added to the sums.
        constants: constants of `Epilogue`.
        valid: number of output bytes.
    """
    w = Writer(builder)
    b, vector_bytes = builder, 4 * w.width
    kind = w.vector(w.i32, w.width)
    epilogue = Epilogue(w, form, limits)
    chains = max(CHAINS // channels, 1)
    zero, flips = w.ir.Constant(kind, None), w.splat(w.i32(int.from_bytes([flip] * 4, "little", signed=True)), w.width)
    sums = [[w.variable(kind, zero) for _ in range(channels)] for _ in range(chains)]

    def multiply(place: Value, chain: int) -> None:
        seen = w.load(w.add(x, w.smaller(w.times(place, vector_bytes), last)), kind)
        seen = b.xor(seen, flips) if flip else seen
        factors = w.add(weights, w.times(place, channels * vector_bytes))
        for channel in range(channels):
            factor = w.load(w.add(factors, channel * vector_bytes), kind)
            b.store(w.sum_of_products(unit, b.load(sums[chain][channel]), seen, factor), sums[chain][channel])

    loop_in_chains(w, count, chains, multiply)
    total = sums_of_runs(w, [*_joined(w, sums), *[zero] * (w.width - channels)])
    with epilogue.rounding():
        (outputs,) = epilogue([[b.add(total, w.load(bias, kind))]], constants)
        store_valid(w, outputs, y, valid)


def _joined(w: Writer, sums: list[list[Value]]) -> list[Value]:
    """Add the sums of all chains."""
    totals = [w.b.load(value) for value in sums[0]]
    for of_chain in sums[1:]:
        totals = [w.b.add(total, w.b.load(value)) for total, value in zip(totals, of_chain)]
    return totals


def sums_of_runs(w: Writer, values: list[Value]) -> Value:
    """Return one vector with the sums of runs of lanes; a run has as many lanes as there are vectors."""
    while len(values) % 2 == 0:
        pairs = zip(values[::2], values[1::2])
        values = [w.b.add(*(w.shuffled(*pair, list(range(odd, 2 * w.width, 2))) for odd in (0, 1))) for pair in pairs]
    total, *others = (_every(w, values, place) for place in range(len(values)))
    for other in others:
        total = w.b.add(total, other)
    return total


def _every(w: Writer, values: list[Value], first: int) -> Value:
    """Return every n-th lane of n vectors, starting with the first one given."""
    chosen = values[0]
    for vector, value in enumerate(values):
        lanes_of = [divmod(first + lane * len(values), w.width) for lane in range(w.width)]
        order = [w.width + place if source == vector else lane for lane, (source, place) in enumerate(lanes_of)]
        chosen = w.shuffled(chosen, value, order)
    return chosen


def store_valid(w: Writer, values: list[Value], address: Value, valid: Value) -> None:
    """Store the first bytes of vectors: all bytes at once, or pieces whose sizes are powers of two."""
    b = w.b
    sizes = [
        value.type.count * (32 if value.type.element == w.f32 else value.type.element.width) // 8 for value in values
    ]
    whole = sum(sizes)
    with b.goto_entry_block():
        spill = b.alloca(w.vector(w.i8, whole))
    with b.if_else(b.icmp_signed("==", valid, w.number(whole))) as (is_whole, is_part):
        with is_whole:
            _store_all(w, values, sizes, address)
        with is_part:
            base = b.ptrtoint(spill, w.i64)
            _store_all(w, values, sizes, base)
            piece = 1 << (whole - 1).bit_length() - 1
            while piece:
                with b.if_then(b.icmp_signed("!=", b.and_(valid, w.number(piece)), w.number(0))):
                    done = b.and_(valid, w.number(-2 * piece))
                    part = w.load(w.add(base, done), w.vector(w.i8, piece))
                    w.store(part, w.add(address, done))
                piece //= 2


def _store_all(w: Writer, values: list[Value], sizes: list[int], address: Value) -> None:
    for value, size in zip(values, sizes):
        w.store(value, address)
        address = w.add(address, size)
