"""The delegate for operators named `Flex...`: nodes of TensorFlow's graph that a converter did not replace."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tflm.delegates.flex import elementwise, images, matrices, neural, quantization, reductions, shapes, tensorflow
from tflm.delegates.flex.builtin_operators import bound_builtin, is_left_over
from tflm.delegates.flex.node_def import flex_node
from tflm.delegates.flex.registry import OPERATORS, Array, bound
from tflm.errors import OperatorError
from tflm.kernels.node import KernelContext, Node
from tflm.kernels.registration import HIGHEST_VERSION, LOWEST_VERSION, Registration, Run
from tflm.memory.tensor import TfLiteEvalTensor
from tflm.runtime.delegate import Delegate, DelegateContext, bind_replaced
from tflm.schema.model import FLEX_PREFIX
from tflm.schema.tables import Tensor

FAMILIES = elementwise, images, matrices, neural, quantization, reductions, shapes
"""The modules whose import fills the registry."""


class FlexDelegate(Delegate):
    """Runs Flex operators on the host, with numpy or through TensorFlow.

    Args:
        use_tensorflow: run every operator with TensorFlow, or none. By default (None), TensorFlow runs the operators
            that have no numpy function, where it is installed.

    `allocate_tensors` raises an `OperatorError` for an operator that neither can run; it names what to install.
    """

    runs_in_order = True

    def __init__(self, *, use_tensorflow: bool | None = None):
        self._use_tensorflow = use_tensorflow

    def prepare(self, context: DelegateContext) -> None:
        nodes = [(i, *context.node_and_registration(i)) for i in context.execution_plan()]
        taken = [i for i, node, registration in nodes if _takes(node, registration, context.tensors)]
        for index in taken:
            _check_shapes(context, context.node_and_registration(index)[0])
            context.leave_to_host(index)
        registration = Registration(
            "FlexDelegate", bind_replaced(self._bind_one), min_version=LOWEST_VERSION, max_version=HIGHEST_VERSION
        )
        context.replace_node_subsets_with_delegate_kernels(registration, taken)

    def _bind_one(self, context: KernelContext, node: Node) -> Run:
        inputs = [node.eval_input(i) for i in range(len(node.inputs))]
        outputs = [node.eval_output(i) for i in range(len(node.outputs))]
        try:
            function = self._function(context, node, inputs, outputs)
        except OperatorError as error:
            raise _located(error, context, node) from None
        arrays = [tensor.elements for tensor in inputs]

        def run() -> None:
            try:
                for tensor, value in zip(outputs, function(*arrays)):
                    _store(tensor, value)
            except OperatorError as error:
                raise _located(error, context, node) from None
            except (ValueError, IndexError, TypeError, ArithmeticError) as error:
                raise _located(OperatorError(f"can't take its inputs: {error}"), context, node) from None

        return run

    def _function(
        self,
        context: KernelContext,
        operator: Node,
        inputs: Sequence[TfLiteEvalTensor],
        outputs: Sequence[TfLiteEvalTensor],
    ) -> Callable[..., tuple[Array, ...]]:
        if not operator.operator.startswith(FLEX_PREFIX):
            return bound_builtin(operator, context.subgraph.tensors or ())
        node = flex_node(operator.custom_options)
        known = node.operator in OPERATORS
        wanted = self._use_tensorflow if self._use_tensorflow is not None else not known
        if wanted and tensorflow.is_installed():
            return tensorflow.bound(node, [tensor.elements for tensor in inputs], len(outputs))
        if not known or self._use_tensorflow:
            raise OperatorError(
                f"is TensorFlow's {node.operator}, which needs TensorFlow itself here: pip install tensorflow"
            )
        return bound(node.operator, node.attributes)


def _takes(node: Node, registration: Registration, tensors: Sequence[Tensor]) -> bool:
    return node.operator.startswith(FLEX_PREFIX) or is_left_over(node, registration, tensors)


def _check_shapes(context: DelegateContext, node: Node) -> None:
    """Raise an error for an output whose size is only known at run time."""
    tables = context.tensors
    read = [tables[tensor] for tensor in node.inputs if tensor >= 0]
    has_open_input = any(-1 in (table.shape_signature or ()) for table in read)
    for tensor in node.outputs:
        table = tables[tensor]
        is_open = -1 in (table.shape or ()) or (not has_open_input and -1 in (table.shape_signature or ()))
        if is_open:
            shape = list(table.shape_signature or table.shape or ())
            reason = f"has the open shape {shape}; only outputs of a fixed shape can be given memory"
            error = OperatorError(reason, tensor=table.name or "")
            error.locate(context.subgraph_index, node.index, node.operator)
            raise error


def _store(tensor: TfLiteEvalTensor, value: Array) -> None:
    if value.shape != tensor.dims:
        reason = f"has shape {list(tensor.dims)} in the model, the operator returns {list(value.shape)}"
        raise OperatorError(reason, tensor=tensor.name)
    np.copyto(tensor.elements, value, casting="unsafe")


def _located(error: OperatorError, context: KernelContext, node: Node) -> OperatorError:
    subgraph: Any = context.subgraph
    error.locate(context.model.subgraphs.index(subgraph), node.index, node.operator)
    return error
