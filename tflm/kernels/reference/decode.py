"""TFLM_DECODE: decompresses tensors of the model: look-up tables, pruning and Huffman codes.

Each output has two constant inputs: its codes and its metadata. The first 16 bytes of the metadata describe the
compression; the rest is its table. Bits are counted from the highest of each byte.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tflm.errors import OperatorError
from tflm.kernels.host_memory import track_host_array
from tflm.kernels.node import KernelContext, Node
from tflm.kernels.registration import Registration, Run
from tflm.kernels.requests import PersistentBuffer, Reads, Released, Request, TempInput, TempOutput
from tflm.kernels.support.checks import require_type
from tflm.kernels.support.elementwise import bind_copies
from tflm.memory.tensor import TfLiteEvalTensor, TfLiteTensor
from tflm.schema.enums import ELEMENT_TYPES, TensorType
from tflm.schema.model import Model
from tflm.targets import BOOL, INT8, POINTER, SIZE_T, UINT8, Struct

DECODE_STATE = Struct("DecodeState", vtable=POINTER, context=POINTER, micro_profiler=POINTER)
DECODE_STATE_LUT = DECODE_STATE.extend(
    "DecodeStateLut",
    compressed_indices=POINTER,
    count_indices=SIZE_T,
    num_channels=SIZE_T,
    elements_per_channel=SIZE_T,
    value_table=POINTER,
    value_table_channel_stride=UINT8,
    compressed_bit_width=UINT8,
    use_alternate_axis=BOOL,
)
DECODE_STATE_PRUNE = DECODE_STATE.extend(
    "DecodeStatePrune",
    compressed_indices=POINTER,
    count_indices=SIZE_T,
    num_channels=SIZE_T,
    elements_per_channel=SIZE_T,
    value_table=POINTER,
    zero_points=POINTER,
    single_zero_point=INT8,
    use_alternate_axis=BOOL,
)
DECODE_STATE_HUFFMAN = DECODE_STATE.extend(
    "DecodeStateHuffman",
    compressed_codewords=POINTER,
    count_codewords=SIZE_T,
    huffman_tables=POINTER,
    use_32bit_table=BOOL,
    initial_table_size=UINT8,
)

METADATA_BYTES = 16
TYPE_BYTE, VERSION_BYTE, SCHEME_VERSION_BYTE, PARAMETERS_BYTE, STRIDE_BYTE = 0, 1, 4, 5, 6
VERSION = 1
BIT_WIDTH_MASK = 0x07
AXIS_SHIFT = 4
WIDE_TABLE_MASK = 0x01
INITIAL_TABLE_SHIFT = 4

VALUE_TYPES = (
    TensorType.BOOL,
    TensorType.FLOAT32,
    TensorType.INT8,
    TensorType.INT16,
    TensorType.INT32,
    TensorType.INT64,
)

Elements = npt.NDArray[Any]


class Encoded(NamedTuple):
    """A tensor in compressed form.

    Attributes:
        codes: the bytes of the first input.
        metadata: the bytes of the second.
        name: name of the tensor with the codes, for messages.
        type, dims: type and shape of the output.
        zero_points: one for each channel.
        is_last_axis: whether channels lie along the last dimension; along the first otherwise.
    """

    codes: npt.NDArray[np.uint8]
    metadata: npt.NDArray[np.uint8]
    name: str
    type: TensorType
    dims: tuple[int, ...]
    zero_points: tuple[int, ...]
    is_last_axis: bool

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.dims)

    def table(self, dtype: npt.DTypeLike) -> Elements:
        """The bytes after the first 16 of the metadata, as elements; an incomplete last element is dropped."""
        after = self.metadata[METADATA_BYTES:]
        return after[: len(after) // np.dtype(dtype).itemsize * np.dtype(dtype).itemsize].view(dtype)

    def by_channel(self) -> npt.NDArray[np.int64]:
        """The channel of each element, in one dimension."""
        channels = len(self.zero_points)
        if self.size % channels:
            raise OperatorError(f"represents {self.size} elements, not a multiple of {channels} channels")
        if self.is_last_axis:
            return np.tile(np.arange(channels, dtype=np.int64), self.size // channels)
        return np.repeat(np.arange(channels, dtype=np.int64), self.size // channels)

    def places(self) -> npt.NDArray[np.int64]:
        """The place of each element in a look-up table: an index of `width` bits in its channel's part."""
        width = int(self.metadata[PARAMETERS_BYTE]) & BIT_WIDTH_MASK
        bits = _bits(self, self.size * width).reshape(self.size, width)
        places = self.by_channel() * int(self.metadata[STRIDE_BYTE])
        for bit in range(width):
            places += bits[:, bit].astype(np.int64) << (width - 1 - bit)
        return places


