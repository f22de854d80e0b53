"""How much memory of the host a model can make the runtime take, however it is made."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import cast

import flatbuffers
import numpy as np
import pytest
from strategies import LARGE
from test_broken_models import finished, table_of, vector_of

import tflm
from tflm.runtime.micro_host_memory import ALWAYS_ALLOWED, MULTIPLE, HostMemory
from tflm.schema import BuiltinOperator, Conv2DOptions, FullyConnectedOptions, Padding, TensorType

LOADING_MULTIPLE, VERIFYING_MULTIPLE = 128, 256
"""Of the size of the file, as docs/reliability.md states them. Findings, thousands of them, take more than tables."""


@contextmanager
def traced() -> Iterator[SimpleNamespace]:
    """Bytes that Python and numpy take: at the most, and what is left at the end."""
    figures = SimpleNamespace(peak=0, kept=0)
    gc.collect()
    tracemalloc.start()
    try:
        yield figures
    finally:
        figures.kept, figures.peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()


def many_tables(slot: int, count: int = 5000) -> bytes:
    """A subgraph with so many references to one table without anything in it."""
    builder = flatbuffers.Builder(0)
    subgraph = table_of(builder, **{f"slot{slot}": vector_of(builder, [table_of(builder)] * count)})
    return finished(builder, table_of(builder, 3, slot2=vector_of(builder, [subgraph])))


def many_in_the_root(slot: int, count: int = 5000) -> bytes:
    """The same in the model itself."""
    builder = flatbuffers.Builder(0)
    return finished(builder, table_of(builder, 3, **{f"slot{slot}": vector_of(builder, [table_of(builder)] * count)}))


FULL_OF_TABLES = {
    "tensors": many_tables(0),
    "operators": many_tables(3),
    "operator codes": many_in_the_root(1),
    "subgraphs": many_in_the_root(2),
    "buffers": many_in_the_root(4),
    "metadata": many_in_the_root(6),
    "signatures": many_in_the_root(7),
}


@pytest.mark.parametrize("kind", FULL_OF_TABLES)
@pytest.mark.parametrize(
    ("read", "multiple"), [(tflm.Model, LOADING_MULTIPLE), (tflm.verify, VERIFYING_MULTIPLE)], ids=["Model", "verify"]
)
def test_reading_takes_a_multiple_of_the_file_at_the_most(
    kind: str, read: Callable[[bytes], object], multiple: int
) -> None:
    """Each table costs the file no more than the 4 bytes of a reference."""
    data = FULL_OF_TABLES[kind]
    findings = []
    with traced() as memory:
        try:
            read(data)
        except tflm.ModelError as error:
            findings.append(error)
    assert memory.peak < multiple * len(data)


def shared_weights(count: int) -> bytes:
    """A chain of FULLY_CONNECTED, all with the same weights: a small file for the floats of many matrices."""
    builder = tflm.ModelBuilder()
    main = builder.subgraph()
    width, scale = 512, tflm.quantized(0.5)
    x = main.input("x", (1, width), TensorType.INT8, scale)
    weights = main.constant("w", np.ones((width, width), np.int8), scale)
    for i in range(count):
        y = main.tensor(f"y{i}", (1, width), TensorType.INT8, scale)
        main.operator(BuiltinOperator.FULLY_CONNECTED, [x, weights, -1], [y], FullyConnectedOptions())
        x = y
    main.output(x)
    return builder.build()


def shared_windows(count: int) -> bytes:
    """A chain of CONV_2D over wide windows, whose copies are many times as large as the image."""
    builder = tflm.ModelBuilder()
    main = builder.subgraph()
    scale = tflm.quantized(0.5)
    x = main.input("x", (1, 32, 32, 4), TensorType.INT8, scale)
    weights = main.constant("w", np.ones((4, 15, 15, 4), np.int8), scale)
    options = Conv2DOptions(padding=Padding.SAME, stride_w=1, stride_h=1, dilation_w_factor=1, dilation_h_factor=1)
    for i in range(count):
        y = main.tensor(f"y{i}", (1, 32, 32, 4), TensorType.INT8, scale)
        main.operator(BuiltinOperator.CONV_2D, [x, weights], [y], options)
        x = y
    main.output(x)
    return builder.build()


@pytest.mark.parametrize(("model", "count"), [(shared_weights, 300), (shared_windows, 100)])
def test_operators_keep_a_multiple_of_arena_and_file_at_the_most(model: Callable[[int], bytes], count: int) -> None:
    """A few run; with many, the first that would take too much is named, and nothing of it stays."""
    arena = bytearray(1 << 17)
    interpreter = tflm.MicroInterpreter(tflm.Model(model(3)), tflm.AllOpsResolver(), arena, delegates=())
    interpreter.allocate_tensors()
    interpreter.invoke()
    assert interpreter.host_bytes() > 0
    del interpreter
    data = model(count)
    limit = MULTIPLE * (len(arena) + len(data)) + ALWAYS_ALLOWED
    refused = tflm.MicroInterpreter(tflm.Model(data), tflm.AllOpsResolver(), arena, delegates=())
    with traced() as memory:
        with pytest.raises(tflm.OperatorError, match=f"of the host's memory, more than the {limit}") as raised:
            refused.allocate_tensors()
        assert raised.value.operator_index is not None
        del raised
        gc.collect()
    assert 0.9 * limit < memory.peak < 1.2 * limit
    assert memory.kept < 1 << 20


@pytest.mark.parametrize(
    "name", ["CONV_2D-INT8", "FULLY_CONNECTED-INT8", "SVDF-INT8-INT8", "ADD-INT8", "LOGISTIC-INT16"]
)
def test_what_operators_keep_is_counted_in_full(name: str) -> None:
    data, _ = LARGE[name]()
    interpreters = [
        tflm.MicroInterpreter(tflm.Model(data), tflm.AllOpsResolver(), bytearray(1 << 24)) for _ in range(2)
    ]
    interpreters[0].allocate_tensors()  # so that kernels, and the tables that they share, are there already
    with traced() as memory:
        interpreters[1].allocate_tensors()
        gc.collect()
    assert 0.9 * (memory.kept - 50_000) < interpreters[1].host_bytes() < memory.kept


def test_arrays_are_counted_that_the_collector_does_not_look_for() -> None:
    """Python's garbage collector stops tracking a tuple in which there is nothing that it tracks."""
    arrays = tuple(np.zeros(1000) for _ in range(2))
    gc.collect()

    def run() -> None:
        assert arrays

    memory = HostMemory(0, 0, cast(tflm.KernelContext, None))
    memory.add(run)
    assert memory.bytes == 16000
