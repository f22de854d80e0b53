"""Delegates: what runs nodes of a graph in place of their own kernels. May import the runtime and all below.

What a delegate is stands in `tflm.runtime.delegate`; those of this package have a folder each.
"""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Any

from tflm.compiler.calls import is_available
from tflm.errors import DelegateError
from tflm.runtime.delegate import Delegate, DelegateContext
from tflm.runtime.execution_plan import DelegateParams, PlannedNode
from tflm.runtime.micro_graph import bind_node
from tflm.schema.model import FLEX_PREFIX, Model

if TYPE_CHECKING:
    from tflm.delegates.compiled.delegate import Compiled
    from tflm.delegates.flex.delegate import FlexDelegate
    from tflm.delegates.hardware import HardwareDelegate

COMPILED_VARIABLE = "TFLM_COMPILED"
"""The environment variable that is 0 where interpreters are not to use the compiled engine unless they are told to."""

__all__ = [
    "Compiled",
    "Delegate",
    "DelegateContext",
    "DelegateError",
    "DelegateParams",
    "FlexDelegate",
    "HardwareDelegate",
    "PlannedNode",
    "bind_node",
    "by_name",
    "default_delegates",
]


def default_delegates(model: Model) -> list[Delegate]:
    """The delegates of an interpreter that is not told which.

    Flex, where the model has such operators; and the compiled engine, where it can be used and is not switched off.
    """
    delegates: list[Delegate] = []
    codes = (code.custom_code or "" for code in model.operator_codes)
    if any(code.startswith(FLEX_PREFIX) for code in codes):
        from tflm.delegates.flex.delegate import FlexDelegate

        delegates.append(FlexDelegate())
    if os.environ.get(COMPILED_VARIABLE) != "0" and is_available():
        from tflm.delegates.compiled.delegate import Compiled

        delegates.append(Compiled())
    return delegates


LAZY = {"Compiled": "compiled.delegate", "FlexDelegate": "flex.delegate", "HardwareDelegate": "hardware"}
"""What is imported when it is first used, and the module that has it."""

NAMES = {"compiled": "Compiled", "flex": "FlexDelegate"}
"""Delegates of the package by the names that commands take."""


def by_name(name: str) -> Delegate:
    """A delegate by its name: `compiled`, `flex`; or the caller's own, `package.module:Class`, made without arguments.

    Raises:
        ValueError: there is none of that name.
    """
    module, _, kind = name.partition(":")
    try:
        found = getattr(importlib.import_module(module), kind) if kind else __getattr__(NAMES[name])
    except (ImportError, AttributeError, KeyError):
        known = ", ".join(NAMES)
        raise ValueError(f"there is no delegate {name!r}; use one of {known}, or package.module:Class") from None
    made: Delegate = found()
    return made


def __getattr__(name: str) -> Any:
    """What of `__all__` is imported when it is first used."""
    if name in LAZY:
        return getattr(importlib.import_module(f"{__name__}.{LAZY[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
