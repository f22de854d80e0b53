"""ARG_MAX and ARG_MIN: the index of the first largest or smallest element along an axis, which is an input.

Comparisons with NaN are false: a NaN as first element wins, any other is skipped.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from tflm.errors import OperatorError
from tflm.kernels.node import KernelContext, Node
from tflm.kernels.registration import Bind, Registration, Run
from tflm.kernels.shapes import Shapes, StaticNode, require_axis
from tflm.kernels.support.checks import AnyTensor, element_count, require_type
from tflm.kernels.support.views import bind_by_parameters
from tflm.memory.tensor import TFLITE_TYPE
from tflm.schema.enums import BuiltinOperator, TensorType
from tflm.schema.version_rules import by_input
from tflm.targets import Struct

TYPES = (TensorType.FLOAT32, TensorType.INT8)

INPUT, AXIS = range(2)

TFLITE_ARG_MAX_PARAMS = Struct("TfLiteArgMaxParams", output_type=TFLITE_TYPE)
TFLITE_ARG_MIN_PARAMS = Struct("TfLiteArgMinParams", output_type=TFLITE_TYPE)


def _prepare(context: KernelContext, node: Node) -> None:
    input, axis = (node.eval_input(index) for index in (INPUT, AXIS))
    output = node.eval_output(0)
    require_type(input, *TYPES)
    require_type(axis, TensorType.INT32)
    require_type(output, TensorType.INT32)
    if element_count(axis) == 0:
        raise OperatorError(f"has shape {list(axis.dims)}; must have one element, the axis", tensor=axis.name)
    if axis.data is not None:
        check_dimension(input, output, axis.data)


def check_dimension(input: AnyTensor, output: AnyTensor, axis: npt.NDArray[Any]) -> tuple[int, int, int]:
    """Check input and output; returns the sizes of the input before, along and after the axis."""
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


def _bind_with(find: Callable[..., Any], worst: np.float32) -> Bind:
    """Bind `np.argmax` or `np.argmin`; `worst` is the float that replaces a NaN to be skipped."""

    def bind(context: KernelContext, node: Node) -> Run:
        input, axis = (node.eval_input(index) for index in (INPUT, AXIS))
        output = node.eval_output(0)

        def run(sizes: tuple[int, int, int]) -> None:
            x, y = input.elements.reshape(sizes), output.elements.reshape(sizes[0], sizes[2])
            y[...] = find(_without_nan(x, worst) if x.dtype == np.float32 else x, axis=1)

        return bind_by_parameters([axis], lambda: check_dimension(input, output, axis.elements), run)

    return bind


def _without_nan(x: npt.NDArray[np.float32], worst: np.float32) -> npt.NDArray[np.float32]:
    replaced = np.full_like(x, worst)
    replaced[:, :1] = -worst
    return np.where(np.isnan(x), replaced, x)


def _output_shapes(node: StaticNode) -> Shapes:
    shape = node.shape(0)
    axis = require_axis(node.numbers(1)[0], len(shape))
    return [(*shape[:axis], *shape[axis + 1 :])]


ARG_MAX = Registration(
    BuiltinOperator.ARG_MAX,
    _bind_with(np.argmax, np.float32(-np.inf)),
    _prepare,
    builtin_data=TFLITE_ARG_MAX_PARAMS,
    max_version=3,
    types=TYPES,
    output_shapes=_output_shapes,
    versions=by_input(BOOL=3, INT8=2),
)
ARG_MIN = Registration(
    BuiltinOperator.ARG_MIN,
    _bind_with(np.argmin, np.float32(np.inf)),
    _prepare,
    builtin_data=TFLITE_ARG_MIN_PARAMS,
    max_version=3,
    types=TYPES,
    output_shapes=_output_shapes,
    versions=by_input(BOOL=3, INT8=2),
)
