"""The common part of results that change a model, above all its arena: sizes before and after, and the new file."""

from __future__ import annotations

import os
from dataclasses import dataclass

from tflm.atomic_write import write_atomically
from tflm.runtime.micro_measurement import SeparateArenas
from tflm.runtime.micro_measurement_report import ArenaMeasurement
from tflm.schema.model import Model


@dataclass(frozen=True)
class SeparateMemories:
    """Arenas with head and tail in separate memories, as in `MicroAllocator(..., persistent_arena=...)`.

    Attributes:
        head_ram_bytes, tail_ram_bytes: sizes of the memories; None for any size.
        before, after: the smallest arenas of the original and the new model.
    """

    head_ram_bytes: int | None
    tail_ram_bytes: int | None
    before: SeparateArenas
    after: SeparateArenas

    @property
    def head_missing_bytes(self) -> int:
        """Bytes by which the head exceeds its memory; 0 if it fits."""
        return _missing(self.after.head_arena_bytes, self.head_ram_bytes)

    @property
    def tail_missing_bytes(self) -> int:
        """Bytes by which the tail exceeds its memory; 0 if it fits."""
        return _missing(self.after.tail_arena_bytes, self.tail_ram_bytes)

    @property
    def fits(self) -> bool:
        """Whether both fit their memories."""
        return not (self.head_missing_bytes or self.tail_missing_bytes)


def _missing(needed: int, available: int | None) -> int:
    return 0 if available is None else max(needed - available, 0)


class ChangedModel:
    """A model that was made of another.

    Attributes:
        data: its bytes.
    """

    data: bytes

    @property
    def model(self) -> Model:
        """The model."""
        return Model(self.data)

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write the model to a file, which may be the original's.

        Raises:
            OSError: the file can't be written.
        """
        write_atomically(path, self.data)


class ImprovedModel(ChangedModel):
    """A model changed to need a smaller arena.

    Attributes:
        before, after: arena requirements of the original and the new model.
        separate: the same with head and tail in separate memories; None unless requested.
    """

    before: ArenaMeasurement
    after: ArenaMeasurement
    separate: SeparateMemories | None

    @property
    def minimum_arena_bytes(self) -> int:
        """The smallest arena that the model works in."""
        return self.after.minimum_arena_bytes

    @property
    def minimum_arena_bytes_before(self) -> int:
        """The smallest arena that the original model works in."""
        return self.before.minimum_arena_bytes
