"""Compiles kernels, in a process of its own: each becomes an object file.

    python -m tflm.delegates.compiled.compiler

reads the names of kernels, "module.function", a line each, and writes for each a line with the size of its object file
in bytes, then these bytes.
"""

from __future__ import annotations

import importlib
import select
import sys

import llvmlite.binding as llvm
from llvmlite import ir

from tflm.delegates.compiled.language import DONE, PACKAGE, Emitted, Kernel, Kind
from tflm.delegates.compiled.processor import processor

INT64 = ir.IntType(64)
SECONDS_IDLE = 60.0


def kernel_of(name: str) -> Kernel:
    """The kernel of that name."""
    name, _, constants = name.partition(":")
    module, _, function = name.rpartition(".")
    kernel = getattr(importlib.import_module(PACKAGE + module), function)
    assert isinstance(kernel, Kernel)
    if not constants:
        return kernel
    assert isinstance(kernel, Emitted)
    pairs = (constant.split("=") for constant in constants.split(","))
    return kernel.of(**{key: int(value) if value.isdecimal() else value for key, value in pairs})


def object_of(kernel: Kernel) -> bytes:
    """The object file of a kernel. Its entry is `int64 symbol(int64 *arguments)`."""
    if isinstance(kernel, Emitted):
        module = ir.Module(kernel.symbol)
        builder, values = entry_of(module, kernel)
        kernel.function(builder, *values, **kernel.constants)
        builder.ret(INT64(DONE))
        return _object_of_module(module)
    from tflm.delegates.compiled import numba_compiler  # numba takes its time

    return numba_compiler.object_of(kernel)


def entry_of(module: ir.Module, kernel: Kernel) -> tuple[ir.IRBuilder, list[ir.Value]]:
    """A builder in the entry of a kernel, and the kernel's arguments."""
    entry = ir.Function(module, ir.FunctionType(INT64, [INT64.as_pointer()]), kernel.symbol)
    builder = ir.IRBuilder(entry.append_basic_block())
    parameters = enumerate(kernel.parameters.values())
    return builder, [_argument(builder, builder.gep(entry.args[0], [INT64(place)]), kind) for place, kind in parameters]


def _object_of_module(module: ir.Module) -> bytes:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    cpu = processor()
    target = llvm.Target.from_default_triple()
    machine = target.create_target_machine(cpu=cpu.name, features=cpu.features, opt=3, codemodel="jitdefault", jit=True)
    module.triple = target.triple
    parsed = llvm.parse_assembly(str(module))
    options = llvm.create_pipeline_tuning_options(speed_level=2)
    options.loop_unrolling = False
    passes = llvm.create_pass_builder(machine, options)
    passes.getModulePassManager().run(parsed, passes)
    made: bytes = machine.emit_object(parsed)
    return made


def _argument(builder: ir.IRBuilder, place: ir.Value, kind: Kind) -> ir.Value:
    bits = builder.load(place)
    if kind.is_pointer:
        return builder.inttoptr(bits, ir_type(kind.dtype).as_pointer())
    return builder.bitcast(bits, ir.DoubleType()) if kind.dtype == "float64" else bits


def ir_type(dtype: str) -> ir.Type:
    """The type of LLVM for a dtype."""
    if dtype.startswith("float"):
        return ir.FloatType() if dtype == "float32" else ir.DoubleType()
    return ir.IntType(int(dtype.removeprefix("u").removeprefix("int")))


def main() -> None:
    """Compile what standard input names, a kernel a line, until it ends or nothing comes for a while."""
    while select.select([sys.stdin], [], [], SECONDS_IDLE)[0] and (name := sys.stdin.readline().strip()):
        made = object_of(kernel_of(name))
        sys.stdout.buffer.write(f"{len(made)}\n".encode() + made)
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
