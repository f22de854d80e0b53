"""What `tflm compile` says of the models that it compiled."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tflm.c.compile import CompiledModel, CompiledModels
from tflm.report import Report, with_thousands


def compile_report(model: CompiledModel) -> Report:
    """The sizes of a compiled model."""
    facts = [
        ("RAM", f"{with_thousands(model.ram_bytes)}, aligned to {model.ram_alignment}"),
        ("constants", f"{with_thousands(model.constant_bytes)}"),
    ]
    if model.code_bytes is not None:
        for (part, optimization), size in model.code_bytes.items():
            facts.append((f" kernels, {part} {optimization}", with_thousands(size)))
    if model.stack_bytes is not None:
        facts.append(("stack", f"at most {with_thousands(model.stack_bytes)} on Cortex-M"))
    for stage in model.stages:
        facts.append(("in bands of rows", f"operators {stage.first} to {stage.end - 1}"))
    if model.extra_macs:
        facts.append(("extra work", f"{model.extra_macs:.1%}"))
    return Report(model.name, facts)


def compile_figures(paths: Sequence[Path], made: CompiledModels) -> dict[str, Any]:
    """The same for `--json`."""
    return {"models": [_figures(path, model) for path, model in zip(paths, made.models)], "files": list(made.files)}


def _figures(path: Path, model: CompiledModel) -> dict[str, Any]:
    return {
        "model": path,
        "name": model.name,
        "ram_bytes": model.ram_bytes,
        "ram_alignment": model.ram_alignment,
        "constant_bytes": model.constant_bytes,
        "stack_bytes": model.stack_bytes,
        "code_bytes": {" ".join(build): size for build, size in (model.code_bytes or {}).items()},
        "extra_macs": model.extra_macs,
        "stages": [{"first": stage.first, "last": stage.end - 1} for stage in model.stages],
    }
