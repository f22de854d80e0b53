"""Signal loss of a quantized model: compares its tensors with those of a reference, operator by operator."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

import numpy as np

from tflm.errors import DataError, TflmError
from tflm.evaluation.input_files import units_of
from tflm.evaluation.runner import Runner, inputs_of
from tflm.evaluation.samples import DataSet, Sample
from tflm.memory.tensor import TfLiteTensor
from tflm.report import NAME, NUMBER, AnyFloat, Figure
from tflm.schema.model import Model


class SignalLoss(NamedTuple):
    """A tensor that both models have.

    Attributes:
        operator: number and kind of the operator that computes it, in the model.
        tensor: its name.
        decibels: power of the reference's values over that of the differences.
        lost: how many decibels less than the least of the inputs and the tensors before it; 0 if those have no noise.
    """

    operator: str
    tensor: str
    decibels: AnyFloat
    lost: AnyFloat


SIGNAL_FIGURES = (
    Figure("operator", NAME, "operator"),
    Figure("tensor", NAME, "tensor"),
    Figure("signal to noise", NUMBER, lambda loss: f"{loss.decibels:.1f} dB"),
    Figure("lost", NUMBER, lambda loss: f"{loss.lost:.1f} dB"),
)
"""The columns of a table of losses."""


def signal_losses(model: Model, reference: Model, data: DataSet, count: int) -> list[SignalLoss]:
    """Signal-to-noise ratio of every tensor of the first subgraph that has the same name or index in both models.

    There are none if one of the models takes several invokes for a sample.

    Args:
        count: number of samples to use, from the first on.
    """
    pairs = list(_pairs(model, reference))
    try:
        ours = Runner(model, preserve_all_tensors=True)
        theirs = Runner(reference, units_of(ours.inputs), preserve_all_tensors=True)
    except TflmError:
        return []
    if any(a.data.size != b.data.size for a, b in zip(ours.inputs, theirs.inputs)):
        return []
    power = {output: np.zeros(2, np.float64) for _, output, _ in pairs}
    given = [np.zeros(2, np.float64) for _ in ours.inputs]
    for sample, other in islice(_samples(ours, theirs, data), count):
        if ours.run(sample).outputs is None or theirs.run(other).outputs is None:
            continue
        for _, output, same in pairs:
            power[output] += _power(ours.interpreter.get_tensor(output), theirs.interpreter.get_tensor(same))
        for total, input, real in zip(given, inputs_of(ours.interpreter), inputs_of(theirs.interpreter)):
            total += _power(input, real)
    losses, lowest = [], min(map(_decibels, given), default=math.inf)
    for operator, output, _ in pairs:
        if not power[output][0]:
            continue
        decibels = _decibels(power[output])
        name = (model.subgraphs[0].tensors or [])[output].name or f"tensor {output}"
        losses.append(SignalLoss(operator, name, decibels, max(0.0, lowest - decibels) if lowest != math.inf else 0.0))
        lowest = min(lowest, decibels)
    return losses


def _samples(ours: Runner, theirs: Runner, data: DataSet) -> Iterator[tuple[Sample, Sample]]:
    """The samples that both can take."""
    for _, part in data.parts(0):
        for sample, other in zip(part.samples(ours.inputs), part.samples(theirs.inputs)):
            if not isinstance(sample, DataError) and not isinstance(other, DataError):
                yield sample, other


def _power(ours: TfLiteTensor, theirs: TfLiteTensor) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Power of the reference's values, and of the differences from them."""
    expected = theirs.dequantized().astype(np.float64)
    error = ours.dequantized().astype(np.float64).reshape(expected.shape) - expected
    return np.array([np.square(expected).sum(dtype=np.float64), np.square(error).sum(dtype=np.float64)], np.float64)


def _decibels(power: np.ndarray[tuple[int], np.dtype[np.float64]]) -> float:
    """Infinite without noise, or without a signal."""
    signal, noise = power.tolist()
    return 10 * math.log10(signal / noise) if signal and noise else math.inf


def _pairs(model: Model, reference: Model) -> Iterator[tuple[str, int, int]]:
    """Operator, tensor of the model, tensor of the reference."""
    ours, theirs = model.subgraphs[0], reference.subgraphs[0]
    names = {tensor.name: place for place, tensor in enumerate(theirs.tensors or ()) if tensor.name}
    alike = [model.operator_name(o) for o in ours.operators or ()] == [
        reference.operator_name(o) for o in theirs.operators or ()
    ]
    for index, operator in enumerate(ours.operators or ()):
        for position, output in enumerate(operator.outputs or ()):
            tensor = (ours.tensors or [])[output]
            same = names.get(tensor.name or "")
            if same is None and alike:
                same = ((theirs.operators or [])[index].outputs or ())[position]
            if same is None or math.prod((theirs.tensors or [])[same].shape or ()) != math.prod(tensor.shape or ()):
                continue
            yield f"{index} {model.operator_name(operator)}", output, same
