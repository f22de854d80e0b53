"""Write tables as a flatbuffer, the inverse of the reader. The same tables always produce the same bytes."""

from __future__ import annotations

import struct
from typing import Any

from tflm.errors import ModelError
from tflm.schema.layout import (
    Bytes,
    Field,
    Scalar,
    ScalarVector,
    StringType,
    Table,
    TableVector,
    UnionType,
    Wire,
    fields_of,
)
from tflm.schema.reader import IDENTIFIER
from tflm.schema.tables import Model

Slot = tuple[int, bytes | int]
"""Number of a slot of a table, and its bytes; or the position of what it refers to."""


def write_model(model: Model) -> bytes:
    """The bytes of a `.tflite` file for `model`. Scalars that equal their default are left out, as the format has it.

    Raises:
        ModelError: a value does not fit its field's type, naming table and field.
    """
    builder = _Builder()
    root = _write_table(builder, model)
    return builder.finished(root)


class _Builder:
    """A flatbuffer that is written from its last byte to its first. Positions count bytes from its end."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._position = 0
        self._align = 1
        self._vtables: dict[bytes, int] = {}

    def put(self, data: bytes, align: int) -> int:
        """Put data in front, at a multiple of `align` bytes; returns its position."""
        padding = -(self._position + len(data)) % align
        if padding:
            self._parts.append(bytes(padding))
        self._parts.append(data)
        self._position += padding + len(data)
        self._align = max(self._align, align)
        return self._position

    def vector(self, data: bytes, count: int, align: int = 4) -> int:
        """Put a vector of so many elements, the first one at a multiple of `align` bytes."""
        self.put(data, max(align, 4))
        return self.put(struct.pack("<I", count), 4)

    def offsets(self, targets: list[int]) -> bytes:
        """Return the offsets to these positions, as they are if they are the next to be put."""
        end = self._position + -self._position % 4 + 4 * len(targets)
        return struct.pack(f"<{len(targets)}I", *(end - 4 * i - target for i, target in enumerate(targets)))

    def table(self, slots: list[Slot]) -> int:
        """Put a table with these slots, the last one in front."""
        end = self._position
        places = {}
        for number, content in slots:
            data = self.offsets([content]) if isinstance(content, int) else content
            places[number] = self.put(data, len(data))
        start = self._position + -self._position % 4 + 4
        offsets = [start - places.get(slot, start) for slot in range(max(places, default=-1) + 1)]
        vtable = struct.pack(f"<{len(offsets) + 2}H", 2 * len(offsets) + 4, start - end, *offsets)
        known = self._vtables.setdefault(vtable, start + len(vtable))
        self.put(struct.pack("<i", known - start), 4)
        if known == start + len(vtable):
            self.put(vtable, 2)
        return start

    def finished(self, root: int) -> bytes:
        """The bytes of the file with this root."""
        padding = -(self._position + 8) % self._align
        self.put(IDENTIFIER + bytes(padding), 4)
        self.put(self.offsets([root]), 4)
        return b"".join(reversed(self._parts))


def _write_table(builder: _Builder, table: Table) -> int:
    """Write what the table refers to, then the table; returns its position."""
    present = []
    try:
        for field in fields_of(type(table)):
            value = getattr(table, field.name)
            if value != field.default if isinstance(field.wire, Scalar) else value is not None:
                present.append(_slots_of(builder, field, value))
    except ModelError:
        raise
    except (AttributeError, TypeError, ValueError, OverflowError, struct.error) as error:
        raise ModelError(f"can't be written: {error}", table=type(table).__name__, field=field.name) from error
    # Large fields first keeps the padding inside the table small.
    return builder.table([slot for slots in sorted(present, key=_descending_size) for slot in slots])


def _descending_size(slots: list[Slot]) -> int:
    ((_, content), *_) = slots
    return -4 if isinstance(content, int) else -len(content)


def _slots_of(builder: _Builder, field: Field, value: Any) -> list[Slot]:
    """Write the data that a field refers to; returns the slots of the field: of a union, that of its tag, too."""
    wire = field.wire
    if isinstance(wire, Scalar):
        return [(field.slot, _packed(wire, value))]
    slots: list[Slot] = [(field.slot, _write_target(builder, wire, value))]
    if isinstance(wire, UnionType):
        slots.append((field.slot - 1, bytes([wire.members.index(type(value)) + 1])))
    return slots


def _packed(wire: Scalar, value: Any) -> bytes:
    if wire.code == "?" and value not in (False, True):
        raise TypeError(f"{value!r} is not a boolean")
    return struct.pack(f"<{wire.code}", value)


def _write_target(builder: _Builder, wire: Wire, value: Any) -> int:
    """Write the data that a field refers to by offset."""
    if isinstance(wire, StringType):
        text = value.encode("utf-8", "surrogateescape")
        return builder.vector(text + b"\0", len(text))
    if isinstance(wire, Bytes):
        data = memoryview(value).tobytes()
        return builder.vector(data, len(data), wire.align)
    if isinstance(wire, ScalarVector):
        packed = struct.pack(f"<{len(value)}{wire.code}", *value)
        return builder.vector(packed, len(value), max(wire.align, struct.calcsize(f"<{wire.code}")))
    if isinstance(wire, TableVector):
        targets = [_write_table(builder, item) for item in value]
        return builder.vector(builder.offsets(targets), len(targets))
    return _write_table(builder, value)
