"""The `.tflite` file format: tables and enumerations, a reader that verifies, a writer, a builder."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from tflm.schema.enums import *
from tflm.schema.enums import ELEMENT_TYPES, TENSOR_TYPES, ElementType
from tflm.schema.options import *
from tflm.schema.reader import read_model
from tflm.schema.tables import *

if TYPE_CHECKING:
    from tflm.schema.builder import ModelBuilder, SubgraphBuilder, quantized
    from tflm.schema.writer import write_model

LATER = {**dict.fromkeys(("ModelBuilder", "SubgraphBuilder", "quantized"), "builder"), "write_model": "writer"}
"""Names that are imported on first use, with their modules: the builder needs operator versions, which registrations
declare, and running a model needs neither."""


def __getattr__(name: str) -> Any:
    if name in LATER:
        return getattr(import_module(f"{__name__}.{LATER[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *LATER})
