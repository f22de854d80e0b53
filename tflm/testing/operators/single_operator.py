"""A model of one operator, put together operand by operand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from hypothesis import strategies as st

from tflm.schema import ELEMENT_TYPES, BuiltinOperator, ModelBuilder, QuantizationParameters, TensorType
from tflm.testing.drawing import FLOAT32, Arrays, Draw, OperatorCase, values

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

    def either(self, draw: Draw, numbers: npt.ArrayLike, type: TensorType) -> None:
        """An operand that says something: a constant, or an input that is the same in each invoke."""
        array = np.asarray(numbers, ELEMENT_TYPES[type].dtype)
        if draw(st.booleans()):
            self.constant(array)
        else:
            self.input(type, [array] * len(self.invocations))

    def case(self, operator: BuiltinOperator, outputs: Sequence[Output], options: Any = None) -> OperatorCase:
        """The model with these outputs."""
        tensors = [self.main.tensor(f"y{i}", *output) for i, output in enumerate(outputs)]
        self.main.operator(operator, self.operands, tensors, options)
        self.main.output(*tensors)
        return self.builder.build(), self.invocations


def any_values(draw: Draw, type: TensorType, shape: tuple[int, ...]) -> npt.NDArray[Any]:
    """Elements of any type that numpy has."""
    dtype = ELEMENT_TYPES[type].dtype
    return values(draw, FLOAT32 if dtype.kind in "fc" else type, shape).astype(dtype)
