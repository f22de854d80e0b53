"""Facts about processors and boards that projects need besides the tables of `tflm.boards`."""

from __future__ import annotations

import csv
import functools
from collections.abc import Mapping
from importlib.resources import files
from types import MappingProxyType
from typing import NamedTuple

from tflm.boards import Board

MPS2 = ("mps2-an386", 0x40004000, 0x40028000, 0x00000000, 0x20000000, 0x21000000)
MPS2_M3 = ("mps2-an385", *MPS2[1:])
MPS2_M7 = ("mps2-an500", *MPS2[1:])
MPS2_SECURE = ("mps2-an505", 0x50200000, 0x50302000, 0x10000000, 0x38000000, 0x80000000)
MPS3_M55 = ("mps3-an547", 0x59303000, 0x59302000, 0x00000000, 0x21000000, 0x60000000)


class Processor(NamedTuple):
    """A Cortex-M with GCC's flags and QEMU's machine.

    Attributes:
        flags: flags of arm-none-eabi-gcc.
        machine: QEMU machine that runs its code.
        port, counter: addresses of its first serial port and of its counters.
        flash, ram, external_ram: addresses of memories in this machine.
    """

    flags: str
    machine: str
    port: int
    counter: int
    flash: int
    ram: int
    external_ram: int


PROCESSORS = {
    "cortex-m0": Processor("-mcpu=cortex-m0 -mfloat-abi=soft", *MPS2),
    "cortex-m0plus": Processor("-mcpu=cortex-m0plus -mfloat-abi=soft", *MPS2),
    "cortex-m3": Processor("-mcpu=cortex-m3 -mfloat-abi=soft", *MPS2_M3),
    "cortex-m4": Processor("-mcpu=cortex-m4 -mfloat-abi=hard -mfpu=fpv4-sp-d16", *MPS2),
    "cortex-m7": Processor("-mcpu=cortex-m7 -mfloat-abi=hard -mfpu=fpv5-sp-d16", *MPS2_M7),
    "cortex-m23": Processor("-mcpu=cortex-m23 -mfloat-abi=soft", *MPS2_SECURE),
    "cortex-m33": Processor("-mcpu=cortex-m33 -mfloat-abi=hard -mfpu=fpv5-sp-d16", *MPS2_SECURE),
    "cortex-m52": Processor("-mcpu=cortex-m52 -mfloat-abi=hard", *MPS3_M55),
    "cortex-m55": Processor("-mcpu=cortex-m55 -mfloat-abi=hard", *MPS3_M55),
    "cortex-m85": Processor("-mcpu=cortex-m85+nopacbti -mfloat-abi=hard", *MPS3_M55),
}
"""Processors by the names of `tflm.targets.PARTS`."""


PINNED = {
    "atmelsam": "8.3.0",
    "espressif32": "6.13.0",
    "nordicnrf52": "10.11.0",
    "nxpimxrt": "7.5.0",
    "raspberrypi": "1.19.0",
    "renesas-ra": "1.9.0",
    "ststm32": "19.6.0",
    "teensy": "5.2.0",
    "arduino:esp32": "2.0.18-arduino.5",
    "arduino:mbed_giga": "4.6.0",
    "arduino:mbed_nano": "4.6.0",
    "arduino:mbed_nicla": "4.6.0",
    "arduino:mbed_portenta": "4.6.0",
    "arduino:renesas_portenta": "1.5.3",
    "arduino:renesas_uno": "1.5.3",
    "arduino:samd": "1.8.14",
}
"""Versions of PlatformIO's platforms and Arduino's cores; of the cores, those that `tflm/boards/sdks.csv` describes."""


def pinned(name: str) -> str:
    """A platform or core with its version, as PlatformIO and `arduino-cli` take it."""
    return f"{name}@{PINNED[name]}"


class BoardIds(NamedTuple):
    """Identifiers of a board in build systems; empty if one does not support it.

    Attributes:
        platform, platformio: PlatformIO's platform and board.
        zephyr: Zephyr's board target.
        fqbn: Arduino's.
        pico: the Pico SDK's.
        uart: the serial port that a debugger on the board reads, with the port and pin that sends; of parts of ST.
    """

    platform: str = ""
    platformio: str = ""
    zephyr: str = ""
    fqbn: str = ""
    pico: str = ""
    uart: str = ""


@functools.cache
def board_ids() -> Mapping[str, BoardIds]:
    """The identifiers of boards, by board name."""
    text = files("tflm.application.projects").joinpath("boards.csv").read_text(encoding="utf-8")
    rows = csv.DictReader(text.splitlines())
    return MappingProxyType({row.pop("board"): BoardIds(**row) for row in rows})


def ids_of(board: Board | None) -> BoardIds:
    """The identifiers of a board; empty for a bare chip or no board."""
    return BoardIds() if board is None else board_ids().get(board.name, BoardIds())
