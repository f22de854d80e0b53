"""Bytes that an inference reads and writes in each memory: head, tail and flash.

Each operator is counted once, and each of its tensors and scratch buffers once: it reads its inputs and writes its
outputs, and writes and reads its scratch. Real traffic is higher for kernels that read weights or inputs repeatedly,
and lower with caches. Use the figures to compare models and memories, not to estimate time.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from tflm.runtime.allocator_structures import RecordedAllocationType
from tflm.runtime.micro_measurement_report import ArenaMeasurement
from tflm.schema.enums import ELEMENT_TYPES
from tflm.schema.model import Model
from tflm.schema.tables import Tensor

KEPT = (RecordedAllocationType.OP_DATA, RecordedAllocationType.PERSISTENT_BUFFER_DATA)
"""Categories of persistent data that operators read when they run, such as per-channel multipliers."""


@dataclass(frozen=True)
class Traffic:
    """Bytes that an inference reads and writes in each memory, counting every operator once.

    Attributes:
        head_read_bytes, head_written_bytes: those of the head.
        tail_read_bytes: bytes read in the tail: variables and operators' persistent data.
        tail_written_bytes: bytes written in the tail: variables.
        flash_read_bytes: bytes of the model's constants.
    """

    head_read_bytes: int
    head_written_bytes: int
    tail_read_bytes: int
    tail_written_bytes: int
    flash_read_bytes: int


def traffic(model: Model, measured: ArenaMeasurement) -> Traffic:
    """Compute the traffic of an inference from a model and its measurement."""
    of_buffers = buffer_traffic(model, measured)
    inputs = [
        (subgraph.tensors or [])[tensor]
        for subgraph in model.subgraphs
        for operator in subgraph.operators or ()
        for tensor in operator.inputs or ()
        if tensor >= 0
    ]
    variables = sum(_bytes(tensor) for tensor in inputs if tensor.is_variable)  # operators also write these
    kept = sum(measured.records[kind].requested_bytes for kind in KEPT if kind in measured.records)
    return Traffic(
        head_read_bytes=sum(read for read, _ in of_buffers),
        head_written_bytes=sum(written for _, written in of_buffers),
        tail_read_bytes=variables + kept,
        tail_written_bytes=variables,
        flash_read_bytes=sum(len(model.constant(tensor) or b"") for tensor in inputs),
    )


def buffer_traffic(model: Model, measured: ArenaMeasurement) -> list[tuple[int, int]]:
    """Bytes that an inference reads and writes of each buffer of the head, counting every operator once."""
    reads = dict.fromkeys((buffer.tensor for buffer in measured.buffers), 0)
    writes = dict(reads)
    start = 0
    for subgraph in model.subgraphs:
        for operator in subgraph.operators or ():
            made = *(operator.outputs or ()), *(operator.intermediates or ())
            for tensors, counts in ((operator.inputs or (), reads), (made, writes)):
                for tensor in tensors:
                    if tensor >= 0 and start + tensor in counts:
                        counts[start + tensor] += 1
        start += len(subgraph.tensors or ())
    reads[None] = writes[None] = 1
    return [(b.bytes * reads[b.tensor], b.bytes * writes[b.tensor]) for b in measured.buffers]


def _bytes(tensor: Tensor) -> int:
    return math.prod(tensor.shape or ()) * ELEMENT_TYPES[tensor.type].dtype.itemsize
