"""Which rows an operator needs of its input to make a band of rows of its output.

Row o of the output of a convolution or a pool looks at the rows from o * stride - before on, `extent` of them; what is
outside of the image is padding. A band runs as an operator of its own over fewer rows, and pads them by its own rule:

- VALID: no row is padding, and the band's rows are exactly those it looks at.
- SAME: with n rows, ceil(n / stride) windows and a padding p' before the first that follows from n. It pads at the
  edges inside the image, too: rows whose windows cross such an edge are garbage, and are cut off. The rows of the band
  are chosen so that its windows fall on windows of the whole: first - p' + before is a multiple of the stride.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

from tflm.kernels.layers.geometry import output_size, padding_before
from tflm.schema.enums import Padding


class Rows(NamedTuple):
    """Rows from `first` to `end` - 1. Of what a band makes they may reach beyond the tensor: garbage at its edges."""

    first: int
    end: int

    @property
    def size(self) -> int:
        """How many they are."""
        return self.end - self.first

    def covers(self, other: Rows) -> bool:
        """Whether all of the other's are among them."""
        return self.first <= other.first and other.end <= self.end

    def hull(self, other: Rows) -> Rows:
        """From the first of both to the last of both."""
        return Rows(min(self.first, other.first), max(self.end, other.end))


class Window(NamedTuple):
    """Windows along the rows of an image.

    Attributes:
        rows: of the image.
        extent: rows from the first to the last that a window looks at.
        stride: rows from one window to the next.
        before: rows of padding above the first window.
        pads_columns: whether the operator pads along the other dimension, so that bands must be SAME as well.
    """

    rows: int
    extent: int
    stride: int
    before: int
    pads_columns: bool


class BandOfWindows(NamedTuple):
    """How a band of windows is made.

    Attributes:
        needed: rows of the input.
        made: rows of the output, with garbage before or after those asked for.
        padding: of the band's operator.
    """

    needed: Rows
    made: Rows
    padding: Padding


@functools.lru_cache(maxsize=1 << 18)
def band_of_windows(window: Window, wanted: Rows) -> BandOfWindows:
    """How to make the rows `wanted`, with the least rows."""
    first = wanted.first * window.stride - window.before
    end = (wanted.end - 1) * window.stride - window.before + window.extent
    if not window.pads_columns and first >= 0 and end <= window.rows:
        return BandOfWindows(Rows(first, end), wanted, Padding.VALID)
    seen = Rows(max(first, 0), min(end, window.rows))
    best = _same(window, Rows(0, window.rows))
    for more_before in range(min(2 * window.stride, seen.first) + 1):
        for more_after in range(min(2 * window.stride, window.rows - seen.end) + 1):
            band = _same(window, Rows(seen.first - more_before, seen.end + more_after))
            if band is not None and band.made.covers(wanted):
                best = min(best, band, key=_cost)
    assert best is not None
    return best


def _same(window: Window, needed: Rows) -> BandOfWindows | None:
    """What SAME makes of some rows; None where its windows are none of the whole's."""
    count = output_size(Padding.SAME, needed.size, window.extent, window.stride)
    before = padding_before(count, needed.size, window.extent, window.stride)
    shift = needed.first - before + window.before
    if shift % window.stride:
        return None
    first = shift // window.stride
    return BandOfWindows(needed, Rows(first, first + count), Padding.SAME)


def _cost(band: BandOfWindows | None) -> tuple[int, int]:
    assert band is not None
    return band.made.size, band.needed.size


class Border(NamedTuple):
    """Rows of padding around an image."""

    rows: int
    before: int
    after: int


class BandOfBorder(NamedTuple):
    """How a band of a padded image is made: from which rows, with how many of padding before and after them."""

    needed: Rows
    made: Rows
    before: int
    after: int


def band_of_border(border: Border, wanted: Rows) -> BandOfBorder:
    """How to make the rows `wanted` of a padded image; of what is padding alone, with a row of the image as well."""
    first = min(max(wanted.first - border.before, 0), border.rows - 1)
    end = max(min(wanted.end - border.before, border.rows), 1)
    made = wanted.hull(Rows(first + border.before, end + border.before))
    return BandOfBorder(Rows(first, end), made, first + border.before - made.first, made.end - border.before - end)
