"""Projects for ESP-IDF: a component, its settings and partitions."""

from __future__ import annotations

import re

from tflm.application.errors import RequestError
from tflm.application.projects.build import Build

PARTITION_TABLE_BYTES = 64 << 10
"""Bytes before the program in an Espressif chip's flash: boot loader, partition table and settings."""

REFERENCE_KERNELS = """
# The component compiles ESP-NN's kernels: TFLM's own take their place.
idf_component_get_property(COMPONENT espressif__esp-tflite-micro COMPONENT_LIB)
idf_component_get_property(FOLDER espressif__esp-tflite-micro COMPONENT_DIR)
get_target_property(SOURCES ${COMPONENT} SOURCES)
list(FILTER SOURCES EXCLUDE REGEX "/kernels/esp_nn/")
foreach(KERNEL add conv depthwise_conv fully_connected mul pooling softmax)
  list(APPEND SOURCES ${FOLDER}/tensorflow/lite/micro/kernels/${KERNEL}.cc)
endforeach()
set_target_properties(${COMPONENT} PROPERTIES SOURCES "${SOURCES}")"""


def esp_values(build: Build) -> dict[str, str]:
    """Values for the templates of ESP-IDF."""
    board, target = build.machine.board, build.machine.target.name
    in_psram = any(each.bank is not None and each.bank.is_external for each in build.placements)
    flash = None if board is None else board.flash_bytes
    settings = [f'CONFIG_IDF_TARGET="{target}"', "CONFIG_ESP_MAIN_TASK_STACK_SIZE=8192"]
    if build.kernels == "esp-nn:ansi":
        settings.append("CONFIG_NN_ANSI_C=y")
    if flash:
        settings += [f"CONFIG_ESPTOOLPY_FLASHSIZE_{flash >> 20}MB=y", "CONFIG_PARTITION_TABLE_CUSTOM=y"]
        settings.append('CONFIG_PARTITION_TABLE_CUSTOM_FILENAME="partitions.csv"')
    else:
        settings.append("CONFIG_PARTITION_TABLE_SINGLE_APP_LARGE=y")
    if in_psram:
        settings += ["CONFIG_SPIRAM=y", "CONFIG_SPIRAM_ALLOW_BSS_SEG_EXTERNAL_MEMORY=y"]
        if target == "esp32s3":
            settings.append("CONFIG_SPIRAM_MODE_OCT=y")
    version = build.machine.kernels.name.partition("@")[2]
    return {
        "chip": target,
        "after_project": REFERENCE_KERNELS if build.kernels == "reference" else "",
        "component": _component_version(build) if build.compiled is None else "",
        "esp_nn": f'  espressif/esp-nn: "=={version}"' if version else "",
        "sdkconfig": "\n".join(settings),
        "partitions": _partitions(flash) if flash else "",
    }


def _component_version(build: Build) -> str:
    """The version for the component manager: 1.3.3~1 is 1.3.3.1.

    Raises:
        RequestError: the component has no such version, but only a commit.
    """
    contained = build.machine.kernels.release.distribution
    version = "" if contained is None else contained.version
    if not re.fullmatch(r"[0-9]+(\.[0-9]+){2,3}", version):
        raise RequestError(
            f"the component manager has no version {version!r} of esp-tflite-micro; use one such as 1.3.8"
        )
    numbers = version.split(".")
    return "==" + ".".join(numbers[:3]) + "".join(f"~{number}" for number in numbers[3:])


def _partitions(flash: int) -> str:
    size = flash - PARTITION_TABLE_BYTES
    return (
        "# Name, Type, SubType, Offset, Size\n"
        "nvs, data, nvs, 0x9000, 0x6000\n"
        "phy_init, data, phy, 0xf000, 0x1000\n"
        f"factory, app, factory, {PARTITION_TABLE_BYTES:#x}, {size:#x}"
    )
