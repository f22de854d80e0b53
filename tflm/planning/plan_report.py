"""A memory plan for a model, and its report: which figures changed, and why others did not."""

from __future__ import annotations

from dataclasses import dataclass

from tflm.libraries import REFERENCE
from tflm.planning.improved_model import ImprovedModel, SeparateMemories
from tflm.planning.operator_order import OperatorOrder
from tflm.report import NUMBER, Figure, Report, json_key, machine_keys, sizes_of
from tflm.runtime.micro_measurement_report import ArenaMeasurement, picture
from tflm.targets import Target


@dataclass(frozen=True)
class ModelPlan(ImprovedModel):
    """A memory plan for a model; sizes in bytes.

    Attributes:
        data: the model with the plan in its metadata, where TFLM and this runtime find it.
        target: the target that the plan was made for. On others, scratch buffers and thus the head may have other
            sizes.
        head_bytes: size of the head with this plan.
        greedy_head_bytes: size of the head that TFLM's own planner produces for the original model.
        lower_bound_bytes: the largest sum of buffers that are alive at the same operator, each rounded up to 16. For
            this order of operators and these in-place outputs, no plan is smaller.
        proved_optimal: whether no plan is smaller than this one, under the same conditions.
        offsets: offset of each tensor, subgraph after subgraph; -1 for tensors outside the head, such as constants,
            and for all tensors if no plan beats the greedy one.
        overwritten: for each tensor of the first subgraph that is computed in place, the input that it replaces.
        order: how the operators of the first subgraph were reordered, or None.
        before, after: arena requirements of the original model, with its old plan if any, and with this plan. For
            several targets, on the one with the largest.
        after_by_part: arena requirements with this plan on each of the targets.
        separate: the arenas with head and tail in separate memories, if `head_ram` or `tail_ram` was given; for
            several targets, the largest of each.
    """

    data: bytes
    target: Target
    head_bytes: int
    greedy_head_bytes: int
    lower_bound_bytes: int
    proved_optimal: bool
    offsets: tuple[int, ...]
    overwritten: dict[int, int]
    order: OperatorOrder | None
    before: ArenaMeasurement
    after: ArenaMeasurement
    after_by_part: tuple[ArenaMeasurement, ...]
    separate: SeparateMemories | None = None

    def __repr__(self) -> str:
        head = f"head {self.head_bytes} bytes, greedy {self.greedy_head_bytes}"
        proof = "proved optimal" if self.proved_optimal else f"at least {self.lower_bound_bytes}"
        return f"ModelPlan({head}, {proof}, {self.minimum_arena_bytes} bytes needed on {self.target.name})"

    def _repr_html_(self) -> str:
        drawn = {"previous": self.before, "new": self.after} if self.gains else {"memory": self.after}
        return shown(self).html() + picture(**drawn)

    @property
    def gains(self) -> bool:
        """Whether the head or the smallest arena is smaller than before."""
        return self.head_bytes < self.before.head_bytes or self.minimum_arena_bytes < self.minimum_arena_bytes_before


PLAN_FIGURES = (
    *machine_keys("after."),
    Figure("head planned by TFLM", NUMBER, "greedy_head_bytes").as_key(int, "the head planned by TFLM"),
    Figure("head with this plan", NUMBER, "head_bytes").as_key(int, "the head with this plan"),
    json_key("head_bytes_before", int, "the head with the plan that the model had, if any", "before.head_bytes"),
    Figure("peak of live buffers", NUMBER, "lower_bound_bytes").as_key(int, "peak of live buffers"),
    json_key("proved_optimal", bool, "whether the plan is proved optimal for these buffers"),
    Figure("smallest arena", NUMBER, "minimum_arena_bytes").as_key(int, "the smallest arena that works with the plan"),
    Figure("  before", NUMBER, "minimum_arena_bytes_before").as_key(int, "the smallest one without it"),
    json_key("gains", bool, "whether the head or the smallest arena is smaller than before"),
    json_key("offsets", list[int], "of each tensor of each subgraph in turn; -1 for one that is not planned"),
    json_key(
        "overwritten",
        [
            (
                json_key("output", int, "a tensor that lies in the place of another", lambda pair: pair[0]),
                json_key("input", int, "the tensor that it overwrites", lambda pair: pair[1]),
            )
        ],
        "outputs that overwrite inputs",
        lambda found: found.overwritten.items(),
    ),
    json_key(
        "order", list[int] | None, "old indices of the operators in their new order; null if unchanged", "order.order"
    ),
)
"""The figures of a plan; those with a label are sizes in bytes."""


def shown(found: ModelPlan, name: str = "plan") -> Report:
    """The plan as a text report."""
    kernels = found.after.kernels.name
    facts = sizes_of(found, PLAN_FIGURES)
    if found.overwritten:
        facts.append(("in-place outputs", f"{len(found.overwritten)}"))
    if found.order is not None:
        facts.append(("operators reordered", " ".join(map(str, found.order.order))))
    notes = [_of_the_head(found), _of_the_arena(found)]
    if found.overwritten and kernels != REFERENCE.name:
        notes.append(f"in-place outputs are known to be safe with reference kernels, not with {kernels}")
    return Report(f"{name} on {found.target.name} with {kernels} kernels", facts, notes=notes)


def _of_the_head(found: ModelPlan) -> str:
    moved = _moved("head", found.before.head_bytes, found.head_bytes)
    if found.head_bytes == found.lower_bound_bytes:
        why = "optimal: the live buffers of one operator need this much"
    elif found.proved_optimal:
        why = "optimal: the search was exhaustive"
    else:
        why = "a smaller plan may exist: the search did not finish; --time-limit allows more time"
    return f"{moved}; {why}"


def _of_the_arena(found: ModelPlan) -> str:
    was, now = found.minimum_arena_bytes_before, found.minimum_arena_bytes
    moved = _moved("smallest arena", was, now)
    if now != was or found.head_bytes >= found.before.head_bytes:
        return moved
    temp = now - found.after.tail_bytes
    return f"{moved}: operators need {temp:,} temporary bytes besides the tail in the prepare phase"


def _moved(what: str, was: int, now: int) -> str:
    if now == was:
        return f"the {what} stays at {now:,} bytes"
    return f"the {what} {'shrinks' if now < was else 'grows'} by {abs(was - now):,} bytes"
