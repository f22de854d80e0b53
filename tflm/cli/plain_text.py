"""Lines that commands print as they are. Control characters are escaped: names come from files and arguments."""

from __future__ import annotations

import os
import re
import sys

from tflm.report import printable


def as_text(line: str) -> str:
    """Escape what can't be printed and, in a log of GitHub Actions, what its runner would take for a command."""
    line = printable(line)
    if os.environ.get("GITHUB_ACTIONS") != "true":
        return line
    return re.sub(r"^(\s*):(?=:)", r"\1\\x3a", line).replace("##[", r"\x23#[")


def print_plain(text: str) -> None:
    """Print a line on standard output without wrapping it, for other programs."""
    print(as_text(text))


def print_error(text: str) -> None:
    """Print a line on standard error."""
    print(as_text(text), file=sys.stderr)
