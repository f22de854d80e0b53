"""The TensorFlow operators that numpy computes: one function each, found by TensorFlow's name.

A function takes the inputs as arrays, and the attributes of the NodeDef that it needs as keyword-only arguments, with
TensorFlow's defaults. It returns an array or a tuple of arrays, and raises an `OperatorError` for unsupported inputs.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from tflm.errors import OperatorError

Array = npt.NDArray[Any]
Function = Callable[..., Any]

INT32, INT64, FLOAT32 = np.dtype(np.int32), np.dtype(np.int64), np.dtype(np.float32)

OPERATORS: dict[str, Function] = {}
"""The functions by the name of the operator, without `Flex`."""


def operator(*names: str) -> Callable[[Function], Function]:
    """Register a function for these operators."""

    def added(function: Function) -> Function:
        OPERATORS.update(dict.fromkeys(names, function))
        return function

    return added


def bound(name: str, attributes: Mapping[str, Any]) -> Callable[..., tuple[Array, ...]]:
    """The function of an operator with these attributes; it takes the inputs and returns the outputs.

    Attributes that it does not name, such as `T` and `_output_shapes`, change nothing on a host.
    """
    function = OPERATORS[name]
    # A ufunc takes no attributes, and in older numpy has no signature.
    parameters = {} if isinstance(function, np.ufunc) else inspect.signature(function).parameters
    named = {key for key, parameter in parameters.items() if parameter.kind is parameter.KEYWORD_ONLY}
    given = {key: value for key, value in attributes.items() if key in named}

    def call(*inputs: Array) -> tuple[Array, ...]:
        outputs = function(*inputs, **given)
        return tuple(map(np.asarray, outputs)) if isinstance(outputs, (tuple, list)) else (np.asarray(outputs, None),)

    return call


def require(condition: Any, reason: str) -> None:
    """Raise an `OperatorError` with this reason unless a condition holds."""
    if not condition:
        raise OperatorError(reason)


def ints(values: Any) -> list[int]:
    """A number, or the elements of an array, as a list."""
    return [int(value) for value in np.asarray(values, None).reshape(-1)]


def axis_of(axis: Any, rank: int) -> int:
    """A dimension counted from 0; negative ones count from the end.

    Raises:
        OperatorError: the dimension does not exist.
    """
    (index,) = ints(axis)
    require(-rank <= index < rank, f"has no dimension {index}, its input has {rank}")
    return index % rank


def exact(x: Array) -> Array:
    """Floats in double precision, to be rounded once at the end; integers as they are."""
    return x.astype({"f": np.float64, "c": np.complex128}.get(x.dtype.kind, x.dtype))


def lowest(dtype: np.dtype[Any]) -> Any:
    """The smallest value of a type: where a maximum starts."""
    return -np.inf if dtype.kind == "f" else np.iinfo(dtype).min
