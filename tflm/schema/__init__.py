"""The `.tflite` file format: tables and enumerations, a reader that verifies, a writer, a builder."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from tflm.schema.element_types import ELEMENT_TYPES, TENSOR_TYPES, ElementType
from tflm.schema.enums import *
from tflm.schema.options import *
from tflm.schema.reader import read_model
from tflm.schema.tables import *
from tflm.schema.writer import write_model

if TYPE_CHECKING:
    from tflm.schema.builder import ModelBuilder, SubgraphBuilder, quantized

IN_BUILDER = ("ModelBuilder", "SubgraphBuilder", "quantized")
"""Names that are imported on first use: the builder needs operator versions, which registrations declare."""


def __getattr__(name: str) -> Any:
    if name in IN_BUILDER:
        return getattr(import_module("tflm.schema.builder"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *IN_BUILDER})
