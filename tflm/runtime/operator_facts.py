"""Facts about operators from their registrations: multiply-accumulates and state."""

from __future__ import annotations

from tflm.kernels import REGISTRATIONS
from tflm.schema.enums import BuiltinOperator
from tflm.schema.model import Model
from tflm.schema.tables import Operator, OperatorCode, SubGraph, builtin_code, called_subgraphs, code_name


def multiply_accumulates(model: Model, subgraph: SubGraph, operator: Operator) -> int:
    """Multiply-accumulates of one run of an operator; 0 without weights."""
    registration = REGISTRATIONS.get(model.operator_name(operator))
    if registration is None or registration.multiply_accumulates is None or not operator.outputs:
        return 0
    tensors = subgraph.tensors or []
    inputs = [tensors[i].shape or () if i >= 0 else () for i in operator.inputs or ()]
    try:
        return registration.multiply_accumulates(inputs, tensors[operator.outputs[0]].shape or ())
    except IndexError:  # an input is missing; the operator will be rejected when it runs
        return 0


def has_state(code: OperatorCode, operator: Operator, subgraph: SubGraph) -> bool:
    """Whether an operator accesses state other than its own tensors, or a variable among these.

    This is assumed of unknown custom operators, but not of unknown builtin ones.
    """
    tensors = subgraph.tensors or []
    if any(t >= 0 and tensors[t].is_variable for t in (*(operator.inputs or ()), *(operator.outputs or ()))):
        return True
    registration = REGISTRATIONS.get(code_name(code))
    shares_state = registration.shares_state if registration else builtin_code(code) is BuiltinOperator.CUSTOM
    return shares_state or bool(called_subgraphs(operator))
