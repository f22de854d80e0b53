"""Arguments and options that several commands share, and the decorator that makes a function a command."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

import tflm
from tflm import libraries
from tflm.application.errors import OptionError
from tflm.application.machine import DEFAULT_RESERVE, MachineOptions
from tflm.application.models import checks_of_models
from tflm.application.output_files import OutputRules, Written
from tflm.application.settings import settings, settings_report
from tflm.atomic_write import approval
from tflm.cli.output import show
from tflm.report import short_size
from tflm.schema.model import CHECKS

SDK_NAMES = "{sdks}"
"""Stands for the names of all SDKs in the text of an option. Their table is read when the text is shown."""


def sdk_names() -> list[str]:
    """Return the names of all SDKs."""
    from tflm.boards import sdks

    return sdks.sdk_names()


def shown_help(text: str) -> str:
    """Return the text of an option as it is shown."""
    return text.replace(SDK_NAMES, ", ".join(sdk_names())) if SDK_NAMES in text else text


def option(metavar: str | None, help: str, *names: str, **settings: Any) -> Any:
    """Return an option with a value. Its name is the parameter's unless names are given."""
    return typer.Option(*names, metavar=metavar, help=help, **settings)


def argument(metavar: str, help: str, **settings: Any) -> Any:
    """Return an argument."""
    return typer.Argument(metavar=metavar, help=help, **settings)


def flag(name: str, help: str) -> Any:
    """Return an option without a value."""
    return typer.Option(name, help=help)


ModelPath = Annotated[Path, argument("MODEL", "A .tflite file; - for standard input.", show_default=False)]
TargetName = Annotated[
    str | None,
    option(
        "NAME",
        f"A data model ({', '.join(tflm.targets.TARGETS)}) or a part, such as cortex-m4, cortex-m55 or esp32s3. "
        "Default: cortex-m, or host to run a model.",
        "--target",
        "-t",
        autocompletion=lambda: list(tflm.targets.TARGETS | tflm.targets.PARTS),
    ),
]
KernelsName = Annotated[
    str | None,
    option(
        "NAME",
        f"The firmware's kernel library: {', '.join(libraries.MODULES)}. Default: the board's usual one, or reference.",
        "--kernels",
        "-k",
        autocompletion=lambda: list(libraries.MODULES),
    ),
]
ReleaseName = Annotated[
    str | None,
    option(
        "NAME",
        "The firmware's TFLM: a commit, a day such as 2023-06-15, or a distribution such as "
        "'esp-tflite-micro 1.3.3'; tflm releases lists them.",
        "--tflm",
    ),
]
BoardName = Annotated[
    str | None,
    option(
        "NAME",
        "A board or chip; sets part, kernels and memories. tflm boards lists them; or a file: my_board.toml.",
        "--board",
        "-b",
        autocompletion=lambda: tflm.boards.completions(),
    ),
]
SdkName = Annotated[
    str | None,
    option(
        "NAME",
        f"The firmware's SDK, which takes a part of the board: {SDK_NAMES}. Default: the usual one.",
        "--sdk",
        autocompletion=sdk_names,
    ),
]
Reserve = Annotated[
    str | None,
    option(
        "SIZE",
        f"RAM that the application needs besides TFLM. Default: {short_size(DEFAULT_RESERVE)} in tflm fit, or 0.",
        "--reserve",
    ),
]
Checks = Annotated[
    str,
    option(
        "NAME",
        "all; or tflm, to also accept what TFLM accepts, such as an unsafe memory plan.",
        "--checks",
        autocompletion=lambda: list(CHECKS),
    ),
]
Shapes = Annotated[
    list[str] | None, option("INPUT=SHAPE", "New shape of an input, such as input=1,96,96,1.", "--shape")
]
Short = Annotated[bool, flag("--short", "Print only the verdict.")]
AsJson = Annotated[bool, flag("--json", "Print JSON.")]
NodeData = Annotated[
    Path | None,
    option("FILE", "Write operator figures for Google's Model Explorer, one file per figure."),
    Written.FILE,
]
Output = Annotated[Path | None, option("FILE", "File for the new model.", "--output", "-o"), Written.MODEL]
Force = Annotated[bool, flag("--force", "Replace files that tflm did not write or that changed since.")]
Overlap = Annotated[
    str | None,
    option("NAME", "Let outputs overlap inputs as far as the firmware's kernels allow: reference or cmsis-nn."),
]
CompiledRam = Annotated[
    str | None, option("SIZE", "RAM for a model as C, such as 24K; the fewest calls that fit.", "--ram")
]
CompiledMemories = Annotated[
    str | None, option("NAME:SIZE,...", "Several memories, the fastest first, as DTCM:64K,SRAM:256K.", "--memories")
]
PlanMemories = Annotated[
    str | None,
    option(
        "NAME:SIZE,...",
        "Place buffers in several memories, as SRAM:200K,PSRAM:4M; on a board, names of its memories.",
        "--memories",
    ),
]
HeadRam = Annotated[
    str | None,
    option(
        "MEMORY", "Memory of the head, if the tail has a separate one: a size such as 128K, or a memory of the board."
    ),
]
TailRam = Annotated[
    str | None, option("MEMORY", "Memory of the tail: a size such as 1M, or a memory of the board such as PSRAM.")
]
Source = Annotated[
    Path | None, option("DIR", "Detect --tflm and --kernels in a firmware's sources; see tflm firmware.", "--source")
]

ShowSettings = Annotated[bool, flag("--show-settings", "Print the settings that hold, with their sources, and exit.")]

OTHER_MACHINES = {"arena": ("ram", "all_boards", "all_targets"), "fit": ("ram",)}
"""Options that name a machine in place of the settings' one, by command."""

