"""Draw a memory plan as an HTML page, for browsers and notebooks; colours shared with other pictures."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

from tflm.report import printable

FRAME_HEIGHTS = {1: 780, 2: 1260}
"""Height in pixels in a notebook, by the number of plans, which are stacked if the page is narrow."""

FRAME_STYLE = "<style>svg.map { height: 360px; }</style>"

HATCH = "#9fb0bf"
"""The colour of the lines across a scratch buffer."""


class BlockKind(NamedTuple):
    """A kind of block in a picture: description and colour."""

    text: str
    colour: str


BLOCK_KINDS = {
    "input": BlockKind("input of the model", "#7fd1c7"),
    "output": BlockKind("output of the model", "#f2a6a0"),
    "convolution": BlockKind("output of a convolution", "#8fb8e8"),
    "product": BlockKind("output of a matrix product or recurrence", "#b7a5e6"),
    "pooling": BlockKind("output of pooling or a reduction", "#f0c987"),
    "movement": BlockKind("output of a copy or reshape", "#c9ced6"),
    "other": BlockKind("output of another operator", "#a9d18e"),
    "scratch": BlockKind("scratch of an operator", "#d9dfe5"),
}

FAMILIES = {
    "convolution": r"CONV",
    "product": r"FULLY_CONNECTED|MATMUL|SVDF|LSTM",
    "pooling": r"POOL|^MEAN$|^SUM$|^REDUCE|ARG_M",
    "movement": (
        r"RESHAPE|CONCAT|PAD|SLICE|SPLIT|PACK|TRANSPOSE|GATHER|SQUEEZE|EXPAND|SPACE|BATCH|READ|ASSIGN|VAR_HANDLE"
    ),
}
"""Kinds of blocks by the operator that writes them; the first match counts."""


def block_kind(plan: Mapping[str, Any], buffer: Mapping[str, Any]) -> str:
    """The key of `BLOCK_KINDS` for a buffer of a drawn plan."""
    if buffer["kind"] == "scratch":
        return "scratch"
    if buffer["tensor"] in plan["inputs"]:
        return "input"
    if buffer["tensor"] in plan["outputs"]:
        return "output"
    maker = plan["steps"][buffer["first_use"]]
    return next((family for family, pattern in FAMILIES.items() if re.search(pattern, maker)), "other")


def arena_page(title: str, plans: dict[str, dict[str, Any]]) -> str:
    """The text of an HTML page that draws plans side by side, to the same scale, and loads nothing.

    Args:
        title: of the page.
        plans: for each planner, what `tflm.runtime.micro_measurement_report.drawn_figures` returns.
    """
    return _page(title, plans)


def arena_frame(title: str, plans: dict[str, dict[str, Any]]) -> str:
    """The same page in a frame, for a notebook."""
    page = html.escape(_page(title, plans, FRAME_STYLE))
    style = f"width:100%;height:{FRAME_HEIGHTS[len(plans)]}px;border:0"
    shown = html.escape(printable(title))
    return f'<iframe title="{shown}" sandbox="allow-scripts" style="{style}" srcdoc="{page}"></iframe>'


@cache
def script_source() -> str:
    """The page's only script as a source of a content security policy: its hash."""
    (script,) = re.findall(r"<script>(.*?)</script>", _template(), re.DOTALL)
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"


@cache
def _template() -> str:
    return files("tflm").joinpath("arena_page.html").read_text(encoding="utf-8")


def _page(title: str, plans: Mapping[str, Mapping[str, Any]], style: str = "") -> str:
    """The template with all placeholders replaced in one pass, so that values are not searched for placeholders."""
    drawn = [{"planner": name, **plan, "buffers": _blocks(plan)} for name, plan in plans.items()]
    values = {
        "title": html.escape(printable(title)),
        "script_source": script_source(),
        "style": style,
        "data": _script_data(drawn),
        "look": _script_data({"kinds": BLOCK_KINDS, "hatch": HATCH}),
    }
    return re.sub(r"\{\{(\w+)\}\}", lambda place: values[place[1]], _template())


def _blocks(plan: Mapping[str, Any]) -> Sequence[dict[str, Any]]:
    return [{**buffer, "block": block_kind(plan, buffer)} for buffer in plan["buffers"]]


def _script_data(value: Any) -> str:
    """JSON that is safe inside an HTML script, where "<!--" and "<script" have a meaning, too."""
    text = json.dumps(value)
    return re.sub("[<>&]", lambda found: f"\\u{ord(found[0]):04x}", text)
