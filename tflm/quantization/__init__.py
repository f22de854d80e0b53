"""Quantizes float models with Google's litert-quantizer, so that TFLM and its kernel libraries accept the result.

The package computes scales and integer weights. This one measures the ranges of the tensors, chooses a recipe, repairs
the model before and after, and checks it.
"""

from tflm.quantization.quantization import quantize
from tflm.quantization.quantized_model import Alternative, FloatOperator, QuantizedModel

__all__ = ["Alternative", "FloatOperator", "QuantizedModel", "quantize"]
