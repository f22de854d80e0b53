"""Element-wise functions of inputs that broadcast.

An input that broadcasts is first copied to the size of the output. `arithmetic` and `quotients` have sums, products and
quotients of quantized numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt

from tflm.compiler.language import (
    DONE,
    REFUSED,
    Elements,
    Float32s,
    Int8s,
    Int32s,
    Int64s,
    Kernel,
    Step,
    UInt8s,
    inlined,
    kernel,
)
from tflm.compiler.processor import Profile
from tflm.delegates.compiled import arithmetic, quotients
from tflm.delegates.compiled.bands import work_array
from tflm.delegates.compiled.bindings import FAMILIES
from tflm.delegates.compiled.casts import as_float64, as_int32, as_uint64
from tflm.delegates.compiled.fixed_point import (
    Multiplier,
    Stage,
    clamped,
    multiplier_of,
    requantization,
    scaled,
    wrapped,
)
from tflm.delegates.compiled.movement import copy_steps
from tflm.kernels.node import KernelContext, Node
from tflm.kernels.reference.activations import Prelu
from tflm.kernels.reference.arithmetic import Addend, Clamped, Product, QuantizedSum, Quotient, SquaredDifference, Sum
from tflm.kernels.reference.comparisons import LEFT_SHIFT, Comparison, QuantizedNumber
from tflm.kernels.support.elementwise import Copy, broadcast_operands

# --- Numbers -----------------------------------------------------------------------------------------------------


@inlined
def prelu(x: Any, alpha: Any) -> Any:
    """Return x, or x * alpha if x is negative or NaN."""
    product = x * alpha
    return x if x >= 0 else product


@inlined
def floor_mod(x: Any, divisor: Any) -> Any:
    """Return the remainder of floats, with the sign of the divisor."""
    remainder = np.fmod(x, divisor)
    if remainder == 0:
        return np.copysign(remainder, divisor)
    if (divisor < 0) != (remainder < 0):
        remainder += divisor
    return remainder


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "ADD": lambda a, b: a + b,
    "DIV": lambda a, b: a / b,
    "EQUAL": lambda a, b: a == b,
    "FLOOR_MOD": floor_mod,
    "GREATER": lambda a, b: a > b,
    "GREATER_EQUAL": lambda a, b: a >= b,
    "LESS": lambda a, b: a < b,
    "LESS_EQUAL": lambda a, b: a <= b,
    "LOGICAL_AND": lambda a, b: a & b,
    "LOGICAL_OR": lambda a, b: a | b,
    "MAXIMUM": lambda a, b: a if a > b else b,
    "MINIMUM": lambda a, b: a if a < b else b,
    "MUL": lambda a, b: a * b,
    "NOT_EQUAL": lambda a, b: a != b,
    "PRELU": prelu,
    "SQUARED_DIFFERENCE": lambda a, b: (a - b) * (a - b),
    "SUB": lambda a, b: a - b,
    "XOR": lambda a, b: a ^ b,
}
"""Functions by operator. XOR of bools is NOT_EQUAL."""

WRAPPING: dict[str, Callable[..., Any]] = {
    "ADD": lambda a, b: as_uint64(a) + as_uint64(b),
    "MUL": lambda a, b: as_uint64(a) * as_uint64(b),
    "SQUARED_DIFFERENCE": lambda a, b: (as_uint64(a) - as_uint64(b)) * (as_uint64(a) - as_uint64(b)),
    "SUB": lambda a, b: as_uint64(a) - as_uint64(b),
}
"""Functions of integers by operator, modulo the size of the output's type."""

FUNCTIONS |= {f"WRAPPING_{name}": function for name, function in WRAPPING.items()}

Function = Annotated[Callable[..., Any], FUNCTIONS]


@kernel
def each(function: Function, x1: Elements, x2: Elements, y: Elements, count: int) -> int:
    """Set y to the function of x1 and x2; integers wrap."""
    for i in range(count):
        y[i] = function(x1[i], x2[i])
    return DONE


@kernel
def each_within(function: Function, x1: Elements, x2: Elements, y: Elements, limits: Elements, count: int) -> int:
    """Set y to the function of x1 and x2, clamped. Integers wrap first; NaN remains."""
    activation_min, activation_max = limits[0], limits[1]
    for i in range(count):
        y[i] = function(x1[i], x2[i])
        value = activation_min if y[i] < activation_min else y[i]
        y[i] = activation_max if value > activation_max else value
    return DONE


