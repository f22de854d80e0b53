"""The child process that compiles kernels; needed, and imported, only on a cache miss.

It is started without the working directory on its module path, and without environment variables that affect numba's
output. There is one request at a time. If the wait for its reply is interrupted, the process is ended, because the
reply would still come.
"""

from __future__ import annotations

import atexit
import contextlib
import itertools
import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import IO, Any

from tflm.compiler import compiler_main
from tflm.compiler.cache import PACKAGES, package_file
from tflm.compiler.language import Kernel

SCRIPT = Path(compiler_main.__file__)

CPU_SECONDS = 60.0
"""Maximum CPU time for one kernel, in seconds."""

SECONDS_TO_EXIT = 10.0
"""Seconds in which a process must end after closing its output."""

TICK_SECONDS, STILL_TICKS = 1.0, 60
"""Number of consecutive idle ticks after which the process ends."""


class CompilerError(Exception):
    """A kernel can't be compiled; the message says why."""


class NoCompilerError(CompilerError):
    """No kernel can be compiled; the message says why."""


class _EndedError(CompilerError):
    """The process ended before its reply; the message says why."""


class _Compiler:
    """The child process. It ends by itself after a while without requests, or when this process ends."""

    def __init__(self) -> None:
        command = _command()
        self._numbers = itertools.count(1)
        self._errors = _error_file()
        self.has_replied = self.has_ended = False
        try:
            self._child = subprocess.Popen(
                command,
                bufsize=0,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL if self._errors is None else self._errors,
                creationflags=getattr(subprocess, "CREATE_NO_WINDOW", 0),  # Windows opens a console otherwise
                env={name: value for name, value in os.environ.items() if not name.startswith("NUMBA_")},
            )
        except OSError as error:
            if self._errors is not None:
                self._errors.close()
            raise NoCompilerError(f"{sys.executable} can't be started: {error}") from None

    def object_of(self, kernel: Kernel) -> bytes:
        """The object file of a kernel.

        Raises:
            CompilerError: it can't be compiled, or the process ended.
        """
        try:
            return self._ask(kernel)
        except CompilerError:
            raise
        except (OSError, EOFError):
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._child.wait(SECONDS_TO_EXIT)
            raise _EndedError(_reason(self._child.returncode, self.end())) from None
        except ValueError as error:
            raise _EndedError(f"{error}; the compiler's last output: {self.end()}") from None
        except BaseException:
            self.end()
            raise

    def _ask(self, kernel: Kernel) -> bytes:
        requests, replies = self._child.stdin, self._child.stdout
        assert requests is not None
        assert replies is not None
        number = next(self._numbers)
        request = {"request": number, "kernel": kernel.function_name, "constants": kernel.constants}
        requests.write(json.dumps(request).encode() + b"\n")
        reply = _header(replies)
        if reply.get("request") != number:
            raise ValueError(f"the compiler replied to request {reply.get('request')}, not {number}")
        self.has_replied = True
        if "missing" in reply:
            raise NoCompilerError(reply["missing"])
        if "error" in reply:
            raise CompilerError(reply["error"])
        return _read_exactly(replies, reply["bytes"])

    def end(self) -> str:
        """End the process, and return the last line that it printed."""
        self.has_ended = True
        self._child.kill()
        self._child.wait()
        output = _last_line(self._errors)
        self._close()
        return output

    def abandon(self) -> None:
        """Leave the process to the parent that started it; this process is a fork of that parent."""
        self._child.returncode = 0  # there is no child to wait for
        self._close()

    def _close(self) -> None:
        for file in (self._child.stdin, self._child.stdout, self._errors):
            if file is not None:
                file.close()


def _command() -> list[str]:
    if not sys.executable:
        raise NoCompilerError("sys.executable is empty: it must name a Python interpreter")
    packages = {name: file for name in PACKAGES if (file := package_file(name)) is not None}
    settings = {
        "packages": packages,
        "cpu_seconds": CPU_SECONDS,
        "still_ticks": STILL_TICKS,
        "tick_seconds": TICK_SECONDS,
    }
    without_files = ["-B"] if sys.dont_write_bytecode else []
    return [sys.executable, "-I", *without_files, str(SCRIPT), json.dumps(settings)]


def _error_file() -> IO[bytes] | None:
    """Return a file for the process's error output; None if none can be created."""
    try:
        return tempfile.TemporaryFile(buffering=0)
    except OSError:
        return None


def _header(replies: IO[bytes]) -> dict[str, Any]:
    """Return the first line of a reply.

    Raises:
        EOFError: there is none.
        ValueError: it is not a JSON object.
    """
    line = replies.readline()
    if not line:
        raise EOFError
    header = json.loads(line)
    if not isinstance(header, dict):
        raise ValueError("the compiler's reply is not a JSON object")
    return header


def _read_exactly(stream: IO[bytes], size: int) -> bytes:
    """Read this many bytes of an unbuffered stream.

    Raises:
        EOFError: it ends before.
    """
    parts = []
    while size:
        part = stream.read(size)
        if not part:
            raise EOFError
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def _last_line(errors: IO[bytes] | None) -> str:
    if errors is None:
        return ""
    errors.seek(0)
    lines = errors.read().decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else ""


def _reason(status: int | None, output: str) -> str:
    """Return the reason why the process ended.

    Args:
        status: None if it had to be killed.
        output: the last line that it printed.
    """
    if status == compiler_main.OUT_OF_TIME:
        return f"it took more than {CPU_SECONDS:g} s of CPU time"
    if status == compiler_main.STILL:
        return f"the compiler did nothing for {STILL_TICKS * TICK_SECONDS:g} s"
    end = "closed its output" if status is None else f"was ended by {_signal_name(-status)}" if status < 0 else ""
    said = f"the compiler {end or f'ended with status {status}'}"
    return f"{said}; its last output: {output}" if output else said


def _signal_name(number: int) -> str:
    with contextlib.suppress(ValueError):
        return signal.Signals(number).name
    return f"signal {number}"


_compiler: _Compiler | None = None
_is_closed = False


def object_of(kernel: Kernel) -> bytes:
    """Return the object file of a kernel. A request that fails in a process with earlier requests is tried again in a
    new process.

    Raises:
        NoCompilerError: no kernel can be compiled.
        CompilerError: this one can't be.
    """
    global _compiler
    if _compiler is not None and not _compiler.has_ended:
        with contextlib.suppress(_EndedError):
            return _compiler.object_of(kernel)
    if _is_closed:
        raise NoCompilerError("this process ends")
    _compiler = _Compiler()
    return _compiler.object_of(kernel)


def close() -> None:
    """End the process, and do not start another."""
    global _is_closed
    _is_closed = True
    _end()


def has_replied() -> bool:
    """Whether the process runs, and has replied to a request."""
    return _compiler is not None and _compiler.has_replied


def is_closed() -> bool:
    """Whether no process is started any more."""
    return _is_closed


@atexit.register
def _end() -> None:
    global _compiler
    ended, _compiler = _compiler, None
    if ended is not None and not ended.has_ended:
        ended.end()


def _abandon() -> None:
    global _compiler
    abandoned, _compiler = _compiler, None
    if abandoned is not None and not abandoned.has_ended:
        abandoned.abandon()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_abandon)
