"""Write the hashes by which `tflm firmware` recognizes TFLM, CMSIS-NN and ESP-NN in a source tree.

    python tools/source_hashes.py tflm GIT_DIRECTORY
    python tools/source_hashes.py cmsis-nn GIT_DIRECTORY
    python tools/source_hashes.py esp-nn GIT_DIRECTORY

Each writes `tflm/firmware/sources_NAME.txt`: a line for each file, its path and then, for each text that it has had,
the hash and the first and last version with it. Versions are counted as `tflm.releases.history` and the libraries do.
"""

from __future__ import annotations

import argparse
import subprocess
from collections.abc import Iterator
from pathlib import Path

from tflm.firmware.source_tree import text_hash
from tflm.libraries import cmsis_nn_scratch, esp_nn_scratch
from tflm.releases import history

ENDINGS = (".h", ".hpp", ".c", ".cc", ".cpp", ".S")
FOLDER = Path(__file__).parent.parent / "tflm" / "firmware"
LEFT_OUT = ("_test.", "/testdata", "/examples/", "/integration_tests/", "/python/", "/test")
ROOTS = {
    "tflm": ("tensorflow/", "signal/"),
    "cmsis-nn": ("Include/", "Source/"),
    "esp-nn": ("include/", "src/"),
}
ESP_NN_COMMITS = {"1.2.1": "79d59ae", "1.2.2": "def4d7a", "1.2.3": "d45b843"}
"""Of versions without a tag."""


def versions_of(project: str) -> list[str]:
    """The versions to look at, oldest first, as git names them."""
    if project == "tflm":
        return [commit.hash for commit in history()]
    if project == "cmsis-nn":
        return list(cmsis_nn_scratch.VERSIONS)
    return [ESP_NN_COMMITS.get(name, f"v{name}") for name in esp_nn_scratch.VERSIONS]


def git(repository: Path, *arguments: str) -> bytes | None:
    """What a git command prints; None where it fails."""
    command = ["git", "--git-dir", str(repository), *arguments]
    done = subprocess.run(command, capture_output=True, check=False)
    return done.stdout if done.returncode == 0 else None


def files_of(repository: Path, project: str, version: str) -> Iterator[tuple[str, str]]:
    """Path and blob of each source file; none where the version is not in the repository."""
    listed = git(repository, "ls-tree", "-r", f"{version}^{{commit}}")
    for line in (listed or b"").decode().splitlines():
        fields, path = line.split("\t")
        if path.startswith(ROOTS[project]) and path.endswith(ENDINGS) and not any(part in path for part in LEFT_OUT):
            yield path, fields.split()[2]


def texts(repository: Path, project: str) -> Iterator[str]:
    """The lines of the file."""
    hashes: dict[str, str] = {}
    found: dict[str, list[list[object]]] = {}
    last: dict[str, int] = {}
    for place, version in enumerate(versions_of(project)):
        for path, blob in files_of(repository, project, version):
            if blob not in hashes:
                hashes[blob] = text_hash(git(repository, "cat-file", "blob", blob) or b"")
            spans = found.setdefault(path, [])
            if spans and spans[-1][0] == hashes[blob] and last[path] == place - 1:
                spans[-1][2] = place
            else:
                spans.append([hashes[blob], place, place])
            last[path] = place
    for path in sorted(found):
        yield f"{path} {' '.join(f'{text}:{first}-{until}' for text, first, until in found[path])}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("project", choices=ROOTS)
    parser.add_argument("repository", type=Path, help="a git directory of the project")
    arguments = parser.parse_args()
    lines = list(texts(arguments.repository, arguments.project))
    target = FOLDER / f"sources_{arguments.project.replace('-', '_')}.txt"
    target.write_text("\n".join(lines) + "\n", "ascii")
    print(f"{len(lines)} files in {target.name}, {target.stat().st_size} bytes")


if __name__ == "__main__":
    main()
