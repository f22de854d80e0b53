"""Functions, binary operators, comparisons and gradients, element by element with numpy's broadcasting."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tflm.delegates.flex.registry import OPERATORS, Array, operator, require

SELU_SCALE, SELU_ALPHA = 1.0507009873554805, 1.6732632423543772
"""Of Klambauer and others, Self-Normalizing Neural Networks."""


def _by_element(function: Callable[[float], float]) -> Callable[[Array], Array]:
    """Apply a function of the `math` module to each element; at poles and on overflow the result is infinite."""

    def guarded(value: float) -> float:
        try:
            return function(value)
        except (ValueError, OverflowError):
            return math.inf if (value <= 0 and value == int(value)) or value > 0 else math.nan

    return lambda x: np.asarray([guarded(value) for value in x.reshape(-1).tolist()], x.dtype).reshape(x.shape)


def _digamma(value: float) -> float:
    """By recurrence to where the asymptotic series holds (Abramowitz and Stegun 6.3.5, 6.3.18)."""
    if value <= 0 and value == math.floor(value):
        return math.nan
    if value < 0:
        return _digamma(1 - value) - math.pi / math.tan(math.pi * value)
    shift = 0.0
    while value < 10:
        shift -= 1 / value
        value += 1
    square = 1 / (value * value)
    series = square * (1 / 12 - square * (1 / 120 - square * (1 / 252 - square * (1 / 240 - square / 132))))
    return shift + math.log(value) - 0.5 / value - series


def _sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def _sign(x: Array) -> Array:
    return np.where(x == 0, 0, x / np.where(x == 0, 1, abs(x))) if x.dtype.kind == "c" else np.sign(x)


UNARY: dict[str, Callable[[Array], Any]] = {
    "Abs": np.abs,
    "Acos": np.arccos,
    "Acosh": np.arccosh,
    "Angle": np.angle,
    "Asin": np.arcsin,
    "Asinh": np.arcsinh,
    "Atan": np.arctan,
    "Atanh": np.arctanh,
    "Ceil": np.ceil,
    "ComplexAbs": np.abs,
    "Conj": np.conj,
    "Cos": np.cos,
    "Cosh": np.cosh,
    "Digamma": _by_element(_digamma),
    "Elu": lambda x: np.where(x < 0, np.expm1(np.minimum(x, 0)), x),
    "Erf": _by_element(math.erf),
    "Erfc": _by_element(math.erfc),
    "Exp": np.exp,
    "Expm1": np.expm1,
    "Floor": np.floor,
    "Imag": np.imag,
    "Inv": lambda x: 1 / x,
    "Invert": np.invert,
    "IsFinite": np.isfinite,
    "IsInf": np.isinf,
    "IsNan": np.isnan,
    "Lgamma": _by_element(math.lgamma),
    "Log": np.log,
    "Log1p": np.log1p,
    "LogicalNot": np.logical_not,
    "Neg": np.negative,
    "OnesLike": np.ones_like,
    "PopulationCount": lambda x: np.bitwise_count(x.view(f"u{x.itemsize}")),
    "Real": np.real,
    "Reciprocal": lambda x: 1 / x,
    "Relu": lambda x: np.maximum(x, 0),
    "Relu6": lambda x: np.clip(x, 0, 6),
    "Rint": np.rint,
    "Round": np.rint,
    "Rsqrt": lambda x: 1 / np.sqrt(x),
    "Selu": lambda x: SELU_SCALE * np.where(x < 0, SELU_ALPHA * np.expm1(np.minimum(x, 0)), x),
    "Sigmoid": _sigmoid,
    "Sign": _sign,
    "Sin": np.sin,
    "Sinh": np.sinh,
    "Softplus": lambda x: np.logaddexp(x, 0),
    "Softsign": lambda x: x / (1 + abs(x)),
    "Sqrt": np.sqrt,
    "Square": np.square,
    "Tan": np.tan,
    "Tanh": np.tanh,
    "ZerosLike": np.zeros_like,
    **dict.fromkeys(
        ("Identity", "StopGradient", "PreventGradient", "DeepCopy", "DebugGradientIdentity", "Snapshot"), np.copy
    ),
}
"""Functions of one input, in the precision of the input."""


def _shift(shift: np.ufunc) -> Callable[[Array, Array], Array]:
    return lambda x, y: shift(x, np.clip(y, 0, x.itemsize * 8 - 1).astype(x.dtype))


def _by_nonzero(divide: Callable[[Array, Array], Array]) -> Callable[[Array, Array], Array]:
    def divided(x: Array, y: Array) -> Array:
        require(x.dtype.kind not in "iu" or np.all(y), "divides an integer by zero")
        return divide(x, y)

    return divided


def _truncated_division(x: Array, y: Array) -> Array:
    if x.dtype.kind not in "iu":
        return np.trunc(x / y) if x.dtype.kind == "f" else x / y
    quotient = np.floor_divide(x, y)
    return quotient + ((quotient < 0) & (quotient * y != x))


def _where_nonzero(gate: Array, values: Array) -> Array:
    return np.where(np.broadcast_to(gate, values.shape) == 0, 0, values)


def _power(x: Array, y: Array) -> Array:
    require(x.dtype.kind not in "iu" or np.all(y >= 0), "raises an integer to a negative power")
    return np.power(x, y)


BINARY: dict[str, Callable[[Array, Array], Any]] = {
    "Add": np.add,
    "AddV2": np.add,
    "Atan2": np.arctan2,
    "BitwiseAnd": np.bitwise_and,
    "BitwiseOr": np.bitwise_or,
    "BitwiseXor": np.bitwise_xor,
    "Div": _by_nonzero(lambda x, y: _truncated_division(x, y) if x.dtype.kind in "iu" else x / y),
    "DivNoNan": lambda x, y: _where_nonzero(y, x / np.where(y == 0, 1, y)),
    "Equal": np.equal,
    "FloorDiv": _by_nonzero(np.floor_divide),
    "FloorMod": _by_nonzero(np.mod),
    "Greater": np.greater,
    "GreaterEqual": np.greater_equal,
    "LeftShift": _shift(np.left_shift),
    "Less": np.less,
    "LessEqual": np.less_equal,
    "LogicalAnd": np.logical_and,
    "LogicalOr": np.logical_or,
    "Maximum": np.maximum,
    "Minimum": np.minimum,
    "Mod": _by_nonzero(np.fmod),
    "Mul": np.multiply,
    "MulNoNan": lambda x, y: _where_nonzero(y, x * y),
    "NextAfter": np.nextafter,
    "NotEqual": np.not_equal,
    "Pow": _power,
    "RealDiv": np.true_divide,
    "RightShift": _shift(np.right_shift),
    "SquaredDifference": lambda x, y: np.conj(x - y) * (x - y),
    "Sub": np.subtract,
    "TruncateDiv": _by_nonzero(_truncated_division),
    "TruncateMod": _by_nonzero(np.fmod),
    "Xdivy": lambda x, y: _where_nonzero(x, x / y),
    "Xlog1py": lambda x, y: _where_nonzero(x, x * np.log1p(y)),
    "Xlogy": lambda x, y: _where_nonzero(x, x * np.log(y)),
}
"""Functions of two inputs of one type, which broadcast."""

GRADIENTS: dict[str, Callable[[Array, Array], Any]] = {
    "EluGrad": lambda gradient, y: np.where(y < 0, gradient * (y + 1), gradient),
    "InvGrad": lambda y, gradient: -gradient * np.conj(y) ** 2,
    "ReciprocalGrad": lambda y, gradient: -gradient * np.conj(y) ** 2,
    "Relu6Grad": lambda gradient, x: np.where((x > 0) & (x < 6), gradient, 0),
    "ReluGrad": lambda gradient, x: np.where(x > 0, gradient, 0),
    "RsqrtGrad": lambda y, gradient: -0.5 * gradient * np.conj(y) ** 3,
    "SeluGrad": lambda gradient, y: np.where(y < 0, gradient * (y + SELU_SCALE * SELU_ALPHA), gradient * SELU_SCALE),
    "SigmoidGrad": lambda y, gradient: gradient * y * (1 - y),
    "SoftplusGrad": lambda gradient, x: gradient * _sigmoid(x),
    "SoftsignGrad": lambda gradient, x: gradient / np.square(1 + abs(x)),
    "SqrtGrad": lambda y, gradient: 0.5 * gradient / np.conj(y),
    "TanhGrad": lambda y, gradient: gradient * (1 - y * y),
}
"""Gradients with respect to the input x; some take x, some the output y, in TensorFlow's order."""

