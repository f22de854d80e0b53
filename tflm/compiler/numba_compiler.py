"""Compile kernels that are written in Python: numba translates them to LLVM IR.

Of the names imported from `numba.core`, numba documents those of its passes. The others avoid generating machine code
that would never run, and finding the same overloads again.
"""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Mapping
from types import FunctionType
from typing import Any

from llvmlite import ir
from llvmlite.binding import ffi

from tflm.compiler import llvm_ir
from tflm.compiler.language import ELEMENTS, Intrinsic, Kernel, Kind, called, kinds, parameters_of_record, record_of
from tflm.compiler.llvm_ir import entry_of
from tflm.compiler.processor import processor

os.environ["NUMBA_CPU_NAME"], os.environ["NUMBA_CPU_FEATURES"] = processor().name, processor().features

ffi.register_lock_callback = lambda acquired, released: None  # numba would time each of thousands of calls of LLVM

import numba  # noqa: E402
from numba import types  # noqa: E402
from numba.core import typed_passes, untyped_passes  # noqa: E402
from numba.core.codegen import AOTCodeLibrary, JITCPUCodegen  # noqa: E402
from numba.core.compiler import CompilerBase  # noqa: E402
from numba.core.compiler_lock import global_compiler_lock  # noqa: E402
from numba.core.compiler_machinery import PassManager  # noqa: E402
from numba.core.registry import cpu_target  # noqa: E402
from numba.extending import intrinsic  # noqa: E402

PASSES = (
    *(untyped_passes.TranslateByteCode, untyped_passes.FixupArgs, untyped_passes.ReconstructSSA),
    *(typed_passes.NopythonTypeInference, typed_passes.PreLowerStripPhis),
    *(typed_passes.NativeLowering, typed_passes.NoPythonBackend),
)
"""What numba does with a function, in order. Its other passes look for closures, generators, arrays, objects to release
and similar things, which kernels do not have."""


class _Compiler(CompilerBase):  # type: ignore[misc]
    """Numba's compiler of functions, with the passes that kernels need."""

    def define_pipelines(self) -> list[Any]:
        passes = PassManager("kernel")
        for each in PASSES:
            passes.add_pass(each, each.__name__)
        passes.finalize()
        return [passes]


class _Functions(AOTCodeLibrary):  # type: ignore[misc]
    """Functions in LLVM IR, which are inlined into their callers, and optimized there."""

    def _optimize_final_module(self) -> None:
        pass

    def get_pointer_to_function(self, name: str) -> int:
        return 0


class _Entry(AOTCodeLibrary):  # type: ignore[misc]
    """The entry of a kernel, with all functions that are inlined into it."""

    def _optimize_final_module(self) -> None:
        """Run LLVM's passes once: numba's first, cheaper run is for reference counts, which kernels do not have."""
        manager, builder = self._codegen._module_pass_manager()
        manager.run(self._final_module, builder)


class _Codegen(JITCPUCodegen):  # type: ignore[misc]
    """Numba's code generator, without linking and running machine code."""

    _library_class = _Functions

    def _add_module(self, module: Any) -> None:
        pass

    def set_env(self, env_name: str, env: object) -> None:
        pass


cpu_target.target_context._internal_codegen = _Codegen("tflm")


_signature_of_call = types.BaseFunction.get_call_type


def _known_signature(function: Any, context: Any, arguments: tuple[types.Type, ...], keywords: dict[str, Any]) -> Any:
    """Return the signature of a call of an operator or function that numba knows, kept from earlier calls.

    Numba would try its overloads for arrays and strings in each call, which takes a seventh of a compiler's time.
    """
    if keywords:
        return _signature_of_call(function, context, arguments, keywords)
    known = vars(function).setdefault("known_signatures", {})
    if arguments not in known:
        known[arguments] = _signature_of_call(function, context, arguments, keywords)
    return known[arguments]


types.BaseFunction.get_call_type = _known_signature


_signature_of_inlined = types.Dispatcher.get_call_type


