"""Make a tree of TFLM's sources with their downloads from repositories on this machine, for `make projects`.

    tools/tflm_tree.py FOLDER GIT_DIRECTORY...

The tree is that of TFLM's makefile on Cortex-M: the commit that this package reproduces, with the versions of other
libraries that its makefiles pin. Each GIT_DIRECTORY has the name of its repository in its path: tflite-micro,
flatbuffers, gemmlowp, ruy, kissfft, CMSIS_6 and CMSIS-NN.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from tflm.release import TFLM_COMMIT

MAKE = Path("tensorflow/lite/micro/tools/make")

DOWNLOADS = {
    "flatbuffers": ("flatbuffers", MAKE / "flatbuffers.patch"),
    "gemmlowp": ("gemmlowp", None),
    "ruy": ("ruy", None),
    "kissfft": ("kissfft", Path("third_party/kissfft/kissfft.patch")),
    "cmsis": ("CMSIS_6", None),
    "cmsis_nn": ("CMSIS-NN", None),
}
"""By folder: the repository, and TFLM's patch of it."""


def main() -> None:
    """Make the tree that the arguments name."""
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    tree, directories = Path(sys.argv[1]).resolve(), list(map(Path, sys.argv[2:]))
    _extract(_directory(directories, "tflite-micro"), TFLM_COMMIT, tree)
    text = "\n".join(path.read_text() for path in sorted((tree / MAKE).rglob("*download*")) if path.is_file())
    for folder, (name, patch) in DOWNLOADS.items():
        into = tree / MAKE / "downloads" / folder
        _extract(_directory(directories, name), _pinned(text, name), into)
        if patch is not None:
            subprocess.run(["git", "apply", str(tree / patch)], cwd=into, check=True, env=_outside(into))


def _directory(directories: list[Path], name: str) -> Path:
    """The git directory of a repository."""
    found = [path for path in directories if name.lower() in str(path).lower()]
    if len(found) != 1:
        sys.exit(f"name one git directory with {name} in its path, not {len(found)}")
    return found[0]


def _pinned(text: str, name: str) -> str:
    """The commit or tag of a repository that makefiles download."""
    found = re.search(rf"github\.com/[\w-]+/{re.escape(name)}/archive/(?:refs/tags/)?(\S+)\.zip", text)
    assert found is not None, name
    shell = re.fullmatch(r"\$\{(\w+)\}", found[1])
    if shell is None:
        return found[1]
    assigned: list[str] = re.findall(rf'{shell[1]}="([^"]+)"', text[: found.start()])
    return assigned[-1]


def _extract(directory: Path, revision: str, into: Path) -> None:
    """The files of a commit or tag."""
    into.mkdir(parents=True, exist_ok=True)
    archive = ["git", f"--git-dir={directory}", "archive", revision]
    with subprocess.Popen(archive, stdout=subprocess.PIPE) as process:
        subprocess.run(["tar", "x"], stdin=process.stdout, cwd=into, check=True)
    if process.returncode:
        sys.exit(f"{directory} lacks {revision}")


def _outside(folder: Path) -> dict[str, str]:
    """An environment in which git takes a folder for none of a repository around it."""
    return {**os.environ, "GIT_CEILING_DIRECTORIES": str(folder.parent)}


if __name__ == "__main__":
    main()
