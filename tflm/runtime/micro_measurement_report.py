"""The measurement of a model's arena, and its report for `tflm arena` and notebooks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from tflm.libraries import KernelLibrary
from tflm.memory.buffer import Buffer
from tflm.report import (
    NAME,
    NUMBER,
    TEXT,
    Change,
    Figure,
    Report,
    Table,
    document_of,
    json_key,
    machine_keys,
    with_thousands,
)
from tflm.runtime.allocator_structures import RecordedAllocation, RecordedAllocationType
from tflm.targets import Target

LARGEST_BUFFERS = 10


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


BUFFER_FIGURES = (
    Figure("bytes", NUMBER, "bytes").as_key(int, "its size"),
    Figure("offset", NUMBER, "offset").as_key(int, "its place in the arena"),
    Figure("buffer", NAME, lambda buffer: buffer.name if buffer.kind == "tensor" else f"scratch of {buffer.name}"),
    json_key("name", str, "of the tensor, or of the operator whose scratch it is"),
    json_key("kind", Literal["tensor", "scratch"], "a tensor, or the scratch memory of an operator"),
    json_key("first_use", int, "the first step at which it is alive"),
    json_key("last_use", int, "the last one"),
    Figure("type", TEXT, lambda buffer: None if buffer.type is None else buffer.type.name).as_key(
        str | None, "of a tensor's elements; null for scratch", "type"
    ),
    Figure("shape", TEXT, lambda buffer: " ".join(map(str, buffer.dims))),
    json_key("dims", list[int], "a tensor's shape; empty for scratch", lambda buffer: list(buffer.dims)),
    json_key("tensor", int | None, "its index, counted through the tensors of all subgraphs; null for scratch"),
)
"""The figures of a buffer: offset and size in bytes, first and last use in steps."""

PEAK_FIGURES = (
    json_key("operator", str, "the operator at the memory peak; empty if the inputs are filled"),
    json_key("subgraph_index", int, "the subgraph of that operator"),
    json_key("operator_index", int | None, "its index in the subgraph; null if no operator runs"),
    json_key("step", int, "the step at which it runs"),
    json_key("bytes", int, "bytes of the buffers alive there, each rounded up to 16: no plan is smaller"),
    json_key(
        "buffers", list[str], "names of the buffers alive there, largest first", lambda peak: _names(peak.buffers)
    ),
)

ARENA_SIZES = (
    Figure("smallest arena", NUMBER, "minimum_arena_bytes").as_key(
        int, "the smallest arena that works, a multiple of 16"
    ),
    Figure("used", NUMBER, "arena_used_bytes").as_key(int, "in use once the model is allocated"),
    Figure("head", NUMBER, "head_bytes").as_key(int, "of that, the head"),
    Figure("tail", NUMBER, "tail_bytes").as_key(int, "of that, the tail"),
)
"""The sizes of a measurement, in bytes."""

MEASUREMENT_FIGURES = (
    *machine_keys()[:2],
    *ARENA_SIZES,
    json_key("npu_bytes", int, "the part of the head that Vela laid out for an Ethos-U"),
    json_key("temp_bytes", int, "how far temp memory reaches from the start while operators prepare"),
    json_key(
        "records",
        dict[str, RecordedAllocation],
        "the categories of the tail",
        lambda measured: {kind.value: asdict(record) for kind, record in measured.records.items()},
    ),
    json_key("peak", PEAK_FIGURES, "the memory peak"),
    json_key("buffers", [BUFFER_FIGURES], "the buffers of the head"),
    json_key("steps", list[str], "the operator at each step; empty if inputs are filled or a subgraph is entered"),
)
"""The figures of a measurement; sizes in bytes."""

CHANGES = tuple(
    Change(label, key, meaning, f"before.{key}", f"after.{key}")
    for label, key, meaning in (
        ("smallest arena", "minimum_arena_bytes", "the smallest arena"),
        ("  head", "head_bytes", "the head"),
        ("  tail", "tail_bytes", "the tail"),
    )
)
"""The sizes of a measurement that rewriting a model changes."""

FILE_CHANGE = Change("file", "file_bytes", "size of the file", "file_bytes_before", lambda found: len(found.data))

CHANGE_FIGURES = tuple(figure for change in (*CHANGES, FILE_CHANGE) for figure in change.keys)
"""The sizes of a rewritten model, before and after."""


def drawn_figures(measured: ArenaMeasurement) -> dict[str, Any]:
    """Return a measurement's figures for a picture, with the model's inputs and outputs."""
    ends = {"inputs": list(measured.inputs), "outputs": list(measured.outputs)}
    return {**document_of(measured, MEASUREMENT_FIGURES), "other_kernels": [], **ends}


def picture(**measured: ArenaMeasurement) -> str:
    """Draw the plans of measurements, by title, side by side in a frame for a notebook."""
    from tflm.arena_page import arena_frame  # takes a while to load

    return arena_frame("memory plan", {name: drawn_figures(each) for name, each in measured.items()})


def shown(measured: ArenaMeasurement, name: str = "arena") -> Report:
    """The measurement as a text report: sizes, buffers alive at the peak, the largest other buffers, records of the
    tail."""
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
    uses = Figure(
        "alive in steps", TEXT, lambda buffer: f"{_step(buffer.first_use, steps)} to {_step(buffer.last_use, steps)}"
    )
    return Table.of(title, buffers, *BUFFER_FIGURES, uses)


def _names(buffers: Sequence[Buffer]) -> list[str]:
    return [buffer.name for buffer in buffers]


def _step(step: int, steps: list[str]) -> str:
    return f"{step} {steps[step]}" if steps[step] else ("inputs" if step == 0 else f"{step}")


def libraries_table(measured: ArenaMeasurement, others: Sequence[ArenaMeasurement | KernelsRefusal]) -> Table:
    """List what each kernel library for the part takes, or why it cannot run the model."""
    is_any_refused = any(isinstance(other, KernelsRefusal) for other in others)
    return Table.of(
        f"On {measured.target.name}, by kernel library",
        (measured, *others),
        Figure("kernels", TEXT, "kernels.name"),
        *(size._replace(kind=ArenaMeasurement) for size in ARENA_SIZES),
        Figure("can't run it", TEXT, "reason", kind=KernelsRefusal) if is_any_refused else None,
    )
