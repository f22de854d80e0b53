"""A model of one operator, put together operand by operand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from flatbuffers import flexbuffers
from hypothesis import strategies as st

from tflm.kernels import REGISTRATIONS
from tflm.kernels.shapes import Shapes, StaticNode
from tflm.schema import ELEMENT_TYPES, BuiltinOperator, ModelBuilder, QuantizationParameters, TensorType
from tflm.testing.drawing import FLOAT32, Arrays, Draw, OperatorCase, values

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
