"""Tensors that a device prints: the C++ that `tflm export --dump` adds, and parsing its lines in a log.

A line has the invoke, the tensor, the offset of the bytes, the bytes in hexadecimal, and their Adler-32 checksum, which
detects damaged lines.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Mapping
from string import Template

import numpy as np
import numpy.typing as npt

from tflm.schema.enums import ELEMENT_TYPES, TensorType
from tflm.schema.model import Model

BYTES_A_LINE = 32

NOT_DUMPED = (TensorType.RESOURCE, TensorType.STRING, TensorType.VARIANT)

DUMP_HEADER = Template("""\
// $origin
#ifndef ${guard}_TENSOR_DUMP_H_
#define ${guard}_TENSOR_DUMP_H_

#include <cstddef>
#include <cstdint>

#include "tensorflow/lite/micro/micro_interpreter.h"
#include "tensorflow/lite/micro/micro_log.h"

$opening
struct ${camel}DumpedTensor {
  int index;
  size_t bytes;
};

// The model's inputs, and the outputs of its operators.
constexpr ${camel}DumpedTensor k${camel}DumpedTensors[] = {
$tensors
};

// Prints at most $width bytes of a tensor: the invoke, the tensor, the offset, the bytes, their Adler-32.
inline void Print${camel}Bytes(unsigned invoke, int tensor, size_t place, const uint8_t* bytes, size_t count) {
  constexpr char kDigits[] = "0123456789abcdef";
  char text[2 * $width + 1];
  uint32_t low = 1;
  uint32_t high = 0;
  for (size_t i = 0; i < count; ++i) {
    text[2 * i] = kDigits[bytes[i] >> 4];
    text[2 * i + 1] = kDigits[bytes[i] & 15];
    low = (low + bytes[i]) % 65521;
    high = (high + low) % 65521;
  }
  text[2 * count] = '\\0';
  MicroPrintf("tflm-dump %u %d %u %s %u", invoke, tensor, static_cast<unsigned>(place), text,
              static_cast<unsigned>((high << 16) | low));
}

// Prints every tensor after Invoke(), for `tflm compare MODEL LOG`. The interpreter preserves all tensors.
inline void Dump${camel}Tensors(MicroInterpreter& interpreter, unsigned invoke) {
  for (const ${camel}DumpedTensor& dumped : k${camel}DumpedTensors) {
    const TfLiteEvalTensor* tensor = interpreter.GetTensor(dumped.index);
    if (tensor == nullptr || tensor->data.data == nullptr) {
      continue;
    }
    const uint8_t* bytes = static_cast<const uint8_t*>(tensor->data.data);
    for (size_t place = 0; place < dumped.bytes; place += $width) {
      const size_t left = dumped.bytes - place;
      Print${camel}Bytes(invoke, dumped.index, place, bytes + place, left < $width ? left : $width);
    }
  }
}

$closing

using tflite::micro::exported::Dump${camel}Tensors;

#endif  // ${guard}_TENSOR_DUMP_H_
""")

LINE = re.compile(r"tflm-dump (\d+) (\d+) (\d+) ([0-9a-f]+) (\d+)")

Dump = Mapping[tuple[int, int], Mapping[int, bytes]]
"""Bytes by their offset, by invoke and tensor."""


def dump_header(model: Model, names: Mapping[str, str]) -> str:
    """Return the header that prints a model's tensors.

    Args:
        names: values for the templates of `tflm export`.
    """
    tensors = model.subgraphs[0].tensors or []
    lines = (
        f"    {{{index}, {ELEMENT_TYPES[tensors[index].type].packed_bytes(tuple(tensors[index].shape or ()))}}},"
        for index in dumped_tensors(model)
    )
    return DUMP_HEADER.substitute(names, tensors="\n".join(lines), width=BYTES_A_LINE)


def dumped_tensors(model: Model) -> list[int]:
    """Return the inputs of the first subgraph, then the outputs of its operators in order."""
    main = model.subgraphs[0]
    tensors = main.tensors or []
    made = [index for operator in main.operators or () for index in operator.outputs or ()]
    found = dict.fromkeys((*(main.inputs or ()), *made))
    return [index for index in found if tensors[index].type not in NOT_DUMPED]


def read_dump(lines: Iterable[str]) -> dict[tuple[int, int], dict[int, bytes]]:
    """Read the bytes in a log, except those of damaged lines."""
    found: dict[tuple[int, int], dict[int, bytes]] = {}
    for match in filter(None, map(LINE.search, lines)):
        invoke, tensor, place, digits, checksum = match.groups()
        data = bytes.fromhex(digits) if len(digits) % 2 == 0 else b""
        if data and zlib.adler32(data) == int(checksum):
            found.setdefault((int(invoke), int(tensor)), {})[int(place)] = data
    return found


def assembled(parts: Mapping[int, bytes], wanted: npt.NDArray[np.generic]) -> npt.NDArray[np.generic] | None:
    """Assemble a tensor from its parts, in another tensor's type and shape; None if bytes are missing."""
    whole = b"".join(parts[place] for place in sorted(parts))
    places = np.cumsum([0, *(len(parts[place]) for place in sorted(parts))], dtype=np.int64)[:-1].tolist()
    if places != sorted(parts) or len(whole) != wanted.nbytes:
        return None
    return np.frombuffer(whole, wanted.dtype.newbyteorder("<")).reshape(wanted.shape).astype(wanted.dtype)
