"""The kinds of projects."""

from __future__ import annotations

from tflm.application.errors import RequestError
from tflm.application.export import SourceStyle
from tflm.application.machine import Machine
from tflm.application.projects.arduino import ARDUINO_ENTRY, ARDUINO_FIRST, arduino_values
from tflm.application.projects.cmake import cmake_values
from tflm.application.projects.esp_idf import ESP_ENTRY, esp_values
from tflm.application.projects.kind import Kind
from tflm.application.projects.memories import esp_memory, section, zephyr_memory
from tflm.application.projects.pico import PICO_CHIPS, pico_values
from tflm.application.projects.platformio import REGISTERING_ENTRY, REGISTERING_FIRST, platformio_values
from tflm.application.projects.zephyr import zephyr_values

RUN = "static int Run()"
CMSIS = frozenset({"cmsis-nn", "reference"})
ESP = frozenset({"esp-nn", "esp-nn:ansi", "reference"})
CORTEX_M, ESPRESSIF = frozenset({"cortex-m"}), frozenset({"espressif"})

KINDS = {
    kind.name: kind
    for kind in (
        Kind("esp-idf", ESP, ESPRESSIF, "main/", esp_values, SourceStyle(".cc", RUN, "", ESP_ENTRY), esp_memory),
        Kind(
            "arduino",
            frozenset({"arduino"}),
            CORTEX_M,
            "${name}/",
            arduino_values,
            SourceStyle(".cpp", RUN, ARDUINO_FIRST, ARDUINO_ENTRY),
            section,
            main="${name}.ino",
        ),
        Kind("zephyr", CMSIS, frozenset(), "src/", zephyr_values, SourceStyle(), zephyr_memory),
        Kind(
            "platformio",
            CMSIS | ESP | {"arduino", "cmsis-nn:size"},
            CORTEX_M | ESPRESSIF,
            "src/",
            platformio_values,
            SourceStyle(".cpp", RUN, REGISTERING_FIRST, REGISTERING_ENTRY),
            section,
        ),
        Kind("cmake", CMSIS | {"cmsis-nn:size"}, CORTEX_M, "", cmake_values, SourceStyle(), section),
        Kind("pico", frozenset({"cmsis-nn"}), CORTEX_M, "", pico_values, SourceStyle(), section),
    )
}
"""Kinds of projects by their names for `--project`."""


def project_kinds() -> list[str]:
    """The names of all kinds."""
    return list(KINDS)


def usual_kind(machine: Machine) -> str | None:
    """The usual kind of project for a board and its kernels; None without a board.

    Arduino for its library, ESP-IDF for Espressif's chips, the Pico SDK for its chips, and CMake for others.
    """
    if machine.board is None:
        return None
    for name in ("arduino", "esp-idf", "pico", "cmake"):
        try:
            KINDS[name].require(machine)
        except RequestError:
            continue
        if name != "pico" or (machine.board.chip or machine.board.name) in PICO_CHIPS:
            return name
    return None


def kind_named(name: str) -> Kind:
    """A kind of project.

    Raises:
        RequestError: there is none with this name.
    """
    if name not in KINDS:
        raise RequestError(f"unknown project {name!r}; use one of {', '.join(KINDS)}")
    return KINDS[name]
