"""The result of a quantization.

The arena of the int8 version of a float model is estimated without samples and without litert-quantizer.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import NamedTuple

from tflm.errors import TflmError
from tflm.evaluation.evaluation import Evaluation
from tflm.evaluation.signal import SignalLoss
from tflm.firmware.device_check import DeviceFinding
from tflm.kernels import OPAQUE, REGISTRATIONS
from tflm.libraries import Kernels
from tflm.planning.improved_model import ChangedModel
from tflm.quantization.recipe import SCALE_BY_CHANNEL, Recipe
from tflm.quantization.repairs import BIASES, prepared
from tflm.runtime.micro_measurement import measure_arena
from tflm.runtime.micro_measurement_report import ArenaMeasurement
from tflm.runtime.micro_op_resolver import AllOpsResolver
from tflm.schema.builder import quantized
from tflm.schema.enums import TensorType
from tflm.schema.model import Model
from tflm.schema.reader import read_model
from tflm.schema.tables import Buffer, QuantizationParameters, Tensor
from tflm.schema.tables import Model as Root
from tflm.schema.writer import write_model
from tflm.targets import Target


class FloatOperator(NamedTuple):
    """An operator that was not quantized.

    Attributes:
        operator: its number and kind, in the quantized model.
        reason: why it stays float.
    """

    operator: str
    reason: str


class Alternative(NamedTuple):
    """Another choice of types.

    Attributes:
        name: what has int16 activations.
        accuracy: share of samples that are classified correctly, 0 to 1; None if it cannot run.
        minimum_arena_bytes: the smallest arena; None if it cannot run.
        file_bytes: the size of the file; None if it cannot run.
        reason: why it cannot run; empty if it can.
    """

    name: str
    accuracy: float | None = None
    minimum_arena_bytes: int | None = None
    file_bytes: int | None = None
    reason: str = ""


@dataclass(frozen=True)
class QuantizedModel(ChangedModel):
    """A quantized model, and its cost.

    Attributes:
        data: the model's bytes.
        recipe: the chosen types.
        samples: samples that the ranges of the tensors come from.
        file_bytes_before: size of the float model's file.
        before, after: arena requirements of the float and the quantized model; None if the kernel library rejects it.
        float_operators: operators that stay float, with reasons.
        findings: what behaves differently on the device.
        evaluation_before, evaluation: results of both models on the samples; None without labels.
        alternatives: the effect of int16 activations; empty without labels.
    """

    data: bytes = field(repr=False)
    recipe: Recipe
    samples: int
    file_bytes_before: int
    before: ArenaMeasurement | None
    after: ArenaMeasurement | None
    float_operators: tuple[FloatOperator, ...]
    findings: tuple[DeviceFinding, ...] = ()
    evaluation_before: Evaluation | None = None
    evaluation: Evaluation | None = None
    alternatives: tuple[Alternative, ...] = ()

    @property
    def accepted(self) -> bool:
        """Whether the kernel library runs the model."""
        return self.after is not None and not any(finding.stops for finding in self.findings)

    @property
    def minimum_arena_bytes(self) -> int | None:
        """The smallest arena that the model works in; None if the kernel library rejects it."""
        return None if self.after is None else self.after.minimum_arena_bytes

    @property
    def minimum_arena_bytes_before(self) -> int | None:
        """The smallest arena that the float model works in; None if the kernel library rejects it."""
        return None if self.before is None else self.before.minimum_arena_bytes

    def worst(self, count: int = 5) -> list[SignalLoss]:
        """The operators that lose most of the float model's values; empty without labels."""
        losses = () if self.evaluation is None else self.evaluation.signal
        return sorted((loss for loss in losses if loss.lost > 0), key=lambda loss: -loss.lost)[:count]


CHANNEL_DIMENSIONS = {"DEPTHWISE_CONV_2D": 3}
"""The dimension of the weights that counts output channels, if it is not the first."""

FIXED_OUTPUTS = {"SOFTMAX": quantized(1 / 256, -128), "LOGISTIC": quantized(1 / 256, -128), "TANH": quantized(1 / 128)}
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
    data = prepared(model)
    root, roles = read_model(memoryview(data)), _roles(Model(data))
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
