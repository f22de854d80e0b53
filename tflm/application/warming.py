"""Compile the kernels of models before they are used."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tflm.application.errors import RequestError
from tflm.application.progress import Progress
from tflm.compiler.calls import obstacle
from tflm.delegates import COMPILED_VARIABLE, default_delegates
from tflm.runtime.growing_arena import ready_interpreter
from tflm.schema.model import Model

if TYPE_CHECKING:
    from tflm.compiler.language import Kernel


class Warmed(NamedTuple):
    """The compiled kernels of models.

    Attributes:
        kernels: number of kernels.
        compiled: number of kernels that were not in the cache before.
        size: size of their machine code in bytes.
        folder: the cache folder.
    """

    kernels: int
    compiled: int
    size: int
    folder: Path


def warm_cache(models: Iterable[Model], progress: Progress) -> Warmed:
    """Compile the kernels that models need, unless they are in the cache already.

    Raises:
        RequestError: the compiled engine is not installed or turned off, a kernel cannot be compiled, or no folder can
            be written.
        TflmError: a model can't be run.
    """
    if obstacle():
        raise RequestError(f"the compiled engine is not available: {obstacle()}")
    if os.environ.get(COMPILED_VARIABLE) == "0":
        raise RequestError(f"{COMPILED_VARIABLE}=0 turns the compiled engine off; unset it")
    from tflm.compiler import cache, cached_files, machine_code

    folder = cached_files.cache_folder()
    if folder is None:
        raise RequestError("the folder of the cache cannot be written; name another in TFLM_CACHE_DIR")
    kernels = _kernels_of(models)
    missing = machine_code.unknown(kernels)
    failures: machine_code.Failures = {}
    with progress("compiling kernels", len(missing)) as advance:
        for kernel in missing:
            for reason, names in machine_code.load([kernel]).items():
                failures.setdefault(reason, []).extend(names)
            advance()
    if failures:
        reasons = (f"{', '.join(names) or 'kernels'}: {reason}" for reason, names in failures.items())
        raise RequestError(f"cannot compile {'; '.join(reasons)}")
    kept = [made for made in map(cache.read, kernels) if made]
    if len(kept) < len(kernels):
        raise RequestError(
            f"{len(kernels) - len(kept)} of {len(kernels)} kernels could not be kept in {folder}: is the disk full?"
        )
    return Warmed(len(kernels), len(missing), sum(map(len, kept)), folder)


def _kernels_of(models: Iterable[Model]) -> list[Kernel]:
    """The kernels that models need. Those in the cache are loaded."""
    from tflm.compiler import machine_code
    from tflm.delegates import Compiled

    kernels: dict[str, Kernel] = {}
    for model in models:
        delegates = default_delegates(model, compiles=False)
        ready_interpreter(model, delegates=delegates)
        for delegate in delegates:
            if isinstance(delegate, Compiled):
                kernels.update(delegate.kernels)
    machine_code.addresses(kernels.values(), compiles=False)
    return list(kernels.values())
