"""The report of `tflm compile`, and its JSON document."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tflm.c import source
from tflm.c.compile import CompiledModel, CompiledModels, Size
from tflm.c.control_flow import calls_in
from tflm.c.instructions import COUNTED_BUILDS, Instructions
from tflm.c.kernel_choice import Place
from tflm.c.program import KernelCall, OperatorCode
from tflm.c.sizes import Build
from tflm.report import NAME, NUMBER, Figure, Report, Table, with_thousands
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


@dataclass(frozen=True)
class OperatorWork:
    """What an operator of a model does in the program.

    Attributes:
        index: of the operator in the main subgraph.
        operator: its name, or those that stand for it.
        kernels: the C functions that it calls.
        instructions: of its kernels, for each processor and optimization; empty if they were not counted.
    """

    index: int
    operator: str
    kernels: list[str]
    instructions: dict[str, int]


def operators_work(model: CompiledModel) -> list[OperatorWork]:
    """Return the work of each operator of the main subgraph, in order."""
    found: dict[int, list[OperatorCode]] = {}
    for code in model.program.subgraphs[0]:
        if isinstance(code, OperatorCode):
            found.setdefault(model.program.number_of(code.operator), []).append(code)
    return [
        OperatorWork(
            index,
            ", ".join(dict.fromkeys(code.operator.node.operator for code in codes)),
            list(
                dict.fromkeys(source.name_of(c.kernel) for code in codes for c in calls_in(code.statements, KernelCall))
            ),
            _by_build(model.instructions.operators.get(index)),
        )
        for index, codes in sorted(found.items())
    ]


def work_report(model: CompiledModel) -> Report:
    """The instructions of each operator's kernels in a compiled model."""
    facts = [("RAM", with_thousands(model.ram_bytes))]
    if model.instructions.total is None:
        facts.append(("instructions", _unknown(model.instructions)))
    total = _by_build(model.instructions.total)
    facts += [(f"instructions, {build}", f"about {count:,}") for build, count in total.items()]
    last = " ".join(COUNTED_BUILDS[-1])
    table = Table.of(
        "",
        operators_work(model),
        Figure("#", NUMBER, "index"),
        Figure("operator", NAME, "operator"),
        *(Figure(build[1], NUMBER, _counted(build)) for build in COUNTED_BUILDS),
        Figure("share", NUMBER, lambda work: _part(work.instructions.get(last), total.get(last)), ".1%"),
        Figure("kernels", NAME, lambda work: " ".join(work.kernels)),
    )
    return Report(model.name, facts, [table])


def _counted(build: Build) -> Callable[[OperatorWork], int | None]:
    return lambda work: work.instructions.get(" ".join(build))


def _part(count: int | None, total: int | None) -> float | None:
    return None if count is None or not total else count / total


def work_figures_of(path: Path, model: CompiledModel) -> dict[str, Any]:
    """Return the JSON document of `work_report`."""
    return {
        "model": path,
        "ram_bytes": model.ram_bytes,
        "instructions": _by_build(model.instructions.total),
        "not_counted": list(model.instructions.unknown),
        "operators": [vars(work) for work in operators_work(model)],
    }


def _by_build(figures: Mapping[Build, int] | None) -> dict[str, int]:
    return {" ".join(build): figure for build, figure in (figures or {}).items()}
