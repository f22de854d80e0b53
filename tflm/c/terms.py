"""C expressions: their text, type and range, and the operations on them."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from tflm.c.syntax import TranslationError
from tflm.c.values import (
    C_TYPES,
    INT32,
    INT64,
    UINT32,
    UINT64,
    Number,
    Range,
    Value,
    boolean,
    common_integer,
    common_number,
    range_of,
    range_of_operation,
)

PRIMARY, UNARY, PRODUCT, SUM, SHIFT, RELATION, BITS, AND, OR, CONDITIONAL = range(16, 6, -1)
"""Precedence of operators."""

SMALL = ("int8_t", "uint8_t", "int16_t", "uint16_t", "bool")
"""Types that C promotes to int, which has at least 32 bits here."""

RING = ("Add", "Sub", "Mult")
"""Operations whose low bits depend only on the low bits of the operands."""

SYMBOLS = {
    "Add": ("+", SUM),
    "Sub": ("-", SUM),
    "Mult": ("*", PRODUCT),
    "Div": ("/", PRODUCT),
    "FloorDiv": ("/", PRODUCT),
    "Mod": ("%", PRODUCT),
    "LShift": ("<<", SHIFT),
    "RShift": (">>", SHIFT),
    "BitAnd": ("&", BITS),
    "BitOr": ("|", BITS),
    "BitXor": ("^", BITS),
    "Eq": ("==", RELATION),
    "NotEq": ("!=", RELATION),
    "Lt": ("<", RELATION),
    "LtE": ("<=", RELATION),
    "Gt": (">", RELATION),
    "GtE": (">=", RELATION),
}


@dataclass(frozen=True)
class Term:
    """A C expression.

    Attributes:
        c_type: type of the expression in C.
        constant: the value of a literal.
        unsigned: the term of an unsigned type that this term casts.
    """

    text: str
    binding: int
    value: Value
    c_type: str
    constant: int | float | None = None
    unsigned: Term | None = None

    @property
    def number(self) -> Number:
        """Its value, which must be a number.

        Raises:
            TranslationError: it is not a number.
        """
        if not isinstance(self.value, Number):
            raise TranslationError(f"{self.text} is not a number")
        return self.value

    @property
    def has_64_bits(self) -> bool:
        """Whether operations on this integer have 64 bits."""
        return self.c_type in ("int64_t", "uint64_t")

    def inside(self, binding: int) -> str:
        """Return the text as an operand, in parentheses if the operator binds more tightly."""
        return self.text if self.binding >= binding else f"({self.text})"

    def within(self, range: Range) -> bool:
        """Whether all possible values are in a range."""
        return self.number.range in range


# --- Literals and casts ------------------------------------------------------------------------------------------


def literal(value: bool | int | float) -> Term:
    """Return a Python constant as a term."""
    if isinstance(value, bool):
        return Term(str(value).lower(), PRIMARY, Number("bool", Range(value, value)), "bool", int(value))
    if isinstance(value, int):
        number = Number("int64", Range(value, value))
        if number.range in INT32:
            text = str(value) if value != INT32.lowest else "INT32_MIN"
            return Term(text, PRIMARY if value >= 0 else UNARY, number, "int32_t", value)
        if number.range in INT64:
            text = f"INT64_C({value})" if value != INT64.lowest else "INT64_MIN"
            return Term(text, PRIMARY, number, "int64_t", value)
        return Term(f"UINT64_C({value})", PRIMARY, Number("uint64", number.range), "uint64_t", value)
    return Term(_float_text(value), PRIMARY if value >= 0 else UNARY, Number("float64"), "double", value)


def _float_text(value: float) -> str:
    if math.isnan(value):
        return "(double)NAN"
    if math.isinf(value):
        return "(double)INFINITY" if value > 0 else "-(double)INFINITY"
    return repr(value)


def truth(text: str, binding: int) -> Term:
    """Return a condition as a term."""
    return Term(text, binding, boolean(), "bool")


def c_cast(term: Term, c_type: str) -> Term:
    """Convert the term to a C type, with the same value."""
    if term.c_type == c_type or (c_type == "int32_t" and term.c_type in SMALL):
        return term
    if term.constant is not None:
        return replace(term, text=_literal_text(term, c_type), binding=PRIMARY, c_type=c_type)
    source = term.unsigned
    if source is not None and c_type in ("uint64_t", "uint32_t", "int32_t", "int16_t", "int8_t", "uint16_t", "uint8_t"):
        if source.c_type == c_type:
            return source
        if source.c_type == "uint64_t" or c_type not in ("uint64_t", "uint32_t"):
            term = source
    made = replace(term, text=f"({c_type}){term.inside(UNARY)}", binding=UNARY, c_type=c_type, unsigned=None)
    return replace(made, unsigned=term) if term.c_type.startswith("uint") and c_type.startswith("int") else made


def implicit(term: Term, c_type: str) -> Term:
    """Convert the term as C does implicitly; cast it if the conversion loses bits."""
    if c_type == "int64_t" and (term.c_type in ("int32_t", *SMALL)):
        return term
    if term.constant is not None and c_type in ("int64_t", "uint64_t", "uint32_t") and term.constant >= 0:
        return term
    return c_cast(term, c_type)


def _literal_text(term: Term, c_type: str) -> str:
    assert term.constant is not None
    if c_type in ("float", "double"):
        text = _float_text(float(term.constant))
        if c_type == "float":
            return text.replace("(double)", "") if "(" in text else text + "f"
        return text
    if c_type == "int32_t":
        return term.text if term.within(INT32) else f"(int32_t){term.inside(UNARY)}"
    value = int(term.constant)
    if c_type == "uint64_t":
        return f"UINT64_C({value % (1 << 64)})"
    if c_type == "uint32_t":
        return f"UINT32_C({value % (1 << 32)})"
    if c_type == "int64_t" and value != INT64.lowest:
        return f"INT64_C({value})"
    return f"({c_type}){term.inside(UNARY)}"


def as_number(term: Term, dtype: str) -> Term:
    """Cast the term to a type of the kernel language, as numba does."""
    number = term.number
    if dtype in ("float32", "float64"):
        made = c_cast(term, C_TYPES[dtype])
        constant = None if term.constant is None else float(term.constant)
        return replace(made, value=Number(dtype), constant=constant)
    if dtype == "bool":
        return condition(term)
    if not number.is_integer:
        wide = Term(f"truncated({c_cast(term, 'double').text})", PRIMARY, Number("int64", INT64), "int64_t")
        return wide if dtype == "int64" else as_number(wide, dtype)
    limits = range_of(dtype)
    if number.range in limits:
        if dtype == "int64" and term.c_type == "uint64_t":
            term = c_cast(term, "int64_t")
        if dtype == "uint64" and term.c_type not in ("uint64_t", "uint32_t"):
            term = c_cast(term, "uint64_t")
        return replace(term, value=Number(dtype, number.range))
    return replace(c_cast(term, C_TYPES[dtype]), value=Number(dtype, limits), constant=None)


def condition(term: Term) -> Term:
    """Return the term as a condition."""
    if term.number.dtype == "bool":
        return term
    zero = c_cast(literal(0), term.c_type if term.c_type not in SMALL else "int32_t")
    return truth(f"{term.inside(SHIFT)} != {zero.text}", RELATION)


# --- Operations --------------------------------------------------------------------------------------------------


def _joined_text(name: str, a: Term, b: Term) -> tuple[str, int]:
    symbol, binding = SYMBOLS[name]
    if binding in (SHIFT, BITS):
        return f"{a.inside(UNARY)} {symbol} {b.inside(UNARY)}", binding
    if binding == RELATION:
        return f"{a.inside(SUM)} {symbol} {b.inside(SUM)}", binding
    return f"{a.inside(binding)} {symbol} {b.inside(binding + 1)}", binding


def operation(name: str, a: Term, b: Term) -> Term:
    """Return an arithmetic operation, given by the name of its node in the syntax tree. C computes it in 32 bits, or in
    64 if an operand has these."""
    if a.constant is not None and b.constant is not None:
        return literal(_fold(name, a.constant, b.constant))
    if name == "Div" or not (a.number.is_integer and b.number.is_integer):
        return _float_operation(name, a, b)
    dtype = common_integer(a.number.dtype, b.number.dtype)
    if name in ("LShift", "RShift"):
        dtype = common_integer(a.number.dtype)
    exact = range_of_operation(name, a.number.range, b.number.range)
    if exact is None:
        raise TranslationError(f"operation {name} is not supported for integers")
    if dtype == "uint64":
        return _unsigned_operation(name, a, b, exact)
    exact = _clipped(exact, INT64 if a.has_64_bits or b.has_64_bits else INT32)
    if name in ("FloorDiv", "Mod"):
        return _division(name, a, b, exact)
    if name in ("LShift", "RShift"):
        return _shift(name, a, b, exact)
    c_type = "int32_t" if exact in INT32 and a.within(INT32) and b.within(INT32) else "int64_t"
    if c_type == "int32_t" or "int64_t" not in (a.c_type, b.c_type):
        a = c_cast(a, c_type)
    a, b = (c_cast(side, c_type) if c_type == "int32_t" or side.c_type.startswith("uint") else side for side in (a, b))
    text, binding = _joined_text(name, a, b)
    return Term(text, binding, Number("int64", exact), c_type)


def low_bits(name: str, a: Term, b: Term, c_type: str) -> Term:
    """Return the low bits of an operation in `RING`, or of a left shift, as an unsigned C type."""
    left, right = c_cast(a, c_type), b if name == "LShift" else c_cast(b, c_type)
    if name != "LShift" and a.constant is None and b.within(Range(0, INT32.highest)) and b.constant is not None:
        right = b
    text, binding = _joined_text(name, left, right)
    full = UINT32 if c_type == "uint32_t" else UINT64
    return Term(text, binding, Number(c_type.removesuffix("_t"), full), c_type)


def _fold(name: str, a: float, b: float) -> float:
    whole: Any = (a, b)
    x, y = whole
    results = {
        "Add": lambda: x + y,
        "Sub": lambda: x - y,
        "Mult": lambda: x * y,
        "Div": lambda: x / y,
        "FloorDiv": lambda: x // y,
        "Mod": lambda: x % y,
        "LShift": lambda: x << y,
        "RShift": lambda: x >> y,
        "BitAnd": lambda: x & y,
        "BitOr": lambda: x | y,
        "BitXor": lambda: x ^ y,
        "Pow": lambda: x**y,
    }
    result: float = results[name]()
    return result


def _clipped(range: Range, limits: Range) -> Range:
    lowest, highest = max(range.lowest, limits.lowest), min(range.highest, limits.highest)
    return Range(lowest, highest) if lowest <= highest else limits


def _float_operation(name: str, a: Term, b: Term) -> Term:
    if name not in ("Add", "Sub", "Mult", "Div"):
        raise TranslationError(f"operation {name} is not supported for floats")
    dtype = common_number(a.number, b.number)
    if a.number.is_integer and b.number.is_integer:
        dtype = "float64"
    text, binding = _joined_text(name, as_number(a, dtype), as_number(b, dtype))
    return Term(text, binding, Number(dtype), C_TYPES[dtype])


def _unsigned_operation(name: str, a: Term, b: Term, exact: Range) -> Term:
    shifts = name in ("LShift", "RShift")
    text, binding = _joined_text(name, c_cast(a, "uint64_t"), b if shifts else c_cast(b, "uint64_t"))
    return Term(text, binding, Number("uint64", exact if exact in UINT64 else UINT64), "uint64_t")


def _division(name: str, a: Term, b: Term, exact: Range) -> Term:
    c_type = "int32_t" if a.within(INT32) and b.within(INT32) and exact in INT32 else "int64_t"
    number = Number("int64", exact)
    if a.number.range.lowest >= 0 and b.number.range.lowest > 0:
        text, binding = _joined_text(name, c_cast(a, c_type), c_cast(b, c_type))
        return Term(text, binding, number, c_type)
    helper = {"FloorDiv": "floor_div", "Mod": "floor_mod"}[name] + ("_int32" if c_type == "int32_t" else "_int64")
    return Term(f"{helper}({a.text}, {b.text})", PRIMARY, number, c_type)


def _shift(name: str, a: Term, amount: Term, exact: Range) -> Term:
    if name == "RShift":
        c_type = "int32_t" if a.within(INT32) and a.c_type != "int64_t" else "int64_t"
        if c_type == "int32_t" and amount.number.range.lowest >= 32:
            amount = literal(31)
        text, binding = _joined_text(name, c_cast(a, c_type), amount)
        return Term(text, binding, Number("int64", exact), c_type)
    if a.constant == 1:
        exact = Range(exact.lowest, min(exact.highest, 1 << 62))
    c_type = "int32_t" if exact in INT32 and a.within(INT32) else "int64_t"
    if a.number.range.lowest >= 0:
        text, binding = _joined_text(name, c_cast(a, c_type), amount)
        return Term(text, binding, Number("int64", exact), c_type)
    if amount.constant is not None:
        return operation("Mult", a, literal(1 << int(amount.constant)))
    shifted = low_bits(name, a, amount, "u" + c_type)
    return replace(c_cast(shifted, c_type), value=Number("int64", exact))


def negated(a: Term) -> Term:
    """Return the negated term."""
    if a.constant is not None:
        return literal(-a.constant)
    if not a.number.is_integer:
        return Term(f"-{a.inside(UNARY + 1)}", UNARY, a.number, a.c_type)
    limits = INT64 if a.has_64_bits else INT32
    exact = _clipped(Range(-a.number.range.highest, -a.number.range.lowest), limits)
    c_type = "int32_t" if exact in INT32 and a.within(INT32) else "int64_t"
    return Term(f"-{c_cast(a, c_type).inside(UNARY + 1)}", UNARY, Number("int64", exact), c_type)


def comparison(name: str, a: Term, b: Term) -> Term:
    """Return a comparison, given by the name of its node in the syntax tree."""
    a, b = comparable(a, b)
    text, binding = _joined_text(name, a, b)
    return truth(text, binding)


def comparable(a: Term, b: Term) -> tuple[Term, Term]:
    """Convert two numbers to a C type that holds both."""
    if not (a.number.is_integer and b.number.is_integer):
        dtype = common_number(a.number, b.number)
        if _is_float32(a) and _is_float32(b):
            dtype = "float32"
        return as_number(a, dtype), as_number(b, dtype)
    c_type = computed_type(a, b)
    if c_type == "int64_t":
        a, b = (c_cast(side, c_type) if side.c_type in ("uint32_t", "uint64_t") else side for side in (a, b))
        return a, b
    return c_cast(a, c_type), c_cast(b, c_type)


def _is_float32(term: Term) -> bool:
    """Whether a number can be represented exactly in float32."""
    if term.number.dtype == "float32":
        return True
    constant = term.constant
    return constant is not None and (math.isinf(constant) or float(constant) == _rounded_to_float32(float(constant)))


def _rounded_to_float32(value: float) -> float:
    import numpy as np

    with np.errstate(over="ignore"):
        return float(np.float32(value))


def computed_type(*terms: Term) -> str:
    """Return the C type that holds all these integers."""
    if all(term.within(INT32) for term in terms):
        return "int32_t"
    if all(term.within(INT64) for term in terms):
        return "int64_t"
    if all(term.within(UINT64) for term in terms):
        return "uint64_t"
    raise TranslationError(f"no integer type holds {' and '.join(term.text for term in terms)}")


def choice(test: Term, a: Term, b: Term) -> Term:
    """Return a if the test is true, else b."""
    if isinstance(a.value, Number) and isinstance(b.value, Number):
        if a.value.is_integer and b.value.is_integer:
            dtype = a.value.dtype if a.value.dtype == b.value.dtype else common_integer(a.value.dtype, b.value.dtype)
            number = Number(dtype, a.value.range | b.value.range)
            c_type = "bool" if dtype == "bool" else computed_type(a, b)
            if c_type not in (a.c_type, b.c_type) or c_type != "int64_t":
                a = c_cast(a, c_type)
            a, b = implicit(a, c_type), implicit(b, c_type)
        else:
            dtype = common_number(a.number, b.number)
            number, c_type = Number(dtype), C_TYPES[dtype]
            a, b = as_number(a, dtype), as_number(b, dtype)
        text = f"{test.inside(OR)} ? {a.inside(OR)} : {b.inside(OR)}"
        return Term(text, CONDITIONAL, number, c_type)
    raise TranslationError(f"{a.text} and {b.text} are not both numbers")


def extreme(name: str, a: Term, b: Term) -> Term:
    """Return min or max of two numbers, with Python's result for NaN."""
    if a.constant is not None and b.constant is not None:
        return literal(min(a.constant, b.constant) if name == "min" else max(a.constant, b.constant))
    if not (a.number.is_integer and b.number.is_integer):
        dtype = common_number(a.number, b.number)
        a, b = as_number(a, dtype), as_number(b, dtype)
        return Term(f"{name}_{C_TYPES[dtype]}({a.text}, {b.text})", PRIMARY, Number(dtype), C_TYPES[dtype])
    ends = [(side.number.range.lowest, side.number.range.highest) for side in (a, b)]
    pick = min if name == "min" else max
    range = Range(pick(ends[0][0], ends[1][0]), pick(ends[0][1], ends[1][1]))
    c_type = computed_type(a, b)
    a, b = implicit(a, c_type), implicit(b, c_type)
    dtype = common_integer(a.number.dtype, b.number.dtype)
    text = f"{name}_{c_type.removesuffix('_t')}({a.text}, {b.text})"
    return Term(text, PRIMARY, Number(dtype, range), c_type)


def absolute(a: Term) -> Term:
    """Return the absolute value."""
    if not a.number.is_integer:
        return Term(f"{'fabsf' if a.c_type == 'float' else 'fabs'}({a.text})", PRIMARY, a.number, a.c_type)
    return extreme("max", a, negated(a))
