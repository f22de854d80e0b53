"""Tables of calls: a table in flash lists the calls of a stage, each of which computes a few rows of an operator.

Calls of an operator differ only in some arguments: where rows lie, and how many there are. Each call is a row of the
table: which operator, then what differs.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt


class Argument(NamedTuple):
    """An argument of a call.

    Attributes:
        form: of its text; {} stands for the value.
        value: None for a text without one.
    """

    form: str
    value: int | None = None

    @property
    def text(self) -> str:
        """The argument."""
        return self.form if self.value is None else self.form.format(self.value)


Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True)
class StageTable(Generic[Key]):
    """Calls as a table.

    Attributes:
        rows: of each call, in order: the number of its case, and the values that differ.
        cases: for each case the arguments of its calls, by key, in which `v[1]`, `v[2]`, ... are the values.
    """

    rows: npt.NDArray[Any]
    cases: dict[Key, list[str]]


def stage_table(calls: Sequence[tuple[Key, Sequence[Argument]]]) -> StageTable[Key] | None:
    """The table of calls, each with what its calls have in common; None if forms of arguments differ."""
    by_key: dict[Key, list[Sequence[Argument]]] = {}
    for key, arguments in calls:
        by_key.setdefault(key, []).append(arguments)
    columns = {key: _columns(found) for key, found in by_key.items()}
    if any(found is None for found in columns.values()):
        return None
    varying = {key: found or [] for key, found in columns.items()}
    width = 1 + max(map(len, varying.values()), default=0)
    rows = np.zeros((len(calls), width), np.int64)
    numbers = {key: number for number, key in enumerate(by_key)}
    for row, (key, arguments) in zip(rows, calls):
        row[0] = numbers[key]
        row[1 : 1 + len(varying[key])] = [arguments[i].value or 0 for i in varying[key]]
    cases = {key: _texts(found[0], varying[key]) for key, found in by_key.items()}
    return StageTable(rows.astype(_smallest_type(rows)), cases)


def _columns(calls: Sequence[Sequence[Argument]]) -> list[int] | None:
    """The arguments whose values differ; None if other things differ."""
    if len({tuple(argument.form for argument in arguments) for arguments in calls}) > 1:
        return None
    return [i for i, values in enumerate(zip(*calls)) if len(set(values)) > 1]


def _texts(arguments: Sequence[Argument], varying: Sequence[int]) -> list[str]:
    values: Mapping[int, str] = {i: f"v[{1 + place}]" for place, i in enumerate(varying)}
    return [argument.form.format(values[i]) if i in values else argument.text for i, argument in enumerate(arguments)]


def _smallest_type(rows: npt.NDArray[np.int64]) -> np.dtype[Any]:
    """The smallest type that all values fit in."""
    lowest, highest = int(rows.min()), int(rows.max())
    limits = [np.iinfo(kind) for kind in ("uint8", "uint16", "int16", "uint32", "int32")]
    return next((limit.dtype for limit in limits if limit.min <= lowest and highest <= limit.max), np.dtype(np.int64))
