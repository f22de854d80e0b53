"""Bytes that an inference reads and writes in each memory: head, tail and flash.

Each operator is counted once, and each of its tensors and scratch buffers once: it reads its inputs and writes its
outputs, and writes and reads its scratch. Real traffic is higher for kernels that read weights or inputs repeatedly,
and lower with caches. Use the figures to compare models and memories, not to estimate time.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass

from tflm.runtime.allocator_structures import RecordedAllocationType
from tflm.runtime.micro_measurement_report import ArenaMeasurement
from tflm.schema.enums import ELEMENT_TYPES
from tflm.schema.model import Model
from tflm.schema.tables import Operator, SubGraph, Tensor

KEPT = (RecordedAllocationType.OP_DATA, RecordedAllocationType.PERSISTENT_BUFFER_DATA)
"""Categories of persistent data that operators read when they run, such as per-channel multipliers."""


@dataclass(frozen=True)
class OperatorTraffic:
    """Bytes that one run of an operator reads and writes, of its tensors and scratch buffers.

    Attributes:
        subgraph_index, operator_index: its place in the model.
        operator: its name.
        head_read_bytes, head_written_bytes: bytes read and written in the head.
        tail_read_bytes, tail_written_bytes: bytes of variables read and written in the tail.
        flash_read_bytes: bytes of the model's constants that it reads.
    """

    subgraph_index: int
    operator_index: int
    operator: str
    head_read_bytes: int = 0
    head_written_bytes: int = 0
    tail_read_bytes: int = 0
    tail_written_bytes: int = 0
    flash_read_bytes: int = 0


@dataclass(frozen=True)
class Traffic:
    """Bytes that an inference reads and writes in each memory, counting every operator once.

    Attributes:
        operators: traffic of each operator.
        kept_bytes: persistent data of all operators in the tail, read once.
    """

    operators: tuple[OperatorTraffic, ...]
    kept_bytes: int

    @property
    def head_read_bytes(self) -> int:
        """Bytes read in the head."""
        return sum(each.head_read_bytes for each in self.operators)

    @property
    def head_written_bytes(self) -> int:
        """Bytes written in the head."""
        return sum(each.head_written_bytes for each in self.operators)

    @property
    def tail_read_bytes(self) -> int:
        """Bytes read in the tail: variables and operators' persistent data."""
        return sum(each.tail_read_bytes for each in self.operators) + self.kept_bytes

    @property
    def tail_written_bytes(self) -> int:
        """Bytes written in the tail."""
        return sum(each.tail_written_bytes for each in self.operators)

    @property
    def flash_read_bytes(self) -> int:
        """Bytes read in the model's file."""
        return sum(each.flash_read_bytes for each in self.operators)


def traffic(model: Model, measured: ArenaMeasurement) -> Traffic:
    """Compute the traffic of an inference from a model and its measurement."""
    kept = sum(measured.records[kind].requested_bytes for kind in KEPT if kind in measured.records)
    return Traffic(tuple(_operators(model, measured)), kept)


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


def _operators(model: Model, measured: ArenaMeasurement) -> Iterator[OperatorTraffic]:
    in_head = {buffer.tensor: buffer.bytes for buffer in measured.buffers if buffer.tensor is not None}
    scratch = _scratch(measured)
    starts = itertools.accumulate((len(subgraph.tensors or ()) for subgraph in model.subgraphs), initial=0)
    for i, (start, subgraph) in enumerate(zip(starts, model.subgraphs)):
        for j, operator in enumerate(subgraph.operators or ()):
            head, tail, flash = _read(model, subgraph, operator, in_head, start)
            temporary = scratch.get((i, j), 0)
            outputs = [t for t in (*(operator.outputs or ()), *(operator.intermediates or ())) if t >= 0]
            variables = _variable_inputs(subgraph, operator)
            yield OperatorTraffic(
                subgraph_index=i,
                operator_index=j,
                operator=model.operator_name(operator),
                head_read_bytes=head + temporary,
                head_written_bytes=sum(in_head.get(start + t, 0) for t in outputs) + temporary,
                tail_read_bytes=tail,
                tail_written_bytes=sum(map(_bytes, variables)),
                flash_read_bytes=flash,
            )


def _read(
    model: Model, subgraph: SubGraph, operator: Operator, in_head: dict[int, int], start: int
) -> tuple[int, int, int]:
    """Bytes of an operator's inputs in the head, in the tail and in the flash."""
    tensors = subgraph.tensors or []
    inputs = [t for t in operator.inputs or () if t >= 0]
    constants = (model.constant(tensors[t]) for t in inputs)
    head = sum(in_head.get(start + t, 0) for t in inputs)
    return head, sum(map(_bytes, _variable_inputs(subgraph, operator))), sum(len(c) for c in constants if c is not None)


def _variable_inputs(subgraph: SubGraph, operator: Operator) -> list[Tensor]:
    """The variables of an operator: inputs that it also writes."""
    tensors = subgraph.tensors or []
    return [tensors[t] for t in operator.inputs or () if t >= 0 and tensors[t].is_variable]


def _bytes(tensor: Tensor) -> int:
    return math.prod(tensor.shape or ()) * ELEMENT_TYPES[tensor.type].dtype.itemsize


def _scratch(measured: ArenaMeasurement) -> dict[tuple[int, int | None], int]:
    """Bytes of the scratch buffers of each operator."""
    found: dict[tuple[int, int | None], int] = {}
    for buffer in measured.buffers:
        if buffer.kind == "scratch":
            place = measured.places[buffer.first_use]
            found[place] = found.get(place, 0) + buffer.bytes
    return found
