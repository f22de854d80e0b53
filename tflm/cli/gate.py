"""`tflm gate`: whether models keep to a budget, beside what they were in another revision, for CI and pre-commit."""

from __future__ import annotations

import glob
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

import tflm
from tflm.boards.board_fit import board_fit
from tflm.boards.board_report import verdict
from tflm.cli.arena import measure
from tflm.cli.command_line import (
    AsJson,
    BoardName,
    CheckFailed,
    CommandError,
    KernelsName,
    Machine,
    ReleaseName,
    TargetName,
    bytes_from,
    described,
    load_model,
    machine_from,
    print_json,
    progress,
    require_local,
    show,
    wrote,
)
from tflm.report import Column, Report, Table


class Size(NamedTuple):
    """What a model takes, in bytes: the smallest arena; in use, head and tail of that; its file."""

    minimum_arena_bytes: int
    arena_used_bytes: int
    head_bytes: int
    tail_bytes: int
    file_bytes: int


@dataclass(frozen=True)
class Gated:
    """A model at the gate.

    Attributes:
        model: its path.
        size: what it takes; None where it can't be laid out.
        base: what it took in the base revision; None without one, or where there was no such model that could be laid
            out.
        fits: whether it keeps to the budget and fits the board.
        verdict: the same in words.
    """

    model: str
    size: Size | None
    base: Size | None
    fits: bool
    verdict: str


def gated(path: Path, machine: Machine, budget: int | None, base: str | None) -> Gated:
    """Measure a model, and the same file in a revision of git.

    Raises:
        CommandError: git has no such revision.
        OSError: the file can't be read.
    """
    before = None if base is None else _base_size(path, machine, base)
    try:
        model = load_model(path)
        size = _size(model, machine)
        fits, reason = _verdict(model, size, machine, budget)
    except (tflm.TflmError, CommandError) as error:
        return Gated(str(path), None, before, False, f"no: {described(error)}")
    return Gated(str(path), size, before, fits, reason)


def _size(model: tflm.Model, machine: Machine) -> Size:
    found = measure(model, machine, "greedy")
    used = found.arena_used_bytes, found.head_bytes, found.tail_bytes
    return Size(found.minimum_arena_bytes, *used, len(model.data))


def _base_size(path: Path, machine: Machine, base: str) -> Size | None:
    data = file_at(path, base)
    try:
        return None if data is None else _size(tflm.Model(data), machine)
    except tflm.TflmError:
        return None


def _verdict(model: tflm.Model, size: Size, machine: Machine, budget: int | None) -> tuple[bool, str]:
    """Whether a model keeps to the budget, if there is one, and fits the board, if there is one."""
    over = 0 if budget is None else size.minimum_arena_bytes - budget
    if budget is not None and over > 0:
        return False, f"no: {over:,} bytes more than the budget of {budget:,}"
    if machine.board is not None:
        fit = board_fit(model, machine.board, kernels=machine.kernels)
        return fit.fits, verdict(fit)
    return True, "" if budget is None else f"yes: {-over:,} bytes left of {budget:,}"


def file_at(path: Path, revision: str) -> bytes | None:
    """A file as it was in a revision, with what git's filters make of it (LFS); None where it was not there.

    Raises:
        CommandError: this is no repository of git, or it has no such revision.
    """
    if revision.startswith("-"):
        raise CommandError(f"invalid revision {revision!r}; --base takes a branch, a tag or a hash")
    folder = path.parent
    there = _git(folder, "ls-tree", "--name-only", f"{revision}^{{commit}}", "--", path.name)
    return _git(folder, "cat-file", "--filters", f"{revision}:./{path.name}") if there else None


def _git(folder: Path, *arguments: str) -> bytes:
    try:
        return subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, check=True).stdout
    except subprocess.CalledProcessError as error:
        said = " ".join(error.stderr.decode(errors="replace").split())
        raise CommandError(f"{folder}: {said}; --base takes a revision that git has there, fetch it first") from None


