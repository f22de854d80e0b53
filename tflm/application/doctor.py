"""Check this installation, and say how to fix what does not work."""

from __future__ import annotations

import math
import os
import platform
import re
import warnings
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib.metadata import metadata, requires, version
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from tflm import delegates
from tflm.compiler.calls import is_free_threaded, obstacle
from tflm.delegates import COMPILED_VARIABLE
from tflm.errors import ArgumentError
from tflm.release import DISTRIBUTION, TFLM_COMMIT, TFLM_DATE, TFLM_WHEEL, project_url
from tflm.report import TEXT, Figure, Report, Table, printable
from tflm.runtime.micro_interpreter import MicroInterpreter
from tflm.runtime.micro_op_resolver import AllOpsResolver
from tflm.schema import BuiltinOperator, Conv2DOptions, FullyConnectedOptions, Padding, SoftmaxOptions, TensorType
from tflm.schema.builder import ModelBuilder, quantized
from tflm.schema.model import Model

REQUIREMENT = re.compile(r"^(?P<name>[\w.-]+)(?:\[[^]]*\])?\s*(?P<specifier>[^;]*)(?:;(?P<marker>.*))?$")
LOWEST = re.compile(r"(?:>=|~=|==)\s*(?P<version>\d[\w.]*)")
EXTRA = re.compile(r"\bextra == '(?P<extra>[\w-]+)'")

MODULE_SUFFIXES = (".py", ".so", ".pyd")

RECORDED = [-117, 95, -128, -106]
"""TFLM's result for `recorded_model()` and `recorded_input()`."""

Status = Literal["ok", "absent", "problem"]


@dataclass(frozen=True)
class Check:
    """One part of the installation.

    Attributes:
        name: the part.
        status: "ok"; "absent" if it is optional and not installed; "problem" if it must be fixed.
        found: what was found.
        fix: what to do; empty if there is nothing to do.
    """

    name: str
    status: Status
    found: str
    fix: str = ""


def diagnose() -> list[Check]:
    """Check Python, the packages, the engine, the extras, and a model's results against TFLM's."""
    return [
        Check("tflm", "ok", f"{version('pytflm')} in {Path(__file__).parents[1]}"),
        Check("TFLM followed", "ok", f"{TFLM_COMMIT} of {TFLM_DATE}, results of tflite-micro {TFLM_WHEEL}"),
        _python(),
        *(_package(each) for each in requirements() if not each.extra),
        *_engine_checks(),
        *(_extra(extra) for extra in extras()),
        _run("model without the engine", ()),
    ]


def _python() -> Check:
    build = ", free-threaded," if is_free_threaded() else ""
    return Check("Python", "ok", f"{platform.python_version()}{build} on {platform.system()} {platform.machine()}")


# --- Packages --------------------------------------------------------------------------------------------------------


class Requirement(NamedTuple):
    """A package that the package or one of its extras needs.

    Attributes:
        name: the package.
        specifier: the versions that are allowed, such as ">=2.0".
        lowest: the lowest of them, "0" for any.
        extra: the extra that needs it; empty for the package itself.
    """

    name: str
    specifier: str
    lowest: str
    extra: str


def extras() -> list[str]:
    """All extras of the package."""
    return metadata(DISTRIBUTION).get_all("Provides-Extra") or []


def requirements() -> Iterator[Requirement]:
    """Yield each requirement of the package and of its extras, except for other extras of the package."""
    for text in requires(DISTRIBUTION) or ():
        match = REQUIREMENT.match(text.replace('"', "'"))
        if match and match["name"] != DISTRIBUTION:
            extra, lowest = EXTRA.search(match["marker"] or ""), LOWEST.search(match["specifier"])
            specifier = match["specifier"].strip()
            yield Requirement(
                match["name"], specifier, lowest["version"] if lowest else "0", extra["extra"] if extra else ""
            )


def _package(requirement: Requirement) -> Check:
    from importlib import metadata  # takes a while to load

    name = requirement.name
    try:
        version = metadata.version(name)
    except metadata.PackageNotFoundError:
        return Check(name, "problem", "not installed", f"pip install '{name}{requirement.specifier}'")
    if _numbers(version) < _numbers(requirement.lowest):
        return Check(name, "problem", f"{version}, too old", f"pip install '{name}{requirement.specifier}'")
    modules = [file for file in metadata.files(name) or () if file.suffix in MODULE_SUFFIXES]
    if modules and not any(Path(str(file.locate())).exists() for file in modules):
        return Check(name, "problem", f"{version}, but its files are missing", f"pip install --force-reinstall {name}")
    return Check(name, "ok", version)


def _numbers(version: str) -> list[int]:
    return [int(digits) for digits in re.findall(r"\d+", version)][:3]


def _extra(extra: str) -> Check:
    """Check the packages of an extra. An extra that is not installed, or only in part, is not a problem."""
    packages = [_package(each) for each in requirements() if each.extra == extra]
    missing = [each for each in packages if each.found == "not installed"]
    wrong = [each for each in packages if each.status == "problem" and each not in missing]
    fix = "; ".join(each.fix for each in wrong + missing)
    found = ", ".join(f"{each.name} {each.found}" for each in packages)
    status: Status = "absent" if missing else "problem" if wrong else "ok"
    return Check(f"extra {extra}", status, found, fix)


# --- The engine ------------------------------------------------------------------------------------------------------


