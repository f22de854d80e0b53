"""`tflm check`: what goes another way on a device, before the model is flashed."""

from __future__ import annotations

from typing import Any

from tflm.boards.board_report import findings_report
from tflm.boards.device_check import DeviceFinding, check_device
from tflm.cli.command_line import (
    AsJson,
    BoardName,
    CheckFailed,
    KernelsName,
    ModelPath,
    ReleaseName,
    TargetName,
    load_model,
    machine_from,
    print_json,
    show,
    title_of,
)


def finding_figures(finding: DeviceFinding) -> dict[str, Any]:
    """A finding for other programs."""
    return {
        "operator": finding.operator,
        "subgraph_index": finding.subgraph_index,
        "operator_index": finding.operator_index,
        "effect": finding.effect.name.lower(),
        "happens": finding.happens,
        "advice": finding.advice,
        "stops": finding.stops,
        "shown": finding.shown,
    }


def check(
    model: ModelPath,
    target: TargetName = None,
    kernels: KernelsName = None,
    release: ReleaseName = None,
    board: BoardName = None,
    as_json: AsJson = False,
) -> None:
    """List what behaves differently on the device.

    That is what is missing there, what is refused, and what answers otherwise; and what to do about it.

    The status is 1 where something keeps the model from running there.

    \b
    Examples:
      tflm check model.tflite --board nano33ble
      tflm check model.tflite --target cortex-m55 --kernels cmsis-nn
    """
    machine = machine_from(target, kernels, board, release=release)
    findings = check_device(load_model(model), target=machine.target, kernels=machine.kernels, board=machine.board)
    if as_json:
        print_json(
            {
                "model": str(model),
                "target": machine.target.name,
                "kernels": machine.kernels.name,
                "release": machine.kernels.release.name,
                "board": None if machine.board is None else machine.board.name,
                "findings": [finding_figures(finding) for finding in findings],
            }
        )
    else:
        place = machine.target.name if machine.board is None else f"{machine.board.name}, {machine.target.name}"
        show(findings_report(title_of(model), f"{place} with {machine.kernels.name} kernels", findings))
    stopping = sum(finding.stops for finding in findings)
    if stopping:
        what = "1 thing keeps" if stopping == 1 else f"{stopping} things keep"
        raise CheckFailed(f"{model}: {what} the model from running on the device")
