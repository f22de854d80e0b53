"""The `tflm` command in processes of their own, forked from one that has it in memory already."""

from __future__ import annotations

import atexit
import contextlib
import functools
import gc
import importlib
import json
import os
import pkgutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from example_models import INT8_MODEL
from typer.testing import CliRunner

import tflm

MODEL = str(INT8_MODEL)
SECONDS = 120
LOADED = ("tflm", "typer", "rich", "matplotlib", "PIL", "sklearn", "scipy", "llvmlite")
ROOMS = ("tflm.cli", "tflm.application", "tflm.planning", "tflm.rewriting", "tflm.firmware", "tflm.boards")


class CommandServer:
    """Runs commands one after the other, each in a fork of one process."""

    def __init__(self) -> None:
        variables = {**os.environ, "PYTHONPATH": str(Path(tflm.__file__).parents[1])}
        self._process = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=variables
        )

    def run(
        self, arguments: list[str], folder: Path | None, environment: dict[str, str]
    ) -> subprocess.CompletedProcess[str]:
        """Run `tflm` with these arguments, and return its output and exit status."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with tempfile.TemporaryDirectory() as written:
            request = (arguments, str(folder or Path.cwd()), {**os.environ, **environment}, written)
            print(json.dumps(request), file=self._process.stdin, flush=True)
            status = int(self._process.stdout.readline())
            texts = [Path(written, name).read_text(encoding="utf-8") for name in ("out", "error")]
        return subprocess.CompletedProcess(["tflm", *arguments], status, *texts)

    def close(self) -> None:
        """End the process that forks."""
        self._process.communicate()


@functools.cache
def command_server() -> CommandServer:
    """The one of this process, which ends with it."""
    server = CommandServer()
    atexit.register(server.close)
    return server


def _serve() -> None:
    for room in ROOMS:
        for module in pkgutil.iter_modules(importlib.import_module(room).__path__, f"{room}."):
            importlib.import_module(module.name)
    for arguments in (["arena", MODEL], ["arena", "--help"]):  # loads what libraries import when they are used
        assert CliRunner().invoke(importlib.import_module("tflm.cli.app").app, arguments).exit_code == 0
    gc.freeze()  # collecting garbage would copy all memory to each fork
    for line in sys.stdin:
        arguments, folder, environment, written = json.loads(line)
        child = os.fork()
        if not child:
            _become(arguments, folder, environment, Path(written))
        _, status = os.waitpid(child, 0)
        _load(Path(written, "modules"))
        print(os.waitstatus_to_exitcode(status), flush=True)


def _load(modules: Path) -> None:
    """Import what a command has imported, for those that come after it."""
    for name in modules.read_text().splitlines() if modules.exists() else ():
        if name not in sys.modules and name.partition(".")[0] in LOADED:
            with contextlib.suppress(ImportError):
                importlib.import_module(name)


def _become(arguments: list[str], folder: str, environment: dict[str, str], written: Path) -> None:
    signal.alarm(SECONDS)
    with open(os.devnull) as nothing, (written / "out").open("w") as out, (written / "error").open("w") as error:
        for file, descriptor in ((nothing, 0), (out, 1), (error, 2)):
            os.dup2(file.fileno(), descriptor)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    sys.argv = ["tflm", *arguments]
    status = 0
    try:
        importlib.import_module("tflm.cli").main()
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        sys.excepthook(*sys.exc_info())
        status = 1
    sys.stdout.flush()
    sys.stderr.flush()
    (written / "modules").write_text("\n".join(sys.modules))
    os._exit(status)


if __name__ == "__main__":
    _serve()
