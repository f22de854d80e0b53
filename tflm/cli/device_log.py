"""`tflm device-log`: compare what a device printed with the figures computed here."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from tflm.application.device_log import arena_finding, figures, forms_of_an_invoke, reports, timed
from tflm.application.errors import RequestError
from tflm.application.machine import MachineOptions
from tflm.application.models import lines_of_log, load_model
from tflm.cli.output import answer, progress
from tflm.cli.parameters import NAMED, AsJson, argument, option
from tflm.firmware.device_log import Invokes, invokes_in, read_device_log
from tflm.runtime.micro_resource_variable import count_resource_variables


def device_log(
    log: Annotated[Path, argument("LOG", "The device's output; - for standard input.")],
    model: Annotated[Path, argument("MODEL", "The .tflite file that runs on the device.")],
    on: MachineOptions = NAMED,
    mhz: Annotated[float | None, option("MHZ", "Clock of the ticks, to show times.", min=0.001)] = None,
    as_json: AsJson = False,
) -> None:
    """Explain a device's log: operator times and its arena.

    Shows each operator's time next to its work, compares the arena with the one computed here, and says why they
    differ.

    The log may contain any lines. Recognized are the outputs of TFLM's MicroProfiler (Log, LogCsv, LogTicksPerTagCsv)
    and of RecordingMicroInterpreter's PrintAllocations, and lines with arena_used_bytes and a number.

    \b
    Examples:
      tflm device-log serial.txt model.tflite --board nano33ble
      tflm device-log serial.txt model.tflite --target cortex-m4 --kernels cmsis-nn --mhz 64
    """
    machine = on.machine()
    loaded = load_model(model)
    read = read_device_log(lines_of_log(log), count_resource_variables(loaded))
    if not (read.events or read.ticks_by_tag or read.arena or read.failures):
        raise RequestError(
            f"{log}: no output of TFLM found; call MicroProfiler's LogCsv() after Invoke(), or PrintAllocations() of a "
            "RecordingMicroInterpreter's allocator after AllocateTensors()"
        )
    invokes = invokes_in(read.events, forms_of_an_invoke(loaded)) if read.events else Invokes()
    rows = timed(loaded, invokes)
    arena = None if read.arena is None else arena_finding(loaded, machine, read.arena, progress)
    answer(
        as_json, figures(model, loaded, read, invokes, rows, arena), *reports(loaded, read, invokes, rows, arena, mhz)
    )
