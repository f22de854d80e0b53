"""The language that kernels are written in: Python functions over addresses and integers, for LLVM and for C.

A kernel takes addresses, integers and floats, each by its name, and returns a status:

    @kernel
    def relu(x: Float32s, y: Float32s, count: int) -> int:
        for i in range(count):
            y[i] = max(x[i], 0.0)
        return DONE

A parameter that is annotated with a NamedTuple stands for its fields, each a parameter such as "problem.size".

Nothing checks an index. Addresses come as pointers to elements of the type that the annotation says; integers have 64
bits, floats too. `relu.step(x=array, y=array, count=8)` is a call of it with these arguments, ready for a program: they
stand in one array of int64, whose address is all that the machine code is given.

A kernel may be generic, a family of kernels with one body. `Elements` may have any type, and a parameter annotated with
a table stands for one of the functions in it, which is called by its key:

    FUNCTIONS = {"ADD": lambda a, b: a + b, "SUB": lambda a, b: a - b}
    Function = Annotated[Callable[..., Any], FUNCTIONS]

    @kernel
    def each(function: Function, x: Elements, y: Elements, count: int) -> int:
        for i in range(count):
            y[i] = function(x[i], y[i])
        return DONE

`each.step(function="ADD", x=array, y=array, count=8)` takes the types from the arrays: each set of types and functions
is a kernel of its own, compiled when it is first called.

`tflm.c.source` translates the same functions to C. Values are equal, but integers have fewer bits in C:

- An `int` parameter has 32 bits in C. Annotate it with `Wide`, or with other `Bounds`, if it needs more or fewer, and
  with `Address` if it is one.
- An operation has 32 bits, or 64 if an operand has; only `as_int64(...)` widens. It must not overflow. What is to wrap
  has unsigned operands, or more bits inside of `as_int32(...)`. Indices have 32 bits.
- A variable has one type in the whole function. Loops run over `range(...)`; a number is assigned before it is read.
- A loop over `unrolled(...)`, with the arguments of `range`, is written out in C; LLVM does that by itself.
- Functions pass values on in a NamedTuple under `@by_value`; in C, each of its fields is a parameter.

Code that several kernels share is a function under `@inlined`. What Python cannot express (vectors, a cast of bits) is
an `@intrinsic`, whose LLVM IR is written by a function of the same name in `tflm.compiler.llvm_ir`.

This module imports no compiler: a process that finds its machine code in the cache needs none.
"""

from __future__ import annotations

import functools
import struct
import sys
import typing
from collections.abc import Callable, Iterator, Mapping, MutableSequence, Sequence
from dataclasses import dataclass, replace
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from typing_extensions import Self

DONE, ABORTED, REFUSED = range(3)
"""Status of a kernel: continue; end the invoke early, as `InvokeAborted` does; run the numpy kernel instead, which
continues or raises an error."""

Int8s = Annotated[MutableSequence[int], "int8"]
UInt8s = Annotated[MutableSequence[int], "uint8"]
Int16s = Annotated[MutableSequence[int], "int16"]
UInt16s = Annotated[MutableSequence[int], "uint16"]
Int32s = Annotated[MutableSequence[int], "int32"]
UInt32s = Annotated[MutableSequence[int], "uint32"]
Int64s = Annotated[MutableSequence[int], "int64"]
UInt64s = Annotated[MutableSequence[int], "uint64"]
Float32s = Annotated[MutableSequence[float], "float32"]
Float64s = Annotated[MutableSequence[float], "float64"]
Elements = Annotated[MutableSequence[Any], "any"]


@dataclass(frozen=True)
class Bounds:
    """The range of an integer parameter, inclusive. It determines the type of the parameter in C."""

    lowest: int
    highest: int


class BuildConstant(int):
    """A number that C takes from a macro of the same name; LLVM uses the given value."""


INT32_BOUNDS = Bounds(-(1 << 31), (1 << 31) - 1)
"""Range in C of an integer parameter that is annotated with `int`. LLVM passes all 64 bits."""

ADDRESS = object()

Address = Annotated[int, ADDRESS]
"""An address of bytes."""

Shift = Annotated[int, Bounds(0, 31)]
"""Number of bits by which 32-bit values are shifted."""

