"""Functions of the language for arguments of certain types: each is a function of C."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import FunctionType

from tflm.c.syntax import TranslationError
from tflm.c.terms import Term
from tflm.c.values import INT32, INT64, Callee, Constant, Number, Pointer, Range, Record, Results, Value, range_of
from tflm.compiler.language import ASSEMBLY

KEYWORDS = frozenset(
    re.findall(
        r"\w+",
        "auto bool break case char const continue default do double else enum extern float for goto if inline int long "
        "register restrict return short signed sizeof static struct switch typedef union unsigned void volatile while",
    )
)


def identifier(name: str) -> str:
    """A name as an identifier of C."""
    name = name.strip("_") or "pass"
    return name + "_" if name in KEYWORDS else name


@dataclass(eq=False)
class Instance:
    """A function for arguments of certain types.

    Attributes:
        name: of the function in the language, as C spells it; `translate` tells instances with the same name apart.
        arguments: the value of each parameter.
        written: the parameters, and their fields, that it writes through.
        returned: the value that it returns; None for nothing.
        lines: its body in C.
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
        """The placeholder for its name in the code of callers."""
        return f"@{id(self)}@"

    @property
    def is_void(self) -> bool:
        """Whether it returns nothing, or always the same status."""
        return self.returned is None or (self.is_kernel and self.returns == {"0"})


Instances = Callable[[FunctionType, str, dict[str, Value]], Instance]
"""Finds or makes the instance of a function, which has a name, for values of its parameters."""


def callees_of(arguments: Mapping[str, Value]) -> frozenset[tuple[str, FunctionType]]:
    """The functions among arguments."""
    return frozenset((name, value.function) for name, value in arguments.items() if isinstance(value, Callee))


ARGUMENTS = [INT32, *(Range(-(1 << bits), 1 << bits) for bits in (34, 48, 62)), INT64]
"""Ranges that a function is translated for."""


def parameter_value(name: str, term: Term) -> Value:
    """How a function sees an argument: a constant, or a range of its C type."""
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
            return Number("int64", next(limits for limits in ARGUMENTS if value.range in limits))
        return Number(value.dtype, range_of(value.dtype))
    if isinstance(value, Constant):
        raise TranslationError(f"{term.text} can't be an argument")
    return value


def return_type(instance: Instance) -> str:
    """The type of C that an instance returns: of a number, or a structure of numbers."""
    if isinstance(instance.returned, Results):
        return f"struct {instance.token}_results"
    assert isinstance(instance.returned, Number)
    if instance.is_kernel:
        return "int"
    return promoted(instance.returned.c_type)


RESULTS = "results"
"""The parameter of the structure that a function sets, if it does not return it."""


def sets_results(instance: Instance) -> bool:
    """Whether a structure of numbers is set by address: compilers return none from functions in assembly."""
    return isinstance(instance.returned, Results) and ASSEMBLY in vars(instance.function)


def promoted(c_type: str) -> str:
    """The type of variables and results for values of a type: C computes with small integers as with int32_t."""
    return "int32_t" if c_type in ("int8_t", "int16_t", "uint8_t", "uint16_t") else c_type


def pointer_type(value: Pointer, written: set[str]) -> str:
    """The type of a pointer; const, if some of what it may point to is never written."""
    is_const = bool(value.roots - written) or not value.roots
    return f"{'const ' if is_const else ''}{value.c_element} *"
