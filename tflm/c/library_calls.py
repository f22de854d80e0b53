"""Calls of C library functions in place of kernels: their arguments, and the structures that these point to."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Union

import numpy.typing as npt

Array = npt.NDArray[Any]


class Address(NamedTuple):
    """An argument or field that points to elements.

    Attributes:
        name: name of the elements, used for the name of a table.
        c_type: of the pointer, such as "const int8_t *".
        place: the array; once memory is planned, its place. None for NULL.
    """

    name: str
    c_type: str
    place: Any


class Structure(NamedTuple):
    """A structure: an argument that is passed by address, or a field.

    Attributes:
        c_type: the type's name.
        fields: in any order.
    """

    c_type: str
    fields: dict[str, Value]


Value = Union[int, str, Address, Structure]
"""An integer, a C expression as text, an address or a structure."""


@dataclass(frozen=True, eq=False)
class LibraryCall:
    """A call of a library function.

    Attributes:
        function: its name.
        arguments: in order.
        success: the returned value that means success; empty for a function that returns nothing.
        headers: files that declare it.
        helper: definition of the function if the library does not have it.
    """

    function: str
    arguments: tuple[Value, ...]
    success: str = ""
    headers: tuple[str, ...] = ()
    helper: str = ""

    def addresses(self) -> Iterator[Address]:
        """Yield all addresses in arguments and their fields."""
        for argument in self.arguments:
            yield from addresses_in(argument)

    def placed(self, place: Callable[[Address], Any]) -> LibraryCall:
        """Return the same call with other places."""
        return replace(self, arguments=tuple(_placed(argument, place) for argument in self.arguments))


def addresses_in(value: Value) -> Iterator[Address]:
    """Yield the addresses in a value, without NULL."""
    if isinstance(value, Structure):
        for field in value.fields.values():
            yield from addresses_in(field)
    elif isinstance(value, Address) and value.place is not None:
        yield value


def _placed(value: Value, place: Callable[[Address], Any]) -> Value:
    if isinstance(value, Structure):
        return value._replace(fields={name: _placed(field, place) for name, field in value.fields.items()})
    if isinstance(value, Address) and value.place is not None:
        return value._replace(place=place(value))
    return value
