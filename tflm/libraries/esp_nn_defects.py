"""Defects of ESP-NN on the ESP32-S3, by version: wrong results, and writes past scratch buffers.

x, f and y as in `esp_nn_scratch`; F is the size of f in bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

from tflm.kernels.node import Node
from tflm.libraries.esp_nn_scratch import (
    DEPTHWISE_BYTES,
    LARGEST_IMAGE_AND_FILTER_S3,
    VERSIONS,
    Convolution,
    bytes_for,
    convolution,
)
from tflm.libraries.kernel_library import Concern, Effect, Version
from tflm.schema.enums import TensorType
from tflm.schema.options import Conv2DOptions, DepthwiseConv2DOptions

S3 = "esp32s3"


class Defect(NamedTuple):
    """A defect of a kernel.

    Attributes:
        applies: whether a node with its convolution is affected, in a version with the defect.
        since, fixed: the first version with the defect, and the first one without.
    """

    operator: str
    effect: Effect
    applies: Callable[[Node, Convolution, Version], bool]
    happens: str
    since: str
    fixed: str
    advice: str = ""


def _gap(filter: int) -> int:
    """Bytes from the end of the filter to the next vector boundary; a whole vector if it ends at a boundary."""
    return 16 - filter % 16


def _is_3x3(conv: Convolution, remainder: int) -> bool:
    """Whether it is a 3 x 3 depthwise convolution whose channels have that remainder modulo 16."""
    return conv.multiplier == 1 and conv.taps == (3, 3) and conv.channels % 16 == remainder


def _overruns(written: int, conv: Convolution, node: Node, version: Version) -> bool:
    """Whether a depthwise convolution writes more bytes than its scratch buffer has."""
    return written > bytes_for(DEPTHWISE_BYTES, node.target, version)(conv)


def _padding_of_one_side(node: Node, conv: Convolution, version: Version) -> bool:
    """The image is widened to int16 (up to 1.2.0~1), or padded at both ends (from 1.2.1), in a buffer sized for
    int8."""
    if not _is_3x3(conv, 0) or conv.padding in ((0, 0), (1, 1)):
        return False
    if version.before("1.2.1"):
        written = 2 * (conv.window + _gap(conv.window) + conv.elements)
    else:
        rows, columns = (
            max(0, windows * stride + 2 - size - 2 * before)
            for windows, stride, size, before in zip(
                conv.output_size, conv.strides, (conv.rows, conv.columns), conv.padding
            )
        )
        image = conv.image(2 * conv.padding[0] + rows, 2 * conv.padding[1] + columns, conv.channels)
        written = conv.window + 16 + image + conv.output_size[0] * conv.output_size[1] * conv.channels
    return _overruns(written, conv, node, version)


def _large_image_without_padding(node: Node, conv: Convolution, version: Version) -> bool:
    """The whole image is padded at its end, in a buffer for three of its rows."""
    if not _is_3x3(conv, 0) or any(conv.padding) or conv.beyond == (0, 0):
        return False
    image = conv.image(*conv.beyond, conv.channels)
    written = conv.window + _gap(conv.window) + image
    return _overruns(written, conv, node, version)


def _padded_rows_of_large_image(node: Node, conv: Convolution, version: Version) -> bool:
    """Rows of padding hold the input offset instead of 0, which makes a difference unless the zero point is 0."""
    takes_rows = conv.multiplier == 1 and conv.channels % 8 == 0 and conv.taps != (3, 3)
    is_large = 2 * (conv.window + conv.elements) > LARGEST_IMAGE_AND_FILTER_S3
    is_padded = conv.padding[0] > 0 or conv.trailing[0] > 0
    return takes_rows and is_large and is_padded and node.input(0).zero_point != 0


def _widened_filter_and_image(node: Node, conv: Convolution, version: Version) -> bool:
    """The gap between filter and image is computed in bytes, but used in int16 elements."""
    takes_int16 = conv.multiplier % 4 == 0 or _is_3x3(conv, 8)
    written = 2 * (conv.filter + _gap(conv.filter) + conv.elements)
    return takes_int16 and _overruns(written, conv, node, version)


def _more_padding_behind(node: Node, conv: Convolution, version: Version) -> bool:
    if conv.is_pointwise or all(after <= before for before, after in zip(conv.padding, conv.trailing)):
        return False
    return version.before("1.2.1") or (any(conv.padding) and not conv.fills_columns)


def _unequal_padding(node: Node, conv: Convolution, version: Version) -> bool:
    rows, columns = conv.padding
    return columns > 0 and rows != columns


def _is_grouped(node: Node, conv: Convolution, version: Version) -> bool:
    return node.input(1).dims[3] != conv.channels


OVERRUN = "writes past its scratch buffer, over other tensors"

DEFECTS = (
    Defect(
        "DEPTHWISE_CONV_2D",
        Effect.BREAKS,
        _padding_of_one_side,
        f"With a 3x3 filter and this padding (neither 0 nor 1 on every leading side), the kernel {OVERRUN}",
        since="1.0-beta",
        fixed="58ca1a4",
    ),
    Defect(
        "DEPTHWISE_CONV_2D",
        Effect.BREAKS,
        _large_image_without_padding,
        f"With a 3x3 filter, no leading padding and an image of more than 40 KiB, the kernel {OVERRUN}",
        since="1.2.1",
        fixed="58ca1a4",
    ),
    Defect(
        "DEPTHWISE_CONV_2D",
        Effect.DIFFERS,
        _padded_rows_of_large_image,
        "With an image of this size, rows of padding count as the negated zero point instead of 0",
        since="1.2.1",
        fixed="1.4.0",
    ),
    Defect(
        "DEPTHWISE_CONV_2D",
        Effect.BREAKS,
        _widened_filter_and_image,
        f"With a filter of this size, the kernel {OVERRUN}",
        since="1.0-beta",
        fixed="1.2.0",
    ),
    Defect(
        "CONV_2D",
        Effect.DIFFERS,
        _more_padding_behind,
        "Padding at the bottom or right that exceeds the padding at the top or left is ignored",
        since="1.0-beta",
        fixed="58ca1a4",
    ),
    Defect(
        "CONV_2D",
        Effect.BREAKS,
        _unequal_padding,
        f"With unequal padding of rows and columns, results are wrong, and for some shapes the kernel {OVERRUN}",
        since="1.0-beta",
        fixed="1.0.2",
    ),
    Defect(
        "CONV_2D",
        Effect.BREAKS,
        _is_grouped,
        "Grouped convolutions are computed as if every filter had all input channels",
        since="1.0-beta",
        fixed="1.2.3",
        advice="Split it into one convolution per group",
    ),
)

KINDS: dict[str, type[Conv2DOptions] | type[DepthwiseConv2DOptions]] = {
    "CONV_2D": Conv2DOptions,
    "DEPTHWISE_CONV_2D": DepthwiseConv2DOptions,
}


def concerns(version: Version) -> Iterator[Concern]:
    """The concerns that follow from the defects of a library version."""
    for defect in DEFECTS:
        if version.since(defect.since) and version.before(defect.fixed):
            yield Concern(
                defect.operator,
                defect.effect,
                partial(_applies, defect, version),
                f"{defect.happens} ({_affected(defect)}).",
                f"{defect.advice + ', or u' if defect.advice else 'U'}se ESP-NN {_named(defect.fixed)} or later, "
                "or build with TFLM's reference kernels.",
            )


def _affected(defect: Defect) -> str:
    before = VERSIONS[VERSIONS.index(defect.fixed) - 1]
    first = f"{defect.since} to" if defect.since != VERSIONS[0] else "up to"
    return f"ESP-NN {first} {before}; fixed in {_named(defect.fixed)}"


def _named(version: str) -> str:
    """The version or, for a commit between versions, the next named one."""
    return version if "." in version else VERSIONS[VERSIONS.index(version) + 1]


def _applies(defect: Defect, version: Version, node: Node) -> bool:
    """On an ESP32-S3, with int8 and without dilation; all other cases use TFLM's own kernel."""
    options = node.options(KINDS[defect.operator])
    is_taken = node.input(0).type == TensorType.INT8 and options.dilation_h_factor == options.dilation_w_factor == 1
    if S3 not in node.target.extensions or not is_taken:
        return False
    return defect.applies(node, convolution(node, KINDS[defect.operator]), version)
