"""The arena: its allocator, the planners of its head, and the lifetimes that they plan from."""

from tflm.memory.arena import ARENA_ALIGNMENT, Arena
from tflm.memory.best_fit_memory_planner import BestFitMemoryPlanner, BreadthMemoryPlanner
from tflm.memory.buffer import Buffer, lower_bound_bytes, plan_bytes
from tflm.memory.greedy_memory_planner import GreedyMemoryPlanner
from tflm.memory.linear_memory_planner import LinearMemoryPlanner
from tflm.memory.offsets_planner import OffsetsPlanner
from tflm.memory.optimal_memory_planner import OptimalPlanner
from tflm.memory.plan_search import SearchedPlan, SearchLimits, Stopped, search_plan
from tflm.memory.planner import MemoryPlanner, PlacingPlanner, SearchProgress
from tflm.memory.simple_memory_allocator import Allocation, RecordingSimpleMemoryAllocator, SimpleMemoryAllocator
from tflm.memory.tflite_memory_planner import TfLiteMemoryPlanner

BufferRequirements = Buffer
"""The name of a buffer in TFLM's planners."""

PLANNERS: dict[str, type[PlacingPlanner]] = {
    "greedy": GreedyMemoryPlanner,
    "linear": LinearMemoryPlanner,
    "best_fit": BestFitMemoryPlanner,
    "breadth": BreadthMemoryPlanner,
    "optimal": OptimalPlanner,
}
"""Planners by name that use only sizes and lifetimes."""

MODEL_PLANNERS: dict[str, type[TfLiteMemoryPlanner]] = {"tflite": TfLiteMemoryPlanner}
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
