"""Functions of two inputs that broadcast, element by element.

Those of 8 bits go by a table of all pairs, which is the numpy kernel's. Others are arithmetic: an input that is
broadcast is spread over as many elements as the output has before they begin.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import numpy.typing as npt

from tflm.delegates.compiled.bindings import FAMILIES
from tflm.delegates.compiled.casts import as_float64, as_int32, as_int64
from tflm.delegates.compiled.fixed_point import clamped, parts, scaled, wrapped
from tflm.delegates.compiled.language import (
    DONE,
    REFUSED,
    Float32s,
    Int8s,
    Int16s,
    Int32s,
    Int64s,
    Kernel,
    Step,
    UInt8s,
    inlined,
    kernel,
)
from tflm.delegates.compiled.movement import copy_steps
from tflm.kernels.arithmetic.fixed_point import QuantizedMultiplier
from tflm.kernels.arithmetic.requantization import Requantization
from tflm.kernels.reference.arithmetic import Product, Sum, Term
from tflm.kernels.reference.prelu import Prelu
from tflm.kernels.reference.squared_difference import SquaredDifference
from tflm.kernels.registration import KernelContext, Node
from tflm.kernels.support.elementwise import BinaryFunction, Operands, operands, pair_table


@kernel
def look_up_pairs(x1: UInt8s, x2: UInt8s, table: UInt8s, y: UInt8s, count: int) -> int:
    """The table has 256 elements for each value of x1."""
    for i in range(count):
        y[i] = table[x1[i] << 8 | x2[i]]
    return DONE


# --- Quantized ---------------------------------------------------------------------------------------------------


@kernel
def sum_int16(
    x1: Int16s,
    x2: Int16s,
    y: Int16s,
    count: int,
    left_shift: int,
    zero_point1: int,
    significand1: int,
    left1: int,
    right1: int,
    zero_point2: int,
    significand2: int,
    left2: int,
    right2: int,
    sign: int,
    significand: int,
    left: int,
    right: int,
    zero_point: int,
    least: int,
    most: int,
) -> int:
    """Sum, or difference where `sign` is -1."""
    for i in range(count):
        term1 = scaled((x1[i] - zero_point1) << left_shift, significand1, left1, right1)
        term2 = scaled((x2[i] - zero_point2) << left_shift, significand2, left2, right2)
        total = scaled(term1 + sign * term2, significand, left, right)
        y[i] = clamped(total + zero_point, least, most)
    return DONE


@kernel
def squared_difference_int16(
    x1: Int16s,
    x2: Int16s,
    y: Int16s,
    count: int,
    left_shift: int,
    zero_point1: int,
    significand1: int,
    left1: int,
    right1: int,
    zero_point2: int,
    significand2: int,
    left2: int,
    right2: int,
    significand: int,
    left: int,
    right: int,
    zero_point: int,
    least: int,
    most: int,
) -> int:
    """Square of a difference, which wraps."""
    for i in range(count):
        term1 = scaled((x1[i] - zero_point1) << left_shift, significand1, left1, right1)
        term2 = scaled((x2[i] - zero_point2) << left_shift, significand2, left2, right2)
        square = scaled((term1 - term2) * (term1 - term2), significand, left, right)
        y[i] = clamped(square + zero_point, least, most)
    return DONE


@kernel
def product_int16(
    x1: Int16s,
    x2: Int16s,
    y: Int16s,
    count: int,
    zero_point1: int,
    zero_point2: int,
    significand: int,
    left: int,
    right: int,
    zero_point: int,
    least: int,
    most: int,
) -> int:
    """Product."""
    for i in range(count):
        product = scaled((x1[i] - zero_point1) * (x2[i] - zero_point2), significand, left, right)
        y[i] = clamped(product + zero_point, least, most)
    return DONE


@kernel
def prelu_int16(
    x1: Int16s,
    x2: Int8s,
    y: Int16s,
    count: int,
    zero_point1: int,
    zero_point2: int,
    significand1: int,
    left1: int,
    right1: int,
    significand: int,
    left: int,
    right: int,
    zero_point: int,
    least: int,
    most: int,
) -> int:
    """What is negative times x2, by one multiplier; the rest by another."""
    for i in range(count):
        value = x1[i] - zero_point1
        product = scaled(value * (x2[i] - zero_point2), significand1, left1, right1)
        identity = scaled(value, significand, left, right)
        y[i] = clamped(wrapped((product if value < 0 else identity) + zero_point), least, most)
    return DONE


def _term(name: str, term: Term) -> dict[str, int]:
    return {"zero_point" + name: term.zero_point, **multiplier_parts(name, term.multiplier)}


def multiplier_parts(name: str, multiplier: QuantizedMultiplier) -> dict[str, int]:
    """The arguments of a kernel that say by what it multiplies; their names end in `name`."""
    return {part + name: value for part, value in zip(("significand", "left", "right"), parts(multiplier))}


def _output(output: Requantization) -> dict[str, int]:
    return {
        **multiplier_parts("", output.multiplier),
        "zero_point": output.stage.zero_point,
        "least": output.stage.minimum,
        "most": output.stage.maximum,
    }


def _quantized_step(ops: Operands, op: Any) -> Step | None:
    """A kernel for what the numpy kernel works out in blocks."""
    arrays = {"x1": ops.x1, "x2": ops.x2, "y": ops.y, "count": ops.y.size}
    if isinstance(op, (Sum, SquaredDifference)):
        terms = {**_term("1", op.term1), **_term("2", op.term2), "left_shift": op.term1.left_shift}
        if isinstance(op, SquaredDifference):
            return squared_difference_int16.step(**arrays, **terms, **_output(op.output))
        return sum_int16.step(**arrays, **terms, sign=1 if op.combine is np.add else -1, **_output(op.output))
    if isinstance(op, Product):
        zero_points = {"zero_point1": op.zero_point1, "zero_point2": op.zero_point2}
        return product_int16.step(**arrays, **zero_points, **_output(op.output))
    if isinstance(op, Prelu):
        zero_points = {"zero_point1": op.input_zero_point, "zero_point2": op.alpha_zero_point}
        return prelu_int16.step(**arrays, **zero_points, **multiplier_parts("1", op.product), **_output(op.output))
    return None


# --- Numbers -----------------------------------------------------------------------------------------------------


@inlined
def each(function: Any, x1: Any, x2: Any, y: Any, count: int) -> int:
    """Set y to the function of x1 and x2."""
    for i in range(count):
        y[i] = function(x1[i], x2[i])
    return DONE


@inlined
def each_within(function: Any, x1: Any, x2: Any, y: Any, limits: Any, count: int) -> int:
    """Set y to the function of x1 and x2, within limits; what is no number stays so."""
    least, most = limits[0], limits[1]
    for i in range(count):
        value = function(x1[i], x2[i])
        value = least if value < least else value
        y[i] = most if value > most else value
    return DONE


@inlined
def added(a: float, b: float) -> float:
    """a + b"""
    return a + b


@inlined
def subtracted(a: float, b: float) -> float:
    """a - b"""
    return a - b


@inlined
def multiplied(a: float, b: float) -> float:
    """a * b"""
    return a * b


@inlined
def divided(a: float, b: float) -> float:
    """a / b"""
    return a / b


@inlined
def added_32(a: Any, b: Any) -> Any:
    """a + b, wrapped to 32 bits"""
    return as_int32(a + b)


@inlined
def subtracted_32(a: Any, b: Any) -> Any:
    """a - b, wrapped to 32 bits"""
    return as_int32(a - b)


@inlined
def multiplied_32(a: Any, b: Any) -> Any:
    """a * b, wrapped to 32 bits"""
    return as_int32(a * b)


@inlined
def squared_difference(a: float, b: float) -> float:
    """(a - b)^2"""
    return (a - b) * (a - b)


@inlined
def larger(a: float, b: float) -> float:
    """a if it is larger, else b"""
    return a if a > b else b


@inlined
def smaller(a: float, b: float) -> float:
    """a if it is smaller, else b"""
    return a if a < b else b


@kernel
def add_float32(x1: Float32s, x2: Float32s, y: Float32s, limits: Float32s, count: int) -> int:
    """Sum."""
    return each_within(added, x1, x2, y, limits, count)


@kernel
def subtract_float32(x1: Float32s, x2: Float32s, y: Float32s, limits: Float32s, count: int) -> int:
    """Difference."""
    return each_within(subtracted, x1, x2, y, limits, count)


@kernel
def multiply_float32(x1: Float32s, x2: Float32s, y: Float32s, limits: Float32s, count: int) -> int:
    """Product."""
    return each_within(multiplied, x1, x2, y, limits, count)


@kernel
def divide_float32(x1: Float32s, x2: Float32s, y: Float32s, limits: Float32s, count: int) -> int:
    """Quotient."""
    return each_within(divided, x1, x2, y, limits, count)


@kernel
def add_int32(x1: Int32s, x2: Int32s, y: Int32s, limits: Int32s, count: int) -> int:
    """Sum."""
    return each_within(added_32, x1, x2, y, limits, count)


@kernel
def subtract_int32(x1: Int32s, x2: Int32s, y: Int32s, limits: Int32s, count: int) -> int:
    """Difference."""
    return each_within(subtracted_32, x1, x2, y, limits, count)


@kernel
def multiply_int32(x1: Int32s, x2: Int32s, y: Int32s, limits: Int32s, count: int) -> int:
    """Product."""
    return each_within(multiplied_32, x1, x2, y, limits, count)


@kernel
def divide_int32(x1: Int32s, x2: Int32s, y: Int32s, limits: Int32s, count: int) -> int:
    """Quotient, cut off towards zero: a double differs from a whole number where that of two int32 does."""
    zeros = 0
    for i in range(count):
        zeros += x2[i] == 0
    if zeros:
        return REFUSED
    least, most = limits[0], limits[1]
    for i in range(count):
        y[i] = as_int64(clamped(as_float64(x1[i]) / as_float64(x2[i]), as_float64(least), as_float64(most)))
    return DONE


@kernel
def squared_difference_float32(x1: Float32s, x2: Float32s, y: Float32s, count: int) -> int:
    """Square of a difference."""
    return each(squared_difference, x1, x2, y, count)


@kernel
def maximum_float32(x1: Float32s, x2: Float32s, y: Float32s, count: int) -> int:
    """The larger one."""
    return each(larger, x1, x2, y, count)


@kernel
def minimum_float32(x1: Float32s, x2: Float32s, y: Float32s, count: int) -> int:
    """The smaller one."""
    return each(smaller, x1, x2, y, count)


@kernel
def prelu_float32(x1: Float32s, x2: Float32s, y: Float32s, count: int) -> int:
    """What is negative, or no number, times x2."""
    for i in range(count):
        product = x1[i] * x2[i]
        y[i] = x1[i] if x1[i] >= 0 else product
    return DONE


@inlined
def is_equal(a: float, b: float) -> bool:
    """a == b"""
    return a == b


@inlined
def is_not_equal(a: float, b: float) -> bool:
    """a != b"""
    return a != b


@inlined
def is_greater(a: float, b: float) -> bool:
    """a > b"""
    return a > b


@inlined
def is_greater_equal(a: float, b: float) -> bool:
    """a >= b"""
    return a >= b


@inlined
def is_less(a: float, b: float) -> bool:
    """a < b"""
    return a < b


@inlined
def is_less_equal(a: float, b: float) -> bool:
    """a <= b"""
    return a <= b


@kernel
def equal_float32(x1: Float32s, x2: Float32s, y: UInt8s, count: int) -> int:
    """Whether x1 == x2."""
    return each(is_equal, x1, x2, y, count)


@kernel
def not_equal_float32(x1: Float32s, x2: Float32s, y: UInt8s, count: int) -> int:
    """Whether x1 != x2."""
    return each(is_not_equal, x1, x2, y, count)


@kernel
def greater_float32(x1: Float32s, x2: Float32s, y: UInt8s, count: int) -> int:
    """Whether x1 > x2."""
    return each(is_greater, x1, x2, y, count)


@kernel
def greater_equal_float32(x1: Float32s, x2: Float32s, y: UInt8s, count: int) -> int:
    """Whether x1 >= x2."""
    return each(is_greater_equal, x1, x2, y, count)


@kernel
def less_float32(x1: Float32s, x2: Float32s, y: UInt8s, count: int) -> int:
    """Whether x1 < x2."""
    return each(is_less, x1, x2, y, count)


@kernel
def less_equal_float32(x1: Float32s, x2: Float32s, y: UInt8s, count: int) -> int:
    """Whether x1 <= x2."""
    return each(is_less_equal, x1, x2, y, count)


squared_difference_int32 = squared_difference_float32.variant(
    "squared_difference_int32", x1=Int32s, x2=Int32s, y=Int32s
)
maximum_int16 = maximum_float32.variant("maximum_int16", x1=Int16s, x2=Int16s, y=Int16s)
maximum_int32 = maximum_float32.variant("maximum_int32", x1=Int32s, x2=Int32s, y=Int32s)
maximum_int64 = maximum_float32.variant("maximum_int64", x1=Int64s, x2=Int64s, y=Int64s)
minimum_int16 = minimum_float32.variant("minimum_int16", x1=Int16s, x2=Int16s, y=Int16s)
minimum_int32 = minimum_float32.variant("minimum_int32", x1=Int32s, x2=Int32s, y=Int32s)
minimum_int64 = minimum_float32.variant("minimum_int64", x1=Int64s, x2=Int64s, y=Int64s)
equal_int32 = equal_float32.variant("equal_int32", x1=Int32s, x2=Int32s)
equal_int64 = equal_float32.variant("equal_int64", x1=Int64s, x2=Int64s)
not_equal_int32 = not_equal_float32.variant("not_equal_int32", x1=Int32s, x2=Int32s)
not_equal_int64 = not_equal_float32.variant("not_equal_int64", x1=Int64s, x2=Int64s)
greater_int32 = greater_float32.variant("greater_int32", x1=Int32s, x2=Int32s)
greater_int64 = greater_float32.variant("greater_int64", x1=Int64s, x2=Int64s)
greater_equal_int32 = greater_equal_float32.variant("greater_equal_int32", x1=Int32s, x2=Int32s)
greater_equal_int64 = greater_equal_float32.variant("greater_equal_int64", x1=Int64s, x2=Int64s)
less_int32 = less_float32.variant("less_int32", x1=Int32s, x2=Int32s)
less_int64 = less_float32.variant("less_int64", x1=Int64s, x2=Int64s)
less_equal_int32 = less_equal_float32.variant("less_equal_int32", x1=Int32s, x2=Int32s)
less_equal_int64 = less_equal_float32.variant("less_equal_int64", x1=Int64s, x2=Int64s)

KERNELS: dict[tuple[str, str], Kernel] = {
    ("ADD", "float32"): add_float32,
    ("ADD", "int32"): add_int32,
    ("SUB", "float32"): subtract_float32,
    ("SUB", "int32"): subtract_int32,
    ("MUL", "float32"): multiply_float32,
    ("MUL", "int32"): multiply_int32,
    ("DIV", "float32"): divide_float32,
    ("DIV", "int32"): divide_int32,
    ("SQUARED_DIFFERENCE", "float32"): squared_difference_float32,
    ("SQUARED_DIFFERENCE", "int32"): squared_difference_int32,
    ("MAXIMUM", "float32"): maximum_float32,
    ("MAXIMUM", "int16"): maximum_int16,
    ("MAXIMUM", "int32"): maximum_int32,
    ("MAXIMUM", "int64"): maximum_int64,
    ("MINIMUM", "float32"): minimum_float32,
    ("MINIMUM", "int16"): minimum_int16,
    ("MINIMUM", "int32"): minimum_int32,
    ("MINIMUM", "int64"): minimum_int64,
    ("PRELU", "float32"): prelu_float32,
    ("EQUAL", "float32"): equal_float32,
    ("EQUAL", "int32"): equal_int32,
    ("EQUAL", "int64"): equal_int64,
    ("NOT_EQUAL", "float32"): not_equal_float32,
    ("NOT_EQUAL", "int32"): not_equal_int32,
    ("NOT_EQUAL", "int64"): not_equal_int64,
    ("GREATER", "float32"): greater_float32,
    ("GREATER", "int32"): greater_int32,
    ("GREATER", "int64"): greater_int64,
    ("GREATER_EQUAL", "float32"): greater_equal_float32,
    ("GREATER_EQUAL", "int32"): greater_equal_int32,
    ("GREATER_EQUAL", "int64"): greater_equal_int64,
    ("LESS", "float32"): less_float32,
    ("LESS", "int32"): less_int32,
    ("LESS", "int64"): less_int64,
    ("LESS_EQUAL", "float32"): less_equal_float32,
    ("LESS_EQUAL", "int32"): less_equal_int32,
    ("LESS_EQUAL", "int64"): less_equal_int64,
}
"""By operator and type of the inputs, where numbers are taken as they are."""


UFUNCS: dict[str, np.ufunc] = {
    "EQUAL": np.equal,
    "LOGICAL_AND": np.bitwise_and,
    "LOGICAL_OR": np.bitwise_or,
    "MAXIMUM": np.maximum,
    "MINIMUM": np.minimum,
    "NOT_EQUAL": np.bitwise_xor,
}
"""Of elements of 8 bits that have no scale, or whose scale does not count; truth values are compared as bytes."""


def _bind(context: KernelContext, node: Node) -> list[Step] | None:
    ops = operands(context, node)
    spread, step = copy_steps(ops.copies), _step(ops, node)
    return None if spread is None or step is None else [*spread, step]


def _step(ops: Operands, node: Node) -> Step | None:
    x1, x2, y = ops.x1, ops.x2, ops.y
    plain = KERNELS.get((node.operator, x1.dtype.name))
    if x1.itemsize == x2.itemsize == y.itemsize == 1:
        table = pair_table(ops, _function_of_pairs(node))
        return look_up_pairs.step(x1=_bytes(x1), x2=_bytes(x2), table=_bytes(table), y=_bytes(y), count=y.size)
    if plain is None:
        return _quantized_step(ops, node.op_data)
    limits = {"limits": np.array(node.op_data, y.dtype)} if "limits" in plain.parameters else {}
    result = _bytes(y) if y.itemsize == 1 else y
    return plain.step(x1=x1, x2=x2, y=result, **limits, count=y.size)


def _function_of_pairs(node: Node) -> BinaryFunction:
    if callable(node.op_data):
        function: BinaryFunction = node.op_data
        return function
    return _of_pairs(UFUNCS[node.operator])


@functools.cache
def _of_pairs(ufunc: np.ufunc) -> BinaryFunction:
    def apply(a: npt.NDArray[Any], b: npt.NDArray[Any], scratch: npt.NDArray[Any]) -> npt.NDArray[Any]:
        result: npt.NDArray[Any] = ufunc(a, b)
        return result

    return apply


def _bytes(array: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    return array.view(np.uint8)


BINDINGS = dict.fromkeys(FAMILIES["elementwise"], _bind)
