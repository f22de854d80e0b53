"""`tflm check`: list what behaves differently on a device, before the model is flashed."""

from __future__ import annotations

from dataclasses import replace

from tflm.application.errors import CheckFailed, NotKnown
from tflm.application.hand_over import fit_or_none, not_fitting
from tflm.application.machine import MACHINE_FIGURES, MachineOptions
from tflm.application.models import load_model, title_of
from tflm.cli.output import answer
from tflm.cli.parameters import NAMED, AsJson, ModelPath, Short
from tflm.firmware.board_fit import Answer
from tflm.firmware.board_report import findings_report
from tflm.firmware.device_check import check_device
from tflm.firmware.verdict import verdict_of
from tflm.releases import NAMES_MOVED, WHEEL
from tflm.report import document_of


def check(model: ModelPath, on: MachineOptions = NAMED, is_short: Short = False, as_json: AsJson = False) -> None:
    """List what behaves differently on the device.

    Reports missing and rejected operators, different results, and what to do about each. With a board, also shows
    whether the model fits its memory. The exit status is 1 if the model cannot run on the device or does not fit the
    board, and 3 if it is not known whether it fits.

    \b
    Examples:
      tflm check model.tflite --board nano33ble
      tflm check model.tflite --target cortex-m55 --kernels cmsis-nn
    """
    machine = on.machine()
    loaded = load_model(model)
    findings = check_device(loaded, target=machine.target, kernels=machine.kernels, board=machine.board)
    fit = None if machine.board is None else fit_or_none(loaded, machine)
    found = None if fit is None else verdict_of(fit, findings)
    advice = "" if fit is None or fit.fits else not_fitting(model, loaded, machine, fit)
    figures = {
        "model": model,
        **document_of(machine, MACHINE_FIGURES),
        "fits": None if fit is None else fit.fits,
        "verdict": None if found is None else found.text,
        "answer": None if found is None else found.answer.value,
        "advice": advice or None,
        "findings": findings,
    }
    place = machine.target.name if machine.board is None else f"{machine.board.name}, {machine.target.name}"
    report = findings_report(title_of(model), f"{place} with {machine.kernels.name} kernels", findings)
    if found is not None:
        report = replace(report, verdict=found.line)
    report.notes.extend([advice] if advice else [])
    report.notes.extend([NAMES_MOVED] if machine.kernels.release == WHEEL else [])
    answer(as_json, figures, report, is_short=is_short)
    stopping = sum(finding.stops for finding in findings)
    if stopping:
        problems = "1 problem" if stopping == 1 else f"{stopping} problems"
        raise CheckFailed(f"{model} cannot run on the device: {problems}")
    if found is not None and not found.is_yes:
        raise (NotKnown if found.answer is Answer.UNKNOWN else CheckFailed)(f"{model}: {found.line}")
