"""Changes single parts of a model's bytes without touching the others.

Offsets in a flatbuffer point forward in the file. New parts are therefore added at the front, after a new root table
that refers to them and to everything the old root refers to. The old bytes follow unchanged, since their offsets are
relative.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from tflm.errors import ModelError
from tflm.schema.layout import Table, fields_of
from tflm.schema.model import Model
from tflm.schema.tables import METADATA_NAME, ONLINE, Buffer, Metadata, SubGraph, encode_offsets
from tflm.schema.tables import Model as Root
from tflm.schema.writer import write_model

HEADER_BYTES = 8
"""Offset of the root table, and the identifier."""

LARGEST_ALIGNMENT = 16
"""Largest alignment in the format; bytes moved by a multiple of it stay aligned."""


def with_metadata(model: Model, name: str, content: bytes) -> bytes:
    """The bytes of the model with an entry of metadata, which replaces any entry of that name.

    An entry of the same length is overwritten in place. Otherwise the new one is added at the front of the file, and
    the old bytes follow unchanged.

    Raises:
        ModelError: the model has parts that can't be moved.
    """
    model = with_data_inside(model)
    position = _place_of_metadata(model, name, len(content))
    if position is not None:
        return bytes(model.data[:position]) + content + bytes(model.data[position + len(content) :])
    return _Front(model).with_metadata(name, content)


def with_plan(model: Model, offsets: Sequence[int]) -> bytes:
    """The bytes of the model with an offset for each tensor; the device places those of -1.

    Raises:
        ModelError: the model has parts that can't be moved.
    """
    return with_metadata(model, METADATA_NAME, encode_offsets(offsets))


def without_plan(model: Model) -> Model:
    """The model with every tensor of its plan, if it has one, left to the device; no other byte changes."""
    if model.metadata(METADATA_NAME) is None:
        return model
    return Model(with_plan(model, [ONLINE] * sum(len(subgraph.tensors or ()) for subgraph in model.subgraphs)))


def with_operator_order(model: Model, subgraph_index: int, order: Sequence[int]) -> bytes:
    """The bytes of the model with the operators of a subgraph in another order; only their list changes.

    Args:
        order: the present index of the operator for each place.

    Raises:
        ModelError: the list of operators overlaps the operators.
    """
    data = bytearray(model.data)
    subgraphs = _vector(data, _root(data), Root, "subgraphs")
    operators = _vector(data, subgraphs[subgraph_index], SubGraph, "operators")
    start = _field(data, subgraphs[subgraph_index], SubGraph, "operators")
    first = start + _u32(data, start) + 4
    for place, index in enumerate(order):
        position = first + 4 * place
        if operators[index] <= position:
            raise ModelError("overlaps its operators", table="SubGraph", field="operators")
        struct.pack_into("<I", data, position, operators[index] - position)
    return bytes(data)


def with_data_inside(model: Model) -> Model:
    """The model, rewritten with all data inside its tables if some of it lies outside of them.

    Raises:
        ModelError: the model can't be written.
    """
    return Model(write_model(model.root), model.checks) if model.outside else model


class _Front:
    """Builds the bytes that are inserted between the header of a file and the rest."""

    def __init__(self, model: Model):
        self._model = model
        self._data = model.data
        _check_movable(model)

    def with_metadata(self, name: str, content: bytes) -> bytes:
        root = _root(self._data)
        buffers = _vector(self._data, root, Root, "buffers")
        tables = zip(self._model.root.metadata or (), _vector(self._data, root, Root, "metadata"))
        entries = [position for entry, position in tables if entry.name != name]
        parts = _Parts(HEADER_BYTES)
        root_table = parts.reserve(_Table(Root, _present(self._data, root, Root) | {"buffers", "metadata"}).size)
        new_buffers = parts.reserve(4 + 4 * (len(buffers) + 1))
        new_metadata = parts.reserve(4 + 4 * (len(entries) + 1))
        entry = _Table(Metadata, {"name", "buffer"})
        new_entry = parts.reserve(entry.size)
        text = name.encode()
        new_name = parts.reserve(4 + len(text) + 1)
        buffer = _Table(Buffer, {"data"})
        new_buffer = parts.reserve(buffer.size)
        new_content = parts.reserve(4 + len(content), LARGEST_ALIGNMENT, 4)
        moved = parts.end() - HEADER_BYTES

        parts.put(new_buffers, _offsets(new_buffers, [*(at + moved for at in buffers), new_buffer + buffer.start]))
        parts.put(new_metadata, _offsets(new_metadata, [*(at + moved for at in entries), new_entry + entry.start]))
        parts.put(new_entry, entry.written(new_entry, {"name": new_name}, {"buffer": len(buffers)}))
        parts.put(new_name, struct.pack("<I", len(text)) + text)
        parts.put(new_buffer, buffer.written(new_buffer, {"data": new_content}, {}))
        parts.put(new_content, struct.pack("<I", len(content)) + content)
        header = self._put_root(parts, root_table, moved, {"buffers": new_buffers, "metadata": new_metadata})
        return header + parts.joined() + bytes(self._data[HEADER_BYTES:])

    def _put_root(self, parts: _Parts, position: int, moved: int, new: dict[str, int]) -> bytes:
        """Put the root table, whose fields refer to new parts or to moved old ones, and return the header."""
        root = _root(self._data)
        present = _present(self._data, root, Root)
        targets = {}
        for name in present - {"version"}:
            field = _field(self._data, root, Root, name)
            targets[name] = field + _u32(self._data, field) + moved
        table = _Table(Root, present | set(new))
        values = {"version": self._model.root.version} if "version" in present else {}
        parts.put(position, table.written(position, targets | new, values))
        return struct.pack("<I", position + table.start) + bytes(self._data[4:HEADER_BYTES])


class _Parts:
    """Bytes from a position of the file on, in parts that are reserved first and filled later."""

    def __init__(self, position: int):
        self._position = position
        self._content = bytearray()

    def reserve(self, size: int, alignment: int = 4, before: int = 0) -> int:
        """The position of a new part. The byte that is `before` bytes after its start is aligned."""
        position = self._position + len(self._content)
        gap = -(position + before) % alignment
        self._content.extend(bytes(gap + size + -(position + gap + size) % 4))
        return position + gap

    def put(self, position: int, content: bytes) -> None:
        begin = position - self._position
        self._content[begin : begin + len(content)] = content

    def end(self) -> int:
        """The end of the parts, padded so that the bytes after it stay aligned."""
        self._content.extend(bytes(-len(self._content) % LARGEST_ALIGNMENT))
        return self._position + len(self._content)

    def joined(self) -> bytes:
        return bytes(self._content)


class _Table:
    """Layout of a table whose fields all have 4 bytes: its vtable, then the table.

    Attributes:
        start: offset of the table, after its vtable.
        size: bytes of both.
    """

    def __init__(self, kind: type[Table], present: set[str]):
        self._slots = {field.name: field.slot for field in fields_of(kind) if field.name in present}
        vtable_bytes = 4 + 2 * (max(self._slots.values()) + 1)
        self.start = vtable_bytes + -vtable_bytes % 4
        self.size = self.start + 4 + 4 * len(self._slots)

    def written(self, position: int, targets: dict[str, int], values: dict[str, int]) -> bytes:
        """The table at `position`; its fields are offsets to `targets`, or `values`."""
        made = bytearray(self.size)
        struct.pack_into("<HH", made, 0, 4 + 2 * (max(self._slots.values()) + 1), 4 + 4 * len(self._slots))
        struct.pack_into("<i", made, self.start, self.start)
        for i, (name, slot) in enumerate(self._slots.items()):
            at = self.start + 4 + 4 * i
            struct.pack_into("<H", made, 4 + 2 * slot, at - self.start)
            struct.pack_into("<I", made, at, values[name] if name in values else targets[name] - position - at)
        return bytes(made)


def _offsets(position: int, targets: Sequence[int]) -> bytes:
    """A vector of offsets at `position`."""
    distances = [target - (position + 4 + 4 * i) for i, target in enumerate(targets)]
    return struct.pack(f"<{1 + len(targets)}I", len(targets), *distances)


def _check_movable(model: Model) -> None:
    root = _root(model.data)
    vtable = root - _i32(model.data, root)
    for slot in range(len(fields_of(Root)), _u16(model.data, vtable) // 2 - 2):
        if _u16(model.data, vtable + 4 + 2 * slot):
            raise ModelError("has unknown fields, so its parts can't be moved", table="Model")


def _place_of_metadata(model: Model, name: str, size: int) -> int | None:
    """Position of the data of the only entry of that name, if it has this size and nothing else uses its buffer."""
    entries = [entry for entry in model.root.metadata or () if entry.name == name]
    if len(entries) != 1 or len(model.buffers[entries[0].buffer].data or b"") != size or size == 0:
        return None
    index = entries[0].buffer
    users = sum(entry.buffer == index for entry in model.root.metadata or ())
    users += sum(tensor.buffer == index for subgraph in model.subgraphs for tensor in subgraph.tensors or ())
    if users != 1:
        return None
    table = _vector(model.data, _root(model.data), Root, "buffers")[index]
    field = _field(model.data, table, Buffer, "data")
    return field + _u32(model.data, field) + 4


# Positions in a verified file.


def _root(data: memoryview | bytearray) -> int:
    return _u32(data, 0)


def _field(data: memoryview | bytearray, table: int, kind: type[Table], name: str) -> int:
    """Position of a field; 0 if the table lacks it."""
    (slot,) = (field.slot for field in fields_of(kind) if field.name == name)
    vtable = table - _i32(data, table)
    offset = _u16(data, vtable + 4 + 2 * slot) if 4 + 2 * slot < _u16(data, vtable) else 0
    return table + offset if offset else 0


def _present(data: memoryview | bytearray, table: int, kind: type[Table]) -> set[str]:
    return {field.name for field in fields_of(kind) if _field(data, table, kind, field.name)}


def _vector(data: memoryview | bytearray, table: int, kind: type[Table], name: str) -> list[int]:
    """Positions of the tables of a vector."""
    field = _field(data, table, kind, name)
    if not field:
        return []
    vector = field + _u32(data, field)
    return [at + _u32(data, at) for at in range(vector + 4, vector + 4 + 4 * _u32(data, vector), 4)]


def _u16(data: memoryview | bytearray, position: int) -> int:
    return int(struct.unpack_from("<H", data, position)[0])


def _u32(data: memoryview | bytearray, position: int) -> int:
    return int(struct.unpack_from("<I", data, position)[0])


def _i32(data: memoryview | bytearray, position: int) -> int:
    return int(struct.unpack_from("<i", data, position)[0])
