"""Tensors whose values stay from one invoke to the next."""

from __future__ import annotations

from tflm.kernels import OPAQUE, REGISTRATIONS
from tflm.schema.model import Model


def lasting_tensors(model: Model) -> list[set[int]]:
    """For each subgraph, its variables, and outputs of operators that may end an invoke, which the next one reads."""
    lasting = []
    for subgraph in model.subgraphs:
        variables = {i for i, table in enumerate(subgraph.tensors or ()) if table.is_variable}
        enders = [
            operator
            for operator in subgraph.operators or ()
            if REGISTRATIONS.get(model.operator_name(operator), OPAQUE).ends_invoke
        ]
        lasting.append(variables.union(*(operator.outputs or () for operator in enders)))
    return lasting
