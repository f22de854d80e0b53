"""Compile kernels: each becomes an object file, whose entry is `int64 symbol(int64 *arguments)`.

It runs in a separate process; see `compiler_main`.
"""

from __future__ import annotations

import importlib
from typing import Any

import llvmlite.binding as llvm
from llvmlite import ir

from tflm.compiler.language import DONE, PACKAGE, Emitted, Kernel
from tflm.compiler.llvm_ir import INT64, entry_of
from tflm.compiler.processor import processor


def kernel_of(name: str, constants: dict[str, int | str]) -> Kernel:
    """Return the kernel with the name "module.function"; constants select a member of its family."""
    module, _, function = name.rpartition(".")
    kernel = getattr(importlib.import_module(PACKAGE + module), function)
    assert isinstance(kernel, Kernel)
    return kernel.of(**constants) if constants else kernel


def object_of(kernel: Kernel) -> bytes:
    """Return the object file of a kernel."""
    if isinstance(kernel, Emitted):
        return _object_of_emitted(kernel)
    from tflm.compiler import numba_compiler  # importing numba takes half a second

    return numba_compiler.object_of(kernel)


def _object_of_emitted(kernel: Emitted) -> bytes:
    module = ir.Module(kernel.symbol)
    builder, values = entry_of(module, kernel)
    kernel.write(builder, values)
    if not builder.block.is_terminated:
        builder.ret(INT64(DONE))
    machine = _target_machine()
    module.triple = machine.triple
    parsed = llvm.parse_assembly(str(module))
    options = llvm.create_pipeline_tuning_options(speed_level=2)
    options.loop_unrolling = False
    passes = llvm.create_pass_builder(machine, options)
    passes.getModulePassManager().run(parsed, passes)
    made: bytes = machine.emit_object(parsed)
    return made


def _target_machine() -> Any:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    cpu = processor()
    target = llvm.Target.from_default_triple()
    return target.create_target_machine(cpu=cpu.name, features=cpu.features, opt=3, codemodel="jitdefault", jit=True)
