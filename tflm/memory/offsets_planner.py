"""A plan that is given as a list of offsets instead of being made."""

from __future__ import annotations

from collections.abc import Sequence

from tflm.errors import ArenaError
from tflm.memory.buffer import Buffer
from tflm.memory.planner import PlacingPlanner


class OffsetsPlanner(PlacingPlanner):
    """Puts each buffer where the caller says.

    TFLM takes such a plan on trust, and counts no bytes of the head for it; here the head reaches to the end of the
    last buffer, so that nothing else can get in its way.

    Args:
        offsets: in bytes, one for each buffer that needs a place: the tensors of every subgraph in turn, without
            constants and variables, then the scratch buffers in the order in which operators ask for them.
    """

    def __init__(self, offsets: Sequence[int]):
        super().__init__()
        self.offsets = [int(offset) for offset in offsets]
        self.place = self._take

    def _take(self, buffers: Sequence[Buffer]) -> list[int]:
        if len(buffers) != len(self.offsets):
            raise ArenaError(f"the plan has {len(self.offsets)} offsets, the model needs {len(buffers)} buffers")
        return self.offsets
