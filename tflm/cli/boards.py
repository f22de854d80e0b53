"""`tflm boards`: list boards and chips."""

from __future__ import annotations

from typing import Annotated

import typer

from tflm.application.board_list import board_figures, board_list_report
from tflm.application.errors import RequestError
from tflm.boards.names import with_words
from tflm.cli.output import answer
from tflm.cli.parameters import AsJson


def boards(
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="WORDS", help="Only boards with all these words in a name, their chip or part."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the boards and chips that --board takes.

    \b
    Examples:
      tflm boards
      tflm boards xiao sense
      tflm boards cortex-m55
    """
    found = with_words([word for text in words or [] for word in text.split()])
    if not found:
        raise RequestError(f"no board or chip with {' and '.join(map(repr, words or []))}; tflm boards lists all")
    answer(as_json, {"boards": list(map(board_figures, found))}, board_list_report(found))
