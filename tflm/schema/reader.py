"""Reads a flatbuffer into tables and validates every offset, length, tag and string.

Work and memory are proportional to the size of the file, even if its parts overlap. Each table needs a reference of 4
bytes in the file, so there are at most size / 4 tables. Strings and vectors of scalars are read once per position, and
their total size is limited to that of the file. Code that walks the tables visits a shared vector several times;
counted like this, all vectors are limited to `SHARING` times the file.
"""

from __future__ import annotations

import enum
import os
import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from tflm.bounded_reading import MAX_MODEL_BYTES
from tflm.errors import ArgumentError, ModelError
from tflm.schema.layout import (
    AnyTable,
    Bytes,
    Field,
    Scalar,
    ScalarVector,
    StringType,
    SubTable,
    Table,
    TableVector,
    UnionType,
    fields_of,
)
from tflm.schema.tables import Buffer, Model, Operator

HEAD_BYTES = 4096
"""Only this many bytes are looked at."""

C_SUFFIXES = (".c", ".cc", ".cpp", ".cxx", ".h", ".hh", ".hpp", ".inc")
"""Names of C source, from which models are read, end with one of these."""


class Format(NamedTuple):
    """A format that is not `.tflite`.

    Attributes:
        name: the kind of file, for "this is not a .tflite model but ...".
        pattern: a regular expression for its first `HEAD_BYTES` bytes, a character each.
        advice: a sentence about how to get a model.
    """

    name: str
    pattern: str
    advice: str


_KERAS = "tf.lite.TFLiteConverter.from_keras_model(tf.keras.models.load_model(path)).convert() converts it"
_SAVED_MODEL = "tf.lite.TFLiteConverter.from_saved_model(folder).convert() converts its folder"
_TORCH = "litert_torch.convert(module, sample_inputs).export('model.tflite') converts the module"
_ORIGIN = "convert the Keras, TensorFlow or PyTorch model that it was made from"
_UNPACK = "unpack it and name the .tflite file that is inside"
_LENGTH = r"[\x80-\xff]{0,4}[\x00-\x7f]"
"""A length in a protobuf message."""

TEXT = Format(
    "text", r"^[\t\n\f\r\x1b -~\x80-\xff]+$", "name a .tflite file, or C source with the bytes of one in an array"
)
"""Text that is no other format; C source with a model is read as that model."""

FORMATS = (
    Format("an empty file", "^$", "its download or copy failed: repeat it"),
    Format(
        "a Git LFS pointer",
        r"^version https://git-lfs\.github\.com/",
        "run git lfs pull in its repository to download the model",
    ),
    Format(
        "a web page",
        r"^(?:\xef\xbb\xbf)?\s*<(?:![dD][oO][cC][tT][yY][pP][eE]|html|HTML|head|HEAD|body|BODY|!--|\?xml)",
        "download the file itself; on GitHub that is the link Raw, not the page about the file",
    ),
    Format("a TensorFlow.js model", r'^\s*\{[^\x00]*"(?:modelTopology|weightsManifest)"', _ORIGIN),
    Format("an HDF5 file, such as a Keras model", r"^\x89HDF\r\n\x1a\n", _KERAS),
    Format(
        "a Keras model (.keras)", r"^PK\x03\x04[\s\S]{26}(?:metadata\.json|config\.json|model\.weights\.h5)", _KERAS
    ),
    Format(
        "a PyTorch model",
        r"^PK\x03\x04[\s\S]{26}[^/\x00]{1,255}/(?:data\.pkl|constants\.pkl|version|byteorder|\.|archive_|models/|code/)",
        _TORCH,
    ),
    Format("a PyTorch model", r"^\x80[\x02-\x05]\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19", _TORCH),
    Format("a Python pickle, such as a PyTorch model", r"^\x80[\x02-\x05][\x95\x8a}\]c(Xq\x8c]", _TORCH),
    Format("an ExecuTorch program (.pte)", r"^[\s\S]{4}ET[0-9][0-9]", _TORCH),
    Format("a Core ML model", rf"^\x08[\x01-\x1f]\x12{_LENGTH}\n{_LENGTH}\n", _ORIGIN),
    Format("a SavedModel (saved_model.pb)", rf"^\x08\x01\x12{_LENGTH}\n{_LENGTH}[\x12\x1a\x22*2:]", _SAVED_MODEL),
    Format(
        "an ONNX model",
        r"^\x08[\x01-\x1f](?:\x12[\x01-\x7f][ -~]|\x12\x00|[\x1a\x22*2:B])",
        "onnx2tf -i model.onnx converts it",
    ),
    Format(
        "a frozen TensorFlow graph (.pb)",
        rf"^\n{_LENGTH}\n{_LENGTH}[ -~]{{1,1000}}\x12[\x01-\x7f][A-Z_]",
        "tf.compat.v1.lite.TFLiteConverter.from_frozen_graph(path, inputs, outputs).convert() converts it",
    ),
    Format("a NumPy array", r"^\x93NUMPY", "pass the .tflite file; arrays are inputs of a model"),
    Format(
        "NumPy arrays (.npz)",
        r"^PK\x03\x04[\s\S]{26}[^\x00]{1,255}\.npy",
        "pass the .tflite file; arrays are inputs of a model",
    ),
    Format("a zip archive", r"^PK(?:\x03\x04|\x05\x06)", _UNPACK),
    Format("a gzip archive", r"^\x1f\x8b", _UNPACK),
    Format("a tar archive", r"^[\s\S]{257}ustar", _UNPACK),
    TEXT,
)
"""All formats; the first that matches counts. The page of `web/` shares these patterns with JavaScript."""

