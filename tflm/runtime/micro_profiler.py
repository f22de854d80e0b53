"""Times the operators of an invocation."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Protocol

from tflm.errors import ArgumentError, InterpreterError


class MicroProfilerInterface(Protocol):
    """The interface of profilers."""

    def begin_event(self, tag: str) -> int:
        """An operator called `tag` begins; returns a handle for its end."""

    def end_event(self, event_handle: int) -> None:
        """The event with that handle ends."""


def require_profiler(value: MicroProfilerInterface | None) -> MicroProfilerInterface | None:
    """Check that a value is None or a profiler, and return it.

    Raises:
        ArgumentError: it is something else, such as a class.
    """
    methods = (getattr(value, name, None) for name in ("begin_event", "end_event"))
    if value is not None and (isinstance(value, type) or not all(map(callable, methods))):
        raise ArgumentError(f"a profiler is an object with begin_event and end_event, or None, not {value!r}")
    return value


@dataclass
class Event:
    """One run of an operator.

    Attributes:
        tag: its name.
        start_ns, end_ns: nanoseconds of a monotonic clock.
        place: indices of its subgraph and operator, or of the first operator if a delegate runs several together;
            None for events of other callers.
    """

    tag: str
    start_ns: int
    end_ns: int
    place: tuple[int, int] | None = None

    @property
    def duration_ns(self) -> int:
        """How long it took, in nanoseconds."""
        return self.end_ns - self.start_ns


class MicroProfiler:
    """Keeps every event until `clear_events`.

    Attributes:
        events: the events, in the order in which they began.
    """

    def __init__(self) -> None:
        self.events: list[Event] = []

    def __repr__(self) -> str:
        return f"MicroProfiler({len(self.events)} events)"

    def begin_event(self, tag: str) -> int:
        """Start timing; returns the event's number."""
        now = time.perf_counter_ns()
        self.events.append(Event(tag, now, now))
        return len(self.events) - 1

    def begin_operator(self, tag: str, place: tuple[int, int]) -> int:
        """Begin an event as `begin_event` does, for an operator of the model."""
        handle = self.begin_event(tag)
        self.events[handle].place = place
        return handle

    def end_event(self, event_handle: int) -> None:
        """Stop timing the event of that number.

        Raises:
            InterpreterError: there is no such event.
        """
        now = time.perf_counter_ns()
        if not 0 <= event_handle < len(self.events):
            raise InterpreterError(f"unknown event {event_handle}; pass a handle that begin_event returned")
        self.events[event_handle].end_ns = now

    def clear_events(self) -> None:
        """Forget all events."""
        self.events.clear()

    def total_ns(self) -> int:
        """Sum of all durations, in nanoseconds."""
        return sum(event.duration_ns for event in self.events)

    def ns_per_tag(self) -> dict[str, int]:
        """Sum of durations for each tag, in nanoseconds, in the order in which the tags first appeared."""
        totals: dict[str, int] = {}
        for event in self.events:
            totals[event.tag] = totals.get(event.tag, 0) + event.duration_ns
        return totals

    def csv(self) -> str:
        """The events as lines of comma-separated values, with a header: number, tag, nanoseconds."""
        rows = (f"{i},{event.tag},{event.duration_ns}" for i, event in enumerate(self.events))
        return "\n".join(['"Event","Tag","Nanoseconds"', *rows]) + "\n"
