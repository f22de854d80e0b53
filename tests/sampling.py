"""Parameters and examples of tests of which `make test` runs some, and `make long` the rest."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tflm.testing.drawing import OperatorCase
from tflm.testing.operators import OPERATORS

MANY = 100
"""Fewest examples in a hypothesis profile of `make long`; the others draw fewer."""

CHARACTERS = st.characters(exclude_categories=["Cs"])
"""The characters of UTF-8. By default, hypothesis encodes each of them first, which takes a second."""


def some(values: Iterable[Any], *often: Any) -> list[Any]:
    """Values as parameters; all but those named have the mark `long`.

    Raises:
        AssertionError: one that is named is not among the values.
    """
    found = list(values)
    assert set(often) <= set(found)
    return [value if value in often else _rare(value) for value in found]


def one_type_each(names: Iterable[str], first: int = 0) -> list[str]:
    """Return one of the names such as "ADD-INT8" for each operator, of another type from operator to operator, and for
    each `first`."""
    of_operators: dict[str, list[str]] = {}
    for name in names:
        of_operators.setdefault(name.partition("-")[0], []).append(name)
    return [same[(place + first) % len(same)] for place, same in enumerate(of_operators.values())]


def examples(count: int) -> int:
    """Return the number of examples of a random test: this many in `make long`, two fifths of them in `make test`."""
    return count if settings().max_examples >= MANY else max(2 * count // 5, 1)


def apart(count: int) -> int:
    """Return 1 in `make long`, which tries every case, and this many in `make test`, which tries one out of so many."""
    return 1 if settings().max_examples >= MANY else count


def _rare(value: Any) -> Any:
    return pytest.param(*(value if isinstance(value, tuple) else [value]), marks=pytest.mark.long)


@functools.cache
def drawn(operator: str, count: int) -> Sequence[OperatorCase]:
    """Models of an operator, with inputs; the same in every run."""
    found: list[OperatorCase] = []

    @settings(max_examples=count, phases=(Phase.generate,), derandomize=True, database=None)
    @given(OPERATORS[operator])
    def draw(case: OperatorCase) -> None:
        found.append(case)

    draw()
    return found
