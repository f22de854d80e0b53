"""Types, scales, shapes and values, of which the strategies for models are made.

Strategies are cached, since hypothesis validates each new one.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import strategies as st

from tflm.schema import ELEMENT_TYPES, ActivationFunctionType, QuantizationParameters, TensorType, quantized

Arrays = list[np.ndarray[Any, Any]]

OperatorCase = tuple[bytes, list[Arrays]]
"""A model, and the inputs of one or more invokes in turn."""

Draw = Callable[[st.SearchStrategy[Any]], Any]

INT8, INT16, INT32, INT64, UINT8, FLOAT32 = (
    TensorType.INT8,
    TensorType.INT16,
    TensorType.INT32,
    TensorType.INT64,
    TensorType.UINT8,
    TensorType.FLOAT32,
)

ACTIVATIONS = st.sampled_from(
    [
        ActivationFunctionType.NONE,
        ActivationFunctionType.RELU,
        ActivationFunctionType.RELU_N1_TO_1,
        ActivationFunctionType.RELU6,
    ]
)


@functools.cache
def scales(lowest: int = -20, highest: int = 8) -> st.SearchStrategy[float]:
    """Draw scales from 2^lowest to 2^highest, with the same number in each octave."""
    octave = st.integers(lowest, highest - 1)
    return st.builds(lambda o, m: float(np.float32(m * 2.0**o)), octave, st.floats(1, 2, width=32))


@functools.cache
def factors(lowest: int, highest: int) -> st.SearchStrategy[float]:
    """Factors between scales; as often as not a power of two, next to which rounding decides."""
    powers = st.integers(lowest, highest).map(lambda exponent: 2.0**exponent)
    return powers | scales(lowest, highest) | scales(max(lowest, -3), min(highest, 3))


def float32(value: float) -> float:
    """A scale as a model can hold it."""
    return float(np.float32(value))


@functools.cache
def zero_points(type: TensorType) -> st.SearchStrategy[int]:
    """Zero points of a type: 0 for 16 bits and more, anything for 8."""
    if type in (INT8, UINT8):
        limits = np.iinfo(ELEMENT_TYPES[type].dtype)
        return st.integers(int(limits.min), int(limits.max))
    return st.just(0)


def quantization(draw: Draw, type: TensorType, lowest: int = -30, highest: int = 12) -> QuantizationParameters | None:
    """Quantization for a type; None for floats."""
    if type == FLOAT32:
        return None
    return quantized(draw(scales(lowest, highest)), draw(zero_points(type)))


def scale_of(parameters: QuantizationParameters | None) -> float:
    """The first scale, 1 without one."""
    return parameters.scale[0] if parameters is not None and parameters.scale else 1.0


def zero_point_of(parameters: QuantizationParameters | None) -> int:
    """The first zero point, 0 without one."""
    return parameters.zero_point[0] if parameters is not None and parameters.zero_point else 0


BLOCKS = (4, 8, 16, 32)
"""Elements that kernels process at once."""


@functools.cache
def sizes(largest: int) -> st.SearchStrategy[int]:
    """Sizes of an innermost dimension: small, or next to a multiple of what kernels process at once."""
    return st.integers(1, largest) | st.sampled_from([block + beyond for block in BLOCKS for beyond in (-1, 0, 1)])


@functools.cache
def shapes(minimum_rank: int = 1, maximum_rank: int = 4, largest: int = 6) -> st.SearchStrategy[tuple[int, ...]]:
    """Small shapes, one of three with an innermost dimension next to a block of kernels."""
    small = st.lists(st.integers(1, largest), min_size=minimum_rank, max_size=maximum_rank).map(tuple)
    return small | small | st.builds(lambda shape, size: (*shape[:-1], size) if shape else shape, small, sizes(largest))


def values(draw: Draw, type: TensorType, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """Elements over the whole range of a type, its ends included; floats of all sizes up to 2^10."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    dtype = ELEMENT_TYPES[type].dtype
    if type == FLOAT32:
        return (rng.standard_normal(shape) * 2.0 ** rng.integers(-4, 6)).astype(np.float32)
    if type == TensorType.BOOL:
        return rng.integers(0, 2, shape).astype(dtype)
    limits = np.iinfo(dtype)
    array = rng.integers(limits.min, limits.max, shape, dtype, endpoint=True)
    flat = array.reshape(-1)
    flat[: flat.size // 4] = rng.choice(np.array([limits.min, limits.max, 0], dtype), flat.size // 4)
    return array


LARGE_SHAPE = (1, 64, 64, 32)


def rescaled(draw: Draw, type: TensorType, input: QuantizationParameters | None) -> QuantizationParameters | None:
    """Quantization for an output, from 2^-40 to 2^40 times that of the input."""
    if type == FLOAT32:
        return None
    return quantized(float32(scale_of(input) * draw(factors(-40, 40))), draw(zero_points(type)))


@functools.cache
def _shapes_to_broadcast(maximum_rank: int) -> st.SearchStrategy[tuple[int, ...]]:
    return shapes(1, 4, 5) | shapes(0, maximum_rank, 3)


@functools.cache
def _booleans(count: int) -> st.SearchStrategy[list[bool]]:
    return st.lists(st.booleans(), min_size=count, max_size=count)


def broadcast_shapes(draw: Draw, maximum_rank: int = 4) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Two shapes that go together: equal, or with dimensions of 1 and left out here and there."""
    shape = draw(_shapes_to_broadcast(maximum_rank))
    pair = []
    for _ in range(2):
        kept = draw(_booleans(len(shape)))
        thinned = tuple(d if keep else 1 for d, keep in zip(shape, kept))
        pair.append(draw(st.sampled_from([shape, thinned, thinned[draw(st.integers(0, max(len(shape) - 1, 0))) :]])))
    return pair[0], pair[1]
