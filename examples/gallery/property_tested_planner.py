"""Write a planner, and test its properties.

The planner places buffers in the order in which they come, each at the lowest offset where it fits. Hypothesis searches
for buffers that overlap although they are alive at the same time, and would show the smallest example.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

import tflm
from tflm.application.arena_plot import arena_plot
from tflm.memory import Buffer, GreedyMemoryPlanner
from tflm.runtime.micro_measurement_report import drawn_figures

PICTURE = Path(sys.argv[1] if len(sys.argv) > 1 else "property_tested_planner.svg")


def first_fit(buffers: Sequence[Buffer]) -> list[int]:
    """The offset of each buffer: the lowest at which it overlaps no earlier one that is alive with it."""
    offsets: list[int] = []
    for i, buffer in enumerate(buffers):
        alive = [j for j in range(i) if meet(buffer, buffers[j])]
        ends = sorted({0, *(offsets[j] + buffers[j].size for j in alive)})
        free = (end for end in ends if all(apart(end, buffer.size, offsets[j], buffers[j].size) for j in alive))
        offsets.append(next(free))
    return offsets


def meet(a: Buffer, b: Buffer) -> bool:
    """Whether two buffers are alive at a common step."""
    return a.first_use <= b.last_use and b.first_use <= a.last_use


def apart(offset: int, size: int, other: int, other_size: int) -> bool:
    """Whether two ranges have no byte in common."""
    return offset + size <= other or other + other_size <= offset


BUFFER = st.builds(
    lambda blocks, first, steps: Buffer(16 * blocks, first, first + steps),
    *(st.integers(1, 64), st.integers(0, 8), st.integers(0, 4)),
)


@settings(deadline=None, max_examples=200, derandomize=True)
@given(st.lists(BUFFER, max_size=12))
def test_no_buffers_overlap(buffers: list[Buffer]) -> None:
    """The property that every plan must have."""
    placed = list(zip(buffers, first_fit(buffers)))
    for i, (a, at_a) in enumerate(placed):
        assert all(apart(at_a, a.size, at_b, b.size) for b, at_b in placed[:i] if meet(a, b))


class FirstFitPlanner(GreedyMemoryPlanner):
    """The planner, as interpreters and commands take it."""

    place = staticmethod(first_fit)


test_no_buffers_overlap()
print("200 sets of buffers, no overlap")
model = tflm.Model.from_file(Path(__file__).with_name("image_network.tflite"))
plans = {}
planners: dict[str, str | FirstFitPlanner] = {"TFLM's planner": "greedy", "first fit": FirstFitPlanner()}
for name, planner in planners.items():
    size = tflm.measure_arena(model, tflm.AllOpsResolver(), planner=planner, target=tflm.targets.CORTEX_M)
    print(f"{name}: head of {size.head_bytes:,} bytes")
    plans[name] = drawn_figures(size)
arena_plot(PICTURE, "image_network", plans)
