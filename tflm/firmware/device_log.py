"""Find TFLM's profiles, arena sizes and failures in a device's serial output.

Lines may have a prefix (a time, a level) or colours, and may be interleaved with others.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from tflm.runtime.allocator_structures import RecordedAllocation, RecordedAllocationType

COLOURS = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")

TOOK = re.compile(r"(?<!\S)(\S+) took (\d{1,20}) ticks \((-?\d{1,20}) ms\)")
"""A line of `MicroProfiler::Log`."""
CSV_HEADER = re.compile(r'"Event","Tag","Ticks"')
CSV_EVENT = re.compile(r"(?<![\d.:,])(\d{1,20}),([^\s,\d][^\s,]*),(\d{1,20})\s*$")
"""A line of `MicroProfiler::LogCsv`."""
TAGS_HEADER = re.compile(r'"Unique Tag","Total ticks')
TAG_TICKS = re.compile(r"(?<!\S)(\S+), (\d{1,20})\s*$")
TAGS_END = re.compile(r'"total number of ticks", (\d{1,20})')
"""A line of `MicroProfiler::LogTicksPerTagCsv`."""
PART = re.compile(r"\[RecordingMicroAllocator\] Arena allocation (total|head|tail) (\d{1,20}) bytes")
RECORD = re.compile(
    r"\[RecordingMicroAllocator\] '([^']+)' used (\d{1,20}) bytes with alignment overhead "
    r"\(requested (\d{1,20}) bytes for (\d{1,20}) "
)
"""A line of `RecordingMicroAllocator::PrintAllocations`."""
USED = re.compile(r"arena_used_bytes\D{0,8}(\d{1,20})", re.IGNORECASE)
"""Forms in which a sketch may print `MicroInterpreter::arena_used_bytes()`."""


class Event(NamedTuple):
    """A timed event, such as an operator's run.

    Attributes:
        tag: its name.
        ticks: its duration, in ticks of the device's clock.
    """

    tag: str
    ticks: int


@dataclass
class DeviceArena:
    """The arena figures in a device's log, in bytes.

    Attributes:
        parts: "total", "head" and "tail", if in the log.
        recording: whether it used the recording allocator, whose own objects are larger.
        records: usage of the tail by TFLM's categories, if in the log.
    """

    parts: dict[str, int] = field(default_factory=dict)
    recording: bool = False
    records: dict[RecordedAllocationType, RecordedAllocation] = field(default_factory=dict)


class Failure(NamedTuple):
    """A failure.

    Attributes:
        line: the line that reports the failure.
        advice: what to do about it.
    """

    line: str
    advice: str


@dataclass
class DeviceLog:
    """The contents of a log.

    Attributes:
        events: the events of all profiles, in order; a profile that extends the previous one replaces it.
        ticks_by_tag: sums over all events with a tag, if in the log.
        arena: arena figures; None if not in the log.
        failures: failures that TFLM reported.
    """

    events: list[Event] = field(default_factory=list)
    ticks_by_tag: dict[str, int] = field(default_factory=dict)
    arena: DeviceArena | None = None
    failures: list[Failure] = field(default_factory=list)


def read_device_log(lines: Iterable[str], variables: int) -> DeviceLog:
    """Find TFLM's output in a log.

    Args:
        lines: lines of the log, possibly damaged.
        variables: number of resource variables in the model.
    """
    log = DeviceLog()
    profiles: list[list[Event]] = [[]]
    within = ""
    for line in (COLOURS.sub("", line).rstrip() for line in lines):
        if CSV_HEADER.search(line):
            within = "events"
        elif TAGS_HEADER.search(line):
            within = "tags"
            log.ticks_by_tag.clear()
        elif found := TOOK.search(line):
            profiles[-1].append(Event(found[1], int(found[2])))
        elif within == "events" and (found := CSV_EVENT.search(line)):
            if found[1] == "0":
                profiles.append([])
            profiles[-1].append(Event(found[2], int(found[3])))
        elif TAGS_END.search(line):
            within = ""
        elif within == "tags" and (found := TAG_TICKS.search(line)):
            log.ticks_by_tag[found[1]] = int(found[2])
        else:
            _read_arena(line, log)
            log.failures += _failures_in(line, variables)
    log.events = _joined(profiles)
    return log


def _joined(profiles: Sequence[list[Event]]) -> list[Event]:
    """The events of successive profiles; a profile that extends the previous one replaces it."""
    kept: list[list[Event]] = []
    for profile in profiles:
        if kept and profile[: len(kept[-1])] == kept[-1]:
            kept[-1] = profile
        else:
            kept.append(profile)
    return [event for profile in kept for event in profile]


def _read_arena(line: str, log: DeviceLog) -> None:
    part, record, used = PART.search(line), RECORD.search(line), USED.search(line)
    if part:
        if part[1] == "total" or log.arena is None:
            log.arena = DeviceArena(recording=True)
        log.arena.parts[part[1]] = int(part[2])
    elif record and log.arena is not None and record[1] in {kind.value for kind in RecordedAllocationType}:
        used_bytes, requested_bytes, count = map(int, record.groups()[1:])
        kind = RecordedAllocationType(record[1])
        log.arena.records[kind] = RecordedAllocation(requested_bytes, used_bytes, count)
    elif used and log.arena is None:
        log.arena = DeviceArena({"total": int(used[1])})


ADVICE = {
    r"Failed to allocate resource variable\. Maximum resource variable count \((?P<room>\d+)\)": (
        "the firmware has space for {room} resource variables, but the model has {variables}: pass that number to "
        "MicroResourceVariables::Create"
    ),
    r"(?:Failed to resize buffer|Failed to allocate (?:tail|temp) memory)\..*missing: (?P<missing>\d+)": (
        "the arena is too small by at least {missing} bytes, for this allocation alone: tflm arena shows the smallest "
        "size that works"
    ),
    r"Didn't find op for builtin opcode '(?P<operator>\w+)'": (
        "the resolver lacks {operator}: tflm export writes a resolver with all operators of the model"
    ),
    r"MicroProfiler errored out because total number of events exceeded the maximum of (?P<most>\d+)": (
        "the profiler holds {most} events: call ClearEvents() before each invoke"
    ),
}
"""Advice for lines that report failures."""


def _failures_in(line: str, variables: int) -> list[Failure]:
    found = ((re.search(pattern, line), advice) for pattern, advice in ADVICE.items())
    return [
        Failure(line[match.start() :], advice.format(variables=variables, **match.groupdict()))
        for match, advice in found
        if match
    ]


Place = tuple[int, int]
"""An operator: its subgraph, and its index there."""


@dataclass
class Invokes:
    """Events assigned to operators of a model.

    Attributes:
        count: number of complete invokes.
        ticks: ticks of each run of each operator.
        others: events outside complete invokes.
    """

    count: int = 0
    ticks: dict[Place, list[int]] = field(default_factory=dict)
    others: list[Event] = field(default_factory=list)


def invokes_in(events: Sequence[Event], sequences: Sequence[Sequence[tuple[Place, str]]]) -> Invokes:
    """Find complete invokes among events.

    Args:
        events: events of a log; those with no operator's name are ignored.
        sequences: operators in the order in which they start, with their tags; one sequence for each form of an
            invoke, such as the first one, in which CALL_ONCE runs a subgraph.
    """
    tags = {tag for sequence in sequences for _, tag in sequence}
    known = [event for event in events if event.tag in tags]
    found = Invokes(others=[event for event in events if event.tag not in tags])
    at = 0
    while at < len(known):
        for sequence in sequences:
            part = known[at : at + len(sequence)]
            if sequence and [event.tag for event in part] == [tag for _, tag in sequence]:
                for (place, _), event in zip(sequence, part):
                    found.ticks.setdefault(place, []).append(event.ticks)
                found.count += 1
                at += len(sequence)
                break
        else:
            found.others.append(known[at])
            at += 1
    return found
