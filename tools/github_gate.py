"""Run `tflm gate` for `action.yml`: with a workflow's inputs, the table in the job summary, and outputs.

Inputs are environment variables such as INPUT_MODELS and INPUT_BOARD; empty ones are ignored.
"""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
from pathlib import Path

from tflm.application.checkout import SHORT_HASH, Checkout, UnknownRevision
from tflm.application.errors import RequestError
from tflm.errors import TflmError

OPTIONS = ("board", "target", "kernels", "budget", "base")


def main() -> int:
    """Run the gate and exit with its status."""
    given = {name: os.environ.get(f"INPUT_{name.upper()}", "").strip() for name in ("models", *OPTIONS)}
    if given["base"]:
        given["base"] = _at_hand(given["base"])
    arguments = [f"--{name}={given[name]}" for name in OPTIONS if given[name]]
    arguments += [f"--summary={os.environ['GITHUB_STEP_SUMMARY']}", "--json", "--"]
    arguments += [pattern.strip() for pattern in given["models"].splitlines() if pattern.strip()]
    answer = subprocess.run(
        [sys.executable, "-m", "tflm", "gate", *arguments],
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        env={**os.environ, "PYTHONSAFEPATH": "1"},  # the working directory is an untrusted checkout
        check=False,
    )
    _print_as_text(answer.stderr)
    if answer.stdout:
        report = json.loads(answer.stdout)
        for each in report["models"]:
            if not each["fits"]:
                print(f"::error file={_escaped(each['model'], ',:')}::{_escaped(each['verdict'])}")
        with open(os.environ["GITHUB_OUTPUT"], "a", encoding="utf-8") as file:
            print(f"report={json.dumps(report)}", f"fits={json.dumps(report['fits'])}", sep="\n", file=file)
    return answer.returncode


def _at_hand(revision: str) -> str:
    """The full hash of a revision, which is fetched if the checkout is shallow.

    A short hash could be the name of a ref, too.
    """
    try:
        checkout = Checkout(Path())
        try:
            return checkout.commit(revision)
        except UnknownRevision:
            _fetch(checkout, revision)
            return checkout.commit("FETCH_HEAD")
    except TflmError as error:
        sys.exit(f"::error::no base revision {_escaped(revision)}: {_escaped(str(error))}")


def _fetch(checkout: Checkout, revision: str) -> None:
    """Fetch a revision without its history.

    Raises:
        RequestError: it is no name or full hash, or unknown.
    """
    if SHORT_HASH.fullmatch(revision):  # the remote would look for a ref of that name
        raise RequestError("not in this shallow checkout; expected a branch, a tag or all digits of a hash")
    if checkout.git("check-ref-format", "--allow-onelevel", revision).returncode:  # such as a:b, which would write b
        raise RequestError("expected a branch, a tag or a hash")
    fetched = checkout.git("fetch", "--quiet", "--depth=1", "--no-recurse-submodules", "origin", revision)
    if fetched.returncode:
        raise RequestError(fetched.stderr.decode(errors="replace").strip())


def _print_as_text(lines: str) -> None:
    """Print lines so that the runner obeys no command in them: names of files and tensors may look like one."""
    if lines:
        token = secrets.token_hex(16)
        print(f"::stop-commands::{token}", lines, f"::{token}::", sep="\n", flush=True)


def _escaped(text: str, others: str = "") -> str:
    """Text inside a command to GitHub's runner."""
    return "".join(f"%{ord(c):02X}" if c in f"%\r\n{others}" else c for c in text)


if __name__ == "__main__":
    sys.exit(main())
