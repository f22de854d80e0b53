"""Searching for the smallest example that violates an invariant."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import TypeVar

from hypothesis import HealthCheck, Phase, find, settings
from hypothesis import strategies as st
from hypothesis.errors import Flaky, HypothesisWarning, NoSuchExample

from tflm.errors import CheckFailed

Example = TypeVar("Example")
Item = TypeVar("Item")

EXAMPLES = 200
"""Examples that a check tries by default."""

PHASES = [Phase.generate, Phase.shrink]
"""The phases of a check: search for a failing example, and minimize it."""


def check_examples(
    strategy: st.SearchStrategy[Example],
    examine: Callable[[Example], None],
    max_examples: int,
    smaller: Callable[[Example], Iterable[Example]] = lambda example: (),
    first: Iterable[Example] = (),
) -> None:
    """Examine examples until one fails, and report the smallest that fails.

    The same examples are tried in every run. If an example fails only sometimes, the last failure is reported.

    Args:
        strategy: the examples.
        examine: raises `CheckFailed` for an example that fails.
        max_examples: number of examples.
        smaller: examples with one part less. Hypothesis stops shrinking after a number of attempts.
        first: examples that are examined before random ones, in addition to `max_examples`.

    Raises:
        CheckFailed: `examine` raised it.
    """
    failures: list[CheckFailed] = []

    def fails(example: Example) -> bool:
        try:
            examine(example)
        except CheckFailed as error:
            failures.append(error)
            return True
        return False

    profile = settings(
        max_examples=max_examples,
        database=None,
        deadline=None,
        derandomize=True,
        phases=PHASES,
        suppress_health_check=list(HealthCheck),
    )
    smallest = next((example for example in first if fails(example)), None)
    with suppress(NoSuchExample, Flaky), warnings.catch_warnings():
        # Hypothesis formats the example even though nothing shows it, and warns if the text is long.
        warnings.simplefilter("ignore", HypothesisWarning)
        if smallest is None:
            smallest = find(strategy, fails, settings=profile)
    while smallest is not None and Phase.shrink in PHASES:
        smallest = next((example for example in smaller(smallest) if fails(example)), None)
    if failures:
        raise CheckFailed(failures[-1].invariant, failures[-1].counterexample)


def aligned_table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Text with right-aligned columns, two spaces apart."""
    table = [list(header), *([str(value) for value in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*table)]
    return "\n".join("  ".join(value.rjust(width) for value, width in zip(row, widths)) for row in table)


def one_removed(items: Sequence[Item]) -> Iterator[list[Item]]:
    """Yield the list without each of its items in turn, the last item first."""
    for index in reversed(range(len(items))):
        yield [*items[:index], *items[index + 1 :]]
