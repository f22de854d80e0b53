"""A memory plan as a page of its own, to be looked at in a browser or inside a notebook."""

from __future__ import annotations

import html
import json
from importlib.resources import files
from typing import Any

FRAME_HEIGHTS = {1: 780, 2: 1260}
"""Pixels in a notebook, by the number of plans, of which one stands below the other where it is narrow."""

FRAME_STYLE = "<style>svg.map { height: 360px; }</style></head>"


def arena_page(title: str, plans: dict[str, dict[str, Any]]) -> str:
    """The text of an HTML page that draws plans side by side, to the same scale, and loads nothing.

    Args:
        title: of the page.
        plans: for each planner, what `tflm.runtime.micro_measurement_report.drawn` gives.
    """
    template = files("tflm").joinpath("arena_page.html").read_text(encoding="utf-8")
    # Inside a script, "</" would end it; JSON may write the slash as \/ as well.
    data = json.dumps([{"planner": name, **plan} for name, plan in plans.items()]).replace("</", "<\\/")
    return template.replace("TITLE", html.escape(title)).replace("PLANS", data)


def arena_frame(title: str, plans: dict[str, dict[str, Any]]) -> str:
    """The same page in a frame of its own, for a notebook."""
    page = html.escape(arena_page(title, plans).replace("</head>", FRAME_STYLE, 1))
    style = f"width:100%;height:{FRAME_HEIGHTS[len(plans)]}px;border:0"
    return f'<iframe title="{html.escape(title)}" sandbox="allow-scripts" style="{style}" srcdoc="{page}"></iframe>'
