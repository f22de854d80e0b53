"""The input rows that an operator needs to compute a band of output rows.

Output row o of a convolution or pooling reads `extent` rows from o * stride - before on; rows outside the image are
padding. A band runs as a separate operator on fewer rows, with its own padding:

- VALID: no padding; the band's input is exactly the rows that its windows read.
- SAME: n rows have ceil(n / stride) windows and a padding p' before the first that follows from n. The operator pads
  at edges inside the image, too; output rows whose windows cross such an edge are garbage and are cut off. The rows are
  chosen so that the band's windows coincide with the original ones: first - p' + before is a multiple of the stride.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

from tflm.kernels.layers.geometry import output_size, padding_before
from tflm.schema.enums import Padding


class Rows(NamedTuple):
    """Rows `first` to `end` - 1. A band's output may extend beyond the tensor, with garbage at its edges."""

    first: int
    end: int

    @property
    def size(self) -> int:
        """Number of rows."""
        return self.end - self.first

    def covers(self, other: Rows) -> bool:
        """Whether these rows include all of `other`."""
        return self.first <= other.first and other.end <= self.end

    def hull(self, other: Rows) -> Rows:
        """Return the smallest range that includes both."""
        return Rows(min(self.first, other.first), max(self.end, other.end))


class Window(NamedTuple):
    """The windows along the rows of an image.

    Attributes:
        rows: number of rows of the image.
        extent: number of rows from the first to the last one that a window reads.
        stride: number of rows from one window to the next.
        before: number of rows of padding above the first window.
        pads_columns: whether the operator pads its columns, so that bands must be SAME, too.
    """

    rows: int
    extent: int
    stride: int
    before: int
    pads_columns: bool


class BandOfWindows(NamedTuple):
    """The rows and the padding of a band of windows.

    Attributes:
        needed: rows of the input.
        made: rows of the output, including garbage before or after the wanted ones.
        padding: padding of the band's operator.
    """

    needed: Rows
    made: Rows
    padding: Padding


@functools.lru_cache(maxsize=1 << 18)
def band_of_windows(window: Window, wanted: Rows) -> BandOfWindows:
    """Return how to compute the rows `wanted` from the fewest input rows."""
    first = wanted.first * window.stride - window.before
    end = (wanted.end - 1) * window.stride - window.before + window.extent
    if not window.pads_columns and first >= 0 and end <= window.rows:
        return BandOfWindows(Rows(first, end), wanted, Padding.VALID)
    seen = Rows(max(first, 0), min(end, window.rows))
    best = _same(window, Rows(0, window.rows))
    for more_before in range(min(window.stride, seen.first + 1)):
        for more_after in range(min(window.stride, window.rows - seen.end + 1)):
            band = _same(window, Rows(seen.first - more_before, seen.end + more_after))
            if band is not None and band.made.covers(wanted):
                best = min(best, band, key=_cost)
    assert best is not None
    return best


def _same(window: Window, needed: Rows) -> BandOfWindows | None:
    """Return the band with SAME padding on some rows; None if its windows do not coincide with the original ones."""
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
    """How a band of a padded image is computed: the rows, and the padding before and after them."""

    needed: Rows
    made: Rows
    before: int
    after: int


def band_of_border(border: Border, wanted: Rows) -> BandOfBorder:
    """Return how to compute the rows `wanted` of a padded image; a band of only padding includes one row of the
    image."""
    first = min(max(wanted.first - border.before, 0), border.rows - 1)
    end = max(min(wanted.end - border.before, border.rows), 1)
    made = wanted.hull(Rows(first + border.before, end + border.before))
    return BandOfBorder(Rows(first, end), made, first + border.before - made.first, made.end - border.before - end)