def _prepare_decode(context: KernelContext, node: Node) -> None:
    if not node.outputs:
        raise OperatorError("has no outputs, needs one or more")
    node.expect(inputs=2 * len(node.outputs))
    context.reset_decompression_memory_allocations()
    node.op_data = []
    for i in range(len(node.outputs)):
        codes = node.input(2 * i)
        metadata = node.input(2 * i + 1)
        output = node.output(i)
        for tensor in (codes, metadata):
            if not tensor.is_constant:
                raise OperatorError("must be a constant of the model", tensor=tensor.name)
        scheme, encoded = encoded_tensor(codes, metadata, output, context.model)
        _place_beside_the_arena(context, node.eval_output(i))
        scheme.check(encoded, output)
        node.op_data.append((scheme, encoded))


def encoded_tensor(
    codes: TfLiteTensor, metadata: TfLiteTensor, output: TfLiteTensor, model: Model
) -> tuple[Scheme, Encoded]:
    """A tensor in compressed form, and how it is decoded.

    Raises:
        OperatorError: the metadata are of an unknown scheme, or the output's channels are not supported.
    """
    scheme = _scheme(metadata)
    channels = channels_of(output) if scheme.has_channels else ((0,), False)
    encoded = Encoded(_bytes(codes), _bytes(metadata), codes.name, output.type, output.dims, *channels)
    if scheme is LOOK_UP_TABLE and encoded.type in VALUE_TYPES:
        encoded = encoded._replace(metadata=_bytes_read(encoded, model))
    return scheme, encoded


def table_mismatch(encoded: Encoded, metadata: TfLiteTensor) -> str | None:
    """How the look-up tables of a tensor differ from those that the kernel reads; None if they don't.

    The kernel derives the number of tables and their dimension from the quantization of the output. TFLM's compression
    tool lets its user choose both, and writes the choice where the kernel does not look.
    """
    stride, rank, channels = int(encoded.metadata[STRIDE_BYTE]), len(encoded.dims), len(encoded.zero_points)
    if not stride or not rank:
        return None
    axis = int(encoded.metadata[PARAMETERS_BYTE]) >> AXIS_SHIFT
    tables = (metadata.bytes - METADATA_BYTES) // _dtype(encoded.type).itemsize // stride
    read_axis = rank - 1 if encoded.is_last_axis else 0
    if tables == channels and (tables == 1 or axis in (0, read_axis)):
        return None
    along = f", along dimension {axis}" if tables > 1 else ""
    read = f"{channels}, along dimension {read_axis}" if channels > 1 else "one"
    return f"{'one' if tables == 1 else tables}{along}, and the kernel reads {read}"


def _bytes_read(encoded: Encoded, model: Model) -> npt.NDArray[np.uint8]:
    """Return the metadata, with the following bytes of the model that the kernel reads as values of the table.

    It does so if it takes the tensor for one with more tables than there are.
    """
    places, dtype = encoded.places(), _dtype(encoded.type)
    needed = METADATA_BYTES + (int(places.max(initial=-1)) + 1) * dtype.itemsize
    if needed <= len(encoded.metadata):
        return encoded.metadata
    file = np.frombuffer(model.data, np.uint8)
    start = encoded.metadata.ctypes.data - file.ctypes.data
    return file[start : start + needed] if 0 <= start <= len(file) - needed else encoded.metadata


def _requests(node: Node) -> Iterator[Request]:
    yield PersistentBuffer("pointers to states", node.output_count * POINTER.size(node.target))
    for i in range(node.output_count):
        temps = TempInput(2 * i), TempInput(2 * i + 1), TempOutput(i)
        yield from temps
        scheme = _scheme(node.input(2 * i + 1))
        yield PersistentBuffer(f"state {i}", scheme.state.size(node.target), scheme.reads)
        zero_points = channels_of(node.output(i))[0] if scheme is PRUNE else ()
        if len(zero_points) > 1 and any(zero_points):
            yield PersistentBuffer(f"zero points {i}", len(zero_points), Reads.ZERO_POINTS)
        yield from (Released(temp) for temp in temps)


def _place_beside_the_arena(context: KernelContext, output: TfLiteEvalTensor) -> None:
    """Give an output alternate decompression memory if it fits, so that the planner need not place it."""
    if output.data is None:
        memory = context.allocate_decompression_memory(output.byte_length)
        if memory is not None:
            output.data = memory.view(ELEMENT_TYPES[output.type].dtype).reshape(output.dims)


