"""Report and JSON document of `tflm wake-word`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tflm.application.wake_word_manifest import Manifest
from tflm.firmware.wake_word import Need, size_for_all
from tflm.report import NUMBER, TEXT, Figure, Report, Table, with_thousands


def figures(model: Path, target: str, needs: list[Need]) -> dict[str, Any]:
    """Return the JSON document."""
    return {
        "model": model,
        "target": target,
        "tensor_arena_size": size_for_all(needs),
        "releases": [_figures(need) for need in needs],
    }


def _figures(need: Need) -> dict[str, Any]:
    return {
        "first_esphome": need.first_esphome,
        "last_esphome": need.last_esphome or None,
        "esp_tflite_micro": need.component,
        "esp_nn": need.esp_nn,
        "pinned": need.is_pinned,
        "tensor_arena_size": need.tensor_arena_size,
        "refused": need.refused,
        "findings": _findings(need),
    }


def manifest_figures(manifest: Manifest, size: int | None, written: bool) -> dict[str, Any]:
    """Return the JSON document of a manifest.

    Args:
        size: the `tensor_arena_size` that is needed; None if there is none.
        written: whether it is written.
    """
    return {
        "path": manifest.path,
        "tensor_arena_size": manifest.size,
        "enough": manifest.size is not None and size is not None and manifest.size >= size,
        "written": written and size is not None,
    }


def manifest_notes(manifest: Manifest, size: int | None, written: bool) -> Iterator[str]:
    """Describe the same in notes."""
    has = "no tensor_arena_size" if manifest.size is None else f"tensor_arena_size {manifest.size:,}"
    if size is None:
        return
    if manifest.size is None or manifest.size < size:
        yield (
            f"{manifest.path} had {has}: with less than {size:,}, the model fails to load, and ESPHome logs that its "
            "tensors cannot be allocated."
        )
    elif manifest.size > size:
        yield f"{manifest.path} had {has}: {manifest.size - size:,} bytes of RAM more than the model needs."
    else:
        yield f"{manifest.path} had {has}, which is exact."
    if written:
        yield f"wrote tensor_arena_size {size:,} to {manifest.path}; the rest of the file is unchanged."


def _findings(need: Need) -> list[str]:
    """Return what else behaves differently there, without duplicates."""
    return list(dict.fromkeys(f"{finding.operator} {finding.effect.text}" for finding in need.findings))


def _esphome_versions(need: Need) -> str:
    return f"{need.first_esphome} to {need.last_esphome}" if need.last_esphome else f"{need.first_esphome} on"


def report(title: str, target: str, needs: list[Need]) -> Report:
    """Report a row for each group of releases."""
    table = Table.of(
        "",
        needs,
        Figure("ESPHome", TEXT, _esphome_versions),
        Figure("esp-tflite-micro", TEXT, "component"),
        Figure("ESP-NN", TEXT, _versions),
        Figure("tensor_arena_size", NUMBER, lambda need: need.tensor_arena_size or "refused"),
        Figure("known issues", TEXT, lambda need: ", ".join(_findings(need))),
    )
    size = size_for_all(needs)
    notes = [
        "If several versions of ESP-NN are listed, ESPHome uses the newest one when a firmware is built.",
        "In ESPHome 2026.4, only the beta 2026.4.0b2 contained ESP-NN 1.2.1; 2026.4.0 reverted to 1.1.2.",
        "tflm check explains what behaves differently: --kernels esp-nn@VERSION --tflm 'esphome RELEASE'.",
    ]
    notes += dict.fromkeys(f"refused: {need.refused}" for need in needs if need.refused)
    facts = [
        ("works in all of these releases", "nothing" if size is None else f"tensor_arena_size {with_thousands(size)}")
    ]
    return Report(f"{title} in ESPHome's micro_wake_word on {target}", facts, [table], notes)


def _versions(need: Need) -> str:
    first, last = need.esp_nn[0], need.esp_nn[-1]
    return first if first == last else f"{first} to {last}"
