"""ZEROS_LIKE: zeros in the shape of the input."""

from __future__ import annotations

from tflm.kernels.node import KernelContext, Node
from tflm.kernels.overlap import never_read
from tflm.kernels.registration import Registration, Run
from tflm.kernels.requests import tensors
from tflm.kernels.shapes import same_as_input
from tflm.kernels.support.checks import unary_tensors
from tflm.schema.enums import BuiltinOperator, TensorType

TYPES = (TensorType.FLOAT32, TensorType.INT8, TensorType.INT32, TensorType.INT64)


def _prepare(context: KernelContext, node: Node) -> None:
    unary_tensors(node, *TYPES)


def _bind(context: KernelContext, node: Node) -> Run:
    y = node.eval_output(0).elements

    def run() -> None:
        y[...] = 0

    return run


ZEROS_LIKE = Registration(
    BuiltinOperator.ZEROS_LIKE,
    _bind,
    _prepare,
    requests=tensors(),
    types=TYPES,
    overlap=never_read,
    output_shapes=same_as_input,
)
