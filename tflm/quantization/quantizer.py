"""The call of litert-quantizer, the only module that imports it."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from tflm.errors import ArgumentError, DataError, QuantizerError
from tflm.quantization.ranges import Range
from tflm.quantization.recipe import Recipe
from tflm.schema.model import Model

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
    except Exception as error:  # the package raises whatever its parts raise
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
