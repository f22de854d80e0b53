"""A model of one operator, put together operand by operand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from flatbuffers import flexbuffers
from hypothesis import strategies as st

from tflm.schema import ELEMENT_TYPES, BuiltinOperator, ModelBuilder, QuantizationParameters, TensorType, quantized
from tflm.testing.drawing import FLOAT32, LARGE_SHAPE, Arrays, Draw, OperatorCase, shapes, values

Output = tuple[Sequence[int], TensorType, "QuantizationParameters | None"]


class SingleOperator:
    """Operands in the order in which they are added, and what each invoke feeds to those that are inputs."""

    def __init__(self, invokes: int = 1):
        self.builder = ModelBuilder()
        self.main = self.builder.subgraph()
        self.operands: list[int] = []
        self.invocations: list[Arrays] = [[] for _ in range(invokes)]

    def input(
        self, type: TensorType, elements: Sequence[npt.NDArray[Any]], parameters: QuantizationParameters | None = None
    ) -> None:
        """An operand with other elements in each invoke."""
        name = f"x{len(self.operands)}"
        self.operands.append(self.main.input(name, elements[0].shape, type, parameters))
        for invocation, array in zip(self.invocations, elements):
            invocation.append(array)

    def drawn(
        self, draw: Draw, type: TensorType, shape: tuple[int, ...], parameters: QuantizationParameters | None = None
    ) -> None:
        """An input with any elements."""
        self.input(type, [any_values(draw, type, shape) for _ in self.invocations], parameters)

    def constant(self, elements: npt.ArrayLike, parameters: QuantizationParameters | None = None) -> None:
        """An operand that is in the model."""
        self.operands.append(self.main.constant(f"c{len(self.operands)}", elements, parameters))

    def either(
        self, draw: Draw, elements: npt.ArrayLike, type: TensorType, parameters: QuantizationParameters | None = None
    ) -> None:
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


def custom_options(numbers: Mapping[str, Any]) -> bytes:
    """Options of a custom operator, as a flexbuffer."""
    return bytes(flexbuffers.Dumps(dict(sorted(numbers.items()))))


def any_values(draw: Draw, type: TensorType, shape: tuple[int, ...]) -> npt.NDArray[Any]:
    """Elements of any type that numpy has."""
    dtype = ELEMENT_TYPES[type].dtype
    return values(draw, FLOAT32 if dtype.kind in "fc" else type, shape).astype(dtype)


Quantization = QuantizationParameters | None


def unary(
    operator: BuiltinOperator,
    draw: Draw,
    types: tuple[TensorType, TensorType],
    quantizations: tuple[Quantization, Quantization],
    options: Any = None,
    shape: tuple[int, ...] | None = None,
) -> OperatorCase:
    """A model of one operator with one input, run once."""
    dims = shape or draw(shapes())
    model = SingleOperator()
    model.drawn(draw, types[0], dims, quantizations[0])
    return model.case(operator, [(dims, types[1], quantizations[1])], options)


def large(
    operator: BuiltinOperator,
    types: tuple[TensorType, ...],
    quantizations: tuple[Quantization, ...] | None = None,
    options: Any = None,
) -> OperatorCase:
    """A model of one operator over large tensors of one shape; the last type is the output's.

    Integers have an ordinary quantization by default.
    """
    if quantizations is None:
        quantizations = tuple(None if type == FLOAT32 else quantized(0.01 * (i + 1)) for i, type in enumerate(types))
    rng, model = np.random.default_rng(0), SingleOperator()
    for type, parameters in zip(types[:-1], quantizations):
        model.input(type, [rng.integers(1, 100, LARGE_SHAPE).astype(ELEMENT_TYPES[type].dtype)], parameters)
    return model.case(operator, [(LARGE_SHAPE, types[-1], quantizations[-1])], options)
