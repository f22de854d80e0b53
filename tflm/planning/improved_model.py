"""What a model that was made smaller has, whoever made it: what it needs of an arena, and its file."""

from __future__ import annotations

import os
from dataclasses import dataclass

from tflm.atomic_write import write_atomically
from tflm.runtime.micro_measurement import SeparateArenas
from tflm.runtime.micro_measurement_report import ArenaMeasurement
from tflm.schema.model import Model


@dataclass(frozen=True)
class SeparateMemories:
    """Head and tail in memories of their own, as `MicroAllocator(..., persistent_arena=...)` has them.

    Attributes:
        head_ram_bytes, tail_ram_bytes: sizes of the memories; None for any size.
        before, after: the smallest arenas of the model as it was, and of the new one.
    """

    head_ram_bytes: int | None
    tail_ram_bytes: int | None
    before: SeparateArenas
    after: SeparateArenas

    @property
    def head_missing_bytes(self) -> int:
        """Bytes that the head's memory lacks; 0 if the head fits."""
        return _missing(self.after.head_arena_bytes, self.head_ram_bytes)

    @property
    def tail_missing_bytes(self) -> int:
        """Bytes that the tail's memory lacks; 0 if the tail fits."""
        return _missing(self.after.tail_arena_bytes, self.tail_ram_bytes)

    @property
    def fits(self) -> bool:
        """Whether both fit their memories."""
        return not (self.head_missing_bytes or self.tail_missing_bytes)


def _missing(needed: int, available: int | None) -> int:
    return 0 if available is None else max(needed - available, 0)


class ImprovedModel:
    """A model made of another, for a smaller arena.

    Attributes:
        data: its bytes.
        before, after: what the other one needs of an arena, and what this one does.
        separate: the same with head and tail in memories of their own; None unless asked for.
    """

    data: bytes
    before: ArenaMeasurement
    after: ArenaMeasurement
    separate: SeparateMemories | None

    @property
    def model(self) -> Model:
        """The model."""
        return Model(self.data)

    @property
    def minimum_arena_bytes(self) -> int:
        """The smallest arena that the model works in."""
        return self.after.minimum_arena_bytes

    @property
    def minimum_arena_bytes_before(self) -> int:
        """The smallest arena for the model as it was."""
        return self.before.minimum_arena_bytes

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write the model to a file, which may be the one that it came from.

        Raises:
            OSError: it can't be written.
        """
        write_atomically(path, self.data)
