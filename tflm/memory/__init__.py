"""The arena: its allocator, the planners of its head, and the lifetimes that they plan from."""

from tflm.memory.arena import ARENA_ALIGNMENT, Arena
from tflm.memory.greedy_memory_planner import GreedyMemoryPlanner
from tflm.memory.linear_memory_planner import LinearMemoryPlanner
from tflm.memory.offsets_planner import OffsetsPlanner
from tflm.memory.planner import BufferRequirements, MemoryPlanner, PlacingPlanner, lower_bound_bytes
from tflm.memory.simple_memory_allocator import Allocation, RecordingSimpleMemoryAllocator, SimpleMemoryAllocator

PLANNERS: dict[str, type[PlacingPlanner]] = {"greedy": GreedyMemoryPlanner, "linear": LinearMemoryPlanner}
"""The planners that have a name."""

__all__ = [
    "ARENA_ALIGNMENT",
    "PLANNERS",
    "Allocation",
    "Arena",
    "BufferRequirements",
    "GreedyMemoryPlanner",
    "LinearMemoryPlanner",
    "MemoryPlanner",
    "OffsetsPlanner",
    "PlacingPlanner",
    "RecordingSimpleMemoryAllocator",
    "SimpleMemoryAllocator",
    "lower_bound_bytes",
]
