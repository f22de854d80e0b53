"""Functions of the kernel language for particular argument types. Each becomes a function of C."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from types import FunctionType

from tflm.c.syntax import TranslationError
from tflm.c.terms import Term
from tflm.c.values import INT32, INT64, Constant, Number, Pointer, Record, Results, Value, range_of
from tflm.compiler.language import ASSEMBLY

KEYWORDS = frozenset(
    re.findall(
        r"\w+",
        "auto bool break case char const continue default do double else enum extern float for goto if inline int long "
        "register restrict return short signed sizeof static struct switch typedef union unsigned void volatile while",
    )
)


def identifier(name: str) -> str:
    """Return a name as an identifier of C."""
    name = name.strip("_") or "pass"
    return name + "_" if name in KEYWORDS else name


@dataclass(eq=False)
class Instance:
    """A function for particular argument types.

    Attributes:
        name: the function's name as an identifier of C; `translate` makes the names of instances unique.
        arguments: the value of each parameter.
        written: the parameters and fields through which it writes.
        returned: the returned value; None for nothing.
        lines: the body in C.
        calls: the instances that it calls.
    """

    function: FunctionType
    name: str
    arguments: dict[str, Value]
    written: set[str] = field(default_factory=set)
    returned: Value | None = None
    returns: set[str] = field(default_factory=set)
    lines: list[str] = field(default_factory=list)
    calls: list[Instance] = field(default_factory=list)
    is_kernel: bool = False

    @property
    def token(self) -> str:
        """Placeholder for the function's name in the code of callers."""
        return f"@{id(self)}@"

    @property
    def is_void(self) -> bool:
        """Whether it returns nothing, or always the same status."""
        return self.returned is None or (self.is_kernel and self.returns == {"0"})


Instances = Callable[[FunctionType, str, dict[str, Value]], Instance]
"""Returns the instance of a function, given its name and the values of its parameters; creates it if needed."""


def parameter_value(name: str, term: Term) -> Value:
    """Return the value that a function assumes for an argument: a constant, or a range of its C type."""
    value = term.value
    if isinstance(value, Number) and value.range.is_constant and value.is_integer:
        return value
    if isinstance(value, Pointer):
        return Pointer(value.dtype, frozenset([name]))
    if isinstance(value, Record):
        fields = (
            (field, Pointer(part.dtype, frozenset([f"{name}.{field}"])) if isinstance(part, Pointer) else part)
            for field, part in value.fields
        )
        return Record(value.name, tuple(fields))
    if isinstance(value, Number) and value.is_integer and value.dtype != "bool":
        if value.dtype == "int64":
            return Number("int64", INT32 if value.range in INT32 else INT64)
        return Number(value.dtype, range_of(value.dtype))
    if isinstance(value, Constant):
        raise TranslationError(f"{term.text} can't be passed as an argument")
    return value


def return_type(instance: Instance) -> str:
    """Return the C type of the result: that of a number, or a structure of numbers."""
    if isinstance(instance.returned, Results):
        return f"struct {instance.token}_results"
    assert isinstance(instance.returned, Number)
    if instance.is_kernel:
        return "int"
    return promoted(instance.returned.c_type)


RESULTS = "results"
"""Name of the parameter for results that a function writes to a structure instead of returning it."""


def sets_results(instance: Instance) -> bool:
    """Whether results are written to a structure given by its address: GCC cannot return one from a function in
    assembly."""
    return isinstance(instance.returned, Results) and ASSEMBLY in vars(instance.function)


def promoted(c_type: str) -> str:
    """Return the type of variables and results for values of a type: C computes small integers as int32_t."""
    return "int32_t" if c_type in ("int8_t", "int16_t", "uint8_t", "uint16_t") else c_type


def pointer_type(value: Pointer, written: set[str]) -> str:
    """Return the type of a pointer; const if some memory that it may point to is never written."""
    is_const = bool(value.roots - written) or not value.roots
    return f"{'const ' if is_const else ''}{value.c_element} *"
