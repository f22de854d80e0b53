"""The `tflm` command."""

from __future__ import annotations

import gc
import importlib.util
import sys

REQUIRED = ("typer", "rich")


INTERRUPTED = 130
"""Exit status after Ctrl-C: in shells, that of programs that SIGINT ends."""


def main() -> None:
    """Run the command with the arguments of the process; all but `tflm doctor` needs the extra `cli`."""
    try:
        _run()
    except KeyboardInterrupt:  # while modules are imported, and after the command
        sys.exit(INTERRUPTED)


def _run() -> None:
    missing = [name for name in REQUIRED if importlib.util.find_spec(name) is None]
    if missing and sys.argv[1:] == ["doctor"]:
        _doctor()
    if missing:
        sys.exit(f"tflm: the command needs {' and '.join(missing)}: pip install {' '.join(missing)}")
    gc.disable()  # until the command runs: imports make many objects, and no garbage
    from tflm.cli.app import app

    app(prog_name="tflm")


def _doctor() -> None:
    from tflm.application.doctor import diagnose, is_healthy, plain_text

    checks = diagnose()
    sys.stdout.write(plain_text(checks))
    sys.exit(0 if is_healthy(checks) else 1)
