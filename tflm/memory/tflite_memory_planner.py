"""Lays out the head as TFLite's ArenaPlanner lays out LiteRT's arena."""

from __future__ import annotations

from collections.abc import Sequence

from tflm.memory.arena_planner import TENSOR_ALIGNMENT, Temporary, plan_as_tflite
from tflm.memory.buffer import Buffer
from tflm.memory.greedy_memory_planner import GreedyMemoryPlanner
from tflm.memory.lifetimes import ScratchBufferRequest
from tflm.memory.offsets_planner import OffsetsPlanner
from tflm.schema.model import Model
from tflm.targets import align_up


class TfLiteMemoryPlanner(OffsetsPlanner):
    """Puts each tensor where LiteRT would, with TFLM's scratch buffers as its operators' temporaries.

    It uses ArenaPlanner's lifetimes instead of those of `add_buffer`: outputs share places with inputs, and offsets are
    multiples of 64. Subgraphs have separate memory, one after the other. On a device such a plan is stored in the
    model, so the arena has TFLM's greedy planner.
    """

    STRUCT = GreedyMemoryPlanner.STRUCT

    def __init__(self) -> None:
        super().__init__(())

    def set_model(self, model: Model, buffers: Sequence[Buffer], requests: Sequence[ScratchBufferRequest]) -> None:
        """Announce the buffers that `add_buffer` will be called for, in that order.

        Args:
            buffers: the buffers to place, scratch buffers last.
            requests: the requests of the scratch buffers.
        """
        scratch = len(buffers) - len(requests)
        places: dict[tuple[bool, int], int] = {}  # scratch buffers and tensors, by number
        base = first_tensor = 0
        for index, subgraph in enumerate(model.subgraphs):
            count = len(subgraph.tensors or ())
            own = [(i, request) for i, request in enumerate(requests, scratch) if request.subgraph_index == index]
            temporaries = [Temporary(r.node_index, number, r.bytes) for number, (_, r) in enumerate(own, count)]
            keys = [*((False, first_tensor + i) for i in range(count)), *((True, i) for i, _ in own)]
            plan = plan_as_tflite(model, index, temporaries=temporaries)
            for arena in (plan.arena, plan.persistent_arena):
                places |= {keys[tensor]: base + place.offset for tensor, place in arena.items()}
                base += align_up(max((place.end for place in arena.values()), default=0), TENSOR_ALIGNMENT)
            first_tensor += count
        keyed = ((True, i) if buffer.tensor is None else (False, buffer.tensor) for i, buffer in enumerate(buffers))
        # Tensors that no operator uses have neither a place nor a value.
        self.offsets = [places.get(key, 0) for key in keyed]
