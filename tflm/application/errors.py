"""Errors of requests to this layer."""

from __future__ import annotations

from tflm.errors import TflmError


class RequestError(TflmError):
    """A request cannot be met. The command exits with status 1."""


class OptionError(RequestError):
    """An option or a combination of options is invalid. The command exits with status 2."""


class CheckFailed(RequestError):
    """A requested check, such as a budget, failed. The command exits with status 1."""


class NotKnown(CheckFailed):
    """What was asked for cannot be decided. The command exits with status 3."""
