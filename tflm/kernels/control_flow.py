"""CALL_ONCE: runs another subgraph at the first invoke, and never again."""

from __future__ import annotations

from tflm.errors import OperatorError
from tflm.kernels.registration import KernelContext, Node, Registration, Run
from tflm.schema.enums import BuiltinOperator
from tflm.schema.options import CallOnceOptions
from tflm.targets import BOOL, INT, Struct

TFLITE_CALL_ONCE_PARAMS = Struct("TfLiteCallOnceParams", init_subgraph_index=INT)
OP_DATA_CALL_ONCE = Struct("call_once.cc:OpData", init_subgraph_index=INT, has_run=BOOL)


def _prepare_call_once(context: KernelContext, node: Node) -> None:
    node.expect(inputs=0, outputs=0)
    options = node.options(CallOnceOptions)
    if options is None:
        raise OperatorError("has no options, which name the subgraph to run")
    node.op_data = options.init_subgraph_index


def _bind_call_once(context: KernelContext, node: Node) -> Run:
    pending = [node.op_data]

    def run() -> None:
        if pending:
            context.invoke_subgraph(pending[0])
            pending.clear()

    return run


CALL_ONCE = Registration(
    BuiltinOperator.CALL_ONCE,
    _bind_call_once,
    _prepare_call_once,
    op_data=OP_DATA_CALL_ONCE,
    builtin_data=TFLITE_CALL_ONCE_PARAMS,
)
