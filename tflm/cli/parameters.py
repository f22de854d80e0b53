"""Arguments and options that several commands share, and the decorator that makes a function a command."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

import tflm
from tflm import boards, libraries
from tflm.application.errors import OptionError
from tflm.application.machine import MachineOptions
from tflm.application.models import checks_of_models
from tflm.boards.sdks import sdk_names
from tflm.firmware.firmware_tree import firmware_tree
from tflm.schema.model import CHECKS

ModelPath = Annotated[
    Path, typer.Argument(metavar="MODEL", help="A .tflite file; - for standard input.", show_default=False)
]
TargetName = Annotated[
    str | None,
    typer.Option(
        "--target",
        "-t",
        metavar="NAME",
        help=f"A data model ({', '.join(tflm.targets.TARGETS)}) or a part, such as cortex-m4, cortex-m55 or esp32s3. "
        "Default: cortex-m, or host to run a model.",
        autocompletion=lambda: list(tflm.targets.TARGETS | tflm.targets.PARTS),
    ),
]
KernelsName = Annotated[
    str | None,
    typer.Option(
        "--kernels",
        "-k",
        metavar="NAME",
        help=f"The firmware's kernel library: {', '.join(libraries.MODULES)}. Default: the board's usual one, or "
        "reference.",
        autocompletion=lambda: list(libraries.MODULES),
    ),
]
ReleaseName = Annotated[
    str | None,
    typer.Option(
        "--tflm",
        metavar="NAME",
        help="The firmware's TFLM: a commit, a day such as 2023-06-15, or a distribution such as "
        "'esp-tflite-micro 1.3.3'; tflm releases lists them.",
    ),
]
BoardName = Annotated[
    str | None,
    typer.Option(
        "--board",
        "-b",
        metavar="NAME",
        help="A board or chip; sets part, kernels and memories. tflm arena MODEL --boards lists the boards.",
        autocompletion=boards.completions,
    ),
]
SdkName = Annotated[
    str | None,
    typer.Option(
        "--sdk",
        metavar="NAME",
        help=f"The firmware's SDK, which takes a part of the board: {', '.join(sdk_names())}. Default: the usual one.",
        autocompletion=sdk_names,
    ),
]
Checks = Annotated[
    str,
    typer.Option(
        "--checks",
        metavar="NAME",
        help="all; or tflm, to also accept what TFLM accepts, such as an unsafe memory plan.",
        autocompletion=lambda: list(CHECKS),
    ),
]
Shapes = Annotated[
    list[str] | None,
    typer.Option("--shape", metavar="INPUT=SHAPE", help="New shape of an input, such as input=1,96,96,1."),
]
Short = Annotated[bool, typer.Option("--short", help="Print only the verdict.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
NodeData = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Write operator figures for Google's Model Explorer, one file per figure."),
]
Output = Annotated[Path | None, typer.Option("--output", "-o", metavar="FILE", help="File for the new model.")]
Force = Annotated[bool, typer.Option("--force", help="Allow replacing the model itself.")]
Overlap = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Let outputs overlap inputs as far as the firmware's kernels allow: reference or cmsis-nn.",
    ),
]
CompiledRam = Annotated[
    str | None,
    typer.Option("--ram", metavar="SIZE", help="RAM for a model as C, such as 24K; the fewest calls that fit."),
]
CompiledMemories = Annotated[
    str | None,
    typer.Option(
        "--memories",
        metavar="NAME:SIZE,...",
        help="Several memories for a model as C, the fastest first, as DTCM:64K,SRAM:256K.",
    ),
]
HeadRam = Annotated[
    str | None,
    typer.Option(
        metavar="MEMORY",
        help="Memory of the head, if the tail has a separate one: a size such as 128K, or a memory of the board.",
    ),
]
TailRam = Annotated[
    str | None,
    typer.Option(
        metavar="MEMORY", help="Memory of the tail: a size such as 1M, or a memory of the board such as PSRAM."
    ),
]
Source = Annotated[
    Path | None,
    typer.Option(
        "--source",
        metavar="DIR",
        help="Detect --tflm and --kernels in a firmware's sources; see tflm firmware.",
    ),
]

NAMED = MachineOptions()
"""The default of the parameter `on: MachineOptions`, which stands for the options that name a machine."""

MACHINE_OPTIONS = {
    "target": TargetName,
    "kernels": KernelsName,
    "release": ReleaseName,
    "board": BoardName,
    "sdk": SdkName,
}
SOURCE: dict[str, Any] = {"source": Source}
CHECKS_MODE: dict[str, Any] = {"checks": Checks}
DEFAULTS = {"checks": "all"}
"""Defaults of the options that `command` adds."""


def command(function: Callable[..., None]) -> Callable[..., None]:
    """Convert a function to a command for typer.

    A parameter `on: MachineOptions` becomes `--target`, `--kernels`, `--tflm`, `--board`, `--sdk` and `--source`. A
    command with a `model` or `models` gets `--checks`. An `OptionError` becomes a usage error.
    """
    parameters = inspect.signature(function, eval_str=True).parameters

    @functools.wraps(function)
    def called(**options: Any) -> None:
        try:
            function(**_arguments(options, has_machine="on" in parameters))
        except OptionError as error:
            raise typer.BadParameter(str(error)) from None

    takes_model = not {"model", "models"}.isdisjoint(parameters)
    added = (SOURCE if "on" in parameters else {}) | (CHECKS_MODE if takes_model else {})
    shown = [
        each for name, one in parameters.items() for each in (_options(MACHINE_OPTIONS) if name == "on" else [one])
    ]
    shown += _options(added)
    called.__signature__ = inspect.Signature(shown)  # type: ignore[attr-defined]  # typer reads it
    called.__annotations__ = {each.name: each.annotation for each in shown}
    return called


def _options(annotations: Mapping[str, Any]) -> list[inspect.Parameter]:
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    return [inspect.Parameter(name, kind, default=DEFAULTS.get(name), annotation=a) for name, a in annotations.items()]


def _arguments(options: dict[str, Any], has_machine: bool) -> dict[str, Any]:
    """Return the arguments of a command's function, from those that typer passes."""
    checks = options.pop("checks", "all")
    if checks not in CHECKS:
        raise OptionError(f"unknown checks mode {checks!r}; use {' or '.join(CHECKS)}")
    checks_of_models.set(checks)
    if not has_machine:
        return options
    on = MachineOptions(**{name: options.pop(name) for name in MACHINE_OPTIONS})
    source = options.pop("source")
    return options | {"on": on if source is None else _from_sources(on, source)}


def _from_sources(on: MachineOptions, source: Path) -> MachineOptions:
    if on.kernels is not None or on.release is not None:
        raise OptionError("use either --source or --tflm and --kernels")
    found = firmware_tree(source)
    if found.release is None:
        raise OptionError(f"{source}: {found.reasons[-1]}")
    return on._replace(kernels=found.kernels, release=found.release)
