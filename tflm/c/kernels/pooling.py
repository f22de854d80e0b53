"""Poolings in programs in C: of some rows, or of all."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tflm.c.kernels.part import NEVER, Part, first_places
from tflm.compiler.language import Step
from tflm.compiler.processor import Profile
from tflm.delegates.compiled.pooling import pool_steps, windows_of
from tflm.kernels.layers.geometry import Windows, windows
from tflm.kernels.node import Node
from tflm.kernels.overlap import FAR, NOWHERE, OperatorFacts


def bind(node: Node, part: Part | None = None) -> Sequence[Step] | None:
    """Bind a pooling operator."""
    x, y, (rows, columns) = node.eval_input(0).elements, node.eval_output(0).elements, windows_of(node)
    if part is not None:
        rows, x, y, _ = part
    return pool_steps(node, Profile.PLAIN, x, y, rows, columns)


def overlap(facts: OperatorFacts, both: Windows | None = None, input: int = 0) -> range:
    """Return how many bytes after the output's first byte the input may begin. Windows are as given, or as the options
    say.

    A channel of a window is written before the channels after it are read.
    """
    x, both = facts.inputs[0], both or windows(facts)
    if input or x is None or both is None or x.dims[0] != 1:
        return NOWHERE
    rows, columns = both
    step = x.dims[3] * x.itemsize
    begins = np.arange(rows.windows * columns.windows, dtype=np.int64)
    # A window's first channels must not be written over its last channels, which have not been read yet.
    reads = first_places(rows, columns)
    seen = reads < NEVER
    return range(int(((begins[seen] - reads[seen]) * step).max(initial=1 - FAR)), FAR)
