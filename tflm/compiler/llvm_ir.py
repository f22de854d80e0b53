"""The LLVM IR of entries of kernels, and of intrinsics: functions of the same names that take a builder, too."""

from __future__ import annotations

from typing import Any, TypeAlias

from llvmlite import ir

from tflm.compiler.language import Kernel, Kind

Value: TypeAlias = Any
INT8, INT16, INT32, INT64 = (ir.IntType(bits) for bits in (8, 16, 32, 64))
FLOAT32, FLOAT64 = ir.FloatType(), ir.DoubleType()


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
    return builder.bitcast(bits, FLOAT64) if kind.dtype == "float64" else bits


def _ir_type(dtype: str) -> ir.Type:
    if dtype.startswith("float"):
        return FLOAT32 if dtype == "float32" else FLOAT64
    return ir.IntType(int(dtype.removeprefix("u").removeprefix("int")))


def int8_from(builder: ir.IRBuilder, elements: Value, count: Value) -> Value:
    """Return a pointer advanced by `count` elements."""
    return builder.gep(elements, [count])


int16_from = int32_from = float32_from = elements_from = int8_from


def int8_of(builder: ir.IRBuilder, elements: Value) -> Value:
    """Return a pointer to the same memory as bytes."""
    return builder.bitcast(elements, INT8.as_pointer())


def int32_of(builder: ir.IRBuilder, elements: Value) -> Value:
    """A pointer to int32."""
    return builder.bitcast(elements, INT32.as_pointer())


def address_of(builder: ir.IRBuilder, elements: Value) -> Value:
    """The address as an integer."""
    return builder.ptrtoint(elements, INT64)


def move_bytes(builder: ir.IRBuilder, target: Value, source: Value, count: Value) -> Value:
    """C's memmove."""
    pointer = INT8.as_pointer()
    move = builder.module.declare_intrinsic("llvm.memmove", [pointer, pointer, INT64])
    pointers = [builder.inttoptr(address, pointer) for address in (target, source)]
    builder.call(move, [*pointers, count, ir.Constant(ir.IntType(1), 0)])
    return count


def copy_bytes(builder: ir.IRBuilder, target: Value, source: Value, count: Value) -> Value:
    """C's memmove, so that loaded machine code needs no other function."""
    return move_bytes(builder, target, source, count)


def float64_of_bits(builder: ir.IRBuilder, bits: Value) -> Value:
    """The float64 that has these bits."""
    return builder.bitcast(bits, FLOAT64)


def leading_zeros(builder: ir.IRBuilder, value: Value) -> Value:
    """Number of leading zero bits."""
    return builder.ctlz(value, ir.Constant(ir.IntType(1), 0))


def truncated_quotient(builder: ir.IRBuilder, dividend: Value, divisor: Value) -> Value:
    """Divide float64, which has vectors: a rounded quotient of int32 reaches no integer that the exact one does not."""
    quotient = builder.fdiv(builder.sitofp(dividend, FLOAT64), builder.sitofp(divisor, FLOAT64))
    return builder.fptosi(quotient, INT64)
