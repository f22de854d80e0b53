"""Delegates run nodes of a graph instead of the nodes' own kernels.

`tflm.runtime.delegate` defines their interface; each delegate of this package has its own folder. May import `runtime`
and the packages below it.
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
"""The environment variable about the compiled engine: 0 removes it from the default delegates, and `wait` lets
`allocate_tensors` wait for the compiler."""

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


def default_delegates(model: Model, compiles: bool = True, *, waits: bool = False) -> list[Delegate]:
    """The default delegates: Flex if the model has Flex operators, and the compiled engine if available and enabled.

    Args:
        model: the model to run.
        compiles: whether the engine may compile kernels; if not, numpy runs the operators that compute with floats and
            those whose kernels are not in the cache.
        waits: whether models wait for all of their kernels, and run with numpy at no time; always true with the
            environment variable `TFLM_COMPILED=wait`.
    """
    delegates: list[Delegate] = []
    codes = (code.custom_code or "" for code in model.operator_codes)
    if any(code.startswith(FLEX_PREFIX) for code in codes):
        from tflm.delegates.flex.delegate import FlexDelegate

        delegates.append(FlexDelegate())
    setting = os.environ.get(COMPILED_VARIABLE)
    if setting != "0" and is_available():
        from tflm.delegates.compiled.delegate import Compiled

        delegates.append(Compiled(compiles, in_background=not waits and setting != "wait"))
    return delegates


LAZY = {"Compiled": "compiled.delegate", "FlexDelegate": "flex.delegate", "HardwareDelegate": "hardware"}
"""Names that are imported on first use, with their modules."""

NAMES = {"compiled": "Compiled", "flex": "FlexDelegate"}
"""Delegates of the package by their names in commands."""


def by_name(name: str) -> Delegate:
    """A delegate by name: `compiled`, `flex`, or a custom one as `package.module:Class`, created without arguments.

    Raises:
        ValueError: the name is unknown.
    """
    module, _, kind = name.partition(":")
    try:
        found = getattr(importlib.import_module(module), kind) if kind else __getattr__(NAMES[name])
    except (ImportError, AttributeError, KeyError):
        known = ", ".join(NAMES)
        raise ValueError(f"unknown delegate {name!r}; use one of {known}, or package.module:Class") from None
    made: Delegate = found()
    return made


def __getattr__(name: str) -> Any:
    """Import a name of `__all__` on first use."""
    if name in LAZY:
        return getattr(importlib.import_module(f"{__name__}.{LAZY[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
