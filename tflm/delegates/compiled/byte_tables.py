"""Tables of all results of a function of one byte, held in registers."""

from __future__ import annotations

from tflm.compiler.language import emitted
from tflm.compiler.processor import processor
from tflm.delegates.compiled.tiles import Value, Writer, copy_bytes

BYTES = 64
"""Of a register: a quarter of a table."""


def has_byte_tables() -> bool:
    """Whether the processor has the instructions of `look_up_bytes`."""
    return processor().has_byte_permutation


@emitted
def look_up_bytes(builder: object, x: int, table: int, y: int, count: int) -> None:
    """Set each byte of y to the table's element for the byte of x. They are addresses; y may be x.

    An instruction looks up the lower seven bits of 64 bytes in two registers. The upper bit chooses the half.
    """
    w = Writer(builder)
    b, kind = w.b, w.vector(w.i8, BYTES)
    quarters = [w.load(w.add(table, quarter * BYTES), kind) for quarter in range(4)]
    zeros = w.ir.Constant(kind, None)
    with b.goto_entry_block():
        spill = b.alloca(kind)

    def compute(source: Value, target: Value) -> None:
        places = w.load(source, kind)
        halves = [
            w.intrinsic("llvm.x86.avx512.vpermi2var.qi.512", kind, first, places, second)
            for first, second in (quarters[:2], quarters[2:])
        ]
        w.store(b.select(b.icmp_signed("<", places, zeros), halves[1], halves[0]), target)

    whole = b.udiv(count, w.number(BYTES))
    with w.loop(whole) as block:
        place = w.times(block, BYTES)
        compute(w.add(x, place), w.add(y, place))
    done = w.times(whole, BYTES)
    rest = b.sub(count, done)
    with b.if_then(b.icmp_signed(">", rest, w.number(0))):
        base = b.ptrtoint(spill, w.i64)
        copy_bytes(w, w.add(x, done), base, rest)
        compute(base, base)
        copy_bytes(w, base, w.add(y, done), rest)
