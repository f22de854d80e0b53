"""The measurement of a model's arena, and its report for `tflm arena` and notebooks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tflm.libraries import KernelLibrary
from tflm.memory.buffer import Buffer
from tflm.report import NAME, NUMBER, TEXT, Figure, Report, Table, with_thousands
from tflm.runtime.allocator_structures import RecordedAllocation, RecordedAllocationType
from tflm.targets import Target

LARGEST_BUFFERS = 10

BUFFER_KEYS = ("name", "kind", "offset", "bytes", "first_use", "last_use")
"""Attributes of a buffer that are copied to the figures."""

FIGURES = ("arena_used_bytes", "head_bytes", "tail_bytes", "minimum_arena_bytes", "temp_bytes", "npu_bytes", "steps")
"""Attributes of a measurement that are copied to the figures."""

CHANGES = {"minimum_arena_bytes": "smallest arena", "head_bytes": "  head", "tail_bytes": "  tail"}
"""Attributes of a measurement that rewriting a model changes, with their labels."""


@dataclass(frozen=True)
class Peak:
    """The step at which most bytes of the head are needed at once.

    Attributes:
        operator: name of the operator that runs then; empty for the step that fills the inputs.
        subgraph_index, operator_index: its indices in the model; the operator's is None if no operator runs.
        step: number of the step, as in the buffers' first and last use.
        bytes: bytes of the live buffers, each rounded up to 16; the head can only be smaller if more of them share
            memory.
        buffers: the live buffers, largest first.
    """

    operator: str
    subgraph_index: int
    operator_index: int | None
    step: int
    bytes: int
    buffers: list[Buffer]

    def __repr__(self) -> str:
        return f"Peak(step {self.step} {self.operator or 'inputs'}, {self.bytes} bytes, {len(self.buffers)} buffers)"


@dataclass(frozen=True)
class ArenaMeasurement:
    """The arena that a model needs on a target, in bytes.

    Attributes:
        target: the target.
        kernels: the kernel library.
        arena_used_bytes: result of the method of that name on the target, after allocation.
        head_bytes, tail_bytes: its two parts.
        minimum_arena_bytes: the smallest multiple of 16 in which the model can be allocated. It exceeds
            `arena_used_bytes` if preparing operators or planning needs more memory.
        records: usage of the tail, as counted by TFLM's recording allocator on the target.
        temp_bytes: how far temp memory reaches from the start of the arena while operators prepare. The head takes its
            place afterwards.
        buffers: every tensor and scratch buffer in the head.
        steps: name of the operator at each step; empty for filling inputs and entering a subgraph.
        places: indices of subgraph and operator at each step; None without an operator.
        peak: the operator at the memory peak, and the buffers alive there.
        npu_bytes: the part of the head that Vela has laid out for an Ethos-U: its scratch, with the tensors in it.
        inputs, outputs: the model's inputs and outputs, numbered as in the buffers.
        recording_tail_bytes: the tail with TFLM's recording allocator, whose own objects are larger.
    """

    target: Target
    kernels: KernelLibrary
    arena_used_bytes: int
    head_bytes: int
    tail_bytes: int
    minimum_arena_bytes: int
    temp_bytes: int
    records: dict[RecordedAllocationType, RecordedAllocation]
    buffers: list[Buffer]
    steps: list[str]
    places: list[tuple[int, int | None]]
    peak: Peak
    npu_bytes: int = 0
    inputs: tuple[int, ...] = ()
    outputs: tuple[int, ...] = ()
    recording_tail_bytes: int = 0

    def __repr__(self) -> str:
        parts = f"used {self.arena_used_bytes}, head {self.head_bytes}, tail {self.tail_bytes}"
        place = f"{self.target.name} with {self.kernels.name} kernels"
        return f"ArenaMeasurement({self.minimum_arena_bytes} bytes needed on {place}: {parts})"

    def _repr_html_(self) -> str:
        return shown(self).html() + picture(memory=self)


@dataclass(frozen=True)
class KernelsRefusal:
    """A kernel library that cannot run the model on a part, regardless of the arena.

    Attributes:
        kernels: the library.
        reason: the operators that it lacks, or what it rejects.
    """

    kernels: KernelLibrary
    reason: str


def measurement_figures(measured: ArenaMeasurement) -> dict[str, Any]:
    """Return the JSON document of a measurement; sizes in bytes."""
    return {
        "target": measured.target.name,
        "kernels": measured.kernels.name,
        **{name: getattr(measured, name) for name in FIGURES},
        "records": {kind.value: asdict(record) for kind, record in measured.records.items()},
        "peak": {**vars(measured.peak), "buffers": [buffer.name for buffer in measured.peak.buffers]},
        "buffers": [buffer_figures(buffer) for buffer in measured.buffers],
    }


def change_figures(before: ArenaMeasurement, after: ArenaMeasurement) -> dict[str, int]:
    """Return the sizes before and after a change, for a JSON document."""
    return {
        name: getattr(measured, key) for key in CHANGES for name, measured in ((f"{key}_before", before), (key, after))
    }


def change_rows(before: ArenaMeasurement, after: ArenaMeasurement) -> list[tuple[str, int, int]]:
    """Return the rows of `Table.of_changes` for the sizes before and after a change."""
    return [(label, getattr(before, key), getattr(after, key)) for key, label in CHANGES.items()]


def buffer_figures(buffer: Buffer) -> dict[str, Any]:
    """Return the JSON document of a buffer: offset and size in bytes, first and last use in steps."""
    return {
        **{name: getattr(buffer, name) for name in BUFFER_KEYS},
        "type": None if buffer.type is None else buffer.type.name,
        "dims": list(buffer.dims),
        "tensor": buffer.tensor,
    }


def drawn_figures(measured: ArenaMeasurement) -> dict[str, Any]:
    """Return a measurement's figures for a picture, with the model's inputs and outputs."""
    ends = {"inputs": list(measured.inputs), "outputs": list(measured.outputs)}
    return {**measurement_figures(measured), "other_kernels": [], **ends}


def picture(**measured: ArenaMeasurement) -> str:
    """Draw the plans of measurements, by title, side by side in a frame for a notebook."""
    from tflm.arena_page import arena_frame  # takes a while to load

    return arena_frame("memory plan", {name: drawn_figures(each) for name, each in measured.items()})


def shown(measured: ArenaMeasurement, name: str = "arena") -> Report:
    """The measurement as a text report: sizes, buffers alive at the peak, the largest other buffers, records of the
    tail.
    """
    peak = measured.peak
    where = f"operator {peak.operator_index} {peak.operator}" if peak.operator else "inputs are filled"
    facts = [
        ("smallest arena that works", with_thousands(measured.minimum_arena_bytes)),
        ("in use once allocated", with_thousands(measured.arena_used_bytes)),
        ("  head (tensors, scratch)", with_thousands(measured.head_bytes)),
        *([("    of it Vela's, for the NPU", with_thousands(measured.npu_bytes))] if measured.npu_bytes else []),
        ("  tail (the runtime's)", with_thousands(measured.tail_bytes)),
        ("most is alive at", f"step {peak.step}, {where}: {with_thousands(peak.bytes)}"),
    ]
    tables = [_buffer_table("Alive there", peak.buffers[:LARGEST_BUFFERS], measured.steps)]
    rest = [buffer for buffer in measured.buffers if buffer not in peak.buffers]
    rest.sort(key=lambda buffer: -buffer.bytes)
    if rest and len(peak.buffers) < LARGEST_BUFFERS:
        tables.append(_buffer_table("Largest others", rest[: LARGEST_BUFFERS - len(peak.buffers)], measured.steps))
    columns = {"what": NAME, "count": NUMBER, "bytes": NUMBER}
    rows = ((kind.value, r.count, r.used_bytes) for kind, r in measured.records.items() if r.count)
    tables.append(Table("Tail, as recorded", columns, rows))
    return Report(f"{name} on {measured.target.name} with {measured.kernels.name} kernels", facts, tables)


def _buffer_table(title: str, buffers: Sequence[Buffer], steps: list[str]) -> Table:
    return Table.of(
        title,
        buffers,
        Figure("bytes", NUMBER, "bytes"),
        Figure("offset", NUMBER, "offset"),
        Figure("buffer", NAME, lambda b: b.name if b.kind == "tensor" else f"scratch of {b.name}"),
        Figure("type", TEXT, lambda b: None if b.type is None else b.type.name),
        Figure("shape", TEXT, lambda b: " ".join(map(str, b.dims))),
        Figure("alive in steps", TEXT, lambda b: f"{_step(b.first_use, steps)} to {_step(b.last_use, steps)}"),
    )


def _step(step: int, steps: list[str]) -> str:
    return f"{step} {steps[step]}" if steps[step] else ("inputs" if step == 0 else f"{step}")


ARENA_SIZES = tuple(
    Figure(label, NUMBER, key, kind=ArenaMeasurement)
    for label, key in (
        ("smallest arena", "minimum_arena_bytes"),
        ("used", "arena_used_bytes"),
        ("head", "head_bytes"),
        ("tail", "tail_bytes"),
    )
)
"""The sizes of a measurement, in bytes."""


def libraries_table(measured: ArenaMeasurement, others: Sequence[ArenaMeasurement | KernelsRefusal]) -> Table:
    """List what each kernel library for the part takes, or why it cannot run the model."""
    is_any_refused = any(isinstance(other, KernelsRefusal) for other in others)
    return Table.of(
        f"On {measured.target.name}, by kernel library",
        (measured, *others),
        Figure("kernels", TEXT, "kernels.name"),
        *ARENA_SIZES,
        Figure("can't run it", TEXT, "reason", kind=KernelsRefusal) if is_any_refused else None,
    )
