"""Determine the TFLM, the kernels and the build options of a firmware's source tree."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from tflm import releases
from tflm.firmware.source_tree import SourceCopy, files_below, source_copies
from tflm.releases import Release

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


RECOGNIZED = 0.5
"""Share of files that must match before a version is reported."""


@dataclass(frozen=True)
class FirmwareTree:
    """The TFLM, kernels and build options found in a source tree.

    Attributes:
        folder: the argument.
        copies: copies of TFLM, CMSIS-NN and ESP-NN, identified by the hashes of their files.
        flags, dependencies: flags and dependencies in its build files.
        release: the TFLM release; None if there is none or it is unknown.
        kernels: the kernel library, with its version if known.
        reasons: assumptions for whatever the tree does not determine.
    """

    folder: str
    copies: tuple[SourceCopy, ...]
    flags: tuple[Flag, ...]
    dependencies: tuple[Dependency, ...]
    release: Release | None
    kernels: str
    reasons: tuple[str, ...]

    @property
    def options(self) -> str:
        """The options for commands about the same firmware, other than `--source`."""
        tflm = f"--tflm {self.release.commit} " if self.release is not None else ""
        return f"{tflm}--kernels {self.kernels}"


def firmware_tree(folder: str | Path) -> FirmwareTree:
    """Look at a firmware's sources: an ESP-IDF project, a Zephyr workspace, an Arduino sketchbook, an SDK.

    Raises:
        ArgumentError: it is not a folder.
    """
    path = Path(folder)
    copies = tuple(source_copies(path))
    flags, dependencies = build_facts(path)
    reasons = [
        f"{copy.project} in {copy.folder or '.'} has an unknown version ({copy.matching} of {copy.files} files match)"
        for copy in copies
        if copy.confidence < RECOGNIZED
    ]
    release = _release(copies, flags, dependencies, reasons)
    kernels = _kernels(copies, flags, dependencies, reasons)
    return FirmwareTree(str(folder), copies, tuple(flags), tuple(dependencies), release, kernels, tuple(reasons))


def _of(project: str, copies: tuple[SourceCopy, ...]) -> SourceCopy | None:
    return next((copy for copy in copies if copy.project == project and copy.confidence >= RECOGNIZED), None)


def _locked(component: str, dependencies: list[Dependency]) -> Dependency | None:
    """The version of a component that the build uses."""
    return next((found for found in dependencies if found.name == component and found.is_exact), None)


def _release(
    copies: tuple[SourceCopy, ...], flags: list[Flag], dependencies: list[Dependency], reasons: list[str]
) -> Release | None:
    static_memory = any(flag.name == "TF_LITE_STATIC_MEMORY" for flag in flags)
    copy = _of("tflm", copies)
    if copy is not None:
        if not static_memory:
            reasons.append("no build file defines TF_LITE_STATIC_MEMORY: assumed to be built without it")
        return releases.by_name(copy.last, static_memory=static_memory)
    locked = _locked("esp-tflite-micro", dependencies)
    if locked is not None:
        reasons.append(f"TFLM's sources were not found: using esp-tflite-micro {locked.version} from {locked.path}")
        return releases.by_name(f"esp-tflite-micro {locked.version}")
    reasons.append("TFLM was not found: use --tflm, or another folder")
    return None


def _kernels(
    copies: tuple[SourceCopy, ...], flags: list[Flag], dependencies: list[Dependency], reasons: list[str]
) -> str:
    named = {flag.name: flag.value for flag in flags}
    esp_nn, cmsis_nn = _of("esp-nn", copies), _of("cmsis-nn", copies)
    esp_nn_locked = _locked("esp-nn", dependencies)
    if "ESP_NN" in named or esp_nn is not None or esp_nn_locked is not None:
        library = "esp-nn:ansi" if "CONFIG_NN_ANSI_C" in named else "esp-nn"
        if esp_nn is not None:
            return f"{library}@{esp_nn.last}"
        if esp_nn_locked is not None:
            reasons.append(f"ESP-NN's sources were not found: using the version in {esp_nn_locked.path}")
            return f"{library}@{esp_nn_locked.version}"
        wanted = next((found for found in dependencies if found.name == "esp-nn"), None)
        span = f"; {wanted.path} asks for {wanted.version}" if wanted is not None else ""
        reasons.append(f"neither ESP-NN's sources nor a dependencies.lock was found{span}: its version is unknown")
        return library
    if cmsis_nn is not None and named.get("CONFIG_TENSORFLOW_LITE_MICRO_CMSIS_NN_KERNELS") != "n":
        library = "cmsis-nn:size" if "KERNELS_OPTIMIZED_FOR_SIZE" in named else "cmsis-nn"
        return f"{library}@{cmsis_nn.last}"
    if "CMSIS_NN" in named:
        reasons.append("CMSIS-NN's sources were not found or are unknown: assuming the release's version")
        return "cmsis-nn"
    return "reference"
