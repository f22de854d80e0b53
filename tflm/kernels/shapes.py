"""Shape inference: operators before memory is allocated, and shape rules that several operators share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from tflm.errors import OperatorError
from tflm.schema.version_rules import Signature

Shape = tuple[int, ...]
Shapes = Sequence[Sequence[int]]
Values = npt.NDArray[Any]


def nothing_known(index: int) -> Values | None:
    """Known elements of a node's inputs: none."""
    return None


@dataclass(frozen=True)
class StaticNode(Signature):
    """An operator of a model file, with the input elements that are known before it runs.

    Attributes:
        known: the elements of an input, by index, if it is constant or follows from shapes; else None.
        state_shapes: new shapes of variable tensors, by input; filled by shape rules.
    """

    known: Callable[[int], Values | None] = nothing_known
    state_shapes: dict[int, Shape] = field(default_factory=dict)

    @property
    def input_count(self) -> int:
        """Number of inputs, including omitted ones."""
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
        """Whether the node has this input."""
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
        """The elements of an input, flattened."""
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
        """Shape of a four-dimensional input: (batch, height, width, channels), or that of a filter."""
        batch, height, width, channels = self.ranked(index, 4)
        return batch, height, width, channels

    def ranked(self, index: int, rank: int) -> Shape:
        """Shape of an input; raises `OperatorError` unless it has `rank` dimensions."""
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
    """The shape that all given shapes broadcast to."""
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:
        raise OperatorError(f"shapes {' and '.join(map(str, map(list, shapes)))} do not broadcast") from None


def from_values(index: int) -> OutputShapes:
    """The shape of the output is given by the elements of an input."""
    return lambda node: [node.numbers(index)]


def padded_shape(node: StaticNode) -> Shapes:
    """The first input's shape plus the padding before and after each dimension, given by the second input."""
    paddings = node.values(1).reshape(-1, 2)
    return [[size + int(before) + int(after) for size, (before, after) in zip(node.shape(0), paddings)]]


def reduced(node: StaticNode) -> Shapes:
    """The first input's shape without the axes in the second input; with keep_dims, 1 for each of them."""
    shape = node.shape(0)
    axes = {require_axis(axis, len(shape)) for axis in node.numbers(1)}
    if node.option("keep_dims"):
        return [[1 if axis in axes else size for axis, size in enumerate(shape)]]
    return [[size for axis, size in enumerate(shape) if axis not in axes]]


def require_axis(axis: int, rank: int, tensor: str = "") -> int:
    """A dimension, counted from the end if negative, as one from 0.

    Args:
        tensor: whose dimensions these are, for the error.

    Raises:
        OperatorError: the axis is out of range.
    """
    if not -rank <= axis < rank:
        raise OperatorError(f"axis {axis} is out of range for {rank} dimensions", tensor=tensor)
    return axis % rank
