"""`tflm wake-word`: list the tensor_arena_size of a microWakeWord model in ESPHome."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from tflm.application.errors import CheckFailed, OptionError, RequestError, option_errors
from tflm.application.machine import target_from
from tflm.application.models import load_model, title_of
from tflm.application.output_files import Written
from tflm.application.wake_word import MANIFEST_FIGURES, ManifestUpdate, figures, read_manifest, report
from tflm.cli.output import answer, progress
from tflm.cli.parameters import AsJson, ModelPath, ReleaseName, TargetName, flag, option
from tflm.firmware.wake_word import needs_in, size_for_all, tensor_arena_sizes
from tflm.report import document_of

CASES = 64
"""Approximate number of ESP-NN versions over all releases of ESPHome, for the progress bar."""


def wake_word(
    model: ModelPath,
    target: TargetName = None,
    release: ReleaseName = None,
    manifest: Annotated[
        Path | None, option("FILE", "The model's manifest: update its tensor_arena_size."), Written.UPDATED
    ] = None,
    check: Annotated[
        bool, flag("--check", "Write nothing; exit with status 1 if the manifest's size is too small.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """List tensor_arena_size for ESPHome; write or check it.

    The size works in all releases of ESPHome, unless --tflm names one. The chip is an esp32s3, unless --target names
    another one of Espressif's.

    \b
    Examples:
      tflm wake-word okay_nabu.tflite
      tflm wake-word okay_nabu.tflite --manifest okay_nabu.json
      tflm wake-word okay_nabu.tflite --manifest okay_nabu.json --check --tflm "esphome 2025.5"
    """
    if check and manifest is None:
        raise OptionError("--check needs a manifest; name it with --manifest FILE")
    machine = target_from(target or "esp32s3")
    loaded = load_model(model)
    described = None if manifest is None else read_manifest(manifest)
    with option_errors(), progress("laying out", CASES) as advance:
        needs = needs_in(tensor_arena_sizes(loaded, machine, advance), release)
    size = size_for_all(needs)
    told, shown = figures(model, machine.name, needs), report(title_of(model), machine.name, needs)
    update = None
    if described is not None:
        if size is not None and not check:
            described.write(size)
        update = ManifestUpdate(described, size, written=size is not None and not check)
        told["manifest"] = document_of(update, MANIFEST_FIGURES)
        shown.notes.extend(update.notes())
    answer(as_json, told, shown)
    if update is not None:
        _require_enough(update, check)


def _require_enough(update: ManifestUpdate, check: bool) -> None:
    path, had, size = update.manifest.path, update.manifest.size, update.size
    if size is None:
        raise RequestError(f"{path}: no release of ESPHome accepts this model")
    if check and not update.enough:
        found = "missing" if had is None else f"{had:,}"
        raise CheckFailed(f"{path}: tensor_arena_size is {found}; the model needs {size:,} bytes")
