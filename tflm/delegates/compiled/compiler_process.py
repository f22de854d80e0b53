"""The child process that compiles what no file holds yet; needed, and imported, on a miss only."""

from __future__ import annotations

import atexit
import functools
import logging
import os
import subprocess
import sys
import tempfile
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path

import tflm
from tflm.delegates.compiled.language import Kernel

COMPILER = "tflm.delegates.compiled.compiler"
SECONDS_FOR_A_KERNEL = 60.0
"""What the compiler may take for one kernel."""

_log = logging.getLogger(__name__)


class _Compiler:
    """The child process that compiles. It ends by itself when nobody asks for a while, or this process is gone."""

    def __init__(self) -> None:
        self.parent = os.getpid()
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(Path(tflm.__file__).parents[1]), *sys.path]),
        }
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  # as long as the process
        self._child = subprocess.Popen(
            [sys.executable, "-m", COMPILER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=environment,
        )

    def object_of(self, kernel: Kernel) -> bytes | None:
        """The object file of a kernel; None if the process went down, or took too long."""
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        timer = threading.Timer(SECONDS_FOR_A_KERNEL, self._child.kill)
        timer.start()
        try:
            self._child.stdin.write(kernel.name.encode() + b"\n")
            self._child.stdin.flush()
            size = self._child.stdout.readline()
            return self._child.stdout.read(int(size)) or None if size else None
        except BrokenPipeError:
            return None
        finally:
            timer.cancel()

    def end(self) -> str:
        """End the process; gives its last words."""
        self._child.kill()
        self._child.communicate()
        with self._errors:
            self._errors.seek(0)
            words = self._errors.read().decode(errors="replace").strip()
        return (words.splitlines() or [""])[-1]


_compiler: _Compiler | None = None


def compiled(kernels: list[Kernel], folder: Path | None) -> Iterator[tuple[Kernel, bytes]]:
    """Object files of kernels; what takes the process down, or too long, costs that one kernel.

    Args:
        folder: where they will be kept, which the user is told; None where they can't be.
    """
    if kernels:
        _tell(folder)
    for kernel in kernels:
        made, reason = None, ""
        for _ in range(2):  # the process may have gone since it was last asked
            made = _running_compiler().object_of(kernel)
            if made is not None:
                yield kernel, made
                break
            reason = _end_compiler()
        if made is None:
            reason = reason or f"it took longer than {SECONDS_FOR_A_KERNEL:g} s"
            warnings.warn(f"kernel {kernel.name} can't be compiled, numpy runs in its place: {reason}", stacklevel=2)


@functools.cache
def _tell(folder: Path | None) -> None:
    where = f"they are kept in {folder}" if folder is not None else "no folder can be written to keep them in"
    _log.warning("tflm compiles kernels for this processor, which takes a moment; %s", where)


def _running_compiler() -> _Compiler:
    global _compiler
    if _compiler is None or _compiler.parent != os.getpid():
        _compiler = _Compiler()
    return _compiler


@atexit.register
def _end_compiler() -> str:
    global _compiler
    ended, _compiler = _compiler, None
    return ended.end() if ended is not None else ""
