"""Memory plans made beforehand and kept in a model's metadata, which TFLM and this runtime obey."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tflm.errors import ModelError
from tflm.schema.model import Model

METADATA_NAME = "OfflineMemoryAllocation"

VERSION = 1

HEADER_WORDS = 3
"""Version, subgraph that the plan is for (0: all of them in one list), and number of offsets; then the offsets."""


def offline_offsets(model: Model, tensor_count: int) -> tuple[int, ...] | None:
    """The planned offset of every tensor, subgraph after subgraph, -1 where it is left to the online planner.

    None where the model has no offline plan.

    Raises:
        ModelError: the plan is cut off, or is not for this number of tensors.
    """
    data = model.metadata(METADATA_NAME)
    if data is None:
        return None
    if len(data) < 4 * HEADER_WORDS:
        raise _finding(f"{len(data)} bytes are too few for its header of {HEADER_WORDS} words")
    words = np.frombuffer(data[: len(data) // 4 * 4], "<i4")
    count = int(words[HEADER_WORDS - 1])
    if count != tensor_count:
        raise _finding(f"it has offsets for {count} tensors, the model has {tensor_count}")
    if len(words) < HEADER_WORDS + count:
        raise _finding(f"{len(data)} bytes are too few for {count} offsets")
    return tuple(words[HEADER_WORDS : HEADER_WORDS + count].tolist())


def encode_offsets(offsets: Sequence[int]) -> bytes:
    """The metadata that holds these offsets (bytes; -1 for a tensor that is left to the online planner)."""
    return np.asarray([VERSION, 0, len(offsets), *offsets], "<i4").tobytes()


def _finding(reason: str) -> ModelError:
    return ModelError(f"the offline plan is broken: {reason}", table="Metadata", field="buffer", place=METADATA_NAME)
