"""The search for stages: which operators run a few rows at a time, so that a model fits a memory budget.

Each operator that exceeds the budget must be in a stage that does not. The costs of stages add up, so dynamic
programming over the operators keeps the Pareto-optimal choices up to each of them. The cost of a stage depends on how
it is run: see `band_costs` for bands in TFLM, and `line_buffer_costs` for calls of generated C.

Tensors are alive as they are if operators run one after the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Generic, Protocol, TypeVar

from tflm.graph import Graph
from tflm.kernels import OPAQUE, REGISTRATIONS, Node
from tflm.memory import ARENA_ALIGNMENT
from tflm.memory.buffer import lower_bound_bytes
from tflm.memory.lifetimes import LifetimeBuilder, ScratchBufferRequest
from tflm.memory.tensor import TfLiteEvalTensor
from tflm.schema.model import Model
from tflm.targets import align_up


def lifetimes_of(model: Model, scratch: Sequence[int] = ()) -> LifetimeBuilder:
    """Return the lifetimes of the tensors of all subgraphs, except variables and their handles, which are constants.

    Args:
        model: the model.
        scratch: scratch bytes of each operator of the first subgraph.
    """
    tensors = [[TfLiteEvalTensor(model, tensor) for tensor in subgraph.tensors or ()] for subgraph in model.subgraphs]
    nodes = [[Node.of(model, operator) for operator in subgraph.operators or ()] for subgraph in model.subgraphs]
    requests = [ScratchBufferRequest(size, 0, node) for node, size in enumerate(scratch) if size]
    handles = [
        frozenset(output for node in of_subgraph if node.operator == "VAR_HANDLE" for output in node.outputs)
        for of_subgraph in nodes
    ]
    return LifetimeBuilder(model, nodes, tensors, handles, requests, None)


def lasting_tensors(model: Model) -> list[set[int]]:
    """Return, for each subgraph, its variables, and the outputs of operators that may end an invoke: the next invoke
    reads these."""
    lasting = []
    for subgraph in model.subgraphs:
        variables = {i for i, table in enumerate(subgraph.tensors or ()) if table.is_variable}
        enders = [
            operator
            for operator in subgraph.operators or ()
            if REGISTRATIONS.get(model.operator_name(operator), OPAQUE).ends_invoke
        ]
        lasting.append(variables.union(*(operator.outputs or () for operator in enders)))
    return lasting


class Liveness:
    """The tensors of a graph that are needed at each operator, if operators run one after the other.

    Args:
        graph: the graph.
        alignment: sizes of tensors are rounded up to a multiple of this, in bytes.
    """

    def __init__(self, graph: Graph, alignment: int = ARENA_ALIGNMENT):
        self._graph = graph
        readers = graph.readers()
        over = len(graph.operators)
        outputs = set(graph.outputs)
        made = dict.fromkeys(graph.inputs, -1) | graph.producers()
        plain = [t for t in made if not graph.tensors[t].is_variable]
        self._life = {t: (made[t], over if t in outputs else max(readers.get(t, [made[t]]))) for t in plain}
        self._readers = readers
        self.size = {t: align_up(graph.tensor_bytes(t), alignment) for t in plain}

    def at(self, index: int) -> int:
        """Return the bytes that are needed while an operator runs."""
        return sum(self.size[t] for t, (first, last) in self._life.items() if first <= index <= last)

    def peak(self) -> int:
        """Return the most bytes that are needed at once: by an operator, or by the caller before or after all."""
        return lower_bound_bytes((self.size[t], max(first, 0), max(last, 0)) for t, (first, last) in self._life.items())

    def across(self, first: int, end: int) -> int:
        """Return the size of tensors that are computed before some operators and needed after them."""
        return sum(self.size[t] for t, (made, last) in self._life.items() if made < first and last >= end)

    def ends_in(self, tensor: int, end: int) -> bool:
        """Whether no operator from `end` on needs a tensor; constants and variables stay."""
        return tensor in self._life and self._life[tensor][1] < end

    def is_inside(self, tensor: int, first: int, end: int) -> bool:
        """Whether a tensor is computed and needed only among some operators."""
        made, last = self._life.get(tensor, (-1, len(self._graph.operators)))
        return first <= made and last < end


Stage = TypeVar("Stage")

KEPT = 12
"""Maximum number of Pareto-optimal choices kept at each operator."""


@dataclass(frozen=True)
class Tiling(Generic[Stage]):
    """Stages of a model, in order, with their estimated cost.

    Attributes:
        stages: the stages; all other operators run as a whole.
        peak: bytes in use at once.
        cost: cost that the stages add, in the units of their cost model.
    """

    stages: tuple[Stage, ...]
    peak: int
    cost: tuple[int, ...]

    def followed_by(self, other: Tiling[Stage]) -> Tiling[Stage]:
        """Return the tiling of these operators and those of another tiling that follow."""
        cost = tuple(map(sum, zip(self.cost, other.cost)))
        return Tiling((*self.stages, *other.stages), max(self.peak, other.peak), cost)


class CostModel(Protocol[Stage]):
    """The costs of a model's stages.

    Attributes:
        start: the tiling of no operators.
        alone: bytes in use while each operator runs as a whole.
        longest: maximum number of operators in a stage.
        limits: maximum cost of a tiling.
    """

    start: Tiling[Stage]
    alone: Sequence[int]
    longest: int
    limits: tuple[int, ...]

    def stages(self, first: int, end: int, budget: int) -> Iterable[Tiling[Stage]]:
        """Return the ways to run operators `first` to `end` - 1 as one stage within `budget` bytes."""


def tilings_within(costs: CostModel[Stage], budget: int) -> list[Tiling[Stage]]:
    """Return the Pareto-optimal tilings that use at most `budget` bytes at once, the cheapest first."""
    exceeds = [need > budget for need in costs.alone]
    best = [[costs.start]]
    for end in range(1, len(exceeds) + 1):
        found = []
        if not exceeds[end - 1]:
            found += [replace(tiling, peak=max(tiling.peak, costs.alone[end - 1])) for tiling in best[end - 1]]
        for first in range(end - 1, max(end - costs.longest, 0) - 1, -1):
            if best[first] and any(exceeds[first:end]):
                for stage in costs.stages(first, end, budget):
                    longer = (tiling.followed_by(stage) for tiling in best[first])
                    found += [each for each in longer if all(map(int.__le__, each.cost, costs.limits))]
        best.append(_pareto_optimal(found))
    return best[-1]


def _pareto_optimal(tilings: Sequence[Tiling[Stage]]) -> list[Tiling[Stage]]:
    """The Pareto front of the tilings, by one or two costs."""
    best: list[Tiling[Stage]] = []
    for tiling in sorted(tilings, key=lambda tiling: (tiling.cost, tiling.peak)):
        if not best or tiling.cost[-1] < best[-1].cost[-1]:
            best.append(tiling)
    return best[:KEPT]
