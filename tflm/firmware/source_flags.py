"""Read flags, kernels and component versions from the build files of a firmware's source tree."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tflm.firmware.source_text import files_below

LARGEST_BUILD_FILE = 1 << 20
"""Maximum bytes read from a build file."""

BUILD_FILES = re.compile(
    r"(CMakeLists\.txt|.*\.cmake|Makefile|.*\.mk|.*\.inc|library\.(json|properties)|platform\.txt|platformio\.ini|"
    r"prj\.conf|.*\.conf|sdkconfig(\..*)?|\.config|Kconfig.*|component\.mk|idf_component\.yml|dependencies\.lock|"
    r"module\.yml)$"
)
LEFT_OUT = frozenset({"build", "examples"})
"""Folders whose build files do not belong to the firmware."""


class Flag(NamedTuple):
    """A setting in a build file.

    Attributes:
        name: TF_LITE_STATIC_MEMORY, ESP_NN, CMSIS_NN and so on.
        value: its value.
        path: the file, relative to the searched folder.
    """

    name: str
    value: str
    path: str


class Dependency(NamedTuple):
    """A version, or a range of versions, of a component.

    Attributes:
        name: esp-nn or esp-tflite-micro.
        version: the text in the file.
        is_exact: whether the build uses exactly this version; otherwise the newest of a range.
        path: the file, relative to the searched folder.
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
    """Flags and dependencies in the build files below a folder, in the order of their paths."""
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
    """Components in a manifest or lock file, with the version on the same line or a following one."""
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
