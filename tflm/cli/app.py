"""The application with all commands. The module of a command is imported when the command is asked for."""

from __future__ import annotations

import functools
import gc
import importlib
import re
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, NamedTuple, get_args

import typer
from typer.core import TyperCommand

import tflm
from tflm.cli.group import Commands
from tflm.cli.plain_text import print_error, print_plain
from tflm.release import TFLM_COMMIT, TFLM_DATE, TFLM_WHEEL

COMMANDS = {
    "Size a model": {
        "arena": "Show the arena that a model needs, to the byte.",
        "boards": "List the boards and chips that --board takes.",
        "flash": "Show the flash, static RAM and stack of a firmware.",
        "gate": "Check models against a budget or a board, for CI.",
        "profile": "Time each operator, or estimate its time on a device.",
    },
    "Shrink a model": {
        "compress": "Make a model smaller in flash by compressing its weights.",
        "fit": "Make a model fit a board, with the same results.",
        "fold": "Fold PADs into convolutions and remove no-ops.",
        "plan": "Find a smaller memory plan and write it into the model.",
        "quantize": "Make a float model an integer model that TFLM accepts.",
        "resize": "Change the input shapes of a model.",
        "stream": "Rewrite a window of frames into a stream.",
        "strip": "Remove data that no device reads.",
        "tile": "Rewrite a model to run in a smaller arena.",
    },
    "Run a model": {
        "calibrate-report": "Compare each tensor's value range with its quantization.",
        "compare": "Compare a model with another, a recording or a device.",
        "device": "Run a model on a device, and compare every operator.",
        "evaluate": "Evaluate a model on a data set, with a device's integers.",
        "run": "Run a model on files or random inputs.",
        "warm": "Compile the kernels of models into the cache.",
    },
    "Ship a model": {
        "check": "List what behaves differently on the device.",
        "compile": "Write models as portable C99 without an interpreter.",
        "export": "Write a firmware project that runs a model.",
        "wake-word": "List tensor_arena_size for ESPHome; write or check it.",
    },
    "Inspect models, firmware and tflm": {
        "device-log": "Explain a device's log: operator times and its arena.",
        "doctor": "Check the installation, and say how to fix it.",
        "firmware": "Find the TFLM and the kernels in a firmware's sources.",
        "inspect": "Show a model's operators, tensors, metadata and sizes.",
        "json-schema": "Print the JSON Schema of a command's --json output.",
        "releases": "List what contains TFLM, version by version.",
        "versions": "Show the versions that a model's operators have and need.",
    },
}
"""Commands by purpose, with the first lines of their docstrings."""

NAMES = sorted(name for commands in COMMANDS.values() for name in commands)

DEPRECATED = {"--beside": "--second-planner"}
"""Former names of options, which still work, and their present ones."""

MODULES = {"calibrate-report": "evaluate", "fold": "tile", "strip": "tile"}
"""Modules of commands that share one; the others have the names of their commands."""


def function_of(name: str) -> Callable[..., None]:
    """Import the function of a command."""
    function = name.replace("-", "_")
    found: Callable[..., None] = getattr(importlib.import_module(f"tflm.cli.{MODULES.get(name, function)}"), function)
    gc.enable()  # after `tflm.cli.main`
    return found


class GivenValues(NamedTuple):
    """Converts the values of a parameter. Typer converts with pydantic, whose import takes as long as a command."""

    annotation: Any

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """Convert strings, paths, defaults and lists of them; typer converts everything else."""
        kind, *_ = get_args(self.annotation) or (self.annotation,)
        is_list = kind is not self.annotation
        if value is None:
            return () if is_list else None
        values = [Path(each) if kind is Path else each for each in (value if is_list else [value])]
        if all(isinstance(each, kind) for each in values):
            return values if is_list else values[0]
        param._runtime_param = None
        return param.get_runtime_param().coerce(value, param=param, ctx=ctx)


class GivenParameters:
    """Part of a command: converts its parameters by `GivenValues`."""

    def get_params(self, ctx: Any) -> Any:
        """Return the parameters; those of older versions of typer convert themselves, without pydantic."""
        found = super().get_params(ctx)  # type: ignore[misc]  # the command's
        for each in found:
            if getattr(each, "_runtime_param", self) is None:
                each._runtime_param = GivenValues(each.type_descriptor.annotation)
        return found


class Command(GivenParameters, TyperCommand):
    """A command of the program."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the arguments; options may have their former names."""
        given: list[str] = []
        for argument in args:
            name, equals, value = argument.partition("=")
            if name in DEPRECATED:
                print_error(f"tflm: {name} is deprecated; use {DEPRECATED[name]}")
            given.append(DEPRECATED.get(name, name) + equals + value)
        return super().parse_args(ctx, given)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help, with the names that texts of options stand for."""
        from tflm.cli.parameters import shown_help

        for each in self.get_params(ctx):
            each.help = shown_help(getattr(each, "help", None) or "")
        super().format_help(ctx, formatter)


class SeedOrNot(Command):
    """A command whose option `--random` may be given without a number."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Insert 0 after a `--random` without a number."""
        given: list[str] = []
        for argument, following in zip(args, [*args[1:], ""]):
            given.append(argument)
            if argument == "--random" and not re.fullmatch("-?[0-9]+", following):
                given.append("0")
        return super().parse_args(ctx, given)


@functools.cache
def _command_of(name: str) -> Any:
    """Import a command. It is made once, however often the application is run in this process."""
    from tflm.cli.parameters import command  # what most commands need

    single = typer.Typer(add_completion=False, rich_markup_mode=None)
    single.command(cls=SeedOrNot if name == "run" else Command)(command(function_of(name)))
    return typer.main.get_command(single)


class ImportedCommands(GivenParameters, Commands):
    """The commands, each imported when it is asked for."""

    def __init__(self, **settings: Any):
        super().__init__(**{**settings, "commands": dict.fromkeys(NAMES)})

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Import a command; return None if there is no such command."""
        return _command_of(cmd_name) if cmd_name in self.commands else None

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """List the commands by purpose, wrapped to the terminal."""
        width = max(map(len, NAMES))
        for heading, commands in COMMANDS.items():
            with formatter.section(heading):
                formatter.write_dl([(name.ljust(width), summary) for name, summary in commands.items()])


app = typer.Typer(
    name="tflm",
    cls=ImportedCommands,
    help="Run .tflite models as TensorFlow Lite Micro does, and size their arena.",
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        print_plain(f"tflm {tflm.__version__}")
        print_plain(f"matches tflite-micro {TFLM_COMMIT} ({TFLM_DATE}) and the results of its package {TFLM_WHEEL}")
        raise typer.Exit


@app.callback()
def options(
    debug: Annotated[bool, typer.Option("--debug", help="Show a traceback if a command fails.")] = False,
    _version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Show the versions of tflm and TFLM."),
    ] = False,
) -> None:
    """Options that apply to every command."""
