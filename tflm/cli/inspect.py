"""`tflm inspect`: what is in a model."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

import tflm
from tflm.cli.command_line import (
    AsJson,
    CheckFailed,
    ModelPath,
    bytes_of_model,
    load_model,
    print_json,
    print_line,
    show,
)
from tflm.runtime.model_report import model_report, shown
from tflm.schema.versioning.findings import version_findings


def inspect(
    model: ModelPath,
    check: Annotated[
        bool, typer.Option("--check", help="Only what is wrong or odd; exit with status 1 where something is wrong.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show a model's operators, tensors, metadata and sizes.

    \b
    Examples:
      tflm inspect person_detect.tflite
      tflm inspect person_detect.tflite --check
    """
    if check:
        _check(model, as_json)
        return
    figures = model_report(load_model(model), str(model))
    if as_json:
        print_json(asdict(figures))
    else:
        show(shown(figures))


def _check(path: Path, as_json: bool) -> None:
    data = bytes_of_model(path)
    findings = tflm.verify(data)
    if all(finding.level == "warning" for finding in findings):
        findings += version_findings(tflm.Model(data).root)
    if as_json:
        keys = ("level", "table", "field", "place", "reason")
        print_json({"model": str(path), "findings": [{key: getattr(f, key) for key in keys} for f in findings]})
    for finding in [] if as_json else findings:
        print_line(f"{finding.level}: {finding}", indent=2)
    if not findings and not as_json:
        print_line("nothing is wrong or odd")
    errors = sum(finding.level == "error" for finding in findings)
    if errors:
        raise CheckFailed(f"{path}: {errors} error{'s' if errors > 1 else ''}")
