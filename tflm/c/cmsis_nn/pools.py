"""Call CMSIS-NN for AVERAGE_POOL_2D and MAX_POOL_2D."""

from __future__ import annotations

from collections.abc import Sequence

from tflm.c.cmsis_nn.processors import Processors
from tflm.c.cmsis_nn.structures import activation, checked_call, context, dims, dims_of, source, target, tile
from tflm.c.library_calls import LibraryCall, Structure
from tflm.kernels.layers.geometry import padding_before
from tflm.kernels.node import Node
from tflm.kernels.reference.pooling import OpDataPooling
from tflm.libraries.cmsis_nn_scratch import has_dsp
from tflm.schema.enums import TensorType
from tflm.schema.options import Pool2DOptions

FUNCTIONS = {"AVERAGE_POOL_2D": "arm_avgpool", "MAX_POOL_2D": "arm_max_pool"}

KINDS = {TensorType.INT8: "s8", TensorType.INT16: "s16"}
"""The suffix of a function's name, by type."""

LARGEST_WINDOW = 1 << 15
"""Maximum number of elements in a window: their sum fits in 32 bits."""


def bind(node: Node, processors: Processors) -> Sequence[LibraryCall] | None:
    """Bind AVERAGE_POOL_2D or MAX_POOL_2D."""
    x, y, options = node.eval_input(0), node.eval_output(0), node.options(Pool2DOptions)
    op: OpDataPooling = node.op_data
    kind, taps = KINDS.get(x.type), (options.filter_height, options.filter_width)
    if kind is None or taps[0] * taps[1] >= LARGEST_WINDOW:
        return None
    strides = options.stride_h, options.stride_w
    before = [padding_before(*sizes) for sizes in zip(y.dims[1:3], x.dims[1:3], taps, strides)]
    parameters = Structure(
        "cmsis_nn_pool_params",
        {
            "stride": tile(*strides),
            "padding": tile(*before),
            "activation": activation(int(op.minimum), int(op.maximum)),
        },
    )
    has_sums = node.operator == "AVERAGE_POOL_2D"
    bytes = processors.maximum_bytes(lambda part, version: 4 * x.dims[3] if has_sums and has_dsp(part) else 0)
    return [
        checked_call(
            f"{FUNCTIONS[node.operator]}_{kind}",
            context(bytes),
            parameters,
            dims_of(x),
            source("input", x.elements),
            dims(1, *taps),
            dims_of(y),
            target("output", y.elements),
        )
    ]
