"""What a layer needs of those above it: declared here by name, and imported when it is first asked for.

A model's file can be judged, shown and run only by what knows operators, which is above the file format. Nothing
imports upward, so these few names are looked up instead. A test holds that they exist.
"""

from __future__ import annotations

import importlib
from typing import Any

PLAN_FINDINGS = "tflm.memory.plan_checker:findings_in_plan"
"""What `tflm.Model` and `tflm.verify` ask of a model's offline plan."""

VERSION_FINDINGS = "tflm.runtime.version_findings:unknown_versions"
"""What `tflm.verify` warns of in a model without errors."""

MODEL_REPORT = "tflm.runtime.model_report:model_html"
"""What a notebook shows of a model."""

DEFAULT_DELEGATES = "tflm.delegates:default_delegates"
"""The delegates of an interpreter that is not told which."""

FIT_REPORT = "tflm.application.fit_report:fit_report"
"""What `Fit.write` writes for people."""


def late_import(name: str) -> Any:
    """What `module:name` leads to."""
    module, _, attribute = name.partition(":")
    return getattr(importlib.import_module(module), attribute)
