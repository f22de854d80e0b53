"""JSON document and report of a firmware's source tree: its TFLM and kernels."""

from __future__ import annotations

from tflm.firmware.firmware_tree import RECOGNIZED, Dependency, FirmwareTree, Flag
from tflm.firmware.source_tree import Modified, SourceCopy
from tflm.releases import history
from tflm.report import NAME, NUMBER, TEXT, Figure, Report, Table, json_key

MODIFIED_SHOWN = 20


TREE_FIGURES = (
    json_key("folder", str, "the folder"),
    json_key("release", str | None, "the TFLM that was found", "release.name"),
    json_key("commit", str | None, "its commit", "release.commit"),
    json_key("static_memory", bool | None, "whether it is built with `TF_LITE_STATIC_MEMORY`", "release.static_memory"),
    json_key("kernels", str, "the kernel library, with its version if known"),
    json_key("options", str, "options for other commands to select the same firmware"),
    json_key("copies", list[SourceCopy], "copies of sources"),
    json_key("flags", list[Flag], "settings in build files"),
    json_key("dependencies", list[Dependency], "dependencies in build files"),
    json_key("notes", list[str], "assumptions", "reasons"),
)
"""The figures of a source tree."""


def tree_report(found: FirmwareTree) -> Report:
    """Report the options for other commands, the copies found, changed files, and settings in build files."""
    facts = [("TFLM", found.release.name if found.release else "not found"), ("kernels", found.kernels)]
    facts.append(("options", found.options))
    tables = [Table.of("", found.copies, *COPY_FIGURES)] if found.copies else []
    changed = [change for copy in found.copies if copy.confidence >= RECOGNIZED for change in copy.modified]
    if changed:
        title = "Files that differ from that version"
        if len(changed) > MODIFIED_SHOWN:
            title += f" (the first {MODIFIED_SHOWN} of {len(changed)}; --json has all)"
        figures = Figure("file", NAME, "path"), Figure("text", TEXT, _origin)
        tables.append(Table.of(title, changed[:MODIFIED_SHOWN], *figures))
    said = [(flag.name, flag.value, flag.path) for flag in found.flags]
    said += [(each.name, each.version, each.path) for each in found.dependencies]
    if said:
        columns = {"setting": TEXT, "value": TEXT, "file": NAME}
        tables.append(Table("Build files", columns, said))
    return Report(f"sources in {found.folder}", facts, tables, list(found.reasons))


def _version(copy: SourceCopy) -> str:
    if copy.confidence < RECOGNIZED:
        return "unknown"
    dates = dict(history()) if copy.project == "tflm" else {}
    names = dict.fromkeys((copy.first, copy.last))
    return " to ".join(f"{name} of {dates[name]}" if name in dates else name for name in names)


COPY_FIGURES = (
    Figure("sources", TEXT, "project"),
    Figure("version", TEXT, _version),
    Figure("files", NUMBER, "files"),
    Figure("agree", NUMBER, "matching"),
    Figure("folder", NAME, lambda copy: copy.folder or "."),
)


def _origin(change: Modified) -> str:
    if change.first is None:
        return "of no known version: changed locally"
    return f"of {change.first}" if change.first == change.last else f"of {change.first} to {change.last}"
