"""SELECT_V2: elements of the second input where the first, a condition, holds, else of the third; all broadcast."""

from __future__ import annotations

import numpy as np

from tflm.errors import OperatorError
from tflm.kernels.node import KernelContext, Node
from tflm.kernels.registration import Registration, Run
from tflm.kernels.requests import tensors
from tflm.kernels.shapes import broadcast
from tflm.kernels.support.checks import AnyTensor, element_count, require_same_type, require_type
from tflm.kernels.support.elementwise import RANK_OF_A_SHAPE
from tflm.schema.enums import BuiltinOperator, TensorType
from tflm.schema.version_rules import by_input
from tflm.targets import BOOL, Struct, Until

MAXIMUM_RANK = 5
TYPES = (TensorType.FLOAT32, TensorType.INT8, TensorType.INT16)

OP_DATA_SELECT = Struct(
    "select.cc:OpData", requires_broadcast=BOOL, has_low_rank_input_condition=Until("2b7a4ad62", BOOL)
)


def _prepare(context: KernelContext, node: Node) -> None:
    node.expect(inputs=3, outputs=1)
    condition, x, y = (node.input(i) for i in range(3))
    output = node.output(0)
    require_type(condition, TensorType.BOOL)
    require_type(x, *TYPES)
    require_same_type(y, x)
    require_same_type(output, x)
    _check_shapes([condition, x, y], output)


def _check_shapes(inputs: list[AnyTensor], output: AnyTensor) -> None:
    try:
        shape = np.broadcast_shapes(*(input.dims for input in inputs))
    except ValueError:
        shapes = ", ".join(str(list(input.dims)) for input in inputs)
        raise OperatorError(f"can't broadcast its inputs of shapes {shapes}") from None
    one_each = all(element_count(tensor) == 1 for tensor in (*inputs, output))
    limit = RANK_OF_A_SHAPE if len({input.dims for input in inputs}) == 1 else MAXIMUM_RANK
    if len(shape) > limit or (output.dims != shape and not one_each):
        raise OperatorError(f"has shape {list(output.dims)}, must have {list(shape)}", tensor=output.name)


def _bind(context: KernelContext, node: Node) -> Run:
    condition, x, y = (node.eval_input(i).elements for i in range(3))
    output = node.eval_output(0).elements.reshape(np.broadcast_shapes(condition.shape, x.shape, y.shape))

    def run() -> None:
        output[...] = np.where(condition, x, y)

    return run


SELECT_V2 = Registration(
    BuiltinOperator.SELECT_V2,
    _bind,
    _prepare,
    op_data=OP_DATA_SELECT,
    requests=tensors(3),
    max_version=2,
    types=TYPES,
    since="286aeb5ff",
    output_shapes=broadcast,
    versions=by_input(UINT32=2),
)
