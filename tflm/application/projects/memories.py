"""How projects place an array in one of a board's memories."""

from __future__ import annotations

import re

from tflm.boards import Bank


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
