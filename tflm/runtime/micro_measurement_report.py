"""What an arena must hold, as `tflm arena` shows it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tflm.arena_page import arena_frame
from tflm.report import Column, Report, Table, with_thousands
from tflm.runtime.micro_allocator import PlannedBuffer
from tflm.runtime.micro_measurement import ArenaMeasurement

LARGEST_BUFFERS = 10


def measurement_figures(measured: ArenaMeasurement) -> dict[str, Any]:
    """A measurement for other programs; sizes in bytes."""
    return {
        "target": measured.target.name,
        "kernels": measured.kernels.name,
        "arena_used_bytes": measured.arena_used_bytes,
        "head_bytes": measured.head_bytes,
        "tail_bytes": measured.tail_bytes,
        "minimum_arena_bytes": measured.minimum_arena_bytes,
        "temp_bytes": measured.temp_bytes,
        "npu_bytes": measured.npu_bytes,
        "records": {
            kind.value: {
                "requested_bytes": record.requested_bytes,
                "used_bytes": record.used_bytes,
                "count": record.count,
            }
            for kind, record in measured.records.items()
        },
        "peak": {
            "operator": measured.peak.operator,
            "subgraph_index": measured.peak.subgraph_index,
            "operator_index": measured.peak.operator_index,
            "step": measured.peak.step,
            "bytes": measured.peak.bytes,
            "buffers": [buffer.name for buffer in measured.peak.buffers],
        },
        "buffers": [buffer_figures(buffer) for buffer in measured.buffers],
        "steps": measured.steps,
    }


def buffer_figures(buffer: PlannedBuffer) -> dict[str, Any]:
    """A buffer for other programs: offset and size in bytes, first and last use in steps."""
    return {
        **buffer._asdict(),
        "type": None if buffer.type is None else buffer.type.name,
        "dims": list(buffer.dims),
    }


def drawn_figures(measured: ArenaMeasurement) -> dict[str, Any]:
    """A measurement for a picture: its figures, and which tensors go in and come out."""
    ends = {"inputs": list(measured.inputs), "outputs": list(measured.outputs)}
    return {**measurement_figures(measured), "other_kernels": [], **ends}


def picture(**measured: ArenaMeasurement) -> str:
    """The plans of measurements, by what they are called, side by side in a frame for a notebook."""
    return arena_frame("memory plan", {name: drawn_figures(each) for name, each in measured.items()})


def shown(measured: ArenaMeasurement, name: str = "arena") -> Report:
    """The measurement as text: sizes, what is alive at the peak, the largest other buffers, and the tail's records."""
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
    columns = {"what": Column.NAME, "count": Column.NUMBER, "bytes": Column.NUMBER}
    rows = ((kind.value, r.count, r.used_bytes) for kind, r in measured.records.items() if r.count)
    tables.append(Table("Tail, as recorded", columns, rows))
    return Report(f"{name} on {measured.target.name} with {measured.kernels.name} kernels", facts, tables)


def _buffer_table(title: str, buffers: Sequence[PlannedBuffer], steps: list[str]) -> Table:
    columns = {
        "bytes": Column.NUMBER,
        "offset": Column.NUMBER,
        "buffer": Column.NAME,
        "type": Column.TEXT,
        "shape": Column.TEXT,
        "alive in steps": Column.TEXT,
    }
    rows = (
        (
            b.bytes,
            b.offset,
            b.name if b.kind == "tensor" else f"scratch of {b.name}",
            "" if b.type is None else b.type.name,
            " ".join(map(str, b.dims)),
            f"{_step(b.first_use, steps)} to {_step(b.last_use, steps)}",
        )
        for b in buffers
    )
    return Table(title, columns, rows)


def _step(step: int, steps: list[str]) -> str:
    return f"{step} {steps[step]}" if steps[step] else ("inputs" if step == 0 else f"{step}")
