"""Versions of an operator as a table of the features that each added; the first matching row determines the version.

The conditions are those of TFLite's versioning tool (`op_version.cc`). Where that tool looks at an output that the
operator does not have (16-bit weights of convolutions), the operator's own output is meant here.

A signature is an operator as a file describes it: its options, and types, shapes and quantization of its tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
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


Condition = Callable[[Signature], bool]


@dataclass(frozen=True)
class Feature:
    """A feature that a version of an operator added.

    Attributes:
        brought: the feature in a few words; None for the lowest version of an operator that lost its first.
        holds: tests whether an operator uses it.
    """

    brought: str | None
    holds: Condition

    def __call__(self, signature: Signature) -> bool:
        """Whether an operator uses the feature."""
        return self.holds(signature)


Versions = Mapping[int, Feature]
"""Features by version. An operator that uses none of them needs version 1."""

BOTH_OF_8_BITS = ("FLOAT8_E4M3FN", "FLOAT8_E5M2")
"""Types that the name FLOAT8 means below."""


def input_is(*types: str, index: int = 0) -> Feature:
    """An input has one of these types, by name."""
    members = _types(types)
    return Feature(_words(members), lambda signature: signature.type(index) in members)


def output_is(*types: str) -> Feature:
    """The first output has one of these types, by name."""
    members = _types(types)
    return Feature(_words(members), lambda signature: signature.output_type(0) in members)


def input_or_output_is(*types: str) -> Feature:
    """The first input or the first output has one of these types, by name."""
    return Feature(_words(_types(types)), either(input_is(*types), output_is(*types)))


def _types(names: Sequence[str]) -> list[TensorType]:
    return [TensorType[each] for name in names for each in (BOTH_OF_8_BITS if name == "FLOAT8" else (name,))]


def _words(types: Sequence[TensorType]) -> str:
    return " and ".join(type.name for type in types)


def by_input(*, index: int = 0, **versions: int) -> Versions:
    """The version that each type of an input needs, by the type's name: `by_input(INT16=3, INT8=2, UINT8=2)`."""
    return {
        version: input_is(*names, index=index) for version, names in groupby(versions, key=lambda name: versions[name])
    }


def option(name: str) -> Feature:
    """An option is set: true, not 0, not the first of its values."""
    return Feature(name, lambda signature: bool(signature.option(name)))


def rank_above(rank: int) -> Feature:
    """The first input has more dimensions than this."""
    return Feature(f"more than {rank} dimensions", lambda signature: len(signature.shape(0)) > rank)


def every(*conditions: Condition) -> Condition:
    """All conditions hold."""
    return lambda signature: all(holds(signature) for holds in conditions)


def either(*conditions: Condition) -> Condition:
    """Return a condition that is true if at least one of these is."""
    return lambda signature: any(holds(signature) for holds in conditions)


def no(condition: Condition) -> Condition:
    """The condition does not hold."""
    return lambda signature: not condition(signature)


def signed(activations: str, weights: str, index: int = 1) -> Condition:
    """Input and output have one type, and the weights, input `index`, another."""
    return every(input_is(activations), input_is(weights, index=index), output_is(activations))


def quantized(*indices: int) -> Condition:
    """Return a condition that is true if at least one of these inputs is quantized."""

    def holds(signature: Signature) -> bool:
        inputs = (signature.input(index) for index in indices)
        return any(tensor is not None and tensor.quantization is not None for tensor in inputs)

    return holds


def _broadcasts_beyond_four_dimensions(signature: Signature) -> bool:
    ranks = [len(signature.shape(index)) for index in range(len(signature.inputs))]
    return len(ranks) > 1 and signature.shape(0) != signature.shape(1) and max(ranks) > 4


def hybrid(index: int = 1) -> Feature:
    """Activations of float32 with weights, input `index`, of int8."""
    return Feature("INT8 weights with FLOAT32 activations", signed("FLOAT32", "INT8", index))


def asymmetric_hybrid(index: int = 1) -> Feature:
    """Hybrid, and the activations are quantized with a zero point."""
    holds = every(hybrid(index), option("asymmetric_quantize_inputs"))
    return Feature("asymmetric quantization of hybrid inputs", holds)


def hybrid_by_channel(dimension: int) -> Feature:
    """Hybrid, and the weights have a scale for each slice along a dimension."""
    holds = every(hybrid(), lambda signature: signature.has_scale_for_each_slice(1, dimension))
    return Feature("hybrid weights with a scale for each channel", holds)


BEYOND_FOUR_DIMENSIONS = Feature("broadcasting of more than 4 dimensions", _broadcasts_beyond_four_dimensions)
INT16_ACTIVATIONS = Feature("INT16", every(input_is("INT16"), output_is("INT16")))
INT16_INDICES = Feature("INT16 indices", input_is("INT16", index=1))
INT16_WEIGHTS = Feature("INT16 weights", signed("INT16", "INT16"))
INT8_WEIGHTS = Feature("INT8", signed("INT8", "INT8"))
INT4_WEIGHTS = Feature("INT4 weights", signed("INT8", "INT4"))
QUANTIZED_BIAS = Feature("quantized_bias_type", every(signed("INT16", "INT8"), option("quantized_bias_type")))
