"""Images that matplotlib draws, an optional dependency."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tflm.application.errors import RequestError
from tflm.atomic_write import write_atomically

MARGIN_INCHES = 0.1


def write_image(path: Path, inches: tuple[float, float], draw: Callable[[Any], None]) -> None:
    """Write what `draw` draws on a figure.

    Args:
        path: the image file; its suffix selects the format.
        inches: width and height.
        draw: called with a figure of matplotlib.

    Raises:
        RequestError: matplotlib is not installed or does not support the format, or the path has no suffix.
        OSError: the file can't be written.
    """
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError:
        raise RequestError("--plot needs matplotlib: pip install matplotlib") from None
    if not path.suffix:
        raise RequestError(f"{path}: the name of an image must end in .png, .svg or .pdf")
    picture = io.BytesIO()
    with matplotlib.rc_context({"text.parse_math": False}):  # names may contain dollar signs
        figure = Figure(figsize=inches, layout="constrained")
        draw(figure)
        try:
            figure.savefig(picture, format=path.suffix[1:], bbox_inches="tight", pad_inches=MARGIN_INCHES)
        except ValueError as error:
            raise RequestError(f"{path}: {error}") from error
    write_atomically(path, picture.getbuffer())
