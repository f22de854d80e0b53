"""`tflm versions`: show and update the versions of a model's operators."""

from __future__ import annotations

import collections
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer

import tflm
from tflm import versioning
from tflm.application.models import load_model, title_of
from tflm.atomic_write import write_atomically
from tflm.cli.output import answer, wrote
from tflm.cli.parameters import AsJson, ModelPath, Output
from tflm.report import NAME, NUMBER, TEXT, Report, Table


def versions(
    model: ModelPath,
    output: Output = None,
    downgrade: Annotated[
        bool, typer.Option("--downgrade", help="Also lower versions that are higher than needed.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show the versions that a model's operators have and need.

    Also shows the first runtime with each version. With -o, writes the model with the versions that it needs.

    \b
    Examples:
      tflm versions model.tflite
      tflm versions model.tflite -o updated.tflite --downgrade
    """
    loaded = load_model(model)
    counts = collections.Counter(
        (op.operator, op.version, op.needed) for op in versioning.operator_versions(loaded.root)
    )
    figures = [
        {
            "operator": operator.name,
            "version": version,
            "needed_version": needed,
            "count": count,
            "brought": versioning.brought_by(operator, needed or version),
            "runtime": versioning.first_runtime(operator, needed or version),
        }
        for (operator, version, needed), count in sorted(counts.items(), key=lambda item: item[0][0].name)
    ]
    runtimes = {
        "runtime": versioning.runtime_of(loaded.root),
        "runtime_needed": versioning.runtime_needed(loaded.root),
        "min_runtime_version": versioning.min_runtime_version(loaded.root),
    }
    if output is not None:
        write_atomically(output, tflm.update_versions(loaded, downgrade=downgrade))
    document = {"model": model, **runtimes, "operators": figures, "written": output is not None}
    answer(as_json, document, _report(model, figures, runtimes))
    if output is not None and not as_json:
        wrote(output)


def _report(model: Path, figures: Sequence[Mapping[str, object]], runtimes: dict[str, str | None]) -> Report:
    columns = {"operator": NAME, "count": NUMBER, "version": NUMBER, "needed": NUMBER, "for": TEXT, "runtime": TEXT}
    keys = ("operator", "count", "version", "needed_version", "brought", "runtime")
    rows = (tuple("" if row[key] is None else row[key] for key in keys) for row in figures)
    facts = [
        ("runtime of these versions", runtimes["runtime"] or "none"),
        ("runtime needed", runtimes["runtime_needed"] or "none"),
        ("min_runtime_version", runtimes["min_runtime_version"] or "not set"),
    ]
    return Report(title_of(model), facts, [Table("", columns, rows)])
