"""Operators that can run on transposed tensors, and how they change.

`order` is the TRANSPOSE from the new tensor to the original: dimension a of the original is dimension order[a] of the
new tensor.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tflm.graph import Graph
from tflm.kernels.overlap import element_wise
from tflm.rewriting.cleanup import Order, inverse
from tflm.schema.enums import ActivationFunctionType, BuiltinOperator, TensorType
from tflm.schema.options import ConcatenationOptions, ReducerOptions
from tflm.schema.tables import Operator

ROWS_AND_COLUMNS_SWAPPED = (0, 2, 1, 3)

PLAIN_TYPES = (TensorType.FLOAT32, TensorType.INT8, TensorType.INT16, TensorType.INT32, TensorType.BOOL)


@dataclass(frozen=True)
class Change:
    """Changes to an operator that runs on transposed tensors.

    Attributes:
        constants: new elements of constant inputs, by index.
        options: changed fields of its options.
        outputs: order of the outputs; None for that of the inputs.
    """

    constants: Mapping[int, npt.NDArray[Any]] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    outputs: Order | None = None


class Flipped(NamedTuple):
    """An operator's change, and the orders of its non-constant tensors."""

    change: Change
    orders: dict[int, Order]


Rule = Callable[[Graph, Operator, Order], "Change | None"]
"""Returns the change of an operator whose inputs are transposed; None if its elements would differ."""


def flipped(graph: Graph, operator: Operator, tensor: int, order: Order) -> Flipped | None:
    """The change to an operator if one of its tensors is transposed; None if that is impossible."""
    inputs, outputs = operator.inputs or (), operator.outputs or ()
    rule, data = _rule_of(graph, operator)
    if (
        rule is None
        or graph.has_state(operator)
        or min(inputs, default=-1) < 0
        or not all(map(_is_plain(graph), (*inputs, *outputs)))
    ):
        return None
    read = {t for i, t in enumerate(inputs) if i in data and not graph.is_constant(t) and graph.size(t) != 1}
    others = [t for i, t in enumerate(inputs) if i not in data]
    if tensor not in (*read, *outputs) or not all(map(graph.is_constant, others)) or not outputs:
        return None
    if any(len(graph.shape(t)) != len(order) for t in read):
        return None
    change = rule(graph, operator, order)
    if change is None or (tensor in outputs and change.outputs is not None):
        return None
    made = order if change.outputs is None else change.outputs
    if any(len(graph.shape(t)) != len(made) for t in outputs):
        return None
    return Flipped(change, dict.fromkeys(read, order) | dict.fromkeys(outputs, made))


def _rule_of(graph: Graph, operator: Operator) -> tuple[Rule | None, range]:
    """The rule, and the indices of the inputs that are transposed."""
    code = graph.code(operator)
    if graph.registration(operator).overlap is element_wise:
        return _element_wise, range(len(operator.inputs or ()))
    if code is BuiltinOperator.CONCATENATION:
        return _concatenation, range(len(operator.inputs or ()))
    rule = RULES.get(code)
    return rule, range(1, 2) if code is BuiltinOperator.SPLIT else range(1)


def _is_plain(graph: Graph) -> Callable[[int], bool]:
    def check(tensor: int) -> bool:
        table = graph.tensors[tensor]
        several_scales = table.quantization is not None and len(table.quantization.scale or ()) > 1
        return not several_scales and (graph.is_constant(tensor) or table.type in PLAIN_TYPES)

    return check


def _element_wise(graph: Graph, operator: Operator, order: Order) -> Change | None:
    """Constants that broadcast are transposed too; none may increase the rank of the output."""
    constants = {}
    for i, tensor in enumerate(operator.inputs or ()):
        if graph.is_constant(tensor) and graph.size(tensor) != 1:
            if graph.tensors[tensor].type not in PLAIN_TYPES or len(graph.shape(tensor)) > len(order):
                return None
            constants[i] = _transposed(graph.constant(tensor), order)
    return Change(constants)


def _transposed(constant: npt.NDArray[Any], order: Order) -> npt.NDArray[Any]:
    full = constant.reshape((1,) * (len(order) - constant.ndim) + constant.shape)
    return np.ascontiguousarray(full.transpose(inverse(order)), None)


def _concatenation(graph: Graph, operator: Operator, order: Order) -> Change | None:
    options = operator.builtin_options
    if (
        not isinstance(options, ConcatenationOptions)
        or options.fused_activation_function != ActivationFunctionType.NONE
    ):
        return None
    if not -len(order) <= options.axis < len(order):
        return None
    tensors = operator.inputs or ()
    if any(len(graph.shape(t)) != len(order) or graph.tensors[t].type not in PLAIN_TYPES for t in tensors):
        return None
    if any(graph.size(t) == 1 and not graph.is_constant(t) for t in tensors):
        return None
    constants = {i: _transposed(graph.constant(t), order) for i, t in enumerate(tensors) if graph.is_constant(t)}
    return Change(constants, {"axis": order[options.axis]})