@kernel
def floor_divide(x1: Float32s, x2: Float32s, y: Float32s, count: int) -> int:
    """Divide in float64, rounding down."""
    zeros = 0
    for i in range(count):
        zeros += x2[i] == 0
    if zeros:
        return REFUSED
    for i in range(count):
        y[i] = np.floor(as_float64(x1[i]) / as_float64(x2[i]))
    return DONE


@kernel
def select(condition: UInt8s, x1: Elements, x2: Elements, y: Elements, count: int) -> int:
    """Set y to x1 if the condition is true, else to x2."""
    for i in range(count):
        y[i] = x1[i] if condition[i] else x2[i]
    return DONE


@kernel
def blend(condition: UInt8s, x1: Elements, x2: Elements, y: Elements, count: int) -> int:
    """Do the same, and read both elements, which vectors can."""
    for i in range(count):
        chosen, other = x1[i], x2[i]
        y[i] = chosen if condition[i] else other
    return DONE


# --- Quantized ---------------------------------------------------------------------------------------------------


@kernel
def accumulate(x: UInt8s, addends: Int64s, sums: Int32s, count: int, is_first: int) -> int:
    """Add the addends of an input's values, by their bits. The first input starts with the addend of zero."""
    for i in range(count):
        total = as_int32(addends[0]) if is_first else sums[i]
        sums[i] = total + addends[x[i]]
    return DONE


@kernel
def requantize_sums(sums: Int32s, y: Int8s, count: int, multiplier: Multiplier, stage: Stage) -> int:
    """Set y to requantized sums."""
    for i in range(count):
        y[i] = clamped(scaled(sums[i], multiplier) + stage.zero_point, stage.activation_min, stage.activation_max)
    return DONE


@kernel
def prelu_quantized(
    x1: Elements,
    x2: Int8s,
    y: Elements,
    count: int,
    zero_point1: int,
    zero_point2: int,
    multiplier1: Multiplier,
    multiplier: Multiplier,
    stage: Stage,
) -> int:
    """Multiply negative values by x2, with one multiplier; scale others with another one."""
    for i in range(count):
        value = x1[i] - zero_point1
        result = scaled(value * (x2[i] - zero_point2), multiplier1) if value < 0 else scaled(value, multiplier)
        y[i] = clamped(wrapped(result + stage.zero_point), stage.activation_min, stage.activation_max)
    return DONE


@kernel
def compare_quantized(
    function: Function,
    x1: Int8s,
    x2: Int8s,
    y: UInt8s,
    count: int,
    zero_point1: int,
    multiplier1: Multiplier,
    zero_point2: int,
    multiplier2: Multiplier,
) -> int:
    """Compare numbers of different scales."""
    for i in range(count):
        number1 = scaled((x1[i] - zero_point1) << LEFT_SHIFT, multiplier1)
        number2 = scaled((x2[i] - zero_point2) << LEFT_SHIFT, multiplier2)
        y[i] = function(number1, number2)
    return DONE


# --- Binding -----------------------------------------------------------------------------------------------------


def spread_operands(node: Node, count: int) -> tuple[list[Step], list[npt.NDArray[Any]]] | None:
    """Return the copies that broadcast the first `count` inputs of a node, and all operands as flat arrays of the same
    size.

    None if no kernel supports it.
    """
    inputs, y = broadcast_operands(node, count)
    spread, copies = list[npt.NDArray[Any]](), list[Copy]()
    # The first input can be broadcast into the output's memory. The output is then computed in place.
    is_free = not any(np.may_share_memory(x, y) for x in inputs)
    for i, x in enumerate(inputs):
        full, copied = _spread(x, y, node.eval_input(i).is_constant, is_free)
        is_free = is_free and not copied
        spread.append(full)
        copies += copied
    steps = copy_steps(copies)
    return None if steps is None else (steps, [*spread, y.reshape(-1)])


def _bind(context: KernelContext, node: Node, profile: Profile) -> list[Step] | None:
    spread = spread_operands(node, node.input_count if node.operator in ("ADD_N", "SELECT_V2") else 2)
    if spread is None:
        return None
    copies, operands = spread
    if node.operator == "ADD_N":
        return [*copies, *_steps_of_sum(node, *operands)]
    if node.operator == "SELECT_V2":
        return [*copies, step_of_select(blend if profile.has_tiles else select, *operands)]
    return [*copies, step_of_pairs(node, *operands)]


