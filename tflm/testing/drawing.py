"""Types, scales, shapes and values, of which the strategies for models are made, and models of one operator.

Strategies are cached, since hypothesis validates each new one.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from flatbuffers import flexbuffers
from hypothesis import strategies as st

from tflm.kernels import REGISTRATIONS
from tflm.kernels.shapes import Shapes, StaticNode
from tflm.schema import (
    ELEMENT_TYPES,
    ActivationFunctionType,
    BuiltinOperator,
    ModelBuilder,
    QuantizationParameters,
    TensorType,
    quantized,
)

Arrays = list[np.ndarray[Any, Any]]

OperatorCase = tuple[bytes, list[Arrays]]
"""A model, and the inputs of one or more invokes in turn."""

Draw = Callable[[st.SearchStrategy[Any]], Any]

INT8, INT16, INT32 = TensorType.INT8, TensorType.INT16, TensorType.INT32
INT64, UINT8, FLOAT32 = TensorType.INT64, TensorType.UINT8, TensorType.FLOAT32

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
    """Small shapes of each rank equally often, one of three with an innermost dimension next to a block of kernels."""
    size = st.sampled_from([*range(2, largest + 1), 1])  # the simplest shape has more than one element
    small = st.one_of([st.tuples(*[size] * rank) for rank in range(minimum_rank, maximum_rank + 1)])
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
    """Two shapes that go together: equal, or one or both with dimensions of 1 and left out here and there."""
    shape = draw(_shapes_to_broadcast(maximum_rank))
    pair = [shape, shape]
    for place in draw(st.sampled_from([(), (0,), (1,), (0, 1)])):
        is_repeated = draw(_booleans(len(shape)))
        thinned = tuple(1 if repeated else d for d, repeated in zip(shape, is_repeated))
        pair[place] = thinned[draw(st.just(0) | st.integers(0, max(len(shape) - 1, 0))) :]
    return pair[0], pair[1]


Quantization = QuantizationParameters | None

Output = tuple[Sequence[int], TensorType, Quantization]


class SingleOperator:
    """Operands in the order in which they are added, and what each invoke feeds to those that are inputs."""

    def __init__(self, invokes: int = 1):
        self.builder = ModelBuilder()
        self.main = self.builder.subgraph()
        self.operands: list[int] = []
        self.elements: list[npt.NDArray[Any]] = []
        self.invocations: list[Arrays] = [[] for _ in range(invokes)]

    def input(self, type: TensorType, elements: Sequence[npt.NDArray[Any]], parameters: Quantization = None) -> None:
        """An operand with other elements in each invoke."""
        name = f"x{len(self.operands)}"
        self.operands.append(self.main.input(name, elements[0].shape, type, parameters))
        self.elements.append(elements[0])
        for invocation, array in zip(self.invocations, elements):
            invocation.append(array)

    def drawn(self, draw: Draw, type: TensorType, shape: tuple[int, ...], parameters: Quantization = None) -> None:
        """An input with any elements."""
        self.input(type, [any_values(draw, type, shape) for _ in self.invocations], parameters)

    def constant(self, elements: npt.ArrayLike, parameters: Quantization = None, **packed: Any) -> None:
        """An operand that is in the model; `packed` has type and shape of elements that numpy does not have."""
        self.operands.append(self.main.constant(f"c{len(self.operands)}", elements, parameters, **packed))
        self.elements.append(np.asarray(elements, None))

    def omitted(self, count: int = 1) -> None:
        """Operands that are left out."""
        self.operands += [-1] * count
        self.elements += [np.zeros(0, np.float64)] * count

    def variable(self, type: TensorType, shape: tuple[int, ...], parameters: Quantization = None) -> None:
        """An operand that the operator changes."""
        name = f"state{len(self.operands)}"
        self.operands.append(self.main.tensor(name, shape, type, parameters, is_variable=True))
        self.elements.append(np.zeros(0, np.float64))

    def either(self, draw: Draw, elements: npt.ArrayLike, type: TensorType, parameters: Quantization = None) -> None:
        """An operand that is a constant, or an input with the same elements in each invoke."""
        array = np.asarray(elements, ELEMENT_TYPES[type].dtype)
        if draw(st.booleans()):
            self.constant(array, parameters)
        else:
            self.input(type, [array] * len(self.invocations), parameters)

    def case(
        self,
        operator: BuiltinOperator | str,
        outputs: Sequence[Output],
        options: Any = None,
        also: Sequence[int] = (),
        **numbers: Any,
    ) -> OperatorCase:
        """Return the model, and the inputs of each invoke.

        Args:
            operator: a builtin operator, or the name of a custom one.
            outputs: shape, type and quantization of each output of the operator.
            options: of a builtin operator.
            also: further tensors that are outputs of the model.
            numbers: options of a custom operator.
        """
        tensors = [self.main.tensor(f"y{i}", *output) for i, output in enumerate(outputs)]
        custom = custom_options(numbers) if isinstance(operator, str) else None
        self.main.operator(operator, self.operands, tensors, options, custom_options=custom)
        self.main.output(*tensors, *also)
        return self.builder.build(), self.invocations

    def inferred(self, operator: str, options: Any) -> Shapes:
        """Shapes of the outputs of a builtin operator, by the rule of its registration."""
        rule = REGISTRATIONS[operator].shape_rule
        assert rule is not None, f"{operator} has no rule for the shapes of its outputs"
        tables = self.main.table.tensors or []
        inputs = tuple(None if tensor < 0 else tables[tensor] for tensor in self.operands)
        outputs = (None,) * getattr(options, "num_splits", getattr(options, "num", 1))
        return rule(StaticNode(BuiltinOperator[operator], inputs, outputs, options, self.elements.__getitem__))


def custom_options(numbers: Mapping[str, Any]) -> bytes:
    """Options of a custom operator, as a flexbuffer."""
    return bytes(flexbuffers.Dumps(dict(sorted(numbers.items()))))


def any_values(draw: Draw, type: TensorType, shape: Sequence[int]) -> npt.NDArray[Any]:
    """Elements of any type that numpy has."""
    dtype = ELEMENT_TYPES[type].dtype
    return values(draw, FLOAT32 if dtype.kind in "fc" else type, tuple(shape)).astype(dtype)
