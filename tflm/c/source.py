"""Translate kernels to C99 from the syntax trees of their Python functions; see `tflm.compiler.language`.

The C code needs <math.h>, <stdbool.h>, <stdint.h> and <string.h>, and an `int` of at least 32 bits. Its results equal
those of LLVM's machine code. It assumes that casts to narrower signed integers wrap, and that right shifts of signed
integers are arithmetic, as in every known compiler.
"""

from __future__ import annotations

import functools
import itertools
import re
import textwrap
from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass
from types import FunctionType
from typing import Any

from tflm.c.functions import FunctionWriter
from tflm.c.helpers import CONSTANTS, HELPERS, helpers_of
from tflm.c.instances import RESULTS, Instance, identifier, pointer_type, promoted, return_type, sets_results
from tflm.c.syntax import TranslationError, docstring_of, tree_of
from tflm.c.values import INT32, Callee, Number, Pointer, Range, Record, Results, Value, range_of
from tflm.compiler.language import (
    ABORTED,
    ASSEMBLY,
    BY_VALUE,
    REFUSED,
    STANDALONE,
    Emitted,
    Kernel,
    bounds_of,
    hint_of,
    is_address,
    parameters_of_record,
    record_of,
)

WIDTH = 120
"""Maximum length of a line."""

PACKAGES = ("delegates.compiled.", "c.kernels.")
"""Prefixes of modules that names of C functions omit."""


@dataclass(frozen=True)
class Parameter:
    """A parameter of a C function.

    Attributes:
        name: its name in the kernel language.
        c_type: for example "const int8_t *"; a structure is passed by address.
        value: its type and, for an integer, the range that arguments must be in.
        fields: the fields of a structure.
    """

    name: str
    c_type: str
    value: Value
    fields: tuple[Parameter, ...] = ()

    @property
    def declaration(self) -> str:
        """Type and name."""
        space = "" if self.c_type.endswith("*") else " "
        return f"{self.c_type}{space}{identifier(self.name)}"


_instances: dict[tuple[Any, ...], Instance] = {}
"""The functions that kernels call, which most models share."""


def _instance(function: FunctionType, name: str, arguments: dict[str, Value]) -> Instance:
    """Return the instance of a function for arguments of these types."""
    key = (function, name, *arguments.items())
    if key not in _instances:
        instance = Instance(function, name, arguments)
        FunctionWriter(instance, _instance).write()
        _instances[key] = instance
    return _instances[key]


NOT_INLINED = "NOT_INLINED "
"""Marks functions with loops that need all registers. In larger functions, compilers would keep some of the variables
in memory."""

INLINED = "INLINED "
"""Marks functions that must be inlined."""

NAKED = "NAKED "
"""Marks functions in assembly, which have no prologue."""

UNUSED = "UNUSED "
"""Marks the parameters of functions in assembly."""

DEFINITIONS = {
    NAKED: """\
#if defined(__clang__)
#pragma clang diagnostic ignored "-Wunused-function" /* assembly does without functions that plain C calls */
#define NAKED __attribute__((naked, noinline, unused))
#else /* callers must not look at what the assembly does with registers */
#define NAKED __attribute__((naked, noipa, unused))
#endif
#define UNUSED __attribute__((unused))
""",
    INLINED: """\
#ifndef INLINED
#if defined(__GNUC__)
#define INLINED __attribute__((always_inline))
#else
#define INLINED
#endif
#endif
""",
    NOT_INLINED: """\
#ifndef NOT_INLINED
#if defined(__GNUC__)
#define NOT_INLINED __attribute__((noinline, unused))
#else
#define NOT_INLINED
#endif
#endif
""",
}
"""Definition of each macro."""


def _arguments(kernel: Kernel) -> dict[str, Value]:
    """Return the value of each parameter of a kernel, by its name in the kernel language."""
    found: dict[str, Value] = {}
    for name in kernel.function.__annotations__:
        if name == "return":
            continue
        record = record_of(kernel.function, name)
        if record is not None and not hasattr(record, BY_VALUE):
            names = parameters_of_record(record, name)
            fields = ((field, _value(kernel, each)) for field, each in names.items())
            found[name] = Record(structure_name(record), tuple(fields))
        else:
            names_by_value = [name] if record is None else parameters_of_record(record, name).values()
            found |= {each: _argument(kernel, each) for each in names_by_value}
    return found


def _argument(kernel: Kernel, name: str) -> Value:
    if name not in kernel.functions:
        return _value(kernel, name)
    function = kernel.functions[name]
    return Callee(function, _function_name(function, f"{name}_{kernel.constants[name]}"))


def _function_name(function: FunctionType, otherwise: str) -> str:
    return identifier(otherwise.lower() if function.__name__ == "<lambda>" else function.__name__)


def _value(kernel: Kernel, name: str) -> Number | Pointer:
    kind, hint = kernel.parameters[name], hint_of(kernel.function, name)
    if kind.is_pointer:
        return Pointer(kind.dtype, frozenset([name]))
    if is_address(hint):
        return Pointer("address", frozenset([name]))
    if kind.dtype == "float64":
        return Number("float64")
    bounds = bounds_of(hint)
    return Number("int64", Range(bounds.lowest, bounds.highest))


