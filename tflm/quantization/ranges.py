"""The range of each float tensor over a data set: the calibration of a quantizer.

The model runs here, on the samples that `tflm evaluate` takes, so it needs no signature. litert-quantizer's own
calibration averages the extremes of the samples and clips whatever exceeds that average; this one keeps the extremes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import islice
from typing import NamedTuple

from tflm.errors import DataError
from tflm.evaluation.runner import Runner
from tflm.evaluation.samples import DataSet
from tflm.memory.tensor import TfLiteTensor
from tflm.schema.enums import TensorType
from tflm.schema.model import Model

Report = Callable[[int, "int | None"], None]


class Range(NamedTuple):
    """The lowest and the highest value of a tensor."""

    lowest: float
    highest: float


class Calibration(NamedTuple):
    """The ranges of the tensors, by index, and the number of samples that were run."""

    ranges: dict[int, Range]
    samples: int


def calibrated(model: Model, data: DataSet, limit: int | None = None, report: Report | None = None) -> Calibration:
    """The range of every float tensor that the operators of the first subgraph read or write.

    Args:
        limit: run only the first samples.
        report: called with how many samples are done, and of how many.

    Raises:
        DataError: there are no samples, one cannot be read or run, or values are not finite.
        TflmError: the model cannot be run here.
    """
    runner = Runner(model, preserve_all_tensors=True)
    watched = {index: runner.interpreter.get_tensor(index) for index in _activations(model)}
    ranges: dict[int, Range] = {}

    def watch() -> None:
        for index, tensor in watched.items():
            ranges[index] = _widened(ranges.get(index), tensor)

    count = 0
    every = (sample for _, part in data.parts(0) for sample in part.samples(runner.inputs))
    for sample in islice(every, limit):
        if isinstance(sample, DataError):
            raise sample
        reason = runner.run(sample, watch).reason
        if reason:
            raise DataError(reason)
        count += 1
        if report is not None:
            report(count, data.count if limit is None else limit)
    if not count:
        raise DataError("the data has no samples; calibration needs typical inputs, some 100 or more")
    return Calibration(ranges, count)


def _activations(model: Model) -> list[int]:
    """Float tensors that are inputs of the model or written by its operators."""
    main = model.subgraphs[0]
    written = [index for operator in main.operators or () for index in operator.outputs or ()]
    indices = dict.fromkeys([*(main.inputs or ()), *written])
    return [index for index in indices if index >= 0 and (main.tensors or [])[index].type is TensorType.FLOAT32]


def _widened(before: Range | None, tensor: TfLiteTensor) -> Range:
    lowest, highest = float(tensor.data.min()), float(tensor.data.max())
    if not (math.isfinite(lowest) and math.isfinite(highest)):
        raise DataError(
            f"tensor {tensor.name!r} has values that are not finite, which have no integer scale; "
            "leave this sample out, or change the model"
        )
    return Range(lowest, highest) if before is None else Range(min(before[0], lowest), max(before[1], highest))
