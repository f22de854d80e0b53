"""Trip counts of the loops of TFLM_DECODE, which depend on the compressed data."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable

import numpy as np

from tflm.errors import OperatorError
from tflm.kernels.reference.decode import (
    BIT_WIDTH_MASK,
    HUFFMAN,
    PARAMETERS_BYTE,
    TYPE_BYTE,
    Encoded,
    encoded_tensor,
    huffman_codes,
)
from tflm.memory.tensor import TfLiteEvalTensor, TfLiteTensor
from tflm.schema.enums import TensorType
from tflm.schema.model import Model
from tflm.schema.tables import Operator, SubGraph

UNROLLED = {2: 16, 3: 32, 4: 16}
"""Elements that the kernel for int8 decodes at once, by bits of an index."""


def _look_up(encoded: Encoded) -> dict[str, int]:
    """Indices of the same width; int8 by 16 or 32, from the next multiple of that in each channel."""
    bits = int(encoded.metadata[PARAMETERS_BYTE]) & BIT_WIDTH_MASK
    channels, size = len(encoded.zero_points), encoded.size
    tensor = {"tensors of tables": 1}
    loop = _look_up_loop(bits, encoded.type is TensorType.INT8, encoded.is_last_axis)
    if encoded.is_last_axis:
        return {**tensor, loop: size, "table, channels last, positions": size // channels}
    if encoded.type is not TensorType.INT8 or bits not in UNROLLED:
        return {**tensor, loop: size, "table, channels": channels}
    block = UNROLLED[bits]
    ends = np.arange(channels + 1, dtype=np.int64) * (size // channels)
    first = np.minimum(-(-ends[:-1] // block) * block, ends[1:])
    blocks = int(((ends[1:] - first) // block).sum(dtype=np.int64))
    singly = size - blocks * block
    return {**tensor, loop: singly, f"{loop}, blocks": blocks, "table, channels": channels}


def _look_up_loop(bits: int, is_int8: bool, is_last_axis: bool) -> str:
    return f"table, {bits} bits, {'int8' if is_int8 else 'wider'}{', channels last' if is_last_axis else ''}"


def _pruned(encoded: Encoded) -> dict[str, int]:
    """A bit for each element, and a value for each that is set."""
    values = int(np.count_nonzero(np.unpackbits(encoded.codes, count=encoded.size)))
    channels = len(encoded.zero_points)
    if channels == 1 or not any(encoded.zero_points):
        return {"tensors, pruned": 1, "pruned": encoded.size, "pruned, values": values}
    if encoded.is_last_axis:
        counts = {"pruned, channels last": encoded.size, "pruned, channels last, positions": encoded.size // channels}
    else:
        counts = {"pruned by channel": encoded.size, "pruned, channels": channels}
    return {"tensors, pruned": 1, **counts, "pruned by channel, values": values}


def _huffman(encoded: Encoded) -> dict[str, int]:
    codes = huffman_codes(encoded)
    return {
        "tensors of Huffman codes": 1,
        "Huffman": encoded.size,
        "Huffman, further indices": codes.indices - encoded.size,
        "Huffman, words": codes.words,
        "Huffman, put back": codes.put_back,
        "Huffman, words put back": codes.put_back_words,
    }


COUNTS: dict[int, Callable[[Encoded], dict[str, int]]] = {0: _look_up, 1: _huffman, 2: _pruned}
"""Trip counts for a tensor, by the type of the scheme in its metadata."""

LOOPS = (
    "tensors of tables",
    "tensors, pruned",
    "tensors of Huffman codes",
    *(_look_up_loop(*each) for each in itertools.product(range(1, BIT_WIDTH_MASK + 1), (True, False), (True, False))),
    *(f"{_look_up_loop(bits, True, False)}, blocks" for bits in UNROLLED),
    "table, channels",
    "table, channels last, positions",
    "pruned",
    "pruned, values",
    "pruned by channel",
    "pruned, channels",
    "pruned, channels last",
    "pruned, channels last, positions",
    "pruned by channel, values",
    "Huffman",
    "Huffman, further indices",
    "Huffman, words",
    "Huffman, put back",
    "Huffman, words put back",
)
"""Names of the loops of all schemes."""


def decoding_trips(tensors: Iterable[Encoded]) -> dict[str, int]:
    """Trip counts of the loops of a TFLM_DECODE with these tensors.

    Raises:
        OperatorError: the codes of a tensor end early, or lead out of their tables.
    """
    trips = dict.fromkeys(LOOPS, 0)
    for encoded in tensors:
        for loop, count in COUNTS[int(encoded.metadata[TYPE_BYTE])](encoded).items():
            trips[loop] += count
    return trips


def encoded_tensors(model: Model, subgraph: SubGraph, operator: Operator) -> tuple[Encoded, ...]:
    """The tensors that a TFLM_DECODE decodes.

    Raises:
        OperatorError: TFLM_DECODE rejects the operator's tensors.
    """
    tables = subgraph.tensors or []
    inputs, outputs = list(operator.inputs or ()), list(operator.outputs or ())
    if len(inputs) != 2 * len(outputs):
        raise OperatorError("needs two inputs for each output")
    tensors = [TfLiteTensor(tables[i], TfLiteEvalTensor(model, tables[i])) for i in (*inputs, *outputs)]
    return tuple(
        _encoded(*parts, model) for parts in zip(tensors[: len(inputs) : 2], tensors[1::2], tensors[len(inputs) :])
    )


def _encoded(codes: TfLiteTensor, metadata: TfLiteTensor, output: TfLiteTensor, model: Model) -> Encoded:
    if not codes.is_constant or not metadata.is_constant:
        raise OperatorError("needs constant codes and metadata")
    scheme, encoded = encoded_tensor(codes, metadata, output, model)
    scheme.check(encoded, output)
    if scheme is not HUFFMAN:  # its codes are followed to count trips
        scheme.decode(encoded)
    return encoded
