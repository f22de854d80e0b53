"""C's casts, for kernels. Arithmetic on 32-bit numbers has 64-bit results until they are cast back."""

from __future__ import annotations

from typing import Any

import numpy as np

from tflm.compiler.language import inlined


@inlined
def as_int16(value: Any) -> Any:
    """An integer's low 16 bits, as a signed number."""
    return np.int16(value)


@inlined
def as_int32(value: Any) -> Any:
    """An integer's low 32 bits, as a signed number; a float truncated towards zero, which must fit."""
    return np.int32(value)


@inlined
def as_int64(value: Any) -> Any:
    """An integer, or a float truncated towards zero."""
    return np.int64(value)


@inlined
def as_float32(value: Any) -> Any:
    """The nearest float32."""
    return np.float32(value)


@inlined
def as_float64(value: Any) -> Any:
    """A number in 64 bits."""
    return np.float64(value)


@inlined
def as_uint64(value: Any) -> Any:
    """A number in 64 bits without a sign."""
    return np.uint64(value)
