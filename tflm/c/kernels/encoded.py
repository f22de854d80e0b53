"""Weights in an encoding of `TFLM_DECODE`: the weights of at most one channel are decoded at a time.

The codes contain the rows of weights in the order of the output channels. Pruned weights are multiplied as they are
read: zeros are not stored, and take no time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tflm.c.kernels.convolution import Layer, shape_of
from tflm.c.kernels.im2col import DEPTH, PAIRS, WINDOWS, Shape, fill_window
from tflm.compiler.intrinsics import int8_from, int16_from, leading_zeros
from tflm.compiler.language import DONE, Elements, Int8s, Int16s, Int32s, Step, UInt8s, inlined, kernel, standalone
from tflm.delegates.compiled.bands import work_array
from tflm.delegates.compiled.casts import as_int32, as_int64
from tflm.delegates.compiled.requantization import CONSTANTS, Clamp, Limits, Rounding
from tflm.kernels.layers.geometry import Axis
from tflm.kernels.reference import decode
from tflm.kernels.reference.decode import Encoded, Scheme
from tflm.schema.enums import TensorType

SYMBOL, SYMBOL_BITS, COUNT_MASK, VALUE_MASK = 1 << 15, 11, 15, (1 << 11) - 1
"""Flag, bit position and masks of an entry of a Huffman table."""


class Codes(NamedTuple):
    """The position of rows of weights in the codes.

    Attributes:
        position: the first bit of the first row.
        place: index of the first value of a pruned row, or of the first entry of a look-up table.
        length: number of weights of a row.
        width: bits of an index, or of the first index of a Huffman code.
        stride: step from one channel's look-up table to the next.
        zero_point: zero point of the weights.
    """

    position: int
    place: int
    length: int
    width: int
    stride: int
    zero_point: int


@inlined
def more_bits(codes: UInt8s, at: int, bits: int) -> Any:
    """Append two bytes of codes to the bits that were read."""
    return as_int32(as_int64(bits) << 16) | as_int32(codes[at] << 8 | codes[at + 1])


@standalone
def look_up_row(codes: UInt8s, values: Any, row: Int8s, position: int, place: int, count: int, width: int) -> int:
    """Decode a row of indices into a table, and return the position of the next bit. May read one more byte of
    codes."""
    at = (position >> 3) + 1
    left = 8 - (position & 7)
    bits = as_int32(codes[position >> 3])
    mask = (1 << width) - 1
    for k in range(count):
        left -= width
        if left < 0:
            bits = more_bits(codes, at, bits)
            at += 2
            left += 16
        row[k] = values[place + ((bits >> left) & mask)]
    return position + count * width


@standalone
def huffman_row(codes: UInt8s, values: Any, row: Int8s, position: int, place: int, count: int, width: int) -> int:
    """Decode a row of Huffman codes of up to 16 bits; see `TFLM_DECODE` for the tables.

    Returns the position of the next bit. May read up to two more bytes of codes.
    """
    at = (position >> 3) + 1
    left = 8 - (position & 7)
    bits = as_int32(codes[position >> 3])
    mask = (1 << width) - 1
    for k in range(count):
        left -= width
        if left < 0:
            bits = more_bits(codes, at, bits)
            at += 2
            left += 16
        found = (bits >> left) & mask
        entry = as_int32(values[found])
        length = width
        while (entry & SYMBOL) == 0:
            length = ((entry >> SYMBOL_BITS) & COUNT_MASK) + 1
            left -= length
            if left < 0:
                bits = more_bits(codes, at, bits)
                at += 2
                left += 16
            found += (entry & VALUE_MASK) + ((bits >> left) & ((1 << length) - 1))
            entry = as_int32(values[found])
        # Give back the bits that were read after the code.
        left += max(length - ((entry >> SYMBOL_BITS) & COUNT_MASK), 0)
        row[k] = entry & VALUE_MASK
    return 8 * at - left


@standalone
def pruned_windows(
    codes: UInt8s, values: Any, row: Int8s, tile: Int16s, position: int, place: int, count: int, width: int
) -> tuple[int, int, int, int, int, int]:
    """Multiply four windows of the im2col tile by a row. Return their sums, the position of the next bit, and that of
    the next value."""
    sum0, sum1, sum2, sum3 = 0, 0, 0, 0
    end = position + count
    last = (end - 1) >> 3
    k = -(position & 7)
    mask = 255 >> (position & 7)
    for at in range(position >> 3, last + 1):
        bits = codes[at] & mask
        if at == last:
            bits &= -1 << (7 - ((end - 1) & 7))
        mask = 255
        while bits != 0:
            first = leading_zeros(bits) - 56
            weight = values[place]
            place += 1
            element = PAIRS * ((k + first) >> 1) + ((k + first) & 1)
            sum0 += tile[element] * weight
            sum1 += tile[element + DEPTH] * weight
            sum2 += tile[element + 2 * DEPTH] * weight
            sum3 += tile[element + 3 * DEPTH] * weight
            bits &= 127 >> first
        k += 8
    return as_int32(sum0), as_int32(sum1), as_int32(sum2), as_int32(sum3), end, place


@inlined
def row_windows(row: Int8s, tile: Int16s, count: int) -> tuple[int, int, int, int]:
    """Return the sums of four windows and a decoded row."""
    sum0, sum1, sum2, sum3 = 0, 0, 0, 0
    for _pair in range(count >> 1):
        w0, w1 = row[0], row[1]
        sum0 += tile[0] * w0 + tile[1] * w1
        sum1 += tile[DEPTH] * w0 + tile[DEPTH + 1] * w1
        sum2 += tile[2 * DEPTH] * w0 + tile[2 * DEPTH + 1] * w1
        sum3 += tile[3 * DEPTH] * w0 + tile[3 * DEPTH + 1] * w1
        row = int8_from(row, 2)
        tile = int16_from(tile, PAIRS)
    if count & 1:
        sum0 += tile[0] * row[0]
        sum1 += tile[DEPTH] * row[0]
        sum2 += tile[2 * DEPTH] * row[0]
        sum3 += tile[3 * DEPTH] * row[0]
    return as_int32(sum0), as_int32(sum1), as_int32(sum2), as_int32(sum3)


@inlined
def looked_up_windows(
    codes: UInt8s, values: Any, row: Int8s, tile: Int16s, position: int, place: int, count: int, width: int
) -> tuple[int, int, int, int, int, int]:
    """Compute the same as `pruned_windows` from indices into tables."""
    position = look_up_row(codes, values, row, position, place, count, width)
    sum0, sum1, sum2, sum3 = row_windows(row, tile, count)
    return sum0, sum1, sum2, sum3, position, place


@inlined
def huffman_windows(
    codes: UInt8s, values: Any, row: Int8s, tile: Int16s, position: int, place: int, count: int, width: int
) -> tuple[int, int, int, int, int, int]:
    """Compute the same as `pruned_windows` from Huffman codes."""
    position = huffman_row(codes, values, row, position, place, count, width)
    sum0, sum1, sum2, sum3 = row_windows(row, tile, count)
    return sum0, sum1, sum2, sum3, position, place


WINDOW_SUMS: dict[str, Callable[..., Any]] = {
    "pruned": pruned_windows,
    "look_up": looked_up_windows,
    "huffman": huffman_windows,
}
WindowSums = Annotated[Callable[..., Any], WINDOW_SUMS]


@kernel
def convolve_encoded(
    sums: WindowSums,
    rounding: Rounding,
    clamp: Clamp,
    x: Int8s,
    codes: UInt8s,
    values: Elements,
    table: Int32s,
    tile: Int16s,
    row: Int8s,
    y: Int8s,
    shape: Shape,
    rows: Codes,
) -> int:
    """Multiply windows of an image by weights, as `convolve_int8` does, one channel at a time.

    Args:
        row: scratch memory for the weights of one channel; not used for pruned weights.
    """
    channels, y_step = shape.channels, shape.y_step
    activation_min, activation_max = shape.activation_min, shape.activation_max
    limits = Limits(activation_min, activation_max)
    window = shape.first
    for _group in range(shape.groups):
        last = min(shape.windows - window, WINDOWS) - 1
        for place in range(last + 1):
            fill_window(x, tile, place, window + place, shape, 0, 0)
        position, value, entry = rows.position, rows.place, 0
        for channel in range(channels):
            sum0, sum1, sum2, sum3, position, value = sums(
                codes, values, row, tile, position, value, rows.length, rows.width
            )
            value += rows.stride
            bias, significand, addend, shift = table[entry], table[entry + 1], table[entry + 2], table[entry + 3]
            first = window * y_step + channel
            # A missing window is stored at the address of the last one, and then overwritten.
            y[first + last * y_step] = clamp(rounding(sum3 + bias, significand, addend, shift), limits)
            y[first + min(2, last) * y_step] = clamp(rounding(sum2 + bias, significand, addend, shift), limits)
            y[first + min(1, last) * y_step] = clamp(rounding(sum1 + bias, significand, addend, shift), limits)
            y[first] = clamp(rounding(sum0 + bias, significand, addend, shift), limits)
            entry += CONSTANTS
        window += shape.step
    return DONE


@standalone
def pruned_vector(
    codes: UInt8s, values: Any, row: Int8s, x: Int8s, begin: int, position: int, place: int, rows: Any
) -> tuple[int, int, int]:
    """Multiply a vector by a row. Return the sum, the position of the next bit, and that of the next value."""
    total = as_int32(0)
    end = position + rows.length
    last = (end - 1) >> 3
    k = begin - (position & 7)
    mask = 255 >> (position & 7)
    for at in range(position >> 3, last + 1):
        bits = codes[at] & mask
        if at == last:
            bits &= -1 << (7 - ((end - 1) & 7))
        mask = 255
        while bits != 0:
            first = leading_zeros(bits) - 56
            total = as_int32(total + x[k + first] * (values[place] - rows.zero_point))
            place += 1
            bits &= 127 >> first
        k += 8
    return total, end, place


@inlined
def row_vector(row: Int8s, x: Int8s, begin: int, rows: Any) -> int:
    """Return the sum of a vector and a decoded row."""
    total: int = as_int32(0)
    for k in range(rows.length):
        total = as_int32(total + x[begin + k] * (row[k] - rows.zero_point))
    return total


@inlined
def looked_up_vector(
    codes: UInt8s, values: Any, row: Int8s, x: Int8s, begin: int, position: int, place: int, rows: Any
) -> tuple[int, int, int]:
    """Compute the same as `pruned_vector` from indices into tables."""
    position = look_up_row(codes, values, row, position, place, rows.length, rows.width)
    return row_vector(row, x, begin, rows), position, place


@inlined
def huffman_vector(
    codes: UInt8s, values: Any, row: Int8s, x: Int8s, begin: int, position: int, place: int, rows: Any
) -> tuple[int, int, int]:
    """Compute the same as `pruned_vector` from Huffman codes."""
    position = huffman_row(codes, values, row, position, place, rows.length, rows.width)
    return row_vector(row, x, begin, rows), position, place


VECTOR_SUMS: dict[str, Callable[..., Any]] = {
    "pruned": pruned_vector,
    "look_up": looked_up_vector,
    "huffman": huffman_vector,
}
VectorSums = Annotated[Callable[..., Any], VECTOR_SUMS]


class EncodedVectors(NamedTuple):
    """Constants of a product of vectors and encoded weights; attributes as in `dense.Vectors`."""

    total: int
    x_step: int
    channels: int
    activation_min: int
    activation_max: int


@kernel
def multiply_encoded(
    sums: VectorSums,
    rounding: Rounding,
    clamp: Clamp,
    x: Int8s,
    codes: UInt8s,
    values: Elements,
    table: Int32s,
    row: Int8s,
    y: Int8s,
    vectors: EncodedVectors,
    rows: Codes,
) -> int:
    """Multiply vectors by the weights of each channel, as `dense.multiply_words` does, one channel at a time."""
    activation_min, activation_max = vectors.activation_min, vectors.activation_max
    limits = Limits(activation_min, activation_max)
    target = 0
    for vector in range(vectors.total):
        position, place, entry = rows.position, rows.place, 0
        for _channel in range(vectors.channels):
            total, position, place = sums(codes, values, row, x, vector * vectors.x_step, position, place, rows)
            place += rows.stride
            value = rounding(total + table[entry], table[entry + 1], table[entry + 2], table[entry + 3])
            y[target] = clamp(value, limits)
            entry += CONSTANTS
            target += 1
    return DONE


# --- Binding -----------------------------------------------------------------------------------------------------


class EncodedArray(np.ndarray[Any, np.dtype[Any]]):
    """Decoded weights that also carry their encoding. Views are ordinary arrays.

    Attributes:
        scheme, encoded: the encoding, and the codes.
    """

    scheme: Scheme
    encoded: Encoded

    @classmethod
    def of(cls, values: npt.NDArray[Any], scheme: Scheme, encoded: Encoded) -> EncodedArray:
        """Return a view of decoded weights with their encoding."""
        view = values.view(cls)
        view.scheme, view.encoded = scheme, encoded
        return view


class EncodedRows(NamedTuple):
    """Encoded weights in the form that kernels read.

    Attributes:
        name: the encoding's name.
        codes, values: the codes and the table of values.
        rows: the position of rows in the codes.
        row: scratch memory for the weights of one channel, if they are decoded.
    """

    name: str
    codes: npt.NDArray[np.uint8]
    values: npt.NDArray[Any]
    rows: Codes
    row: npt.NDArray[np.int8]


def is_encoded(weights: npt.NDArray[Any]) -> bool:
    """Whether the weights of a tensor are stored encoded."""
    return isinstance(weights, EncodedArray) and getattr(weights, "encoded", None) is not None


def encoded_rows(weights: npt.NDArray[Any], first: int, count: int, zero_point: int) -> EncodedRows | None:
    """Return encoded weights from row `first`; None if they are not encoded, or kernels do not support the encoding.

    Args:
        weights: the weights of a tensor.
        count: number of weights in a row.
        zero_point: zero point of the weights.
    """
    encoded = getattr(weights, "encoded", None)
    if not isinstance(weights, EncodedArray) or encoded is None or encoded.type != TensorType.INT8:
        return None
    parameters, begin = int(encoded.metadata[decode.PARAMETERS_BYTE]), first * count
    no_row, row = work_array(0, np.int8), work_array(count, np.int8)
    codes = np.concatenate([encoded.codes, np.zeros(2, np.uint8)])
    if weights.scheme is decode.PRUNE:
        if any(each != zero_point for each in encoded.zero_points):
            return None
        place = int(np.count_nonzero(np.unpackbits(encoded.codes, count=begin)))
        rows = Codes(begin, place, count, 0, 0, zero_point)
        return EncodedRows("pruned", encoded.codes, encoded.table(np.int8), rows, no_row)
    if weights.scheme is decode.LOOK_UP_TABLE and not encoded.is_last_axis:
        width, stride = parameters & decode.BIT_WIDTH_MASK, int(encoded.metadata[decode.STRIDE_BYTE])
        stride = stride if len(encoded.zero_points) > 1 else 0
        rows = Codes(begin * width, first * stride, count, width, stride, zero_point)
        return EncodedRows("look_up", codes, encoded.table(np.int8), rows, row)
    if weights.scheme is decode.HUFFMAN and not parameters & decode.WIDE_TABLE_MASK:
        width = (parameters >> decode.INITIAL_TABLE_SHIFT) + 1
        position = decode.huffman_codes(encoded._replace(dims=(begin,))).end
        rows = Codes(position, 0, count, width, 0, zero_point)
        return EncodedRows("huffman", codes, encoded.table(np.uint16), rows, row)
    return None


def bind_encoded_windows(
    layer: Layer, rows: Axis, columns: Axis, x: npt.NDArray[Any], y: npt.NDArray[Any], weights: npt.NDArray[Any]
) -> list[Step] | None:
    """Return the steps of a layer with encoded weights; None if they are not encoded, or sums can exceed 32 bits.

    Args:
        layer, rows, columns, x, y: as for `convolution.bind_layer`.
        weights: the tensor with the weights of the layer.
    """
    groups, channels, *_, depth = layer.weights.shape
    count = layer.weights[0, 0].size
    encodings = [encoded_rows(weights, group * channels, count, 0) for group in range(groups)]
    scaling = layer.requantizer(x.dtype, y.dtype) if x.dtype == np.int8 and None not in encodings else None
    if scaling is None:
        return None
    steps = x.shape[3], y.shape[3]
    shape = shape_of(rows, columns, depth, channels, layer.zero_point, scaling, *steps, in_order=True)
    tables = scaling.table.reshape(groups, channels, CONSTANTS)
    tile = work_array((-(-count // DEPTH) * DEPTH, WINDOWS // 2), np.int32).view(np.int16)
    return [
        convolve_encoded.step(
            sums=encoding.name,
            rounding=scaling.rounding,
            clamp=scaling.clamp,
            x=x[batch].reshape(-1)[group * depth :],
            codes=encoding.codes,
            values=encoding.values,
            table=tables[group],
            tile=tile,
            row=encoding.row,
            y=y[batch].reshape(-1)[group * channels :],
            shape=shape,
            rows=encoding.rows,
        )
        for batch in range(len(x))
        for group, encoding in enumerate(encodings)
        if encoding is not None
    ]


def bind_encoded_vectors(
    layer: Layer, x: npt.NDArray[Any], y: npt.NDArray[Any], weights: npt.NDArray[Any], zero_point: int, x_step: int = 0
) -> list[Step] | None:
    """Return the steps of such a layer with one window; other arguments as in `dense.bind_vectors`.

    Args:
        zero_point: zero point of the weights.
    """
    total, channels = y.shape
    count = layer.weights[0, 0].size
    encoding = encoded_rows(weights, 0, count, zero_point)
    scaling = layer.requantizer(x.dtype, y.dtype)
    if encoding is None or scaling is None or x.dtype != np.int8 or y.dtype != np.int8:
        return None
    return [
        multiply_encoded.step(
            sums=encoding.name,
            rounding=scaling.rounding,
            clamp=scaling.clamp,
            x=x,
            codes=encoding.codes,
            values=encoding.values,
            table=scaling.table,
            row=encoding.row,
            y=y,
            vectors=EncodedVectors(total, x_step or count, channels, scaling.activation_min, scaling.activation_max),
            rows=encoding.rows,
        )
    ]
