"""IF, WHILE and CALL_ONCE as statements, and calls in loops.

In a bound operator, calls are steps and places are arrays. In a program, calls are planned calls and places are
pointers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar, Union

Call = TypeVar("Call")
Place = TypeVar("Place")
OtherCall = TypeVar("OtherCall")
OtherPlace = TypeVar("OtherPlace")


@dataclass(frozen=True)
class SubgraphCall(Generic[Call]):
    """Runs another subgraph: copies its inputs first, and its outputs afterwards."""

    before: Sequence[Call]
    subgraph: int
    after: Sequence[Call]


@dataclass(frozen=True)
class If(Generic[Call, Place]):
    """Runs one of two subgraphs, chosen by the first byte of the condition."""

    condition: Place
    then: SubgraphCall[Call]
    otherwise: SubgraphCall[Call]


@dataclass(frozen=True)
class While(Generic[Call, Place]):
    """Runs the subgraph of the condition, then the body, as long as the first byte of `holds` is not 0.

    Attributes:
        before: copies inputs to the condition and to the outputs.
        condition: the subgraph.
        body: copies outputs to the body and back, then to the condition.
    """

    before: Sequence[Call]
    condition: int
    holds: Place
    body: SubgraphCall[Call]


@dataclass(frozen=True)
class RunOnce(Generic[Place]):
    """Runs a subgraph if the first byte of `pending` is not 0, and sets the byte to 0."""

    pending: Place
    subgraph: int


@dataclass(frozen=True)
class Repeat(Generic[Call]):
    """A call in nested loops.

    Attributes:
        call: of the first iteration.
        counts: iterations of each loop, the outermost first.
        steps: for each pointer parameter that changes, what each loop advances it by, in elements.
    """

    call: Call
    counts: tuple[int, ...]
    steps: Mapping[str, tuple[int, ...]]

    @property
    def count(self) -> int:
        """Number of times that the call runs."""
        return math.prod(self.counts)


ControlFlow = Union[If[Call, Place], While[Call, Place], RunOnce[Place], Repeat[Call]]


def calls_in(statements: Iterable[object], kind: type[Call]) -> Iterator[Call]:
    """Yield the calls of one kind in statements, including those in control flow."""
    for statement in statements:
        if isinstance(statement, kind):
            yield statement
        elif isinstance(statement, If):
            for call in (statement.then, statement.otherwise):
                yield from calls_in((*call.before, *call.after), kind)
        elif isinstance(statement, While):
            yield from calls_in((*statement.before, *statement.body.before, *statement.body.after), kind)
        elif isinstance(statement, Repeat):
            yield from calls_in((statement.call,), kind)


def translated(
    statement: ControlFlow[Call, Place],
    calls: Callable[[Sequence[Call]], Sequence[OtherCall]],
    place: Callable[[Place, str], OtherPlace],
) -> ControlFlow[OtherCall, OtherPlace]:
    """Return the statement with its calls and places translated.

    Args:
        statement: the statement.
        calls: translates a sequence of calls.
        place: translates a place, given with a name.
    """

    def called(call: SubgraphCall[Call]) -> SubgraphCall[OtherCall]:
        return SubgraphCall(calls(call.before), call.subgraph, calls(call.after))

    if isinstance(statement, If):
        return If(place(statement.condition, "condition"), called(statement.then), called(statement.otherwise))
    if isinstance(statement, While):
        before, holds = calls(statement.before), place(statement.holds, "condition")
        return While(before, statement.condition, holds, called(statement.body))
    if isinstance(statement, Repeat):
        (call,) = calls([statement.call])
        return Repeat(call, statement.counts, statement.steps)
    return RunOnce(place(statement.pending, "pending"), statement.subgraph)
