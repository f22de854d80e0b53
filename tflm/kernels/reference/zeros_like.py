"""ZEROS_LIKE: zeros in the shape of the input."""

from __future__ import annotations

import numpy as np

from tflm.kernels.node import KernelContext, Node
from tflm.kernels.overlap import never_read
from tflm.kernels.registration import Registration
from tflm.kernels.requests import tensors
from tflm.kernels.shapes import same_as_input
from tflm.kernels.support.checks import unary_tensors
from tflm.kernels.support.views import Copy, Copying
from tflm.schema.enums import BuiltinOperator, TensorType

TYPES = (TensorType.FLOAT32, TensorType.INT8, TensorType.INT32, TensorType.INT64)


def _prepare(context: KernelContext, node: Node) -> None:
    unary_tensors(node, *TYPES)


def _copies(node: Node) -> list[Copy]:
    y = node.eval_output(0).elements
    return [(y, np.zeros((), y.dtype))]


ZEROS_LIKE = Registration(
    BuiltinOperator.ZEROS_LIKE,
    Copying(_copies),
    _prepare,
    requests=tensors(),
    types=TYPES,
    overlap=never_read,
    output_shapes=same_as_input,
)
