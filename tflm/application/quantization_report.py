"""The report and the JSON document of a quantization."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, NamedTuple

from tflm.application.flash_report import firmware_flash_bytes
from tflm.application.machine import TARGET_FIGURES, Machine
from tflm.evaluation.signal import SIGNAL_FIGURES, SignalLoss
from tflm.firmware.device_check import DeviceFinding
from tflm.quantization import QuantizedModel
from tflm.quantization.quantized_model import Alternative, FloatOperator
from tflm.report import NUMBER, TEXT, AnyFloat, Figure, Report, Table, document_of, json_key, with_thousands
from tflm.runtime.micro_measurement_report import FILE_CHANGE
from tflm.schema.model import Model

REJECTED = "rejected by the kernel library"


class FirmwareFlash(NamedTuple):
    """Flash of TFLM, the operators and the model, in bytes; None if unknown.

    Attributes:
        before, after: with the float model, and with the quantized one.
    """

    before: int | None
    after: int | None


def firmware_flash(model: Model, found: QuantizedModel, machine: Machine) -> FirmwareFlash:
    """Flash of the firmware with a float model and with its quantized form."""
    return FirmwareFlash(*(firmware_flash_bytes(each, machine) for each in (model, found.model)))


QUANTIZATION_FIGURES = (
    json_key("samples", int, "samples that the scales come from"),
    json_key("activations", Literal["int8", "int16"], "type of the activations", "recipe.activations"),
    json_key("weights", Literal["int8", "int4"], "type of the weights", "recipe.weights"),
    json_key(
        "int8_weights",
        list[str],
        "operators whose weights have 8 bits although 4 were requested",
        lambda found: sorted(found.recipe.without_int4),
    ),
    json_key("float_operators", list[FloatOperator], "operators that stay float"),
    json_key(
        "minimum_arena_bytes_before", int | None, "arena of the float model; null if the kernel library rejects it"
    ),
    json_key("minimum_arena_bytes", int | None, "that of the quantized model, likewise"),
    *FILE_CHANGE.keys,
    json_key(
        "accuracy_before",
        AnyFloat | None,
        "share of samples that the float model classifies correctly, 0 to 1; null without labels",
        "evaluation_before.accuracy",
    ),
    json_key("accuracy", AnyFloat | None, "the same of the quantized model", "evaluation.accuracy"),
    json_key("worst", list[SignalLoss], "the operators that lose most", lambda found: found.worst()),
    json_key("alternatives", list[Alternative], "the effect of int16 activations"),
    json_key("findings", list[DeviceFinding], "what behaves differently on the device"),
)
"""The figures of a quantized model; sizes in bytes."""


def quantization_figures(
    path: Path, found: QuantizedModel, machine: Machine, flash: FirmwareFlash, written: bool
) -> dict[str, Any]:
    """Return the JSON document of a quantization."""
    return {
        "model": path,
        **document_of(machine, TARGET_FIGURES),
        **document_of(found, QUANTIZATION_FIGURES),
        "firmware_flash_bytes_before": flash.before,
        "firmware_flash_bytes": flash.after,
        "written": written,
    }


def quantization_report(title: str, found: QuantizedModel, machine: Machine, flash: FirmwareFlash) -> Report:
    """Report a quantized model: its cost before and after, what stays float, and what it loses."""
    size, before = len(found.data), found.file_bytes_before
    facts = [
        ("types", f"{found.recipe.activations} activations, {_weights(found)} weights"),
        ("calibration", f"{found.samples:,} sample{'s' if found.samples > 1 else ''}"),
        ("arena", f"{_arena(found.minimum_arena_bytes_before)}, now {_arena(found.minimum_arena_bytes)}"),
        ("file", f"{with_thousands(before)}, now {with_thousands(size)} ({size / before - 1:+.1%})"),
    ]
    if flash.before is not None and flash.after is not None:
        flashed = f"{with_thousands(flash.before)}, now {with_thousands(flash.after)}, with TFLM and its kernels"
        facts.append(("firmware's flash", flashed))
    if found.evaluation_before is not None and found.evaluation is not None:
        shares = f"{_share(found.evaluation_before.accuracy)}, now {_share(found.evaluation.accuracy)}"
        facts.append(("accuracy", shares))
    tables = [table for table in (_float_table(found), _worst_table(found), _alternatives_table(found)) if table.rows]
    notes = [f"{finding.operator or 'model'}: {finding.happens} {finding.advice}" for finding in found.findings]
    return Report(f"{title} for {machine.place} with {machine.kernels.name} kernels", facts, tables, notes)


def _weights(found: QuantizedModel) -> str:
    without = ", ".join(sorted(found.recipe.without_int4))
    return f"{found.recipe.weights} (int8 in {without})" if without else found.recipe.weights


def _arena(size: int | None) -> str:
    return REJECTED if size is None else with_thousands(size)


def _share(accuracy: float | None) -> str:
    return "unknown" if accuracy is None else f"{accuracy:.2%}"


def _float_table(found: QuantizedModel) -> Table:
    columns = {"operator": TEXT, "reason": TEXT}
    return Table("Operators that stay float", columns, [tuple(each) for each in found.float_operators])


def _worst_table(found: QuantizedModel) -> Table:
    return Table.of("Operators that lose most", found.worst(), *SIGNAL_FIGURES)


def _alternatives_table(found: QuantizedModel) -> Table:
    return Table.of(
        "Effect of int16 activations",
        found.alternatives,
        Figure("activations", TEXT, "name"),
        Figure("accuracy", NUMBER, "accuracy", ".2%"),
        Figure("arena", NUMBER, "minimum_arena_bytes"),
        Figure("file", NUMBER, "file_bytes"),
        Figure("rejected because", TEXT, "reason"),
    )
