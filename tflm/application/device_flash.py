"""`tflm device flash`: write a project's firmware to a board with a tool of its SDK."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

from tflm.application.errors import RequestError
from tflm.application.machine import Machine
from tflm.application.projects import usual_kind
from tflm.application.projects.bare import stm32_parts
from tflm.application.projects.parts import ids_of


class _Flasher(NamedTuple):
    """A tool that flashes the projects of a kind.

    Attributes:
        command: the command line, with placeholders in braces.
        install: how to get the tool.
        image: the file in the project that must have been built; empty if the tool builds it.
        port: the arguments that select a port.
        folder: where it is run, in the project's folder.
    """

    command: str
    install: str
    image: str = ""
    port: str = ""
    folder: str = "."


FLASHERS = {
    "esp-idf": (
        _Flasher("idf.py build flash", "install ESP-IDF and run its export script", port=" -p {port}"),
        _Flasher(
            "esptool.py --chip {target} write_flash @flash_args",
            "pip install esptool",
            "build/flash_args",
            " --port {port}",
            "build",
        ),
    ),
    "arduino": (_Flasher("arduino-cli compile --upload -b {fqbn} {name}", "install arduino-cli", port=" -p {port}"),),
    "zephyr": (_Flasher("west flash", "pip install west", "build"),),
    "pico": (_Flasher("picotool load -f -x build/{name}.uf2", "install picotool", "build/{name}.uf2"),),
    "stm32": (
        _Flasher(
            "openocd -f interface/stlink.cfg -f target/stm32{series}x.cfg "
            "-c 'program build/{name}.elf verify reset exit'",
            "install openocd",
            "build/{name}.elf",
        ),
        _Flasher("pyocd load build/{name}.elf", "pip install pyocd", "build/{name}.elf"),
    ),
    "platformio": (_Flasher("pio run --target upload", "pip install platformio", port=" --upload-port {port}"),),
}
"""Tools for each kind of project, the preferred one first."""


def flash_device(folder: Path, machine: Machine, port: str | None, kind: str | None = None) -> None:
    """Flash a project with the first of its SDK's tools that is installed.

    Args:
        kind: of the project; by default the usual one of the board.

    Raises:
        RequestError: the project runs in an emulator or is not built, or no tool is installed, or it fails.
    """
    flasher, values = _flasher(machine, kind or usual_kind(machine)), _values(folder, machine, port)
    if flasher.image and not (folder / flasher.image.format(**values)).exists():
        raise RequestError(
            f"{folder / flasher.image.format(**values)} is missing; build the project first, as "
            f"{folder / 'README.md'} says"
        )
    command = shlex.split((flasher.command + (flasher.port if port else "")).format(**values))
    status = subprocess.run(command, cwd=folder / flasher.folder, check=False).returncode
    if status:
        raise RequestError(f"{shlex.join(command)} failed with status {status}; its messages are above")


def _flasher(machine: Machine, kind: str | None) -> _Flasher:
    """The tool for a kind of project."""
    if kind not in FLASHERS:
        raise RequestError(f"{machine.place} has no project that can be flashed; its README says how to run it")
    found = next((each for each in FLASHERS[kind] if shutil.which(each.command.split()[0])), None)
    if found is None:
        names = " or ".join(f"{each.command.split()[0]} ({each.install})" for each in FLASHERS[kind])
        raise RequestError(f"to flash {machine.place}, {names} is needed, and not in PATH")
    return found


def _values(folder: Path, machine: Machine, port: str | None) -> dict[str, str]:
    """Values for the names in braces in commands."""
    board = machine.board
    part = None if board is None else stm32_parts().get(board.chip or board.name)
    return {
        "fqbn": ids_of(board).fqbn,
        "name": _image_name(folder),
        "target": machine.target.name,
        "series": "" if part is None else part.series.lower(),
        "port": port or "",
    }


def _image_name(folder: Path) -> str:
    """The name of a project's firmware, which CMake or the sketch's folder is called."""
    for path in folder.glob("*/*.ino"):
        return path.stem
    lists = folder / "CMakeLists.txt"
    found = re.search(r"^project\((\w+)", lists.read_text(), re.MULTILINE) if lists.exists() else None
    return folder.name if found is None else found[1]