RESERVED_OF = {"arena": ("board", "ram", "all_boards"), "fit": ("board", "ram"), "flash": ("linked",)}
"""Options one of which `--reserve` needs, by command; others need a board."""

NAMED = MachineOptions()
"""The default of the parameter `on: MachineOptions`, which stands for the options that name a machine."""

MACHINE_OPTIONS = {
    "target": TargetName,
    "kernels": KernelsName,
    "release": ReleaseName,
    "board": BoardName,
    "sdk": SdkName,
}
VERDICTS = ("arena", "check", "export", "fit", "flash", "gate", "plan", "tile")
"""The commands that say whether a model fits a board. They have `--reserve`."""

SOURCE: dict[str, Any] = {"source": Source, "show_settings": ShowSettings}
CHECKS_MODE: dict[str, Any] = {"checks": Checks}
FORCE: dict[str, Any] = {"force": Force}
DEFAULTS = {"checks": "all", "force": False, "show_settings": False}
"""Defaults of the options that `command` adds."""


def command(function: Callable[..., None]) -> Callable[..., None]:
    """Convert a function to a command for typer.

    A parameter `on: MachineOptions` becomes `--target`, `--kernels`, `--tflm`, `--board`, `--sdk` and `--source`, and
    `--reserve` in commands with a verdict. A command with a `model` or `models` gets `--checks`, one that writes files
    `--force`: annotations marked with `Written` name outputs, which are checked before the function is called. An
    `OptionError` becomes a usage error.
    """
    parameters = inspect.signature(function, eval_str=True).parameters
    outputs = written_parameters(function)

    @functools.wraps(function)
    def called(**options: Any) -> None:
        rules = OutputRules(_files_in(options, outputs), options.pop("force", False))
        outer = approval.set(rules)
        try:
            for name, kind in outputs.items():
                for path in _paths(options[name])[-1:]:
                    rules.require(
                        path, kind if kind is not Written.MODEL or not options.get("memories") else Written.FOLDER
                    )
            function(**_arguments(options, function.__name__, has_machine="on" in parameters))
        except OptionError as error:
            raise typer.BadParameter(str(error)) from None
        finally:
            approval.reset(outer)

    takes_model = not {"model", "models"}.isdisjoint(parameters)
    machine = MACHINE_OPTIONS | ({"reserve": Reserve} if function.__name__ in VERDICTS else {})
    added = (SOURCE if "on" in parameters else {}) | (CHECKS_MODE if takes_model else {})
    added |= FORCE if {*outputs.values()} - {Written.UPDATED} else {}
    shown = [each for name, one in parameters.items() for each in (_options(machine) if name == "on" else [one])]
    shown += _options(added)
    called.__signature__ = inspect.Signature(shown)  # type: ignore[attr-defined]  # typer reads it
    called.__annotations__ = {each.name: each.annotation for each in shown}
    return called


def written_parameters(function: Callable[..., None]) -> dict[str, Written]:
    """The parameters of a command that name outputs. A list names one, its last element, after inputs."""
    parameters = inspect.signature(function, eval_str=True).parameters
    return {
        name: mark
        for name, parameter in parameters.items()
        for mark in getattr(parameter.annotation, "__metadata__", ())
        if isinstance(mark, Written)
    }


def _files_in(options: Mapping[str, Any], outputs: Mapping[str, Written]) -> list[Path]:
    """The files that arguments name, also as NAME=FILE, without outputs."""
    values = [_paths(value)[:-1] if name in outputs else _paths(value) for name, value in options.items()]
    paths = [path for each in values for path in each]
    named = [Path(str(path).partition("=")[2]) for path in paths]
    return [path for path in (*paths, *named) if os.path.isfile(path)]


def _paths(value: Any) -> list[Path]:
    return [Path(each) for each in (value if isinstance(value, list) else [value]) if isinstance(each, (str, Path))]


def _options(annotations: Mapping[str, Any]) -> list[inspect.Parameter]:
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    return [inspect.Parameter(name, kind, default=DEFAULTS.get(name), annotation=a) for name, a in annotations.items()]


def _arguments(options: dict[str, Any], command: str, has_machine: bool) -> dict[str, Any]:
    """Return the arguments of a command's function, from those that typer passes."""
    checks = options.pop("checks", "all")
    if checks not in CHECKS:
        raise OptionError(f"unknown checks mode {checks!r}; use {' or '.join(CHECKS)}")
    checks_of_models.set(checks)
    if not has_machine:
        return options
    given = MachineOptions(**{name: options.pop(name, None) for name in MachineOptions._fields})
    source, found = options.pop("source"), settings()
    named = given if source is None else _from_sources(given, source)
    on = found.machine(named, any(options[name] for name in OTHER_MACHINES.get(command, ())))
    named_ram = options | on._asdict()
    if given.reserve is not None and not any(named_ram[name] for name in RESERVED_OF.get(command, ("board",))):
        alternative = " and the linked firmware with --map" if command == "flash" else ""
        raise OptionError(f"--reserve takes RAM of a board; name the board with --board{alternative}")
    if options.get("compiled"):  # a model as C has no TFLM and no kernel library of it
        on = on._replace(release=named.release, kernels=named.kernels)
    if options.pop("show_settings"):
        show(settings_report(found, named, on, options.get("budget")))
        raise typer.Exit
    return options | {"on": on}


def _from_sources(on: MachineOptions, source: Path) -> MachineOptions:
    if on.kernels is not None or on.release is not None:
        raise OptionError("use either --source or --tflm and --kernels")
    from tflm.firmware.firmware_tree import firmware_tree  # rarely needed

    found = firmware_tree(source)
    if found.release is None:
        raise OptionError(f"{source}: {found.reasons[-1]}")
    return on._replace(kernels=found.kernels, release=found.release)
