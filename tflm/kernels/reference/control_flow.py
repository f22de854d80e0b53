"""IF, WHILE and CALL_ONCE, which run other subgraphs; VAR_HANDLE, ASSIGN_VARIABLE and READ_VARIABLE.

The inputs and outputs of a subgraph are copied byte by byte. The copies are determined once, in the bind phase.

Variables live from one invoke to the next, and are found by name. A variable is as large as the first value that is
assigned to it, and holds the zero point of that value's quantization (or zero) until then and after `reset`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tflm.errors import OperatorError
from tflm.kernels.host_memory import track_host_array
from tflm.kernels.node import KernelContext, Node
from tflm.kernels.registration import Refusal, Registration, Run
from tflm.kernels.requests import PersistentBuffer, Request, TempInput, TempOutput, always, tensors
from tflm.kernels.support.checks import element_count, require_type, shape_error
from tflm.kernels.support.elementwise import Copy, bind_copies
from tflm.memory.tensor import TfLiteEvalTensor
from tflm.schema.enums import BuiltinOperator, TensorType
from tflm.schema.options import CallOnceOptions, IfOptions, VarHandleOptions, WhileOptions
from tflm.targets import BOOL, INT, INT32, POINTER, Since, Struct, Until, When

TFLITE_CALL_ONCE_PARAMS = Struct("TfLiteCallOnceParams", init_subgraph_index=INT)
TFLITE_IF_PARAMS = Struct("TfLiteIfParams", then_subgraph_index=INT, else_subgraph_index=INT)
TFLITE_WHILE_PARAMS = Struct("TfLiteWhileParams", cond_subgraph_index=INT, body_subgraph_index=INT)
OP_DATA_CALL_ONCE = Struct("call_once.cc:OpData", init_subgraph_index=INT, has_run=BOOL)
OP_DATA_IF = Struct(
    "if.cc:OpData",
    then_subgraph_index=INT,
    else_subgraph_index=INT,
    intermediate_input_buffer=Since("c680f9b13", Until("359c83a84", POINTER)),
    intermediate_output_buffer=Since("c680f9b13", Until("359c83a84", POINTER)),
)
OP_DATA_WHILE = Struct("while.cc:OpData", cond_subgraph_index=INT, body_subgraph_index=INT)


class CallOnce(NamedTuple):
    """The subgraph to run, and whether it has yet to run."""

    subgraph_index: int
    pending: npt.NDArray[np.uint8]


def _prepare_call_once(context: KernelContext, node: Node) -> None:
    node.expect(inputs=0, outputs=0)
    options = node.builtin_options
    if not isinstance(options, CallOnceOptions):
        raise OperatorError("has no options, which name the subgraph to run")
    node.op_data = CallOnce(options.init_subgraph_index, track_host_array(np.ones(1, np.uint8)))


def _bind_call_once(context: KernelContext, node: Node) -> Run:
    op: CallOnce = node.op_data

    def run() -> None:
        if op.pending[0]:
            context.invoke_subgraph(op.subgraph_index)
            op.pending[0] = 0

    return run


def _prepare_if(context: KernelContext, node: Node) -> None:
    options = node.builtin_options
    if not isinstance(options, IfOptions):
        raise OperatorError("has no options, which name the subgraphs to choose from")
    node.op_data = options
    condition = node.input(0)
    require_type(condition, TensorType.BOOL)
    if element_count(condition) != 1:
        raise shape_error(condition, ", a condition is one element")
    _require_counts(context, options.then_subgraph_index, len(node.inputs) - 1, len(node.outputs))


def _requests_of_if(node: Node) -> Iterator[Request]:
    yield TempInput(0)
    if not node.release.holds("c680f9b13") or node.release.holds("359c83a84"):
        return
    inputs, outputs = range(1, node.input_count), range(node.output_count)
    yield from map(TempInput, inputs)
    yield PersistentBuffer("inputs", sum(node.input(i).bytes for i in inputs))
    yield from map(TempOutput, outputs)
    yield PersistentBuffer("outputs", sum(node.output(i).bytes for i in outputs))


def _bind_if(context: KernelContext, node: Node) -> Run:
    options: IfOptions = node.op_data
    condition = node.eval_input(0).elements.reshape(-1).view(np.uint8)
    inputs, outputs = _inputs(node)[1:], _outputs(node)

    run_then = _or_refuse_when_run(lambda: _bind_call(context, inputs, options.then_subgraph_index, outputs))
    run_else = _or_refuse_when_run(lambda: _bind_call(context, inputs, options.else_subgraph_index, outputs))

    def run() -> None:
        if condition[0]:
            run_then()
        else:
            run_else()

    return run


def _prepare_while(context: KernelContext, node: Node) -> None:
    options = node.builtin_options
    if not isinstance(options, WhileOptions):
        raise OperatorError("has no options, which name the subgraphs of its condition and its body")
    node.op_data = options
    node.expect(outputs=len(node.inputs))
    _require_counts(context, options.body_subgraph_index, len(node.inputs), len(node.outputs))
    _require_counts(context, options.cond_subgraph_index, len(node.inputs))
    if not context.subgraph_outputs(options.cond_subgraph_index):
        raise OperatorError(f"its condition, subgraph {options.cond_subgraph_index}, has no output; must have one")


def _bind_while(context: KernelContext, node: Node) -> Run:
    options: WhileOptions = node.op_data
    inputs, outputs = _inputs(node), _outputs(node)
    condition_inputs = context.subgraph_inputs(options.cond_subgraph_index)
    copy_to_condition = _bind_copies(inputs, condition_inputs)
    copy_to_outputs = _bind_copies(inputs, outputs)
    copy_back_to_condition = _bind_copies(outputs, condition_inputs)
    holds = _condition(context.subgraph_outputs(options.cond_subgraph_index)[0])
    run_body = _or_refuse_when_run(lambda: _bind_call(context, outputs, options.body_subgraph_index, outputs))
    limit = context.while_limit

    def run() -> None:
        copy_to_condition()
        copy_to_outputs()
        context.invoke_subgraph(options.cond_subgraph_index)
        iterations = 0
        while holds[0]:
            if iterations == limit:
                raise OperatorError(f"its condition still holds after {limit} iterations, the limit of the interpreter")
            iterations += 1
            run_body()
            copy_back_to_condition()
            context.invoke_subgraph(options.cond_subgraph_index)

    return run


def _bind_call(
    context: KernelContext, inputs: list[TfLiteEvalTensor], index: int, outputs: list[TfLiteEvalTensor]
) -> Run:
    """Returns a function that runs a subgraph on these inputs and copies its results to these outputs."""
    copy_inputs = _bind_copies(inputs, context.subgraph_inputs(index))
    copy_outputs = _bind_copies(context.subgraph_outputs(index), outputs)

    def run() -> None:
        copy_inputs()
        context.invoke_subgraph(index)
        copy_outputs()

    return run


def _condition(tensor: TfLiteEvalTensor) -> npt.NDArray[np.uint8]:
    """Return the bytes of a condition's result. TFLM reads the first one, regardless of the type."""
    if element_count(tensor) < 1:
        raise shape_error(tensor, ", a condition has an element")
    return tensor.elements.reshape(-1).view(np.uint8)