_PATTERNS = [(each, re.compile(each.pattern.encode())) for each in FORMATS]


def format_of(data: memoryview | bytes) -> Format | None:
    """The format of a file that is not a model, by its first bytes; None if it is unknown."""
    head = bytes(data[:HEAD_BYTES])
    return next((each for each, pattern in _PATTERNS if pattern.search(head)), None)


def require_no_folder(path: str | os.PathLike[str]) -> None:
    """Check that the path of a model is not a folder.

    Raises:
        ArgumentError: it is; the message says of which format, or names models in it.
    """
    folder = Path(path)
    if not folder.is_dir():
        return
    if (folder / "saved_model.pb").is_file():
        reason = f"a folder with a SavedModel, not a .tflite model; {_SAVED_MODEL}"
    elif (folder / "Manifest.json").is_file():
        reason = f"a folder with a Core ML model, not a .tflite model; {_ORIGIN}"
    else:
        models = sorted(file.name for file in folder.glob("*.tflite"))[:3]
        reason = f"a folder, not a .tflite model; name a file in it{', such as ' if models else ''}{', '.join(models)}"
    raise ArgumentError(f"{folder}: Is a directory: {reason}")


IDENTIFIER = b"TFL3"

SHARING = 8

Place = tuple[Any, ...]
"""Path of a table: () for the root, else (path of the parent, field name[, index])."""

_u8 = struct.Struct("<B").unpack_from
_u16 = struct.Struct("<H").unpack_from
_u32 = struct.Struct("<I").unpack_from
_i32 = struct.Struct("<i").unpack_from


def read_model(data: memoryview, findings: list[ModelError] | None = None) -> Model:
    """Read the root table of a `.tflite` file.

    Args:
        data: the file's bytes (format "B", contiguous). Byte vectors of the result are views into it.
        findings: if passed, collects all findings, and reading continues with the field's default.

    Raises:
        ModelError: on the first finding without a list of findings; always if the file is too short or not a model.
    """
    if data[4:8] != IDENTIFIER:
        return _model_without_identifier(data, findings)
    return Reader(data, findings).table_at(0, Model, ())


