"""`tflm versions`: a model whose operators have the versions that they need."""

from __future__ import annotations

import collections
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer

import tflm
from tflm.atomic_write import write_atomically
from tflm.cli.command_line import AsJson, CommandError, ModelPath, load_model, print_json, show, title_of, wrote
from tflm.cli.plan import same_file
from tflm.report import Column, Report, Table
from tflm.schema import versioning


def versions(
    model: ModelPath,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Where the model with these versions goes.")
    ] = None,
    downgrade: Annotated[
        bool, typer.Option("--downgrade", help="Also lower versions whose features are not used.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Let FILE be the model itself, which is replaced.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show the versions that operators have and need.

    Shows the runtimes that first had them, too; with -o, writes the model with the versions that it needs.

    \b
    Examples:
      tflm versions model.tflite
      tflm versions model.tflite -o updated.tflite --downgrade
    """
    loaded = load_model(model)
    if output is not None and same_file(model, output) and not force:
        raise CommandError(f"{output} is the model itself; --force replaces it")
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
    if as_json:
        print_json({"model": str(model), **runtimes, "operators": figures, "written": output is not None})
    else:
        show(_report(model, figures, runtimes))
        if output is not None:
            wrote(output)


def _report(model: Path, figures: Sequence[Mapping[str, object]], runtimes: dict[str, str | None]) -> Report:
    columns = {
        "operator": Column.NAME,
        "count": Column.NUMBER,
        "version": Column.NUMBER,
        "needed": Column.NUMBER,
        "for": Column.TEXT,
        "runtime": Column.TEXT,
    }
    keys = ("operator", "count", "version", "needed_version", "brought", "runtime")
    rows = (tuple("" if row[key] is None else row[key] for key in keys) for row in figures)
    facts = [
        ("runtime of these versions", runtimes["runtime"] or "none"),
        ("runtime needed", runtimes["runtime_needed"] or "none"),
        ("min_runtime_version", runtimes["min_runtime_version"] or "not said"),
    ]
    return Report(title_of(model), facts, [Table("", columns, rows)])
