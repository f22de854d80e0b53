"""The arena: its allocator, the planners of its head, and the lifetimes that they plan from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

from tflm.memory.arena import ARENA_ALIGNMENT, Arena
from tflm.memory.buffer import Buffer, lower_bound_bytes, plan_bytes
from tflm.memory.planner import MemoryPlanner, PlacingPlanner, SearchProgress
from tflm.memory.planners import (
    BestFitMemoryPlanner,
    BreadthMemoryPlanner,
    GreedyMemoryPlanner,
    LinearMemoryPlanner,
    OffsetsPlanner,
)
from tflm.memory.simple_memory_allocator import Allocation, RecordingSimpleMemoryAllocator, SimpleMemoryAllocator

if TYPE_CHECKING:
    from tflm.memory.arena_planner import TfLiteMemoryPlanner
    from tflm.memory.plan_search import OptimalPlanner, SearchedPlan, SearchLimits, Stopped, search_plan

BufferRequirements = Buffer
"""The name of a buffer in TFLM's planners."""

LATER = {
    **dict.fromkeys(("OptimalPlanner", "SearchLimits", "SearchedPlan", "Stopped", "search_plan"), "plan_search"),
    "TfLiteMemoryPlanner": "arena_planner",
}
"""Names that are imported on first use, with their modules: a model usually needs the greedy planner alone."""


def __getattr__(name: str) -> Any:
    if name in LATER:
        return getattr(import_module(f"{__name__}.{LATER[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


class Planners(Mapping[str, type[PlacingPlanner]]):
    """Planners by name. Imports the module of each on first access.

    Args:
        classes: the names of their classes in this package.
    """

    def __init__(self, **classes: str):
        self._classes = classes

    def __getitem__(self, name: str) -> type[PlacingPlanner]:
        found = self._classes[name]
        planner: type[PlacingPlanner] = __getattr__(found) if found in LATER else globals()[found]
        return planner

    def __contains__(self, name: object) -> bool:
        return name in self._classes

    def __iter__(self) -> Iterator[str]:
        return iter(self._classes)

    def __len__(self) -> int:
        return len(self._classes)

    def has_class(self, planner: type) -> bool:
        """Whether a class is one of them."""
        return any(planner is self[name] for name, found in self._classes.items() if found == planner.__name__)


PLANNERS = Planners(
    greedy="GreedyMemoryPlanner",
    linear="LinearMemoryPlanner",
    best_fit="BestFitMemoryPlanner",
    breadth="BreadthMemoryPlanner",
    optimal="OptimalPlanner",
)
"""Planners by name that use only sizes and lifetimes."""

MODEL_PLANNERS = Planners(tflite="TfLiteMemoryPlanner")
"""Planners by name that use the model."""

__all__ = [
    "ARENA_ALIGNMENT",
    "MODEL_PLANNERS",
    "PLANNERS",
    "Allocation",
    "Arena",
    "BestFitMemoryPlanner",
    "BreadthMemoryPlanner",
    "Buffer",
    "BufferRequirements",
    "GreedyMemoryPlanner",
    "LinearMemoryPlanner",
    "MemoryPlanner",
    "OffsetsPlanner",
    "OptimalPlanner",
    "PlacingPlanner",
    "RecordingSimpleMemoryAllocator",
    "SearchLimits",
    "SearchProgress",
    "SearchedPlan",
    "SimpleMemoryAllocator",
    "Stopped",
    "TfLiteMemoryPlanner",
    "lower_bound_bytes",
    "plan_bytes",
    "search_plan",
]
