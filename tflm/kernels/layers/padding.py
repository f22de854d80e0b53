"""Where the windows of convolutions and pools lie: SAME and VALID padding."""

from __future__ import annotations

from tflm.errors import OperatorError
from tflm.schema.enums import Padding
from tflm.targets import INT, EnumType, Struct

TFLITE_PADDING = EnumType(largest=2)
TFLITE_PADDING_VALUES = Struct("TfLitePaddingValues", width=INT, height=INT, width_offset=INT, height_offset=INT)


def output_size(padding: Padding, size: int, window: int, stride: int, dilation: int = 1) -> int:
    """How many windows fit along a dimension of `size`; SAME lets the last ones reach beyond the end.

    A window that is larger than the dimension gives 0, or a negative number if it is larger by the stride or more.

    Raises:
        OperatorError: the stride or the dilation is not positive.
    """
    if stride <= 0 or dilation <= 0:
        raise OperatorError(f"has stride {stride} and dilation {dilation}, both must be at least 1")
    covered = 1 if padding == Padding.SAME else effective_size(window, dilation)
    room = size + stride - covered
    return 0 if -stride < room < 0 else room // stride


def effective_size(window: int, dilation: int) -> int:
    """Elements from the first to the last that a dilated window reads."""
    return (window - 1) * dilation + 1


def padding_before(windows: int, size: int, window: int, stride: int, dilation: int = 1) -> int:
    """Elements before the first one that the first of so many windows covers: half of all padding, rounded down.

    None for a negative number of windows, as `output_size` gives it.
    """
    if windows < 0:
        return 0
    return max((windows - 1) * stride + effective_size(window, dilation) - size, 0) // 2
