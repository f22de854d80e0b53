"""Functions that kernels can call and that Python lacks; `tflm.compiler.llvm_ir` implements them in LLVM IR."""

from __future__ import annotations

from tflm.compiler.language import BuildConstant, Elements, Float32s, Int8s, Int16s, Int32s, intrinsic

LONG_MULTIPLY = BuildConstant(1)
"""Whether one instruction multiplies 32 bits by 32 and adds the product to 64 bits."""

HIGH_MULTIPLY = BuildConstant(1)
"""Whether one instruction computes the upper half of a product of 32 bits by 32."""

DSP_ASSEMBLY = BuildConstant(0)
"""Whether `assembled` functions use assembly with DSP instructions."""

HELIUM_ASSEMBLY = BuildConstant(0)
"""Whether that assembly may use Helium."""


THUMB_ASSEMBLY = BuildConstant(0)
"""Whether `assembled` functions use assembly for Cortex-M without DSP instructions."""


@intrinsic
def int8_from(elements: Int8s, count: int) -> Int8s:
    """The elements after the first `count`."""
    raise NotImplementedError


@intrinsic
def int16_from(elements: Int16s, count: int) -> Int16s:
    """The elements after the first `count`."""
    raise NotImplementedError


@intrinsic
def int32_from(elements: Int32s, count: int) -> Int32s:
    """The elements after the first `count`."""
    raise NotImplementedError


@intrinsic
def elements_from(elements: Elements, count: int) -> Elements:
    """The elements after the first `count`."""
    raise NotImplementedError


@intrinsic
def float32_from(elements: Float32s, count: int) -> Float32s:
    """The elements after the first `count`."""
    raise NotImplementedError


@intrinsic
def int8_of(elements: Elements) -> Int8s:
    """The same memory as bytes."""
    raise NotImplementedError


@intrinsic
def int32_of(elements: Elements) -> Int32s:
    """The same memory as int32 elements."""
    raise NotImplementedError


@intrinsic
def address_of(elements: Elements) -> int:
    """The address of the first element, for `move_bytes` and `copy_bytes`."""
    raise NotImplementedError


@intrinsic
def move_bytes(target: int, source: int, count: int) -> int:
    """Call C's memmove with addresses, and return the count."""
    raise NotImplementedError


@intrinsic
def copy_bytes(target: int, source: int, count: int) -> int:
    """Call C's memcpy with addresses of memory that does not overlap, and return the count."""
    raise NotImplementedError


@intrinsic
def float64_of_bits(bits: int) -> float:
    """The float64 that has these bits."""
    raise NotImplementedError


@intrinsic
def leading_zeros(value: int) -> int:
    """Number of leading zero bits, of 64."""
    raise NotImplementedError


@intrinsic
def truncated_quotient(dividend: int, divisor: int) -> int:
    """The quotient of two int32, truncated towards zero. The divisor must not be 0."""
    raise NotImplementedError
