"""Loops of TFLM_DECODE: against a walk through the codes, and instructions against those that were counted."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from decoding_operators import decoding_model, random_line
from test_cli import figures
from test_compression import layers, sparse

import tflm
from tflm.firmware.decoding_trips import UNROLLED, decoding_trips, encoded_tensors
from tflm.firmware.instructions import decoding_instructions
from tflm.kernels.reference.decode import Encoded
from tflm.schema import TensorType

COUNTED = [
    json.loads(line) for line in (Path(__file__).parent / "recorded" / "decoding.jsonl").read_text().splitlines()
]
"""Operators that the fit does not have, as tools/count_instructions.py printed them."""

TARGETS = {"none": "cortex-m0plus", "dsp": "cortex-m4", "mve": "cortex-m55"}


def encoded_of(model: tflm.Model) -> tuple[Encoded, ...]:
    subgraph = model.subgraphs[0]
    return encoded_tensors(model, subgraph, (subgraph.operators or [])[0])


@pytest.mark.parametrize(
    ("variable", "more", "said"),
    [
        ("", [], ""),
        ("codes", [], "needs constant codes and metadata"),
        ("head", [], "needs constant codes and metadata"),
        ("", ["head"], "needs two inputs for each output"),
    ],
)
def test_codes_that_are_not_of_the_model_are_refused(variable: str, more: list[str], said: str) -> None:
    main = tflm.ModelBuilder().subgraph()
    head = np.array([0, 1, 0, 0, 1, 1, 2, *[0] * 9, 5, 7], np.uint8)  # a table of two values, indices of one bit
    values = {"codes": np.array([0x40], np.uint8), "head": head}
    inputs = {
        name: main.input(name, each.shape, TensorType.UINT8) if name == variable else main.constant(name, each)
        for name, each in values.items()
    }
    y = main.tensor("y", (1, 2), TensorType.INT8, tflm.quantized(0.5))
    main.operator("TFLM_DECODE", [*inputs.values(), *(inputs[name] for name in more)], [y])
    main.output(y)
    model = tflm.Model(main.builder.build())
    if said:
        with pytest.raises(tflm.OperatorError, match=said):
            encoded_of(model)
    else:
        (encoded,) = encoded_of(model)
        assert encoded.size == 2


def walked(encoded: Encoded) -> Counter[str]:
    """The loops of TFLM's kernels, element by element."""
    trips = Counter[str]()
    channels = len(encoded.zero_points)
    order = "channels last" if encoded.is_last_axis else "channels"
    scheme = encoded.metadata[0]
    if scheme == 0:
        bits = int(encoded.metadata[5] & 7)
        kind = "int8" if encoded.type is TensorType.INT8 else "wider"
        loop = f"table, {bits} bits, {kind}" + (", channels last" if encoded.is_last_axis else "")
        trips["tensors of tables"] = 1
        rows = encoded.size // channels if encoded.is_last_axis else channels
        block = UNROLLED.get(bits, 0) if kind == "int8" and not encoded.is_last_axis else 0
        offset = 0
        for _ in range(rows):
            trips["table, channels last, positions" if encoded.is_last_axis else "table, channels"] += 1
            left = encoded.size // rows
            while left:
                whole = block and offset % block == 0 and left >= block
                trips[f"{loop}, blocks" if whole else loop] += 1
                offset += block if whole else 1
                left -= block if whole else 1
    elif scheme == 2:
        trips["tensors, pruned"] = 1
        by_channel = channels > 1 and any(encoded.zero_points)
        loop = {False: "pruned", True: "pruned by channel" if order == "channels" else "pruned, channels last"}[
            by_channel
        ]
        for i in range(encoded.size):
            trips[loop] += 1
            if by_channel and i % (encoded.size // channels if order == "channels" else channels) == 0:
                trips["pruned, channels" if order == "channels" else "pruned, channels last, positions"] += 1
            if encoded.codes[i // 8] >> (7 - i % 8) & 1:
                trips["pruned by channel, values" if by_channel else "pruned, values"] += 1
    else:
        walk_huffman(encoded, trips)
    return trips


def walk_huffman(encoded: Encoded, trips: Counter[str]) -> None:
    """With a word of which `held` bits are left, as the kernel reads it."""
    is_wide = encoded.metadata[5] & 1
    table = encoded.table("u4" if is_wide else "u2").tolist()
    size = 32 if is_wide else 16
    bits = "".join(f"{byte:08b}" for byte in encoded.codes) + "0" * 64
    position = held = 0
    trips["tensors of Huffman codes"] = 1
    for _ in range(encoded.size):
        trips["Huffman"] += 1
        place, step, width = 0, 0, int(encoded.metadata[5] >> 4) + 1
        while True:
            if width > held:
                trips["Huffman, words"] += 1
                held += 32
            place += step + int(bits[position : position + width], 2)
            position, held = position + width, held - width
            entry = table[place]
            count, step = entry >> (size - 5) & 15, entry & ((1 << (size - 5)) - 1)
            if entry >> (size - 1):
                break
            trips["Huffman, further indices"] += 1
            width = count + 1
        if width > count:
            trips["Huffman, put back"] += 1
            position, held = position - (width - count), held + width - count
            if held > 32:
                trips["Huffman, words put back"] += 1
                held -= 32


def test_loops_run_as_often_as_in_a_walk_through_the_codes() -> None:
    dice, seen = random.Random(3), Counter[str]()
    for _ in range(60):
        try:
            data = decoding_model(random_line(dice))
        except AssertionError:  # more values than a look-up table holds
            continue
        (encoded,) = encoded_of(tflm.Model(data))
        trips = walked(encoded)
        assert +Counter(decoding_trips([encoded])) == +trips
        seen.update(trips)
    assert seen["Huffman, words"] > seen["tensors of Huffman codes"] > 0
    assert seen["pruned, channels"] > 0 < seen["table, 4 bits, int8, blocks"]


@pytest.mark.parametrize("encoding", ["look-up table", "pruned", "Huffman"])
def test_loops_run_as_often_for_every_length(encoding: str) -> None:
    """The last code may end anywhere in a word."""
    line = next(each for each in map(random_line, map(random.Random, range(99))) if each["encoding"] == encoding)
    line |= {"outputs": [["int8", [9, 9, 3]]], "channels": None}
    (whole,) = encoded_of(tflm.Model(decoding_model(line)))
    for size in range(1, whole.size + 1):
        encoded = whole._replace(dims=(size,))
        assert +Counter(decoding_trips([encoded])) == +walked(encoded), size


@pytest.mark.parametrize("optimization", ["-O2", "-Os"])
@pytest.mark.parametrize("extension", TARGETS)
def test_decoding_takes_the_instructions_that_were_counted(extension: str, optimization: str) -> None:
    name = f"cmsis-nn/{extension}/{optimization}"
    counted = [line for line in COUNTED if name in line["counts"]]
    for line in counted:
        model, target = tflm.Model(decoding_model(line)), tflm.targets.by_name(TARGETS[extension])
        expected = line["counts"][name][0]
        estimate = tflm.estimate(model, target=target, kernels="cmsis-nn", optimization=optimization)
        assert estimate.covered == 1
        if expected > 3000:
            assert estimate.instructions == pytest.approx(expected, rel=0.1), line
            ((tensor,),) = decoding_instructions(
                model, [(0, 0)], target=target, kernels="cmsis-nn", optimization=optimization
            )
            assert tensor == pytest.approx(expected, rel=0.1), line
    assert counted or name in ("cmsis-nn/none/-Os", "cmsis-nn/mve/-Os"), "not counted"


def test_the_command_shows_what_decoding_costs(tmp_path: Path) -> None:
    model = tmp_path / "model.tflite"
    model.write_bytes(layers([sparse((64, 96), 0.1), sparse((96, 64), 0.2)]))
    known = figures("compress", model, "--target", "cortex-m4", "--verify", 1)
    assert len(known["decoding_instructions"]) == len(known["tensors"]) == 2
    decoded = sum(tensor["decoded_bytes"] for tensor in known["tensors"])
    assert 3 < sum(known["decoding_instructions"]) / decoded < 40
    assert 0 < known["decoding_share"] < 1
    assert figures("compress", model, "--target", "xtensa", "--verify", 1)["decoding_instructions"] is None
