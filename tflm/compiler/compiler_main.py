"""The process that compiles kernels: a script, to be run with Python's option -I.

    python -I compiler_main.py SETTINGS

The settings are JSON: {"packages": {"tflm": FILE, ...}, "cpu_seconds": 60, "still_ticks": 60, "tick_seconds": 1}.
Standard input contains one request per line, standard output one reply for each, both with the number of the request:

    {"request": 1, "kernel": "softmax.softmax", "constants": {}}
    {"request": 1, "bytes": 4096}, a line feed, and that many bytes: the object file
    {"request": 1, "error": "..."}: this kernel can't be compiled
    {"request": 1, "missing": "..."}: none can, as a package can't be imported

Option -I keeps the environment's PYTHONPATH and the folder of the script from the module path; the working directory,
which an editable install may have put there, is removed. Packages are imported from the files that the settings name,
or else from the folders of the interpreter. Until they are known, this module may import the standard library only.
"""

from __future__ import annotations

import importlib
import os
import sys
import threading
import time
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_file_location
from typing import Any

OUT_OF_TIME, STILL = 81, 82
"""Exit statuses: a kernel took more than `cpu_seconds`; nothing was computed for `still_ticks`."""

NEW_OBJECTS = 10_000
"""Number of new objects after which garbage is collected. Most objects of a compiler live long: looking at them more
often takes a tenth of its time."""

MIN_PROGRESS = 1e-3
"""Tolerance in seconds of CPU time; two clocks that are read in turn differ by less."""


def is_working_directory(entry: str) -> bool:
    """Whether an entry of the module path is the working directory, under any name."""
    try:
        return os.path.samefile(entry or os.curdir, os.curdir)
    except (OSError, ValueError):  # no such file
        return False


def leave_working_directory() -> None:
    """Replace the working directory, which may contain anybody's files, by one that is as trusted as the
    interpreter."""
    sys.path[:] = [entry for entry in sys.path if not is_working_directory(entry)]
    os.chdir(sys.prefix)


class NamedPackages:
    """A finder (see `sys.meta_path`) for packages in given files."""

    def __init__(self, packages: dict[str, str]):
        self.packages = packages

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """Return the package if it is one of the given ones."""
        file = self.packages.get(fullname)
        return None if file is None else spec_from_file_location(fullname, file)


class Watch:
    """Decides when a process ends: after too much CPU time for one kernel, or without any for a number of ticks.

    Neither comes earlier on a busy machine: CPU time does not advance while a process waits, and ticks come late.
    """

    def __init__(self, cpu_seconds: float, still_ticks: int):
        self.cpu_seconds = cpu_seconds
        self.still_ticks = still_ticks
        self._since = self._last = 0.0
        self._ticks = 0

    def begin(self, used: float) -> None:
        """Record that a kernel is started, at this CPU time in seconds."""
        self._since = used

    def tick(self, used: float) -> int | None:
        """Return the exit status to end with; None to continue. `used` is the CPU time so far, in seconds."""
        if used - self._since > self.cpu_seconds:
            return OUT_OF_TIME
        if used - self._last >= MIN_PROGRESS:
            self._last, self._ticks = used, 0
        else:
            self._ticks += 1
        return STILL if self._ticks >= self.still_ticks else None


def _keep_watch(watch: Watch, tick_seconds: float) -> None:
    """End the process when the watch says so. CPU time of this thread does not count."""
    status = None
    while status is None:
        time.sleep(tick_seconds)
        status = watch.tick(time.process_time() - time.thread_time())
    os._exit(status)


def _reply_to(request: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
    try:
        compiler = importlib.import_module("tflm.compiler.compiler")
        made = compiler.object_of(compiler.kernel_of(request["kernel"], request["constants"]))
    except ImportError as error:
        return {"missing": str(error)}, b""
    except Exception as error:  # whatever the compiler raises: other kernels may still work
        return {"error": f"{type(error).__name__}: {error}"}, b""
    return {"bytes": len(made)}, made


def main() -> None:
    """Compile the requests on standard input, until it ends or no request comes for a while."""
    import gc  # here, as every process that runs kernels imports this module for the function above
    import json
    import signal

    leave_working_directory()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C, and ends this process
    settings = json.loads(sys.argv[1])
    watch = Watch(settings["cpu_seconds"], settings["still_ticks"])
    threading.Thread(target=_keep_watch, args=(watch, settings["tick_seconds"]), daemon=True).start()
    sys.meta_path.insert(0, NamedPackages(settings["packages"]))
    gc.set_threshold(NEW_OBJECTS)
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # output of the compiler is not a reply
    for line in sys.stdin.buffer:
        request = json.loads(line)
        watch.begin(time.process_time())
        header, made = _reply_to(request)
        replies.write(json.dumps({"request": request["request"], **header}).encode() + b"\n" + made)
        replies.flush()


if __name__ == "__main__":
    main()