def _split(graph: Graph, operator: Operator, order: Order) -> Change | None:
    return _split_along(graph, operator, order, 0, 2)


def _split_v(graph: Graph, operator: Operator, order: Order) -> Change | None:
    return _split_along(graph, operator, order, 2, 3)


def _split_along(graph: Graph, operator: Operator, order: Order, position: int, inputs: int) -> Change | None:
    """The change of an operator with an axis among its inputs."""
    tensors = operator.inputs or ()
    axes = graph.constant(tensors[position]) if len(tensors) == inputs else np.zeros(0, np.int32)
    axis = int(axes.reshape(-1)[0]) if axes.size == 1 else len(order)
    if not -len(order) <= axis < len(order):
        return None
    return Change({position: np.full(axes.shape, order[axis], axes.dtype)})


def _numbers_by_dimension(graph: Graph, operator: Operator, order: Order) -> Change | None:
    """PAD and SLICE: a number, or a pair of them, for each dimension."""
    constants = {}
    for i, tensor in enumerate(operator.inputs or ()):
        numbers = graph.constant(tensor) if i else None
        if numbers is not None and numbers.size > 1:
            if len(numbers) != len(order):
                return None
            constants[i] = np.ascontiguousarray(numbers[list(inverse(order))], None)
    return Change(constants)


def _reduction(graph: Graph, operator: Operator, order: Order) -> Change | None:
    """Floats are reduced in another layout only if the order of additions stays the same."""
    options = operator.builtin_options
    if not isinstance(options, ReducerOptions) or len(operator.inputs or ()) != 2:
        return None
    x, axis = operator.inputs or ()
    listed = [int(a) for a in graph.constant(axis).reshape(-1)]
    if not all(-len(order) <= a < len(order) for a in listed):
        return None
    axes = sorted({a % len(order) for a in listed})
    reduced = [order[a] for a in axes if graph.shape(x)[a] != 1]
    if graph.tensors[x].type == TensorType.FLOAT32 and reduced != sorted(reduced):
        return None
    constants = {1: np.array(sorted(order[a] for a in axes), np.int32)}
    if options.keep_dims:
        return Change(constants)
    kept = [order[a] for a in range(len(order)) if a not in axes]
    return Change(constants, outputs=tuple(sorted(kept).index(a) for a in kept))


def _pool(graph: Graph, operator: Operator, order: Order) -> Change | None:
    """Integer windows can be transposed: their sums and maxima do not depend on the order."""
    options: Any = operator.builtin_options
    types = (TensorType.INT8, TensorType.INT16)
    if (
        options is None
        or order != ROWS_AND_COLUMNS_SWAPPED
        or graph.tensors[(operator.inputs or ())[0]].type not in types
    ):
        return None
    turned = {
        "stride_w": options.stride_h,
        "stride_h": options.stride_w,
        "filter_width": options.filter_height,
        "filter_height": options.filter_width,
    }
    return Change(options=turned)


RULES: dict[BuiltinOperator, Rule] = {
    BuiltinOperator.SPLIT: _split,
    BuiltinOperator.SPLIT_V: _split_v,
    BuiltinOperator.PAD: _numbers_by_dimension,
    BuiltinOperator.PADV2: _numbers_by_dimension,
    BuiltinOperator.SLICE: _numbers_by_dimension,
    BuiltinOperator.MEAN: _reduction,
    BuiltinOperator.SUM: _reduction,
    BuiltinOperator.REDUCE_MAX: _reduction,
    BuiltinOperator.REDUCE_MIN: _reduction,
    BuiltinOperator.AVERAGE_POOL_2D: _pool,
    BuiltinOperator.MAX_POOL_2D: _pool,
}
"""Rules of operators that are not element-wise; all of them have one data input."""


def run_in(graph: Graph, operator: Operator, change: Change, names: Mapping[int, int]) -> Operator:
    """The changed operator on transposed tensors.

    Args:
        names: the tensors that replace others.
    """
    inputs = [names.get(tensor, tensor) for tensor in operator.inputs or ()]
    for i, values in change.constants.items():
        table = graph.tensors[(operator.inputs or ())[i]]
        inputs[i] = graph.add_constant(table.name or "", values, table.quantization)
    outputs = [names.get(tensor, tensor) for tensor in operator.outputs or ()]
    return graph.like(operator, inputs, outputs, **change.options)
