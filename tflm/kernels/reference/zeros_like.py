"""ZEROS_LIKE: zeros, as many as the input has elements."""

from __future__ import annotations

from tflm.kernels.overlap import never_read
from tflm.kernels.registration import KernelContext, Node, Registration, Run
from tflm.kernels.requests import tensors
from tflm.kernels.support.checks import require_alike, require_type
from tflm.schema.enums import BuiltinOperator, TensorType

TYPES = (TensorType.FLOAT32, TensorType.INT8, TensorType.INT32, TensorType.INT64)


def _prepare(context: KernelContext, node: Node) -> None:
    node.expect(inputs=1, outputs=1)
    input = context.input_tensor(node, 0)
    output = context.output_tensor(node, 0)
    require_type(input, *TYPES)
    require_alike(output, input)


def _bind(context: KernelContext, node: Node) -> Run:
    y = context.get_eval_output(node, 0).elements

    def run() -> None:
        y.fill(0)

    return run


ZEROS_LIKE = Registration(
    BuiltinOperator.ZEROS_LIKE,
    _bind,
    _prepare,
    requests=tensors(),
    types=TYPES,
    overlap=never_read,
)