def _signature_without_constants(
    function: Any, context: Any, arguments: tuple[types.Type, ...], keywords: dict[str, Any]
) -> Any:
    """Return the signature of a call of an inlined function, by the types of its arguments alone.

    Numba would compile the function again for each constant that it is called with, a fifth of all functions. LLVM
    inserts the constants when it inlines the function.
    """
    return _signature_of_inlined(function, context, tuple(map(types.unliteral, arguments)), keywords)


types.Dispatcher.get_call_type = _signature_without_constants


def object_of(kernel: Kernel) -> bytes:
    """The object file of a kernel."""
    functions = {name: types.Dispatcher(_of_function(function)) for name, function in kernel.functions.items()}
    given = functions | {name: _type(kind) for name, kind in kernel.parameters.items()}
    arguments = tuple(
        _argument(kernel.function, name, given) for name in kernel.function.__annotations__ if name != "return"
    )
    return _object_with_entry(kernel, _compiled(kernel.function, types.int64(*arguments)), arguments)


def _object_with_entry(kernel: Kernel, function: Any, arguments: tuple[types.Type, ...]) -> bytes:
    """Return the object file of a function that numba has compiled for these arguments, called by the kernel's
    entry."""
    compiled = function.overloads[arguments]
    context = compiled.target_context
    library = _Entry(context.codegen(), kernel.symbol)
    module = library.create_ir_module(kernel.symbol)
    builder, given = entry_of(module, kernel)
    left = iter(given)

    def value_of(kind: types.Type) -> Any:
        if isinstance(kind, types.NamedTuple):
            return context.make_tuple(builder, kind, [value_of(field) for field in kind])
        return context.get_dummy_value() if isinstance(kind, types.Dispatcher) else next(left)

    values = [value_of(kind) for kind in arguments]
    callee = context.declare_function(module, compiled.fndesc)
    _, result = context.call_conv.call_function(builder, callee, types.int64, arguments, values)
    builder.ret(result)
    with global_compiler_lock:
        library.add_linking_library(compiled.library)
        library.add_ir_module(module)
        made: bytes = library.emit_native_object()
    return made


def _argument(function: FunctionType, name: str, given: Mapping[str, types.Type]) -> types.Type:
    """Return the type of a function's argument, given the kernel's parameters or their fields."""
    record = record_of(function, name)
    if record is None:
        return given[name]
    return types.NamedTuple([given[each] for each in parameters_of_record(record, name).values()], record)


def _type(kind: Kind) -> types.Type:
    element = getattr(types, kind.dtype)
    return types.CPointer(element) if kind.is_pointer else element


def _compiled(function: FunctionType, *signature: Any) -> Any:
    """Return the function in numba's form, with everything that it calls compiled as well."""
    names = {name: _callable(value) for name, value in called(function)}
    copy = FunctionType(function.__code__, {**function.__globals__, **names}, function.__name__, function.__defaults__)
    options = {"error_model": "numpy", "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
    return numba.njit(*signature, pipeline_class=_Compiler, **options)(copy)


@functools.cache
def _of_function(function: FunctionType) -> Any:
    return _compiled(function)


@functools.cache
def _of_intrinsic(stub: Intrinsic) -> Any:
    emit = getattr(llvm_ir, stub.name)

    def typed(typing_context: Any, *given: Any) -> Any:
        # "Elements of any type" have the type that the first argument points to.
        known = kinds(stub.function).values()
        *arguments, result = (given[0] if kind == ELEMENTS else _type(kind) for kind in known)

        def emitted(context: Any, builder: ir.IRBuilder, signature: Any, values: list[ir.Value]) -> ir.Value:
            cast = [context.cast(builder, *types_of_cast) for types_of_cast in zip(values, given, arguments)]
            return emit(builder, *cast)

        return result(*given), emitted

    names = ("typing_context", *list(kinds(stub.function))[:-1])
    by_name = inspect.Parameter.POSITIONAL_OR_KEYWORD
    typed.__signature__ = inspect.Signature([inspect.Parameter(name, by_name) for name in names])  # type: ignore[attr-defined]
    return intrinsic(typed)


def _callable(value: Any) -> Any:
    if isinstance(value, FunctionType):
        return _of_function(value)
    return _of_intrinsic(value) if isinstance(value, Intrinsic) else value
