"""Determine the TFLM, the kernels and the build options of a firmware's source tree."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tflm import releases
from tflm.firmware.source_flags import Dependency, Flag, build_facts
from tflm.firmware.source_tree import SourceCopy, source_copies
from tflm.releases import Release

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
        """What to pass to commands for the same firmware, other than `--source`."""
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