Wide = Annotated[int, Bounds(-(1 << 63), (1 << 63) - 1)]
"""An integer that may need 64 bits."""

unrolled = range
"""The numbers of a loop that C repeats the body of."""

BY_VALUE = "is_by_value"
"""The attribute of records under `by_value`."""

STANDALONE = "is_standalone"
"""The attribute of functions under `standalone`."""

ASSEMBLY = "assembly"
"""The attribute of functions under `assembled`."""

PACKAGE = __name__.partition(".")[0] + "."
"""Names of kernels leave it out."""

Function = TypeVar("Function", bound=Callable[..., Any])
Record = TypeVar("Record", bound="type[Any]")


class Kind(typing.NamedTuple):
    """What a parameter or a result is: `dtype` elements behind a pointer, or one value."""

    dtype: str
    is_pointer: bool

    @property
    def is_generic(self) -> bool:
        """Whether each type, or each function, makes a kernel of its own."""
        return self in (ELEMENTS, FUNCTION)


@dataclass(frozen=True)
class Step:
    """One call of a kernel.

    Attributes:
        kernel: what is called.
        arguments: one integer for each parameter: an address, a number, or the bits of a float64.
        owners: the arrays whose addresses are among them.
        addresses: the parameters that an array was given for.
        parallel: whether it may run at the same time as the step before it.
    """

    kernel: Kernel
    arguments: tuple[int, ...]
    owners: tuple[npt.NDArray[Any], ...]
    addresses: frozenset[str] = frozenset()
    parallel: bool = False

    def owning(self, *arrays: npt.NDArray[Any]) -> Step:
        """Return the same step, which keeps more arrays alive."""
        return replace(self, owners=self.owners + arrays)

    def with_array(self, array: npt.NDArray[Any], other: npt.NDArray[Any]) -> Step:
        """Return the same step with another contiguous array of the same type and size in place of one of its
        arrays."""
        arguments, owners = list(self.arguments), list(self.owners)
        places = [place for place, name in enumerate(self.kernel.parameters) if name in self.addresses]
        for i, place in enumerate(places):
            if owners[i].ctypes.data == array.ctypes.data:
                owners[i] = other.reshape(owners[i].shape)
                arguments[place] = other.ctypes.data
        return replace(self, arguments=tuple(arguments), owners=tuple(owners))


class Kernel:
    """A separately compiled function, with an entry that takes the address of its arguments.

    Attributes:
        constants: the values that select a kernel of a generic family: for each generic parameter a type, or the key of
            a function.
    """

    def __init__(self, function: FunctionType, constants: Mapping[str, int | str] | None = None, name: str = ""):
        self.function = function
        self.function_name = f"{function.__module__.removeprefix(PACKAGE)}.{name or function.__name__}"
        self.constants = dict(constants or {})
        self.name = self.function_name
        if self.constants:
            self.name += ":" + ",".join(f"{name}={value}" for name, value in sorted(self.constants.items()))
        self.__doc__ = function.__doc__
        self._kinds: dict[str, Kind] | None = None
        self._family: dict[str, Self] = {}

    @property
    def symbol(self) -> str:
        """The name of its entry in machine code."""
        return "tflm." + self.name

    @property
    def parameters(self) -> dict[str, Kind]:
        """The kind of each parameter, except functions that were chosen."""
        if self._kinds is None:
            self._kinds = self._parameters()
        return self._kinds

    def _parameters(self) -> dict[str, Kind]:
        found = kinds(self.function)
        found |= {name: Kind(str(self.constants[name]), True) for name in self.constants if found[name] == ELEMENTS}
        return {name: kind for name, kind in found.items() if name != "return" and name not in self.functions}

    @functools.cached_property
    def functions(self) -> dict[str, FunctionType]:
        """The functions that were chosen, by parameter."""
        hints = {name: hint_of(self.function, name) for name in self.constants}
        tables = {name: hint.__metadata__[0] for name, hint in hints.items() if _kind(hint) == FUNCTION}
        return {name: table[self.constants[name]] for name, table in tables.items()}

    @functools.cached_property
    def _order(self) -> tuple[str, ...]:
        return tuple(kinds(self.function))

    def of(self, **constants: int | str) -> Self:
        """Return the member of the family with these constants, in the order of the parameters: names in C depend on
        it."""
        ordered = {name: constants[name] for name in (*self._order, *constants) if name in constants}
        member = type(self)(self.function, ordered)
        return self._family.setdefault(member.name, member)

    def step(self, **values: Any) -> Step:
        """Return a call with these arguments, one for each parameter.

        An array stands for the address of its first element, also for an integer parameter. It must be contiguous if
        the kernel expects that, and stays alive as long as the step does. Bools are bytes.
        """
        values = _fields(values)
        if values.keys() != self.parameters.keys():
            raise TypeError(f"{self.name} takes {', '.join(self.parameters)}, not {', '.join(values)}")
        generic = [name for name, kind in self.parameters.items() if kind.is_generic]
        if generic:
            constants = {name: _choice(values[name]) for name in generic}
            member = self.of(**constants)
            return member.step(**{name: values[name] for name in member.parameters})
        arguments, owners, addresses = [], [], []
        for name, kind in self.parameters.items():
            value = values[name]
            if isinstance(value, np.ndarray):
                if kind.is_pointer and _choice(value) != kind.dtype:
                    raise TypeError(f"{name} of {self.name} points to {kind.dtype}, not {value.dtype}")
                owners.append(value)
                addresses.append(name)
                arguments.append(value.ctypes.data)
            elif kind == FLOAT:
                arguments.append(int.from_bytes(struct.pack("<d", value), "little", signed=True))
            else:
                arguments.append(int(value))
        return Step(self, tuple(arguments), tuple(owners), frozenset(addresses))


