"""BROADCAST_ARGS: the shape that two shapes broadcast to."""

from __future__ import annotations

from typing import Any

from tflm.compiler.language import DONE, REFUSED, Elements, Step, inlined, kernel
from tflm.compiler.processor import Profile
from tflm.delegates.compiled.casts import as_int32
from tflm.kernels.node import KernelContext, Node


@inlined
def size_at(shape: Any, rank: int, place: int) -> Any:
    """Return the size of a dimension, of which TFLM reads 32 bits; 1 for missing leading dimensions."""
    return as_int32(shape[place]) if 0 <= place < rank else as_int32(1)


@kernel
def broadcast_shapes(shape1: Elements, shape2: Elements, y: Elements, rank1: int, rank2: int, rank: int) -> int:
    """Set y to the shape that both shapes broadcast to."""
    different = 0
    for i in range(rank):
        size1, size2 = size_at(shape1, rank1, i + rank1 - rank), size_at(shape2, rank2, i + rank2 - rank)
        different += size1 != size2 and size1 != 1 and size2 != 1
    if different:
        return REFUSED
    for i in range(rank):
        size1, size2 = size_at(shape1, rank1, i + rank1 - rank), size_at(shape2, rank2, i + rank2 - rank)
        y[i] = size2 if size1 == 1 else size1
    return DONE


def _bind(context: KernelContext, node: Node, profile: Profile) -> list[Step] | None:
    shape1, shape2 = (node.eval_input(i).elements for i in range(2))
    y = node.eval_output(0).elements
    ranks = {"rank1": shape1.size, "rank2": shape2.size, "rank": y.size}
    return [broadcast_shapes.step(shape1=shape1, shape2=shape2, y=y, **ranks)]


BINDINGS = {"BROADCAST_ARGS": _bind}
