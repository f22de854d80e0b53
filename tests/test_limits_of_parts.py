"""Limits and counts of small parts on both sides: scratch buffers, a cached description, costs, words of codes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from models import FLOAT32, INT8

import tflm
from tflm.compiler import host
from tflm.kernels.reference import decode
from tflm.kernels.reference.decode import Encoded, huffman_codes
from tflm.memory.tensor import TfLiteEvalTensor, TfLiteTensor
from tflm.rewriting.compression.encodings import smallest_encoding
from tflm.schedule.operator_costs import MEASURED_COPIES, _difference
from tflm.schema import ModelBuilder, quantized

# --- Scratch buffers -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("counts", [(12, 12), (0, 12), (12, 1, 12), (7, 7), (13, 0), (0, 13), (12, 13)])
def test_each_operator_may_ask_for_twelve_scratch_buffers(counts: tuple[int, ...]) -> None:
    main = ModelBuilder().subgraph()
    x, resolver = main.input("x", (1, 4), FLOAT32), tflm.AllOpsResolver()

    def registration(name: str, count: int) -> tflm.Registration:
        def prepare(context: tflm.KernelContext, node: tflm.Node) -> None:
            for _ in range(count):
                context.request_scratch_buffer_in_arena(16)

        return tflm.Registration(name, prepare=prepare, invoke=lambda context, node: None)

    for i, count in enumerate(counts):
        y = main.tensor(f"y{i}", (1, 4), FLOAT32)
        main.operator(f"Asks{i}", [x], [y])
        resolver.add_custom(registration(f"Asks{i}", count))
        x = y
    main.output(x)
    model = tflm.Model(main.builder.build())
    if max(counts) <= 12:
        measured = tflm.measure_arena(model, resolver)
        assert sum(buffer.kind == "scratch" for buffer in measured.buffers) == sum(counts)
    else:
        with pytest.raises(tflm.ArenaError, match="12 scratch buffers"):
            tflm.measure_arena(model, resolver)


# --- A cached description of this machine ----------------------------------------------------------------------------

GOOD = b"x86_64-linux\nznver3\n+avx,-sse4a"


@pytest.mark.parametrize(
    ("content", "is_used"),
    [
        (GOOD, True),
        (None, False),
        (b"", False),
        (GOOD + b"\nmore", False),
        (GOOD.rpartition(b"\n")[0], False),
        (b"\nznver3\n+avx", False),
        (b"x86_64-linux\n\n+avx", False),
        (b"x86_64-linux\nznver3\n", False),
        (GOOD.replace(b"avx", b"\xff\xfe"), False),
    ],
)
def test_a_damaged_description_of_the_machine_is_not_used(
    monkeypatch: pytest.MonkeyPatch, content: bytes | None, is_used: bool
) -> None:
    monkeypatch.setattr("tflm.compiler.host.cached_files.read", lambda name: content)
    found = host._read("host")
    assert found == (tuple(GOOD.decode().split("\n")) if is_used else None)


# --- What another copy of an operator adds ---------------------------------------------------------------------------


@given(st.integers(0, 500), st.integers(0, 300))
def test_what_a_copy_adds_is_rounded_up(before: int, growth: int) -> None:
    def measure(copies: Any) -> Any:
        return SimpleNamespace(tail_bytes=before + (growth if copies else 0))

    def with_copies(count: int) -> Any:
        return count

    each = _difference(with_copies, measure)
    assert (each - 1) * MEASURED_COPIES < growth <= each * MEASURED_COPIES


# --- Words of Huffman codes ------------------------------------------------------------------------------------------


def encoded(values: np.ndarray[Any, Any]) -> Encoded:
    """The Huffman codes of values."""
    main = ModelBuilder().subgraph()
    main.output(main.constant("c", values, quantized(0.5)))
    model = tflm.Model(main.builder.build())
    (table,) = model.subgraphs[0].tensors or ()
    tensor = TfLiteTensor(table, TfLiteEvalTensor(model, table))
    found = smallest_encoding(tensor, (decode.HUFFMAN,))
    assert found is not None
    return Encoded(found.codes, found.metadata, "c", INT8, values.shape, (0,), False)


@pytest.mark.parametrize("bits", [1, 2, 4])
@pytest.mark.parametrize("count", [1, 7, 8, 9, 16, 31, 32, 33, 64])
def test_codes_of_equal_lengths_are_read_from_as_many_words_as_they_fill(bits: int, count: int) -> None:
    """A table with as many bits as the codes needs no bit more than theirs."""
    values = np.arange(count, dtype=np.int64) % 2**bits - 3
    if len(set(values.tolist())) < 2**bits:
        return
    found = huffman_codes(encoded(values.astype(np.int8)))
    assert found.symbols == [int(value) & 0xFF for value in values]
    if count % 2**bits == 0:  # each value is as frequent as the others
        assert found.end == bits * count
        assert found.words - found.put_back_words == -(-found.end // 32)
        assert (found.indices, found.put_back) == (count, 0)
