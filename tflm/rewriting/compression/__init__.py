"""Models with constants stored compressed, which TFLM's DECODE operator expands."""

from tflm.rewriting.compression.compressed_model import compress
from tflm.rewriting.compression.compression_report import CompressedModel, CompressedTensor

__all__ = ["CompressedModel", "CompressedTensor", "compress"]
