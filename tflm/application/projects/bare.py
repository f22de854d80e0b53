"""Projects without an SDK: a processor's flags and a linker script, for QEMU or a part of ST."""

from __future__ import annotations

import csv
import functools
import re
from collections.abc import Iterable, Iterator, Mapping
from importlib.resources import files
from types import MappingProxyType
from typing import NamedTuple

from tflm.application.errors import RequestError
from tflm.application.projects.build import Build
from tflm.application.projects.parts import PROCESSORS
from tflm.boards import Bank
from tflm.schema.enums import TensorType


def section_name(bank: Bank) -> str:
    """A memory's name as an identifier of a linker script."""
    return re.sub("[^A-Za-z0-9]+", "_", bank.name)


def section(bank: Bank) -> tuple[str, str]:
    """The attribute and header that place an array in a section named after the memory."""
    return f'__attribute__((section(".{section_name(bank).lower()}")))', ""


def esp_memory(bank: Bank) -> tuple[str, str]:
    """ESP-IDF's attribute and header for a memory."""
    return ("EXT_RAM_BSS_ATTR", '"esp_attr.h"') if bank.is_external else ("", "")


def zephyr_memory(bank: Bank) -> tuple[str, str]:
    """Zephyr's attribute and header for a memory."""
    if bank.name == "DTCM":
        return "__dtcm_bss_section", "<zephyr/linker/section_tags.h>"
    return f"Z_GENERIC_SECTION({section_name(bank).upper()})", "<zephyr/kernel.h>"


EMULATED_FLASH = EMULATED_RAM = 4 << 20
"""Flash and RAM of QEMU's machines in bytes, for a processor without a board or a board with unknown flash."""

STM32_FLASH = 0x08000000
"""The address of the flash of an STM32."""

USUAL_UART = "USART1 A 9"
"""A serial port that every STM32 has, with its pin, for boards that do not connect another one to their debugger."""

DEVICE_TAGS = {"F4": "v2.6.9", "F7": "v1.2.9", "H7": "v1.9.0", "L4": "v1.7.4"}
"""Versions of ST's device headers, by series."""

RESET_MHZ = {"H7": 64}
"""The clock after reset, by series, for series whose clock is left as it is."""


class Stm32(NamedTuple):
    """A part of ST.

    Attributes:
        series, device: as in ST's headers.
        ram: the addresses of its memories, in the order of the chip's.
        clock: divider M, factor N and divider P of the PLL, and the wait states of the flash; empty if the clock
            is left as it is after reset.
    """

    series: str
    device: str
    ram: tuple[int, ...]
    clock: tuple[int, ...]

    @property
    def mhz(self) -> int:
        """The clock that the firmware sets, from the internal oscillator of 16 MHz."""
        if not self.clock:
            return RESET_MHZ[self.series]
        divider, factor, last, _ = self.clock
        return 16 // divider * factor // last


@functools.cache
def stm32_parts() -> Mapping[str, Stm32]:
    """The parts of ST for which there are projects, by chip."""
    text = files("tflm.application.projects").joinpath("stm32.csv").read_text(encoding="utf-8")
    return MappingProxyType(
        {
            row["chip"]: Stm32(
                row["series"],
                row["device"],
                tuple(int(address, 16) for address in row["ram"].split()),
                tuple(map(int, filter(None, row["clock"].split(",")))),
            )
            for row in csv.DictReader(text.splitlines())
        }
    )


def qemu_values(build: Build) -> dict[str, str]:
    """Values for the templates of QEMU.

    Raises:
        RequestError: the part is not a processor whose flags are known.
    """
    target = build.machine.target.name
    if target not in PROCESSORS:
        raise RequestError(f"a project for qemu needs a processor, not {target!r}; name it: --target cortex-m4")
    processor, board = PROCESSORS[target], build.machine.board
    banks = (Bank("RAM", EMULATED_RAM),) if board is None else board.ram
    flash = (board.flash_bytes if board is not None else None) or EMULATED_FLASH
    return {
        **_bare_values(build, flash, processor.flash, banks, _emulated_addresses(banks, *processor[-2:])),
        "machine": processor.machine,
        "port_address": f"{processor.port:#x}",
        "counter_address": f"{processor.counter:#x}",
        "memory_comment": f"Sizes are those of {build.machine.place}, addresses those of QEMU's {processor.machine}.",
    }


