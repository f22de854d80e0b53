"""Call CMSIS-NN for ADD, MUL and SOFTMAX."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tflm.c.cmsis_nn.processors import Processors
from tflm.c.cmsis_nn.structures import FUNCTIONS, checked_call, source, target
from tflm.c.library_calls import Address, LibraryCall, Structure, Value
from tflm.kernels.node import Node
from tflm.kernels.reference.arithmetic import Addend, Product, Sum
from tflm.kernels.reference.normalization import OpDataSoftmax, OpDataSoftmaxInt16
from tflm.schema.enums import TensorType

KINDS = {TensorType.INT8: "s8", TensorType.INT16: "s16"}
"""The suffix of a function's name, by type."""


def bind_add(node: Node, processors: Processors) -> Sequence[LibraryCall] | None:
    """Bind ADD."""
    kind, op = _kind_of_one_shape(node), node.op_data
    if kind is None or not isinstance(op, Sum):
        return None
    scales = [*_addend(op.addend1), *_addend(op.addend2), op.addend1.left_shift]
    return [checked_call(f"arm_elementwise_add_{kind}", *_inputs(node), *scales, *_output(node, op))]


def bind_mul(node: Node, processors: Processors) -> Sequence[LibraryCall] | None:
    """Bind MUL."""
    kind, op = _kind_of_one_shape(node), node.op_data
    if kind is None or not isinstance(op, Product):
        return None
    offsets = -op.zero_point1, -op.zero_point2
    return [checked_call(f"arm_elementwise_mul_{kind}", *_inputs(node), *offsets, *_output(node, op))]


def _kind_of_one_shape(node: Node) -> str | None:
    """Return the suffix of the function's name; None for other types, and if an input broadcasts."""
    tensors = node.eval_input(0), node.eval_input(1), node.eval_output(0)
    if len({tensor.dims for tensor in tensors}) > 1 or len({tensor.type for tensor in tensors}) > 1:
        return None
    return KINDS.get(tensors[0].type)


def _inputs(node: Node) -> list[Value]:
    return [source(f"input{i + 1}", node.eval_input(i).elements) for i in range(2)]


def _addend(addend: Addend) -> list[Value]:
    """Return the offset, multiplier and shift of an input."""
    return [-addend.zero_point, int(addend.multiplier.significand), int(addend.multiplier.shift)]


def _output(node: Node, op: Sum | Product) -> list[Value]:
    """Return the arguments for the output: address, offset, multiplier, shift, limits and number of elements."""
    y, multiplier, stage = node.eval_output(0).elements, op.output.multiplier, op.output.stage
    scale = int(multiplier.significand), int(multiplier.shift)
    return [target("output", y), stage.zero_point, *scale, stage.minimum, stage.maximum, y.size]


def bind_softmax(node: Node, processors: Processors) -> Sequence[LibraryCall] | None:
    """Bind SOFTMAX. An int16 row of one element is left to generated kernels: CMSIS-NN's result wraps."""
    x, y, op = node.eval_input(0).elements, node.eval_output(0).elements, node.op_data
    if not isinstance(op, (OpDataSoftmax, OpDataSoftmaxInt16)) or not x.size:
        return None
    rows = x.size // x.shape[-1]
    first: list[Value] = [source("input", x), rows, x.shape[-1], op.significand, op.shift]
    if isinstance(op, OpDataSoftmaxInt16):
        if x.shape[-1] == 1:
            return None
        return [checked_call("arm_softmax_s16", *first, _tables(op), target("output", y))]
    function = "arm_softmax_s8" if y.dtype == np.int8 else "arm_softmax_s8_s16"
    return [LibraryCall(function, (*first, op.diff_min, target("output", y)), headers=(FUNCTIONS,))]


def _tables(op: OpDataSoftmaxInt16) -> Structure:
    tables = {"exp_lut": op.exp_lut, "one_by_one_lut": op.one_over_one_plus_x_lut}
    fields: dict[str, Value] = {
        name: Address(name, "const int16_t *", np.array(values, np.int16)) for name, values in tables.items()
    }
    return Structure("cmsis_nn_softmax_lut_s16", fields)
