"""Functions of higher layers that lower ones call. The package itself, above all layers, names their providers."""

from __future__ import annotations

from importlib import import_module
from typing import Any


class Hook:
    """A function whose module is imported when it is first called.

    Attributes:
        provider: the function, as `module:name`.
    """

    provider = ""

    def function(self) -> Any:
        """Import the function."""
        module, _, name = self.provider.partition(":")
        return getattr(import_module(module), name)

    def __call__(self, *arguments: Any) -> Any:
        return self.function()(*arguments)


plan_findings = Hook()
"""Checks a model's offline plan: an iterator of findings, from the model's root and the offsets."""

version_findings = Hook()
"""Warnings about operator versions, from the root of a model without errors."""

needed_version = Hook()
"""The version that an operator needs, from its signature."""

model_html = Hook()
"""The report of a model in a notebook."""

default_delegates = Hook()
"""The default delegates of an interpreter, from its model."""
