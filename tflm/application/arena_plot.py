"""Draw a memory plan as an image: offset over time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tflm.application.image_files import write_image
from tflm.arena_page import BLOCK_KINDS, HATCH, block_kind
from tflm.report import printable

INCHES = (10, 5)
FONT_POINTS, POINTS_PER_CHARACTER, POINTS_PER_INCH = 6, 4, 72
"""Font size of buffer names, and an upper estimate of a character's width."""

FEWEST_CHARACTERS = 3

SHARE_OF_AXES = 0.9
"""Share of the image's width; the rest is for numbers and titles."""

LEGEND_COLUMNS = {1: 3}
"""Columns of the legend, by the number of plans; 4 for several."""
NAMED_BUFFERS = 8
"""Number of buffers that are labelled, the largest first."""


def arena_plot(path: Path, title: str, plans: dict[str, dict[str, Any]]) -> None:
    """Draw plans side by side, to the same scale.

    Args:
        path: the image file; its suffix selects the format.
        title: the title above each plan.
        plans: for each planner, what `drawn_figures` returns.

    Raises:
        RequestError: matplotlib is not installed or does not support the format, or the path has no suffix.
        OSError: the file can't be written.
    """
    width, height = INCHES
    write_image(path, (width * len(plans), height), lambda figure: _plot(figure, title, plans))


def _plot(figure: Any, title: str, plans: dict[str, dict[str, Any]]) -> None:
    all_axes = figure.subplots(1, len(plans), sharey=True, squeeze=False)[0]
    for axes, (planner, plan) in zip(all_axes, plans.items()):
        _draw(axes, plan)
        axes.set_title(
            f"{printable(title)}, {planner}: head {plan['head_bytes']:,} bytes on {plan['target']}, "
            f"{plan['kernels']} kernels"
        )
    all_axes[0].set_ylabel("offset in the arena (bytes)")
    figure.legend(handles=_legend(all_axes, plans), loc="outside lower center", ncols=LEGEND_COLUMNS.get(len(plans), 4))


def _draw(axes: Any, plan: dict[str, Any]) -> None:
    for buffer in plan["buffers"]:
        axes.bar(
            buffer["first_use"] - 0.5,
            buffer["bytes"],
            width=buffer["last_use"] - buffer["first_use"] + 1,
            bottom=buffer["offset"],
            align="edge",
            **_look(block_kind(plan, buffer)),
        )
    for buffer in sorted(plan["buffers"], key=lambda buffer: -int(buffer["bytes"]))[:NAMED_BUFFERS]:
        _name(axes, plan, buffer)
    peak = plan["peak"]
    axes.axvline(peak["step"], color="black", linewidth=0.5, linestyle=":", label="step of the peak")
    axes.axhline(peak["bytes"], color="black", linewidth=0.5, linestyle="--", label="most alive at once")
    axes.set_xlabel("step (0 fills the inputs, then one for each operator)")
    axes.set_xlim(-0.5, len(plan["steps"]) - 0.5)
    axes.xaxis.get_major_locator().set_params(integer=True)


def _look(kind: str) -> dict[str, Any]:
    """Return the style of a kind of block, the same as in the HTML page."""
    if kind == "scratch":
        return {"facecolor": BLOCK_KINDS[kind].colour, "edgecolor": HATCH, "linewidth": 0.5, "hatch": "//"}
    return {"facecolor": BLOCK_KINDS[kind].colour, "edgecolor": "white", "linewidth": 0.5}


def _legend(all_axes: Any, plans: dict[str, dict[str, Any]]) -> list[Any]:
    """Return legend entries for the kinds of blocks that occur, then for the lines."""
    from matplotlib.patches import Patch

    drawn = {block_kind(plan, buffer) for plan in plans.values() for buffer in plan["buffers"]}
    blocks = [Patch(**_look(name), label=kind.text) for name, kind in BLOCK_KINDS.items() if name in drawn]
    return [*blocks, *all_axes[0].get_legend_handles_labels()[0]]


def _uncovered(plan: dict[str, Any], buffer: dict[str, Any]) -> tuple[int, int]:
    """Return the steps, from the first to the one after the last, in which no buffer drawn later covers this one."""
    begin, end = buffer["first_use"], buffer["last_use"] + 1
    for other in plan["buffers"][plan["buffers"].index(buffer) + 1 :]:
        in_time = other["first_use"] < end and begin <= other["last_use"]
        above = other["offset"] >= buffer["offset"] + buffer["bytes"]
        if not in_time or above or buffer["offset"] >= other["offset"] + other["bytes"]:
            continue
        if other["first_use"] > begin:
            end = other["first_use"]
        else:
            begin = other["last_use"] + 1
    return begin, end


def _name(axes: Any, plan: dict[str, Any], buffer: dict[str, Any]) -> None:
    """Label a buffer with its operator and shape, cut to the width in which no later buffer covers it."""
    begin, end = _uncovered(plan, buffer)
    inches = SHARE_OF_AXES * axes.figure.get_figwidth() / len(axes.figure.axes) * (end - begin) / len(plan["steps"])
    characters = int(inches * POINTS_PER_INCH / POINTS_PER_CHARACTER)
    if characters < FEWEST_CHARACTERS:
        return
    maker = plan["steps"][buffer["first_use"]]
    what = f"{buffer['first_use'] - 1} {maker}" if maker else "input"
    sizes = buffer["dims"][1:] if buffer["dims"][:1] == [1] else buffer["dims"]
    shape = "scratch" if buffer["kind"] == "scratch" else "x".join(map(str, sizes))
    lines = (line if len(line) <= characters else f"{line[: characters - 1]}…" for line in (what, shape))
    middle = (begin + end - 1) / 2, buffer["offset"] + buffer["bytes"] / 2
    axes.text(*middle, "\n".join(lines), ha="center", va="center", fontsize=FONT_POINTS, clip_on=True)
