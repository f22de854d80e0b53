"""Compile the kernels of models before they are used."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from tflm.application.errors import RequestError
from tflm.compiler.calls import is_available
from tflm.delegates import COMPILED_VARIABLE
from tflm.runtime.growing_arena import ready_interpreter
from tflm.schema.model import Model


class Warmed(NamedTuple):
    """The kernels of models.

    Attributes:
        kernels: how many there are.
        folder: the folder that has their machine code.
    """

    kernels: int
    folder: Path


def warm_cache(models: Iterable[Model]) -> Warmed:
    """Compile the kernels that models need, unless they are in the cache already.

    Raises:
        RequestError: the compiled engine is not installed or turned off, a kernel cannot be compiled, or no folder can
            be written.
        TflmError: a model can't be run.
    """
    if not is_available():
        raise RequestError("the compiled engine needs Linux or macOS, and numba and llvmlite: pip install numba")
    if os.environ.get(COMPILED_VARIABLE) == "0":
        raise RequestError(f"{COMPILED_VARIABLE}=0 turns the compiled engine off; unset it")
    from tflm.compiler.cache import cache_folder
    from tflm.compiler.machine_code import requested_kernels

    folder = cache_folder()
    if folder is None:
        raise RequestError("the folder of the cache cannot be written; name another in TFLM_CACHE_DIR")
    for model in models:
        ready_interpreter(model)
    kernels = requested_kernels()
    failed = [name for name, has_code in kernels.items() if not has_code]
    if failed:
        raise RequestError(f"cannot compile {', '.join(failed)}")
    return Warmed(len(kernels), folder)
