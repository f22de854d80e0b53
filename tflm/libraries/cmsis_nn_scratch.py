"""What CMSIS-NN's kernels need: scratch buffers, and how far outputs may overlap inputs, by instruction set.

They are what the functions named `..._get_buffer_size` return when CMSIS-NN is compiled with GCC, and go by the part:
whether it has `mve` (Helium), `dsp`, or neither. x is the input, f the filter, y the output.

Overlaps are declared only where they allow less than TFLM's kernels, so a plan that is safe for them is safe for
TFLM's, too. `tools/prove_overlap.py` runs the kernels at the smallest distance that is declared.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from types import MappingProxyType
from typing import NamedTuple

from tflm.kernels.layers.geometry import behind_blocks, paddings, windows
from tflm.kernels.node import Node
from tflm.kernels.overlap import OperatorFacts, Overlap, anywhere, nowhere
from tflm.libraries.kernel_library import Version
from tflm.memory.tensor import TfLiteTensor
from tflm.schema.enums import TensorType
from tflm.schema.options import Conv2DOptions, DepthwiseConv2DOptions, TransposeConvOptions
from tflm.targets import Target, align_up

VERSIONS = (
    "e98ee09a",
    "8aa412fd",
    "v4.0.0",
    "23.02",
    "v4.1.0",
    "dc64e488",
    "23.08",
    "58f17705",
    "ca476254",
    "v5.0.0",
    "2a999a2f",
    "24.02",
    "72e1ebf6",
    "6cc31fb3",
    "8492d82a",
    "15dbe7cd",
    "01dee38e",
    "v6.0.0",
    "95f293df",
    "f2cb41ca",
    "v7.0.0",
    "e096196a",
    "6d9d61d8",
    "4ab83cc3",
    "99f736a6",
)
"""Tags, and commits that a release of TFLM is built with, oldest first."""

COMMITS_OF_TAGS = {
    "ca5dc343": "v4.0.0",
    "d071e9f7": "23.02",
    "61d1bb6c": "v4.1.0",
    "ebd73dea": "23.08",
    "bfc54edb": "v5.0.0",
    "9eacdff4": "24.02",
    "69823017": "v6.0.0",
    "22080c68": "v7.0.0",
}
"""Other names of tags."""

CHANNELS_IN_A_BLOCK = 124
"""CH_IN_BLOCK_MVE: channels that a depthwise convolution with Helium processes at once."""

REVERSED_FROM_CHANNELS = 16
"""REVERSE_TCOL_EFFICIENT_THRESHOLD: with more input channels, a TRANSPOSE_CONV is run as a CONV_2D."""


def has_mve(target: Target) -> bool:
    """Whether kernels use Helium."""
    return "mve" in target.extensions


def has_dsp(target: Target) -> bool:
    """Whether kernels use the DSP instructions; with Helium they do not."""
    return "dsp" in target.extensions and not has_mve(target)


# --- Convolutions ------------------------------------------------------------------------------------------------


class Convolution(NamedTuple):
    """The parameters of a convolution that determine its scratch buffer; pairs are (rows, columns)."""

    x: TfLiteTensor
    y: TfLiteTensor
    taps: tuple[int, int]
    depth: int
    strides: tuple[int, int]
    dilations: tuple[int, int]
    padding: tuple[int, ...]

    @property
    def column(self) -> int:
        """Elements of the input under a window, including the channels of other groups."""
        return self.x.dims[3] * self.taps[0] * self.taps[1]

    def is_pointwise(self, version: Version) -> bool:
        """Whether it is a plain matrix product: 1x1 windows without padding."""
        if any(self.padding) or self.taps != (1, 1) or self.dilations != (1, 1):
            return False
        return self.has_whole_depth(version) and (version.since("v4.0.0") or self.strides == (1, 1))

    def is_one_row(self, version: Version) -> bool:
        """Whether the code for 1 x n windows runs it."""
        if self.x.dims[1] != 1 or self.taps[0] != 1 or self.dilations[1] != 1:
            return False
        if version.before("v4.1.0"):
            return self.y.dims[2] % 4 == 0
        return self.strides[1] * self.x.dims[3] % 4 == 0 and self.has_whole_depth(version)

    def has_whole_depth(self, version: Version) -> bool:
        """Whether it is not grouped; versions before 6d9d61d8 do not check this."""
        return self.x.dims[3] == self.depth or version.before("6d9d61d8")


def convolution(node: Node, kind: type[Conv2DOptions] | type[DepthwiseConv2DOptions]) -> Convolution:
    """A CONV_2D, or a DEPTHWISE_CONV_2D, whose filter has a depth of 1, by the kind of its options."""
    x, f, y = node.input(0), node.input(1), node.output(0)
    options = node.options(kind)
    strides = options.stride_h, options.stride_w
    dilations = options.dilation_h_factor, options.dilation_w_factor
    padding = paddings(options.padding, x.dims[1:3], f.dims[1:3], strides, dilations)
    depth = f.dims[3] if kind is Conv2DOptions else 1
    return Convolution(x, y, (f.dims[1], f.dims[2]), depth, strides, dilations, padding)


def columns_bytes(column: int, target: Target, version: Version) -> int:
    """arm_convolve_s8_get_buffer_size: columns of int8, four with Helium, else two that are widened to int16."""
    if has_mve(target):
        return 4 * align_up(column, 16 if version.since("8492d82a") else 8)
    return 4 * (align_up(column, 4) if version.since("23.08") else column)


def conv_s8_bytes(conv: Convolution, target: Target, version: Version) -> int:
    """arm_convolve_wrapper_s8_get_buffer_size, for int4 filters as well."""
    if conv.is_pointwise(version):
        return 0
    if has_mve(target) and conv.is_one_row(version):
        return _conv_1_x_n_bytes(conv, target, version) if version.since("6cc31fb3") else 0
    return columns_bytes(conv.column, target, version)


def _conv_1_x_n_bytes(conv: Convolution, target: Target, version: Version) -> int:
    """arm_convolve_1_x_n_s8_get_buffer_size_mve: the elements under a window that extends into the padding."""
    channels, taps, stride, padding = conv.x.dims[3], conv.taps[1], conv.strides[1], conv.padding[1]
    width, windows = conv.x.dims[2], conv.y.dims[2]
    uneven = ((windows - 1) * stride + taps - width) % 2
    right = max(1, (padding + uneven + stride - 1) // stride) if padding + uneven else 0
    left = max(1, (padding + stride - 1) // stride) if padding else 0
    between = max(windows - right - left, 0)
    if left + between + right != windows:
        return columns_bytes(conv.column, target, version)
    under_right = right if uneven else padding
    return max(taps + padding, taps - 1 + under_right) * channels if version.since("8492d82a") else 0


WINDOW_OF_FAST_INT16 = 512
"""Minimum number of elements of a window for which an int16 CONV_2D needs no buffer, before 8492d82a."""


def conv_s16_bytes(conv: Convolution, target: Target, version: Version) -> int:
    """arm_convolve_wrapper_s16_get_buffer_size."""
    if version.before("8492d82a"):
        is_fast = has_dsp(target) and conv.column < WINDOW_OF_FAST_INT16 and conv.dilations == (1, 1)
        return 4 * conv.column if is_fast else 0
    return 8 * align_up(conv.column, 8) if has_mve(target) else 4 * conv.column


def depthwise_s8_bytes(conv: Convolution, target: Target, version: Version) -> int:
    """arm_depthwise_conv_wrapper_s8_get_buffer_size."""
    channels = conv.y.dims[3]
    if has_mve(target) and conv.x.dims[3] == 1 and channels > 1 and version.since("v7.0.0"):
        return conv_s8_bytes(conv, target, version) + channels * conv.taps[0] * conv.taps[1]
    if not keeps_channels(conv) or not target.extensions:
        return 0
    has_own_code = not has_mve(target) and conv.taps == (3, 3) and max(conv.padding) <= 1
    return 0 if has_own_code and version.since("23.02") else depthwise_columns_bytes(conv, target)


def depthwise_s4_bytes(conv: Convolution, target: Target, version: Version) -> int:
    """arm_depthwise_conv_wrapper_s4_get_buffer_size, available from v5.0.0."""
    if not keeps_channels(conv):
        return 0
    return depthwise_columns_bytes(conv, target) if version.since("01dee38e") else 2 * conv.column


def keeps_channels(conv: Convolution) -> bool:
    """Whether the optimised code runs a depthwise convolution: one output channel per input channel, one image."""
    return conv.x.dims[3] == conv.y.dims[3] and conv.x.dims[0] == 1 and conv.dilations == (1, 1)


def depthwise_columns_bytes(conv: Convolution, target: Target) -> int:
    """arm_depthwise_conv_s8_opt_get_buffer_size: four blocks of int8 with Helium, else a column of int16."""
    return 4 * CHANNELS_IN_A_BLOCK * conv.taps[0] * conv.taps[1] if has_mve(target) else 2 * conv.column


def transpose_conv_bytes(node: Node, version: Version) -> tuple[int, int]:
    """arm_transpose_conv_s8_get_buffer_size, from ca476254, and that of the reversed filter, from v7.0.0."""
    x, f = node.input(2), node.input(1)
    options = node.options(TransposeConvOptions)
    (rows, columns), channels = f.dims[1:3], x.dims[3]
    if version.before("v7.0.0"):
        return 4 * rows * columns * x.dims[1] * x.dims[2] * f.dims[0], 0
    if max(options.stride_h, options.stride_w) <= 2 and channels > REVERSED_FROM_CHANNELS:
        column = channels * rows * columns
        return columns_bytes(column, node.target, version), column * f.dims[0]
    # As in the source, the stride along the height also bounds the columns.
    width = (x.dims[2] - 1) * options.stride_w + max(columns, options.stride_h)
    return 4 * width * f.dims[0] * max(rows, options.stride_h), 0


ROWS_IN_A_BLOCK = 4
"""Rows that the matrix product for Helium processes at once."""

PROVED_SINCE = "2a999a2f"
"""The first version whose kernels return the same results with overlapping outputs."""


def overlaps(target: Target, version: Version) -> Mapping[str, Overlap]:
    """The overlaps that CMSIS-NN's kernels allow, with a part's instruction set.

    By operator: those whose outputs may overlap inputs in TFLM's kernels.
    """
    mve = has_mve(target)
    of_int8: dict[str, Overlap] = {
        "ADD": anywhere,
        "AVERAGE_POOL_2D": anywhere,
        "CONV_2D": _mve_conv_2d if mve else _conv_2d,
        "DEPTHWISE_CONV_2D": _mve_depthwise_conv_2d if mve else anywhere,
        "MAXIMUM": _of_one_shape,
        "MAX_POOL_2D": anywhere,
        "MINIMUM": _of_one_shape,
        "MUL": anywhere,
        "SOFTMAX": anywhere,
    }
    if version.before(PROVED_SINCE):
        return MappingProxyType(dict.fromkeys(of_int8, nowhere))
    of_int16: dict[str, Overlap] = {"ADD": anywhere, "MUL": anywhere}
    return MappingProxyType(
        {name: partial(_by_type, int8=of_int8[name], int16=of_int16.get(name, nowhere)) for name in of_int8}
    )


def _by_type(operator: OperatorFacts, input: int, int8: Overlap, int16: Overlap) -> range:
    """Other types use TFLM's kernels, except int4, for which the overlap is unknown."""
    types = {tensor.type for tensor in (*operator.inputs[:2], *operator.outputs) if tensor is not None}
    known = {TensorType.INT8: int8, TensorType.INT16: int16, TensorType.FLOAT32: anywhere, TensorType.INT32: anywhere}
    (type, *others) = types
    return nowhere(operator, input) if others else known.get(type, nowhere)(operator, input)


