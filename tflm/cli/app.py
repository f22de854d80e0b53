"""The application with all commands."""

from __future__ import annotations

from typing import Annotated

import typer

import tflm
from tflm.cli.arena import arena
from tflm.cli.boards import boards
from tflm.cli.check import check
from tflm.cli.compare import compare
from tflm.cli.compile import compile  # noqa: A004  # the command has this name
from tflm.cli.compress import compress
from tflm.cli.device_log import device_log
from tflm.cli.doctor import doctor
from tflm.cli.evaluate import calibrate_report, evaluate
from tflm.cli.export import export
from tflm.cli.firmware import firmware
from tflm.cli.fit import fit
from tflm.cli.flash import flash
from tflm.cli.gate import gate
from tflm.cli.group import Commands
from tflm.cli.inspect import inspect
from tflm.cli.json_schema import json_schema
from tflm.cli.output import print_plain
from tflm.cli.parameters import command
from tflm.cli.plan import plan
from tflm.cli.profile import profile
from tflm.cli.quantize import quantize
from tflm.cli.releases import releases
from tflm.cli.resize import resize
from tflm.cli.run import SeedOrNot, run
from tflm.cli.stream import stream
from tflm.cli.tile import fold, strip, tile
from tflm.cli.versions import versions
from tflm.cli.wake_word import wake_word
from tflm.cli.warm import warm
from tflm.release import TFLM_COMMIT, TFLM_DATE, TFLM_WHEEL

app = typer.Typer(
    name="tflm",
    cls=Commands,
    help="Run .tflite models as TensorFlow Lite Micro does, and size their arena.",
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

COMMANDS = (
    arena,
    boards,
    calibrate_report,
    check,
    compare,
    compress,
    compile,
    device_log,
    doctor,
    evaluate,
    export,
    firmware,
    fit,
    flash,
    fold,
    gate,
    inspect,
    json_schema,
    plan,
    profile,
    quantize,
    releases,
    resize,
    run,
    stream,
    strip,
    tile,
    versions,
    wake_word,
    warm,
)
for function in COMMANDS:
    app.command(cls=SeedOrNot if function is run else None)(command(function))


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
