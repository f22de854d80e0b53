"""The result of a quantization."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import NamedTuple

from tflm.atomic_write import write_atomically
from tflm.evaluation.evaluation import Evaluation
from tflm.evaluation.signal import SignalLoss
from tflm.firmware.device_check import DeviceFinding
from tflm.quantization.recipe import Recipe
from tflm.runtime.micro_measurement_report import ArenaMeasurement
from tflm.schema.model import Model


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
class QuantizedModel:
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
    def model(self) -> Model:
        """The model."""
        return Model(self.data)

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

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write the model to a file.

        Raises:
            OSError: the file can't be written.
        """
        write_atomically(path, self.data)
