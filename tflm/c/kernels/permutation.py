"""TRANSPOSE in place: moves each element to its destination, along the cycles of the permutation."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tflm.c.kernels.part import Part
from tflm.compiler.language import DONE, Elements, Int32s, Step, UInt8s, kernel
from tflm.delegates.compiled.bands import work_array
from tflm.delegates.compiled.movement import copy_steps, fixed_copies
from tflm.kernels.layers.geometry import Windows
from tflm.kernels.node import Node
from tflm.kernels.overlap import FAR, NOWHERE, OperatorFacts


@kernel
def permute(y: Elements, moved: UInt8s, dimensions: Int32s, rank: int, count: int) -> int:
    """Permute elements.

    Args:
        moved: scratch memory: a bit for each element.
        dimensions: size and step in the old order of each dimension of the new order, the last dimension first.
        rank: number of dimensions.
    """
    for k in range((count + 7) >> 3):
        moved[k] = 0
    for start in range(count):
        if (moved[start >> 3] >> (start & 7)) & 1 == 0:
            first = y[start]
            at = start
            source = -1
            while source != start:
                rest = at
                source = 0
                for k in range(rank - 1):
                    quotient = rest // dimensions[2 * k]
                    source += (rest - quotient * dimensions[2 * k]) * dimensions[2 * k + 1]
                    rest = quotient
                source += rest * dimensions[2 * rank - 1]
                moved[at >> 3] = moved[at >> 3] | (1 << (at & 7))
                if source == start:
                    y[at] = first
                else:
                    y[at] = y[source]
                    at = source
    return DONE


def bind_transpose(node: Node, part: Part | None = None) -> Sequence[Step] | None:
    """Bind TRANSPOSE: a copy, unless output and input share memory, and then a permutation."""
    ((y, x),) = fixed_copies(node) or ()
    if x.size < 2:
        return None
    shape = node.eval_input(0).elements.shape
    copied = copy_steps([(y.reshape(shape), node.eval_input(0).elements)])
    merged: list[tuple[int, int]] = []
    for size, step in zip(x.shape[::-1], (step // x.itemsize for step in x.strides[::-1])):
        if size == 1:
            continue
        if merged and step == merged[-1][0] * merged[-1][1]:
            size, step = size * merged[-1][0], merged.pop()[1]
        merged.append((size, step))
    dimensions = np.array(merged, np.int32).reshape(-1)
    moved = work_array(-(-x.size // 8), np.uint8)
    names = {"y": y.reshape(-1), "moved": moved, "dimensions": dimensions, "rank": len(merged), "count": x.size}
    return [*(copied or []), permute.step(**names)]


def overlap(facts: OperatorFacts, windows: Windows | None, input: int) -> range:
    """Allow any overlap: the input is copied as a whole first."""
    return NOWHERE if input else range(-FAR, FAR)
