"""`tflm device`: run a model on a device, compare every operator, and flash it."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated

from tflm.application.device_flash import flash_device
from tflm.application.device_run import (
    RUN_FIGURES,
    calibration_of,
    overflow_lines,
    random_steps,
    run_device,
    run_report,
    verdict_line,
    write_recording,
)
from tflm.application.errors import CheckFailed, OptionError
from tflm.application.machine import MachineOptions
from tflm.application.models import load_model
from tflm.application.output_files import Written
from tflm.application.running import input_names
from tflm.atomic_write import write_atomically
from tflm.cli.output import answer, print_json, progress
from tflm.cli.parameters import NAMED, AsJson, argument, option
from tflm.cli.plain_text import print_error, print_plain
from tflm.device import connect
from tflm.device.device import INVOKE_SECONDS
from tflm.device.transports import BAUD, serial_ports
from tflm.device.verdict import Status
from tflm.evaluation.input_files import FILE_KINDS, read_given
from tflm.evaluation.runner import inputs_of
from tflm.report import document_of

RANDOM = 3
"""Number of random inputs if none are given."""


class Action(str, Enum):
    """An action of `tflm device`."""

    RUN = "run"
    FLASH = "flash"
    LIST = "list"
    CALIBRATE = "calibrate"


OF_RUN = ("--port", "--baud", "--inputs", "--random", "--seed", "--limit", "--save")
TAKEN = {
    Action.LIST: (),
    Action.FLASH: ("--port",),
    Action.RUN: OF_RUN,
    Action.CALIBRATE: (*OF_RUN, "--output", "--mhz"),
}
"""The options that each action takes, besides those that name a machine."""


def device(
    action: Annotated[Action, argument("ACTION", "run, calibrate, flash or list.")],
    path: Annotated[Path | None, argument("[PATH]", "The .tflite file, or for flash the project's folder.")] = None,
    port: Annotated[
        str | None,
        option("PORT", "A serial port, tcp:HOST:PORT, unix:PATH, or exec:COMMAND for a program at its standard input."),
    ] = None,
    baud: Annotated[int, option("BAUD", "Speed of the serial port.", min=1)] = BAUD,
    inputs: Annotated[list[str] | None, option("[NAME=]FILE", f"Inputs, as for run: {FILE_KINDS}.")] = None,
    random: Annotated[int, option("COUNT", "Number of random inputs.", min=1)] = RANDOM,
    seed: Annotated[int, option("SEED", "Seed of the random inputs.", min=0)] = 0,
    limit: Annotated[float, option("SECONDS", "Maximum seconds that an invoke may take.", min=0.1)] = INVOKE_SECONDS,
    save: Annotated[
        Path | None, option("FILE", "Write inputs and the device's outputs to an .npz for tflm compare."), Written.FILE
    ] = None,
    output: Annotated[Path | None, option("FILE", "For calibrate: the file for tflm profile."), Written.FILE] = None,
    mhz: Annotated[
        float | None, option("MHZ", "For calibrate: the device's clock; the board's if known.", min=1)
    ] = None,
    on: MachineOptions = NAMED,
    as_json: AsJson = False,
) -> None:
    """Run a model on a device, and compare every operator.

    The firmware is one that tflm export --serve or tflm compile --serve writes. The verdict is equal; differs as the
    kernel library is known to; or the first operator that is wrong, with its inputs, expected and received values.
    The exit status is 1 if the device differs, and 2 if it does not answer.

    flash writes a project to a board with the tool of its SDK, list shows serial ports, and calibrate writes how
    many cycles the device takes for each kind of operator.

    \b
    Examples:
      tflm device list
      tflm device flash firmware/ --board pico
      tflm device run model.tflite --port /dev/ttyACM0 --random 10
      tflm device run model.tflite --port tcp:localhost:5555 --inputs in.npz --save log.npz
      tflm device calibrate model.tflite --port COM3 --board nano33ble --output nano33ble.json
    """
    given = {
        "--port": port is not None,
        "--baud": baud != BAUD,
        "--inputs": bool(inputs),
        "--random": random != RANDOM,
        "--seed": seed > 0,
        "--limit": limit != INVOKE_SECONDS,
        "--save": save is not None,
        "--output": output is not None,
        "--mhz": mhz is not None,
    }
    unused = [option for option, is_given in given.items() if is_given and option not in TAKEN[action]]
    if unused:
        raise OptionError(f"tflm device {action.value} does not take {' and '.join(unused)}")
    if inputs and (given["--random"] or given["--seed"]):
        raise OptionError("use either --inputs, or --random and --seed")
    if action is Action.LIST:
        _list_ports(as_json)
        return
    if path is None:
        raise OptionError(f"tflm device {action.value} needs {'a folder' if action is Action.FLASH else 'a model'}")
    if action is Action.FLASH:
        if on.board is None:
            raise OptionError("tflm device flash needs --board, which names the tool")
        flash_device(path, on.machine(), port)
        return
    if port is None:
        raise OptionError("name the device with --port; tflm device list shows serial ports")
    if action is Action.CALIBRATE and output is None:
        raise OptionError("tflm device calibrate needs --output FILE")
    model = load_model(path)
    with connect(port, model, baud=baud, limit=limit) as found:
        if inputs:
            steps = read_given(inputs, inputs_of(found), input_names(model), False)
        else:
            steps = random_steps(model, random, seed)
        run = run_device(found, steps, on, progress)
    if save is not None:
        write_recording(save, steps, run.verdict)
    if output is not None:
        board = run.machine.board
        clock = mhz or (None if board is None else board.mhz)
        if clock is None:
            raise OptionError("the clock is unknown; name it with --mhz, or the board with --board")
        write_atomically(output, calibration_of(run, clock).text().encode())
    answer(as_json, {"model": path, **document_of(run, RUN_FIGURES)}, run_report(run), files=[save, output])
    if run.verdict.status is Status.WRONG:
        raise CheckFailed(verdict_line(run.verdict, run.machine))
    for line in overflow_lines(run):
        raise CheckFailed(line)


def _list_ports(as_json: bool) -> None:
    ports = serial_ports()
    if as_json:
        print_json({"ports": ports})
        return
    for each in ports:
        print_plain(f"{each.port}  {each.description}")
    if not ports:
        print_error("no serial ports: check the cable, and that the firmware runs")
