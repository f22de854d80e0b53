"""Check models against a budget, and compare them with another revision."""

from __future__ import annotations

import glob
import hashlib
import os
import re
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from tflm.application.arena import measure
from tflm.application.errors import RequestError, described
from tflm.application.hand_over import continue_within, not_fitting
from tflm.application.machine import MACHINE_FIGURES, Machine
from tflm.application.models import load_model, require_local
from tflm.bounded_reading import MAX_MODEL_BYTES, read_at_most
from tflm.errors import TflmError
from tflm.firmware.device_check import operator_findings
from tflm.firmware.verdict import Verdict, verdict_of, within_budget
from tflm.report import NUMBER, TEXT, Report, Table, document_of
from tflm.schema.model import Model

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


HASH_DIGITS = 7
"""Digits of a hash in a heading."""


class Size(NamedTuple):
    """The sizes of a model, in bytes.

    Attributes:
        minimum_arena_bytes: the smallest arena that works.
        arena_used_bytes: bytes in use after allocation.
        head_bytes: bytes of the head.
        tail_bytes: bytes of the tail.
        file_bytes: size of the model file.
    """

    minimum_arena_bytes: int
    arena_used_bytes: int
    head_bytes: int
    tail_bytes: int
    file_bytes: int


@dataclass(frozen=True)
class Gated:
    """A checked model.

    Attributes:
        model: its path.
        size: its sizes; None if it can't be laid out.
        base: its sizes in the base revision; None without one, or if it could not be laid out.
        fits: whether it is within the budget and fits the board for certain.
        verdict: the same in words, which begin with yes, no or not known; empty without budget and board.
        advice: the command to continue with if it does not fit; empty if it fits or can't be laid out.
    """

    model: str
    size: Size | None
    base: Size | None
    fits: bool
    verdict: str
    advice: str = ""


def gated(path: Path, machine: Machine, budget: int | None, base: str | None) -> Gated:
    """Measure a model, and the same file in a git revision.

    Raises:
        RequestError: the revision does not exist, or this clone lacks the file's content in it.
        OSError: the file cannot be read.
    """
    before = None if base is None else _base_size(path, machine, base)
    try:
        model = load_model(path)
        size = _size(model, machine)
        judged = _verdict(path, model, size, machine, budget)
    except (TflmError, RequestError) as error:
        return Gated(str(path), None, before, False, f"no: {described(error)}")
    return Gated(str(path), size, before, *judged)


def _size(model: Model, machine: Machine) -> Size:
    found = measure(model, machine, "greedy")
    used = found.arena_used_bytes, found.head_bytes, found.tail_bytes
    return Size(found.minimum_arena_bytes, *used, len(model.data))


def _base_size(path: Path, machine: Machine, base: str) -> Size | None:
    checkout = Checkout(path)
    data = checkout.file_at(path, checkout.commit(base))
    try:
        return None if data is None else _size(Model(data), machine)
    except TflmError:
        return None


def _verdict(path: Path, model: Model, size: Size, machine: Machine, budget: int | None) -> tuple[bool, str, str]:
    """Check a model against the budget and the board, if given; returns whether it fits, the verdict, and advice."""
    found: Verdict | None = None
    advice = ""
    if machine.board is not None:
        fit = machine.fit(model)
        findings = operator_findings(model, target=machine.target, kernels=machine.kernels, board=machine.board)
        found = verdict_of(fit, findings)
        advice = "" if fit.fits else not_fitting(path, model, machine, fit)
    if budget is not None:
        found = within_budget(found, size.minimum_arena_bytes, budget)
        if size.minimum_arena_bytes > budget:
            advice = continue_within(path, machine, str(budget))
    if found is None:
        return True, "", ""
    return found.is_yes, found.text, advice


def figures(models: Sequence[Gated], machine: Machine, budget: int | None, base: str | None) -> dict[str, Any]:
    """Return the JSON document; sizes in bytes."""
    return {
        **document_of(machine, MACHINE_FIGURES),
        "budget_bytes": budget,
        "base": base,
        "models": models,
        "fits": all(each.fits for each in models),
    }


def gate_report(models: Sequence[Gated], machine: Machine, base: str | None) -> Report:
    """Report a row for each model, with the change since the base revision."""
    changes = ("change",) if base is not None else ()
    columns = {"model": TEXT, "smallest arena": NUMBER}
    since = base[:HASH_DIGITS] if base and FULL_HASH.fullmatch(base) else base
    columns |= {f"{what} since {since}": NUMBER for what in changes}
    columns |= {"head": NUMBER, "tail": NUMBER, "file": NUMBER}
    columns |= {f"{what} of the file": NUMBER for what in changes}
    columns["fits"] = TEXT
    place = machine.target.name if machine.board is None else f"{machine.board.name} ({machine.target.name})"
    title = f"Tensor arena on {place} with {machine.kernels.name} kernels"
    notes = ["sizes in bytes", *(f"{each.model}: {each.advice}" for each in models if each.advice)]
    rows = (list(_row(each, base)) for each in models)
    return Report(title, [], [Table("", columns, rows)], notes, verdict=_common_verdict(models))


def verdict_lines(models: Sequence[Gated]) -> list[str]:
    """The verdict on each model; empty without a limit."""
    return [f"{each.model}: {each.verdict}" if each.verdict else "" for each in models]


def _common_verdict(models: Sequence[Gated]) -> str:
    lines = verdict_lines(models)
    count = f"{sum(each.fits for each in models)} of {len(models)} models pass"
    return "" if not all(lines) else lines[0] if len(lines) == 1 else count


def _row(each: Gated, base: str | None) -> Iterator[Any]:
    size, before = each.size, each.base
    yield each.model
    yield "" if size is None else size.minimum_arena_bytes
    if base is not None:
        yield _change(size and size.minimum_arena_bytes, before and before.minimum_arena_bytes)
    yield from ("", "", "") if size is None else (size.head_bytes, size.tail_bytes, size.file_bytes)
    if base is not None:
        yield _change(size and size.file_bytes, before and before.file_bytes)
    yield each.verdict


def _change(now: int | None, before: int | None) -> str:
    if before is None or now is None:
        return "new" if before is None else ""
    return f"{now - before:+,} ({now / before - 1:+.1%})" if now != before else "0"


def models_from(patterns: Sequence[str]) -> list[Path]:
    """Expand names and patterns to files, without duplicates.

    Raises:
        RequestError: a pattern matches no files.
    """
    found: dict[Path, None] = {}
    for pattern in patterns:
        names = [pattern] if Path(pattern).exists() else sorted(glob.glob(pattern, recursive=True))
        if not names:
            require_local(Path(pattern))
            raise RequestError(f"{pattern}: no files match")
        found |= dict.fromkeys(map(Path, names))
    return list(found)
