"""Names that a layer needs from higher layers, imported on first use.

Checking, showing and running a model file need operators, which are above the file format. Because no module imports
upward, these few names are looked up at run time. A test checks that they exist.
"""

from __future__ import annotations

import importlib
from typing import Any

PLAN_FINDINGS = "tflm.memory.plan_checker:findings_in_plan"
"""Checks a model's offline plan, for `tflm.Model` and `tflm.verify`."""

VERSION_FINDINGS = "tflm.runtime.version_findings:unknown_versions"
"""Warnings of `tflm.verify` about a model without errors."""

MODEL_REPORT = "tflm.runtime.model_report:model_html"
"""The report of a model in a notebook."""

DEFAULT_DELEGATES = "tflm.delegates:default_delegates"
"""The default delegates of an interpreter."""

FIT_REPORT = "tflm.application.fit_report:fit_report"
"""The text report of `Fit.write`."""


def late_import(name: str) -> Any:
    """Import the object `module:name`."""
    module, _, attribute = name.partition(":")
    return getattr(importlib.import_module(module), attribute)
