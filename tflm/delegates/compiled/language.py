"""The language that kernels are written in: Python functions over addresses and integers, which LLVM compiles.

A kernel takes addresses, integers and floats, each by its name, and returns a status:

    @kernel
    def relu(x: Float32s, y: Float32s, count: int) -> int:
        for i in range(count):
            y[i] = max(x[i], 0.0)
        return DONE

Nothing checks an index. Addresses come as pointers to elements of the type that the annotation says; integers have 64
bits, floats too. `relu.step(x=array, y=array, count=8)` is a call of it with these arguments, ready for a program: they
stand in one array of int64, whose address is all that the machine code is given.

What several kernels share is a function under `@inlined`. What Python has no words for (vectors, a cast of bits) is an
`@intrinsic`, whose LLVM IR is written by a function of the same name in `tflm.delegates.compiled.vectors`.

This module imports no compiler: a process that finds its machine code in the cache needs none.
"""

from __future__ import annotations

import struct
import typing
from collections.abc import Callable, Iterator, MutableSequence
from dataclasses import dataclass
from types import CodeType, FunctionType
from typing import Annotated, Any, TypeVar

import numpy as np
import numpy.typing as npt

DONE, ABORTED, REFUSED = range(3)
"""What a kernel returns: go on; end the invoke early, as `InvokeAborted` does; the numpy kernel is to run instead, and
to go on, or say what is wrong."""

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

PACKAGE = __name__.rpartition(".")[0] + "."
"""Where modules of kernels are."""

Function = TypeVar("Function", bound=Callable[..., Any])


class Kind(typing.NamedTuple):
    """What a parameter or a result is: `dtype` elements behind a pointer, or one value."""

    dtype: str
    is_pointer: bool


@dataclass(frozen=True)
class Step:
    """One call of a kernel.

    Attributes:
        kernel: what is called.
        arguments: one integer for each parameter: an address, a number, or the bits of a float64.
        owners: the arrays whose addresses are among them.
    """

    kernel: Kernel
    arguments: tuple[int, ...]
    owners: tuple[npt.NDArray[Any], ...]

    def owning(self, *arrays: npt.NDArray[Any]) -> Step:
        """The same step, which keeps more arrays alive."""
        return Step(self.kernel, self.arguments, self.owners + arrays)


class Kernel:
    """A function that is compiled by itself, with an entry that takes the address of its arguments."""

    def __init__(self, function: FunctionType, name: str = "", types: dict[str, Any] | None = None):
        self.function = function
        self.function_name = f"{function.__module__.removeprefix(PACKAGE)}.{name or function.__name__}"
        self.name = self.function_name
        self.__doc__ = function.__doc__
        self._types = types or {}
        self._kinds: dict[str, Kind] | None = None

    @property
    def symbol(self) -> str:
        """The name of its entry in machine code."""
        return "tflm." + self.name

    @property
    def parameters(self) -> dict[str, Kind]:
        """What each parameter is."""
        if self._kinds is None:
            self._kinds = kinds(self.function) | {name: _kind(hint) for name, hint in self._types.items()}
            del self._kinds["return"]
        return self._kinds

    def variant(self, name: str, **types: Any) -> Kernel:
        """The same for parameters of other types: what `name`, of the same module, is set to."""
        return Kernel(self.function, name, types)

    def step(self, **values: Any) -> Step:
        """A call with these arguments, one for each parameter.

        Arrays stand for the address of their first element, for an integer, too. They must be contiguous where the
        kernel takes them to be so, and they stay alive as long as the step does.
        """
        if values.keys() != self.parameters.keys():
            raise TypeError(f"{self.name} takes {', '.join(self.parameters)}, not {', '.join(values)}")
        arguments, owners = [], []
        for name, kind in self.parameters.items():
            value = values[name]
            if isinstance(value, np.ndarray):
                if kind.is_pointer and value.dtype.name != kind.dtype:
                    raise TypeError(f"{name} of {self.name} points to {kind.dtype}, not {value.dtype}")
                owners.append(value)
                arguments.append(value.ctypes.data)
            elif kind == FLOAT:
                arguments.append(int.from_bytes(struct.pack("<d", value), "little", signed=True))
            else:
                arguments.append(int(value))
        return Step(self, tuple(arguments), tuple(owners))


class Emitted(Kernel):
    """A kernel whose LLVM IR is written by a function: of a builder, then its parameters, then constants by name.

    The function returns nothing, the kernel `DONE`. Each set of constants makes a kernel of its own.
    """

    def __init__(self, function: FunctionType, constants: dict[str, int | str] | None = None):
        super().__init__(function)
        self.constants = constants or {}
        if constants:
            self.name += ":" + ",".join(f"{name}={value}" for name, value in constants.items())
        self._variants: dict[str, Emitted] = {}

    @property
    def parameters(self) -> dict[str, Kind]:
        if self._kinds is None:
            given = self.function.__code__.co_varnames[1 : self.function.__code__.co_argcount]
            of = kinds(self.function)
            self._kinds = {name: of[name] for name in given}
        return self._kinds

    def of(self, **constants: int | str) -> Emitted:
        """The kernel with these constants."""
        variant = Emitted(self.function, constants)
        return self._variants.setdefault(variant.name, variant)


class Inlined:
    """A function that kernels call."""

    def __init__(self, function: FunctionType):
        self.function = function


class Intrinsic:
    """A function that kernels call, and whose LLVM IR `tflm.delegates.compiled.vectors` writes."""

    def __init__(self, function: FunctionType):
        self.function = function
        self.name = function.__name__


INTEGER, FLOAT = Kind("int64", False), Kind("float64", False)


def kernel(function: Callable[..., int]) -> Kernel:
    """Make a function a kernel."""
    assert isinstance(function, FunctionType)
    return Kernel(function)


def emitted(function: Callable[..., None]) -> Emitted:
    """Make a function that writes LLVM IR a kernel."""
    assert isinstance(function, FunctionType)
    return Emitted(function)


def inlined(function: Function) -> Function:
    """Let kernels call a function; what is called by it must be inlined, too."""
    return typing.cast(Function, Inlined(typing.cast(FunctionType, function)))


def intrinsic(function: Function) -> Function:
    """Let kernels call what the function of this name in `tflm.delegates.compiled.vectors` emits."""
    return typing.cast(Function, Intrinsic(typing.cast(FunctionType, function)))


def kinds(function: FunctionType) -> dict[str, Kind]:
    """What each parameter of a function is, and its result, which is called "return".

    Annotations are names: to look them up takes a hundredth of the time of `typing.get_type_hints`.
    """
    known = {"int": int, "float": float, **function.__globals__}
    return {name: _kind(known.get(hint)) for name, hint in function.__annotations__.items()}


def _kind(hint: Any) -> Kind:
    if typing.get_origin(hint) is Annotated:
        return Kind(hint.__metadata__[0], True)
    return FLOAT if hint is float else INTEGER


def called(function: FunctionType) -> Iterator[tuple[str, Any]]:
    """What a function's code names among its globals: (name, value)."""
    pending: list[CodeType] = [function.__code__]
    while pending:
        code = pending.pop()
        pending += [constant for constant in code.co_consts if isinstance(constant, CodeType)]
        for name in code.co_names:
            if name in function.__globals__:
                yield name, function.__globals__[name]
