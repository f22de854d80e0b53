"""Everything about a release that needs no account: `python tools/release.py check`.

python tools/release.py check [--tag v0.2.0] [--strict]   all checks; build/release gets the packages and the SBOM
python tools/release.py try PACKAGE [EXTRA...]            install a wheel or sdist and try it, once for each extra
python tools/release.py notes v0.2.0                      the changes of a version, for the release's page
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import venv
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tflm.application.doctor import requirements

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "build" / "release"
HELLO_WORLD = ROOT / "examples" / "hello_world"

EXTRAS = ("cli", "images", "metrics", "dask", "plot", "fast", "flex", "testing")
"""Extras for users, except quantize, whose 313 MB `make quantizer` tries. The others are for the project's own work."""

CHECK_OF_PLANNER = """
from tflm.memory import GreedyMemoryPlanner
from tflm.testing import check_planner

check_planner(GreedyMemoryPlanner, max_examples=10)
"""

LARGEST_WHEEL_BYTES = 1_500_000

COLOURS = re.compile(r"\x1b\[\d+m")
"""Codes of a terminal in griffe's explanations."""


class ReleaseError(Exception):
    """A check failed."""


# --- Changes ---------------------------------------------------------------------------------------------------------


def changes(tag: str | None) -> str:
    """Return the entry of a version in the changelog, or that of the next one.

    Args:
        tag: of the release, such as v0.2.0; None for the entry "Unreleased".

    Raises:
        ReleaseError: there is no entry, or it is empty.
    """
    title = tag.removeprefix("v") if tag else "Unreleased"
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    entry = re.search(rf"^## {re.escape(title)}(?: .*)?$\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    if entry is None or not entry[1].strip():
        raise ReleaseError(f"CHANGELOG.md has no entry {title}; add it before tagging")
    return entry[1].strip() + "\n"


def section(entry: str, title: str) -> str:
    """Return a section of an entry, such as "Removed"; empty if there is none."""
    found = re.search(rf"^### {title}\n(.*?)(?=^### |\Z)", entry, re.MULTILINE | re.DOTALL)
    return found[1] if found else ""


# --- API -------------------------------------------------------------------------------------------------------------


def last_release(tag: str | None) -> str | None:
    """Return the tag of the release before this commit; None if there is none."""
    before = f"{tag}^" if tag else "HEAD"
    command = ["git", "describe", "--tags", "--abbrev=0", "--match", "v*", before]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    return done.stdout.strip() or None


def check_api(old: Any, new: Any, entry: str) -> None:
    """Compare the public API with that of the last release.

    Args:
        old, new: the package, as griffe loads it.
        entry: the changes of the new version, which must name what is removed or changed.

    Raises:
        ReleaseError: a name is gone or changed, and the changes do not say so.
    """
    import griffe

    said = {"removed": section(entry, "Removed"), "changed": section(entry, "Changed")}
    found = [("removed", name, name) for name in sorted({*(old.exports or ())} - {*(new.exports or ())})]
    for breakage in griffe.find_breaking_changes(old, new):
        kind = "removed" if breakage.kind is griffe.BreakageKind.OBJECT_REMOVED else "changed"
        *_, name = (part for part in breakage.obj.path.split(".") if not part.startswith("_"))
        found.append((kind, name, COLOURS.sub("", breakage.explain(griffe.ExplanationStyle.ONE_LINE))))
    missing = [
        f"{kind}, but not in the changes: {text}"
        for kind, name, text in found
        if not re.search(rf"\b{re.escape(name)}\b", said[kind])
    ]
    if missing:
        raise ReleaseError("\n".join([*missing, "see docs/deprecation.md"]))


def compare_api(tag: str | None, entry: str) -> str:
    """Compare the API with that of the last release, and return what was done."""
    import griffe

    last = last_release(tag)
    if last is None:
        return "no earlier release to compare with"
    new = griffe.load("tflm", search_paths=[ROOT], resolve_aliases=True, try_relative_path=False)
    old = griffe.load_git("tflm", ref=last, repo=ROOT, resolve_aliases=True)
    check_api(old, new, entry)
    return f"compared with {last}"


# --- Packages --------------------------------------------------------------------------------------------------------


def build(folder: Path) -> tuple[Path, Path]:
    """Build the sdist, and the wheel from it; return both.

    Raises:
        ReleaseError: the metadata is invalid, or the wheel is too large or has other files than the package's.
    """
    shutil.rmtree(folder, ignore_errors=True)
    _run(sys.executable, "-m", "build", "--outdir", folder, ROOT)
    (wheel,), (sdist,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    _run(sys.executable, "-m", "twine", "check", "--strict", wheel, sdist)
    check_wheel(wheel)
    return wheel, sdist


def check_wheel(wheel: Path) -> None:
    """Check the size and the files of a wheel.

    Raises:
        ReleaseError: it is too large, or has files that are not the package's.
    """
    size = wheel.stat().st_size
    if size > LARGEST_WHEEL_BYTES:
        raise ReleaseError(f"{wheel.name} has {size:,} bytes, more than {LARGEST_WHEEL_BYTES:,}")
    with zipfile.ZipFile(wheel) as archive:
        foreign = [name for name in archive.namelist() if not re.match(r"tflm/|pytflm-[^/]*\.dist-info/", name)]
    if foreign:
        raise ReleaseError(f"{wheel.name} has files that are not the package's: {', '.join(foreign[:5])}")


def check_version(wheel: Path, tag: str | None) -> None:
    """Check that the version of a wheel is that of the tag.

    Raises:
        ReleaseError: it is another one, because the tag is not on this commit or files were changed.
    """
    version = wheel.name.split("-")[1]
    if tag and version != tag.removeprefix("v"):
        raise ReleaseError(f"the version is {version}, not {tag}: the tag must be on this commit, with nothing changed")


# --- Trying them -----------------------------------------------------------------------------------------------------


def try_package(package: Path, extra: str = "", constraints: Sequence[str] = ()) -> None:
    """Install a package with one extra into a new environment, outside the sources, and try it.

    Args:
        package: a wheel or an sdist.
        extra: one of the package's extras; none by default.
        constraints: requirements to install as well, such as lowest versions.

    Raises:
        ReleaseError: it cannot be installed, `tflm doctor` is not green, or the hello world fails.
    """
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        venv.create(folder / "venv", with_pip=True)
        python = folder / "venv" / ("Scripts" if os.name == "nt" else "bin") / "python"
        wanted = f"{package.resolve()}[{extra}]" if extra else package.resolve()
        _run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", wanted, *constraints)
        environment = {**os.environ, "TFLM_CACHE_DIR": str(folder / "cache")}
        _run(python, "-m", "tflm", "doctor", cwd=folder, environment=environment)
        _run(python, HELLO_WORLD / "hello_world.py", cwd=folder, environment=environment)
        if extra == "testing":
            _run(python, "-c", CHECK_OF_PLANNER, cwd=folder)
        if extra == "cli":
            _run(python, "-m", "tflm", "arena", HELLO_WORLD / "hello_world_int8.tflite", cwd=folder)
            _write_sbom(python, package)


def _write_sbom(python: Path, package: Path) -> None:
    """Write the software bill of materials of an environment next to the package that it is for."""
    if package.suffix == ".whl" and package.parent == FOLDER:
        path = package.with_suffix(".cdx.json")
        _run(sys.executable, "-m", "cyclonedx_py", "environment", "--output-file", path, python)


def audit(strict: bool) -> str:
    """Look the package's dependencies up in the database of vulnerabilities, and return what was found.

    Args:
        strict: whether dependencies that cannot be looked up are an error.

    Raises:
        ReleaseError: a dependency has a known vulnerability.
    """
    command = [
        sys.executable,
        "-m",
        "pip_audit",
        "--progress-spinner=off",
        *(["--strict"] if strict else []),
        str(ROOT),
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode and (strict or "Found " in done.stderr):
        raise ReleaseError(done.stdout + done.stderr)
    if done.returncode or "could not be audited" in done.stdout:
        return "not looked up: the database cannot be reached, or lacks them"
    return "no known vulnerabilities"


def _run(*command: str | Path, cwd: Path = ROOT, environment: dict[str, str] | None = None) -> None:
    done = subprocess.run(list(map(str, command)), cwd=cwd, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise ReleaseError(f"{' '.join(map(str, command))}:\n{done.stdout}{done.stderr}")


def check(tag: str | None, strict: bool) -> None:
    """Run all checks, and print what was done.

    Raises:
        ReleaseError: one of them failed.
    """
    entry = changes(tag)
    _tell(f"changes: {len(entry.splitlines())} lines for {tag or 'the next version'}")
    _tell(f"API: {compare_api(tag, entry)}")
    _tell(f"dependencies: {audit(strict)}")
    wheel, sdist = build(FOLDER)
    check_version(wheel, tag)
    _tell(f"packages: {wheel.name} ({wheel.stat().st_size:,} bytes), {sdist.name}")
    try_package(sdist)
    _tell("sdist: installed, green")
    try_package(wheel, constraints=[f"{each.name}=={each.lowest}.*" for each in requirements() if not each.extra])
    _tell("wheel: green with the lowest versions of its dependencies")
    for extra in ("", *EXTRAS):
        try_package(wheel, extra)
        _tell(f"wheel with {f'extra {extra}' if extra else 'no extra'}: green")


def _tell(text: str) -> None:
    print(text, flush=True)


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    checking = commands.add_parser("check", help="run all checks")
    checking.add_argument("--tag", help="tag of the release, such as v0.2.0; without it, the next version is checked")
    checking.add_argument("--strict", action="store_true", help="fail if a dependency cannot be looked up")
    trying = commands.add_parser("try", help="install a package and try it")
    trying.add_argument("package", type=Path)
    trying.add_argument("extras", nargs="*", default=[""], help="extras, one at a time")
    notes = commands.add_parser("notes", help="print the changes of a version")
    notes.add_argument("tag")
    options = parser.parse_args()
    try:
        if options.command == "check":
            check(options.tag, options.strict)
        elif options.command == "try":
            for extra in options.extras:
                try_package(options.package, extra)
        else:
            print(changes(options.tag), end="")
    except ReleaseError as error:
        sys.exit(f"release: {error}")


if __name__ == "__main__":
    main()
