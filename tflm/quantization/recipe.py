"""How each operator is quantized, as a recipe of litert-quantizer: a list of rules, of which the last match decides.

The ranges are those of each float tensor over a data set. The model runs here, on the samples that `tflm evaluate`
takes, so it needs no signature. litert-quantizer's own calibration averages the extremes of the samples and clips
whatever exceeds that average; this one keeps the extremes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, NamedTuple

from tflm.errors import ArgumentError, DataError
from tflm.evaluation.runner import Runner
from tflm.evaluation.samples import DataSet
from tflm.memory.tensor import TfLiteTensor
from tflm.schema.enums import TensorType
from tflm.schema.model import Model

ACTIVATION_BITS = {"int8": 8, "int16": 16}
WEIGHT_BITS = {"int8": 8, "int4": 4}
IO = ("int", "float")

SCALE_BY_CHANNEL = frozenset({"CONV_2D", "DEPTHWISE_CONV_2D", "TRANSPOSE_CONV"})
"""Operators whose weights get a scale for each output channel.

The others get one scale. For FULLY_CONNECTED, every kernel library takes that. With more, TFLM rejects 4-bit weights,
CMSIS-NN rejects int16 activations, and the Arduino library uses the first scale for all rows.
"""

HAS_4_BIT_KERNEL = frozenset({"CONV_2D", "FULLY_CONNECTED"})
"""Operators that litert-quantizer can quantize to 4-bit weights."""

QUANTIZER_NAMES = {"TRANSPOSE_CONV": "CONV_2D_TRANSPOSE"}
"""Operators with another name in a recipe."""

CONVERSIONS = ("QUANTIZE", "DEQUANTIZE")
"""Operators that litert-quantizer adds."""

ENDS = ("INPUT", "OUTPUT")
"""The names of the model's inputs and outputs in a recipe."""


@dataclass(frozen=True)
class Recipe:
    """A choice of types.

    Attributes:
        activations: the type of activations, "int8" or "int16".
        weights: the type of weights, "int8" or "int4".
        float_io: whether inputs and outputs of the model stay float.
        without_int4: operators whose weights have 8 bits even if `weights` is "int4".
        in_float: operators that stay float.
        int16_tensors: names of first outputs of single operators that have int16 activations.
    """

    activations: str = "int8"
    weights: str = "int8"
    float_io: bool = False
    without_int4: frozenset[str] = frozenset()
    in_float: frozenset[str] = frozenset()
    int16_tensors: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _require("to", self.activations, ACTIVATION_BITS)
        _require("weights", self.weights, WEIGHT_BITS)

    def rules(self) -> list[dict[str, Any]]:
        """The rules, as litert-quantizer reads them from JSON."""
        bits = ACTIVATION_BITS[self.activations]
        rules = [_rule("*", bits, 8)]
        by_name = (SCALE_BY_CHANNEL | HAS_4_BIT_KERNEL) - self.in_float
        rules += [_rule(name, bits, self._weight_bits(name)) for name in sorted(by_name)]
        rules += [_no_rule(name) for name in (*sorted(self.in_float), *(ENDS if self.float_io else ()))]
        for tensor in self.int16_tensors:
            scope = f"^{re.escape(tensor)}(;|$)"
            rules += [_rule("*", 16, 8, scope), *(_rule(name, 16, 8, scope) for name in sorted(SCALE_BY_CHANNEL))]
        return rules

    def without(self, operator: str) -> Recipe | None:
        """The next recipe to try if a kernel library rejects an operator; None if the operator is float already."""
        if self._weight_bits(operator) == 4:
            return replace(self, without_int4=self.without_int4 | {operator})
        if operator in self.in_float:
            return None
        return replace(self, in_float=self.in_float | {operator})

    def _weight_bits(self, operator: str) -> int:
        is_int4 = operator in HAS_4_BIT_KERNEL and operator not in self.without_int4 | self.in_float
        return WEIGHT_BITS[self.weights] if is_int4 else 8


def _require(name: str, value: object, allowed: Any) -> None:
    if value not in allowed:
        raise ArgumentError(f"{name} is {' or '.join(map(repr, allowed))}, not {value!r}")


def _rule(operator: str, activation_bits: int, weight_bits: int, scope: str = ".*") -> dict[str, Any]:
    """A rule for static quantization: int8 activations with a zero point, everything else symmetric."""
    granularity = "CHANNELWISE" if operator in SCALE_BY_CHANNEL else "TENSORWISE"
    activations = _tensor(activation_bits, "TENSORWISE", symmetric=activation_bits == 16)
    config = {
        "activation_tensor_config": activations,
        "weight_tensor_config": _tensor(weight_bits, granularity, symmetric=True),
        "compute_precision": "INTEGER",
        "explicit_dequantize": False,
    }
    return _named(operator, scope) | {"algorithm_key": "min_max_uniform_quantize", "op_config": config}


def _no_rule(operator: str) -> dict[str, Any]:
    """A rule that leaves an operator float."""
    return _named(operator, ".*") | {"algorithm_key": "no_quantize"}


def _named(operator: str, scope: str) -> dict[str, Any]:
    return {"regex": scope, "operation": QUANTIZER_NAMES.get(operator, operator)}


def _tensor(bits: int, granularity: str, symmetric: bool) -> dict[str, Any]:
    return {"num_bits": bits, "symmetric": symmetric, "granularity": granularity, "dtype": "INT"}


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

    count, total = 0, min((most for most in (limit, data.count) if most is not None), default=None)
    every = (sample for _, part in data.parts(0) for sample in part.samples(runner.inputs))
    for sample in islice(every, limit):
        if isinstance(sample, DataError):
            raise sample
        reason = runner.run(sample, watch).reason
        if reason:
            raise DataError(reason)
        count += 1
        if report is not None:
            report(count, total)
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
