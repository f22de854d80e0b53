"""CAST between numbers of different types: integers wrap, floats saturate, and anything but zero is true.

Bools are read as bytes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tflm.kernels.node import KernelContext, Node
from tflm.kernels.overlap import element_wise
from tflm.kernels.registration import Registration, Run
from tflm.kernels.requests import tensors
from tflm.kernels.support.checks import require_same_size, require_type
from tflm.kernels.support.views import as_numbers
from tflm.memory.tensor import TFLITE_TYPE
from tflm.schema.enums import BuiltinOperator, TensorType
from tflm.schema.version_rules import Feature, every, input_is, input_or_output_is, output_is
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
    input = node.input(0)
    output = node.output(0)
    require_type(input, *TYPES)
    require_type(output, *TYPES)
    require_same_size(output, input)


def _bind(context: KernelContext, node: Node) -> Run:
    x = as_numbers(node.eval_input(0).elements.reshape(-1))
    y = node.eval_output(0).elements.reshape(-1)
    if x.dtype == np.uint8:
        y = as_numbers(y)
    truncates = x.dtype.kind == "f" and y.dtype.kind in "iu"

    def run() -> None:
        y[...] = _truncated(x, np.iinfo(y.dtype)) if truncates else x

    return run


def _truncated(x: npt.NDArray[np.float32], limits: np.iinfo[Any]) -> npt.NDArray[np.float64]:
    """Truncate floats towards zero and saturate; NaN becomes 0."""
    numbers = np.where(np.isnan(x), 0, x.astype(np.float64))
    truncated: npt.NDArray[np.float64] = np.trunc(np.clip(numbers, limits.min, limits.max))
    return truncated


CAST = Registration(
    BuiltinOperator.CAST,
    _bind,
    _prepare,
    requests=tensors(),
    builtin_data=TFLITE_CAST_PARAMS,
    max_version=7,
    types=TYPES,
    overlap=element_wise,
    output_values=lambda node: node.values(0),
    versions={
        9: input_or_output_is("FLOAT8"),
        8: input_or_output_is("INT2", "UINT4"),
        7: input_or_output_is("BFLOAT16"),
        6: Feature("INT4 to FLOAT32", every(input_is("INT4"), output_is("FLOAT32"))),
        5: input_or_output_is("FLOAT64", "FLOAT16"),
        4: input_or_output_is("UINT16"),
        3: input_or_output_is("INT8"),
        2: input_or_output_is("UINT32"),
    },
)
