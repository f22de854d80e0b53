"""Facts about an operator of a model: what the model says of it, read by what its registration declares."""

from __future__ import annotations

from tflm.kernels import REGISTRATIONS
from tflm.kernels.overlap import OperatorFacts, TensorFacts
from tflm.kernels.registration import Registration
from tflm.schema.enums import BuiltinOperator
from tflm.schema.model import Model
from tflm.schema.tables import Model as Root
from tflm.schema.tables import Operator, OperatorCode, SubGraph
from tflm.schema.verifier import builtin_code, called_subgraphs, code_name

OPAQUE = Registration("an operator of which nothing is known", opaque=True)


def operator_facts(model: Root, subgraph: SubGraph, operator: Operator) -> OperatorFacts:
    """What the model says of an operator and its tensors."""
    tensors, buffers = subgraph.tensors or [], model.buffers or []

    def facts(index: int) -> TensorFacts:
        data = buffers[tensors[index].buffer].data
        return TensorFacts(tensors[index].type, tensors[index].shape or (), memoryview(data) if data else None)

    inputs = [facts(index) if index >= 0 else None for index in operator.inputs or ()]
    return OperatorFacts(inputs, [facts(index) for index in operator.outputs or ()], operator.builtin_options)


def multiply_accumulates(model: Model, subgraph: SubGraph, operator: Operator) -> int:
    """Multiply-accumulates of one run of an operator; 0 for what does not multiply weights."""
    registration = REGISTRATIONS.get(model.operator_name(operator))
    if registration is None or registration.multiply_accumulates is None or not operator.outputs:
        return 0
    tensors = subgraph.tensors or []
    inputs = [tensors[i].shape or () if i >= 0 else () for i in operator.inputs or ()]
    try:
        return registration.multiply_accumulates(inputs, tensors[operator.outputs[0]].shape or ())
    except IndexError:  # tensors are left out that the formula counts on; the operator will be refused when it runs
        return 0


def has_state(code: OperatorCode, operator: Operator, subgraph: SubGraph) -> bool:
    """Whether an operator looks at or changes more than its own tensors, or a variable among these.

    A custom operator that the package does not know may; a builtin one does not.
    """
    tensors = subgraph.tensors or []
    if any(t >= 0 and tensors[t].is_variable for t in (*(operator.inputs or ()), *(operator.outputs or ()))):
        return True
    registration = REGISTRATIONS.get(code_name(code))
    shares_state = registration.shares_state if registration else builtin_code(code) is BuiltinOperator.CUSTOM
    return shares_state or bool(called_subgraphs(operator))
