"""The head laid out as TFLite's ArenaPlanner lays out the arena of the large interpreter."""

from __future__ import annotations

from collections.abc import Sequence

from tflm.errors import ArenaError
from tflm.memory.arena_planner import TENSOR_ALIGNMENT, Temporary, plan_as_tflite
from tflm.memory.greedy_memory_planner import GreedyMemoryPlanner
from tflm.memory.lifetimes import AllocationInfo, ScratchBufferRequest
from tflm.memory.planner import BufferRequirements, PlacingPlanner
from tflm.memory.tensor import TfLiteEvalTensor
from tflm.schema.model import Model
from tflm.targets import align_up


class TfLiteMemoryPlanner(PlacingPlanner):
    """Puts each tensor where LiteRT would, with TFLM's scratch buffers as its operators' temporaries.

    It goes by the model, not by the lifetimes that the other planners are told: lifetimes are ArenaPlanner's, outputs
    share places with inputs, and offsets are multiples of 64. Subgraphs have memory of their own, one after the other.
    On a device such a plan is a list of offsets in the model, so it takes the room of TFLM's greedy planner.
    """

    STRUCT = GreedyMemoryPlanner.STRUCT

    def __init__(self) -> None:
        super().__init__()
        self._given: list[int] = []
        self.place = self._take

    def set_model(
        self, model: Model, tensors: Sequence[Sequence[TfLiteEvalTensor]], infos: Sequence[AllocationInfo]
    ) -> None:
        """Tell of the buffers that `add_buffer` will be called for, in that order.

        Args:
            tensors: of each subgraph.
            infos: what needs a place.
        """
        places: dict[int, int] = {}
        base = 0
        for index, subgraph in enumerate(tensors):
            requests = [
                info.owner
                for info in infos
                if isinstance(info.owner, ScratchBufferRequest) and info.owner.subgraph_index == index
            ]
            owners = [*subgraph, *requests]
            temporaries = [
                Temporary(request.node_index, len(subgraph) + i, request.bytes) for i, request in enumerate(requests)
            ]
            plan = plan_as_tflite(model, index, temporaries=temporaries)
            for arena in (plan.arena, plan.persistent_arena):
                places |= {id(owners[tensor]): base + place.offset for tensor, place in arena.items()}
                end = max((place.offset + place.bytes for place in arena.values()), default=0)
                base += align_up(end, TENSOR_ALIGNMENT)
        # What no operator makes or reads has no place, and no value either.
        self._given = [places.get(id(info.owner), 0) for info in infos]

    def _take(self, buffers: Sequence[BufferRequirements]) -> list[int]:
        if len(buffers) != len(self._given):
            raise ArenaError(f"the model has {len(self._given)} buffers to place, {len(buffers)} were added")
        return self._given