def structure_name(record: type) -> str:
    """Return the name of the C structure for a NamedTuple. It begins with the name of the module."""
    name = "".join("_" + letter.lower() if letter.isupper() else letter for letter in record.__name__)
    return f"{record.__module__.rpartition('.')[2]}_{name.strip('_')}"


# --- Interface for programs ---------------------------------------------------------------------------------------


def name_of(kernel: Kernel) -> str:
    """Return the name of a kernel's C function."""
    module, _, name = kernel.function_name.rpartition(".")
    for package in PACKAGES:
        module = module.removeprefix(package)
    constants = [str(value) for value in kernel.constants.values()]
    distinct = list(dict.fromkeys(constants))
    parts = [*module.split("."), name.strip("_"), *(distinct if len(distinct) == 1 else constants)]
    return "_".join(parts).lower()


def written(kernel: Kernel) -> frozenset[str]:
    """Return the parameters through which a kernel writes; a field of a NamedTuple is called "parameter.field"."""
    return frozenset(_translated(kernel).written)


def failure_of(kernel: Kernel) -> str | None:
    """Return how a kernel can fail: "aborted" or "refused"; None if it cannot, so that its C function returns
    nothing."""
    instance = _translated(kernel)
    if instance.is_void:
        return None
    assert isinstance(instance.returned, Number)
    return {ABORTED: "aborted", REFUSED: "refused"}[instance.returned.range.highest]


def parameters(kernel: Kernel) -> list[Parameter]:
    """Return the parameters of a kernel's C function."""
    return list(_parameters(_translated(kernel)))


def declaration(kernel: Kernel, *, linkage: str = "static ") -> str:
    """Return the type and the name."""
    return _head(_translated(kernel), name_of(kernel), linkage) + ";"


def structures(kernels: Iterable[Kernel]) -> str:
    """The definitions of the structures that kernels take."""
    values = (value for kernel in kernels for value in _translated(kernel).arguments.values())
    return "\n".join(dict.fromkeys(_structure(value) for value in values if _is_record(value)))


def translate(kernels: Iterable[Kernel], *, linkage: str = "static ") -> str:
    """Return the C definitions of kernels, in order, preceded by the functions that they share.

    Args:
        linkage: linkage of the kernels: "static " or nothing.

    Raises:
        TranslationError: a kernel uses something that C lacks.
    """
    roots = [_translated(kernel) for kernel in dict.fromkeys(kernels)]
    names = [root.name for root in roots]
    if len(set(names)) != len(names):
        raise TranslationError(f"several kernels are called {max(names, key=names.count)}")
    source = "\n".join(_definitions(roots, linkage))
    words = set(source.split())
    macros = (definition for name, definition in DEFINITIONS.items() if name.strip() in words)
    return "\n".join([*helpers_of(source), *macros, source])


@functools.cache
def _translated(kernel: Kernel) -> Instance:
    if isinstance(kernel, Emitted):
        raise TranslationError(f"{kernel.name} is written in LLVM IR")
    instance = Instance(kernel.function, name_of(kernel), _arguments(kernel), is_kernel=True)
    FunctionWriter(instance, _instance).write()
    return instance


# --- Text --------------------------------------------------------------------------------------------------------


def _is_record(value: Value) -> bool:
    return isinstance(value, Record)


def _with_callees(instance: Instance) -> Iterator[Instance]:
    """Yield all callees of an instance, then the instance."""
    for callee in instance.calls:
        yield from _with_callees(callee)
    yield instance


def _definitions(roots: Iterable[Instance], linkage: str) -> list[str]:
    """Return the definitions of kernels and their callees. Instances with the same text become one function."""
    instances = dict.fromkeys(instance for root in roots for instance in _with_callees(root))
    templates = {instance: _definition(instance, instance.token, linkage) for instance in instances}
    names: dict[Instance, str] = {}
    by_text: dict[tuple[str, str], str] = {}
    taken = {*HELPERS, *(name for text in templates.values() for name in VARIABLE.findall(COMMENT.sub("", text)))}
    for instance, text in templates.items():
        for callee in instance.calls:
            text = text.replace(callee.token, names[callee])
        text = text.replace(instance.token, OWN_NAME)
        key = (instance.name, text)
        if key not in by_text:
            by_text[key] = _unused_name(instance.name, taken)
            taken.add(by_text[key])
        names[instance] = by_text[key]
    return [text.replace(OWN_NAME, name) for (_, text), name in by_text.items()]


COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)

VARIABLE = re.compile(r"(?<![\w.>@])[A-Za-z]\w*")
"""Matches all names in a function's text that can be variables. Such a variable would hide a function of the same
name."""


def _unused_name(name: str, taken: Container[str]) -> str:
    """Return the name, or if it is taken, the name with the first number from 2 that makes it unique."""
    names = (name if number == 1 else f"{name}_{number}" for number in itertools.count(1))
    return next(each for each in names if each not in taken)


OWN_NAME = "@@"
"""Placeholder for a function's name in its own text."""


