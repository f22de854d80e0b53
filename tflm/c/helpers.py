"""C functions for expressions that C has no operator for."""

from __future__ import annotations

import re

_LEADING_ZEROS = """\
/* Number of leading zero bits, of 64. */
static inline int32_t leading_zeros(uint64_t value)
{
#if defined(__GNUC__)
    return value != 0 ? __builtin_clzll(value) : 64;
#else
    int32_t count = 64;
    int32_t step = 32;
    while (step > 0) {
        if (value >> step != 0) {
            count -= step;
            value >>= step;
        }
        step /= 2;
    }
    return value != 0 ? count - 1 : count;
#endif
}
"""

_TRUNCATED = """\
/* A float truncated towards zero; INT64_MIN if that does not fit in 64 bits, or is not a number. */
static inline int64_t truncated(double value)
{
    return value >= -9223372036854775808.0 && value < 9223372036854775808.0 ? (int64_t)value : INT64_MIN;
}
"""

_FLOAT64_OF_BITS = """\
/* The double that has these bits. */
static inline double float64_of_bits(int64_t bits)
{
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}
"""

_TRUNCATED_QUOTIENT = """\
/* Quotient, rounded towards zero, without overflow. */
static inline int64_t truncated_quotient(int32_t a, int32_t b)
{
    return b == -1 ? -(int64_t)a : a / b;
}
"""

_RINT = """\
/* Nearest integer, halves to even. */
static inline float rint_float(float x)
{
#if defined(__arm__) && defined(__ARM_FP) && __ARM_ARCH == 7 && !(__ARM_FP & 8) && !defined(__FAST_MATH__)
    /* rintf is a call. Adding 2^23 to a smaller number rounds it to an integer. */
    const float integral = 8388608.0f;
    return fabsf(x) < integral ? copysignf(fabsf(x) + integral - integral, x) : x + 0.0f;
#else
    return rintf(x);
#endif
}
"""

_SQRT = """\
/* Square root, without errno. */
static inline float sqrt_float(float x)
{
#if defined(__arm__) && defined(__ARM_FP) && defined(__GNUC__)
    float root;
    __asm__("vsqrt.f32 %0, %1" : "=t"(root) : "t"(x));
    return root;
#else
    return sqrtf(x);
#endif
}
"""

_FLOOR_DIV = """\
/* Quotient, rounded down. */
static inline TYPE floor_div_NAME(TYPE a, TYPE b)
{
    TYPE quotient = a / b;
    return a % b != 0 && (a < 0) != (b < 0) ? quotient - 1 : quotient;
}
"""

_FLOOR_MOD = """\
/* Remainder, with the sign of b. */
static inline TYPE floor_mod_NAME(TYPE a, TYPE b)
{
    TYPE remainder = a % b;
    return remainder != 0 && (remainder < 0) != (b < 0) ? remainder + b : remainder;
}
"""

_MIN = """\
static inline TYPE min_NAME(TYPE a, TYPE b)
{
    return b < a ? b : a;
}
"""

_MAX = _MIN.replace("min", "max").replace("b < a", "b > a")

_NAMES = {
    "int32": "int32_t",
    "int64": "int64_t",
    "uint32": "uint32_t",
    "uint64": "uint64_t",
    "float": "float",
    "double": "double",
}

_TEMPLATES = {"floor_div": _FLOOR_DIV, "floor_mod": _FLOOR_MOD, "min": _MIN, "max": _MAX}

_LONG_MULTIPLY = """\
/* Whether a fast instruction multiplies 32 bits by 32 and adds the product to 64 bits. */
#ifndef LONG_MULTIPLY
#if defined(__ARM_ARCH_6M__) || defined(__ARM_ARCH_8M_BASE__) || defined(__XTENSA__)
#define LONG_MULTIPLY 0
#elif defined(__riscv_xlen) && __riscv_xlen == 32
#define LONG_MULTIPLY 0
#else
#define LONG_MULTIPLY 1
#endif
#endif
"""

_HIGH_MULTIPLY = """\
/* Whether one instruction computes the upper half of a product of 32 bits by 32. */
#ifndef HIGH_MULTIPLY
#if defined(__ARM_ARCH_6M__) || defined(__ARM_ARCH_8M_BASE__)
#define HIGH_MULTIPLY 0
#else
#define HIGH_MULTIPLY 1
#endif
#endif
"""

_DSP_ASSEMBLY = """\
/* Whether functions may be written in the assembly of a Cortex-M with DSP instructions. */
#ifndef DSP_ASSEMBLY
#if !defined(__ARM_FEATURE_DSP) || !defined(__ARM_ARCH_PROFILE) || !defined(__GNUC__)
#define DSP_ASSEMBLY 0
#elif __ARM_ARCH_PROFILE != 'M' || (!defined(__clang__) && __GNUC__ < 8)
#define DSP_ASSEMBLY 0
#else
#define DSP_ASSEMBLY 1
#endif
#endif
"""

_HELIUM_ASSEMBLY = """\
/* Whether that assembly may use Helium. */
#ifndef HELIUM_ASSEMBLY
#if !DSP_ASSEMBLY || !defined(__ARM_FEATURE_MVE)
#define HELIUM_ASSEMBLY 0
#else
#define HELIUM_ASSEMBLY 1
#endif
#endif
"""

_THUMB_ASSEMBLY = """\
/* Whether functions may be written in the assembly of a Cortex-M without DSP instructions. */
#ifndef THUMB_ASSEMBLY
#if DSP_ASSEMBLY || !defined(__ARM_ARCH_PROFILE) || !defined(__GNUC__)
#define THUMB_ASSEMBLY 0
#elif __ARM_ARCH_PROFILE != 'M' || (!defined(__clang__) && __GNUC__ < 8) || LONG_MULTIPLY >= __ARM_ARCH_ISA_THUMB
#define THUMB_ASSEMBLY 0
#else
#define THUMB_ASSEMBLY 1
#endif
#endif
"""

HELPERS = {
    "leading_zeros": _LEADING_ZEROS,
    "truncated": _TRUNCATED,
    "float64_of_bits": _FLOAT64_OF_BITS,
    "truncated_quotient": _TRUNCATED_QUOTIENT,
    "rint_float": _RINT,
    "sqrt_float": _SQRT,
    **{
        f"{name}_{suffix}": template.replace("TYPE", c_type).replace("NAME", suffix)
        for name, template in _TEMPLATES.items()
        for suffix, c_type in _NAMES.items()
    },
}
"""Definition of each helper, by name."""

_CALL = re.compile(r"\b(" + "|".join(HELPERS) + r")\(")

CONSTANTS = {
    "LONG_MULTIPLY": _LONG_MULTIPLY,
    "HIGH_MULTIPLY": _HIGH_MULTIPLY,
    "DSP_ASSEMBLY": _DSP_ASSEMBLY,
    "HELIUM_ASSEMBLY": _HELIUM_ASSEMBLY,
    "THUMB_ASSEMBLY": _THUMB_ASSEMBLY,
}
"""Definition of each macro of `BuildConstant`, by name."""


def helpers_of(source: str) -> list[str]:
    """Return the definitions of the helpers and macros that a source uses."""
    called = set(_CALL.findall(source))
    constants: list[str] = []
    # A macro uses only those before it.
    for name, definition in reversed(CONSTANTS.items()):
        if any(name in text for text in (source, *constants)):
            constants.insert(0, definition)
    return [*constants, *(definition for name, definition in HELPERS.items() if name in called)]
