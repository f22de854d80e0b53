"""`tflm compare`: compare a model with another one, a recording or a device, tensor by tensor."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from tflm.application.comparison import (
    TOLERANCE,
    Difference,
    OtherKind,
    Probe,
    compare_models,
    compare_recorded,
    comparison_report,
    first_beyond,
    other_kind,
    real_inputs,
    require_same_shapes,
)
from tflm.application.device_comparison import compare_device
from tflm.application.errors import CheckFailed, OptionError
from tflm.application.machine import MachineOptions
from tflm.application.running import delegates_from
from tflm.application.settings import settings
from tflm.cli.output import answer, progress
from tflm.cli.parameters import NAMED, AsJson, ModelPath, argument, flag, option

STEPS = 10
"""Number of random inputs if none are given."""


def compare(
    model: ModelPath,
    other: Annotated[
        Path | None, argument("[OTHER]", "Another model, an .npz of inputs and outputs, or a device's log.")
    ] = None,
    inputs: Annotated[Path | None, option("FILE", "Inputs for both models, as for run; random if omitted.")] = None,
    seed: Annotated[int, option("SEED", "Seed of the random inputs.", min=0)] = 0,
    steps: Annotated[int, option("COUNT", "Number of random inputs.", min=1)] = STEPS,
    tolerance: Annotated[float, option("SHARE", "Relative error above which a tensor diverges.", min=0)] = TOLERANCE,
    delegate: Annotated[
        str | None, option("NAME", "Compare the model run by this delegate with the reference kernels.")
    ] = None,
    on: MachineOptions = NAMED,
    check: Annotated[bool, flag("--check", "Exit with status 1 if an output diverges.")] = False,
    as_json: AsJson = False,
) -> None:
    """Compare a model with another, a recording or a device.

    Shows where they differ, tensor by tensor. Inputs and errors are real values, and each model quantizes its inputs
    itself: a float model can be compared with its quantized version.

    With --delegate, the first tensor that diverges belongs to the first operator whose results the delegate changes.

    A device's log is the output of the firmware that tflm export --dump writes.

    \b
    Examples:
      tflm compare float.tflite int8.tflite
      tflm compare model.tflite --delegate flex --tolerance 0
      tflm compare model.tflite golden.npz --tolerance 0 --check
      tflm compare model.tflite serial.txt --board nano33ble --tolerance 0
    """
    tensors: list[Difference] = []
    lost: list[str] = []
    kind = None if other is None else other_kind(other)
    of_device = kind is OtherKind.LOG
    if on != settings().machine(NAMED, False) and not of_device:
        raise OptionError("--target, --kernels, --tflm and --board apply only to a device's log")
    if (other is None) == (delegate is None):
        raise OptionError("pass either a second model, recording or log, or --delegate")
    if (seed, steps) != (0, STEPS) and (inputs is not None or kind not in (None, OtherKind.MODEL)):
        raise OptionError(
            "--seed and --steps are for random inputs; leave them out with --inputs, a recording or a log"
        )
    if other is None:
        a, b = Probe(model, delegates_from(delegate)), Probe(model, [])
        outputs, tensors = compare_models(a, b, real_inputs((a, b), inputs, seed, steps), progress)
    elif inputs is not None and kind is not OtherKind.MODEL:
        raise OptionError("--inputs applies only to two models; a recording or log contains its inputs")
    elif of_device:
        outputs, tensors, lost = compare_device(model, other, on.machine("host"), progress)
    elif kind is OtherKind.RECORDING:
        outputs = compare_recorded(model, other, progress)
    else:
        a, b = Probe(model), Probe(other)
        require_same_shapes(a, b)
        outputs, tensors = compare_models(a, b, real_inputs((a, b), inputs, seed, steps), progress)
    diverging, diverging_output = first_beyond(tensors, tolerance), first_beyond(outputs, tolerance)
    figures = {
        "model": model,
        "other": f"--delegate {delegate}" if other is None else other,
        "tolerance": tolerance,
        "outputs": outputs,
        "tensors": tensors,
        "first_diverging": diverging,
        "outputs_agree": diverging_output is None,
        "lost": lost,
    }
    report = comparison_report(outputs, tensors, tolerance)
    report.notes.extend(lost)
    answer(as_json, figures, report)
    if check and diverging_output is not None:
        raise CheckFailed(
            f"output {diverging_output.tensor!r} is off by {diverging_output.largest_error:g}, "
            f"more than {tolerance:g} of its largest magnitude"
        )
