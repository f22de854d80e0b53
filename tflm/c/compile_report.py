"""The report of `tflm compile`, and its JSON document."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tflm.c.compile import CompiledModel, CompiledModels, Size
from tflm.c.instructions import COUNTED_BUILDS, Instructions
from tflm.c.kernel_choice import Place
from tflm.c.sizes import Build
from tflm.report import Report, with_thousands
from tflm.schedule.rows import Rows


def compile_report(model: CompiledModel) -> Report:
    """The sizes of a compiled model."""
    facts = [
        ("RAM", f"{with_thousands(model.ram_bytes)}, aligned to {model.ram_alignment}"),
        *_library_facts(model),
        *((f" optimized for {name}", _size(size)) for name, size in model.optimized().items()),
        *([] if model.warm_up is None else [("warm-up", f"{model.warm_up} invokes after a reset")]),
        ("constants", f"{with_thousands(model.constant_bytes)}"),
    ]
    if model.code_bytes is not None:
        for (part, optimization), size in model.code_bytes.items():
            facts.append((f" kernels, {part} {optimization}", with_thousands(size)))
    for (part, optimization), size in (model.stack_bounds or {}).items():
        facts.append((f" stack, {part} {optimization}", f"at most {size:,} B"))
    if model.instructions.total is None:
        facts.append(("instructions", _unknown(model.instructions)))
    for (part, optimization), count in (model.instructions.total or {}).items():
        facts.append((f" instructions, {part} {optimization}", f"about {count:,} for an invoke"))
    for stage in model.stages:
        places = _spans([(0, index) for index in operators_of(model, stage)])
        facts.append(("in bands of rows", f"operators {places}{_share(model, stage)}"))
    return Report(model.name, facts)


def _size(size: Size) -> str:
    count = "" if size.instructions is None else f", about {size.instructions:,} instructions, cortex-m4 -O2"
    return with_thousands(size.ram_bytes) + count


def _library_facts(model: CompiledModel) -> list[tuple[str, str]]:
    """Report which operators of a model call a library."""
    if model.generated_ram_bytes is None:
        return []
    operators = sum(map(len, model.program.bound.operators))
    return [
        (" with generated kernels", with_thousands(model.generated_ram_bytes)),
        ("CMSIS-NN", f"{model.library_operators} of {operators} operators"),
        *(
            (" generated: operators", f"{_spans(places)}: {reason}")
            for reason, places in _kept_by_reason(model).items()
        ),
    ]


def _kept_by_reason(model: CompiledModel) -> dict[str, list[Place]]:
    """Group the operators that use generated kernels in a model with a library, by reason."""
    found: dict[str, list[Place]] = {}
    for place, kept in model.kept_kernels.items():
        found.setdefault(kept.reason, []).append(place)
    return found


def _spans(places: Sequence[Place]) -> str:
    """Format operators as 0-4, 7. Operators outside of the first subgraph have its number in front, as in 1:0-4."""
    spans: list[list[Place]] = []
    for subgraph, index in places:
        if spans and spans[-1][-1] == (subgraph, index - 1):
            spans[-1].append((subgraph, index))
        else:
            spans.append([(subgraph, index)])
    return ", ".join(map(_span, spans))


def _span(places: Sequence[Place]) -> str:
    (subgraph, first), last = places[0], places[-1][1]
    return (f"{subgraph}:" if subgraph else "") + (str(first) if first == last else f"{first}-{last}")


def _unknown(instructions: Instructions) -> str:
    if not instructions.unknown:
        return "unknown: the model runs other subgraphs or calls library functions"
    return f"unknown: not counted for {', '.join(instructions.unknown)}"


def _share(model: CompiledModel, stage: Rows) -> str:
    """Format a stage's share of the instructions."""
    total, in_stage = model.instructions.total, stage_instructions(model, stage)
    if not total or not in_stage:
        return ""
    build = next(reversed(total))
    return f", {in_stage[build] / total[build]:.0%} of the instructions"


def operators_of(model: CompiledModel, stage: Rows) -> list[int]:
    """Return the indices of a stage's operators in the model before that was simplified."""
    return sorted({*model.origins[stage.first : stage.end]})


def stage_instructions(model: CompiledModel, stage: Rows) -> dict[Build, int]:
    """Return the instructions of a stage's operators; empty if an operator has no estimate."""
    known = [model.instructions.operators.get(index) for index in operators_of(model, stage)]
    found = [each for each in known if each is not None]
    if len(found) < len(known):
        return {}
    return {build: sum(each[build] for each in found) for build in COUNTED_BUILDS}


def compile_figures(paths: Sequence[Path], made: CompiledModels) -> dict[str, Any]:
    """Return the JSON document."""
    return {"models": [_figures(path, model) for path, model in zip(paths, made.models)], "files": list(made.files)}


def _figures(path: Path, model: CompiledModel) -> dict[str, Any]:
    return {
        "model": path,
        "name": model.name,
        "ram_bytes": model.ram_bytes,
        "ram_alignment": model.ram_alignment,
        "optimized": [{"optimize": name, **size._asdict()} for name, size in model.optimized().items()],
        "generated_ram_bytes": model.generated_ram_bytes,
        "library_operators": model.library_operators,
        "kept_kernels": [
            {"subgraph": subgraph, "index": index, "reason": kept.reason, "ratio": kept.ratio}
            for (subgraph, index), kept in model.kept_kernels.items()
        ],
        "warm_up": model.warm_up,
        "constant_bytes": model.constant_bytes,
        "stack_bytes": model.stack_bytes,
        "stack_bounds": _by_build(model.stack_bounds),
        "code_bytes": _by_build(model.code_bytes),
        "instructions": _by_build(model.instructions.total),
        "not_counted": list(model.instructions.unknown),
        "operators": [
            {"index": index, "instructions": _by_build(each)} for index, each in model.instructions.operators.items()
        ],
        "stages": [
            {
                "first": min(operators_of(model, stage)),
                "last": max(operators_of(model, stage)),
                "operators": operators_of(model, stage),
                "instructions": _by_build(stage_instructions(model, stage)),
            }
            for stage in model.stages
        ],
    }


def _by_build(figures: Mapping[Build, int] | None) -> dict[str, int]:
    return {" ".join(build): figure for build, figure in (figures or {}).items()}
