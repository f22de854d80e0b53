"""Quantizes a model: calibrates, chooses a recipe that the kernel library accepts, repairs and checks the result."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tflm.errors import ArgumentError, DataError, QuantizerError, TflmError
from tflm.evaluation.evaluation import Evaluation, evaluate
from tflm.evaluation.samples import DataSet, data_set
from tflm.firmware.device_check import DeviceFinding, check_device
from tflm.libraries import KernelLibrary, Kernels, library_for
from tflm.quantization.quantized_model import Alternative, FloatOperator, QuantizedModel
from tflm.quantization.recipe import CONVERSIONS, IO, Calibration, Range, Recipe, Report, calibrated
from tflm.quantization.repairs import finished, prepared, require_float, with_fitting_biases
from tflm.releases import Releases
from tflm.runtime.micro_measurement import measure_arena
from tflm.runtime.micro_measurement_report import ArenaMeasurement
from tflm.runtime.micro_op_resolver import AllOpsResolver
from tflm.schema.enums import TensorType
from tflm.schema.model import Model, require_model
from tflm.schema.tables import Operator
from tflm.targets import CORTEX_M, Target

PACKAGE = "litert-quantizer~=0.11.0"
"""The tested versions, as in the extra `quantize`."""

SMALLEST_MAGNITUDE = 1e-9
"""The minimum range that the package distinguishes from 0."""


def require_quantizer() -> Any:
    """The module of litert-quantizer.

    Raises:
        ArgumentError: the package is not installed.
    """
    try:
        from litert_quantizer import quantizer
    except ImportError:
        raise ArgumentError(f"quantization needs litert-quantizer: pip install '{PACKAGE}'") from None
    return quantizer


def quantized_by(recipe: Recipe, model: Model, ranges: dict[int, Range]) -> bytes:
    """The bytes that litert-quantizer makes of a prepared model.

    Args:
        ranges: of the float tensors, by index.

    Raises:
        ArgumentError: the package is not installed.
        DataError: the values of a tensor are too small for it.
        QuantizerError: it fails.
    """
    quantizer = require_quantizer()
    _require_large_enough(model, ranges)
    statistics = {
        tensor.name: {
            "min": np.array(ranges[index].lowest, np.float32),
            "max": np.array(ranges[index].highest, np.float32),
        }
        for index, tensor in enumerate(model.subgraphs[0].tensors or ())
        if index in ranges
    }
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            made = quantizer.Quantizer(memoryview(bytearray(model.data)), recipe.rules())
            result = made.quantize(statistics, enable_progress_bar=False, enable_progress_report=False)
    except Exception as error:  # the package passes on any exception of its dependencies
        raise QuantizerError(f"litert-quantizer fails: {type(error).__name__}: {error}") from error
    return bytes(result.quantized_model)


def _require_large_enough(model: Model, ranges: dict[int, Range]) -> None:
    for index, (lowest, highest) in ranges.items():
        if 0 < max(-lowest, highest) < SMALLEST_MAGNITUDE:
            name = (model.subgraphs[0].tensors or [])[index].name
            raise DataError(
                f"tensor {name!r} has values from {lowest:.3g} to {highest:.3g}; litert-quantizer rounds values below "
                f"{SMALLEST_MAGNITUDE:g} to 0: scale the samples up, and the model's weights accordingly"
            )


INT16_OPERATORS = 3
"""Number of the worst operators that are tried with int16 activations."""


def quantize(
    model: Model,
    samples: Any,
    labels: Any = None,
    *,
    to: str = "int8",
    weights: str = "int8",
    io: str = "int",
    target: Target = CORTEX_M,
    kernels: Kernels = "reference",
    release: Releases | None = None,
    limit: int | None = None,
    report: Report | None = None,
) -> QuantizedModel:
    """Quantize a float model with litert-quantizer, so that TFLM accepts the result.

    Operators that the kernel library rejects get 8-bit weights instead of 4-bit ones, or else stay float.

    Args:
        model: the float model.
        samples: typical inputs, as `evaluate` takes them. Scales are chosen from the values that they produce.
        labels: the class of each sample, as for `evaluate`; with labels, the accuracy of both models is compared.
        to: the type of activations, "int8" or "int16".
        weights: the type of weights, "int8", or "int4" for CONV_2D and FULLY_CONNECTED.
        io: the type of inputs and outputs: "int" for that of activations, or "float".
        target: the part that the arena is measured for.
        kernels: the firmware's kernel library.
        release: the firmware's TFLM release, as for `MicroInterpreter`.
        limit: use only the first samples.
        report: called with how many samples were run for the ranges, and of how many.

    Raises:
        ArgumentError: litert-quantizer is not installed, the model is quantized already, or an argument is invalid.
        DataError: there are no samples, or one is invalid.
        QuantizerError: litert-quantizer fails.
        TflmError: the float model cannot be run.
    """
    if io not in IO:
        raise ArgumentError(f"io is {' or '.join(map(repr, IO))}, not {io!r}")
    recipe = Recipe(to, weights, float_io=io == "float")
    require_float(require_model(model))
    library = library_for(kernels, target, release)
    require_quantizer()
    data = data_set(samples, labels, model)
    ready = Model(prepared(model, recipe.float_io))
    session = _Session(ready, calibrated(ready, data, limit, report), target, library)
    chosen = session.accepted_version(recipe)
    found = QuantizedModel(
        data=chosen.data,
        recipe=chosen.recipe,
        samples=session.calibration.samples,
        file_bytes_before=len(model.data),
        before=session.arena(model),
        after=session.arena(Model(chosen.data)),
        float_operators=tuple(_float_operators(chosen, library)),
        findings=tuple(chosen.findings),
    )
    return _evaluated(found, session, data, limit) if _has_labels(data, labels) else found


@dataclass(frozen=True)
class _Version:
    """A quantized model and the kernel library's findings about it."""

    recipe: Recipe
    data: bytes
    findings: list[DeviceFinding]


