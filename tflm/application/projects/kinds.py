"""The kinds of projects."""

from __future__ import annotations

from tflm.application.errors import RequestError
from tflm.application.machine import Machine
from tflm.application.projects.bare import esp_memory, qemu_values, section, stm32_parts, stm32_values, zephyr_memory
from tflm.application.projects.build import Build
from tflm.application.projects.esp_idf import esp_values
from tflm.application.projects.kind import ONCE, SKETCH, Entry, Kind
from tflm.application.projects.parts import ids_of, pinned
from tflm.application.projects.platformio import platformio_values
from tflm.boards.sdks import ORIGINS


def arduino_values(build: Build) -> dict[str, str]:
    """Values for the templates of a sketch.

    Raises:
        RequestError: the board is not one of Arduino's.
    """
    fqbn = build.ids.fqbn
    if not fqbn:
        raise RequestError("a project for arduino needs an Arduino board; name it with --board")
    return {"fqbn": fqbn, "core": pinned(":".join(fqbn.split(":")[:2]))}


def zephyr_values(build: Build) -> dict[str, str]:
    """Values for the templates of Zephyr."""
    settings = ["CONFIG_MAIN_STACK_SIZE=8192"]
    if build.kernels != "reference":
        settings.insert(0, "CONFIG_TENSORFLOW_LITE_MICRO_CMSIS_NN_KERNELS=y")
    contained = build.machine.kernels.release.distribution
    return {
        "configuration": "\n".join(settings),
        "zephyr_board": build.ids.zephyr or "BOARD",
        "zephyr_version": "4.4" if contained is None else contained.version,
    }


PICO_CHIPS = {"RP2040": "pico", "RP2350": "pico2"}
"""Boards of the Pico SDK, by chip."""


def pico_values(build: Build) -> dict[str, str]:
    """Values for the templates of the Pico SDK.

    Raises:
        RequestError: the board has another chip.
    """
    if build.chip not in PICO_CHIPS:
        raise RequestError("a project for pico needs a board with an RP2040 or RP2350, such as --board pico")
    return {"pico_board": build.ids.pico or PICO_CHIPS[build.chip]}


CMSIS, ESP = ORIGINS["zephyr"].kernels, ORIGINS["espressif"].kernels
CMSIS_SIZE = CMSIS | {"cmsis-nn:size"}
CORTEX_M, ESPRESSIF = frozenset({"cortex-m"}), frozenset({"espressif"})
ARDUINO_ENTRY = Entry("arduino", SKETCH)

KINDS = {
    kind.name: kind
    for kind in (
        Kind(
            "esp-idf",
            ESP,
            ESPRESSIF,
            esp_values,
            Entry("esp-idf", signature="void app_main(void)"),
            esp_memory,
            folder="main/",
            distribution=ORIGINS["espressif"].distribution,
        ),
        Kind(
            "arduino",
            frozenset({"arduino"}),
            CORTEX_M,
            arduino_values,
            ARDUINO_ENTRY,
            section,
            folder="${name}/",
            suffix=".cpp",
            main="${name}.ino",
            distribution="chirale",
        ),
        Kind(
            "pico",
            CMSIS_SIZE,
            CORTEX_M,
            pico_values,
            Entry("pico"),
            section,
            templates=("sdk/pico",),
            source=("tflm",),
        ),
        Kind(
            "stm32",
            CMSIS_SIZE,
            CORTEX_M,
            stm32_values,
            Entry("stm32"),
            section,
            templates=("bare", "startup/stm32"),
            source=("tflm",),
        ),
        Kind(
            "zephyr",
            CMSIS,
            frozenset(),
            zephyr_values,
            Entry("zephyr"),
            zephyr_memory,
            folder="src/",
            distribution=ORIGINS["zephyr"].distribution,
        ),
        Kind(
            "platformio",
            CMSIS | ESP | {"arduino", "cmsis-nn:size"},
            CORTEX_M | ESPRESSIF,
            platformio_values,
            ARDUINO_ENTRY,
            section,
            folder="src/",
            suffix=".cpp",
        ),
        Kind(
            "qemu",
            CMSIS_SIZE,
            CORTEX_M,
            qemu_values,
            Entry("qemu", ONCE),
            section,
            templates=("bare", "startup/qemu"),
            source=("tflm",),
        ),
    )
}
"""Kinds of projects by their names for `--project`."""

FORMER_NAMES = {"cmake": "qemu"}


def project_kinds() -> list[str]:
    """The names of all kinds."""
    return list(KINDS)


def usual_kind(machine: Machine) -> str | None:
    """The usual kind of project for a board and its kernels; None without a board, or if there is none.

    The first one that runs on the board and gets TFLM from where the board's SDK does: Arduino for its library, Zephyr
    and ESP-IDF for their SDKs, the Pico SDK and bare parts of ST for their chips, PlatformIO for its boards;
    QEMU if none of them does.
    """
    board = machine.board
    if board is None:
        return None
    chip, ids = board.chip or board.name, ids_of(board)
    if ids.fqbn and _supports(KINDS["arduino"], machine):
        return "arduino"
    origin = board.distribution(machine.kernels.name)
    runs = {
        "esp-idf": True,
        "zephyr": True,
        "pico": chip in PICO_CHIPS,
        "stm32": chip in stm32_parts(),
        "platformio": bool(ids.platformio),
        "qemu": True,
    }
    usual = (name for name, does in runs.items() if does and KINDS[name].distribution == origin)
    return next((name for name in usual if _supports(KINDS[name], machine)), None)


def _supports(kind: Kind, machine: Machine) -> bool:
    try:
        kind.require(machine)
    except RequestError:
        return False
    return True


def kind_named(name: str) -> Kind:
    """Return a kind of project.

    Raises:
        RequestError: there is none with this name.
    """
    known = KINDS.get(FORMER_NAMES.get(name, name))
    if known is None:
        raise RequestError(f"unknown project {name!r}; use one of {', '.join(KINDS)}")
    return known
