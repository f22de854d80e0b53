"""Finds a small memory plan for a model, and writes it into the model."""

from __future__ import annotations

import os
from dataclasses import dataclass

from tflm.memory import PLANNERS, MemoryPlanner
from tflm.memory.planner import ONLINE_PLANNED_BUFFER
from tflm.micro_measurement import measure_arena
from tflm.micro_op_resolver import AllOpsResolver, MicroMutableOpResolver
from tflm.planning.head_plan import Head, HeadPlan
from tflm.planning.operator_order import OperatorOrder, smaller_order
from tflm.schema.model import Model
from tflm.schema.offline_plan import METADATA_NAME, encode_offsets
from tflm.schema.patch import with_metadata, with_operator_order
from tflm.targets import HOST, Target


@dataclass(frozen=True)
class ModelPlan:
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

    @property
    def model(self) -> Model:
        """The model with the plan."""
        return Model(self.data)

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write the model with the plan to a file, which may be the one that the model came from.

        Raises:
            OSError: it can't be written.
        """
        part = f"{os.fspath(path)}.part"  # a file that models are mapped to must not be cut short
        with open(part, "wb") as file:
            file.write(self.data)
        os.replace(part, path)


def plan(
    model: Model,
    resolver: MicroMutableOpResolver | None = None,
    planner: str | MemoryPlanner = "optimal",
    *,
    target: Target = HOST,
    in_place: bool = False,
    reorder: bool = False,
) -> ModelPlan:
    """The smallest memory plan for a model that a planner finds.

    The plan has the offset of every tensor in the head. Scratch buffers can't be part of it: the device places them
    itself, around the tensors; that is foreseen. A plan that the model has already is replaced.

    Args:
        model: what to plan.
        resolver: the operators that there are; every one of this package, if it is not given.
        planner: a name of `tflm.memory.PLANNERS`, or a planner such as `OptimalPlanner(time_limit=60)`.
        target: the machine whose scratch buffers count.
        in_place: let outputs take the place of inputs that are not needed any more, where the operator computes each
            element from those at its place. Safe with TFLM's reference kernels and with those of this package.
        reorder: also try another order of the operators, and take it if its head is smaller.

    Raises:
        TflmError: the model can't be laid out in an arena, or not be changed.
        ValueError: there is no planner of that name.
    """
    if isinstance(planner, str):
        if planner not in PLANNERS:
            raise ValueError(f"unknown planner {planner!r}; known are {', '.join(PLANNERS)}")
        planner = PLANNERS[planner]()
    resolver = AllOpsResolver() if resolver is None else resolver

    def head_of(model: Model) -> Head:
        return Head(model, measure_arena(model, resolver, target=target).buffers)

    bare = _without_plan(model)
    head = head_of(bare)
    best, order = head.planned(planner, in_place), None
    if reorder:
        order = smaller_order(bare, head.tensor_bytes(), head.scratch_bytes())
    if order is not None:
        reordered = Model(with_operator_order(bare, 0, order.order))
        other = head_of(reordered).planned(planner, in_place)
        if other.head_bytes < best.head_bytes:
            bare, best = reordered, other
        else:
            order = None
    left_to_greedy = head.left_to_greedy()
    if best.head_bytes > left_to_greedy.head_bytes:
        bare, best, order = head.model, left_to_greedy, None
    return _model_plan(bare, target, best, left_to_greedy.head_bytes, order)


def _model_plan(
    model: Model, target: Target, best: HeadPlan, greedy_head_bytes: int, order: OperatorOrder | None
) -> ModelPlan:
    return ModelPlan(
        data=with_metadata(model, METADATA_NAME, encode_offsets(best.offsets)),
        target=target,
        head_bytes=best.head_bytes,
        greedy_head_bytes=greedy_head_bytes,
        lower_bound_bytes=best.lower_bound_bytes,
        proved_optimal=best.proved_optimal,
        offsets=tuple(best.offsets),
        overwritten=best.overwritten,
        order=order,
    )


def _without_plan(model: Model) -> Model:
    """The model, whose own plan, if there is one, leaves everything to the device."""
    if model.metadata(METADATA_NAME) is None:
        return model
    count = sum(len(subgraph.tensors or ()) for subgraph in model.subgraphs)
    return Model(with_metadata(model, METADATA_NAME, encode_offsets([ONLINE_PLANNED_BUFFER] * count)))
