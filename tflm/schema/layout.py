"""Declares flatbuffer tables as classes with typed fields.

A schema table is a subclass of `Table` whose annotations name wire types, in the order of the schema. A union is a
subclass of `TableUnion`, and its members are subclasses of it. For example:

    class Tensor(Table):
        shape: IntVector = None
        type: TensorType = TensorType.FLOAT32
        buffer: UInt32 = 0

Subclassing makes it a dataclass; `fields_of` turns the same annotations into the list of `Field` that the reader
and the writer walk. A type checker sees `shape: tuple[int, ...] | None`, `buffer: int` and so on.

A vector or string that is absent is None, which is not the same as an empty one: both survive a round trip.
"""

from __future__ import annotations

import dataclasses
import enum
import types
import typing
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeVar

if TYPE_CHECKING:
    from typing_extensions import dataclass_transform
else:

    def dataclass_transform():
        """Tells type checkers that subclasses are dataclasses; has no effect at run time."""
        return lambda cls: cls


class ByteEnum(enum.IntEnum):
    """An enumeration stored as one signed byte."""


class Int32Enum(enum.IntEnum):
    """An enumeration stored as a signed 32-bit integer."""


class UInt32Enum(enum.IntEnum):
    """An enumeration stored as an unsigned 32-bit integer."""


ENUM_CODES: dict[type[enum.IntEnum], str] = {ByteEnum: "b", Int32Enum: "i", UInt32Enum: "I"}
"""Struct format character of each enumeration base."""


class Scalar(NamedTuple):
    """A number, boolean or enumerator held in the table itself; `code` is its struct format character."""

    code: str
    enum: type[enum.IntEnum] | None = None


class StringType:
    """A length-prefixed, zero-terminated UTF-8 string."""


class ScalarVector(NamedTuple):
    """A vector of scalars, read as a tuple; its first element is aligned to at least `align` bytes."""

    code: str
    enum: type[enum.IntEnum] | None = None
    align: int = 1


class Bytes(NamedTuple):
    """A vector of bytes, read as a view of the file; its first byte is aligned to `align` bytes."""

    align: int = 1


class TableVector(NamedTuple):
    """A vector of tables, read as a list."""

    table: type[Table]


class SubTable(NamedTuple):
    """A table that is referred to by an offset."""

    table: type[Table]


class UnionType(NamedTuple):
    """One of several tables: a byte tag (place in `members`, from 1; 0 is none), then an offset."""

    members: tuple[type[Table], ...]


Wire = Scalar | StringType | ScalarVector | Bytes | TableVector | SubTable | UnionType


class Field(NamedTuple):
    """One field of a table: `slot` is its place in the vtable (a union's tag has the slot before its value)."""

    name: str
    slot: int
    wire: Wire
    default: Any


Bool = Annotated[bool, Scalar("?")]
Int8 = Annotated[int, Scalar("b")]
Int32 = Annotated[int, Scalar("i")]
UInt32 = Annotated[int, Scalar("I")]
Int64 = Annotated[int, Scalar("q")]
UInt64 = Annotated[int, Scalar("Q")]
Float32 = Annotated[float, Scalar("f")]
String = Annotated[str | None, StringType()]
BoolVector = Annotated[tuple[bool, ...] | None, ScalarVector("?")]
IntVector = Annotated[tuple[int, ...] | None, ScalarVector("i")]
LongVector = Annotated[tuple[int, ...] | None, ScalarVector("q")]
FloatVector = Annotated[tuple[float, ...] | None, ScalarVector("f")]
UShortVector = Annotated[tuple[int, ...] | None, ScalarVector("H", align=4)]
ByteVector = Annotated[memoryview | bytes | None, Bytes()]
WordAlignedByteVector = Annotated[memoryview | bytes | None, Bytes(align=4)]
AlignedByteVector = Annotated[memoryview | bytes | None, Bytes(align=16)]


