"""Calls of functions of a C library, in place of kernels: arguments, and the structures that they point to."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Union

import numpy.typing as npt

Array = npt.NDArray[Any]


class Address(NamedTuple):
    """An argument or field that points to elements.

    Attributes:
        name: what it points to, for the name of a table.
        c_type: of the pointer, such as "const int8_t *".
        place: the array, whose place is planned; afterwards the place. None for NULL.
    """

    name: str
    c_type: str
    place: Any


class Structure(NamedTuple):
    """A structure: an argument that is passed by its address, or a field.

    Attributes:
        c_type: its name.
        fields: in any order.
    """

    c_type: str
    fields: dict[str, Value]


Value = Union[int, str, Address, Structure]
"""An integer, a name of C, or something else."""


@dataclass(frozen=True, eq=False)
class LibraryCall:
    """One call of a function.

    Attributes:
        function: its name.
        arguments: in order.
        success: what it returns on success; empty for a function that returns nothing.
        headers: files that declare it.
        helper: the definition of the function, if the library does not have it.
    """

    function: str
    arguments: tuple[Value, ...]
    success: str = ""
    headers: tuple[str, ...] = ()
    helper: str = ""

    def addresses(self) -> Iterator[Address]:
        """Everything that arguments and their fields point to."""
        for argument in self.arguments:
            yield from addresses_in(argument)

    def placed(self, place: Callable[[Address], Any]) -> LibraryCall:
        """The same call with other places."""
        return replace(self, arguments=tuple(_placed(argument, place) for argument in self.arguments))


def addresses_in(value: Value) -> Iterator[Address]:
    """The addresses in a value, without NULL."""
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
