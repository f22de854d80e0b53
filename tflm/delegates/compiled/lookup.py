"""Operators whose numpy kernels look up each integer of 8 or 16 bits in a table of all results."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tflm.delegates.compiled.language import (
    DONE,
    Int16s,
    Int32s,
    Kernel,
    Step,
    UInt8s,
    UInt16s,
    kernel,
)
from tflm.kernels import REGISTRATIONS
from tflm.kernels.arithmetic.lookup import Lookup
from tflm.kernels.registration import KernelContext, Node


@kernel
def look_up_8_to_8(x: UInt8s, table: UInt8s, y: UInt8s, count: int) -> int:
    """Set y to the table's element for each of x."""
    for i in range(count):
        y[i] = table[x[i]]
    return DONE


look_up_8_to_16 = look_up_8_to_8.variant("look_up_8_to_16", table=Int16s, y=Int16s)
look_up_8_to_32 = look_up_8_to_8.variant("look_up_8_to_32", table=Int32s, y=Int32s)
look_up_16_to_8 = look_up_8_to_8.variant("look_up_16_to_8", x=UInt16s)
look_up_16_to_16 = look_up_8_to_8.variant("look_up_16_to_16", x=UInt16s, table=Int16s, y=Int16s)
look_up_16_to_32 = look_up_8_to_8.variant("look_up_16_to_32", x=UInt16s, table=Int32s, y=Int32s)


KERNELS: dict[tuple[int, int], tuple[Kernel, npt.DTypeLike]] = {
    (1, 1): (look_up_8_to_8, np.uint8),
    (1, 2): (look_up_8_to_16, np.int16),
    (1, 4): (look_up_8_to_32, np.int32),
    (2, 1): (look_up_16_to_8, np.uint8),
    (2, 2): (look_up_16_to_16, np.int16),
    (2, 4): (look_up_16_to_32, np.int32),
}
"""By bytes of an element of x and of y; and what kernels take the latter to be."""


def lookup_step(lookup: Lookup) -> Step:
    """What does the same as a `Lookup`."""
    look, dtype = KERNELS[lookup.x.itemsize, lookup.y.itemsize]
    return look.step(x=lookup.x, table=lookup.table.view(dtype), y=lookup.y.view(dtype), count=lookup.y.size)


def bind_lookups(context: KernelContext, node: Node) -> list[Step] | None:
    """Operators that look up integers; those on floats are left to others."""
    bind = REGISTRATIONS[node.operator].bind
    lookup = None if bind is None else bind(context, node)
    return [lookup_step(lookup)] if isinstance(lookup, Lookup) else None
