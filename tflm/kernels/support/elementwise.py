"""Functions of one input, or of two that broadcast, element by element."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

import numpy as np
import numpy.typing as npt

from tflm.kernels.arithmetic.lookup import bind_lookup
from tflm.kernels.host_memory import kept
from tflm.kernels.registration import Bind, KernelContext, Node, Run
from tflm.kernels.support.views import apart, as_numbers
from tflm.memory.tensor import TfLiteEvalTensor

BLOCK = 8192
"""Elements that are worked on at once: their 64-bit values stay in a processor's second-level cache."""

BinaryFunction = Callable[[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any]], npt.NDArray[Any]]
"""From the values of both inputs and an array to work in, all of one shape and type; any of them may be overwritten."""


class Operands(NamedTuple):
    """Both inputs and the output of a node as flat arrays of equal length.

    Attributes:
        x1, x2: the inputs; a copy of the output's length for one that is broadcast. Truth values are bytes.
        y: the output; bytes, where the inputs are truth values.
        copies: the copies and what they are of, to be made anew before each run.
        constant1, constant2: whether an input never changes.
    """

    x1: npt.NDArray[Any]
    x2: npt.NDArray[Any]
    y: npt.NDArray[Any]
    copies: tuple[tuple[npt.NDArray[Any], npt.NDArray[Any]], ...]
    constant1: bool
    constant2: bool

    def refresh(self) -> None:
        """Make the copies anew."""
        for copy, original in self.copies:
            np.copyto(copy, original)


def operands(context: KernelContext, node: Node) -> Operands:
    """The first two inputs and the output of a node that was prepared with `require_broadcast`."""
    inputs = [context.get_eval_input(node, i) for i in range(2)]
    output = context.get_eval_output(node, 0)
    shape = np.broadcast_shapes(*(tensor.dims for tensor in inputs))
    fixed = [tensor.is_constant for tensor in inputs]
    pairs = [spread(tensor, shape) for tensor in inputs]
    copies = tuple(
        (full, original) for (full, original), stays in zip(pairs, fixed) if original is not None and not stays
    )
    y = output.elements.reshape(-1)
    (x1, anew1), (x2, anew2) = (apart(full.reshape(-1), y) for full, _ in pairs)
    if x1.dtype == np.bool_:
        x1, x2, y = map(as_numbers, (x1, x2, y))
    return Operands(x1, x2, y, (*copies, *anew1, *anew2), *fixed)


def spread(tensor: TfLiteEvalTensor, shape: tuple[int, ...]) -> tuple[npt.NDArray[Any], npt.NDArray[Any] | None]:
    """An array of that shape with the values of a tensor, and what it was copied from; None where it was not."""
    view = np.broadcast_to(tensor.elements, shape)
    if view.size == tensor.elements.size:
        return tensor.elements, None
    full = kept(np.empty(shape, view.dtype))
    np.copyto(full, view)
    return full, view


def bind_binary(ops: Operands, function: BinaryFunction, dtype: npt.DTypeLike = np.int64) -> Run:
    """What sets y to function(x1, x2).

    Inputs of 8 bits go by a table of all pairs; wider ones are worked out in blocks.

    Args:
        function: of values of the type `dtype`; must give values that y can hold.
    """
    return _bind_pairs(ops, function, dtype) if ops.x1.itemsize == 1 else _bind_blocks(ops, function, dtype)


def _bind_pairs(ops: Operands, function: BinaryFunction, dtype: npt.DTypeLike) -> Run:
    table = pair_table(ops, function, dtype)
    pairs = kept(np.empty(ops.y.shape, "<u2"))
    halves = pairs.view(np.uint8).reshape(-1, 2)
    low, high = halves[:, 0], halves[:, 1]
    x1, x2, y = ops.x1.view(np.uint8), ops.x2.view(np.uint8), ops.y
    np.copyto(high, x1)
    np.copyto(low, x2)
    index = kept(np.empty(y.shape, np.intp))
    changing = [pair for pair, fixed in (((high, x1), ops.constant1), ((low, x2), ops.constant2)) if not fixed]

    def run() -> None:
        ops.refresh()
        for half, x in changing:
            half[...] = x
        index[...] = pairs
        table.take(index, out=y, mode="clip")

    return run


_pair_tables: WeakValueDictionary[tuple[Any, ...], npt.NDArray[Any]] = WeakValueDictionary()


def pair_table(ops: Operands, function: BinaryFunction, dtype: npt.DTypeLike = np.int64) -> npt.NDArray[Any]:
    """The function of all pairs of inputs of 8 bits, as elements of y: x1 is in the upper bits of the index.

    Equal functions share one table of 64 KiB, for as long as anyone has it.
    """
    key = function, ops.x1.dtype, ops.y.dtype, np.dtype(dtype)
    table = _pair_tables.get(key)
    if table is None:
        values = np.arange(256, dtype=np.uint8).view(ops.x1.dtype).astype(dtype)
        first, second = np.repeat(values, 256), np.tile(values, 256)
        table = function(first, second, kept(np.empty_like(first))).astype(ops.y.dtype)
        table.flags.writeable = False
        _pair_tables[key] = table
    return kept(table)


def _bind_blocks(ops: Operands, function: BinaryFunction, dtype: npt.DTypeLike) -> Run:
    size = min(BLOCK, len(ops.y))
    first, second, scratch = (kept(np.empty(size, dtype)) for _ in range(3))
    starts = range(0, len(ops.y), size or 1)
    views = [tuple(array[start : start + size] for array in (ops.x1, ops.x2, ops.y)) for start in starts]
    blocks = [(*block, *(array[: len(block[0])] for array in (first, second, scratch))) for block in views]

    def run() -> None:
        ops.refresh()
        for x1, x2, y, a, b, work in blocks:
            a[...] = x1
            b[...] = x2
            y[...] = function(a, b, work)

    return run


def bind_ufunc(ops: Operands, ufunc: Callable[..., Any]) -> Run:
    """What sets y to ufunc(x1, x2) in the inputs' own type; integers wrap."""
    x1, x2, y = ops.x1, ops.x2, ops.y

    def run() -> None:
        ufunc(x1, x2, out=y)

    def refresh_and_run() -> None:
        ops.refresh()
        ufunc(x1, x2, out=y)

    return refresh_and_run if ops.copies else run


def bind_float_or_lookup(bind_float: Callable[[npt.NDArray[Any], npt.NDArray[Any]], Run]) -> Bind:
    """What binds a function of one input: floats by `bind_float`, integers by a table of the node's `op_data`."""

    def bind(context: KernelContext, node: Node) -> Run:
        x, y = context.get_eval_input(node, 0).elements, context.get_eval_output(node, 0).elements
        if x.dtype == np.float32:
            return bind_float(x.reshape(-1), y.reshape(-1))
        return bind_lookup(x, y, node.op_data)

    return bind
