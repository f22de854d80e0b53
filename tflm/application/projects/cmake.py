"""Projects for CMake: a processor's flags and a linker script with the board's memories."""

from __future__ import annotations

from collections.abc import Iterator

from tflm.application.errors import RequestError
from tflm.application.projects.build import Build
from tflm.application.projects.memories import section_name
from tflm.application.projects.parts import PROCESSORS
from tflm.boards import Bank
from tflm.schema.enums import TensorType

EMULATED_FLASH = EMULATED_RAM = 4 << 20
"""Flash and RAM of QEMU's machines in bytes, for a processor without a board or a board with unknown flash."""


def cmake_values(build: Build) -> dict[str, str]:
    """Values for the templates of CMake.

    Raises:
        RequestError: the part is not a processor whose flags are known.
    """
    target = build.machine.target.name
    if target not in PROCESSORS:
        raise RequestError(f"a project for cmake needs a processor, not {target!r}; name it: --target cortex-m4")
    processor = PROCESSORS[target]
    is_cmsis_nn = build.kernels != "reference"
    speed = "SIZE" if build.kernels.endswith(":size") else "SPEED"
    usual = build.usual_bank
    banks = () if build.machine.board is None else build.machine.board.ram
    return {
        "processor": processor.flags,
        "machine": processor.machine,
        "is_cmsis_nn": "TRUE" if is_cmsis_nn else "FALSE",
        "definitions": f"CMSIS_NN KERNELS_OPTIMIZED_FOR_{speed}" if is_cmsis_nn else "",
        "make_options": " " + make_options(build),
        "float_printf": " -u _printf_float" if build.uses(TensorType.FLOAT32) else "",
        "regions": "\n".join(_regions(build)),
        "ram": "RAM" if usual is None else section_name(usual),
        "sections": "".join(_output_section(bank) for bank in banks if bank != usual),
        "stack": str(build.stack_bytes),
        "emulation": f"Run it in QEMU, where it prints the outputs:\n\n```sh\nqemu-system-arm -M {processor.machine} "
        f"-nographic -semihosting -kernel build/{build.name}.elf\n```\n",
    }


def _output_section(bank: Bank) -> str:
    """A line of a linker script for the arrays in a memory other than the usual one."""
    section = f".{section_name(bank).lower()}"
    return f"  {section} (NOLOAD) : {{ *({section}*) }} > {section_name(bank)}\n"


def _regions(build: Build) -> Iterator[str]:
    """Lines of a linker script's MEMORY: the flash, then the memories of a board in order."""
    processor = PROCESSORS[build.machine.target.name]
    board = build.machine.board
    flash = (board.flash_bytes if board is not None else None) or EMULATED_FLASH
    yield f"  FLASH (rx) : ORIGIN = {processor.flash:#010x}, LENGTH = {flash}"
    address, external = processor.ram, processor.external_ram
    for bank in (Bank("RAM", EMULATED_RAM),) if board is None else board.ram:
        origin = external if bank.is_external else address
        yield f"  {section_name(bank)} (rwx) : ORIGIN = {origin:#010x}, LENGTH = {bank.bytes}"
        if bank.is_external:
            external += bank.bytes
        else:
            address += bank.bytes


def make_options(build: Build) -> str:
    """The options of TFLM's Makefile for the processor and its kernels."""
    optimized = " OPTIMIZED_KERNEL_DIR=cmsis_nn" if build.kernels != "reference" else ""
    return f"TARGET=cortex_m_generic TARGET_ARCH={build.machine.target.name}{optimized}"
