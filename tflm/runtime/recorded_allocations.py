"""What memory of the tail is used for."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class RecordedAllocationType(str, Enum):
    """What memory of the tail is used for, named as TFLM prints it."""

    EVAL_TENSOR_DATA = "TfLiteEvalTensor data"
    PERSISTENT_TENSOR_DATA = "Persistent TfLiteTensor data"
    PERSISTENT_TENSOR_QUANTIZATION_DATA = "Persistent TfLiteTensor quantization data"
    PERSISTENT_BUFFER_DATA = "Persistent buffer data"
    VARIABLE_BUFFER_DATA = "TfLiteTensor variable buffer data"
    NODE_AND_REGISTRATION_ARRAY = "NodeAndRegistration struct"
    OP_DATA = "Operator runtime data"


@dataclass(frozen=True)
class RecordedAllocation:
    """Bytes asked for, bytes used with what alignment added, and number of allocations."""

    requested_bytes: int = 0
    used_bytes: int = 0
    count: int = 0


@dataclass
class Recorded:
    """Allocations for one purpose.

    Attributes:
        kind: what for.
        begin, end: those of the log that they are, from `begin` to before `end`.
        used_bytes: bytes of the tail that they took, with what alignment added.
        count: how many they count as, where that is not their number; set by the code that allocates.
    """

    kind: RecordedAllocationType
    begin: int = 0
    end: int = 0
    used_bytes: int = 0
    count: int | None = None
