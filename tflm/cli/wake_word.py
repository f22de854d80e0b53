"""`tflm wake-word`: the tensor_arena_size of a microWakeWord model in ESPHome."""

from __future__ import annotations

from typing import Any

import typer

from tflm.cli.command_line import (
    AsJson,
    ModelPath,
    TargetName,
    load_model,
    print_json,
    progress,
    show,
    target_from,
    title_of,
)
from tflm.errors import ArgumentError
from tflm.firmware.wake_word import Need, size_for_all, tensor_arena_sizes
from tflm.report import Column, Report, Table, with_thousands

CASES = 64
"""About how many versions of ESP-NN there are, over all releases of ESPHome."""


def wake_word(model: ModelPath, target: TargetName = None, as_json: AsJson = False) -> None:
    """List the tensor_arena_size that each ESPHome release needs.

    The chip is an esp32s3, unless --target names another one of Espressif's.

    \b
    Examples:
      tflm wake-word okay_nabu.tflite
      tflm wake-word okay_nabu.tflite --target esp32 --json
    """
    machine = target_from(target or "esp32s3")
    loaded = load_model(model)
    try:
        with progress("laying out", CASES) as advance:
            needs = tensor_arena_sizes(loaded, machine, advance)
    except ArgumentError as error:
        raise typer.BadParameter(str(error)) from None
    if as_json:
        print_json(
            {
                "model": str(model),
                "target": machine.name,
                "tensor_arena_size": size_for_all(needs),
                "releases": [_figures(need) for need in needs],
            }
        )
        return
    show(_report(title_of(model), machine.name, needs))


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


def _findings(need: Need) -> list[str]:
    """What else behaves differently there, each once."""
    return list(dict.fromkeys(f"{finding.operator} {finding.effect.value}" for finding in need.findings))


def _report(title: str, target: str, needs: list[Need]) -> Report:
    columns = {
        "ESPHome": Column.TEXT,
        "esp-tflite-micro": Column.TEXT,
        "ESP-NN": Column.TEXT,
        "tensor_arena_size": Column.NUMBER,
        "known issues": Column.TEXT,
    }
    rows = (
        (
            f"{need.first_esphome} to {need.last_esphome}" if need.last_esphome else f"{need.first_esphome} on",
            need.component,
            _versions(need),
            "refused" if need.tensor_arena_size is None else need.tensor_arena_size,
            ", ".join(_findings(need)),
        )
        for need in needs
    )
    size = size_for_all(needs)
    notes = [
        "Where several versions of ESP-NN are listed, ESPHome takes the newest one when a firmware is built.",
        "Which release of ESPHome was the first with ESP-NN 1.1.2, in April 2026, is not certain.",
        "tflm check explains what behaves differently: --kernels esp-nn@VERSION --tflm 'esphome RELEASE'.",
    ]
    notes += dict.fromkeys(f"refused: {need.refused}" for need in needs if need.refused)
    facts = [("works in all releases", "nothing" if size is None else f"tensor_arena_size {with_thousands(size)}")]
    return Report(f"{title} in ESPHome's micro_wake_word on {target}", facts, [Table("", columns, rows)], notes)


def _versions(need: Need) -> str:
    first, last = need.esp_nn[0], need.esp_nn[-1]
    return first if first == last else f"{first} to {last}"
