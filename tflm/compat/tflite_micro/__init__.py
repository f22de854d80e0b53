"""The interface of the `tflite-micro` package: `import tflm.compat.tflite_micro as tflite_micro`.

`runtime` is run by this package, and `__version__` is its version. `compression` is that of the `tflite-micro` package,
which must be installed.
"""

from __future__ import annotations

import importlib
from typing import Any

from tflm.compat.tflite_micro import runtime

__all__ = ["__version__", "compression", "runtime"]  # the others are imported on first use


def __getattr__(name: str) -> Any:
    """Import a name of `__all__` on first use."""
    if name == "__version__":
        from importlib.metadata import version  # takes a while to load

        return version("pytflm")
    if name == "compression":
        try:
            return importlib.import_module("tflite_micro.tensorflow.lite.micro.compression")
        except ImportError as error:
            raise AttributeError(f"compression is that of tflite-micro: pip install tflite-micro ({error})") from error
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
