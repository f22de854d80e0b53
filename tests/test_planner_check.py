"""`check_planner` accepts the package's planners, and finds faults planted in one."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from checker_sentences import unused_sentences
from models import counter
from recorded_reports import CHECKS, require_recorded
from sampling import examples, some

import tflm
from tflm.errors import ArenaError, ArenaExhausted
from tflm.memory import PLANNERS, Buffer, GreedyMemoryPlanner, LinearMemoryPlanner, OptimalPlanner
from tflm.memory.buffer import ONLINE_PLANNED_BUFFER
from tflm.memory.planner import MemoryPlanner
from tflm.memory.planners import place_greedily, place_linearly
from tflm.memory.several_memories import REGION_BYTES
from tflm.testing import CheckFailed, check_planner, planner_check


@pytest.mark.parametrize("name", [name for name in PLANNERS if name != "optimal"])
def test_planners_pass(name: str) -> None:
    check_planner(PLANNERS[name], max_examples=examples(30))


def test_the_optimal_planner_passes_when_its_search_is_cut_short() -> None:
    check_planner(lambda: OptimalPlanner(time_limit=None, step_limit=20_000), max_examples=examples(30))


@pytest.mark.parametrize("alignment", [4, 16])
def test_a_planner_is_accepted_as_an_object(alignment: int) -> None:
    """Sizes are multiples of the alignment, so that buffers one after the other are aligned, and no more than that."""
    check_planner(GreedyMemoryPlanner(), alignment=alignment, max_examples=examples(10))


Place = Callable[[Sequence[Buffer]], list[int]]


def placing(place: Place) -> type[GreedyMemoryPlanner]:
    """A planner with that function."""
    return type("Wrong", (GreedyMemoryPlanner,), {"place": staticmethod(place)})


def changed(**changes: Callable[[Buffer], int]) -> Place:
    """Greedy, over buffers that it takes for others."""

    def place(buffers: Sequence[Buffer]) -> list[int]:
        return place_greedily(
            [
                Buffer(
                    **{"size": b.size, "first_use": b.first_use, "last_use": b.last_use, "offset": b.offset}
                    | {name: change(b) for name, change in changes.items()}
                )
                for b in buffers
            ]
        )

    return place


class ForgetsNothing(GreedyMemoryPlanner):
    def init(self, working_bytes: int) -> None:
        self._offsets, self._working_bytes = None, working_bytes


class KeepsOldPlan(GreedyMemoryPlanner):
    def _placed(self) -> list[int]:
        if self._offsets is None:
            self._kept = getattr(self, "_kept", None) or self.place(self._buffers)
            self._offsets = self._kept + [0] * (len(self._buffers) - len(self._kept))
        return self._offsets


class SizeWithoutLast(GreedyMemoryPlanner):
    def get_maximum_memory_size(self) -> int:
        return max((o + b.size for o, b in zip(self._placed()[:-1], self._buffers)), default=0)


class SizeTooLarge(GreedyMemoryPlanner):
    def get_maximum_memory_size(self) -> int:
        return super().get_maximum_memory_size() + 16


class AnyIndex(GreedyMemoryPlanner):
    def get_offset_for_buffer(self, buffer_index: int) -> int:
        return self._placed()[buffer_index] if self._buffers and buffer_index < len(self._buffers) else -1


class Moving(GreedyMemoryPlanner):
    def get_offset_for_buffer(self, buffer_index: int) -> int:
        offset = super().get_offset_for_buffer(buffer_index)
        self.asked = getattr(self, "asked", 0) + 1
        return offset + 16 * (self.asked > len(self._buffers))


class CountsFailures(GreedyMemoryPlanner):
    def add_buffer(self, *arguments: Any) -> None:
        try:
            super().add_buffer(*arguments)
        except ArenaExhausted:
            self._buffers.append(Buffer(*arguments))
            raise


class Shared(GreedyMemoryPlanner):
    everything: list[Buffer]

    def init(self, working_bytes: int) -> None:
        super().init(working_bytes)
        self._buffers = self.everything


class SharesItsPlan(GreedyMemoryPlanner):
    last: list[int]

    def _placed(self) -> list[int]:
        if self._offsets is None:
            type(self).last = self._offsets = self.place(self._buffers)
        return [*self.last, *self._offsets[len(self.last) :]]


class PreservesLess(LinearMemoryPlanner):
    place = staticmethod(place_greedily)


class LargestSizeSoFar(GreedyMemoryPlanner):
    largest = 0

    def get_maximum_memory_size(self) -> int:
        self.largest = max(self.largest, super().get_maximum_memory_size())
        return self.largest


class PlanOfAsManyBuffers(GreedyMemoryPlanner):
    def _placed(self) -> list[int]:
        if len(getattr(self, "_kept", [])) != len(self._buffers):
            self._kept = self.place(self._buffers)
        return self._kept


class DependsOnCount(GreedyMemoryPlanner):
    plans = 0

    def _placed(self) -> list[int]:
        if self._offsets is None:
            self.plans += 1
            order = [*self._buffers][:: 1 if self.plans % 2 else -1]
            self._offsets = place_greedily(order)[:: 1 if self.plans % 2 else -1]
        return self._offsets


class GrowsWhenAsked(GreedyMemoryPlanner):
    asked = 0

    def get_maximum_memory_size(self) -> int:
        self.asked += 1
        return super().get_maximum_memory_size() + self.asked // 2

    def add_buffer(self, *arguments: Any) -> None:
        super().add_buffer(*arguments)
        self.asked = 0


class RaisesKeyError(GreedyMemoryPlanner):
    def get_offset_for_buffer(self, buffer_index: int) -> int:
        return dict(enumerate(self._placed()))[buffer_index]


class CountsFromOne(GreedyMemoryPlanner):
    def get_buffer_count(self) -> int:
        return len(self._buffers) + 1


def first_32_steps(buffers: Sequence[Buffer]) -> list[int]:
    return changed(first_use=lambda b: min(b.first_use, 32), last_use=lambda b: b.last_use % 32)(buffers)


def order_of_size(buffers: Sequence[Buffer]) -> list[int]:
    order = sorted(range(len(buffers)), key=lambda i: -buffers[i].size)
    return place_greedily([buffers[i] for i in order])


def raising(buffers: Sequence[Buffer]) -> list[int]:
    return [offset // (2 - len(buffers)) * (2 - len(buffers)) for offset in place_greedily(buffers)]


FAULTS = {
    "lifetime without its last step": placing(changed(last_use=lambda b: max(b.first_use, b.last_use - 1))),
    "lifetime without its first step": placing(changed(first_use=lambda b: min(b.last_use, b.first_use + 1))),
    "everything at 0": placing(lambda buffers: [max(b.offset, 0) for b in buffers]),
    "sizes of at most 64 KiB": placing(changed(size=lambda b: b.size % 65536)),
    "half the size": placing(changed(size=lambda b: b.size // 32 * 16)),
    "offline offsets ignored": placing(changed(offset=lambda b: -1)),
    "online buffers not planned around offline ones": placing(
        lambda buffers: [
            o if b.is_placed else n
            for b, o, n in zip(buffers, place_greedily(buffers), changed(offset=lambda b: -1)(buffers))
        ]
    ),
    "not aligned": placing(
        lambda buffers: [o + 4 * (o > 0 and not b.is_placed) for b, o in zip(buffers, place_greedily(buffers))]
    ),
    "from 16 on": placing(
        lambda buffers: [o if b.is_placed else o + 16 for b, o in zip(buffers, place_greedily(buffers))]
    ),
    "negative": placing(
        lambda buffers: [o if b.is_placed else o - 16 for b, o in zip(buffers, place_greedily(buffers))]
    ),
    "gaps between": placing(lambda buffers: place_linearly([Buffer(2 * b.size, 0, 0) for b in buffers])),
    "steps modulo 32": placing(first_32_steps),
    "steps in 7 bits": placing(changed(first_use=lambda b: b.first_use & 127, last_use=lambda b: b.last_use & 127)),
    "steps in 16 bits": placing(
        changed(first_use=lambda b: b.first_use & 65535, last_use=lambda b: b.last_use & 65535)
    ),
    "steps of at most 1000": placing(
        changed(first_use=lambda b: min(b.first_use, 999), last_use=lambda b: min(b.last_use, 998))
    ),
    "offline offsets in 16 bits": placing(
        lambda buffers: [b.offset % 65536 if b.is_placed else o for b, o in zip(buffers, place_greedily(buffers))]
    ),
    "offsets in the order of sizes": placing(order_of_size),
    "a float": placing(lambda buffers: [o / 1 for o in place_greedily(buffers)]),
    "an exception": placing(raising),
    **{
        fault.__name__: fault
        for fault in (
            ForgetsNothing,
            KeepsOldPlan,
            SizeWithoutLast,
            SizeTooLarge,
            AnyIndex,
            Moving,
            CountsFailures,
            Shared,
            SharesItsPlan,
            PreservesLess,
            CountsFromOne,
            GrowsWhenAsked,
            RaisesKeyError,
            LargestSizeSoFar,
            PlanOfAsManyBuffers,
            DependsOnCount,
        )
    },
}


@pytest.mark.usefixtures("unshrunk")
@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_reported_as_recorded(fault: str) -> None:
    Shared.everything = []
    with pytest.raises(CheckFailed) as found:
        check_planner(FAULTS[fault], max_examples=20)
    if fault != "CountsFailures":  # which random problems find
        require_recorded(f"planner: {fault}", str(found.value).splitlines(), CHECKS, "\n")


class Plain:
    """A planner by the description alone, without the optional attributes and without a base class."""

    def __init__(self) -> None:
        self.sizes: list[int] = []

    def init(self, working_bytes: int) -> None:
        self.sizes = []

    def add_buffer(
        self, size: int, first_time_used: int, last_time_used: int, offline_offset: int = ONLINE_PLANNED_BUFFER
    ) -> None:
        if offline_offset != ONLINE_PLANNED_BUFFER:
            raise ArenaError("no offline offsets")
        self.sizes.append(size)

    def get_maximum_memory_size(self) -> int:
        return sum(self.sizes)

    def get_buffer_count(self) -> int:
        return len(self.sizes)

    def get_offset_for_buffer(self, buffer_index: int) -> int:
        if not 0 <= buffer_index < len(self.sizes):
            raise IndexError(buffer_index)
        return sum(self.sizes[:buffer_index])


class Scripted(Plain):
    """A planner whose offsets and size are given; it preserves all tensors if told so."""

    def __init__(self, offsets: Sequence[Any], size: int, preserves: bool):
        super().__init__()
        self.offsets, self.size, self.preserves_all_tensors = offsets, size, preserves

    def add_buffer(
        self, size: int, first_time_used: int, last_time_used: int, offline_offset: int = ONLINE_PLANNED_BUFFER
    ) -> None:
        self.sizes.append(size)

    def get_maximum_memory_size(self) -> int:
        return self.size

    def get_offset_for_buffer(self, buffer_index: int) -> Any:
        return self.offsets[buffer_index]


EARLY, LATE = Buffer(32, 0, 1), Buffer(16, 2, 3)
R = REGION_BYTES


@pytest.mark.parametrize(
    ("buffers", "offsets", "size", "more", "reported"),
    [
        ([], [], 0, {}, ""),
        ([], [], 16, {}, "the last buffer ends at 0"),
        ([EARLY, LATE], [0, 0], 32, {}, ""),
        ([EARLY, LATE], [0, 0], 32, {"preserves": True}, "buffers 0 and 1 share bytes 0..15, but all tensors"),
        ([EARLY, EARLY], [0, 32], 64, {}, ""),
        ([EARLY, EARLY], [32, 0], 64, {}, ""),
        ([EARLY, EARLY], [0, 16], 48, {}, "buffers 0 and 1 share bytes 16..31, but both are alive at step 0"),
        ([Buffer(32, 0, 3), LATE], [0, 16], 32, {}, "share bytes 16..31, but both are alive at step 2"),
        ([EARLY, EARLY, LATE], [0, 32, 16], 64, {}, ""),
        ([Buffer(32, 0, 2), LATE], [0, 0], 32, {}, "both are alive at step 2"),
        ([Buffer(0, 0, 1), EARLY], [16, 0], 32, {}, ""),
        ([EARLY], [0], 31, {}, "get_maximum_memory_size() is 31, but the last buffer ends at 32"),
        ([EARLY], [0], 33, {}, "get_maximum_memory_size() is 33, but the last buffer ends at 32"),
        ([EARLY, Buffer(0, 0, 1)], [0, 64], 32, {}, ""),
        ([EARLY, Buffer(0, 0, 1)], [0, 64], 64, {}, "the plan takes 64 bytes, more than the 32"),
        ([EARLY, LATE], [16, 0], 48, {}, ""),
        ([EARLY], [16], 48, {}, "the plan takes 48 bytes, more than the 32 of all buffers"),
        ([Buffer(20, 0, 1)], [0], 20, {}, ""),
        ([EARLY], [-16], 16, {}, "the offset of buffer 0 is negative"),
        ([EARLY], [8], 40, {}, "the offset of buffer 0 is not a multiple of 16"),
        ([EARLY], [8], 40, {"alignment": 4}, "the plan takes 40 bytes"),
        ([EARLY, LATE], [0, 32.0], 48, {}, "the offset of buffer 1 is 32.0, must be an integer"),
        ([EARLY, LATE], np.int64([0, 32]), 48, {}, ""),
        ([Buffer(32, 0, 1, 64)], [64], 96, {}, ""),
        ([Buffer(32, 0, 1, 64)], [32], 64, {}, "buffer 0 is at offset 32, not at its offline offset 64"),
        ([Buffer(32, 0, 1, 8), Buffer(32, 0, 1, 16)], [8, 16], 48, {}, ""),
        ([Buffer(32, 0, 1, 8), EARLY], [8, 32], 64, {}, "buffers 0 and 1 share bytes 32..39"),
        ([EARLY], [0], 32, {"memories": (32,)}, ""),
        ([EARLY], [0], 32, {"memories": (31,)}, "buffer 0 ends at 32 in memory 0, after its end"),
        ([EARLY, LATE], [0, 16], 32, {"memories": (31,)}, "buffer 0 ends at 32 in memory 0, after its end"),
        ([EARLY], [R], 0, {"memories": (16, 32)}, ""),
        ([EARLY], [R + 16], 0, {"memories": (16, 47)}, "buffer 0 ends at 48 in memory 1, after its end"),
        ([EARLY], [R], 32, {"memories": (16, 32)}, "but the last buffer ends at 0"),
        ([EARLY], [2 * R], 0, {"memories": (16, 32)}, "buffer 0 is in memory 2; there are 2"),
        ([Buffer(0, 0, 1)], [16], 16, {"memories": (0,)}, "the plan takes 16 bytes"),
        ([EARLY, LATE, EARLY], [R, 0, R + 32], 16, {"memories": (16, 64)}, ""),
    ],
)
def test_a_plan_is_valid_up_to_the_edges_of_every_rule(
    buffers: list[Buffer], offsets: Any, size: int, more: dict[str, Any], reported: str
) -> None:
    def make() -> MemoryPlanner:
        return Scripted(offsets, size, more.get("preserves", False))

    for offsets_first in (False, True):
        problem = planner_check._Problem([], buffers, len(buffers), offsets_first=offsets_first)
        run = planner_check._Run(make, problem, more.get("alignment", 16), more.get("memories", ()))
        if not reported:
            run.check()
            continue
        with pytest.raises(CheckFailed, match=re.escape(reported)):
            run.check()


@pytest.mark.parametrize(
    ("memories", "buffers", "may_refuse"),
    [
        ((), [EARLY], False),
        ((), [Buffer(32, 0, 1, 0)], True),
        ((16, 32), [EARLY], False),
        ((16, 32), [EARLY, LATE], True),
        ((16, 32), [EARLY, Buffer(0, 0, 1)], False),
    ],
)
@pytest.mark.parametrize("error", [ArenaError, KeyError])
def test_a_planner_may_refuse_what_is_larger_than_each_memory_or_has_offsets(
    memories: tuple[int, ...], buffers: list[Buffer], may_refuse: bool, error: type[Exception]
) -> None:
    class Refusing(Plain):
        def get_maximum_memory_size(self) -> int:
            raise error("no")

    run = planner_check._Run(Refusing, planner_check._Problem([], buffers, len(buffers)), 16, memories)
    if may_refuse and error is ArenaError:
        run.check()
        return
    with pytest.raises(CheckFailed, match=f"the planner raised {error.__name__}"):
        run.check()


def test_every_sentence_of_the_checker_reports_a_planted_fault() -> None:
    """Planners of several memories are in tests/test_several_memories.py."""
    assert unused_sentences(planner_check, "planner") == []


@pytest.mark.parametrize("fault", some(FAULTS, "from 16 on", "steps modulo 32", "Moving"))
def test_what_is_reported_is_small(fault: str) -> None:
    Shared.everything = []
    with pytest.raises(CheckFailed) as found:
        check_planner(FAULTS[fault])
    assert len(str(found.value).splitlines()) <= 25


def test_an_index_of_no_buffer_is_reported_after_all_other_faults() -> None:
    class IndexFromTheEnd(GreedyMemoryPlanner):
        def get_offset_for_buffer(self, buffer_index: int) -> int:
            return self._placed()[buffer_index]

    with pytest.raises(CheckFailed, match=r"get_offset_for_buffer\(-1\) returned 0"):
        check_planner(IndexFromTheEnd, max_examples=5)
    faulty = type("Faulty", (IndexFromTheEnd,), {"place": staticmethod(lambda buffers: [0] * len(buffers))})
    with pytest.raises(CheckFailed, match="share bytes"):
        check_planner(faulty, max_examples=5)


def test_a_planner_without_the_optional_attributes_is_accepted() -> None:
    planner: MemoryPlanner = Plain()  # for mypy, which checks this file
    check_planner(planner, max_examples=20)
    assert greedy_and(planner) == greedy_and(LinearMemoryPlanner())


def greedy_and(planner: MemoryPlanner) -> int:
    """Bytes of the arena that a model takes with a planner."""
    model = tflm.Model(counter(tflm.schema.TensorType.INT8, 4, with_init=False))
    return tflm.measure_arena(model, tflm.AllOpsResolver(), planner=planner).head_bytes


@pytest.mark.parametrize("lenient", ["the last", "the next"])
def test_the_first_index_of_no_buffer_must_be_refused(lenient: str) -> None:
    class Lenient(GreedyMemoryPlanner):
        def get_offset_for_buffer(self, buffer_index: int) -> int:
            count = len(self._buffers)
            known = {"the last": {-1: count - 1}, "the next": {count: count - 1}}[lenient]
            return super().get_offset_for_buffer(known.get(buffer_index, buffer_index))

    with pytest.raises(CheckFailed, match=r"get_offset_for_buffer\(.*\) returned 0, must raise ArenaError"):
        check_planner(Lenient, max_examples=examples(10))


class Incomplete:
    add_buffer = get_maximum_memory_size = lambda self, *arguments: 0


@pytest.mark.parametrize("error", [ValueError, AttributeError])
@pytest.mark.parametrize(
    ("name", "run"),
    [
        ("limited_search", lambda model, planner: tflm.plan(model, planner=planner)),
        (
            "preserves_all_tensors",
            lambda model, planner: tflm.MicroInterpreter(
                model, tflm.AllOpsResolver(), bytearray(4096), planner=planner
            ).allocate_tensors(),
        ),
    ],
)
def test_a_property_that_cannot_be_read_is_named(name: str, run: Callable[..., object], error: type[Exception]) -> None:
    def fail(self: Any) -> Any:
        raise error("lost")

    planner: Any = type("Faulty", (Plain,), {name: property(fail)})()
    model = tflm.Model(counter(tflm.schema.TensorType.INT8, 4, with_init=False))
    with pytest.raises(ArenaError, match=rf"Faulty\.{name} raised {error.__name__}: lost"):
        run(model, planner)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (None, r"Incomplete\.init\(\d+\) raised AttributeError: .*'init'.*check_planner"),
        (
            {"get_offset_for_buffer": lambda self, index: 0.0},
            r"Faulty\.get_offset_for_buffer\(0\) returned 0\.0, must be",
        ),
        (
            {"get_maximum_memory_size": lambda self: None},
            r"Faulty\.get_maximum_memory_size\(\) returned None, must be an",
        ),
        ({"add_buffer": lambda self, *given: given[9]}, r"Faulty\.add_buffer\(\d+, \d+, \d+, -1\) raised IndexError"),
    ],
)
def test_a_planner_that_fails_is_named_with_its_call(changes: dict[str, Any] | None, message: str) -> None:
    planner: Any = Incomplete() if changes is None else type("Faulty", (Plain,), changes)()
    with pytest.raises(ArenaError, match=message):
        greedy_and(planner)
    if changes is None or "get_maximum_memory_size" not in changes:
        with pytest.raises(ArenaError, match=message):
            tflm.plan(tflm.Model(counter(tflm.schema.TensorType.INT8, 4, with_init=False)), planner=planner)


def test_a_fault_of_many_buffers_is_found() -> None:
    def place(buffers: Sequence[Buffer]) -> list[int]:
        """Greedy, with a table of 128 offsets."""
        return [o if i < 128 or b.is_placed else 0 for i, (b, o) in enumerate(zip(buffers, place_greedily(buffers)))]

    with pytest.raises(CheckFailed, match=r"buffers \d+ and 128 share"):
        check_planner(placing(place))
