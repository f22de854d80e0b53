"""A model in a smaller arena, as `tflm tile` shows it: before and after, stages in words."""

from __future__ import annotations

from tflm.report import Column, Report, Table, with_thousands
from tflm.rewriting.tiled_model import TiledModel


def shown(tiled: TiledModel, name: str = "model") -> Report:
    """What was found as text."""
    before, after = tiled.before, tiled.after
    rows = [
        ("smallest arena", before.minimum_arena_bytes, after.minimum_arena_bytes),
        ("  head", before.head_bytes, after.head_bytes),
        ("  tail", before.tail_bytes, after.tail_bytes),
        ("file", tiled.file_bytes_before, len(tiled.data)),
        ("operators", tiled.operators_before, len(tiled.model.subgraphs[0].operators or ())),
    ]
    columns = {"": Column.TEXT, "before": Column.NUMBER, "after": Column.NUMBER}
    facts = [("work", f"{tiled.extra_macs:+.1%} multiply-accumulates")] if tiled.stages or tiled.rewrites else []
    facts += [("rewritten", f"{count} {what}") for what, count in tiled.rewrites.items()]
    facts += [("stage", str(stage)) for stage in tiled.stages]
    if tiled.needed_operators:
        facts.append(("the firmware's resolver needs", ", ".join(tiled.needed_operators)))
    facts.append(("checked", str(tiled.proved)))
    notes = []
    if not tiled.gains:
        notes.append(f"nothing was found that is smaller than {with_thousands(before.minimum_arena_bytes)}")
    return Report(f"{name} on {after.target.name}", facts, [Table("", columns, rows)], notes)
