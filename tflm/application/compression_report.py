"""The report and the JSON document of `tflm compress`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tflm.application.flash_report import firmware_flash_bytes
from tflm.application.machine import Machine
from tflm.application.rewriting_report import Placed, smaller_figures
from tflm.errors import TflmError
from tflm.firmware.instructions import ENOUGH, decoding_instructions, estimate
from tflm.report import Report, json_key, machine_keys
from tflm.rewriting.compression import CompressedModel
from tflm.rewriting.compression.compression_report import CompressedTensor, shown
from tflm.runtime.micro_measurement_report import CHANGE_FIGURES
from tflm.schema.model import Model


def firmware_flash_change(model: Model, compressed: CompressedModel, machine: Machine) -> int | None:
    """Bytes by which the firmware's flash grows, negative if it shrinks: the model and the kernel of TFLM_DECODE.

    Assumes that nothing else in the firmware uses the kernel. None if flash is not known for the target and kernels.
    """
    if not compressed.tensors:
        return 0
    before, after = (firmware_flash_bytes(each, machine) for each in (model, compressed.model))
    return None if before is None or after is None else after - before


@dataclass(frozen=True)
class Decoding:
    """Estimated instructions of an inference that decode tensors.

    Attributes:
        by_tensor: for each compressed tensor.
        share: of all instructions of the inference; None if too few operators have a formula, or if other
            subgraphs decode.
    """

    by_tensor: Sequence[int]
    share: float | None

    def __str__(self) -> str:
        share = "" if self.share is None else f", {self.share:.0%} of the inference"
        return f"about {sum(self.by_tensor):,} instructions{share}"


def decoding(model: Model, compressed: CompressedModel, machine: Machine) -> Decoding | None:
    """Estimate what decoding costs; None if instructions are not known for the target and kernels."""
    target, kernels = machine.target, machine.kernels
    readers = sorted({(tensor.subgraph, reader) for tensor in compressed.tensors for reader in tensor.readers})
    operators = [(subgraph, reader + _inserted_before(readers, subgraph, reader)) for subgraph, reader in readers]
    try:
        by_operator = decoding_instructions(compressed.model, operators, target=target, kernels=kernels)
        before = estimate(model, target=target, kernels=kernels)
    except TflmError:
        return None
    by_tensor = dict.fromkeys(range(len(compressed.tensors)), 0)
    for (subgraph, reader), instructions in zip(readers, by_operator, strict=True):
        decoded = [
            index
            for index, tensor in enumerate(compressed.tensors)
            if tensor.subgraph == subgraph and reader in tensor.readers
        ]
        for index, count in zip(decoded, instructions, strict=True):
            by_tensor[index] += count
    total = sum(by_tensor.values())
    is_known = before.covered >= ENOUGH and not any(subgraph for subgraph, _ in readers)
    return Decoding(list(by_tensor.values()), total / (total + before.instructions) if is_known else None)


def _inserted_before(readers: Sequence[tuple[int, int]], subgraph: int, reader: int) -> int:
    """Number of TFLM_DECODEs that were inserted before the one of an operator."""
    return sum(each == subgraph and other < reader for each, other in readers)


def compression_report(
    compressed: CompressedModel, name: str, flash_change: int | None, cost: Decoding | None, is_limited: bool
) -> Report:
    """Report a compressed model and, if known, the change of the firmware's flash and the cost of decoding."""
    report = shown(compressed, name, is_limited, None if cost is None else cost.by_tensor)
    if compressed.tensors and cost is not None:
        report.facts.append(("  takes", str(cost)))
    before, after = compressed.minimum_arena_bytes_before, compressed.minimum_arena_bytes
    if after > before and not is_limited:
        report.notes.append(
            f"the arena grows from {before:,} to {after:,} bytes, for decoded weights; --ram limits it, and "
            "--decompression-memory decodes outside it"
        )
    if compressed.tensors and flash_change is not None:
        report.facts.append(("the firmware's flash", f"{flash_change:+,} B with the kernel of TFLM_DECODE"))
        if flash_change >= 0:
            report.notes.append(
                "the kernel of TFLM_DECODE takes more flash than the model saves; compress the model only if the "
                "firmware has that kernel for another model"
            )
    return report


COMPRESSION_FIGURES = (
    *machine_keys("after."),
    json_key("gains", bool, "whether anything is compressed", lambda found: bool(found.tensors)),
    *CHANGE_FIGURES,
    json_key("tensors", list[CompressedTensor], "the compressed tensors"),
    json_key("decompression_memory_bytes", int, "memory for decoded tensors outside the arena", "decompression_memory"),
    json_key("needed_operators", list[str], "operators that the resolver needs in addition to those of the original"),
    json_key("verified_inputs", int, "random inputs whose answers were compared; 0 if nothing is compressed"),
)
"""The figures of a compressed model; sizes in bytes."""


def compression_figures(
    path: Path, compressed: CompressedModel, flash_change: int | None, cost: Decoding | None, where: Placed
) -> dict[str, Any]:
    """Return the JSON document of a compressed model."""
    return {
        **smaller_figures(path, compressed, COMPRESSION_FIGURES, where),
        "firmware_flash_change_bytes": flash_change,
        "decoding_instructions": None if cost is None else list(cost.by_tensor),
        "decoding_share": None if cost is None else cost.share,
    }


def limits_missed(compressed: CompressedModel, ram: int | None, flash: int | None) -> list[str]:
    """Describe the limits that the model exceeds."""
    sizes = (("arena", "--ram", compressed.minimum_arena_bytes, ram), ("file", "--flash", len(compressed.data), flash))
    return [
        f"the smallest {what} found has {size:,} bytes, {size - limit:,} more than {option} {limit:,}"
        for what, option, size, limit in sizes
        if limit is not None and size > limit
    ]
