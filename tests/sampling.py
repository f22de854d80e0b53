"""Parameters of tests of which `make test` runs some, and `make long` the rest."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def some(values: Iterable[Any], *often: Any) -> list[Any]:
    """Values as parameters; all but those named have the mark `long`.

    Raises:
        AssertionError: one that is named is not among the values.
    """
    found = list(values)
    assert set(often) <= set(found)
    return [value if value in often else _rare(value) for value in found]


def _rare(value: Any) -> Any:
    return pytest.param(*(value if isinstance(value, tuple) else [value]), marks=pytest.mark.long)
