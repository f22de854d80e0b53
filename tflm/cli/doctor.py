"""`tflm doctor`: check the installation."""

from __future__ import annotations

import typer

from tflm.application.doctor import diagnose, doctor_figures, doctor_report, is_healthy
from tflm.cli.output import answer
from tflm.cli.parameters import AsJson


def doctor(as_json: AsJson = False) -> None:
    """Check the installation, and say how to fix it.

    Checks Python, numpy, the compiled engine with its cache, the extras, and a model's results against TFLM's. Works
    without the extra `cli`, as plain text. The exit status is 1 if something must be fixed. Paste the output into a
    report of a problem.

    \b
    Examples:
      tflm doctor
      tflm doctor --json
    """
    checks = diagnose()
    answer(as_json, doctor_figures(checks), doctor_report(checks))
    if not is_healthy(checks):
        raise typer.Exit(1)
