"""How much memory of the host a model can make the runtime take, however it is made."""

from __future__ import annotations

import gc
import itertools
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace

import flatbuffers
import numpy as np
import pytest
from large_operators import LARGE, large_arena
from sampling import one_type_each, some
from test_broken_models import finished, table_of, vector_of

import tflm
from tflm.kernels.host_memory import ALWAYS_ALLOWED, MULTIPLE, HostMemory, track_host_array
from tflm.schema import BuiltinOperator, Conv2DOptions, FullyConnectedOptions, Padding, TensorType

LOADING_MULTIPLE, VERIFYING_MULTIPLE = 128, 256
"""Of the size of the file, as docs/reliability.md states them. Findings, thousands of them, take more than tables."""


@pytest.fixture(scope="module", autouse=True)
def _few_objects() -> None:
    """Let the garbage collector, which tests call, scan only objects created from here on."""
    gc.freeze()


@contextmanager
def traced() -> Iterator[SimpleNamespace]:
    """Measure the memory of Python and numpy: the maximum, and what remains at the end."""
    figures = SimpleNamespace(peak=0, kept=0)
    gc.collect()
    tracemalloc.start()
    try:
        yield figures
    finally:
        figures.kept, figures.peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()


def many_tables(slot: int, count: int = 5000) -> bytes:
    """Return a subgraph with this many references to one empty table."""
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
    width, scale = 640, tflm.quantized(0.5)
    x = main.input("x", (1, width), TensorType.INT8, scale)
    weights = main.constant("w", np.ones((width, width), np.int8), scale)
    for i in range(count):
        y = main.tensor(f"y{i}", (1, width), TensorType.INT8, scale)
        main.operator(BuiltinOperator.FULLY_CONNECTED, [x, weights, -1], [y], FullyConnectedOptions())
        x = y
    main.output(x)
    return builder.build()


ENGINES = {"compiled": None, "numpy": ()}
"""The delegates of each."""


@pytest.mark.parametrize("engine", ENGINES)
def test_operators_keep_a_multiple_of_arena_and_file_at_the_most(engine: str) -> None:
    """A few run; with many, the first that would take too much is named, and nothing of it stays."""
    arena = bytearray(1 << 17)
    few = interpreter_of(shared_weights(3), arena, engine)
    few.allocate_tensors()
    few.invoke()
    assert few.host_bytes() > 0
    del few
    data = shared_weights(300)
    limit = MULTIPLE * (len(arena) + len(data)) + ALWAYS_ALLOWED
    refused = interpreter_of(data, arena, engine)
    with traced() as memory:
        with pytest.raises(tflm.OperatorError, match=f"of host memory, more than the limit of {limit}") as raised:
            refused.allocate_tensors()
        assert raised.value.operator_index is not None
        del raised
        gc.collect()
    assert 0.9 * limit < memory.peak < 1.2 * limit
    assert memory.kept < 1 << 20


def interpreter_of(data: bytes, arena: bytearray, engine: str) -> tflm.MicroInterpreter:
    """One with every operator, run by that engine."""
    return tflm.MicroInterpreter(tflm.Model(data), tflm.AllOpsResolver(), arena, delegates=ENGINES[engine])


KEEPING = [(name, engine) for place, engine in enumerate(ENGINES) for name in one_type_each(LARGE, place)]


@pytest.mark.parametrize(("name", "engine"), some(itertools.product(LARGE, ENGINES), *KEEPING))
def test_every_kernel_declares_what_it_keeps(name: str, engine: str) -> None:
    """What numpy has got for arrays since allocation began, and not given back, is what was declared.

    Tables that all models share are declared, too, but made only once. Numbers of a few bytes and what is as small
    as the operator's options need not be declared.
    """
    data, _ = LARGE[name]()
    interpreter_of(data, large_arena(), engine).allocate_tensors()  # so that kernels are compiled, and tables made
    interpreter = interpreter_of(data, large_arena(), engine)
    gc.collect()
    tracemalloc.start()
    try:
        interpreter.allocate_tensors()
        gc.collect()
        arrays = tracemalloc.DomainFilter(True, np.lib.tracemalloc_domain)
        kept = sum(trace.size for trace in tracemalloc.take_snapshot().filter_traces([arrays]).traces)
    finally:
        tracemalloc.stop()
    assert 0.9 * interpreter.host_bytes() - 4096 < kept < interpreter.host_bytes() + 4096


def test_an_account_counts_what_is_declared_while_it_is_there() -> None:
    account = HostMemory(0, 0)
    outside = track_host_array(np.zeros(1000, np.float64))
    with account.open():
        arrays = [track_host_array(np.zeros(1000, np.float64)) for _ in range(2)]
        view = track_host_array(track_host_array(arrays[0])[10:20].reshape(2, 5))
        assert account.bytes == 16_000
        assert track_host_array(np.frombuffer(bytearray(800), np.float64)) is not None
        assert account.bytes == 16_000
        del arrays
        assert account.bytes == 8_000
        del view
        assert account.bytes == 0
        with pytest.raises(tflm.OperatorError, match=f"{account.limit + 1} bytes of host memory"):
            track_host_array(np.zeros(account.limit + 1, np.uint8))
    assert len(outside) == 1000


@pytest.mark.parametrize("engine", ENGINES)
def test_a_data_set_that_an_operator_looks_into_is_not_its_own(engine: str) -> None:
    data_set = np.zeros(2 * ALWAYS_ALLOWED, np.uint8)
    builder = tflm.ModelBuilder()
    main = builder.subgraph()
    x, y = main.input("x", (4,), TensorType.UINT8), main.tensor("y", (4,), TensorType.UINT8)
    main.operator("Lookup", [x], [y])
    main.output(y)

    def bind(context: tflm.KernelContext, node: tflm.Node) -> Callable[[], None]:
        places, output = context.get_eval_input(node, 0).elements, context.get_eval_output(node, 0).elements

        def run() -> None:
            output[...] = data_set[places]

        return run

    resolver = tflm.MicroMutableOpResolver(1)
    resolver.add_custom(tflm.Registration("Lookup", bind))
    interpreter = tflm.MicroInterpreter(
        tflm.Model(builder.build()), resolver, bytearray(4096), delegates=ENGINES[engine]
    )
    interpreter.allocate_tensors()
    interpreter.invoke()
    assert interpreter.host_bytes() == 0


def test_windows_that_are_many_times_their_image_are_multiplied_in_parts() -> None:
    """Each of 64 x 64 places sees all 16 channels of 31 x 31 others: 63 million elements in all."""
    builder = tflm.ModelBuilder()
    main = builder.subgraph()
    scale = tflm.quantized(0.5)
    x = main.input("x", (1, 64, 64, 16), TensorType.INT8, scale)
    weights = main.constant("w", np.ones((1, 31, 31, 16), np.int8), tflm.quantized([0.5]))
    y = main.tensor("y", (1, 64, 64, 1), TensorType.INT8, scale)
    main.operator(
        BuiltinOperator.CONV_2D, [x, weights, -1], [y], Conv2DOptions(padding=Padding.SAME, stride_w=1, stride_h=1)
    )
    main.output(y)
    interpreter = interpreter_of(builder.build(), bytearray(1 << 17), "numpy")
    interpreter.allocate_tensors()
    with traced() as memory:
        interpreter.invoke()
    assert memory.peak < 16 << 20
