"""Integer operators in plain scalar Python: what they compute, one number after the other.

Nothing here is shared with the package. A kernel that lays its work out for speed must give what these give, and so
must TFLM; where TFLM is not at hand they are the second witness. They are written to be read beside a kernel.
"""

from __future__ import annotations

from collections.abc import Callable

from specifications.example import Example
from specifications.layers import conv_2d, depthwise_conv_2d, fully_connected, transpose_conv
from specifications.pooling import average_pool_2d, max_pool_2d
from specifications.softmax import softmax
from specifications.sums import add, mul, sub
from specifications.svdf import svdf

SPECIFICATIONS: dict[str, Callable[[Example], list[int]]] = {
    "ADD": add,
    "AVERAGE_POOL_2D": average_pool_2d,
    "CONV_2D": conv_2d,
    "DEPTHWISE_CONV_2D": depthwise_conv_2d,
    "FULLY_CONNECTED": fully_connected,
    "MAX_POOL_2D": max_pool_2d,
    "MUL": mul,
    "SOFTMAX": softmax,
    "SUB": sub,
    "SVDF": svdf,
    "TRANSPOSE_CONV": transpose_conv,
}
"""What each operator gives for int8 inputs: the elements of its output, in order."""
