"""Custom options: a flexbuffer map of a few numbers, read as TFLM reads it.

TFLM's kernels access the values of a map in two ways: by key, with a default for a missing key; and by position: values
are sorted by key and equally wide, and the value at a position is read as an integer, whatever its key and type.

The bytes are not trusted: any error in them raises an `OperatorError`, after bounded work.
"""

from __future__ import annotations

import math
import struct
from enum import IntEnum

import numpy as np

from tflm.errors import OperatorError


class FlexbufferType(IntEnum):
    """The supported types of values; there are others."""

    NULL = 0
    INT = 1
    UINT = 2
    FLOAT = 3
    INDIRECT_INT = 6
    INDIRECT_UINT = 7
    INDIRECT_FLOAT = 8
    MAP = 9
    VECTOR = 10
    BOOL = 26


INDIRECT = {
    FlexbufferType.INDIRECT_INT: FlexbufferType.INT,
    FlexbufferType.INDIRECT_UINT: FlexbufferType.UINT,
    FlexbufferType.INDIRECT_FLOAT: FlexbufferType.FLOAT,
}
FORMATS = {
    FlexbufferType.INT: {1: "<b", 2: "<h", 4: "<i", 8: "<q"},
    FlexbufferType.UINT: {1: "<B", 2: "<H", 4: "<I", 8: "<Q"},
    FlexbufferType.FLOAT: {4: "<f", 8: "<d"},
}
FORMATS[FlexbufferType.BOOL] = FORMATS[FlexbufferType.UINT]


class FlexbufferMap:
    """The values of a map, or of a plain vector, which has no keys.

    Args:
        data: the whole flexbuffer.

    Raises:
        OperatorError: its root is something else, or lies outside of the data.
    """

    def __init__(self, data: bytes | memoryview):
        self._data = memoryview(data)
        if len(data) < 3:
            raise OperatorError(f"has custom options of {len(data)} bytes, needs a flexbuffer map")
        packed_type, root_width = self._data[-2:]
        self._width, kind = _unpacked(packed_type)
        if kind not in (FlexbufferType.MAP, FlexbufferType.VECTOR):
            raise OperatorError(f"has custom options of flexbuffer type {kind}, needs a map")
        self._is_map = kind == FlexbufferType.MAP
        self._values = self._indirect(len(data) - 2 - root_width, root_width)

    def element_as_int32(self, index: int) -> int:
        """The low 32 bits of the value at a place, as a signed integer.

        As in TFLM, there may be fewer values: then it is whatever follows them.

        Raises:
            OperatorError: the place lies outside of the options.
        """
        return _int32(int(self._scalar(self._place(index), self._width, FlexbufferType.INT)))

    def element_as_bool(self, index: int) -> bool:
        """Whether any bit is set at a place; see `element_as_int32`."""
        return bool(self._scalar(self._place(index), self._width, FlexbufferType.UINT))

    def as_int32(self, key: str, default: int = 0) -> int:
        """The value of a key truncated to an integer, its low 32 bits; `default` if the key is missing or null.

        Raises:
            OperatorError: the map is broken, or the value is not a number.
        """
        value = self._number(key)
        if value is None:
            return default
        if isinstance(value, float):
            value = int(value) if abs(value) < 2.0**63 else 0  # the low bits of what x86 gives for other floats
        return _int32(value)

    def as_float(self, key: str, default: float = 0.0) -> float:
        """The value of a key rounded to float32; `default` if the key is missing or null. Raises as `as_int32`."""
        value = self._number(key)
        with np.errstate(over="ignore"):
            return default if value is None else float(np.float32(value))

    def as_bool(self, key: str, default: bool = False) -> bool:
        """Whether the value of a key, truncated to an integer, is not 0. Defaults and raises as `as_int32`."""
        value = self._number(key)
        return default if value is None else bool(math.trunc(value) if math.isfinite(value) else value)

    def _number(self, key: str) -> int | float | None:
        index = self._find(key) if self._is_map else None
        if index is None:
            return None
        packed_type = self._unsigned(self._place(self._size()) + index, 1)
        width, kind = _unpacked(packed_type)
        if kind == FlexbufferType.NULL:
            return None
        position = self._place(index)
        if kind in INDIRECT:
            return self._scalar(self._indirect(position, self._width), width, INDIRECT[FlexbufferType(kind)])
        if kind in FORMATS:
            return self._scalar(position, self._width, FlexbufferType(kind))
        raise OperatorError(f"has a custom option {key!r} of flexbuffer type {kind}, needs a number")

    def _find(self, key: str) -> int | None:
        """The place of a key, by the binary search that TFLM makes; None if it does not meet the key."""
        keys = self._indirect(self._place(-3), self._width)
        keys_width = self._unsigned(self._place(-2), self._width)
        wanted = key.encode()
        low, high = 0, self._unsigned(keys - keys_width, keys_width)
        while low < high:
            middle = (low + high) // 2
            position = self._indirect(keys + middle * keys_width, keys_width)
            found = bytes(self._data[position : position + len(wanted) + 1]).partition(b"\0")[0]
            if found == wanted:
                return middle if middle < self._size() else None
            low, high = (low, middle) if wanted < found else (middle + 1, high)
        return None

    def _size(self) -> int:
        return self._unsigned(self._place(-1), self._width)

    def _place(self, index: int) -> int:
        return self._values + index * self._width

    def _indirect(self, position: int, width: int) -> int:
        """Where the offset at a position points to; offsets point backwards."""
        return position - self._unsigned(position, width)

    def _unsigned(self, position: int, width: int) -> int:
        return int(self._scalar(position, width, FlexbufferType.UINT))

    def _scalar(self, position: int, width: int, kind: FlexbufferType) -> int | float:
        form = FORMATS[kind].get(width)
        if form is None or not 0 <= position <= len(self._data) - width:
            raise OperatorError("has custom options that are not a complete flexbuffer")
        value: int | float = struct.unpack_from(form, self._data, position)[0]
        return value


def _unpacked(packed_type: int) -> tuple[int, int]:
    """Width in bytes and type in a packed type."""
    return 1 << (packed_type & 3), packed_type >> 2


def _int32(value: int) -> int:
    return (value + 2**31) % 2**32 - 2**31
