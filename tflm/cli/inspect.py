"""`tflm inspect`: show what a model contains."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import tflm
from tflm.application.errors import CheckFailed
from tflm.application.models import bytes_of_model, load_model
from tflm.cli.output import answer, print_json, print_line
from tflm.cli.parameters import AsJson, ModelPath, flag
from tflm.runtime.model_report import model_figures, model_report
from tflm.versioning import version_findings


def inspect(
    model: ModelPath,
    check: Annotated[
        bool, flag("--check", "List only errors and warnings; exit with status 1 if there are errors.")
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
    loaded = load_model(model)
    answer(as_json, model_figures(loaded, str(model)), model_report(loaded, str(model)))


def _check(path: Path, as_json: bool) -> None:
    data = bytes_of_model(path)
    findings = tflm.verify(data)
    if all(finding.level == "warning" for finding in findings):
        findings += version_findings(tflm.Model(data).root)
    if as_json:
        keys = ("level", "table", "field", "place", "reason")
        print_json({"model": path, "findings": [{key: getattr(f, key) for key in keys} for f in findings]})
    for finding in [] if as_json else findings:
        print_line(f"{finding.level}: {finding}", indent=2)
    if not findings and not as_json:
        print_line("no errors or warnings")
    errors = sum(finding.level == "error" for finding in findings)
    if errors:
        raise CheckFailed(f"{path}: {errors} error{'s' if errors > 1 else ''}")
