"""Print random TFLM_DECODE operators in lines of JSON, which tools/count_instructions.py counts.

    python tools/decoding_operators.py COUNT [SEED] > decoding.jsonl

A line has `op`, `encoding` (a name of `SCHEMES`), `outputs` as [[type, shape]], `channels` (null for one scale, or the
dimension of the scales), `zero_point`, and `values`: how many different ones, and the share of the zero point.
"""

from __future__ import annotations

import json
import random
import sys
from typing import Any

import numpy as np

import tflm
from tflm.kernels.reference.decode import HUFFMAN, LOOK_UP_TABLE, PRUNE, TFLM_DECODE
from tflm.memory.tensor import TfLiteEvalTensor, TfLiteTensor
from tflm.rewriting.compression.encodings import smallest_encoding
from tflm.schema import TensorType
from tflm.schema.enums import ELEMENT_TYPES

SCHEMES = {"look-up table": LOOK_UP_TABLE, "pruned": PRUNE, "Huffman": HUFFMAN}


def decoding_model(line: dict[str, Any]) -> bytes:
    """A model of one TFLM_DECODE, as its line describes it, with random values."""
    kind, shape = line["outputs"][0]
    type = TensorType[kind.upper()]
    scales = tflm.quantized(0.02, line["zero_point"])
    if line["channels"] is not None:
        scales = tflm.quantized([0.02] * shape[line["channels"]], line["zero_point"], line["channels"])
    values = _values(line["values"], shape, line["zero_point"]).astype(ELEMENT_TYPES[type].dtype)
    encoding = smallest_encoding(_constant(values, scales), (SCHEMES[line["encoding"]],))
    assert encoding is not None, f"{line} has no encoding"
    builder = tflm.ModelBuilder()
    graph = builder.subgraph()
    parts = [graph.constant(name, each) for name, each in (("codes", encoding.codes), ("metadata", encoding.metadata))]
    result = graph.tensor("y", tuple(shape), type, scales)
    graph.operator(TFLM_DECODE.name, parts, [result])
    graph.output(result)
    return builder.build()


def _values(described: dict[str, Any], shape: list[int], zero_point: int) -> Any:
    draw = np.random.default_rng(described["seed"])
    table = draw.permutation(np.arange(-120, 121, dtype=np.int64))[: described["different"]]
    is_zero = draw.random(shape) < described["zeros"]
    skewed = np.minimum(draw.geometric(described["skew"], shape) - 1, len(table) - 1)
    return np.where(is_zero, zero_point, table[skewed])


def _constant(values: Any, scales: Any) -> TfLiteTensor:
    builder = tflm.ModelBuilder()
    graph = builder.subgraph()
    graph.output(graph.constant("values", values, scales))
    model = tflm.Model(builder.build())
    table = (model.subgraphs[0].tensors or [])[0]
    return TfLiteTensor(table, TfLiteEvalTensor(model, table))


def random_line(dice: random.Random) -> dict[str, Any]:
    """A random operator: convolution filters or matrices of int8, int16 or int32."""
    encoding = dice.choice(["look-up table", "look-up table", "look-up table", "pruned", "Huffman"])
    kind = dice.choice(
        ["int8", "int8", "int8", "int16"] if encoding == "Huffman" else ["int8", "int8", "int16", "int32"]
    )
    shape = [dice.choice([1, 3, 8, 16, 40]), *dice.choice([[3, 3], [1, 1], [5, 2]]), dice.choice([1, 4, 12, 33, 64])]
    different = dice.choice([2, 3, 7, 14, 30, 60, 120]) if encoding == "look-up table" else dice.choice([9, 40, 200])
    return {
        "op": TFLM_DECODE.name,
        "encoding": encoding,
        "outputs": [[kind, shape]],
        "channels": dice.choice([None, 0, 3]),
        "zero_point": dice.choice([0, 0, 5]) if kind == "int8" else 0,
        "values": {
            "different": different,
            "zeros": dice.choice([0.0, 0.3, 0.8, 0.95]),
            "skew": dice.choice([0.02, 0.2, 0.5]),
            "seed": dice.randrange(1 << 30),
        },
    }


def main() -> None:
    """Print as many as asked for."""
    count, seed = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0
    dice = random.Random(seed)
    printed = 0
    while printed < count:
        line = random_line(dice)
        try:
            decoding_model(line)
        except AssertionError:  # more values than a look-up table holds
            continue
        print(json.dumps(line))
        printed += 1


if __name__ == "__main__":
    main()
