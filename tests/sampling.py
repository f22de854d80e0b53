"""Parameters and examples of tests of which `make test` runs some, and `make long` the rest."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import Phase, given, settings

from tflm.testing.drawing import OperatorCase
from tflm.testing.operators import OPERATORS

MANY = 100
"""Fewest examples in a hypothesis profile of `make long`; the others draw fewer."""


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


def _rare(value: Any) -> Any:
    return pytest.param(*(value if isinstance(value, tuple) else [value]), marks=pytest.mark.long)


def drawn(operator: str, count: int) -> list[OperatorCase]:
    """Models of an operator, with inputs; the same in every run."""
    found: list[OperatorCase] = []

    @settings(max_examples=count, phases=(Phase.generate,), derandomize=True, database=None)
    @given(OPERATORS[operator])
    def draw(case: OperatorCase) -> None:
        found.append(case)

    draw()
    return found
