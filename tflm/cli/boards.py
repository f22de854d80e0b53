"""`tflm boards`: list boards and chips."""

from __future__ import annotations

from typing import Annotated

from tflm.application.errors import RequestError
from tflm.boards import Board
from tflm.boards.names import with_words
from tflm.boards.sdks import sdks_for
from tflm.boards.table import MEMORY_FIGURES
from tflm.cli.output import answer
from tflm.cli.parameters import AsJson, argument
from tflm.report import TEXT, Figure, Report, Table, document_of, json_key, short_size

OTHER_NAMES = "--board also takes other names of vendors, PlatformIO, Zephyr and Arduino, and a file: my_board.toml"


def _memories(board: Board) -> str:
    return " + ".join(f"{bank.name} {short_size(bank.bytes)}" for bank in board.ram)


BOARD_FIGURES = (
    Figure("board", TEXT, "name").as_key(str, "a board or chip"),
    Figure("", TEXT, "description").as_key(str, "what it is"),
    json_key("chip", str | None, "its chip; null for a chip"),
    Figure("part", TEXT, "target.name").as_key(str, "its part", "target"),
    Figure("kernels", TEXT, "kernels").as_key(str, "its usual kernel library"),
    Figure("SDK", TEXT, "sdk"),
    json_key("sdk", str | None, "its usual SDK"),
    json_key("sdks", list[str], "the SDKs for --sdk", lambda board: sdks_for(board.places)),
    json_key("npu", str | None, "its Ethos-U, as a configuration of Vela"),
    Figure("RAM, fastest first", TEXT, _memories),
    json_key("ram", [MEMORY_FIGURES], "its memories, the fastest first"),
    Figure("flash", TEXT, lambda board: board.flash_bytes and short_size(board.flash_bytes)),
    json_key("flash_bytes", int | None, "its flash; null if a chip has none"),
    json_key("aliases", list[str], "other names"),
    json_key("source", str | None, "the source of the figures"),
)
"""The figures of a board; sizes in bytes."""


def boards(
    words: Annotated[
        list[str] | None, argument("WORDS", "Only boards with all these words in a name, their chip or part.")
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
    documents = [document_of(board, BOARD_FIGURES) for board in found]
    answer(as_json, {"boards": documents}, Report("", [], [Table.of("", found, *BOARD_FIGURES)], [OTHER_NAMES]))
