"""`tflm releases`: the TFLM in everything that people get it with."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from tflm.cli.command_line import AsJson, print_json, show
from tflm.releases import TODAY, Distribution, distributions, history
from tflm.report import Column, Report, Table


def releases(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="One of them alone, such as zephyr.", show_default=False)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List what contains TFLM, version by version.

    \b
    Examples:
      tflm releases
      tflm releases esp-tflite-micro
    """
    known = distributions()
    if name is not None and name not in known:
        raise typer.BadParameter(f"{name!r} is not known; there are {', '.join(known)}")
    shown = [version for each in ([name] if name else known) for version in known[each]]
    first, last = history()[0], history()[-1]
    if as_json:
        print_json(
            {
                "first_commit": first._asdict(),
                "last_commit": last._asdict(),
                "default": TODAY.name,
                "releases": [_figures(version) for version in shown],
            }
        )
        return
    columns = {
        "name": Column.NAME,
        "version": Column.TEXT,
        "of": Column.TEXT,
        "TFLM": Column.TEXT,
        "of ": Column.TEXT,
        "static memory": Column.TEXT,
        "kernels": Column.TEXT,
    }
    dates = dict(history())
    words = {True: "yes", False: "no", None: "as the project says"}
    rows = (
        (v.name, v.version, v.date, v.commit, dates[v.commit], words[v.static_memory], v.kernels or "its own")
        for v in shown
    )
    notes = [
        f"--tflm takes a name with a version, a commit of TFLM's main branch ({first.hash} of {first.date} to "
        f"{last.hash} of {last.date}), or a day; without it, it is {TODAY.name}"
    ]
    show(Report("", [], [Table("", columns, rows)], notes))


def _figures(version: Distribution) -> dict[str, Any]:
    return {
        "name": version.name,
        "version": version.version,
        "date": version.date or None,
        "commit": version.commit,
        "commit_date": dict(history())[version.commit],
        "static_memory": version.static_memory,
        "kernels": version.kernels or None,
    }
