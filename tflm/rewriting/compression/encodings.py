"""Lossless encodings of constant tensors that TFLM's DECODE reads: look-up tables, pruning and Huffman codes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tflm.errors import OperatorError
from tflm.kernels.reference import decode
from tflm.kernels.reference.decode import Encoded, Scheme
from tflm.memory.tensor import TfLiteTensor
from tflm.rewriting.compression.prefix_codes import huffman_code, look_up_tables, packed_codes
from tflm.schema.enums import TensorType

MAX_INDEX_BITS = 7
"""Bits of an index into a look-up table."""

BUFFER_ALIGNMENT = 16
"""Alignment of constants in a model's file."""

Values = npt.NDArray[Any]


class Encoding(NamedTuple):
    """A constant in compressed form.

    Attributes:
        name: the kind of encoding.
        scheme: the way in which it is decoded.
        codes, metadata: bytes of the two inputs of DECODE.
    """

    name: str
    scheme: Scheme
    codes: npt.NDArray[np.uint8]
    metadata: npt.NDArray[np.uint8]

    @property
    def file_bytes(self) -> int:
        """Bytes of its two constants in a file, with padding."""
        return sum(-(-len(data) // BUFFER_ALIGNMENT) * BUFFER_ALIGNMENT for data in (self.codes, self.metadata))


def smallest_encoding(tensor: TfLiteTensor, schemes: tuple[Scheme, ...]) -> Encoding | None:
    """Return the smallest encoding of a constant; None if there is none.

    Args:
        tensor: the constant, with its quantization.
        schemes: the schemes that the release of TFLM decodes.
    """
    if tensor.type not in decode.VALUE_TYPES or not tensor.data.size:
        return None
    encodings = []
    for name, scheme, encode in ENCODERS:
        if scheme in schemes:
            encoding = _encoded(name, scheme, encode, tensor)
            encodings += [] if encoding is None else [encoding]
    return min(encodings, key=lambda encoding: encoding.file_bytes, default=None)


class _Constant(NamedTuple):
    """The facts about a constant that an encoder needs: its elements as integers of the same bits, by channel, and its
    type."""

    values: Values
    channels: npt.NDArray[np.int64]
    channel_count: int
    zeros: Values
    type: TensorType


Encode = Callable[[_Constant], "tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8]] | None"]
"""Returns codes and metadata; None for a constant that the scheme can't represent."""


def _encoded(name: str, scheme: Scheme, encode: Encode, tensor: TfLiteTensor) -> Encoding | None:
    """An encoding, checked by decoding it with TFLM_DECODE's own kernel."""
    try:
        channels = decode.channels_of(tensor) if scheme.has_channels else ((0,), False)
        form = Encoded(_NO_BYTES, _NO_BYTES, tensor.name, tensor.type, tensor.dims, *channels)
        by_channel = form.by_channel()
    except OperatorError:
        return None
    values = _as_integers(np.asarray(tensor.data, None))
    zeros = np.asarray(form.zero_points, np.int64)[by_channel]
    found = encode(_Constant(values, by_channel, len(form.zero_points), zeros, tensor.type))
    if found is None:
        return None
    form = form._replace(codes=found[0], metadata=found[1])
    decoded = scheme.decode(form)
    assert decoded.tobytes() == values.tobytes(), f"{name} is not lossless for tensor {tensor.name!r}"
    return Encoding(name, scheme, *found)


_NO_BYTES = np.zeros(0, np.uint8)


def _as_integers(data: Values) -> Values:
    """Elements in one dimension, as integers with the same bits: negative zero and NaNs are values of their own."""
    flat = np.ascontiguousarray(data, None).reshape(-1)
    return flat.view(f"i{flat.dtype.itemsize}")


def _metadata(scheme: Scheme, table: Values, parameters: int = 0, stride: int = 0) -> npt.NDArray[np.uint8]:
    head = np.zeros(decode.METADATA_BYTES, np.uint8)
    head[decode.TYPE_BYTE] = next(number for number, each in decode.SCHEMES.items() if each is scheme)
    head[[decode.VERSION_BYTE, decode.SCHEME_VERSION_BYTE]] = decode.VERSION
    head[decode.PARAMETERS_BYTE], head[decode.STRIDE_BYTE] = parameters, stride
    return np.concatenate([head, np.ascontiguousarray(table, None).reshape(-1).view(np.uint8)])


def _indices(values: npt.NDArray[np.int64], width: int) -> npt.NDArray[np.uint8]:
    """Indices of `width` bits each, from the highest bit of the first byte."""
    bits = values[:, None] >> np.arange(width, dtype=np.int64)[::-1] & 1
    return np.packbits(bits.astype(np.uint8))


def _with_one_table(constant: _Constant) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8]] | None:
    """All channels use the same table: the stride from one channel's table to the next is 0."""
    table, indices = np.unique(constant.values, return_inverse=True)
    width = _index_bits(len(table))
    if width is None:
        return None
    return _indices(indices.reshape(-1), width), _metadata(decode.LOOK_UP_TABLE, table, width)


def _with_tables(constant: _Constant) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8]] | None:
    """Each channel has its own table; all have the length of the longest."""
    rows, indices = [], np.empty(len(constant.values), np.int64)
    for channel in range(constant.channel_count):
        is_here = constant.channels == channel
        row, places = np.unique(constant.values[is_here], return_inverse=True)
        indices[is_here] = places.reshape(-1)
        rows.append(row)
    stride = max(len(row) for row in rows)
    width = _index_bits(stride)
    if width is None:
        return None
    tables = np.zeros((len(rows), stride), constant.values.dtype)
    for table, row in zip(tables, rows):
        table[: len(row)] = row
    return _indices(indices, width), _metadata(decode.LOOK_UP_TABLE, tables, width, stride)


def _index_bits(length: int) -> int | None:
    """Bits of an index into a table; None if the table is too long."""
    width = max((length - 1).bit_length(), 1)
    return width if width <= MAX_INDEX_BITS else None


def _pruned(constant: _Constant) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8]] | None:
    """A bit for each element, and the elements that are not the zero point."""
    if constant.type != TensorType.INT8 and constant.zeros.any():
        return None
    is_kept = constant.values != constant.zeros
    return np.packbits(is_kept), _metadata(decode.PRUNE, constant.values[is_kept])


def _huffman(constant: _Constant) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8]] | None:
    """A code for each element, shorter for frequent values."""
    if constant.type not in (TensorType.INT8, TensorType.INT16):
        return None
    dtype, is_wide = (np.uint16, False) if constant.type == TensorType.INT8 else (np.uint32, True)
    values, symbols, counts = np.unique(constant.values, return_inverse=True, return_counts=True)
    code = huffman_code(counts.tolist())
    unsigned = values.view(f"u{values.dtype.itemsize}")[code.symbols].tolist()
    tables = look_up_tables(code, unsigned, 8 * np.dtype(dtype).itemsize)
    parameters = is_wide * decode.WIDE_TABLE_MASK | (tables.first_bits - 1) << decode.INITIAL_TABLE_SHIFT
    metadata = _metadata(decode.HUFFMAN, np.array(tables.entries, dtype), parameters)
    return packed_codes(code, symbols.reshape(-1)), metadata


ENCODERS: tuple[tuple[str, Scheme, Encode], ...] = (
    ("look-up table", decode.LOOK_UP_TABLE, _with_one_table),
    ("look-up tables", decode.LOOK_UP_TABLE, _with_tables),
    ("pruned", decode.PRUNE, _pruned),
    ("Huffman", decode.HUFFMAN, _huffman),
)
"""Name, scheme and encoder of each kind; of kinds with the same size, the first is used."""
