"""A memory plan as a picture: offset by time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tflm.cli.command_line import CommandError

INCHES = (10, 5)


def arena_plot(path: Path, title: str, plans: dict[str, dict[str, Any]]) -> None:
    """Draw plans side by side, to the same scale.

    Args:
        path: where the picture goes; its suffix says of what kind it is.
        title: above it.
        plans: for each planner, what `tflm.cli.arena.figures` gives.

    Raises:
        CommandError: matplotlib is not installed, or knows no such kind of file; or the path has no suffix.
        OSError: the file can't be written.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise CommandError("--plot needs matplotlib: pip install 'pytflm[plot]'") from None
    if not path.suffix:
        raise CommandError(f"{path}: has no suffix that says what kind of picture it is: .png, .svg, .pdf")
    width, height = INCHES
    figure = Figure(figsize=(width * len(plans), height), layout="constrained")
    all_axes = figure.subplots(1, len(plans), sharey=True, squeeze=False)[0]
    for axes, (planner, plan) in zip(all_axes, plans.items()):
        _draw(axes, plan)
        axes.set_title(f"{title}, {planner}: head {plan['head_bytes']:,} bytes on {plan['target']}")
    all_axes[0].set_ylabel("offset in the arena (bytes)")
    try:
        figure.savefig(path)
    except ValueError as error:
        raise CommandError(f"{path}: {error}") from error


def _draw(axes: Any, plan: dict[str, Any]) -> None:
    colours = [f"C{i}" for i in range(10)]
    for i, buffer in enumerate(plan["buffers"]):
        axes.bar(
            buffer["first_use"] - 0.5,
            buffer["bytes"],
            width=buffer["last_use"] - buffer["first_use"] + 1,
            bottom=buffer["offset"],
            align="edge",
            color=colours[i % len(colours)],
            edgecolor="white",
            linewidth=0.5,
            hatch="//" if buffer["kind"] == "scratch" else None,
        )
    peak = plan["peak"]
    axes.axvline(peak["step"], color="black", linewidth=0.5, linestyle=":")
    axes.axhline(peak["bytes"], color="black", linewidth=0.5, linestyle="--", label="most alive at once")
    axes.set_xlabel("step (0 fills the inputs, then one for each operator)")
    axes.set_xlim(-0.5, len(plan["steps"]) - 0.5)
    axes.legend(loc="upper right")
