"""ROWS_SCALED: every row of a matrix, less its mean, times a factor that the options give; in float32 and int8."""

from collections.abc import Callable

import numpy as np

import tflm
from tflm.schema import TensorType
from tflm.schema.flexbuffer import FlexbufferMap


def prepare(context: tflm.KernelContext, node: tflm.Node) -> None:
    """Check the tensors and read the options; ask for memory."""
    node.expect(inputs=1, outputs=1)
    x, y = context.allocate_temp_input_tensor(node, 0), context.allocate_temp_output_tensor(node, 0)
    if x.type not in (TensorType.FLOAT32, TensorType.INT8) or x.type != y.type:
        raise tflm.OperatorError(f"is {x.type.name}, must be FLOAT32 or INT8, as the output", tensor=x.name)
    if len(x.dims) != 2 or x.dims != y.dims:
        raise tflm.OperatorError(f"has shape {list(x.dims)}, must be a matrix, as the output", tensor=x.name)
    if x.type == TensorType.INT8 and (x.quantization is None or y.quantization is None or y.scale <= 0):
        raise tflm.OperatorError("is INT8 without a scale, or its output is", tensor=x.name)
    factor = FlexbufferMap(node.custom_options).as_float("factor", 1.0)

    constants = context.allocate_array(2, np.float32)  # in the arena for as long as the model is
    constants[:] = factor, (factor * x.scale / y.scale if x.type == TensorType.INT8 else factor)
    scratch = context.request_scratch_buffer_in_arena(x.dims[1] * 4)  # in the arena while the operator runs
    node.op_data = constants, scratch, y.zero_point


def bind(context: tflm.KernelContext, node: tflm.Node) -> Callable[[], None]:
    """Take views of all memory once, and return the function that invokes the operator."""
    constants, scratch, zero_point = node.op_data
    x, y = context.get_eval_input(node, 0).elements, context.get_eval_output(node, 0).elements
    row = context.get_scratch_buffer(scratch).view(np.float32)
    factor = constants[1]

    def subtract_mean_and_scale(source: np.ndarray) -> None:
        np.copyto(row, source)
        np.subtract(row, row.mean(), out=row)  # the zero point of the input goes with the mean
        np.multiply(row, factor, out=row)

    def run_float() -> None:
        for source, target in zip(x, y):
            subtract_mean_and_scale(source)
            target[:] = row

    def run_int8() -> None:
        for source, target in zip(x, y):
            subtract_mean_and_scale(source)
            target[:] = np.clip(np.rint(row) + zero_point, -128, 127)

    return run_int8 if x.dtype == np.int8 else run_float


ROWS_SCALED = tflm.Registration("ROWS_SCALED", bind, prepare)