def stm32_values(build: Build) -> dict[str, str]:
    """Values for the templates of a part of ST.

    Raises:
        RequestError: the board has another part, or the arena is in memory outside the chip.
    """
    known, board = stm32_parts(), build.machine.board
    if build.chip not in known or board is None:
        raise RequestError(f"a project for stm32 needs a board or chip with one of {', '.join(known)}")
    if any(each.bank is not None and each.bank.is_external for each in build.placements):
        raise RequestError("a project for stm32 does not set up SDRAM, which this model needs; use --project zephyr")
    part = known[build.chip]
    uart, port, pin = (build.ids.uart or USUAL_UART).split()
    assert board.flash_bytes is not None
    return {
        **_bare_values(build, board.flash_bytes, STM32_FLASH, board.on_chip_ram, part.ram),
        "memory_comment": f"The memories of {build.machine.place}.",
        "series": part.series.lower(),
        "device": part.device,
        "device_tag": DEVICE_TAGS[part.series],
        "core": " CORE_CM7" if part.series == "H7" else "",
        "startup": part.device.lower(),
        "clock": ", ".join(f"{name} = {value}" for name, value in zip(("M", "N", "P", "LATENCY"), part.clock)),
        "mhz": str(part.mhz),
        "uart": uart,
        "uart_bus": _uart_bus(part.series, uart),
        "port": port,
        "pin": pin,
    }


def _uart_bus(series: str, uart: str) -> str:
    """The name of the register that switches the clock of a serial port on."""
    if uart == "USART1":
        return "APB2ENR"
    return {"L4": "APB1ENR1", "H7": "APB1LENR"}.get(series, "APB1ENR")


def _bare_values(build: Build, flash: int, origin: int, banks: Iterable[Bank], at: Iterable[int]) -> dict[str, str]:
    """Values for the compiler and the linker script, with the memories and their addresses."""
    usual = build.usual_bank
    regions = [("FLASH (rx)", origin, flash)]
    regions += [(f"{section_name(bank)} (rwx)", address, bank.bytes) for bank, address in zip(banks, at)]
    return {
        "processor": PROCESSORS[build.machine.target.name].flags,
        "float_printf": " -u _printf_float" if build.uses(TensorType.FLOAT32) and build.dump else "",
        "regions": "\n".join(f"  {name} : ORIGIN = {at:#010x}, LENGTH = {size}" for name, at, size in regions),
        "ram": "RAM" if usual is None else section_name(usual),
        "sections": "".join(_output_section(bank) for bank in banks if usual is None or bank.name != usual.name),
        "stack": str(build.stack_bytes),
    }


def tflm_values(build: Build) -> dict[str, str]:
    """Values for the template that compiles TFLM."""
    is_cmsis_nn = build.kernels != "reference"
    speed = "SIZE" if build.kernels.endswith(":size") else "SPEED"
    return {
        "is_cmsis_nn": "TRUE" if is_cmsis_nn else "FALSE",
        "definitions": f"CMSIS_NN KERNELS_OPTIMIZED_FOR_{speed}" if is_cmsis_nn else "",
        "has_helium": "TRUE" if "mve" in build.machine.target.extensions else "FALSE",
        "commit": build.machine.kernels.release.commit,
    }


def _output_section(bank: Bank) -> str:
    """A line of a linker script for the arrays in a memory other than the usual one."""
    section = f".{section_name(bank).lower()}"
    return f"  {section} (NOLOAD) : {{ *({section}*) }} > {section_name(bank)}\n"


def _emulated_addresses(banks: Iterable[Bank], address: int, external: int) -> Iterator[int]:
    """Addresses of a board's memories in a machine of QEMU, one after the other."""
    for bank in banks:
        yield external if bank.is_external else address
        if bank.is_external:
            external += bank.bytes
        else:
            address += bank.bytes
