"""What a search minimizes: one arena, or the head's if the tail has a separate memory."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from tflm.runtime.micro_measurement import SeparateArenas
from tflm.schedule.operator_costs import Measure
from tflm.schema.model import Model

TOO_LARGE = sys.maxsize
"""Objective of a model whose tail does not fit its memory; worse than any other."""


class Objective(Protocol):
    """The bytes that a search minimizes."""

    def measured(self, model: Model) -> int:
        """The objective of a complete model, in bytes."""

    def expected(self, head_bytes: int, tail_bytes: int) -> int:
        """The objective from estimates of head and tail, in bytes."""


@dataclass(frozen=True)
class OneArena:
    """The smallest arena for head and tail together.

    Attributes:
        measure: lays a model out.
    """

    measure: Measure

    def measured(self, model: Model) -> int:
        """The objective of a complete model, in bytes."""
        return self.measure(model).minimum_arena_bytes

    def expected(self, head_bytes: int, tail_bytes: int) -> int:
        """The objective from estimates of head and tail, in bytes."""
        return head_bytes + tail_bytes


@dataclass(frozen=True)
class HeadArena:
    """The smallest arena for the head, if the tail fits a memory of its own.

    Attributes:
        measure: lays a model out in two arenas.
        tail_ram: bytes of the tail's memory; None for any number.
    """

    measure: Callable[[Model], SeparateArenas]
    tail_ram: int | None

    def measured(self, model: Model) -> int:
        """The objective of a complete model, in bytes."""
        arenas = self.measure(model)
        return self.expected(arenas.head_arena_bytes, arenas.tail_arena_bytes)

    def expected(self, head_bytes: int, tail_bytes: int) -> int:
        """The objective from estimates of head and tail, in bytes."""
        fits = self.tail_ram is None or tail_bytes <= self.tail_ram
        return head_bytes if fits else TOO_LARGE
