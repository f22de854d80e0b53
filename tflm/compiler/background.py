"""Compile kernels in a thread while the caller continues without them.

The thread waits for the compiler's process and links what it returns. It lasts as long as there are kernels to compile.
When this process ends, the thread goes on for a moment and finishes the kernel that it has begun, so that short
processes make progress, too. A fork does not have it, and starts its own when it asks again for what it lacks.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import math
import os
import threading
import time
from collections.abc import Iterable

from tflm.compiler import machine_code
from tflm.compiler.language import Emitted, Kernel

SECONDS_TO_GO_ON, SECONDS_TO_FINISH = 2.0, 5.0
"""How long kernels may still be started when this process ends, and the maximum wait: several times as long as most
kernels take."""

SECONDS_TO_FINISH_FIRST = 20.0
"""The maximum wait for the first kernel that this process compiles, which includes the start of the compiler. A slow
machine whose processes all gave up before would never have a kernel."""

_guard = threading.Lock()
"""Protects the variables below; held only briefly."""

_wanted: dict[str, Kernel] = {}
_thread: threading.Thread | None = None
_end = math.inf
"""Time after which no kernel is started, in seconds of the monotonic clock."""


def request(kernels: Iterable[Kernel]) -> None:
    """Compile kernels in the background; `machine_code` then knows them.

    Those that numba does not have to compile are first, then those of the smallest request. A request for kernels that
    are requested already is a no-op.
    """
    global _thread
    with _guard:
        new = {kernel.name: kernel for kernel in kernels if kernel.name not in _wanted}
        both = {**new, **_wanted} if len(new) < len(_wanted) else {**_wanted, **new}
        _wanted.clear()
        _wanted.update(sorted(both.items(), key=lambda item: not isinstance(item[1], Emitted)))
        if not _wanted or _thread is not None:
            return
        _end_at_exit()
        _thread = threading.Thread(target=_work, name="tflm compiler", daemon=True)
        try:
            _thread.start()
        except RuntimeError:  # this process ends, or may not have another thread
            machine_code.give_up(_wanted.values())
            _wanted.clear()
            _thread = None


def is_at_work() -> bool:
    """Whether the thread is running."""
    return _thread is not None


def _work() -> None:
    global _thread
    while True:
        with _guard:
            if not _wanted or time.monotonic() > _end:
                _thread = None
                return
            kernel = next(iter(_wanted.values()))
        _compile(kernel)
        with _guard:
            _wanted.pop(kernel.name, None)
        time.sleep(0.001)  # requests that wait for kernels come first


def _compile(kernel: Kernel) -> None:
    """Compile a kernel. Exceptions are not raised, because nobody would catch them: numpy continues to run the
    operator."""
    import logging

    from tflm.compiler import compiler_process

    try:
        failures = machine_code.load([kernel], quietly=True)
        if not compiler_process.is_closed():
            machine_code.warn_of(failures)
    except Exception as error:  # including warnings that filters turn into errors
        machine_code.give_up([kernel])
        if not compiler_process.is_closed():
            logging.getLogger(__name__).warning("%s", error)


def _finish() -> None:
    """Continue for a moment, and wait for the kernel that was started. Ctrl-C ends the wait."""
    global _end
    from tflm.compiler import compiler_process

    _end = time.monotonic() + SECONDS_TO_GO_ON
    thread = _thread
    if thread is not None:
        with contextlib.suppress(KeyboardInterrupt):
            thread.join(SECONDS_TO_FINISH if compiler_process.has_replied() else SECONDS_TO_FINISH_FIRST)


@functools.cache
def _end_at_exit() -> None:
    """Finish a kernel, unload LLVM, and end the compiler when the interpreter ends."""
    from tflm.compiler import compiler_process

    atexit.register(compiler_process.close)
    atexit.register(machine_code.close)
    atexit.register(_finish)  # functions that are registered later run earlier


def _forget_thread() -> None:
    global _guard, _thread
    _guard, _thread = threading.Lock(), None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_thread)
