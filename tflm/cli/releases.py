"""`tflm releases`: list the distributions of TFLM."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from tflm.application.errors import OptionError
from tflm.cli.output import answer
from tflm.cli.parameters import AsJson
from tflm.releases import NAMES_MOVED, TODAY, Distribution, distributions, history
from tflm.report import NAME, TEXT, Figure, Report, Table


def releases(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="Show only this one, such as zephyr.", show_default=False)
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
        raise OptionError(f"unknown distribution {name!r}; use one of {', '.join(known)}")
    shown = [version for each in ([name] if name else known) for version in known[each]]
    first, last = history()[0], history()[-1]
    figures = {
        "first_commit": first,
        "last_commit": last,
        "default": TODAY.name,
        "releases": [_figures(version) for version in shown],
    }
    answer(as_json, figures, _report(shown))


def _report(shown: list[Distribution]) -> Report:
    dates = dict(history())
    words = {True: "yes", False: "no", None: "as the project says"}
    table = Table.of(
        "",
        shown,
        Figure("name", NAME, "name"),
        Figure("version", TEXT, "version"),
        Figure("of", TEXT, "date"),
        Figure("TFLM", TEXT, "commit"),
        Figure("of ", TEXT, lambda version: dates[version.commit]),
        Figure("static memory", TEXT, lambda version: words[version.static_memory]),
        Figure("kernels", TEXT, lambda version: version.kernels or "its own"),
    )
    first, last = history()[0], history()[-1]
    note = (
        f"--tflm takes a name with a version, a commit of TFLM's main branch ({first.hash} of {first.date} to "
        f"{last.hash} of {last.date}), or a day; without it, it is {TODAY.name}"
    )
    return Report("", [], [table], [note, NAMES_MOVED])


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
