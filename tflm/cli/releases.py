"""`tflm releases`: list the distributions of TFLM."""

from __future__ import annotations

import functools
from typing import Annotated

from tflm.application.errors import OptionError
from tflm.cli.output import answer
from tflm.cli.parameters import AsJson, argument
from tflm.releases import NAMES_MOVED, TODAY, Distribution, distributions, history
from tflm.report import NAME, TEXT, Figure, Report, Table, document_of, json_key


def releases(
    name: Annotated[str | None, argument("NAME", "Show only this one, such as zephyr.", show_default=False)] = None,
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
        "releases": [document_of(version, RELEASE_FIGURES) for version in shown],
    }
    answer(as_json, figures, _report(shown))


WORDS = {True: "yes", False: "no", None: "as the project says"}


@functools.cache
def _days() -> dict[str, str]:
    """The day of each commit of TFLM's main branch."""
    return dict(history())


def _commit_date(version: Distribution) -> str:
    return _days()[version.commit]


RELEASE_FIGURES = (
    Figure("name", NAME, "name").as_key(str, "name of the distribution"),
    Figure("version", TEXT, "version").as_key(str, "its version"),
    Figure("of", TEXT, "date").as_key(str | None, "the day of that version, if known"),
    Figure("TFLM", TEXT, "commit").as_key(str, "the commit of TFLM that its tree equals"),
    Figure("of ", TEXT, _commit_date).as_key(str, "the day of the commit", "commit_date"),
    Figure("static memory", TEXT, lambda version: WORDS[version.static_memory]),
    json_key(
        "static_memory",
        bool | None,
        "whether it is built with `TF_LITE_STATIC_MEMORY`; null if the project that uses it decides",
    ),
    Figure("kernels", TEXT, lambda version: version.kernels or "its own"),
    json_key("kernels", str | None, "the kernel library that it comes with; null for one of its own"),
)
"""The figures of a version of a distribution."""


def _report(shown: list[Distribution]) -> Report:
    table = Table.of("", shown, *RELEASE_FIGURES)
    first, last = history()[0], history()[-1]
    note = (
        f"--tflm takes a name with a version, a commit of TFLM's main branch ({first.hash} of {first.date} to "
        f"{last.hash} of {last.date}), or a day; without it, it is {TODAY.name}"
    )
    return Report("", [], [table], [note, NAMES_MOVED])