def _bind_decode(context: KernelContext, node: Node) -> Run:
    """Decode constants once. Each invoke only copies the result, because other tensors reuse its place in the arena."""
    copies = []
    for i, (scheme, encoded) in enumerate(node.op_data):
        output: TfLiteEvalTensor = node.eval_output(i)
        try:
            elements = track_host_array(scheme.decode(encoded))
        except OperatorError as error:
            raise OperatorError(error.reason, tensor=encoded.name) from None
        copies.append((output.elements.reshape(-1).view(elements.dtype), elements))
    return bind_copies(copies)


def _scheme(metadata: TfLiteTensor) -> Scheme:
    data = _bytes(metadata)
    if len(data) < METADATA_BYTES:
        reason = f"has {len(data)} bytes, metadata of a compressed tensor has {METADATA_BYTES} or more"
        raise OperatorError(reason, tensor=metadata.name)
    scheme = SCHEMES.get(int(data[TYPE_BYTE]))
    if scheme is None:
        reason = f"has compression type {data[TYPE_BYTE]}; supported: {', '.join(map(str, SCHEMES))}"
        raise OperatorError(reason, tensor=metadata.name)
    versions = int(data[VERSION_BYTE]), int(data[SCHEME_VERSION_BYTE])
    if versions != (VERSION, VERSION):
        raise OperatorError(f"is of versions {versions}, both must be {VERSION}", tensor=metadata.name)
    return scheme


def channels_of(output: TfLiteTensor) -> tuple[tuple[int, ...], bool]:
    """The zero point of each channel, and whether channels lie along the last dimension."""
    quantization = output.quantization
    if quantization is None:
        return (0,), False
    dimension, is_single = quantization.quantized_dimension, len(quantization.scale) == 1
    if dimension == len(output.dims) - 1 and not is_single:
        return quantization.zero_point, True
    if dimension != 0:
        reason = f"is quantized along dimension {dimension}; compressed tensors can be along the first or last"
        raise OperatorError(reason, tensor=output.name)
    return quantization.zero_point, False


def _check_values(encoded: Encoded, output: TfLiteTensor) -> None:
    require_type(output, *VALUE_TYPES)


def _check_look_up(encoded: Encoded, output: TfLiteTensor) -> None:
    _check_values(encoded, output)
    if not encoded.metadata[PARAMETERS_BYTE] & BIT_WIDTH_MASK:
        raise OperatorError("has indices of no bits, 1 to 7 are supported", tensor=encoded.name)


def _check_pruned(encoded: Encoded, output: TfLiteTensor) -> None:
    _check_values(encoded, output)
    if output.type != TensorType.INT8 and any(encoded.zero_points):
        raise OperatorError(f"has zero points; pruned as {output.type.name} all must be 0", tensor=output.name)


def _check_huffman(encoded: Encoded, output: TfLiteTensor) -> None:
    is_wide = encoded.metadata[PARAMETERS_BYTE] & WIDE_TABLE_MASK
    require_type(output, *((TensorType.INT8, TensorType.INT16) if is_wide else (TensorType.INT8,)))


def _decode_look_up(encoded: Encoded) -> Elements:
    places, table = encoded.places(), encoded.table(_dtype(encoded.type))
    if places.size and places.max() >= len(table):
        raise OperatorError(f"has an index beyond the {len(table)} values of the table")
    return table[places]


def _decode_pruned(encoded: Encoded) -> Elements:
    """Decode a bitmap with one bit for each element:"""
    kept = _bits(encoded, encoded.size).astype(bool)
    values = encoded.table(_dtype(encoded.type))
    kept_count = int(np.count_nonzero(kept))
    if kept_count > len(values):
        raise OperatorError(f"keeps {kept_count} elements, there are values for {len(values)}")
    elements = np.zeros(encoded.size, values.dtype)
    if any(encoded.zero_points):
        elements[:] = np.asarray(encoded.zero_points, np.int64)[encoded.by_channel()]
    elements[kept] = values[:kept_count]
    return elements


def _decode_huffman(encoded: Encoded) -> Elements:
    """Decode code after code."""
    return np.array(huffman_codes(encoded).symbols, np.uint32).astype(_dtype(encoded.type))


class HuffmanCodes(NamedTuple):
    """The codes of a tensor, and the work of the kernel that decodes them.

    Attributes:
        symbols: number of elements.
        indices: number of table lookups.
        words: number of 32-bit words that are read.
        put_back: codes that are shorter than the last index, whose other bits belong to the next code.
        put_back_words: those whose other bits begin in the word before.
        end: the bit behind the last code.
    """

    symbols: list[int]
    indices: int
    words: int
    put_back: int
    put_back_words: int
    end: int


