"""`tflm flash`: what TFLM takes of a part's flash and static RAM."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

import tflm
from tflm.boards.board_fit import BoardFit
from tflm.cli.command_line import (
    AsJson,
    BoardName,
    KernelsName,
    ModelPath,
    TargetName,
    load_model,
    machine_from,
    print_json,
    show,
    title_of,
)
from tflm.firmware.flash import DEFAULT_BUILD, Flash, OperatorFlash
from tflm.report import Column, Report, Table, with_thousands


def flash(
    model: ModelPath,
    target: TargetName = None,
    kernels: KernelsName = None,
    board: BoardName = None,
    build: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="How TFLM is built: release, and 'release with error strings', 'release, kernels -Os' or "
            "'default, asserts on'.",
        ),
    ] = DEFAULT_BUILD,
    flash_data: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Sections of a build of your own, in place of the package's.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Flash and static RAM of a firmware with the model: the model, TFLM, and each operator's part.

    Without --target and --board, it is for cortex-m4.

    \b
    Example:
      tflm flash model.tflite --target cortex-m4 --kernels cmsis-nn --build release
    """
    machine = machine_from(target, kernels, board, default="cortex-m4")
    found = tflm.flash(load_model(model), target=machine.target, kernels=machine.kernels, build=build, data=flash_data)
    if as_json:
        print_json({"model": str(model), **asdict(found), "operators": [op._asdict() for op in found.operators]})
    else:
        show(flash_report(title_of(model), found))


def flash_report(name: str, found: Flash) -> Report:
    """The sizes, then each operator's part, then what could be saved, and what the figures rest on."""
    low, high = found.flash_range_bytes
    program = f"{with_thousands(low)} to {with_thousands(high)}" if found.flash_bytes is None else with_thousands(high)
    facts = [("model", with_thousands(found.model_bytes)), ("TFLM and kernels", program)]
    if found.runtime_bytes is not None:
        facts.append((" without operators", with_thousands(found.runtime_bytes)))
    if found.data_bytes is not None and found.bss_bytes is not None:
        facts.append(("static RAM", f"{with_thousands(found.data_bytes + found.bss_bytes)}, without the arena"))
    notes = [found.note]
    if found.flash_bytes is not None and found.typed_flash_bytes is not None:
        notes.append(
            f"registrations for one type ({', '.join(found.typed_registrations)}) would make it "
            f"{with_thousands(found.typed_flash_bytes)}: tflm export --typed writes them; they work only where the "
            "source that adds them is compiled with -DCMSIS_NN"
        )
    tables = [_operator_table(found.operators)] if found.operators else []
    title = f"{name} on {found.cpu}, {found.kernels} kernels, build {found.build!r}"
    return Report(title, facts, tables, notes)


def budget_report(model: tflm.Model, fit: BoardFit) -> Report:
    """What is left of a board beside model, TFLM, arena and static RAM, as far as it was measured."""
    board = fit.board
    title = f"with TFLM and its kernels, release, on {board.name}"
    try:
        found = tflm.flash(model, target=board.target, kernels=fit.measured.kernels)
    except tflm.FirmwareError as error:
        return Report(title, notes=[f"not known: {error}"])
    sizes = [found.model_bytes + size for size in found.flash_range_bytes]
    facts = [("flash", _left("model, TFLM and kernels", sizes, board.flash_bytes))]
    if found.data_bytes is not None and found.bss_bytes is not None:
        taken = fit.measured.minimum_arena_bytes + found.data_bytes + found.bss_bytes
        facts.append(("RAM", _left("arena and static RAM", [taken, taken], sum(bank.bytes for bank in board.ram))))
    return Report(title, facts, notes=["the application, its buffers and the stack are not counted", found.note])


def _left(what: str, sizes: list[int], available: int | None) -> str:
    low, high = sizes
    taken = f"{low:,}" if low == high else f"{low:,} to {high:,}"
    if available is None:
        return f"{what}: {taken} bytes"
    left = f"{available - high:,}" if high <= available else f"no, up to {high - available:,} missing"
    return f"{what}: {taken} of {available:,} bytes; left: {left}"


def _operator_table(operators: tuple[OperatorFlash, ...]) -> Table:
    columns = {
        "operator": Column.NAME,
        "own bytes": Column.NUMBER,
        "shared bytes": Column.NUMBER,
        "shared with": Column.TEXT,
    }
    rows = ((op.operator, op.own_bytes, op.shared_bytes, _others(op, len(operators))) for op in operators)
    return Table("", columns, rows)


def _others(operator: OperatorFlash, count: int) -> str:
    everyone = len(operator.shared_with) == count - 1 > 1
    return "all others" if everyone else ", ".join(name.removeprefix("Add") for name in operator.shared_with)