OPERATORS |= {**UNARY, **BINARY, **GRADIENTS}
OPERATORS |= {  # of one expression each
    "ApproximateEqual": lambda x, y, *, tolerance=1e-5: abs(x - y) < x.dtype.type(tolerance),
    "Cast": lambda x, *, DstT: (x if DstT.kind == "c" else x.real).astype(DstT),  # noqa: N803
    "LeakyRelu": lambda x, *, alpha=0.2: np.where(x > 0, x, x * x.dtype.type(alpha)),
    "LeakyReluGrad": lambda slope, x, *, alpha=0.2: np.where(x > 0, slope, slope * slope.dtype.type(alpha)),
    "SelectV2": lambda condition, x, y: np.where(condition, x, y),
}


@operator("Complex")
def _complex(real: Array, imaginary: Array) -> Array:
    made = np.empty(np.broadcast_shapes(real.shape, imaginary.shape), np.result_type(real, np.complex64))
    made.real, made.imag = real, imaginary
    return made


@operator("AddN", "AccumulateNV2")
def _add_n(*inputs: Array) -> Array:
    return functools.reduce(np.add, inputs)


@operator("CheckNumerics", "CheckNumericsV2")
def _check_numerics(x: Array, *, message: bytes = b"") -> Array:
    require(np.isfinite(x).all(), f"finds a value that is not finite: {message.decode(errors='replace')}")
    return x


@operator("Select")
def _select(condition: Array, x: Array, y: Array) -> Array:
    if condition.ndim == 1 and x.ndim > 1:
        condition = condition.reshape(-1, *[1] * (x.ndim - 1))
    return np.where(condition, x, y)


@operator("Bitcast")
def _bitcast(x: Array, *, type: np.dtype[Any]) -> Array:
    if x.itemsize > type.itemsize:
        return np.ascontiguousarray(x, None)[..., np.newaxis].view(type)
    viewed = np.ascontiguousarray(x, None).view(type)
    return viewed if x.itemsize == type.itemsize else viewed[..., 0]


@operator("Bucketize")
def _bucketize(x: Array, *, boundaries: list[float] = ()) -> Array:  # type: ignore[assignment]
    return np.searchsorted(np.asarray(boundaries, np.float32), x, side="right").astype(np.int32)
