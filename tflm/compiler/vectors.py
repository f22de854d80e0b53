"""The LLVM IR of intrinsics: functions of the same names that take a builder and the arguments."""

from __future__ import annotations

from typing import Any, TypeAlias

from llvmlite import ir

Value: TypeAlias = Any
INT8, INT16, INT32, INT64 = (ir.IntType(bits) for bits in (8, 16, 32, 64))
FLOAT32, FLOAT64 = ir.FloatType(), ir.DoubleType()


def int8_at(builder: ir.IRBuilder, address: Value) -> Value:
    """A pointer to int8."""
    return builder.inttoptr(address, INT8.as_pointer())


def int8_from(builder: ir.IRBuilder, elements: Value, count: Value) -> Value:
    """Return a pointer advanced by `count` elements."""
    return builder.gep(elements, [count])


int16_from = int32_from = float32_from = elements_from = int8_from


def int8_of(builder: ir.IRBuilder, elements: Value) -> Value:
    """Return a pointer to the same memory as bytes."""
    return builder.bitcast(elements, INT8.as_pointer())


def int16_at(builder: ir.IRBuilder, address: Value) -> Value:
    """A pointer to int16."""
    return builder.inttoptr(address, INT16.as_pointer())


def int32_at(builder: ir.IRBuilder, address: Value) -> Value:
    """A pointer to int32."""
    return builder.inttoptr(address, INT32.as_pointer())


def int32_of(builder: ir.IRBuilder, elements: Value) -> Value:
    """A pointer to int32."""
    return builder.bitcast(elements, INT32.as_pointer())


def int64_at(builder: ir.IRBuilder, address: Value) -> Value:
    """A pointer to int64."""
    return builder.inttoptr(address, INT64.as_pointer())


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
