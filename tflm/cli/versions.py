"""`tflm versions`: show and update the versions of a model's operators."""

from __future__ import annotations

import collections
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tflm
from tflm import versioning
from tflm.application.models import load_model, title_of
from tflm.atomic_write import write_atomically
from tflm.cli.output import answer
from tflm.cli.parameters import AsJson, ModelPath, Output, flag
from tflm.report import NAME, NUMBER, TEXT, Figure, Report, Table


@dataclass(frozen=True)
class OperatorUse:
    """Operators of a model with the same versions.

    Attributes:
        operator: name of an operator; one entry for each pair of versions.
        version: the version that the model says.
        needed_version: the version that its options and tensors need; None for a custom operator.
        count: how many there are.
        brought: what the needed version added; None if unknown.
        runtime: the first TensorFlow Lite that has it; None if none is known.
    """

    operator: str
    version: int
    needed_version: int | None
    count: int
    brought: str | None
    runtime: str | None


def versions(
    model: ModelPath,
    output: Output = None,
    downgrade: Annotated[bool, flag("--downgrade", "Also lower versions that are higher than needed.")] = False,
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
    found = [
        OperatorUse(
            operator.name,
            version,
            needed,
            count,
            versioning.brought_by(operator, needed or version),
            versioning.first_runtime(operator, needed or version),
        )
        for (operator, version, needed), count in sorted(counts.items(), key=lambda item: item[0][0].name)
    ]
    runtimes = {
        "runtime": versioning.runtime_of(loaded.root),
        "runtime_needed": versioning.runtime_needed(loaded.root),
        "min_runtime_version": versioning.min_runtime_version(loaded.root),
    }
    if output is not None:
        write_atomically(output, tflm.update_versions(loaded, downgrade=downgrade))
    document = {"model": model, **runtimes, "operators": found, "written": output is not None}
    answer(as_json, document, _report(model, found, runtimes), files=[output])


def _report(model: Path, found: Sequence[OperatorUse], runtimes: dict[str, str | None]) -> Report:
    table = Table.of(
        "",
        found,
        Figure("operator", NAME, "operator"),
        Figure("count", NUMBER, "count"),
        Figure("version", NUMBER, "version"),
        Figure("needed", NUMBER, "needed_version"),
        Figure("for", TEXT, "brought"),
        Figure("runtime", TEXT, "runtime"),
    )
    facts = [
        ("runtime of these versions", runtimes["runtime"] or "none"),
        ("runtime needed", runtimes["runtime_needed"] or "none"),
        ("min_runtime_version", runtimes["min_runtime_version"] or "not set"),
    ]
    return Report(title_of(model), facts, [table])
