"""Records of the tail's memory by category."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class RecordedAllocationType(str, Enum):
    """Categories of memory in the tail, named as TFLM prints them."""

    EVAL_TENSOR_DATA = "TfLiteEvalTensor data"
    PERSISTENT_TENSOR_DATA = "Persistent TfLiteTensor data"
    PERSISTENT_TENSOR_QUANTIZATION_DATA = "Persistent TfLiteTensor quantization data"
    PERSISTENT_BUFFER_DATA = "Persistent buffer data"
    VARIABLE_BUFFER_DATA = "TfLiteTensor variable buffer data"
    NODE_AND_REGISTRATION_ARRAY = "NodeAndRegistration struct"
    OP_DATA = "Operator runtime data"


@dataclass(frozen=True)
class RecordedAllocation:
    """Bytes requested, bytes used including alignment, and number of allocations."""

    requested_bytes: int = 0
    used_bytes: int = 0
    count: int = 0


@dataclass
class Recorded:
    """Allocations of one category.

    Attributes:
        kind: the category.
        begin, end: the log's entries from `begin` to `end` - 1.
        used_bytes: bytes of the tail used, including alignment.
        count: the number to report if it differs from the number of entries; set by the code that allocates.
    """

    kind: RecordedAllocationType
    begin: int = 0
    end: int = 0
    used_bytes: int = 0
    count: int | None = None
