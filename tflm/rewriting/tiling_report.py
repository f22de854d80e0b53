"""The result of tiling, and its report."""

from __future__ import annotations

from dataclasses import dataclass

from tflm.planning.improved_model import ImprovedModel, SeparateMemories
from tflm.report import Report, Table, with_thousands
from tflm.rewriting.verification import Verification
from tflm.runtime.micro_measurement_report import CHANGES, FILE_CHANGE, ArenaMeasurement, picture


@dataclass(frozen=True)
class TiledStage:
    """Operators that run band by band.

    Attributes:
        first: index of the first one, in the model after the small rewrites.
        last: index of the last one.
        operators: their names.
        bands: rows of the last one's output, [first, end) for each band, in execution order.
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
    """A model with the smallest arena that was found for it; sizes in bytes.

    Attributes:
        data: the model; unchanged if nothing smaller was found.
        before, after: arena requirements of the original model and of this one.
        file_bytes_before: size of the original file.
        operators_before: number of operators of the original model.
        extra_macs: additional multiply-accumulates, as a share of the original's.
        stages: the stages that run in bands.
        rewrites: other changes, with their counts.
        needed_operators: names of operators that the resolver must have in addition to the original's.
        proved: the checks that `data` passed.
        separate: the arenas with head and tail in separate memories, if `head_ram` or `tail_ram` was given.
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
        """Whether the arena is smaller than before."""
        return not self.proved.unchanged


def shown(tiled: TiledModel, name: str = "model") -> Report:
    """The result as a text report."""
    rows = [
        *(change.row(tiled) for change in (*CHANGES, FILE_CHANGE)),
        ("operators", tiled.operators_before, len(tiled.model.subgraphs[0].operators or ())),
    ]
    facts = [("work", f"{tiled.extra_macs:+.1%} multiply-accumulates")] if tiled.stages or tiled.rewrites else []
    facts += [("rewritten", f"{count} {what}") for what, count in tiled.rewrites.items()]
    facts += [("stage", str(stage)) for stage in tiled.stages]
    if tiled.needed_operators:
        facts.append(("the firmware's resolver needs", ", ".join(tiled.needed_operators)))
    facts.append(("checked", str(tiled.proved)))
    notes = []
    if not tiled.gains:
        notes.append(f"found no arena smaller than {with_thousands(tiled.minimum_arena_bytes_before)}")
    return Report(f"{name} on {tiled.after.target.name}", facts, [Table.of_changes(rows)], notes)