def _engine_checks() -> Iterator[Check]:
    if obstacle():
        yield Check("compiled engine", "absent", f"{obstacle()}; numpy runs the kernels")
        return
    from tflm.compiler.cached_files import CACHE_VARIABLE, cache_folder
    from tflm.compiler.processor import VARIABLE, processor
    from tflm.delegates import Compiled

    try:
        cpu = processor()
    except ArgumentError as error:
        yield Check("compiled engine", "problem", str(error), f"unset {VARIABLE}")
        return
    off = f"; switched off by {COMPILED_VARIABLE}=0" if os.environ.get(COMPILED_VARIABLE) == "0" else ""
    yield Check("compiled engine", "ok", f"code for {cpu.name}, vectors of {cpu.vector_bytes} bytes{off}")
    folder = cache_folder()
    if folder is None:
        fix = f"set {CACHE_VARIABLE} to a folder that only you can write; until then, every process compiles again"
        yield Check("cache of the engine", "problem", "no folder can be written, or it belongs to another user", fix)
    else:
        yield Check("cache of the engine", "ok", str(folder))
    yield _run("model with the engine", (Compiled(),))


# --- A model ---------------------------------------------------------------------------------------------------------


def recorded_model() -> bytes:
    """Return a small int8 model: a convolution, a dense layer and a softmax, with weights that count upwards."""
    builder = ModelBuilder("tflm doctor")
    main = builder.subgraph()
    tensor = main.input("image", (1, 6, 6, 2), TensorType.INT8, quantized(0.05, 3))
    kernel = main.constant("kernel", _counting((3, 3, 3, 2)), quantized([0.01, 0.02, 0.015]))
    features = main.tensor("features", (1, 2, 2, 3), TensorType.INT8, quantized(0.3, -5))
    options = Conv2DOptions(padding=Padding.VALID, stride_w=2, stride_h=2)
    main.operator(BuiltinOperator.CONV_2D, [tensor, kernel, -1], [features], options)
    weights = main.constant("weights", _counting((4, 12)), quantized(0.001))
    scores = main.tensor("scores", (1, 4), TensorType.INT8, quantized(0.05, 7))
    main.operator(BuiltinOperator.FULLY_CONNECTED, [features, weights, -1], [scores], FullyConnectedOptions())
    shares = main.tensor("shares", (1, 4), TensorType.INT8, quantized(1 / 256, -128))
    main.operator(BuiltinOperator.SOFTMAX, [scores], [shares], SoftmaxOptions(beta=1.0))
    main.output(shares)
    return builder.build()


def recorded_input() -> np.ndarray[Any, Any]:
    """Return the input of `recorded_model()` that has a recorded answer, int8 of shape (1, 6, 6, 2)."""
    return _counting((1, 6, 6, 2))


def _counting(shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    return (np.arange(math.prod(shape), dtype=np.int64) * 37 % 255 - 127).astype(np.int8).reshape(shape)


def _run(name: str, delegates: tuple[delegates.Delegate, ...]) -> Check:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            answer = _answer(delegates)
        except Exception as error:  # report any problem: that is what the user wants to know
            return Check(name, "problem", f"{type(error).__name__}: {error}", _how_to_report())
    if caught:
        return Check(name, "problem", str(caught[0].message), "reinstall numba and llvmlite: pip install -U numba")
    if answer != RECORDED:
        return Check(name, "problem", f"answers {answer}, TFLM {RECORDED}", _how_to_report())
    return Check(name, "ok", "answers as TFLM does")


def _how_to_report() -> str:
    return f"report it with this output: {project_url('Repository')}/issues/new/choose"


def _answer(delegates: tuple[delegates.Delegate, ...]) -> list[int]:
    model = Model(recorded_model())
    interpreter = MicroInterpreter(model, AllOpsResolver(), bytearray(1 << 14), delegates=delegates)
    interpreter.allocate_tensors()
    interpreter.input(0).data[...] = recorded_input()
    interpreter.invoke()
    answer: list[int] = interpreter.output(0).data.ravel().tolist()
    return answer


# --- Output ----------------------------------------------------------------------------------------------------------


def is_healthy(checks: list[Check]) -> bool:
    """Return whether nothing must be fixed."""
    return all(check.status != "problem" for check in checks)


def doctor_figures(checks: list[Check]) -> dict[str, Any]:
    """Return the JSON document."""
    return {"version": version("pytflm"), "healthy": is_healthy(checks), "checks": [asdict(check) for check in checks]}


def doctor_report(checks: list[Check]) -> Report:
    """Return a table of all checks, and what to do."""
    shown = Figure("part", TEXT, "name"), Figure("status", TEXT, "status"), Figure("found", TEXT, "found")
    table = Table.of("", checks, *shown)
    notes = [f"{check.name}: {check.fix}" for check in checks if check.status == "problem"]
    return Report("tflm doctor", [], [table], notes or ["nothing to fix"])


def plain_text(checks: list[Check]) -> str:
    """Return the report for a terminal, for an installation without the extra `cli`."""
    report = doctor_report(checks)
    rows = report.tables[0].rows
    widths = [max(len(row[i]) for row in rows) for i in range(2)]
    lines = [f"{part:{widths[0]}}  {status:{widths[1]}}  {found}" for part, status, found in rows]
    return "\n".join([*lines, "", *map(printable, report.notes), ""])
