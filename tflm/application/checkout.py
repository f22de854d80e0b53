"""Read files of former revisions from git, without running anything that files of the checkout configure.

The files of a checkout are untrusted: they may come from a pull request. The configuration in the `.git` of its top
level is trusted, as that name can't be committed. So git starts at the top level: another folder could be a bare
repository with a configuration of its own. Content does not pass through filters, which committed attributes select.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
from pathlib import Path

from tflm.application.errors import RequestError
from tflm.bounded_reading import MAX_MODEL_BYTES, read_at_most

_SETTINGS = (
    "safe.bareRepository=explicit",
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "core.warnAmbiguousRefs=true",
)
_INHERITED = ("COMMON_DIR", "DIR", "INDEX_FILE", "NAMESPACE", "PREFIX", "REPLACE_REF_BASE", "SHALLOW_FILE", "WORK_TREE")
"""Variables (`GIT_...`) that lead to another repository than the folder's, or that git sets for its hooks."""

FULL_HASH = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
SHORT_HASH = re.compile(r"(?:[^~^@:]*-g)?([0-9a-f]{4,39})(?=$|[~^@:])")
"""A name that git takes for a hash if there is no such ref, also at the end of `v1.0-3-g4f2a91c`; `~1` may follow."""

_LFS_POINTER = re.compile(rb"version https://git-lfs\.github\.com/spec/v1\n(?:[^\n]+\n)*?oid sha256:([0-9a-f]{64})\n")


class UnknownRevision(RequestError):
    """A repository does not have a revision."""


class Checkout:
    """A work tree of git.

    Args:
        place: any file or folder in it.

    Raises:
        RequestError: it is not in a work tree.
    """

    def __init__(self, place: Path):
        there = place.resolve()
        tops = [each for each in (there, *there.parents) if (each / ".git").exists()]
        if not tops:
            raise RequestError(f"{place}: not a git repository, nor below one; --base compares with a revision of one")
        self.top = tops[0]

    def git(self, *arguments: str) -> subprocess.CompletedProcess[bytes]:
        """Run git at the top level, without hooks."""
        settings = [word for setting in _SETTINGS for word in ("-c", setting)]
        inherited = {f"GIT_{name}" for name in _INHERITED}
        environment = {name: value for name, value in os.environ.items() if name not in inherited}
        return subprocess.run(
            ["git", "-C", str(self.top), *settings, *arguments],
            capture_output=True,
            env=environment | {"LC_ALL": "C", "GIT_LITERAL_PATHSPECS": "1"},
            check=False,
        )

    def commit(self, revision: str) -> str:
        """Return the full hash of a revision's commit.

        Raises:
            UnknownRevision: it is unknown, perhaps since the clone is shallow.
            RequestError: it is an option, or ambiguous: the name of several refs, or of a ref that looks like a hash.
        """
        if revision.startswith("-"):
            raise RequestError(f"invalid revision {revision!r}; --base takes a branch, a tag or a hash")
        found = self.git("rev-parse", "--verify", f"{revision}^{{commit}}")
        if found.returncode:
            said = " ".join(found.stderr.decode(errors="replace").split())
            raise UnknownRevision(f"{revision}: {said}; --base takes an existing revision; run git fetch first")
        short = SHORT_HASH.match(revision)
        is_ref = short and not self.git("rev-parse", "--verify", short[0]).stdout.startswith(short[1].encode())
        if not FULL_HASH.fullmatch(revision) and (is_ref or b"ambiguous" in found.stderr):
            raise RequestError(
                f"ambiguous revision {revision!r}; write refs/heads/NAME, refs/tags/NAME or all digits of a hash"
            )
        return found.stdout.decode().strip()

    def file_at(self, path: Path, commit: str) -> bytes | None:
        """Return the content of a file in a commit; None if there was no such file.

        Raises:
            RequestError: it is larger than any model, or in Git LFS with a content that this clone lacks.
        """
        name = path.resolve().relative_to(self.top).as_posix()
        entry = self.git("ls-tree", "-z", "--long", "--full-tree", commit, "--", name).stdout.split(b"\t")[0].split()
        if not entry or not entry[0].startswith(b"100"):  # links and submodules have other modes
            return None
        if not entry[3].isdigit() or int(entry[3]) > MAX_MODEL_BYTES:
            raise RequestError(f"{path}: larger than any model in {commit}")
        content = self.git("cat-file", "blob", entry[2].decode()).stdout
        pointer = _LFS_POINTER.match(content)
        return content if pointer is None else self._lfs_object(pointer[1].decode(), path, commit)

    def _lfs_object(self, digest: str, path: Path, commit: str) -> bytes:
        common = self.git("rev-parse", "--git-common-dir").stdout.decode().strip()
        storage = self.git("config", "--type=path", "lfs.storage").stdout.decode().strip() or "lfs"
        file = self.top / common / storage / "objects" / digest[:2] / digest[2:4] / digest
        content = read_at_most(file, MAX_MODEL_BYTES) if file.is_file() else b""
        if hashlib.sha256(content).hexdigest() != digest:
            raise RequestError(
                f"{path}: in Git LFS, and this clone lacks its content of {commit}; run git lfs fetch origin {commit}"
            )
        return content
