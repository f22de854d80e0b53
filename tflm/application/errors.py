"""Errors of requests to this layer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tflm.errors import ArgumentError, TflmError


class RequestError(TflmError):
    """A request cannot be met. The command exits with status 1."""


class OptionError(RequestError):
    """An option or a combination of options is invalid. The command exits with status 2."""


class CheckFailed(RequestError):
    """A requested check, such as a budget, failed. The command exits with status 1."""


class NotKnown(CheckFailed):
    """The question cannot be decided. The command exits with status 3."""


@contextmanager
def option_errors(kind: type[Exception] = ArgumentError) -> Iterator[None]:
    """Convert errors of a class in the block to an `OptionError`."""
    try:
        yield
    except kind as error:
        raise OptionError(str(error)) from None


def described(error: Exception) -> str:
    """Describe an error in one line."""
    if isinstance(error, OSError) and error.strerror:
        place = f"{error.filename}: " if error.filename else ""
        return f"{place}{error.strerror}"
    if isinstance(error, MemoryError):
        return f"this computer has too little memory for this model: {error or 'an allocation failed'}"
    return " ".join(str(error).split())
