"""C's casts, for kernels. Arithmetic on 32-bit numbers has 64-bit results until they are cast back."""

from __future__ import annotations

from typing import Any

import numpy as np

from tflm.compiler.language import inlined


@inlined
def as_int16(value: Any) -> Any:
    """Return the low 16 bits of an integer, as a signed number."""
    return np.int16(value)


@inlined
def as_int32(value: Any) -> Any:
    """Return the low 32 bits of an integer, as a signed number; or a float truncated towards zero, which must fit."""
    return np.int32(value)


@inlined
def as_int64(value: Any) -> Any:
    """Return an integer, or a float truncated towards zero."""
    return np.int64(value)


@inlined
def as_float32(value: Any) -> Any:
    """Return the nearest float32."""
    return np.float32(value)


@inlined
def as_float64(value: Any) -> Any:
    """Return a number as float64."""
    return np.float64(value)


@inlined
def as_uint64(value: Any) -> Any:
    """Return a number as an unsigned 64-bit integer."""
    return np.uint64(value)
