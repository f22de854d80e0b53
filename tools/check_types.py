"""Check types with mypy: strictly, but in tests, which pass wrong arguments on purpose and read optional fields.

python tools/check_types.py
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]

ALLOWED_IN_TESTS = (
    *("arg-type", "index", "union-attr", "call-overload", "list-item", "operator", "comparison-overlap"),
    *("no-any-return", "misc", "dict-item", "func-returns-value"),
)
"""Codes of errors that are not reported in tests."""


def main() -> int:
    """Check the package, its tools and tests at once, then the examples, whose modules have names of other modules."""
    configuration = ROOT / "build" / "mypy.toml"
    configuration.parent.mkdir(exist_ok=True)
    configuration.write_text((ROOT / "pyproject.toml").read_text() + _override())
    mypy = [sys.executable, "-m", "mypy", "--config-file", str(configuration), "--cache-dir", ".mypy_cache/strict"]
    commands = [*mypy, "--num-workers", "2", "tflm", "tools", "web", "tests"], [*mypy, "examples"]
    return max(subprocess.run(command, cwd=ROOT, check=False).returncode for command in commands)


def _override() -> str:
    """Return the configuration of the tests' modules, whose names mypy cannot match by a pattern."""
    tests = ROOT / "tests"
    modules = [path.stem for path in sorted(tests.glob("*.py"))]
    modules += [f"{path.name}.*" for path in sorted(tests.iterdir()) if path.is_dir()]
    lines = (f"module = {json.dumps(modules)}", f"disable_error_code = {json.dumps(ALLOWED_IN_TESTS)}")
    return "\n".join(["", "[[tool.mypy.overrides]]", *lines, "warn_unused_ignores = false", ""])


if __name__ == "__main__":
    sys.exit(main())
