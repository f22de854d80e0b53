"""Element-wise operators, a function of one input or of two that broadcast; views; operators that only copy.

`prepare` stores the function in the node's `op_data`, and the functions here bind it. It takes the elements of the
inputs and returns the elements of the output in a new array.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from tflm.errors import OperatorError
from tflm.kernels.arithmetic.requantization import bind_lookup
from tflm.kernels.node import KernelContext, Node
from tflm.kernels.registration import Run
from tflm.kernels.support.checks import AnyTensor, element_count, shape_error
from tflm.memory.tensor import TfLiteEvalTensor

Result = TypeVar("Result")


def bind_by_parameters(
    parameters: Sequence[TfLiteEvalTensor], prepare: Callable[[], Result], run: Callable[[Result], None]
) -> Run:
    """Bind `run`, which takes the result of `prepare` for the values of the inputs `parameters`.

    If all of them are constant, `prepare` is called, and rejects bad values, only once, here; otherwise in each run.
    """
    if not all(parameter.is_constant for parameter in parameters):
        return lambda: run(prepare())
    prepared = prepare()
    return lambda: run(prepared)


Copy = tuple[npt.NDArray[Any], npt.NDArray[Any]]
"""Target and source: views of one dtype; the source broadcasts to the shape of the target."""


def view_of(array: npt.NDArray[Any], slices: Sequence[slice]) -> npt.NDArray[Any]:
    """A view of a part of an array, with one slice for each dimension; works for zero-dimensional arrays too."""
    index: tuple[Any, ...] = (*slices, ...)
    view: npt.NDArray[Any] = array[index]
    return view


def as_numbers(x: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Bools as unsigned bytes; other arrays unchanged.

    A C bool other than 0 and 1 is undefined behavior; as on x86, operators compute with the stored byte.
    """
    return x.view(np.uint8) if x.dtype == np.bool_ else x


def make_copies(copies: Sequence[Copy]) -> None:
    """Run copies. Reads all sources before it writes a target, because a plan may let them overlap."""
    values = [source.copy() for _, source in copies]
    for (target, _), value in zip(copies, values):
        target[...] = value


def bind_copies(copies: Sequence[Copy]) -> Run:
    """Bind copies that are the same in each run."""
    return lambda: make_copies(copies)


@dataclass(frozen=True)
class Copying:
    """The bind phase of an operator that only copies elements.

    Attributes:
        copies: returns a node's copies, in TFLM's order.
        parameters: inputs whose values determine the copies. If one is not constant, every invoke recomputes them.
    """

    copies: Callable[[Node], Sequence[Copy]]
    parameters: tuple[int, ...] = ()

    def fixed_copies(self, node: Node) -> Sequence[Copy] | None:
        """The copies of every invoke; None if they can change between invokes."""
        return self.copies(node) if all(node.eval_input(i).is_constant for i in self.parameters) else None

    def __call__(self, context: KernelContext, node: Node) -> Run:
        parameters = [node.eval_input(i) for i in self.parameters]
        return bind_by_parameters(parameters, lambda: self.copies(node), make_copies)


UnaryFunction = Callable[[npt.NDArray[Any]], npt.NDArray[Any]]
BinaryFunction = Callable[[npt.NDArray[Any], npt.NDArray[Any]], npt.NDArray[Any]]


def broadcast_operands(node: Node, count: int = 2) -> tuple[list[npt.NDArray[Any]], npt.NDArray[Any]]:
    """The first `count` inputs of a node, and its output in their broadcast shape; bools as bytes."""
    inputs = [np.atleast_1d(as_numbers(node.eval_input(i).elements)) for i in range(count)]
    y = as_numbers(node.eval_output(0).elements)
    return inputs, y.reshape(np.broadcast_shapes(*(x.shape for x in inputs)))


def bind_binary(context: KernelContext, node: Node) -> Run:
    """Run y = op_data(x1, x2)."""
    (x1, x2), y = broadcast_operands(node)

    def run() -> None:
        y[...] = node.op_data(x1, x2)

    return run


def bind_unary(context: KernelContext, node: Node) -> Run:
    """Run y = op_data(x); 8-bit and 16-bit integers use a table."""
    x, y = (as_numbers(tensor.elements.reshape(-1)) for tensor in (node.eval_input(0), node.eval_output(0)))
    if x.itemsize <= 2:
        return bind_lookup(x, y, node.op_data)

    def run() -> None:
        y[...] = node.op_data(x)

    return run


MAXIMUM_RANK = 8
RANK_4D = 4

RANK_OF_A_SHAPE = 6
"""Maximum rank of a shape in TFLM; it also applies to inputs of equal shapes, which need no broadcast."""


def require_broadcast(
    input1: AnyTensor,
    input2: AnyTensor,
    output: AnyTensor,
    maximum_rank: int = MAXIMUM_RANK,
    maximum_rank_alike: int = RANK_OF_A_SHAPE,
) -> None:
    """Reject inputs that do not broadcast, or whose broadcast size differs from the output's.

    Args:
        maximum_rank: the most dimensions that the operator broadcasts.
        maximum_rank_alike: the most dimensions of two inputs of the same shape, if larger.
    """
    try:
        shape = np.broadcast_shapes(input1.dims, input2.dims)
    except ValueError:
        reason = f"has shape {list(input1.dims)}, which does not broadcast with {list(input2.dims)} of {input2.name!r}"
        raise OperatorError(reason, tensor=input1.name) from None
    limit = max(maximum_rank, maximum_rank_alike) if input1.dims == input2.dims else maximum_rank
    if len(shape) > limit:
        raise OperatorError(f"has {len(shape)} dimensions, at most {limit} are supported", tensor=output.name)
    if element_count(output) != math.prod(shape):
        raise shape_error(output, f", must have {list(shape)}")
