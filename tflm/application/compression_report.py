"""The report and the JSON document of `tflm compress`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import tflm
from tflm.application.machine import Machine
from tflm.application.rewriting_report import Placed
from tflm.report import Report
from tflm.rewriting.compression.compression_report import shown


def firmware_flash_change(model: tflm.Model, compressed: tflm.CompressedModel, machine: Machine) -> int | None:
    """Bytes by which the firmware's flash grows, negative if it shrinks: the model and the kernel of TFLM_DECODE.

    Assumes that nothing else in the firmware uses the kernel. None if flash is not known for the target and kernels.
    """
    if not compressed.tensors:
        return 0
    before, after = (_flash_bytes(each, machine) for each in (model, compressed.model))
    return None if before is None or after is None else after - before


def _flash_bytes(model: tflm.Model, machine: Machine) -> int | None:
    """Flash of TFLM, the operators and the model; None if unknown."""
    try:
        found = tflm.flash(model, target=machine.target, kernels=machine.kernels)
    except tflm.TflmError:
        return None
    return None if found.flash_bytes is None else found.flash_bytes + found.model_bytes


def compression_report(
    compressed: tflm.CompressedModel, name: str, flash_change: int | None, is_limited: bool
) -> Report:
    """Report a compressed model and, if known, the change of the firmware's flash."""
    report = shown(compressed, name, is_limited)
    if compressed.tensors and flash_change is not None:
        report.facts.append(("the firmware's flash", f"{flash_change:+,} B with the kernel of TFLM_DECODE"))
        if flash_change >= 0:
            report.notes.append(
                "the kernel of TFLM_DECODE takes more flash than the model saves; compress the model only if the "
                "firmware has that kernel for another model"
            )
    return report


def compression_figures(path: Path, compressed: tflm.CompressedModel, flash_change: int | None, where: Placed) -> Any:
    """Return the JSON document of a compressed model; sizes in bytes."""
    return {
        **where.figures(),
        "model": str(path),
        "target": compressed.after.target.name,
        "kernels": compressed.after.kernels.name,
        "release": compressed.after.kernels.release.name,
        "gains": bool(compressed.tensors),
        "file_bytes_before": compressed.file_bytes_before,
        "file_bytes": len(compressed.data),
        "firmware_flash_change_bytes": flash_change,
        "minimum_arena_bytes_before": compressed.minimum_arena_bytes_before,
        "minimum_arena_bytes": compressed.minimum_arena_bytes,
        "head_bytes_before": compressed.before.head_bytes,
        "head_bytes": compressed.after.head_bytes,
        "tail_bytes_before": compressed.before.tail_bytes,
        "tail_bytes": compressed.after.tail_bytes,
        "tensors": list(compressed.tensors),
        "needed_operators": list(compressed.needed_operators),
        "verified_inputs": compressed.verified_inputs,
    }


def limits_missed(compressed: tflm.CompressedModel, ram: int | None, flash: int | None) -> list[str]:
    """Describe the limits that the model exceeds."""
    sizes = (("arena", "--ram", compressed.minimum_arena_bytes, ram), ("file", "--flash", len(compressed.data), flash))
    return [
        f"the smallest {what} found has {size:,} bytes, {size - limit:,} more than {option} {limit:,}"
        for what, option, size, limit in sizes
        if limit is not None and size > limit
    ]
