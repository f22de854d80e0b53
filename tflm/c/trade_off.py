"""The plan with the best trade of RAM for instructions."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from tflm.c.binding import no_steps
from tflm.c.kernel_choice import KernelChoice
from tflm.c.planner import CompileOptions, PlannedModel, Planner, interpreter_bytes
from tflm.schedule.calls import Call
from tflm.schedule.plan import LEAN_SHARE, RAM_ALIGNMENT, SPEED
from tflm.schema.model import Model
from tflm.targets import align_up

FED_SHARE = 1.025
"""Maximum instructions of a program that is fed rows, relative to the program that gets the whole image.

The estimate is up to 0.6 % too high, so that the actual ratio is at most 1.02.
"""

MUCH_FASTER = 0.8
"""Maximum instructions of a program with a tenth more than the least RAM, relative to the program with the least."""

SLOWDOWN = 1.1
"""Maximum instructions of a program with kernels that are slower only to use less RAM, or whose reductions combine rows
with totals, relative to the program without them. With more than that, they are used only if TFLM's interpreter takes
less RAM than the program without them."""

HALVING_SLOWDOWN = 1.25
"""The same for totals of rows that take at most half of the RAM."""

WITHOUT_SLOW_CALLS: dict[str, dict[str, Any]] = {"accumulates": {"accumulates": False}, "lean": {"bind_lean": no_steps}}
"""Changes of the choice of kernels after which no call has an attribute."""


@dataclass(frozen=True)
class TradeOff:
    """Chooses among the plans of a model.

    Attributes:
        planner: makes the plans.
        model, options, choice: the model, the options of its compilation, and the choice of its kernels.
    """

    planner: Planner
    model: Model
    options: CompileOptions
    choice: KernelChoice

    def best(self) -> PlannedModel:
        """Return the plan to use; the one with the least RAM, or the fastest in it, if the options ask for that."""
        return self._balanced() if self.options.feed_rows is None else self._fed()

    def _planned(self, choice: KernelChoice | None = None, **changes: Any) -> PlannedModel:
        """Return the plan for other kernels, or with changes of the options."""
        return self.planner.planned(self.model, replace(self.options, **changes), choice or self.choice)

    def _fed(self) -> PlannedModel:
        """Return the plan of a model that is fed rows with the least RAM that costs hardly more instructions.

        The search ends at 1.5 times the least RAM, or at that of the program with the whole image. If every plan costs
        more instructions than allowed, the least RAM is used.
        """
        smallest = self._planned()
        if self.options.ram is not None or self.options.memories:
            return smallest
        unfed = self._planned(feed_rows=None)
        low = smallest.ram_bytes
        limit = min(low * 3 // 2, unfed.ram_bytes)
        if limit <= low:
            return smallest
        found = smallest if smallest.is_faster(unfed, FED_SHARE) else self._planned(ram=limit)
        if not found.is_faster(unfed, FED_SHARE):
            return smallest
        while found.ram_bytes - low > smallest.ram_bytes // 64:
            middle = (low + found.ram_bytes) // 2
            planned = self._planned(ram=middle)
            low, found = (low, planned) if planned.is_faster(unfed, FED_SHARE) else (middle, found)
        return found

    def _balanced(self) -> PlannedModel:
        """Return the plan with the least RAM, or one with more if that saves many instructions."""
        smallest = self._planned()
        if self.options.ram is not None or self.options.memories or self.options.optimize is not None:
            return smallest
        return self._in_longer_parts(self._without_slow_calls(smallest))

    def _without_slow_calls(self, planned: PlannedModel) -> PlannedModel:
        """Return a plan without totals of rows, or lean kernels, if they cost many instructions; see `SLOWDOWN`."""
        choice = self.choice
        for slow, changes in WITHOUT_SLOW_CALLS.items():
            if any(getattr(call, slow, False) for call in planned.plan.calls):
                faster = choice._replace(**changes)
                fast = self._planned(faster)
                least, taken = planned.ram_bytes, fast.ram_bytes
                slowdown = HALVING_SLOWDOWN if slow == "accumulates" and 2 * least <= taken else SLOWDOWN
                is_small = taken <= interpreter_bytes(self.model, fast.extra)
                if taken <= least or (is_small and fast.is_faster(planned, 1 / slowdown)):
                    planned, choice = fast, faster
        return planned

    def _in_longer_parts(self, planned: PlannedModel) -> PlannedModel:
        """Return a plan with up to a tenth more RAM if that saves many instructions.

        With the least RAM, a stage can have too few rows for the kernels that compute four windows at a time.
        """
        is_split = any(isinstance(call, Call) and call.rows is not None for call in planned.plan.calls)
        if not is_split or not self._planned(optimize=SPEED).is_faster(planned, MUCH_FASTER):
            return planned
        found = self._planned(ram=align_up(int(planned.ram_bytes * LEAN_SHARE), RAM_ALIGNMENT))
        return found if found.is_faster(planned, MUCH_FASTER) else planned
