"""`check_allocator` accepts the package's allocators, and finds faults planted in one."""

from __future__ import annotations

import inspect
import re
import sys
import types
from collections.abc import Callable
from typing import Any

import pytest
from checker_sentences import unused_sentences
from recorded_reports import CHECKS, require_recorded
from sampling import examples, some

from tflm.errors import ArenaExhausted
from tflm.memory import Arena, RecordingSimpleMemoryAllocator, SimpleMemoryAllocator
from tflm.memory import simple_memory_allocator as module
from tflm.testing import CheckFailed, allocator_check, check_allocator
from tflm.testing.allocator_check import AllocatorCall


@pytest.mark.parametrize("allocator", [SimpleMemoryAllocator, RecordingSimpleMemoryAllocator])
def test_allocators_pass(allocator: Callable[[Arena], SimpleMemoryAllocator]) -> None:
    check_allocator(allocator, max_examples=examples(100))


def test_an_allocator_is_accepted_as_an_object() -> None:
    check_allocator(SimpleMemoryAllocator(Arena(bytearray(100))), max_examples=examples(20))


FAULTS = {
    "tail aligned upwards": ("align_down(self.tail - size, alignment)", "align_up(self.tail - size, alignment)"),
    "temp aligned downwards": ("align_up(self.temp, alignment)", "align_down(self.temp, alignment)"),
    "temp not aligned": ("start = align_up(self.temp, alignment)", "start = self.temp"),
    "tail not aligned": ("start = align_down(self.tail - size, alignment)", "start = self.tail - size"),
    "tail down to the head": ("return self.temp if floor is None", "return self.head if floor is None"),
    "tail one byte short": ("if start < floor", "if start <= floor"),
    "temp one byte short": ("if available < size", "if available <= size"),
    "temp one byte too many": ("if available < size", "if available + 1 < size"),
    "failure moves the tail": (
        "if start < floor:\n",
        "self.tail, before = start, self.tail\n        if start < floor:\n",
    ),
    "negative sizes": ("if size < 0:", "if size < -1:"),
    "reset with live temps": (
        "if self._live_temps:\n            raise",
        "if len(self._live_temps) > 1:\n            raise",
    ),
    "reset to 0": ("self.temp = self.head", "self.temp = 0"),
    "a reset frees the tail": ("self.temp = self.head", "self.temp, self.tail = self.head, self.arena.size"),
    "no reset": ("self.temp = self.head", "pass"),
    "head resized under temps": ("if offset != 0 or self.head != self.temp:", "if offset != 0:"),
    "any offset resized": ("if offset != 0 or", "if"),
    "head and temp apart": ("self.head = self.temp = size", "self.head = size"),
    "release of anything": (
        "if offset not in self._live_temps:\n",
        "if offset not in self._live_temps:\n            return\n",
    ),
    "nothing is live": ("self._live_temps.append(start)", "pass"),
    "restore without temps": ("self._live_temps = list(checkpoint.live_temps)", "pass"),
    "restore without the tail": (
        "checkpoint.head, checkpoint.temp, checkpoint.tail",
        "checkpoint.head, checkpoint.temp, self.tail",
    ),
    "used bytes without temp": ("return max(self.head, self.temp)", "return self.head"),
    "persistent bytes": ("return self.arena.size - self.tail", "return self.tail"),
    "clears memory": (
        "self._live_temps.append(start)",
        "self._live_temps.append(start); self.arena.bytes[start:self.temp] = 0",
    ),
    "offset of the end": (
        "        return start\n\n    def deallocate_temp",
        "        return self.temp\n\n    def deallocate_temp",
    ),
    "a wasted byte": ("self.temp = start + size", "self.temp = start + size + 1"),
    "floor ignored": ("floor = self._floor(floor)", "floor = self.temp"),
    "floor in the head": ("max(floor, self.head)", "floor"),
    "tail aligned to 16 at most": (
        "align_down(self.tail - size, alignment)",
        "align_down(self.tail - size, min(alignment, 16))",
    ),
    "tail aligned to 64 at most": (
        "align_down(self.tail - size, alignment)",
        "align_down(self.tail - size, min(alignment, 64))",
    ),
    "temp aligned to 64 at most": ("align_up(self.temp, alignment)", "align_up(self.temp, min(alignment, 64))"),
    "temp in 16 bits": ("self.temp = start + size", "self.temp = start + size & 0xFFFF"),
    "the tail in 16 bits": ("self.tail = start", "self.tail = start & 0xFFFF"),
    "shared temps": ("self._live_temps: list[int] = []", "self._live_temps = TEMPS"),
    "resizable buffer at 16": (
        "self.resize_buffer(0, size, alignment, what)\n        return 0",
        "self.resize_buffer(0, size, alignment, what)\n        return 16",
    ),
    "a release frees bytes": ("self._live_temps.remove(offset)", "self._live_temps.remove(offset); self.temp = offset"),
    "the tail begins behind the arena": ("self.tail = arena.size", "self.tail = arena.size + 1"),
    "another exception": ('raise ArenaError(f"no temp', 'raise KeyError(f"no temp'),
    "available bytes": ("align_down(self.tail, alignment) - align_up", "self.tail - align_up"),
}
"""Texts of the allocator's source, and what replaces them."""


