"""Windows that slide over two dimensions, one tap at a time."""

from __future__ import annotations

from typing import NamedTuple


class Tap(NamedTuple):
    """One element of a window along one dimension: the windows that have it inside the input, and where it is there."""

    windows: slice
    inputs: slice


def taps(size: int, windows: int, window: int, stride: int, before: int, dilation: int = 1) -> list[Tap]:
    """The taps of a window that have an element of the input for any of the windows, in order.

    Args:
        size: elements along the dimension.
        windows: how many windows there are.
        window: elements of a window.
        stride: from one window to the next.
        before: elements of padding that the first window covers.
        dilation: from one element of a window to the next.
    """
    lowest = max(0, -(-(before - (windows - 1) * stride) // dilation))
    highest = min(window - 1, (size - 1 + before) // dilation)
    found = []
    for tap in range(lowest, highest + 1):
        offset = tap * dilation - before  # of the first window's tap from the first element
        first, last = max(0, -(offset // stride)), min(windows - 1, (size - 1 - offset) // stride)
        if first <= last:
            start = first * stride + offset
            found.append(Tap(slice(first, last + 1), slice(start, start + (last - first) * stride + 1, stride)))
    return found
