"""A memory plan as a page of its own, to be looked at in a browser."""

from __future__ import annotations

import html
import json
from importlib.resources import files
from typing import Any


def arena_page(title: str, plans: dict[str, dict[str, Any]]) -> str:
    """The text of an HTML page that draws plans side by side, to the same scale, and loads nothing.

    Args:
        title: of the page.
        plans: for each planner, what `tflm.cli.arena.figures` gives, and the model's `inputs` and `outputs`.
    """
    template = files("tflm.cli").joinpath("arena_page.html").read_text(encoding="utf-8")
    # Inside a script, "</" would end it; JSON may write the slash as \/ as well.
    data = json.dumps([{"planner": name, **plan} for name, plan in plans.items()]).replace("</", "<\\/")
    return template.replace("TITLE", html.escape(title)).replace("PLANS", data)