def _model_without_identifier(data: memoryview, findings: list[ModelError] | None) -> Model:
    """Accept a model without the identifier: TFLM ignores it, and its own tools have omitted it."""
    odd = f"identifier {bytes(data[4:8])!r} at byte 4, expected {IDENTIFIER!r}"
    try:
        model = Reader(data, None).table_at(0, Model, ())
    except ModelError:
        model = Model()
    if not model.subgraphs or not model.buffers:
        raise ModelError(_what_it_is(data) or f"{odd}: this is not a .tflite model")
    if findings is not None:
        findings.append(ModelError(odd, level="warning"))
    return model


def _what_it_is(data: memoryview) -> str:
    few = f"{len(data)} bytes are too few for a model: " if len(data) < 8 else ""
    found = format_of(data)
    if few and found in (None, TEXT):
        return f"{few}it was cut off"
    return f"{few}this is not a .tflite model but {found.name}; {found.advice}" if found else ""


class Reader:
    """Reads tables from one flatbuffer."""

    def __init__(self, data: memoryview, findings: list[ModelError] | None):
        self._data = data
        self._size = len(data)
        self._findings = findings
        self._references_left = self._size // 4
        self._bytes_left = self._size
        self._shared_bytes_left = SHARING * self._size
        self._slots: dict[tuple[type[Table], int], tuple[int, list[tuple[Field, int, int]]]] = {}
        self._shared: dict[tuple[int, Any], Any] = {}

    def _outside(self, end: int, reason: str) -> _Broken:
        """Describe something that ends outside of the file: the file was truncated, unless no model is so large."""
        if not self._size < end <= MAX_MODEL_BYTES:
            return _Broken(reason)
        missing = f"at least {end - self._size:,} bytes missing"
        return _Broken(f"{reason}: the file was cut off, with {missing}, or damaged")

    def table_at(self, reference: int, kind: type[AnyTable], place: Place) -> AnyTable:
        """Read the table that the offset at byte `reference` leads to.

        Raises:
            ModelError: naming the table and the field that is broken.
        """
        self._references_left -= 1
        if self._references_left < 0:
            raise _broken(kind, "", place, f"more references to tables than a file of {self._size} bytes can hold")
        try:
            position = self._follow(reference)
            table_size, present = self._present_fields(position, kind)
        except _Broken as error:
            raise _broken(kind, "", place, str(error)) from None
        table = kind.__new__(kind)
        for field in fields_of(kind):
            setattr(table, field.name, field.default)
        for field, offset, tag_offset in present:
            try:
                if offset >= table_size:
                    raise _Broken(f"field offset {offset} lies outside the table's {table_size} bytes")
                value = self._read(field, position, offset, tag_offset, table_size, place)
            except _Broken as error:
                self._report(_broken(kind, field.name, place, str(error)))
            except ModelError as error:
                self._report(error)
            else:
                setattr(table, field.name, value)
        return table

    def _report(self, error: ModelError) -> None:
        if self._findings is None:
            raise error from None
        self._findings.append(error)

    def _present_fields(self, position: int, kind: type[Table]) -> tuple[int, list[tuple[Field, int, int]]]:
        """The table's size and, for each present field, (field, offset, offset of the union's tag), from its vtable."""
        self._check(position, 4, 4, "table")
        vtable = position - _i32(self._data, position)[0]
        known = self._slots.get((kind, vtable))
        if known is None:
            self._check(vtable, 4, 2, "vtable")
            vtable_size, table_size = _u16(self._data, vtable)[0], _u16(self._data, vtable + 2)[0]
            if vtable_size < 4 or vtable_size % 2 or table_size < 4:
                raise _Broken(f"vtable at byte {vtable} has sizes {vtable_size} and {table_size}")
            self._check(vtable, vtable_size, 2, "vtable")
            fields = fields_of(kind)
            known_slots = min(vtable_size // 2 - 2, fields[-1].slot + 1 if fields else 0)
            slots = struct.unpack_from(f"<{known_slots}H", self._data, vtable + 4)
            present = []
            for field in fields:
                offset = slots[field.slot] if field.slot < len(slots) else 0
                tag = 0
                if isinstance(field.wire, UnionType):
                    tag = slots[field.slot - 1] if field.slot <= len(slots) else 0
                if offset or tag:
                    present.append((field, offset, tag))
            known = self._slots[kind, vtable] = table_size, present
        self._check(position, known[0], 4, "table")
        return known

    def _read(self, field: Field, table: int, offset: int, tag_offset: int, table_size: int, place: Place) -> Any:
        wire, position = field.wire, table + offset
        if isinstance(wire, Scalar):
            size = struct.calcsize(wire.code)
            if offset + size > table_size:
                raise _Broken(f"{size} bytes at offset {offset} do not fit in the table's {table_size}")
            self._check(position, size, size, "value")
            (value,) = struct.unpack_from("<" + wire.code, self._data, position)
            return value if wire.enum is None else _enumerator(wire.enum, value)
        if isinstance(wire, UnionType):
            return self._union(wire, table, offset, tag_offset, table_size, (place, field.name))
        if offset + 4 > table_size:
            raise _Broken(f"4 bytes at offset {offset} do not fit in the table's {table_size}")
        if isinstance(wire, TableVector):
            start, count = self._vector(position, 4, 4)
            return [self.table_at(start + 4 * i, wire.table, (place, field.name, i)) for i in range(count)]
        if isinstance(wire, SubTable):
            return self.table_at(position, wire.table, (place, field.name))
        if isinstance(wire, Bytes):
            start, count = self._vector(position, 1, 1)
            return self._data[start : start + count]
        return self._shared_value(wire, self._follow(position), position)

    def _shared_value(self, wire: StringType | ScalarVector, target: int, position: int) -> Any:
        """A string or a tuple of scalars, made once for each place in the file."""
        key = (target, wire)
        if key not in self._shared:
            if isinstance(wire, StringType):
                self._shared[key] = self._string(position)
            else:
                self._shared[key] = self._scalars(wire, position)
        value = self._shared[key]
        if isinstance(wire, ScalarVector):
            self._shared_bytes_left -= len(value)
            if self._shared_bytes_left < 0:
                raise _Broken(
                    f"vectors that are shared so often that they represent {SHARING} times the file's size or more"
                )
        return value

    def _string(self, position: int) -> str:
        start, count = self._vector(position, 1, 1)
        self._spend(count)
        end = start + count
        if end >= self._size or self._data[end] != 0:
            raise self._outside(end + 1, f"string of {count} bytes at byte {start} is not terminated by zero")
        return bytes(self._data[start:end]).decode("utf-8", "surrogateescape")

    def _scalars(self, wire: ScalarVector, position: int) -> tuple[Any, ...]:
        size = struct.calcsize(wire.code)
        start, count = self._vector(position, size, size)
        self._spend(count * size)
        values = struct.unpack_from(f"<{count}{wire.code}", self._data, start)
        return values if wire.enum is None else tuple(_enumerator(wire.enum, value) for value in values)

    def _union(
        self, wire: UnionType, table: int, offset: int, tag_offset: int, table_size: int, place: Place
    ) -> Table | None:
        if tag_offset >= table_size:
            raise _Broken(f"union tag offset {tag_offset} lies outside the table's {table_size} bytes")
        tag = _u8(self._data, table + tag_offset)[0] if tag_offset else 0
        if tag == 0 and not offset:
            return None
        if not 1 <= tag <= len(wire.members):
            raise _Broken(f"union tag {tag} is not one of 1 to {len(wire.members)}")
        if not offset:
            raise _Broken(f"union tag {tag} ({wire.members[tag - 1].__name__}) without a value")
        if offset + 4 > table_size:
            raise _Broken(f"4 bytes at offset {offset} do not fit in the table's {table_size}")
        return self.table_at(table + offset, wire.members[tag - 1], place)

    def _follow(self, reference: int) -> int:
        self._check(reference, 4, 4, "offset")
        distance = _u32(self._data, reference)[0]
        if distance == 0 or reference + distance >= self._size:
            reason = f"offset {distance} at byte {reference} leads out of the file ({self._size} bytes)"
            raise self._outside(reference + distance + 4, reason)
        return int(reference + distance)

    def _vector(self, reference: int, element_size: int, align: int) -> tuple[int, int]:
        """First byte and length of the vector that the offset at byte `reference` leads to."""
        position = self._follow(reference)
        self._check(position, 4, 4, "vector length")
        count: int = _u32(self._data, position)[0]
        start = position + 4
        if count * element_size > self._size - start:
            reason = f"vector of {count} elements at byte {start} runs past the end ({self._size} bytes)"
            raise self._outside(start + count * element_size, reason)
        if count and start % align:
            raise _Broken(f"vector at byte {start} is not aligned to {align} bytes")
        return start, count

    def _spend(self, size: int) -> None:
        self._bytes_left -= size
        if self._bytes_left < 0:
            raise _Broken(f"strings and numbers of more than the {self._size} bytes of the file: they overlap")

    def _check(self, position: int, size: int, align: int, what: str) -> None:
        if position < 0 or position + size > self._size:
            reason = f"{what} at byte {position} ({size} bytes) lies outside the file ({self._size} bytes)"
            raise self._outside(position + size, reason)
        if position % align:
            raise _Broken(f"{what} at byte {position} is not aligned to {align} bytes")


class _Broken(Exception):
    """A finding without its table and field, which are added later."""


def _broken(kind: type[Table], field: str, place: Place, reason: str) -> ModelError:
    return ModelError(reason, table=kind.__name__, field=field, place=_path(place))


def _path(place: Place) -> str:
    if not place:
        return ""
    parent, name, *index = place
    here = f"{name}[{index[0]}]" if index else name
    return f"{_path(parent)}.{here}" if parent else here


def _enumerator(kind: type[enum.IntEnum], value: int) -> enum.IntEnum:
    try:
        return kind(value)
    except ValueError:
        raise _Broken(f"{value} is not a known {kind.__name__}") from None


LARGEST_PLACEHOLDER = 1
"""The offset and size that writers store in a table whose data is inside."""


class OutsideFields(NamedTuple):
    """The fields of a table whose data may be outside: the vector, and the offset and size of data outside."""

    data: str
    offset: str
    size: str


OUTSIDE_FIELDS: dict[type[Table], OutsideFields] = {
    Buffer: OutsideFields("data", "offset", "size"),
    Operator: OutsideFields("custom_options", "large_custom_options_offset", "large_custom_options_size"),
}


class Outside(NamedTuple):
    """The data of a model that is outside of its tables.

    Attributes:
        places: paths of the tables that own the data; it was copied to them as views.
        errors: errors about data beyond the end of the file.
    """

    places: tuple[str, ...]
    errors: list[ModelError]


def take_data_inside(model: Model, data: memoryview) -> Outside:
    """Put data from outside into the tables that own it.

    Args:
        model: read from the file; changed in place.
        data: the file's bytes; the tables get views into them.
    """
    places, errors = [], []
    for place, table in _tables(model):
        fields = OUTSIDE_FIELDS[type(table)]
        offset, size = getattr(table, fields.offset), getattr(table, fields.size)
        if getattr(table, fields.data) or offset <= LARGEST_PLACEHOLDER:
            continue
        if offset + size > len(data):
            reason = (
                f"leads outside of the model itself: {size} bytes at byte {offset} of {len(data)}: the file was "
                f"cut off, with at least {offset + size - len(data):,} bytes missing, or damaged"
            )
            errors.append(ModelError(reason, table=type(table).__name__, field=fields.offset, place=place))
        elif size:
            places.append(place)
            setattr(table, fields.data, data[offset : offset + size])
            setattr(table, fields.offset, 0)
            setattr(table, fields.size, 0)
    return Outside(tuple(places), errors)


def _tables(model: Model) -> Iterator[tuple[str, Table]]:
    for i, buffer in enumerate(model.buffers or ()):
        yield f"buffers[{i}]", buffer
    for i, subgraph in enumerate(model.subgraphs or ()):
        for j, operator in enumerate(subgraph.operators or ()):
            yield f"subgraphs[{i}].operators[{j}]", operator
