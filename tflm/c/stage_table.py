"""Tables of calls: a table in flash lists the calls of a stage, each of which computes a few rows of an operator.

Calls of an operator differ only in a few arguments, such as the address of rows and their number. Each call is a row of
the table: the operator, then these arguments.
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
        form: its text; {} stands for the value.
        value: the value; None if the text has none.
    """

    form: str
    value: int | None = None

    @property
    def text(self) -> str:
        """The argument as C."""
        return self.form if self.value is None else self.form.format(self.value)


Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True)
class StageTable(Generic[Key]):
    """The calls of a stage as a table.

    Attributes:
        rows: for each call, in order: the number of its case, and the values that differ.
        cases: for each key, the arguments of its calls, with `v[1]`, `v[2]`, ... for the values that differ.
    """

    rows: npt.NDArray[Any]
    cases: dict[Key, list[str]]


def stage_table(calls: Sequence[tuple[Key, Sequence[Argument]]]) -> StageTable[Key] | None:
    """Return the table of calls; None if arguments of calls with the same key differ in more than their values."""
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
    """Return the indices of arguments whose values differ; None if anything else differs."""
    if len({tuple(argument.form for argument in arguments) for arguments in calls}) > 1:
        return None
    return [i for i, values in enumerate(zip(*calls)) if len(set(values)) > 1]


def _texts(arguments: Sequence[Argument], varying: Sequence[int]) -> list[str]:
    values: Mapping[int, str] = {i: f"v[{1 + place}]" for place, i in enumerate(varying)}
    return [argument.form.format(values[i]) if i in values else argument.text for i, argument in enumerate(arguments)]


def _smallest_type(rows: npt.NDArray[np.int64]) -> np.dtype[Any]:
    """Return the smallest type that holds all values."""
    lowest, highest = int(rows.min()), int(rows.max())
    limits = [np.iinfo(kind) for kind in ("uint8", "uint16", "int16", "uint32", "int32")]
    return next((limit.dtype for limit in limits if limit.min <= lowest and highest <= limit.max), np.dtype(np.int64))
