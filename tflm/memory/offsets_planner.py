"""A planner that returns a given list of offsets."""

from __future__ import annotations

from collections.abc import Sequence

from tflm.errors import ArenaError
from tflm.memory.buffer import Buffer
from tflm.memory.planner import PlacingPlanner


class OffsetsPlanner(PlacingPlanner):
    """Puts each buffer where the caller says.

    TFLM does not check such a plan, and counts no bytes of the head for it. Here the head extends to the end of the
    last buffer, so that nothing else can overlap it.

    Args:
        offsets: in bytes, one for each buffer that needs a place: the tensors of every subgraph in turn, without
            constants and variables, then the scratch buffers in the order in which operators request them.
    """

    def __init__(self, offsets: Sequence[int]):
        super().__init__()
        self.offsets = [int(offset) for offset in offsets]
        self.place = self._take

    def _take(self, buffers: Sequence[Buffer]) -> list[int]:
        if len(buffers) != len(self.offsets):
            raise ArenaError(f"the plan has {len(self.offsets)} offsets, the model needs {len(buffers)} buffers")
        return self.offsets
