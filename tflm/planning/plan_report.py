"""A memory plan, as `tflm plan` shows it: which figures moved, and why others did not."""

from __future__ import annotations

from tflm.libraries import REFERENCE
from tflm.planning.model_plan import ModelPlan
from tflm.report import Report, with_thousands


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
        why = "a smaller plan may exist: the search was not over; --time-limit gives it more time"
    return f"{moved}; {why}"


def _of_the_arena(found: ModelPlan) -> str:
    was, now = found.minimum_arena_bytes_before, found.minimum_arena_bytes
    moved = _moved("smallest arena", was, now)
    if now != was or found.head_bytes >= found.before.head_bytes:
        return moved
    beside = now - found.after.tail_bytes
    return f"{moved}: beside the tail {beside:,} are taken while operators prepare, before the head lies there"


def _moved(what: str, was: int, now: int) -> str:
    if now == was:
        return f"the {what} stays at {now:,} bytes"
    return f"the {what} {'shrinks' if now < was else 'grows'} by {abs(was - now):,} bytes"
