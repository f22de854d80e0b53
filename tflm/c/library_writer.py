"""Write calls of library functions as C. Constant structures are defined in flash; those with addresses in RAM, at the
call."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from tflm.c.constants import integer_literal, wrapped
from tflm.c.library_calls import Address, LibraryCall, Structure, Value, addresses_in
from tflm.c.program import Pointer
from tflm.schedule.calls import RamBuffer

INDENT = "    "

FIELD_BYTES = 4
"""Bytes of an integer or pointer in a structure, on a 32-bit processor."""


def includes_of_library(calls: Iterable[LibraryCall]) -> str:
    """Return the headers that calls need."""
    return "".join(
        f"#include <{header}>\n" for header in dict.fromkeys(each for call in calls for each in call.headers)
    )


def helpers_of_library(calls: Iterable[LibraryCall]) -> str:
    """Return the helper functions that calls need."""
    return "\n".join(dict.fromkeys(call.helper for call in calls if call.helper))


def local_bytes(call: LibraryCall) -> int:
    """Return the size of a call's structures on the stack of a 32-bit processor."""
    return FIELD_BYTES * sum(_leaves(argument) for argument in call.arguments if _is_local(argument))


class LibraryWriter:
    """Writes calls of library functions.

    Args:
        records: definitions of constant structures, to which new ones are added.
        address: writes a pointer of a type.

    Attributes:
        structure_bytes: total size of constant structures on a 32-bit processor.
    """

    def __init__(self, records: list[str], address: Callable[[Pointer, str], str]):
        self._records, self._address = records, address
        self._names: dict[str, str] = {}
        self.structure_bytes = 0

    def call(self, call: LibraryCall, operator: int, indent: str) -> Iterator[str]:
        """Return the lines of an operator's call; the generated code returns if the call fails."""
        local: list[str] = []
        inside = indent + INDENT * any(map(_is_local, call.arguments))
        arguments = [self._argument(argument, local, inside) for argument in call.arguments]
        if local:
            yield f"{indent}{{"
            yield from local
        if call.success:
            yield from wrapped(f"{inside}if ({call.function}(", arguments, f") != {call.success}) {{")
            yield f"{inside}{INDENT}return {operator + 1};"
            yield f"{inside}}}"
        else:
            yield from wrapped(f"{inside}{call.function}(", arguments, ");")
        if local:
            yield f"{indent}}}"

    def _argument(self, value: Value, local: list[str], indent: str) -> str:
        if not isinstance(value, Structure):
            return self._value(value)
        if not _is_local(value):
            return "&" + self._constant(value)
        name = f"{_title(value)}_{len(local)}"
        local += wrapped(f"{indent}{value.c_type} {name} = {{", self._fields(value), "};")
        return "&" + name

    def _constant(self, structure: Structure) -> str:
        """Return the name of a structure in flash. Equal structures share one definition."""
        fields = self._fields(structure)
        key = f"{structure.c_type} {fields}"
        if key not in self._names:
            self._names[key] = f"{_title(structure)}_{len(self._names)}"
            first = f"static const {structure.c_type} {self._names[key]} = {{"
            self._records.append("\n".join(wrapped(first, fields, "};")) + "\n")
            self.structure_bytes += FIELD_BYTES * _leaves(structure)
        return self._names[key]

    def _fields(self, structure: Structure) -> list[str]:
        return [f".{name} = {self._value(value)}" for name, value in structure.fields.items()]

    def _value(self, value: Value) -> str:
        if isinstance(value, Structure):
            return "{" + ", ".join(self._fields(value)) + "}"
        if isinstance(value, Address):
            return self._pointer(value)
        return value if isinstance(value, str) else integer_literal(value)

    def _pointer(self, address: Address) -> str:
        place, c_type = address.place, address.c_type
        if place is None:
            return "NULL"
        if isinstance(place.base, RamBuffer) or c_type.startswith("const"):
            return self._address(place, c_type)
        # The library reads some constants through pointers that are not const.
        return f"({c_type})({self._address(place, f'const {c_type}')})"


def _title(structure: Structure) -> str:
    """Return the name for variables of the structure's type."""
    return structure.c_type.removeprefix("cmsis_nn_")


def _is_local(value: Value) -> bool:
    """Whether a structure points into RAM, so that its fields are known only at the call."""
    return isinstance(value, Structure) and any(isinstance(one.place.base, RamBuffer) for one in addresses_in(value))


def _leaves(value: Value) -> int:
    return sum(map(_leaves, value.fields.values())) if isinstance(value, Structure) else 1