def _require_counts(context: KernelContext, index: int, inputs: int, outputs: int | None = None) -> None:
    """Reject a subgraph whose number of inputs or outputs does not match the operator's."""
    for what, found, count in (
        ("needs", context.subgraph_inputs(index), inputs),
        ("returns", context.subgraph_outputs(index), outputs),
    ):
        if count is not None and len(found) != count:
            raise OperatorError(f"subgraph {index} {what} {len(found)} tensors, the operator has {count} for it")


def _inputs(node: Node) -> list[TfLiteEvalTensor]:
    return [node.eval_input(i) for i in range(len(node.inputs))]


def _outputs(node: Node) -> list[TfLiteEvalTensor]:
    return [node.eval_output(i) for i in range(len(node.outputs))]


def _or_refuse_when_run(bind: Callable[[], Run]) -> Run:
    """Call `bind`; if it raises, return a function that raises the same error when it is run.

    TFLM compares the sizes of tensors, not their types, and only when it copies them, so a subgraph that never runs may
    have any.
    """
    try:
        return bind()
    except OperatorError as error:
        reason, tensor = error.reason, error.tensor

    def refuse() -> None:
        raise OperatorError(reason, tensor=tensor)

    return refuse


def _bind_copies(sources: Sequence[TfLiteEvalTensor], targets: Sequence[TfLiteEvalTensor]) -> Run:
    if len(sources) != len(targets):
        raise OperatorError(f"has {len(sources)} tensors to copy to the {len(targets)} of a subgraph, or from them")
    return bind_copies(copies_between(sources, targets))


def copies_between(sources: Sequence[TfLiteEvalTensor], targets: Sequence[TfLiteEvalTensor]) -> list[Copy]:
    """The copies of tensors to others, byte by byte.

    Raises:
        OperatorError: a target has another size than its source, or is a constant.
    """
    return [_copy(source, target) for source, target in zip(sources, targets)]


def _copy(source: TfLiteEvalTensor, target: TfLiteEvalTensor) -> Copy:
    sizes = source.byte_length, source.elements.nbytes, target.elements.nbytes
    if len(set(sizes)) != 1:
        raise shape_error(source, f", {target.name!r} has {list(target.dims)}: the sizes must match")
    if not target.elements.flags.writeable:
        raise OperatorError("is a constant of the model; a subgraph's input cannot be constant", tensor=target.name)
    return target.elements.reshape(-1).view(np.uint8), source.elements.reshape(-1).view(np.uint8)


CALL_ONCE = Registration(
    BuiltinOperator.CALL_ONCE,
    _bind_call_once,
    _prepare_call_once,
    op_data=OP_DATA_CALL_ONCE,
    builtin_data=TFLITE_CALL_ONCE_PARAMS,
    since="26944780f",
)
IF = Registration(
    BuiltinOperator.IF,
    _bind_if,
    _prepare_if,
    op_data=OP_DATA_IF,
    requests=_requests_of_if,
    builtin_data=TFLITE_IF_PARAMS,
    since="73c5fa4d2",
)
WHILE = Registration(
    BuiltinOperator.WHILE,
    _bind_while,
    _prepare_while,
    op_data=OP_DATA_WHILE,
    builtin_data=TFLITE_WHILE_PARAMS,
    since="359c83a84",
)


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
        raise shape_error(output, ", a handle is one element")
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
        raise shape_error(handle, ", a handle is one element")


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
