"""Offline memory plans in a model's metadata, which TFLM and this runtime follow."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tflm.errors import ModelError
from tflm.schema.tables import Model

METADATA_NAME = "OfflineMemoryAllocation"

VERSION = 1

HEADER_WORDS = 3
"""Words before the offsets: version, subgraph of the plan (0: all in one list), and number of offsets."""

ONLINE = -1
"""The offset of a tensor that is left to the online planner."""


def offline_offsets(model: Model) -> tuple[int, ...] | None:
    """The planned offset of every tensor, subgraph after subgraph, -1 for the online planner; None without a plan.

    Raises:
        ModelError: the plan is truncated, is for another number of tensors, or has a negative offset.
    """
    data = None
    for entry in model.metadata or ():
        if entry.name == METADATA_NAME and model.buffers:
            data = memoryview(model.buffers[entry.buffer].data or b"")
    if data is None:
        return None
    if len(data) < 4 * HEADER_WORDS:
        raise broken_plan(f"{len(data)} bytes are too few for its header of {HEADER_WORDS} words")
    words = np.frombuffer(data[: len(data) // 4 * 4], "<i4")
    count = int(words[HEADER_WORDS - 1])
    tensor_count = sum(len(subgraph.tensors or ()) for subgraph in model.subgraphs or ())
    if count != tensor_count:
        raise broken_plan(f"it has offsets for {count} tensors, the model has {tensor_count}")
    if len(words) < HEADER_WORDS + count:
        raise broken_plan(f"{len(data)} bytes are too few for {count} offsets")
    offsets = tuple(words[HEADER_WORDS : HEADER_WORDS + count].tolist())
    if count and min(offsets) < ONLINE:
        raise broken_plan(f"offset {min(offsets)} is negative; only -1 is, for a tensor that is planned online")
    return offsets


def encode_offsets(offsets: Sequence[int]) -> bytes:
    """The metadata that holds these offsets (bytes; -1 for a tensor that is left to the online planner)."""
    return np.asarray([VERSION, 0, len(offsets), *offsets], "<i4").tobytes()


def drop_plan(model: Model) -> None:
    """Remove the plan from a model's tables, so that the device places every tensor."""
    model.metadata = [entry for entry in model.metadata or () if entry.name != METADATA_NAME] or None


def broken_plan(reason: str, *, unsound: bool = False) -> ModelError:
    """A finding on the plan."""
    reason = f"the offline plan is broken: {reason}"
    return ModelError(reason, table="Metadata", field="buffer", place=METADATA_NAME, unsound=unsound)
