"""The machine code of kernels: from memory, from the cache, or from the compiler."""

from __future__ import annotations

import functools
import os
import threading
import warnings
from collections import defaultdict
from collections.abc import Iterable, Mapping

from tflm.compiler import cache, cached_files, object_loader
from tflm.compiler.language import Kernel

_lock = threading.Lock()
"""Held while kernels are read or compiled. A fork gets a new lock, because the thread that holds the old one is not in
the fork."""

_linking = threading.RLock()
"""Held briefly while object files are loaded. A fork waits for it, so that LLVM is in a consistent state, with its
locks free."""

_addresses: dict[str, int | None] = {}


def addresses(kernels: Iterable[Kernel], compiles: bool = True) -> dict[Kernel, int]:
    """Return the addresses of the kernels' entries. A kernel that can't be compiled has none, and causes a warning.

    Args:
        kernels: the kernels.
        compiles: whether to compile those that are not in the cache; if not, they have no address.
    """
    wanted = list(dict.fromkeys(kernels))
    if compiles:
        warn_of(load(wanted))
    else:
        _link_from_cache(unknown(wanted))
    return known_addresses(wanted)


def known_addresses(kernels: Iterable[Kernel]) -> dict[Kernel, int]:
    """Return the addresses of those kernels that this process has loaded."""
    found = ((kernel, _addresses.get(kernel.name)) for kernel in kernels)
    return {kernel: address for kernel, address in found if address is not None}


def known_count() -> int:
    """Return the number of kernels that this process has loaded, or failed to compile. It never decreases."""
    return len(_addresses)


def unknown(kernels: Iterable[Kernel]) -> list[Kernel]:
    """Return the kernels that this process has neither loaded nor failed to compile."""
    return [kernel for kernel in kernels if kernel.name not in _addresses]


def requested_kernels() -> dict[str, bool]:
    """Returns the names of all kernels that this process has asked for, and whether each has machine code."""
    return {name: address is not None for name, address in _addresses.items()}


Failures = dict[str, list[str]]
"""Reasons why kernels can't be compiled, each with their names, or none if no kernel can."""


def load(kernels: list[Kernel], quietly: bool = False) -> Failures:
    """Load kernels from the cache or from the compiler, and return those that can't be compiled.

    Args:
        kernels: the kernels.
        quietly: whether to omit the log message that compiling takes a moment.
    """
    if not unknown(kernels):
        return {}
    with _lock:
        _link_from_cache(unknown(kernels))
        failures = _compile(unknown(kernels), quietly)
        give_up(unknown(kernels))
        return failures


def warn_of(failures: Failures) -> None:
    """Warn once about kernels that can't be compiled."""
    for reason, names in failures.items():
        which = f"can't compile {', '.join(names)};" if names else "kernels can't be compiled,"
        _warn(f"{which} Python and numpy run in their place: {reason}")


def give_up(kernels: Iterable[Kernel]) -> None:
    """Mark kernels as ones that can't be compiled."""
    _addresses.update(dict.fromkeys((kernel.name for kernel in kernels), None))


def close() -> None:
    """Prevent other threads from loading or writing files from now on: this process ends, and LLVM's state with it."""
    _linking.acquire()


def _link_from_cache(kernels: list[Kernel]) -> None:
    read = ((kernel, cache.read(kernel)) for kernel in kernels)
    _link({kernel: made for kernel, made in read if made is not None})


def _link(objects: Mapping[Kernel, bytes]) -> None:
    """Load object files, except those that lack the entry of their kernel."""
    if not objects:
        return
    with _linking:
        left = {}
        for kernel, made in objects.items():
            try:
                _addresses[kernel.name] = object_loader.load(made, kernel.symbol)
            except (object_loader.UnsupportedError, OSError):
                left[kernel] = made
        if not left:
            return
        from tflm.compiler import llvm_linker  # slow to import

        found = llvm_linker.load({kernel.symbol: made for kernel, made in left.items()})
        _addresses.update((kernel.name, found[kernel.symbol]) for kernel in left if kernel.symbol in found)


def _compile(kernels: list[Kernel], quietly: bool) -> Failures:
    """Compile, link and cache kernels, and return those for which that fails."""
    failed: Failures = defaultdict(list)
    if not kernels:
        return failed
    from tflm.compiler import compiler_process  # not needed if all kernels are cached

    if not quietly:
        _tell()
    for kernel in kernels:
        try:
            with cache.locked(kernel):  # another process may be compiling it: wait for it, and look again
                _link_from_cache([kernel])
                if unknown([kernel]):
                    _link_and_keep(kernel, compiler_process.object_of(kernel))
        except compiler_process.NoCompilerError as error:
            failed[str(error)] = []
            break
        except compiler_process.CompilerError as error:
            failed[str(error)].append(kernel.name)
            continue
        if unknown([kernel]):
            failed["the object file lacks their entry"].append(kernel.name)
    return failed


def _link_and_keep(kernel: Kernel, made: bytes) -> None:
    """Load the object file of a kernel, and cache it if it can be loaded."""
    with _linking:
        _link({kernel: made})
        if not unknown([kernel]):
            cache.write(kernel, made)


@functools.cache
def _tell() -> None:
    folder = cached_files.cache_folder()
    where = f"they are kept in {folder}" if folder is not None else "no folder can be written to keep them in"
    from logging import getLogger  # slow to import, and most processes compile nothing

    log = getLogger(__name__)
    log.warning("tflm compiles kernels for this processor, which takes a moment; %s", where)


@functools.cache
def _warn(message: str) -> None:
    warnings.warn(message, stacklevel=4)


def _renew_lock() -> None:
    global _lock
    _lock = threading.Lock()
    _linking.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_linking.acquire, after_in_parent=_linking.release, after_in_child=_renew_lock)
