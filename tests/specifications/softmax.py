"""SOFTMAX of int8, to int8 or int16: distance from the maximum, exponent, sum, reciprocal."""

from __future__ import annotations

from .example import Example
from .fixed_point import (
    INT32_MAX,
    exp_on_negative,
    multiply,
    quantize_multiplier,
    reciprocal_of_one_plus,
    rounding_divide_by_pot,
    saturating_rounding_doubling_high_mul,
)

DISTANCE_BITS = 5
"""Integer bits of a scaled distance, Q5.26."""

SUM_BITS = 12
"""Integer bits of the sum of exponents, Q12.19."""


def softmax(example: Example) -> list[int]:
    """Along the last dimension."""
    x, y = example.input(0), example.output
    bits = 8 if y.type.name == "INT8" else 16
    real = min(example.options.beta * x.scale * 2 ** (31 - DISTANCE_BITS), float(INT32_MAX))
    multiplier = quantize_multiplier(real)
    furthest = -int(((2**DISTANCE_BITS - 1) * 2 ** (31 - DISTANCE_BITS)) / 2 ** multiplier[1])
    result = []
    for row in x.values.reshape(-1, x.shape[-1] if x.shape else 1).tolist():
        largest = max(row)
        near = [value - largest if value - largest >= furthest else None for value in row]
        exponents = [None if d is None else exp_on_negative(multiply(d, multiplier), DISTANCE_BITS) for d in near]
        total = sum(rounding_divide_by_pot(e, SUM_BITS) for e in exponents if e is not None)
        headroom = 32 - total.bit_length()
        scale = reciprocal_of_one_plus((total << headroom) - 2**31)
        shift = SUM_BITS - headroom + 31 - bits
        for exponent in exponents:
            if exponent is None:
                result.append(-(2 ** (bits - 1)))
                continue
            value = rounding_divide_by_pot(saturating_rounding_doubling_high_mul(scale, exponent), shift)
            result.append(min(max(value - 2 ** (bits - 1), -(2 ** (bits - 1))), 2 ** (bits - 1) - 1))
    return result
