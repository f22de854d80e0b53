"""The entry of a kernel in LLVM IR: `int64 symbol(int64 *arguments)`."""

from __future__ import annotations

from llvmlite import ir

from tflm.compiler.language import Kernel, Kind

INT64 = ir.IntType(64)


def entry_of(module: ir.Module, kernel: Kernel) -> tuple[ir.IRBuilder, list[ir.Value]]:
    """Return a builder in the entry of a kernel, and the kernel's arguments."""
    entry = ir.Function(module, ir.FunctionType(INT64, [INT64.as_pointer()]), kernel.symbol)
    builder = ir.IRBuilder(entry.append_basic_block())
    parameters = enumerate(kernel.parameters.values())
    return builder, [_argument(builder, builder.gep(entry.args[0], [INT64(place)]), kind) for place, kind in parameters]


def _argument(builder: ir.IRBuilder, place: ir.Value, kind: Kind) -> ir.Value:
    bits = builder.load(place)
    if kind.is_pointer:
        return builder.inttoptr(bits, _ir_type(kind.dtype).as_pointer())
    return builder.bitcast(bits, ir.DoubleType()) if kind.dtype == "float64" else bits


def _ir_type(dtype: str) -> ir.Type:
    if dtype.startswith("float"):
        return ir.FloatType() if dtype == "float32" else ir.DoubleType()
    return ir.IntType(int(dtype.removeprefix("u").removeprefix("int")))
