"""The report and the JSON document of `tflm compress`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import tflm
from tflm.application.rewriting_report import Placed


def compression_figures(path: Path, compressed: tflm.CompressedModel, where: Placed) -> Any:
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
