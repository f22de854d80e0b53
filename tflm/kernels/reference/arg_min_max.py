"""ARG_MAX and ARG_MIN: where along a dimension the largest or smallest element is, the first of equals.

The input is float32 or int8, the output int32. Nothing is larger or smaller than a nan, nor is a nan than anything: one
that is not the first element is passed over, and one that is stays.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from tflm.errors import OperatorError
from tflm.kernels.host_memory import kept
from tflm.kernels.registration import Bind, KernelContext, Node, Registration, Run
from tflm.kernels.support.checks import AnyTensor, element_count, require_axis, require_type
from tflm.kernels.support.parameters import bind_by_parameters
from tflm.memory.tensor import TFLITE_TYPE
from tflm.schema.enums import BuiltinOperator, TensorType
from tflm.targets import Struct

TYPES = (TensorType.FLOAT32, TensorType.INT8)

INPUT, AXIS = range(2)

TFLITE_ARG_MAX_PARAMS = Struct("TfLiteArgMaxParams", output_type=TFLITE_TYPE)
TFLITE_ARG_MIN_PARAMS = Struct("TfLiteArgMinParams", output_type=TFLITE_TYPE)


def _prepare(context: KernelContext, node: Node) -> None:
    input, axis = (context.get_eval_input(node, index) for index in (INPUT, AXIS))
    output = context.get_eval_output(node, 0)
    require_type(input, *TYPES)
    require_type(axis, TensorType.INT32)
    require_type(output, TensorType.INT32)
    if element_count(axis) == 0:
        raise OperatorError(f"has shape {list(axis.dims)}; it must say which dimension", tensor=axis.name)
    if axis.data is not None:
        check_dimension(input, output, axis.data)


def check_dimension(input: AnyTensor, output: AnyTensor, axis: npt.NDArray[Any]) -> tuple[int, int, int]:
    """The input's elements before, along and after the dimension that `axis` says."""
    dimension = require_axis(int(axis.reshape(-1)[0]), len(input.dims), input.name)
    before, along, after = (
        math.prod(sizes) for sizes in (input.dims[:dimension], input.dims[dimension:][:1], input.dims[dimension + 1 :])
    )
    if along == 0:
        raise OperatorError(f"has shape {list(input.dims)}: no element along dimension {dimension}", tensor=input.name)
    if element_count(output) != before * after:
        reason = f"has shape {list(output.dims)}; {list(input.dims)} without dimension {dimension} has {before * after}"
        raise OperatorError(f"{reason} elements", tensor=output.name)
    return before, along, after


def _bind_with(find: str, none: float) -> Bind:
    """The method of an array that finds the element, and the float that it finds last."""

    def bind(context: KernelContext, node: Node) -> Run:
        input, axis = (context.get_eval_input(node, index) for index in (INPUT, AXIS))
        output = context.get_eval_output(node, 0)

        def bind_dimension() -> Run:
            x = input.elements.reshape(check_dimension(input, output, axis.elements))
            return _bind_columns(x, output.elements, find, none)

        return bind_by_parameters([axis], bind_dimension)

    return bind


def _bind_columns(x: npt.NDArray[Any], y: npt.NDArray[Any], find: str, none: float) -> Run:
    """x is (before, along, after). numpy looks through contiguous memory only: otherwise it would copy at each run."""
    before, along, after = x.shape
    turned = x.transpose(0, 2, 1)
    is_float = x.dtype == np.float32
    rows = kept(np.empty((before, after, along), x.dtype)) if is_float or after > 1 else turned
    found = kept(np.empty((before, after), np.intp))
    find_in_rows = getattr(rows, find)
    y = y.reshape(before, after)
    is_nan = kept(np.empty(rows.shape if is_float else 0, np.bool_))
    first, first_is_nan = rows[..., 0], is_nan[..., 0] if is_float else is_nan

    def run() -> None:
        if rows is not turned:
            np.copyto(rows, turned)
        if is_float:
            np.isnan(rows, out=is_nan)
            np.copyto(rows, none, where=is_nan)
            np.copyto(first, -none, where=first_is_nan)
        find_in_rows(-1, found)
        np.copyto(y, found, casting="unsafe")

    return run


ARG_MAX = Registration(
    BuiltinOperator.ARG_MAX,
    _bind_with("argmax", -np.inf),
    _prepare,
    builtin_data=TFLITE_ARG_MAX_PARAMS,
    max_version=3,
    types=TYPES,
)
ARG_MIN = Registration(
    BuiltinOperator.ARG_MIN,
    _bind_with("argmin", np.inf),
    _prepare,
    builtin_data=TFLITE_ARG_MIN_PARAMS,
    max_version=3,
    types=TYPES,
)
