"""The arena of the int8 version of a float model, estimated without samples and without litert-quantizer."""

from __future__ import annotations

import math

from tflm.errors import TflmError
from tflm.kernels import OPAQUE, REGISTRATIONS
from tflm.libraries import Kernels
from tflm.quantization.biases import BIASES
from tflm.quantization.recipe import SCALE_BY_CHANNEL
from tflm.quantization.repairs import prepared
from tflm.runtime.micro_measurement import measure_arena
from tflm.runtime.micro_op_resolver import AllOpsResolver
from tflm.schema.builder import quantized
from tflm.schema.enums import TensorType
from tflm.schema.model import Model
from tflm.schema.reader import read_model
from tflm.schema.tables import Buffer, QuantizationParameters, Tensor
from tflm.schema.tables import Model as Root
from tflm.schema.writer import write_model
from tflm.targets import Target

CHANNEL_DIMENSIONS = {"DEPTHWISE_CONV_2D": 3}
"""The dimension of the weights that counts output channels, if it is not the first."""

FIXED_OUTPUTS = {
    "SOFTMAX": quantized(1 / 256, -128),
    "LOGISTIC": quantized(1 / 256, -128),
    "TANH": quantized(1 / 128),
}
"""Outputs whose quantization TFLM prescribes."""

USUAL = quantized(1 / 64)
BIAS = quantized(1 / 64**2)
"""The product of the scales of input and weights."""


def estimated_int8_arena(model: Model, *, target: Target, kernels: Kernels) -> int | None:
    """The smallest arena of a float model's int8 version, in bytes; None if its operators cannot all be int8."""
    try:
        outline = Model(int8_outline(model))
        return measure_arena(outline, AllOpsResolver(), target=target, kernels=kernels).minimum_arena_bytes
    except TflmError:
        return None


def int8_outline(model: Model) -> bytes:
    """The bytes of a model with the operators and shapes of a float model in int8.

    Its weights are zero and its scales arbitrary, so it takes the memory of the quantized model, and computes nothing.
    """
    root, roles = read_model(memoryview(prepared(model))), _roles(model)
    for index, tensor in enumerate((root.subgraphs or [])[0].tensors or ()):
        if tensor.type is TensorType.FLOAT32:
            _retype(root, tensor, *roles.get(index, (TensorType.INT8, USUAL)))
    return write_model(root)


def _roles(model: Model) -> dict[int, tuple[TensorType, QuantizationParameters]]:
    """Type and quantization of biases, weights with a scale for each channel, and outputs with a fixed scale."""
    main = model.subgraphs[0]
    roles = {}
    for operator in main.operators or ():
        name, inputs = model.operator_name(operator), operator.inputs or ()
        if name in SCALE_BY_CHANNEL:
            weights = inputs[REGISTRATIONS.get(name, OPAQUE).weights[0]]
            dimension = CHANNEL_DIMENSIONS.get(name, 0)
            channels = ((main.tensors or [])[weights].shape or ())[dimension]
            roles[weights] = TensorType.INT8, quantized([1 / 64] * channels, 0, dimension)
        if name in BIASES and len(inputs) > BIASES[name]:
            roles[inputs[BIASES[name]]] = TensorType.INT32, BIAS
        if name in FIXED_OUTPUTS:
            roles[(operator.outputs or ())[0]] = TensorType.INT8, FIXED_OUTPUTS[name]
    return roles


def _retype(root: Root, tensor: Tensor, kind: TensorType, quantization: QuantizationParameters) -> None:
    tensor.type, tensor.quantization = kind, quantization
    buffers = root.buffers or []
    if buffers[tensor.buffer].data:
        tensor.buffer = len(buffers)
        size = 4 if kind is TensorType.INT32 else 1
        buffers.append(Buffer(data=bytes(size * math.prod(tensor.shape or ()))))
