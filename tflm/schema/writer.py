"""Write tables as a flatbuffer, the inverse of the reader. The same tables always produce the same bytes."""

from __future__ import annotations

import struct
from typing import Any

import flatbuffers
import flatbuffers.number_types as number_types
import numpy as np

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

_FLAGS = {
    "?": number_types.BoolFlags,
    "b": number_types.Int8Flags,
    "i": number_types.Int32Flags,
    "I": number_types.Uint32Flags,
    "q": number_types.Int64Flags,
    "Q": number_types.Uint64Flags,
    "f": number_types.Float32Flags,
}


def write_model(model: Model) -> bytes:
    """The bytes of a `.tflite` file for `model`. Scalars that equal their default are left out, as the format has it.

    Raises:
        ModelError: a value does not fit its field's type, naming table and field.
    """
    builder = flatbuffers.Builder(1 << 16)
    root = _write_table(builder, model)
    builder.Finish(root, file_identifier=IDENTIFIER)
    return bytes(builder.Output())


def _write_table(builder: Any, table: Table) -> int:
    """Write what the table refers to, then the table; returns its position as the builder counts."""
    fields = fields_of(type(table))
    present = []
    try:
        for field in fields:
            value = getattr(table, field.name)
            if value != field.default if isinstance(field.wire, Scalar) else value is not None:
                present.append((field, value, _write_target(builder, field.wire, value)))
        builder.StartObject(fields[-1].slot + 1 if fields else 0)
        # Large fields first keeps the padding inside the table small.
        for field, value, target in sorted(present, key=_descending_size):
            _write_slot(builder, field, value, target)
    except ModelError:
        raise
    except (AttributeError, TypeError, ValueError, OverflowError, struct.error) as error:
        raise ModelError(f"can't be written: {error}", table=type(table).__name__, field=field.name) from error
    return int(builder.EndObject())


def _descending_size(item: tuple[Field, Any, int | None]) -> int:
    wire = item[0].wire
    return -struct.calcsize(wire.code) if isinstance(wire, Scalar) else -4


def _write_target(builder: Any, wire: Wire, value: Any) -> int | None:
    """Write the data that a field refers to by offset; None for a scalar, which is stored in the table itself."""
    if isinstance(wire, Scalar):
        return None
    if isinstance(wire, StringType):
        return int(builder.CreateString(value.encode("utf-8", "surrogateescape")))
    if isinstance(wire, Bytes):
        data = memoryview(value).tobytes()
        builder.Prep(wire.align, len(data))
        return int(builder.CreateByteVector(data))
    if isinstance(wire, ScalarVector):
        packed = struct.pack(f"<{len(value)}{wire.code}", *value)
        # Some 32-bit machines, and numpy on them, align 64-bit values to only 4 bytes.
        builder.Prep(max(wire.align, struct.calcsize(f"<{wire.code}")), len(packed))
        return int(builder.CreateNumpyVector(np.frombuffer(packed, "<" + wire.code)))
    if isinstance(wire, TableVector):
        return _write_offsets(builder, [_write_table(builder, item) for item in value])
    return _write_table(builder, value)


def _write_offsets(builder: Any, targets: list[int]) -> int:
    builder.StartVector(4, len(targets), 4)
    for target in reversed(targets):
        builder.PrependUOffsetTRelative(target)
    return int(builder.EndVector())


def _write_slot(builder: Any, field: Field, value: Any, target: int | None) -> None:
    wire = field.wire
    if isinstance(wire, Scalar):
        builder.PrependSlot(_FLAGS[wire.code], field.slot, value, field.default)
    else:
        builder.PrependUOffsetTRelativeSlot(field.slot, target, 0)
        if isinstance(wire, UnionType):
            builder.PrependUint8Slot(field.slot - 1, wire.members.index(type(value)) + 1, 0)
