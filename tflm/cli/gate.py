"""`tflm gate`: check models against a budget, for CI and pre-commit."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from tflm.application.errors import CheckFailed, NotKnown, OptionError
from tflm.application.gate import figures, gate_report, gated, models_from, verdict_lines
from tflm.application.machine import Machine, MachineOptions
from tflm.application.models import bytes_from
from tflm.application.output_files import Written
from tflm.application.settings import budgets_of
from tflm.atomic_write import append
from tflm.cli.output import answer, progress, short, wrote
from tflm.cli.parameters import NAMED, AsJson, Short, argument, option
from tflm.firmware.board_fit import Answer


def gate(
    models: Annotated[list[str], argument("MODEL", ".tflite files, or patterns such as 'models/**/*.tflite'.")],
    on: MachineOptions = NAMED,
    budget: Annotated[str | None, option("SIZE", "Largest arena of each model, such as 64K.")] = None,
    base: Annotated[str | None, option("REVISION", "Git revision to compare with, such as origin/main.")] = None,
    summary: Annotated[Path | None, option("FILE", "Append the table to a Markdown file."), Written.UPDATED] = None,
    is_short: Short = False,
    as_json: AsJson = False,
) -> None:
    """Check models against a budget or a board, for CI.

    With --base, also shows the change since a git revision. Without it, each model needs a limit: --board, --budget, or
    budgets in the project's settings. The exit status is 1 if a model does not fit or cannot be
    allocated, and 3 if none of them does that, but it is not known whether one fits.

    \b
    Examples:
      tflm gate 'models/*.tflite' --board nano33ble --base origin/main
      tflm gate model.tflite --target cortex-m4 --kernels cmsis-nn --budget 64K --summary summary.md
    """
    machine = on.machine()
    paths = models_from(models)
    limits = dict.fromkeys(paths, bytes_from(budget)) if budget is not None else budgets_of(paths)
    _require_limits(limits, machine, base)
    limit = next(iter(limits.values())) if len(set(limits.values())) == 1 else None
    found = []
    with progress("laying out", len(paths)) as advance:
        for path in paths:
            found.append(gated(path, machine, limits[path], base))
            advance()
    report = gate_report(found, machine, base)
    if summary is not None:
        append(summary, report.markdown().encode())
    if is_short:
        short(as_json, *verdict_lines(found))
    else:
        answer(as_json, figures(found, machine, limit, base), report)
    if summary is not None and not (as_json or is_short):
        wrote(summary)
    failing = [each for each in found if not each.fits]
    if failing:
        what = "does" if len(failing) == 1 else "do"
        advice = f"; {failing[0].advice}" if len(failing) == 1 and failing[0].advice else ""
        unsure = all(each.verdict.startswith(Answer.UNKNOWN.value) for each in failing)
        raise (NotKnown if unsure else CheckFailed)(
            f"{', '.join(each.model for each in failing)} {what} not pass{advice}"
        )


def _require_limits(limits: Mapping[Path, int | None], machine: Machine, base: str | None) -> None:
    unlimited = [str(path) for path, limit in limits.items() if limit is None]
    if unlimited and machine.board is None and base is None:
        others = f" and {len(unlimited) - 1} more" if len(unlimited) > 1 else ""
        raise OptionError(
            f"nothing limits {unlimited[0]}{others}; use --board NAME, --budget SIZE, or a board or budgets in "
            "tflm.toml, or compare with --base REVISION"
        )
