"""What firmware calls to add a model's operators: methods of TFLM's resolver, and registrations for one type alone."""

from __future__ import annotations

import re

from tflm.schema.enums import BuiltinOperator, TensorType
from tflm.schema.model import Model
from tflm.schema.tables import Operator, SubGraph

CAPITALS = {
    "Batchmatmul": "BatchMatMul",
    "BatchMatmul": "BatchMatMul",
    "Cumsum": "CumSum",
    "Padv2": "PadV2",
    "UnidirectionalSequenceLstm": "UnidirectionalSequenceLSTM",
}
"""Method names of TFLM's resolver that don't follow from the operator's."""

TYPED_OPERATORS = frozenset(
    {
        "ADD",
        "AVERAGE_POOL_2D",
        "CONV_2D",
        "DEPTHWISE_CONV_2D",
        "FULLY_CONNECTED",
        "MUL",
        "SOFTMAX",
        "SVDF",
    }
)
"""Operators whose registration for int8 alone was measured: Register_CONV_2D_INT8 and its like, of CMSIS-NN."""


def resolver_method(operator: str) -> str:
    """The method of TFLM's resolver that adds an operator: AddConv2D for CONV_2D, AddWindow for SignalWindow."""
    words = re.sub("^(Signal|TFLite_|TFLM_)", "", operator)
    if "_" in words or "-" in words or words.isupper() or words in BuiltinOperator.__members__:
        words = "".join(word[:1].upper() + word[1:].lower() for word in re.split("[_-]", words))
        words = re.sub("([0-9])d$", r"\1D", words)
    if operator == "SignalPCAN":
        words = "PCAN"
    return f"Add{CAPITALS.get(words, words)}"


def operators_of(model: Model) -> list[str]:
    """Every operator that any subgraph uses, once, in alphabetical order."""
    return sorted({model.operator_name(op) for subgraph in model.subgraphs for op in subgraph.operators or ()})


def typed_registrations(model: Model) -> dict[str, str]:
    """For each operator that a model has in int8 alone and that has a registration for it, that one's name."""
    others = {
        model.operator_name(operator)
        for subgraph in model.subgraphs
        for operator in subgraph.operators or ()
        if not _is_int8(subgraph, operator)
    }
    names = (name for name in operators_of(model) if name in TYPED_OPERATORS - others)
    return {name: f"{name}_INT8" for name in names}


def _is_int8(subgraph: SubGraph, operator: Operator) -> bool:
    """Whether input, weights or second input, and output are of int8."""
    tensors = subgraph.tensors or []
    places = [*(operator.inputs or [])[:2], *(operator.outputs or [])[:1]]
    return all(place >= 0 and tensors[place].type == TensorType.INT8 for place in places)