@dataclass(frozen=True)
class _Session:
    """A prepared float model with its ranges, and the machine that it is quantized for."""

    model: Model
    calibration: Calibration
    target: Target
    library: KernelLibrary

    def version(self, recipe: Recipe) -> _Version:
        """The model quantized with a recipe, repaired and checked."""
        data = quantized_by(recipe, self.model, self.calibration.ranges)
        data = finished(with_fitting_biases(data, self.model))
        return _Version(recipe, data, check_device(Model(data), target=self.target, kernels=self.library))

    def accepted_version(self, recipe: Recipe) -> _Version:
        """The first version that the kernel library accepts; operators that it rejects get other types."""
        version = self.version(recipe)
        while (stopping := next((f for f in version.findings if f.stops), None)) is not None:
            quantized = stopping.operator not in (*CONVERSIONS, "")
            other = version.recipe.without(stopping.operator) if quantized else None
            if other is None:
                break
            version = self.version(other)
        return version

    def arena(self, model: Model) -> ArenaMeasurement | None:
        """The arena of a model; None if the library rejects it."""
        try:
            return measure_arena(model, AllOpsResolver(), target=self.target, kernels=self.library)
        except TflmError:
            return None


def _float_operators(version: _Version, library: KernelLibrary) -> list[FloatOperator]:
    model, recipe = Model(version.data), version.recipe
    found = []
    for index, operator in enumerate(model.subgraphs[0].operators or ()):
        name = model.operator_name(operator)
        if name in CONVERSIONS or not _is_float(model, operator):
            continue
        by_library = f"{library.name} kernels reject it with {recipe.activations} activations"
        by_package = f"litert-quantizer has no {recipe.activations} {name}"
        found.append(FloatOperator(f"{index} {name}", by_library if name in recipe.in_float else by_package))
    return found


def _is_float(model: Model, operator: Operator) -> bool:
    tensors = model.subgraphs[0].tensors or []
    return any(tensors[index].type is TensorType.FLOAT32 for index in operator.outputs or ())


def _has_labels(data: DataSet, labels: Any) -> bool:
    return labels is not None or getattr(data, "labels", None) is not None


def _evaluated(found: QuantizedModel, session: _Session, data: DataSet, limit: int | None) -> QuantizedModel:
    """The result with the accuracy of both models, and the effect of int16."""
    before = evaluate(session.model, data, limit=limit)
    after = evaluate(found.model, data, reference=session.model, limit=limit)
    found = replace(found, evaluation_before=before, evaluation=after)
    if found.recipe.activations == "int16":
        return found
    outputs = _outputs_by_operator(found.model)
    worst = [loss.tensor for loss in found.worst(INT16_OPERATORS) if loss.tensor in outputs]
    choices = [(f"int16 for {outputs[tensor]}", replace(found.recipe, int16_tensors=(tensor,))) for tensor in worst]
    everywhere = replace(found.recipe, activations="int16", without_int4=frozenset(), in_float=frozenset())
    choices.append(("int16 throughout", everywhere))
    return replace(found, alternatives=tuple(_alternative(*choice, session, data, limit) for choice in choices))


def _outputs_by_operator(model: Model) -> dict[str, str]:
    """Return the number and the kind of each operator, by the name of its first output."""
    main = model.subgraphs[0]
    return {
        (main.tensors or [])[operator.outputs[0]].name or "": f"{index} {model.operator_name(operator)}"
        for index, operator in enumerate(main.operators or ())
        if operator.outputs and model.operator_name(operator) not in CONVERSIONS
    }


def _alternative(name: str, recipe: Recipe, session: _Session, data: DataSet, limit: int | None) -> Alternative:
    try:
        version = session.version(recipe)
        stopping = next((finding for finding in version.findings if finding.stops), None)
        if stopping is not None:
            return Alternative(name, reason=f"{stopping.operator}: {stopping.happens}")
        result: Evaluation = evaluate(Model(version.data), data, limit=limit)
    except TflmError as error:
        return Alternative(name, reason=str(error))
    arena = session.arena(Model(version.data))
    return Alternative(name, result.accuracy, None if arena is None else arena.minimum_arena_bytes, len(version.data))