def huffman_codes(encoded: Encoded) -> HuffmanCodes:
    """Follow the codes through their tables, which are indexed by the next few bits.

    An entry has, from its highest bit: a symbol flag, 4 bits, and a value. For a symbol, the 4 bits are the number of
    index bits that belong to its code. Otherwise they are the width of the next index less 1, and the value is the
    offset from this entry to the table for that index.

    Raises:
        OperatorError: the codes end early, or lead out of the table.
    """
    parameters = int(encoded.metadata[PARAMETERS_BYTE])
    dtype, size = (np.uint32, 32) if parameters & WIDE_TABLE_MASK else (np.uint16, 16)
    table: list[int] = encoded.table(dtype).tolist()
    is_symbol, value_mask, count_shift = 1 << (size - 1), (1 << (size - 5)) - 1, size - 5
    initial = (parameters >> INITIAL_TABLE_SHIFT) + 1
    words = encoded.codes[: len(encoded.codes) // 4 * 4].view(">u4").tolist()
    end = 32 * len(words)
    words += [0, 0]  # the bits after the last code are read but not used
    symbols: list[int] = []
    position = indices = words_read = put_back = put_back_words = held_until = 0
    for _ in range(encoded.size):
        place, entry, count = 0, 0, initial
        while True:
            if position > end:
                raise OperatorError(f"ends after {len(symbols)} of {encoded.size} codes")
            pair = words[position >> 5] << 32 | words[(position >> 5) + 1]
            place += (entry & value_mask) + (pair >> (64 - (position & 31) - count) & ((1 << count) - 1))
            indices += 1
            position += count
            if position > held_until:
                held_until += 32
                words_read += 1
            if place >= len(table):
                raise OperatorError(f"has a code that leads out of its table of {len(table)} entries")
            entry = table[place]
            if entry & is_symbol:
                break
            count = (entry >> count_shift & 15) + 1
        unused = max(count - (entry >> count_shift & 15), 0)
        position -= unused
        put_back += unused > 0
        if position < held_until - 32:
            held_until -= 32
            put_back_words += 1
        symbols.append(entry & value_mask)
    if position > end:
        raise OperatorError("ends within its last code")
    return HuffmanCodes(symbols, indices, words_read, put_back, put_back_words, position)


def _bits(encoded: Encoded, count: int) -> npt.NDArray[np.uint8]:
    if 8 * len(encoded.codes) < count:
        raise OperatorError(f"has {len(encoded.codes)} bytes, its elements need {count} bits")
    return np.unpackbits(encoded.codes, count=count)


def _dtype(type: TensorType) -> np.dtype[Any]:
    """BOOL is treated as bytes, so that any byte is copied unchanged."""
    return np.dtype(np.uint8) if type == TensorType.BOOL else ELEMENT_TYPES[type].dtype


def _bytes(tensor: TfLiteTensor) -> npt.NDArray[np.uint8]:
    return tensor.data.reshape(-1).view(np.uint8)


class Scheme(NamedTuple):
    """A way to compress tensors.

    Attributes:
        state: the C structure that the kernel keeps for an output.
        reads: which parts of the tensors it reads after it allocated the state.
        has_channels: whether it uses the output's quantization.
        check: raises `OperatorError` for data that can't be decoded.
        decode: returns the elements.
        since: the commit of TFLM that added it.
    """

    state: Struct
    reads: Reads
    has_channels: bool
    check: Callable[[Encoded, TfLiteTensor], None]
    decode: Callable[[Encoded], Elements]
    since: str


LOOK_UP_TABLE = Scheme(DECODE_STATE_LUT, Reads.DIMENSION, True, _check_look_up, _decode_look_up, "d96fe663d")
HUFFMAN = Scheme(DECODE_STATE_HUFFMAN, Reads.TYPE, False, _check_huffman, _decode_huffman, "a94423c6b")
PRUNE = Scheme(DECODE_STATE_PRUNE, Reads.ZERO_POINTS, True, _check_pruned, _decode_pruned, "ecf58d7a4")
SCHEMES = {0: LOOK_UP_TABLE, 1: HUFFMAN, 2: PRUNE}
"""Decoding functions by the type in the metadata."""

TFLM_DECODE = Registration(
    "TFLM_DECODE", _bind_decode, _prepare_decode, requests=_requests, types=VALUE_TYPES, since="d96fe663d"
)
