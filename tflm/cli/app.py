"""All commands, in one application."""

from __future__ import annotations

from typing import Annotated

import typer

from tflm.cli.arena import arena
from tflm.cli.command_line import Commands
from tflm.cli.compare import compare
from tflm.cli.export import export
from tflm.cli.inspect import inspect
from tflm.cli.plan import plan
from tflm.cli.profile import profile
from tflm.cli.run import run

app = typer.Typer(
    name="tflm",
    cls=Commands,
    help="Run .tflite models as TensorFlow Lite Micro does, and see what their arena holds.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

for command in (arena, compare, export, inspect, plan, profile, run):
    app.command()(command)


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version  # takes a while to load

        print(version("pytflm"))
        raise typer.Exit


@app.callback()
def options(
    debug: Annotated[bool, typer.Option("--debug", help="Show a traceback where a command fails.")] = False,
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Options of the program itself."""