@pytest.mark.usefixtures("unshrunk")
@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_reported_as_recorded(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(CheckFailed) as found:
        check_allocator(faulty_allocator(fault, monkeypatch))
    require_recorded(f"allocator: {fault}", str(found.value).splitlines(), CHECKS, "\n")


def test_every_sentence_of_the_checker_reports_a_planted_fault() -> None:
    assert unused_sentences(allocator_check, "allocator") == []


@pytest.mark.parametrize("fault", some(FAULTS, "shared temps", "temp in 16 bits"))
def test_what_is_reported_is_small(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(CheckFailed) as found:
        check_allocator(faulty_allocator(fault, monkeypatch))
    assert len(str(found.value).splitlines()) <= 10


def faulty_allocator(fault: str, monkeypatch: pytest.MonkeyPatch) -> type[SimpleMemoryAllocator]:
    """An allocator whose source has a fault."""
    source, (right, wrong) = inspect.getsource(module), FAULTS[fault]
    assert right in source
    faulty: Any = types.ModuleType("faulty_allocator")
    monkeypatch.setitem(sys.modules, faulty.__name__, faulty)
    vars(faulty)["TEMPS"] = []
    exec(source.replace(right, wrong), vars(faulty))
    made: type[SimpleMemoryAllocator] = faulty.SimpleMemoryAllocator
    return made


NOTHING: Any = lambda self, *arguments, **options: None  # noqa: E731  # does not do what it is asked for
HEAD, TEMP, TAIL = (
    AllocatorCall("allocate_resizable_buffer", (32, 16)),
    AllocatorCall("allocate_temp", (5, 4)),
    AllocatorCall("allocate_persistent_buffer", (17, 16)),
)
RELEASE, RESET = AllocatorCall("deallocate_temp", (0,)), AllocatorCall("reset_temp_allocations")


@pytest.mark.parametrize(
    ("method", "faulty", "calls", "reported"),
    [
        ("reserve_non_persistent_overlay_memory", NOTHING, [], "head and temp are 0 and 0, must be 24"),
        ("deallocate_resizable_buffer", NOTHING, [HEAD], "head and temp are 32 and 32, must be 0"),
        ("resize_buffer", NOTHING, [], "head and temp are 0 and 0, must be 40"),
        ("resize_buffer", NOTHING, [TEMP], "resize_buffer must raise ArenaError: only the head can be resized"),
        ("resize_buffer at 16", NOTHING, [], "resize_buffer must raise ArenaError: only the head can be resized"),
        ("allocate_resizable_buffer", lambda self, *_: 16, [], "head and temp are 0 and 0, must be 32"),
        ("reset_temp_allocations", NOTHING, [TEMP, RELEASE], "temp is 5 after a reset, must be head = 0"),
        ("reset_temp_allocations", NOTHING, [TEMP], "reset_temp_allocations must raise ArenaError: a temp allocation"),
        ("deallocate_temp", NOTHING, [TEMP], "is_all_temp_deallocated() is False with 0 live temp allocations"),
        ("deallocate_temp", NOTHING, [], "deallocate_temp must raise ArenaError: nothing is allocated there"),
        ("allocate_temp", lambda self, *_: 0, [], "bytes 0..4 are not in the new part of temp, 0..-1"),
        ("allocate_persistent_buffer", lambda self, *_: 176, [], "bytes 176..192 are not in the new part of the tail"),
        ("allocate_persistent_buffer", lambda self, *_: 177, [], "offset 177 is not a multiple of 16"),
        ("restore", NOTHING, [AllocatorCall("checkpoint"), TEMP], "restore() did not bring back the state"),
        ("get_used_bytes", lambda self: 7, [], "get_used_bytes() is 7, must be 0"),
        ("get_persistent_used_bytes", lambda self: 0, [TAIL], "get_persistent_used_bytes() is 0, must be 24"),
        ("get_non_persistent_used_bytes", lambda self: 0, [HEAD], "get_non_persistent_used_bytes() is 0, must be 32"),
        ("get_available_memory", lambda self, alignment: 200, [], "get_available_memory(16) is 200, must be 192"),
        ("is_all_temp_deallocated", lambda self: True, [TEMP], "is_all_temp_deallocated() is True with 1 live"),
    ],
)
def test_each_answer_of_an_allocator_is_checked(method: str, faulty: Any, calls: list[Any], reported: str) -> None:
    arguments = {
        "reserve_non_persistent_overlay_memory": (24, 16),
        "deallocate_resizable_buffer": (0,),
        "resize_buffer": (0, 40, 16),
        "resize_buffer at 16": (16, 40, 16),
        "allocate_resizable_buffer": (32, 16),
        "allocate_temp": (5, 4),
        "deallocate_temp": (0,),
        "allocate_persistent_buffer": (17, 16),
    }
    name = method.split()[0]
    known = [AllocatorCall(name, arguments.get(method, ()))] if not name.startswith(("get_", "is_")) else []
    allocator_check._Run(SimpleMemoryAllocator, 200, [*calls, *known]).check()
    wrong = type("Wrong", (SimpleMemoryAllocator,), {name: faulty})
    with pytest.raises(CheckFailed, match=re.escape(reported)):
        allocator_check._Run(wrong, 200, [*calls, *known]).check()


@pytest.mark.parametrize(
    ("figures", "reported"),
    [
        ((201, 195, 6), "bytes did not fit"),
        ((300, 195, 105), ""),
        ((301, 195, 105), "requested, available, missing = (301, 195, 105), must be 300, 195, 105"),
        ((300, 194, 105), "must be 300, 195, 105"),
        ((300, 195, 106), "must be 300, 195, 105"),
    ],
)
def test_an_error_has_the_bytes_that_are_missing(figures: tuple[int, int, int], reported: str) -> None:
    class Failing(SimpleMemoryAllocator):
        def allocate_persistent_buffer(self, *arguments: Any, **options: Any) -> int:
            error = ArenaExhausted("a buffer", requested=figures[0], available=figures[1])
            error.missing = figures[2]
            raise error

    size = 100 if reported == "bytes did not fit" else 300
    calls = [TEMP, AllocatorCall("allocate_persistent_buffer", (size, 1))]
    run = allocator_check._Run(Failing, 200, calls)
    if not reported:
        run.check()
        return
    with pytest.raises(CheckFailed, match=re.escape(reported)):
        run.check()
