"""A memory plan for a model, and how it is shown: which figures moved, and why others did not."""

from __future__ import annotations

from dataclasses import dataclass

from tflm.libraries import REFERENCE
from tflm.planning.improved_model import ImprovedModel, SeparateMemories
from tflm.planning.operator_order import OperatorOrder
from tflm.report import Report, with_thousands
from tflm.runtime.micro_measurement_report import ArenaMeasurement, picture
from tflm.targets import Target


@dataclass(frozen=True)
class ModelPlan(ImprovedModel):
    """A memory plan for a model; sizes in bytes.

    Attributes:
        data: the model with the plan in its metadata. TFLM and this runtime obey it.
        target: the machine that it was made for. On others, scratch buffers may have other sizes, and the head too.
        head_bytes: size of the head with this plan.
        greedy_head_bytes: size of the head that TFLM's own planner makes of the model as it was.
        lower_bound_bytes: the largest sum of buffers that are alive at the same operator, each rounded up to 16: with
            these operators in this order, and these tensors in each other's place, no plan is smaller.
        proved_optimal: whether no plan is smaller than this one, in that sense.
        offsets: of each tensor, subgraph after subgraph; -1 for what has no place in the head, such as constants, and
            for all if no plan was found that is smaller than greedy's.
        overwritten: for each tensor of the first subgraph that lies on an input of its operator, that input.
        order: how the operators of the first subgraph were reordered, or None.
        before, after: what the model needs of an arena as it was, with the plan that it had if any; and with this plan.
            Where the plan is for several machines, on the one that needs the largest.
        after_by_part: what it needs with this plan on each of the machines.
        separate: the arenas with head and tail in memories of their own, if `head_ram` or `tail_ram` were given; of
            several machines, the largest of each.
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
        """Whether head or smallest arena are smaller than those of the model as it was."""
        return self.head_bytes < self.before.head_bytes or self.minimum_arena_bytes < self.minimum_arena_bytes_before


def shown(found: ModelPlan, name: str = "plan") -> Report:
    """The plan as text."""
    kernels = found.after.kernels.name
    facts = [
        ("head as TFLM plans it", with_thousands(found.greedy_head_bytes)),
        ("head with this plan", with_thousands(found.head_bytes)),
        ("most that is alive at once", with_thousands(found.lower_bound_bytes)),
        ("smallest arena", with_thousands(found.minimum_arena_bytes)),
        ("  it was", with_thousands(found.minimum_arena_bytes_before)),
    ]
    if found.overwritten:
        facts.append(("outputs over their inputs", f"{len(found.overwritten)}"))
    if found.order is not None:
        facts.append(("operators reordered", " ".join(map(str, found.order.order))))
    notes = [_of_the_head(found), _of_the_arena(found)]
    if found.overwritten and kernels != REFERENCE.name:
        notes.append(f"outputs over their inputs are known to be safe with reference kernels, not with {kernels}")
    return Report(f"{name} on {found.target.name} with {kernels} kernels", facts, notes=notes)


def _of_the_head(found: ModelPlan) -> str:
    moved = _moved("head", found.before.head_bytes, found.head_bytes)
    if found.head_bytes == found.lower_bound_bytes:
        why = "no plan of these buffers is smaller: so much is alive at one operator"
    elif found.proved_optimal:
        why = "no plan of these buffers is smaller: all were searched"
    else:
        why = "a smaller plan may exist: the search did not finish; --time-limit allows more time"
    return f"{moved}; {why}"


def _of_the_arena(found: ModelPlan) -> str:
    was, now = found.minimum_arena_bytes_before, found.minimum_arena_bytes
    moved = _moved("smallest arena", was, now)
    if now != was or found.head_bytes >= found.before.head_bytes:
        return moved
    temp = now - found.after.tail_bytes
    return f"{moved}: operators need {temp:,} bytes besides the tail while they prepare, before the head is placed"


def _moved(what: str, was: int, now: int) -> str:
    if now == was:
        return f"the {what} stays at {now:,} bytes"
    return f"the {what} {'shrinks' if now < was else 'grows'} by {abs(was - now):,} bytes"
