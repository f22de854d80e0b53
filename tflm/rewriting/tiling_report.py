"""A model in a smaller arena, and how it is shown: before and after, stages in words."""

from __future__ import annotations

from dataclasses import dataclass

from tflm.planning.improved_model import ImprovedModel, SeparateMemories
from tflm.report import NUMBER, TEXT, Report, Table, with_thousands
from tflm.rewriting.verification import Verification
from tflm.runtime.micro_measurement_report import ArenaMeasurement, picture


@dataclass(frozen=True)
class TiledStage:
    """Operators that run band by band.

    Attributes:
        first, last: their indices in the model before it was put in bands, both included.
        operators: their names.
        bands: rows of the last one's output, [first, end) for each band, in the order in which they run.
    """

    first: int
    last: int
    operators: tuple[str, ...]
    bands: tuple[tuple[int, int], ...]

    def __str__(self) -> str:
        rows = ", ".join(f"{first}-{end - 1}" for first, end in self.bands)
        what = f"operators {self.first} to {self.last} ({self.operators[0]} to {self.operators[-1]})"
        if self.first == self.last:
            what = f"operator {self.first} ({self.operators[0]})"
        return f"{what} in {len(self.bands)} bands of rows {rows}"


@dataclass(frozen=True)
class TiledModel(ImprovedModel):
    """A model in the smallest arena that was found for it; sizes in bytes.

    Attributes:
        data: the model. The bytes that there were, if nothing was found that is smaller.
        before, after: what the model as it was needs of an arena, and what this one does.
        file_bytes_before: the file's size as it was.
        operators_before: the operators that it had.
        extra_macs: multiply-accumulates more than before, as a share of those before.
        stages: what runs in bands.
        rewrites: what else was changed, and how often.
        needed_operators: names of operators that the resolver must have, and that the model had no need of.
        proved: what was checked of the model: that it is `data` which gives the answers.
        separate: the arenas with head and tail in memories of their own, if `head_ram` or `tail_ram` were given.
    """

    data: bytes
    before: ArenaMeasurement
    after: ArenaMeasurement
    file_bytes_before: int
    operators_before: int
    extra_macs: float
    stages: tuple[TiledStage, ...]
    rewrites: dict[str, int]
    needed_operators: tuple[str, ...]
    proved: Verification
    separate: SeparateMemories | None = None

    def __repr__(self) -> str:
        arena = f"{self.minimum_arena_bytes} bytes needed on {self.after.target.name}"
        stages = f"{len(self.stages)} stages in bands"
        return f"TiledModel({arena}, {self.minimum_arena_bytes_before} before, {stages}, {self.proved})"

    def _repr_html_(self) -> str:
        drawn = {"previous": self.before, "new": self.after} if self.gains else {"memory": self.after}
        return shown(self).html() + picture(**drawn)

    @property
    def gains(self) -> bool:
        """Whether anything was found that is smaller."""
        return not self.proved.unchanged


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
    columns = {"": TEXT, "before": NUMBER, "after": NUMBER}
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
