"""Shape inference: an operator whose tensors have no memory yet, and rules of output shapes that operators share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from tflm.errors import OperatorError
from tflm.schema.signature import Signature

Shape = tuple[int, ...]
Shapes = Sequence[Sequence[int]]
Values = npt.NDArray[Any]


def nothing_known(index: int) -> Values | None:
    """For a node whose inputs have no known elements."""
    return None


@dataclass(frozen=True)
class StaticNode(Signature):
    """An operator as a file describes it, with the elements of those inputs that are known before it runs.

    Attributes:
        known: the elements of an input, by its position, if it is a constant or follows from shapes; None for others.
        state_shapes: filled by a rule: new shapes of variable tensors, by input.
    """

    known: Callable[[int], Values | None] = nothing_known
    state_shapes: dict[int, Shape] = field(default_factory=dict)

    @property
    def input_count(self) -> int:
        """Number of inputs, with those that are left out."""
        return len(self.inputs)

    @property
    def output_count(self) -> int:
        """Number of outputs."""
        return len(self.outputs)

    @property
    def shapes(self) -> list[Shape]:
        """Shapes of all inputs."""
        return [self.shape(index) for index in range(self.input_count)]

    def has(self, index: int) -> bool:
        """Whether there is such an input."""
        return self.input(index) is not None

    def values(self, index: int) -> Values:
        """The elements of an input.

        Raises:
            OperatorError: they are not known before the operator runs.
        """
        found = self.known(index) if self.has(index) else None
        if found is None:
            tensor = self.input(index)
            name = "" if tensor is None else tensor.name or ""
            raise OperatorError(f"input {index} is not a constant, so the shapes of outputs are unknown", tensor=name)
        return found

    def numbers(self, index: int) -> list[int]:
        """The elements of an input, flat."""
        return [int(value) for value in self.values(index).reshape(-1)]

    def option(self, name: str) -> Any:
        """The value of an option.

        Raises:
            OperatorError: the operator has no options, or none of that name.
        """
        if not hasattr(self.options, name):
            raise OperatorError(f"has no option {name}, so the shapes of outputs are unknown")
        return getattr(self.options, name)

    def images(self, index: int = 0) -> tuple[int, int, int, int]:
        """Shape of an input of four dimensions: batch, height, width, channels, or that of a filter."""
        batch, height, width, channels = self.ranked(index, 4)
        return batch, height, width, channels

    def ranked(self, index: int, rank: int) -> Shape:
        """Shape of an input; rejects one with another number of dimensions."""
        shape = self.shape(index)
        if len(shape) != rank:
            raise OperatorError(f"input {index} needs {rank} dimensions, {list(shape)} has {len(shape)}")
        return shape


OutputShapes = Callable[[StaticNode], Shapes]
OutputValues = Callable[[StaticNode], Values]


def same_as_input(node: StaticNode) -> Shapes:
    """The output has the shape of the first input."""
    return [node.shape(0)]


def broadcast(node: StaticNode) -> Shapes:
    """The output has the shape that all inputs broadcast to."""
    return [broadcast_shapes(node.shapes)]


def broadcast_shapes(shapes: Sequence[Shape]) -> Shape:
    """The shape that all these broadcast to."""
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:
        raise OperatorError(f"shapes {' and '.join(map(str, map(list, shapes)))} do not broadcast") from None


def from_values(index: int) -> OutputShapes:
    """The elements of an input are the shape of the output."""
    return lambda node: [node.numbers(index)]


def padded_shape(node: StaticNode) -> Shapes:
    """Each dimension of the first input, with elements before and after it, which the second input counts."""
    paddings = node.values(1).reshape(-1, 2)
    return [[size + int(before) + int(after) for size, (before, after) in zip(node.shape(0), paddings)]]


def reduced(node: StaticNode) -> Shapes:
    """The first input without the axes in the second one, or with 1 for each, if the option keep_dims is set."""
    shape = node.shape(0)
    axes = {positive_axis(axis, len(shape)) for axis in node.numbers(1)}
    if node.option("keep_dims"):
        return [[1 if axis in axes else size for axis, size in enumerate(shape)]]
    return [[size for axis, size in enumerate(shape) if axis not in axes]]


def positive_axis(axis: int, rank: int) -> int:
    """A dimension, counted from the end if negative, as one from 0; rejects one that is out of range."""
    if not -rank <= axis < rank:
        raise OperatorError(f"axis {axis} is out of range for {rank} dimensions")
    return axis % rank
