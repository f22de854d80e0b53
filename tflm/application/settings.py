"""A project's settings: `tflm.toml`, or `[tool.tflm]` in `pyproject.toml`, in the folder or the nearest one above it.

Options win. A machine that options name, with `--board`, `--target` or a size of RAM, takes the place of the board,
target, SDK and kernels of the settings.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tflm.application.errors import OptionError
from tflm.application.machine import MachineOptions
from tflm.application.models import bytes_from
from tflm.bounded_reading import read_toml
from tflm.errors import ArgumentError
from tflm.report import Report

MACHINE_KEYS = {"tflm" if name == "release" else name: name for name in MachineOptions._fields}
"""Settings for a machine and its reserve, and the corresponding fields of `MachineOptions`."""

KEYS = (*MACHINE_KEYS, "budgets")


@dataclass(frozen=True)
class Settings:
    """The contents of a project's settings file.

    Attributes:
        path: the file; None if there is none.
        values: its texts by key, without budgets.
        budgets: sizes of arenas by pattern of a model's path from the file's folder, or of its name.
    """

    path: Path | None = None
    values: Mapping[str, str] = field(default_factory=dict)
    budgets: Mapping[str, str] = field(default_factory=dict)

    def budget_of(self, model: Path) -> int | None:
        """The budget of a model's arena in bytes, from the first pattern that matches; None if no pattern does."""
        assert self.path is not None or not self.budgets
        names = [model.name, _from(self.path, model)] if self.path is not None else []
        return next(
            (bytes_from(size) for pattern, size in self.budgets.items() if fnmatch.filter(names, pattern)), None
        )

    def machine(self, given: MachineOptions, machine_is_named: bool) -> MachineOptions:
        """The options with settings for those that were not given.

        Args:
            given: the options of the command line.
            machine_is_named: whether other options, such as a size of RAM, name a machine.
        """
        keys = ["tflm", "reserve"] if machine_is_named or given.board or given.target else [*MACHINE_KEYS]
        found = {MACHINE_KEYS[key]: self.values[key] for key in keys if key in self.values}
        return given._replace(**{name: value for name, value in found.items() if getattr(given, name) is None})


def settings(folder: Path | None = None) -> Settings:
    """The settings that hold in a folder, or in the working directory.

    Raises:
        OptionError: a key is unknown, or has a value that is not allowed; the message has the file.
    """
    start = (folder or Path()).absolute()
    for place in (start, *start.parents):
        for path, tables in ((place / "tflm.toml", ()), (place / "pyproject.toml", ("tool", "tflm"))):
            if path.is_file() and (table := _table(path, tables)) is not None:
                return _checked(path, table)
    return Settings()


def budgets_of(models: Sequence[Path]) -> dict[Path, int | None]:
    """The budget of each model in the settings that hold here."""
    found = settings()
    return {path: found.budget_of(path) for path in models}


def smallest_budget(models: Sequence[Path]) -> int | None:
    """The smallest budget of models that share an arena; None if they have none."""
    return min((size for size in budgets_of(models).values() if size is not None), default=None)


def _table(path: Path, tables: tuple[str, ...]) -> Any:
    try:
        table: Any = read_toml(path)
    except ArgumentError as error:
        if tables:  # not this package's file
            return None
        raise OptionError(str(error)) from None
    for name in tables:
        table = table.get(name) if isinstance(table, dict) else None
    return table


def _checked(path: Path, table: Any) -> Settings:
    if not isinstance(table, dict):
        raise OptionError(f"{path}: [tool.tflm] must be a table")
    unknown = [key for key in table if key not in KEYS]
    if unknown:
        raise OptionError(f"{path}: unknown setting {unknown[0]!r}; use {', '.join(KEYS)}")
    budgets = table.get("budgets", {})
    if not isinstance(budgets, dict):
        raise OptionError(f'{path}: budgets must be a table, such as "models/*.tflite" = "64K"')
    values = {key: str(value) for key, value in table.items() if key != "budgets"}
    if "board" in values and "target" in values:
        raise OptionError(f"{path}: use either board, which implies the target, or target")
    if values.get("board", "").endswith(".toml"):
        values["board"] = str(path.parent / values["board"])
    for key, size in {**{k: v for k, v in values.items() if k == "reserve"}, **budgets}.items():
        try:
            bytes_from(str(size))
        except OptionError as error:
            raise OptionError(f"{path}: {key}: {error}") from None
    return Settings(path, values, {pattern: str(size) for pattern, size in budgets.items()})


def _from(path: Path, model: Path) -> str:
    """The path of a model from the folder of the settings; its own if it is not below that."""
    absolute = model.absolute()
    return str(absolute.relative_to(path.parent)) if absolute.is_relative_to(path.parent) else str(absolute)


def settings_report(found: Settings, given: MachineOptions, on: MachineOptions, budget: str | None) -> Report:
    """Report what holds, and where from: an option, the file, or the default."""
    place = "default" if found.path is None else str(found.path)
    facts = []
    for key, name in MACHINE_KEYS.items():
        value = getattr(on, name)
        source = f"--{key}" if getattr(given, name) is not None else place
        facts.append((key, "default" if value is None else f"{value} ({source})"))
    budgets = [f"{pattern} = {size} ({place})" for pattern, size in found.budgets.items()]
    facts += [("budget", each) for each in (budgets if budget is None else [f"{budget} (--budget)"])]
    none = "no settings: neither tflm.toml nor [tool.tflm] in a pyproject.toml, here or above"
    return Report(none if found.path is None else f"settings of {place}", facts)
