"""Read models and logs from files, pipes and standard input; parse sizes, shares and shapes."""

from __future__ import annotations

import re
import sys
from contextvars import ContextVar
from pathlib import Path

from tflm.application.errors import OptionError, RequestError, described
from tflm.application.output_files import note_input
from tflm.bounded_reading import MAX_MODEL_BYTES, MAX_TEXT_BYTES, read_at_most, read_stream, read_text
from tflm.errors import ArgumentError, ModelError
from tflm.schema.model import Model
from tflm.schema.reader import require_no_folder

STANDARD_INPUT = Path("-")

MAX_LINE = 4096
"""Only this many characters of a log line are read."""

UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20}

checks_of_models: ContextVar[str] = ContextVar("checks_of_models", default="all")
"""How strictly `load_model` checks models."""


def title_of(path: Path) -> str:
    """Return the title of a model's report."""
    return "standard input" if path == STANDARD_INPUT else path.name


def require_local(path: Path) -> None:
    """Check that a model's path is not a URL.

    Raises:
        RequestError: it is a URL.
    """
    scheme, colon, _ = str(path).partition(":/")
    if colon and re.fullmatch(r"[A-Za-z][A-Za-z0-9+.-]+", scheme) and not path.exists():
        address = str(path).replace(":/", "://", 1) if "://" not in str(path) else str(path)
        raise RequestError(
            f"{address} is a URL, and models are read from files. Download it first (curl -LO {address}), or "
            f"pipe it into a command with - as the model: curl -sL {address} | tflm inspect -"
        )


def bytes_of_model(path: Path) -> bytes:
    """Read the bytes of a file, a pipe, or standard input ("-"), without checking that they are a model.

    Raises:
        RequestError: it is a URL.
        ArgumentError: it is a folder.
        DataError: it is larger than any model.
        OSError: it cannot be read.
    """
    require_local(path)
    note_input(path)
    if path == STANDARD_INPUT:
        return read_stream(sys.stdin.buffer, MAX_MODEL_BYTES, "standard input")
    require_no_folder(path)
    return read_at_most(path, MAX_MODEL_BYTES)


def lines_of_log(path: Path) -> list[str]:
    """Read the lines of a device's log, or of standard input ("-"), each up to a maximum length.

    Raises:
        DataError: it has more than `MAX_TEXT_BYTES`.
        OSError: it cannot be read.
    """
    if path == STANDARD_INPUT:
        text = read_stream(sys.stdin.buffer, MAX_TEXT_BYTES, "standard input").decode("utf-8", "replace")
    else:
        text = read_text(path, errors="replace")
    return [line[:MAX_LINE] for line in text.splitlines()]


def load_model(path: Path) -> Model:
    """Load a model from a file, a pipe, or standard input ("-").

    Raises:
        RequestError: it is not a valid model; the message names the file and the fault.
        ArgumentError: it is a folder.
        OSError: it cannot be read.
    """
    try:
        if path == STANDARD_INPUT:
            return Model(bytes_of_model(path), checks_of_models.get())
        require_local(path)
        note_input(path)
        return Model.from_file(path, checks_of_models.get())
    except ModelError as error:
        raise RequestError(f"{path}: {described(error)}") from error


def bytes_from(text: str) -> int:
    """Parse a size in bytes, such as 65536, 64K, 64KiB or 1.5M; units are powers of 1024.

    Raises:
        OptionError: the text is not a size.
    """
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)\s*([kKmM]?)(?:i?[bB])?", text.strip())
    if match is None:
        raise OptionError(f"invalid size {text!r} (expected e.g. 65536, 64K or 1.5M)")
    return int(float(match[1]) * UNITS[match[2].upper()])


def with_shapes(model: Model, texts: list[str] | None) -> Model:
    """Resize a model's inputs to shapes such as input=1,96,96,1; without shapes, return the model itself.

    Raises:
        OptionError: a text is not a shape, or names no input.
        OperatorError: an operator does not allow a shape.
    """
    shapes: dict[str | int, list[int]] = {}
    for text in texts or ():
        match = re.fullmatch(r"(.+)=\[?([0-9]+(?:,[0-9]+)*)\]?", text.replace(" ", ""))
        if match is None:
            raise OptionError(f"invalid shape {text!r} (expected e.g. input=1,96,96,1)")
        shapes[match[1]] = [int(dimension) for dimension in match[2].split(",")]
    if not shapes:
        return model
    from tflm.rewriting.resizing import resize  # rarely needed

    try:
        return Model(resize(model, shapes), model.checks)
    except ArgumentError as error:
        raise OptionError(str(error)) from error


def share_from(text: str) -> float:
    """Parse a share such as 10% or 0.1.

    Raises:
        OptionError: the text is not a share.
    """
    try:
        share = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        share = -1.0
    if not 0 <= share < float("inf"):
        raise OptionError(f"invalid share {text!r} (expected e.g. 10% or 0.1)")
    return share
