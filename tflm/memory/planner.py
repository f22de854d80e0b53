"""The interface of memory planners, which assign offsets to buffers with sizes and lifetimes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from inspect import getattr_static
from numbers import Integral
from typing import ClassVar, NamedTuple, Protocol, cast

from tflm.errors import ArenaError, ArenaExhausted, TflmError
from tflm.memory.buffer import ONLINE_PLANNED_BUFFER, Buffer, plan_bytes
from tflm.targets import Struct


class MemoryPlanner(Protocol):
    """The calls that the allocator makes to a planner, in this order. Any object with these methods is accepted.

    Two attributes are optional: `preserves_all_tensors`, a bool, and `limited_search`, a `LimitedSearch` or None; see
    the functions of these names. `tflm.testing.check_planner` checks what is described here.
    """

    def init(self, working_bytes: int) -> None:
        """Forget all buffers. `working_bytes` of the arena are free for the planner's own tables on the device."""

    def add_buffer(
        self, size: int, first_time_used: int, last_time_used: int, offline_offset: int = ONLINE_PLANNED_BUFFER
    ) -> None:
        """Add a buffer, in bytes and steps; see `Buffer`. More may be added after the plan was asked for.

        A planner may raise `ArenaError` if its tables do not fit the working bytes, or for an offline offset; the
        buffer is not added then.
        """

    def get_maximum_memory_size(self) -> int:
        """Bytes that the plan occupies, from offset 0 to the end of the last buffer; not more than all buffers take one
        after the other, unless there are offline offsets."""

    def get_buffer_count(self) -> int:
        """Number of buffers added."""

    def get_offset_for_buffer(self, buffer_index: int) -> int:
        """The offset of the buffer that was added as number `buffer_index`; the same each time it is asked for.

        It is an offline offset as it was given, or a multiple of the alignment that is not negative. A planner raises
        `ArenaError` or `IndexError` for an index below 0, or of no buffer.
        """


def ask_planner(planner: MemoryPlanner, method: str, *arguments: int) -> int:
    """Call a method of a planner that returns a number.

    Raises:
        ArenaError: it returned something else, or raised anything but a `TflmError`.
    """
    answer = tell_planner(planner, method, *arguments)
    if not isinstance(answer, Integral):
        raise ArenaError(f"{_call(planner, method, arguments)} returned {answer!r}, must be an integer")
    return int(answer)


def tell_planner(planner: MemoryPlanner, method: str, *arguments: int) -> object:
    """Call a method of a planner, and return its result.

    Raises:
        ArenaError: it raised anything but a `TflmError`.
    """
    try:
        return getattr(planner, method)(*arguments)
    except TflmError:
        raise
    except Exception as error:
        raise ArenaError(
            f"{_call(planner, method, arguments)} raised {type(error).__name__}: {error}; "
            "tflm.testing.check_planner shows the smallest problem with which a planner fails"
        ) from error


def _call(planner: MemoryPlanner, method: str, arguments: tuple[int, ...]) -> str:
    return f"the planner's {type(planner).__name__}.{method}({', '.join(map(str, arguments))})"


class LimitedSearch(Protocol):
    """A search for the smallest plan that stops at a time limit."""

    @property
    def time_limit(self) -> float | None:
        """Seconds, None without a limit."""

    @property
    def progress(self) -> Callable[[SearchProgress], None] | None:
        """Called about twice a second during the search."""

    @property
    def proved_optimal(self) -> bool:
        """Whether the last plan is proved to be the smallest."""

    def within(self, seconds: float | None) -> AbstractContextManager[None]:
        """Apply another time limit until the context ends."""


class SearchProgress(NamedTuple):
    """The progress of a search.

    Attributes:
        seconds, steps: since the start.
        head_bytes: size of the best plan so far.
        lower_bound_bytes: no plan is smaller than this.
        stage: "searching" for offsets, or "ordering" the operators.
    """

    seconds: float
    steps: int
    head_bytes: int
    lower_bound_bytes: int
    stage: str = "searching"


def preserves_all_tensors(planner: MemoryPlanner) -> bool:
    """Whether no two buffers of a planner ever share memory, so that every tensor can be read after an invoke; False if
    the planner does not say."""
    return bool(_ask_property(planner, "preserves_all_tensors", False))


def limited_search(planner: MemoryPlanner) -> LimitedSearch | None:
    """The search of a planner, if its time can be limited; None for a planner without one."""
    return cast("LimitedSearch | None", _ask_property(planner, "limited_search", None))


def _ask_property(planner: MemoryPlanner, name: str, default: object) -> object:
    """A property that a planner may lack.

    Raises:
        ArenaError: reading it raised anything but a `TflmError`.
    """
    try:
        return getattr(planner, name)
    except TflmError:
        raise
    except Exception as error:
        if isinstance(error, AttributeError) and getattr_static(planner, name, None) is None:
            return default
        name = f"the planner's {type(planner).__name__}.{name}"
        raise ArenaError(f"{name} raised {type(error).__name__}: {error}") from error


class PlacingPlanner(MemoryPlanner):
    """A planner made of one function that places all buffers at once."""

    STRUCT: ClassVar[Struct]
    """The structure that TFLM reserves in the tail for the planner."""

    WORKING_BYTES_PER_BUFFER: ClassVar[int] = 0
    """Bytes of the arena that the planner's tables take for each buffer, on every target."""

    MAXIMUM_BUFFERS: ClassVar[int | None] = None
    """Largest number of buffers, or None."""

    preserves_all_tensors = False

    @property
    def limited_search(self) -> LimitedSearch | None:
        """The search whose time can be limited, if there is one."""
        return None

    place: Callable[[Sequence[Buffer]], list[int]]

    def __init__(self) -> None:
        self._buffers: list[Buffer] = []
        self._offsets: list[int] | None = None
        self._working_bytes: int | None = None

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self._buffers)} buffers)"

    def init(self, working_bytes: int) -> None:
        self._buffers, self._offsets, self._working_bytes = [], None, working_bytes

    def add_buffer(
        self, size: int, first_time_used: int, last_time_used: int, offline_offset: int = ONLINE_PLANNED_BUFFER
    ) -> None:
        count = len(self._buffers) + 1
        if self.MAXIMUM_BUFFERS is not None and count > self.MAXIMUM_BUFFERS:
            raise ArenaError(f"{type(self).__name__} supports at most {self.MAXIMUM_BUFFERS} buffers")
        needed = count * self.WORKING_BYTES_PER_BUFFER
        if self._working_bytes is not None and needed > self._working_bytes:
            raise ArenaExhausted(
                f"the planner's table of {count} buffers", requested=needed, available=self._working_bytes
            )
        self._buffers.append(Buffer(size, first_time_used, last_time_used, offline_offset))
        self._offsets = None

    def get_maximum_memory_size(self) -> int:
        return plan_bytes(self._buffers, self._placed())

    def get_buffer_count(self) -> int:
        return len(self._buffers)

    def get_offset_for_buffer(self, buffer_index: int) -> int:
        if not 0 <= buffer_index < len(self._buffers):
            raise ArenaError(f"buffer index {buffer_index} is out of range: {len(self._buffers)} buffers were added")
        return self._placed()[buffer_index]

    def _placed(self) -> list[int]:
        if self._offsets is None:
            self._offsets = self.place(self._buffers)
        return self._offsets
