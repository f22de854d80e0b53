"""Which memory a kernel's inputs and output may share: facts that a registration declares.

Each kernel reads and writes its tensors in a certain order. If that order is known, an output may overlap an input as
long as every byte is read before it is overwritten, and an operator that only moves bytes may leave them in place.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tflm.schema.enums import ELEMENT_TYPES, TensorType
from tflm.schema.layout import Table
from tflm.schema.tables import Model, Operator, SubGraph


class TensorFacts(NamedTuple):
    """A tensor as the model describes it.

    Attributes:
        type, dims: element type and shape.
        constant: the bytes of a constant; None for tensors in the arena.
    """

    type: TensorType
    dims: tuple[int, ...]
    constant: memoryview | None = None

    @property
    def elements(self) -> int:
        """Number of elements."""
        return math.prod(self.dims)

    @property
    def itemsize(self) -> int:
        """Bytes per element in the arena."""
        return ELEMENT_TYPES[self.type].dtype.itemsize

    @property
    def bytes(self) -> int:
        """Size in the arena, in bytes."""
        return self.elements * self.itemsize

    def integers(self) -> npt.NDArray[Any] | None:
        """The elements of a constant; None if the tensor is not constant or has too few bytes for its shape."""
        if self.constant is None or len(self.constant) < self.bytes:
            return None
        return np.frombuffer(self.constant, ELEMENT_TYPES[self.type].dtype, self.elements)


class OperatorFacts(NamedTuple):
    """An operator as the model describes it; omitted inputs are None."""

    inputs: Sequence[TensorFacts | None]
    outputs: Sequence[TensorFacts]
    options: Table | None

    @classmethod
    def of(cls, model: Model, subgraph: SubGraph, operator: Operator) -> OperatorFacts:
        """The facts about an operator, from the model's tables."""
        tensors, buffers = subgraph.tensors or [], model.buffers or []

        def facts(index: int) -> TensorFacts:
            data = buffers[tensors[index].buffer].data
            return TensorFacts(tensors[index].type, tensors[index].shape or (), memoryview(data) if data else None)

        inputs = [facts(index) if index >= 0 else None for index in operator.inputs or ()]
        return cls(inputs, [facts(index) for index in operator.outputs or ()], operator.builtin_options)


Overlap = Callable[[OperatorFacts, int], range]
"""Allowed distances in bytes from the start of the output to the start of an input that shares memory with it: at these
distances the kernel overwrites only what it no longer reads. Negative if the output starts after the input.
"""

NOWHERE = range(0)
"""No common byte is allowed."""

FAR = sys.maxsize


class Move(NamedTuple):
    """A range of bytes copied unchanged from an input to an output.

    Attributes:
        input, output: their indices.
        source, target: byte offsets from the start of each tensor.
        size: bytes.
        ascending: whether the copy runs from the lowest address to the highest, so that the target may start before
            the source and overlap it.
    """

    input: int
    source: int
    output: int
    target: int
    size: int
    ascending: bool = False


Moves = Callable[[OperatorFacts], "Sequence[Move] | None"]
"""The moves that make up an operator, in order; None if it does more than move bytes for these tensors and options."""


def in_order(steps: int, read_bytes: int, written_bytes: int) -> range:
    """Each step reads `read` bytes of the input for the last time, then writes `written` bytes.

    After each step k, the k * written bytes of output must not extend past the k * read bytes of input.
    """
    if steps < 2:
        return range(-read_bytes * steps, FAR)
    return range((steps - 1 if written_bytes > read_bytes else 1) * (written_bytes - read_bytes), FAR)


def element_wise(operator: OperatorFacts, input: int) -> range:
    """Element k of the output comes from elements k of the inputs, or of one that broadcasts to it.

    It is written after all elements up to k of an input of the same size have been read.
    """
    x, y = operator.inputs[input], operator.outputs[0]
    if x is None or x.elements != y.elements:
        return NOWHERE
    return in_order(y.elements, x.itemsize, y.itemsize)


def row_wise(operator: OperatorFacts, input: int) -> range:
    """Each row of the output depends on the same row of the input; the last pass reads each element before writing
    it."""
    return element_wise(operator, input)


def anywhere(operator: OperatorFacts, input: int) -> range:
    """Any common bytes are allowed."""
    return range(-FAR, FAR)


def nowhere(operator: OperatorFacts, input: int) -> range:
    """No common byte is allowed."""
    return NOWHERE


def both(one: range, other: range) -> range:
    """The distances that are in both ranges."""
    return range(max(one.start, other.start), min(one.stop, other.stop))


def never_read(operator: OperatorFacts, input: int) -> range:
    """The kernel reads only shapes."""
    return anywhere(operator, input)


def first_in_its_place(operator: OperatorFacts, input: int) -> range:
    """The output may alias the first input; the operator changes only a part of it."""
    return range(1) if input == 0 else NOWHERE


def copied(operator: OperatorFacts) -> list[Move] | None:
    """The output is a copy of the first input."""
    x = operator.inputs[0] if operator.inputs and operator.outputs else None
    return None if x is None else [Move(0, 0, 0, 0, x.bytes)]


def copied_in_order(operator: OperatorFacts) -> list[Move] | None:
    """The output is a copy of the first input, made in ascending order."""
    moves = copied(operator)
    return None if moves is None else [move._replace(ascending=True) for move in moves]