class _DataclassFields:
    """The fields that make a class a dataclass, computed on first use."""

    def __get__(self, instance: object, owner: type) -> Any:
        dataclass(init=False, repr=False, eq=False)(owner)  # puts its own fields into the class
        return vars(owner)["__dataclass_fields__"]


SHOWN_ELEMENTS, SHOWN_CHARACTERS = 8, 60
"""How much of a vector and of a string the repr of a table shows."""


@dataclass_transform()
class Table:
    """Base of every schema table. Subclasses are dataclasses: `dataclasses.fields` and `replace` work on them.

    Constructor, equality and repr are methods of this class rather than generated code, and fields are computed on
    first use, which keeps the import of more than 150 tables cheap.
    """

    def __init_subclass__(cls) -> None:
        cls.__doc__ = cls.__doc__ or f"The table {cls.__name__} of the TFLite schema, field for field."
        cls.__dataclass_fields__ = _DataclassFields()  # type: ignore[attr-defined]  # what `dataclasses` looks for

    def __init__(self, **values: Any) -> None:
        for field in fields_of(type(self)):
            setattr(self, field.name, values.pop(field.name, field.default))
        if values:
            raise TypeError(f"{type(self).__name__} has no field {', '.join(map(repr, values))}")

    def _values(self) -> Iterator[tuple[str, Any, Any]]:
        for field in dataclasses.fields(self):  # type: ignore[arg-type]  # subclasses are dataclasses
            yield field.name, getattr(self, field.name), field.default

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(value == getattr(other, name) for name, value, _ in self._values())

    def __repr__(self) -> str:
        shown = (f"{name}={_short(value)}" for name, value, default in self._values() if value != default)
        return f"{type(self).__name__}({', '.join(shown)})"


def _short(value: object) -> str:
    if isinstance(value, (memoryview, bytes)):
        return f"<{len(value)} bytes>"
    if isinstance(value, (list, tuple)) and value:
        kind = type(value[0]).__name__
        return (
            f"<{len(value)} of {kind}>" if isinstance(value[0], Table) or len(value) > SHOWN_ELEMENTS else f"{value!r}"
        )
    if isinstance(value, str) and len(value) > SHOWN_CHARACTERS:
        return f"{value[:SHOWN_CHARACTERS]!r}..."
    return repr(value)


AnyTable = TypeVar("AnyTable", bound=Table)


class TableUnion(Table):
    """Base of every union. The members of a union are its subclasses, in the order of the schema."""


_FIELDS: dict[type, tuple[Field, ...]] = {}


def fields_of(table: type[Table]) -> tuple[Field, ...]:
    """The fields of a table in the order of the schema, with their vtable slots; computed on first use."""
    if table not in _FIELDS:
        _FIELDS[table] = _declared_fields(table)
    return _FIELDS[table]


def _declared_fields(table: type[Table]) -> tuple[Field, ...]:
    fields: list[Field] = []
    slot = 0
    for name, annotation in typing.get_type_hints(table, include_extras=True).items():
        wire = _wire_of(annotation)
        slot += isinstance(wire, UnionType)
        fields.append(Field(name, slot, wire, table.__dict__[name]))
        slot += 1
    return tuple(fields)


def _wire_of(annotation: Any) -> Wire:
    if typing.get_origin(annotation) is Annotated:
        (wire,) = annotation.__metadata__
        return typing.cast(Wire, wire)
    if isinstance(annotation, type) and issubclass(annotation, enum.IntEnum):
        return Scalar(ENUM_CODES[typing.cast("type[enum.IntEnum]", annotation.__base__)], annotation)
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        members = [member for member in typing.get_args(annotation) if member is not type(None)]
        if typing.get_origin(members[0]) is list:
            return TableVector(*typing.get_args(members[0]))
        (table,) = members
        return UnionType(tuple(table.__subclasses__())) if TableUnion in table.__bases__ else SubTable(table)
    raise TypeError(f"{annotation!r} is not a wire type")
