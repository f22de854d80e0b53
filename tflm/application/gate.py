"""Check models against a budget, and compare them with another revision."""

from __future__ import annotations

import glob
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from tflm.application.arena import measure
from tflm.application.checkout import FULL_HASH, Checkout
from tflm.application.errors import RequestError, described
from tflm.application.hand_over import continue_within, not_fitting
from tflm.application.machine import MACHINE_FIGURES, Machine
from tflm.application.models import load_model, require_local
from tflm.errors import TflmError
from tflm.firmware.device_check import operator_findings
from tflm.firmware.verdict import Verdict, verdict_of, within_budget
from tflm.report import NUMBER, TEXT, Report, Table, document_of
from tflm.schema.model import Model

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
