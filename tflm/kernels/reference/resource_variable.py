"""VAR_HANDLE, ASSIGN_VARIABLE and READ_VARIABLE: state that lives from one invoke to the next, found by name.

A variable is as large as the first value that is assigned to it, and holds the zero point of that value's
quantization (or zero) until then and after `reset`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tflm.errors import OperatorError
from tflm.kernels.node import KernelContext, Node
from tflm.kernels.registration import Refusal, Registration, Run
from tflm.kernels.requests import TempInput, always, tensors
from tflm.kernels.support.checks import element_count, require_type
from tflm.memory.tensor import TfLiteEvalTensor
from tflm.schema.enums import BuiltinOperator, TensorType
from tflm.schema.options import VarHandleOptions
from tflm.targets import INT, INT32, POINTER, Struct, When

TFLITE_VAR_HANDLE_PARAMS = Struct("TfLiteVarHandleParams", container=POINTER, shared_name=POINTER)
OP_DATA_VAR_HANDLE = Struct("var_handle.cc:OpData", resource_id=INT32)
OP_DATA_ASSIGN_VARIABLE = Struct("assign_variable.cc:OpData", scratch_index=INT)


def _prepare_var_handle(context: KernelContext, node: Node) -> None:
    """The output's data is the id in the operator's own data, so the planner need not place it."""
    options = node.options(VarHandleOptions)
    resource_id = node.op_data.view(np.int32)
    resource_id[0] = context.find_or_create_resource(options.container or "", options.shared_name or "")
    output = node.eval_output(0)
    if element_count(output) != 1:
        raise OperatorError(f"has shape {list(output.dims)}, a handle is one element", tensor=output.name)
    require_type(output, TensorType.RESOURCE, TensorType.INT32)
    output.data = resource_id.reshape(output.dims)


def _bind_var_handle(context: KernelContext, node: Node) -> Run:
    return lambda: None


def _prepare_assign_variable(context: KernelContext, node: Node) -> None:
    node.expect(inputs=2, outputs=0)
    handle = node.eval_input(0)
    _check_handle(handle)
    value = node.input(1)
    context.allocate_requested(node)
    if handle.data is not None:
        context.allocate_resource(_id_in(handle.data), value)


def _bind_assign_variable(context: KernelContext, node: Node) -> Run:
    handle, value = node.eval_input(0), node.eval_input(1)
    ids, source = handle.elements, value.elements.reshape(-1)

    def run() -> None:
        np.copyto(variable(context, ids, value), source)

    return run


def _prepare_read_variable(context: KernelContext, node: Node) -> None:
    node.expect(inputs=1, outputs=1)
    _check_handle(node.eval_input(0))


def _bind_read_variable(context: KernelContext, node: Node) -> Run:
    handle, value = node.eval_input(0), node.eval_output(0)
    ids, target = handle.elements, value.elements.reshape(-1)

    def run() -> None:
        np.copyto(target, variable(context, ids, value))

    return run


def _check_handle(handle: TfLiteEvalTensor) -> None:
    require_type(handle, TensorType.RESOURCE, TensorType.INT32)
    if element_count(handle) != 1:
        raise OperatorError(f"has shape {list(handle.dims)}, a handle is one element", tensor=handle.name)


def _id_in(ids: npt.NDArray[Any]) -> int:
    return int(ids.reshape(-1)[0])


def variable(context: KernelContext, ids: npt.NDArray[Any], value: TfLiteEvalTensor) -> npt.NDArray[Any]:
    """The variable with this id as elements of the type of `value`, which must have its size."""
    data = context.get_resource(_id_in(ids))
    if len(data) != value.byte_length:
        raise OperatorError(f"has {value.byte_length} bytes, the variable has {len(data)}", tensor=value.name)
    return data.view(value.elements.dtype)


def _any(node: Node) -> bool:
    return True


CRASHES = (
    Refusal(_any, "it takes the context for the graph, and AllocateTensors() crashes", "f68887680", since="82f7e77f1"),
)

VAR_HANDLE = Registration(
    BuiltinOperator.VAR_HANDLE,
    _bind_var_handle,
    _prepare_var_handle,
    has_state=True,
    op_data=OP_DATA_VAR_HANDLE,
    builtin_data=TFLITE_VAR_HANDLE_PARAMS,
    refusals=CRASHES,
    since="26944780f",
)
ASSIGN_VARIABLE = Registration(
    BuiltinOperator.ASSIGN_VARIABLE,
    _bind_assign_variable,
    _prepare_assign_variable,
    has_state=True,
    op_data=When("compression", OP_DATA_ASSIGN_VARIABLE),
    requests=always(TempInput(1)),
    refusals=CRASHES,
    since="26944780f",
)
READ_VARIABLE = Registration(
    BuiltinOperator.READ_VARIABLE,
    _bind_read_variable,
    _prepare_read_variable,
    has_state=True,
    requests=tensors(1, 0),
    refusals=CRASHES,
    since="26944780f",
)
