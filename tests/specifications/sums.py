"""ADD, SUB and MUL of int8 with inputs that broadcast."""

from __future__ import annotations

from itertools import product

from .example import Example, Tensor, clamp
from .fixed_point import multiply, quantize_multiplier

LEFT_SHIFT = 20
"""Bits that inputs of 8 bits gain before they are brought to one scale."""


def add(example: Example) -> list[int]:
    """Scale both inputs to twice the larger of their scales, then add them."""
    return _sum(example, +1)


def sub(example: Example) -> list[int]:
    """Likewise, with the second input's sign turned."""
    return _sum(example, -1)


def mul(example: Example) -> list[int]:
    """The product of what lies above the zero points, requantized once."""
    a, b, y = example.input(0), example.input(1), example.output
    limits = y.clamp_to(example.options.fused_activation_function)
    multiplier = quantize_multiplier(a.scale * b.scale / y.scale)
    result = []
    for place in product(*map(range, y.shape)):
        raw = (_broadcast(a, place) - a.zero_point) * (_broadcast(b, place) - b.zero_point)
        result.append(clamp(multiply(raw, multiplier) + y.zero_point, limits))
    return result


def _sum(example: Example, sign: int) -> list[int]:
    a, b, y = example.input(0), example.input(1), example.output
    limits = y.clamp_to(example.options.fused_activation_function)
    twice_the_larger = 2 * max(a.scale, b.scale)
    of_a, of_b = (quantize_multiplier(x.scale / twice_the_larger) for x in (a, b))
    of_y = quantize_multiplier(twice_the_larger / (2**LEFT_SHIFT * y.scale))
    result = []
    for place in product(*map(range, y.shape)):
        left = multiply((_broadcast(a, place) - a.zero_point) << LEFT_SHIFT, of_a)
        right = multiply((_broadcast(b, place) - b.zero_point) << LEFT_SHIFT, of_b)
        result.append(clamp(multiply(left + sign * right, of_y) + y.zero_point, limits))
    return result


def _broadcast(x: Tensor, place: tuple[int, ...]) -> int:
    """Return the element of an input whose dimensions of 1 are broadcast."""
    own = place[len(place) - len(x.shape) :]
    return x[tuple(0 if size == 1 else at for size, at in zip(x.shape, own))]
