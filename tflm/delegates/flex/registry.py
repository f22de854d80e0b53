"""Which TensorFlow operators numpy computes: a function each, found by TensorFlow's name.

A function takes the inputs as arrays, and those attributes of the NodeDef that it names as keyword arguments, with
TensorFlow's defaults; it gives an array, or a tuple of them. What it can't take it refuses with an `OperatorError`.
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

INT32, INT64 = np.dtype(np.int32), np.dtype(np.int64)

OPERATORS: dict[str, Function] = {}
"""The functions by the operator's name, without `Flex`."""


def operator(*names: str) -> Callable[[Function], Function]:
    """Make a function the one for these operators."""

    def added(function: Function) -> Function:
        OPERATORS.update(dict.fromkeys(names, function))
        return function

    return added


def bound(name: str, attributes: Mapping[str, Any]) -> Callable[..., tuple[Array, ...]]:
    """The function of an operator, given these attributes; it takes the inputs and gives the outputs.

    Attributes that it does not ask for change nothing on a host, such as `T` and `_output_shapes`.
    """
    function = OPERATORS[name]
    # A ufunc takes no attributes, and in older numpy has no signature.
    parameters = {} if isinstance(function, np.ufunc) else inspect.signature(function).parameters
    given = {key: value for key, value in attributes.items() if key in parameters}

    def call(*inputs: Array) -> tuple[Array, ...]:
        outputs = function(*inputs, **given)
        return tuple(map(np.asarray, outputs)) if isinstance(outputs, (tuple, list)) else (np.asarray(outputs, None),)

    return call


def require(condition: Any, reason: str) -> None:
    """Refuse, where a condition does not hold.

    Raises:
        OperatorError: with that reason.
    """
    if not condition:
        raise OperatorError(reason)


def ints(values: Any) -> list[int]:
    """The elements of an array, or a number, as a list."""
    return [int(value) for value in np.asarray(values, None).reshape(-1)]


def axis_of(axis: Any, rank: int) -> int:
    """A dimension counted from 0; negative ones count from the end.

    Raises:
        OperatorError: there is no such dimension.
    """
    (index,) = ints(axis)
    require(-rank <= index < rank, f"has no dimension {index}, its input has {rank}")
    return index % rank


def exact(x: Array) -> Array:
    """Floats in double precision, to be rounded once at the end; integers as they are."""
    wider = {np.dtype(np.float16): np.float64, np.dtype(np.float32): np.float64, np.dtype(np.complex64): np.complex128}
    return x.astype(wider.get(x.dtype, x.dtype))