def figures(models: Sequence[Gated], machine: Machine, budget: int | None, base: str | None) -> dict[str, Any]:
    """What went through the gate, for other programs; sizes in bytes."""
    return {
        "target": machine.target.name,
        "kernels": machine.kernels.name,
        "release": machine.kernels.release.name,
        "board": None if machine.board is None else machine.board.name,
        "budget_bytes": budget,
        "base": base,
        "models": [
            {
                "model": each.model,
                "size": None if each.size is None else each.size._asdict(),
                "base": None if each.base is None else each.base._asdict(),
                "fits": each.fits,
                "verdict": each.verdict,
            }
            for each in models
        ],
        "fits": all(each.fits for each in models),
    }


def gate_report(models: Sequence[Gated], machine: Machine, base: str | None) -> Report:
    """A row for each model, with the change where there is a base."""
    beside = ("change",) if base is not None else ()
    columns = {"model": Column.TEXT, "smallest arena": Column.NUMBER}
    columns |= {f"{what} since {base}": Column.NUMBER for what in beside}
    columns |= {"head": Column.NUMBER, "tail": Column.NUMBER, "file": Column.NUMBER}
    columns |= {f"{what} of the file": Column.NUMBER for what in beside}
    columns["fits"] = Column.TEXT
    place = machine.target.name if machine.board is None else f"{machine.board.name} ({machine.target.name})"
    title = f"Tensor arena on {place} with {machine.kernels.name} kernels"
    return Report(title, [], [Table("", columns, (list(_row(each, base)) for each in models))], ["sizes in bytes"])


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


def markdown(report: Report) -> str:
    """The report as a section of GitHub's Markdown, for the summary of a job."""
    parts = [f"### {report.title}", *(table.markdown() for table in report.tables), *report.notes]
    return "\n\n".join(part.rstrip() for part in parts) + "\n"


def models_from(patterns: Sequence[str]) -> list[Path]:
    """Files by name or by pattern, each once.

    Raises:
        CommandError: a pattern has no files.
    """
    found: dict[Path, None] = {}
    for pattern in patterns:
        names = [pattern] if Path(pattern).exists() else sorted(glob.glob(pattern, recursive=True))
        if not names:
            require_local(Path(pattern))
            raise CommandError(f"{pattern}: no files match")
        found |= dict.fromkeys(map(Path, names))
    return list(found)


def gate(
    models: Annotated[
        list[str], typer.Argument(metavar="MODEL", help=".tflite files, or patterns such as 'models/**/*.tflite'.")
    ],
    target: TargetName = None,
    kernels: KernelsName = None,
    release: ReleaseName = None,
    board: BoardName = None,
    budget: Annotated[
        str | None, typer.Option(metavar="SIZE", help="What the arena of each may take, such as 64K.")
    ] = None,
    base: Annotated[
        str | None, typer.Option(metavar="REVISION", help="Of git: show the change since then, such as origin/main.")
    ] = None,
    summary: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Append the table to a file, as Markdown.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check models against a budget or a board, for CI.

    With --base, shows what changed since another revision of git.

    The status is 1 where a model needs more, or can't be laid out.

    \b
    Examples:
      tflm gate 'models/*.tflite' --board nano33ble --base origin/main
      tflm gate model.tflite --target cortex-m4 --kernels cmsis-nn --budget 64K --summary summary.md
    """
    machine = machine_from(target, kernels, board, release=release)
    limit = None if budget is None else bytes_from(budget)
    paths = models_from(models)
    found = []
    with progress("laying out", len(paths)) as advance:
        for path in paths:
            found.append(gated(path, machine, limit, base))
            advance()
    report = gate_report(found, machine, base)
    if summary is not None:
        with summary.open("a", encoding="utf-8") as file:
            file.write(markdown(report))
    if as_json:
        print_json(figures(found, machine, limit, base))
    else:
        show(report)
        if summary is not None:
            wrote(summary)
    failing = [each for each in found if not each.fits]
    if failing:
        what = "does" if len(failing) == 1 else "do"
        raise CheckFailed(f"{', '.join(each.model for each in failing)} {what} not pass")
