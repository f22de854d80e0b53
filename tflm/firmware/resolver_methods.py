"""Methods of TFLM's resolver that add a model's operators, and single-type registrations."""

from __future__ import annotations

from tflm.kernels import REGISTRATIONS, Registration
from tflm.schema.enums import TensorType
from tflm.schema.model import Model
from tflm.schema.tables import Operator, SubGraph


def resolver_method(operator: str) -> str:
    """The method of TFLM's resolver that adds an operator, even one that this package lacks."""
    return REGISTRATIONS.get(operator, Registration(operator)).resolver_method


def operators_of(model: Model) -> list[str]:
    """Every operator that any subgraph uses, once, in alphabetical order."""
    return sorted({model.operator_name(op) for subgraph in model.subgraphs for op in subgraph.operators or ()})


def typed_registrations(model: Model) -> dict[str, str]:
    """Typed registrations, by operator, for operators that the model uses only in int8."""
    others = {
        model.operator_name(operator)
        for subgraph in model.subgraphs
        for operator in subgraph.operators or ()
        if not _is_int8(subgraph, operator)
    }
    names = (name for name in operators_of(model) if name in REGISTRATIONS and name not in others)
    return {name: f"{name}_INT8" for name in names if REGISTRATIONS[name].int8_registration}


def _is_int8(subgraph: SubGraph, operator: Operator) -> bool:
    """Whether input, weights or second input, and output are of int8."""
    tensors = subgraph.tensors or []
    places = [*(operator.inputs or [])[:2], *(operator.outputs or [])[:1]]
    return all(place >= 0 and tensors[place].type == TensorType.INT8 for place in places)
