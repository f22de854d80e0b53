"""Read flags, kernels and component versions from the build files of a firmware's source tree."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tflm.firmware.source_text import files_below

LARGEST_BUILD_FILE = 1 << 20
"""Bytes of a build file that are read."""

BUILD_FILES = re.compile(
    r"(CMakeLists\.txt|.*\.cmake|Makefile|.*\.mk|.*\.inc|library\.(json|properties)|platform\.txt|platformio\.ini|"
    r"prj\.conf|.*\.conf|sdkconfig(\..*)?|\.config|Kconfig.*|component\.mk|idf_component\.yml|dependencies\.lock|"
    r"module\.yml)$"
)
LEFT_OUT = frozenset({"build", "examples"})
"""Folders whose build files are not those of the firmware."""


class Flag(NamedTuple):
    """Something that a build file says.

    Attributes:
        name: TF_LITE_STATIC_MEMORY, ESP_NN, CMSIS_NN and so on.
        value: what it is set to.
        path: the file, from the folder that was looked at.
    """

    name: str
    value: str
    path: str


class Dependency(NamedTuple):
    """A version, or a range of versions, of a component.

    Attributes:
        name: esp-nn or esp-tflite-micro.
        version: as the file has it.
        is_exact: whether it is what the build takes; else a range, of which it takes the newest.
        path: the file, from the folder that was looked at.
    """

    name: str
    version: str
    is_exact: bool
    path: str


_FLAGS = {
    "TF_LITE_STATIC_MEMORY": re.compile(r"TF_LITE_STATIC_MEMORY"),
    "KERNELS_OPTIMIZED_FOR_SIZE": re.compile(r"KERNELS_OPTIMIZED_FOR_SIZE"),
    "ESP_NN": re.compile(r"-D\s*ESP_NN\b"),
    "CMSIS_NN": re.compile(r"-D\s*CMSIS_NN\b|\bCMSIS_NN=1\b|OPTIMIZED_KERNEL_DIR\s*[:?]?=\s*cmsis_nn"),
    "CONFIG_NN_ANSI_C": re.compile(r"^CONFIG_NN_ANSI_C=(y)\s*$", re.MULTILINE),
    "CONFIG_TENSORFLOW_LITE_MICRO_CMSIS_NN_KERNELS": re.compile(
        r"^CONFIG_TENSORFLOW_LITE_MICRO_CMSIS_NN_KERNELS=(y|n)\s*$", re.MULTILINE
    ),
}
_COMPONENT = re.compile(r"^\s*(?:espressif/)?(esp-nn|esp-tflite-micro)\s*:\s*(.*)$")
_VERSION = re.compile(r"""^\s*version\s*:\s*["']?([^"'#\n]+)""")


def build_facts(folder: Path) -> tuple[list[Flag], list[Dependency]]:
    """What the build files below a folder say, in the order of their paths."""
    flags: dict[Flag, None] = {}
    dependencies: dict[Dependency, None] = {}
    for path in files_below(folder, lambda name: BUILD_FILES.match(name) is not None, LEFT_OUT):
        text = _text_of(folder / path)
        flags.update(dict.fromkeys(_flags_of(text, path)))
        if path.endswith((".yml", ".lock")):
            dependencies.update(dict.fromkeys(_dependencies_of(text, path)))
    return list(flags), list(dependencies)


def _text_of(path: Path) -> str:
    try:
        if not path.is_file():
            return ""
        with open(path, "rb") as file:
            return file.read(LARGEST_BUILD_FILE).decode("utf-8", "replace")
    except OSError:
        return ""


def _flags_of(text: str, path: str) -> Iterator[Flag]:
    for name, pattern in _FLAGS.items():
        found = pattern.search(text)
        if found is not None:
            yield Flag(name, found.group(1) if found.groups() else "1", path)


def _dependencies_of(text: str, path: str) -> Iterator[Dependency]:
    """Components that a manifest or a lock file names, each with its version on its line, or on one below."""
    component, is_lock = None, path.endswith(".lock")
    for line in text.splitlines():
        named = _COMPONENT.match(line)
        if named is not None:
            component = named.group(1)
            version = named.group(2).strip().strip("\"'")
            if version and version[0] not in "{#":
                yield Dependency(component, version, is_lock, path)
                component = None
            continue
        version_line = _VERSION.match(line)
        if component is not None and version_line is not None:
            yield Dependency(component, version_line.group(1).strip(), is_lock, path)
            component = None
