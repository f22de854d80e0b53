"""What a kernel does to memory that its inputs and its output share: facts that a registration declares.

A kernel reads and writes its tensors in an order of its own. Where that order is known, an output may lie on an input
whose bytes have all been read by the time they are written; and what only moves bytes may write them where they are.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tflm.schema.element_types import ELEMENT_TYPES
from tflm.schema.enums import TensorType
from tflm.schema.layout import Table
from tflm.schema.tables import Model, Operator, SubGraph


class TensorFacts(NamedTuple):
    """What a model says of a tensor.

    Attributes:
        type, dims: element type and shape.
        constant: the bytes of a constant of the model; None for what lies in the arena.
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
        """Bytes of an element in the arena."""
        return ELEMENT_TYPES[self.type].dtype.itemsize

    @property
    def bytes(self) -> int:
        """Size in the arena, in bytes."""
        return self.elements * self.itemsize

    def integers(self) -> npt.NDArray[Any] | None:
        """The elements of a constant; None for what is none, or has fewer bytes than its shape takes."""
        if self.constant is None or len(self.constant) < self.bytes:
            return None
        return np.frombuffer(self.constant, ELEMENT_TYPES[self.type].dtype, self.elements)


class OperatorFacts(NamedTuple):
    """What a model says of an operator; None for inputs that are left out."""

    inputs: Sequence[TensorFacts | None]
    outputs: Sequence[TensorFacts]
    options: Table | None

    @classmethod
    def of(cls, model: Model, subgraph: SubGraph, operator: Operator) -> OperatorFacts:
        """What a model's tables say of one of its operators."""
        tensors, buffers = subgraph.tensors or [], model.buffers or []

        def facts(index: int) -> TensorFacts:
            data = buffers[tensors[index].buffer].data
            return TensorFacts(tensors[index].type, tensors[index].shape or (), memoryview(data) if data else None)

        inputs = [facts(index) if index >= 0 else None for index in operator.inputs or ()]
        return cls(inputs, [facts(index) for index in operator.outputs or ()], operator.builtin_options)


Overlap = Callable[[OperatorFacts, int], range]
"""How many bytes behind the begin of the output an input may begin, where the two share bytes: at these distances the
kernel has read for the last time what it writes over. Below 0, the output begins behind the input."""

NOWHERE = range(0)
"""No common byte is allowed."""

FAR = sys.maxsize


class Move(NamedTuple):
    """Bytes of an input that become bytes of an output, as they are.

    Attributes:
        input, output: their numbers.
        source, target: offsets in bytes, from the begin of each tensor.
        size: bytes.
        ascending: whether they are copied from the lowest address to the highest, so that the target may lie before the
            source and on part of it.
    """

    input: int
    source: int
    output: int
    target: int
    size: int
    ascending: bool = False


Moves = Callable[[OperatorFacts], "Sequence[Move] | None"]
"""The moves, in their order, that an operator is made of; None where these tensors and options ask for more."""


def in_order(steps: int, read_bytes: int, written_bytes: int) -> range:
    """Each step reads so many bytes of the input, which are not read again, and then writes so many.

    Before step k + 1, (k + 1) * written bytes must not reach beyond (k + 1) * read bytes.
    """
    if steps < 2:
        return range(-read_bytes * steps, FAR)
    return range((steps - 1 if written_bytes > read_bytes else 1) * (written_bytes - read_bytes), FAR)


def element_wise(operator: OperatorFacts, input: int) -> range:
    """Element k of the output comes from elements k of the inputs, or of one that broadcasts to it.

    It is written when all elements up to k of an input as large have been read.
    """
    x, y = operator.inputs[input], operator.outputs[0]
    if x is None or x.elements != y.elements:
        return NOWHERE
    return in_order(y.elements, x.itemsize, y.itemsize)


def row_wise(operator: OperatorFacts, input: int) -> range:
    """Each row of the output comes from the row of the input; the last pass reads each element before it writes it."""
    return element_wise(operator, input)


def anywhere(operator: OperatorFacts, input: int) -> range:
    """Any common bytes are allowed."""
    return range(-FAR, FAR)


def nowhere(operator: OperatorFacts, input: int) -> range:
    """No common byte is allowed."""
    return NOWHERE


def both(one: range, other: range) -> range:
    """What is in two ranges of distances."""
    return range(max(one.start, other.start), min(one.stop, other.stop))


def never_read(operator: OperatorFacts, input: int) -> range:
    """The kernel looks at shapes only."""
    return anywhere(operator, input)


def first_in_its_place(operator: OperatorFacts, input: int) -> range:
    """The output may be the first input, of which a part is changed."""
    return range(1) if input == 0 else NOWHERE


def copied(operator: OperatorFacts) -> list[Move] | None:
    """The output is the first input."""
    x = operator.inputs[0]
    return None if x is None else [Move(0, 0, 0, 0, x.bytes)]


def copied_in_order(operator: OperatorFacts) -> list[Move] | None:
    """The output is the first input, element by element."""
    moves = copied(operator)
    return None if moves is None else [move._replace(ascending=True) for move in moves]
