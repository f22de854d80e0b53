"""Elements of each tensor type: numpy dtype, and bits in a file."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from tflm.schema.enums import TensorType


class ElementType(NamedTuple):
    """One element: `bits` in a file (0 if variable), `dtype` of a numpy view of it.

    Types of less than a byte are packed in a file, low bits first, and viewed as the packed bytes. Types that numpy
    lacks are viewed as unsigned integers of their size.
    """

    bits: int
    dtype: np.dtype[Any]

    def packed_bytes(self, shape: tuple[int, ...]) -> int:
        """Bytes that a constant of `shape` takes in a file."""
        return (math.prod(shape) * self.bits + 7) // 8


def _element(bits: int, dtype: str) -> ElementType:
    return ElementType(bits, np.dtype(dtype))


ELEMENT_TYPES: dict[TensorType, ElementType] = {
    TensorType.FLOAT32: _element(32, "<f4"),
    TensorType.FLOAT16: _element(16, "<f2"),
    TensorType.INT32: _element(32, "<i4"),
    TensorType.UINT8: _element(8, "u1"),
    TensorType.INT64: _element(64, "<i8"),
    TensorType.STRING: _element(0, "u1"),
    TensorType.BOOL: _element(8, "?"),
    TensorType.INT16: _element(16, "<i2"),
    TensorType.COMPLEX64: _element(64, "<c8"),
    TensorType.INT8: _element(8, "i1"),
    TensorType.FLOAT64: _element(64, "<f8"),
    TensorType.COMPLEX128: _element(128, "<c16"),
    TensorType.UINT64: _element(64, "<u8"),
    TensorType.RESOURCE: _element(32, "<i4"),
    TensorType.VARIANT: _element(0, "u1"),
    TensorType.UINT32: _element(32, "<u4"),
    TensorType.UINT16: _element(16, "<u2"),
    TensorType.INT4: _element(4, "i1"),
    TensorType.BFLOAT16: _element(16, "<u2"),
    TensorType.INT2: _element(2, "u1"),
    TensorType.UINT4: _element(4, "u1"),
    TensorType.FLOAT8_E4M3FN: _element(8, "u1"),
    TensorType.FLOAT8_E5M2: _element(8, "u1"),
}

TENSOR_TYPES: dict[np.dtype[Any], TensorType] = {
    ELEMENT_TYPES[kind].dtype: kind
    for kind in (
        TensorType.FLOAT32,
        TensorType.FLOAT16,
        TensorType.FLOAT64,
        TensorType.INT8,
        TensorType.INT16,
        TensorType.INT32,
        TensorType.INT64,
        TensorType.UINT8,
        TensorType.UINT16,
        TensorType.UINT32,
        TensorType.UINT64,
        TensorType.BOOL,
        TensorType.COMPLEX64,
        TensorType.COMPLEX128,
    )
}
"""The tensor type that holds elements of a numpy dtype."""
