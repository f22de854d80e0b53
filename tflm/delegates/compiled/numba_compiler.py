"""Compiles kernels that are written in Python: numba makes LLVM IR of them."""

from __future__ import annotations

import functools
import inspect
import os
from types import FunctionType
from typing import Any

from llvmlite import ir

from tflm.delegates.compiled import vectors
from tflm.delegates.compiled.compiler import entry_of
from tflm.delegates.compiled.language import Inlined, Intrinsic, Kernel, Kind, called, kinds
from tflm.delegates.compiled.processor import processor

os.environ["NUMBA_CPU_NAME"], os.environ["NUMBA_CPU_FEATURES"] = processor().name, processor().features

import numba  # noqa: E402
from numba import types  # noqa: E402
from numba.core.compiler_lock import global_compiler_lock  # noqa: E402
from numba.core.registry import cpu_target  # noqa: E402
from numba.extending import intrinsic  # noqa: E402


def object_of(kernel: Kernel) -> bytes:
    """The object file of a kernel."""
    library = cpu_target.target_context.codegen().create_library(kernel.symbol)
    library.enable_object_caching()
    module = library.create_ir_module(kernel.symbol)
    builder, values = entry_of(module, kernel)
    builder.ret(_called(kernel, library, builder, values))
    library.add_ir_module(module)
    with global_compiler_lock:
        library.finalize()
    made: bytes = library._get_compiled_object()
    return made


def _called(kernel: Kernel, library: Any, builder: ir.IRBuilder, values: list[ir.Value]) -> ir.Value:
    """The status that numba's function for a kernel gives."""
    arguments = [_type(kind) for kind in kernel.parameters.values()]
    compiled = _compiled(kernel.function, types.int64(*arguments))
    result = compiled.overloads[tuple(arguments)]
    context = result.target_context
    function = context.declare_function(builder.module, result.fndesc)
    _, status = context.call_conv.call_function(builder, function, types.int64, arguments, values)
    library.add_linking_library(result.library)
    return status


def _type(kind: Kind) -> types.Type:
    element = getattr(types, kind.dtype)
    return types.CPointer(element) if kind.is_pointer else element


def _compiled(function: FunctionType, *signature: Any) -> Any:
    """The function as numba takes it: everything that it calls is compiled, too."""
    names = {name: _callable(value) for name, value in called(function)}
    copy = FunctionType(function.__code__, {**function.__globals__, **names}, function.__name__, function.__defaults__)
    return numba.njit(*signature, error_model="numpy")(copy)


@functools.cache
def _of_inlined(inlined: Inlined) -> Any:
    return _compiled(inlined.function)


@functools.cache
def _of_intrinsic(stub: Intrinsic) -> Any:
    *arguments, result = (_type(kind) for kind in kinds(stub.function).values())
    emit = getattr(vectors, stub.name)

    def typed(typing_context: Any, *given: Any) -> Any:
        def emitted(context: Any, builder: ir.IRBuilder, signature: Any, values: list[ir.Value]) -> ir.Value:
            cast = [context.cast(builder, *of) for of in zip(values, given, arguments)]
            return emit(builder, *cast)

        return result(*given), emitted

    names = ("typing_context", *list(kinds(stub.function))[:-1])
    by_name = inspect.Parameter.POSITIONAL_OR_KEYWORD
    typed.__signature__ = inspect.Signature([inspect.Parameter(name, by_name) for name in names])  # type: ignore[attr-defined]
    return intrinsic(typed)


def _callable(value: Any) -> Any:
    if isinstance(value, Inlined):
        return _of_inlined(value)
    return _of_intrinsic(value) if isinstance(value, Intrinsic) else value