def _parameters(instance: Instance) -> Iterator[Parameter]:
    for name, value in instance.arguments.items():
        if not isinstance(value, Callee):
            yield _parameter(name, value, instance.written)


def _parameter(name: str, value: Value, written: set[str]) -> Parameter:
    if isinstance(value, Record):
        fields = tuple(
            Parameter(field, _parameter(f"{name}.{field}", part, written).c_type, part) for field, part in value.fields
        )
        return Parameter(name, f"const struct {value.name} *", value, fields)
    if isinstance(value, Pointer):
        return Parameter(name, pointer_type(value, written), value)
    assert isinstance(value, Number)
    return Parameter(name, _parameter_type(value), value)


def _parameter_type(value: Number) -> str:
    """Return the type of a parameter: for a 32-bit constant, the same type as for other arguments; otherwise the
    narrowest."""
    if value.range.is_constant and value.range in INT32:
        return value.c_type
    if value.dtype != "int64":
        return value.c_type
    names = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64")
    return next(name for name in names if value.range in range_of(name)) + "_t"


def _head(instance: Instance, name: str, linkage: str, qualifier: str = "") -> str:
    by_address = sets_results(instance)
    results = [f"{return_type(instance)} *{RESULTS}"] if by_address else []
    given = [qualifier + each for each in (*results, *(p.declaration for p in _parameters(instance)))] or ["void"]
    returned = instance.returned
    if instance.is_void or by_address:
        result = "void "
    elif isinstance(returned, Pointer):
        result = pointer_type(returned, instance.written)
    else:
        result = return_type(instance) + " "
    head = f"{linkage}{result}{name}("
    line = head + ", ".join(given) + ")"
    if len(line.replace(instance.token, instance.name)) <= WIDTH:
        return line
    return head + "\n" + ",\n".join("    " + text for text in _filled(given)) + ")"


def _filled(parts: list[str]) -> list[str]:
    """Join parts to lines of at most `WIDTH` characters."""
    lines = [parts[0]]
    for part in parts[1:]:
        if len(lines[-1]) + len(part) + 8 <= WIDTH:
            lines[-1] += ", " + part
        else:
            lines.append(part)
    return lines


def _definition(instance: Instance, name: str, linkage: str) -> str:
    if instance.is_kernel:
        linkage += NOT_INLINED
    elif vars(instance.function).get(STANDALONE):
        linkage = "static " + NOT_INLINED
    else:
        linkage = "static inline " + INLINED * _is_always_inlined(instance)
    head = _comment(docstring_of(tree_of(instance.function)))
    body = f"{_head(instance, name, linkage)}\n{{\n" + "\n".join(instance.lines) + "\n}\n"
    naked = _head(instance, name, "static " + NAKED, UNUSED)
    ways = [f"if {condition}\n{naked}\n{{\n{text}}}\n" for condition, text in _assembly(instance)]
    if ways:
        body = f"#{'#el'.join(ways)}#else\n{body}#endif\n"
    return _results_structure(instance) + head + body


def _assembly(instance: Instance) -> Iterator[tuple[str, str]]:
    """Yield the bodies of an instance in assembly, with their preprocessor conditions."""
    functions = {name: value.function for name, value in instance.arguments.items() if isinstance(value, Callee)}
    for condition, write in vars(instance.function).get(ASSEMBLY, {}).items():
        text = write(functions)
        if text is not None:
            # C99 compilers need not support strings of more than 4095 characters.
            lines = (f'        "{line.strip().replace(", ", ",")}\\n"\n' for line in text.splitlines())
            yield condition, f"    __asm__ volatile(\n{''.join(lines)}    );\n"


def _is_always_inlined(instance: Instance) -> bool:
    """Whether a call would cost too much: the function returns a structure, or a macro chooses between two
    implementations."""
    if isinstance(instance.returned, Results):
        return True
    return any(name in line for line in instance.lines for name in CONSTANTS)


def _results_structure(instance: Instance) -> str:
    """Return the definition of the structure that an instance returns, if it does."""
    if not isinstance(instance.returned, Results):
        return ""
    parts = (f"    {promoted(number.c_type)} value{place};" for place, number in enumerate(instance.returned.parts))
    return f"{return_type(instance)} {{\n" + "\n".join(parts) + "\n};\n\n"


def _comment(text: str) -> str:
    if not text:
        return ""
    lines = text.replace("*/", "* /").splitlines()
    if len(lines) == 1 and len(lines[0]) < WIDTH - 6:
        return f"/* {lines[0]} */\n"
    return "/*\n" + textwrap.indent("\n".join(lines), " * ", lambda line: True).replace(" * \n", " *\n") + "\n */\n"


def _structure(value: Value) -> str:
    assert isinstance(value, Record)
    lines = []
    for name, part in value.fields:
        if isinstance(part, Number):
            lines.append(f"    {_parameter_type(part)} {identifier(name)};")
        else:
            lines.append(f"    const {part.c_element} *{identifier(name)};")
    return f"struct {value.name} {{\n" + "\n".join(lines) + "\n};\n"
