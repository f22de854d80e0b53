"""Facts about a value while a kernel is translated: its type in the kernel language, and its range.

Integer results have 64 bits in numba. In C, they have 32 if the operands do.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from types import FunctionType
from typing import Any, TypeAlias

from tflm.c.syntax import TranslationError

INTEGER_BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64, "uint8": 8, "uint16": 16, "uint32": 32, "uint64": 64}
FLOATS = ("float32", "float64")


@dataclass(frozen=True)
class Range:
    """The integers from `lowest` to `highest`, inclusive."""

    lowest: int
    highest: int

    def __contains__(self, other: Range) -> bool:
        return self.lowest <= other.lowest and other.highest <= self.highest

    def __or__(self, other: Range) -> Range:
        return Range(min(self.lowest, other.lowest), max(self.highest, other.highest))

    @property
    def is_constant(self) -> bool:
        """Whether the range has a single value."""
        return self.lowest == self.highest


def range_of(dtype: str) -> Range:
    """Return the range of an integer type."""
    bits = INTEGER_BITS[dtype]
    return Range(0, (1 << bits) - 1) if dtype.startswith("u") else Range(-(1 << (bits - 1)), (1 << (bits - 1)) - 1)


INT32, INT64, UINT32, UINT64 = map(range_of, ("int32", "int64", "uint32", "uint64"))
NOTHING = Range(0, 0)


@dataclass(frozen=True)
class Number:
    """A number in the kernel language: an integer with its range, a float, or "bool"."""

    dtype: str
    range: Range = NOTHING

    @property
    def is_integer(self) -> bool:
        """Whether the number is an integer or a bool."""
        return self.dtype not in FLOATS

    @property
    def c_type(self) -> str:
        """The narrowest C type that holds the values of a variable, without changing results computed from it."""
        if self.dtype == "int64":
            return "int32_t" if self.range in INT32 else "int64_t"
        return C_TYPES[self.dtype]


C_TYPES = {**{dtype: dtype + "_t" for dtype in INTEGER_BITS}, "float32": "float", "float64": "double", "bool": "bool"}


@dataclass(frozen=True)
class Pointer:
    """A pointer to elements of a type.

    Attributes:
        dtype: type of the elements; "address" for bytes without a type.
        roots: the parameters of the function whose memory it may point to.
    """

    dtype: str
    roots: frozenset[str] = frozenset()

    @property
    def c_element(self) -> str:
        """The C type of an element."""
        return "uint8_t" if self.dtype == "address" else C_TYPES[self.dtype]


@dataclass(frozen=True)
class Callee:
    """A function that is passed as a parameter, and its name in C."""

    function: FunctionType
    name: str


@dataclass(frozen=True)
class Record:
    """A parameter that is a NamedTuple."""

    name: str
    fields: tuple[tuple[str, Number | Pointer], ...]

    def field(self, name: str) -> Number | Pointer:
        """Return the value of a field."""
        return dict(self.fields)[name]


@dataclass(frozen=True)
class Results:
    """Several numbers that a function returns."""

    parts: tuple[Number, ...]


@dataclass(frozen=True)
class Constant:
    """A value that Python knows when the kernel is translated, such as a tuple or a module."""

    value: Any


Value: TypeAlias = Number | Pointer | Callee | Record | Results | Constant


def boolean() -> Number:
    """Return the value of a bool."""
    return Number("bool", Range(0, 1))


def joined(a: Value, b: Value) -> Value:
    """Return a value that covers both values.

    Raises:
        TranslationError: they have different types.
    """
    if isinstance(a, Pointer) and isinstance(b, Pointer) and a.dtype == b.dtype:
        return Pointer(a.dtype, a.roots | b.roots)
    if isinstance(a, Number) and isinstance(b, Number):
        if a.dtype == b.dtype:
            return Number(a.dtype, a.range | b.range)
        if a.is_integer and b.is_integer:
            return Number(common_integer(a.dtype, b.dtype), a.range | b.range)
    if isinstance(a, Results) and isinstance(b, Results) and len(a.parts) == len(b.parts):
        return Results(tuple(number_of(joined(*pair)) for pair in zip(a.parts, b.parts)))
    if a == b:
        return a
    raise TranslationError(f"{a} and {b} have no type in common")


def number_of(value: Value) -> Number:
    """Return the value, which must be a number.

    Raises:
        TranslationError: it is not a number.
    """
    if not isinstance(value, Number):
        raise TranslationError(f"{value} is not a number")
    return value


def common_integer(*dtypes: str) -> str:
    """Return the type of integer results for these operand types."""
    return "uint64" if all(dtype.startswith("u") for dtype in dtypes) else "int64"


def common_number(a: Number, b: Number) -> str:
    """Return the type of results of two numbers."""
    if a.is_integer and b.is_integer:
        return common_integer(a.dtype, b.dtype)
    return "float32" if a.dtype == b.dtype == "float32" else "float64"


THRESHOLDS = [Range(0, 0), range_of("int8"), range_of("int16"), Range(0, INT32.highest), INT32, UINT32, INT64, UINT64]


def widened(value: Number) -> Number:
    """Return the number with a wider range, from a few fixed ones, so that repeated passes end."""
    return Number(value.dtype, next((wide for wide in THRESHOLDS if value.range in wide), INT64))


# --- Ranges of operations ----------------------------------------------------------------------------------------


def _corners(values: Iterable[int]) -> Range:
    all_values = list(values)
    return Range(min(all_values), max(all_values))


def _shift_amounts(amount: Range) -> Range:
    """Shifts by less than 0 or more than 63 bits are undefined."""
    return Range(min(max(amount.lowest, 0), 63), min(max(amount.highest, 0), 63))


def range_of_operation(name: str, a: Range, b: Range) -> Range | None:
    """Return the exact range of an operation's results, given by the name of its node in the syntax tree; None if
    unknown."""
    if name == "Add":
        return Range(a.lowest + b.lowest, a.highest + b.highest)
    if name == "Sub":
        return Range(a.lowest - b.highest, a.highest - b.lowest)
    if name == "Mult":
        return _corners(x * y for x in (a.lowest, a.highest) for y in (b.lowest, b.highest))
    if name in ("LShift", "RShift"):
        amounts = _shift_amounts(b)
        ends = [(x, n) for x in (a.lowest, a.highest) for n in (amounts.lowest, amounts.highest)]
        return _corners(x << n if name == "LShift" else x >> n for x, n in ends)
    if name == "FloorDiv" and b.lowest > 0:
        return _corners(x // y for x in (a.lowest, a.highest) for y in (b.lowest, b.highest))
    if name == "FloorDiv":
        magnitude = max(abs(a.lowest), abs(a.highest))
        return Range(-magnitude, magnitude)
    if name == "Mod" and b.lowest > 0:
        return Range(0, b.highest - 1)
    if name == "Mod":
        return Range(min(b.lowest + 1, 0), max(b.highest - 1, 0))
    if name == "BitAnd" and (a.lowest >= 0 or b.lowest >= 0):
        return Range(0, min(side.highest for side in (a, b) if side.lowest >= 0))
    if name in ("BitOr", "BitXor", "BitAnd"):
        bits = max(value.bit_length() for value in (a.lowest, a.highest, b.lowest, b.highest))
        return Range(0 if a.lowest >= 0 and b.lowest >= 0 else -(1 << bits), (1 << bits) - 1)
    return None
