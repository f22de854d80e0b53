"""What a model that was made smaller has, whoever made it: what it needs of an arena, and its file."""

from __future__ import annotations

import os

from tflm.atomic_write import write_atomically
from tflm.runtime.micro_measurement import ArenaMeasurement
from tflm.schema.model import Model


class ImprovedModel:
    """A model made of another, for a smaller arena.

    Attributes:
        data: its bytes.
        before, after: what the other one needs of an arena, and what this one does.
    """

    data: bytes
    before: ArenaMeasurement
    after: ArenaMeasurement

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
