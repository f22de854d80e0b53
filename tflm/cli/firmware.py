"""`tflm firmware`: which TFLM and which kernels a firmware's source tree contains."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from tflm.cli.command_line import AsJson, print_json, show
from tflm.firmware.firmware_tree import RECOGNIZED, FirmwareTree, firmware_tree
from tflm.firmware.source_tree import Modified, SourceCopy
from tflm.releases import history
from tflm.report import Column, Report, Table

MODIFIED_SHOWN = 20


def firmware(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The root of the firmware's sources.")],
    as_json: AsJson = False,
) -> None:
    """Find the TFLM and the kernels in a firmware's sources.

    It looks for an ESP-IDF project with its components, a Zephyr workspace, an Arduino sketchbook or an SDK, and
    recognizes files by hashes of their text. Other commands take the folder as --source.

    \b
    Examples:
      tflm firmware ~/esp/doorbell
      tflm arena model.tflite --target esp32s3 --source ~/esp/doorbell
    """
    found = firmware_tree(folder)
    if as_json:
        print_json(tree_figures(found))
    else:
        show(tree_report(found))


def tree_figures(found: FirmwareTree) -> dict[str, Any]:
    """The figures of `--json`."""
    return {
        "folder": found.folder,
        "release": found.release and found.release.name,
        "commit": found.release and found.release.commit,
        "static_memory": found.release and found.release.static_memory,
        "kernels": found.kernels,
        "options": found.options,
        "copies": [{**asdict(copy), "confidence": copy.confidence} for copy in found.copies],
        "flags": [flag._asdict() for flag in found.flags],
        "dependencies": [dependency._asdict() for dependency in found.dependencies],
        "notes": list(found.reasons),
    }


def tree_report(found: FirmwareTree) -> Report:
    """The options for other commands, then copies, files that were changed, and what build files say."""
    facts = [("TFLM", found.release.name if found.release else "not found"), ("kernels", found.kernels)]
    facts.append(("options", found.options))
    columns = {
        "sources": Column.TEXT,
        "version": Column.TEXT,
        "files": Column.NUMBER,
        "agree": Column.NUMBER,
        "folder": Column.NAME,
    }
    tables = [Table("", columns, [_row(copy) for copy in found.copies])] if found.copies else []
    changed = [change for copy in found.copies if copy.confidence >= RECOGNIZED for change in copy.modified]
    if changed:
        title = "Files that differ from that version"
        if len(changed) > MODIFIED_SHOWN:
            title += f" (the first {MODIFIED_SHOWN} of {len(changed)}; --json has all)"
        rows = [(change.path, _origin(change)) for change in changed[:MODIFIED_SHOWN]]
        tables.append(Table(title, {"file": Column.NAME, "text": Column.TEXT}, rows))
    said = [(flag.name, flag.value, flag.path) for flag in found.flags]
    said += [(each.name, each.version, each.path) for each in found.dependencies]
    if said:
        columns = {"setting": Column.TEXT, "value": Column.TEXT, "file": Column.NAME}
        tables.append(Table("Build files", columns, said))
    return Report(f"sources in {found.folder}", facts, tables, list(found.reasons))


def _row(copy: SourceCopy) -> tuple[Any, ...]:
    dates = dict(history()) if copy.project == "tflm" else {}
    names = list(dict.fromkeys((copy.first, copy.last)))
    version = " to ".join(f"{name} of {dates[name]}" if name in dates else name for name in names)
    if copy.confidence < RECOGNIZED:
        version = "unknown"
    return copy.project, version, copy.files, copy.matching, copy.folder or "."


def _origin(change: Modified) -> str:
    if change.first is None:
        return "of no known version: changed locally"
    return f"of {change.first}" if change.first == change.last else f"of {change.first} to {change.last}"


Source = Annotated[
    Path | None,
    typer.Option(
        "--source",
        metavar="DIR",
        help="Take --tflm and --kernels from the sources of a firmware, as tflm firmware finds them.",
    ),
]


def with_source(command: Callable[..., None]) -> Callable[..., None]:
    """A command that takes `--kernels` and `--tflm` from a firmware's sources, too; another one as it is."""
    if "release" not in inspect.signature(command).parameters:
        return command

    @functools.wraps(command)
    def sourced(*arguments: Any, source: Path | None = None, **options: Any) -> None:
        if source is not None:
            options |= _options_from(source, options)
        command(*arguments, **options)

    signature = inspect.signature(command, eval_str=True)
    added = inspect.Parameter("source", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Source)
    sourced.__signature__ = signature.replace(  # type: ignore[attr-defined]  # typer reads it
        parameters=[*signature.parameters.values(), added]
    )
    sourced.__annotations__ = {**command.__annotations__, "source": Source}
    return sourced


def _options_from(source: Path, given: dict[str, Any]) -> dict[str, Any]:
    if given.get("kernels") is not None or given.get("release") is not None:
        raise typer.BadParameter("give --source, which has a TFLM and kernels, or --tflm and --kernels")
    found = firmware_tree(source)
    if found.release is None:
        raise typer.BadParameter(f"{source}: {found.reasons[-1]}")
    return {"kernels": found.kernels, "release": found.release}
