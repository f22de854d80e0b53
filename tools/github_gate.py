"""Run `tflm gate` for `action.yml`: with a workflow's inputs, the table in the job summary, and outputs.

Inputs are environment variables such as INPUT_MODELS and INPUT_BOARD; empty ones are ignored.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

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
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONSAFEPATH": "1"},  # the working directory is an untrusted checkout
        check=False,
    )
    if answer.stdout:
        report = json.loads(answer.stdout)
        for each in report["models"]:
            if not each["fits"]:
                print(f"::error file={_escaped(each['model'], ',:')}::{_escaped(each['verdict'])}")
        with open(os.environ["GITHUB_OUTPUT"], "a", encoding="utf-8") as file:
            print(f"report={json.dumps(report)}", f"fits={json.dumps(report['fits'])}", sep="\n", file=file)
    return answer.returncode


def _at_hand(revision: str) -> str:
    """The short hash of a revision, which is fetched if the checkout is shallow."""
    if revision.startswith("-"):
        sys.exit(f"::error::no base revision {_escaped(revision)}: expected a branch, a tag or a hash")
    if _git("rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}").returncode:
        if _git("check-ref-format", "--allow-onelevel", revision).returncode:  # such as a:b, which would write b
            sys.exit(f"::error::no base revision {_escaped(revision)}: expected a branch, a tag or a hash")
        fetched = _git("fetch", "--quiet", "--depth=1", "origin", revision)
        if fetched.returncode:
            sys.exit(f"::error::no base revision {_escaped(revision)}: {_escaped(fetched.stderr.strip())}")
        revision = "FETCH_HEAD"
    return _git("rev-parse", "--short", revision).stdout.strip()


def _git(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["git", *arguments], capture_output=True, text=True, check=False)


def _escaped(text: str, others: str = "") -> str:
    """Text inside a command to GitHub's runner."""
    return "".join(f"%{ord(c):02X}" if c in f"%\r\n{others}" else c for c in text)


if __name__ == "__main__":
    sys.exit(main())
