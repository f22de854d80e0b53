"""Hypothesis strategies for models of a single operator, with extreme quantization among the ordinary.

Each module adds the strategies of a family to `OPERATORS`. The modules are found automatically.
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from tflm.testing.operators.declared import OPERATORS

for module in iter_modules(__path__):
    import_module(f"{__name__}.{module.name}")

__all__ = ["OPERATORS"]
