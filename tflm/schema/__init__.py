"""The `.tflite` file format: tables and enumerations, a reader that verifies, a writer, a builder."""

from tflm.schema.builder import ModelBuilder, SubgraphBuilder, quantized
from tflm.schema.element_types import ELEMENT_TYPES, TENSOR_TYPES, ElementType
from tflm.schema.enums import *
from tflm.schema.options import *
from tflm.schema.reader import read_model
from tflm.schema.tables import *
from tflm.schema.writer import write_model
