"""Search for an order of a model's operators with a lower memory peak."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tflm.graph import has_state
from tflm.memory.plan_search import Progress, Reporter
from tflm.schema.model import Model
from tflm.schema.tables import Operator, called_subgraphs

LARGEST_NUMBER_OF_SETS = 2048
"""Default of `max_sets`. If there are no more sets, the order found is optimal."""

LARGEST_NUMBER_OF_OPERATORS = 4096
"""Maximum number of operators for which an order is searched: a set of operators has a bit for each."""


class OperatorOrder(NamedTuple):
    """An order of operators.

    Attributes:
        order: for each place, the operator that runs there, by its index in the model.
        peak_bytes: the largest sum of bytes alive at an operator.
        exact: whether no other order has a lower peak.
    """

    order: tuple[int, ...]
    peak_bytes: int
    exact: bool


class _Reached(NamedTuple):
    """The best order found for running a set of operators.

    Attributes:
        peak: the most bytes alive at one of them.
        live: bytes alive after them, in any order.
        order: the operators in the order in which they ran.
    """

    peak: int
    live: int
    order: tuple[int, ...]


def smaller_order(
    model: Model,
    tensor_bytes: Mapping[int, int],
    scratch_bytes: Mapping[int, int],
    seconds: float | None = None,
    progress: Progress | None = None,
    max_sets: int = LARGEST_NUMBER_OF_SETS,
) -> OperatorOrder | None:
    """Find an order of the first subgraph's operators with a lower peak than the original; None if none was found.

    Dependencies and the order of operators with state are preserved. Models with control flow are not reordered.

    Args:
        tensor_bytes: sizes of the subgraph's tensors in the head, by index.
        scratch_bytes: sizes of the operators' scratch buffers, by operator.
        seconds: time limit, or None. After half of it, the search keeps only the best set of each step; after all
            of it, it gives up.
        progress: called with the state of the search: the peak of the original order and its best lower bound.
        max_sets: maximum number of sets of operators kept after each step.
    """
    begin, reporter = time.monotonic(), Reporter(progress, "ordering")
    operators = model.subgraphs[0].operators or ()
    if len(operators) > LARGEST_NUMBER_OF_OPERATORS or any(map(called_subgraphs, operators)):
        return None
    graph = _Graph(model, tensor_bytes, scratch_bytes)
    limit = graph.peak(range(graph.count))
    exact = True
    level = {0: _Reached(graph.bytes_at_start, graph.bytes_at_start, ())}
    sets, peak = 0, 0
    for _ in range(graph.count):
        after: dict[int, _Reached] = {}
        for done, reached in level.items():
            elapsed = time.monotonic() - begin
            if seconds is not None and elapsed > seconds:
                return None
            if after and seconds is not None and elapsed > seconds / 2:
                exact = False
                break
            graph.run_one_more(done, reached, limit, after)
            sets += 1
            reporter.report(elapsed, sets, limit, peak)
        best = sorted(after.items(), key=lambda item: item[1][:2])
        exact = exact and len(best) <= max_sets
        level = dict(best[:max_sets])
        peak = best[0][1].peak if best and exact else peak
    if not level:
        return None
    (found,) = level.values()
    return OperatorOrder(found.order, found.peak, exact)


class _Graph:
    """The operators of a model's first subgraph, with their dependencies and the tensors whose lifetime they start or
    end.

    Sets of operators are integers with a bit for each.
    """

    def __init__(self, model: Model, tensor_bytes: Mapping[int, int], scratch_bytes: Mapping[int, int]):
        subgraph = model.subgraphs[0]
        operators = subgraph.operators or []
        self.count = len(operators)
        self._scratch = scratch_bytes
        self._size = tensor_bytes
        self._waits_for = _dependencies(model, operators)
        self._reads = [{t for t in operator.inputs or () if t in tensor_bytes} for operator in operators]
        self._makes = [{t for t in operator.outputs or () if t in tensor_bytes} for operator in operators]
        self._users = dict.fromkeys(tensor_bytes, 0)
        for i in range(self.count):
            for tensor in self._reads[i] | self._makes[i]:
                self._users[tensor] |= 1 << i
        self._kept = set(subgraph.outputs or ())
        inputs = set(subgraph.inputs or ()) & set(tensor_bytes)
        self._made_before = inputs
        self.bytes_at_start = sum(tensor_bytes[tensor] for tensor in inputs)

    def run_one_more(self, done: int, reached: _Reached, limit: int, found: dict[int, _Reached]) -> None:
        """Add the sets with one operator more than `done` whose peaks are below `limit`."""
        for i in range(self.count):
            if done >> i & 1 or self._waits_for[i] & ~done:
                continue
            after = self._run(done, reached, i)
            key = done | 1 << i
            if after.peak < limit and (key not in found or after.peak < found[key].peak):
                found[key] = after

    def peak(self, order: Sequence[int]) -> int:
        """The peak of an order."""
        done, reached = 0, _Reached(self.bytes_at_start, self.bytes_at_start, ())
        for i in order:
            reached = self._run(done, reached, i)
            done |= 1 << i
        return reached.peak

    def _run(self, done: int, before: _Reached, i: int) -> _Reached:
        """Run an operator after a set of others."""
        live = before.live if done else before.live - self._unused_inputs()
        touched = self._reads[i] | self._makes[i]
        made = sum(self._size[t] for t in self._makes[i] if not self._users[t] & done and t not in self._made_before)
        peak = live + made + self._scratch.get(i, 0)
        done |= 1 << i
        over = sum(self._size[t] for t in touched if not self._users[t] & ~done and t not in self._kept)
        return _Reached(max(before.peak, peak), live + made - over, (*before.order, i))

    def _unused_inputs(self) -> int:
        """Bytes of inputs that no operator reads; they are alive only while the caller fills them."""
        return sum(self._size[t] for t in self._made_before if not self._users[t] and t not in self._kept)


def _dependencies(model: Model, operators: Sequence[Operator]) -> list[int]:
    """For each operator, the set of operators that must run before it."""
    waits_for = []
    writer: dict[int, int] = {}
    stateful = 0
    for i, operator in enumerate(operators):
        waits = 0
        for tensor in operator.inputs or ():
            waits |= writer.get(tensor, 0)
        writer.update(dict.fromkeys(operator.outputs or (), 1 << i))
        if has_state(model.operator_code(operator), operator, model.subgraphs[0]):
            waits |= stateful
            stateful |= 1 << i
        waits_for.append(waits)
    return waits_for