def _of_one_shape(operator: OperatorFacts, input: int) -> range:
    same = all(tensor is not None and tensor.dims == operator.outputs[0].dims for tensor in operator.inputs)
    return anywhere(operator, input) if same else nowhere(operator, input)


def _conv_2d(operator: OperatorFacts, input: int) -> range:
    """1x1 windows loop over channels first and read the whole input for each; larger windows are copied before use."""
    return nowhere(operator, input) if _is_grouped(operator) or _is_pointwise(operator) else anywhere(operator, input)


def _mve_conv_2d(operator: OperatorFacts, input: int) -> range:
    if _is_grouped(operator):
        return nowhere(operator, input)
    return _mve_convolution(operator, input)


def _mve_convolution(operator: OperatorFacts, input: int) -> range:
    """1x1 windows are processed four at a time for each channel; larger ones are copied; 1xN is unknown."""
    x, y, both = operator.inputs[0], operator.outputs[0], windows(operator)
    if x is None or both is None:
        return nowhere(operator, input)
    if _is_pointwise(operator):
        strides = (both[0].stride, both[1].stride) != (1, 1)
        run = y.dims[2] if strides else y.dims[0] * y.dims[1] * y.dims[2]
        return behind_blocks(operator, input, ROWS_IN_A_BLOCK, run)
    is_one_row = x.dims[1] == both[0].taps == 1
    return nowhere(operator, input) if is_one_row else anywhere(operator, input)


def _mve_depthwise_conv_2d(operator: OperatorFacts, input: int) -> range:
    """A single channel runs as a convolution; otherwise blocks of channels process the whole image one after the
    other."""
    x, y, both = operator.inputs[0], operator.outputs[0], windows(operator)
    if x is None or both is None:
        return nowhere(operator, input)
    if x.dims[3] == 1 and y.dims[3] > 1:
        return _mve_convolution(operator, input)
    return nowhere(operator, input) if y.dims[3] > CHANNELS_IN_A_BLOCK else anywhere(operator, input)


def _is_grouped(operator: OperatorFacts) -> bool:
    x, weights = operator.inputs[0], operator.inputs[1]
    return x is None or weights is None or len(weights.dims) != 4 or x.dims[-1] != weights.dims[3]


def _is_pointwise(operator: OperatorFacts) -> bool:
    both = windows(operator)
    return both is None or all((axis.taps, axis.dilation, axis.before) == (1, 1, 0) for axis in both)
