"""The report of `tflm compile`, and its JSON document."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from tflm.c import source
from tflm.c.compile import CompiledModel, CompiledModels, Size
from tflm.c.control_flow import calls_in
from tflm.c.instructions import COUNTED_BUILDS, Instructions
from tflm.c.kernel_choice import Place
from tflm.c.program import KernelCall, OperatorCode
from tflm.c.sizes import Build
from tflm.report import NAME, NUMBER, Figure, Report, Table, document_of, json_key, with_thousands


def compile_report(model: CompiledModel) -> Report:
    """The sizes of a compiled model."""
    facts = [
        ("RAM", f"{with_thousands(model.ram_bytes)}, aligned to {model.ram_alignment}"),
        *_library_facts(model),
        *((f" optimized for {name}", _size(size)) for name, size in model.optimized().items()),
        *([] if model.warm_up is None else [("warm-up", f"{model.warm_up} invokes after a reset")]),
        ("constants", f"{with_thousands(model.constant_bytes)}"),
    ]
    facts += [(f" kernels, {build}", with_thousands(size)) for build, size in _by_build(model.code_bytes).items()]
    facts += [(f" stack, {build}", f"at most {size:,} B") for build, size in _by_build(model.stack_bounds).items()]
    if model.instructions.total is None:
        facts.append(("instructions", _unknown(model.instructions)))
    for build, count in _by_build(model.instructions.total).items():
        facts.append((f" instructions, {build}", f"about {count:,} for an invoke"))
    for stage in stages_work(model):
        places = _spans([(0, index) for index in stage.operators])
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
        return "unknown: the model calls library functions"
    return f"unknown: not counted for {', '.join(instructions.unknown)}"


def _share(model: CompiledModel, stage: StageWork) -> str:
    """Format a stage's share of the instructions."""
    total = _by_build(model.instructions.total)
    if not total or not stage.instructions:
        return ""
    build = next(reversed(total))
    return f", {stage.instructions[build] / total[build]:.0%} of the instructions"


class StageWork(NamedTuple):
    """A stage of a program.

    Attributes:
        first: the first operator of a stage whose operators take turns.
        last: the last one.
        operators: all of them.
        instructions: instructions of these operators, likewise.
    """

    first: int
    last: int
    operators: list[int]
    instructions: dict[str, int]


def stages_work(model: CompiledModel) -> list[StageWork]:
    """Return the stages of a program, with operators as numbered in the model before that was simplified."""
    found = []
    for stage in model.stages:
        operators = sorted({*model.origins[stage.first : stage.end]})
        known = [each for each in map(model.instructions.operators.get, operators) if each is not None]
        counted = COUNTED_BUILDS if len(known) == len(operators) else ()
        sums = {build: sum(each[build] for each in known) for build in counted}
        found.append(StageWork(operators[0], operators[-1], operators, _by_build(sums)))
    return found


TOTAL_FIGURES = (
    json_key(
        "instructions",
        dict[str, int],
        "instructions of an invoke by formulas, by part and optimization; none if a kernel was not counted",
        lambda model: _by_build(model.instructions.total),
    ),
    json_key("not_counted", list[str], "the kernels that were not counted", "instructions.unknown"),
)
"""The instructions of a compiled model."""

MODEL_FIGURES = (
    json_key("name", str, "the prefix of its functions and files"),
    json_key("ram_bytes", int, "RAM that the caller supplies, of all memories together"),
    json_key("ram_alignment", int, "its alignment, in bytes"),
    json_key(
        "optimized",
        [
            (
                json_key("optimize", str, "an optimization, speed or ram", lambda pair: pair[0]),
                json_key("ram_bytes", int, "RAM of the program that it makes", lambda pair: pair[1].ram_bytes),
                json_key(
                    "instructions",
                    int | None,
                    "instructions of an invoke on a Cortex-M4 with -O2, by formulas; null if a kernel was not counted",
                    lambda pair: pair[1].instructions,
                ),
            )
        ],
        "the program of each optimization",
        lambda model: model.optimized().items(),
    ),
    json_key("generated_ram_bytes", int | None, "the same with generated kernels; null without --kernels"),
    json_key("library_operators", int, "operators that call functions of a kernel library"),
    json_key(
        "kept_kernels",
        [
            (
                json_key(
                    "subgraph",
                    int,
                    "the subgraph of an operator that keeps its generated kernel although a library is used",
                    lambda kept: kept[0][0],
                ),
                json_key("index", int, "its index in the subgraph", lambda kept: kept[0][1]),
                json_key("reason", str, "why", lambda kept: kept[1].reason),
                json_key(
                    "ratio",
                    float | None,
                    "instructions of the library for each of the generated kernel, by formulas; null if unknown",
                    lambda kept: kept[1].ratio,
                ),
            )
        ],
        "operators that keep their generated kernels",
        lambda model: model.kept_kernels.items(),
    ),
    json_key(
        "warm_up",
        int | None,
        "invokes after a reset until the outputs depend on inputs only; null without state that fades",
    ),
    json_key("constant_bytes", int, "constants in flash, with the constant structures of calls"),
    json_key("stack_bytes", int | None, "the largest of `stack_bounds`; null if a kernel was not measured"),
    json_key(
        "stack_bounds",
        dict[str, int],
        "bound of an invoke's stack, by part and optimization; none if a kernel was not measured",
        lambda model: _by_build(model.stack_bounds),
    ),
    json_key(
        "code_bytes",
        dict[str, int],
        "code of its kernels, by part and optimization; none if a kernel was not measured",
        lambda model: _by_build(model.code_bytes),
    ),
    *TOTAL_FIGURES,
    json_key(
        "operators",
        [
            (
                json_key("index", int, "an operator whose kernels were counted", lambda pair: pair[0]),
                json_key("instructions", dict[str, int], "its instructions, likewise", lambda pair: _by_build(pair[1])),
            )
        ],
        "the operators whose kernels were counted",
        lambda model: model.instructions.operators.items(),
    ),
    json_key("stages", list[StageWork], "stages whose operators take turns", lambda model: stages_work(model)),
)
"""The figures of a compiled model; sizes in bytes."""


def compile_figures(paths: Sequence[Path], made: CompiledModels) -> dict[str, Any]:
    """Return the JSON document."""
    models = [{"model": path, **document_of(model, MODEL_FIGURES)} for path, model in zip(paths, made.models)]
    return {"models": models, "files": list(made.files)}


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


PROGRAM_FIGURES = (json_key("ram_bytes", int, "RAM of the program"), *TOTAL_FIGURES)
"""The figures of a program besides its operators' work."""


def work_report(model: CompiledModel, works: list[OperatorWork]) -> Report:
    """The instructions of each operator's kernels in a compiled model."""
    facts = [("RAM", with_thousands(model.ram_bytes))]
    if model.instructions.total is None:
        facts.append(("instructions", _unknown(model.instructions)))
    total = _by_build(model.instructions.total)
    facts += [(f"instructions, {build}", f"about {count:,}") for build, count in total.items()]
    last = " ".join(COUNTED_BUILDS[-1])
    table = Table.of(
        "",
        works,
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


def _by_build(figures: Mapping[Build, int] | None) -> dict[str, int]:
    return {" ".join(build): figure for build, figure in (figures or {}).items()}
