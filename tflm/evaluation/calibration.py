"""The range of each tensor's values over a data set, compared with the range of its quantization."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from tflm.errors import ArgumentError, DataError
from tflm.evaluation.runner import Runner
from tflm.evaluation.samples import data_set
from tflm.memory.tensor import TfLiteTensor
from tflm.report import NAME, NUMBER, AnyFloat, Figure, Table
from tflm.schema.model import Model


class TensorRange(NamedTuple):
    """A quantized tensor over a data set.

    Attributes:
        tensor: its name.
        operator: number and kind of the operator that makes it, or `input`.
        lowest: the least value seen, real.
        highest: the greatest value seen, real.
        room_from: the least real value that its integers can represent.
        room_to: the greatest.
        saturated: share of values at either end of the integers, except zeros.
        wasted_bits: bits of the integers that the observed values do not need.
    """

    tensor: str
    operator: str
    lowest: AnyFloat
    highest: AnyFloat
    room_from: AnyFloat
    room_to: AnyFloat
    saturated: float
    wasted_bits: AnyFloat


@dataclass(frozen=True)
class CalibrationReport:
    """How well the quantization of each tensor fits a data set.

    Attributes:
        count: samples that were run.
        tensors: in the order in which operators write them.
    """

    count: int
    tensors: tuple[TensorRange, ...] = field(repr=False)

    def worst(self, count: int = 10) -> list[TensorRange]:
        """The tensors with the worst fit, by unused bits and saturated values."""
        return sorted(self.tensors, key=lambda tensor: -(tensor.wasted_bits + 8 * tensor.saturated))[:count]

    def table(self) -> Table:
        """A row for each tensor."""
        return Table.of(
            f"Ranges over {self.count:,} samples",
            self.tensors,
            Figure("operator", NAME, "operator"),
            Figure("tensor", NAME, "tensor"),
            Figure("seen", NUMBER, lambda tensor: f"{tensor.lowest:.4g} to {tensor.highest:.4g}"),
            Figure("room", NUMBER, lambda tensor: f"{tensor.room_from:.4g} to {tensor.room_to:.4g}"),
            Figure("saturated", NUMBER, "saturated", ".2%"),
            Figure("wasted bits", NUMBER, "wasted_bits", ".1f"),
        )

    def _repr_html_(self) -> str:
        return self.table().html()


@dataclass
class _Seen:
    """Statistics of a tensor's integers so far."""

    lowest: int
    highest: int
    count: int = 0
    at_ends: int = 0


def calibrate_report(model: Model, inputs: Any, *, limit: int | None = None) -> CalibrationReport:
    """The range of every quantized tensor of the first subgraph over a data set.

    Args:
        inputs: as `evaluate` takes them.
        limit: run only the first `limit` samples.

    Raises:
        DataError: no sample could be run, or no activation is quantized.
        ArgumentError: the model is not a `tflm.Model`.
    """
    if not isinstance(model, Model):
        raise ArgumentError(f"model is a tflm.Model, not {model!r}: tflm.Model.from_file('...')")
    data = data_set(inputs, model=model)
    runner = Runner(model, preserve_all_tensors=True)
    makers = dict.fromkeys(model.subgraphs[0].inputs or (), "input")
    for place, operator in enumerate(model.subgraphs[0].operators or ()):
        makers |= {index: f"{place} {model.operator_name(operator)}" for index in operator.outputs or ()}
    watched = {index: runner.interpreter.get_tensor(index) for index in makers}
    watched = {i: tensor for i, tensor in watched.items() if tensor.scale and tensor.data.dtype.kind in "iu"}
    if not watched:
        raise DataError("the model has no quantized activations to compare ranges with; quantize it first")
    seen: dict[int, _Seen] = {}
    count, reason = 0, ""
    every = (sample for _, part in data.parts(0) for sample in part.samples(runner.inputs))
    for sample in islice(every, limit):
        failure = str(sample) if isinstance(sample, DataError) else runner.run(sample).reason
        if failure:
            reason = reason or failure
            continue
        count += 1
        for index, tensor in watched.items():
            _add(seen, index, tensor)
    if not count:
        raise DataError(f"no sample of the data could be run{reason and ': '}{reason}")
    return CalibrationReport(count, tuple(_range(watched[i], makers[i], found) for i, found in seen.items()))


def _add(seen: dict[int, _Seen], index: int, tensor: TfLiteTensor) -> None:
    values, limits = tensor.data, np.iinfo(tensor.data.dtype)
    found = seen.setdefault(index, _Seen(int(limits.max), int(limits.min)))
    found.lowest, found.highest = min(found.lowest, int(values.min())), max(found.highest, int(values.max()))
    found.count += values.size
    at_ends = ((values == limits.min) | (values == limits.max)) & (values != tensor.zero_point)
    found.at_ends += int(np.count_nonzero(at_ends))


def _range(tensor: TfLiteTensor, maker: str, found: _Seen) -> TensorRange:
    limits = np.iinfo(tensor.data.dtype)

    def real(integer: int) -> float:
        return float(integer - tensor.zero_point) * tensor.scale

    wasted = np.log2((int(limits.max) - int(limits.min) + 1) / (found.highest - found.lowest + 1))
    return TensorRange(
        tensor.name,
        maker,
        real(found.lowest),
        real(found.highest),
        real(int(limits.min)),
        real(int(limits.max)),
        found.at_ends / found.count,
        float(wasted),
    )