def _fields(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values by parameter. A NamedTuple stands for a parameter for each field."""
    found: dict[str, Any] = {}
    for name, value in values.items():
        is_record = hasattr(value, "_fields")
        found |= dict(zip(parameters_of_record(type(value), name).values(), value)) if is_record else {name: value}
    return found


def _choice(value: npt.NDArray[Any] | str) -> str:
    """Return the constant that an argument selects for a generic parameter."""
    if isinstance(value, str):
        return value
    return "uint8" if value.dtype == np.bool_ else value.dtype.name


class Emitted(Kernel):
    """A kernel whose LLVM IR is written by a function of a builder, its parameters, and constants by name.

    The function returns nothing. The kernel returns `DONE`, unless the function writes another return. Each set of
    constants results in a separate kernel.
    """

    def _parameters(self) -> dict[str, Kind]:
        given = self.function.__code__.co_varnames[1 : self.function.__code__.co_argcount]
        return {name: kind for name, kind in kinds(self.function).items() if name.partition(".")[0] in given}

    def of(self, **constants: Any) -> Self:
        """Return the member of the family with these constants; a NamedTuple stands for its fields."""
        return super().of(**_fields(constants))

    def write(self, builder: Any, values: Sequence[Any]) -> None:
        """Write the LLVM IR with these values of the parameters."""
        given: dict[str, Any] = {}
        records: dict[str, dict[str, Any]] = {}
        for name, value in [*zip(self.parameters, values), *self.constants.items()]:
            parameter, _, field = name.partition(".")
            if field:
                records.setdefault(parameter, {})[field] = value
            else:
                given[name] = value
        given |= {name: record_of(self.function, name)(**fields) for name, fields in records.items()}
        self.function(builder, **given)


class Intrinsic:
    """A function that kernels call, whose LLVM IR `tflm.compiler.llvm_ir` writes."""

    def __init__(self, function: FunctionType):
        self.function = function
        self.name = function.__name__


INTEGER, FLOAT = Kind("int64", False), Kind("float64", False)
ELEMENTS, FUNCTION = Kind("any", True), Kind("function", False)


def kernel(function: Callable[..., int]) -> Kernel:
    """Make a function a kernel."""
    assert isinstance(function, FunctionType)
    return Kernel(function)


def emitted(function: Callable[..., None]) -> Emitted:
    """Make a function that writes LLVM IR a kernel."""
    assert isinstance(function, FunctionType)
    return Emitted(function)


def inlined(function: Function) -> Function:
    """Mark a function that kernels call, and that is compiled with them."""
    return function


def by_value(record: Record) -> Record:
    """Mark a NamedTuple each of whose fields is a parameter in C, of kernels and of functions that they call.

    Functions pass such a record on, or make one of constants and of variables that are assigned once. The parameter is
    called as the record, and what follows that name ends those of the fields: `multiplier2: Multiplier` stands for
    `significand2` and the like. Like a parameter, a field may stand for one of the functions in a table.
    """
    setattr(record, BY_VALUE, True)
    return record


def parameters_of_record(record: Any, name: str) -> dict[str, str]:
    """Return the parameters that a record with this name stands for, by field."""
    if not hasattr(record, BY_VALUE):
        return {field: f"{name}.{field}" for field in record._fields}
    own = record.__name__.lower()
    return {field: field + (name.removeprefix(own) if name.startswith(own) else "") for field in record._fields}


def standalone(function: Function) -> Function:
    """Mark a function that kernels call, and that C compilers should not inline.

    It has loops that need all registers of a small processor, or code that they would move before the test for it.
    """
    vars(function)[STANDALONE] = True
    return function


def assembled(texts: Mapping[str, Callable[[Mapping[str, Any]], str | None]]) -> Callable[[Function], Function]:
    """Also provide assembly for C for a `standalone` function.

    Args:
        texts: for each preprocessor condition, of which the first true one counts: a function that returns the
            instructions of the whole function, one per line, given the functions that are passed as its parameters;
            None leaves it to the compiler.
    """

    def mark(function: Function) -> Function:
        vars(function)[ASSEMBLY] = texts
        return function

    return mark


def intrinsic(function: Function) -> Function:
    """Let kernels call the intrinsic that the function of this name in `tflm.compiler.llvm_ir` emits."""
    return typing.cast(Function, Intrinsic(typing.cast(FunctionType, function)))


def kinds(function: FunctionType) -> dict[str, Kind]:
    """Return the kind of each parameter of a function, and of its result, called "return".

    Annotations are names: looking them up takes a hundredth of the time of `typing.get_type_hints`.
    """
    found: dict[str, Kind] = {}
    for name in function.__annotations__:
        found |= {each: _kind(hint) for each, hint in _hints(function, name).items()}
    return found


def _hints(function: FunctionType, name: str) -> dict[str, Any]:
    """Return the annotations of what a parameter stands for."""
    record = record_of(function, name)
    if record is None:
        return {name: _hint(function, name)}
    return {each: _field_hint(record, field) for field, each in parameters_of_record(record, name).items()}


def record_of(function: FunctionType, name: str) -> Any:
    """Return the NamedTuple whose fields a parameter stands for, or None."""
    hint = _hint(function, name)
    return hint if hasattr(hint, "_fields") else None


def hint_of(function: FunctionType, name: str) -> Any:
    """Return the annotation of a parameter, or of a field, by its name in `kinds`."""
    return next(found[name] for each in function.__annotations__ if name in (found := _hints(function, each)))


def bounds_of(hint: Any) -> Bounds:
    """Return the range of an integer parameter with this annotation."""
    bounds = hint.__metadata__[0] if typing.get_origin(hint) is Annotated else INT32_BOUNDS
    return bounds if isinstance(bounds, Bounds) else INT32_BOUNDS


def is_address(hint: Any) -> bool:
    """Whether a parameter with this annotation is an address of bytes."""
    return hint is Address


def _field_hint(record: Any, field: str) -> Any:
    hint = record.__annotations__[field]
    return vars(sys.modules[record.__module__]).get(hint.__forward_arg__)


def _hint(function: FunctionType, name: str) -> Any:
    hint: str = function.__annotations__.get(name, "")
    return float if hint == "float" else function.__globals__.get(hint)


def _kind(hint: Any) -> Kind:
    if typing.get_origin(hint) is Annotated:
        mark = hint.__metadata__[0]
        if isinstance(mark, str):
            return Kind(mark, True)
        return FUNCTION if isinstance(mark, Mapping) else INTEGER
    return FLOAT if hint is float else INTEGER


def called(function: FunctionType) -> Iterator[tuple[str, Any]]:
    """Yield the globals that a function's code names: (name, value)."""
    pending: list[CodeType] = [function.__code__]
    while pending:
        code = pending.pop()
        pending += [constant for constant in code.co_consts if isinstance(constant, CodeType)]
        for name in code.co_names:
            if name in function.__globals__:
                yield name, function.__globals__[name]
