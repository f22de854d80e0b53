"""CAST between numbers of different types: integers wrap, floats saturate, and anything but zero is true.

Truth values are the bytes that they are.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tflm.kernels.host_memory import kept
from tflm.kernels.overlap import element_wise
from tflm.kernels.registration import KernelContext, Node, Registration, Run
from tflm.kernels.requests import tensors
from tflm.kernels.support.checks import require_same_size, require_type
from tflm.kernels.support.views import as_numbers, bind_copy
from tflm.memory.tensor import TFLITE_TYPE
from tflm.schema.enums import BuiltinOperator, TensorType
from tflm.targets import Struct

TFLITE_CAST_PARAMS = Struct("TfLiteCastParams", in_data_type=TFLITE_TYPE, out_data_type=TFLITE_TYPE)

TYPES = (
    TensorType.FLOAT32,
    TensorType.INT8,
    TensorType.INT16,
    TensorType.INT32,
    TensorType.UINT32,
    TensorType.BOOL,
)


def _prepare(context: KernelContext, node: Node) -> None:
    node.expect(inputs=1, outputs=1)
    input = context.input_tensor(node, 0)
    output = context.output_tensor(node, 0)
    require_type(input, *TYPES)
    require_type(output, *TYPES)
    require_same_size(output, input)


def _bind(context: KernelContext, node: Node) -> Run:
    x = as_numbers(context.get_eval_input(node, 0).elements.reshape(-1))
    y = context.get_eval_output(node, 0).elements.reshape(-1)
    if x.dtype == np.uint8:
        y = as_numbers(y)
    if x.dtype.kind == "f" and y.dtype.kind in "iu":
        return _bind_truncation(x, y)
    return bind_copy(y, x)


def _bind_truncation(x: npt.NDArray[np.float32], y: npt.NDArray[Any]) -> Run:
    """Floats are cut off towards zero and saturate; what is not a number gives 0."""
    limits = np.iinfo(y.dtype)
    minimum, maximum = np.float64(limits.min), np.float64(limits.max)
    values, is_nan = kept(np.empty(x.shape, np.float64)), kept(np.empty(x.shape, np.bool_))

    def run() -> None:
        np.copyto(values, x)
        np.isnan(values, out=is_nan)
        np.copyto(values, 0, where=is_nan)
        np.maximum(values, minimum, out=values)
        np.minimum(values, maximum, out=values)
        np.copyto(y, values, casting="unsafe")

    return run


CAST = Registration(
    BuiltinOperator.CAST,
    _bind,
    _prepare,
    requests=tensors(),
    builtin_data=TFLITE_CAST_PARAMS,
    max_version=7,
    types=TYPES,
    overlap=element_wise,
)