def _spread(
    x: npt.NDArray[Any], y: npt.NDArray[Any], is_constant: bool, is_free: bool
) -> tuple[npt.NDArray[Any], list[Copy]]:
    """Return an input as a flat array of the output's size, and the copy that fills it in each run, if any.

    An input of that size needs no copy, unless it partly overlaps the output.

    Args:
        is_free: whether the output's memory can be used, if elements have the same size.
    """
    in_place = x.dtype == y.dtype and x.ctypes.data == y.ctypes.data
    if x.size == y.size and (in_place or not np.may_share_memory(x, y)):
        return x.reshape(-1), []
    view = np.broadcast_to(x, y.shape)
    if is_constant:
        return view.copy().reshape(-1), []
    full = y.view(x.dtype) if is_free and x.itemsize == y.itemsize else work_array(y.shape, x.dtype)
    return full.reshape(-1), [(full, view)]


def takes_single(node: Node) -> bool:
    """Whether the kernel of two inputs also takes an input of one element, without a copy."""
    return isinstance(node.op_data, (Sum, SquaredDifference, Product, Quotient)) or _divides_int32(node)


def _divides_int32(node: Node) -> bool:
    return node.operator == "DIV" and node.eval_output(0).elements.dtype == np.int32


def function_of(operator: str, y_dtype: np.dtype[Any]) -> str:
    """Return the name of an operator's function for outputs of a type."""
    return "WRAPPING_" * (operator in WRAPPING and y_dtype != np.float32) + operator


def step_of_pairs(node: Node, x1: npt.NDArray[Any], x2: npt.NDArray[Any], y: npt.NDArray[Any]) -> Step:
    """The step of two inputs, all arrays flat and of one size, but for those that `takes_single` allows."""
    op, arrays = node.op_data, {"x1": x1, "x2": x2, "y": y, "count": y.size}
    if isinstance(op, (Sum, SquaredDifference, Product)):
        return arithmetic.step_of(node.operator, op, x1, x2, y)
    if isinstance(op, Quotient) or _divides_int32(node):
        return quotients.step_of_quotient(op, x1, x2, y)
    if isinstance(op, Clamped):
        limits = np.array([op.minimum, op.maximum], y.dtype)
        return each_within.step(function=function_of(node.operator, y.dtype), **arrays, limits=limits)
    if isinstance(op, Prelu):
        zero_points = {"zero_point1": op.input_zero_point, "zero_point2": op.alpha_zero_point}
        return prelu_quantized.step(
            **arrays, **zero_points, multiplier1=multiplier_of(op.product), **requantization(op.output)
        )
    if isinstance(op, Comparison):
        numbers = _numbers(op.number1, op.number2)
        return compare_quantized.step(function=node.operator, **(arrays | {"y": y.view(np.uint8)}), **numbers)
    if node.operator == "FLOOR_DIV":
        return floor_divide.step(**arrays)
    return each.step(function="XOR" if op is np.bitwise_xor else function_of(node.operator, y.dtype), **arrays)


def _steps_of_sum(node: Node, *operands: npt.NDArray[Any]) -> list[Step]:
    """Return the steps of ADD_N, which add one input after the other."""
    *inputs, y = operands
    op, size = node.op_data, {"count": y.size}
    if isinstance(op, QuantizedSum):
        sums = work_array(y.size, np.int32)
        steps = [
            accumulate.step(x=x.view(np.uint8), addends=op.addends, sums=sums, **size, is_first=not place)
            for place, x in enumerate(inputs)
        ]
        return [*steps, requantize_sums.step(sums=sums, y=y, **size, **requantization(op.output))]
    is_shared = any(np.may_share_memory(x, y) for x in inputs)
    total = work_array(y.size, np.float32) if is_shared else y
    add = [each.step(function="ADD", x1=total, x2=x, y=total, **size) for x in inputs[1:]]
    return [*(copy_steps([(total, inputs[0])]) or []), *add, *(copy_steps([(y, total)]) or [])]


def step_of_select(kernel: Kernel, *operands: npt.NDArray[Any]) -> Step:
    """The step of SELECT_V2 with a kernel, all arrays flat and of one size."""
    condition, x1, x2, y = operands
    return kernel.step(condition=condition, x1=x1, x2=x2, y=y, count=y.size)


def _numbers(*numbers: Addend | QuantizedNumber) -> dict[str, int | Multiplier]:
    """Return the zero points and multipliers of inputs, which are numbered from 1."""
    zero_points = {f"zero_point{i}": number.zero_point for i, number in enumerate(numbers, 1)}
    return {
        **zero_points,
        **{f"multiplier{i}": multiplier_of(number.multiplier) for i, number in enumerate(numbers, 1)},
    }


BINDINGS = dict.fromkeys(FAMILIES["elementwise"], _bind)
