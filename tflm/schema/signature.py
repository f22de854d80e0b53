"""An operator as a file describes it: its options, and types, shapes and quantization of its tensors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tflm.schema.enums import BuiltinOperator, TensorType
from tflm.schema.tables import Operator, QuantizationParameters, SubGraph, Tensor


@dataclass(frozen=True)
class Signature:
    """An operator as seen by the rules of versions and shapes.

    Attributes:
        operator: the builtin operator.
        inputs, outputs: its tensors; None for an omitted one.
        options: its table of options, or None.
    """

    operator: BuiltinOperator
    inputs: tuple[Tensor | None, ...]
    outputs: tuple[Tensor | None, ...]
    options: Any = None

    def type(self, index: int) -> TensorType | None:
        """Type of an input; None if it is missing."""
        tensor = self.input(index)
        return None if tensor is None else tensor.type

    def output_type(self, index: int) -> TensorType | None:
        """Type of an output; None if it is missing."""
        tensor = self.outputs[index] if index < len(self.outputs) else None
        return None if tensor is None else tensor.type

    def input(self, index: int) -> Tensor | None:
        """An input; None if it is missing."""
        return self.inputs[index] if index < len(self.inputs) else None

    def shape(self, index: int) -> tuple[int, ...]:
        """Shape of an input; () if it is missing."""
        tensor = self.input(index)
        return () if tensor is None else tensor.shape or ()

    def option(self, name: str) -> Any:
        """The value of an option; None if it does not exist."""
        return getattr(self.options, name, None)

    def has_scale_for_each_slice(self, index: int, dimension: int) -> bool:
        """Whether an input has one scale for each slice along a dimension."""
        scales, shape = scales_of(self.input(index)), self.shape(index)
        return bool(scales) and dimension < len(shape) and len(scales) == shape[dimension]


def signature_of(operator: BuiltinOperator, table: Operator, subgraph: SubGraph) -> Signature:
    """The signature of a builtin operator by its index in a subgraph."""

    def tensors(indices: tuple[int, ...] | None) -> tuple[Tensor | None, ...]:
        every = subgraph.tensors or ()
        return tuple(every[i] if 0 <= i < len(every) else None for i in indices or ())

    options = table.builtin_options if table.builtin_options is not None else table.builtin_options_2
    return Signature(operator, tensors(table.inputs), tensors(table.outputs), options)


def scales_of(tensor: Tensor | None) -> tuple[float, ...]:
    """The scales of a tensor; () if it has none."""
    quantization: QuantizationParameters | None = None if tensor is None else tensor.quantization
    return () if quantization is None else tuple(quantization.scale or ())
